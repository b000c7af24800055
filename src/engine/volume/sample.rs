// SPDX-License-Identifier: GPL-2.0

//! A look at the data of a running volume, for those who want to know what another compressor would make of it.
//!
//! Changes nothing. Takes the lock of one logical block at a time, as a read does.

use super::Volume;
use crate::engine::env::Env;
use crate::engine::error::Error;
use crate::engine::reader;
use crate::engine::units::{Lbn, BLOCK_MAP_ENTRIES_PER_PAGE};
use crate::rt::{AllocError, Page};

/// Entries of a leaf of the block map.
const LEAF: u64 = BLOCK_MAP_ENTRIES_PER_PAGE as u64;

/// Places to try for each block that is wanted, before the volume counts as empty.
const TRIES_PER_BLOCK: u64 = 64;
/// How far to look from a place without data.
const NEIGHBOURS: u64 = 16;

/// How far a sample has got.
pub struct Sampler {
    wanted: u64,
    seen: u64,
    tries: u64,
    /// Away only while a block is being read.
    scratch: Option<Page>,
}

impl Sampler {
    /// A sample of up to `wanted` blocks.
    pub fn new(wanted: u64) -> Result<Self, AllocError> {
        Ok(Self {
            wanted,
            seen: 0,
            tries: 0,
            scratch: Some(Page::new()?),
        })
    }

    /// How many blocks were found so far.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// The next place to look at.
    fn next(&mut self, blocks: u64) -> Option<u64> {
        if self.seen >= self.wanted || self.tries >= self.wanted.saturating_mul(TRIES_PER_BLOCK) {
            return None;
        }
        let place = scatter(self.tries).checked_rem(blocks);
        self.tries = self.tries.saturating_add(1);
        place
    }
}

impl<E: Env> Volume<E> {
    /// Reads the next block of a sample into `data`. `false`: there are no more. Blocks that cannot be read are passed over.
    pub async fn sample(&self, sampler: &mut Sampler, data: Page) -> (Page, bool) {
        let mut data = data;
        while let Some(place) = sampler.next(self.logical_blocks()) {
            let Ok(Some(lbn)) = self.next_stored(place).await else {
                continue;
            };
            let Some(scratch) = sampler.scratch.take() else {
                break;
            };
            let found;
            let scratch_back;
            (data, scratch_back, found) = self.peek(lbn, data, scratch).await;
            sampler.scratch = Some(scratch_back);
            if found {
                sampler.seen = sampler.seen.saturating_add(1);
                return (data, true);
            }
        }
        (data, false)
    }

    async fn peek(&self, lbn: Lbn, data: Page, scratch: Page) -> (Page, Page, bool) {
        let _lock = self.lock(lbn).await;
        let mapping = match self.block_map.find(lbn).await {
            Ok(Some(location)) => self.block_map.get(location).await,
            _ => return (data, scratch, false),
        };
        match mapping {
            Ok(mapping) if mapping.has_block() && self.depot.is_data_block(mapping.pbn) => {
                let (data, scratch, result) =
                    reader::read_mapping(&self.store, mapping, scratch, data).await;
                (data, scratch, result.is_ok())
            }
            _ => (data, scratch, false),
        }
    }

    /// The first of some blocks from `place` on, in the same block map page, that has data.
    async fn next_stored(&self, place: u64) -> Result<Option<Lbn>, Error> {
        let slot = place.checked_rem(LEAF).unwrap_or(0);
        let end = place
            .saturating_add(LEAF.saturating_sub(slot).min(NEIGHBOURS))
            .min(self.logical_blocks());
        for lbn in (place..end).map(Lbn::new) {
            let Some(location) = self.block_map.find(lbn).await? else {
                return Ok(None);
            };
            if self
                .block_map
                .get(location)
                .await
                .is_ok_and(|mapping| mapping.has_block())
            {
                return Ok(Some(lbn));
            }
        }
        Ok(None)
    }
}

/// Spreads consecutive numbers over all numbers, always in the same way (the finaliser of SplitMix64).
fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
