// SPDX-License-Identifier: GPL-2.0

//! An index of bounded size in memory, which is empty after every start.
//!
//! Names hash to sets of eight records; a new record takes the place of the one in its set that was not used for longest. The sets
//! are in groups under a lock each, which is held for one lookup and takes no other lock. Nothing waits.

use super::index::Index;
use crate::engine::format::block_map_entry::ENTRY_BYTES;
use crate::engine::format::block_name::{Advice, NAME_BYTES};
use crate::engine::format::{BlockName, Mapping};
use crate::engine::statistics::IndexStats;
use crate::rt::{spin_lock, AllocError, SpinLock, Vec};

/// Records in a set.
const WAYS: usize = 8;
/// Most groups, a power of two.
const GROUPS_MAX: usize = 64;
/// Sets in a group at least: groups are equally large, and what is left over is not used.
const GROUP_SETS_MIN: usize = 8;

/// A name and where its data is. Unused if that is nowhere.
#[derive(Clone, Copy, Default)]
struct Record {
    name: [u8; NAME_BYTES],
    location: [u8; ENTRY_BYTES],
}

impl Record {
    fn location(&self) -> Mapping {
        Mapping::decode(self.location)
    }

    fn is_used(&self) -> bool {
        self.location().has_block()
    }
}

/// Records that compete for the same room, the last used one first.
#[derive(Clone, Copy, Default)]
struct Set([Record; WAYS]);

impl Set {
    /// Looks a name up, and makes its record the last one to be replaced.
    fn find(&mut self, name: &BlockName) -> Option<&mut Record> {
        let position = self
            .0
            .iter()
            .position(|record| record.is_used() && record.name == *name.as_bytes())?;
        self.0.get_mut(..=position)?.rotate_right(1);
        self.0.first_mut()
    }

    /// Puts a record first. `true` if another one is lost.
    fn insert(&mut self, name: &BlockName, location: Mapping) -> bool {
        self.0.rotate_right(1);
        let Some(first) = self.0.first_mut() else {
            return false;
        };
        let is_lost = first.is_used();
        *first = Record {
            name: *name.as_bytes(),
            location: location.encode(),
        };
        is_lost
    }
}

struct Group {
    sets: Vec<Set>,
    statistics: IndexStats,
}

/// The index.
pub struct VolatileIndex {
    groups: Vec<SpinLock<Group>>,
}

impl VolatileIndex {
    /// An index of at most `entries` records. With less than eight it remembers nothing.
    pub fn new(entries: usize) -> Result<Self, AllocError> {
        let sets = entries.checked_div(WAYS).unwrap_or(0);
        let mut groups = 1_usize;
        while groups < GROUPS_MAX && groups.saturating_mul(2 * GROUP_SETS_MIN) <= sets {
            groups = groups.saturating_mul(2);
        }
        let sets_per_group = sets.checked_div(groups).unwrap_or(0);
        Ok(Self {
            groups: Vec::from_fn(groups, |_| {
                spin_lock!(Group {
                    sets: Vec::from_elem(Set::default(), sets_per_group)?,
                    statistics: IndexStats::default(),
                })
            })?,
        })
    }

    /// Runs `f` on the set of a name, if there is one.
    fn with_set<R>(
        &self,
        name: &BlockName,
        f: impl FnOnce(&mut Set, &mut IndexStats) -> R,
    ) -> Option<R> {
        // The hash locks use the first half of the name.
        let bytes = name.as_bytes().last_chunk::<8>()?;
        let hash = u64::from_le_bytes(*bytes);
        let mask = self.groups.len().wrapping_sub(1);
        let index = usize::try_from(hash & 0xffff).ok()? & mask;
        let mut group = self.groups.get(index)?.lock();
        let Group { sets, statistics } = &mut *group;
        // Scales the upper half of the hash to the number of sets, without a division.
        let scaled = (hash >> 32).checked_mul(u64::try_from(sets.len()).ok()?)? >> 32;
        let set = sets.get_mut(usize::try_from(scaled).ok()?)?;
        Some(f(set, statistics))
    }

    fn look_up(&self, name: &BlockName, location: Option<Mapping>) -> Option<Advice> {
        self.with_set(name, |set, statistics| {
            let found = set.find(name).map(|record| Advice(record.location()));
            let counter = match (location, found) {
                (Some(_), Some(_)) => &mut statistics.posts_found,
                (Some(_), None) => &mut statistics.posts_not_found,
                (None, Some(_)) => &mut statistics.queries_found,
                (None, None) => &mut statistics.queries_not_found,
            };
            *counter = counter.wrapping_add(1);
            if let (None, Some(location)) = (found, location) {
                insert(set, statistics, name, location);
            }
            found
        })?
    }
}

impl Index for VolatileIndex {
    async fn query_or_post(&self, name: &BlockName, location: Option<Mapping>) -> Option<Advice> {
        self.look_up(name, location)
    }

    fn update(&self, name: &BlockName, location: Mapping) {
        self.with_set(name, |set, statistics| match set.find(name) {
            Some(record) => {
                record.location = location.encode();
                statistics.updates_found = statistics.updates_found.wrapping_add(1);
            }
            None => {
                statistics.updates_not_found = statistics.updates_not_found.wrapping_add(1);
                insert(set, statistics, name, location);
            }
        });
    }

    fn statistics(&self) -> IndexStats {
        let mut sum = IndexStats::default();
        for group in &self.groups {
            let part = group.lock().statistics;
            sum.entries_indexed = sum.entries_indexed.wrapping_add(part.entries_indexed);
            sum.posts_found = sum.posts_found.wrapping_add(part.posts_found);
            sum.posts_not_found = sum.posts_not_found.wrapping_add(part.posts_not_found);
            sum.queries_found = sum.queries_found.wrapping_add(part.queries_found);
            sum.queries_not_found = sum.queries_not_found.wrapping_add(part.queries_not_found);
            sum.updates_found = sum.updates_found.wrapping_add(part.updates_found);
            sum.updates_not_found = sum.updates_not_found.wrapping_add(part.updates_not_found);
            sum.entries_discarded = sum.entries_discarded.wrapping_add(part.entries_discarded);
        }
        sum
    }
}

fn insert(set: &mut Set, statistics: &mut IndexStats, name: &BlockName, location: Mapping) {
    if !location.has_block() {
        return;
    }
    if set.insert(name, location) {
        statistics.entries_discarded = statistics.entries_discarded.wrapping_add(1);
    } else {
        statistics.entries_indexed = statistics.entries_indexed.wrapping_add(1);
    }
}
