// SPDX-License-Identifier: GPL-2.0

//! A block map entry: where the data of a logical block is, or where a page of the map is.
//!
//! | byte | bits | field                                |
//! |-----:|-----:|--------------------------------------|
//! |    0 |  0-3 | state, see [`MappingState`]          |
//! |    0 |  4-7 | bits 32-35 of the physical block     |
//! |  1-4 |  all | bits 0-31 of the physical block      |

use core::fmt;

use crate::engine::units::{FragmentSlot, Pbn};

/// Size of an encoded entry.
pub const ENTRY_BYTES: usize = 5;

/// State 2 is the first fragment of a compressed block.
const FIRST_COMPRESSED: u8 = 2;

/// How a block is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MappingState {
    /// State 0: not at all.
    #[default]
    Unmapped,
    /// State 1: as it is. In block 0 it is all zeros.
    Uncompressed,
    /// States 2 to 15: as a fragment of a compressed block.
    Compressed(FragmentSlot),
}

impl MappingState {
    /// Reads the low four bits of `nibble`. Every value is a state.
    pub const fn decode(nibble: u8) -> Self {
        match nibble & 0xf {
            0 => Self::Unmapped,
            1 => Self::Uncompressed,
            state => match FragmentSlot::new(state - FIRST_COMPRESSED) {
                Some(slot) => Self::Compressed(slot),
                // Not reached: four bits hold no more states than there are slots.
                None => Self::Unmapped,
            },
        }
    }

    /// The stored form, in the low four bits.
    pub const fn encode(self) -> u8 {
        match self {
            Self::Unmapped => 0,
            Self::Uncompressed => 1,
            Self::Compressed(slot) => slot.get() + FIRST_COMPRESSED,
        }
    }
}

/// A block map entry.
///
/// Entries from disk can be invalid: see [`Mapping::is_valid`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// The block.
    pub pbn: Pbn,
    /// How the data is stored in it.
    pub state: MappingState,
}

impl Mapping {
    /// Nothing was ever stored, or it was discarded. Reads as zeros.
    pub const UNMAPPED: Self = Self {
        pbn: Pbn::ZERO,
        state: MappingState::Unmapped,
    };

    /// Zeros were stored.
    pub const ZERO_BLOCK: Self = Self {
        pbn: Pbn::ZERO,
        state: MappingState::Uncompressed,
    };

    /// All of the block `pbn`.
    pub const fn uncompressed(pbn: Pbn) -> Self {
        Self {
            pbn,
            state: MappingState::Uncompressed,
        }
    }

    /// A fragment of the compressed block `pbn`.
    pub const fn compressed(pbn: Pbn, slot: FragmentSlot) -> Self {
        Self {
            pbn,
            state: MappingState::Compressed(slot),
        }
    }

    /// Reads a stored entry.
    pub const fn decode(bytes: [u8; ENTRY_BYTES]) -> Self {
        let [first, b0, b1, b2, b3] = bytes;
        let low = u32::from_le_bytes([b0, b1, b2, b3]);
        let high = (first >> 4) as u64;
        Self {
            pbn: Pbn::from_low_bits((high << 32) | low as u64),
            state: MappingState::decode(first),
        }
    }

    /// The stored form.
    pub const fn encode(self) -> [u8; ENTRY_BYTES] {
        let pbn = self.pbn.get();
        let [b0, b1, b2, b3, high, ..] = pbn.to_le_bytes();
        [(high << 4) | self.state.encode(), b0, b1, b2, b3]
    }

    /// Whether state and block go together: no block without a state, and in block 0 nothing but
    /// zeros.
    pub const fn is_valid(self) -> bool {
        match self.state {
            MappingState::Unmapped => self.pbn.is_zero(),
            MappingState::Uncompressed => true,
            MappingState::Compressed(_) => !self.pbn.is_zero(),
        }
    }

    /// Whether this can be an entry of an interior page: a page of the map is stored as it is.
    pub const fn is_valid_interior(self) -> bool {
        match self.state {
            MappingState::Unmapped => self.pbn.is_zero(),
            MappingState::Uncompressed => !self.pbn.is_zero(),
            MappingState::Compressed(_) => false,
        }
    }

    /// Whether something is stored, if only zeros. Counts as a used logical block.
    pub const fn is_mapped(self) -> bool {
        !matches!(self.state, MappingState::Unmapped)
    }

    /// Whether there is a physical block behind it, which holds a reference for this entry.
    pub const fn has_block(self) -> bool {
        self.is_mapped() && !self.pbn.is_zero()
    }

    /// The fragment, if the block is a compressed one.
    pub const fn fragment(self) -> Option<FragmentSlot> {
        match self.state {
            MappingState::Compressed(slot) => Some(slot),
            _ => None,
        }
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            MappingState::Unmapped if self.pbn.is_zero() => f.write_str("unmapped"),
            MappingState::Unmapped => write!(f, "unmapped with block {}", self.pbn),
            MappingState::Uncompressed => write!(f, "block {}", self.pbn),
            MappingState::Compressed(slot) => write!(f, "fragment {slot} of block {}", self.pbn),
        }
    }
}
