// SPDX-License-Identifier: GPL-2.0

//! Little-endian fields in bytes, without a way to panic.
//!
//! A structure at fixed offsets uses [`get_u64`] and its kin, whose offset is checked against the
//! size of a block when the code is compiled. A structure whose fields follow each other uses
//! [`Reader`] and [`Writer`].

use super::FormatError;
use crate::engine::units::{Block, BLOCK_SIZE};

/// The `N` bytes at offset `AT` of a block.
pub(crate) fn get_bytes<const AT: usize, const N: usize>(block: &Block) -> [u8; N] {
    const { assert!(AT + N <= BLOCK_SIZE) };
    match block.get(AT..).and_then(<[u8]>::first_chunk::<N>) {
        Some(bytes) => *bytes,
        // Not reached: the offset was checked above.
        None => [0; N],
    }
}

/// Sets the `N` bytes at offset `AT` of a block.
pub(crate) fn put_bytes<const AT: usize, const N: usize>(block: &mut Block, value: [u8; N]) {
    const { assert!(AT + N <= BLOCK_SIZE) };
    if let Some(bytes) = block.get_mut(AT..).and_then(<[u8]>::first_chunk_mut::<N>) {
        *bytes = value;
    }
}

/// Defines the accessors for one integer type.
macro_rules! accessors {
    ($get:ident, $put:ident, $int:ty) => {
        /// The integer at offset `AT` of a block.
        pub(crate) fn $get<const AT: usize>(block: &Block) -> $int {
            <$int>::from_le_bytes(get_bytes::<AT, { size_of::<$int>() }>(block))
        }

        /// Sets the integer at offset `AT` of a block.
        pub(crate) fn $put<const AT: usize>(block: &mut Block, value: $int) {
            put_bytes::<AT, { size_of::<$int>() }>(block, value.to_le_bytes());
        }
    };
}

accessors!(get_u8, put_u8, u8);
accessors!(get_u16, put_u16, u16);
accessors!(get_u32, put_u32, u32);
accessors!(get_u64, put_u64, u64);

/// The `N` bytes at an offset that is only known at run time.
pub(crate) fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

/// Sets the `N` bytes at an offset that is only known at run time. `None` if they do not fit.
pub(crate) fn set_bytes_at<const N: usize>(
    bytes: &mut [u8],
    at: usize,
    value: [u8; N],
) -> Option<()> {
    *bytes.get_mut(at..)?.first_chunk_mut::<N>()? = value;
    Some(())
}

/// Takes fields off the front of some bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `N` bytes.
    pub(crate) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(FormatError::Truncated)?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(u8::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.bytes()?))
    }
}

/// Puts fields one after the other into some bytes.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    /// Starts at the first byte.
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Writes the next `N` bytes.
    pub(crate) fn bytes<const N: usize>(&mut self, value: [u8; N]) -> Result<(), FormatError> {
        let (bytes, rest) = core::mem::take(&mut self.rest)
            .split_first_chunk_mut::<N>()
            .ok_or(FormatError::Truncated)?;
        *bytes = value;
        self.rest = rest;
        Ok(())
    }

    pub(crate) fn u8(&mut self, value: u8) -> Result<(), FormatError> {
        self.bytes(value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), FormatError> {
        self.bytes(value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), FormatError> {
        self.bytes(value.to_le_bytes())
    }
}
