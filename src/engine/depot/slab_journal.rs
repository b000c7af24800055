// SPDX-License-Identifier: GPL-2.0

//! The journal of one slab in memory: where it begins and ends, and the block being filled. Guarded by the slab's lock.
//!
//! Blocks from `head` up to `covered` are on disk and covered by the slab summary. At most one further block, `issued`, is on
//! its way there. `tail` is the block being filled. All of this is about sequence numbers; a block lives at its sequence number
//! modulo the size of the journal.

use super::geometry::SlabGeometry;
use crate::engine::format::slab_journal::{self as plain, ReferenceUpdate, SlabJournalEntry};
use crate::engine::format::slab_journal_coded::{self as coded, CodedEntry};
use crate::engine::format::BlockCode;
use crate::engine::units::{Block, JournalPoint, SequenceNumber, SlabBlockNumber};
use crate::rt::{AllocError, Page};

/// Why an entry has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoRoom {
    /// The block being filled must be written first.
    TailBusy,
    /// The journal is too long; reference blocks must be written first.
    Full,
}

/// An entry to make.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) sbn: SlabBlockNumber,
    pub(super) update: ReferenceUpdate,
    /// What kind of block gets a reference. Not stored by a slab without an algorithm map.
    pub(super) code: BlockCode,
}

/// A block on its way to the disk.
#[derive(Clone, Copy, Debug)]
struct Issued {
    sequence: SequenceNumber,
    /// The recovery journal block that the first entry came from.
    recovery_lock: SequenceNumber,
    /// Entries would still have fit.
    partial: bool,
}

/// A place where an entry was put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) point: JournalPoint,
    /// The entry is the first of its block, which needs its recovery journal block from now on.
    pub(super) opened: bool,
}

/// The journal of a slab.
///
/// # Invariants
///
/// * `head <= covered <= tail`; `issued` is there exactly if `covered < tail`, and is block `covered = tail - 1` then.
/// * `recovery_lock` is there exactly if the block being filled has entries.
pub(super) struct SlabJournal {
    head: SequenceNumber,
    covered: SequenceNumber,
    tail: SequenceNumber,
    page: Page,
    /// The recovery point of the newest entry, in memory or on disk.
    recovery_point: JournalPoint,
    recovery_lock: Option<SequenceNumber>,
    issued: Option<Issued>,
    commit_requested: bool,
}

impl SlabJournal {
    /// A journal that was never used.
    pub(super) fn new() -> Result<Self, AllocError> {
        // INVARIANT: nothing is issued, nothing entered.
        Ok(Self {
            head: SequenceNumber::FIRST,
            covered: SequenceNumber::FIRST,
            tail: SequenceNumber::FIRST,
            page: Page::new()?,
            recovery_point: JournalPoint::ZERO,
            recovery_lock: None,
            issued: None,
            commit_requested: false,
        })
    }

    /// Goes on after what is on disk: empty, with `tail` as the next block.
    pub(super) fn restart(
        &mut self,
        geometry: &SlabGeometry,
        tail: SequenceNumber,
        recovery_point: JournalPoint,
    ) {
        // INVARIANT: as in `new`.
        self.head = tail;
        self.covered = tail;
        self.tail = tail;
        self.recovery_point = recovery_point;
        self.recovery_lock = None;
        self.issued = None;
        self.commit_requested = false;
        open(geometry, &mut self.page, tail, tail);
    }

    /// Keeps what is on disk from `head` on. Called after [`Self::restart`].
    pub(super) fn keep_from(&mut self, head: SequenceNumber) {
        // INVARIANT: `head` is not above `covered`, which is the tail.
        self.head = head.min(self.covered);
    }

    /// The block being filled.
    pub(super) fn tail(&self) -> SequenceNumber {
        self.tail
    }

    /// The oldest block still needed.
    pub(super) fn head(&self) -> SequenceNumber {
        self.head
    }

    /// The recovery point of the newest entry.
    pub(super) fn recovery_point(&self) -> JournalPoint {
        self.recovery_point
    }

    /// Blocks in use, the one being filled not counted.
    pub(super) fn length(&self) -> u64 {
        self.tail.checked_offset_from(self.head).unwrap_or(0)
    }

    /// Whether every entry is on disk and covered by the summary.
    pub(super) fn is_committed(&self) -> bool {
        self.issued.is_none() && self.recovery_lock.is_none()
    }

    /// The oldest recovery journal block that this journal needs.
    pub(super) fn oldest_recovery_lock(&self) -> Option<SequenceNumber> {
        self.issued
            .map(|issued| issued.recovery_lock)
            .or(self.recovery_lock)
    }

    /// The recovery journal block that the block being filled needs.
    pub(super) fn tail_recovery_lock(&self) -> Option<SequenceNumber> {
        self.recovery_lock
    }

