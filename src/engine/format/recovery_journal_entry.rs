// SPDX-License-Identifier: GPL-2.0

//! An entry of the recovery journal.
//!
//! | offset | size | bits  | field                                                   |
//! |-------:|-----:|------:|---------------------------------------------------------|
//! |      0 |    2 |   0-1 | operation, see [`JournalOperation`]                     |
//! |        |      |  2-11 | slot in the block map page                              |
//! |        |      | 12-15 | bits 32-35 of the page's physical block                 |
//! |      2 |    4 |   all | bits 0-31 of the page's physical block                  |
//! |      6 |    5 |   all | mapping: the entry to be stored there                   |
//! |     11 |    5 |   all | unmapping: the entry that was stored there before       |
//!
//! An entry of the old format ends after the mapping and has other operations; there is one for
//! every reference, added or removed.

use super::block_map_entry::{Mapping, MappingState, ENTRY_BYTES};
use super::FormatError;
use crate::engine::units::{EntrySlot, Pbn};

/// Size of an encoded entry.
pub const JOURNAL_ENTRY_BYTES: usize = 16;
/// Size of an encoded entry of the old format.
pub const OLD_JOURNAL_ENTRY_BYTES: usize = 11;

const PAGE_BYTES: usize = 6;

/// An entry of a block map page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockMapSlot {
    /// The page.
    pub page: Pbn,
    /// The entry in it.
    pub slot: EntrySlot,
}

impl BlockMapSlot {
    /// Packs the slot together with two bits of operation.
    fn encode(self, operation: u8) -> [u8; PAGE_BYTES] {
        let page = self.page.get();
        let [p0, p1, p2, p3, high, ..] = page.to_le_bytes();
        let first = u16::from(operation & 3) | (self.slot.get() << 2) | (u16::from(high) << 12);
        let [f0, f1] = first.to_le_bytes();
        [f0, f1, p0, p1, p2, p3]
    }

    /// Unpacks the two bits of operation and the slot.
    fn decode(bytes: [u8; PAGE_BYTES]) -> Result<(u8, Self), FormatError> {
        let [f0, f1, p0, p1, p2, p3] = bytes;
        let first = u16::from_le_bytes([f0, f1]);
        let low = u32::from_le_bytes([p0, p1, p2, p3]);
        let slot = EntrySlot::new((first >> 2) & 0x3ff).ok_or(FormatError::CorruptJournal(
            "recovery journal entry names a slot that no page has",
        ))?;
        let page = Pbn::from_low_bits((u64::from(first >> 12) << 32) | u64::from(low));
        Ok(((first & 3) as u8, Self { page, slot }))
    }
}

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalOperation {
    /// Operation 0: a logical block was mapped anew; the page is a leaf.
    DataRemap,
    /// Operation 1: the block map got a new page; the page of the entry is its parent.
    BlockMapRemap,
}

/// An entry of the recovery journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// What it is about.
    pub operation: JournalOperation,
    /// What is to be changed.
    pub slot: BlockMapSlot,
    /// What is to be stored there.
    pub mapping: Mapping,
    /// What was stored there before.
    pub unmapping: Mapping,
}

impl JournalEntry {
    /// Reads a stored entry. An error if its operation or its slot do not exist.
    pub fn decode(bytes: [u8; JOURNAL_ENTRY_BYTES]) -> Result<Self, FormatError> {
        let (page, mapping, unmapping) = split(&bytes).ok_or(FormatError::Truncated)?;
        let (operation, slot) = BlockMapSlot::decode(page)?;
        Ok(Self {
            operation: match operation {
                0 => JournalOperation::DataRemap,
                1 => JournalOperation::BlockMapRemap,
                _ => {
                    return Err(FormatError::CorruptJournal(
                        "recovery journal entry has an unknown operation",
                    ))
                }
            },
            slot,
            mapping: Mapping::decode(mapping),
            unmapping: Mapping::decode(unmapping),
        })
    }

