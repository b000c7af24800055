// SPDX-License-Identifier: GPL-2.0

//! The kernel back end of [`rt`](super), over the `kernel` crate.
//!
//! Allocations happen at load, in process context, and never wait for I/O.

pub(crate) mod log;

mod containers;
mod sync;

pub use self::containers::{Arc, Box, Vec};
pub(crate) use self::sync::spin_lock;
pub use self::sync::{SpinLock, SpinLockGuard, WaitList};
pub use crate::kapi::crc32::crc32_le;
pub use crate::kapi::page::{Page, PagePair};
