// SPDX-License-Identifier: GPL-2.0

//! A block of a slab journal.
//!
//! | offset | size | field                                                        |
//! |-------:|-----:|--------------------------------------------------------------|
//! |      0 |    8 | head: oldest sequence still needed, as of the write          |
//! |      8 |    8 | sequence                                                     |
//! |     16 |    8 | recovery point: where the last entry is in the recovery journal, see [`expand_point`] |
//! |     24 |    8 | nonce of the volume                                          |
//! |     32 |    1 | metadata type 2                                              |
//! |     33 |    1 | full form: 0 or 1                                            |
//! |     34 |    2 | entry count                                                  |
//! |     36 | 4060 | data-only form: up to 1353 entries of three bytes            |
//! |     36 | 3897 | full form: up to 1299 entries                                |
//! |   3933 |  163 | full form: bit n of the map says that entry n counts a block map page |
//!
//! An entry:
//!
//! | bits  | field                              |
//! |------:|------------------------------------|
//! |  0-22 | block of the slab                  |
//! |    23 | 1 = increment, 0 = decrement       |
//!
//! A block starts data-only and takes the full form when the first reference of a block map page
//! is entered. The block with sequence q is at position q modulo the size of the journal.
//!
//! The block itself is all the state that appending needs, so it can be copied and written at any
//! time between two entries.

use super::field::{bytes_at, get_u16, get_u64, get_u8, put_u16, put_u64, put_u8, set_bytes_at};
use super::FormatError;
use crate::engine::units::{
    Block, JournalPoint, Nonce, SequenceNumber, SlabBlockNumber, BLOCK_SIZE,
};

/// Entries that fit into a data-only block.
pub const DATA_FORM_ENTRIES: u16 = 1353;
/// Entries that fit into a block of the full form.
pub const FULL_FORM_ENTRIES: u16 = 1299;

pub(super) const METADATA_TYPE: u8 = 2;
pub(super) const ENTRY_BYTES: usize = 3;
pub(super) const INCREMENT: u32 = 1 << 23;

const HEAD: usize = 0;
const SEQUENCE: usize = 8;
pub(super) const RECOVERY_POINT: usize = 16;
const NONCE: usize = 24;
pub(super) const TYPE: usize = 32;
pub(super) const FULL_FORM: usize = 33;
pub(super) const ENTRY_COUNT: usize = 34;
pub(super) const ENTRIES: usize = 36;
const BLOCK_MAP_BITS: usize = ENTRIES + FULL_FORM_ENTRIES as usize * ENTRY_BYTES;

/// What an entry does to the reference count of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceUpdate {
    /// One more logical block uses the data.
    Increment,
    /// One fewer logical block uses the data.
    Decrement,
    /// The block became a page of the block map, which it stays for ever.
    BlockMapIncrement,
}

/// An entry of a slab journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabJournalEntry {
    /// The block.
    pub sbn: SlabBlockNumber,
    /// What happens to its count.
    pub update: ReferenceUpdate,
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabJournalHeader {
    /// The oldest block still needed when this one was written.
    pub head: SequenceNumber,
    /// This block.
    pub sequence: SequenceNumber,
    /// Where the last entry is in the recovery journal.
    pub recovery_point: JournalPoint,
    /// The volume.
    pub nonce: Nonce,
    /// Whether the block can have entries for block map pages.
    pub full_form: bool,
    /// The number of entries.
    pub entry_count: u16,
}

impl SlabJournalHeader {
    /// Reads the header of a block. An error if it is none, or counts more than fit.
    pub fn decode(block: &Block) -> Result<Self, FormatError> {
        if get_u8::<TYPE>(block) != METADATA_TYPE {
            return Err(FormatError::CorruptJournal("not a slab journal block"));
        }
        let full_form = match get_u8::<FULL_FORM>(block) {
            0 => false,
            1 => true,
            _ => {
                return Err(FormatError::CorruptJournal(
                    "slab journal block of unknown form",
                ))
            }
        };
        let entry_count = get_u16::<ENTRY_COUNT>(block);
        if entry_count > capacity(full_form) {
            return Err(FormatError::CorruptJournal(
                "slab journal block counts more entries than fit",
            ));
        }
        Self::decode_fields(block, full_form, entry_count)
    }

    /// Reads what blocks of all types have in common.
    pub(super) fn decode_fields(
        block: &Block,
        full_form: bool,
        entry_count: u16,
    ) -> Result<Self, FormatError> {
        let out_of_range = FormatError::CorruptJournal("slab journal sequence is out of range");
        Ok(Self {
            head: SequenceNumber::new(get_u64::<HEAD>(block)).ok_or(out_of_range)?,
            sequence: SequenceNumber::new(get_u64::<SEQUENCE>(block)).ok_or(out_of_range)?,
            recovery_point: JournalPoint::decode(get_u64::<RECOVERY_POINT>(block)),
            nonce: Nonce::new(get_u64::<NONCE>(block)),
            full_form,
            entry_count,
        })
    }

    /// Checks that this is the block with `sequence` of a journal of the volume.
    pub fn check(&self, nonce: Nonce, sequence: SequenceNumber) -> Result<(), FormatError> {
        if self.nonce != nonce {
            return Err(FormatError::BadNonce {
                expected: nonce,
                found: self.nonce,
            });
        }
        if self.sequence != sequence {
            return Err(FormatError::CorruptJournal(
                "slab journal block has another sequence number than its place",
            ));
        }
        if self.head > self.sequence {
            return Err(FormatError::CorruptJournal(
                "slab journal block is older than the head it names",
            ));
        }
        Ok(())
    }
}

