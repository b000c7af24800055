// SPDX-License-Identifier: GPL-2.0

//! A page of the block map.
//!
//! | offset | size | field                                                    |
//! |-------:|-----:|----------------------------------------------------------|
//! |      0 |    8 | version 4.1                                              |
//! |      8 |    8 | nonce of the volume                                      |
//! |     16 |    8 | physical block of the page itself                        |
//! |     24 |    8 | unused, kept as found                                    |
//! |     32 |    1 | initialized: 0 or 1                                      |
//! |     33 |    3 | unused, kept as found                                    |
//! |     36 | 4060 | 812 entries, see [`block_map_entry`](super::block_map_entry) |
//!
//! The first write of a page to a block says `initialized` = 0 and is followed by a second that
//! says 1: a torn first write can never be taken for a page. Later writes may tear between
//! sectors, each of which is either old or new; the recovery journal still has what is missing.

use super::block_map_entry::{Mapping, ENTRY_BYTES};
use super::field::{bytes_at, get_u32, get_u64, get_u8, put_u32, put_u64, put_u8, set_bytes_at};
use super::{Component, FormatError, Version};
use crate::engine::units::{Block, EntrySlot, Nonce, Pbn, BLOCK_SIZE};

/// The only version of a page.
pub const VERSION: Version = Version::new(4, 1);

const MAJOR: usize = 0;
const MINOR: usize = 4;
const NONCE: usize = 8;
const PBN: usize = 16;
const INITIALIZED: usize = 32;
const ENTRIES: usize = 36;

/// What a block that was read as a page turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageContents {
    /// A page of this volume.
    Valid,
    /// Not a page yet: the block was allocated for one that was never written completely. Every
    /// entry is unmapped, whatever the bytes say.
    Fresh,
}

/// Makes `page` an empty page for `pbn` that was never written.
pub fn format(page: &mut Block, nonce: Nonce, pbn: Pbn) {
    *page = [0; BLOCK_SIZE];
    put_u32::<MAJOR>(page, VERSION.major);
    put_u32::<MINOR>(page, VERSION.minor);
    put_u64::<NONCE>(page, nonce.get());
    put_u64::<PBN>(page, pbn.get());
}

/// Says what was read from `pbn`.
///
/// A page of this volume that belongs elsewhere, or is of an unknown version, is an error: to
/// take it for an empty one would lose what is mapped in it.
pub fn classify(page: &Block, nonce: Nonce, pbn: Pbn) -> Result<PageContents, FormatError> {
    if get_u64::<NONCE>(page) != nonce.get() {
        return Ok(PageContents::Fresh);
    }

    let version = Version::new(get_u32::<MAJOR>(page), get_u32::<MINOR>(page));
    if version != VERSION {
        return Err(FormatError::UnsupportedVersion {
            component: Component::BlockMapPage,
            expected: VERSION,
            found: version,
        });
    }

    match get_u8::<INITIALIZED>(page) {
        0 => return Ok(PageContents::Fresh),
        1 => {}
        _ => return Err(FormatError::OutOfRange("flag of a block map page")),
    }

    let found = get_u64::<PBN>(page);
    if found != pbn.get() {
        return Err(FormatError::BadPage {
            expected: pbn.get(),
            found,
        });
    }
    Ok(PageContents::Valid)
}

/// Whether the page has been written completely once.
pub fn is_initialized(page: &Block) -> bool {
    get_u8::<INITIALIZED>(page) == 1
}

/// Says whether the page has been written completely once.
pub fn set_initialized(page: &mut Block, initialized: bool) {
    put_u8::<INITIALIZED>(page, initialized.into());
}

/// The entry in `slot`.
pub fn entry(page: &Block, slot: EntrySlot) -> Mapping {
    // The slot is below 812, so its entry always lies in the page.
    bytes_at(page, offset(slot)).map_or(Mapping::UNMAPPED, Mapping::decode)
}

/// Sets the entry in `slot`.
pub fn set_entry(page: &mut Block, slot: EntrySlot, mapping: Mapping) {
    let _ = set_bytes_at(page, offset(slot), mapping.encode());
}

/// All entries of the page, in the order of their slots.
pub fn entries(page: &Block) -> impl Iterator<Item = (EntrySlot, Mapping)> + '_ {
    (0..EntrySlot::LIMIT)
        .filter_map(EntrySlot::new)
        .map(|slot| (slot, entry(page, slot)))
}

fn offset(slot: EntrySlot) -> usize {
    ENTRIES + usize::from(slot.get()) * ENTRY_BYTES
}
