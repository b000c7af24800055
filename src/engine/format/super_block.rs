// SPDX-License-Identifier: GPL-2.0

//! The super block: the state of the volume, in one sector that is written at once.
//!
//! | offset | size | field                                                              |
//! |-------:|-----:|--------------------------------------------------------------------|
//! |      0 |   20 | header: id 0, version 12.0, size 418                               |
//! |     20 |    4 | 67.0: unused, the same as in the geometry block;                   |
//! |        |      | 67.1: see [`RequiredFlags`]                                        |
//! |     24 |    8 | volume version 67.0 or 67.1                                        |
//! |     32 |    8 | vdo component version 41.0                                         |
//! |     40 |    4 | state, see [`VolumeState`]                                         |
//! |     44 |    8 | complete_recoveries                                                |
//! |     52 |    8 | read_only_recoveries                                               |
//! |     60 |   40 | sizes, see [`VdoConfig`]                                           |
//! |    100 |    8 | nonce                                                              |
//! |    108 |  137 | layout, see [`Layout`]                                             |
//! |    245 |   44 | recovery journal, see [`RecoveryJournalState`]                     |
//! |    289 |   93 | slab depot, see [`SlabDepotState`]                                 |
//! |    382 |   52 | block map, see [`BlockMapState`]                                   |
//! |    434 |    4 | checksum of everything before it                                   |
//!
//! What follows in the block is not ours and is kept as found.

use super::component_state::{BlockMapState, RecoveryJournalState, SlabDepotState};
use super::field::{Reader, Writer};
use super::geometry::Geometry;
use super::header::{check_version, decode_version, encode_version, Header};
use super::layout::{Layout, PartitionId};
use super::required_flags::RequiredFlags;
use super::vdo_config::VdoConfig;
use super::volume_state::VolumeState;
use super::{checksum, Component, FormatError, Version};
use crate::engine::units::{Block, Nonce, Pbn, SECTOR_SIZE, SLAB_SUMMARY_BLOCKS};

const HEADER: Header = Header::new(Component::SuperBlock, 12, 0, 418);
/// The volume is as dm-vdo makes it.
const ORIGINAL_VERSION: Version = Version::new(67, 0);
/// The volume says what is required to read it.
const FLAGS_VERSION: Version = Version::new(67, 1);
const VDO_VERSION: Version = Version::new(41, 0);
const CHECKSUM_AT: usize = 434;
const CHECKSUM_BYTES: usize = 4;

const _: () = assert!(CHECKSUM_AT + CHECKSUM_BYTES <= SECTOR_SIZE);
// The header itself has 20 bytes.
const _: () = assert!(20 + HEADER.size == (CHECKSUM_AT + CHECKSUM_BYTES) as u64);

/// The state of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SuperBlock {
    /// The `unused` field of the geometry block, which goes here with every save of a volume without required flags.
    pub unused: u32,
    /// What is required to read the volume. `None`: it is as dm-vdo makes it.
    pub required: Option<RequiredFlags>,
    /// How the volume was left.
    pub state: VolumeState,
    /// How many times the volume was recovered. Journal blocks carry its low byte.
    pub complete_recoveries: u64,
    /// How many times the volume was recovered from being read-only.
    pub read_only_recoveries: u64,
    /// The sizes of the volume.
    pub config: VdoConfig,
    /// The number in all metadata of the volume.
    pub nonce: Nonce,
    /// Where the parts of the volume are.
    pub layout: Layout,
    /// The state of the recovery journal.
    pub recovery_journal: RecoveryJournalState,
    /// The state of the slab depot.
    pub slab_depot: SlabDepotState,
    /// The state of the block map.
    pub block_map: BlockMapState,
}

