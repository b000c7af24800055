// SPDX-License-Identifier: GPL-2.0

//! The kernel back end of [`rt`](super), over the `kernel` crate.
//!
//! Allocations happen at load, in process context, and never wait for I/O.

pub(crate) mod log;

mod containers;
mod sync;

pub use self::containers::{Arc, Box, Vec};
pub use self::sync::{SpinLock, SpinLockGuard, WaitList};
pub use crate::kapi::crc32::crc32_le;
pub use crate::kapi::page::{Page, PagePair};

use crate::rt::AllocError;

impl From<kernel::alloc::AllocError> for AllocError {
    fn from(_: kernel::alloc::AllocError) -> Self {
        AllocError
    }
}

impl From<AllocError> for kernel::alloc::AllocError {
    fn from(_: AllocError) -> Self {
        kernel::alloc::AllocError
    }
}

impl From<AllocError> for kernel::error::Error {
    fn from(_: AllocError) -> Self {
        kernel::error::code::ENOMEM
    }
}
