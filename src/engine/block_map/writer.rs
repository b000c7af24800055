// SPDX-License-Identifier: GPL-2.0

//! Writing pages out.
//!
//! A page is written when the recovery journal has gone `maximum_age` blocks past its oldest change, when its shard needs room, or
//! when the map is drained. Several writer tasks do that, each with one page at a time; the device flushes that they need are
//! shared in the [`Store`](crate::engine::store::Store).
//!
//! Ordering:
//!
//! * W6: a page goes to disk after the journal entries it reflects. A change is made only once its entry is durable, and a flush
//!   that begins after the page was copied comes before the write.
//! * First write: a block that never held the page completely is written as not initialized, that write is made stable, and only
//!   then it is written as initialized. A write torn at any sector leaves no page or the whole page.
//! * W8: the journal blocks that a page keeps are unlocked when its write has completed. The journal flushes before it reuses them.

use super::cache::PageCache;
use super::shard::{Job, Shard};
use super::PageLocks;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::block_map_page;
use crate::engine::units::SequenceNumber;
use crate::rt::atomic::Ordering;
use crate::rt::Page;

impl<E: Env, J: PageLocks> PageCache<E, J> {
    /// Writes pages until the cache is stopped.
    pub(super) async fn run_writer(&self, mut bounce: Page) {
        loop {
            let next = self.writers.wait_until(|| self.next_job(&mut bounce)).await;
            let Some((shard, job)) = next else { break };
            if self.has_work() {
                self.writers.wake_one();
            }
            bounce = self.write(shard, job, bounce).await;
        }
    }

    /// The journal's tail has moved to `tail`.
    pub(super) fn era_advanced(&self, tail: SequenceNumber) {
        self.tail.fetch_max(tail.get(), Ordering::AcqRel);
        if self.has_work() {
            self.writers.wake_one();
        }
    }

    /// Writes every change; nothing may be changed meanwhile.
    pub(super) async fn drain(&self) -> Result<(), Error> {
        self.draining.fetch_add(1, Ordering::AcqRel);
        self.writers.wake_all();
        let result = self
            .drained
            .wait_until(|| {
                if self.store.read_only().is_set() {
                    return Some(Err(Error::ReadOnly));
                }
                let is_drained = self
                    .shards
                    .iter()
                    .all(|shard| shard.state.lock().is_drained());
                is_drained.then_some(Ok(()))
            })
            .await;
        self.draining.fetch_sub(1, Ordering::AcqRel);
        result?;
        let flushed = self.store.flush().await;
        self.store
            .read_only()
            .guard(flushed, "flushing the block map")
    }

    /// Ends the writers as soon as they have written what they are at.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.writers.wake_all();
    }

    /// Lets everybody who waits for a write see that there will be none.
    pub(super) fn abandon(&self) {
        for shard in &self.shards {
            if shard.release_pressure() {
                shard.waiters.wake_all();
            }
        }
        self.drained.wake_all();
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) != 0
    }

    /// Changes older than this are due.
    fn limit(&self) -> u64 {
        if self.is_draining() {
            return u64::MAX;
        }
        self.tail
            .load(Ordering::Acquire)
            .checked_sub(self.maximum_age)
            .map_or(0, |expired| expired.saturating_add(1))
    }

    fn has_work(&self) -> bool {
        let limit = self.limit();
        self.shards.iter().any(|shard| shard.has_work(limit))
    }

    /// Takes the next page to write into `bounce`. `Some(None)` once the cache is stopped.
    fn next_job(&self, bounce: &mut Page) -> Option<Option<(&Shard, Job)>> {
        if self.stopped.load(Ordering::Acquire) {
            return Some(None);
        }
        if self.store.read_only().is_set() {
            // Nothing is written any more: those who wait for it have to know.
            self.abandon();
            return None;
        }
        let limit = self.limit();
        let turn = usize::try_from(self.turn.fetch_add(1, Ordering::Relaxed)).unwrap_or(0);
        let mask = self.shards.len().wrapping_sub(1);
        for offset in 0..self.shards.len() {
            let shard = self.shards.get(turn.wrapping_add(offset) & mask)?;
            if !shard.has_work(limit) {
                continue;
            }
            let mut state = shard.state.lock();
            let job = state.take_oldest(limit, shard.is_pressed(), bounce);
            shard.publish(&state);
            if let Some(job) = job {
                return Some(Some((shard, job)));
            }
        }
        None
    }

    /// Writes the copy of a page in `bounce`.
    async fn write(&self, shard: &Shard, job: Job, bounce: Page) -> Page {
        let (bounce, result) = self.write_copy(&job, bounce).await;
        let result = self
            .store
            .read_only()
            .guard(result, "writing a block map page");
        {
            let mut state = shard.state.lock();
            let flushes = if job.is_first { 2 } else { 1 };
            let counter = &mut state.statistics.flush_count;
            *counter = counter.wrapping_add(flushes);
            match result {
                Ok(()) => state.written(&job, &*self.locks),
                Err(_) => state.not_written(&job),
            }
            shard.publish(&state);
        }
        shard.release_pressure();
        shard.waiters.wake_all();
        if self.is_draining() {
            self.drained.wake_all();
        }
        bounce
    }

    async fn write_copy(&self, job: &Job, mut bounce: Page) -> (Page, Result<(), Error>) {
        // W6.
        if let Err(error) = self.store.flush().await {
            return (bounce, Err(error.into()));
        }
        if job.is_first {
            let result;
            (bounce, result) = self
                .store
                .write(job.pbn, bounce, IoClass::BlockMap, WriteFlags::META)
                .await;
            if let Err(error) = result {
                return (bounce, Err(error.into()));
            }
            if let Err(error) = self.store.flush().await {
                return (bounce, Err(error.into()));
            }
            block_map_page::set_initialized(&mut bounce, true);
        }
        let (bounce, result) = self
            .store
            .write(job.pbn, bounce, IoClass::BlockMap, WriteFlags::META)
            .await;
        (bounce, result.map_err(Error::from))
    }
}
