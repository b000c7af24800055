// SPDX-License-Identifier: GPL-2.0

//! The slab summary: what must be known of each slab before anything of it is read.
//!
//! 16 copies of four blocks; a copy has an entry of two bytes for each of 8192 slabs. A volume
//! that runs with N physical zones maintains the first N copies, and in copy z only the entries of
//! slabs n with n mod N = z.
//!
//! | byte | bits | field                                                              |
//! |-----:|-----:|--------------------------------------------------------------------|
//! |    0 |  all | tail block offset: position of the next slab journal block to write |
//! |    1 |  0-5 | fullness hint: free blocks in units of 1/64 slab                   |
//! |    1 |    6 | load reference counts: there are some on disk                      |
//! |    1 |    7 | dirty: the journal may have what the counts do not                 |

use super::field::{bytes_at, set_bytes_at};
use super::slab_config::SlabConfig;
use crate::engine::units::{
    Block, SlabNumber, BLOCK_SIZE, MAX_PHYSICAL_ZONES, MAX_SLABS, SLAB_SUMMARY_BLOCKS,
};

/// Entries in a block.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_SIZE / ENTRY_BYTES;
/// Blocks of one copy.
pub const BLOCKS_PER_COPY: usize = MAX_SLABS as usize / ENTRIES_PER_BLOCK;

const ENTRY_BYTES: usize = 2;
const HINT_BITS: u32 = 6;
const HINT_MASK: u8 = (1 << HINT_BITS) - 1;
const LOAD_REFERENCE_COUNTS: u8 = 1 << 6;
const DIRTY: u8 = 1 << 7;

const _: () = assert!(BLOCKS_PER_COPY * MAX_PHYSICAL_ZONES == SLAB_SUMMARY_BLOCKS as usize);

/// What is known of a slab.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SummaryEntry {
    /// The position of the next block of the slab's journal.
    pub tail_block_offset: u8,
    /// About how much of the slab is free, see [`fullness_hint`]. Six bits.
    pub fullness_hint: u8,
    /// Whether the reference blocks on disk mean anything.
    pub load_reference_counts: bool,
    /// Whether the journal may have entries that the reference blocks do not.
    pub is_dirty: bool,
}

impl SummaryEntry {
    /// A slab that was never used.
    pub fn unused(config: &SlabConfig) -> Self {
        Self {
            fullness_hint: fullness_hint(config.data_blocks, config.slab_bits()),
            ..Self::default()
        }
    }

    /// Reads a stored entry. Every value is one.
    pub const fn decode(bytes: [u8; ENTRY_BYTES]) -> Self {
        let [tail_block_offset, rest] = bytes;
        Self {
            tail_block_offset,
            fullness_hint: rest & HINT_MASK,
            load_reference_counts: rest & LOAD_REFERENCE_COUNTS != 0,
            is_dirty: rest & DIRTY != 0,
        }
    }

    /// The stored form.
    pub const fn encode(self) -> [u8; ENTRY_BYTES] {
        let load = if self.load_reference_counts {
            LOAD_REFERENCE_COUNTS
        } else {
            0
        };
        let dirty = if self.is_dirty { DIRTY } else { 0 };
        [
            self.tail_block_offset,
            (self.fullness_hint & HINT_MASK) | load | dirty,
        ]
    }

    /// Whether the slab's journal was never written, so that there is no tail block to read.
    pub const fn has_blank_journal(self) -> bool {
        // A journal that a recovery has filled to its last position has the offset 0, too; but then it has something that the
        // counts do not.
        self.tail_block_offset == 0 && !self.load_reference_counts && !self.is_dirty
    }

    /// The position of the newest block of the slab's journal. `None` if it was never written,
    /// or if the offset is not one of a journal of that size.
    pub fn newest_journal_position(self, slab_journal_blocks: u64) -> Option<u64> {
        let next = u64::from(self.tail_block_offset);
        if self.has_blank_journal() || next >= slab_journal_blocks {
            None
        } else if next == 0 {
            slab_journal_blocks.checked_sub(1)
        } else {
            Some(next - 1)
        }
    }
}

/// The hint for a slab of 2^`slab_bits` blocks of which `free_blocks` are free. Zero only if none
/// is.
pub fn fullness_hint(free_blocks: u64, slab_bits: u32) -> u8 {
    if free_blocks == 0 {
        return 0;
    }
    let shift = slab_bits.saturating_sub(HINT_BITS);
    let hint = free_blocks.checked_shr(shift).unwrap_or(0);
    hint.clamp(1, HINT_MASK.into()) as u8
}

/// About how many blocks a hint stands for.
pub fn free_blocks_hint(hint: u8, slab_bits: u32) -> u64 {
    u64::from(hint & HINT_MASK)
        .checked_shl(slab_bits.saturating_sub(HINT_BITS))
        .unwrap_or(0)
}

/// Where the entry of `slab` in copy `copy` is: the block of the summary and the place in it.
/// `None` if there is no such slab or copy.
pub fn locate(copy: usize, slab: SlabNumber) -> Option<(usize, usize)> {
    if copy >= MAX_PHYSICAL_ZONES || slab.get() >= MAX_SLABS {
        return None;
    }
    let slab = slab.get() as usize;
    Some((
        copy * BLOCKS_PER_COPY + slab / ENTRIES_PER_BLOCK,
        slab % ENTRIES_PER_BLOCK,
    ))
}

/// The copy that has the word for `slab` on a volume last used with `zone_count` zones.
pub fn authoritative_copy(slab: SlabNumber, zone_count: u8) -> usize {
    slab.get()
        .checked_rem(u32::from(zone_count))
        .map_or(0, |copy| copy as usize)
}

/// The entry at place `index` of a block.
pub fn entry(block: &Block, index: usize) -> Option<SummaryEntry> {
    bytes_at(block, index.checked_mul(ENTRY_BYTES)?).map(SummaryEntry::decode)
}

/// Sets the entry at place `index` of a block. `None` if there is no such place.
pub fn set_entry(block: &mut Block, index: usize, entry: SummaryEntry) -> Option<()> {
    set_bytes_at(block, index.checked_mul(ENTRY_BYTES)?, entry.encode())
}

/// Makes the slabs from number `first` on never used ones, in block `index` of the summary.
pub fn forget_slabs_from(block: &mut Block, index: usize, first: u32, config: &SlabConfig) {
    let unused = SummaryEntry::unused(config);
    let start = index
        .checked_rem(BLOCKS_PER_COPY)
        .unwrap_or(0)
        .saturating_mul(ENTRIES_PER_BLOCK);
    let known = (first as usize).saturating_sub(start);
    for place in known..ENTRIES_PER_BLOCK {
        let _ = set_entry(block, place, unused);
    }
}
