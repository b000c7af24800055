// SPDX-License-Identifier: GPL-2.0

//! The tasks that run as long as the volume does.

use super::request::Buffers;
use super::Volume;
use crate::engine::depot;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::recovery_journal_entry::{JournalEntry, JournalOperation};
use crate::engine::format::slab_journal::{expand_point, ReferenceUpdate};
use crate::engine::journal::Batch;
use crate::engine::units::JournalPoint;
use crate::rt::{Arc, Page};

/// Tasks that write block map pages.
const PAGE_WRITERS: usize = 16;

impl<E: Env> Volume<E> {
    /// Starts the tasks that bring metadata to the disk. Called once, before the volume is loaded.
    pub(super) fn spawn_writers(this: &Arc<Self>) -> Result<(), Error> {
        spawn(
            this,
            |volume| async move { volume.run_read_only_keeper().await },
        )?;
        for _ in 0..PAGE_WRITERS {
            let page = Page::new()?;
            spawn(this, move |volume| async move {
                volume.block_map.run_writer(page).await
            })?;
        }
        for _ in 0..depot::WRITERS {
            spawn(
                this,
                |volume| async move { volume.depot.run_writer().await },
            )?;
        }
        Ok(())
    }

    /// Starts all other tasks. Called once, when the volume is loaded.
    pub(super) fn spawn_tasks(this: &Arc<Self>) -> Result<(), Error> {
        let page = Page::new()?;
        let batch = Batch::new()?;
        spawn(this, move |volume| async move {
            volume.journal.run_committer(page).await
        })?;
        spawn(this, move |volume| async move {
            volume.run_applier(batch).await
        })?;
        spawn(
            this,
            |volume| async move { volume.journal.run_reaper().await },
        )?;
        spawn(
            this,
            |volume| async move { volume.run_slab_pressure().await },
        )?;
        for _ in 0..this.parameters.requests {
            let buffers = Buffers::new()?;
            spawn(this, move |volume| Self::serve_requests(volume, buffers))?;
        }
        if this.depot.unscrubbed_slabs() > 0 {
            for _ in 0..depot::SCRUBBERS {
                let memory = this.depot.scrub_memory()?;
                spawn(this, move |volume| async move {
                    volume.depot.run_scrubber(memory).await
                })?;
            }
        }
        Ok(())
    }

    /// Passes committed journal entries to the slabs: one task, in the order of the journal (W3), and only once they are
    /// durable (W2, W9).
    async fn run_applier(&self, mut batch: Batch) {
        while self.journal.next_batch(&mut batch).await {
            for (point, entry) in batch.entries() {
                if let Err(error) = self.apply(*point, entry).await {
                    self.journal.fail(error, "counting references");
                    return;
                }
            }
            self.journal.applied(&batch);
            self.block_map.era_advanced(self.journal.tail());
        }
    }

    /// Increments before decrements (W3): a block that moves within a slab never looks free in between.
    async fn apply(&self, point: JournalPoint, entry: &JournalEntry) -> Result<(), Error> {
        let increment = match entry.operation {
            JournalOperation::DataRemap => ReferenceUpdate::Increment,
            JournalOperation::BlockMapRemap => ReferenceUpdate::BlockMapIncrement,
        };
        if entry.mapping.has_block() {
            self.depot
                .apply(expand_point(point, increment), entry.mapping.pbn, increment)
                .await?;
        }
        if entry.unmapping.has_block() {
            let decrement = ReferenceUpdate::Decrement;
            self.depot
                .apply(
                    expand_point(point, decrement),
                    entry.unmapping.pbn,
                    decrement,
                )
                .await?;
        }
        Ok(())
    }

    async fn run_slab_pressure(&self) {
        while let Some(sequence) = self.journal.slab_pressure().await {
            self.store
                .statistics()
                .journal
                .slab_journal_commits_requested
                .increment();
            self.depot.commit_oldest(sequence).await;
        }
    }

    /// Makes read-only mode outlive the machine, and lets go of everybody who waits for what will not happen.
    async fn run_read_only_keeper(&self) {
        if !self.store.read_only().entered().await {
            return;
        }
        self.journal.fail(Error::ReadOnly, "read-only mode");
        self.block_map.abandon();
        self.depot.abandon();
        self.packer.flush();
        self.stay_read_only().await;
    }
}

/// Starts one task with a share in the volume.
///
/// Not inlined: the caller, who goes on to do I/O, would have room for all futures at once in its stack frame.
#[inline(never)]
fn spawn<E, F, T>(volume: &Arc<Volume<E>>, task: F) -> Result<(), Error>
where
    E: Env,
    F: FnOnce(Arc<Volume<E>>) -> T,
    T: core::future::Future<Output = ()> + Send + 'static,
{
    Ok(volume.store.spawn(task(Arc::clone(volume)))?)
}
