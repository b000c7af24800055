// SPDX-License-Identifier: GPL-2.0

//! Scrubbing slabs while the volume is in use.
//!
//! After a crash the journals of the slabs are complete but the counters are not. A slab is *unscrubbed* until its counters are in
//! memory and up to date: references that come and go are entered in its journal, nothing is allocated from it and nothing in it
//! is shared. Scrubbers take such slabs one after the other; one that somebody waits for, because its journal has become too
//! long, comes next.
//!
//! Lock order: the state's lock may be taken under a slab's and takes none.

use super::handle::{Depot, Inner};
use super::scrub::Scratch;
use super::slab::Status;
use super::SlabJournalLocks;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::units::SlabNumber;
use crate::rt::atomic::{AtomicU32, Ordering};
use crate::rt::{spin_lock, AllocError, SpinLock, Vec, WaitList};

/// Scrubbers to start.
pub const SCRUBBERS: usize = 4;

struct State {
    /// Slabs that nobody has begun with. The last one is the next.
    pending: Vec<SlabNumber>,
    /// Slabs being scrubbed.
    running: u32,
    paused: bool,
    stopped: bool,
}

/// The slabs that are not scrubbed.
pub(super) struct Scrubbing {
    state: SpinLock<State>,
    changed: WaitList,
    unscrubbed: AtomicU32,
}

impl Scrubbing {
    pub(super) fn new(slab_count: u32) -> Result<Self, AllocError> {
        let count = usize::try_from(slab_count).map_err(|_| AllocError)?;
        Ok(Self {
            state: spin_lock!(State {
                pending: Vec::with_capacity(count)?,
                running: 0,
                paused: false,
                stopped: false,
            })?,
            changed: WaitList::new()?,
            unscrubbed: AtomicU32::new(0),
        })
    }

    /// One more slab, to be scrubbed before those that were added already.
    pub(super) fn add(&self, slab: SlabNumber) -> Result<(), Error> {
        let mut state = self.state.lock();
        state
            .pending
            .push_within_capacity(slab)
            .map_err(|_| Error::OutOfRange)?;
        self.unscrubbed.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// Puts a slab before all others.
    pub(super) fn prefer(&self, slab: SlabNumber) {
        let mut state = self.state.lock();
        let place = state.pending.iter().rposition(|other| *other == slab);
        if let (Some(place), Some(last)) = (place, state.pending.len().checked_sub(1)) {
            state.pending.swap(place, last);
        }
    }

    /// Waits for a slab to scrub. `None` once there are no more.
    async fn next(&self) -> Option<SlabNumber> {
        self.changed
            .wait_until(|| {
                let mut state = self.state.lock();
                if state.stopped || state.pending.is_empty() {
                    return Some(None);
                }
                if state.paused {
                    return None;
                }
                state.running = state.running.saturating_add(1);
                Some(state.pending.pop())
            })
            .await
    }

    fn done(&self, scrubbed: bool) {
        if scrubbed {
            self.unscrubbed.fetch_sub(1, Ordering::AcqRel);
        }
        {
            let mut state = self.state.lock();
            state.running = state.running.saturating_sub(1);
        }
        self.changed.wake_all();
    }

    fn set_paused(&self, paused: bool) {
        self.state.lock().paused = paused;
        self.changed.wake_all();
    }

    /// Ends the scrubbers after the slabs they are at.
    pub(super) fn stop(&self) {
        self.state.lock().stopped = true;
        self.changed.wake_all();
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }
}

/// What a scrubber needs.
pub struct ScrubMemory(Scratch);

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// Allocates the memory of one scrubber.
    pub fn scrub_memory(&self) -> Result<ScrubMemory, Error> {
        Ok(ScrubMemory(Scratch::new(
            self.inner.blocks.geometry().stored_blocks(),
        )?))
    }

