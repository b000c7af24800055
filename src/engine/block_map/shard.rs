// SPDX-License-Identifier: GPL-2.0

//! A shard of the page cache: a fixed set of frames for the pages that hash to it.
//!
//! One lock guards the frames, the pages in them, the table and the dirty list. It is held for the time of a lookup or of a copy
//! of one page, never while anything is waited for, and under it only the journal's locks are taken (see [`PageLocks`]).
//!
//! One frame is spare: when all others hold changes that can no longer be written, pages pass through it that are only looked at.

use super::dirty_list::DirtyList;
use super::frame::{Changes, Content, Frame};
use super::statistics::count;
use super::PageLocks;
use crate::engine::format::block_map_page;
use crate::engine::statistics::BlockMapStats;
use crate::engine::table::FixedTable;
use crate::engine::units::{Block, Pbn, SequenceNumber};
use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::{spin_lock, AllocError, Page, SpinLock, Vec, WaitList};

/// Most pages of a shard that are written at the same time only to make room.
const MAKING_ROOM_MAX: u64 = 8;

/// The age of the oldest change in a shard without changes.
const NOTHING: u64 = u64::MAX;

/// What is to be written, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) frame: u32,
    pub(super) pbn: Pbn,
    /// The block was never written completely.
    pub(super) is_first: bool,
    changes: Changes,
}

/// A shard.
pub(super) struct Shard {
    pub(super) state: SpinLock<ShardState>,
    /// Tasks that wait for a page being read, or for room.
    pub(super) waiters: WaitList,
    /// The age of the oldest change that waits for a writer, for looking at without the lock.
    oldest: AtomicU64,
    /// A task waits for room.
    pressed: AtomicBool,
}

impl Shard {
    /// A shard of `frames` frames.
    pub(super) fn new(frames: usize) -> Result<Self, AllocError> {
        let count = u32::try_from(frames).map_err(|_| AllocError)?;
        Ok(Self {
            state: spin_lock!(ShardState {
                table: FixedTable::with_capacity(frames.saturating_add(1))?,
                frames: Vec::from_fn(frames.saturating_add(1), |_| Frame::new())?,
                free: Vec::from_fn(frames, |index| u32::try_from(index).map_err(|_| AllocError))?,
                dirty: DirtyList::default(),
                hand: 0,
                count,
                incoming: 0,
                outgoing: 0,
                clean: 0,
                statistics: BlockMapStats::default(),
            })?,
            waiters: WaitList::new()?,
            oldest: AtomicU64::new(NOTHING),
            pressed: AtomicBool::new(false),
        })
    }

    /// Lets the writers see what changed. Called under the lock after every change of the dirty list.
    pub(super) fn publish(&self, state: &ShardState) {
        let oldest = state
            .dirty
            .oldest()
            .and_then(|index| state.frame(index)?.changes)
            .map_or(NOTHING, |changes| changes.age().get());
        self.oldest.store(oldest, Ordering::Release);
    }

    /// A task found no room.
    pub(super) fn press(&self) {
        self.pressed.store(true, Ordering::Release);
    }

    /// There is room again, or it is not to be had.
    pub(super) fn release_pressure(&self) -> bool {
        self.pressed.swap(false, Ordering::AcqRel)
    }

    /// Whether a task waits for room.
    pub(super) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Acquire)
    }

    /// Whether there is a change that is older than `limit`, or any if somebody waits for room.
    pub(super) fn has_work(&self, limit: u64) -> bool {
        let oldest = self.oldest.load(Ordering::Acquire);
        oldest < limit || (oldest != NOTHING && self.is_pressed())
    }
}

/// The locked part of a shard.
pub(super) struct ShardState {
    table: FixedTable<u64, u32>,
    frames: Vec<Frame>,
    free: Vec<u32>,
    dirty: DirtyList,
    /// Where the search for a page to throw out goes on.
    hand: u32,
    /// The frames that pages are kept in. The one after them is spare.
    count: u32,
    incoming: u64,
    outgoing: u64,
    clean: u64,
    pub(super) statistics: BlockMapStats,
}

impl ShardState {
    /// The frame of a page that is here or on its way.
    pub(super) fn find(&self, pbn: Pbn) -> Option<u32> {
        self.table.get(&pbn.get()).copied()
    }

