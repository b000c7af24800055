// SPDX-License-Identifier: GPL-2.0

//! The depot as the rest of the engine sees it.

use super::algorithm_map::BlocksByCode;
use super::blocks::{Allocation, Blocks, Pin};
use super::geometry::{DepotParameters, Place, SlabGeometry};
use super::scrubber::Scrubbing;
use super::slab::{Fate, Refusal, Slab, Update};
use super::slab_journal::NoRoom;
use super::summary::Summary;
use super::work::Work;
use super::writer::WriterPages;
use super::{SlabJournalLocks, WRITERS};
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::slab_journal::ReferenceUpdate;
use crate::engine::format::BlockCode;
use crate::engine::journal::Journal;
use crate::engine::store::Store;
use crate::engine::units::{JournalPoint, Pbn, SequenceNumber, SlabNumber};
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{spin_lock, Arc, SpinLock, Vec, WaitList};

/// No recovery journal block.
const NONE: u64 = u64::MAX;

/// What all handles of a depot share.
pub(super) struct Inner<E: Env, J: SlabJournalLocks> {
    pub(super) store: Arc<Store<E>>,
    pub(super) locks: Arc<J>,
    pub(super) blocks: Arc<Blocks>,
    pub(super) summary: Summary,
    pub(super) work: Work,
    /// Woken whenever a writer got something done.
    pub(super) progress: WaitList,
    pub(super) scrubbing: Scrubbing,
    /// The oldest recovery journal block that each slab's journal needs, or [`NONE`]. Written under the slab's lock, and
    /// kept apart from the slabs so that all of them can be looked through at once.
    recovery_locks: Vec<AtomicU64>,
    /// The pages of writers that are not running.
    pub(super) writer_pages: SpinLock<Vec<WriterPages>>,
}

/// A handle to a depot. `J` keeps the recovery journal blocks that the slab journals need.
pub struct Depot<E: Env, J: SlabJournalLocks = Journal<E>> {
    pub(super) inner: Arc<Inner<E, J>>,
}

