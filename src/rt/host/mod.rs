// SPDX-License-Identifier: GPL-2.0

//! The host back end of [`rt`](super), on std. For tests and tools: it checks what the kernel would only suffer from
//! (taking a lock twice, allocating where nothing may).

pub mod alloc;
pub mod log;

mod containers;
mod page;
mod sync;

pub use self::containers::{Arc, Box, Vec};
pub use self::page::{Page, PagePair};
pub(crate) use self::sync::spin_lock;
pub use self::sync::{SpinLock, SpinLockGuard, WaitList};

/// CRC-32 (polynomial 0xedb88320, least significant bit first) continued from `seed`, without any inversion.
pub fn crc32_le(seed: u32, data: &[u8]) -> u32 {
    // The crate inverts before and after.
    let mut hasher = crc32fast::Hasher::new_with_initial(!seed);
    hasher.update(data);
    !hasher.finalize()
}
