// SPDX-License-Identifier: GPL-2.0

//! The algorithm map of one slab in memory, and how many of its blocks are of which kind. Guarded by the slab's lock.
//!
//! What is here is what the disk is going to have: a code stays when its block becomes free. The counts follow the references, so
//! they are of blocks that are in use.

use crate::engine::format::algorithm_map::{code, set_code, BlockCode, CODE_BYTES_PER_BLOCK};
use crate::engine::format::StreamFormat;
use crate::engine::units::{SlabBlockNumber, PROVISIONAL_REFERENCE_COUNT};
use crate::rt::{AllocError, Vec};

/// How many blocks in use are of which kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlocksByCode([u64; BlockCode::KINDS]);

impl BlocksByCode {
    /// Blocks with that code.
    pub fn with_code(&self, code: BlockCode) -> u64 {
        self.0.get(code.kind()).copied().unwrap_or(0)
    }

    /// Blocks with fragments of `format`.
    pub fn of_format(&self, format: StreamFormat) -> u64 {
        let named = match format {
            StreamFormat::Lz4 => self.with_code(BlockCode::NAMED_LZ4),
            _ => 0,
        };
        self.with_code(BlockCode::of_format(format))
            .saturating_add(named)
    }

    /// Blocks that would have to be read to know.
    pub fn unknown(&self) -> u64 {
        self.with_code(BlockCode::UNKNOWN)
    }

    /// Compressed blocks that the in-tree driver cannot read, those not counted that have to be read to know.
    pub fn beyond_version_1(&self) -> u64 {
        [BlockCode::ZSTD, BlockCode::DEFLATE, BlockCode::NAMED_LZ4]
            .into_iter()
            .fold(0, |sum, code| sum.saturating_add(self.with_code(code)))
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum = sum.saturating_add(count);
        }
    }

    fn change(&mut self, code: BlockCode, change: impl FnOnce(u64) -> u64) {
        if let Some(count) = self.0.get_mut(code.kind()) {
            *count = change(*count);
        }
    }
}

/// The codes of a slab.
///
/// # Invariants
///
/// `counts` is of the codes of all blocks whose counter says that they are referenced.
pub(super) struct Codes {
    packed: Vec<u8>,
    counts: BlocksByCode,
}

impl Codes {
    /// Codes of a slab without compressed blocks.
    pub(super) fn new(data_blocks: u32) -> Result<Self, AllocError> {
        let len = usize::try_from(data_blocks.div_ceil(2)).map_err(|_| AllocError)?;
        // INVARIANT: nothing is referenced.
        Ok(Self {
            packed: Vec::from_elem(0, len)?,
            counts: BlocksByCode::default(),
        })
    }

    /// The code of a block. What the disk has may be none.
    pub(super) fn get(&self, sbn: SlabBlockNumber) -> BlockCode {
        code(&self.packed, index(sbn))
            .filter(|code| code.is_valid())
            .unwrap_or(BlockCode::UNKNOWN)
    }

    /// Sets the code of a block whose counter is `counter`. `true` if it was another one.
    pub(super) fn set(&mut self, sbn: SlabBlockNumber, to: BlockCode, counter: u8) -> bool {
        let Some(old) = set_code(&mut self.packed, index(sbn), to) else {
            return false;
        };
        if is_referenced(counter) {
            // INVARIANT: counted as `old` before.
            self.counts.change(old, |count| count.saturating_sub(1));
            self.counts.change(to, |count| count.saturating_add(1));
        }
        old != to
    }

    /// The counter of a block went from `old` to `new`.
    pub(super) fn counter_changed(&mut self, sbn: SlabBlockNumber, old: u8, new: u8) {
        // INVARIANT: counted while referenced.
        match (is_referenced(old), is_referenced(new)) {
            (false, true) => {
                let code = self.get(sbn);
                self.counts.change(code, |count| count.saturating_add(1));
            }
            (true, false) => {
                let code = self.get(sbn);
                self.counts.change(code, |count| count.saturating_sub(1));
            }
            _ => {}
        }
    }

    /// Counts anew, by the counters of all blocks.
    pub(super) fn recount(&mut self, counters: &[u8]) {
        let mut counts = BlocksByCode::default();
        for (index, _) in counters
            .iter()
            .enumerate()
            .filter(|(_, counter)| is_referenced(**counter))
        {
            let code = code(&self.packed, index).unwrap_or(BlockCode::UNKNOWN);
            counts.change(code, |count| count.saturating_add(1));
        }
        // INVARIANT: just counted.
        self.counts = counts;
    }

    /// How many blocks in use are of which kind.
    pub(super) fn counts(&self) -> &BlocksByCode {
        &self.counts
    }

    /// The packed codes of a block of the map.
    pub(super) fn block(&self, block: usize) -> &[u8] {
        let (start, end) = self.range(block);
        self.packed.get(start..end).unwrap_or(&[])
    }

    /// The packed codes of a block of the map, to be replaced. [`Codes::recount`] has to follow.
    pub(super) fn block_mut(&mut self, block: usize) -> Option<&mut [u8]> {
        let (start, end) = self.range(block);
        self.packed.get_mut(start..end)
    }

    fn range(&self, block: usize) -> (usize, usize) {
        let start = block.saturating_mul(CODE_BYTES_PER_BLOCK);
        let end = start
            .saturating_add(CODE_BYTES_PER_BLOCK)
            .min(self.packed.len());
        (start, end)
    }
}

/// Whether a counter says that a block is in use, and not only allocated.
fn is_referenced(counter: u8) -> bool {
    !matches!(counter, 0 | PROVISIONAL_REFERENCE_COUNT)
}

fn index(sbn: SlabBlockNumber) -> usize {
    // A slab block number has 23 bits.
    usize::try_from(sbn.get()).unwrap_or(usize::MAX)
}
