// SPDX-License-Identifier: GPL-2.0

//! The slabs that wait for a writer, first come first served.
//!
//! A slab is entered only when its `queued` flag goes up, under its lock, and the flag comes down only when a writer is done with
//! it. So a slab is in the queue once at most, and is served by one writer at a time.
//!
//! Lock order: `queue` may be taken under a slab's lock and takes none.

use crate::engine::units::SlabNumber;
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{spin_lock, AllocError, SpinLock, Vec, WaitList};

struct Queue {
    ring: Vec<SlabNumber>,
    first: usize,
    len: usize,
    stopped: bool,
}

/// The queue of the writers.
pub(super) struct Work {
    queue: SpinLock<Queue>,
    arrived: WaitList,
    /// Slabs in the queue or being served.
    busy: AtomicU64,
}

impl Work {
    /// An empty queue for the slabs of a depot.
    pub(super) fn new(slab_count: u32) -> Result<Self, AllocError> {
        let slab_count = usize::try_from(slab_count).map_err(|_| AllocError)?;
        Ok(Self {
            queue: spin_lock!(Queue {
                ring: Vec::from_elem(SlabNumber::ZERO, slab_count)?,
                first: 0,
                len: 0,
                stopped: false,
            })?,
            arrived: WaitList::new()?,
            busy: AtomicU64::new(0),
        })
    }

    /// Enters a slab whose flag has just gone up.
    pub(super) fn push(&self, slab: SlabNumber) {
        self.busy.fetch_add(1, Ordering::AcqRel);
        self.queue.lock().push(slab);
        self.arrived.wake_one();
    }

    /// Waits for a slab. `None` once the queue is stopped and empty.
    pub(super) async fn next(&self) -> Option<SlabNumber> {
        self.arrived
            .wait_until(|| {
                let mut queue = self.queue.lock();
                match queue.pop() {
                    Some(slab) => Some(Some(slab)),
                    None if queue.stopped => Some(None),
                    None => None,
                }
            })
            .await
    }

    /// The flag of a slab has come down.
    pub(super) fn done(&self) {
        self.busy.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether no slab is in the queue or being served.
    pub(super) fn is_idle(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0
    }

    /// Ends the writers once the queue is empty.
    pub(super) fn stop(&self) {
        self.queue.lock().stopped = true;
        self.arrived.wake_all();
    }
}

impl Queue {
    fn push(&mut self, slab: SlabNumber) {
        // There is a place for every slab, and no slab is here twice.
        let place = self
            .first
            .saturating_add(self.len)
            .checked_rem(self.ring.len())
            .and_then(|place| self.ring.get_mut(place));
        if let Some(place) = place {
            *place = slab;
            self.len = self.len.saturating_add(1);
        }
    }

    fn pop(&mut self) -> Option<SlabNumber> {
        self.len = self.len.checked_sub(1)?;
        let slab = self.ring.get(self.first).copied();
        self.first = self
            .first
            .saturating_add(1)
            .checked_rem(self.ring.len())
            .unwrap_or(0);
        slab
    }
}
