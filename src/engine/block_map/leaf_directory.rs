// SPDX-License-Identifier: GPL-2.0

//! Where leaf pages are, for skipping the walk through the interior pages.
//!
//! A leaf page never moves and is never freed, so a location that was true once is true for ever and needs neither a lock nor
//! invalidation. The directory is a direct-mapped table of single words; a lost entry costs one walk.

use crate::engine::units::Pbn;
use crate::rt::atomic::{AtomicU64, Ordering};
use crate::rt::{AllocError, Vec};

/// Bits of a word that hold the location. The rest holds what the index does not say about the leaf.
const PBN_BITS: u32 = 36;
const TAG_BITS: u32 = u64::BITS - PBN_BITS;
/// With fewer slots the number of a leaf would not fit into index and tag.
const SLOTS_MIN: usize = 64;

/// The directory.
pub(super) struct LeafDirectory {
    /// Zero for an empty slot: no leaf is in block 0.
    slots: Vec<AtomicU64>,
    index_bits: u32,
}

impl LeafDirectory {
    /// A directory of about `leaves` leaves.
    pub(super) fn new(leaves: usize) -> Result<Self, AllocError> {
        let slots = leaves
            .max(SLOTS_MIN)
            .checked_next_power_of_two()
            .ok_or(AllocError)?;
        Ok(Self {
            slots: Vec::from_fn(slots, |_| Ok::<_, AllocError>(AtomicU64::new(0)))?,
            index_bits: slots.trailing_zeros(),
        })
    }

    /// Where the leaf with this number is, if that is known.
    pub(super) fn get(&self, leaf: u64) -> Option<Pbn> {
        let (slot, tag) = self.locate(leaf)?;
        let word = slot.load(Ordering::Relaxed);
        let pbn = Pbn::from_low_bits(word);
        (word >> PBN_BITS == tag && !pbn.is_zero()).then_some(pbn)
    }

    /// The leaf with this number is at `pbn`.
    pub(super) fn insert(&self, leaf: u64, pbn: Pbn) {
        if let Some((slot, tag)) = self.locate(leaf) {
            slot.store((tag << PBN_BITS) | pbn.get(), Ordering::Relaxed);
        }
    }

    fn locate(&self, leaf: u64) -> Option<(&AtomicU64, u64)> {
        let tag = leaf.checked_shr(self.index_bits)?;
        if tag >> TAG_BITS != 0 {
            return None;
        }
        let mask = self.slots.len().wrapping_sub(1);
        let slot = self.slots.get(usize::try_from(leaf).ok()? & mask)?;
        Some((slot, tag))
    }
}
