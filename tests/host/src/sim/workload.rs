// SPDX-License-Identifier: GPL-2.0

//! Users of a volume: clients that each have one request (or a race of some) under way.
//!
//! A client never writes a block that another one is writing, except in a *race*, where the same
//! client sends several writes of one block at once. The model therefore always knows what a
//! block may contain. Engine-side, writes of one block still meet all the time: most are
//! acknowledged long before they are done.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use super::content::{DataMix, DataSource};
use super::executor::{Clock, Slot};
use super::image::{Block, BLOCK_SIZE, SECTOR_SIZE};
use super::model::{Model, WriteEnd, WriteToken};
use super::oplog::{Event, OpLog};
use super::request::{Outcome, SimIntake};
use super::rng::Rng;
use crate::engine::env::RequestError;

const SECTORS: u64 = (BLOCK_SIZE / SECTOR_SIZE) as u64;

/// What the users do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Operations in all.
    pub operations: u64,
    /// Clients.
    pub clients: usize,
    /// Block map pages that the used blocks lie in.
    pub pages: u64,
    /// Used blocks in each of these.
    pub blocks_per_page: u64,
    /// Percentage of reads.
    pub reads: u32,
    /// Percentage of discards.
    pub discards: u32,
    /// Percentage of flushes.
    pub flushes: u32,
    /// Percentage of writes and discards that have FUA set.
    pub fua: u32,
    /// Percentage of reads, writes and discards that are not for whole blocks.
    pub partial: u32,
    /// Percentage of writes that race.
    pub races: u32,
    /// The longest discard, in blocks.
    pub discard_blocks_max: u64,
    /// What is written.
    pub data: DataMix,
    /// Blocks that duplicates are picked from.
    pub data_pool: usize,
    /// Steps that a client may pause between two operations.
    pub pause_max: u64,
}

impl Workload {
    /// Some of everything.
    pub fn new(operations: u64) -> Self {
        Self {
            operations,
            clients: 16,
            pages: 6,
            blocks_per_page: 40,
            reads: 25,
            discards: 8,
            flushes: 3,
            fua: 5,
            partial: 10,
            races: 4,
            discard_blocks_max: 12,
            data: DataMix::ALL,
            data_pool: 32,
            pause_max: 0,
        }
    }
}

/// What clients share.
struct Shared {
    workload: Workload,
    clock: Clock,
    intake: SimIntake,
    log: OpLog,
    world: Arc<Mutex<World>>,
    lbns: Vec<u64>,
    logical_blocks: u64,
    left: Mutex<u64>,
    source: Mutex<DataSource>,
}

/// What is known about the volume from above.
#[derive(Default)]
pub struct World {
    /// What each block may contain.
    pub model: Model,
    /// Errors that requests may end with.
    pub accepted_errors: Vec<RequestError>,
    /// The volume is read-only: writes that were acknowledged, but not flushed, may be missing.
    pub read_only: bool,
    /// What went wrong.
    pub violations: Vec<String>,
    /// Requests sent.
    pub requests: u64,
    /// Requests that ended with an accepted error.
    pub errors: u64,
}

impl World {
    fn violate(&mut self, what: String) {
        self.violations.push(what);
    }
}

/// Starts the clients of `workload`. The result is filled in when all have finished.
pub fn start(
    workload: Workload,
    logical_blocks: u64,
    clock: &Clock,
    intake: &SimIntake,
    log: &OpLog,
    world: &Arc<Mutex<World>>,
    rng: &mut Rng,
) -> Vec<Slot<()>> {
    let lbns = used_blocks(&workload, logical_blocks, rng);
    let source = DataSource::new(rng.fork(), workload.data, workload.data_pool);
    let clients = workload.clients;
    let shared = Arc::new(Shared {
        left: Mutex::new(workload.operations),
        workload,
        clock: clock.clone(),
        intake: intake.clone(),
        log: log.clone(),
        world: Arc::clone(world),
        lbns,
        logical_blocks,
        source: Mutex::new(source),
    });
    let start_client = |_| {
        let done = Slot::new();
        let (filler, rng, shared) = (done.clone(), rng.fork(), Arc::clone(&shared));
        clock.spawn(async move {
            Client { shared, rng }.run().await;
            filler.fill(());
        });
        done
    };
    (0..clients).map(start_client).collect()
}

fn used_blocks(workload: &Workload, logical_blocks: u64, rng: &mut Rng) -> Vec<u64> {
    let all_pages = logical_blocks.div_ceil(812);
    let mut pages = BTreeSet::new();
    while (pages.len() as u64) < workload.pages.min(all_pages) {
        pages.insert(rng.below(all_pages));
    }
    let mut lbns = BTreeSet::new();
    for page in pages {
        let start = page * 812 + rng.below(812 - workload.blocks_per_page.min(811));
        lbns.extend((start..start + workload.blocks_per_page).filter(|lbn| *lbn < logical_blocks));
    }
    // The last page may end before the blocks that were picked in it.
    if lbns.is_empty() {
        lbns.insert(0);
    }
    lbns.into_iter().collect()
}

struct Client {
    shared: Arc<Shared>,
    rng: Rng,
}

