// SPDX-License-Identifier: GPL-2.0

//! The reference counters of one slab, one byte per data block. Guarded by the slab's lock.

use crate::engine::format::reference_block::COUNTERS_PER_BLOCK;
use crate::engine::format::slab_journal::ReferenceUpdate;
use crate::engine::units::{SlabBlockNumber, MAX_REFERENCE_COUNT, PROVISIONAL_REFERENCE_COUNT};
use crate::rt::{AllocError, Vec};

/// A block that nobody uses.
pub(super) const FREE: u8 = 0;

/// The counter after `update` while the volume runs, where whatever is referenced was allocated or pinned before.
pub(super) fn updated(counter: u8, update: ReferenceUpdate) -> Result<u8, &'static str> {
    match (counter, update) {
        (FREE, ReferenceUpdate::Increment | ReferenceUpdate::BlockMapIncrement) => {
            Err("reference to a block that is not allocated")
        }
        (PROVISIONAL_REFERENCE_COUNT, update) => updated_from_disk(FREE, update),
        (counter, update) => updated_from_disk(counter, update),
    }
}

/// The counter after `update` in a replay, where provisional references are gone.
pub(super) fn updated_from_disk(counter: u8, update: ReferenceUpdate) -> Result<u8, &'static str> {
    match update {
        ReferenceUpdate::Increment if counter >= MAX_REFERENCE_COUNT => {
            Err("more references to a block than its counter holds")
        }
        ReferenceUpdate::Increment => Ok(counter.saturating_add(1)),
        ReferenceUpdate::Decrement => counter
            .checked_sub(1)
            .ok_or("fewer references to a block than none"),
        ReferenceUpdate::BlockMapIncrement if counter == FREE => Ok(MAX_REFERENCE_COUNT),
        ReferenceUpdate::BlockMapIncrement => Err("block map page in a block that is in use"),
    }
}

/// The counters of a slab.
///
/// # Invariants
///
/// `free_in_block` has the number of zero bytes of each reference block, `free` their sum.
pub(super) struct Counters {
    counters: Vec<u8>,
    free_in_block: Vec<u16>,
    free: u32,
}

impl Counters {
    /// Counters of a slab whose blocks are all free.
    pub(super) fn new(data_blocks: u32) -> Result<Self, AllocError> {
        let len = usize::try_from(data_blocks).map_err(|_| AllocError)?;
        let counters = Vec::from_elem(FREE, len)?;
        let free_in_block = Vec::from_fn(len.div_ceil(COUNTERS_PER_BLOCK), |block| {
            let rest = len.saturating_sub(block.saturating_mul(COUNTERS_PER_BLOCK));
            u16::try_from(rest.min(COUNTERS_PER_BLOCK)).map_err(|_| AllocError)
        })?;
        // INVARIANT: everything is free.
        Ok(Self {
            counters,
            free_in_block,
            free: data_blocks,
        })
    }

    /// The number of free blocks.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    /// The counter of a block. `None` if it is no data block.
    pub(super) fn get(&self, sbn: SlabBlockNumber) -> Option<u8> {
        self.counters.get(index(sbn)).copied()
    }

    /// Sets the counter of a data block, and returns the reference block it is in.
    pub(super) fn set(&mut self, sbn: SlabBlockNumber, value: u8) -> Option<usize> {
        let index = index(sbn);
        let block = index / COUNTERS_PER_BLOCK;
        let counter = self.counters.get_mut(index)?;
        let free_in_block = self.free_in_block.get_mut(block)?;
        // INVARIANT: both counts follow the byte.
        match (*counter == FREE, value == FREE) {
            (true, false) => {
                *free_in_block = free_in_block.saturating_sub(1);
                self.free = self.free.saturating_sub(1);
            }
            (false, true) => {
                *free_in_block = free_in_block.saturating_add(1);
                self.free = self.free.saturating_add(1);
            }
            _ => {}
        }
        *counter = value;
        Some(block)
    }

    /// The first free block at or after `from`.
    pub(super) fn find_free(&self, from: u32) -> Option<SlabBlockNumber> {
        let from = usize::try_from(from).ok()?;
        let first = from / COUNTERS_PER_BLOCK;
        let mut skipped = from % COUNTERS_PER_BLOCK;
        for (block, free) in self.free_in_block.iter().enumerate().skip(first) {
            // Whole blocks that are in use are passed over by their count.
            if *free != 0 {
                let start = block
                    .saturating_mul(COUNTERS_PER_BLOCK)
                    .saturating_add(skipped);
                let rest = COUNTERS_PER_BLOCK.saturating_sub(skipped);
                let end = start.saturating_add(rest).min(self.counters.len());
                if let Some(at) = self.counters.get(start..end).and_then(find_zero) {
                    return SlabBlockNumber::new(u32::try_from(start.saturating_add(at)).ok()?);
                }
            }
            skipped = 0;
        }
        None
    }

    /// The counters of all blocks.
    pub(super) fn all(&self) -> &[u8] {
        &self.counters
    }

    /// The counters of a reference block.
    pub(super) fn block(&self, block: usize) -> &[u8] {
        let start = block.saturating_mul(COUNTERS_PER_BLOCK);
        let end = start
            .saturating_add(COUNTERS_PER_BLOCK)
            .min(self.counters.len());
        self.counters.get(start..end).unwrap_or(&[])
    }

    /// Replaces the counters of a reference block with what `fill` makes of them, and returns its result.
    pub(super) fn load_block<R>(
        &mut self,
        block: usize,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Option<R> {
        let start = block.saturating_mul(COUNTERS_PER_BLOCK);
        let end = start
            .saturating_add(COUNTERS_PER_BLOCK)
            .min(self.counters.len());
        let counters = self.counters.get_mut(start..end)?;
        let free_in_block = self.free_in_block.get_mut(block)?;
        let result = fill(counters);
        let free = counters.iter().filter(|counter| **counter == FREE).count();
        // INVARIANT: counted anew; a block has fewer counters than a u16 can count.
        let free = u16::try_from(free).unwrap_or(u16::MAX);
        self.free = self
            .free
            .saturating_sub(u32::from(*free_in_block))
            .saturating_add(u32::from(free));
        *free_in_block = free;
        Some(result)
    }
}

/// Where the counter of a block is.
fn index(sbn: SlabBlockNumber) -> usize {
    // A slab block number has 23 bits.
    usize::try_from(sbn.get()).unwrap_or(usize::MAX)
}

/// The place of the first zero byte, eight bytes at a time.
fn find_zero(bytes: &[u8]) -> Option<usize> {
    const LOW: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);

    let mut words = bytes.chunks_exact(8);
    for (index, word) in words.by_ref().enumerate() {
        let word = word
            .first_chunk()
            .map_or(0, |word| u64::from_le_bytes(*word));
        // A high bit for each zero byte; bytes above a zero byte may get one too, the lowest one is right.
        let zeros = word.wrapping_sub(LOW) & !word & HIGH;
        if zeros != 0 {
            let byte = usize::try_from(zeros.trailing_zeros() / 8).unwrap_or(0);
            return Some(index.saturating_mul(8).saturating_add(byte));
        }
    }
    let rest = words.remainder();
    let start = bytes.len().saturating_sub(rest.len());
    let byte = rest.iter().position(|byte| *byte == FREE)?;
    Some(start.saturating_add(byte))
}
