// SPDX-License-Identifier: GPL-2.0

//! Bringing one slab into memory: where its journal ends, what its counters are, and if the summary says that it is dirty, what
//! its journal has on top.
//!
//! A slab may be dirty on a clean volume: the driver that saved it may have written the last journal block after the counters.
//! Scrubbing it writes the counters, after which the journal is of no use any more and the slab is clean.

use super::handle::Inner;
use super::replay::{decode_header, newest, Replay};
use super::SlabJournalLocks;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::reference_block::{self, CommitPoints};
use crate::engine::format::slab_journal::is_blank;

use crate::engine::format::slab_summary::SummaryEntry;
use crate::engine::units::{JournalPoint, Pbn, SequenceNumber, SlabNumber};
use crate::rt::{Page, Vec};

/// The memory with which slabs are loaded, one after the other.
pub(super) struct Scratch {
    page: Option<Page>,
    commit_points: Vec<CommitPoints>,
}

/// What the newest block of a slab journal says about the journal.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalExtent {
    /// The oldest block that is needed if the slab is dirty.
    pub(super) head: SequenceNumber,
    /// The next block.
    pub(super) tail: SequenceNumber,
    /// The position after the last entry.
    end: JournalPoint,
    pub(super) recovery_point: JournalPoint,
}

impl JournalExtent {
    /// A journal without blocks.
    const BLANK: Self = Self {
        head: SequenceNumber::FIRST,
        tail: SequenceNumber::FIRST,
        end: JournalPoint {
            sequence: SequenceNumber::FIRST,
            entry: 0,
        },
        recovery_point: JournalPoint::ZERO,
    };

    /// The number of blocks from the head to the tail.
    pub(super) fn length(&self) -> Result<u64, Error> {
        self.tail
            .checked_offset_from(self.head)
            .ok_or(Error::Corrupt("slab journal ends before it begins"))
    }
}

impl Scratch {
    /// Memory for slabs with that many stored blocks.
    pub(super) fn new(stored_blocks: usize) -> Result<Self, Error> {
        Ok(Self {
            page: Some(Page::new()?),
            commit_points: Vec::from_elem(CommitPoints::default(), stored_blocks)?,
        })
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    /// Brings one slab of a clean volume into memory.
    pub(super) async fn load_slab(
        &self,
        number: SlabNumber,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let entry = self.summary.entry(number)?;
        self.blocks.slab(number)?.lock().summary = entry;
        let Some(extent) = self.find_journal(number, entry, scratch).await? else {
            // Never used: as it was made.
            return Ok(());
        };

        let head = if entry.is_dirty {
            extent.head
        } else {
            extent.tail
        };
        self.load_commit_points(number, head, entry.load_reference_counts, scratch)
            .await?;
        if entry.is_dirty {
            self.scrub(number, extent, scratch).await
        } else {
            let newest = newest(&scratch.commit_points);
            if newest >= extent.end {
                return Err(Error::Corrupt(
                    "reference counts are newer than their slab journal",
                ));
            }
            self.restart_journal(number, extent, newest)
        }
    }

    /// Loads the counters and commit points of a slab, if there are any on disk. Otherwise both stay zero.
    pub(super) async fn load_commit_points(
        &self,
        number: SlabNumber,
        head: SequenceNumber,
        load: bool,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        scratch.commit_points.fill(CommitPoints::default());
        if load {
            return self.load_counters(number, scratch).await;
        }
        if head != SequenceNumber::FIRST {
            // Without counters on disk everything has to come out of the journal, from its first block on.
            return Err(Error::Corrupt(
                "slab summary denies the reference counts of a used slab",
            ));
        }
        Ok(())
    }

    /// Finds where a slab's journal ends, from the block that the summary points at. `None` if the slab was never used.
    pub(super) async fn find_journal(
        &self,
        number: SlabNumber,
        entry: SummaryEntry,
        scratch: &mut Scratch,
    ) -> Result<Option<JournalExtent>, Error> {
        let geometry = self.blocks.geometry();
        if entry.has_blank_journal() {
            return Ok(None);
        }
        let position = entry
            .newest_journal_position(geometry.journal_blocks)
            .ok_or(Error::Corrupt(
                "slab summary points outside of a slab journal",
            ))?;
        self.read(geometry.journal_block(number, position)?, scratch)
            .await?;
        let block = scratch.page.as_ref().ok_or(Error::NoMemory)?;

        if entry.tail_block_offset == 0 && !entry.is_dirty && is_blank(block) {
            // A forced rebuild wrote the counters and cleared the journal. The only case in which a block that is no journal
            // block means no journal; anything else there would make the sequence numbers start over.
            return Ok(Some(JournalExtent::BLANK));
        }

        let header = decode_header(geometry, block)?;
        header.check(geometry.nonce, header.sequence)?;
        if header.sequence < SequenceNumber::FIRST || geometry.position(header.sequence) != position
        {
            return Err(Error::Corrupt("slab journal block is not in its place"));
        }
        let tail = header.sequence.next().ok_or(Error::Corrupt(
            "the slab journal has no sequence number left",
        ))?;
        Ok(Some(JournalExtent {
            head: header.head,
            tail,
            end: JournalPoint {
                sequence: header.sequence,
                entry: header.entry_count,
            },
            recovery_point: header.recovery_point,
        }))
    }

    /// Reads the counters and codes of a slab, and the commit points of their sectors.
    async fn load_counters(&self, number: SlabNumber, scratch: &mut Scratch) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        let mut torn: usize = 0;
        for block in 0..geometry.stored_blocks() {
            self.read(geometry.stored_block(number, block)?, scratch)
                .await?;
            let page = scratch.page.as_ref().ok_or(Error::NoMemory)?;
            let points = self
                .blocks
                .slab(number)?
                .lock()
                .load_stored_block(geometry, block, page)
                .ok_or(Error::OutOfRange)?;
            if reference_block::is_torn(&points) {
                torn = torn.saturating_add(1);
            }
            *scratch
                .commit_points
                .get_mut(block)
                .ok_or(Error::OutOfRange)? = points;
        }
        if torn > 0 {
            crate::rt::info!("slab {}: {} blocks of counters were torn", number, torn);
        }
        Ok(())
    }

