// SPDX-License-Identifier: GPL-2.0

//! The locks that may guard a [`wait_list`](super::wait_list): in the kernel a spinlock that disables interrupts, so that
//! a list may be woken in any context; on the host a mutex.

use super::wait_list::{Links, LinksLock};

#[cfg(MODULE)]
// SAFETY: the lock guards its one value, and the box never changes it for another.
unsafe impl LinksLock for core::pin::Pin<kernel::alloc::KBox<kernel::sync::SpinLockIrq<Links>>> {
    fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.lock())
    }
}

#[cfg(not(MODULE))]
// SAFETY: the mutex guards its one value.
unsafe impl LinksLock for std::sync::Mutex<Links> {
    fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        // A panic under the lock cannot leave the list half changed.
        f(&mut self
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner))
    }
}
