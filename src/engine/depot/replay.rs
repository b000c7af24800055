// SPDX-License-Identifier: GPL-2.0

//! Replaying a slab journal: counting what the reference blocks on disk do not have yet.
//!
//! Each sector of a reference block says up to which journal position its counters are right. An entry is counted exactly if it
//! is newer than the commit point of its counter's sector; so it does no harm that sectors are of different age (a torn write)
//! or that some blocks were written later than others. Everything that a journal says is checked before it is believed.

use super::counters::updated_from_disk;
use super::geometry::SlabGeometry;
use super::slab::Slab;
use crate::engine::error::Error;
use crate::engine::format::reference_block::{locate, CommitPoints};
use crate::engine::format::slab_journal::{entries, SlabJournalEntry, SlabJournalHeader};
use crate::engine::units::{Block, JournalPoint, SequenceNumber};

/// The replay of one slab's journal, block after block.
pub(super) struct Replay<'a> {
    geometry: &'a SlabGeometry,
    /// The commit points of all reference blocks.
    commit_points: &'a [CommitPoints],
    /// The block that has to come next.
    next: SequenceNumber,
    /// The recovery point of the block before.
    recovery_point: JournalPoint,
    /// The position after the last entry seen.
    end: JournalPoint,
}

impl<'a> Replay<'a> {
    /// A replay that starts at block `head`.
    pub(super) fn new(
        geometry: &'a SlabGeometry,
        commit_points: &'a [CommitPoints],
        head: SequenceNumber,
    ) -> Self {
        Self {
            geometry,
            commit_points,
            next: head,
            recovery_point: JournalPoint::ZERO,
            end: JournalPoint {
                sequence: head,
                entry: 0,
            },
        }
    }

    /// The block that has to come next.
    pub(super) fn next(&self) -> SequenceNumber {
        self.next
    }

    /// Counts the entries of the next block.
    pub(super) fn count_block(&mut self, slab: &mut Slab, block: &Block) -> Result<(), Error> {
        let header = SlabJournalHeader::decode(block)?;
        header.check(self.geometry.nonce, self.next)?;
        if header.recovery_point < self.recovery_point {
            return Err(Error::Corrupt("slab journal blocks are out of order"));
        }
        let mut point = JournalPoint {
            sequence: header.sequence,
            entry: 0,
        };
        for entry in entries(block, &header) {
            self.count_entry(slab, entry?, point)?;
            point.entry = point.entry.saturating_add(1);
        }
        self.end = point;
        self.recovery_point = header.recovery_point;
        self.next = header.sequence.next().ok_or(Error::Corrupt(
            "the slab journal has no sequence number left",
        ))?;
        Ok(())
    }

    /// Checks that the reference blocks know nothing that the journal does not.
    ///
    /// A commit point beyond the end would make a later replay pass over entries that were never counted.
    pub(super) fn finish(&self) -> Result<(), Error> {
        if newest(self.commit_points) >= self.end {
            return Err(Error::Corrupt(
                "reference counts are newer than their slab journal",
            ));
        }
        Ok(())
    }

    fn count_entry(
        &self,
        slab: &mut Slab,
        entry: SlabJournalEntry,
        point: JournalPoint,
    ) -> Result<(), Error> {
        // No counter, no entry: whatever else may be behind the data blocks.
        let counter = slab.counters.get(entry.sbn).ok_or(Error::Corrupt(
            "slab journal entry for a block that holds no data",
        ))?;
        let place = locate(entry.sbn);
        let committed = self
            .commit_points
            .get(place.block)
            .and_then(|points| points.get(place.sector))
            .ok_or(Error::OutOfRange)?;
        if point <= *committed {
            return Ok(());
        }
        let counter = updated_from_disk(counter, entry.update).map_err(Error::Corrupt)?;
        if let Some(block) = slab.counters.set(entry.sbn, counter) {
            slab.references.mark_dirty(block, point.sequence);
        }
        slab.latest = slab.latest.max(point);
        Ok(())
    }
}

/// The newest of the commit points.
pub(super) fn newest(commit_points: &[CommitPoints]) -> JournalPoint {
    commit_points
        .iter()
        .flatten()
        .copied()
        .max()
        .unwrap_or(JournalPoint::ZERO)
}
