// SPDX-License-Identifier: GPL-2.0

//! Fields of on-disk structures, read the plainest way there is.
//!
//! Nothing in the auditor uses the engine's decoders: a mistake in those would otherwise hide
//! itself.

use crate::sim::image::Block;

/// The little-endian u16 at `at`.
pub fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(block[at..at + 2].try_into().expect("two bytes"))
}

/// The little-endian u32 at `at`.
pub fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

/// The little-endian u64 at `at`.
pub fn u64_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

/// The checksum of geometry and super block, bit by bit.
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0xedb8_8320
        } else {
            crc >> 1
        }
    };
    let crc = bytes
        .iter()
        .fold(0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step));
    !crc
}

/// A journal point: a sequence number above a 16-bit entry.
pub fn point(sequence: u64, entry: u64) -> u64 {
    (sequence << 16) | entry
}

/// A journal point in words.
pub fn show(point: u64) -> String {
    format!("{}:{}", point >> 16, point & 0xffff)
}

/// A block map entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mapping {
    /// 0 unmapped, 1 uncompressed, 2 and up a fragment.
    pub state: u8,
    /// Where the data is.
    pub pbn: u64,
}

impl Mapping {
    /// Reads five bytes at `at`.
    pub fn at(block: &[u8], at: usize) -> Self {
        let pbn = u64::from(block[at] >> 4) << 32 | u64::from(u32_at(block, at + 1));
        Self {
            state: block[at] & 15,
            pbn,
        }
    }

    /// Whether the combination of state and block has a meaning.
    pub fn is_valid(&self) -> bool {
        if self.pbn == 0 {
            self.state <= 1
        } else {
            self.state != 0
        }
    }

    /// Whether the logical block counts as used.
    pub fn is_mapped(&self) -> bool {
        self.state != 0
    }
}

/// The stream format of fragments: one LZ4 block each.
pub const LZ4: u8 = 1;
/// The stream format of fragments: one zstd frame each.
pub const ZSTD: u8 = 2;
/// The stream format of fragments: raw deflate.
pub const DEFLATE: u8 = 16;

/// A compressed block, taken apart.
pub struct CompressedBlock<'a> {
    /// The major version: 1 is LZ4 alone, 2 names its format.
    pub version: u32,
    /// What the fragments are.
    pub format: u8,
    /// The fragments.
    pub fragments: Vec<&'a [u8]>,
    /// Whether everything behind them is zero.
    pub tail_is_zero: bool,
}

impl<'a> CompressedBlock<'a> {
    /// Takes a block apart.
    pub fn read(block: &'a Block) -> Result<Self, String> {
        let (version, format, mut offset) = match (u32_at(block, 0), u32_at(block, 4)) {
            (1, 0) => (1, LZ4, 36),
            (2, 0) => (2, block[36], 37),
            _ => return Err("is no compressed block of a known version".to_string()),
        };
        let mut fragments = Vec::new();
        let mut ended = false;
        for slot in 0..14 {
            let size = usize::from(u16_at(block, 8 + 2 * slot));
            if size == 0 {
                ended = true;
                continue;
            }
            if ended {
                return Err(format!(
                    "has a fragment in slot {slot} behind an empty slot"
                ));
            }
            let fragment = block.get(offset..offset + size);
            fragments.push(fragment.ok_or_else(|| format!("fragment {slot} runs past the block"))?);
            offset += size;
        }
        Ok(Self {
            version,
            format,
            fragments,
            tail_is_zero: block[offset..].iter().all(|byte| *byte == 0),
        })
    }

    /// The 4096 bytes that a fragment stands for.
    pub fn expand(&self, slot: usize) -> Option<Block> {
        let fragment = self.fragments.get(slot)?;
        let mut data = [0; 4096];
        let whole = match self.format {
            LZ4 => {
                lz4_flex::block::decompress_into(fragment, &mut data).is_ok_and(|size| size == 4096)
            }
            DEFLATE => {
                let mut inflate = flate2::Decompress::new(false);
                let end = inflate.decompress(fragment, &mut data, flate2::FlushDecompress::Finish);
                end.is_ok_and(|end| end == flate2::Status::StreamEnd) && inflate.total_out() == 4096
            }
            ZSTD => {
                zstd_safe::decompress(&mut data[..], fragment).is_ok_and(|size| size == data.len())
            }
            _ => false,
        };
        whole.then_some(data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_format_hold() {
        assert_eq!(crc32(b"123456789"), 0xd202_d277);
        let entry = Mapping {
            state: 5,
            pbn: 0x9_8765_4321,
        };
        assert_eq!(Mapping::at(&[0x95, 0x21, 0x43, 0x65, 0x87], 0), entry);
        assert_eq!(point(0x1234, 7), 0x1234_0007);
    }
}
