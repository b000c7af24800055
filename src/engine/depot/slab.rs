// SPDX-License-Identifier: GPL-2.0

//! One slab in memory: counters, journal and reference block states under one lock.
//!
//! A reference changes here, in one step under the lock: an entry in the slab journal, the counter, the reference block that is
//! dirty from then on. So whatever is copied under the lock is consistent.

use super::algorithm_map::Codes;
use super::allocator::{level, UNLISTED};
use super::counters::{updated, Counters, FREE};
use super::geometry::SlabGeometry;
use super::pins::Pins;
use super::reference_blocks::ReferenceBlocks;
use super::slab_journal::{Entry, NoRoom, SlabJournal};
use super::SlabJournalLocks;
use crate::engine::format::reference_block::CommitPoints;
use crate::engine::format::slab_journal::ReferenceUpdate;
use crate::engine::format::slab_summary::{fullness_hint, SummaryEntry};
use crate::engine::format::{algorithm_map, reference_block, BlockCode};
use crate::engine::units::{
    JournalPoint, Pbn, SequenceNumber, SlabBlockNumber, MAX_REFERENCE_COUNT,
    PROVISIONAL_REFERENCE_COUNT,
};
use crate::rt::{AllocError, Page};

/// Why an update cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not now.
    Wait(NoRoom),
    /// Never: what is in memory and what is asked for contradict each other.
    Contradiction(&'static str),
}

/// What became of a block that lost a reference or a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is still in use.
    Kept,
    /// It is free.
    Freed,
}

/// What a slab can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// Counters and journal agree.
    Ready,
    /// The counters are not in memory. References that come and go are entered in the journal only; nothing is allocated.
    Unscrubbed,
    /// The counters are being brought up to date from the journal, which takes no entries meanwhile.
    Scrubbing,
}

/// The state of a slab.
pub(super) struct Slab {
    pub(super) status: Status,
    pub(super) counters: Counters,
    /// There if the slab has an algorithm map, or is about to get one.
    pub(super) codes: Option<Codes>,
    pub(super) references: ReferenceBlocks,
    pub(super) journal: SlabJournal,
    /// What the summary says, or is about to.
    pub(super) summary: SummaryEntry,
    /// The newest entry that is in the counters: the commit point of reference blocks.
    pub(super) latest: JournalPoint,
    /// The slab's journal has or had entries, or its counters are on disk.
    pub(super) used: bool,
    /// The slab waits for a writer or is being served by one.
    pub(super) queued: bool,
    /// Everything is to be written out.
    pub(super) saving: bool,
    /// Reference blocks to write with the next batch.
    pub(super) owed: u32,
    /// The level at which the allocator lists the slab.
    pub(super) listed: u8,
}

impl Slab {
    /// A slab that was never used.
    pub(super) fn new(geometry: &SlabGeometry) -> Result<Self, AllocError> {
        let mut journal = SlabJournal::new()?;
        journal.restart(geometry, SequenceNumber::FIRST, JournalPoint::ZERO);
        Ok(Self {
            status: Status::Ready,
            counters: Counters::new(geometry.data_blocks)?,
            codes: match geometry.has_map() {
                true => Some(Codes::new(geometry.data_blocks)?),
                false => None,
            },
            references: ReferenceBlocks::new(geometry.stored_blocks())?,
            journal,
            summary: SummaryEntry::unused(&geometry.config),
            latest: JournalPoint::ZERO,
            used: false,
            queued: false,
            saving: false,
            owed: 0,
            listed: UNLISTED,
        })
    }

    /// The allocator's level for the slab now.
    pub(super) fn level(&self, geometry: &SlabGeometry) -> u8 {
        level(self.counters.free(), self.used, geometry.data_blocks)
    }

    /// Whether the counters are in memory.
    pub(super) fn is_ready(&self) -> bool {
        self.status == Status::Ready
    }

    /// Whether the allocator should list the slab higher.
    pub(super) fn has_risen(&self, geometry: &SlabGeometry) -> bool {
        self.is_ready() && self.listed != UNLISTED && self.level(geometry) > self.listed
    }

    /// Makes the first free block at or after `cursor` provisional.
    pub(super) fn allocate(&mut self, cursor: u32) -> Option<SlabBlockNumber> {
        let sbn = self.counters.find_free(cursor)?;
        self.counters.set(sbn, PROVISIONAL_REFERENCE_COUNT)?;
        Some(sbn)
    }

