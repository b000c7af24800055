// SPDX-License-Identifier: GPL-2.0

//! The page cache: leaf and interior pages, found by where they are on disk.
//!
//! A page is looked at and changed by a closure that runs under the lock of the page's shard, so nothing pins a page and nobody
//! waits while holding one. A page that is not here is read by the first task that wants it; the others wait for that task.
//! When every frame holds a page that is dirty or on its way, the writers (see [`super::writer`]) are asked for room. In read-only
//! mode they make none: pages that are only looked at then pass through a spare frame.

use super::shard::{Shard, ShardState};
use super::statistics::{add, count};
use super::PageLocks;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::block_map_page::{self, PageContents};
use crate::engine::statistics::BlockMapStats;
use crate::engine::store::Store;
use crate::engine::units::{Block, Nonce, Pbn, SequenceNumber};
use crate::rt::atomic::{AtomicBool, AtomicU32, AtomicU64};
use crate::rt::{Arc, Page, Vec, WaitList};

/// Most shards, a power of two.
const SHARDS_MAX: usize = 64;
/// A shard has at least as many frames, unless it is the only one.
const SHARD_FRAMES_MIN: usize = 64;

/// What is done to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// It is looked at.
    Read,
    /// It is changed by an entry in this block of the recovery journal.
    Journaled(SequenceNumber),
    /// It is changed by what is in the journal already and stays there until the map was drained.
    Replayed,
}

/// What is on the disk where a page is that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisk {
    /// The page.
    Page,
    /// Nothing of meaning, even if it looks like a page: the block was allocated, and every change of the page is still to come.
    Nothing,
    /// The page if it says so in every respect; if not, the block was allocated, and the page has never been written.
    PageOrNothing,
}

/// What a task that wants a page does next.
enum Step<R> {
    Done(R),
    Read(u32, Page),
    Fail(Error),
}

/// The cache.
pub(super) struct PageCache<E: Env, J> {
    pub(super) store: Arc<Store<E>>,
    pub(super) locks: Arc<J>,
    nonce: Nonce,
    pub(super) shards: Vec<Shard>,
    /// The journal's tail.
    pub(super) tail: AtomicU64,
    /// How far the tail may be past a change before the page is written.
    pub(super) maximum_age: u64,
    /// Idle writers.
    pub(super) writers: WaitList,
    /// The shard that the next writer looks at first.
    pub(super) turn: AtomicU32,
    /// Tasks that wait until nothing is dirty.
    pub(super) draining: AtomicU32,
    pub(super) drained: WaitList,
    pub(super) stopped: AtomicBool,
}

impl<E: Env, J: PageLocks> PageCache<E, J> {
    /// A cache of `pages` pages (at least one).
    pub(super) fn new(
        store: Arc<Store<E>>,
        locks: Arc<J>,
        nonce: Nonce,
        pages: usize,
        maximum_age: u64,
    ) -> Result<Self, Error> {
        let pages = pages.max(1);
        let mut shard_count = 1_usize;
        while shard_count < SHARDS_MAX
            && shard_count
                .saturating_mul(2)
                .saturating_mul(SHARD_FRAMES_MIN)
                <= pages
        {
            shard_count = shard_count.saturating_mul(2);
        }
        let frames = pages.checked_div(shard_count).unwrap_or(pages);
        Ok(Self {
            store,
            locks,
            nonce,
            shards: Vec::from_fn(shard_count, |_| Shard::new(frames))?,
            tail: AtomicU64::new(0),
            maximum_age,
            writers: WaitList::new()?,
            turn: AtomicU32::new(0),
            draining: AtomicU32::new(0),
            drained: WaitList::new()?,
            stopped: AtomicBool::new(false),
        })
    }

    /// Runs `f` on the page at `pbn`, which is read first if it is not here.
    pub(super) async fn with_page<R: Send>(
        &self,
        pbn: Pbn,
        access: Access,
        f: impl FnOnce(&mut Block) -> R + Send,
    ) -> Result<R, Error> {
        self.with_page_from(pbn, OnDisk::Page, access, f).await
    }

    /// Makes an empty page for the block `pbn`, which was allocated by the entry in `sequence`.
    ///
    /// The page is dirty from the start: it replaces whatever user data the block held as soon as other dirty pages are written.
    pub(super) async fn create(&self, pbn: Pbn, sequence: SequenceNumber) -> Result<(), Error> {
        self.with_page_from(pbn, OnDisk::Nothing, Access::Journaled(sequence), |_| ())
            .await
    }

    /// Changes a page as the journal says that is being replayed.
    pub(super) async fn replay_page(
        &self,
        pbn: Pbn,
        on_disk: OnDisk,
        f: impl FnOnce(&mut Block) + Send,
    ) -> Result<(), Error> {
        self.with_page_from(pbn, on_disk, Access::Replayed, f).await
    }

    /// Throws out all clean pages.
    pub(super) fn forget(&self) {
        for shard in &self.shards {
            shard.state.lock().forget();
        }
    }

