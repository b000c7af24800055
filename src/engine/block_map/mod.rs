// SPDX-License-Identifier: GPL-2.0

//! The block map: which physical block holds the data of each logical block.
//!
//! A forest of 60 trees on disk (see [`block_map_tree`]), of which only a fixed number of pages is in memory, leaves and interior
//! pages alike. Nothing here grows with the logical size.
//!
//! | file             | owns                                                             |
//! |------------------|------------------------------------------------------------------|
//! | `cache`          | finding and reading pages                                        |
//! | `shard`, `frame`, `dirty_list` | the state of the cached pages                      |
//! | `writer`         | when pages are written, and in which order                       |
//! | `growth`         | the locks for adding pages to the trees                          |
//! | `leaf_directory` | the shortcut to leaves                                           |
//!
//! Pages live under the spinlocks of the cache's shards. Lock order: shard, then the journal's locks ([`PageLocks`]); a growth lock
//! is a lock to wait for and is taken with no spinlock held. Methods that wait may wait for reads, for the writers and, when the
//! map grows, for the journal. The writers wait for the device only, so they always make progress.
//!
//! What keeps a change safe: the caller holds the journal block of its entry until [`BlockMap::put`] returns; from then on the page
//! keeps the oldest block it needs until it has been written (W8).

mod cache;
mod dirty_list;
mod frame;
mod growth;
mod leaf_directory;
mod shard;
mod statistics;
mod writer;

pub use self::cache::OnDisk;
pub use self::growth::{Grow, NewPage};

use self::cache::{Access, PageCache};
use self::growth::GrowthLocks;
use self::leaf_directory::LeafDirectory;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::block_map_entry::Mapping;
use crate::engine::format::block_map_page;
use crate::engine::format::block_map_tree::{self, TreePath, ROOT_LEVEL};
use crate::engine::format::component_state::SlabDepotState;
use crate::engine::journal::Journal;
use crate::engine::statistics::BlockMapStats;
use crate::engine::store::Store;
use crate::engine::units::{
    Block, EntrySlot, Lbn, Nonce, Pbn, SequenceNumber, BLOCK_MAP_ENTRIES_PER_PAGE,
    BLOCK_MAP_ROOT_COUNT,
};
use crate::rt::{Arc, Page};

/// An entry of the map: a page and a slot in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The page.
    pub page: Pbn,
    /// The entry in it.
    pub slot: EntrySlot,
}

/// Locks on blocks of the recovery journal: a locked block is not reused. Locks are counted.
///
/// Called with a shard of the page cache locked; must not wait or call into the block map.
pub trait PageLocks: Send + Sync {
    /// A dirty page needs the block.
    fn lock_for_page(&self, sequence: SequenceNumber);
    /// That page was written.
    fn unlock_for_page(&self, sequence: SequenceNumber);
}

/// What a block map is made with.
#[derive(Clone, Debug)]
pub struct Config {
    /// The first of the root pages.
    pub root_origin: Pbn,
    /// How many there are.
    pub root_count: u64,
    /// The nonce of the volume.
    pub nonce: Nonce,
    /// The slabs, in whose data blocks all pages but the roots are.
    pub slabs: SlabDepotState,
    /// Pages in memory.
    pub cache_pages: usize,
    /// How many blocks the journal may go past a change before the page is written; see [`maximum_age_blocks`].
    pub maximum_age_blocks: u64,
}

/// The age in journal blocks for the age on the table line, which counts in blocks of 311 entries as they once were.
pub fn maximum_age_blocks(table_age: u64) -> u64 {
    table_age.saturating_mul(311).div_ceil(434)
}

/// The block map of one volume.
pub struct BlockMap<E: Env, J: PageLocks = Journal<E>> {
    cache: PageCache<E, J>,
    growth: GrowthLocks,
    leaves: LeafDirectory,
    root_origin: Pbn,
    root_count: u64,
    slabs: SlabDepotState,
}

