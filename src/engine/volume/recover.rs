// SPDX-License-Identifier: GPL-2.0

//! Recovering a volume that was not saved.
//!
//! 1. The recovery journal is scanned, and every entry that is to be replayed is checked before anything is changed.
//! 2. Entries from the head of the block map on are stored in its pages.
//! 3. Entries from the head of the slab journals on are added to these, as far as they do not have them.
//! 4. One write of the super block, behind a flush, ends it: the number of recoveries goes up, which makes the whole journal
//!    invalid at once, and the journal goes on after its newest block.
//!
//! Until that write everything can be done again: a page takes the same entries with the same result, a slab journal knows
//! how far it is. After it, nothing of the journal is needed. Scrubbing the slabs comes later, while the volume is in use.

use super::codes::FoundCodes;
use super::Volume;
use crate::engine::block_map::OnDisk;
use crate::engine::depot::LoadState;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::block_map_page;
use crate::engine::format::layout::PartitionId;
use crate::engine::format::recovery_journal::ENTRIES_PER_BLOCK;
use crate::engine::format::recovery_journal_entry::{JournalEntry, JournalOperation};
use crate::engine::format::slab_journal::{expand_point, ReferenceUpdate};
use crate::engine::format::super_block::SuperBlock;
use crate::engine::format::{BlockCode, MappingState};
use crate::engine::recovery::chain::{self, Chain, Usage};
use crate::engine::recovery::changes::{Change, Changes};
use crate::engine::recovery::parallel::for_each;
use crate::engine::recovery::scan::{Extent, Scan, ScanParameters};
use crate::engine::recovery::window::JournalArea;
use crate::engine::units::{JournalPoint, Pbn, SequenceNumber};
use crate::rt::{Arc, Vec};

/// Pages of the block map that are changed at a time.
const PAGE_CHANGERS: usize = 32;

impl<E: Env> Volume<E> {
    /// Replays the recovery journal. The writers have to be running.
    pub(super) async fn recover(this: &Arc<Self>) -> Result<(), Error> {
        let parameters = this.scan_parameters()?;
        let scan = Scan::run(&this.store, &parameters).await?;
        let extent = scan.extent()?;
        let restart = scan.restart()?;
        crate::rt::info!(
            "recovering: {} journal entries in {} blocks from {} on; the journal goes on at {}",
            extent.entries,
            extent.blocks,
            extent.first,
            restart
        );
        // If it was not the power that failed, what was read may be in a cache only. What follows from it must not outlive it.
        this.store.flush().await?;

        let saved = this.super_block.content();
        let usage = chain::validate(&this.store, &parameters, &extent, |entry| {
            this.validate(&saved, entry)
        })
        .await?;
        let usage = usage.unwrap_or((
            saved.recovery_journal.logical_blocks_used,
            saved.recovery_journal.block_map_data_blocks,
        ));
        this.check_usage(usage)?;
        Self::replay_block_map(this, &parameters, &extent, scan.block_map_head).await?;
        Self::replay_slabs(this, &parameters, &extent, scan.slab_journal_head).await?;
        this.begin_anew(restart, usage, |content| {
            content.complete_recoveries = content.complete_recoveries.wrapping_add(1);
        })
        .await
    }

    /// What to look for in the journal.
    pub(super) fn scan_parameters(&self) -> Result<ScanParameters, Error> {
        let content = self.super_block.content();
        let partition = content.layout.partition(PartitionId::RecoveryJournal)?;
        Ok(ScanParameters {
            area: JournalArea {
                origin: partition.start,
                blocks: content.config.recovery_journal_size,
            },
            nonce: content.nonce,
            recovery_count: content.recovery_count(),
            start: content.recovery_journal.journal_start,
        })
    }

    /// Checks that an entry can be replayed.
    fn validate(&self, content: &SuperBlock, entry: &JournalEntry) -> Result<(), Error> {
        let physical_blocks = content.config.physical_blocks;
        entry.validate(physical_blocks, |pbn| self.depot.is_data_block(pbn))?;
        if !self.may_be_page(content, entry.slot.page) {
            return Err(Error::Corrupt(
                "recovery journal entry for a block that is no page of the block map",
            ));
        }
        Ok(())
    }

    /// Whether a page of the block map can be at `pbn`.
    pub(super) fn may_be_page(&self, content: &SuperBlock, pbn: Pbn) -> bool {
        let map = &content.block_map;
        let is_root = pbn
            .checked_offset_from(map.root_origin)
            .is_some_and(|root| root < map.root_count);
        is_root || self.depot.is_data_block(pbn)
    }

