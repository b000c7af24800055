// SPDX-License-Identifier: GPL-2.0

//! New pages of the block map.

use super::Volume;
use crate::engine::block_map::{Grow, Location, NewPage};
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::recovery_journal_entry::{BlockMapSlot, JournalEntry, JournalOperation};
use crate::engine::format::Mapping;
use crate::engine::journal::EntryLock;

impl<E: Env> Grow for Volume<E> {
    type Lock<'a>
        = EntryLock<'a, E>
    where
        Self: 'a;

    /// Takes a block from the depot for a page below `parent`. When this returns, the journal has it and its count is that of
    /// a page.
    async fn allocate_page(&self, parent: Location) -> Result<NewPage<EntryLock<'_, E>>, Error> {
        let allocation = self.depot.allocate_patiently().await?;
        let pbn = allocation.pbn();
        let entry = JournalEntry {
            operation: JournalOperation::BlockMapRemap,
            slot: BlockMapSlot {
                page: parent.page,
                slot: parent.slot,
            },
            mapping: Mapping::uncompressed(pbn),
            unmapping: Mapping::UNMAPPED,
        };
        let lock = self.journal.record(&entry).await?;
        allocation.consume();
        Ok(NewPage {
            pbn,
            sequence: lock.sequence(),
            lock,
        })
    }
}
