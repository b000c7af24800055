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
use crate::engine::recovery::chain::Usage;
use crate::rt::atomic::{AtomicBool, Ordering};
use crate::rt::{spin_lock, AllocError, Arc, SpinLock};

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
    /// Could not be loaded.
    Failed(Error),
    Running,
    Suspended,
    /// Suspended, and clean on disk.
    Saved,
    Stopped,
    /// Superseded by the larger volume that is on the disk now.
    Outgrown,
    /// On its way from one to another.
    Changing,
}

/// Where a volume is in its life.
pub(super) struct Lifecycle {
    phase: SpinLock<Phase>,
    /// The volume was loaded.
    online: AtomicBool,
    outgrown: AtomicBool,
}

impl Lifecycle {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            phase: spin_lock!(Phase::Opened)?,
            online: AtomicBool::new(false),
            outgrown: AtomicBool::new(false),
        })
    }

    fn begin(&self) -> Result<Phase, Error> {
        let mut phase = self.phase.lock();
        match *phase {
            Phase::Changing => Err(Error::Busy),
            Phase::Stopped | Phase::Outgrown => Err(Error::ShuttingDown),
            Phase::Failed(error) => Err(error),
            old => {
                *phase = Phase::Changing;
                Ok(old)
            }
        }
    }

    fn is_running(&self) -> bool {
        *self.phase.lock() == Phase::Running
    }

    fn has_failed(&self) -> bool {
        matches!(*self.phase.lock(), Phase::Failed(_))
    }

    fn go_online(&self) {
        self.online.store(true, Ordering::Release);
    }

    fn is_online(&self) -> bool {
        self.online.load(Ordering::Acquire)
    }

    fn set(&self, phase: Phase) {
        *self.phase.lock() = phase;
    }

    /// Keeps everybody else away from a suspended volume.
    pub(super) fn begin_growth(&self) -> Result<GrowthPermit<'_>, Error> {
        let phase = self.begin()?;
        let permit = GrowthPermit {
            lifecycle: self,
            then: phase,
        };
        match phase {
            Phase::Suspended | Phase::Saved => Ok(permit),
            _ => Err(Error::Busy),
        }
    }
}

/// A suspended volume that is being given more blocks. Dropping it ends that.
pub(super) struct GrowthPermit<'a> {
    lifecycle: &'a Lifecycle,
    then: Phase,
}

impl GrowthPermit<'_> {
    /// Whether the volume is clean on disk.
    pub(super) fn is_saved(&self) -> bool {
        self.then == Phase::Saved
    }

    /// From here on it is.
    pub(super) fn saved(&mut self) {
        self.then = Phase::Saved;
    }

    /// The larger volume is on the disk.
    pub(super) fn outgrown(mut self) {
        self.lifecycle.outgrown.store(true, Ordering::Release);
        self.then = Phase::Outgrown;
    }
}