impl Client {
    async fn run(mut self) {
        while self.take_turn() {
            let dice = self.rng.below(100) as u32;
            let workload = &self.shared.workload;
            let (reads, discards, flushes) = (workload.reads, workload.discards, workload.flushes);
            if dice < reads {
                self.read().await;
            } else if dice < reads + discards {
                self.discard().await;
            } else if dice < reads + discards + flushes {
                self.flush().await;
            } else if self.rng.percent(self.shared.workload.races) {
                self.race().await;
            } else {
                self.write().await;
            }
            if self.shared.workload.pause_max > 0 && self.rng.percent(20) {
                let pause = self.rng.between(1, self.shared.workload.pause_max);
                self.shared.clock.sleep(pause).await;
            }
        }
    }

    fn take_turn(&self) -> bool {
        let mut left = self.shared.left.lock().expect("no panic");
        let go = *left > 0 && self.world().violations.is_empty();
        *left = left.saturating_sub(1);
        go
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.shared.world.lock().expect("no panic")
    }

    fn log(&self, event: Event, sector: u64) -> u64 {
        let number = {
            let mut world = self.world();
            world.requests += 1;
            world.requests
        };
        self.shared
            .log
            .add(self.shared.clock.now(), number, event, sector);
        number
    }

    fn log_answer(&self, number: u64, outcome: &Outcome) {
        let words = match outcome {
            Ok(_) => "ok",
            Err(RequestError::NoSpace) => "NO SPACE",
            Err(_) => "ERROR",
        };
        self.shared
            .log
            .add(self.shared.clock.now(), number, Event::Answer(words), 0);
    }

    /// A part of a block, in sectors: all of it, mostly.
    fn part(&mut self) -> Range<u64> {
        if !self.rng.percent(self.shared.workload.partial) {
            return 0..SECTORS;
        }
        let start = self.rng.below(SECTORS);
        start..self.rng.between(start + 1, SECTORS)
    }

    fn fua(&mut self) -> bool {
        self.rng.percent(self.shared.workload.fua)
    }

    /// A block that nobody is writing, if one is found.
    fn free_block(&mut self) -> Option<u64> {
        for _ in 0..8 {
            let lbn = *self.rng.pick(&self.shared.lbns);
            if !self.world().model.is_written(lbn) {
                return Some(lbn);
            }
        }
        None
    }

    /// What an outcome means for the model. Anything that is not accepted is a violation.
    fn judge(&self, what: &str, outcome: &Outcome, fua: bool) -> WriteEnd {
        match outcome {
            // The promise is about the part that was written. What else the block holds is as durable
            // unless it was lost before, which happens when the volume becomes read-only.
            Ok(_) if fua && !self.world().read_only => WriteEnd::DoneFua,
            Ok(_) => WriteEnd::Done,
            Err(error) => {
                let mut world = self.world();
                world.errors += 1;
                if !world.accepted_errors.contains(error) {
                    world.violate(format!("{what} failed: {error:?}"));
                }
                if *error == RequestError::NoSpace {
                    WriteEnd::Refused
                } else {
                    WriteEnd::Unknown
                }
            }
        }
    }

    async fn read(&mut self) {
        let lbn = *self.rng.pick(&self.shared.lbns);
        let part = self.part();
        self.read_part(lbn, part).await;
    }

    async fn read_part(&mut self, lbn: u64, part: Range<u64>) {
        let token = self.world().model.begin_read(lbn);
        let bytes = (part.end - part.start) as usize * SECTOR_SIZE;
        let sector = lbn * SECTORS + part.start;
        let number = self.log(Event::Request("read", bytes), sector);
        let outcome = self.shared.intake.read(sector, bytes).await;
        self.log_answer(number, &outcome);
        match &outcome {
            Ok(data) => {
                let start = part.start as usize * SECTOR_SIZE;
                let mut world = self.world();
                let range = start..start + bytes;
                let checked = if world.read_only {
                    world.model.end_read_after_loss(token, range, data)
                } else {
                    world.model.end_read(token, range, data)
                };
                if let Err(violation) = checked {
                    world.violate(format!("request #{number}: {violation}"));
                }
            }
            Err(error) => {
                self.world().model.abandon_read(token);
                if *error == RequestError::ReadOnly {
                    let what = format!("request #{number}: read-only mode refuses a read");
                    self.world().violate(what);
                }
                self.judge(&format!("read of lbn {lbn}"), &outcome, false);
            }
        }
    }

    /// The contents of a block for a change of a part of it. Finds out if they are not known.
    async fn settled(&mut self, lbn: u64) -> Option<Arc<Block>> {
        if self.world().model.is_written(lbn) {
            return None;
        }
        if self.world().model.settled(lbn).is_none() {
            self.read_part(lbn, 0..SECTORS).await;
        }
        self.world().model.settled(lbn)
    }

