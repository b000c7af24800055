// SPDX-License-Identifier: GPL-2.0

//! Page buffers: physically contiguous lowmem that any device can read and write.
//!
//! A buffer owns its pages, needs no lock, and may be freed in any context.

use crate::bindings;
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;
use kernel::alloc::AllocError;

/// One page.
pub type Page = PageBuffer<4096>;

/// Two physically contiguous pages, for devices that may write past the first.
pub type PagePair = PageBuffer<8192>;

/// A page-aligned buffer of `BYTES` bytes, a power of two and at least one page.
///
/// # Invariants
///
/// The pointer is the address of `2^ORDER` pages that belong to this buffer alone.
pub struct PageBuffer<const BYTES: usize>(NonNull<[u8; BYTES]>);

// SAFETY: the buffer owns its memory.
unsafe impl<const BYTES: usize> Send for PageBuffer<BYTES> {}
// SAFETY: shared references only allow reading.
unsafe impl<const BYTES: usize> Sync for PageBuffer<BYTES> {}

impl<const BYTES: usize> PageBuffer<BYTES> {
    const ORDER: u32 = {
        assert!(BYTES.is_power_of_two() && BYTES >= kernel::page::PAGE_SIZE);
        (BYTES / kernel::page::PAGE_SIZE).trailing_zeros()
    };

    /// A buffer of zeros. May sleep, but does not wait for I/O.
    pub fn new() -> Result<Self, AllocError> {
        // SAFETY: no requirements.
        let address = unsafe { bindings::rvdo_alloc_pages(Self::ORDER) };
        // INVARIANT: fresh pages of the right number.
        NonNull::new(address.cast()).map(Self).ok_or(AllocError)
    }

    /// The address, to be given to a device. Accesses through it have to obey the rules of references.
    pub fn as_raw(&self) -> NonNull<u8> {
        self.0.cast()
    }
}

impl<const BYTES: usize> Deref for PageBuffer<BYTES> {
    type Target = [u8; BYTES];

    fn deref(&self) -> &Self::Target {
        // SAFETY: by the invariant; pages are always initialised.
        unsafe { self.0.as_ref() }
    }
}

impl<const BYTES: usize> DerefMut for PageBuffer<BYTES> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        // SAFETY: as above.
        unsafe { self.0.as_mut() }
    }
}

impl<const BYTES: usize> Drop for PageBuffer<BYTES> {
    fn drop(&mut self) {
        // SAFETY: by the invariant these pages came from `rvdo_alloc_pages` with the same order.
        unsafe { bindings::rvdo_free_pages(self.0.as_ptr().cast(), Self::ORDER) };
    }
}

impl<const BYTES: usize> fmt::Debug for PageBuffer<BYTES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageBuffer").finish_non_exhaustive()
    }
}
