// SPDX-License-Identifier: GPL-2.0

//! The depot of a volume that was not saved.
//!
//! First the journal of every slab is found, then the recovery journal's entries that are not in it are added, in the order and at
//! the positions that they had or would have had. A commit point in a reference block therefore means the same before and after.
//! Nothing else of the slabs is touched until the recovery journal has been given up; after a crash in between the same is done
//! again, and what a slab journal already has is passed over by its recovery point.

use super::handle::{Depot, Inner};
use super::scrub::Scratch;
use super::slab::Status;
use super::SlabJournalLocks;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::recovery::parallel::for_each;
use crate::engine::units::{SequenceNumber, SlabNumber};

/// Slabs that are looked at at a time.
const FINDERS: usize = 32;

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// Finds the journals of all slabs. None is ready afterwards.
    pub(super) async fn find_slabs(&self) -> Result<(), Error> {
        let inner = self.inner.clone();
        let count = usize::try_from(self.slab_count()).map_err(|_| Error::NoMemory)?;
        for_each(&self.inner.store, count, FINDERS, move |index| {
            let inner = inner.clone();
            async move {
                let slab = u32::try_from(index).map_err(|_| Error::OutOfRange)?;
                let slab = SlabNumber::new(slab);
                inner.find_slab(slab).await.inspect_err(|error| {
                    crate::rt::error!("slab {}: {}", slab, error);
                })
            }
        })
        .await
    }

    /// Writes the journals of all slabs after a replay, and lets the slabs be used. The writers have to be running.
    ///
    /// What was written is stable after the next flush; the caller makes one before it gives the recovery journal up. Then it
    /// starts the scrubbers.
    pub async fn finish_replay(&self) -> Result<(), Error> {
        let newest = SequenceNumber::LIMIT.saturating_sub(1);
        self.commit_oldest(SequenceNumber::new(newest).ok_or(Error::OutOfRange)?)
            .await;
        self.inner.store.read_only().check()?;
        self.inner.begin_scrubbing()?;
        self.open()
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    async fn find_slab(&self, number: SlabNumber) -> Result<(), Error> {
        let geometry = self.blocks.geometry();
        let entry = self.summary.entry(number)?;
        let mut scratch = Scratch::new(0)?;
        let extent = self.find_journal(number, entry, &mut scratch).await?;
        let mut slab = self.blocks.slab(number)?.lock();
        slab.status = Status::Unscrubbed;
        slab.summary = entry;
        if let Some(extent) = extent {
            if extent.length()? > geometry.journal_blocks {
                return Err(Error::Corrupt("slab journal has overwritten its own head"));
            }
            slab.used = true;
            slab.journal
                .restart(geometry, extent.tail, extent.recovery_point);
            if entry.is_dirty {
                slab.journal.keep_from(extent.head);
            }
        }
        Ok(())
    }
}
