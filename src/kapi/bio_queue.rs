// SPDX-License-Identifier: GPL-2.0

//! A queue of bios between a target's `map` and the tasks that serve them.
//!
//! The bios are chained through their own `bi_next`, so queueing neither allocates nor fails for
//! want of memory and may be done under memory reclaim. `state` guards the chain; it is a leaf
//! lock, and [`BioQueue::next`] is all there is to await.

use core::future::Future;
use core::mem;
use core::ptr::{self, NonNull};

use crate::bindings as b;
use crate::kapi::bio::OwnedBio;
use crate::rt::{spin_lock, AllocError, SpinLock, WaitList};

/// # Invariants
///
/// `first` is null, or starts a chain through `bi_next` that ends with `last`, whose `bi_next` is
/// null. The chain owns its bios as [`OwnedBio`] does.
struct Chain {
    first: *mut b::bio,
    last: *mut b::bio,
    closed: bool,
}

// SAFETY: the bios are owned by the chain, and `OwnedBio` is `Send`.
unsafe impl Send for Chain {}

impl Chain {
    fn push(&mut self, mut bio: OwnedBio) {
        *bio.link() = ptr::null_mut();
        let bio = bio.into_raw().as_ptr();
        if self.first.is_null() {
            self.first = bio;
        } else {
            // SAFETY: a chain that is not empty owns the valid bio `last`.
            unsafe { (*self.last).bi_next = bio };
        }
        self.last = bio;
    }

    fn pop(&mut self) -> Option<OwnedBio> {
        let first = NonNull::new(self.first)?;
        // SAFETY: the chain owns its bios, and this one leaves it below.
        let mut bio = unsafe { OwnedBio::from_raw(first) };
        self.first = mem::replace(bio.link(), ptr::null_mut());
        Some(bio)
    }
}

/// First come first served. See the [module's documentation](self).
pub struct BioQueue {
    state: SpinLock<Chain>,
    idle: WaitList,
}

impl BioQueue {
    /// Creates an empty queue.
    pub fn new() -> Result<Self, AllocError> {
        Ok(Self {
            state: spin_lock!(Chain {
                first: ptr::null_mut(),
                last: ptr::null_mut(),
                closed: false,
            })?,
            idle: WaitList::new()?,
        })
    }

    /// Appends a bio. It comes back if the queue is closed.
    pub fn push(&self, bio: OwnedBio) -> Result<(), OwnedBio> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(bio);
        }
        state.push(bio);
        drop(state);
        self.idle.wake_one();
        Ok(())
    }

    /// Waits for the next bio. `None` once the queue is closed and empty.
    pub fn next(&self) -> impl Future<Output = Option<OwnedBio>> + Send + '_ {
        self.idle.wait_until(|| {
            let mut state = self.state.lock();
            match state.pop() {
                None if !state.closed => None,
                next => Some(next),
            }
        })
    }

    /// Takes bios again after a close.
    pub fn reopen(&self) {
        self.state.lock().closed = false;
    }

    /// Refuses further bios. Those that are queued are still handed out.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.idle.wake_all();
    }
}

impl Drop for BioQueue {
    fn drop(&mut self) {
        // A bio that nobody has served ends with an error. It is ended outside the lock.
        loop {
            let bio = self.state.lock().pop();
            if bio.is_none() {
                break;
            }
        }
    }
}