impl<E: Env, J: PageLocks> BlockMap<E, J> {
    /// Makes the map; nothing is read yet.
    pub fn new(store: Arc<Store<E>>, locks: Arc<J>, config: &Config) -> Result<Self, Error> {
        if config.root_count == 0 || config.root_count > BLOCK_MAP_ROOT_COUNT {
            return Err(Error::Corrupt("number of block map roots"));
        }
        Ok(Self {
            cache: PageCache::new(
                store,
                locks,
                config.nonce,
                config.cache_pages,
                config.maximum_age_blocks,
            )?,
            growth: GrowthLocks::new()?,
            leaves: LeafDirectory::new(config.cache_pages.saturating_mul(2))?,
            root_origin: config.root_origin,
            root_count: config.root_count,
            slabs: config.slabs,
        })
    }

    /// Finds the entry of a logical block. `None` if its page does not exist: nothing was ever written near it.
    pub async fn find(&self, lbn: Lbn) -> Result<Option<Location>, Error> {
        let path = self.path(lbn)?;
        if let Some(at) = self.find_known(lbn, &path) {
            return Ok(Some(at));
        }
        let mut page = self.root(&path)?;
        for level in path.levels.iter().skip(1).rev() {
            let at = Location {
                page,
                slot: level.slot,
            };
            match self.child(at).await? {
                Some(child) => page = child,
                None => return Ok(None),
            }
        }
        Ok(Some(self.remember(lbn, &path, page)))
    }

    /// Finds the entry of a logical block, adding the pages that are missing on the way to it.
    pub async fn find_or_grow(&self, lbn: Lbn, grow: &impl Grow) -> Result<Location, Error> {
        let path = self.path(lbn)?;
        if let Some(at) = self.find_known(lbn, &path) {
            return Ok(at);
        }
        let mut page = self.root(&path)?;
        for level in path.levels.iter().skip(1).rev() {
            let at = Location {
                page,
                slot: level.slot,
            };
            page = self.child_or_grow(at, grow).await?;
        }
        Ok(self.remember(lbn, &path, page))
    }

    /// The mapping in an entry. [`Error::BadMapping`] if it is none; whether its block is a data block is for the caller to see.
    pub async fn get(&self, at: Location) -> Result<Mapping, Error> {
        let mapping = self
            .cache
            .with_page(at.page, Access::Read, |page| {
                block_map_page::entry(page, at.slot)
            })
            .await?;
        if mapping.is_valid() {
            Ok(mapping)
        } else {
            Err(Error::BadMapping)
        }
    }

    /// Changes an entry, which the recovery journal has in its block `sequence`. The caller keeps that block until this returns.
    pub async fn put(
        &self,
        at: Location,
        mapping: Mapping,
        sequence: SequenceNumber,
    ) -> Result<(), Error> {
        self.cache
            .with_page(at.page, Access::Journaled(sequence), |page| {
                block_map_page::set_entry(page, at.slot, mapping);
            })
            .await
    }

    /// Changes a page as the journal says that is being replayed: no journal block is locked. To be followed by a
    /// [`BlockMap::drain`] before the journal is given up.
    pub async fn replay_page(
        &self,
        page: Pbn,
        on_disk: OnDisk,
        change: impl FnOnce(&mut Block) + Send,
    ) -> Result<(), Error> {
        self.cache.replay_page(page, on_disk, change).await
    }

    /// Forgets all pages, none of which may be dirty: somebody has changed them on disk.
    pub fn forget(&self) {
        self.cache.forget();
    }

    /// Runs `f` on a page, for those who walk through the whole map.
    pub async fn inspect<R: Send>(
        &self,
        page: Pbn,
        f: impl FnOnce(&Block) -> R + Send,
    ) -> Result<R, Error> {
        self.cache
            .with_page(page, Access::Read, |page| f(page))
            .await
    }

    /// The journal has begun its block `tail`: pages whose oldest change is too far behind are due to be written.
    pub fn era_advanced(&self, tail: SequenceNumber) {
        self.cache.era_advanced(tail);
    }

