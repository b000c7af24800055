// SPDX-License-Identifier: GPL-2.0

//! Flush generations: which writes a flush has to wait for.
//!
//! A write joins the current generation before it can be acknowledged. A flush closes the current generation and waits until it
//! and all older ones are empty. Writes that come later are of a newer generation and do not hold the flush up.
//!
//! Writes that a flush waits for can still share blocks with each other: so the packer is emptied when the last of them has either
//! got there or does not go there at all, not before. A write on its way to the packer never waits for one that is there, as
//! whoever needs one of those has it written.
//!
//! Lock order: `generations` takes no other lock.

use crate::rt::atomic::{AtomicBool, Ordering};
use crate::rt::{spin_lock, AllocError, SpinLock, Vec, WaitList};

/// Generations that can be open at a time; further flushes wait for the oldest.
const RING: u64 = 64;

/// The number of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u64);

/// # Invariants
///
/// `oldest <= current < oldest + RING`; only generations in that range have members. At most as many of those are on their way to
/// the packer.
struct Generations {
    oldest: u64,
    current: u64,
    members: Vec<Members>,
}

/// The writes of one generation.
#[derive(Clone, Copy, Default)]
struct Members {
    all: u32,
    /// Those that may still enter a bin.
    unpacked: u32,
}

impl Generations {
    fn members_of(&mut self, generation: u64) -> Option<&mut Members> {
        self.members
            .get_mut(usize::try_from(generation & RING.wrapping_sub(1)).ok()?)
    }

    /// Forgets generations that are closed and empty. `true` if there was one.
    fn retire(&mut self) -> bool {
        let before = self.oldest;
        while self.oldest < self.current
            && self
                .members_of(self.oldest)
                .is_some_and(|members| members.all == 0)
        {
            self.oldest = self.oldest.wrapping_add(1);
        }
        self.oldest != before
    }

    /// Whether no write of `generation` or an older one may still enter a bin.
    fn are_packed(&mut self, generation: u64) -> bool {
        (self.oldest..=generation).all(|generation| {
            self.members_of(generation)
                .is_none_or(|members| members.unpacked == 0)
        })
    }
}

/// The flush generations of a volume.
pub(super) struct Flusher {
    generations: SpinLock<Generations>,
    retired: WaitList,
    /// Flushes that wait for writes on their way to the packer.
    packed: WaitList,
}

impl Flusher {
    /// No write in progress.
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            generations: spin_lock!(Generations {
                oldest: 0,
                current: 0,
                members: Vec::from_elem(
                    Members::default(),
                    usize::try_from(RING).map_err(|_| AllocError)?,
                )?,
            })?,
            retired: WaitList::new()?,
            packed: WaitList::new()?,
        })
    }

    /// Joins the current generation until the membership is dropped.
    pub(super) fn join(&self) -> Membership<'_> {
        let mut generations = self.generations.lock();
        let current = generations.current;
        if let Some(members) = generations.members_of(current) {
            members.all = members.all.saturating_add(1);
            members.unpacked = members.unpacked.saturating_add(1);
        }
        Membership {
            flusher: self,
            generation: Generation(current),
            is_packed: AtomicBool::new(false),
        }
    }

    /// Closes the current generation and returns it.
    pub(super) async fn close_generation(&self) -> Generation {
        self.retired
            .wait_until(|| {
                let mut generations = self.generations.lock();
                let next = generations.current.wrapping_add(1);
                if next.wrapping_sub(generations.oldest) >= RING {
                    return None;
                }
                let closed = core::mem::replace(&mut generations.current, next);
                generations.retire();
                Some(Generation(closed))
            })
            .await
    }

    /// Waits until no write of `generation` or an older one may still enter a bin.
    pub(super) async fn wait_for_packed(&self, generation: Generation) {
        self.packed
            .wait_until(|| {
                self.generations
                    .lock()
                    .are_packed(generation.0)
                    .then_some(())
            })
            .await;
    }

    /// Waits until `generation` and all older ones are closed and empty.
    pub(super) async fn wait_for(&self, generation: Generation) {
        self.retired
            .wait_until(|| (self.generations.lock().oldest > generation.0).then_some(()))
            .await;
    }

    fn count_packed(&self, generation: u64) {
        let is_last = {
            let mut generations = self.generations.lock();
            let is_closed = generation < generations.current;
            generations.members_of(generation).is_some_and(|members| {
                members.unpacked = members.unpacked.saturating_sub(1);
                members.unpacked == 0 && is_closed
            })
        };
        if is_last {
            self.packed.wake_all();
        }
    }

    fn leave(&self, generation: u64) {
        let retired = {
            let mut generations = self.generations.lock();
            if let Some(members) = generations.members_of(generation) {
                members.all = members.all.saturating_sub(1);
            }
            generations.retire()
        };
        if retired {
            self.retired.wake_all();
        }
    }
}

/// Membership of one write in its generation.
pub(super) struct Membership<'a> {
    flusher: &'a Flusher,
    generation: Generation,
    is_packed: AtomicBool,
}

impl Membership<'_> {
    /// The write is in a bin, or will not get there.
    pub(super) fn packed(&self) {
        if !self.is_packed.swap(true, Ordering::Relaxed) {
            self.flusher.count_packed(self.generation.0);
        }
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        self.packed();
        self.flusher.leave(self.generation.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::future::Future;
    use core::pin::pin;
    use core::task::{Context, Poll, Waker};

    fn poll<T>(future: impl Future<Output = T>) -> Option<T> {
        let mut cx = Context::from_waker(Waker::noop());
        match pin!(future).poll(&mut cx) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn a_flush_waits_for_writes_on_their_way_to_the_packer() {
        let flusher = Flusher::new().unwrap();
        let (first, second) = (flusher.join(), flusher.join());
        let generation = poll(flusher.close_generation()).unwrap();
        let _later = flusher.join();
        let next = poll(flusher.close_generation()).unwrap();
        assert!(poll(flusher.wait_for_packed(generation)).is_none());
        first.packed();
        first.packed();
        assert!(poll(flusher.wait_for_packed(generation)).is_none());
        drop(second);
        assert!(poll(flusher.wait_for_packed(generation)).is_some());
        assert!(poll(flusher.wait_for_packed(next)).is_none());
        assert!(poll(flusher.wait_for(generation)).is_none());
        drop(first);
        assert!(poll(flusher.wait_for(generation)).is_some());
    }
}
