// SPDX-License-Identifier: GPL-2.0

//! What kind of block the journal entries refer to that a recovery adds to the slab journals: the blocks themselves say, as data is
//! stable before the entry that refers to it (W1).
//!
//! A block may have been given up and written again after such an entry. What is read then goes with a later entry, or with none; in
//! both cases nothing depends on the code of the earlier one.

use super::Volume;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::recovery_journal_entry::JournalEntry;
use crate::engine::format::slab_journal::{expand_point, ReferenceUpdate};
use crate::engine::format::{BlockCode, MappingState};
use crate::engine::recovery::parallel::for_each;
use crate::engine::units::{JournalPoint, Pbn};
use crate::rt::atomic::{AtomicU8, Ordering};
use crate::rt::{Arc, Page, Vec};

/// Blocks that are read at a time.
const READERS: usize = 32;

/// The codes of some blocks.
pub(super) struct FoundCodes {
    /// In order, each once.
    pbns: Vec<Pbn>,
    codes: Vec<AtomicU8>,
}

impl FoundCodes {
    /// The code of a block; 0 if it was not among those that were asked for.
    pub(super) fn of(&self, pbn: Pbn) -> BlockCode {
        self.pbns
            .binary_search(&pbn)
            .ok()
            .and_then(|place| self.codes.get(place))
            .map_or(BlockCode::NONE, |code| {
                BlockCode::from_low_bits(code.load(Ordering::Acquire))
            })
    }
}

impl<E: Env> Volume<E> {
    /// Reads the blocks whose codes the replay of `entries` needs.
    pub(super) async fn find_codes(
        this: &Arc<Self>,
        entries: &[(JournalPoint, JournalEntry)],
    ) -> Result<Arc<FoundCodes>, Error> {
        let mut pbns = Vec::new();
        if this.depot.has_algorithm_map() {
            for (point, entry) in entries {
                let mapping = entry.mapping;
                let point = expand_point(*point, ReferenceUpdate::Increment);
                if matches!(mapping.state, MappingState::Compressed(_))
                    && this.depot.replay_needs_code(point, mapping.pbn)
                {
                    pbns.push(mapping.pbn)?;
                }
            }
        }
        pbns.sort_unstable();
        let mut distinct = Vec::with_capacity(pbns.len())?;
        for pbn in pbns.iter().copied() {
            if distinct.last() != Some(&pbn) {
                distinct.push(pbn)?;
            }
        }
        let codes = Vec::from_fn(distinct.len(), |_| {
            Ok::<_, Error>(AtomicU8::new(BlockCode::UNKNOWN.get()))
        })?;
        let found = Arc::new(FoundCodes {
            pbns: distinct,
            codes,
        })?;
        if found.pbns.is_empty() {
            return Ok(found);
        }
        let (volume, shared) = (Arc::clone(this), Arc::clone(&found));
        for_each(&this.store, found.pbns.len(), READERS, move |index| {
            let (volume, found) = (Arc::clone(&volume), Arc::clone(&shared));
            async move {
                if let (Some(pbn), Some(place)) = (found.pbns.get(index), found.codes.get(index)) {
                    place.store(volume.code_of(*pbn).await?.get(), Ordering::Release);
                }
                Ok(())
            }
        })
        .await?;
        Ok(found)
    }

    /// What kind of block a compressed block is. One that cannot be read is unknown.
    pub(super) async fn code_of(&self, pbn: Pbn) -> Result<BlockCode, Error> {
        let (page, result) = self.store.read(pbn, Page::new()?, IoClass::Data).await;
        Ok(match result {
            Ok(()) => BlockCode::of_block(&page),
            Err(_) => BlockCode::UNKNOWN,
        })
    }
}