impl<E: Env, J: SlabJournalLocks> Clone for Depot<E, J> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// A depot with all its memory. Nothing can be allocated before [`Self::load`].
    pub fn new(
        store: Arc<Store<E>>,
        locks: Arc<J>,
        parameters: &DepotParameters,
    ) -> Result<Self, Error> {
        let blocks = Arc::new(Blocks::new(parameters)?)?;
        let slab_count = blocks.geometry().slab_count();
        let inner = Inner {
            store,
            locks,
            summary: Summary::new(&parameters.summary, parameters.state.zone_count)?,
            work: Work::new(slab_count)?,
            progress: WaitList::new()?,
            scrubbing: Scrubbing::new(slab_count)?,
            recovery_locks: Vec::from_fn(
                usize::try_from(slab_count).map_err(|_| Error::NoMemory)?,
                |_| Ok::<_, Error>(AtomicU64::new(NONE)),
            )?,
            writer_pages: spin_lock!(Vec::from_fn(WRITERS, |_| WriterPages::new())?)?,
            blocks,
        };
        Ok(Self {
            inner: Arc::new(inner)?,
        })
    }

    /// Takes a free block. Does not wait: if there is none now, none is going to be.
    pub fn allocate(&self) -> Result<Allocation, Error> {
        self.inner.store.read_only().check()?;
        let statistics = &self.inner.store.statistics().allocator;
        Blocks::allocate(&self.inner.blocks, statistics)
    }

    /// Takes a free block; waits while there is none but slabs are still to be scrubbed, which may have some.
    pub async fn allocate_patiently(&self) -> Result<Allocation, Error> {
        match self.allocate() {
            Err(Error::NoSpace) if self.unscrubbed_slabs() > 0 => {}
            result => return result,
        }
        self.inner
            .progress
            .wait_until(|| {
                // In this order: a slab that is scrubbed in between has been offered before it is no longer counted.
                let unscrubbed = self.unscrubbed_slabs();
                match self.allocate() {
                    Err(Error::NoSpace) if unscrubbed > 0 => None,
                    result => Some(result),
                }
            })
            .await
    }

    /// Holds a block that is to get more references, as advice has it.
    ///
    /// `None` if it is no data block, is being written, or has all the references that it can have. A free block can be held;
    /// nobody else gets it then.
    pub fn pin_candidate(&self, pbn: Pbn) -> Option<Pin> {
        Blocks::pin(&self.inner.blocks, pbn)
    }

    /// Adds or takes away one reference to `pbn`, in its slab's journal and in its counter.
    ///
    /// `point` is where the reference is in the recovery journal, expanded (see
    /// [`expand_point`](crate::engine::format::slab_journal::expand_point)); its journal block is durable, which is what
    /// W2 and W5 ask for. Waits while the slab's journal has no room. Any error makes the volume read-only.
    ///
    /// W3: the caller makes the calls for one slab one after the other, in the order of the points.
    pub async fn apply(
        &self,
        point: JournalPoint,
        pbn: Pbn,
        update: ReferenceUpdate,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        let Some(place) = inner.blocks.geometry().locate(pbn) else {
            return inner.fail(
                Error::Corrupt("reference to a block outside of all slabs"),
                "counting a reference",
            );
        };
        let update = Update {
            point,
            sbn: place.sbn,
            pbn,
            update,
            code: BlockCode::NONE,
        };
        // As a rule there is room, and no need to enter the list of those who wait.
        match inner.try_apply(place, update) {
            Attempt::Done(result) => return result,
            Attempt::Wait(NoRoom::Full) => {
                let statistics = &inner.store.statistics().slab_journal;
                statistics.disk_full_count.increment();
                statistics.blocked_count.increment();
            }
            Attempt::Wait(NoRoom::TailBusy) => {
                inner
                    .store
                    .statistics()
                    .slab_journal
                    .tail_busy_count
                    .increment();
            }
        }
        inner
            .progress
            .wait_until(|| match inner.try_apply(place, update) {
                Attempt::Done(result) => Some(result),
                Attempt::Wait(_) => None,
            })
            .await
    }

    /// Enters one reference from the recovery journal of a crashed volume in the journal of its slab, if that does not have it.
    ///
    /// Between [`Self::load`] for a recovery and [`Self::finish_replay`]; otherwise like [`Self::apply`]. `code` says what kind of
    /// block gets a reference, if [`Self::replay_needs_code`] asks for it.
    pub async fn replay(
        &self,
        point: JournalPoint,
        pbn: Pbn,
        update: ReferenceUpdate,
        code: BlockCode,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        let Some(place) = inner.blocks.geometry().locate(pbn) else {
            return inner.fail(
                Error::Corrupt("reference to a block outside of all slabs"),
                "replaying a reference",
            );
        };
        let update = Update {
            point,
            sbn: place.sbn,
            pbn,
            update,
            code,
        };
        if let Attempt::Done(result) = inner.try_update(place, update, Slab::replay) {
            return result;
        }
        inner
            .progress
            .wait_until(|| match inner.try_update(place, update, Slab::replay) {
                Attempt::Done(result) => Some(result),
                Attempt::Wait(_) => None,
            })
            .await
    }

    /// Whether the replay of a reference has to say what kind of block `pbn` is: the slab's journal does not have the entry.
    pub fn replay_needs_code(&self, point: JournalPoint, pbn: Pbn) -> bool {
        let blocks = &self.inner.blocks;
        let geometry = blocks.geometry();
        geometry.has_map()
            && geometry
                .locate(pbn)
                .and_then(|place| blocks.slab(place.slab).ok())
                .is_some_and(|slab| point > slab.lock().journal.recovery_point())
    }

    /// Whether the depot knows what kind of block each block is.
    pub fn has_algorithm_map(&self) -> bool {
        self.inner.blocks.geometry().has_map()
    }

    /// How many blocks in use are of which kind. `None` without an algorithm map. Blocks of slabs that are still to be scrubbed are
    /// not counted.
    pub fn blocks_by_code(&self) -> Option<BlocksByCode> {
        if !self.has_algorithm_map() {
            return None;
        }
        let blocks = &self.inner.blocks;
        let mut sum = BlocksByCode::default();
        for number in blocks.geometry().slabs() {
            if let Ok(slab) = blocks.slab(number) {
                let slab = slab.lock();
                if let Some(codes) = slab.codes.as_ref().filter(|_| slab.is_ready()) {
                    sum.add(codes.counts());
                }
            }
        }
        Some(sum)
    }

    /// What kind of block a block is, if it is referenced and there is a map. For audits.
    pub fn block_code(&self, pbn: Pbn) -> Option<BlockCode> {
        let place = self.inner.blocks.geometry().locate(pbn)?;
        let slab = self.inner.blocks.slab(place.slab).ok()?.lock();
        Some(slab.codes.as_ref()?.get(place.sbn))
    }

    /// Whether `pbn` can hold data.
    pub fn is_data_block(&self, pbn: Pbn) -> bool {
        self.inner.blocks.geometry().locate(pbn).is_some()
    }

    /// Has the slab journal blocks written that keep recovery journal blocks up to `up_to`, and waits until they are.
    pub async fn commit_oldest(&self, up_to: SequenceNumber) {
        let inner = &*self.inner;
        for (number, lock) in inner.blocks.geometry().slabs().zip(&inner.recovery_locks) {
            if lock.load(Ordering::Acquire) > up_to.get() {
                continue;
            }
            if let Ok(slab) = inner.blocks.slab(number) {
                let mut slab = slab.lock();
                if slab
                    .journal
                    .tail_recovery_lock()
                    .is_some_and(|lock| lock <= up_to)
                {
                    slab.journal.request_commit();
                    inner.queue(number, &mut slab);
                }
            }
        }
        inner
            .progress
            .wait_until(|| {
                let released = inner
                    .recovery_locks
                    .iter()
                    .all(|lock| lock.load(Ordering::Acquire) > up_to.get());
                (released || inner.store.read_only().is_set()).then_some(())
            })
            .await;
    }

    /// Writes everything out and says so in the summary: after this every slab is clean, with an exact hint.
    ///
    /// The writers have to be running. Nobody may use the depot meanwhile; nothing may be allocated or pinned.
    pub async fn drain(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.store.read_only().check()?;
        for number in inner.blocks.geometry().slabs() {
            let mut slab = inner.blocks.slab(number)?.lock();
            if slab.used {
                slab.saving = true;
                inner.queue(number, &mut slab);
            }
        }
        inner
            .progress
            .wait_until(|| inner.work.is_idle().then_some(()))
            .await;
        inner.store.read_only().check()
    }

    /// Lets everybody who waits find out that the volume is read-only.
    pub fn abandon(&self) {
        self.inner.progress.wake_all();
    }

    /// Ends the writers and scrubbers, after what they have to do now.
    pub fn stop(&self) {
        self.inner.scrubbing.stop();
        self.inner.progress.wake_all();
        self.inner.work.stop();
    }

    /// Blocks in use: referenced, allocated or held.
    pub fn allocated_blocks(&self) -> u64 {
        self.inner.blocks.allocated()
    }

    /// Data blocks of all slabs.
    pub fn data_blocks(&self) -> u64 {
        self.inner.blocks.geometry().total_data_blocks()
    }

    /// Blocks that can be allocated.
    pub fn free_blocks(&self) -> u64 {
        self.data_blocks().saturating_sub(self.allocated_blocks())
    }

    /// The number of slabs.
    pub fn slab_count(&self) -> u32 {
        self.inner.blocks.geometry().slab_count()
    }

    /// The number of physical zones, for the super block: the number of copies of the summary that are maintained.
    pub fn zone_count(&self) -> u8 {
        1
    }

    /// The counter of a block, 255 if it is allocated but not referenced. `None` if it is no data block. For audits.
    pub fn reference_count(&self, pbn: Pbn) -> Option<u8> {
        let place = self.inner.blocks.geometry().locate(pbn)?;
        let slab = self.inner.blocks.slab(place.slab).ok()?.lock();
        slab.counters.get(place.sbn)
    }
}

