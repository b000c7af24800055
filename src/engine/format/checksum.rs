// SPDX-License-Identifier: GPL-2.0

//! The checksum of the geometry block and of the super block: CRC-32 with polynomial 0xEDB88320,
//! starting from zero, inverted at the end. It covers every byte before it.

use super::{Component, FormatError};
use crate::rt;

/// The checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u32 {
    !rt::crc32_le(0, bytes)
}

/// Checks the checksum that is stored with `bytes`.
pub(super) fn check(component: Component, bytes: &[u8], found: u32) -> Result<(), FormatError> {
    let expected = checksum(bytes);
    if expected == found {
        Ok(())
    } else {
        Err(FormatError::Checksum {
            component,
            expected,
            found,
        })
    }
}
