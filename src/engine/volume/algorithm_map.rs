// SPDX-License-Identifier: GPL-2.0

//! Giving a running volume its algorithm map, and taking it away.
//!
//! What takes long is done while requests go on: account is kept in memory from a short pause on, and then every logical block is
//! visited for what was stored before. The switch itself is a save, the preparation of the depot, and one write of the super block,
//! with requests held back. A crash before that write leaves a volume that was saved, after it one that has been converted.

use super::Volume;
use crate::engine::depot::BlocksByCode;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::format::{BlockCode, Mapping, MappingState, RequiredFlags};
use crate::engine::units::{Lbn, BLOCK_MAP_ENTRIES_PER_PAGE};

/// Entries of a leaf of the block map.
const LEAF: u64 = BLOCK_MAP_ENTRIES_PER_PAGE as u64;

impl<E: Env> Volume<E> {
    /// Waits until all slabs are scrubbed, after a recovery: how often each block is referred to is known then, and what kind of
    /// block it is if there is an algorithm map.
    pub async fn scrubbed(&self) -> Result<(), Error> {
        self.depot.scrubbed().await
    }

    /// Whether each slab has an algorithm map.
    pub fn has_algorithm_map(&self) -> bool {
        self.depot.has_algorithm_map()
    }

    /// Whether an upgrade gives each slab an algorithm map: there is none, and slabs are such that it fits.
    pub fn takes_algorithm_map(&self) -> bool {
        !self.has_algorithm_map() && self.depot.is_convertible()
    }

    /// How many blocks in use are of which kind. `None` without an algorithm map.
    pub fn blocks_by_code(&self) -> Option<BlocksByCode> {
        self.depot.blocks_by_code()
    }

    /// Gives each slab an algorithm map. The super block gets it together with the flags `flags`.
    ///
    /// # Errors
    ///
    /// [`Error::Busy`] if the volume is not running. After another error the volume goes on
    /// without a map, or is read-only.
    pub(super) async fn add_algorithm_map(&self, flags: RequiredFlags) -> Result<(), Error> {
        self.be_convertible().await?;
        {
            // Whoever has just stored a compressed block has to have it mapped before account is kept, to be found by the walk.
            let _pause = self.activity.pause();
            self.settle().await;
            self.activity.idle().await;
            self.depot.track_codes()?;
        }
        let result = self.add_map_to_tracked(flags).await;
        if result.is_err() {
            self.depot.forget_codes();
        }
        result
    }

    async fn add_map_to_tracked(&self, flags: RequiredFlags) -> Result<(), Error> {
        self.note_compressed_blocks().await?;
        let _pause = self.activity.pause();
        self.settle().await;
        self.activity.idle().await;
        self.convert_depot(|content| {
            let now = content.required.unwrap_or_default();
            content.required = Some(now.with(flags).with(RequiredFlags::SLAB_MAP));
            if let Some(depot) = content.slab_depot.with_map() {
                content.slab_depot = depot;
            }
        })
        .await
    }

    /// Takes the algorithm map of each slab away, in one write with `change`. No request is worked on; the caller sees to that.
    pub(super) async fn remove_algorithm_map(
        &self,
        change: impl Fn(&mut SuperBlock) + Send + Sync,
    ) -> Result<(), Error> {
        self.be_convertible().await?;
        self.convert_depot(|content| {
            let journal = content.config.slab_journal_blocks;
            if let Some(depot) = content.slab_depot.without_map(journal) {
                content.slab_depot = depot;
            }
            change(content);
        })
        .await
    }

    async fn be_convertible(&self) -> Result<(), Error> {
        self.store.read_only().check()?;
        if !self.is_running() {
            return Err(Error::Busy);
        }
        self.scrubbed().await
    }

    /// Saves the volume, converts the depot, and marks the volume as in use again. Requests are held back.
    async fn convert_depot(
        &self,
        change: impl Fn(&mut SuperBlock) + Send + Sync,
    ) -> Result<(), Error> {
        self.save().await?;
        match self.depot.prepare_conversion().await {
            Ok(conversion) => {
                self.mark_dirty_and(change).await?;
                self.depot.finish_conversion(conversion)
            }
            Err(error @ (Error::NoMemory | Error::Busy)) => {
                self.mark_dirty_and(|_| ()).await?;
                Err(error)
            }
            Err(error) => self
                .store
                .read_only()
                .guard(Err(error), "converting the slabs"),
        }
    }

    /// Visits every logical block, and notes the compressed block that it is stored in.
    async fn note_compressed_blocks(&self) -> Result<(), Error> {
        let end = self.logical_blocks();
        let mut lbn = 0;
        while lbn < end {
            if self.block_map.find(Lbn::new(lbn)).await?.is_none() {
                // A leaf that does not exist: on to the next.
                let slot = lbn.checked_rem(LEAF).unwrap_or(0);
                lbn = lbn.saturating_add(LEAF.saturating_sub(slot));
                continue;
            }
            if self.compressed_mapping(Lbn::new(lbn)).await?.is_some() {
                self.note_compressed_block(Lbn::new(lbn)).await?;
            }
            lbn = lbn.saturating_add(1);
        }
        Ok(())
    }

    /// Notes the compressed block that a logical block is stored in, if it still is: its lock keeps the block in use meanwhile.
    async fn note_compressed_block(&self, lbn: Lbn) -> Result<(), Error> {
        let lock = self.lock(lbn).await;
        if let Some(mapping) = self.compressed_mapping(lbn).await? {
            // Not even on a volume of the original format are all of them ours: dm-vdo had other blocks in the making.
            if self.depot.block_code(mapping.pbn) == Some(BlockCode::NONE) {
                let code = self.code_of(mapping.pbn).await?;
                self.depot.note_compressed(mapping.pbn, code)?;
            }
        }
        drop(lock);
        Ok(())
    }

    async fn compressed_mapping(&self, lbn: Lbn) -> Result<Option<Mapping>, Error> {
        let Some(location) = self.block_map.find(lbn).await? else {
            return Ok(None);
        };
        match self.block_map.get(location).await {
            Ok(mapping) => Ok(Some(mapping).filter(|mapping| {
                matches!(mapping.state, MappingState::Compressed(_))
                    && self.depot.is_data_block(mapping.pbn)
            })),
            // Nobody can read it, whatever its format.
            Err(Error::BadMapping) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
