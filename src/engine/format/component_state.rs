// SPDX-License-Identifier: GPL-2.0

//! What the recovery journal, the slab depot and the block map keep in the super block.
//!
//! Recovery journal, header: id 2, version 7.0, size 24
//!
//! | offset | size | field                                                            |
//! |-------:|-----:|------------------------------------------------------------------|
//! |     20 |    8 | journal_start: the sequence to start with                        |
//! |     28 |    8 | logical_blocks_used                                              |
//! |     36 |    8 | block_map_data_blocks: pages of the map that are in slabs        |
//!
//! Slab depot, header: id 3, version 2.0, or 3.0 if every slab ends with an [algorithm map](super::algorithm_map), size 73
//!
//! | offset | size | field                                                            |
//! |-------:|-----:|------------------------------------------------------------------|
//! |     20 |   56 | slab configuration, see [`slab_config`](super::slab_config)      |
//! |     76 |    8 | first_block: start of slab 0                                     |
//! |     84 |    8 | last_block: end of the last slab                                 |
//! |     92 |    1 | zone_count: physical zones that last wrote the summary, or 0     |
//!
//! Block map, header: id 4, version 2.0, size 32
//!
//! | offset | size | field                                                            |
//! |-------:|-----:|------------------------------------------------------------------|
//! |     20 |    8 | flat_page_origin: 1                                              |
//! |     28 |    8 | flat_page_count: 0                                               |
//! |     36 |    8 | root_origin: the block of root 0                                 |
//! |     44 |    8 | root_count: 60                                                   |

use super::algorithm_map::map_blocks;
use super::field::{Reader, Writer};
use super::header::Header;
use super::layout::Partition;
use super::slab_config::SlabConfig;
use super::slab_journal_coded::MAX_SLAB_BITS;
use super::{Component, FormatError};
use crate::engine::units::{
    Pbn, SequenceNumber, SlabBlockNumber, SlabNumber, BLOCK_MAP_ROOT_COUNT, MAX_PHYSICAL_ZONES,
    MAX_SLABS,
};

const JOURNAL_HEADER: Header = Header::new(Component::RecoveryJournal, 7, 0, 24);
const DEPOT_HEADER: Header = Header::new(Component::SlabDepot, 2, 0, 73);
const MAPPED_DEPOT_HEADER: Header = Header::new(Component::SlabDepot, 3, 0, 73);
const BLOCK_MAP_HEADER: Header = Header::new(Component::BlockMap, 2, 0, 32);

/// Blocks that a slab journal keeps beside a map, however long it was: what a crash may add to a journal that takes no more entries
/// must not reach the blocks that are still needed.
const MIN_JOURNAL_BLOCKS: u64 = 96;

const FLAT_PAGE_ORIGIN: u64 = 1;
const FLAT_PAGE_COUNT: u64 = 0;

/// The recovery journal's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryJournalState {
    /// The sequence to start with.
    pub journal_start: SequenceNumber,
    /// Logical blocks in use.
    pub logical_blocks_used: u64,
    /// Block map pages that are in slabs.
    pub block_map_data_blocks: u64,
}

impl RecoveryJournalState {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        JOURNAL_HEADER.demand(reader)?;
        Ok(Self {
            journal_start: SequenceNumber::new(reader.u64()?)
                .ok_or(FormatError::OutOfRange("start of the recovery journal"))?,
            logical_blocks_used: reader.u64()?,
            block_map_data_blocks: reader.u64()?,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        JOURNAL_HEADER.encode(writer)?;
        writer.u64(self.journal_start.get())?;
        writer.u64(self.logical_blocks_used)?;
        writer.u64(self.block_map_data_blocks)
    }
}

/// The slab depot's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabDepotState {
    /// How each slab is divided.
    pub slab_config: SlabConfig,
    /// The start of slab 0.
    pub first_block: Pbn,
    /// The end of the last slab. May be the end of the largest possible volume, one past the
    /// last block number.
    pub last_block: u64,
    /// The number of physical zones that last wrote the slab summary; 0 if none ever did.
    pub zone_count: u8,
    /// Whether every slab ends with an algorithm map, which follows the journal.
    pub has_map: bool,
}

