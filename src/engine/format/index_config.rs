// SPDX-License-Identifier: GPL-2.0

//! The size of the deduplication index, and the blocks that it takes on the device.
//!
//! Stored in the geometry block:
//!
//! | offset | size | field                                                              |
//! |-------:|-----:|--------------------------------------------------------------------|
//! |      0 |    4 | memory: i32, gigabytes, or a code, see [`IndexConfig::new`]      |
//! |      4 |    4 | unused, written as zero                                            |
//! |      8 |    1 | sparse: 0 or 1                                                     |

use super::field::{Reader, Writer};
use super::FormatError;

/// Largest index, in gigabytes of memory.
const MAX_GIGABYTES: u32 = 1024;
/// Added to the gigabytes of an index that gave up a chapter when LVM took some of its space.
const REDUCED: i32 = 0x1000;

const BLOCKS_PER_INDEX_PAGE: u64 = 8;
const RECORDS_PER_PAGE: u64 = 1024;
const INDEX_PAGE_BITS: u64 = (32768 - 20) * 8;
const DELTA_LIST_OFFSET_BITS: u64 = 19;
const CHAPTER_MEAN_DELTA: u64 = 65536;
const VOLUME_INDEX_ADDRESS_BITS: u32 = 20;
const ENTRIES_PER_VOLUME_INDEX_LIST: u64 = 256;
const SPARSE_SAMPLE_RATE: u64 = 32;
const RECORD_BYTES: u64 = 32;
const BLOCK_BYTES: u64 = 4096;

/// How much memory an index uses, which decides everything about its shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Memory {
    /// Quarters of a gigabyte, one to three.
    Quarters(u8),
    /// Gigabytes, 1 to 1024.
    Gigabytes(u32),
}

/// The index of a volume.
///
/// # Invariants
///
/// The memory is one of the sizes that there are, so that no size computed from it overflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    memory: Memory,
    /// Whether it gave up one chapter when its volume was converted by LVM.
    reduced: bool,
    /// Whether it remembers ten times as much, and looks at a sample of that only.
    pub sparse: bool,
}

impl IndexConfig {
    /// The smallest index.
    pub const SMALLEST: Self = Self {
        memory: Memory::Quarters(1),
        reduced: false,
        sparse: false,
    };

    /// Makes one from the code for its memory: 1 to 1024 for gigabytes; -256, -512 and -768 for
    /// one to three quarters of one. An index that gave up a chapter when LVM converted its volume
    /// has 4096 more than the gigabytes, or -1280, -1536 or -1792.
    pub fn new(memory: i32, sparse: bool) -> Result<Self, FormatError> {
        let (memory, reduced) = match memory {
            -256 => (Memory::Quarters(1), false),
            -512 => (Memory::Quarters(2), false),
            -768 => (Memory::Quarters(3), false),
            -1280 => (Memory::Quarters(1), true),
            -1536 => (Memory::Quarters(2), true),
            -1792 => (Memory::Quarters(3), true),
            _ => {
                let reduced = memory > REDUCED;
                let gigabytes = if reduced { memory - REDUCED } else { memory };
                match u32::try_from(gigabytes) {
                    Ok(number @ 1..=MAX_GIGABYTES) => (Memory::Gigabytes(number), reduced),
                    _ => return Err(FormatError::OutOfRange("memory size of the index")),
                }
            }
        };
        // INVARIANT: any other code was refused.
        Ok(Self {
            memory,
            reduced,
            sparse,
        })
    }

    /// All indexes that there can be.
    pub fn all() -> impl Iterator<Item = Self> {
        let gigabytes = 1..=MAX_GIGABYTES as i32;
        let quarters = (1..=3).map(|quarters| -256 * quarters);
        quarters
            .chain(gigabytes)
            .flat_map(|memory| {
                let reduced = if memory < 0 {
                    memory - 1024
                } else {
                    memory + REDUCED
                };
                [memory, reduced]
            })
            .flat_map(|memory| [false, true].map(|sparse| Self::new(memory, sparse)))
            .flatten()
    }