    async fn with_page_from<R: Send>(
        &self,
        pbn: Pbn,
        on_disk: OnDisk,
        access: Access,
        f: impl FnOnce(&mut Block) -> R + Send,
    ) -> Result<R, Error> {
        let Some(shard) = self.shard(pbn) else {
            return Err(Error::Corrupt("block map cache without shards"));
        };
        let mut f = Some(f);
        let mut is_first = true;
        let mut attempt = || {
            self.attempt(
                shard,
                pbn,
                on_disk,
                access,
                &mut f,
                core::mem::take(&mut is_first),
            )
        };
        let step = match attempt() {
            Some(step) => step,
            None => shard.waiters.wait_until(attempt).await,
        };
        match step {
            Step::Done(value) => Ok(value),
            Step::Fail(error) => Err(error),
            Step::Read(index, page) => {
                let (page, result) = self.read(pbn, on_disk, page).await;
                let outcome = {
                    let mut state = shard.state.lock();
                    match result {
                        Ok(()) => {
                            state.settle(index, page);
                            count(&mut state.statistics.pages_loaded);
                            self.apply(shard, &mut state, index, access, &mut f)
                                .ok_or(Error::Corrupt("block map page without its frame"))
                        }
                        Err(error) => {
                            state.abandon(index, page);
                            count(&mut state.statistics.failed_reads);
                            Err(error)
                        }
                    }
                };
                shard.waiters.wake_all();
                outcome
            }
        }
    }

    /// Looks whether the page is here, or can be fetched.
    fn attempt<R, F: FnOnce(&mut Block) -> R>(
        &self,
        shard: &Shard,
        pbn: Pbn,
        on_disk: OnDisk,
        access: Access,
        f: &mut Option<F>,
        is_first: bool,
    ) -> Option<Step<R>> {
        let mut state = shard.state.lock();
        if let Some(index) = state.find(pbn) {
            if on_disk == OnDisk::Nothing {
                return Some(Step::Fail(Error::Corrupt(
                    "a block map page was allocated twice",
                )));
            }
            if state.is_spare(index) && access != Access::Read {
                return Some(Step::Fail(Error::ReadOnly));
            }
            let done = self.apply(shard, &mut state, index, access, f);
            if is_first {
                count(match done {
                    Some(_) => &mut state.statistics.found_in_cache,
                    None => &mut state.statistics.wait_for_page,
                });
            }
            return done.map(Step::Done);
        }

        let mut reserved = state.reserve(pbn);
        if reserved.is_none() && access == Access::Read && self.store.read_only().is_set() {
            reserved = state.reserve_spare(pbn);
        }
        let Some((index, mut page)) = reserved else {
            if is_first {
                count(&mut state.statistics.cache_pressure);
            }
            if !self.store.read_only().is_set() {
                shard.press();
                self.writers.wake_one();
            } else if !state.is_busy() {
                // Every frame holds a change that can no longer be written, and that reads still need. They use the spare one.
                return Some(Step::Fail(Error::ReadOnly));
            }
            return None;
        };
        if state.is_short_of_room() {
            shard.press();
            self.writers.wake_one();
        }
        match on_disk {
            OnDisk::Page | OnDisk::PageOrNothing => {
                count(&mut state.statistics.fetch_required);
                Some(Step::Read(index, page))
            }
            OnDisk::Nothing => {
                block_map_page::format(&mut page, self.nonce, pbn);
                state.settle(index, page);
                self.apply(shard, &mut state, index, access, f)
                    .map(Step::Done)
            }
        }
    }

    /// Runs `f` on the page in a frame, if it is resident.
    fn apply<R, F: FnOnce(&mut Block) -> R>(
        &self,
        shard: &Shard,
        state: &mut ShardState,
        index: u32,
        access: Access,
        f: &mut Option<F>,
    ) -> Option<R> {
        let is_outgoing = state.frame(index)?.writing.is_some();
        let page = state.page_mut(index)?;
        let value = (f.take()?)(page);
        let lock = match access {
            Access::Read => {
                count(&mut state.statistics.read_count);
                if is_outgoing {
                    count(&mut state.statistics.read_outgoing);
                }
                return Some(value);
            }
            Access::Journaled(sequence) => Some(sequence),
            Access::Replayed => None,
        };
        count(&mut state.statistics.write_count);
        state.mark_changed(index, lock, &*self.locks);
        shard.publish(state);
        Some(value)
    }

    /// Reads a page and sees to it that it is one.
    async fn read(&self, pbn: Pbn, on_disk: OnDisk, page: Page) -> (Page, Result<(), Error>) {
        let (mut page, result) = self.store.read(pbn, page, IoClass::BlockMap).await;
        let result = result.map_err(Error::from).and_then(|()| {
            match (block_map_page::classify(&page, self.nonce, pbn), on_disk) {
                (Ok(PageContents::Valid), _) => {}
                (Ok(PageContents::Fresh), _) | (Err(_), OnDisk::PageOrNothing) => {
                    block_map_page::format(&mut page, self.nonce, pbn)
                }
                (Err(error), _) => return Err(error.into()),
            }
            Ok(())
        });
        let result = self
            .store
            .read_only()
            .guard(result, "reading a block map page");
        (page, result)
    }

    fn shard(&self, pbn: Pbn) -> Option<&Shard> {
        // Neither the high bits of the product, which the table uses, nor the low ones, which are poorly mixed.
        let mixed = pbn.get().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24;
        let mask = self.shards.len().wrapping_sub(1);
        self.shards
            .get(usize::try_from(mixed & 0xffff).unwrap_or(0) & mask)
    }

    /// What the cache holds and has done.
    pub(super) fn statistics(&self) -> BlockMapStats {
        let mut sum = BlockMapStats::default();
        for shard in &self.shards {
            add(&mut sum, shard.state.lock().statistics());
        }
        sum
    }
}
