// SPDX-License-Identifier: GPL-2.0

//! A disk with a volatile write cache.
//!
//! A write takes effect when it completes. It is then *in the cache*: readers see it, a power
//! failure may lose it. A flush makes durable what had completed when the flush was issued. A
//! write with FUA is durable when it completes; one with PREFLUSH waits for a flush of its own
//! before its data moves at all.
//!
//! A power failure can be tried at any moment without disturbing the run: [`Disk::crash`] decides
//! for every 512-byte sector whether it holds the durable contents or those of one of the writes
//! that were in the cache or under way.
//!
//! Two writes of one block under way at the same time, or a read of a block that is being
//! written, have no defined outcome on a real disk. Both are counted as hazards.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::executor::{Clock, Slot};
use super::image::{Block, Blocks, Image, BLOCK_SIZE, SECTOR_SIZE};
use super::oplog::{Event, OpLog};
use super::rng::Rng;
use crate::engine::env::{Device, IoClass, IoError, WriteFlags};
use crate::engine::units::DeviceBlock;
use crate::rt::Page;

/// What kind of operation a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes, also those that belong to a write.
    Flush,
}

/// An error to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// What it hits.
    pub kind: Kind,
    /// Which blocks; without meaning for flushes.
    pub blocks: Range<u64>,
    /// How many operations it lets pass first.
    pub skip: u64,
    /// How many operations it then hits.
    pub count: u64,
    /// What they report.
    pub error: IoError,
}

/// How long operations take, in steps of the executor.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// The least.
    pub min: u64,
    /// The most, normally.
    pub max: u64,
    /// One in a thousand operations this often is slow.
    pub slow_permille: u32,
    /// The most for a slow one.
    pub slow_max: u64,
}

impl Latency {
    /// As quick as the simulation can be.
    pub const FAST: Self = Self {
        min: 1,
        max: 4,
        slow_permille: 0,
        slow_max: 4,
    };

    /// A time picked by `rng`.
    pub fn pick(&self, rng: &mut Rng) -> u64 {
        if rng.permille(self.slow_permille) {
            rng.between(self.max, self.slow_max.max(self.max))
        } else {
            rng.between(self.min, self.max)
        }
    }
}

/// Counts of what a disk did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads issued.
    pub reads: u64,
    /// Writes issued.
    pub writes: u64,
    /// Flushes issued, without those that belong to writes.
    pub flushes: u64,
    /// Writes of a block that another write was changing.
    pub write_hazards: u64,
    /// Reads of a block that a write was changing, or the other way around.
    pub read_hazards: u64,
}

/// A write that a power failure may lose.
struct Pending {
    operation: u64,
    data: Arc<Block>,
    /// When it completed. `None`: its data is on its way.
    completed: Option<u64>,
    /// Whether it was reported as failed; some of its data may have arrived all the same.
    failed: bool,
}

struct State {
    rng: Rng,
    durable: Image,
    /// By block, in order of completion; what is under way comes last.
    pending: BTreeMap<u64, Vec<Pending>>,
    reading: BTreeMap<u64, u64>,
    writing: BTreeMap<u64, u64>,
    faults: Vec<Fault>,
    latency: Latency,
    stamp: u64,
    counts: Counts,
    last_hazard: Option<String>,
}

struct Shared {
    state: Mutex<State>,
    clock: Clock,
    log: OpLog,
}

/// The disk; clones are the same one.
#[derive(Clone)]
pub struct Disk {
    shared: Arc<Shared>,
}

