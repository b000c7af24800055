// SPDX-License-Identifier: GPL-2.0

//! A simulated world for one part of the engine alone: a disk whose operations are recorded, a codec and an executor.

#![allow(dead_code, reason = "every test binary uses a part of this")]

use std::future::Future;
use std::sync::{Arc, Mutex};

use rvdo_host::engine::env::{Device, Env, IoClass, IoError, WriteFlags};
use rvdo_host::engine::statistics::Statistics;
use rvdo_host::engine::store::Store;
use rvdo_host::engine::units::DeviceBlock;
use rvdo_host::rt;
use rvdo_host::sim::codec::SimCodec;
use rvdo_host::sim::disk::Disk;
use rvdo_host::sim::executor::{Clock, Executor, Slot, Stop};
use rvdo_host::sim::image::{Block, Image};
use rvdo_host::sim::oplog::OpLog;
use rvdo_host::sim::request::{SimIntake, SimRequest};
use rvdo_host::sim::rng::Rng;

/// Something that happened, in order.
#[derive(Clone)]
pub enum Op {
    /// A write was issued, with what it writes.
    Write(u64, Box<Block>),
    /// A write completed.
    Written(u64),
    /// A read was issued.
    Read(u64),
    /// A flush was issued.
    Flush,
    /// A flush completed.
    Flushed,
    /// Something that a test notes.
    Note(u64),
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Op::Write(block, _) => write!(f, "write {block}"),
            Op::Written(block) => write!(f, "written {block}"),
            Op::Read(block) => write!(f, "read {block}"),
            Op::Flush => write!(f, "flush"),
            Op::Flushed => write!(f, "flushed"),
            Op::Note(note) => write!(f, "note {note}"),
        }
    }
}

/// A disk that keeps account of what it is asked for.
#[derive(Clone)]
pub struct Recorder {
    pub disk: Disk,
    ops: Arc<Mutex<Vec<Op>>>,
}

impl Recorder {
    pub fn note(&self, op: Op) {
        self.ops.lock().unwrap().push(op);
    }

    pub fn ops(&self) -> Vec<Op> {
        self.ops.lock().unwrap().clone()
    }

    pub fn clear(&self) {
        self.ops.lock().unwrap().clear();
    }
}

impl Device for Recorder {
    fn blocks(&self) -> u64 {
        self.disk.blocks()
    }

    async fn read(
        &self,
        block: DeviceBlock,
        page: rt::Page,
        class: IoClass,
    ) -> (rt::Page, Result<(), IoError>) {
        self.note(Op::Read(block.get()));
        self.disk.read(block, page, class).await
    }

    async fn write(
        &self,
        block: DeviceBlock,
        page: rt::Page,
        class: IoClass,
        flags: WriteFlags,
    ) -> (rt::Page, Result<(), IoError>) {
        self.note(Op::Write(block.get(), Box::new(*page)));
        let (page, result) = self.disk.write(block, page, class, flags).await;
        self.note(Op::Written(block.get()));
        (page, result)
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.note(Op::Flush);
        let result = self.disk.flush().await;
        self.note(Op::Flushed);
        result
    }
}

/// The world as the engine sees it.
pub struct TestEnv {
    pub clock: Clock,
    pub device: Recorder,
    pub codec: SimCodec,
    intake: SimIntake,
}

impl Env for TestEnv {
    type Device = Recorder;
    type Codec = SimCodec;
    type Request = SimRequest;
    type Intake = SimIntake;

    fn device(&self) -> &Recorder {
        &self.device
    }

    fn codec(&self) -> &SimCodec {
        &self.codec
    }

    fn intake(&self) -> &SimIntake {
        &self.intake
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Result<(), rt::AllocError> {
        self.clock.spawn(task);
        Ok(())
    }
}

/// One world, decided by a seed.
pub struct World {
    pub executor: Executor,
    pub clock: Clock,
    pub rng: Rng,
    pub device: Recorder,
    pub codec: SimCodec,
    pub store: rt::Arc<Store<TestEnv>>,
    pub log: OpLog,
}

impl World {
    /// A world on a disk that holds `image`.
    pub fn new(seed: u64, image: Image) -> Self {
        let mut rng = Rng::new(seed);
        let mut executor = Executor::new(rng.fork());
        executor.steps_max = 20_000_000;
        let clock = executor.clock();
        let log = OpLog::new(200);
        let device = Recorder {
            disk: Disk::new(image, clock.clone(), rng.fork(), log.clone()),
            ops: Arc::default(),
        };
        let codec = SimCodec::new(clock.clone(), rng.fork());
        let env = TestEnv {
            clock: clock.clone(),
            device: device.clone(),
            codec: codec.clone(),
            intake: SimIntake::new(rng.fork()),
        };
        let statistics = rt::Arc::new(Statistics::default()).unwrap();
        let store = Store::new(rt::Arc::new(env).unwrap(), 0, statistics).unwrap();
        Self {
            executor,
            clock,
            rng,
            device,
            codec,
            store: rt::Arc::new(store).unwrap(),
            log,
        }
    }

    /// Runs everything until `driver` is done. Nothing may allocate meanwhile, as nothing may on the I/O path.
    pub fn run<T>(&mut self, driver: impl Future<Output = T>) -> T {
        let executor = &mut self.executor;
        match rt::host::alloc::forbidden(|| executor.run(driver)) {
            Ok(value) => value,
            Err(stop) => panic!("{stop}\n{}", self.log.tail(40)),
        }
    }

    /// Like [`World::run`], for a driver that need not end.
    pub fn try_run<T>(&mut self, driver: impl Future<Output = T>) -> Result<T, Stop> {
        let executor = &mut self.executor;
        rt::host::alloc::forbidden(|| executor.run(driver))
    }

    /// The disk never saw two operations on one block at a time.
    pub fn assert_no_hazards(&self) {
        let counts = self.device.disk.counts();
        assert_eq!(
            (counts.write_hazards, counts.read_hazards),
            (0, 0),
            "{:?}\n{}",
            self.device.disk.last_hazard(),
            self.log.tail(40)
        );
    }
}

/// Starts tasks and waits for all of them.
pub struct Crowd<T> {
    clock: Clock,
    slots: Vec<Slot<T>>,
}

impl<T: Send + 'static> Crowd<T> {
    pub fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            slots: Vec::new(),
        }
    }

    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        let slot = Slot::new();
        self.slots.push(slot.clone());
        self.clock.spawn(async move { slot.fill(task.await) });
    }

    pub async fn join(self) -> Vec<T> {
        let mut values = Vec::new();
        for slot in self.slots {
            values.push(slot.await);
        }
        values
    }
}

/// Runs `test` for seeds from 0 on and says which one fails.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    for seed in 0..count {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed)));
        if let Err(panic) = result {
            eprintln!("failing seed: {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
