// SPDX-License-Identifier: GPL-2.0

//! Read-only mode: what a volume enters when going on could make things worse.
//!
//! Entered from anywhere, at any depth, under any lock of the engine; the first reason wins and is logged once. The volume's
//! keeper task notices and writes the state to the super block, so that the mode survives a restart.

use crate::engine::error::Error;
use crate::rt::atomic::{AtomicBool, Ordering};
use crate::rt::{spin_lock, AllocError, SpinLock, WaitList};

/// Why a volume became read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// What failed.
    pub error: Error,
    /// What the volume was doing.
    pub what: &'static str,
}

/// The read-only state of one volume.
///
/// Lock order: `reason` is taken with any other engine lock held and takes none.
pub struct ReadOnly {
    set: AtomicBool,
    stopped: AtomicBool,
    reason: SpinLock<Option<Reason>>,
    entered: WaitList,
}

impl ReadOnly {
    /// A volume that may be written.
    pub fn new() -> Result<Self, AllocError> {
        Ok(Self {
            set: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            reason: spin_lock!(None)?,
            entered: WaitList::new()?,
        })
    }

    /// Whether the volume is read-only.
    pub fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// `Err(ReadOnly)` if the volume is read-only.
    pub fn check(&self) -> Result<(), Error> {
        if self.is_set() {
            Err(Error::ReadOnly)
        } else {
            Ok(())
        }
    }

    /// The first reason, once the mode was entered.
    pub fn reason(&self) -> Option<Reason> {
        *self.reason.lock()
    }

    /// Makes the volume read-only because `error` happened during `what`.
    pub fn enter(&self, error: Error, what: &'static str) {
        {
            let mut reason = self.reason.lock();
            if reason.is_some() {
                return;
            }
            *reason = Some(Reason { error, what });
        }
        self.set.store(true, Ordering::Release);
        crate::rt::error!("entering read-only mode: {}: {}", what, error);
        self.entered.wake_all();
    }

    /// Enters the mode if `result` is an error, and passes the result on.
    pub fn guard<T, F: Into<Error> + Copy>(
        &self,
        result: Result<T, F>,
        what: &'static str,
    ) -> Result<T, Error> {
        result.map_err(|error| {
            let error = error.into();
            self.enter(error, what);
            error
        })
    }

    /// Waits until the mode is entered (`true`) or the volume stops (`false`).
    pub async fn entered(&self) -> bool {
        self.entered
            .wait_until(|| {
                if self.is_set() {
                    Some(true)
                } else if self.stopped.load(Ordering::Acquire) {
                    Some(false)
                } else {
                    None
                }
            })
            .await
    }

    /// Lets [`Self::entered`] return.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.entered.wake_all();
    }
}