impl Disk {
    /// A disk that holds `image`, all of it durable.
    pub fn new(image: Image, clock: Clock, rng: Rng, log: OpLog) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    rng,
                    durable: image,
                    pending: BTreeMap::new(),
                    reading: BTreeMap::new(),
                    writing: BTreeMap::new(),
                    faults: Vec::new(),
                    latency: Latency::FAST,
                    stamp: 0,
                    counts: Counts::default(),
                    last_hazard: None,
                }),
                clock,
                log,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no panic")
    }

    /// Sets how long operations take from now on.
    pub fn set_latency(&self, latency: Latency) {
        self.state().latency = latency;
    }

    /// Adds an error to come.
    pub fn inject(&self, fault: Fault) {
        self.state().faults.push(fault);
    }

    /// Withdraws all errors.
    pub fn heal(&self) {
        self.state().faults.clear();
    }

    /// A number that grows with every issue and every completion: the moments of a run.
    pub fn moment(&self) -> u64 {
        self.state().stamp
    }

    /// What the disk did so far.
    pub fn counts(&self) -> Counts {
        self.state().counts
    }

    /// The latest hazard in words.
    pub fn last_hazard(&self) -> Option<String> {
        self.state().last_hazard.clone()
    }

    /// What is on the medium if power fails now.
    pub fn crash(&self, rng: &mut Rng) -> Image {
        // How much of the cache survives differs from crash to crash; the extremes matter most.
        let survive = *rng.pick(&[0, 1, 50, 50, 95, 100]);
        self.state().crash(rng, survive)
    }

    /// What readers see now: everything that has completed.
    pub fn contents(&self) -> Image {
        let state = self.state();
        let mut image = state.durable.clone();
        for (block, writes) in &state.pending {
            if let Some(write) = writes.iter().rev().find(|write| write.completed.is_some()) {
                image.put(*block, Arc::clone(&write.data));
            }
        }
        image
    }

    /// Whether no operation is under way.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.reading.is_empty() && state.writing.is_empty()
    }

    fn log(&self, operation: u64, event: Event, block: u64) {
        let now = self.shared.clock.now();
        self.shared.log.add(now, operation, event, block);
    }

    fn start_read(&self, block: u64) -> Slot<Result<Arc<Block>, IoError>> {
        let (operation, delay, fault) = {
            let mut state = self.state();
            state.counts.reads += 1;
            if state.writing.contains_key(&block) {
                state.hazard(block, "read while it is written");
            }
            *state.reading.entry(block).or_default() += 1;
            let latency = state.latency;
            let delay = latency.pick(&mut state.rng);
            (state.stamp(), delay, state.fault(Kind::Read, block))
        };
        self.log(operation, Event::Read, block);
        let (slot, disk) = (Slot::new(), self.clone());
        let filler = slot.clone();
        self.shared.clock.after(delay, move || {
            let result = {
                let mut state = disk.state();
                state.stamp();
                release(&mut state.reading, block);
                match fault {
                    Some(error) => Err(error),
                    None => Ok(state.visible(block)),
                }
            };
            disk.log(operation, done(&result), block);
            filler.fill(result);
        });
        slot
    }

    fn start_write(
        &self,
        block: u64,
        data: Arc<Block>,
        flags: WriteFlags,
    ) -> Slot<Result<(), IoError>> {
        let (operation, preflush, delay, fault) = {
            let mut state = self.state();
            state.counts.writes += 1;
            if state.writing.contains_key(&block) {
                state.counts.write_hazards += 1;
                state.last_hazard = Some(format!("block {block} is written twice at a time"));
            }
            if state.reading.contains_key(&block) {
                state.hazard(block, "written while it is read");
            }
            *state.writing.entry(block).or_default() += 1;
            let latency = state.latency;
            let delay = latency.pick(&mut state.rng);
            let preflush = flags.preflush.then(|| {
                let delay = latency.pick(&mut state.rng);
                (delay, state.fault(Kind::Flush, block))
            });
            let fault = state.fault(Kind::Write, block);
            (state.stamp(), preflush, delay, fault)
        };
        self.log(operation, Event::Write(flags.preflush, flags.fua), block);
        let (slot, disk) = (Slot::new(), self.clone());
        let filler = slot.clone();
        let Some((preflush, flush_fault)) = preflush else {
            self.move_data(operation, block, data, flags, delay, fault, filler);
            return slot;
        };
        self.shared
            .clock
            .after(preflush, move || match flush_fault {
                Some(error) => {
                    release(&mut disk.state().writing, block);
                    disk.log(operation, Event::Failed, block);
                    filler.fill(Err(error));
                }
                None => {
                    disk.state().flushed(operation);
                    disk.log(operation, Event::Preflushed, block);
                    disk.move_data(operation, block, data, flags, delay, fault, filler);
                }
            });
        slot
    }

    /// The second half of a write, after the preflush if there is one.
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller's locals, split in time"
    )]
    fn move_data(
        &self,
        operation: u64,
        block: u64,
        data: Arc<Block>,
        flags: WriteFlags,
        delay: u64,
        fault: Option<IoError>,
        filler: Slot<Result<(), IoError>>,
    ) {
        let disk = self.clone();
        {
            let mut state = self.state();
            state.stamp();
            state.pending.entry(block).or_default().push(Pending {
                operation,
                data,
                completed: None,
                failed: false,
            });
        }
        self.shared.clock.after(delay, move || {
            let result = {
                let mut state = disk.state();
                let stamp = state.stamp();
                release(&mut state.writing, block);
                match fault {
                    Some(error) => {
                        state.failed(block, operation);
                        Err(error)
                    }
                    None => {
                        state.completed(block, operation, stamp, flags.fua);
                        Ok(())
                    }
                }
            };
            disk.log(operation, done(&result), block);
            filler.fill(result);
        });
    }

    fn start_flush(&self) -> Slot<Result<(), IoError>> {
        let (operation, delay, fault) = {
            let mut state = self.state();
            state.counts.flushes += 1;
            let latency = state.latency;
            let delay = latency.pick(&mut state.rng);
            (state.stamp(), delay, state.fault(Kind::Flush, 0))
        };
        self.log(operation, Event::Flush, 0);
        let (slot, disk) = (Slot::new(), self.clone());
        let filler = slot.clone();
        self.shared.clock.after(delay, move || {
            let result = {
                let mut state = disk.state();
                state.stamp();
                match fault {
                    Some(error) => Err(error),
                    None => {
                        state.flushed(operation);
                        Ok(())
                    }
                }
            };
            disk.log(operation, done(&result), 0);
            filler.fill(result);
        });
        slot
    }
}