/// What came of trying to make an update.
enum Attempt {
    Done(Result<(), Error>),
    Wait(NoRoom),
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Makes an update, unless it has to wait; then the slab is in the queue of the writers.
    fn try_apply(&self, place: Place, update: Update) -> Attempt {
        self.try_update(place, update, |slab, geometry, locks, update| {
            slab.update(geometry, &self.blocks.pins, locks, update)
        })
    }

    fn try_update(
        &self,
        place: Place,
        update: Update,
        make: impl FnOnce(&mut Slab, &SlabGeometry, &J, Update) -> Result<Fate, Refusal>,
    ) -> Attempt {
        if let Err(error) = self.store.read_only().check() {
            return Attempt::Done(Err(error));
        }
        let slab = match self.blocks.slab(place.slab) {
            Ok(slab) => slab,
            Err(error) => return Attempt::Done(Err(error)),
        };
        let geometry = self.blocks.geometry();
        let (result, risen) = {
            let mut slab = slab.lock();
            let result = make(&mut slab, geometry, &self.locks, update);
            self.note_recovery_lock(place.slab, &slab);
            self.queue(place.slab, &mut slab);
            if !slab.is_ready() && matches!(result, Err(Refusal::Wait(NoRoom::Full))) {
                // Only a scrub makes room in the journal of this slab.
                self.scrubbing.prefer(place.slab);
            }
            (result, slab.has_risen(geometry))
        };
        match result {
            Ok(Fate::Freed) => {
                self.blocks.freed(place.slab, risen);
                Attempt::Done(Ok(()))
            }
            Ok(Fate::Kept) => Attempt::Done(Ok(())),
            Err(Refusal::Wait(reason)) => Attempt::Wait(reason),
            Err(Refusal::Contradiction(what)) => {
                Attempt::Done(self.fail(Error::Corrupt(what), "counting a reference"))
            }
        }
    }

    /// Has a writer look after a locked slab, if there is something to do.
    pub(super) fn queue(&self, number: SlabNumber, slab: &mut Slab) {
        if !slab.queued && slab.has_work() {
            slab.queued = true;
            self.work.push(number);
        }
    }

    /// Publishes which recovery journal block a locked slab needs.
    pub(super) fn note_recovery_lock(&self, number: SlabNumber, slab: &Slab) {
        let lock = slab.journal.oldest_recovery_lock();
        if let Some(noted) = usize::try_from(number.get())
            .ok()
            .and_then(|number| self.recovery_locks.get(number))
        {
            noted.store(lock.map_or(NONE, SequenceNumber::get), Ordering::Release);
        }
    }

    /// Makes the volume read-only, and lets those who wait find out.
    pub(super) fn fail<T>(&self, error: Error, what: &'static str) -> Result<T, Error> {
        self.store.read_only().enter(error, what);
        self.progress.wake_all();
        Err(error)
    }
}