impl Drop for GrowthPermit<'_> {
    fn drop(&mut self) {
        self.lifecycle.set(self.then);
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
        this.depot.resume_scrubbing();
        let result = match phase {
            Phase::Opened => Self::load(this).await,
            // Nothing is to be written; what can be read is to be read.
            _ if this.store.read_only().is_set() => Ok(()),
            Phase::Saved => this.mark_dirty().await,
            // A table with a larger logical size: the super block has to know before anything is written there.
            _ if this.has_grown() => this.mark_dirty().await,
            _ => Ok(()),
        };
        this.lifecycle.set(match (phase, result) {
            (_, Ok(())) => Phase::Running,
            // Some tasks may run: only a stop is left.
            (Phase::Opened, Err(error)) => Phase::Failed(error),
            (phase, Err(_)) => phase,
        });
        result
    }

    /// Does what the state of the volume on disk asks for, and starts the tasks.
    ///
    /// A volume whose metadata contradict each other comes up in read-only mode. What may be better next time - the device
    /// fails, memory is short - or needs somebody to do something first leaves the volume as it is, and is an error here.
    async fn load(this: &Arc<Self>) -> Result<(), Error> {
        let state = this.super_block.content().state;
        let read_only = this.store.read_only();
        Self::spawn_writers(this)?;
        let loaded = match state {
            VolumeState::New => this.load_depot(LoadState::New).await,
            VolumeState::Clean => this.load_depot(LoadState::Clean).await,
            VolumeState::Recovering => this.load_depot(LoadState::Recovering).await,
            VolumeState::Dirty | VolumeState::Replaying => Self::recover(this).await,
            VolumeState::ForceRebuild | VolumeState::RebuildForUpgrade => Self::rebuild(this).await,
            VolumeState::ReadOnly => {
                read_only.enter(
                    Error::ReadOnly,
                    "loading a volume that was left in this mode",
                );
                Ok(())
            }
        };
        let loaded = match (loaded, read_only.reason()) {
            // Whoever came across the first error knows best.
            (Err(Error::ReadOnly), Some(reason)) => Err(reason.error),
            (loaded, _) => loaded,
        };
        match loaded {
            Ok(()) => {}
            Err(error @ (Error::Corrupt(_) | Error::Format(_) | Error::BadMapping))
                if !state.needs_rebuild() =>
            {
                read_only.enter(error, "loading the volume");
            }
            Err(error) => return Err(error),
        }
        Self::spawn_tasks(this)?;
        this.lifecycle.go_online();
        if read_only.is_set() {
            this.stay_read_only().await;
        }
        Ok(())
    }

    async fn load_depot(&self, state: LoadState) -> Result<(), Error> {
        let journal = self.super_block.content().recovery_journal;
        self.check_usage((journal.logical_blocks_used, journal.block_map_data_blocks))?;
        self.depot.load(state).await?;
        self.mark_dirty().await
    }

    /// Checks that no more blocks are in use than there are. Who believes it would tell its users of space that nobody has.
    pub(super) fn check_usage(&self, usage: Usage) -> Result<(), Error> {
        let (logical_blocks_used, block_map_data_blocks) = usage;
        if logical_blocks_used > self.logical_blocks()
            || block_map_data_blocks > self.depot.data_blocks()
        {
            return Err(Error::Corrupt(
                "more blocks are counted as used than the volume has",
            ));
        }
        Ok(())
    }

    /// Makes read-only mode outlive the machine, once the volume is in use. Before that, whatever went wrong while it was loaded
    /// may go better next time.
    pub(super) async fn stay_read_only(&self) {
        let state = self.super_block.content().state;
        let is_known = state == VolumeState::ReadOnly || state.needs_rebuild();
        if !self.lifecycle.is_online() || is_known {
            return;
        }
        let update = self
            .super_block
            .update(|content| content.state = VolumeState::ReadOnly);
        if let Err(error) = update.await {
            crate::rt::error!("the read-only state could not be saved: {}", error);
        }
    }

    /// Whether the volume is in use, and not on its way to something else.
    pub(super) fn is_running(&self) -> bool {
        self.lifecycle.is_running()
    }

    /// Whether the volume has become a larger one, which is to be opened in its place.
    pub fn is_outgrown(&self) -> bool {
        self.lifecycle.outgrown.load(Ordering::Acquire)
    }

    fn has_grown(&self) -> bool {
        self.super_block.content().config.logical_blocks < self.logical_blocks()
    }

    /// From here on a crash means recovery. What the summary says must be stable first (format.md §11.7): the write flushes.
    async fn mark_dirty(&self) -> Result<(), Error> {
        self.mark_dirty_and(|_| ()).await
    }

    /// The same, together with another change.
    pub(super) async fn mark_dirty_and(
        &self,
        change: impl Fn(&mut SuperBlock) + Send + Sync,
    ) -> Result<(), Error> {
        self.store.read_only().check()?;
        let update = self.super_block.update(|content| {
            self.fill_in(content);
            change(content);
            content.state = self.unless_read_only(VolumeState::Dirty);
        });
        self.store
            .read_only()
            .guard(update.await, "marking the volume as in use")
    }

    /// The state to write. Read-only mode may be entered at any moment, and must not be written over.
    fn unless_read_only(&self, state: VolumeState) -> VolumeState {
        if self.store.read_only().is_set() {
            VolumeState::ReadOnly
        } else {
            state
        }
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
        let phase = match self.lifecycle.begin() {
            // Nothing to save, and device-mapper suspends before it removes.
            Err(_) if self.lifecycle.has_failed() => return Ok(()),
            begun => begun?,
        };
        if phase != Phase::Running {
            self.lifecycle.set(phase);
            return Ok(());
        }
        self.settle().await;
        self.activity.idle().await;
        self.depot.pause_scrubbing().await;
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
    pub(super) async fn save(&self) -> Result<bool, Error> {
        let saved = async {
            self.journal.drain().await?;
            self.block_map.drain().await?;
            self.depot.drain().await?;
            self.journal.forget_saved();
            let state = match self.depot.unscrubbed_slabs() {
                0 => VolumeState::Clean,
                _ => VolumeState::Recovering,
            };
            // The preflush of this write covers all of the above.
            self.super_block
                .update(|content| {
                    self.fill_in(content);
                    content.state = self.unless_read_only(state);
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
