// SPDX-License-Identifier: GPL-2.0

//! The writers: service tasks that bring slabs to the disk.
//!
//! A writer takes a slab from the queue and serves it until nothing is left to do: the journal block that is full or asked for,
//! the summary entry that makes it reachable, reference blocks when the journal has become long, and the room that this gives.
//! A slab is served by one writer at a time; different slabs are served side by side and share flushes and summary writes.

use core::pin::pin;

use super::handle::{Depot, Inner};
use super::SlabJournalLocks;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::units::SlabNumber;
use crate::rt::{join2, AllocError, Page};

/// Writers to start, and the most that can run at a time.
pub const WRITERS: usize = 8;

/// The pages of a writer: one for the slab journal, four for reference blocks.
pub(super) struct WriterPages {
    journal: Option<Page>,
    references: [Option<Page>; 4],
}

impl WriterPages {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            journal: Some(Page::new()?),
            references: [
                Some(Page::new()?),
                Some(Page::new()?),
                Some(Page::new()?),
                Some(Page::new()?),
            ],
        })
    }
}

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// The body of one writer task, of which up to [`WRITERS`] run. Ends after [`Depot::stop`].
    pub async fn run_writer(&self) {
        let inner = &*self.inner;
        let pages = inner.writer_pages.lock().pop();
        let Some(mut pages) = pages else {
            return;
        };
        while let Some(slab) = inner.work.next().await {
            inner.serve(slab, &mut pages).await;
        }
        // Fits: it came from there.
        let _ = inner.writer_pages.lock().push_within_capacity(pages);
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Serves a slab until it needs nothing, or the volume is read-only.
    async fn serve(&self, number: SlabNumber, pages: &mut WriterPages) {
        loop {
            if let Err(error) = self.serve_once(number, pages).await {
                // After the first error there is no second one to report.
                if error != Error::ReadOnly {
                    self.store.read_only().enter(error, "writing a slab");
                }
            }
            let stopped = self.store.read_only().is_set();
            let done = match self.blocks.slab(number) {
                Ok(slab) => {
                    let mut slab = slab.lock();
                    let done = stopped || !slab.has_work();
                    slab.queued = !done;
                    done
                }
                Err(_) => true,
            };
            if done {
                self.work.done();
            }
            // Whoever waits for room, for a commit or for the end looks again.
            self.progress.wake_all();
            if done {
                return;
            }
        }
    }

    async fn serve_once(&self, number: SlabNumber, pages: &mut WriterPages) -> Result<(), Error> {
        self.store.read_only().check()?;
        self.write_journal_block(number, pages).await?;
        self.write_reference_blocks(number, pages).await?;
        self.write_clean_summary(number).await
    }

    /// Writes the slab journal block that is to be written, if there is one, and makes it reachable.
    async fn write_journal_block(
        &self,
        number: SlabNumber,
        pages: &mut WriterPages,
    ) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        let mut page = pages.journal.take().ok_or(Error::NoMemory)?;
        let issued = {
            let mut slab = self.blocks.slab(number)?.lock();
            if slab.saving {
                slab.journal.request_commit();
            }
            let owed = slab.owed;
            let issued = slab.issue(geometry, &mut page);
            if slab.owed > owed {
                self.store.statistics().slab_journal.flush_count.increment();
            }
            if issued.is_none() && slab.journal.can_issue() {
                pages.journal = Some(page);
                return Err(Error::Corrupt(
                    "the slab journal has no sequence number left",
                ));
            }
            issued
        };
        let Some(sequence) = issued else {
            pages.journal = Some(page);
            return Ok(());
        };
        // There is a new block to fill, which somebody may be waiting for.
        self.progress.wake_all();

        // W12: the block goes to its natural position. The summary points at the one before it, the journal has at least two
        // positions, and the next block is issued only after the summary has moved on.
        let pbn = geometry.journal_block(number, geometry.position(sequence))?;
        let (page, result) = self
            .store
            .write(pbn, page, IoClass::Metadata, WriteFlags::META)
            .await;
        pages.journal = Some(page);
        result?;
        self.store
            .statistics()
            .slab_journal
            .blocks_written
            .increment();

        // W4: the update flushes before it writes.
        let entry = self.blocks.slab(number)?.lock().dirty_summary(geometry);
        self.summary.update(&self.store, number, entry).await?;

        let unlocked = {
            let mut slab = self.blocks.slab(number)?.lock();
            let unlocked = slab.journal.cover();
            // Nothing may need what was just covered.
            slab.reap();
            self.note_recovery_lock(number, &slab);
            unlocked
        };
        if let Some(sequence) = unlocked {
            self.locks.unlock_for_slab(sequence);
        }
        self.progress.wake_all();
        Ok(())
    }

    /// Writes the reference blocks that are owed, and gives up the journal blocks that only they needed.
    async fn write_reference_blocks(
        &self,
        number: SlabNumber,
        pages: &mut WriterPages,
    ) -> Result<(), Error> {
        {
            let mut slab = self.blocks.slab(number)?.lock();
            let owed = if slab.saving {
                slab.references.dirty()
            } else {
                slab.owed
            };
            slab.owed = 0;
            if owed == 0 || slab.references.dirty() == 0 {
                return Ok(());
            }
            slab.references.begin_batch(owed);
        }
        let [a, b, c, d] = &mut pages.references;
        // Pinned here: given to `join2` by value, each would be there several times, in the task and on the stack.
        let a = pin!(self.write_batch(number, a));
        let b = pin!(self.write_batch(number, b));
        let c = pin!(self.write_batch(number, c));
        let d = pin!(self.write_batch(number, d));
        let ((a, b), (c, d)) = join2(join2(a, b), join2(c, d)).await;
        a.and(b).and(c).and(d)?;
        // W7: the reference blocks are durable before the journal blocks that could restore them may be overwritten.
        self.store.flush().await?;
        {
            let mut slab = self.blocks.slab(number)?.lock();
            slab.references.end_batch();
            slab.reap();
        }
        self.progress.wake_all();
        Ok(())
    }

    /// Writes reference blocks of the batch, one at a time, until there is none left.
    async fn write_batch(&self, number: SlabNumber, place: &mut Option<Page>) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        loop {
            let mut page = place.take().ok_or(Error::NoMemory)?;
            let taken = match self.blocks.slab(number) {
                Ok(slab) => slab.lock().take_stored_block(geometry, &mut page),
                Err(_) => None,
            };
            let Some(block) = taken else {
                *place = Some(page);
                return Ok(());
            };
            // W5, W11: a copy names the newest entry of the slab's journal. Before it may reach the disk, the recovery journal block
            // of that entry has to be stable, and so has the summary that covers an older block which was written with room
            // left: without it a replay would put the entry at another position. Hence the flush after the copy was taken.
            if let Err(error) = self.store.flush().await {
                *place = Some(page);
                return Err(error.into());
            }
            let (page, result) = self.write_stored_block(number, block, page).await;
            *place = Some(page);
            result?;
        }
    }

    /// Writes one stored block.
    pub(super) async fn write_stored_block(
        &self,
        number: SlabNumber,
        block: usize,
        page: Page,
    ) -> (Page, Result<(), Error>) {
        let pbn = match self.blocks.geometry().stored_block(number, block) {
            Ok(pbn) => pbn,
            Err(error) => return (page, Err(error)),
        };
        self.store
            .statistics()
            .ref_counts
            .blocks_written
            .increment();
        let (page, result) = self
            .store
            .write(pbn, page, IoClass::Metadata, WriteFlags::META)
            .await;
        (page, result.map_err(Error::from))
    }

    /// Ends the saving of a slab whose state is on disk: says in the summary that it is clean.
    async fn write_clean_summary(&self, number: SlabNumber) -> Result<(), Error> {
        let entry = {
            let mut slab = self.blocks.slab(number)?.lock();
            if !slab.saving || !slab.is_settled() {
                // Not asked for, or the next round gets further.
                return Ok(());
            }
            slab.saving = false;
            if !slab.is_ready() {
                // Its journal is saved; that is all that can be done.
                return Ok(());
            }
            slab.clean_summary(self.blocks.geometry())
        };
        match entry {
            Some(entry) => self.summary.update(&self.store, number, entry).await,
            None => Ok(()),
        }
    }
}
