// SPDX-License-Identifier: GPL-2.0

//! Recording, committing, applying and reaping.
//!
//! Three tasks of the volume drive the journal: the committer writes blocks, one at a time, each write taking along whatever
//! came in during the one before; the applier passes committed entries on; the reaper frees blocks on disk that nobody needs.

use super::locks::{BlockLocks, Holder};
use super::state::{Constants, Refusal, State, MEMORY_BLOCKS};
use crate::engine::block_map::PageLocks;
use crate::engine::depot::SlabJournalLocks;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::recovery_journal::position;
use crate::engine::format::recovery_journal_entry::JournalEntry;
use crate::engine::store::Store;
use crate::engine::units::{JournalPoint, Nonce, Pbn, SequenceNumber};
use crate::rt::{spin_lock, AllocError, Arc, Page, SpinLock, Vec, WaitList};

/// Entries that the applier takes at a time.
const BATCH_ENTRIES: usize = 64;

/// Where the journal is and how it goes on.
#[derive(Debug, Clone, Copy)]
pub struct JournalParameters {
    /// The first block of the journal partition.
    pub origin: Pbn,
    /// Blocks in the partition: a power of two.
    pub blocks: u64,
    /// The volume.
    pub nonce: Nonce,
    /// The low byte of the volume's complete recoveries.
    pub recovery_count: u8,
    /// The number of the next block.
    pub start: SequenceNumber,
    /// Mapped logical blocks, as of `start`.
    pub logical_blocks_used: u64,
    /// Block map pages allocated from slabs, as of `start`.
    pub block_map_data_blocks: u64,
}

/// The recovery journal of a volume.
pub struct Journal<E: Env> {
    store: Arc<Store<E>>,
    origin: Pbn,
    constants: Constants,
    state: SpinLock<State>,
    locks: BlockLocks,
    /// Recorders waiting for their entry to be applied, by block.
    recorders: Vec<WaitList>,
    /// Recorders waiting for room.
    room: WaitList,
    commit_work: WaitList,
    apply_work: WaitList,
    reap_work: WaitList,
    pressure: WaitList,
}

/// Entries for the applier, in journal order.
pub struct Batch {
    entries: Vec<(JournalPoint, JournalEntry)>,
    end: JournalPoint,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Result<Self, AllocError> {
        Ok(Self {
            entries: Vec::with_capacity(BATCH_ENTRIES)?,
            end: JournalPoint::ZERO,
        })
    }

    /// The entries with their places.
    pub fn entries(&self) -> &[(JournalPoint, JournalEntry)] {
        &self.entries
    }
}

impl<E: Env> Journal<E> {
    /// A journal that holds nothing anybody needs.
    pub fn new(store: Arc<Store<E>>, parameters: JournalParameters) -> Result<Self, AllocError> {
        let constants = Constants {
            blocks: parameters.blocks,
            nonce: parameters.nonce,
            recovery_count: parameters.recovery_count,
        };
        let memory_blocks = usize::try_from(MEMORY_BLOCKS).map_err(|_| AllocError)?;
        Ok(Self {
            store,
            origin: parameters.origin,
            constants,
            state: spin_lock!(State::new(
                constants,
                parameters.start,
                parameters.logical_blocks_used,
                parameters.block_map_data_blocks,
            )?)?,
            locks: BlockLocks::new(parameters.blocks)?,
            recorders: Vec::from_fn(memory_blocks, |_| WaitList::new())?,
            room: WaitList::new()?,
            commit_work: WaitList::new()?,
            apply_work: WaitList::new()?,
            reap_work: WaitList::new()?,
            pressure: WaitList::new()?,
        })
    }

    /// Lets the journal go on at `start` after a recovery: nothing in it is needed, and its blocks carry `recovery_count` from now
    /// on. Called while the volume is loaded, before anything is recorded, and before the tasks of the journal are started.
    pub fn restart(
        &self,
        start: SequenceNumber,
        recovery_count: u8,
        (logical_blocks_used, block_map_data_blocks): (u64, u64),
    ) -> Result<(), AllocError> {
        let constants = Constants {
            recovery_count,
            ..self.constants
        };
        let state = State::new(constants, start, logical_blocks_used, block_map_data_blocks)?;
        // Dropped after the lock is: freeing pages has no business under it.
        let _old = core::mem::replace(&mut *self.state.lock(), state);
        Ok(())
    }

