// SPDX-License-Identifier: GPL-2.0

//! Finding out which part of the journal counts.
//!
//! A block counts if it is of this volume and of the time since its last recovery, and lies where it belongs. Such blocks need not
//! be contiguous: several may have been on their way when the power failed. What can be replayed begins at the older of the two
//! heads and ends at the first block that is missing, torn or not full, because an entry is only acknowledged when all before it
//! are durable.
//!
//! # The heads
//!
//! Every block names the heads as they were when it was written. Both are taken to be the largest value that *any* valid block
//! names, in whatever order the blocks lie. A head only moves forward, and only after a flush has made everything older
//! superfluous, so the largest one ever written is true, whoever wrote it and whatever became of the blocks in between. A smaller
//! one may name blocks that were overwritten since: starting there would mean to find nothing and to lose the whole journal. (The
//! in-tree driver passes over heads of blocks that it visits before it has met the newest one; with what it writes both rules
//! give the same.)

use super::window::{JournalArea, Window};
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::recovery_journal::{
    intact_entries, position, JournalFormat, JournalHeader,
};
use crate::engine::store::Store;
use crate::engine::units::{Block, Nonce, SequenceNumber};
use crate::rt::{Arc, Vec};

/// What is looked for in the journal.
#[derive(Clone, Copy, Debug)]
pub struct ScanParameters {
    /// Where the journal is.
    pub area: JournalArea,
    /// The volume.
    pub nonce: Nonce,
    /// The low byte of its complete recoveries.
    pub recovery_count: u8,
    /// Where the super block says that the journal starts.
    pub start: SequenceNumber,
}

/// What the scan keeps of a valid block.
#[derive(Clone, Copy, Debug)]
struct Found {
    sequence: SequenceNumber,
    format: JournalFormat,
    /// How many entries can be believed.
    intact: u16,
    /// The block has all the entries that it can have, and they are intact.
    complete: bool,
}

/// The bounds of a journal, and what is where in it.
pub struct Scan {
    blocks: u64,
    /// By position.
    found: Vec<Option<Found>>,
    /// The oldest block that the block map needs.
    pub block_map_head: SequenceNumber,
    /// The oldest block that the slab journals need.
    pub slab_journal_head: SequenceNumber,
    /// The newest block that there is, or where there would be one.
    pub highest: SequenceNumber,
}

/// The part of the journal that can be replayed: complete blocks from the older head on, and perhaps one more with some entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The oldest block.
    pub first: SequenceNumber,
    /// The number of blocks.
    pub blocks: u64,
    /// Entries in all of them.
    pub entries: u64,
    /// Entries in the last one.
    pub last_entries: u16,
}

impl Scan {
    /// Reads the whole journal.
    pub async fn run<E: Env>(
        store: &Arc<Store<E>>,
        parameters: &ScanParameters,
    ) -> Result<Self, Error> {
        let blocks = parameters.area.blocks;
        let mut scan = Self::new(parameters)?;
        let mut window = Window::new(Arc::clone(store), parameters.area)?;
        let mut start = 0;
        while start < blocks {
            let rest = usize::try_from(blocks.saturating_sub(start)).unwrap_or(usize::MAX);
            let count = window.capacity().min(rest);
            window.read(start, count).await?;
            for index in 0..count {
                let position = start.saturating_add(u64::try_from(index).unwrap_or(0));
                window.with_block(index, |block| scan.visit(parameters, position, block))?;
            }
            start = start.saturating_add(u64::try_from(count).unwrap_or(u64::MAX));
        }
        Ok(scan)
    }

    /// A scan that has seen nothing yet.
    fn new(parameters: &ScanParameters) -> Result<Self, Error> {
        let blocks = parameters.area.blocks;
        let count = usize::try_from(blocks).map_err(|_| Error::NoMemory)?;
        Ok(Self {
            blocks,
            found: Vec::from_elem(None, count)?,
            block_map_head: parameters.start,
            slab_journal_head: parameters.start,
            highest: parameters.start,
        })
    }