    /// The body of a writer task, of which there are several. Copies pages to `bounce`. Ends after [`BlockMap::stop`].
    pub async fn run_writer(&self, bounce: Page) {
        self.cache.run_writer(bounce).await;
    }

    /// Writes every change and makes it durable. Needs the writers, and nobody who changes anything meanwhile.
    pub async fn drain(&self) -> Result<(), Error> {
        self.cache.drain().await
    }

    /// Read-only mode was entered: lets go of everybody who waits for a write.
    pub fn abandon(&self) {
        self.cache.abandon();
    }

    /// Ends the writers once they have finished the pages they are at. What is dirty then stays so.
    pub fn stop(&self) {
        self.cache.stop();
    }

    /// What the map holds in memory and has done.
    pub fn statistics(&self) -> BlockMapStats {
        self.cache.statistics()
    }

    fn path(&self, lbn: Lbn) -> Result<TreePath, Error> {
        let path = block_map_tree::locate(lbn, self.root_count).ok_or(Error::OutOfRange)?;
        match path.levels.get(ROOT_LEVEL) {
            Some(root) if root.page == 0 => Ok(path),
            _ => Err(Error::OutOfRange),
        }
    }

    fn root(&self, path: &TreePath) -> Result<Pbn, Error> {
        self.root_origin
            .checked_add(path.root)
            .ok_or(Error::OutOfRange)
    }

    fn find_known(&self, lbn: Lbn, path: &TreePath) -> Option<Location> {
        let page = self.leaves.get(leaf_number(lbn))?;
        let slot = path.levels.first()?.slot;
        Some(Location { page, slot })
    }

    fn remember(&self, lbn: Lbn, path: &TreePath, page: Pbn) -> Location {
        self.leaves.insert(leaf_number(lbn), page);
        let slot = path
            .levels
            .first()
            .map_or(EntrySlot::ZERO, |leaf| leaf.slot);
        Location { page, slot }
    }

    /// The page that an interior entry names.
    async fn child(&self, at: Location) -> Result<Option<Pbn>, Error> {
        let mapping = self
            .cache
            .with_page(at.page, Access::Read, |page| {
                block_map_page::entry(page, at.slot)
            })
            .await?;
        if !mapping.is_mapped() && mapping.is_valid_interior() {
            return Ok(None);
        }
        if !mapping.is_valid_interior() || !self.slabs.is_data_block(mapping.pbn) {
            // To go on would mean to take something else for a page and to overwrite it.
            return Err(Error::Corrupt("interior entry of the block map"));
        }
        Ok(Some(mapping.pbn))
    }

    /// The page that an interior entry names, which is added if there is none.
    async fn child_or_grow(&self, at: Location, grow: &impl Grow) -> Result<Pbn, Error> {
        let turn = loop {
            // In this order, so that no page that is added meanwhile is missed.
            let grown = self.growth.grown(at);
            if let Some(child) = self.child(at).await? {
                return Ok(child);
            }
            if let Some(turn) = self.growth.lock(at, grown).await {
                break turn;
            }
        };
        if let Some(child) = self.child(at).await? {
            return Ok(child);
        }
        let NewPage {
            pbn,
            sequence,
            lock,
        } = grow.allocate_page(at).await?;
        // The page is there before anybody can find it, so nobody reads what the block held before.
        self.cache.create(pbn, sequence).await?;
        self.cache
            .with_page(at.page, Access::Journaled(sequence), |page| {
                block_map_page::set_entry(page, at.slot, Mapping::uncompressed(pbn));
            })
            .await?;
        // Both pages keep the journal block now.
        drop(lock);
        turn.has_grown();
        Ok(pbn)
    }
}

/// The number of the leaf page of a logical block.
fn leaf_number(lbn: Lbn) -> u64 {
    lbn.get() / u64::from(BLOCK_MAP_ENTRIES_PER_PAGE)
}
