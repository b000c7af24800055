// SPDX-License-Identifier: GPL-2.0

//! Reading the journal piece by piece.

use super::parallel::for_each;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::store::Store;
use crate::engine::units::{Block, Pbn};
use crate::rt::{spin_lock, Arc, Page, SpinLock, Vec};

/// Blocks in memory at a time.
pub const WINDOW_BLOCKS: usize = 256;
/// Reads under way at a time.
const READERS: usize = 32;

/// Where the journal is.
#[derive(Clone, Copy, Debug)]
pub struct JournalArea {
    /// Its first block.
    pub origin: Pbn,
    /// Its size, a power of two.
    pub blocks: u64,
}

impl JournalArea {
    /// The block at a position.
    fn block(&self, position: u64) -> Option<Pbn> {
        self.origin
            .checked_add(position & self.blocks.checked_sub(1)?)
    }
}

/// A part of the journal in memory.
pub struct Window<E: Env> {
    store: Arc<Store<E>>,
    area: JournalArea,
    /// A page is away while it is being read.
    pages: Arc<Vec<SpinLock<Option<Page>>>>,
}

impl<E: Env> Window<E> {
    /// Memory for a part of a journal.
    pub fn new(store: Arc<Store<E>>, area: JournalArea) -> Result<Self, Error> {
        let blocks = usize::try_from(area.blocks).unwrap_or(WINDOW_BLOCKS);
        let pages = Vec::from_fn(blocks.min(WINDOW_BLOCKS), |_| {
            Ok::<_, Error>(spin_lock!(Some(Page::new()?))?)
        })?;
        Ok(Self {
            store,
            area,
            pages: Arc::new(pages)?,
        })
    }

    /// How many blocks fit.
    pub fn capacity(&self) -> usize {
        self.pages.len()
    }

    /// Reads `count` blocks from `position` on, going around the end of the journal.
    pub async fn read(&mut self, position: u64, count: usize) -> Result<(), Error> {
        let (store, pages, area) = (Arc::clone(&self.store), Arc::clone(&self.pages), self.area);
        let count = count.min(self.capacity());
        for_each(&self.store, count, READERS, move |index| {
            let (store, pages) = (Arc::clone(&store), Arc::clone(&pages));
            async move {
                let pbn = u64::try_from(index)
                    .ok()
                    .and_then(|index| area.block(position.wrapping_add(index)))
                    .ok_or(Error::OutOfRange)?;
                let place = pages.get(index).ok_or(Error::OutOfRange)?;
                let page = place.lock().take().ok_or(Error::Busy)?;
                let (page, result) = store.read(pbn, page, IoClass::Journal).await;
                *place.lock() = Some(page);
                Ok(result?)
            }
        })
        .await
    }

    /// Looks at a block that was read.
    pub fn with_block<R>(&self, index: usize, look: impl FnOnce(&Block) -> R) -> Result<R, Error> {
        let place = self.pages.get(index).ok_or(Error::OutOfRange)?;
        let page = place.lock();
        page.as_ref().map(|page| look(page)).ok_or(Error::Busy)
    }
}
