// SPDX-License-Identifier: GPL-2.0

//! Blocks that somebody holds on to: allocated for a write, or shared as the target of deduplication.
//!
//! A hold begins as the exclusive one of a writer, or as a shared one of a reader that wants to add references. While a block
//! is held its counter is never free (W10), and references that are still on their way through the journals are counted
//! here, so that they cannot overrun the counter.
//!
//! The holds are in shards by block number, each under its own lock. Lock order: taken with a slab's lock held or not; takes
//! none. Nothing waits.

use crate::engine::table::{FixedTable, Full};
use crate::engine::units::{Pbn, MAX_REFERENCE_COUNT};
use crate::rt::{spin_lock, AllocError, SpinLock, Vec};

/// Shards; a power of two.
const SHARDS: usize = 8;

struct Hold {
    holders: u32,
    /// References that can still be claimed: what the counter has left, less those claimed and not yet counted.
    claims_left: u8,
    /// The data is being written: nobody may join.
    exclusive: bool,
}

/// All holds of a depot.
pub(super) struct Pins {
    shards: Vec<SpinLock<FixedTable<u64, Hold>>>,
}

impl Pins {
    /// Room for `most` held blocks.
    pub(super) fn new(most: usize) -> Result<Self, AllocError> {
        // Nothing keeps all of them from being in one shard.
        Ok(Self {
            shards: Vec::from_fn(SHARDS, |_| spin_lock!(FixedTable::with_capacity(most)?))?,
        })
    }

    /// Begins the exclusive hold of a block that has just become provisional.
    pub(super) fn hold_for_write(&self, pbn: Pbn) -> Result<(), Full> {
        let hold = Hold {
            holders: 1,
            claims_left: MAX_REFERENCE_COUNT,
            exclusive: true,
        };
        self.with_shard(pbn, |shard| shard.insert(pbn.get(), hold))
            .unwrap_or(Err(Full))
            .map(|_| ())
    }

    /// Makes the hold of a writer, whose data is in place, a shared one.
    pub(super) fn share_written(&self, pbn: Pbn) {
        self.with_hold(pbn, |hold| hold.exclusive = false);
    }

    /// Joins the holders of a block whose counter has room for `room` references, or becomes the first of them.
    ///
    /// The slab's lock is held, so the counter does not move meanwhile. `false` if the block is being written, has no
    /// reference left to claim, or too many blocks are held.
    pub(super) fn join(&self, pbn: Pbn, room: u8) -> bool {
        self.with_shard(pbn, |shard| match shard.get_mut(&pbn.get()) {
            Some(hold) => {
                if hold.exclusive || hold.claims_left == 0 {
                    return false;
                }
                hold.holders = hold.holders.saturating_add(1);
                true
            }
            None => {
                let hold = Hold {
                    holders: 1,
                    claims_left: room,
                    exclusive: false,
                };
                room > 0 && shard.insert(pbn.get(), hold).is_ok()
            }
        })
        .unwrap_or(false)
    }

    /// One more holder of a block that the caller holds.
    pub(super) fn add_holder(&self, pbn: Pbn) {
        self.with_hold(pbn, |hold| hold.holders = hold.holders.saturating_add(1));
    }

    /// Claims one reference to a block that the caller holds.
    pub(super) fn claim(&self, pbn: Pbn) -> bool {
        self.with_hold(pbn, |hold| match hold.claims_left.checked_sub(1) {
            Some(left) => {
                hold.claims_left = left;
                true
            }
            None => false,
        })
        .unwrap_or(false)
    }

    /// Whether anybody holds a block.
    pub(super) fn is_held(&self, pbn: Pbn) -> bool {
        self.with_hold(pbn, |_| ()).is_some()
    }

    /// Ends the hold of one holder if there are others. `false` if the caller is the last, who has to take the slab's lock
    /// first and then call [`Self::release_last`].
    pub(super) fn release_shared(&self, pbn: Pbn) -> bool {
        self.with_hold(pbn, |hold| {
            let others = hold.holders > 1;
            if others {
                hold.holders = hold.holders.wrapping_sub(1);
            }
            others
        })
        .unwrap_or(false)
    }

    /// Ends the hold of one holder under the slab's lock. `true` if nobody holds the block any more.
    pub(super) fn release_last(&self, pbn: Pbn) -> bool {
        self.with_shard(pbn, |shard| match shard.get_mut(&pbn.get()) {
            // Somebody joined in between.
            Some(hold) if hold.holders > 1 => {
                hold.holders = hold.holders.wrapping_sub(1);
                false
            }
            _ => {
                shard.remove(&pbn.get());
                true
            }
        })
        .unwrap_or(true)
    }

    fn with_hold<R>(&self, pbn: Pbn, change: impl FnOnce(&mut Hold) -> R) -> Option<R> {
        self.with_shard(pbn, |shard| shard.get_mut(&pbn.get()).map(change))?
    }

    fn with_shard<R>(
        &self,
        pbn: Pbn,
        change: impl FnOnce(&mut FixedTable<u64, Hold>) -> R,
    ) -> Option<R> {
        let index = usize::try_from(pbn.get()).ok()? & SHARDS.wrapping_sub(1);
        // The mask keeps the index below the number of shards.
        Some(change(&mut self.shards.get(index)?.lock()))
    }
}