    /// Counts what the journal of a dirty slab has on top of its counters, and makes the slab clean.
    async fn scrub(
        &self,
        number: SlabNumber,
        extent: JournalExtent,
        scratch: &mut Scratch,
    ) -> Result<(), Error> {
        let latest = self
            .count_journal(number, extent.head, extent.tail, scratch)
            .await?;
        self.restart_journal(number, extent, latest)?;

        // W7: the update flushes first, so the counters are durable before the summary says that the journal is not needed; and
        // the super block is written behind a flush before the journal is used again.
        let clean = self
            .blocks
            .slab(number)?
            .lock()
            .clean_summary(self.blocks.geometry());
        match clean {
            Some(clean) => self.summary.update(&self.store, number, clean).await,
            None => Ok(()),
        }
    }

    /// Counts the entries in the journal blocks from `head` to below `tail` on top of the counters and commit points that were
    /// loaded, and writes the reference blocks that this changes. Returns the newest position that the counters reflect.
    pub(super) async fn count_journal(
        &self,
        number: SlabNumber,
        head: SequenceNumber,
        tail: SequenceNumber,
        scratch: &mut Scratch,
    ) -> Result<JournalPoint, Error> {
        let geometry = self.blocks.geometry();
        let length = tail
            .checked_offset_from(head)
            .ok_or(Error::Corrupt("slab journal ends before it begins"))?;
        if length > geometry.journal_blocks {
            return Err(Error::Corrupt("slab journal has overwritten its own head"));
        }

        let mut page = scratch.page.take().ok_or(Error::NoMemory)?;
        let mut replay = Replay::new(geometry, &scratch.commit_points, head);
        while replay.next() < tail {
            let pbn = geometry.journal_block(number, geometry.position(replay.next()))?;
            let (read, result) = self.store.read(pbn, page, IoClass::Metadata).await;
            page = read;
            result?;
            let mut slab = self.blocks.slab(number)?.lock();
            replay.count_block(&mut slab, &page)?;
        }
        replay.finish()?;

        let latest = {
            let mut slab = self.blocks.slab(number)?.lock();
            // Commit points never go back.
            slab.latest = slab.latest.max(newest(&scratch.commit_points));
            if !slab.summary.load_reference_counts {
                slab.references.mark_all_dirty(tail);
            }
            let dirty = slab.references.dirty();
            slab.references.begin_batch(dirty);
            slab.latest
        };
        // W5: what the counters are about to reflect, and the summary that leads to it, are stable before.
        self.store.flush().await?;
        loop {
            let taken = self
                .blocks
                .slab(number)?
                .lock()
                .take_stored_block(geometry, &mut page);
            let Some(block) = taken else {
                break;
            };
            let (written, result) = self.write_stored_block(number, block, page).await;
            page = written;
            result?;
        }
        scratch.page = Some(page);
        self.blocks.slab(number)?.lock().references.end_batch();
        Ok(latest)
    }

    /// Goes on with an empty journal where the one on disk ends.
    fn restart_journal(
        &self,
        number: SlabNumber,
        extent: JournalExtent,
        latest: JournalPoint,
    ) -> Result<(), Error> {
        let mut slab = self.blocks.slab(number)?.lock();
        slab.used = true;
        slab.latest = latest;
        slab.recount_codes();
        slab.journal
            .restart(self.blocks.geometry(), extent.tail, extent.recovery_point);
        Ok(())
    }

    /// Reads a block into the scratch page.
    async fn read(&self, pbn: Pbn, scratch: &mut Scratch) -> Result<(), Error> {
        let page = scratch.page.take().ok_or(Error::NoMemory)?;
        let (page, result) = self.store.read(pbn, page, IoClass::Metadata).await;
        scratch.page = Some(page);
        Ok(result?)
    }
}
