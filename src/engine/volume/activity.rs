// SPDX-License-Identifier: GPL-2.0

//! How many requests are being worked on, including those already acknowledged. A suspend waits until there are none; who has to
//! have the volume to himself while it runs pauses it.
//!
//! No lock: a request counts itself before it looks whether it may go on, and whoever pauses says so before he looks at the count.

use crate::rt::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::rt::{AllocError, WaitList};

/// Counts requests at work.
pub(super) struct Activity {
    running: AtomicU64,
    paused: AtomicBool,
    idle: WaitList,
    resumed: WaitList,
}

impl Activity {
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            running: AtomicU64::new(0),
            paused: AtomicBool::new(false),
            idle: WaitList::new()?,
            resumed: WaitList::new()?,
        })
    }

    /// Counts a request until the result is dropped. Waits while there is a pause.
    pub(super) async fn begin(&self) -> Active<'_> {
        loop {
            self.running.fetch_add(1, Ordering::SeqCst);
            let active = Active(self);
            if !self.paused.load(Ordering::SeqCst) {
                return active;
            }
            drop(active);
            self.resumed
                .wait_until(|| (!self.paused.load(Ordering::SeqCst)).then_some(()))
                .await;
        }
    }

    /// Lets no request begin until the result is dropped. Those that have begun go on, see [`Activity::idle`]. One pause at a time.
    pub(super) fn pause(&self) -> Pause<'_> {
        self.paused.store(true, Ordering::SeqCst);
        Pause(self)
    }

    /// Waits until no request is being worked on. None may arrive meanwhile.
    pub(super) async fn idle(&self) {
        self.idle
            .wait_until(|| (self.running.load(Ordering::SeqCst) == 0).then_some(()))
            .await;
    }
}

/// A request being worked on.
pub(super) struct Active<'a>(&'a Activity);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.idle.wake_all();
        }
    }
}

/// A time in which no request begins.
pub(super) struct Pause<'a>(&'a Activity);

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.paused.store(false, Ordering::SeqCst);
        self.0.resumed.wake_all();
    }
}