    /// The code for the memory, as it is stored.
    pub fn memory_code(&self) -> i32 {
        match (self.memory, self.reduced) {
            (Memory::Quarters(quarters), false) => -256 * i32::from(quarters),
            (Memory::Quarters(quarters), true) => -1024 - 256 * i32::from(quarters),
            (Memory::Gigabytes(number), false) => number as i32,
            (Memory::Gigabytes(number), true) => (number as i32).saturating_add(REDUCED),
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let memory = reader.u32()? as i32;
        let _unused = reader.u32()?;
        let sparse = match reader.u8()? {
            0 => false,
            1 => true,
            _ => return Err(FormatError::OutOfRange("sparse flag of the index")),
        };
        Self::new(memory, sparse)
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u32(self.memory_code() as u32)?;
        writer.u32(0)?;
        writer.u8(self.sparse.into())
    }

    /// Blocks that the index needs on the device.
    pub fn region_blocks(&self) -> u64 {
        let shape = self.shape();
        let volume = (1 + shape.chapters * shape.pages_per_chapter()) * BLOCKS_PER_INDEX_PAGE;
        let page_map_bytes = 16 + 2 * shape.chapters * (shape.index_pages - 1);
        let open_chapter_bytes = 14 + shape.records_per_chapter() * RECORD_BYTES;
        let save = 1
            + self.volume_index_save_blocks(&shape)
            + page_map_bytes.div_ceil(BLOCK_BYTES)
            + open_chapter_bytes.div_ceil(BLOCK_BYTES);
        // Header, configuration and seal, and two places for a saved state.
        3 + volume + 2 * save
    }

    fn shape(&self) -> Shape {
        let (record_pages, base) = match self.memory {
            Memory::Quarters(quarters) => (64 * u64::from(quarters), 1024),
            Memory::Gigabytes(number) => (256, 1024 * u64::from(number)),
        };
        let (chapters, sparse_chapters) = if self.sparse {
            (base * 10, base * 19 / 2)
        } else {
            (base, 0)
        };
        let records = record_pages * RECORDS_PER_PAGE;
        let list_bits = bits((records - 1) | 63) - 6;
        Shape {
            record_pages,
            chapters: chapters - u64::from(self.reduced),
            sparse_chapters,
            index_pages: index_pages(records, 1 << list_bits, bits(record_pages - 1)),
        }
    }

    fn volume_index_save_blocks(&self, shape: &Shape) -> u64 {
        let records = shape.records_per_chapter();
        let bytes = if self.sparse {
            let sampled = records / SPARSE_SAMPLE_RATE;
            12 + self.sub_index_save_bytes(sampled, shape.chapters)
                + self
                    .sub_index_save_bytes(records - sampled, shape.chapters - shape.sparse_chapters)
        } else {
            self.sub_index_save_bytes(records, shape.chapters)
        };
        (bytes + 8).div_ceil(BLOCK_BYTES) + 16
    }

    /// The saved size of a part of the volume index that has `records` of each chapter.
    fn sub_index_save_bytes(&self, records: u64, chapters: u64) -> u64 {
        // A reduced index keeps the shape that it had before.
        let chapters = chapters + u64::from(self.reduced);
        let lists =
            (records * chapters / ENTRIES_PER_VOLUME_INDEX_LIST).max(ENTRIES_PER_VOLUME_INDEX_LIST);
        let spare_chapters = (chapters / 256).max(2);
        let live_chapters = chapters + spare_chapters;
        let mean_delta = (lists << VOLUME_INDEX_ADDRESS_BITS)
            .checked_div(records * live_chapters)
            .unwrap_or(0);
        let chapter_bits = delta_bits(records, mean_delta, bits(chapters - 1));
        let memory = chapter_bits * live_chapters / 8 * 106 / 100;
        (40 + 8 * lists) + (40 + 9 * lists) + memory.next_multiple_of(65536)
    }
}

/// The shape of an index.
struct Shape {
    record_pages: u64,
    chapters: u64,
    sparse_chapters: u64,
    index_pages: u64,
}

impl Shape {
    fn records_per_chapter(&self) -> u64 {
        self.record_pages * RECORDS_PER_PAGE
    }

    fn pages_per_chapter(&self) -> u64 {
        self.record_pages + self.index_pages
    }
}

/// Pages for the delta lists of a chapter.
fn index_pages(records: u64, lists: u64, payload_bits: u32) -> u64 {
    let entries = delta_bits(records, CHAPTER_MEAN_DELTA, payload_bits);
    let total = entries + DELTA_LIST_OFFSET_BITS * lists;
    let list = entries.checked_div(lists).unwrap_or(0);
    let per_page = INDEX_PAGE_BITS - DELTA_LIST_OFFSET_BITS - list;
    total
        .checked_add(per_page - 1)
        .and_then(|sum| sum.checked_div(per_page))
        .unwrap_or(0)
}

/// Expected size of `entries` delta-coded entries with gaps of `mean_delta`.
fn delta_bits(entries: u64, mean_delta: u64, payload_bits: u32) -> u64 {
    let increment = (836_158 * mean_delta + 603_160) / 1_206_321;
    let minimum = bits(increment + 1);
    entries * u64::from(payload_bits + minimum + 1) + entries / 2
}

/// Bits that a number takes; at least one.
fn bits(number: u64) -> u32 {
    number.checked_ilog2().unwrap_or(0) + 1
}
