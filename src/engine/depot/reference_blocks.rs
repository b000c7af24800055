// SPDX-License-Identifier: GPL-2.0

//! Which reference blocks of one slab differ from the disk, and since when. Guarded by the slab's lock.
//!
//! A block that becomes dirty remembers the slab journal block whose entry made it so: that journal block is its *lock*, and
//! must stay readable until the reference block is durable. Dirty blocks form a queue. As the tail of the journal only goes
//! up, the queue is in the order of their locks, and writing from its front is what lets the journal's head advance.

use crate::engine::units::SequenceNumber;
use crate::rt::{AllocError, Vec};

/// No block: the end of the queue.
const NIL: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct State {
    dirty: bool,
    lock: SequenceNumber,
    next: u32,
}

/// The states of the reference blocks of a slab.
///
/// # Invariants
///
/// The queue from `first` to `last` has exactly the dirty blocks, `dirty` of them, with locks that never decrease.
pub(super) struct ReferenceBlocks {
    states: Vec<State>,
    first: u32,
    last: u32,
    dirty: u32,
    /// The blocks that the running batch may still take.
    batch: u32,
    /// The oldest lock of the running batch.
    writing: Option<SequenceNumber>,
}

impl ReferenceBlocks {
    /// States of `count` blocks that are as on disk.
    pub(super) fn new(count: usize) -> Result<Self, AllocError> {
        let state = State {
            dirty: false,
            lock: SequenceNumber::ZERO,
            next: NIL,
        };
        Ok(Self {
            states: Vec::from_elem(state, count)?,
            first: NIL,
            last: NIL,
            dirty: 0,
            batch: 0,
            writing: None,
        })
    }

    /// The number of dirty blocks.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Whether everything is on disk.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty == 0 && self.writing.is_none()
    }

    /// The oldest journal block that a dirty block, or one being written, needs.
    pub(super) fn oldest_lock(&self) -> Option<SequenceNumber> {
        let first = self.state(self.first).map(|state| state.lock);
        match (self.writing, first) {
            (Some(writing), Some(first)) => Some(writing.min(first)),
            (writing, first) => writing.or(first),
        }
    }

    /// A counter of `block` was changed by an entry in journal block `lock`. A block that is dirty keeps its older lock.
    pub(super) fn mark_dirty(&mut self, block: usize, lock: SequenceNumber) {
        let Ok(index) = u32::try_from(block) else {
            return;
        };
        match self.states.get_mut(block) {
            Some(state) if !state.dirty => {
                *state = State {
                    dirty: true,
                    lock,
                    next: NIL,
                };
            }
            _ => return,
        }
        // INVARIANT: `lock` is the journal's tail, which is not below that of any earlier call.
        let last = self.last;
        match self.states.get_mut(last as usize) {
            Some(state) => state.next = index,
            None => self.first = index,
        }
        self.last = index;
        self.dirty = self.dirty.saturating_add(1);
    }

    /// Makes every block dirty.
    pub(super) fn mark_all_dirty(&mut self, lock: SequenceNumber) {
        for block in 0..self.states.len() {
            self.mark_dirty(block, lock);
        }
    }

    /// Begins to write the `count` oldest dirty blocks, or all if there are fewer.
    ///
    /// The batch is made of blocks that are dirty now. A block that is changed while it is being written goes to the end of
    /// the queue and is left for the next batch, so no block is ever written twice at a time.
    pub(super) fn begin_batch(&mut self, count: u32) {
        self.batch = count.min(self.dirty);
    }

    /// Takes the next block of the batch, whose counters must be copied before the slab's lock is released.
    pub(super) fn take(&mut self) -> Option<usize> {
        self.batch = self.batch.checked_sub(1)?;
        let block = usize::try_from(self.first).ok()?;
        let state = self.states.get_mut(block)?;
        state.dirty = false;
        let (lock, next) = (state.lock, state.next);
        state.next = NIL;
        self.first = next;
        if next == NIL {
            self.last = NIL;
        }
        self.dirty = self.dirty.saturating_sub(1);
        self.writing = Some(self.writing.map_or(lock, |writing| writing.min(lock)));
        Some(block)
    }

    /// All blocks of the batch are durable.
    pub(super) fn end_batch(&mut self) {
        self.batch = 0;
        self.writing = None;
    }

    fn state(&self, block: u32) -> Option<&State> {
        self.states.get(usize::try_from(block).ok()?)
    }
}
