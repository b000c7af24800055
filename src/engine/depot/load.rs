// SPDX-License-Identifier: GPL-2.0

//! Loading a depot: the summary first, then all slabs that were ever used, several at a time.

use super::handle::{Depot, Inner};
use super::scrub::Scratch;
use super::SlabJournalLocks;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::units::SlabNumber;
use crate::rt::atomic::{AtomicU32, Ordering};
use crate::rt::{spin_lock, Arc, SpinLock, WaitList};

/// Slabs that are loaded at a time.
pub(super) const LOADERS: u32 = 32;

/// What is known of the volume that the depot is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadState {
    /// Just formatted. Nothing that is in the depot or in its summary means anything.
    New,
    /// Saved. The recovery journal has nothing that the depot does not know.
    Clean,
    /// Saved before all slabs were scrubbed: like clean, but the rest is scrubbed while the volume is used.
    Recovering,
    /// Not saved. What the recovery journal has is to be passed to [`Depot::replay`].
    Crashed,
    /// All of it is to be made anew, see [`Depot::count_reference`].
    Rebuilding,
}

/// The slabs that are still to be loaded, shared by the loaders.
struct Loading {
    next: AtomicU32,
    /// Loaders that have not ended.
    running: AtomicU32,
    failed: SpinLock<Option<Error>>,
    ended: WaitList,
}

impl Loading {
    fn fail(&self, error: Error) {
        self.failed.lock().get_or_insert(error);
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::AcqRel);
        self.ended.wake_all();
    }
}

impl<E: Env, J: SlabJournalLocks> Depot<E, J> {
    /// Brings the depot into memory and offers its free blocks for allocation.
    ///
    /// Called once, before anything else. Dirty slabs are scrubbed, so afterwards all are clean. The caller writes the super
    /// block, behind a flush, before it uses the depot.
    pub async fn load(&self, state: LoadState) -> Result<(), Error> {
        let inner = &*self.inner;
        match state {
            LoadState::New => {
                let config = &inner.blocks.geometry().config;
                inner.summary.reset(&inner.store, config).await?;
            }
            LoadState::Clean => {
                inner.summary.load(&inner.store).await?;
                self.load_slabs().await?;
            }
            LoadState::Recovering => {
                inner.summary.load(&inner.store).await?;
                self.find_slabs().await?;
                inner.begin_scrubbing()?;
            }
            // Blocks are offered when the replay is finished.
            LoadState::Crashed => {
                inner.summary.load(&inner.store).await?;
                return self.find_slabs().await;
            }
            LoadState::Rebuilding => return self.begin_rebuild().await,
        }
        self.open()
    }

    /// Offers the blocks of all slabs that are ready.
    pub(super) fn open(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        let statistics = &inner.store.statistics().allocator;
        statistics.slab_count.set(self.slab_count().into());
        inner.blocks.open()
    }

    /// Loads all slabs, and waits until that is done or has failed.
    async fn load_slabs(&self) -> Result<(), Error> {
        let loaders = LOADERS.min(self.slab_count());
        let loading = Arc::new(Loading {
            next: AtomicU32::new(0),
            running: AtomicU32::new(loaders),
            failed: spin_lock!(None)?,
            ended: WaitList::new()?,
        })?;
        for _ in 0..loaders {
            let (inner, shared) = (self.inner.clone(), loading.clone());
            let started = self
                .inner
                .store
                .spawn(async move { inner.run_loader(&shared).await });
            if let Err(error) = started {
                loading.fail(error.into());
                loading.end();
            }
        }
        loading
            .ended
            .wait_until(|| (loading.running.load(Ordering::Acquire) == 0).then_some(()))
            .await;
        let failed = *loading.failed.lock();
        failed.map_or(Ok(()), Err)
    }
}

impl<E: Env, J: SlabJournalLocks> Inner<E, J> {
    async fn run_loader(&self, loading: &Loading) {
        match Scratch::new(self.blocks.geometry().stored_blocks()) {
            Ok(mut scratch) => self.load_some(loading, &mut scratch).await,
            Err(error) => loading.fail(error),
        }
        loading.end();
    }

    /// Loads slabs until there are no more, or something has failed.
    async fn load_some(&self, loading: &Loading, scratch: &mut Scratch) {
        while loading.failed.lock().is_none() {
            let slab = loading.next.fetch_add(1, Ordering::Relaxed);
            if slab >= self.blocks.geometry().slab_count() {
                return;
            }
            let slab = SlabNumber::new(slab);
            if let Err(error) = self.load_slab(slab, scratch).await {
                crate::rt::error!("slab {}: {}", slab, error);
                loading.fail(error);
            }
        }
    }
}
