// SPDX-License-Identifier: GPL-2.0

//! A depot alone with a simulated disk, and what its counters have to be.

#![allow(dead_code, reason = "every test binary uses a part of this")]

pub mod recovery;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};

use rvdo_host::engine::depot::{
    Allocation, Depot, DepotParameters, LoadState, ReferenceUpdate, SlabJournalLocks, WRITERS,
};
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::component_state::SlabDepotState;
use rvdo_host::engine::format::layout::{Partition, PartitionId};
use rvdo_host::engine::format::slab_config::SlabConfig;
use rvdo_host::engine::format::slab_journal::{expand_point, DATA_FORM_ENTRIES};
use rvdo_host::engine::format::slab_summary::{self, SummaryEntry};
use rvdo_host::engine::statistics::Statistics;
use rvdo_host::engine::store::Store;
use rvdo_host::engine::units::{
    JournalPoint, Nonce, Pbn, SequenceNumber, SlabBlockNumber, SlabNumber,
};
use rvdo_host::rt;
use rvdo_host::sim::codec::SimCodec;
use rvdo_host::sim::disk::Disk;
use rvdo_host::sim::env::SimEnv;
use rvdo_host::sim::executor::{Executor, Stop};
use rvdo_host::sim::image::{Block, Blocks, Image};
use rvdo_host::sim::oplog::OpLog;
use rvdo_host::sim::request::SimIntake;
use rvdo_host::sim::rng::Rng;

pub type TestDepot = Depot<SimEnv, Locks>;

pub const NONCE: Nonce = Nonce::new(0x5eed_0fd3_9070);
/// Entries of a recovery journal block.
pub const ENTRIES_PER_BLOCK: u16 = 217;

/// Counts the locks on recovery journal blocks.
#[derive(Default)]
pub struct Locks(Mutex<BTreeMap<u64, u32>>);

impl Locks {
    /// The blocks that are locked.
    pub fn held(&self) -> Vec<u64> {
        self.0.lock().unwrap().keys().copied().collect()
    }
}

impl SlabJournalLocks for Locks {
    fn lock_for_slab(&self, sequence: SequenceNumber) {
        *self.0.lock().unwrap().entry(sequence.get()).or_default() += 1;
    }

    fn unlock_for_slab(&self, sequence: SequenceNumber) {
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

/// The sizes of a depot.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub slab_bits: u32,
    pub slabs: u64,
    pub journal_blocks: u64,
    pub zone_count: u8,
}

impl Shape {
    pub const SMALL: Self = Self {
        slab_bits: 13,
        slabs: 3,
        journal_blocks: 16,
        zone_count: 0,
    };

    /// A single slab of 100 data blocks or so.
    pub const TINY: Self = Self {
        slab_bits: 7,
        slabs: 1,
        journal_blocks: 8,
        zone_count: 0,
    };

    pub const FIRST_BLOCK: u64 = 70;

    pub fn config(&self) -> SlabConfig {
        SlabConfig::compute(1 << self.slab_bits, self.journal_blocks).unwrap()
    }

    pub fn last_block(&self) -> u64 {
        Self::FIRST_BLOCK + (self.slabs << self.slab_bits)
    }

    pub fn summary_origin(&self) -> u64 {
        self.last_block() + 5
    }

    /// A medium on which nothing of the depot means anything.
    pub fn blank_image(&self) -> Image {
        let mut image = Image::new(self.summary_origin() + 64);
        let noise: Arc<Block> = Arc::new(std::array::from_fn(|byte| (byte * 7 + 1) as u8));
        for block in Self::FIRST_BLOCK..image.blocks() {
            image.put(block, noise.clone());
        }
        image
    }

    pub fn slab_start(&self, slab: u64) -> u64 {
        Self::FIRST_BLOCK + (slab << self.slab_bits)
    }

    pub fn pbn(&self, slab: u64, sbn: u64) -> Pbn {
        Pbn::new(self.slab_start(slab) + sbn).unwrap()
    }

    pub fn reference_block(&self, slab: u64, block: u64) -> u64 {
        self.slab_start(slab) + self.config().data_blocks + block
    }

    pub fn journal_block(&self, slab: u64, position: u64) -> u64 {
        self.reference_block(slab, self.config().reference_count_blocks) + position
    }

    /// What the maintained copy of the summary says.
    pub fn summary(&self, image: &Image, slab: u64) -> SummaryEntry {
        self.summary_copy(image, 0, slab)
    }

    pub fn summary_copy(&self, image: &Image, copy: usize, slab: u64) -> SummaryEntry {
        let (block, place) = slab_summary::locate(copy, SlabNumber::new(slab as u32)).unwrap();
        slab_summary::entry(&image.block(self.summary_origin() + block as u64), place).unwrap()
    }

