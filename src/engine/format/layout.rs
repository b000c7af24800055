// SPDX-License-Identifier: GPL-2.0

//! The four parts of the data region behind the super block.
//!
//! | offset | size | field                                                         |
//! |-------:|-----:|---------------------------------------------------------------|
//! |      0 |   20 | header: id 1, version 3.0, size 117                           |
//! |     20 |    8 | first_free                                                    |
//! |     28 |    8 | last_free                                                     |
//! |     36 |    1 | partition count: 4                                            |
//! |     37 | 4x25 | partitions: u8 id, u64 start, u64 zero, u64 size              |
//!
//! The partitions come in any order, which is kept.

use super::field::{Reader, Writer};
use super::header::Header;
use super::{Component, FormatError};
use crate::engine::units::{Pbn, MAX_PHYSICAL_BLOCKS};

const HEADER: Header = Header::new(Component::Layout, 3, 0, 117);
const PARTITIONS: usize = 4;

/// A part of the data region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionId {
    /// 0: the roots of the block map.
    BlockMap,
    /// 1: the slabs.
    SlabDepot,
    /// 2: the recovery journal.
    RecoveryJournal,
    /// 3: the slab summary.
    SlabSummary,
}

impl PartitionId {
    const ALL: [Self; PARTITIONS] = [
        Self::BlockMap,
        Self::SlabDepot,
        Self::RecoveryJournal,
        Self::SlabSummary,
    ];

    const fn decode(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::BlockMap),
            1 => Some(Self::SlabDepot),
            2 => Some(Self::RecoveryJournal),
            3 => Some(Self::SlabSummary),
            _ => None,
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::BlockMap => 0,
            Self::SlabDepot => 1,
            Self::RecoveryJournal => 2,
            Self::SlabSummary => 3,
        }
    }
}

/// Where a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Which one.
    pub id: PartitionId,
    /// Its first block.
    pub start: Pbn,
    /// Its size in blocks.
    pub blocks: u64,
}

impl Partition {
    /// The block after the last one.
    pub fn end(&self) -> u64 {
        self.start.get().saturating_add(self.blocks)
    }

    /// Block `index` of the partition.
    pub fn block(&self, index: u64) -> Option<Pbn> {
        if index < self.blocks {
            self.start.checked_add(index)
        } else {
            None
        }
    }

    /// Whether `pbn` is one of the partition's blocks.
    pub fn contains(&self, pbn: Pbn) -> bool {
        self.start <= pbn && pbn.get() < self.end()
    }
}

/// The four parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The start of what the formatter left unassigned; nothing.
    pub first_free: u64,
    /// The end of what the formatter left unassigned; nothing.
    pub last_free: u64,
    /// The parts, in the order in which they are stored.
    pub partitions: [Partition; PARTITIONS],
}

/// The parts whose size does not follow from the size of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedParts {
    /// Blocks for the roots of the block map.
    pub block_map: u64,
    /// Blocks for the recovery journal.
    pub recovery_journal: u64,
    /// Blocks for the slab summary.
    pub slab_summary: u64,
}

impl FixedParts {
    /// The blocks of all of them.
    pub fn blocks(&self) -> Option<u64> {
        self.block_map
            .checked_add(self.recovery_journal)?
            .checked_add(self.slab_summary)
    }
}

