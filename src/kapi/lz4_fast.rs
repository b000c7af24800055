// SPDX-License-Identifier: GPL-2.0

//! LZ4 with an acceleration: an algorithm that this module adds to the crypto API while somebody uses it.

use super::noio::noio;
use crate::bindings;
use core::ffi::c_void;
use core::ptr::NonNull;
use kernel::error::from_err_ptr;
use kernel::prelude::*;

/// Keeps the algorithm `rvdo-lz4-N` registered. Has to outlive every transform of it.
///
/// # Invariants
///
/// The pointer came from `rvdo_lz4_get`, and its reference belongs to this value.
pub struct AcceleratedLz4(NonNull<c_void>);

// SAFETY: the registration may be given up on any thread.
unsafe impl Send for AcceleratedLz4 {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for AcceleratedLz4 {}

impl AcceleratedLz4 {
    /// Registers `rvdo-lz4-N` for `N = acceleration`, unless somebody has. Process context, may sleep.
    pub fn new(acceleration: u32) -> Result<Self> {
        let acceleration = acceleration.try_into()?;
        // SAFETY: no requirements in process context.
        let algorithm = noio(|| unsafe { bindings::rvdo_lz4_get(acceleration) });
        // INVARIANT: not an error, so a reference, and it is ours.
        NonNull::new(from_err_ptr(algorithm)?)
            .map(Self)
            .ok_or(ENOMEM)
    }
}

impl Drop for AcceleratedLz4 {
    fn drop(&mut self) {
        // SAFETY: by the invariant; transforms of the algorithm are gone, see above.
        noio(|| unsafe { bindings::rvdo_lz4_put(self.0.as_ptr()) });
    }
}
