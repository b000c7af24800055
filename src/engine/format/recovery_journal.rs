// SPDX-License-Identifier: GPL-2.0

//! A block of the recovery journal.
//!
//! Sector 0:
//!
//! | offset | size | field                                                            |
//! |-------:|-----:|------------------------------------------------------------------|
//! |      0 |    8 | block map head: oldest sequence the block map still needs        |
//! |      8 |    8 | slab journal head: oldest sequence the slab journals still need  |
//! |     16 |    8 | sequence                                                         |
//! |     24 |    8 | nonce of the volume                                              |
//! |     32 |    1 | metadata type: 3, or 1 in the old format                         |
//! |     33 |    2 | entry count                                                      |
//! |     35 |    8 | logical blocks used when the block was opened                    |
//! |     43 |    8 | block map data blocks when the block was opened                  |
//! |     51 |    1 | check byte, see [`check_byte`]                                   |
//! |     52 |    1 | recovery count: low byte of the volume's complete recoveries     |
//!
//! Sectors 1 to 7, as far as the entries reach; the others are zero:
//!
//! | offset | size | field                                                            |
//! |-------:|-----:|------------------------------------------------------------------|
//! |      0 |    1 | check byte, as in the header                                     |
//! |      1 |    1 | recovery count, as in the header                                 |
//! |      2 |    1 | entry count of the sector                                        |
//! |      3 |  496 | up to 31 entries, see [`recovery_journal_entry`]; old: up to 46 of 11 bytes, 35 in the last sector |
//!
//! The block with sequence q is at position q modulo the size of the journal, a power of two.
//! The block itself is all the state that appending needs, so it can be copied and written at any
//! time between two entries; a block that is written again with more entries only grows.
//!
//! [`recovery_journal_entry`]: super::recovery_journal_entry

use super::field::{bytes_at, get_u16, get_u64, get_u8, put_u16, put_u64, put_u8, set_bytes_at};
use super::recovery_journal_entry::{
    JournalEntry, OldJournalEntry, JOURNAL_ENTRY_BYTES, OLD_JOURNAL_ENTRY_BYTES,
};
use super::slab_journal::BlockFull;
use super::FormatError;
use crate::engine::units::{
    Block, Nonce, SequenceNumber, BLOCK_SIZE, SECTORS_PER_BLOCK, SECTOR_SIZE,
};

/// Entries in a sector.
pub const ENTRIES_PER_SECTOR: u16 = 31;
/// Entries in a block.
pub const ENTRIES_PER_BLOCK: u16 = ENTRIES_PER_SECTOR * ENTRY_SECTORS;
/// Entries in a sector of the old format.
pub const OLD_ENTRIES_PER_SECTOR: u16 = 46;
/// Entries in the last sector of the old format.
pub const OLD_ENTRIES_IN_LAST_SECTOR: u16 = 35;
/// Entries in a block of the old format.
pub const OLD_ENTRIES_PER_BLOCK: u16 =
    OLD_ENTRIES_PER_SECTOR * (ENTRY_SECTORS - 1) + OLD_ENTRIES_IN_LAST_SECTOR;

const ENTRY_SECTORS: u16 = SECTORS_PER_BLOCK as u16 - 1;

const BLOCK_MAP_HEAD: usize = 0;
const SLAB_JOURNAL_HEAD: usize = 8;
const SEQUENCE: usize = 16;
const NONCE: usize = 24;
const TYPE: usize = 32;
const ENTRY_COUNT: usize = 33;
const LOGICAL_BLOCKS_USED: usize = 35;
const BLOCK_MAP_DATA_BLOCKS: usize = 43;
const CHECK_BYTE: usize = 51;
const RECOVERY_COUNT: usize = 52;
/// Size of the header of a sector.
const SECTOR_HEADER: usize = 3;

/// Which entries a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalFormat {
    /// Metadata type 1: one entry for each reference. Only read.
    Old,
    /// Metadata type 3: one entry for each change.
    Current,
}

impl JournalFormat {
    const fn decode(metadata_type: u8) -> Option<Self> {
        match metadata_type {
            1 => Some(Self::Old),
            3 => Some(Self::Current),
            _ => None,
        }
    }

    const fn encode(self) -> u8 {
        match self {
            Self::Old => 1,
            Self::Current => 3,
        }
    }

    /// Entries that fit into a block.
    pub const fn entries_per_block(self) -> u16 {
        match self {
            Self::Old => OLD_ENTRIES_PER_BLOCK,
            Self::Current => ENTRIES_PER_BLOCK,
        }
    }

    /// Entries in every sector but the last one.
    const fn entries_per_sector(self) -> u16 {
        match self {
            Self::Old => OLD_ENTRIES_PER_SECTOR,
            Self::Current => ENTRIES_PER_SECTOR,
        }
    }

    const fn entry_bytes(self) -> usize {
        match self {
            Self::Old => OLD_JOURNAL_ENTRY_BYTES,
            Self::Current => JOURNAL_ENTRY_BYTES,
        }
    }
}

