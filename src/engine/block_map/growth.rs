// SPDX-License-Identifier: GPL-2.0

//! Growing the trees: one task at a time allocates the page for an entry.
//!
//! Entries share a fixed number of locks by hash. A task holds at most one of them, across the allocation and the journal entry;
//! neither needs the map to grow.

use core::future::Future;

use super::Location;
use crate::engine::error::Error;
use crate::engine::units::{Pbn, SequenceNumber};
use crate::rt::atomic::{AtomicBool, Ordering};
use crate::rt::{AllocError, Vec, WaitList};

/// Locks, a power of two.
const LOCKS: usize = 64;

/// A page that was allocated and journaled.
pub struct NewPage<L> {
    /// Where it is.
    pub pbn: Pbn,
    /// The journal block with the entry.
    pub sequence: SequenceNumber,
    /// Keeps that block until it is dropped.
    pub lock: L,
}

/// Allocates pages for the block map.
pub trait Grow: Sync {
    /// What keeps the journal block of a new page's entry.
    type Lock<'a>: Send
    where
        Self: 'a;

    /// Allocates a block, journals that the entry at `parent` names it, and returns when the entry is durable and the block has
    /// its permanent reference.
    fn allocate_page(
        &self,
        parent: Location,
    ) -> impl Future<Output = Result<NewPage<Self::Lock<'_>>, Error>> + Send;
}

struct Turnstile {
    is_taken: AtomicBool,
    waiters: WaitList,
}

/// The locks of all entries.
pub(super) struct GrowthLocks {
    turnstiles: Vec<Turnstile>,
}

/// The right to allocate the page for an entry.
pub(super) struct GrowthLock<'a> {
    turnstile: Option<&'a Turnstile>,
}

impl GrowthLocks {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            turnstiles: Vec::from_fn(LOCKS, |_| {
                Ok::<_, AllocError>(Turnstile {
                    is_taken: AtomicBool::new(false),
                    waiters: WaitList::new()?,
                })
            })?,
        })
    }

    /// Waits for the turn of the caller.
    pub(super) async fn lock(&self, parent: Location) -> GrowthLock<'_> {
        let key = parent.page.get().wrapping_add(parent.slot.get().into());
        let index = usize::try_from(key).unwrap_or(0) & LOCKS.wrapping_sub(1);
        let turnstile = self.turnstiles.get(index);
        if let Some(turnstile) = turnstile {
            turnstile
                .waiters
                .wait_until(|| (!turnstile.is_taken.swap(true, Ordering::AcqRel)).then_some(()))
                .await;
        }
        GrowthLock { turnstile }
    }
}

impl Drop for GrowthLock<'_> {
    fn drop(&mut self) {
        if let Some(turnstile) = self.turnstile {
            turnstile.is_taken.store(false, Ordering::Release);
            turnstile.waiters.wake_one();
        }
    }
}
