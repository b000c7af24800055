// SPDX-License-Identifier: GPL-2.0

//! The on-disk format, as the in-tree dm-vdo driver reads and writes it.
//!
//! One file per structure: the table of its bytes, then decoding and encoding. Everything here
//! works on bytes in memory; nothing waits, locks or keeps state. A decoder accepts any bytes and
//! either bounds what it found or says what is wrong with it in a [`FormatError`].
//!
//! All integers are little-endian.

pub mod error;
pub(crate) mod field;

pub use error::{Component, FormatError, Version};