/// The byte that tells the sectors of one round through the journal from those of another.
/// `journal_blocks` is a power of two.
pub fn check_byte(sequence: SequenceNumber, journal_blocks: u64) -> u8 {
    let round = sequence
        .get()
        .checked_shr(journal_blocks.trailing_zeros())
        .unwrap_or(0);
    (round & 0x7f) as u8 | 0x80
}

/// The position of a block in a journal of `journal_blocks`, a power of two.
pub fn position(sequence: SequenceNumber, journal_blocks: u64) -> u64 {
    sequence.get() & journal_blocks.saturating_sub(1)
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// The oldest block that the block map still needs.
    pub block_map_head: SequenceNumber,
    /// The oldest block that the slab journals still need.
    pub slab_journal_head: SequenceNumber,
    /// This block.
    pub sequence: SequenceNumber,
    /// The volume.
    pub nonce: Nonce,
    /// Which entries it has.
    pub format: JournalFormat,
    /// How many.
    pub entry_count: u16,
    /// Logical blocks in use before the first entry.
    pub logical_blocks_used: u64,
    /// Pages of the block map in slabs before the first entry.
    pub block_map_data_blocks: u64,
    /// Repeated in every sector.
    pub check_byte: u8,
    /// Repeated in every sector.
    pub recovery_count: u8,
}

impl JournalHeader {
    /// Reads the header of a block. An error if it is none, or counts more than fit.
    pub fn decode(block: &Block) -> Result<Self, FormatError> {
        let format = JournalFormat::decode(get_u8::<TYPE>(block))
            .ok_or(FormatError::CorruptJournal("not a recovery journal block"))?;
        let entry_count = get_u16::<ENTRY_COUNT>(block);
        if entry_count > format.entries_per_block() {
            return Err(FormatError::CorruptJournal(
                "recovery journal block counts more entries than fit",
            ));
        }
        let sequence = |number| {
            SequenceNumber::new(number).ok_or(FormatError::CorruptJournal(
                "recovery journal sequence is out of range",
            ))
        };
        Ok(Self {
            block_map_head: sequence(get_u64::<BLOCK_MAP_HEAD>(block))?,
            slab_journal_head: sequence(get_u64::<SLAB_JOURNAL_HEAD>(block))?,
            sequence: sequence(get_u64::<SEQUENCE>(block))?,
            nonce: Nonce::new(get_u64::<NONCE>(block)),
            format,
            entry_count,
            logical_blocks_used: get_u64::<LOGICAL_BLOCKS_USED>(block),
            block_map_data_blocks: get_u64::<BLOCK_MAP_DATA_BLOCKS>(block),
            check_byte: get_u8::<CHECK_BYTE>(block),
            recovery_count: get_u8::<RECOVERY_COUNT>(block),
        })
    }

    /// Checks that the block, found at `position`, was written since the last recovery of this
    /// volume. Everything else in the journal is history.
    pub fn check(
        &self,
        nonce: Nonce,
        recovery_count: u8,
        position_found: u64,
        journal_blocks: u64,
    ) -> Result<(), FormatError> {
        if self.nonce != nonce {
            return Err(FormatError::BadNonce {
                expected: nonce,
                found: self.nonce,
            });
        }
        if self.recovery_count != recovery_count {
            return Err(FormatError::CorruptJournal(
                "recovery journal block is from before the last recovery",
            ));
        }
        if position(self.sequence, journal_blocks) != position_found {
            return Err(FormatError::CorruptJournal(
                "recovery journal block is in the wrong place",
            ));
        }
        if self.check_byte != check_byte(self.sequence, journal_blocks) {
            return Err(FormatError::CorruptJournal(
                "recovery journal block has a wrong check byte",
            ));
        }
        Ok(())
    }

    /// Whether the block has all the entries it can have.
    pub fn is_full(&self) -> bool {
        self.entry_count >= self.format.entries_per_block()
    }
}

/// Makes `block` an empty one with `header`, of which the entry count does not matter.
pub fn open(block: &mut Block, header: &JournalHeader) {
    *block = [0; BLOCK_SIZE];
    put_u64::<SEQUENCE>(block, header.sequence.get());
    put_u64::<NONCE>(block, header.nonce.get());
    put_u8::<TYPE>(block, header.format.encode());
    put_u64::<LOGICAL_BLOCKS_USED>(block, header.logical_blocks_used);
    put_u64::<BLOCK_MAP_DATA_BLOCKS>(block, header.block_map_data_blocks);
    put_u8::<CHECK_BYTE>(block, header.check_byte);
    put_u8::<RECOVERY_COUNT>(block, header.recovery_count);
    set_heads(block, header.block_map_head, header.slab_journal_head);
}

/// Names the oldest blocks still needed, just before the block is written.
pub fn set_heads(
    block: &mut Block,
    block_map_head: SequenceNumber,
    slab_journal_head: SequenceNumber,
) {
    put_u64::<BLOCK_MAP_HEAD>(block, block_map_head.get());
    put_u64::<SLAB_JOURNAL_HEAD>(block, slab_journal_head.get());
}

