// SPDX-License-Identifier: GPL-2.0

//! What a volume tells about itself: counters together with what it knows without counting.

use super::Volume;
use crate::engine::env::Env;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::statistics::{IndexState, OperatingMode, Snapshot};
use crate::engine::units::BLOCK_SIZE;

impl<E: Env> Volume<E> {
    /// What the super block says. Counters that change all the time are those of the last write.
    pub fn super_block(&self) -> SuperBlock {
        self.super_block.content()
    }

    /// What the volume can be used for now.
    pub fn operating_mode(&self) -> OperatingMode {
        if self.store.read_only().is_set() {
            OperatingMode::ReadOnly
        } else if self.depot.unscrubbed_slabs() > 0 {
            OperatingMode::Recovering
        } else {
            OperatingMode::Normal
        }
    }

    /// The state of the index. The volatile one is there as long as the volume is.
    pub fn index_state(&self) -> IndexState {
        if self.deduplicates() {
            IndexState::Online
        } else {
            IndexState::Offline
        }
    }

    /// Physical blocks in use, metadata included.
    pub fn used_blocks(&self) -> u64 {
        let (data, overhead) = self.usage();
        data.saturating_add(overhead)
    }

    /// Blocks of data, and blocks of metadata. Block map pages are in slabs but are metadata.
    fn usage(&self) -> (u64, u64) {
        let (_, block_map_blocks) = self.journal.usage();
        let allocated = self.depot.allocated_blocks();
        let outside = self
            .super_block()
            .config
            .physical_blocks
            .saturating_sub(self.depot.data_blocks());
        (
            allocated.saturating_sub(block_map_blocks),
            outside.saturating_add(block_map_blocks),
        )
    }

    /// How many of a hundred slabs are scrubbed.
    fn recovery_percentage(&self) -> u8 {
        let unscrubbed = u64::from(self.depot.unscrubbed_slabs()).saturating_mul(100);
        let left = unscrubbed.checked_div(self.depot.slab_count().into());
        100_u8.saturating_sub(u8::try_from(left.unwrap_or(0)).unwrap_or(100))
    }

    /// Everything at once.
    pub fn snapshot(&self) -> Snapshot {
        let super_block = self.super_block();
        let (data_blocks_used, overhead_blocks_used) = self.usage();
        let cache_bytes = self.parameters.cache_pages.saturating_mul(BLOCK_SIZE);
        let mut snapshot = Snapshot {
            data_blocks_used,
            overhead_blocks_used,
            logical_blocks_used: self.journal.usage().0,
            physical_blocks: super_block.config.physical_blocks,
            logical_blocks: self.logical_blocks(),
            block_map_cache_size_bytes: u64::try_from(cache_bytes).unwrap_or(u64::MAX),
            complete_recoveries: super_block.complete_recoveries,
            read_only_recoveries: super_block.read_only_recoveries,
            mode: self.operating_mode(),
            in_recovery_mode: self.depot.unscrubbed_slabs() > 0,
            recovery_percentage: self.recovery_percentage(),
            block_map: self.block_map.statistics(),
            index: self.dedupe.index_statistics(),
            ..self.statistics.snapshot()
        };
        snapshot.allocator.slab_count = u64::from(self.depot.slab_count());
        snapshot
    }
}