impl Layout {
    /// Lays out the blocks from `first` to the end of a volume of `physical_blocks`: the roots
    /// in front, the journal and the summary at the end, and the slabs in what is left.
    pub fn compute(
        first: Pbn,
        physical_blocks: u64,
        fixed: FixedParts,
    ) -> Result<Self, FormatError> {
        if physical_blocks > MAX_PHYSICAL_BLOCKS {
            return Err(FormatError::OutOfRange("physical size"));
        }
        let used = fixed
            .blocks()
            .and_then(|used| used.checked_add(first.get()))
            .ok_or(FormatError::OutOfRange("size of a partition"))?;
        let depot_blocks = match physical_blocks.checked_sub(used) {
            Some(blocks) if blocks > 0 => blocks,
            _ => {
                return Err(FormatError::NoSpace {
                    required: used.saturating_add(1),
                    available: physical_blocks,
                })
            }
        };

        // The sum of all parts is at most 2^36, so each start exists.
        let out_of_range = FormatError::OutOfRange("start of a partition");
        let after = |start: Pbn, blocks| start.checked_add(blocks).ok_or(out_of_range);
        let depot = after(first, fixed.block_map)?;
        let journal = after(depot, depot_blocks)?;
        let summary = after(journal, fixed.recovery_journal)?;
        let partition = |id, start, blocks| Partition { id, start, blocks };
        Ok(Self {
            first_free: journal.get(),
            last_free: journal.get(),
            partitions: [
                partition(PartitionId::SlabDepot, depot, depot_blocks),
                partition(
                    PartitionId::RecoveryJournal,
                    journal,
                    fixed.recovery_journal,
                ),
                partition(PartitionId::SlabSummary, summary, fixed.slab_summary),
                partition(PartitionId::BlockMap, first, fixed.block_map),
            ],
        })
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        HEADER.demand_at_least(reader)?;
        let first_free = reader.u64()?;
        let last_free = reader.u64()?;
        if usize::from(reader.u8()?) != PARTITIONS {
            return Err(FormatError::BadConfiguration(
                "the layout does not have four partitions",
            ));
        }

        let mut partitions = [Partition {
            id: PartitionId::BlockMap,
            start: Pbn::ZERO,
            blocks: 0,
        }; PARTITIONS];
        for partition in &mut partitions {
            let id = PartitionId::decode(reader.u8()?).ok_or(FormatError::BadConfiguration(
                "the layout has an unknown partition",
            ))?;
            let start =
                Pbn::new(reader.u64()?).ok_or(FormatError::OutOfRange("start of a partition"))?;
            let _base = reader.u64()?;
            let blocks = reader.u64()?;
            *partition = Partition { id, start, blocks };
        }
        let layout = Self {
            first_free,
            last_free,
            partitions,
        };
        for id in PartitionId::ALL {
            layout.partition(id)?;
        }
        Ok(layout)
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        HEADER.encode(writer)?;
        writer.u64(self.first_free)?;
        writer.u64(self.last_free)?;
        writer.u8(PARTITIONS as u8)?;
        for partition in &self.partitions {
            writer.u8(partition.id.encode())?;
            writer.u64(partition.start.get())?;
            writer.u64(0)?;
            writer.u64(partition.blocks)?;
        }
        Ok(())
    }

    /// The partition `id`. An error if the layout has none, or two.
    pub fn partition(&self, id: PartitionId) -> Result<Partition, FormatError> {
        let mut found = self.partitions.iter().filter(|part| part.id == id);
        match (found.next(), found.next()) {
            (Some(partition), None) => Ok(*partition),
            _ => Err(FormatError::BadConfiguration(
                "the layout lacks a partition, or has one twice",
            )),
        }
    }

    /// Checks that the partitions share the blocks from `first` to the end of the volume, without
    /// a gap and without two having the same block.
    pub fn validate(&self, first: Pbn, physical_blocks: u64) -> Result<(), FormatError> {
        let total = self
            .partitions
            .iter()
            .try_fold(first.get(), |sum, part| sum.checked_add(part.blocks));
        if total != Some(physical_blocks) {
            return Err(FormatError::BadConfiguration(
                "the partitions do not add up to the size of the volume",
            ));
        }

        // The sum is right, so parts that do not overlap and lie inside leave no gap either.
        for (index, part) in self.partitions.iter().enumerate() {
            if part.start < first || part.end() > physical_blocks {
                return Err(FormatError::BadConfiguration(
                    "a partition lies outside the volume",
                ));
            }
            let overlaps = self
                .partitions
                .iter()
                .skip(index.saturating_add(1))
                .any(|other| part.start.get() < other.end() && other.start.get() < part.end());
            if overlaps {
                return Err(FormatError::BadConfiguration("two partitions overlap"));
            }
        }
        Ok(())
    }
}
