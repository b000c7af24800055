// SPDX-License-Identifier: GPL-2.0

//! The walks of a rebuild through the trees of the block map.
//!
//! Pages are read from the device and written back to it, not through the cache: a page that is damaged must not make the
//! volume read-only here, it is what the rebuild is for. Each tree is walked by one task with one page for every level.

use super::Volume;
use crate::engine::depot::ReferenceUpdate;
use crate::engine::env::{Env, IoClass, WriteFlags};
use crate::engine::error::Error;
use crate::engine::format::block_map_page::{self, PageContents};
use crate::engine::format::block_map_tree::{Forest, ROOT_LEVEL};
use crate::engine::format::{FormatError, Mapping, MappingState};
use crate::engine::recovery::parallel::for_each;
use crate::engine::units::{EntrySlot, Pbn, BLOCK_MAP_ENTRIES_PER_PAGE, BLOCK_MAP_TREE_HEIGHT};
use crate::rt::{spin_lock, Arc, Page};

/// Trees that are walked at a time.
const WALKERS: usize = 30;

/// What the walks found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Mapped logical blocks.
    pub(super) logical_blocks: u64,
    /// Pages in slabs.
    pub(super) pages: u64,
    /// Entries that could not stay.
    pub(super) unmapped: u64,
}

/// What a walk is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Counting the pages.
    Pages,
    /// Counting what the leaves refer to, once all pages are counted.
    Leaves,
}

/// A page on the way to the current one.
struct Level {
    pbn: Pbn,
    /// The number of the page among those of its level and tree.
    index: u64,
    /// The next slot to look at.
    slot: u16,
    page: Option<Page>,
    changed: bool,
    /// The page was not there, and is to be written as a new one if it is written.
    fresh: bool,
}

/// A walk through one tree.
struct Walk<'a, E: Env> {
    volume: &'a Volume<E>,
    purpose: Purpose,
    tree: u64,
    /// How many pages there can be.
    forest: Forest,
    levels: [Level; BLOCK_MAP_TREE_HEIGHT],
    counted: Counted,
}

impl<E: Env> Volume<E> {
    /// Counts every reference that the block map makes, and unmaps what cannot be.
    pub(super) async fn count_references(this: &Arc<Self>) -> Result<Counted, Error> {
        let sum = Arc::new(spin_lock!(Counted::default())?)?;
        let trees = usize::try_from(this.super_block.content().block_map.root_count)
            .map_err(|_| Error::OutOfRange)?;
        for purpose in [Purpose::Pages, Purpose::Leaves] {
            let (volume, total) = (Arc::clone(this), Arc::clone(&sum));
            for_each(&this.store, trees, WALKERS, move |tree| {
                let (volume, total) = (Arc::clone(&volume), Arc::clone(&total));
                async move {
                    let tree = u64::try_from(tree).map_err(|_| Error::OutOfRange)?;
                    let mut walk = Walk::new(&volume, purpose, tree)?;
                    walk.run().await?;
                    let mut total = total.lock();
                    let counted = walk.counted;
                    total.logical_blocks =
                        total.logical_blocks.saturating_add(counted.logical_blocks);
                    total.pages = total.pages.saturating_add(counted.pages);
                    total.unmapped = total.unmapped.saturating_add(counted.unmapped);
                    Ok(())
                }
            })
            .await?;
        }
        let counted = *sum.lock();
        Ok(counted)
    }
}

impl<'a, E: Env> Walk<'a, E> {
    fn new(volume: &'a Volume<E>, purpose: Purpose, tree: u64) -> Result<Self, Error> {
        let content = volume.super_block.content();
        let root = content
            .block_map
            .root_origin
            .checked_add(tree)
            .ok_or(Error::OutOfRange)?;
        let level = || {
            Ok::<_, Error>(Level {
                pbn: root,
                index: 0,
                slot: 0,
                page: Some(Page::new()?),
                changed: false,
                fresh: false,
            })
        };
        Ok(Self {
            volume,
            purpose,
            tree,
            forest: Forest::new(volume.logical_blocks(), content.block_map.root_count)?,
            levels: [level()?, level()?, level()?, level()?, level()?],
            counted: Counted::default(),
        })
    }

    async fn run(&mut self) -> Result<(), Error> {
        let mut height = ROOT_LEVEL;
        self.load(height).await?;
        loop {
            match self.next_child(height).await? {
                Some(child) => {
                    let below = height.checked_sub(1).ok_or(Error::OutOfRange)?;
                    let level = self.level(below)?;
                    (level.pbn, level.index, level.slot) = (child.0, child.1, 0);
                    let wanted = below > 0 || self.purpose == Purpose::Leaves;
                    if !wanted {
                        continue;
                    }
                    self.load(below).await?;
                    if below == 0 {
                        self.count_leaf()?;
                        self.save(below).await?;
                    } else {
                        height = below;
                    }
                }
                None => {
                    self.save(height).await?;
                    if height == ROOT_LEVEL {
                        return Ok(());
                    }
                    height = height.saturating_add(1);
                }
            }
        }
    }

