// SPDX-License-Identifier: GPL-2.0

//! One request at a time per logical block.
//!
//! A request holds the lock of its block from before it looks at the mapping until after it changed it. That is also what keeps a
//! physical block alive for a reader: the last reference goes only under the lock of the block that held it.
//!
//! A holder may be sitting in a packer bin, where only a flush or more traffic would move it. It leaves its bin's ticket here, and
//! whoever finds the block locked kicks the bin.
//!
//! Lock order: a shard's lock takes no other lock.

use crate::engine::table::FixedTable;
use crate::engine::units::Lbn;
use crate::rt::{spin_lock, AllocError, SpinLock, Vec, WaitList};

/// Shards; a power of two.
const SHARDS: usize = 16;

/// The state of a locked block.
struct Holder<T> {
    /// Somebody waits for the block.
    contended: bool,
    /// The bin that the holder sits in.
    bin: Option<T>,
}

struct Shard<T> {
    holders: SpinLock<FixedTable<u64, Holder<T>>>,
    waiters: WaitList,
}

/// The locks of all logical blocks; `T` is the ticket of a packer bin.
pub struct LbnLocks<T> {
    shards: Vec<Shard<T>>,
}

/// What a waiter found.
enum Attempt<T> {
    Locked,
    Taken(Option<T>),
}

impl<T: Copy + Send> LbnLocks<T> {
    /// Locks for `requests` requests at a time.
    pub fn new(requests: usize) -> Result<Self, AllocError> {
        Ok(Self {
            shards: Vec::from_fn(SHARDS, |_| {
                Ok::<_, AllocError>(Shard {
                    holders: spin_lock!(FixedTable::with_capacity(requests)?)?,
                    waiters: WaitList::new()?,
                })
            })?,
        })
    }

    /// Waits for the lock of `lbn`. `kick` is called with the bin of a holder that sits in one.
    pub async fn lock(&self, lbn: Lbn, kick: impl Fn(T) + Send + Sync) -> LbnLock<'_, T> {
        // The mask keeps the index below the number of shards, so there is a shard.
        if let Some(shard) = self.shard(lbn) {
            shard
                .waiters
                .wait_until(|| match shard.attempt(lbn) {
                    Attempt::Locked => Some(()),
                    Attempt::Taken(bin) => {
                        if let Some(bin) = bin {
                            kick(bin);
                        }
                        None
                    }
                })
                .await;
        }
        LbnLock { locks: self, lbn }
    }

    fn shard(&self, lbn: Lbn) -> Option<&Shard<T>> {
        // Neighbours go to different shards, so that a sequential stream does not meet itself.
        let index = usize::try_from(lbn.get()).unwrap_or(0) & SHARDS.wrapping_sub(1);
        self.shards.get(index)
    }
}

impl<T: Copy> Shard<T> {
    fn attempt(&self, lbn: Lbn) -> Attempt<T> {
        let mut holders = self.holders.lock();
        if let Some(holder) = holders.get_mut(&lbn.get()) {
            holder.contended = true;
            return Attempt::Taken(holder.bin.take());
        }
        match holders.insert(
            lbn.get(),
            Holder {
                contended: false,
                bin: None,
            },
        ) {
            Ok(_) => Attempt::Locked,
            // More requests than the table was made for: wait for one to finish.
            Err(_) => Attempt::Taken(None),
        }
    }
}

/// The lock of one logical block; dropping it lets the next request have the block.
pub struct LbnLock<'a, T: Copy + Send> {
    locks: &'a LbnLocks<T>,
    lbn: Lbn,
}

impl<T: Copy + Send> LbnLock<'_, T> {
    /// The block.
    pub fn lbn(&self) -> Lbn {
        self.lbn
    }

    /// Whether another request waits for the block.
    pub fn is_contended(&self) -> bool {
        self.with_holder(|holder| holder.contended).unwrap_or(false)
    }

    /// Says in which bin the holder sits. `false` if somebody waits already: the bin has to be kicked at once.
    pub fn enter_bin(&self, bin: T) -> bool {
        self.with_holder(|holder| {
            if !holder.contended {
                holder.bin = Some(bin);
            }
            !holder.contended
        })
        .unwrap_or(false)
    }

    /// The holder is out of its bin again.
    pub fn leave_bin(&self) {
        self.with_holder(|holder| holder.bin = None);
    }

    fn with_holder<R>(&self, change: impl FnOnce(&mut Holder<T>) -> R) -> Option<R> {
        self.locks
            .shard(self.lbn)?
            .holders
            .lock()
            .get_mut(&self.lbn.get())
            .map(change)
    }
}

impl<T: Copy + Send> Drop for LbnLock<'_, T> {
    fn drop(&mut self) {
        let Some(shard) = self.locks.shard(self.lbn) else {
            return;
        };
        let (contended, was_full) = {
            let mut holders = shard.holders.lock();
            let was_full = holders.is_full();
            (
                holders
                    .remove(&self.lbn.get())
                    .is_some_and(|holder| holder.contended),
                was_full,
            )
        };
        if contended || was_full {
            // Waiters of all blocks of the shard share the list: each looks for itself.
            shard.waiters.wake_all();
        }
    }
}