    async fn replay_block_map(
        this: &Arc<Self>,
        parameters: &ScanParameters,
        extent: &Extent,
        head: SequenceNumber,
    ) -> Result<(), Error> {
        let mut chain = Chain::new(&this.store, parameters, extent.first, extent.blocks)?;
        let mut entries = Vec::with_capacity(ENTRIES_PER_BLOCK.into())?;
        let mut changes = Changes::new(extent.entries.saturating_mul(2))?;
        while chain.advance().await? {
            for (sequence, index) in chain.loaded() {
                if sequence < head {
                    continue;
                }
                chain.entries(index, sequence, &mut entries)?;
                for (_, entry) in &entries[..] {
                    if changes.is_full() {
                        changes = Self::make_changes(this, changes, OnDisk::Nothing).await?;
                    }
                    if entry.operation == JournalOperation::BlockMapRemap {
                        changes.push(entry.mapping.pbn, Change::Create)?;
                    }
                    changes.push(entry.slot.page, Change::Set(entry.slot.slot, entry.mapping))?;
                }
            }
        }
        // A page that was allocated after the head has all its changes after the head, too. So its block is not looked at: what looks like
        // the page there may be left of another life of the block.
        Self::make_changes(this, changes, OnDisk::Nothing).await?;
        this.block_map.drain().await
    }

    /// Makes a batch of changes in the pages of the block map; the result is an empty batch. `allocated` is what may be on the disk in
    /// place of pages that the journal says were allocated. Call [`BlockMap::drain`] in the end.
    ///
    /// [`BlockMap::drain`]: crate::engine::block_map::BlockMap::drain
    pub(super) async fn make_changes(
        this: &Arc<Self>,
        mut changes: Changes,
        allocated: OnDisk,
    ) -> Result<Changes, Error> {
        changes.sort()?;
        let empty = Changes::new(changes.capacity())?;
        let count = changes.page_count();
        let (volume, changes) = (Arc::clone(this), Arc::new(changes)?);
        for_each(&this.store, count, PAGE_CHANGERS, move |index| {
            let (volume, changes) = (Arc::clone(&volume), Arc::clone(&changes));
            async move {
                let page = changes.page(index).ok_or(Error::OutOfRange)?;
                let on_disk = match changes.creates(&page) {
                    true => allocated,
                    false => OnDisk::Page,
                };
                volume
                    .block_map
                    .replay_page(page.page, on_disk, |block| {
                        for change in changes.of(&page) {
                            if let Change::Set(slot, mapping) = change {
                                block_map_page::set_entry(block, slot, mapping);
                            }
                        }
                    })
                    .await
            }
        })
        .await?;
        Ok(empty)
    }

    async fn replay_slabs(
        this: &Arc<Self>,
        parameters: &ScanParameters,
        extent: &Extent,
        head: SequenceNumber,
    ) -> Result<(), Error> {
        this.depot.load(LoadState::Crashed).await?;
        let mut chain = Chain::new(&this.store, parameters, extent.first, extent.blocks)?;
        let mut entries = Vec::with_capacity(ENTRIES_PER_BLOCK.into())?;
        while chain.advance().await? {
            for (sequence, index) in chain.loaded() {
                if sequence < head {
                    continue;
                }
                chain.entries(index, sequence, &mut entries)?;
                let codes = Self::find_codes(this, &entries).await?;
                for (point, entry) in &entries[..] {
                    this.replay_references(*point, entry, &codes).await?;
                }
            }
        }
        this.depot.finish_replay().await
    }

    /// W3: the increment before the decrement, entries in the order of the journal.
    async fn replay_references(
        &self,
        point: JournalPoint,
        entry: &JournalEntry,
        codes: &FoundCodes,
    ) -> Result<(), Error> {
        let increment = match entry.operation {
            JournalOperation::DataRemap => ReferenceUpdate::Increment,
            JournalOperation::BlockMapRemap => ReferenceUpdate::BlockMapIncrement,
        };
        for (mapping, update) in [
            (entry.mapping, increment),
            (entry.unmapping, ReferenceUpdate::Decrement),
        ] {
            if mapping.has_block() {
                let code = match (update, mapping.state) {
                    (ReferenceUpdate::Increment, MappingState::Compressed(_)) => {
                        codes.of(mapping.pbn)
                    }
                    _ => BlockCode::NONE,
                };
                self.depot
                    .replay(expand_point(point, update), mapping.pbn, update, code)
                    .await?;
            }
        }
        Ok(())
    }

    /// Gives the old journal up: everything that was in it is elsewhere. The write that does so flushes first.
    pub(super) async fn begin_anew(
        &self,
        restart: SequenceNumber,
        usage: Usage,
        count_recovery: impl Fn(&mut SuperBlock) + Send + Sync,
    ) -> Result<(), Error> {
        self.store.read_only().check()?;
        let mut content = self.super_block.content();
        count_recovery(&mut content);
        self.journal
            .restart(restart, content.recovery_count(), usage)?;
        self.mark_dirty_and(count_recovery).await
    }
}