    async fn write(&mut self) {
        let Some(lbn) = self.free_block() else {
            return self.read().await;
        };
        let part = self.part();
        let data = if part == (0..SECTORS) {
            self.shared.source.lock().expect("no panic").block()
        } else {
            let Some(old) = self.settled(lbn).await else {
                return;
            };
            // No other client may have come in between.
            if self.world().model.settled(lbn).is_none_or(|now| now != old) {
                return;
            }
            let mut data = *old;
            let range = part.start as usize * SECTOR_SIZE..part.end as usize * SECTOR_SIZE;
            let bytes = self
                .shared
                .source
                .lock()
                .expect("no panic")
                .bytes(range.len());
            data[range].copy_from_slice(&bytes);
            Arc::new(data)
        };
        let fua = self.fua();
        let (token, slot, number) = self.send_write(lbn, data, part, fua, false);
        self.finish_write(lbn, token, slot, number, fua).await;
    }

    async fn race(&mut self) {
        let Some(lbn) = self.free_block() else {
            return;
        };
        let mut writes = Vec::new();
        for _ in 0..self.rng.between(2, 4) {
            let data = self.shared.source.lock().expect("no panic").block();
            let fua = self.fua();
            let (token, slot, number) = self.send_write(lbn, data, 0..SECTORS, fua, true);
            writes.push((token, slot, number, fua));
        }
        for (token, slot, number, fua) in writes {
            self.finish_write(lbn, token, slot, number, fua).await;
        }
        self.read_part(lbn, 0..SECTORS).await;
    }

    fn send_write(
        &mut self,
        lbn: u64,
        data: Arc<Block>,
        part: Range<u64>,
        fua: bool,
        racing: bool,
    ) -> (WriteToken, Slot<Outcome>, u64) {
        let range = part.start as usize * SECTOR_SIZE..part.end as usize * SECTOR_SIZE;
        let bytes = data[range].to_vec();
        let token = self.world().model.begin_write(lbn, data, racing);
        let what = if fua { "write FUA" } else { "write" };
        let sector = lbn * SECTORS + part.start;
        let number = self.log(Event::Request(what, bytes.len()), sector);
        (token, self.shared.intake.write(sector, bytes, fua), number)
    }

    async fn finish_write(
        &mut self,
        lbn: u64,
        token: WriteToken,
        slot: Slot<Outcome>,
        number: u64,
        fua: bool,
    ) {
        let outcome = slot.await;
        self.log_answer(number, &outcome);
        let end = self.judge(&format!("write of lbn {lbn}"), &outcome, fua);
        self.world().model.end_write(token, end);
    }

    async fn discard(&mut self) {
        let Some(first) = self.free_block() else {
            return;
        };
        let longest = self
            .shared
            .workload
            .discard_blocks_max
            .min(self.shared.logical_blocks - first);
        let count = self.rng.between(1, longest.max(1));
        let mut sectors = first * SECTORS..(first + count) * SECTORS;
        if self.rng.percent(self.shared.workload.partial) {
            sectors.start += self.rng.below(SECTORS);
            sectors.end -= self.rng.below(SECTORS);
            if sectors.is_empty() {
                sectors.end = sectors.start + 1;
            }
        }
        let blocks = sectors.start / SECTORS..sectors.end.div_ceil(SECTORS);
        let mut changes = Vec::new();
        for lbn in blocks.clone() {
            let from = sectors.start.max(lbn * SECTORS) - lbn * SECTORS;
            let to = sectors.end.min((lbn + 1) * SECTORS) - lbn * SECTORS;
            let Some(old) = self.settled(lbn).await else {
                return;
            };
            let mut data = *old;
            data[from as usize * SECTOR_SIZE..to as usize * SECTOR_SIZE].fill(0);
            changes.push((lbn, old, Arc::new(data)));
        }
        let fua = self.fua();
        let tokens: Vec<WriteToken> = {
            let mut world = self.world();
            // Finding out about one block takes time, in which another may have changed.
            let unchanged = |(lbn, old, _): &(u64, Arc<Block>, Arc<Block>)| {
                world.model.settled(*lbn).is_some_and(|now| now == *old)
            };
            if !changes.iter().all(unchanged) {
                return;
            }
            let begin = |(lbn, _, new)| world.model.begin_write(lbn, new, false);
            changes.into_iter().map(begin).collect()
        };
        let bytes = (sectors.end - sectors.start) as usize * SECTOR_SIZE;
        let what = if fua { "discard FUA" } else { "discard" };
        let number = self.log(Event::Request(what, bytes), sectors.start);
        let outcome = self.shared.intake.discard(sectors.start, bytes, fua).await;
        self.log_answer(number, &outcome);
        let end = match self.judge(&format!("discard of lbns {blocks:?}"), &outcome, fua) {
            // Some blocks may have been discarded before the error.
            WriteEnd::Refused => WriteEnd::Unknown,
            end => end,
        };
        let mut world = self.world();
        for token in tokens {
            world.model.end_write(token, end);
        }
    }

    async fn flush(&mut self) {
        let sent = self.world().model.begin_flush();
        let number = self.log(Event::Request("flush", 0), 0);
        let outcome = self.shared.intake.flush().await;
        self.log_answer(number, &outcome);
        if outcome.is_ok() {
            self.world().model.end_flush(sent);
        } else {
            self.judge("flush", &outcome, false);
        }
    }
}