impl SlabDepotState {
    /// A depot of as many slabs as fit into `partition`. The sizes in its errors are those of the
    /// partition.
    pub fn compute(slab_config: SlabConfig, partition: &Partition) -> Result<Self, FormatError> {
        let slabs = partition
            .blocks
            .checked_shr(slab_config.slab_bits())
            .unwrap_or(0);
        if slabs == 0 {
            return Err(FormatError::NoSpace {
                required: slab_config.slab_blocks,
                available: partition.blocks,
            });
        }
        if slabs > MAX_SLABS.into() {
            return Err(FormatError::TooManySlabs {
                slabs,
                limit: MAX_SLABS.into(),
            });
        }
        Ok(Self {
            slab_config,
            first_block: partition.start,
            last_block: partition
                .start
                .get()
                .saturating_add(slabs.saturating_mul(slab_config.slab_blocks)),
            zone_count: 0,
            has_map: false,
        })
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        let found = Header::decode(reader, Component::SlabDepot)?;
        let has_map = found.version == MAPPED_DEPOT_HEADER.version;
        let expected = Self::header(has_map);
        expected.check_version(&found)?;
        if found.size != expected.size {
            return Err(expected.bad_size(&found));
        }
        Ok(Self {
            slab_config: SlabConfig::decode(reader)?,
            first_block: Pbn::new(reader.u64()?)
                .ok_or(FormatError::OutOfRange("start of the slabs"))?,
            last_block: reader.u64()?,
            zone_count: reader.u8()?,
            has_map,
        })
    }

    const fn header(has_map: bool) -> Header {
        if has_map {
            MAPPED_DEPOT_HEADER
        } else {
            DEPOT_HEADER
        }
    }

    /// Blocks of each slab's algorithm map.
    pub fn map_blocks(&self) -> u64 {
        match self.has_map {
            true => map_blocks(self.slab_config.data_blocks),
            false => 0,
        }
    }

    /// The same depot with an algorithm map at the end of each slab, for which the journal makes room. `None` if it has one, or if
    /// there is no room: no entry of the journal can name a block of a larger slab, or too little of the journal would be left.
    pub fn with_map(&self) -> Option<Self> {
        let config = self.slab_config;
        let wanted = map_blocks(config.data_blocks);
        let free = config
            .slab_blocks
            .checked_sub(config.data_blocks)?
            .checked_sub(config.reference_count_blocks)?;
        let journal = free.checked_sub(wanted)?.min(config.slab_journal_blocks);
        let given_up = config.slab_journal_blocks.checked_sub(journal)?;
        let is_enough = journal >= MIN_JOURNAL_BLOCKS
            || given_up.saturating_mul(8) <= config.slab_journal_blocks;
        let mapped = Self {
            slab_config: config.with_journal(journal),
            has_map: true,
            ..*self
        };
        let can_be = !self.has_map
            && is_enough
            && mapped.validate_map().is_ok()
            && mapped.slab_config.validate().is_ok();
        can_be.then_some(mapped)
    }

