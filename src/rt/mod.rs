// SPDX-License-Identifier: GPL-2.0

//! The small surface the engine is written against: fallible containers, a spinlock, a wait list, page buffers,
//! task combinators, logging and the CRC.
//!
//! Two back ends with the same names: `kernel` (selected by `--cfg MODULE`, which Kbuild passes for every module)
//! and `host` (std). There is no policy here, only types.
//!
//! # Rules for users
//!
//! * Everything that may allocate says so by returning `Result<_, AllocError>` and belongs to load time.
//!   [`Vec::push_within_capacity`] never allocates.
//! * A [`SpinLock`] guard is not `Send`, tasks are: holding a lock across `.await` does not compile.
//!   No [`SpinLock`] is ever taken in interrupt context, and a large [`Vec`] is never freed under one.
//! * The one way to wait is a [`WaitList`] next to the locked state:
//!   `list.wait_until(|| state.lock().take_something()).await`.
//! * [`WaitList::wake_one`] and [`WaitList::wake_all`] may be called in any context, interrupts included,
//!   and while holding a [`SpinLock`]. The list's own lock is innermost.

mod task;

#[cfg(not(MODULE))]
pub mod host;
#[cfg(MODULE)]
mod kernel;

#[cfg(not(MODULE))]
pub use self::host::{crc32_le, Arc, Box, Page, PagePair, SpinLock, SpinLockGuard, Vec, WaitList};
#[cfg(MODULE)]
pub use self::kernel::{
    crc32_le, Arc, Box, Page, PagePair, SpinLock, SpinLockGuard, Vec, WaitList,
};

pub use self::task::{join2, yield_now};
pub use core::sync::atomic;

#[cfg(not(MODULE))]
use self::host as backend;
#[cfg(MODULE)]
use self::kernel as backend;
#[allow(
    unused_imports,
    reason = "not every crate with this surface logs at every level"
)]
pub(crate) use backend::log::{rt_error as error, rt_info as info, rt_warn as warn};
pub(crate) use backend::spin_lock;

/// Bytes of a [`Page`]: the block size of the volume, and the page size of the machine.
pub const PAGE_BYTES: usize = 4096;

/// Memory could not be had.
#[cfg(not(MODULE))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError;

#[cfg(MODULE)]
pub use ::kernel::alloc::AllocError;

impl<T: Clone> Vec<T> {
    /// `n` clones of `value`.
    pub fn from_elem(value: T, n: usize) -> Result<Self, AllocError> {
        Self::from_fn(n, |_| Ok::<T, AllocError>(value.clone()))
    }
}