    /// Blocks of the journal that may be in use at a time.
    pub fn usable_blocks(&self) -> u64 {
        self.constants.usable()
    }

    /// The block being filled.
    pub fn tail(&self) -> SequenceNumber {
        self.state.lock().tail()
    }

    /// Logical blocks that are mapped, and block map pages in slabs.
    pub fn usage(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.logical_blocks_used, state.block_map_data_blocks)
    }

    /// What the super block stores as the start of the journal: after [`Self::drain`] the next unused block, otherwise the
    /// older head.
    pub fn start(&self) -> SequenceNumber {
        let state = self.state.lock();
        state.block_map_head.min(state.slab_journal_head)
    }

    /// Records a change. When this returns, the entry is durable and both its halves are in the slab journals and counters.
    ///
    /// W1: the caller's data write has completed, and the block with the entry is written after a cache flush.
    /// W2: nothing derived from the entry happens before it is durable (FUA).
    pub async fn record(&self, entry: &JournalEntry) -> Result<EntryLock<'_, E>, Error> {
        let point = self.append(entry).await?;
        let lock = EntryLock {
            journal: self,
            sequence: point.sequence,
        };
        self.commit_work.wake_all();
        self.recorded(point).await?;
        Ok(lock)
    }

    async fn append(&self, entry: &JournalEntry) -> Result<JournalPoint, Error> {
        self.room
            .wait_until(|| {
                let mut state = self.state.lock();
                match state.append(entry) {
                    Ok((point, opened)) => {
                        // Under the state lock: the reaper must not see the block without its entry.
                        self.locks.lock(point.sequence, Holder::Entry);
                        drop(state);
                        let statistics = self.store.statistics();
                        statistics.journal_entries.started.increment();
                        if opened {
                            statistics.journal_blocks.started.increment();
                            self.pressure.wake_all();
                        }
                        Some(Ok(point))
                    }
                    Err(Refusal::Failed(error)) => Some(Err(error)),
                    Err(Refusal::NoBuffer) => None,
                    Err(Refusal::NoSpace) => {
                        drop(state);
                        self.store.statistics().journal.disk_full.increment();
                        self.reap_work.wake_all();
                        None
                    }
                }
            })
            .await
    }

    async fn recorded(&self, point: JournalPoint) -> Result<(), Error> {
        let condition = || {
            let state = self.state.lock();
            if state.applied > point {
                Some(Ok(()))
            } else {
                state.failed.map(Err)
            }
        };
        match self.recorders_of(point.sequence) {
            Some(list) => list.wait_until(condition).await,
            None => Err(Error::Corrupt("journal block without a wait list")),
        }
    }

    fn recorders_of(&self, sequence: SequenceNumber) -> Option<&WaitList> {
        let index = usize::try_from(sequence.get() & MEMORY_BLOCKS.wrapping_sub(1)).ok()?;
        self.recorders.get(index)
    }

    /// Writes blocks until the journal stops or fails.
    pub async fn run_committer(&self, mut page: Page) {
        loop {
            let job = self
                .commit_work
                .wait_until(|| {
                    let state = self.state.lock();
                    if state.stopping || state.failed.is_some() {
                        return Some(None);
                    }
                    state.copy_uncommitted(&mut page).map(Some)
                })
                .await;
            let Some(end) = job else {
                return;
            };
            let Some(pbn) = self
                .origin
                .checked_add(position(end.sequence, self.constants.blocks))
            else {
                self.fail(Error::OutOfRange, "journal block address");
                return;
            };
            let entries = self.uncommitted(end);
            let statistics = self.store.statistics();
            statistics.journal_entries.written.add(entries);
            statistics.journal_blocks.written.increment();
            // W1 by the preflush, W2 by FUA.
            let (returned, result) = self
                .store
                .write(pbn, page, IoClass::Journal, WriteFlags::PREFLUSH_FUA)
                .await;
            page = returned;
            if let Err(error) = result {
                self.fail(error.into(), "writing the recovery journal");
                return;
            }
            statistics.journal_entries.committed.add(entries);
            statistics.journal_blocks.committed.increment();
            self.state.lock().committed = State::normalise(end);
            self.apply_work.wake_all();
        }
    }

    fn uncommitted(&self, end: JournalPoint) -> u64 {
        u64::from(end.entry.saturating_sub(self.state.lock().committed.entry))
    }

    /// Waits for committed entries and moves them into `batch`. `false` once the journal stops or fails.
    pub async fn next_batch(&self, batch: &mut Batch) -> bool {
        self.apply_work
            .wait_until(|| {
                let state = self.state.lock();
                if state.failed.is_some() {
                    return Some(false);
                }
                batch.entries.clear();
                let mut point = state.applied;
                while let Some(entry) = state.committed_entry(point) {
                    if batch.entries.push_within_capacity((point, entry)).is_err() {
                        break;
                    }
                    point = State::normalise(JournalPoint {
                        sequence: point.sequence,
                        entry: point.entry.saturating_add(1),
                    });
                }
                batch.end = point;
                if !batch.entries.is_empty() {
                    Some(true)
                } else if state.stopping {
                    Some(false)
                } else {
                    None
                }
            })
            .await
    }

    /// The entries of `batch` are in the slab journals and counters.
    pub fn applied(&self, batch: &Batch) {
        let before = {
            let mut state = self.state.lock();
            core::mem::replace(&mut state.applied, batch.end)
        };
        let mut sequence = Some(before.sequence);
        while let Some(block) = sequence.filter(|block| *block <= batch.end.sequence) {
            if let Some(list) = self.recorders_of(block) {
                list.wake_all();
            }
            sequence = block.next();
        }
        if before.sequence != batch.end.sequence {
            // A block in memory became free, and one on disk may have.
            self.room.wake_all();
            self.reap_work.wake_all();
            self.pressure.wake_all();
        }
    }

    /// Frees blocks on disk until the journal stops or fails.
    pub async fn run_reaper(&self) {
        loop {
            let heads = self
                .reap_work
                .wait_until(|| {
                    let mut state = self.state.lock();
                    if state.stopping || state.failed.is_some() {
                        return Some(None);
                    }
                    self.reapable(&mut state).map(Some)
                })
                .await;
            let Some((block_map_head, slab_journal_head)) = heads else {
                return;
            };
            // W8: what allowed the heads to advance is stable before the blocks can be overwritten.
            if let Err(error) = self.store.flush().await {
                self.fail(
                    error.into(),
                    "flushing before the recovery journal is reaped",
                );
                return;
            }
            {
                let mut state = self.state.lock();
                state.block_map_head = block_map_head;
                state.slab_journal_head = slab_journal_head;
                state.space_wanted = false;
            }
            self.room.wake_all();
        }
    }

    /// The heads as they could be, if advancing them is worth a flush: an eighth of the journal, or somebody waits.
    fn reapable(&self, state: &mut State) -> Option<(SequenceNumber, SequenceNumber)> {
        let map = self.first_needed_by_map(state);
        let slabs = self.first_needed_by_slabs(state);
        let old = state.block_map_head.min(state.slab_journal_head).get();
        let gain = map.min(slabs).get().saturating_sub(old);
        let worth = if state.space_wanted {
            1
        } else {
            (self.constants.usable() >> 3).max(1)
        };
        (gain >= worth).then_some((map, slabs))
    }

    /// The first block that the block map needs, or that is not applied yet.
    fn first_needed_by_map(&self, state: &mut State) -> SequenceNumber {
        let from = state.unneeded_by_map.max(state.block_map_head);
        let first = Self::first_needed(state, from, |block| self.locks.is_needed_by_map(block));
        state.unneeded_by_map = first;
        first
    }

    /// The same for the slab journals.
    fn first_needed_by_slabs(&self, state: &mut State) -> SequenceNumber {
        let from = state.unneeded_by_slabs.max(state.slab_journal_head);
        let first = Self::first_needed(state, from, |block| self.locks.is_needed_by_slabs(block));
        state.unneeded_by_slabs = first;
        first
    }

    /// The first block from `from` on that is needed, or not applied yet.
    ///
    /// A block that is applied and not needed stays so: pages and slabs lock a block only for its entries on their way. So the search
    /// goes on where the last one ended; thousands of blocks may lie between the head on disk and there.
    fn first_needed(
        state: &State,
        from: SequenceNumber,
        is_needed: impl Fn(u64) -> bool,
    ) -> SequenceNumber {
        let mut block = from;
        while block < state.applied.sequence && !is_needed(block.get()) {
            match block.next() {
                Some(next) => block = next,
                None => break,
            }
        }
        block
    }

    /// Waits until slab journals hold up so much of the journal that their tails should be written. The result is the newest
    /// block they should let go of. `None` once the journal stops or fails.
    pub async fn slab_pressure(&self) -> Option<SequenceNumber> {
        self.pressure
            .wait_until(|| {
                let mut state = self.state.lock();
                // In read-only mode the depot waits for no commit: not to end here would be to ask for it again and again, perhaps on
                // the one CPU that is to run the task which fails the journal.
                let is_over = state.stopping || state.failed.is_some();
                if is_over || self.store.read_only().is_set() {
                    return Some(None);
                }
                let oldest = self.first_needed_by_slabs(&mut state);
                let held = state.next().get().saturating_sub(oldest.get());
                let third = self.constants.usable().checked_div(3).unwrap_or(1);
                // Not if the oldest block is merely unapplied: writing tails would not help then.
                if held <= third.saturating_mul(2) || oldest >= state.applied.sequence {
                    return None;
                }
                // Blocks that are still being applied may be locked again after the tails were written.
                let newest = SequenceNumber::new(state.applied.sequence.get().saturating_sub(1))
                    .unwrap_or(oldest);
                Some(Some(
                    oldest
                        .checked_add(third >> 1)
                        .map_or(newest, |block| block.min(newest)),
                ))
            })
            .await
    }

    fn unlock(&self, sequence: SequenceNumber, holder: Holder) {
        if self.locks.unlock(sequence, holder) {
            self.reap_work.wake_all();
        }
    }

    /// Makes the journal refuse everything from now on, and the volume read-only.
    pub fn fail(&self, error: Error, what: &'static str) {
        self.store.read_only().enter(error, what);
        self.state.lock().failed.get_or_insert(Error::ReadOnly);
        for list in self.recorders.iter() {
            list.wake_all();
        }
        for list in [
            &self.room,
            &self.commit_work,
            &self.apply_work,
            &self.reap_work,
            &self.pressure,
        ] {
            list.wake_all();
        }
    }

    /// Waits until every entry is applied, then closes the last block: the next entry starts a new one.
    ///
    /// Call when no recorder is active. Afterwards, once pages and slabs are clean, nothing in the journal is needed.
    pub async fn drain(&self) -> Result<(), Error> {
        // An idle journal has nothing to wait for; otherwise the applier's last step wakes the recorders of the last block.
        let last = self.tail();
        let Some(list) = self.recorders_of(last) else {
            return Err(Error::Corrupt("journal block without a wait list"));
        };
        list.wait_until(|| {
            let state = self.state.lock();
            if let Some(error) = state.failed {
                Some(Err(error))
            } else {
                state.is_idle().then_some(Ok(()))
            }
        })
        .await?;
        self.state.lock().close();
        Ok(())
    }

    /// After a save: nothing on disk is needed, the journal starts over at its next block.
    pub fn forget_saved(&self) {
        let mut state = self.state.lock();
        state.block_map_head = state.next();
        state.slab_journal_head = state.next();
    }

    /// Ends the journal's tasks.
    pub fn stop(&self) {
        self.state.lock().stopping = true;
        for list in [
            &self.commit_work,
            &self.apply_work,
            &self.reap_work,
            &self.pressure,
        ] {
            list.wake_all();
        }
    }
}

impl<E: Env> PageLocks for Journal<E> {
    fn lock_for_page(&self, sequence: SequenceNumber) {
        self.locks.lock(sequence, Holder::Page);
    }

    fn unlock_for_page(&self, sequence: SequenceNumber) {
        self.unlock(sequence, Holder::Page);
    }
}

impl<E: Env> SlabJournalLocks for Journal<E> {
    fn lock_for_slab(&self, sequence: SequenceNumber) {
        self.locks.lock(sequence, Holder::Slab);
    }

    fn unlock_for_slab(&self, sequence: SequenceNumber) {
        self.unlock(sequence, Holder::Slab);
        self.pressure.wake_all();
    }
}

/// Keeps a journal block until the block map page has taken over the change of one of its entries.
pub struct EntryLock<'a, E: Env> {
    journal: &'a Journal<E>,
    sequence: SequenceNumber,
}

impl<E: Env> EntryLock<'_, E> {
    /// The block.
    pub fn sequence(&self) -> SequenceNumber {
        self.sequence
    }
}

impl<E: Env> Drop for EntryLock<'_, E> {
    fn drop(&mut self) {
        self.journal.unlock(self.sequence, Holder::Entry);
    }
}
