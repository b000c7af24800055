// SPDX-License-Identifier: GPL-2.0

//! A frame of the page cache: room for one page of the block map and what is known about it.
//!
//! Frames belong to a shard and are guarded by the shard's lock.

use crate::engine::units::{Pbn, SequenceNumber};
use crate::rt::{AllocError, Page};

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// No page.
    Free,
    /// A page that is being read. The buffer is with the task that reads.
    Incoming,
    /// A page that can be looked at and changed.
    Resident,
}

/// The changes of a page that no write has taken along yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Changes {
    /// The oldest journal block with one of the changes, which has to be kept. `None` if the changes were not journaled, as when
    /// the journal is replayed.
    pub(super) lock: Option<SequenceNumber>,
}

impl Changes {
    /// What the list of dirty frames is sorted by.
    pub(super) fn age(self) -> SequenceNumber {
        self.lock.unwrap_or_default()
    }
}

/// A place in the list of dirty frames.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    pub(super) previous: Option<u32>,
    pub(super) next: Option<u32>,
}

/// A frame.
///
/// # Invariants
///
/// * `page` is `None` exactly while the content is [`Content::Incoming`].
/// * Only resident pages have changes or are being written.
/// * A frame is in its shard's dirty list exactly while it has changes and is not being written.
pub(super) struct Frame {
    pub(super) pbn: Pbn,
    pub(super) content: Content,
    pub(super) page: Option<Page>,
    /// Looked at since the clock's hand came by.
    pub(super) referenced: bool,
    pub(super) changes: Option<Changes>,
    /// What the write under way took along.
    pub(super) writing: Option<Changes>,
    pub(super) links: Links,
}

impl Frame {
    /// A frame without a page.
    pub(super) fn new() -> Result<Self, AllocError> {
        Ok(Self {
            pbn: Pbn::ZERO,
            content: Content::Free,
            page: Some(Page::new()?),
            referenced: false,
            changes: None,
            writing: None,
            links: Links::default(),
        })
    }

    /// Whether the page is on disk as it is here, and nothing is under way.
    pub(super) fn is_clean(&self) -> bool {
        self.content == Content::Resident && self.changes.is_none() && self.writing.is_none()
    }
}
