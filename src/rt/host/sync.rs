// SPDX-License-Identifier: GPL-2.0

//! The spinlock and the wait list of the host.

use super::alloc::charge;
use crate::rt::AllocError;
use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[path = "../../kapi/links_lock.rs"]
mod links_lock;
#[path = "../../kapi/wait_list.rs"]
mod wait_list;

/// A free lock around a value, or an `AllocError`.
macro_rules! spin_lock {
    ($value:expr) => {
        $crate::rt::SpinLock::new($value)
    };
}
pub(crate) use spin_lock;

/// A number of this thread, never 0.
fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.get()
}

/// A lock held for a few instructions, never across an await and never in interrupt context.
///
/// On the host, taking it twice on one thread panics instead of hanging.
pub struct SpinLock<T> {
    /// The thread that holds the lock, or 0.
    owner: AtomicU64,
    value: Mutex<T>,
}

impl<T> SpinLock<T> {
    /// A free lock around `value`.
    pub fn new(value: T) -> Result<Self, AllocError> {
        charge()?;
        Ok(Self {
            owner: AtomicU64::new(0),
            value: Mutex::new(value),
        })
    }

    /// Takes the lock.
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        let me = this_thread();
        assert!(
            self.owner.load(Ordering::Relaxed) != me,
            "spinlock taken twice by one thread"
        );
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        self.owner.store(me, Ordering::Relaxed);
        SpinLockGuard {
            owner: &self.owner,
            value,
        }
    }
}

impl<T> fmt::Debug for SpinLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpinLock").finish_non_exhaustive()
    }
}

/// Access to the value of a [`SpinLock`], which is held as long as this lives.
pub struct SpinLockGuard<'a, T> {
    owner: &'a AtomicU64,
    value: MutexGuard<'a, T>,
}

impl<T> Drop for SpinLockGuard<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

impl<T> Deref for SpinLockGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for SpinLockGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Tasks that wait for a condition, first come first served.
pub struct WaitList(wait_list::WaitList<links_lock::LinksSpinLock>);

impl WaitList {
    /// A list nobody waits on.
    pub fn new() -> Result<Self, AllocError> {
        charge()?;
        let lock = links_lock::LinksSpinLock::new();
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

    /// Wakes the longest waiting task, if there is one. In any context.
    pub fn wake_one(&self) {
        self.0.wake_one();
    }

    /// Wakes every task that waits now. In any context.
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