    /// Takes the block at `position` into account.
    fn visit(&mut self, parameters: &ScanParameters, position: u64, block: &Block) {
        let Ok(header) = JournalHeader::decode(block) else {
            return;
        };
        let (nonce, count) = (parameters.nonce, parameters.recovery_count);
        if header.check(nonce, count, position, self.blocks).is_err() {
            return;
        }
        let intact = intact_entries(block, &header);
        let place = usize::try_from(position)
            .ok()
            .and_then(|position| self.found.get_mut(position));
        if let Some(place) = place {
            *place = Some(Found {
                sequence: header.sequence,
                format: header.format,
                intact,
                complete: header.is_full() && intact == header.entry_count,
            });
        }
        self.highest = self.highest.max(header.sequence);
        self.block_map_head = self.block_map_head.max(header.block_map_head);
        self.slab_journal_head = self.slab_journal_head.max(header.slab_journal_head);
    }

    fn check(&self) -> Result<(), Error> {
        // A block that is being opened may be the head itself, one that is to be opened next is not in the journal yet.
        let limit = self.highest.next().unwrap_or(self.highest);
        if self.block_map_head > limit || self.slab_journal_head > limit {
            return Err(Error::Corrupt("the recovery journal begins after its end"));
        }
        let oldest = self.block_map_head.min(self.slab_journal_head);
        if self.highest.get().saturating_sub(oldest.get()) >= self.blocks {
            return Err(Error::Corrupt(
                "the recovery journal is longer than its partition",
            ));
        }
        Ok(())
    }

    fn found(&self, sequence: SequenceNumber) -> Option<Found> {
        let place = usize::try_from(position(sequence, self.blocks)).ok()?;
        let found = (*self.found.get(place)?)?;
        (found.sequence == sequence).then_some(found)
    }

    /// The next block of the journal after a recovery.
    pub fn restart(&self) -> Result<SequenceNumber, Error> {
        self.highest.next().ok_or(Error::Unsupported(
            "the recovery journal has used up its sequence numbers",
        ))
    }

    /// The part that can be replayed.
    ///
    /// # Errors
    ///
    /// Heads that cannot be, entries of the old format, which this driver does not replay, or of both formats.
    pub fn extent(&self) -> Result<Extent, Error> {
        self.check()?;
        let first = self.block_map_head.min(self.slab_journal_head);
        let mut extent = Extent {
            first,
            blocks: 0,
            entries: 0,
            last_entries: 0,
        };
        let mut format = None;
        let mut next = Some(first);
        while let Some(found) = next.and_then(|sequence| self.found(sequence)) {
            if found.intact > 0 && *format.get_or_insert(found.format) != found.format {
                return Err(Error::Corrupt(
                    "the recovery journal has entries of two formats",
                ));
            }
            extent.blocks = extent.blocks.saturating_add(1);
            extent.entries = extent.entries.saturating_add(found.intact.into());
            extent.last_entries = found.intact;
            if !found.complete {
                break;
            }
            next = found.sequence.next();
        }
        if format == Some(JournalFormat::Old) {
            return Err(Error::Unsupported(
                "the volume was not shut down cleanly by an older release, whose recovery journal only that release can replay: \
                 start the volume once with the release that used it last, wait until its status is 'normal' and stop it there; \
                 nothing has been changed",
            ));
        }
        Ok(extent)
    }

    /// The blocks that a rebuild looks at: everything from the head of the block map to the newest block.
    pub fn lenient(&self) -> (SequenceNumber, u64) {
        let blocks = match self.highest.checked_offset_from(self.block_map_head) {
            Some(offset) => offset.saturating_add(1).min(self.blocks),
            None => 0,
        };
        (self.block_map_head, blocks)
    }

    /// Whether `sequence` is in the journal.
    pub fn has(&self, sequence: SequenceNumber) -> bool {
        self.found(sequence).is_some()
    }
}
