// SPDX-License-Identifier: GPL-2.0

//! Text for device-mapper: a bounded buffer, and the `{ name : value, }` form that VDO's tools read.
//!
//! Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

/// A NUL-terminated text in a buffer of fixed size.
///
/// What does not fit is cut off. Device-mapper recognises a text that fills its buffer to the last
/// byte and asks again with a larger one, so being cut off is no error; writing stops early.
///
/// # Invariants
///
/// `length` is less than the size of the buffer, or both are zero; the byte at `length`, if there
/// is one, is NUL.
pub struct BoundedText<'a> {
    buffer: &'a mut [u8],
    length: usize,
}

impl<'a> BoundedText<'a> {
    /// An empty text in `buffer`.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        if let Some(first) = buffer.first_mut() {
            *first = 0;
        }
        // INVARIANT: The byte at 0 is NUL if there is one.
        Self { buffer, length: 0 }
    }

    /// How many bytes were written, without the NUL.
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing was written.
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the text fills the buffer, and so may have been cut off.
    pub const fn is_full(&self) -> bool {
        self.length.saturating_add(1) >= self.buffer.len()
    }
}

impl Write for BoundedText<'_> {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self
            .buffer
            .len()
            .saturating_sub(self.length)
            .saturating_sub(1);
        let taken = s.len().min(room);
        let end = self.length.saturating_add(taken);
        if let (Some(to), Some(from)) = (
            self.buffer.get_mut(self.length..end),
            s.as_bytes().get(..taken),
        ) {
            to.copy_from_slice(from);
        }
        // INVARIANT: `room` left a byte for the NUL.
        self.length = end;
        if let Some(terminator) = self.buffer.get_mut(end) {
            *terminator = 0;
        }
        if taken == s.len() {
            Ok(())
        } else {
            Err(fmt::Error)
        }
    }
}

/// Writes the form `{ name : value, name : { name : value, }, }`.
///
/// The readers scan for exact labels and separators. Each scalar and each inner group ends with a
/// comma and a blank, the outermost group with its brace alone.
pub(super) struct Braces<'a> {
    out: &'a mut dyn Write,
}

impl<'a> Braces<'a> {
    /// Writes the outermost group.
    pub(super) fn write(
        out: &'a mut dyn Write,
        fields: impl FnOnce(&mut Braces<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut braces = Braces { out };
        braces.out.write_str("{ ")?;
        fields(&mut braces)?;
        braces.out.write_str("}")
    }

    /// Writes a scalar.
    pub(super) fn field(&mut self, name: &str, value: impl fmt::Display) -> fmt::Result {
        write!(self.out, "{name} : {value}, ")
    }

    /// Writes a truth value as 0 or 1.
    pub(super) fn flag(&mut self, name: &str, value: bool) -> fmt::Result {
        self.field(name, u8::from(value))
    }

    /// Writes a row of numbers.
    pub(super) fn numbers(&mut self, numbers: &[(&str, u64)]) -> fmt::Result {
        numbers
            .iter()
            .try_for_each(|(name, value)| self.field(name, value))
    }

    /// Writes an inner group of numbers only.
    pub(super) fn number_group(&mut self, name: &str, numbers: &[(&str, u64)]) -> fmt::Result {
        self.group(name, |text| text.numbers(numbers))
    }

    /// Writes an inner group.
    pub(super) fn group(
        &mut self,
        name: &str,
        fields: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        write!(self.out, "{name} : {{ ")?;
        self.rest_of_group(fields)
    }

    /// Writes an inner group that opens in another form than the usual one.
    pub(super) fn group_opened_by(
        &mut self,
        opening: &str,
        fields: impl FnOnce(&mut Self) -> fmt::Result,
    ) -> fmt::Result {
        self.out.write_str(opening)?;
        self.rest_of_group(fields)
    }

    fn rest_of_group(&mut self, fields: impl FnOnce(&mut Self) -> fmt::Result) -> fmt::Result {
        fields(self)?;
        self.out.write_str("}, ")
    }
}