    /// Holds a block that is to get more references. `false` if it cannot.
    pub(super) fn pin(&mut self, pins: &Pins, sbn: SlabBlockNumber, pbn: Pbn) -> bool {
        if !self.is_ready() {
            // How many references there are will be known later.
            return false;
        }
        match self.counters.get(sbn) {
            None => false,
            Some(FREE) => {
                // A free block may be pinned: its contents may still be right. Provisional, nobody else can take it.
                let held = pins.join(pbn, MAX_REFERENCE_COUNT);
                if held {
                    self.counters.set(sbn, PROVISIONAL_REFERENCE_COUNT);
                }
                held
            }
            // Not held: `join` finds no room. Held by a writer: it refuses. Held by others: it counts us in.
            Some(PROVISIONAL_REFERENCE_COUNT) => pins.join(pbn, 0),
            Some(counter) => pins.join(pbn, MAX_REFERENCE_COUNT.saturating_sub(counter)),
        }
    }

    /// Notes what kind of block a block is that is held, unless it is referenced; then that is known. Whether it is of that kind.
    pub(super) fn note_code(
        &mut self,
        geometry: &SlabGeometry,
        sbn: SlabBlockNumber,
        code: BlockCode,
    ) -> bool {
        if self.counters.get(sbn) == Some(PROVISIONAL_REFERENCE_COUNT) {
            self.set_code(geometry, sbn, code, self.journal.tail());
            return true;
        }
        self.codes.as_ref().is_none_or(|codes| {
            let known = codes.get(sbn);
            known == code || known == BlockCode::UNKNOWN
        })
    }

    /// Sets the code of a block. The block of the map is dirty then, unless it was that code, and needs the journal from block `lock` on.
    pub(super) fn set_code(
        &mut self,
        geometry: &SlabGeometry,
        sbn: SlabBlockNumber,
        code: BlockCode,
        lock: SequenceNumber,
    ) {
        let counter = self.counters.get(sbn).unwrap_or(FREE);
        let changed = self
            .codes
            .as_mut()
            .is_some_and(|codes| codes.set(sbn, code, counter));
        if changed && geometry.has_map() {
            let block = geometry.stored_index(algorithm_map::locate(sbn).block);
            self.references.mark_dirty(block, lock);
        }
    }

    /// The code that an entry has which adds a reference to a block.
    fn entry_code(&self, sbn: SlabBlockNumber, update: ReferenceUpdate) -> BlockCode {
        match (&self.codes, update) {
            (Some(codes), ReferenceUpdate::Increment) if self.is_ready() => codes.get(sbn),
            // Nothing in a slab that is not scrubbed can be shared, so this does not happen.
            (Some(_), ReferenceUpdate::Increment) => BlockCode::UNKNOWN,
            _ => BlockCode::NONE,
        }
    }

    /// Ends the hold of the last holder of a block.
    pub(super) fn release(&mut self, pins: &Pins, sbn: SlabBlockNumber, pbn: Pbn) -> Fate {
        let is_last = pins.release_last(pbn);
        if is_last && self.counters.get(sbn) == Some(PROVISIONAL_REFERENCE_COUNT) {
            self.counters.set(sbn, FREE);
            return Fate::Freed;
        }
        Fate::Kept
    }