    /// The stored form.
    pub fn encode(&self) -> [u8; JOURNAL_ENTRY_BYTES] {
        let operation = match self.operation {
            JournalOperation::DataRemap => 0,
            JournalOperation::BlockMapRemap => 1,
        };
        let [s0, s1, s2, s3, s4, s5] = self.slot.encode(operation);
        let [m0, m1, m2, m3, m4] = self.mapping.encode();
        let [u0, u1, u2, u3, u4] = self.unmapping.encode();
        [
            s0, s1, s2, s3, s4, s5, m0, m1, m2, m3, m4, u0, u1, u2, u3, u4,
        ]
    }

    /// Checks that the entry can be replayed: its page lies in the volume, its mappings are valid
    /// and name data blocks, and a new page of the block map replaces nothing.
    pub fn validate(
        &self,
        physical_blocks: u64,
        is_data_block: impl Fn(Pbn) -> bool,
    ) -> Result<(), FormatError> {
        if self.slot.page.is_zero() || self.slot.page.get() >= physical_blocks {
            return Err(FormatError::CorruptJournal(
                "recovery journal entry names a page outside the volume",
            ));
        }
        let valid = |mapping: Mapping| {
            mapping.is_valid() && (mapping.pbn.is_zero() || is_data_block(mapping.pbn))
        };
        if !valid(self.mapping) || !valid(self.unmapping) {
            return Err(FormatError::CorruptJournal(
                "recovery journal entry has an invalid mapping",
            ));
        }
        if self.operation == JournalOperation::BlockMapRemap {
            let is_page =
                self.mapping.state == MappingState::Uncompressed && !self.mapping.pbn.is_zero();
            if !is_page || self.unmapping != Mapping::UNMAPPED {
                return Err(FormatError::CorruptJournal(
                    "recovery journal entry for a block map page is invalid",
                ));
            }
        }
        Ok(())
    }
}

/// What an entry of the old format is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OldJournalOperation {
    /// Operation 0: a logical block was mapped here before.
    DataDecrement,
    /// Operation 1: a logical block was mapped here.
    DataIncrement,
    /// Operation 2: never written.
    BlockMapDecrement,
    /// Operation 3: the block map got a new page.
    BlockMapIncrement,
}

/// An entry of the old format. Read only to rebuild a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldJournalEntry {
    /// What it is about.
    pub operation: OldJournalOperation,
    /// What is to be changed.
    pub slot: BlockMapSlot,
    /// The reference that is added or removed.
    pub mapping: Mapping,
}

impl OldJournalEntry {
    /// Reads a stored entry. An error if its slot does not exist.
    pub fn decode(bytes: [u8; OLD_JOURNAL_ENTRY_BYTES]) -> Result<Self, FormatError> {
        let (page, rest) = bytes
            .split_first_chunk::<PAGE_BYTES>()
            .ok_or(FormatError::Truncated)?;
        let mapping = rest.first_chunk().ok_or(FormatError::Truncated)?;
        let (operation, slot) = BlockMapSlot::decode(*page)?;
        Ok(Self {
            operation: match operation {
                0 => OldJournalOperation::DataDecrement,
                1 => OldJournalOperation::DataIncrement,
                2 => OldJournalOperation::BlockMapDecrement,
                _ => OldJournalOperation::BlockMapIncrement,
            },
            slot,
            mapping: Mapping::decode(*mapping),
        })
    }

    /// What the entry tells a rebuild of the block map: only added references do.
    pub fn restores(&self) -> Option<Mapping> {
        match self.operation {
            OldJournalOperation::DataIncrement | OldJournalOperation::BlockMapIncrement => {
                Some(self.mapping)
            }
            _ => None,
        }
    }
}

type Parts = ([u8; PAGE_BYTES], [u8; ENTRY_BYTES], [u8; ENTRY_BYTES]);

fn split(bytes: &[u8]) -> Option<Parts> {
    let (page, rest) = bytes.split_first_chunk()?;
    let (mapping, rest) = rest.split_first_chunk()?;
    let unmapping = rest.first_chunk()?;
    Some((*page, *mapping, *unmapping))
}