    pub fn edit_summary(
        &self,
        image: &mut Image,
        slab: u64,
        change: impl FnOnce(&mut SummaryEntry),
    ) {
        self.edit_summary_copy(image, 0, slab, change);
    }

    pub fn edit_summary_copy(
        &self,
        image: &mut Image,
        copy: usize,
        slab: u64,
        change: impl FnOnce(&mut SummaryEntry),
    ) {
        let mut entry = self.summary_copy(image, copy, slab);
        change(&mut entry);
        let (block, place) = slab_summary::locate(copy, SlabNumber::new(slab as u32)).unwrap();
        image.edit(self.summary_origin() + block as u64, |data| {
            slab_summary::set_entry(data, place, entry).unwrap();
        });
    }

    /// The newest journal block of a slab.
    pub fn tail_block(&self, image: &Image, slab: u64) -> u64 {
        let entry = self.summary(image, slab);
        let position = entry.newest_journal_position(self.journal_blocks);
        self.journal_block(slab, position.expect("the slab was used"))
    }
}

/// A running depot.
pub struct World {
    pub shape: Shape,
    pub executor: Executor,
    pub disk: Disk,
    pub store: rt::Arc<Store<SimEnv>>,
    pub locks: rt::Arc<Locks>,
    pub depot: TestDepot,
    pub ledger: Ledger,
    pub rng: Rng,
}

impl World {
    /// A new depot, with its writers running.
    pub fn new(shape: Shape, seed: u64) -> Self {
        let mut world = Self::over(shape, shape.blank_image(), seed);
        world.load(LoadState::New).expect("a new depot loads");
        world.start_writers();
        world
    }

    /// A depot on `image`, saved before, with its writers running.
    pub fn reopened(shape: Shape, image: Image, seed: u64) -> Result<Self, Error> {
        let mut world = Self::over(shape, image, seed);
        world.load(LoadState::Clean)?;
        world.start_writers();
        Ok(world)
    }

    /// A depot that has not been loaded.
    pub fn over(shape: Shape, image: Image, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let executor = Executor::new(rng.fork());
        let clock = executor.clock();
        let disk = Disk::new(image, executor.clock(), rng.fork(), OpLog::new(100));
        let env = SimEnv {
            clock: clock.clone(),
            disk: disk.clone(),
            codec: SimCodec::new(clock, rng.fork()),
            intake: SimIntake::new(rng.fork()),
        };
        let statistics = rt::Arc::new(Statistics::default()).unwrap();
        let store = Store::new(rt::Arc::new(env).unwrap(), 0, statistics).unwrap();
        let store = rt::Arc::new(store).unwrap();
        let locks = rt::Arc::new(Locks::default()).unwrap();
        let parameters = DepotParameters {
            state: SlabDepotState {
                slab_config: shape.config(),
                first_block: Pbn::new(Shape::FIRST_BLOCK).unwrap(),
                last_block: shape.last_block(),
                zone_count: shape.zone_count,
                has_map: false,
            },
            summary: Partition {
                id: PartitionId::SlabSummary,
                start: Pbn::new(shape.summary_origin()).unwrap(),
                blocks: 64,
            },
            nonce: NONCE,
            requests: 64,
            counterpart: None,
        };
        let depot = Depot::new(store.clone(), locks.clone(), &parameters).unwrap();
        Self {
            shape,
            executor,
            disk,
            store,
            locks,
            depot,
            ledger: Ledger::default(),
            rng,
        }
    }

    /// Loads the depot, and flushes, as the volume does by writing its super block.
    pub fn load(&mut self, state: LoadState) -> Result<(), Error> {
        let depot = self.depot.clone();
        let store = self.store.clone();
        let loaded = async move {
            depot.load(state).await?;
            Ok(store.flush().await?)
        };
        self.executor.run(loaded).expect("loading ends")
    }

    pub fn start_writers(&mut self) {
        for _ in 0..WRITERS {
            let depot = self.depot.clone();
            self.executor
                .clock()
                .spawn(async move { depot.run_writer().await });
        }
    }

    pub fn run<T>(&mut self, driver: impl Future<Output = T>) -> T {
        self.executor
            .run(driver)
            .unwrap_or_else(|stop| panic!("{stop}"))
    }

    /// Runs `driver`, which never ends.
    pub fn expect_stuck(&mut self, driver: impl Future<Output = Result<(), Error>>) {
        match self.executor.run(driver) {
            Err(Stop::Deadlock(_)) => {}
            Err(stop) => panic!("{stop}"),
            Ok(result) => panic!("ended with {result:?}"),
        }
    }