    /// Makes one update: journal entry, counter, dirty reference block.
    pub(super) fn update<J: SlabJournalLocks>(
        &mut self,
        geometry: &SlabGeometry,
        pins: &Pins,
        locks: &J,
        update: Update,
    ) -> Result<Fate, Refusal> {
        let Update {
            point,
            sbn,
            pbn,
            update,
            ..
        } = update;
        match self.status {
            Status::Ready => {}
            Status::Unscrubbed => return self.record(geometry, locks, point, sbn, update),
            Status::Scrubbing => return Err(Refusal::Wait(NoRoom::TailBusy)),
        }
        self.journal
            .check_room(geometry, update)
            .map_err(Refusal::Wait)?;

        // W3: entries of a slab come in the order of the recovery journal. The caller sees to it; this is where it would show.
        if point <= self.journal.recovery_point() {
            return Err(Refusal::Contradiction("slab journal entry out of order"));
        }
        let before = self.counters.get(sbn).ok_or(Refusal::Contradiction(
            "reference to a block that holds no data",
        ))?;
        let mut counter = updated(before, update).map_err(Refusal::Contradiction)?;
        // W10: a block that somebody holds does not become free with its last reference; it becomes provisional, and the last
        // holder frees it.
        if counter == FREE && pins.is_held(pbn) {
            counter = PROVISIONAL_REFERENCE_COUNT;
        }

        if update == ReferenceUpdate::BlockMapIncrement {
            self.set_code(geometry, sbn, BlockCode::NONE, self.journal.tail());
        }
        let code = self.entry_code(sbn, update);
        let appended = self
            .journal
            .append(geometry, Entry { sbn, update, code }, point)
            .map_err(Refusal::Wait)?;
        if appended.opened {
            // Taken before the slab's lock is released, so before a writer can give it back.
            locks.lock_for_slab(point.sequence);
        }
        if !self.used {
            self.used = true;
            // Nothing of the slab is on disk. Its journal keeps its very first block until all reference blocks are, so that
            // the counters either can be loaded as a whole or come out of the journal as a whole.
            self.references.mark_all_dirty(self.journal.tail());
        }
        // W9: only here, after the entry is in the recovery journal for good and in the slab journal, can a block become free.
        if let Some(codes) = &mut self.codes {
            codes.counter_changed(sbn, before, counter);
        }
        if let Some(block) = self.counters.set(sbn, counter) {
            self.references.mark_dirty(block, self.journal.tail());
        }
        self.latest = appended.point;
        Ok(if counter == FREE {
            Fate::Freed
        } else {
            Fate::Kept
        })
    }

    /// Makes one update of a slab that is not scrubbed: a journal entry.
    fn record<J: SlabJournalLocks>(
        &mut self,
        geometry: &SlabGeometry,
        locks: &J,
        point: JournalPoint,
        sbn: SlabBlockNumber,
        update: ReferenceUpdate,
    ) -> Result<Fate, Refusal> {
        self.journal
            .check_room(geometry, update)
            .map_err(Refusal::Wait)?;
        if point <= self.journal.recovery_point() {
            return Err(Refusal::Contradiction("slab journal entry out of order"));
        }
        let code = self.entry_code(sbn, update);
        self.enter(geometry, locks, point, Entry { sbn, update, code })
    }

    /// Makes one update from the recovery journal of a volume that is being recovered, unless the slab's journal has it.
    pub(super) fn replay<J: SlabJournalLocks>(
        &mut self,
        geometry: &SlabGeometry,
        locks: &J,
        update: Update,
    ) -> Result<Fate, Refusal> {
        let Update {
            point,
            sbn,
            update,
            code,
            ..
        } = update;
        // A slab whose journal was never used has the point before all others, so it misses nothing.
        if point <= self.journal.recovery_point() {
            return Ok(Fate::Kept);
        }
        self.journal
            .check_room_in_replay(geometry, update)
            .map_err(Refusal::Wait)?;
        self.enter(geometry, locks, point, Entry { sbn, update, code })
    }

    fn enter<J: SlabJournalLocks>(
        &mut self,
        geometry: &SlabGeometry,
        locks: &J,
        point: JournalPoint,
        entry: Entry,
    ) -> Result<Fate, Refusal> {
        let appended = self
            .journal
            .append(geometry, entry, point)
            .map_err(Refusal::Wait)?;
        if appended.opened {
            locks.lock_for_slab(point.sequence);
        }
        self.used = true;
        Ok(Fate::Kept)
    }

    /// Moves the journal block to be written into `page`.
    pub(super) fn issue(
        &mut self,
        geometry: &SlabGeometry,
        page: &mut Page,
    ) -> Option<SequenceNumber> {
        let sequence = self.journal.issue(geometry, page)?;
        // The journal has become longer: write some reference blocks, the more the less room is left.
        let length = self.journal.length();
        let dirty = self.references.dirty();
        if length >= geometry.deadline {
            self.owed = dirty;
        } else if length >= geometry.flushing {
            let blocks_left = geometry.deadline.saturating_sub(length).saturating_add(1);
            let share = u64::from(dirty)
                .checked_div(blocks_left)
                .unwrap_or(0)
                .max(1);
            self.owed = self
                .owed
                .saturating_add(u32::try_from(share).unwrap_or(u32::MAX))
                .min(dirty);
        }
        Some(sequence)
    }

