// SPDX-License-Identifier: GPL-2.0

//! LZ4 with an acceleration: algorithms that this module adds to the crypto API.

use super::noio::noio;
use crate::bindings;
use kernel::error::to_result;
use kernel::prelude::*;

/// Makes the algorithm `rvdo-lz4-N` exist for `N = acceleration`, until the module goes. Process context, may sleep.
pub fn register(acceleration: u32) -> Result {
    let acceleration = acceleration.try_into()?;
    // SAFETY: no requirements in process context.
    to_result(noio(|| unsafe {
        bindings::rvdo_lz4_register(acceleration)
    }))
}

/// Takes all algorithms away when it is dropped. Has to be dropped when the module goes, and not before: then nobody has a
/// reference to any of them, because a reference pins the module.
pub struct AcceleratedLz4;

impl Drop for AcceleratedLz4 {
    fn drop(&mut self) {
        // SAFETY: the module goes, see above; or it never came to live, and nobody has registered anything.
        unsafe { bindings::rvdo_lz4_unregister_all() };
    }
}
