// SPDX-License-Identifier: GPL-2.0

//! Making the depot anew from the references that the block map makes.
//!
//! Everything that the depot has on disk is given up first: the summary says of every slab that it was never used, and the slab
//! journals are zeros. Then references are counted in memory, and in the end the counters of every slab that has any are written
//! with commit points before all others, and the summary calls the slab clean. The state of the volume says "rebuild" until
//! all that is durable, so after a crash it simply begins again.

use super::counters::updated_from_disk;
use super::handle::{Depot, Inner};
use super::load::LOADERS;
use super::SlabJournalLocks;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::slab_journal::ReferenceUpdate;
use crate::engine::format::BlockCode;
use crate::engine::recovery::parallel::for_each;
use crate::engine::units::{JournalPoint, Pbn, SequenceNumber, SlabNumber};
use crate::rt::{Arc, Page};

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// Gives up what is on disk. All counters are zero afterwards.
    pub(super) async fn begin_rebuild(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        let config = &inner.blocks.geometry().config;
        inner.summary.reset(&inner.store, config).await?;
        self.for_each_slab(|inner, slab| async move { inner.clear_journal(slab).await })
            .await
    }

    /// Counts one reference to `pbn`. An error if there cannot be another one of its kind.
    pub fn count_reference(&self, pbn: Pbn, update: ReferenceUpdate) -> Result<(), Error> {
        let blocks = &self.inner.blocks;
        let place = blocks.geometry().locate(pbn).ok_or(Error::BadMapping)?;
        let mut slab = blocks.slab(place.slab)?.lock();
        let counter = slab.counters.get(place.sbn).ok_or(Error::BadMapping)?;
        let counter = updated_from_disk(counter, update).map_err(|_| Error::BadMapping)?;
        slab.counters.set(place.sbn, counter);
        Ok(())
    }

    /// Notes that something refers to a fragment in `pbn`. What the fragments are is found out in the end.
    pub fn count_compressed(&self, pbn: Pbn) -> Result<(), Error> {
        let blocks = &self.inner.blocks;
        let geometry = blocks.geometry();
        let place = geometry.locate(pbn).ok_or(Error::BadMapping)?;
        let mut slab = blocks.slab(place.slab)?.lock();
        slab.set_code(
            geometry,
            place.sbn,
            BlockCode::UNKNOWN,
            SequenceNumber::FIRST,
        );
        Ok(())
    }

    /// Writes what was counted, and offers the free blocks.
    pub async fn finish_rebuild(&self) -> Result<(), Error> {
        self.for_each_slab(|inner, slab| async move { inner.write_rebuilt(slab).await })
            .await?;
        self.open()
    }

    pub(super) async fn for_each_slab<W>(
        &self,
        work: impl Fn(Arc<Inner<E, J>>, SlabNumber) -> W + Send + Sync + 'static,
    ) -> Result<(), Error>
    where
        W: core::future::Future<Output = Result<(), Error>> + Send + 'static,
    {
        let inner = self.inner.clone();
        let count = usize::try_from(self.slab_count()).map_err(|_| Error::NoMemory)?;
        let loaders = usize::try_from(LOADERS).unwrap_or(1);
        for_each(&self.inner.store, count, loaders, move |index| {
            let slab = SlabNumber::new(u32::try_from(index).unwrap_or(u32::MAX));
            work(inner.clone(), slab)
        })
        .await
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    async fn clear_journal(&self, number: SlabNumber) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        let mut page = Page::new()?;
        for position in 0..geometry.journal_blocks {
            let pbn = geometry.journal_block(number, position)?;
            let (written, result) = self
                .store
                .write(pbn, page, IoClass::Metadata, WriteFlags::META)
                .await;
            page = written;
            result?;
        }
        Ok(())
    }

    async fn write_rebuilt(&self, number: SlabNumber) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        self.find_codes(number).await?;
        {
            let mut slab = self.blocks.slab(number)?.lock();
            if slab.counters.free() == geometry.data_blocks {
                // As if it had never been used.
                return Ok(());
            }
            slab.used = true;
            slab.latest = JournalPoint::ZERO;
            slab.recount_codes();
            slab.references.mark_all_dirty(SequenceNumber::FIRST);
            let dirty = slab.references.dirty();
            slab.references.begin_batch(dirty);
        }
        let mut page = Page::new()?;
        loop {
            let taken = self
                .blocks
                .slab(number)?
                .lock()
                .take_stored_block(geometry, &mut page);
            let Some(block) = taken else {
                break;
            };
            let (written, result) = self.write_stored_block(number, block, page).await;
            page = written;
            result?;
        }
        let entry = {
            let mut slab = self.blocks.slab(number)?.lock();
            slab.references.end_batch();
            slab.rebuilt_summary(geometry)
        };
        // The update flushes first.
        self.summary.update(&self.store, number, entry).await
    }
}
