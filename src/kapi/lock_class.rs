// SPDX-License-Identifier: GPL-2.0

//! What lockdep tells locks apart by: the place in the source where they are made.

use core::mem::ManuallyDrop;
use core::pin::Pin;
use kernel::prelude::*;
use kernel::sync::LockClassKey;

/// All locks made at one place in the source, see [`spin_lock!`](crate::rt::spin_lock).
pub struct LockClass {
    key: ManuallyDrop<LockClassKey>,
    name: &'static CStr,
}

impl LockClass {
    /// A class for a `static`. `name` ends with a NUL.
    pub const fn new(name: &'static str) -> Self {
        Self {
            // SAFETY: it is never dropped, and `key` takes it only where it never moves. That is a `static` in all that makes one; lockdep
            // finds out if it is other memory that is never freed, says so, and ends its work.
            key: ManuallyDrop::new(unsafe { LockClassKey::new_static() }),
            name: match CStr::from_bytes_with_nul(name.as_bytes()) {
                Ok(name) => name,
                Err(_) => c"rvdo::SpinLock",
            },
        }
    }

    /// The class's key.
    pub fn key(&'static self) -> Pin<&'static LockClassKey> {
        Pin::static_ref(&self.key)
    }

    /// What lockdep calls the class.
    pub fn name(&self) -> &'static CStr {
        self.name
    }
}
