// SPDX-License-Identifier: GPL-2.0

//! The shape of the block map: 60 trees of five levels with 812 entries in a page.
//!
//! Leaves are numbered through all trees, the next leaf always being in the next tree:
//!
//! * leaf page of a logical block: `lbn / 812`, slot `lbn % 812`;
//! * its tree is `leaf % 60`, its index in the tree `leaf / 60`;
//! * the page above has index `index / 812` and names it in slot `index % 812`, and so on up to
//!   level 4, which has the one page that the super block knows.

use super::FormatError;
use crate::engine::units::{
    EntrySlot, Lbn, BLOCK_MAP_ENTRIES_PER_PAGE, BLOCK_MAP_ROOT_COUNT, BLOCK_MAP_TREE_HEIGHT,
    MAX_LOGICAL_BLOCKS,
};

/// Entries in a page.
const FAN_OUT: u64 = BLOCK_MAP_ENTRIES_PER_PAGE as u64;
/// The level of the root pages.
pub const ROOT_LEVEL: usize = BLOCK_MAP_TREE_HEIGHT - 1;

/// An entry in a page of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSlot {
    /// The page, counted among those of its level and tree.
    pub page: u64,
    /// The entry in it.
    pub slot: EntrySlot,
}

/// The way to the entry of a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePath {
    /// The tree.
    pub root: u64,
    /// The entry to look at in each level: that of the block itself in level 0, and above it
    /// that of the page below.
    pub levels: [TreeSlot; BLOCK_MAP_TREE_HEIGHT],
}

/// Finds the way to the entry of `lbn` in a map of `root_count` trees. `None` if there are none.
pub fn locate(lbn: Lbn, root_count: u64) -> Option<TreePath> {
    let (leaf, slot) = split(lbn.get());
    let root = leaf.checked_rem(root_count)?;
    let mut page = leaf.checked_div(root_count)?;

    let mut levels = [TreeSlot::default(); BLOCK_MAP_TREE_HEIGHT];
    let (bottom, above) = levels.split_first_mut()?;
    *bottom = TreeSlot { page, slot };
    for level in above {
        let slot;
        (page, slot) = split(page);
        *level = TreeSlot { page, slot };
    }
    Some(TreePath { root, levels })
}

/// Splits a number into a page and a slot.
fn split(number: u64) -> (u64, EntrySlot) {
    let slot = EntrySlot::new((number % FAN_OUT) as u16).unwrap_or_default();
    (number / FAN_OUT, slot)
}

/// How many pages a map has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forest {
    root_count: u64,
    leaf_count: u64,
}

impl Forest {
    /// The map of a volume of `logical_blocks` blocks.
    pub fn new(logical_blocks: u64, root_count: u64) -> Result<Self, FormatError> {
        if logical_blocks > MAX_LOGICAL_BLOCKS {
            return Err(FormatError::OutOfRange("logical size"));
        }
        if root_count == 0 || root_count > BLOCK_MAP_ROOT_COUNT {
            return Err(FormatError::OutOfRange("number of block map roots"));
        }
        Ok(Self {
            root_count,
            leaf_count: logical_blocks.div_ceil(FAN_OUT).max(1),
        })
    }

    /// The number of trees.
    pub fn root_count(&self) -> u64 {
        self.root_count
    }

    /// Leaves in all trees.
    pub fn leaf_count(&self) -> u64 {
        self.leaf_count
    }

    /// Pages that tree `root` can have in `level`, the leaves being level 0. The page of the root
    /// level is always there.
    pub fn pages(&self, root: u64, level: usize) -> u64 {
        if level >= ROOT_LEVEL {
            return u64::from(level == ROOT_LEVEL && root < self.root_count);
        }
        let mut pages = self
            .leaf_count
            .saturating_sub(root)
            .checked_add(self.root_count - 1)
            .and_then(|leaves| leaves.checked_div(self.root_count))
            .unwrap_or(0);
        for _ in 0..level {
            pages = pages.div_ceil(FAN_OUT);
        }
        pages
    }

    /// Pages that the map needs besides its roots once every leaf exists.
    pub fn allocated_pages_max(&self) -> u64 {
        (0..self.root_count)
            .flat_map(|root| (0..ROOT_LEVEL).map(move |level| (root, level)))
            .fold(0u64, |sum, (root, level)| {
                sum.saturating_add(self.pages(root, level))
            })
    }
}
