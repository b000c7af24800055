// SPDX-License-Identifier: GPL-2.0

//! More blocks for a volume.
//!
//! A suspended volume is saved; its recovery journal and slab summary are copied to where they are going to be, behind the end of the
//! volume as it is; then one write of the super block makes it the larger one. Power may fail whenever it likes: the volume is the
//! one or the other. What is in memory knows the old layout only, so the volume is over then, and what it has become is opened anew
//! ([`Volume::succeed`]).

use super::life::GrowthPermit;
use super::{OpenParameters, Volume};
use crate::engine::env::{Device, Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::layout::{Partition, PartitionId};
use crate::engine::format::slab_summary::forget_slabs_from;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::recovery::parallel::for_each;
use crate::rt::{Arc, Page};

/// Blocks that are copied at a time.
const COPIERS: usize = 64;

impl<E: Env> Volume<E> {
    /// Whether the volume can have `physical_blocks`.
    pub fn check_growth(&self, physical_blocks: u64) -> Result<(), Error> {
        if self.store.env().device().blocks() < physical_blocks {
            return Err(Error::Mismatch(
                "the device is smaller than the table line says",
            ));
        }
        self.super_block
            .content()
            .grown(&self.geometry, physical_blocks)?;
        Ok(())
    }

    /// Gives the suspended volume `physical_blocks`. Then only [`Volume::stop`] and [`Volume::succeed`] are left.
    ///
    /// # Errors
    ///
    /// The volume is as it was, and can go on, unless its super block could not be written: then it is read-only.
    pub async fn grow_physical(&self, physical_blocks: u64) -> Result<(), Error> {
        let permit = self.begin_growth().await?;
        self.check_growth(physical_blocks)?;
        let now = self.super_block.content();
        let grown = now.grown(&self.geometry, physical_blocks)?;
        self.move_part(PartitionId::RecoveryJournal, &now, &grown)
            .await?;
        self.move_part(PartitionId::SlabSummary, &now, &grown)
            .await?;
        // The preflush of this write covers the copies.
        let update = self.super_block.update(|content| *content = grown);
        self.store
            .read_only()
            .guard(update.await, "growing the volume")?;
        permit.outgrown();
        Ok(())
    }

    /// Ends a suspend that saved nothing with a save.
    async fn begin_growth(&self) -> Result<GrowthPermit<'_>, Error> {
        self.store.read_only().check()?;
        if self.depot.unscrubbed_slabs() > 0 {
            return Err(Error::Unsupported(
                "the volume is still recovering: grow it when it is done",
            ));
        }
        let mut permit = self.lifecycle.begin_growth()?;
        if !permit.is_saved() {
            self.save().await?;
            permit.saved();
        }
        Ok(permit)
    }

    /// Copies a part to where it is in the grown volume. The summary's copy knows the new slabs as unused ones.
    async fn move_part(
        &self,
        id: PartitionId,
        now: &SuperBlock,
        grown: &SuperBlock,
    ) -> Result<(), Error> {
        let (from, to): (Partition, Partition) =
            (now.layout.partition(id)?, grown.layout.partition(id)?);
        let new_slabs = (id == PartitionId::SlabSummary)
            .then_some((self.depot.slab_count(), now.slab_depot.slab_config));
        let class = match id {
            PartitionId::RecoveryJournal => IoClass::Journal,
            _ => IoClass::Metadata,
        };
        let blocks = usize::try_from(from.blocks).map_err(|_| Error::OutOfRange)?;
        let store = Arc::clone(&self.store);
        for_each(&self.store, blocks, COPIERS, move |index| {
            let store = Arc::clone(&store);
            async move {
                let block = |part: &Partition| {
                    let index = u64::try_from(index).ok()?;
                    part.block(index)
                };
                let (source, target) = block(&from).zip(block(&to)).ok_or(Error::OutOfRange)?;
                let (mut page, result) = store.read(source, Page::new()?, class).await;
                result?;
                if let Some((slabs, config)) = &new_slabs {
                    forget_slabs_from(&mut page, index, *slabs, config);
                }
                let (_, result) = store.write(target, page, class, WriteFlags::META).await;
                Ok(result?)
            }
        })
        .await
    }

    /// Opens what `old` has become by growing, after all its tasks have ended. Its counters and its deduplication index live on.
    pub async fn succeed(
        old: &Self,
        env: Arc<E>,
        parameters: OpenParameters,
    ) -> Result<Arc<Self>, Error> {
        let statistics = Arc::clone(&old.statistics);
        let index = Arc::clone(old.dedupe.index());
        Self::open_with(env, parameters, statistics, index).await
    }
}
