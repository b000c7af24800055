// SPDX-License-Identifier: GPL-2.0

//! Who still needs a journal block.
//!
//! Three counts per block of the journal on disk: entries whose map page has not taken the change over yet, dirty block map
//! pages whose oldest change is in the block, and slab journal blocks not yet covered by the slab summary. A block with none of
//! the first two may leave the part of the journal that recovery would read for the block map; one without the third, the
//! part for the slab journals.
//!
//! The counts are atomics and have no lock. A change passes from an entry to its page by counting the page first, so
//! whoever reads the entries before the pages never finds both at zero in between.

use crate::engine::units::SequenceNumber;
use crate::rt::atomic::{AtomicU32, Ordering};
use crate::rt::{AllocError, Vec};

/// What holds a journal block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holder {
    /// An entry on its way to its block map page.
    Entry,
    /// A dirty block map page.
    Page,
    /// A slab journal block.
    Slab,
}

struct Counts {
    entries: AtomicU32,
    pages: AtomicU32,
    slabs: AtomicU32,
}

/// The counts of all blocks of a journal.
pub(super) struct BlockLocks {
    counts: Vec<Counts>,
}

impl BlockLocks {
    /// Counts for a journal of `size` blocks, which is a power of two.
    pub(super) fn new(size: u64) -> Result<Self, AllocError> {
        Ok(Self {
            counts: Vec::from_fn(usize::try_from(size).map_err(|_| AllocError)?, |_| {
                Ok::<_, AllocError>(Counts {
                    entries: AtomicU32::new(0),
                    pages: AtomicU32::new(0),
                    slabs: AtomicU32::new(0),
                })
            })?,
        })
    }

    /// Counts one more holder of block `sequence`.
    pub(super) fn lock(&self, sequence: SequenceNumber, holder: Holder) {
        if let Some(count) = self.count(sequence, holder) {
            count.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Counts one holder less. `true` if it was the last of its kind.
    pub(super) fn unlock(&self, sequence: SequenceNumber, holder: Holder) -> bool {
        self.count(sequence, holder)
            .is_some_and(|count| count.fetch_sub(1, Ordering::AcqRel) == 1)
    }

    /// Whether the block map needs block `sequence`.
    pub(super) fn is_needed_by_map(&self, sequence: u64) -> bool {
        self.counts(sequence).is_some_and(|counts| {
            // In this order: see the module's first lines.
            counts.entries.load(Ordering::Acquire) != 0 || counts.pages.load(Ordering::Acquire) != 0
        })
    }

    /// Whether a slab journal needs block `sequence`.
    pub(super) fn is_needed_by_slabs(&self, sequence: u64) -> bool {
        self.counts(sequence)
            .is_some_and(|counts| counts.slabs.load(Ordering::Acquire) != 0)
    }

    fn counts(&self, sequence: u64) -> Option<&Counts> {
        let mask = self.counts.len().wrapping_sub(1);
        self.counts.get(usize::try_from(sequence).ok()? & mask)
    }

    fn count(&self, sequence: SequenceNumber, holder: Holder) -> Option<&AtomicU32> {
        let counts = self.counts(sequence.get())?;
        Some(match holder {
            Holder::Entry => &counts.entries,
            Holder::Page => &counts.pages,
            Holder::Slab => &counts.slabs,
        })
    }
}
