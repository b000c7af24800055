// SPDX-License-Identifier: GPL-2.0

//! Page buffers: aligned heap memory.

use super::alloc::charge;
use crate::rt::AllocError;
use std::fmt;
use std::ops::{Deref, DerefMut};

macro_rules! page_buffer {
    ($(#[$doc:meta])* $name:ident, $memory:ident, $bytes:literal) => {
        $(#[$doc])*
        pub struct $name(std::boxed::Box<$memory>);

        #[repr(align(4096))]
        struct $memory([u8; $bytes]);

        impl $name {
            /// A buffer of zeros.
            pub fn new() -> Result<Self, AllocError> {
                charge()?;
                Ok(Self(std::boxed::Box::new($memory([0; $bytes]))))
            }
        }

        impl Deref for $name {
            type Target = [u8; $bytes];

            fn deref(&self) -> &Self::Target {
                &self.0 .0
            }
        }

        impl DerefMut for $name {
            fn deref_mut(&mut self) -> &mut Self::Target {
                &mut self.0 .0
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
    4096
);
page_buffer!(
    /// Two physically contiguous pages, 8192 bytes.
    PagePair,
    PagePairMemory,
    8192
);
