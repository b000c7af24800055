// SPDX-License-Identifier: GPL-2.0

//! Allocations that do not wait for I/O.
//!
//! A block driver that waits for memory that waits for a write to the block driver hangs. The `kernel` crate has no
//! `GFP_NOIO`, but the scope says it as well, and for every allocation below.

use crate::bindings;
use kernel::types::NotThreadSafe;

/// Runs `f` with no allocation in it waiting for I/O, whatever its flags say. Process context only.
pub fn noio<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: no requirements in process context.
    let flags = unsafe { bindings::rvdo_noio_save() };
    let _scope = Scope(flags, NotThreadSafe);
    f()
}

/// The scope of this task.
struct Scope(u32, NotThreadSafe);

impl Drop for Scope {
    fn drop(&mut self) {
        // SAFETY: the flags are those the matching save returned to this task; scopes nest like their functions.
        unsafe { bindings::rvdo_noio_restore(self.0) };
    }
}