    /// The body of one scrubber task. Ends when there is nothing left to scrub, or after [`Depot::stop`].
    pub async fn run_scrubber(&self, mut memory: ScrubMemory) {
        let inner = &*self.inner;
        while let Some(slab) = inner.scrubbing.next().await {
            let result = match inner.store.read_only().check() {
                Ok(()) => inner.scrub_in_use(slab, &mut memory.0).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(()) | Err(Error::ReadOnly | Error::ShuttingDown) => {}
                Err(error) => {
                    crate::rt::error!("slab {}: {}", slab, error);
                    inner.store.read_only().enter(error, "scrubbing a slab");
                }
            }
            inner.scrubbing.done(result.is_ok());
            inner.progress.wake_all();
            if result.is_ok() && self.unscrubbed_slabs() == 0 {
                crate::rt::info!("all slabs are scrubbed");
            }
        }
    }

    /// Slabs whose blocks cannot be allocated yet.
    pub fn unscrubbed_slabs(&self) -> u32 {
        self.inner.scrubbing.unscrubbed.load(Ordering::Acquire)
    }

    /// Waits until all slabs are scrubbed.
    pub async fn scrubbed(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner
            .progress
            .wait_until(|| match inner.store.read_only().check() {
                Ok(()) => (self.unscrubbed_slabs() == 0).then_some(Ok(())),
                Err(error) => Some(Err(error)),
            })
            .await
    }

    /// Lets scrubbers finish the slabs they are at, and begin with no others until [`Self::resume_scrubbing`].
    pub async fn pause_scrubbing(&self) {
        let scrubbing = &self.inner.scrubbing;
        scrubbing.set_paused(true);
        scrubbing
            .changed
            .wait_until(|| (scrubbing.state.lock().running == 0).then_some(()))
            .await;
    }

    /// Goes on scrubbing.
    pub fn resume_scrubbing(&self) {
        self.inner.scrubbing.set_paused(false);
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Lists what is to be scrubbed, once the journals of all slabs are as they have to be: slabs with a long journal first, as
    /// they will soon take no more entries. The others are ready.
    pub(super) fn begin_scrubbing(&self) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        for urgent in [false, true] {
            for number in geometry.slabs() {
                let mut slab = self.blocks.slab(number)?.lock();
                if !slab.used {
                    slab.status = Status::Ready;
                } else if (slab.journal.length() >= geometry.flushing) == urgent {
                    self.scrubbing.add(number)?;
                }
            }
        }
        Ok(())
    }

    /// Scrubs one slab of a volume that is in use. Its journal takes no entries meanwhile.
    async fn scrub_in_use(&self, number: SlabNumber, scratch: &mut Scratch) -> Result<(), Error> {
        let slab = self.blocks.slab(number)?;
        {
            let mut slab = slab.lock();
            slab.status = Status::Scrubbing;
            slab.journal.request_commit();
            self.queue(number, &mut slab);
        }
        self.progress
            .wait_until(|| {
                if slab.lock().journal.is_committed() {
                    return Some(Ok(()));
                }
                // There may be no writer any more to commit it.
                if self.scrubbing.is_stopped() {
                    return Some(Err(Error::ShuttingDown));
                }
                self.store.read_only().check().err().map(Err)
            })
            .await?;

        let (head, tail, load) = {
            let slab = slab.lock();
            let summary = &slab.summary;
            (
                slab.journal.head(),
                slab.journal.tail(),
                summary.load_reference_counts,
            )
        };
        self.load_commit_points(number, head, load, scratch).await?;
        let latest = self.count_journal(number, head, tail, scratch).await?;
        // W7: the update flushes first, so the counters are durable before the summary says that the journal is not needed, and
        // before the journal is used again.
        let clean = slab.lock().clean_summary(self.blocks.geometry());
        if let Some(clean) = clean {
            self.summary.update(&self.store, number, clean).await?;
        }
        {
            let mut slab = slab.lock();
            slab.latest = latest;
            slab.recount_codes();
            slab.status = Status::Ready;
            slab.reap();
        }
        self.blocks.offer(number)
    }
}
