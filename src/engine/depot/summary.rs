// SPDX-License-Identifier: GPL-2.0

//! The slab summary in memory, and its group commit.
//!
//! Only the first of the 16 copies is maintained: the volume runs with one physical zone. Updates of entries in one block that
//! arrive while it is being written share the next write.
//!
//! Lock order: a block's lock may be taken under a slab's and takes none.

use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::layout::Partition;
use crate::engine::format::slab_config::SlabConfig;
use crate::engine::format::slab_summary::{
    authoritative_copy, entry, locate, set_entry, SummaryEntry, BLOCKS_PER_COPY, ENTRIES_PER_BLOCK,
};
use crate::engine::store::Store;
use crate::engine::units::{Pbn, SlabNumber, MAX_PHYSICAL_ZONES, SLAB_SUMMARY_BLOCKS};
use crate::rt::{spin_lock, Page, SpinLock, Vec, WaitList};

struct State {
    contents: Page,
    /// The page that is written; `None` while it is.
    outgoing: Option<Page>,
    /// Updates made, and updates that are on disk.
    requested: u64,
    written: u64,
    failed: Option<Error>,
}

struct Block {
    state: SpinLock<State>,
    written: WaitList,
}

enum Turn {
    /// Write this page, which has the updates up to that number.
    Lead(Page, u64),
    Done(Result<(), Error>),
}

/// The slab summary.
pub(super) struct Summary {
    origin: Pbn,
    zone_count: u8,
    blocks: Vec<Block>,
}

impl Summary {
    /// A summary that has not been read. `zone_count` is that of its last writer.
    pub(super) fn new(partition: &Partition, zone_count: u8) -> Result<Self, Error> {
        if partition.blocks < SLAB_SUMMARY_BLOCKS {
            return Err(Error::Corrupt("the slab summary is too small"));
        }
        Ok(Self {
            origin: partition.start,
            zone_count,
            blocks: Vec::from_fn(BLOCKS_PER_COPY, |_| {
                Ok::<_, Error>(Block {
                    state: spin_lock!(State {
                        contents: Page::new()?,
                        outgoing: Some(Page::new()?),
                        requested: 0,
                        written: 0,
                        failed: None,
                    })?,
                    written: WaitList::new()?,
                })
            })?,
        })
    }

    /// What the summary says of a slab.
    pub(super) fn entry(&self, slab: SlabNumber) -> Result<SummaryEntry, Error> {
        let (block, place) = locate(0, slab).ok_or(Error::OutOfRange)?;
        let block = self.blocks.get(block).ok_or(Error::OutOfRange)?;
        let state = block.state.lock();
        entry(&state.contents, place).ok_or(Error::OutOfRange)
    }

    /// Sets the entry of a slab, and waits until it is on disk.
    ///
    /// W4: the entry reaches the disk only after what completed before this call is stable there, in particular the slab
    /// journal block that the entry points at.
    pub(super) async fn update<E: Env>(
        &self,
        store: &Store<E>,
        slab: SlabNumber,
        entry: SummaryEntry,
    ) -> Result<(), Error> {
        let (index, place) = locate(0, slab).ok_or(Error::OutOfRange)?;
        let block = self.blocks.get(index).ok_or(Error::OutOfRange)?;
        let ticket = {
            let mut state = block.state.lock();
            set_entry(&mut state.contents, place, entry).ok_or(Error::OutOfRange)?;
            state.requested = state.requested.wrapping_add(1);
            state.requested
        };
        match block.written.wait_until(|| block.turn(ticket)).await {
            Turn::Done(result) => result,
            Turn::Lead(page, requested) => {
                let (page, result) = self.write(store, index, page).await;
                {
                    let mut state = block.state.lock();
                    state.outgoing = Some(page);
                    match result {
                        Ok(()) => state.written = requested,
                        Err(error) => state.failed = Some(error),
                    }
                }
                block.written.wake_all();
                result
            }
        }
    }

