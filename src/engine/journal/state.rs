// SPDX-License-Identifier: GPL-2.0

//! The blocks of the journal that are in memory, and how far each stage has come.
//!
//! Positions are journal points that name the next entry to be handled: everything before is done. They only move forward:
//! `applied <= committed <= end of the block being filled`.

use crate::engine::error::Error;
use crate::engine::format::recovery_journal::{
    self as format, check_byte, JournalFormat, JournalHeader, ENTRIES_PER_BLOCK,
};
use crate::engine::format::recovery_journal_entry::{JournalEntry, JournalOperation};
use crate::engine::units::{JournalPoint, Nonce, SequenceNumber};
use crate::rt::{AllocError, Page, Vec};

/// Journal blocks in memory: those being filled, written or applied. A power of two.
pub(super) const MEMORY_BLOCKS: u64 = 16;

/// What does not change while the volume runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constants {
    pub(super) blocks: u64,
    pub(super) nonce: Nonce,
    pub(super) recovery_count: u8,
}

impl Constants {
    /// Blocks that may be in use at a time. The rest is room for the blocks in memory at a crash.
    pub(super) fn usable(&self) -> u64 {
        self.blocks.saturating_sub((self.blocks >> 2).min(11))
    }
}

/// A block in memory.
struct MemoryBlock {
    page: Page,
    sequence: u64,
}

/// Why an entry cannot be added now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// All blocks in memory wait to be committed or applied.
    NoBuffer,
    /// The journal on disk is full of blocks that are still needed.
    NoSpace,
    /// For good.
    Failed(Error),
}

/// # Invariants
///
/// * Blocks `applied.sequence .. next` are in memory, each in the place of its number modulo [`MEMORY_BLOCKS`].
/// * `next - head < usable` for both heads whenever a block is opened.
pub(super) struct State {
    constants: Constants,
    blocks: Vec<MemoryBlock>,
    /// The number that the next opened block gets.
    next: SequenceNumber,
    /// Whether block `next - 1` takes entries.
    is_open: bool,
    pub(super) committed: JournalPoint,
    pub(super) applied: JournalPoint,
    pub(super) block_map_head: SequenceNumber,
    pub(super) slab_journal_head: SequenceNumber,
    /// Blocks below are needed by no page of the block map, whatever the head says.
    pub(super) unneeded_by_map: SequenceNumber,
    /// Blocks below are needed by no slab journal.
    pub(super) unneeded_by_slabs: SequenceNumber,
    pub(super) logical_blocks_used: u64,
    pub(super) block_map_data_blocks: u64,
    pub(super) failed: Option<Error>,
    pub(super) stopping: bool,
    /// Somebody waits for the heads to advance.
    pub(super) space_wanted: bool,
}

impl State {
    /// A journal whose next block is `start`, with nothing in it that is still needed.
    pub(super) fn new(
        constants: Constants,
        start: SequenceNumber,
        logical_blocks_used: u64,
        block_map_data_blocks: u64,
    ) -> Result<Self, AllocError> {
        let count = usize::try_from(MEMORY_BLOCKS).map_err(|_| AllocError)?;
        let point = JournalPoint {
            sequence: start,
            entry: 0,
        };
        Ok(Self {
            constants,
            blocks: Vec::from_fn(count, |_| {
                Ok::<_, AllocError>(MemoryBlock {
                    page: Page::new()?,
                    sequence: 0,
                })
            })?,
            next: start,
            is_open: false,
            committed: point,
            applied: point,
            block_map_head: start,
            slab_journal_head: start,
            unneeded_by_map: start,
            unneeded_by_slabs: start,
            logical_blocks_used,
            block_map_data_blocks,
            failed: None,
            stopping: false,
            space_wanted: false,
        })
    }

    /// The number after that of the newest block.
    pub(super) fn next(&self) -> SequenceNumber {
        self.next
    }

    /// The block being filled, or the last one that was.
    pub(super) fn tail(&self) -> SequenceNumber {
        SequenceNumber::new(self.next.get().saturating_sub(1)).unwrap_or(self.next)
    }

    /// Whether every entry has been applied.
    pub(super) fn is_idle(&self) -> bool {
        self.applied >= self.end()
    }

    /// The position after the newest entry.
    fn end(&self) -> JournalPoint {
        let tail = self.tail();
        match self.block(tail.get()) {
            Some(page) if self.is_open => JournalPoint {
                sequence: tail,
                entry: format::entry_count(page),
            },
            _ => JournalPoint {
                sequence: self.next,
                entry: 0,
            },
        }
    }

