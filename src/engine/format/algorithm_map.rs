// SPDX-License-Identifier: GPL-2.0

//! The algorithm map of a slab: what kind of block each data block is, as far as compression is concerned.
//!
//! A slab that has a map ends with it: data blocks, reference blocks, a journal that is shorter than usual, the map. Eight sectors
//! in a block, each of
//!
//! | offset | size | field                                              |
//! |-------:|-----:|----------------------------------------------------|
//! |      0 |    8 | commit point in the slab's journal                 |
//! |      8 |  504 | 1008 codes of four bits, the even one in the low half of its byte |
//!
//! Commit points are those of [`reference_block`](super::reference_block), sectors are torn off and replayed in the same way.
//!
//! | code | the block                                                              |
//! |-----:|------------------------------------------------------------------------|
//! |    0 | is no compressed block                                                 |
//! |    1 | has LZ4 fragments and does not say so (compressed block 1.0)           |
//! |    2 | has zstd fragments                                                     |
//! |    3 | has deflate fragments                                                  |
//! |    4 | has LZ4 fragments and says so (compressed block 2.0)                   |
//! |   14 | is a page of the block map; in entries of the slab journal only        |
//! |   15 | has to be read to know                                                 |
//!
//! The code of a block that nothing refers to means nothing: it is left as it was, and set when the block is used again. So blocks
//! that are used in the same way again and again never make the map dirty.

use super::compressed_block::{is_version_1, CompressedBlock, StreamFormat};
use super::reference_block::{self, CommitPoints};
use crate::engine::units::{Block, JournalPoint, SlabBlockNumber, SECTORS_PER_BLOCK, SECTOR_SIZE};

/// Codes in a sector.
pub const CODES_PER_SECTOR: usize = 1008;
/// Codes in a block.
pub const CODES_PER_BLOCK: usize = SECTORS_PER_BLOCK * CODES_PER_SECTOR;
/// Bytes of codes in a block.
pub const CODE_BYTES_PER_BLOCK: usize = CODES_PER_BLOCK / 2;

const BYTES_PER_SECTOR: usize = CODES_PER_SECTOR / 2;
const CODES: usize = SECTOR_SIZE - BYTES_PER_SECTOR;

/// What kind of block a data block is.
///
/// # Invariants
///
/// The number has four bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BlockCode(u8);

impl BlockCode {
    /// How many kinds of blocks are told apart.
    pub const KINDS: usize = 6;
    /// No compressed block.
    pub const NONE: Self = Self(0);
    /// LZ4 in a block that the in-tree driver reads.
    pub const LZ4: Self = Self(1);
    /// Zstd.
    pub const ZSTD: Self = Self(2);
    /// Deflate.
    pub const DEFLATE: Self = Self(3);
    /// LZ4 in a block that names its format.
    pub const NAMED_LZ4: Self = Self(4);
    /// A page of the block map, in entries of the slab journal.
    pub const BLOCK_MAP: Self = Self(14);
    /// Only the block itself says.
    pub const UNKNOWN: Self = Self(15);

    /// The low four bits of `bits`. Not every number means something, see [`BlockCode::is_valid`].
    pub const fn from_low_bits(bits: u8) -> Self {
        // INVARIANT: masked.
        Self(bits & 0xf)
    }

    /// The stored number.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The place of the code in a table of [`BlockCode::KINDS`]. Numbers that mean nothing say as much as [`BlockCode::UNKNOWN`].
    pub const fn kind(self) -> usize {
        match self {
            Self::NONE => 0,
            Self::LZ4 => 1,
            Self::ZSTD => 2,
            Self::DEFLATE => 3,
            Self::NAMED_LZ4 => 4,
            _ => 5,
        }
    }

    /// Whether a map may have the code.
    pub const fn is_valid(self) -> bool {
        matches!(
            self,
            Self::NONE | Self::LZ4 | Self::ZSTD | Self::DEFLATE | Self::NAMED_LZ4 | Self::UNKNOWN
        )
    }

    /// The code of the blocks that the packer makes of fragments of `format`.
    pub const fn of_format(format: StreamFormat) -> Self {
        match format {
            StreamFormat::Lz4 => Self::LZ4,
            StreamFormat::Zstd => Self::ZSTD,
            StreamFormat::Deflate => Self::DEFLATE,
        }
    }

    /// The code of a block that is mapped as a compressed one, by its header.
    pub fn of_block(block: &Block) -> Self {
        match CompressedBlock::parse(block).map(|parsed| parsed.format()) {
            Ok(StreamFormat::Lz4) if !is_version_1(block) => Self::NAMED_LZ4,
            Ok(format) => Self::of_format(format),
            Err(_) => Self::UNKNOWN,
        }
    }

    /// The format of the block's fragments. `None` if it has none, or if that is not known.
    pub const fn format(self) -> Option<StreamFormat> {
        match self {
            Self::LZ4 | Self::NAMED_LZ4 => Some(StreamFormat::Lz4),
            Self::ZSTD => Some(StreamFormat::Zstd),
            Self::DEFLATE => Some(StreamFormat::Deflate),
            _ => None,
        }
    }
}

/// Where the code of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePlace {
    /// The block of the map, counted from the first of its slab.
    pub block: usize,
    /// The sector in it.
    pub sector: usize,
}

/// Finds the code of a block of the slab.
pub fn locate(sbn: SlabBlockNumber) -> CodePlace {
    let index = sbn.get() as usize;
    CodePlace {
        block: index / CODES_PER_BLOCK,
        sector: index % CODES_PER_BLOCK / CODES_PER_SECTOR,
    }
}

/// Blocks that a map of `data_blocks` codes takes.
pub const fn map_blocks(data_blocks: u64) -> u64 {
    data_blocks.div_ceil(CODES_PER_BLOCK as u64)
}

/// The code at place `index` of packed codes. `None` if there is no such place.
pub fn code(packed: &[u8], index: usize) -> Option<BlockCode> {
    let byte = *packed.get(index / 2)?;
    Some(BlockCode::from_low_bits(byte >> shift(index)))
}

/// Sets the code at place `index` of packed codes, and returns the one before. `None` if there is no such place.
pub fn set_code(packed: &mut [u8], index: usize, to: BlockCode) -> Option<BlockCode> {
    let byte = packed.get_mut(index / 2)?;
    let old = BlockCode::from_low_bits(*byte >> shift(index));
    *byte = *byte & !(0xf << shift(index)) | to.0 << shift(index);
    Some(old)
}

const fn shift(index: usize) -> u32 {
    if index & 1 == 0 {
        0
    } else {
        4
    }
}

/// Makes `block` one of `packed` codes, which are fewer than fit only at the end of a slab.
pub fn encode(block: &mut Block, commit_point: JournalPoint, packed: &[u8]) {
    let point = commit_point.encode().to_le_bytes();
    let mut from = packed.iter();
    for sector in block.chunks_exact_mut(SECTOR_SIZE) {
        if let Some((head, to)) = sector.split_first_chunk_mut() {
            *head = point;
            for byte in to {
                *byte = from.next().copied().unwrap_or(0);
            }
        }
    }
}

/// Reads the codes of `block` into `packed`, which are fewer than there are only at the end of a slab.
pub fn decode(block: &Block, packed: &mut [u8]) -> CommitPoints {
    for (sector, to) in block
        .chunks_exact(SECTOR_SIZE)
        .zip(packed.chunks_mut(BYTES_PER_SECTOR))
    {
        for (to, from) in to.iter_mut().zip(sector.iter().skip(CODES)) {
            *to = *from;
        }
    }
    reference_block::commit_points(block)
}