    /// Writes a copy of a block that was taken before, behind a flush.
    async fn write<E: Env>(
        &self,
        store: &Store<E>,
        index: usize,
        page: Page,
    ) -> (Page, Result<(), Error>) {
        let Ok(pbn) = self.block(0, index) else {
            return (page, Err(Error::OutOfRange));
        };
        // W4: the flush starts after the page was copied, so it covers the blocks that all entries in the copy point at.
        if let Err(error) = store.flush().await {
            return (page, Err(error.into()));
        }
        store.statistics().slab_summary.blocks_written.increment();
        let (page, result) = store
            .write(pbn, page, IoClass::Metadata, WriteFlags::META)
            .await;
        (page, result.map_err(Error::from))
    }

    /// Reads the summary and writes it to all copies, so that each is right whatever the number of zones is.
    pub(super) async fn load<E: Env>(&self, store: &Store<E>) -> Result<(), Error> {
        let copies = usize::from(self.zone_count.max(1));
        let mut page = Page::new()?;
        for copy in 0..copies {
            for (index, block) in self.blocks.iter().enumerate() {
                let (read, result) = store
                    .read(self.block(copy, index)?, page, IoClass::Metadata)
                    .await;
                page = read;
                result?;
                self.merge(copy, index, block, &page);
            }
        }
        self.write_all_copies(store, page).await
    }

    /// Makes every slab a never used one, on disk too.
    pub(super) async fn reset<E: Env>(
        &self,
        store: &Store<E>,
        config: &SlabConfig,
    ) -> Result<(), Error> {
        let unused = SummaryEntry::unused(config);
        for block in &self.blocks {
            let mut state = block.state.lock();
            for place in 0..ENTRIES_PER_BLOCK {
                set_entry(&mut state.contents, place, unused).ok_or(Error::OutOfRange)?;
            }
        }
        self.write_all_copies(store, Page::new()?).await
    }

    /// Takes over the entries of which `copy` has the word.
    fn merge(&self, copy: usize, index: usize, block: &Block, page: &Page) {
        let mut state = block.state.lock();
        let first = index.saturating_mul(ENTRIES_PER_BLOCK);
        for place in 0..ENTRIES_PER_BLOCK {
            let Ok(slab) = u32::try_from(first.saturating_add(place)) else {
                continue;
            };
            if authoritative_copy(SlabNumber::new(slab), self.zone_count) == copy {
                if let Some(entry) = entry(page, place) {
                    set_entry(&mut state.contents, place, entry);
                }
            }
        }
    }

    async fn write_all_copies<E: Env>(
        &self,
        store: &Store<E>,
        mut page: Page,
    ) -> Result<(), Error> {
        for copy in 0..MAX_PHYSICAL_ZONES {
            for (index, block) in self.blocks.iter().enumerate() {
                page.copy_from_slice(&block.state.lock().contents[..]);
                let pbn = self.block(copy, index)?;
                let (written, result) = store
                    .write(pbn, page, IoClass::Metadata, WriteFlags::META)
                    .await;
                page = written;
                result?;
            }
        }
        Ok(())
    }

    /// The address of a block of a copy.
    fn block(&self, copy: usize, index: usize) -> Result<Pbn, Error> {
        let offset = copy.saturating_mul(BLOCKS_PER_COPY).saturating_add(index);
        u64::try_from(offset)
            .ok()
            .and_then(|offset| self.origin.checked_add(offset))
            .ok_or(Error::OutOfRange)
    }
}

impl Block {
    /// What the maker of update `ticket` does next; `None` to wait.
    fn turn(&self, ticket: u64) -> Option<Turn> {
        let mut state = self.state.lock();
        if let Some(error) = state.failed {
            return Some(Turn::Done(Err(error)));
        }
        if state.written >= ticket {
            return Some(Turn::Done(Ok(())));
        }
        let mut page = state.outgoing.take()?;
        page.copy_from_slice(&state.contents[..]);
        Some(Turn::Lead(page, state.requested))
    }
}