    /// A frame.
    pub(super) fn frame(&self, index: u32) -> Option<&Frame> {
        self.frames.get(usize::try_from(index).ok()?)
    }

    fn frame_mut(&mut self, index: u32) -> Option<&mut Frame> {
        self.frames.get_mut(usize::try_from(index).ok()?)
    }

    /// The page in a frame, if it is resident.
    pub(super) fn page_mut(&mut self, index: u32) -> Option<&mut Block> {
        let frame = self.frame_mut(index)?;
        frame.referenced = true;
        frame.page.as_deref_mut()
    }

    /// Whether the state of some frame is going to change by itself.
    pub(super) fn is_busy(&self) -> bool {
        self.incoming != 0 || self.outgoing != 0
    }

    /// Whether every change is on its way to nowhere: written.
    pub(super) fn is_drained(&self) -> bool {
        self.dirty.len() == 0 && self.outgoing == 0
    }

    /// Whether few pages could be thrown out for others.
    pub(super) fn is_short_of_room(&self) -> bool {
        let available = self
            .clean
            .saturating_add(u64::try_from(self.free.len()).unwrap_or(0));
        available < u64::from(self.count) / 16
    }

    /// Finds a frame for a page that is not here, throwing a clean one out if need be.
    pub(super) fn reserve(&mut self, pbn: Pbn) -> Option<(u32, Page)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.evict()?,
        };
        self.occupy(index, pbn)
    }

    /// Finds room for a page that is only looked at, when there is none for one to keep.
    pub(super) fn reserve_spare(&mut self, pbn: Pbn) -> Option<(u32, Page)> {
        let index = self.count;
        let frame = self.frame_mut(index)?;
        match frame.content {
            Content::Free => {}
            Content::Incoming => return None,
            Content::Resident => {
                frame.content = Content::Free;
                let old = frame.pbn;
                self.table.remove(&old.get());
            }
        }
        self.occupy(index, pbn)
    }

    /// Whether a page in this frame is not to be changed.
    pub(super) fn is_spare(&self, index: u32) -> bool {
        index == self.count
    }

    fn occupy(&mut self, index: u32, pbn: Pbn) -> Option<(u32, Page)> {
        let frame = self.frame_mut(index)?;
        frame.pbn = pbn;
        frame.content = Content::Incoming;
        frame.referenced = true;
        let page = frame.page.take()?;
        // There are as many entries as frames.
        let _ = self.table.insert(pbn.get(), index);
        self.incoming = self.incoming.saturating_add(1);
        Some((index, page))
    }

    /// Throws out a clean page that was not looked at for a while. Its frame is in no list afterwards.
    fn evict(&mut self) -> Option<u32> {
        if self.clean == 0 {
            return None;
        }
        // The first round may only clear the marks; the second one then finds a page.
        for _ in 0..self.count.saturating_mul(2) {
            let index = self.hand;
            self.hand = match index.wrapping_add(1) {
                next if next < self.count => next,
                _ => 0,
            };
            let frame = self.frame_mut(index)?;
            if !frame.is_clean() {
                continue;
            }
            if core::mem::take(&mut frame.referenced) {
                continue;
            }
            frame.content = Content::Free;
            let pbn = frame.pbn;
            self.table.remove(&pbn.get());
            self.clean = self.clean.saturating_sub(1);
            count(&mut self.statistics.discard_required);
            return Some(index);
        }
        None
    }

    /// Throws out every clean page.
    pub(super) fn forget(&mut self) {
        while let Some(index) = self.evict() {
            // There is room for every frame.
            let _ = self.free.push_within_capacity(index);
        }
    }

    /// The page that a frame was reserved for has been read.
    pub(super) fn settle(&mut self, index: u32, page: Page) {
        let Some(frame) = self.frame_mut(index) else {
            return;
        };
        frame.page = Some(page);
        frame.content = Content::Resident;
        self.incoming = self.incoming.saturating_sub(1);
        if !self.is_spare(index) {
            self.clean = self.clean.saturating_add(1);
        }
    }

    /// The page that a frame was reserved for could not be read.
    pub(super) fn abandon(&mut self, index: u32, page: Page) {
        let Some(frame) = self.frame_mut(index) else {
            return;
        };
        frame.page = Some(page);
        frame.content = Content::Free;
        let pbn = frame.pbn;
        self.table.remove(&pbn.get());
        self.incoming = self.incoming.saturating_sub(1);
        if !self.is_spare(index) {
            // There is room for every frame.
            let _ = self.free.push_within_capacity(index);
        }
    }

    /// The resident page in a frame was changed, which `lock` journaled.
    pub(super) fn mark_changed(
        &mut self,
        index: u32,
        lock: Option<SequenceNumber>,
        locks: &impl PageLocks,
    ) {
        let Some(frame) = self.frame_mut(index) else {
            return;
        };
        let is_listed = frame.changes.is_some() && frame.writing.is_none();
        let is_outgoing = frame.writing.is_some();
        let was_clean = frame.is_clean();
        let old = frame.changes;
        let keep = match (old.and_then(|changes| changes.lock), lock) {
            // The page keeps the oldest block already.
            (Some(old), Some(new)) if old <= new => return,
            (Some(_), None) => return,
            (_, keep) => keep,
        };

        // The new block is locked before the one that it replaces is let go.
        if let Some(sequence) = keep {
            locks.lock_for_page(sequence);
        }
        if is_listed {
            self.dirty.remove(&mut self.frames, index);
        }
        if let Some(frame) = self.frame_mut(index) {
            frame.changes = Some(Changes { lock: keep });
        }
        if is_outgoing {
            if old.is_none() {
                count(&mut self.statistics.reclaimed);
            }
        } else {
            self.dirty.insert(&mut self.frames, index);
        }
        if was_clean {
            self.clean = self.clean.saturating_sub(1);
        }
        if let Some(sequence) = old.and_then(|changes| changes.lock) {
            locks.unlock_for_page(sequence);
        }
    }

    /// Takes the page with the oldest change and copies it to `bounce`, if the change is older than `limit` or room is needed.
    pub(super) fn take_oldest(
        &mut self,
        limit: u64,
        is_pressed: bool,
        bounce: &mut Block,
    ) -> Option<Job> {
        let index = self.dirty.oldest()?;
        let changes = self.frame(index)?.changes?;
        let is_due = changes.age().get() < limit;
        let makes_room = is_pressed && self.outgoing < MAKING_ROOM_MAX;
        if !is_due && !makes_room {
            return None;
        }
        self.dirty.remove(&mut self.frames, index);
        let frame = self.frame_mut(index)?;
        frame.changes = None;
        frame.writing = Some(changes);
        let page = frame.page.as_deref()?;
        *bounce = *page;
        let job = Job {
            frame: index,
            pbn: frame.pbn,
            is_first: !block_map_page::is_initialized(bounce),
            changes,
        };
        self.outgoing = self.outgoing.saturating_add(1);
        Some(job)
    }

    /// A page has been written.
    pub(super) fn written(&mut self, job: &Job, locks: &impl PageLocks) {
        if let Some(frame) = self.frame_mut(job.frame) {
            frame.writing = None;
            if let Some(page) = frame.page.as_deref_mut() {
                block_map_page::set_initialized(page, true);
            }
            if frame.changes.is_some() {
                self.dirty.insert(&mut self.frames, job.frame);
            } else {
                self.clean = self.clean.saturating_add(1);
            }
        }
        self.outgoing = self.outgoing.saturating_sub(1);
        count(&mut self.statistics.pages_saved);
        if let Some(sequence) = job.changes.lock {
            locks.unlock_for_page(sequence);
        }
    }

    /// A page could not be written. It stays dirty, and its journal block stays locked, until the volume is stopped.
    pub(super) fn not_written(&mut self, job: &Job) {
        if let Some(frame) = self.frame_mut(job.frame) {
            frame.writing = None;
            frame.changes = Some(job.changes);
            self.dirty.insert(&mut self.frames, job.frame);
        }
        self.outgoing = self.outgoing.saturating_sub(1);
        count(&mut self.statistics.failed_writes);
        count(&mut self.statistics.failed_pages);
    }

    /// What the shard holds and has done.
    pub(super) fn statistics(&self) -> BlockMapStats {
        BlockMapStats {
            dirty_pages: u64::try_from(self.dirty.len()).unwrap_or(0),
            clean_pages: self.clean,
            free_pages: u64::try_from(self.free.len()).unwrap_or(0),
            incoming_pages: self.incoming,
            outgoing_pages: self.outgoing,
            ..self.statistics
        }
    }
}
