// SPDX-License-Identifier: GPL-2.0

//! What a test may do to allocations: count them, let one fail, or forbid them.
//!
//! Per thread. Every allocation of the `rt` types passes [`charge`].

use crate::rt::AllocError;
use std::cell::Cell;

thread_local! {
    static MADE: Cell<u64> = const { Cell::new(0) };
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// One allocation is about to happen.
pub(super) fn charge() -> Result<(), AllocError> {
    assert!(!FORBIDDEN.get(), "allocation where nothing may allocate");
    match LEFT.get() {
        Some(0) => return Err(AllocError),
        Some(left) => LEFT.set(Some(left - 1)),
        None => {}
    }
    MADE.set(MADE.get() + 1);
    Ok(())
}

/// Number of allocations this thread made through `rt`.
pub fn made() -> u64 {
    MADE.get()
}

/// Runs `f`; its allocations fail after the first `n`.
pub fn failing_after<R>(n: u64, f: impl FnOnce() -> R) -> R {
    let _restore = Restore {
        left: LEFT.replace(Some(n)),
        forbidden: FORBIDDEN.get(),
    };
    f()
}

/// Runs `f`, in which any allocation through `rt` panics.
pub fn forbidden<R>(f: impl FnOnce() -> R) -> R {
    let _restore = Restore {
        left: LEFT.get(),
        forbidden: FORBIDDEN.replace(true),
    };
    f()
}

/// Puts the former rules back, also when the closure panics.
struct Restore {
    left: Option<u64>,
    forbidden: bool,
}

impl Drop for Restore {
    fn drop(&mut self) {
        LEFT.set(self.left);
        FORBIDDEN.set(self.forbidden);
    }
}
