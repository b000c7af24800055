// SPDX-License-Identifier: GPL-2.0

//! The spinlock and the wait list of the kernel.

use crate::kapi::lock_class::LockClass;
use crate::kapi::noio::noio;
use crate::kapi::wait_list::{self, Links};
use crate::rt::AllocError;
use core::fmt;
use core::future::Future;
use core::ops::{Deref, DerefMut};
use kernel::prelude::*;
use kernel::sync::{new_spinlock_irq, SpinLockIrq};

/// A free lock around a value, or an `AllocError`. Locks that are made at one place are of one class: lockdep takes them to
/// be alike, and no two of them may be held at a time.
macro_rules! spin_lock {
    ($value:expr) => {{
        static CLASS: $crate::kapi::lock_class::LockClass =
            $crate::kapi::lock_class::LockClass::new(::core::concat!(
                ::core::file!(),
                ":",
                ::core::line!(),
                "\0"
            ));
        $crate::rt::SpinLock::new($value, &CLASS)
    }};
}
pub(crate) use spin_lock;

/// Lets a lock hand out plain references whatever `T` is. Nothing pins the value inside.
struct Plain<T>(T);

impl<T> Unpin for Plain<T> {}

/// A lock held for a few instructions, never across an await and never in interrupt context.
pub struct SpinLock<T>(Pin<KBox<kernel::sync::SpinLock<Plain<T>>>>);

impl<T> SpinLock<T> {
    /// A free lock around `value`. For [`spin_lock!`](crate::rt::spin_lock).
    pub fn new(value: T, class: &'static LockClass) -> Result<Self, AllocError> {
        let lock = kernel::sync::SpinLock::new(Plain(value), class.name(), class.key());
        noio(|| KBox::pin_init(lock, GFP_KERNEL))
            .map(Self)
            .map_err(|_| AllocError)
    }

    /// Takes the lock.
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        SpinLockGuard(self.0.lock())
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// Access to the value of a [`SpinLock`], which is held as long as this lives.
pub struct SpinLockGuard<'a, T>(kernel::sync::SpinLockGuard<'a, Plain<T>>);

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0 .0
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0 .0
    }
}

/// Tasks that wait for a condition, first come first served.
pub struct WaitList(wait_list::WaitList<Pin<KBox<SpinLockIrq<Links>>>>);

impl WaitList {
    /// A list nobody waits on.
    pub fn new() -> Result<Self, AllocError> {
        let lock = new_spinlock_irq!(Links::EMPTY, "rvdo::WaitList");
        let lock = noio(|| KBox::pin_init(lock, GFP_KERNEL)).map_err(|_| AllocError)?;
        Ok(Self(wait_list::WaitList::new(lock)))
    }

    /// Waits until `condition` returns something, and returns that. Evaluated at every poll; may take spinlocks.
    pub fn wait_until<'a, T, F>(&'a self, condition: F) -> impl Future<Output = T> + Send + 'a
    where
        T: 'a,
        F: FnMut() -> Option<T> + Send + 'a,
    {
        self.0.wait_until(condition)
    }

    /// Wakes the longest waiting task, if there is one. In any context but NMI.
    pub fn wake_one(&self) {
        self.0.wake_one();
    }

    /// Wakes every task that waits now. In any context but NMI.
    pub fn wake_all(&self) {
        self.0.wake_all();
    }

    /// Whether nobody waits (which may change at any time).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for WaitList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitList").finish_non_exhaustive()
    }
}