impl State {
    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn hazard(&mut self, block: u64, what: &str) {
        self.counts.read_hazards += 1;
        self.last_hazard = Some(format!("block {block} is {what}"));
    }

    fn fault(&mut self, kind: Kind, block: u64) -> Option<IoError> {
        for fault in &mut self.faults {
            let hit = fault.kind == kind && (kind == Kind::Flush || fault.blocks.contains(&block));
            if !hit || fault.count == 0 {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.count -= 1;
            return Some(fault.error);
        }
        None
    }

    fn visible(&self, block: u64) -> Arc<Block> {
        self.pending
            .get(&block)
            .and_then(|writes| writes.iter().rev().find(|write| write.completed.is_some()))
            .map_or_else(
                || self.durable.block(block),
                |write| Arc::clone(&write.data),
            )
    }

    /// A write completed at `stamp`: into the cache, or with FUA onto the medium.
    fn completed(&mut self, block: u64, operation: u64, stamp: u64, fua: bool) {
        let Some(writes) = self.pending.get_mut(&block) else {
            return;
        };
        let Some(index) = writes.iter().position(|write| write.operation == operation) else {
            return;
        };
        let mut write = writes.remove(index);
        writes.retain(|write| !write.failed);
        write.completed = Some(stamp);
        if fua {
            self.durable.put(block, write.data);
            writes.retain(|write| write.completed.is_none());
        } else {
            // What has completed comes first, in that order.
            let place = writes
                .iter()
                .take_while(|write| write.completed.is_some())
                .count();
            writes.insert(place, write);
        }
        if writes.is_empty() {
            self.pending.remove(&block);
        }
    }

    fn failed(&mut self, block: u64, operation: u64) {
        let writes = self.pending.get_mut(&block).into_iter().flatten();
        writes
            .filter(|write| write.operation == operation)
            .for_each(|write| write.failed = true);
    }

    /// A flush that was issued at `stamp` is done.
    fn flushed(&mut self, stamp: u64) {
        let durable = &mut self.durable;
        self.pending.retain(|block, writes| {
            let flushed = |write: &Pending| write.completed.is_some_and(|at| at < stamp);
            let count = writes.iter().take_while(|write| flushed(write)).count();
            if let Some(write) = writes.drain(..count).next_back() {
                durable.put(*block, write.data);
            }
            !writes.is_empty()
        });
    }

    fn crash(&self, rng: &mut Rng, survive: u32) -> Image {
        let mut image = self.durable.clone();
        for (block, writes) in &self.pending {
            let mut data: Block = *self.durable.block(*block);
            let whole = rng.percent(60).then(|| pick_write(writes, rng, survive));
            for (sector, bytes) in data.chunks_exact_mut(SECTOR_SIZE).enumerate() {
                let write = whole.unwrap_or_else(|| pick_write(writes, rng, survive));
                if let Some(write) = write {
                    let from = sector * SECTOR_SIZE;
                    bytes.copy_from_slice(&write.data[from..from + SECTOR_SIZE]);
                }
            }
            image.put(*block, Arc::new(data));
        }
        image
    }
}

/// Which of `writes` a sector holds after a crash; `None`: none of them.
fn pick_write<'a>(writes: &'a [Pending], rng: &mut Rng, survive: u32) -> Option<&'a Pending> {
    rng.percent(survive).then(|| rng.pick(writes))
}

fn release(users: &mut BTreeMap<u64, u64>, block: u64) {
    if let Some(count) = users.get_mut(&block) {
        *count -= 1;
        if *count == 0 {
            users.remove(&block);
        }
    }
}

fn done<T>(result: &Result<T, IoError>) -> Event {
    if result.is_ok() {
        Event::Done
    } else {
        Event::Failed
    }
}

impl Device for Disk {
    fn blocks(&self) -> u64 {
        self.state().durable.blocks()
    }

    fn read(
        &self,
        block: DeviceBlock,
        mut page: Page,
        _class: IoClass,
    ) -> impl Future<Output = (Page, Result<(), IoError>)> + Send {
        let block = block.get();
        assert!(block < self.blocks(), "read of block {block}, past the end");
        let slot = self.start_read(block);
        async move {
            match slot.await {
                Ok(data) => {
                    page.copy_from_slice(&data[..]);
                    (page, Ok(()))
                }
                Err(error) => {
                    // Nobody may rely on what a failed read leaves behind.
                    page.fill(0xbd);
                    (page, Err(error))
                }
            }
        }
    }

    fn write(
        &self,
        block: DeviceBlock,
        page: Page,
        _class: IoClass,
        flags: WriteFlags,
    ) -> impl Future<Output = (Page, Result<(), IoError>)> + Send {
        let block = block.get();
        assert!(
            block < self.blocks(),
            "write of block {block}, past the end"
        );
        let mut data = [0; BLOCK_SIZE];
        data.copy_from_slice(&page[..]);
        let slot = self.start_write(block, Arc::new(data), flags);
        async move { (page, slot.await) }
    }

    fn flush(&self) -> impl Future<Output = Result<(), IoError>> + Send {
        self.start_flush()
    }
}
