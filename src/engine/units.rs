// SPDX-License-Identifier: GPL-2.0

//! The numbers of a volume, one type per meaning.
//!
//! A number that the disk format stores in fewer bits than its integer has (a physical block
//! number in 36, a journal sequence in 48, ...) can only be made through a checked constructor.
//! Encoders therefore never truncate.

use core::fmt;

/// Size in bytes of a block, the unit of every address on a volume.
pub const BLOCK_SIZE: usize = 4096;
/// Size in bytes of a sector, the unit that the device never tears.
pub const SECTOR_SIZE: usize = 512;
/// Sectors in a block.
pub const SECTORS_PER_BLOCK: usize = BLOCK_SIZE / SECTOR_SIZE;

/// A block of bytes, in memory or on its way to the device.
pub type Block = [u8; BLOCK_SIZE];

/// Most blocks a volume can have underneath: 256 TiB, what 36 bits address.
pub const MAX_PHYSICAL_BLOCKS: u64 = 1 << 36;
/// Most blocks a volume can present: 4 PiB.
pub const MAX_LOGICAL_BLOCKS: u64 = 1 << 40;
/// Smallest slab the formatting tools and the table line allow, in blocks.
pub const MIN_SLAB_BLOCKS: u64 = 1 << 13;
/// Largest slab, in blocks.
pub const MAX_SLAB_BLOCKS: u64 = 1 << 23;
/// Most slabs in a depot.
pub const MAX_SLABS: u32 = 8192;
/// Most physical zones, and the number of copies of the slab summary.
pub const MAX_PHYSICAL_ZONES: usize = 16;
/// Most logical zones.
pub const MAX_LOGICAL_ZONES: usize = 60;
/// Trees in the block map.
pub const BLOCK_MAP_ROOT_COUNT: u64 = 60;
/// Levels of a block map tree that are on disk, the leaves being level 0.
pub const BLOCK_MAP_TREE_HEIGHT: usize = 5;
/// Entries in a block map page.
pub const BLOCK_MAP_ENTRIES_PER_PAGE: u16 = 812;
/// Size of the recovery journal that the formatter makes, in blocks.
pub const DEFAULT_RECOVERY_JOURNAL_BLOCKS: u64 = 32768;
/// Size of the slab journals that the formatter makes, in blocks.
pub const DEFAULT_SLAB_JOURNAL_BLOCKS: u64 = 224;
/// Longest slab journal whose positions fit into the one byte that the slab summary has for them.
pub const MAX_SLAB_JOURNAL_BLOCKS: u64 = 256;
/// Size of the slab summary, in blocks.
pub const SLAB_SUMMARY_BLOCKS: u64 = 64;
/// Most references to one block.
pub const MAX_REFERENCE_COUNT: u8 = 254;
/// Counter value of a block that is allocated but not referenced yet. Means nothing on disk.
pub const PROVISIONAL_REFERENCE_COUNT: u8 = 255;
/// Most fragments in a compressed block.
pub const MAX_FRAGMENTS: usize = 14;

/// Defines a number that may have any value of its integer.
macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($int);

        impl $name {
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// Makes one from its number.
            pub const fn new(number: $int) -> Self {
                Self(number)
            }

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }

            /// The one `count` further on, if there is one.
            pub const fn checked_add(self, count: $int) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// How far this one is past `origin`; `None` if it lies before.
            pub const fn checked_offset_from(self, origin: Self) -> Option<$int> {
                self.0.checked_sub(origin.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

/// Defines a number that must stay below a limit, because the disk has no more room for it.
macro_rules! bounded_number {
    ($(#[$doc:meta])* $name:ident($int:ty) < $limit:expr) => {
        $(#[$doc])*
        ///
        /// # Invariants
        ///
        /// The number is below [`Self::LIMIT`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($int);

        impl $name {
            /// The first number that is too large.
            pub const LIMIT: $int = $limit;
            /// The first one.
            pub const ZERO: Self = Self(0);

            /// Makes one from its number, if that is below [`Self::LIMIT`].
            pub const fn new(number: $int) -> Option<Self> {
                if number < Self::LIMIT {
                    // INVARIANT: just checked.
                    Some(Self(number))
                } else {
                    None
                }
            }

            /// The number.
            pub const fn get(self) -> $int {
                self.0
            }

            /// The one `count` further on, if there is one.
            pub const fn checked_add(self, count: $int) -> Option<Self> {
                match self.0.checked_add(count) {
                    Some(number) => Self::new(number),
                    None => None,
                }
            }

            /// How far this one is past `origin`; `None` if it lies before.
            pub const fn checked_offset_from(self, origin: Self) -> Option<$int> {
                self.0.checked_sub(origin.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// A logical block number: where the user of the volume sees a block.
    Lbn(u64)
}
number! {
    /// A block of the underlying device, counted from its start.
    DeviceBlock(u64)
}
number! {
    /// The number of a slab in its depot.
    SlabNumber(u32)
}
number! {
    /// The number a volume was given when it was formatted; all its metadata carries it.
    Nonce(u64)
}
bounded_number! {
    /// A physical block number: where a block is stored, in the address space of the volume.
    /// Number 0 is the zero block and holds no data.
    Pbn(u64) < 1 << 36
}
bounded_number! {
    /// The number of a block within its slab.
    SlabBlockNumber(u32) < 1 << 23
}
bounded_number! {
    /// The number of a journal block since the volume was made. Never goes back.
    SequenceNumber(u64) < 1 << 48
}
bounded_number! {
    /// The place of a fragment in a compressed block.
    FragmentSlot(u8) < 14
}
bounded_number! {
    /// The place of an entry in a block map page.
    EntrySlot(u16) < 812
}

impl Pbn {
    /// The block with the low 36 bits of `number`, as a decoder finds them.
    pub const fn from_low_bits(number: u64) -> Self {
        // INVARIANT: the mask leaves a number below the limit.
        Self(number & (Self::LIMIT - 1))
    }

    /// Whether this is the zero block, which stores nothing.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl SlabBlockNumber {
    /// The block with the low 23 bits of `number`, as a decoder finds them.
    pub const fn from_low_bits(number: u32) -> Self {
        // INVARIANT: the mask leaves a number below the limit.
        Self(number & (Self::LIMIT - 1))
    }
}

impl SequenceNumber {
    /// The number of the first block of a new journal.
    pub const FIRST: Self = Self(1);

    /// The number of the next block. `None` once 2^48 blocks have been written.
    pub const fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
}

/// A position in a journal: a block and an entry in it.
///
/// Stored as one u64, the sequence number above a 16-bit entry. Ordered by age.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalPoint {
    /// The block.
    pub sequence: SequenceNumber,
    /// The entry in the block.
    pub entry: u16,
}

impl JournalPoint {
    /// Before every entry of every journal.
    pub const ZERO: Self = Self {
        sequence: SequenceNumber::ZERO,
        entry: 0,
    };

    /// Reads a stored point. Every value is one.
    pub const fn decode(packed: u64) -> Self {
        Self {
            // INVARIANT: 64 bits less 16 are 48.
            sequence: SequenceNumber(packed >> 16),
            entry: (packed & 0xffff) as u16,
        }
    }

    /// The stored form.
    pub const fn encode(self) -> u64 {
        (self.sequence.0 << 16) | self.entry as u64
    }
}

impl fmt::Display for JournalPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.sequence, self.entry)
    }
}