/// Appends an entry to a block of the current format and returns its place in it.
pub fn append(block: &mut Block, entry: &JournalEntry) -> Result<u16, BlockFull> {
    let index = get_u16::<ENTRY_COUNT>(block);
    if index >= ENTRIES_PER_BLOCK {
        return Err(BlockFull);
    }
    let check_byte = get_u8::<CHECK_BYTE>(block);
    let recovery_count = get_u8::<RECOVERY_COUNT>(block);
    let in_sector = index % ENTRIES_PER_SECTOR;
    let sector = sector_offset(index / ENTRIES_PER_SECTOR);

    let header = [check_byte, recovery_count, in_sector as u8 + 1];
    set_bytes_at(block, sector, header).ok_or(BlockFull)?;
    let place = sector + SECTOR_HEADER + usize::from(in_sector) * JOURNAL_ENTRY_BYTES;
    set_bytes_at(block, place, entry.encode()).ok_or(BlockFull)?;
    put_u16::<ENTRY_COUNT>(block, index + 1);
    Ok(index)
}

/// Entries in the block.
pub fn entry_count(block: &Block) -> u16 {
    get_u16::<ENTRY_COUNT>(block)
}

/// Whether no entry fits into the block any more.
pub fn is_full(block: &Block) -> bool {
    entry_count(block) >= ENTRIES_PER_BLOCK
}

/// How many entries of the block can be believed, from the first one on.
///
/// A torn block has sectors of an earlier write, or of an earlier round: they count fewer entries
/// than the header, or carry other check bytes. Nothing after the first such sector counts.
pub fn intact_entries(block: &Block, header: &JournalHeader) -> u16 {
    let mut intact = 0;
    for sector in 0..ENTRY_SECTORS {
        let expected =
            sector_capacity(header.format, sector).min(header.entry_count.saturating_sub(intact));
        let found = sector_entries(block, header, sector).unwrap_or(0);
        intact += found.min(expected);
        if found < expected || intact >= header.entry_count {
            break;
        }
    }
    intact
}

/// How many entries sector `sector` of the entries holds. `None` if it is not of this block.
///
/// A forced rebuild takes what it finds, sector by sector.
pub fn sector_entries(block: &Block, header: &JournalHeader, sector: u16) -> Option<u16> {
    if sector >= ENTRY_SECTORS {
        return None;
    }
    let [check_byte, recovery_count, count] = bytes_at(block, sector_offset(sector))?;
    let count = u16::from(count);
    let valid = check_byte == header.check_byte
        && recovery_count == header.recovery_count
        && count <= sector_capacity(header.format, sector);
    valid.then_some(count)
}

/// The place of the first entry of sector `sector` of the entries.
pub fn first_entry_of_sector(format: JournalFormat, sector: u16) -> u16 {
    sector.saturating_mul(format.entries_per_sector())
}

/// Sectors of entries in a block.
pub const fn entry_sectors() -> core::ops::Range<u16> {
    0..ENTRY_SECTORS
}

/// The entry at place `index` of a block of the current format.
pub fn entry(block: &Block, index: u16) -> Result<JournalEntry, FormatError> {
    let bytes = entry_bytes(block, JournalFormat::Current, index)?;
    JournalEntry::decode(bytes)
}

/// The entry at place `index` of a block of the old format.
pub fn old_entry(block: &Block, index: u16) -> Result<OldJournalEntry, FormatError> {
    let bytes = entry_bytes(block, JournalFormat::Old, index)?;
    OldJournalEntry::decode(bytes)
}

fn entry_bytes<const N: usize>(
    block: &Block,
    format: JournalFormat,
    index: u16,
) -> Result<[u8; N], FormatError> {
    if index >= format.entries_per_block() {
        return Err(FormatError::OutOfRange("place in a recovery journal block"));
    }
    // Each divisor is a constant, so neither division can fail.
    let (sector, in_sector) = match format {
        JournalFormat::Current => (index / ENTRIES_PER_SECTOR, index % ENTRIES_PER_SECTOR),
        JournalFormat::Old => (
            index / OLD_ENTRIES_PER_SECTOR,
            index % OLD_ENTRIES_PER_SECTOR,
        ),
    };
    let place =
        sector_offset(sector) + SECTOR_HEADER + usize::from(in_sector) * format.entry_bytes();
    bytes_at(block, place).ok_or(FormatError::Truncated)
}

/// The first byte of a sector of entries.
fn sector_offset(sector: u16) -> usize {
    SECTOR_SIZE + usize::from(sector) * SECTOR_SIZE
}

/// Entries that fit into a sector of entries.
fn sector_capacity(format: JournalFormat, sector: u16) -> u16 {
    match format {
        JournalFormat::Old if sector + 1 == ENTRY_SECTORS => OLD_ENTRIES_IN_LAST_SECTOR,
        _ => format.entries_per_sector(),
    }
}
