// SPDX-License-Identifier: GPL-2.0

//! Walking through the entries of a journal.

use super::scan::{Extent, Scan, ScanParameters};
use super::window::Window;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::recovery_journal::{
    self, entry_sectors, first_entry_of_sector, intact_entries, JournalFormat, JournalHeader,
};
use crate::engine::format::recovery_journal_entry::{
    BlockMapSlot, JournalEntry, JournalOperation, OldJournalOperation,
};
use crate::engine::format::Mapping;
use crate::engine::store::Store;
use crate::engine::units::{Block, JournalPoint, SequenceNumber};
use crate::rt::{Arc, Vec};

/// An entry with its place.
pub type Placed = (JournalPoint, JournalEntry);

/// A change of the block map that a rebuild takes from the journal, if it is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// What is changed.
    pub slot: BlockMapSlot,
    /// What it is to hold.
    pub mapping: Mapping,
    /// The change adds a page to the map.
    pub grows_map: bool,
}

/// How many blocks are mapped, and how many block map pages there are in slabs.
pub type Usage = (u64, u64);

/// A walk through blocks of the journal, some of them at a time.
pub struct Chain<E: Env> {
    window: Window<E>,
    /// The first block in the window, and the blocks there.
    loaded: SequenceNumber,
    count: usize,
    /// The next block to load, and the blocks left.
    next: SequenceNumber,
    left: u64,
}

impl<E: Env> Chain<E> {
    /// A walk through `blocks` blocks from `first` on.
    pub fn new(
        store: &Arc<Store<E>>,
        parameters: &ScanParameters,
        first: SequenceNumber,
        blocks: u64,
    ) -> Result<Self, Error> {
        Ok(Self {
            window: Window::new(Arc::clone(store), parameters.area)?,
            loaded: first,
            count: 0,
            next: first,
            left: blocks,
        })
    }

    /// Loads the next blocks. `false` if there are no more.
    pub async fn advance(&mut self) -> Result<bool, Error> {
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let count = self.window.capacity().min(left);
        if count == 0 {
            return Ok(false);
        }
        // The window goes around the end of the journal by itself.
        self.window.read(self.next.get(), count).await?;
        let step = u64::try_from(count).map_err(|_| Error::OutOfRange)?;
        (self.loaded, self.count) = (self.next, count);
        self.next = self.next.checked_add(step).ok_or(Error::OutOfRange)?;
        self.left = self.left.saturating_sub(step);
        Ok(true)
    }

    /// The loaded blocks: each number, and its index for [`Self::with_block`].
    pub fn loaded(&self) -> impl Iterator<Item = (SequenceNumber, usize)> + use<E> {
        let first = self.loaded;
        (0..self.count).filter_map(move |index| {
            let offset = u64::try_from(index).ok()?;
            Some((first.checked_add(offset)?, index))
        })
    }

    /// Looks at a loaded block.
    pub fn with_block<R>(&self, index: usize, look: impl FnOnce(&Block) -> R) -> Result<R, Error> {
        self.window.with_block(index, look)
    }

    /// The entries of a loaded block that is to have been found by the scan, oldest first, into `entries`.
    pub fn entries(
        &self,
        index: usize,
        sequence: SequenceNumber,
        entries: &mut Vec<Placed>,
    ) -> Result<(), Error> {
        entries.clear();
        self.with_block(index, |block| {
            let header = JournalHeader::decode(block)?;
            if header.sequence != sequence {
                return Err(Error::Corrupt(
                    "the recovery journal changed while it was read",
                ));
            }
            for number in 0..intact_entries(block, &header) {
                let point = JournalPoint {
                    sequence,
                    entry: number,
                };
                let entry = recovery_journal::entry(block, number)?;
                entries.push((point, entry))?;
            }
            Ok(())
        })?
    }
}

