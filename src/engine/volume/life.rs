// SPDX-License-Identifier: GPL-2.0

//! Loading, suspending, resuming and stopping a volume.
//!
//! The target calls these one at a time, from process context; [`Lifecycle`] refuses what comes out of order.

use super::Volume;
use crate::engine::depot::LoadState;
use crate::engine::env::{Env, Intake};
use crate::engine::error::Error;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::format::volume_state::VolumeState;
use crate::rt::{AllocError, Arc, SpinLock};

/// How far a suspend goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SuspendKind {
    /// Everything is saved; the volume on disk is clean.
    Save,
    /// Requests are finished, nothing else.
    NoFlush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Opened, never resumed.
    Opened,
    Running,
    Suspended,
    /// Suspended, and clean on disk.
    Saved,
    Stopped,
    /// On its way from one to another.
    Changing,
}

/// Where a volume is in its life.
pub(super) struct Lifecycle(SpinLock<Phase>);

impl Lifecycle {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self(SpinLock::new(Phase::Opened)?))
    }

    fn begin(&self) -> Result<Phase, Error> {
        let mut phase = self.0.lock();
        match *phase {
            Phase::Changing => Err(Error::Busy),
            Phase::Stopped => Err(Error::ShuttingDown),
            old => {
                *phase = Phase::Changing;
                Ok(old)
            }
        }
    }

    fn set(&self, phase: Phase) {
        *self.0.lock() = phase;
    }
}

impl<E: Env> Volume<E> {
    /// Starts the volume, or goes on after a suspend.
    ///
    /// # Errors
    ///
    /// Loading failed; the volume can only be stopped then.
    pub async fn resume(this: &Arc<Self>) -> Result<(), Error> {
        let phase = this.lifecycle.begin()?;
        let result = match phase {
            Phase::Opened => Self::load(this).await,
            Phase::Saved => this.mark_dirty().await,
            // A table with a larger logical size: the super block has to know before anything is written there.
            _ if this.has_grown() => this.mark_dirty().await,
            _ => Ok(()),
        };
        this.lifecycle.set(match (phase, result) {
            (_, Ok(())) => Phase::Running,
            // Some tasks may run: only a stop is left.
            (Phase::Opened, Err(_)) => Phase::Opened,
            (phase, Err(_)) => phase,
        });
        result
    }

    async fn load(this: &Arc<Self>) -> Result<(), Error> {
        let state = match this.super_block.content().state {
            VolumeState::New => LoadState::New,
            _ => LoadState::Clean,
        };
        this.depot.load(state).await?;
        this.mark_dirty().await?;
        Self::spawn_tasks(this)
    }

    fn has_grown(&self) -> bool {
        self.super_block.content().config.logical_blocks < self.logical_blocks()
    }

    /// From here on a crash means recovery. What the summary says must be stable first (format.md §11.7): the write flushes.
    async fn mark_dirty(&self) -> Result<(), Error> {
        let update = self.super_block.update(|content| {
            self.fill_in(content);
            content.state = VolumeState::Dirty;
        });
        self.store
            .read_only()
            .guard(update.await, "marking the volume as in use")
    }

    /// Puts what has changed since the load into the super block.
    fn fill_in(&self, content: &mut SuperBlock) {
        let (logical_blocks_used, block_map_data_blocks) = self.journal.usage();
        content.config.logical_blocks = self.logical_blocks();
        content.recovery_journal.journal_start = self.journal.start();
        content.recovery_journal.logical_blocks_used = logical_blocks_used;
        content.recovery_journal.block_map_data_blocks = block_map_data_blocks;
        // One physical zone: copy 0 of the summary is the one we maintain.
        content.slab_depot.zone_count = 1;
    }

    /// Finishes every request, and saves the volume if `kind` says so. Device-mapper sends no request meanwhile.
    pub async fn suspend(&self, kind: SuspendKind) -> Result<(), Error> {
        let phase = self.lifecycle.begin()?;
        if phase != Phase::Running {
            self.lifecycle.set(phase);
            return Ok(());
        }
        self.settle().await;
        self.activity.idle().await;
        let result = match kind {
            SuspendKind::Save if !self.store.read_only().is_set() => self.save().await,
            _ => Ok(false),
        };
        self.lifecycle.set(if result == Ok(true) {
            Phase::Saved
        } else {
            Phase::Suspended
        });
        result.map(|_| ())
    }

    /// Writes everything that is only in memory, then one sector that says so. `Ok(true)`: the volume on disk is clean.
    async fn save(&self) -> Result<bool, Error> {
        let saved = async {
            self.journal.drain().await?;
            self.block_map.drain().await?;
            self.depot.drain().await?;
            self.journal.forget_saved();
            // The preflush of this write covers all of the above.
            self.super_block
                .update(|content| {
                    self.fill_in(content);
                    content.state = VolumeState::Clean;
                })
                .await
        };
        self.store
            .read_only()
            .guard(saved.await, "saving the volume")?;
        Ok(true)
    }

    /// Ends all tasks of the volume, which must be suspended or never resumed. The caller waits for the tasks.
    pub fn stop(&self) {
        self.lifecycle.set(Phase::Stopped);
        self.store.env().intake().close();
        self.journal.stop();
        self.block_map.stop();
        self.depot.stop();
        self.store.read_only().stop();
    }
}