/// The block has no room for the entry: write it and open the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockFull;

/// Makes `block` an empty one.
pub fn open(block: &mut Block, nonce: Nonce, head: SequenceNumber, sequence: SequenceNumber) {
    *block = [0; BLOCK_SIZE];
    put_u64::<HEAD>(block, head.get());
    put_u64::<SEQUENCE>(block, sequence.get());
    put_u64::<NONCE>(block, nonce.get());
    put_u8::<TYPE>(block, METADATA_TYPE);
}

/// Names the oldest block still needed, just before the block is written.
pub fn set_head(block: &mut Block, head: SequenceNumber) {
    put_u64::<HEAD>(block, head.get());
}

/// Names the place in the recovery journal without adding an entry, as an empty block needs it
/// that takes over from an older one.
pub fn set_recovery_point(block: &mut Block, recovery_point: JournalPoint) {
    put_u64::<RECOVERY_POINT>(block, recovery_point.encode());
}

/// Appends an entry and returns its place in the block.
///
/// `recovery_point` is that of the entry, already expanded; points must strictly increase.
pub fn append(
    block: &mut Block,
    entry: SlabJournalEntry,
    recovery_point: JournalPoint,
) -> Result<u16, BlockFull> {
    let full_form = get_u8::<FULL_FORM>(block) != 0;
    let is_block_map = entry.update == ReferenceUpdate::BlockMapIncrement;
    let index = get_u16::<ENTRY_COUNT>(block);
    if index >= capacity(full_form || is_block_map) {
        return Err(BlockFull);
    }

    let place = ENTRIES + usize::from(index) * ENTRY_BYTES;
    let sign = match entry.update {
        ReferenceUpdate::Decrement => 0,
        ReferenceUpdate::Increment | ReferenceUpdate::BlockMapIncrement => INCREMENT,
    };
    let [b0, b1, b2, _] = (entry.sbn.get() | sign).to_le_bytes();
    set_bytes_at(block, place, [b0, b1, b2]).ok_or(BlockFull)?;

    if is_block_map {
        // Up to here the map's bytes were zero: a data-only block with room for the full form
        // has no entries there.
        put_u8::<FULL_FORM>(block, 1);
        if let Some(bits) = block.get_mut(BLOCK_MAP_BITS + usize::from(index) / 8) {
            *bits |= 1 << (index % 8);
        }
    }
    put_u64::<RECOVERY_POINT>(block, recovery_point.encode());
    put_u16::<ENTRY_COUNT>(block, index + 1);
    Ok(index)
}

/// Entries in the block.
pub fn entry_count(block: &Block) -> u16 {
    get_u16::<ENTRY_COUNT>(block)
}

/// Whether no entry of any kind fits into the block any more.
pub fn is_full(block: &Block) -> bool {
    entry_count(block) >= capacity(get_u8::<FULL_FORM>(block) != 0)
}

/// Whether `update` fits into the block.
pub fn has_room(block: &Block, update: ReferenceUpdate) -> bool {
    let full_form = get_u8::<FULL_FORM>(block) != 0;
    entry_count(block) < capacity(full_form || update == ReferenceUpdate::BlockMapIncrement)
}

/// Whether the block is all zeros, as a forced rebuild leaves every slab journal.
pub fn is_blank(block: &Block) -> bool {
    block.iter().all(|byte| *byte == 0)
}

/// The entries of a block, oldest first.
///
/// A decrement that is marked as one of a block map page is an error: such pages stay for ever.
pub fn entries<'a>(
    block: &'a Block,
    header: &SlabJournalHeader,
) -> impl Iterator<Item = Result<SlabJournalEntry, FormatError>> + 'a {
    let full_form = header.full_form;
    (0..header.entry_count.min(capacity(full_form)))
        .map(move |index| entry(block, full_form, index))
}

fn entry(block: &Block, full_form: bool, index: u16) -> Result<SlabJournalEntry, FormatError> {
    let place = ENTRIES + usize::from(index) * ENTRY_BYTES;
    let [b0, b1, b2] = bytes_at(block, place).ok_or(FormatError::Truncated)?;
    let packed = u32::from_le_bytes([b0, b1, b2, 0]);
    let is_block_map = full_form
        && block
            .get(BLOCK_MAP_BITS + usize::from(index) / 8)
            .is_some_and(|bits| (bits >> (index % 8)) & 1 == 1);
    let update = match (packed & INCREMENT != 0, is_block_map) {
        (true, false) => ReferenceUpdate::Increment,
        (true, true) => ReferenceUpdate::BlockMapIncrement,
        (false, false) => ReferenceUpdate::Decrement,
        (false, true) => {
            return Err(FormatError::CorruptJournal(
                "slab journal entry releases a block map page",
            ))
        }
    };
    Ok(SlabJournalEntry {
        sbn: SlabBlockNumber::from_low_bits(packed),
        update,
    })
}

const fn capacity(full_form: bool) -> u16 {
    if full_form {
        FULL_FORM_ENTRIES
    } else {
        DATA_FORM_ENTRIES
    }
}

/// The position of one half of a recovery journal entry, among all halves of its block.
///
/// One entry of the recovery journal can both add and remove a reference in the same slab; the
/// two get positions of their own.
pub fn expand_point(point: JournalPoint, update: ReferenceUpdate) -> JournalPoint {
    let half = match update {
        ReferenceUpdate::Increment | ReferenceUpdate::BlockMapIncrement => 0,
        ReferenceUpdate::Decrement => 1,
    };
    JournalPoint {
        sequence: point.sequence,
        entry: point.entry.saturating_mul(2).saturating_add(half),
    }
}
