// SPDX-License-Identifier: GPL-2.0

//! How many requests are being worked on, including those already acknowledged. A suspend waits until there are none.

use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{AllocError, WaitList};

/// Counts requests at work.
pub(super) struct Activity {
    running: AtomicU64,
    idle: WaitList,
}

impl Activity {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            running: AtomicU64::new(0),
            idle: WaitList::new()?,
        })
    }

    /// Counts a request until the result is dropped.
    pub(super) fn begin(&self) -> Active<'_> {
        self.running.fetch_add(1, Ordering::AcqRel);
        Active(self)
    }

    /// Waits until no request is being worked on. None may arrive meanwhile.
    pub(super) async fn idle(&self) {
        self.idle
            .wait_until(|| (self.running.load(Ordering::Acquire) == 0).then_some(()))
            .await;
    }
}

/// A request being worked on.
pub(super) struct Active<'a>(&'a Activity);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.wake_all();
        }
    }
}
