// SPDX-License-Identifier: GPL-2.0

//! Buffers for reading blocks that may be duplicates.
//!
//! A task takes all it needs at once and waits for nobody else while it has them, so waiting for buffers always ends. The pool's
//! lock takes no other lock.

use crate::rt::{spin_lock, AllocError, Page, SpinLock, Vec, WaitList};

/// What reading one mapping takes.
pub(super) struct Buffers {
    /// For the compressed block.
    pub(super) scratch: Page,
    /// For the data.
    pub(super) data: Page,
}

/// A pool.
pub(super) struct BufferPool {
    free: SpinLock<Vec<Buffers>>,
    waiters: WaitList,
}

impl BufferPool {
    /// A pool for `readers` tasks at a time.
    pub(super) fn new(readers: usize) -> Result<Self, AllocError> {
        Ok(Self {
            free: spin_lock!(Vec::from_fn(readers.max(1), |_| {
                Ok::<_, AllocError>(Buffers {
                    scratch: Page::new()?,
                    data: Page::new()?,
                })
            })?)?,
            waiters: WaitList::new()?,
        })
    }

    /// Waits for buffers.
    pub(super) async fn take(&self) -> Buffers {
        self.waiters.wait_until(|| self.free.lock().pop()).await
    }

    /// Gives buffers back.
    pub(super) fn give(&self, buffers: Buffers) {
        // There is room for as many as there were.
        let _ = self.free.lock().push_within_capacity(buffers);
        self.waiters.wake_one();
    }
}
