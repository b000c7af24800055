// SPDX-License-Identifier: GPL-2.0

//! The kernel's CRC-32.

use crate::bindings;

/// CRC-32 (polynomial 0xedb88320, least significant bit first) continued from `seed`, without any inversion.
pub fn crc32_le(seed: u32, data: &[u8]) -> u32 {
    // SAFETY: the pointer is good for as many bytes as given.
    unsafe { bindings::rvdo_crc32_le(seed, data.as_ptr(), data.len()) }
}
