// SPDX-License-Identifier: GPL-2.0

//! Flush generations: which writes a flush has to wait for.
//!
//! A write joins the current generation before it can be acknowledged. A flush closes the current generation and waits until it
//! and all older ones are empty. Writes that come later are of a newer generation and do not hold the flush up.
//!
//! Lock order: `generations` takes no other lock.

use crate::rt::{AllocError, SpinLock, Vec, WaitList};

/// Generations that can be open at a time; further flushes wait for the oldest.
const RING: u64 = 64;

/// The number of a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Generation(u64);

/// # Invariants
///
/// `oldest <= current < oldest + RING`; only generations in that range have members.
struct Generations {
    oldest: u64,
    current: u64,
    members: Vec<u32>,
}

impl Generations {
    fn members_of(&mut self, generation: u64) -> Option<&mut u32> {
        self.members
            .get_mut(usize::try_from(generation & RING.wrapping_sub(1)).ok()?)
    }

    /// Forgets generations that are closed and empty. `true` if there was one.
    fn retire(&mut self) -> bool {
        let before = self.oldest;
        while self.oldest < self.current
            && self
                .members_of(self.oldest)
                .is_some_and(|members| *members == 0)
        {
            self.oldest = self.oldest.wrapping_add(1);
        }
        self.oldest != before
    }
}

/// The flush generations of a volume.
pub(super) struct Flusher {
    generations: SpinLock<Generations>,
    retired: WaitList,
}

impl Flusher {
    /// No write in progress.
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            generations: SpinLock::new(Generations {
                oldest: 0,
                current: 0,
                members: Vec::from_elem(0, usize::try_from(RING).map_err(|_| AllocError)?)?,
            })?,
            retired: WaitList::new()?,
        })
    }

    /// Joins the current generation until the membership is dropped.
    pub(super) fn join(&self) -> Membership<'_> {
        let mut generations = self.generations.lock();
        let current = generations.current;
        if let Some(members) = generations.members_of(current) {
            *members = members.saturating_add(1);
        }
        Membership {
            flusher: self,
            generation: Generation(current),
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

    /// Waits until `generation` and all older ones are closed and empty.
    pub(super) async fn wait_for(&self, generation: Generation) {
        self.retired
            .wait_until(|| (self.generations.lock().oldest > generation.0).then_some(()))
            .await;
    }

    fn leave(&self, generation: u64) {
        let retired = {
            let mut generations = self.generations.lock();
            if let Some(members) = generations.members_of(generation) {
                *members = members.saturating_sub(1);
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
}

impl Membership<'_> {
    /// Whether no flush waits for this write.
    pub(super) fn is_current(&self) -> bool {
        self.flusher.generations.lock().current == self.generation.0
    }
}

impl Drop for Membership<'_> {
    fn drop(&mut self) {
        self.flusher.leave(self.generation.0);
    }
}
