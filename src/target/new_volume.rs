// SPDX-License-Identifier: GPL-2.0

//! What volume a table line makes of an empty device.
//!
//! Pure values: no locks, nothing to await.

use crate::engine::format::formatter::FormatParams;
use crate::engine::format::index_config::IndexConfig;
use crate::engine::format::FormatError;
use crate::engine::units::Nonce;
use crate::target::table_line::TableLine;

/// Random bytes that [`new_volume`] needs.
pub const RANDOM_BYTES: usize = 24;

/// The volume that `line` asks for: its sizes, with journals of the usual size. A table line of version 0 has no physical size and
/// takes all of the device. `random` becomes the nonce and the uuid.
pub fn new_volume(
    line: &TableLine,
    device_blocks: u64,
    random: &[u8; RANDOM_BYTES],
) -> Result<FormatParams, FormatError> {
    let options = &line.options;
    let index = IndexConfig::new(options.index_memory.encoded() as i32, options.index_sparse)?;
    let (nonce, uuid) = random
        .split_first_chunk::<8>()
        .ok_or(FormatError::Truncated)?;
    let uuid = uuid.first_chunk::<16>().ok_or(FormatError::Truncated)?;
    Ok(FormatParams::new(
        line.physical_blocks.unwrap_or(device_blocks),
        line.logical_blocks,
        u64::from(options.slab_size_blocks),
        index,
        Nonce::new(u64::from_le_bytes(*nonce)),
        uuid_of(*uuid),
    ))
}

/// A random uuid (RFC 9562, version 4).
fn uuid_of(mut bytes: [u8; 16]) -> [u8; 16] {
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut bytes;
    *version = (*version & 0x0f) | 0x40;
    *variant = (*variant & 0x3f) | 0x80;
    bytes
}
