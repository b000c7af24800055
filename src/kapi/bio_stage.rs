// SPDX-License-Identifier: GPL-2.0

//! Bios that wait a moment for their neighbours.
//!
//! Many tasks read and write single blocks, on several CPUs and in no particular order, although the blocks often lie side
//! by side. A [`BioStage`] collects their bios and sends them sorted, so that the block layer merges them into few requests. A
//! task of its own sends what was collected when its turn comes, after those that were ready before it: with nothing else
//! to do that is at once. A full stage is sent by whoever filled it.
//!
//! The stage's lock is taken in process context and takes no other lock.

use core::future::Future;
use core::mem;
use core::ptr::NonNull;

use crate::bindings as b;
use crate::rt::{spin_lock, AllocError, SpinLock, WaitList};

/// Bios that are collected at most.
const STAGED_MAX: usize = 64;

/// Bios that have yet to be submitted.
///
/// # Invariants
///
/// The first `count` bios are complete, and the stage's to submit.
struct Staged {
    bios: [Option<NonNull<b::bio>>; STAGED_MAX],
    count: usize,
    closed: bool,
}

// SAFETY: a bio may be submitted by any thread.
unsafe impl Send for Staged {}

impl Staged {
    const fn new() -> Self {
        Self {
            bios: [None; STAGED_MAX],
            count: 0,
            closed: false,
        }
    }

    fn take(&mut self) -> Self {
        let closed = self.closed;
        let taken = mem::replace(self, Self::new());
        self.closed = closed;
        taken
    }

    /// Submits the bios by operation, in the order of their sectors.
    fn send(mut self) {
        let bios = self.bios.get_mut(..self.count).unwrap_or(&mut []);
        bios.sort_unstable_by_key(|bio| {
            bio.map(|bio| {
                // SAFETY: the bios are valid by the type's invariants. Packed field, copied out.
                unsafe { ((*bio.as_ptr()).bi_opf, (*bio.as_ptr()).bi_iter.bi_sector) }
            })
        });
        for bio in bios.iter().flatten() {
            // SAFETY: the bio is complete and ours, and goes to the block layer with this.
            unsafe { b::submit_bio_noacct(bio.as_ptr()) };
        }
    }
}

/// See the [module's documentation](self).
pub(super) struct BioStage {
    staged: SpinLock<Staged>,
    work: WaitList,
}

impl BioStage {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            staged: spin_lock!(Staged::new())?,
            work: WaitList::new()?,
        })
    }

    /// Submits a bio, now or soon. Process context.
    ///
    /// # Safety
    ///
    /// The bio is complete, and the caller's to submit.
    pub(super) unsafe fn add(&self, bio: NonNull<b::bio>) {
        let mut staged = self.staged.lock();
        let count = staged.count;
        if let Some(place) = staged.bios.get_mut(count) {
            // INVARIANT: by the contract.
            *place = Some(bio);
            staged.count = count.saturating_add(1);
        }
        if staged.closed || staged.count >= STAGED_MAX {
            let full = staged.take();
            drop(staged);
            full.send();
        } else if count == 0 {
            drop(staged);
            self.work.wake_one();
        }
    }

    /// Sends what is collected until the stage is closed. The body of a task.
    pub(super) async fn run(&self) {
        while let Some(staged) = self.next().await {
            staged.send();
        }
    }

    fn next(&self) -> impl Future<Output = Option<Staged>> + Send + '_ {
        self.work.wait_until(|| {
            let mut staged = self.staged.lock();
            match staged.count {
                0 if staged.closed => Some(None),
                0 => None,
                _ => Some(Some(staged.take())),
            }
        })
    }

    /// Collects again after a close. [`BioStage::run`] has to run.
    pub(super) fn reopen(&self) {
        self.staged.lock().closed = false;
    }

    /// Ends [`BioStage::run`]. What comes later is sent at once.
    pub(super) fn close(&self) {
        self.staged.lock().closed = true;
        self.work.wake_all();
    }
}