/// The usage after the last entry of `extent`: what its last block says of the time before it, and what the block does.
pub fn usage_after(block: &Block) -> Result<Usage, Error> {
    let header = JournalHeader::decode(block)?;
    let (mut used, mut pages) = (header.logical_blocks_used, header.block_map_data_blocks);
    for number in 0..intact_entries(block, &header) {
        let entry = recovery_journal::entry(block, number)?;
        match entry.operation {
            JournalOperation::BlockMapRemap => pages = pages.saturating_add(1),
            JournalOperation::DataRemap => {
                match (entry.unmapping.is_mapped(), entry.mapping.is_mapped()) {
                    (false, true) => used = used.saturating_add(1),
                    (true, false) => used = used.saturating_sub(1),
                    _ => {}
                }
            }
        }
    }
    Ok((used, pages))
}

/// Checks every entry of `extent` before any of them is acted on, and finds the usage after the last one. `None` if there is no
/// block.
pub async fn validate<E: Env>(
    store: &Arc<Store<E>>,
    parameters: &ScanParameters,
    extent: &Extent,
    is_valid: impl Fn(&JournalEntry) -> Result<(), Error>,
) -> Result<Option<Usage>, Error> {
    let mut chain = Chain::new(store, parameters, extent.first, extent.blocks)?;
    let mut entries = Vec::with_capacity(recovery_journal::ENTRIES_PER_BLOCK.into())?;
    let mut usage = None;
    while chain.advance().await? {
        for (sequence, index) in chain.loaded() {
            chain.entries(index, sequence, &mut entries)?;
            for (_, entry) in &entries[..] {
                is_valid(entry)?;
            }
            usage = Some(chain.with_block(index, usage_after)??);
        }
    }
    Ok(usage)
}

/// Passes on whatever looks like a change of the block map in a block, for a rebuild that takes what it can get: any sector that
/// belongs to its block, in both formats.
pub fn claims(
    block: &Block,
    sequence: SequenceNumber,
    parameters: &ScanParameters,
    mut take: impl FnMut(Claim) -> Result<(), Error>,
) -> Result<(), Error> {
    let Ok(header) = JournalHeader::decode(block) else {
        return Ok(());
    };
    let (nonce, count) = (parameters.nonce, parameters.recovery_count);
    let blocks = parameters.area.blocks;
    let place = recovery_journal::position(sequence, blocks);
    if header.sequence != sequence || header.check(nonce, count, place, blocks).is_err() {
        return Ok(());
    }
    for sector in entry_sectors() {
        let first = first_entry_of_sector(header.format, sector);
        let here = recovery_journal::sector_entries(block, &header, sector).unwrap_or(0);
        // A sector of an earlier write of the block has fewer entries than the header counts, never more.
        let wanted = header.entry_count.saturating_sub(first).min(here);
        for number in first..first.saturating_add(wanted) {
            if let Some(claim) = claim(block, header.format, number) {
                take(claim)?;
            }
        }
    }
    Ok(())
}

fn claim(block: &Block, format: JournalFormat, number: u16) -> Option<Claim> {
    match format {
        JournalFormat::Current => {
            let entry = recovery_journal::entry(block, number).ok()?;
            Some(Claim {
                slot: entry.slot,
                mapping: entry.mapping,
                grows_map: entry.operation == JournalOperation::BlockMapRemap,
            })
        }
        JournalFormat::Old => {
            let entry = recovery_journal::old_entry(block, number).ok()?;
            Some(Claim {
                slot: entry.slot,
                mapping: entry.restores()?,
                grows_map: entry.operation == OldJournalOperation::BlockMapIncrement,
            })
        }
    }
}

impl Scan {
    /// A walk through everything that a rebuild looks at.
    pub fn lenient_chain<E: Env>(
        &self,
        store: &Arc<Store<E>>,
        parameters: &ScanParameters,
    ) -> Result<Chain<E>, Error> {
        let (first, blocks) = self.lenient();
        Chain::new(store, parameters, first, blocks)
    }
}