impl SuperBlock {
    /// Reads a super block. What it says is yet to be checked with [`SuperBlock::validate`].
    pub fn decode(block: &Block) -> Result<Self, FormatError> {
        let mut reader = Reader::new(block);
        let header = Header::decode(&mut reader, Component::SuperBlock)?;
        HEADER.check_version(&header)?;
        if header.size < CHECKSUM_BYTES as u64 || header.size > HEADER.size {
            return Err(HEADER.bad_size(&header));
        }
        let (covered, rest) = block
            .split_at_checked(CHECKSUM_AT)
            .ok_or(FormatError::Truncated)?;
        let found = Reader::new(rest).u32()?;
        checksum::check(Component::SuperBlock, covered, found)?;

        let first = reader.u32()?;
        let volume_version = decode_version(&mut reader)?;
        let (unused, required) = if volume_version == FLAGS_VERSION {
            (0, Some(RequiredFlags::decode(first)?))
        } else {
            check_version(Component::Volume, ORIGINAL_VERSION, volume_version)?;
            (first, None)
        };
        let vdo_version = decode_version(&mut reader)?;
        check_version(Component::Vdo, VDO_VERSION, vdo_version)?;
        Ok(Self {
            unused,
            required,
            state: VolumeState::decode(reader.u32()?)?,
            complete_recoveries: reader.u64()?,
            read_only_recoveries: reader.u64()?,
            config: VdoConfig::decode(&mut reader)?,
            nonce: Nonce::new(reader.u64()?),
            layout: Layout::decode(&mut reader)?,
            recovery_journal: RecoveryJournalState::decode(&mut reader)?,
            slab_depot: SlabDepotState::decode(&mut reader)?,
            block_map: BlockMapState::decode(&mut reader)?,
        })
    }

    /// Puts the super block into `block`, all but the checksummed bytes of which stay as they are.
    pub fn encode(&self, block: &mut Block) -> Result<(), FormatError> {
        let (covered, rest) = block
            .split_at_mut_checked(CHECKSUM_AT)
            .ok_or(FormatError::Truncated)?;
        let mut writer = Writer::new(covered);
        HEADER.encode(&mut writer)?;
        let (first, version) = match self.required {
            Some(flags) => (flags.encode(), FLAGS_VERSION),
            None => (self.unused, ORIGINAL_VERSION),
        };
        writer.u32(first)?;
        encode_version(version, &mut writer)?;
        encode_version(VDO_VERSION, &mut writer)?;
        writer.u32(self.state.encode())?;
        writer.u64(self.complete_recoveries)?;
        writer.u64(self.read_only_recoveries)?;
        self.config.encode(&mut writer)?;
        writer.u64(self.nonce.get())?;
        self.layout.encode(&mut writer)?;
        self.recovery_journal.encode(&mut writer)?;
        self.slab_depot.encode(&mut writer)?;
        self.block_map.encode(&mut writer)?;
        Writer::new(rest).u32(checksum::checksum(covered))
    }

    /// Checks that the parts fit together and belong to the volume of `geometry`.
    pub fn validate(&self, geometry: &Geometry) -> Result<(), FormatError> {
        if self.nonce != geometry.nonce {
            return Err(FormatError::BadNonce {
                expected: geometry.nonce,
                found: self.nonce,
            });
        }
        self.config.validate()?;
        let first = first_partition_block(geometry)?;
        self.layout.validate(first, self.config.physical_blocks)?;

        let journal = self.layout.partition(PartitionId::RecoveryJournal)?;
        if journal.blocks < self.config.recovery_journal_size {
            return Err(FormatError::BadConfiguration(
                "the recovery journal is larger than its partition",
            ));
        }
        let summary = self.layout.partition(PartitionId::SlabSummary)?;
        if summary.blocks < SLAB_SUMMARY_BLOCKS {
            return Err(FormatError::BadConfiguration(
                "the slab summary is larger than its partition",
            ));
        }
        let depot = self.layout.partition(PartitionId::SlabDepot)?;
        self.slab_depot.validate(&depot)?;
        let requires_map = self
            .required
            .is_some_and(|flags| flags.contains(RequiredFlags::SLAB_MAP));
        if requires_map != self.slab_depot.has_map {
            return Err(FormatError::BadConfiguration(
                "the required flags and the slab depot disagree about the algorithm map",
            ));
        }
        let block_map = self.layout.partition(PartitionId::BlockMap)?;
        self.block_map.validate(&block_map)
    }

    /// The low byte of the number of recoveries, which the blocks of the recovery journal carry.
    pub fn recovery_count(&self) -> u8 {
        self.complete_recoveries as u8
    }
}

/// The block behind the super block.
pub(super) fn first_partition_block(geometry: &Geometry) -> Result<Pbn, FormatError> {
    geometry
        .data_region
        .start
        .checked_add(1)
        .ok_or(FormatError::OutOfRange("start of the data region"))
}