    /// Counts one reference, and notes it.
    pub fn apply(&mut self, pbn: Pbn, update: ReferenceUpdate) -> Result<(), Error> {
        let point = self.ledger.enter(pbn, update);
        let depot = self.depot.clone();
        self.run(depot.apply(point, pbn, update))
    }

    /// Allocates a block and gives it a reference.
    pub fn store_block(&mut self) -> Pbn {
        let home = self.depot.allocate().expect("there is room");
        self.reference(home)
    }

    /// Gives an allocated block its first reference.
    pub fn reference(&mut self, home: Allocation) -> Pbn {
        let pin = home.into_pin();
        assert!(pin.claim());
        self.apply(pin.pbn(), ReferenceUpdate::Increment).unwrap();
        pin.pbn()
    }

    pub fn increment(&mut self, pbn: Pbn) {
        let pin = self.depot.pin_candidate(pbn).expect("can be shared");
        assert!(pin.claim());
        self.apply(pbn, ReferenceUpdate::Increment).unwrap();
    }

    pub fn decrement(&mut self, pbn: Pbn) {
        self.apply(pbn, ReferenceUpdate::Decrement).unwrap();
    }

    /// Makes `count` entries in the journal of the slab of `pbn`, which has one reference, and leaves it with one.
    pub fn churn(&mut self, pbn: Pbn, count: usize) {
        let depot = self.depot.clone();
        let pin = depot.pin_candidate(pbn).expect("can be shared");
        for entry in 0..count {
            let update = if entry % 2 == 0 {
                ReferenceUpdate::Decrement
            } else {
                ReferenceUpdate::Increment
            };
            self.apply(pin.pbn(), update).unwrap();
        }
        assert_eq!(count % 2, 0);
    }

    pub fn drain(&mut self) -> Result<(), Error> {
        let depot = self.depot.clone();
        self.run(async move { depot.drain().await })
    }

    /// Compares every counter with the ledger.
    pub fn check_counters(&self) {
        let config = self.shape.config();
        for slab in 0..self.shape.slabs {
            for sbn in 0..config.data_blocks {
                let pbn = self.shape.pbn(slab, sbn);
                let found = self.depot.reference_count(pbn);
                assert_eq!(
                    found,
                    Some(self.ledger.count(pbn)),
                    "slab {slab} block {sbn}"
                );
            }
        }
    }

    /// Saves the depot and opens it again from what is on the disk.
    pub fn restart(mut self, seed: u64) -> Self {
        self.drain().expect("saved");
        assert_eq!(self.locks.held(), [0_u64; 0], "seed {seed}");
        let mut next = Self::reopened(self.shape, self.disk.contents(), seed).expect("reopened");
        next.ledger = self.ledger;
        next
    }
}

/// What the recovery journal has.
#[derive(Clone, Default)]
pub struct Ledger {
    pub entries: Vec<(JournalPoint, Pbn, ReferenceUpdate)>,
    counts: BTreeMap<u64, u8>,
    next: u64,
}

impl Ledger {
    /// Notes an entry and returns its expanded point.
    pub fn enter(&mut self, pbn: Pbn, update: ReferenceUpdate) -> JournalPoint {
        let per_block = u64::from(ENTRIES_PER_BLOCK);
        let point = JournalPoint {
            sequence: SequenceNumber::new(1 + self.next / per_block).unwrap(),
            entry: (self.next % per_block) as u16,
        };
        self.next += 1;
        let point = expand_point(point, update);
        self.entries.push((point, pbn, update));
        let count = self.counts.entry(pbn.get()).or_default();
        match update {
            ReferenceUpdate::Increment => *count += 1,
            ReferenceUpdate::Decrement => *count -= 1,
            ReferenceUpdate::BlockMapIncrement => *count = 254,
        }
        point
    }

    /// The number of references that a block has.
    pub fn count(&self, pbn: Pbn) -> u8 {
        self.counts.get(&pbn.get()).copied().unwrap_or(0)
    }

    /// Blocks that have any.
    pub fn used(&self) -> u64 {
        self.counts.values().filter(|count| **count > 0).count() as u64
    }
}

/// The block of a full slab journal block, as a count of entries.
pub const BLOCK: usize = DATA_FORM_ENTRIES as usize;

pub fn sbn(number: u32) -> SlabBlockNumber {
    SlabBlockNumber::new(number).unwrap()
}

/// The contents of a block of an image.
pub fn block_of(image: &Image, block: u64) -> Block {
    *image.block(block)
}
