// SPDX-License-Identifier: GPL-2.0

//! Changes of the block map on their way from the journal to the pages.
//!
//! The journal has them in the order of time, a page takes its own together. So they are collected up to a limit and sorted by
//! page; a page is then fetched once per batch, and different pages at the same time. Later batches come after earlier ones, and
//! within a page the order of the journal is kept, so the last change of an entry wins.

use crate::engine::error::Error;
use crate::engine::format::Mapping;
use crate::engine::units::{EntrySlot, Pbn};
use crate::rt::Vec;

/// Changes in a batch.
const BATCH_CHANGES: usize = 1 << 17;

/// A change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The page was allocated here, so whatever lies there is not to be believed unless it is this page.
    Create,
    /// An entry is to hold this.
    Set(EntrySlot, Mapping),
}

#[derive(Clone, Copy)]
struct Ordered {
    page: Pbn,
    /// Creation comes first, then the order of the journal.
    is_set: bool,
    order: u32,
    change: Change,
}

/// The changes of one page, in order.
#[derive(Clone, Copy, Debug)]
pub struct PageChanges {
    /// The page.
    pub page: Pbn,
    first: usize,
    end: usize,
}

/// A batch of changes.
pub struct Changes {
    changes: Vec<Ordered>,
    pages: Vec<PageChanges>,
}

impl Changes {
    /// An empty batch for at most `expected` changes, or as many as fit into one.
    pub fn new(expected: u64) -> Result<Self, Error> {
        let capacity = usize::try_from(expected)
            .unwrap_or(BATCH_CHANGES)
            .clamp(2, BATCH_CHANGES);
        Ok(Self {
            changes: Vec::with_capacity(capacity)?,
            pages: Vec::with_capacity(capacity)?,
        })
    }

    /// How many changes fit.
    pub fn capacity(&self) -> u64 {
        u64::try_from(self.changes.capacity()).unwrap_or(u64::MAX)
    }

    /// Whether another entry of the journal may not fit.
    pub fn is_full(&self) -> bool {
        // An entry makes two changes at most.
        self.changes.capacity().saturating_sub(self.changes.len()) < 2
    }

    /// Adds a change.
    pub fn push(&mut self, page: Pbn, change: Change) -> Result<(), Error> {
        let order = u32::try_from(self.changes.len()).map_err(|_| Error::OutOfRange)?;
        self.changes.push(Ordered {
            page,
            is_set: change != Change::Create,
            order,
            change,
        })?;
        Ok(())
    }

    /// Sorts the batch by page.
    pub fn sort(&mut self) -> Result<(), Error> {
        self.changes
            .sort_unstable_by_key(|change| (change.page, change.is_set, change.order));
        self.pages.clear();
        for (index, change) in self.changes.iter().enumerate() {
            match self.pages.last_mut() {
                Some(last) if last.page == change.page => last.end = index.saturating_add(1),
                _ => self.pages.push(PageChanges {
                    page: change.page,
                    first: index,
                    end: index.saturating_add(1),
                })?,
            }
        }
        Ok(())
    }

    /// The number of pages that the sorted batch changes.
    pub fn page_count(&self) -> usize {
        self.pages.len()
    }

    /// One of the pages of the sorted batch.
    pub fn page(&self, index: usize) -> Option<PageChanges> {
        self.pages.get(index).copied()
    }

    /// Whether a page was allocated by an entry in the batch.
    pub fn creates(&self, page: &PageChanges) -> bool {
        self.of(page).any(|change| change == Change::Create)
    }

    /// The changes of a page.
    pub fn of(&self, page: &PageChanges) -> impl Iterator<Item = Change> + '_ {
        self.changes
            .get(page.first..page.end)
            .unwrap_or(&[])
            .iter()
            .map(|change| change.change)
    }
}
