// SPDX-License-Identifier: GPL-2.0

//! The kernel's random numbers.

use crate::bindings;

/// Random bytes that nobody can guess, once the machine has been up for a moment.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the pointer is good for as many bytes as given.
    unsafe { bindings::rvdo_random_bytes(bytes.as_mut_ptr(), bytes.len()) };
    bytes
}