    /// The next page below that of level `height`, and its number. `None` after the last one.
    async fn next_child(&mut self, height: usize) -> Result<Option<(Pbn, u64)>, Error> {
        let below = height.checked_sub(1).ok_or(Error::OutOfRange)?;
        let limit = self.forest.pages(self.tree, below);
        loop {
            let level = self.level(height)?;
            let Some(slot) = EntrySlot::new(level.slot) else {
                return Ok(None);
            };
            level.slot = level.slot.saturating_add(1);
            let index = level
                .index
                .saturating_mul(BLOCK_MAP_ENTRIES_PER_PAGE.into())
                .saturating_add(slot.get().into());
            let page = level.page.as_ref().ok_or(Error::NoMemory)?;
            let mapping = block_map_page::entry(page, slot);
            if mapping == Mapping::UNMAPPED {
                continue;
            }
            if self.purpose == Purpose::Leaves {
                return Ok(Some((mapping.pbn, index)));
            }
            let counted = mapping.is_valid_interior()
                && index < limit
                && self
                    .volume
                    .depot
                    .count_reference(mapping.pbn, ReferenceUpdate::BlockMapIncrement)
                    .is_ok();
            if counted {
                self.counted.pages = self.counted.pages.saturating_add(1);
                return Ok(Some((mapping.pbn, index)));
            }
            self.unmap(height, slot)?;
        }
    }

    /// Counts what the entries of the loaded leaf refer to.
    fn count_leaf(&mut self) -> Result<(), Error> {
        let logical_blocks = self.volume.logical_blocks();
        let first = self
            .level(0)?
            .index
            .saturating_mul(self.forest.root_count())
            .saturating_add(self.tree)
            .saturating_mul(BLOCK_MAP_ENTRIES_PER_PAGE.into());
        for number in 0..BLOCK_MAP_ENTRIES_PER_PAGE {
            let slot = EntrySlot::new(number).ok_or(Error::OutOfRange)?;
            let page = self.level(0)?.page.as_ref().ok_or(Error::NoMemory)?;
            let mapping = block_map_page::entry(page, slot);
            if mapping == Mapping::UNMAPPED {
                continue;
            }
            let is_inside = first.saturating_add(number.into()) < logical_blocks;
            let can_stay = mapping.is_valid()
                && is_inside
                && (mapping.pbn.is_zero()
                    || self
                        .volume
                        .depot
                        .count_reference(mapping.pbn, ReferenceUpdate::Increment)
                        .is_ok());
            if can_stay && matches!(mapping.state, MappingState::Compressed(_)) {
                self.volume.depot.count_compressed(mapping.pbn)?;
            }
            if can_stay {
                self.counted.logical_blocks = self.counted.logical_blocks.saturating_add(1);
            } else {
                self.unmap(0, slot)?;
            }
        }
        Ok(())
    }

    fn unmap(&mut self, height: usize, slot: EntrySlot) -> Result<(), Error> {
        self.counted.unmapped = self.counted.unmapped.saturating_add(1);
        let level = self.level(height)?;
        level.changed = true;
        let page = level.page.as_mut().ok_or(Error::NoMemory)?;
        block_map_page::set_entry(page, slot, Mapping::UNMAPPED);
        Ok(())
    }

    fn level(&mut self, height: usize) -> Result<&mut Level, Error> {
        self.levels.get_mut(height).ok_or(Error::OutOfRange)
    }

    /// Reads the page of a level. What is no page reads as an empty one.
    async fn load(&mut self, height: usize) -> Result<(), Error> {
        let nonce = self.volume.super_block.content().nonce;
        let store = Arc::clone(&self.volume.store);
        let level = self.level(height)?;
        let pbn = level.pbn;
        let page = level.page.take().ok_or(Error::NoMemory)?;
        let (mut page, result) = store.read(pbn, page, IoClass::Metadata).await;
        result?;
        (level.changed, level.fresh) = (false, false);
        match block_map_page::classify(&page, nonce, pbn) {
            Ok(PageContents::Valid) => {}
            Ok(PageContents::Fresh) => {
                block_map_page::format(&mut page, nonce, pbn);
                level.fresh = true;
            }
            // Other software knows what this means: not for us to throw away.
            Err(error @ FormatError::UnsupportedVersion { .. }) => return Err(error.into()),
            Err(error) => {
                crate::rt::warn!("block map page {} is lost: {}", pbn, error);
                block_map_page::format(&mut page, nonce, pbn);
                // On disk it would still be in the way.
                (level.changed, level.fresh) = (true, true);
            }
        }
        level.page = Some(page);
        Ok(())
    }

    /// Writes the page of a level if it was changed.
    async fn save(&mut self, height: usize) -> Result<(), Error> {
        let store = Arc::clone(&self.volume.store);
        let level = self.level(height)?;
        if !level.changed {
            return Ok(());
        }
        level.changed = false;
        let mut page = level.page.take().ok_or(Error::NoMemory)?;
        if level.fresh {
            let result;
            (page, result) = store
                .write(level.pbn, page, IoClass::Metadata, WriteFlags::META)
                .await;
            result?;
            store.flush().await?;
            block_map_page::set_initialized(&mut page, true);
        }
        let (page, result) = store
            .write(level.pbn, page, IoClass::Metadata, WriteFlags::META)
            .await;
        level.page = Some(page);
        Ok(result?)
    }
}