    /// What the summary has to say once it covers the issued block.
    pub(super) fn dirty_summary(&mut self, geometry: &SlabGeometry) -> SummaryEntry {
        // A head above the first block says that all reference blocks have been written.
        let counted = self.journal.head() > SequenceNumber::FIRST;
        let old = self.summary;
        self.summary = SummaryEntry {
            is_dirty: true,
            load_reference_counts: counted || old.load_reference_counts,
            ..self.current_summary(geometry)
        };
        if !self.is_ready() {
            // What is free is not known.
            self.summary.fullness_hint = old.fullness_hint;
        }
        self.summary
    }

    /// Whether everything is on disk and the summary covers it.
    pub(super) fn is_settled(&self) -> bool {
        self.journal.is_committed() && self.references.is_clean()
    }

    /// What the summary may say of a used slab that is settled. `None` if it does already.
    pub(super) fn clean_summary(&mut self, geometry: &SlabGeometry) -> Option<SummaryEntry> {
        let clean = SummaryEntry {
            is_dirty: false,
            load_reference_counts: true,
            ..self.current_summary(geometry)
        };
        let changed = clean != self.summary;
        self.summary = clean;
        changed.then_some(clean)
    }

    /// What the summary says of a slab after a rebuild: counters, and a journal that was never used.
    pub(super) fn rebuilt_summary(&mut self, geometry: &SlabGeometry) -> SummaryEntry {
        self.summary = SummaryEntry {
            is_dirty: false,
            load_reference_counts: true,
            tail_block_offset: 0,
            ..self.current_summary(geometry)
        };
        self.summary
    }

    fn current_summary(&self, geometry: &SlabGeometry) -> SummaryEntry {
        let free = u64::from(self.counters.free());
        // Offset 0 is all that says that a journal is blank, as after a rebuild: its first block has not been written.
        let next = match self.journal.tail() {
            SequenceNumber::FIRST => 0,
            tail => geometry.position(tail),
        };
        SummaryEntry {
            // A journal has at most 256 blocks.
            tail_block_offset: u8::try_from(next).unwrap_or(0),
            fullness_hint: fullness_hint(free, geometry.config.slab_bits()),
            ..self.summary
        }
    }

    /// Copies the next stored block of the batch into `page`.
    pub(super) fn take_stored_block(
        &mut self,
        geometry: &SlabGeometry,
        page: &mut Page,
    ) -> Option<usize> {
        let block = self.references.take()?;
        match geometry.map_index(block) {
            None => reference_block::encode(page, self.latest, self.counters.block(block)),
            Some(block) => {
                let packed = self
                    .codes
                    .as_ref()
                    .map_or(&[][..], |codes| codes.block(block));
                algorithm_map::encode(page, self.latest, packed);
            }
        }
        Some(block)
    }

    /// Takes over a stored block that was read, and returns the commit points of its sectors.
    pub(super) fn load_stored_block(
        &mut self,
        geometry: &SlabGeometry,
        block: usize,
        page: &Page,
    ) -> Option<CommitPoints> {
        match geometry.map_index(block) {
            None => self
                .counters
                .load_block(block, |counters| reference_block::decode(page, counters)),
            Some(block) => {
                let packed = self.codes.as_mut()?.block_mut(block)?;
                Some(algorithm_map::decode(page, packed))
            }
        }
    }

    /// Counts the blocks of each kind anew, after counters and codes were loaded.
    pub(super) fn recount_codes(&mut self) {
        if let Some(codes) = &mut self.codes {
            codes.recount(self.counters.all());
        }
    }

    /// Gives up journal blocks that nothing needs any more. Returns whether there is more room.
    pub(super) fn reap(&mut self) -> bool {
        // Until a slab is scrubbed, its journal is all there is.
        self.is_ready() && self.journal.reap(self.references.oldest_lock())
    }

    /// Whether a writer has something to do.
    pub(super) fn has_work(&self) -> bool {
        self.journal.can_issue() || self.owed > 0 || self.saving
    }
}

/// One reference that comes or goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Update {
    /// Where it is in the recovery journal, expanded.
    pub(super) point: JournalPoint,
    pub(super) sbn: SlabBlockNumber,
    pub(super) pbn: Pbn,
    pub(super) update: ReferenceUpdate,
    /// What kind of block it is, if that is not known here: in a replay.
    pub(super) code: BlockCode,
}
