// SPDX-License-Identifier: GPL-2.0

//! What is freed after its owner has gone, because a device still had it.
//!
//! Such memory pins the module: callbacks into code that is gone would be worse than a module that cannot be unloaded. When
//! the device has given it back, a work item frees it and lets the module go. The module destroys the work queue when it
//! is unloaded, so that the last work item has returned by then. No locks.

use super::noio::noio;
use crate::bindings;
use core::ptr::{null_mut, NonNull};
use core::sync::atomic::{AtomicPtr, Ordering};
use kernel::prelude::*;
use kernel::workqueue::{Queue, RawWorkItem};

/// The work queue, while there is a [`LateQueue`].
static QUEUE: AtomicPtr<bindings::workqueue_struct> = AtomicPtr::new(null_mut());

/// Has to live as long as the module. There is one at a time.
pub struct LateQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: work queues may be used from any thread.
unsafe impl Send for LateQueue {}
// SAFETY: as above.
unsafe impl Sync for LateQueue {}

impl LateQueue {
    /// Process context.
    pub fn new() -> Result<Self> {
        let name = c"rvdo-late".as_char_ptr();
        // SAFETY: `name` is a string, and is copied.
        let allocate = || unsafe { bindings::rvdo_alloc_workqueue(name, 1) };
        let queue = noio(allocate);
        let queue = NonNull::new(queue).ok_or(ENOMEM)?;
        QUEUE.store(queue.as_ptr(), Ordering::Release);
        Ok(Self(queue))
    }
}

impl Drop for LateQueue {
    /// Waits until the last work item has returned, and the last callback.
    fn drop(&mut self) {
        QUEUE.store(null_mut(), Ordering::Release);
        // SAFETY: it came from `rvdo_alloc_workqueue`. What could be enqueued pins the module, so nothing will be.
        unsafe { bindings::rvdo_destroy_workqueue(self.0.as_ptr()) };
        // A callback that has said that it is through may still have to return from our code, in a thread of its driver that
        // can be preempted there.
        // SAFETY: process context.
        unsafe { bindings::rvdo_synchronize_rcu_tasks() };
    }
}

/// Waits until the callbacks that run now have returned, if they cannot be preempted, and their caller with them: some drivers
/// look at a request once more behind its callback. Process context.
pub(super) fn callbacks_return() {
    // SAFETY: process context.
    unsafe { bindings::rvdo_synchronize_rcu() };
}

/// Whether there is a queue.
pub(super) fn is_ready() -> Result {
    match QUEUE.load(Ordering::Acquire).is_null() {
        false => Ok(()),
        true => Err(ENODEV),
    }
}

/// Runs `item`. Any context. The module has been pinned.
pub(super) fn enqueue<const ID: u64>(item: impl RawWorkItem<ID> + Send + 'static) {
    let queue = QUEUE.load(Ordering::Acquire);
    if queue.is_null() {
        // Cannot be: only a module that is not pinned has lost its queue. To keep it for ever is the safe mistake.
        core::mem::forget(item);
        return;
    }
    // SAFETY: by the above, it is destroyed only when the module is not pinned any more.
    let queue = unsafe { Queue::from_raw(queue.cast()) };
    let _ = queue.enqueue(item);
}

/// Keeps the module from being unloaded. The caller knows that it is not being unloaded now.
pub(super) fn pin_module() {
    // SAFETY: no requirements but the one above.
    unsafe { bindings::rvdo_pin_module() };
}

/// Ends one [`pin_module`]. To be called by a work item of [`enqueue`] alone.
pub(super) fn unpin_module() {
    // SAFETY: pinned; and unloading waits for the work item.
    unsafe { bindings::rvdo_unpin_module() };
}
