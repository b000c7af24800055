// SPDX-License-Identifier: GPL-2.0

//! Replaying a slab journal: counting what the reference blocks on disk do not have yet.
//!
//! Each sector of a reference block says up to which journal position its counters are right. An entry is counted exactly if it
//! is newer than the commit point of its counter's sector; so it does no harm that sectors are of different age (a torn write)
//! or that some blocks were written later than others. The code of an entry is taken over in the same way, by the commit point of
//! its own sector of the algorithm map. Everything that a journal says is checked before it is believed.

use super::counters::updated_from_disk;
use super::geometry::SlabGeometry;
use super::slab::Slab;
use super::slab_journal::Entry;
use crate::engine::error::Error;
use crate::engine::format::algorithm_map;
use crate::engine::format::reference_block::{self, CommitPoints};
use crate::engine::format::slab_journal::{
    entries, ReferenceUpdate, SlabJournalEntry, SlabJournalHeader,
};
use crate::engine::format::slab_journal_coded as coded;
use crate::engine::format::{BlockCode, FormatError};
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
        let header = decode_header(self.geometry, block)?;
        header.check(self.geometry.nonce, self.next)?;
        if header.recovery_point < self.recovery_point {
            return Err(Error::Corrupt("slab journal blocks are out of order"));
        }
        let mut point = JournalPoint {
            sequence: header.sequence,
            entry: 0,
        };
        if self.geometry.has_map() {
            for entry in coded::entries(block, &header) {
                let coded::CodedEntry { sbn, update, code } = entry?;
                self.count_entry(slab, Entry { sbn, update, code }, point)?;
                point.entry = point.entry.saturating_add(1);
            }
        } else {
            for entry in entries(block, &header) {
                let SlabJournalEntry { sbn, update } = entry?;
                let code = BlockCode::NONE;
                self.count_entry(slab, Entry { sbn, update, code }, point)?;
                point.entry = point.entry.saturating_add(1);
            }
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

    fn count_entry(&self, slab: &mut Slab, entry: Entry, point: JournalPoint) -> Result<(), Error> {
        // No counter, no entry: whatever else may be behind the data blocks.
        let counter = slab.counters.get(entry.sbn).ok_or(Error::Corrupt(
            "slab journal entry for a block that holds no data",
        ))?;
        self.take_code(slab, entry, point)?;
        let place = reference_block::locate(entry.sbn);
        if point <= self.committed(place.block, place.sector)? {
            return Ok(());
        }
        let counter = updated_from_disk(counter, entry.update).map_err(Error::Corrupt)?;
        if let Some(block) = slab.counters.set(entry.sbn, counter) {
            slab.references.mark_dirty(block, point.sequence);
        }
        slab.latest = slab.latest.max(point);
        Ok(())
    }

    /// Takes over what the entry says about the kind of its block.
    fn take_code(&self, slab: &mut Slab, entry: Entry, point: JournalPoint) -> Result<(), Error> {
        if !self.geometry.has_map() || entry.update == ReferenceUpdate::Decrement {
            return Ok(());
        }
        let place = algorithm_map::locate(entry.sbn);
        let block = self.geometry.stored_index(place.block);
        if point > self.committed(block, place.sector)? {
            slab.set_code(self.geometry, entry.sbn, entry.code, point.sequence);
            slab.latest = slab.latest.max(point);
        }
        Ok(())
    }

    /// The newest position that a sector of a stored block reflects.
    fn committed(&self, block: usize, sector: usize) -> Result<JournalPoint, Error> {
        self.commit_points
            .get(block)
            .and_then(|points| points.get(sector))
            .copied()
            .ok_or(Error::OutOfRange)
    }
}

/// Reads the header of a block of a slab's journal.
pub(super) fn decode_header(
    geometry: &SlabGeometry,
    block: &Block,
) -> Result<SlabJournalHeader, FormatError> {
    match geometry.has_map() {
        true => coded::decode(block),
        false => SlabJournalHeader::decode(block),
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
