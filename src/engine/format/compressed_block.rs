// SPDX-License-Identifier: GPL-2.0

//! A data block that holds the compressed data of several logical blocks.
//!
//! Version 1.0, as dm-vdo writes it:
//!
//! | offset | size | field                                              |
//! |-------:|-----:|----------------------------------------------------|
//! |      0 |    8 | version 1.0                                        |
//! |      8 |   28 | 14 x u16 fragment sizes, unused = 0                |
//! |     36 | 4060 | fragments back to back in the order of their slots |
//!
//! Version 2.0 names the format of its fragments:
//!
//! | offset | size | field                                              |
//! |-------:|-----:|----------------------------------------------------|
//! |      0 |    8 | version 2.0                                        |
//! |      8 |   28 | 14 x u16 fragment sizes, unused = 0                |
//! |     36 |    1 | stream format, see [`StreamFormat`]                |
//! |     37 | 4059 | fragments back to back in the order of their slots |
//!
//! We write zeros after the last fragment. Other software leaves there what its buffer held.

use core::ops::Range;

use super::field::{bytes_at, get_u32, get_u8, put_u32, put_u8, set_bytes_at};
pub use super::stream_format::StreamFormat;
use super::{Component, FormatError, Version};
use crate::engine::units::{Block, FragmentSlot, BLOCK_SIZE, MAX_FRAGMENTS};

/// The version whose fragments are LZ4.
pub const VERSION_1: Version = Version::new(1, 0);
/// The version that names the format of its fragments.
pub const VERSION_2: Version = Version::new(2, 0);

const MAJOR: usize = 0;
const MINOR: usize = 4;
const SIZES: usize = 8;
const SIZE_BYTES: usize = 2;
const DATA_1: usize = SIZES + MAX_FRAGMENTS * SIZE_BYTES;
const STREAM_FORMAT: usize = DATA_1;
const DATA_2: usize = STREAM_FORMAT + 1;

/// Blocks of LZ4 alone keep the version that every reader knows.
const fn data_offset(format: StreamFormat) -> usize {
    match format {
        StreamFormat::Lz4 => DATA_1,
        _ => DATA_2,
    }
}

impl StreamFormat {
    /// The largest fragment that a block takes beside another one.
    pub const fn fragment_bytes_max(self) -> usize {
        BLOCK_SIZE - data_offset(self) - 1
    }

    /// The bytes that a block has for fragments.
    pub const fn payload_bytes(self) -> usize {
        BLOCK_SIZE - data_offset(self)
    }
}

/// Whether the header of `block` is one that the in-tree driver reads.
pub fn is_version_1(block: &Block) -> bool {
    Version::new(get_u32::<MAJOR>(block), get_u32::<MINOR>(block)) == VERSION_1
}

/// A compressed block that was read.
#[derive(Clone, Copy, Debug)]
pub struct CompressedBlock<'a> {
    block: &'a Block,
    format: StreamFormat,
    data: usize,
}

impl<'a> CompressedBlock<'a> {
    /// Looks at the header of `block`.
    pub fn parse(block: &'a Block) -> Result<Self, FormatError> {
        let found = Version::new(get_u32::<MAJOR>(block), get_u32::<MINOR>(block));
        let (format, data) = if found == VERSION_1 {
            (StreamFormat::Lz4, DATA_1)
        } else if found == VERSION_2 {
            let id = get_u8::<STREAM_FORMAT>(block);
            let format = StreamFormat::decode(id).ok_or(FormatError::OutOfRange(
                "stream format of a compressed block",
            ))?;
            (format, DATA_2)
        } else {
            return Err(FormatError::UnsupportedVersion {
                component: Component::CompressedBlock,
                expected: VERSION_1,
                found,
            });
        };
        Ok(Self {
            block,
            format,
            data,
        })
    }

    /// What the fragments are.
    pub fn format(&self) -> StreamFormat {
        self.format
    }

    /// The bytes of fragment `slot` in the block. An error if there is no such fragment or if the
    /// sizes up to it run past the block: the sum is checked, not wrapped.
    pub fn fragment(&self, slot: FragmentSlot) -> Result<Range<usize>, FormatError> {
        let mut start = self.data;
        for before in 0..slot.get() {
            // 14 sizes of 16 bits cannot overflow.
            start += self.size(before);
            if start >= BLOCK_SIZE {
                return Err(FormatError::BadFragment);
            }
        }
        let end = start + self.size(slot.get());
        if end == start || end > BLOCK_SIZE {
            return Err(FormatError::BadFragment);
        }
        Ok(start..end)
    }

    fn size(&self, slot: u8) -> usize {
        bytes_at(self.block, SIZES + usize::from(slot) * SIZE_BYTES)
            .map_or(0, |size| u16::from_le_bytes(size).into())
    }
}

/// The fragment does not fit beside those that are already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DoesNotFit;

/// Puts fragments together into a block.
pub struct CompressedBlockBuilder<'a> {
    block: &'a mut Block,
    /// Fragments so far.
    count: u8,
    /// Where the next one goes.
    end: usize,
}

impl<'a> CompressedBlockBuilder<'a> {
    /// Makes `block` one without fragments.
    pub fn new(block: &'a mut Block, format: StreamFormat) -> Self {
        *block = [0; BLOCK_SIZE];
        let version = match format {
            StreamFormat::Lz4 => VERSION_1,
            _ => {
                put_u8::<STREAM_FORMAT>(block, format.encode());
                VERSION_2
            }
        };
        put_u32::<MAJOR>(block, version.major);
        put_u32::<MINOR>(block, version.minor);
        Self {
            block,
            count: 0,
            end: data_offset(format),
        }
    }

    /// Appends a fragment and returns the slot it got.
    pub fn push(&mut self, fragment: &[u8]) -> Result<FragmentSlot, DoesNotFit> {
        let slot = FragmentSlot::new(self.count).ok_or(DoesNotFit)?;
        let size = u16::try_from(fragment.len()).map_err(|_| DoesNotFit)?;
        let room = self.block.get_mut(self.end..).ok_or(DoesNotFit)?;
        let to = room.get_mut(..fragment.len()).ok_or(DoesNotFit)?;
        if fragment.is_empty() {
            return Err(DoesNotFit);
        }
        to.copy_from_slice(fragment);
        self.end += fragment.len();

        let place = SIZES + usize::from(self.count) * SIZE_BYTES;
        set_bytes_at(self.block, place, size.to_le_bytes()).ok_or(DoesNotFit)?;
        self.count += 1;
        Ok(slot)
    }

    /// Fragments so far.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// Bytes left for more of them.
    pub fn room(&self) -> usize {
        BLOCK_SIZE.saturating_sub(self.end)
    }
}
