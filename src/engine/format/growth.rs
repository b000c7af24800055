// SPDX-License-Identifier: GPL-2.0

//! Giving a volume more blocks.
//!
//! The roots of the block map and all slabs stay where they are. The recovery journal and the slab summary move to the new end, and
//! the depot gets what lies between. There have to be enough new blocks that both land behind where they were: until the super
//! block says otherwise the volume is what it was (behaviour.md §17).

use super::geometry::Geometry;
use super::layout::{FixedParts, Layout, PartitionId};
use super::super_block::{first_partition_block, SuperBlock};
use super::vdo_config::VdoConfig;
use super::{FormatError, SlabDepotState};

impl SuperBlock {
    /// The same volume with `physical_blocks`.
    ///
    /// # Errors
    ///
    /// [`FormatError::NoSpace`] says how many blocks there must be at least.
    pub fn grown(&self, geometry: &Geometry, physical_blocks: u64) -> Result<Self, FormatError> {
        let first = first_partition_block(geometry)?;
        let part = |id| self.layout.partition(id);
        let depot = part(PartitionId::SlabDepot)?;
        let fixed = FixedParts {
            block_map: part(PartitionId::BlockMap)?.blocks,
            recovery_journal: part(PartitionId::RecoveryJournal)?.blocks,
            slab_summary: part(PartitionId::SlabSummary)?.blocks,
        };

        let out_of_range = FormatError::OutOfRange("physical size");
        let moved = fixed
            .recovery_journal
            .checked_add(fixed.slab_summary)
            .ok_or(out_of_range)?;
        let slab_blocks = self.slab_depot.slab_config.slab_blocks;
        let for_the_move = self.config.physical_blocks.checked_add(moved);
        let for_a_slab = self
            .slab_depot
            .last_block
            .checked_add(slab_blocks)
            .and_then(|end| end.checked_add(moved));
        let required = for_the_move.max(for_a_slab).ok_or(out_of_range)?;
        if physical_blocks < required {
            return Err(FormatError::NoSpace {
                required,
                available: physical_blocks,
            });
        }

        let layout = Layout::compute(first, physical_blocks, fixed)?;
        let grown_depot = layout.partition(PartitionId::SlabDepot)?;
        if grown_depot.start != depot.start
            || layout.partition(PartitionId::BlockMap)? != part(PartitionId::BlockMap)?
        {
            return Err(FormatError::BadConfiguration(
                "the volume is laid out in a way that leaves no room to grow",
            ));
        }
        let slabs = SlabDepotState::compute(self.slab_depot.slab_config, &grown_depot)?;
        let grown = Self {
            config: VdoConfig {
                physical_blocks,
                ..self.config
            },
            layout,
            slab_depot: SlabDepotState {
                last_block: slabs.last_block,
                ..self.slab_depot
            },
            ..*self
        };
        grown.validate(geometry)?;
        Ok(grown)
    }
}