    /// Appends an entry, opening a block if need be. The result tells its place, and whether a block was opened for it.
    pub(super) fn append(&mut self, entry: &JournalEntry) -> Result<(JournalPoint, bool), Refusal> {
        if let Some(error) = self.failed {
            return Err(Refusal::Failed(error));
        }
        let opened = if self.is_open {
            false
        } else {
            self.open()?;
            true
        };
        let sequence = self.tail();
        let page = self
            .block_mut(sequence.get())
            .ok_or(Refusal::Failed(Error::Corrupt(
                "journal block is not in memory",
            )))?;
        let index = format::append(page, entry).map_err(|_| Refusal::NoBuffer)?;
        if format::is_full(page) {
            self.is_open = false;
        }
        self.count(entry);
        Ok((
            JournalPoint {
                sequence,
                entry: index,
            },
            opened,
        ))
    }

    /// Opens block `next`. Refuses while a place in memory or on disk is not free yet.
    fn open(&mut self) -> Result<(), Refusal> {
        let sequence = self.next;
        if sequence.get().saturating_sub(self.applied.sequence.get()) >= MEMORY_BLOCKS {
            return Err(Refusal::NoBuffer);
        }
        let head = self.block_map_head.min(self.slab_journal_head);
        if sequence.get().saturating_sub(head.get()) >= self.constants.usable() {
            self.space_wanted = true;
            return Err(Refusal::NoSpace);
        }
        let next = sequence.next().ok_or(Refusal::Failed(Error::Unsupported(
            "the recovery journal has used up its sequence numbers",
        )))?;
        let header = JournalHeader {
            block_map_head: self.block_map_head,
            slab_journal_head: self.slab_journal_head,
            sequence,
            nonce: self.constants.nonce,
            format: JournalFormat::Current,
            entry_count: 0,
            logical_blocks_used: self.logical_blocks_used,
            block_map_data_blocks: self.block_map_data_blocks,
            check_byte: check_byte(sequence, self.constants.blocks),
            recovery_count: self.constants.recovery_count,
        };
        if let Some(block) = place(sequence.get()).and_then(|index| self.blocks.get_mut(index)) {
            block.sequence = sequence.get();
            format::open(&mut block.page, &header);
        }
        self.next = next;
        self.is_open = true;
        Ok(())
    }

    /// Keeps the usage counters that go into block headers and the super block.
    fn count(&mut self, entry: &JournalEntry) {
        match entry.operation {
            JournalOperation::BlockMapRemap => {
                self.block_map_data_blocks = self.block_map_data_blocks.saturating_add(1);
            }
            JournalOperation::DataRemap => {
                match (entry.unmapping.is_mapped(), entry.mapping.is_mapped()) {
                    (false, true) => {
                        self.logical_blocks_used = self.logical_blocks_used.saturating_add(1)
                    }
                    (true, false) => {
                        self.logical_blocks_used = self.logical_blocks_used.saturating_sub(1)
                    }
                    _ => {}
                }
            }
        }
    }

    /// Copies the oldest block with entries to commit into `page`, with fresh heads. The position is the one that is
    /// committed once it is on disk.
    pub(super) fn copy_uncommitted(&self, page: &mut Page) -> Option<JournalPoint> {
        let sequence = self.committed.sequence;
        let block = self.block(sequence.get())?;
        let count = format::entry_count(block);
        if count <= self.committed.entry {
            return None;
        }
        page.copy_from_slice(&block[..]);
        format::set_heads(page, self.block_map_head, self.slab_journal_head);
        Some(JournalPoint {
            sequence,
            entry: count,
        })
    }

    /// The position after `point`: in the next block if its own is full.
    pub(super) fn normalise(point: JournalPoint) -> JournalPoint {
        if point.entry < ENTRIES_PER_BLOCK {
            return point;
        }
        // No next number: the journal refused to open this block, so it cannot be full.
        let sequence = point.sequence.next().unwrap_or(point.sequence);
        JournalPoint { sequence, entry: 0 }
    }

    /// The next entry for the applier.
    pub(super) fn committed_entry(&self, point: JournalPoint) -> Option<JournalEntry> {
        if point >= self.committed {
            return None;
        }
        format::entry(self.block(point.sequence.get())?, point.entry).ok()
    }

    /// Closes the block being filled: what follows gets a block of its own.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        let point = JournalPoint {
            sequence: self.next,
            entry: 0,
        };
        self.committed = point;
        self.applied = point;
    }

    fn block(&self, sequence: u64) -> Option<&Page> {
        let block = self.blocks.get(place(sequence)?)?;
        (block.sequence == sequence).then_some(&block.page)
    }

    fn block_mut(&mut self, sequence: u64) -> Option<&mut Page> {
        let block = self.blocks.get_mut(place(sequence)?)?;
        (block.sequence == sequence).then_some(&mut block.page)
    }
}

/// The place of a block in memory.
fn place(sequence: u64) -> Option<usize> {
    usize::try_from(sequence & MEMORY_BLOCKS.wrapping_sub(1)).ok()
}
