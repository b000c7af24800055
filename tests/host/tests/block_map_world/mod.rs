// SPDX-License-Identifier: GPL-2.0

//! A block map alone, with stand-ins for the journal's locks and for the allocator.

#![allow(dead_code, reason = "every test binary uses a part of this")]

#[path = "../part_world/mod.rs"]
pub mod part_world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use part_world::{TestEnv, World};
use rvdo_host::engine::block_map::{BlockMap, Config, Grow, Location, NewPage, PageLocks};
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::component_state::SlabDepotState;
use rvdo_host::engine::format::slab_config::SlabConfig;
use rvdo_host::engine::units::{Nonce, Pbn, SequenceNumber};
use rvdo_host::rt;
use rvdo_host::sim::executor::Clock;

pub const NONCE: Nonce = Nonce::new(0x0b10_c3a9);
pub const ROOT_ORIGIN: u64 = 10;
pub const DATA_START: u64 = 100;
pub const DATA_END: u64 = 100_000;
pub const MAXIMUM_AGE: u64 = 10;

pub type TestMap = BlockMap<TestEnv, Locks>;

pub fn sequence(number: u64) -> SequenceNumber {
    SequenceNumber::new(number).unwrap()
}

pub fn pbn(number: u64) -> Pbn {
    Pbn::new(number).unwrap()
}

/// Two slabs, the second of which the device ends in.
pub fn slabs() -> SlabDepotState {
    SlabDepotState {
        slab_config: SlabConfig::compute(1 << 16, 224).unwrap(),
        first_block: pbn(DATA_START),
        last_block: DATA_END,
        zone_count: 0,
        has_map: false,
    }
}

/// Counts the locks on journal blocks.
#[derive(Default)]
pub struct Locks(Mutex<BTreeMap<u64, u32>>);

impl Locks {
    pub fn held(&self) -> Vec<(u64, u32)> {
        let held = self.0.lock().unwrap();
        held.iter()
            .map(|(sequence, count)| (*sequence, *count))
            .collect()
    }
}

impl PageLocks for Locks {
    fn lock_for_page(&self, sequence: SequenceNumber) {
        *self.0.lock().unwrap().entry(sequence.get()).or_default() += 1;
    }

    fn unlock_for_page(&self, sequence: SequenceNumber) {
        let mut held = self.0.lock().unwrap();
        let count = held
            .get_mut(&sequence.get())
            .expect("unlocked what was locked");
        *count -= 1;
        if *count == 0 {
            held.remove(&sequence.get());
        }
    }
}

/// What a new page's entry keeps.
pub struct Kept {
    locks: rt::Arc<Locks>,
    sequence: SequenceNumber,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.locks.unlock_for_page(self.sequence);
    }
}

struct Allocations {
    next: u64,
    left: u64,
    /// The journal's tail: where the next entry goes.
    sequence: u64,
    made: Vec<(Location, Pbn)>,
}

/// Allocates one block after the other, and takes its time for it.
#[derive(Clone)]
pub struct Allocator {
    clock: Clock,
    locks: rt::Arc<Locks>,
    state: Arc<Mutex<Allocations>>,
}

impl Allocator {
    pub fn new(clock: &Clock, locks: &rt::Arc<Locks>) -> Self {
        Self {
            clock: clock.clone(),
            locks: locks.clone(),
            state: Arc::new(Mutex::new(Allocations {
                next: DATA_START,
                left: u64::MAX,
                sequence: 1,
                made: Vec::new(),
            })),
        }
    }

    pub fn limit(&self, left: u64) {
        self.state.lock().unwrap().left = left;
    }

    pub fn made(&self) -> Vec<(Location, Pbn)> {
        self.state.lock().unwrap().made.clone()
    }

    pub fn tail(&self) -> u64 {
        self.state.lock().unwrap().sequence
    }

    pub fn advance(&self, count: u64) -> SequenceNumber {
        let mut state = self.state.lock().unwrap();
        state.sequence += count;
        sequence(state.sequence)
    }
}

impl Grow for Allocator {
    type Lock<'a> = Kept;

    async fn allocate_page(&self, parent: Location) -> Result<NewPage<Kept>, Error> {
        let pbn = {
            let mut state = self.state.lock().unwrap();
            state.left = state.left.checked_sub(1).ok_or(Error::NoSpace)?;
            let pbn = pbn(state.next);
            state.next += 1;
            state.made.push((parent, pbn));
            pbn
        };
        self.clock.sleep(7).await;
        let sequence = sequence(self.tail());
        self.locks.lock_for_page(sequence);
        let lock = Kept {
            locks: self.locks.clone(),
            sequence,
        };
        Ok(NewPage {
            pbn,
            sequence,
            lock,
        })
    }
}

/// A map with its writers.
pub struct MapUnderTest {
    pub map: rt::Arc<TestMap>,
    pub locks: rt::Arc<Locks>,
    pub allocator: Allocator,
}

impl MapUnderTest {
    pub fn new(world: &World, cache_pages: usize, writers: usize) -> Self {
        let locks = rt::Arc::new(Locks::default()).unwrap();
        let allocator = Allocator::new(&world.clock, &locks);
        let config = Config {
            root_origin: pbn(ROOT_ORIGIN),
            root_count: 60,
            nonce: NONCE,
            slabs: slabs(),
            cache_pages,
            maximum_age_blocks: MAXIMUM_AGE,
        };
        let map = BlockMap::new(world.store.clone(), locks.clone(), &config).unwrap();
        let map = rt::Arc::new(map).unwrap();
        for _ in 0..writers {
            let map = map.clone();
            let bounce = rt::Page::new().unwrap();
            world
                .clock
                .spawn(async move { map.run_writer(bounce).await });
        }
        Self {
            map,
            locks,
            allocator,
        }
    }
}