    /// The same depot without maps and with slab journals of `slab_journal_blocks`. `None` if it has no map, or these do not fit.
    pub fn without_map(&self, slab_journal_blocks: u64) -> Option<Self> {
        let slab_config = self.slab_config.with_journal(slab_journal_blocks);
        (self.has_map && slab_config.validate().is_ok()).then_some(Self {
            slab_config,
            has_map: false,
            ..*self
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        Self::header(self.has_map).encode(writer)?;
        self.slab_config.encode(writer)?;
        writer.u64(self.first_block.get())?;
        writer.u64(self.last_block)?;
        writer.u8(self.zone_count)
    }

    /// Checks that the slabs are whole and lie in `partition`.
    pub fn validate(&self, partition: &Partition) -> Result<(), FormatError> {
        self.slab_config.validate()?;
        self.validate_map()?;
        if usize::from(self.zone_count) > MAX_PHYSICAL_ZONES {
            return Err(FormatError::BadConfiguration(
                "the slab summary has more zones than there can be",
            ));
        }
        if self.first_block < partition.start || self.last_block > partition.end() {
            return Err(FormatError::BadConfiguration(
                "the slabs lie outside their partition",
            ));
        }
        let blocks = self.last_block.checked_sub(self.first_block.get());
        let slab_mask = self.slab_config.slab_blocks.wrapping_sub(1);
        match blocks {
            Some(blocks) if blocks > 0 && blocks & slab_mask == 0 => {}
            _ => {
                return Err(FormatError::BadConfiguration(
                    "the slabs are not a whole number",
                ))
            }
        }
        let slabs = u64::from(self.slab_count());
        if slabs > MAX_SLABS.into() {
            return Err(FormatError::TooManySlabs {
                slabs,
                limit: MAX_SLABS.into(),
            });
        }
        Ok(())
    }

    /// Checks that the map, if there is one, fits into the slab behind its other parts.
    pub fn validate_map(&self) -> Result<(), FormatError> {
        let config = &self.slab_config;
        let free = config
            .slab_blocks
            .saturating_sub(config.data_blocks)
            .saturating_sub(config.reference_count_blocks)
            .saturating_sub(config.slab_journal_blocks);
        if self.map_blocks() > free {
            return Err(FormatError::BadConfiguration(
                "the algorithm map does not fit into a slab",
            ));
        }
        if self.has_map && config.slab_bits() > MAX_SLAB_BITS {
            return Err(FormatError::BadConfiguration(
                "slabs with an algorithm map have at most 2^19 blocks",
            ));
        }
        Ok(())
    }

    /// The number of slabs.
    pub fn slab_count(&self) -> u32 {
        let blocks = self.last_block.saturating_sub(self.first_block.get());
        let slabs = blocks
            .checked_shr(self.slab_config.slab_bits())
            .unwrap_or(0);
        u32::try_from(slabs).unwrap_or(u32::MAX)
    }

    /// The first block of `slab`. `None` if there is no such slab.
    pub fn slab_start(&self, slab: SlabNumber) -> Option<Pbn> {
        if slab.get() >= self.slab_count() {
            return None;
        }
        let before = u64::from(slab.get()).checked_mul(self.slab_config.slab_blocks)?;
        self.first_block.checked_add(before)
    }

    /// The slab that has block `pbn`, and which of its blocks that is. `None` if it is in none.
    pub fn locate(&self, pbn: Pbn) -> Option<(SlabNumber, SlabBlockNumber)> {
        if pbn.get() >= self.last_block {
            return None;
        }
        let offset = pbn.checked_offset_from(self.first_block)?;
        let slab = offset.checked_shr(self.slab_config.slab_bits())?;
        let sbn = offset & self.slab_config.slab_blocks.checked_sub(1)?;
        Some((
            SlabNumber::new(u32::try_from(slab).ok()?),
            SlabBlockNumber::new(u32::try_from(sbn).ok()?)?,
        ))
    }

    /// Whether `pbn` is a block for data. What is mapped must be one.
    pub fn is_data_block(&self, pbn: Pbn) -> bool {
        self.locate(pbn)
            .is_some_and(|(_, sbn)| self.slab_config.is_data_block(sbn))
    }
}

/// The block map's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMapState {
    /// The block of root 0; the others follow it.
    pub root_origin: Pbn,
    /// The number of trees.
    pub root_count: u64,
}

impl BlockMapState {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        BLOCK_MAP_HEADER.demand(reader)?;
        if reader.u64()? != FLAT_PAGE_ORIGIN || reader.u64()? != FLAT_PAGE_COUNT {
            return Err(FormatError::BadConfiguration(
                "the block map has flat pages, which no volume of this version has",
            ));
        }
        Ok(Self {
            root_origin: Pbn::new(reader.u64()?)
                .ok_or(FormatError::OutOfRange("start of the block map"))?,
            root_count: reader.u64()?,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        BLOCK_MAP_HEADER.encode(writer)?;
        writer.u64(FLAT_PAGE_ORIGIN)?;
        writer.u64(FLAT_PAGE_COUNT)?;
        writer.u64(self.root_origin.get())?;
        writer.u64(self.root_count)
    }

    /// Checks that the roots lie in `partition`.
    pub fn validate(&self, partition: &Partition) -> Result<(), FormatError> {
        if self.root_count == 0 || self.root_count > BLOCK_MAP_ROOT_COUNT {
            return Err(FormatError::BadConfiguration(
                "the block map must have 1 to 60 roots",
            ));
        }
        let end = self.root_origin.get().saturating_add(self.root_count);
        if self.root_origin < partition.start || end > partition.end() {
            return Err(FormatError::BadConfiguration(
                "the roots of the block map lie outside their partition",
            ));
        }
        Ok(())
    }
}