    /// Whether an entry can be made now. If not, the caller has the slab served by a writer and tries again.
    pub(super) fn check_room(
        &mut self,
        geometry: &SlabGeometry,
        update: ReferenceUpdate,
    ) -> Result<(), NoRoom> {
        // W11: a reference block that is written now names (block, entry) positions. Replay puts the entries that the summary
        // does not cover at the same positions only if every block but the newest is full; so nothing may follow a block
        // that was issued with room left until the summary covers it.
        if self.issued.is_some_and(|issued| issued.partial) {
            return Err(NoRoom::TailBusy);
        }
        if self.length() >= geometry.blocking {
            return Err(NoRoom::Full);
        }
        if !has_room(geometry, &self.page, update) {
            // Perhaps only for this kind of entry; replay will find the same reason to close the block here.
            self.commit_requested = true;
            return Err(NoRoom::TailBusy);
        }
        Ok(())
    }

    /// Whether an entry of the recovery journal can be made now that is replayed.
    ///
    /// The entries go where they went before the crash, or where they would have gone. So there is room for them on disk, though
    /// the newest block there may name a head that had moved on since: then the oldest block is given up, as it was before.
    pub(super) fn check_room_in_replay(
        &mut self,
        geometry: &SlabGeometry,
        update: ReferenceUpdate,
    ) -> Result<(), NoRoom> {
        if !has_room(geometry, &self.page, update) {
            self.commit_requested = true;
            return Err(NoRoom::TailBusy);
        }
        while self.length() >= geometry.journal_blocks {
            // INVARIANT: a journal that long has covered blocks, as at most one is not.
            match self.head.next() {
                Some(head) if head <= self.covered => self.head = head,
                _ => return Err(NoRoom::Full),
            }
        }
        Ok(())
    }

    /// Makes an entry for which there is room.
    pub(super) fn append(
        &mut self,
        geometry: &SlabGeometry,
        entry: Entry,
        recovery_point: JournalPoint,
    ) -> Result<Appended, NoRoom> {
        let Entry { sbn, update, code } = entry;
        let page = &mut self.page;
        let appended = match geometry.has_map() {
            true => coded::append(page, CodedEntry { sbn, update, code }, recovery_point),
            false => plain::append(page, SlabJournalEntry { sbn, update }, recovery_point),
        };
        let entry = appended.map_err(|_| NoRoom::TailBusy)?;
        self.recovery_point = recovery_point;
        let opened = self.recovery_lock.is_none();
        if opened {
            // INVARIANT: the block has its first entry.
            self.recovery_lock = Some(recovery_point.sequence);
        }
        Ok(Appended {
            point: JournalPoint {
                sequence: self.tail,
                entry,
            },
            opened,
        })
    }

    /// Has the block being filled written even if it is not full.
    pub(super) fn request_commit(&mut self) {
        self.commit_requested |= self.recovery_lock.is_some();
    }

    /// Whether a block is to be written now. One at a time, so the summary covers them in order.
    pub(super) fn can_issue(&self) -> bool {
        self.issued.is_none()
            && self.recovery_lock.is_some()
            && (self.commit_requested || plain::is_full(&self.page))
    }

    /// Moves the block being filled into `page`, which is to be written, and opens the next one.
    ///
    /// `None` if there is none to write, or no further sequence number.
    pub(super) fn issue(
        &mut self,
        geometry: &SlabGeometry,
        page: &mut Page,
    ) -> Option<SequenceNumber> {
        if !self.can_issue() {
            return None;
        }
        let next = self.tail.next()?;
        let recovery_lock = self.recovery_lock.take()?;
        let sequence = self.tail;
        plain::set_head(&mut self.page, self.head);
        // A coded block is full when a plain one is that has no block map page.
        let partial = !plain::is_full(&self.page);
        core::mem::swap(&mut self.page, page);
        open(geometry, &mut self.page, self.head, next);
        // INVARIANT: `covered` was `tail`, as nothing was issued.
        self.issued = Some(Issued {
            sequence,
            recovery_lock,
            partial,
        });
        self.tail = next;
        self.commit_requested = false;
        Some(sequence)
    }

    /// The summary covers the issued block. Returns the recovery journal block that it does not need any more.
    pub(super) fn cover(&mut self) -> Option<SequenceNumber> {
        let issued = self.issued.take()?;
        // INVARIANT: the issued block was `tail - 1`.
        self.covered = issued.sequence.next().unwrap_or(self.tail);
        Some(issued.recovery_lock)
    }

    /// Gives up the blocks below `oldest`, the oldest one that a reference block needs, as far as the summary covers them.
    ///
    /// The caller has flushed since the reference blocks were written (W7). Returns whether there is more room now.
    pub(super) fn reap(&mut self, oldest: Option<SequenceNumber>) -> bool {
        let head = oldest.map_or(self.covered, |oldest| oldest.min(self.covered));
        let advanced = head > self.head;
        if advanced {
            self.head = head;
        }
        advanced
    }
}

/// Makes `page` an empty block of a slab's journal.
fn open(geometry: &SlabGeometry, page: &mut Block, head: SequenceNumber, sequence: SequenceNumber) {
    match geometry.has_map() {
        true => coded::open(page, geometry.nonce, head, sequence),
        false => plain::open(page, geometry.nonce, head, sequence),
    }
}

fn has_room(geometry: &SlabGeometry, page: &Block, update: ReferenceUpdate) -> bool {
    match geometry.has_map() {
        true => !coded::is_full(page),
        false => plain::has_room(page, update),
    }
}
