// SPDX-License-Identifier: GPL-2.0

//! Memory for the texts that explain why a constructor failed.
//!
//! Device mapper prints `ti->error` after the constructor has returned and has no way to tell that
//! it is through. Each target type therefore has a fixed number of texts that are used in turn. If
//! more constructors than that fail before the first text is printed, the print may mix two texts;
//! it never leaves the memory, whose last byte always stays NUL. That is why the bytes are atomic.

use core::fmt::Write;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use kernel::prelude::*;

use super::ResultText;

const TEXTS: usize = 16;
const TEXT_BYTES: usize = 256;

/// The texts of one target type.
pub(super) struct ErrorTexts {
    next: AtomicUsize,
    texts: [[AtomicU8; TEXT_BYTES]; TEXTS],
}

impl ErrorTexts {
    pub(super) const fn new() -> Self {
        Self {
            next: AtomicUsize::new(0),
            texts: [const { [const { AtomicU8::new(0) }; TEXT_BYTES] }; TEXTS],
        }
    }

    /// Writes a text, cut off if it is too long. It stays as it is until `TEXTS` more have been
    /// written.
    pub(super) fn write(&self, text: core::fmt::Arguments<'_>) -> *mut c_char {
        let turn = self.next.fetch_add(1, Relaxed) % TEXTS;
        let Some(slot) = self.texts.get(turn) else {
            return c"out of range".as_ptr().cast_mut().cast();
        };
        let mut bytes = [0u8; TEXT_BYTES];
        // SAFETY: the buffer is `TEXT_BYTES` long, and ours.
        let mut out =
            unsafe { ResultText::from_raw(bytes.as_mut_ptr().cast(), TEXT_BYTES as c_uint) };
        // Cutting off is not an error.
        let _ = out.write_fmt(text);
        // The last byte of `bytes` is the NUL at the latest.
        for (to, from) in slot.iter().zip(bytes) {
            to.store(from, Relaxed);
        }
        slot.as_ptr().cast_mut().cast()
    }
}
