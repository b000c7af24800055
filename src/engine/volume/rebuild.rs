// SPDX-License-Identifier: GPL-2.0

//! Rebuilding a volume: everything is made anew from the block map and from what can be read of the journal.
//!
//! 1. Whatever looks like a change of the block map in the recovery journal is stored in the map, old format or new, holes or not.
//! 2. The depot forgets everything it had.
//! 3. A walk through the trees counts every page; a second one counts what the leaves refer to. Entries that cannot be are
//!    unmapped, and so are entries beyond the end of the volume.
//! 4. Counters and summary are written, and one write of the super block ends it.
//!
//! The state on disk says "rebuild" until then, and nothing is kept of an attempt that failed or was cut short: the next one begins
//! at the beginning.

use super::Volume;
use crate::engine::block_map::OnDisk;
use crate::engine::depot::LoadState;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::format::super_block::SuperBlock;
use crate::engine::format::volume_state::VolumeState;
use crate::engine::recovery::chain::{self, Claim};
use crate::engine::recovery::changes::{Change, Changes};
use crate::engine::recovery::scan::{Scan, ScanParameters};
use crate::rt::Arc;

impl<E: Env> Volume<E> {
    /// Has the volume rebuilt at its next start. For an upgraded volume in read-only mode: the vdo tools, which do the same, cannot
    /// open it.
    pub async fn request_rebuild(&self) -> Result<(), Error> {
        if !self.has_block_formats() {
            return Err(Error::Unsupported(
                "the volume has the original format: stop it and use vdoforcerebuild",
            ));
        }
        if !self.store.read_only().is_set() {
            return Err(Error::Unsupported(
                "the volume is not in read-only mode and needs no rebuild",
            ));
        }
        self.super_block
            .update(|content| content.state = VolumeState::ForceRebuild)
            .await
    }

    /// Rebuilds the volume. The writers have to be running.
    pub(super) async fn rebuild(this: &Arc<Self>) -> Result<(), Error> {
        let is_upgrade = this.super_block.content().state == VolumeState::RebuildForUpgrade;
        let parameters = this.scan_parameters()?;
        let scan = Scan::run(&this.store, &parameters).await?;
        let restart = scan.restart()?;
        crate::rt::info!("rebuilding all metadata from the block map");
        this.store.flush().await?;

        Self::restore_block_map(this, &parameters, &scan).await?;
        this.depot.load(LoadState::Rebuilding).await?;
        let counted = Self::count_references(this).await?;
        this.depot.finish_rebuild().await?;
        // The walk wrote past the cache.
        this.block_map.forget();
        crate::rt::info!(
            "rebuilt: {} logical blocks, {} block map pages; {} entries were unmapped",
            counted.logical_blocks,
            counted.pages,
            counted.unmapped
        );
        let usage = (counted.logical_blocks, counted.pages);
        this.begin_anew(restart, usage, |content| {
            if !is_upgrade {
                content.complete_recoveries = content.complete_recoveries.wrapping_add(1);
                content.read_only_recoveries = content.read_only_recoveries.wrapping_add(1);
            }
        })
        .await
    }

    /// Stores what the journal has in the block map.
    async fn restore_block_map(
        this: &Arc<Self>,
        parameters: &ScanParameters,
        scan: &Scan,
    ) -> Result<(), Error> {
        let (_, blocks) = scan.lenient();
        let content = this.super_block.content();
        let mut chain = scan.lenient_chain(&this.store, parameters)?;
        // An upper bound: entries of the old format are the smallest.
        let most = blocks.saturating_mul(2 * 311);
        let mut changes = Changes::new(most)?;
        let mut claims = crate::rt::Vec::with_capacity(311)?;
        while chain.advance().await? {
            for (sequence, index) in chain.loaded() {
                claims.clear();
                chain.with_block(index, |block| {
                    chain::claims(block, sequence, parameters, |claim| {
                        if this.is_believable(&content, &claim) {
                            claims.push(claim)?;
                        }
                        Ok(())
                    })
                })??;
                for claim in &claims[..] {
                    if changes.is_full() {
                        changes = Self::make_changes(this, changes, OnDisk::PageOrNothing).await?;
                    }
                    if claim.grows_map {
                        changes.push(claim.mapping.pbn, Change::Create)?;
                    }
                    changes.push(claim.slot.page, Change::Set(claim.slot.slot, claim.mapping))?;
                }
            }
        }
        // The journal may have holes: what is on the disk may be more.
        Self::make_changes(this, changes, OnDisk::PageOrNothing).await?;
        this.block_map.drain().await
    }

    fn is_believable(&self, content: &SuperBlock, claim: &Claim) -> bool {
        let mapping = claim.mapping;
        let leads_somewhere = mapping.pbn.is_zero() || self.depot.is_data_block(mapping.pbn);
        let is_valid = match claim.grows_map {
            true => mapping.is_valid_interior() && mapping.is_mapped(),
            false => mapping.is_valid(),
        };
        is_valid && leads_somewhere && self.may_be_page(content, claim.slot.page)
    }
}
