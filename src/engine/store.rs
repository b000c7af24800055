// SPDX-License-Identifier: GPL-2.0

//! The device as the volume numbers it.
//!
//! Physical block numbers are moved by the geometry's bio offset, bounds are checked, bios are counted, and cache flushes are
//! shared: every caller that asks before a flush starts gets the same one.
//!
//! Lock order: `flushes` takes no other lock.

use crate::engine::env::{Device, Env, IoClass, IoError, WriteFlags};
use crate::engine::read_only::ReadOnly;
use crate::engine::statistics::Statistics;
use crate::engine::units::{DeviceBlock, Pbn};
use crate::rt::{spin_lock, AllocError, Arc, Page, SpinLock, WaitList};

/// Flushes by number: number `n` is the `n`th that was started.
struct Flushes {
    started: u64,
    finished: u64,
    running: bool,
    /// The last flush that failed, and how.
    failed: Option<(u64, IoError)>,
}

/// What a caller of [`Store::flush`] does next.
enum Turn {
    Lead(u64),
    Done(Result<(), IoError>),
}

/// A volume's device.
pub struct Store<E: Env> {
    env: Arc<E>,
    bio_offset: u64,
    statistics: Arc<Statistics>,
    read_only: ReadOnly,
    flushes: SpinLock<Flushes>,
    flush_turn: WaitList,
}

impl<E: Env> Store<E> {
    /// A store over the device of `env`; block `pbn` of the volume is device block `pbn - bio_offset`.
    pub fn new(
        env: Arc<E>,
        bio_offset: u64,
        statistics: Arc<Statistics>,
    ) -> Result<Self, AllocError> {
        Ok(Self {
            env,
            bio_offset,
            statistics,
            read_only: ReadOnly::new()?,
            flushes: spin_lock!(Flushes {
                started: 0,
                finished: 0,
                running: false,
                failed: None,
            })?,
            flush_turn: WaitList::new()?,
        })
    }

    /// The outside world.
    pub fn env(&self) -> &E {
        &self.env
    }

    /// The codec of the table line.
    pub fn codec(&self) -> &E::Codec {
        self.env.codec()
    }

    /// The volume's counters.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The volume's read-only mode.
    pub fn read_only(&self) -> &ReadOnly {
        &self.read_only
    }

    /// Starts a task of the volume.
    pub fn spawn(
        &self,
        task: impl core::future::Future<Output = ()> + Send + 'static,
    ) -> Result<(), AllocError> {
        self.env.spawn(task)
    }

    /// Reads one block.
    pub async fn read(&self, pbn: Pbn, page: Page, class: IoClass) -> (Page, Result<(), IoError>) {
        let Some(block) = self.locate(pbn) else {
            return (page, Err(IoError::Io));
        };
        self.statistics.bio_out_read(class);
        let (page, result) = self.env.device().read(block, page, class).await;
        self.statistics.bio_out_completed_read(class);
        (page, result)
    }

    /// Writes one block.
    pub async fn write(
        &self,
        pbn: Pbn,
        page: Page,
        class: IoClass,
        flags: WriteFlags,
    ) -> (Page, Result<(), IoError>) {
        let Some(block) = self.locate(pbn) else {
            return (page, Err(IoError::Io));
        };
        self.statistics.bio_out_write(class, flags);
        let (page, result) = self.env.device().write(block, page, class, flags).await;
        self.statistics.bio_out_completed_write(class, flags);
        (page, result)
    }

    /// Makes everything that had completed before this call stable.
    ///
    /// The flush that is waited for started after the call, so a flush already running is not good enough. All callers that
    /// came before it started share it and its result.
    pub async fn flush(&self) -> Result<(), IoError> {
        // A flush that is running now may have been sent before our writes completed: the one after it will do.
        let needed = {
            let flushes = self.flushes.lock();
            flushes.started.wrapping_add(1)
        };
        let turn = self
            .flush_turn
            .wait_until(|| {
                let mut flushes = self.flushes.lock();
                if flushes.finished >= needed {
                    // A later success does not bring back what a failed flush lost.
                    return Some(Turn::Done(match flushes.failed {
                        Some((number, error)) if number >= needed => Err(error),
                        _ => Ok(()),
                    }));
                }
                if flushes.running {
                    return None;
                }
                flushes.running = true;
                flushes.started = flushes.started.wrapping_add(1);
                Some(Turn::Lead(flushes.started))
            })
            .await;
        match turn {
            Turn::Done(result) => result,
            Turn::Lead(number) => {
                let result = self.env.device().flush().await;
                {
                    let mut flushes = self.flushes.lock();
                    flushes.running = false;
                    flushes.finished = number;
                    if let Err(error) = result {
                        flushes.failed = Some((number, error));
                    }
                }
                self.flush_turn.wake_all();
                result
            }
        }
    }

    fn locate(&self, pbn: Pbn) -> Option<DeviceBlock> {
        let block = pbn.get().checked_sub(self.bio_offset)?;
        (block < self.env.device().blocks()).then_some(DeviceBlock::new(block))
    }
}
