// SPDX-License-Identifier: GPL-2.0

//! A timer that a task can await.
//!
//! The timer fires in softirq context, where it sets a flag and wakes. No lock but the wait list's own.

use super::noio::noio;
use crate::bindings;
use crate::rt::WaitList;
use core::ffi::c_void;
use core::future::Future;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use kernel::alloc::AllocError;
use kernel::prelude::*;

/// What the timer's handler touches.
struct Shared {
    fired: AtomicBool,
    waiters: WaitList,
}

/// A timer with jiffies as its grain. Made at load, started any number of times.
///
/// # Invariants
///
/// `timer` came from `rvdo_timer_create` with a pointer to the content of `shared`, which it outlives.
pub struct Timer {
    timer: NonNull<bindings::rvdo_timer>,
    shared: KBox<Shared>,
}

// SAFETY: a kernel timer may be used from any thread.
unsafe impl Send for Timer {}
// SAFETY: as above; `sleep` takes an exclusive reference.
unsafe impl Sync for Timer {}

impl Timer {
    /// A timer that is not running.
    pub fn new() -> Result<Self, AllocError> {
        let waiters = WaitList::new().map_err(|_| AllocError)?;
        let shared = noio(|| {
            KBox::new(
                Shared {
                    fired: AtomicBool::new(false),
                    waiters,
                },
                GFP_KERNEL,
            )
        })?;
        let context = core::ptr::from_ref::<Shared>(&shared)
            .cast_mut()
            .cast::<c_void>();
        // SAFETY: `fire` expects a pointer to a `Shared`; the box stays where it is until `drop` has stopped the timer.
        let timer = unsafe { bindings::rvdo_timer_create(Some(fire), context) };
        // INVARIANT: see above.
        Ok(Self {
            timer: NonNull::new(timer).ok_or(AllocError)?,
            shared,
        })
    }

    /// Waits for at least `delay_ms` milliseconds.
    pub fn sleep(&mut self, delay_ms: u32) -> impl Future<Output = ()> + Send + '_ {
        // A sleep that was dropped early left the timer running.
        // SAFETY: by the invariant.
        unsafe { bindings::rvdo_timer_stop(self.timer.as_ptr()) };
        self.shared.fired.store(false, Ordering::Relaxed);
        // SAFETY: by the invariant.
        unsafe { bindings::rvdo_timer_start(self.timer.as_ptr(), delay_ms) };
        let shared = &self.shared;
        shared
            .waiters
            .wait_until(|| shared.fired.load(Ordering::Acquire).then_some(()))
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // SAFETY: by the invariant; `fire` does not run any more afterwards, and `shared` may go.
        unsafe { bindings::rvdo_timer_destroy(self.timer.as_ptr()) };
    }
}

/// Called by the timer, in softirq context.
///
/// # Safety
///
/// `context` points to a live [`Shared`].
unsafe extern "C" fn fire(context: *mut c_void) {
    // SAFETY: by the contract.
    let shared = unsafe { &*context.cast::<Shared>() };
    shared.fired.store(true, Ordering::Release);
    shared.waiters.wake_all();
}
