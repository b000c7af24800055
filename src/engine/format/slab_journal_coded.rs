// SPDX-License-Identifier: GPL-2.0

//! A block of the journal of a slab that has an [algorithm map](super::algorithm_map).
//!
//! The header is that of [`slab_journal`](super::slab_journal) with metadata type 18, and the full form byte is always 0. An entry:
//!
//! | bits  | field                                                                 |
//! |------:|-----------------------------------------------------------------------|
//! |  0-18 | block of the slab: slabs that have a map have at most 2^19 blocks      |
//! | 19-22 | increment: the block's code, 14 for a page of the block map; else 0    |
//! |    23 | 1 = increment, 0 = decrement                                          |
//!
//! Every block has room for 1353 entries of any kind.
//!
//! The journal of a slab that was given its map, or lost it, starts behind an empty block of the other type, which both layouts find
//! in the same place. So an empty block of type 2 is a valid one here, too.

use super::algorithm_map::BlockCode;
use super::field::{bytes_at, get_u16, get_u8, put_u16, put_u64, put_u8, set_bytes_at};
use super::slab_journal::{
    self, BlockFull, ReferenceUpdate, SlabJournalHeader, DATA_FORM_ENTRIES, ENTRIES, ENTRY_BYTES,
    ENTRY_COUNT, FULL_FORM, INCREMENT, METADATA_TYPE, RECOVERY_POINT, TYPE,
};
use super::FormatError;
use crate::engine::units::{Block, JournalPoint, Nonce, SequenceNumber, SlabBlockNumber};

/// Entries that fit into a block.
pub const ENTRIES_PER_BLOCK: u16 = DATA_FORM_ENTRIES;
/// The largest slab whose blocks an entry can name, as a power of two.
pub const MAX_SLAB_BITS: u32 = 19;

const CODED_TYPE: u8 = 18;
const SBN_MASK: u32 = (1 << MAX_SLAB_BITS) - 1;
const CODE_SHIFT: u32 = MAX_SLAB_BITS;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodedEntry {
    /// The block.
    pub sbn: SlabBlockNumber,
    /// What happens to its count.
    pub update: ReferenceUpdate,
    /// What kind of block it is, if it gets a reference; otherwise 0.
    pub code: BlockCode,
}

/// Makes `block` an empty one.
pub fn open(block: &mut Block, nonce: Nonce, head: SequenceNumber, sequence: SequenceNumber) {
    slab_journal::open(block, nonce, head, sequence);
    put_u8::<TYPE>(block, CODED_TYPE);
}

/// Reads the header of a block. An error if it is none, or counts more than fit.
pub fn decode(block: &Block) -> Result<SlabJournalHeader, FormatError> {
    let entry_count = get_u16::<ENTRY_COUNT>(block);
    match get_u8::<TYPE>(block) {
        CODED_TYPE if get_u8::<FULL_FORM>(block) != 0 => {
            return Err(FormatError::CorruptJournal(
                "slab journal block of unknown form",
            ))
        }
        CODED_TYPE => {}
        METADATA_TYPE if entry_count == 0 => {}
        METADATA_TYPE => {
            return Err(FormatError::CorruptJournal(
                "slab journal block without codes in a slab with an algorithm map",
            ))
        }
        _ => return Err(FormatError::CorruptJournal("not a slab journal block")),
    }
    if entry_count > ENTRIES_PER_BLOCK {
        return Err(FormatError::CorruptJournal(
            "slab journal block counts more entries than fit",
        ));
    }
    SlabJournalHeader::decode_fields(block, false, entry_count)
}

/// Appends an entry and returns its place in the block.
///
/// `recovery_point` is that of the entry, already expanded; points must strictly increase.
pub fn append(
    block: &mut Block,
    entry: CodedEntry,
    recovery_point: JournalPoint,
) -> Result<u16, BlockFull> {
    let index = get_u16::<ENTRY_COUNT>(block);
    if is_full(block) || entry.sbn.get() > SBN_MASK {
        return Err(BlockFull);
    }
    let (sign, code) = match entry.update {
        ReferenceUpdate::Decrement => (0, BlockCode::NONE),
        ReferenceUpdate::Increment => (INCREMENT, entry.code),
        ReferenceUpdate::BlockMapIncrement => (INCREMENT, BlockCode::BLOCK_MAP),
    };
    let packed = entry.sbn.get() | u32::from(code.get()) << CODE_SHIFT | sign;
    let [b0, b1, b2, _] = packed.to_le_bytes();
    let place = ENTRIES + usize::from(index) * ENTRY_BYTES;
    set_bytes_at(block, place, [b0, b1, b2]).ok_or(BlockFull)?;
    put_u64::<RECOVERY_POINT>(block, recovery_point.encode());
    put_u16::<ENTRY_COUNT>(block, index + 1);
    Ok(index)
}

/// Whether no entry fits into the block any more.
pub fn is_full(block: &Block) -> bool {
    get_u16::<ENTRY_COUNT>(block) >= ENTRIES_PER_BLOCK
}

/// The entries of a block, oldest first.
pub fn entries<'a>(
    block: &'a Block,
    header: &SlabJournalHeader,
) -> impl Iterator<Item = Result<CodedEntry, FormatError>> + 'a {
    (0..header.entry_count.min(ENTRIES_PER_BLOCK)).map(move |index| entry(block, index))
}

fn entry(block: &Block, index: u16) -> Result<CodedEntry, FormatError> {
    let place = ENTRIES + usize::from(index) * ENTRY_BYTES;
    let [b0, b1, b2] = bytes_at(block, place).ok_or(FormatError::Truncated)?;
    let packed = u32::from_le_bytes([b0, b1, b2, 0]);
    let code = BlockCode::from_low_bits((packed >> CODE_SHIFT) as u8);
    let (update, code) = match (packed & INCREMENT != 0, code) {
        (true, BlockCode::BLOCK_MAP) => (ReferenceUpdate::BlockMapIncrement, BlockCode::NONE),
        (true, code) if code.is_valid() => (ReferenceUpdate::Increment, code),
        (false, BlockCode::NONE) => (ReferenceUpdate::Decrement, code),
        _ => {
            return Err(FormatError::CorruptJournal(
                "slab journal entry with a code that is none",
            ))
        }
    };
    Ok(CodedEntry {
        sbn: SlabBlockNumber::from_low_bits(packed & SBN_MASK),
        update,
        code,
    })
}
