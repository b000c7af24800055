// SPDX-License-Identifier: GPL-2.0

//! The buffer that status and messages answer in.

use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use kernel::prelude::*;

/// A NUL-terminated text of limited length, written from left to right.
///
/// What does not fit is cut off, which is what tells device mapper to offer a larger buffer.
/// Writing never fails.
///
/// # Invariants
///
/// `start` is to `capacity` writable bytes. If that is not zero then `len < capacity`, and the byte
/// at `len` is NUL.
pub struct ResultText<'a> {
    start: *mut u8,
    len: usize,
    capacity: usize,
    buffer: PhantomData<&'a mut [u8]>,
}

impl ResultText<'_> {
    /// Starts an empty text.
    ///
    /// # Safety
    ///
    /// For as long as the result lives, `start` is to `capacity` bytes that are ours to write.
    pub(super) unsafe fn from_raw(start: *mut c_char, capacity: c_uint) -> Self {
        let mut this = Self {
            start: start.cast(),
            len: 0,
            capacity: capacity as usize,
            buffer: PhantomData,
        };
        this.append(&[]);
        this
    }

    fn append(&mut self, bytes: &[u8]) {
        let Some(room) = self.capacity.saturating_sub(self.len).checked_sub(1) else {
            return;
        };
        let count = room.min(bytes.len());
        // SAFETY: `len + count < capacity` by the type's invariants and the choice of `count`.
        let end = unsafe {
            let at = self.start.add(self.len);
            ptr::copy_nonoverlapping(bytes.as_ptr(), at, count);
            at.add(count)
        };
        // INVARIANT: the new end is within the buffer and gets its NUL.
        // SAFETY: as above.
        unsafe { *end = 0 };
        self.len = self.len.wrapping_add(count);
    }

    /// The length so far, without the NUL.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Write for ResultText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.append(text.as_bytes());
        Ok(())
    }
}
