// SPDX-License-Identifier: GPL-2.0

//! Page buffers: aligned heap memory. A thread keeps what it gives back: simulations make and drop volumes by the thousand.

use super::alloc::charge;
use crate::rt::AllocError;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// Most buffers of a kind that a thread keeps.
const KEPT_MAX: usize = 4096;

macro_rules! page_buffer {
    ($(#[$doc:meta])* $name:ident, $memory:ident, $kept:ident, $bytes:literal) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// There is memory until the drop.
        pub struct $name(Option<std::boxed::Box<$memory>>);

        #[repr(align(4096))]
        struct $memory([u8; $bytes]);

        thread_local! {
            static $kept: RefCell<std::vec::Vec<std::boxed::Box<$memory>>> =
                const { RefCell::new(std::vec::Vec::new()) };
        }

        impl $name {
            /// A buffer of zeros.
            pub fn new() -> Result<Self, AllocError> {
                charge()?;
                // INVARIANT: there is memory.
                Ok(Self(Some(match $kept.with_borrow_mut(std::vec::Vec::pop) {
                    Some(mut memory) => {
                        memory.0.fill(0);
                        memory
                    }
                    None => std::boxed::Box::new($memory([0; $bytes])),
                })))
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                // A thread that ends has nothing to keep.
                let _ = $kept.try_with(|kept| {
                    let mut kept = kept.borrow_mut();
                    if kept.len() < KEPT_MAX {
                        kept.extend(self.0.take());
                    }
                });
            }
        }

        impl Deref for $name {
            type Target = [u8; $bytes];

            fn deref(&self) -> &Self::Target {
                &self.0.as_ref().expect("memory until the drop").0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0.as_mut().expect("memory until the drop").0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

page_buffer!(
    /// One page-aligned page of 4096 bytes that a device can read and write.
    Page,
    PageMemory,
    PAGES,
    4096
);
page_buffer!(
    /// Two physically contiguous pages, 8192 bytes.
    PagePair,
    PagePairMemory,
    PAGE_PAIRS,
    8192
);
