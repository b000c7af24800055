// SPDX-License-Identifier: GPL-2.0

//! Decompressing what was just compressed: for those who do not trust their hardware.
//!
//! A small pool of pages, guarded by one lock that is held to take or give back a pair. Waits for a pair, and for the codec.

use super::request::Buffers;
use super::Volume;
use crate::engine::env::{Codec, Compressed, Env};
use crate::rt::atomic::{AtomicBool, Ordering};
use crate::rt::{spin_lock, AllocError, Page, SpinLock, Vec, WaitList};

/// Checks that can be made at a time.
const CHECKS: usize = 32;

/// Room for one check: what was compressed, and what it became again.
struct Pair {
    fragment: Page,
    data: Page,
}

/// Whether to check, and the memory for it.
pub(super) struct Verifier {
    on: AtomicBool,
    pairs: SpinLock<Vec<Pair>>,
    returned: WaitList,
}

impl Verifier {
    pub(super) fn new() -> Result<Self, AllocError> {
        let pairs = Vec::from_fn(CHECKS, |_| {
            Ok::<_, AllocError>(Pair {
                fragment: Page::new()?,
                data: Page::new()?,
            })
        })?;
        Ok(Self {
            on: AtomicBool::new(false),
            pairs: spin_lock!(pairs)?,
            returned: WaitList::new()?,
        })
    }

    pub(super) fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    async fn take(&self) -> Pair {
        self.returned.wait_until(|| self.pairs.lock().pop()).await
    }

    fn give(&self, pair: Pair) {
        // There is room for all pairs.
        let _ = self.pairs.lock().push_within_capacity(pair);
        self.returned.wake_one();
    }
}

impl<E: Env> Volume<E> {
    /// `made` if it becomes `buffers.data` again, or if nobody wants to know.
    pub(super) async fn verify(
        &self,
        made: Compressed,
        buffers: Buffers,
    ) -> (Buffers, Option<Compressed>) {
        if !self.verifier.is_on() {
            return (buffers, Some(made));
        }
        let Pair { mut fragment, data } = self.verifier.take().await;
        let copied = match (
            fragment.get_mut(..made.bytes),
            buffers.compressed.get(..made.bytes),
        ) {
            (Some(to), Some(from)) => {
                to.copy_from_slice(from);
                true
            }
            _ => false,
        };
        let (fragment, data, result) = self
            .store
            .codec()
            .decompress(made.format, fragment, 0..made.bytes, data)
            .await;
        let is_same = copied && result.is_ok() && data[..] == buffers.data[..];
        self.verifier.give(Pair { fragment, data });
        if is_same {
            return (buffers, Some(made));
        }
        self.store.statistics().codec.verify_errors.increment();
        (buffers, None)
    }
}
