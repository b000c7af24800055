// SPDX-License-Identifier: GPL-2.0

//! Growing the trees: one task at a time allocates the page for an entry, for all who wait for that page. They go on together, in the
//! order in which they came, so that what they write lies on the device in that order.
//!
//! Entries share a fixed number of locks by hash. A task holds at most one of them, across the allocation and the journal entry;
//! neither needs the map to grow.

use core::future::Future;

use super::Location;
use crate::engine::error::Error;
use crate::engine::units::{Pbn, SequenceNumber};
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
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
    /// Pages that were added under this lock.
    grown: AtomicU64,
    waiters: WaitList,
}

/// The locks of all entries.
pub(super) struct GrowthLocks {
    turnstiles: Vec<Turnstile>,
}

/// The right to allocate the page for an entry.
pub(super) struct GrowthLock<'a> {
    turnstile: Option<&'a Turnstile>,
    has_grown: bool,
}

impl GrowthLocks {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            turnstiles: Vec::from_fn(LOCKS, |_| {
                Ok::<_, AllocError>(Turnstile {
                    is_taken: AtomicBool::new(false),
                    grown: AtomicU64::new(0),
                    waiters: WaitList::new()?,
                })
            })?,
        })
    }

    /// How many pages were added under the lock of `parent`.
    pub(super) fn grown(&self, parent: Location) -> u64 {
        self.turnstile(parent)
            .map_or(0, |turnstile| turnstile.grown.load(Ordering::Acquire))
    }

    /// Waits for the turn of the caller, or until more than `grown` pages were added: `None`, his may be among them.
    pub(super) async fn lock(&self, parent: Location, grown: u64) -> Option<GrowthLock<'_>> {
        let turnstile = self.turnstile(parent);
        if let Some(turnstile) = turnstile {
            let is_mine = turnstile
                .waiters
                .wait_until(|| {
                    if turnstile.grown.load(Ordering::Acquire) != grown {
                        return Some(false);
                    }
                    (!turnstile.is_taken.swap(true, Ordering::AcqRel)).then_some(true)
                })
                .await;
            if !is_mine {
                return None;
            }
        }
        Some(GrowthLock {
            turnstile,
            has_grown: false,
        })
    }

    fn turnstile(&self, parent: Location) -> Option<&Turnstile> {
        let key = parent.page.get().wrapping_add(parent.slot.get().into());
        let index = usize::try_from(key).unwrap_or(0) & LOCKS.wrapping_sub(1);
        self.turnstiles.get(index)
    }
}

impl GrowthLock<'_> {
    /// The page is there.
    pub(super) fn has_grown(mut self) {
        self.has_grown = true;
    }
}

impl Drop for GrowthLock<'_> {
    fn drop(&mut self) {
        let Some(turnstile) = self.turnstile else {
            return;
        };
        if self.has_grown {
            turnstile.grown.fetch_add(1, Ordering::AcqRel);
        }
        turnstile.is_taken.store(false, Ordering::Release);
        if self.has_grown {
            turnstile.waiters.wake_all();
        } else {
            turnstile.waiters.wake_one();
        }
    }
}
