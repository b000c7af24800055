// SPDX-License-Identifier: GPL-2.0

//! The words of a table line or a message.

use core::slice;
use core::str::FromStr;

use kernel::prelude::*;

/// The words that were given, in order.
///
/// # Invariants
///
/// Every pointer is to a NUL-terminated string that does not change during `'a`.
#[derive(Clone, Copy)]
pub struct Args<'a>(&'a [*mut c_char]);

impl<'a> Args<'a> {
    /// # Safety
    ///
    /// If `argc` is not zero, `argv` is to `argc` pointers to NUL-terminated strings, all of which
    /// stay unchanged for `'a`.
    pub(super) unsafe fn from_raw(argc: c_uint, argv: *mut *mut c_char) -> Self {
        if argc == 0 || argv.is_null() {
            return Self(&[]);
        }
        // INVARIANT: by the contract.
        // SAFETY: by the contract.
        Self(unsafe { slice::from_raw_parts(argv, argc as usize) })
    }

    /// How many words there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The word at `index`.
    pub fn get(&self, index: usize) -> Option<&'a CStr> {
        let word = *self.0.get(index)?;
        // SAFETY: a NUL-terminated string by the type's invariants.
        Some(unsafe { CStr::from_char_ptr(word) })
    }

    /// The word at `index`, if it is UTF-8.
    pub fn str(&self, index: usize) -> Option<&'a str> {
        self.get(index)?.to_str().ok()
    }

    /// The word at `index` as a `T`. `None` if there is no such word or it cannot be parsed.
    pub fn parse<T: FromStr>(&self, index: usize) -> Option<T> {
        self.str(index)?.parse().ok()
    }

    /// All words.
    pub fn iter(&self) -> impl Iterator<Item = &'a CStr> + 'a {
        let args = *self;
        (0..args.len()).filter_map(move |index| args.get(index))
    }
}
