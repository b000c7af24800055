// SPDX-License-Identifier: GPL-2.0

//! The locks that may guard a [`wait_list`](super::wait_list): in the kernel a spinlock that disables interrupts, so that
//! a list may be woken in any context; on the host, which has no interrupts, a plain one.

use super::wait_list::{Links, LinksLock};

#[cfg(MODULE)]
// SAFETY: the lock guards its one value, and the box never changes it for another.
unsafe impl LinksLock for core::pin::Pin<kernel::alloc::KBox<kernel::sync::SpinLockIrq<Links>>> {
    fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
        f(&mut self.lock())
    }
}

#[cfg(not(MODULE))]
pub use self::host::LinksSpinLock;

#[cfg(not(MODULE))]
mod host {
    use super::{Links, LinksLock};
    use core::cell::UnsafeCell;
    use core::hint::spin_loop;
    use core::sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    };

    /// A spinlock.
    ///
    /// # Invariants
    ///
    /// `links` is accessed only by the thread that changed `taken` to true, until it changes it back.
    pub struct LinksSpinLock {
        taken: AtomicBool,
        links: UnsafeCell<Links>,
    }

    // SAFETY: by the invariant no two threads access `links` at a time, which is `Send`.
    unsafe impl Sync for LinksSpinLock {}

    impl LinksSpinLock {
        /// A free lock around the links of a list nobody waits on.
        pub const fn new() -> Self {
            Self {
                taken: AtomicBool::new(false),
                links: UnsafeCell::new(Links::EMPTY),
            }
        }
    }

    /// Frees the lock, also when what runs under it panics.
    struct Taken<'a>(&'a AtomicBool);

    impl Drop for Taken<'_> {
        fn drop(&mut self) {
            self.0.store(false, Release);
        }
    }

    // SAFETY: a lock has one value, and one thread at a time has the lock.
    unsafe impl LinksLock for LinksSpinLock {
        fn with<R>(&self, f: impl FnOnce(&mut Links) -> R) -> R {
            while self
                .taken
                .compare_exchange(false, true, Acquire, Relaxed)
                .is_err()
            {
                spin_loop();
            }
            let _taken = Taken(&self.taken);
            // SAFETY: by the invariant; this thread has the lock.
            f(unsafe { &mut *self.links.get() })
        }
    }
}
