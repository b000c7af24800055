// SPDX-License-Identifier: GPL-2.0

//! Laying out a new volume.
//!
//! Only the two blocks made here describe a volume. Besides writing them, whoever formats a device
//! must, before the super block and then the geometry block are written, write zeros to
//! * the first block of the index region, so that no old index is found;
//! * the roots of the block map;
//! * the recovery journal.
//!
//! Everything else of a volume in state [`VolumeState::New`] is never read before it is written.

use super::component_state::{BlockMapState, RecoveryJournalState, SlabDepotState};
use super::geometry::{Geometry, GeometryVersion, Region};
use super::index_config::IndexConfig;
use super::layout::{FixedParts, Layout, PartitionId};
use super::super_block::{first_partition_block, SuperBlock};
use super::vdo_config::VdoConfig;
use super::volume_state::VolumeState;
use super::{FormatError, SlabConfig};
use crate::engine::units::{
    Nonce, Pbn, SequenceNumber, BLOCK_MAP_ROOT_COUNT, DEFAULT_RECOVERY_JOURNAL_BLOCKS,
    DEFAULT_SLAB_JOURNAL_BLOCKS, SLAB_SUMMARY_BLOCKS,
};

/// The block where the index region of a new volume starts.
const INDEX_START: u64 = 1;
const INDEX_REGION_ID: u32 = 0;
const DATA_REGION_ID: u32 = 1;

/// What a new volume is to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatParams {
    /// Its sizes.
    pub config: VdoConfig,
    /// Its nonce.
    pub nonce: Nonce,
    /// Its identity.
    pub uuid: [u8; 16],
    /// Its index.
    pub index: IndexConfig,
    /// The blocks for the index, [`IndexConfig::region_blocks`] unless it is never to be made.
    pub index_blocks: u64,
}

impl FormatParams {
    /// A volume with journals of the usual size.
    pub fn new(
        physical_blocks: u64,
        logical_blocks: u64,
        slab_size: u64,
        index: IndexConfig,
        nonce: Nonce,
        uuid: [u8; 16],
    ) -> Self {
        Self {
            config: VdoConfig {
                logical_blocks,
                physical_blocks,
                slab_size,
                recovery_journal_size: DEFAULT_RECOVERY_JOURNAL_BLOCKS,
                slab_journal_blocks: DEFAULT_SLAB_JOURNAL_BLOCKS,
            },
            nonce,
            uuid,
            index,
            index_blocks: index.region_blocks(),
        }
    }
}

/// Lays out a new volume.
pub fn format_volume(params: &FormatParams) -> Result<(Geometry, SuperBlock), FormatError> {
    params.config.validate()?;
    let data_start = INDEX_START
        .checked_add(params.index_blocks)
        .and_then(Pbn::new)
        .ok_or(FormatError::OutOfRange("size of the index"))?;
    let index_start = Pbn::new(INDEX_START).ok_or(FormatError::OutOfRange("start of the index"))?;
    let geometry = Geometry {
        version: GeometryVersion::V5,
        unused: 0,
        nonce: params.nonce,
        uuid: params.uuid,
        bio_offset: 0,
        index_region: Region {
            id: INDEX_REGION_ID,
            start: index_start,
        },
        data_region: Region {
            id: DATA_REGION_ID,
            start: data_start,
        },
        index: params.index,
    };

    let config = params.config;
    let first = first_partition_block(&geometry)?;
    let fixed = FixedParts {
        block_map: BLOCK_MAP_ROOT_COUNT,
        recovery_journal: config.recovery_journal_size,
        slab_summary: SLAB_SUMMARY_BLOCKS,
    };
    let required = fixed
        .blocks()
        .and_then(|blocks| blocks.checked_add(first.get()))
        .and_then(|blocks| blocks.checked_add(config.slab_size))
        .ok_or(FormatError::OutOfRange("size of a partition"))?;
    if config.physical_blocks < required {
        return Err(FormatError::NoSpace {
            required,
            available: config.physical_blocks,
        });
    }
    let layout = Layout::compute(first, config.physical_blocks, fixed)?;
    let slab_config = SlabConfig::compute(config.slab_size, config.slab_journal_blocks)?;
    let depot = layout.partition(PartitionId::SlabDepot)?;
    let super_block = SuperBlock {
        unused: geometry.unused,
        required: None,
        state: VolumeState::New,
        complete_recoveries: 0,
        read_only_recoveries: 0,
        config,
        nonce: params.nonce,
        layout,
        recovery_journal: RecoveryJournalState {
            journal_start: SequenceNumber::FIRST,
            logical_blocks_used: 0,
            block_map_data_blocks: 0,
        },
        slab_depot: SlabDepotState::compute(slab_config, &depot)?,
        block_map: BlockMapState {
            root_origin: first,
            root_count: BLOCK_MAP_ROOT_COUNT,
        },
    };
    super_block.validate(&geometry)?;
    Ok((geometry, super_block))
}
