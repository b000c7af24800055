// SPDX-License-Identifier: GPL-2.0

//! A bin: fragments on their way into one compressed block.
//!
//! Bins are guarded by the packer's lock.

use crate::engine::format::compressed_block::{CompressedBlockBuilder, StreamFormat};
use crate::engine::units::{Block, MAX_FRAGMENTS};
use crate::rt::{AllocError, Page};

/// What becomes of a bin.
pub(super) enum Phase<P> {
    /// Nobody uses it.
    Idle,
    /// It takes fragments.
    Filling,
    /// It takes no more; the task that opened it writes it.
    Closed,
    /// It has been written to the block of `pin`; members below `claimed` have a reference there.
    Written {
        /// The block.
        pin: P,
        /// How many references were claimed for the members.
        claimed: u8,
    },
    /// It was not written: every member keeps what it has.
    Failed,
}

/// The memory of a bin.
pub(super) struct Pages {
    /// The fragments back to back, as they came.
    pub(super) fragments: Page,
    /// Room for the block to write.
    pub(super) block: Page,
}

/// A bin.
///
/// # Invariants
///
/// * The first `count` of `sizes` add up to `used`, which is at most the size of a block.
/// * `pages` is `None` only while the bin is being written.
pub(super) struct Bin<P> {
    pub(super) phase: Phase<P>,
    /// What all its fragments are.
    pub(super) format: StreamFormat,
    /// How often the bin has been used. Tells tickets of different uses apart.
    pub(super) generation: u64,
    pub(super) count: u8,
    pub(super) used: usize,
    pub(super) sizes: [u16; MAX_FRAGMENTS],
    pub(super) pages: Option<Pages>,
    /// Members that do not know yet what became of them.
    pub(super) uninformed: u8,
}

impl<P> Bin<P> {
    /// A bin that nobody uses.
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            phase: Phase::Idle,
            format: StreamFormat::Lz4,
            generation: 0,
            count: 0,
            used: 0,
            sizes: [0; MAX_FRAGMENTS],
            pages: Some(Pages {
                fragments: Page::new()?,
                block: Page::new()?,
            }),
            uninformed: 0,
        })
    }

    /// Begins to take fragments of `format`.
    pub(super) fn open(&mut self, format: StreamFormat) {
        self.phase = Phase::Filling;
        self.format = format;
        self.generation = self.generation.wrapping_add(1);
        self.count = 0;
        self.used = 0;
    }

    /// Appends a fragment and returns its number. `None` if it does not fit.
    pub(super) fn push(&mut self, fragment: &[u8]) -> Option<u8> {
        let end = self.used.checked_add(fragment.len())?;
        let size = self.sizes.get_mut(usize::from(self.count))?;
        let room = self.pages.as_mut()?.fragments.get_mut(self.used..end)?;
        room.copy_from_slice(fragment);
        *size = u16::try_from(fragment.len()).ok()?;
        self.used = end;
        let number = self.count;
        self.count = number.checked_add(1)?;
        Some(number)
    }

    /// Bytes left for more fragments.
    pub(super) fn room(&self) -> usize {
        self.format.payload_bytes().saturating_sub(self.used)
    }

    /// Whether no further fragment can be taken, however small.
    pub(super) fn is_full(&self) -> bool {
        usize::from(self.count) >= MAX_FRAGMENTS || self.room() == 0
    }
}

/// Puts the first `count` fragments in `fragments` into a compressed block. `false` if they are too many.
pub(super) fn build(
    block: &mut Block,
    format: StreamFormat,
    fragments: &Block,
    sizes: &[u16; MAX_FRAGMENTS],
    count: u8,
) -> bool {
    let mut builder = CompressedBlockBuilder::new(block, format);
    let mut rest: &[u8] = fragments;
    for size in sizes.iter().take(count.into()) {
        let Some((fragment, after)) = rest.split_at_checked((*size).into()) else {
            return false;
        };
        if builder.push(fragment).is_err() {
            return false;
        }
        rest = after;
    }
    true
}
