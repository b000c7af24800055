// SPDX-License-Identifier: GPL-2.0

//! A simulated volume from formatting to the last audit, and the loop over seeds.
//!
//! ```ignore
//! Sim::seeds(0..200).run(|sim| {
//!     sim.format(Shape::SMALL);
//!     sim.start()?;
//!     sim.work_with_crashes(Workload::new(2_000), 20)?;
//!     sim.stop()?;
//!     sim.audit_saved()
//! });
//! ```
//! When a run fails its seed, the last operations and the broken promise are printed.
//! `RVDO_SIM_SEEDS=n` runs `n` seeds instead, `RVDO_SIM_SEED=n` only that one; `RVDO_SIM_LOG=n`
//! prints the last `n` operations.

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::audit::decode::crc32;
use super::audit::volume::{state, Volume as OnDisk};
use super::audit::{audit, Audit, Findings, Strictness};
use super::codec::SimCodec;
use super::disk::{Counts, Disk};
use super::env::SimEnv;
use super::executor::{Executor, Slot};
use super::image::{Block, Image, BLOCK_SIZE};
use super::mkfs::Shape;
use super::model::WriteEnd;
use super::oplog::{Event, OpLog};
use super::request::SimIntake;
use super::rng::Rng;
use super::seeds::{Seeds, Totals};
use super::workload::{self, Workload, World};
use crate::engine::error::Error;
use crate::engine::format::formatter::FormatParams;
use crate::engine::format::StreamFormat;
use crate::engine::volume::{OpenParameters, SuspendKind, Volume};
use crate::rt;

/// Steps a single phase of a run may take before it counts as endless.
const STEPS_MAX: u64 = 50_000_000;
/// What ends a phase of a run when the power is cut.
const CUT: &str = "the power is cut";
/// Events printed when a run fails.
const LOG_TAIL: usize = 120;

/// One simulated volume and its world.
pub struct Sim {
    /// What the run is determined by.
    pub seed: u64,
    /// For the decisions of the test itself.
    pub rng: Rng,
    /// How volumes are opened.
    pub parameters: OpenParameters,
    /// Whether audits insist on what only our engine promises.
    pub strictness: Strictness,
    executor: Executor,
    disk: Disk,
    codec: SimCodec,
    intake: SimIntake,
    log: OpLog,
    world: Arc<Mutex<World>>,
    volume: Option<rt::Arc<Volume<SimEnv>>>,
    crash_interval: Option<u64>,
    /// The moment when the power is cut.
    cut_after: Option<u64>,
    totals: Totals,
}

impl Sim {
    /// Many runs, one per seed.
    pub fn seeds(seeds: Range<u64>) -> Seeds {
        Seeds::new(seeds)
    }

    /// A world with an empty disk.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let log = OpLog::new(4096);
        let mut executor = Executor::new(rng.fork());
        executor.steps_max = STEPS_MAX;
        let clock = executor.clock();
        Self {
            seed,
            parameters: OpenParameters {
                physical_blocks: None,
                logical_blocks: 0,
                cache_pages: 128,
                maximum_age_blocks: 8,
                requests: 256,
                index_entries: 1024,
                compression: true,
                deduplication: true,
            },
            strictness: Strictness::OURS,
            disk: Disk::new(Image::new(0), clock.clone(), rng.fork(), log.clone()),
            codec: SimCodec::new(clock, rng.fork()),
            intake: SimIntake::new(rng.fork()),
            world: Arc::default(),
            volume: None,
            crash_interval: None,
            cut_after: None,
            totals: Totals::default(),
            executor,
            log,
            rng,
        }
    }

    /// The disk.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// The compressor.
    pub fn codec(&self) -> &SimCodec {
        &self.codec
    }

    /// What is known from above.
    pub fn world(&self) -> std::sync::MutexGuard<'_, World> {
        self.world.lock().expect("no panic")
    }

    /// The running volume.
    pub fn volume(&self) -> &rt::Arc<Volume<SimEnv>> {
        self.volume.as_ref().expect("the volume has been started")
    }

    /// The last operations as text.
    pub fn log_tail(&self) -> String {
        let wanted = std::env::var("RVDO_SIM_LOG")
            .ok()
            .and_then(|text| text.parse().ok());
        self.log.tail(wanted.unwrap_or(LOG_TAIL))
    }

    /// Puts a new volume onto a new disk.
    pub fn format(&mut self, shape: Shape) {
        self.insert(shape.format());
        self.parameters.logical_blocks = shape.logical_blocks;
    }

    /// Puts in a disk that holds `image`.
    pub fn insert(&mut self, image: Image) {
        self.name_blocks(&image);
        let (clock, rng) = (self.executor.clock(), self.rng.fork());
        self.count_device();
        self.disk = Disk::new(image, clock, rng, self.log.clone());
    }

    /// Has the engine format the disk, if its first block is empty. `None` if the power was cut before it was done, as
    /// [`Sim::cut_power_after`] had it.
    pub fn format_if_empty(&mut self, params: FormatParams) -> Option<Result<bool, Error>> {
        self.note("format");
        let env = self.env();
        let formatted = self.drive("format", async move {
            Volume::format_if_empty(env, || Ok(params)).await
        });
        if let Ok(result) = formatted {
            return Some(result);
        }
        self.note("power failure");
        let image = self.disk.crash(&mut self.rng);
        self.executor.halt();
        self.totals.crashes += 1;
        self.insert(image);
        None
    }

    /// The world for a volume that is to be opened, with a new queue of requests.
    fn env(&mut self) -> rt::Arc<SimEnv> {
        self.intake = SimIntake::new(self.rng.fork());
        let env = SimEnv {
            clock: self.executor.clock(),
            disk: self.disk.clone(),
            codec: self.codec.clone(),
            intake: self.intake.clone(),
        };
        rt::Arc::new(env).expect("memory")
    }

    fn name_blocks(&self, image: &Image) {
        let image = image.clone();
        self.log.name_blocks(Arc::new(move |block| {
            let mut findings = Findings::default();
            OnDisk::open(&image, &mut findings)
                .map_or_else(String::new, |volume| volume.name(block))
        }));
    }

    fn note(&self, note: &'static str) {
        self.log
            .add(self.executor.clock().now(), 0, Event::Note(note), 0);
    }

    /// Opens and resumes the volume, whatever that takes: a load, a recovery, a rebuild.
    pub fn start(&mut self) -> Result<(), String> {
        self.note("start");
        let env = self.env();
        let parameters = self.parameters;
        let started = self.drive("start", async move {
            let volume = Volume::open(env, parameters).await?;
            Volume::resume(&volume).await?;
            Ok::<_, Error>(volume)
        })?;
        self.volume = Some(started.map_err(|error| format!("the volume does not start: {error}"))?);
        self.check()
    }

    /// Starts the volume and cuts the power when `moments` moments of the disk have gone by, if
    /// it has not come up by then.
    pub fn start_until_crash(&mut self, moments: u64) -> Result<(), String> {
        self.cut_after = Some(self.disk.moment() + moments);
        let started = self.start();
        self.cut_after = None;
        match started {
            Ok(()) => Ok(()),
            Err(error) if error == CUT => self.power_cut(),
            Err(error) => Err(error),
        }
    }

    /// Whether the volume is running.
    pub fn is_running(&self) -> bool {
        self.volume.is_some()
    }

    /// Suspends the volume.
    pub fn suspend(&mut self, kind: SuspendKind) -> Result<(), String> {
        self.note(match kind {
            SuspendKind::Save => "suspend and save",
            SuspendKind::NoFlush => "suspend without flush",
        });
        let sent = self.world().model.begin_flush();
        let volume = self.volume().clone();
        let suspended = self.drive("suspend", async move { volume.suspend(kind).await })?;
        suspended.map_err(|error| format!("suspend: {error}"))?;
        if kind == SuspendKind::Save && !self.is_read_only() {
            self.world().model.end_flush(sent);
        }
        self.check()
    }

    /// Upgrades the running volume and has it compress to `format` from now on.
    pub fn upgrade(&mut self, format: StreamFormat) -> Result<(), String> {
        self.note("upgrade");
        let volume = self.volume().clone();
        let upgraded = self.drive("upgrade", async move {
            volume.upgrade().await?;
            volume.admit_format(format).await
        })?;
        upgraded.map_err(|error| format!("upgrade: {error}"))?;
        self.codec.set_format(format);
        self.volume().compressor_changed();
        self.check()
    }

    /// Writes one block.
    pub fn write(&mut self, lbn: u64, data: Block) -> Result<(), String> {
        let token = self.world().model.begin_write(lbn, Arc::new(data), false);
        let intake = self.intake.clone();
        let written = self.drive("write", async move {
            intake.write(lbn * 8, data.to_vec(), false).await
        })?;
        written.map_err(|error| format!("write of {lbn}: {error:?}"))?;
        self.world().model.end_write(token, WriteEnd::Done);
        self.check()
    }

    /// Discards everything that was ever written.
    pub fn discard_all(&mut self) -> Result<(), String> {
        let lbns = self.world().model.lbns();
        for lbn in lbns {
            let zero = Arc::new([0; BLOCK_SIZE]);
            let token = self.world().model.begin_write(lbn, zero, false);
            let intake = self.intake.clone();
            let discarded = self.drive("discard", async move {
                intake.discard(lbn * 8, BLOCK_SIZE, false).await
            })?;
            discarded.map_err(|error| format!("discard of {lbn}: {error:?}"))?;
            self.world().model.end_write(token, WriteEnd::Done);
        }
        self.check()
    }

    /// Lets `task` have the running volume. `None` if the power was cut before it was done, as [`Sim::cut_power_after`] had it.
    pub fn task<T, F>(
        &mut self,
        what: &'static str,
        task: impl FnOnce(rt::Arc<Volume<SimEnv>>) -> F,
    ) -> Result<Option<T>, String>
    where
        F: Future<Output = T>,
    {
        self.note(what);
        let volume = self.volume().clone();
        match self.drive(what, task(volume)) {
            Ok(done) => self.check().map(|()| Some(done)),
            Err(error) if error == CUT => self.power_cut().map(|()| None),
            Err(error) => Err(error),
        }
    }

    /// The same while users work. The power stays on.
    pub fn task_among_users<T, F>(
        &mut self,
        workload: Workload,
        what: &'static str,
        task: impl FnOnce(rt::Arc<Volume<SimEnv>>) -> F,
    ) -> Result<T, String>
    where
        F: Future<Output = T> + Send,
        T: Send,
    {
        self.note(what);
        let clients = self.start_clients(&workload);
        let volume = self.volume().clone();
        let both = rt::join2(all(clients), task(volume));
        let ((), done) = self.drive(what, both)?;
        self.check().map(|()| done)
    }

    /// Has the power cut when `moments` moments of the disk have gone by, if that is during a task.
    pub fn cut_power_after(&mut self, moments: Option<u64>) {
        self.cut_after = moments.map(|moments| self.disk.moment() + moments);
    }

    /// Resumes the suspended volume.
    pub fn resume(&mut self) -> Result<(), String> {
        self.note("resume");
        let volume = self.volume().clone();
        let resumed = self.drive("resume", async move { Volume::resume(&volume).await })?;
        resumed.map_err(|error| format!("resume: {error}"))?;
        self.check()
    }

    /// Saves the volume and ends it. Nothing of it may be left.
    pub fn stop(&mut self) -> Result<(), String> {
        self.suspend(SuspendKind::Save)?;
        self.end()
    }

    /// Gives the suspended volume `physical_blocks`; what it has become goes on. `None` if the power was cut before it was that, as
    /// [`Sim::cut_power_after`] had it.
    pub fn grow(&mut self, physical_blocks: u64) -> Result<Option<Result<(), Error>>, String> {
        let grown = self.task("grow", move |volume| async move {
            volume.grow_physical(physical_blocks).await
        })?;
        self.cut_after = None;
        match grown {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                self.resume()?;
                return Ok(Some(Err(error)));
            }
            None => return Ok(None),
        }
        let old = self.volume().clone();
        assert!(old.is_outgrown());
        self.end()?;
        let (env, parameters) = (self.env(), self.parameters);
        let started = self.drive("succeed", async move {
            let volume = Volume::succeed(&old, env, parameters).await?;
            Volume::resume(&volume).await?;
            Ok::<_, Error>(volume)
        })?;
        self.volume = Some(started.map_err(|error| format!("the volume does not start: {error}"))?);
        self.check().map(|()| Some(Ok(())))
    }

    /// Ends the suspended volume.
    pub fn end(&mut self) -> Result<(), String> {
        self.note("stop");
        let Some(volume) = self.volume.take() else {
            return Ok(());
        };
        volume.stop();
        drop(volume);
        self.executor.run_until_idle();
        if self.executor.tasks() > 0 {
            let left = self.executor.run(std::future::pending::<()>());
            return Err(format!(
                "tasks are left after the stop: {}",
                left.unwrap_err()
            ));
        }
        if !self.disk.is_idle() {
            return Err("device operations are left after the stop".to_string());
        }
        self.check()
    }

    /// Tries a power failure every so many moments of the disk from now on, whatever goes on.
    pub fn crash_every(&mut self, moments: Option<u64>) {
        self.crash_interval = moments;
    }

    /// Lets users work until they are done.
    pub fn work(&mut self, workload: Workload) -> Result<(), String> {
        self.note("work");
        let clients = self.start_clients(&workload);
        self.drive("work", all(clients))?;
        self.check()
    }

    /// Lets users work, and tries about `crashes` power failures at moments that the seed picks.
    pub fn work_with_crashes(&mut self, workload: Workload, crashes: u64) -> Result<(), String> {
        // A request takes a few device operations, each of which has two moments.
        let interval = workload.operations.saturating_mul(8) / crashes.max(1);
        let before = self.crash_interval;
        self.crash_interval = (crashes > 0).then_some(interval);
        let result = self.work(workload);
        self.crash_interval = before;
        result
    }

    /// Lets users work until about `moments` moments of the disk have gone by, then cuts the
    /// power.
    pub fn work_until_crash(&mut self, workload: Workload, moments: u64) -> Result<(), String> {
        self.cut_after = Some(self.disk.moment() + moments);
        let worked = self.work(workload);
        self.cut_after = None;
        match worked {
            Err(error) if error != CUT => Err(error),
            _ => self.power_cut(),
        }
    }

    fn start_clients(&mut self, workload: &Workload) -> Vec<Slot<()>> {
        workload::start(
            workload.clone(),
            self.volume().logical_blocks(),
            &self.executor.clock(),
            &self.intake,
            &self.log,
            &self.world,
            &mut self.rng,
        )
    }

    /// Runs the world until `future` is done, with power failures on the side.
    fn drive<T>(&mut self, what: &str, future: impl Future<Output = T>) -> Result<T, String> {
        let (disk, world, volume) = (
            self.disk.clone(),
            Arc::clone(&self.world),
            self.volume.clone(),
        );
        let mut rng = self.rng.fork();
        let interval = self
            .crash_interval
            .map_or(u64::MAX / 4, |moments| moments.max(1));
        let mut next = disk.moment().saturating_add(rng.between(1, interval));
        let cut = self.cut_after.unwrap_or(u64::MAX);
        let (mut totals, strictness) = (Totals::default(), self.strictness);
        let mut failure = None;
        let run = self.executor.run_until(future, || {
            let moment = disk.moment();
            if volume
                .as_ref()
                .is_some_and(|volume| volume.store().read_only().is_set())
            {
                world.lock().expect("no panic").read_only = true;
            }
            if moment >= cut {
                failure = Some(CUT.to_string());
            } else if moment >= next {
                // Neighbouring moments differ in one operation only: look at some together.
                let step = if rng.percent(30) {
                    1
                } else {
                    rng.between(1, interval * 2)
                };
                next = moment.saturating_add(step);
                let image = disk.crash(&mut rng);
                totals.crashes += 1;
                match check_crashed(&image, &world.lock().expect("no panic"), strictness) {
                    Ok(replayed) => totals.replayed += replayed,
                    Err(error) => {
                        failure = Some(format!("power failure at moment {moment}: {error}"))
                    }
                }
            }
            failure.is_some()
        });
        self.totals.add(totals);
        match (failure, run) {
            (Some(failure), _) => Err(failure),
            (None, Ok(value)) => Ok(value),
            (None, Err(stop)) => {
                let violation = self.check().err();
                Err(format!(
                    "{what}: {}",
                    violation.unwrap_or_else(|| stop.to_string())
                ))
            }
        }
    }

    /// Cuts the power: tasks vanish, the disk keeps what it keeps. The medium is audited.
    pub fn power_cut(&mut self) -> Result<(), String> {
        self.note("power failure");
        let image = self.disk.crash(&mut self.rng);
        self.executor.halt();
        self.volume = None;
        self.totals.crashes += 1;
        let replayed = check_crashed(&image, &self.world(), self.strictness)?;
        self.totals.replayed += replayed;
        self.world().model.crashed();
        self.world().read_only = false;
        self.insert(image);
        Ok(())
    }

    /// Tries `count` power failures now.
    pub fn audit_crashes(&mut self, count: u64) -> Result<(), String> {
        for _ in 0..count {
            let image = self.disk.crash(&mut self.rng);
            self.totals.crashes += 1;
            let replayed = check_crashed(&image, &self.world(), self.strictness)?;
            self.totals.replayed += replayed;
        }
        Ok(())
    }

    /// Audits what a stopped volume left, and compares it with what users wrote.
    pub fn audit_saved(&mut self) -> Result<(), String> {
        let image = self.disk.contents();
        let audit = audit(&image, self.strictness)?;
        let saved = [state::CLEAN, state::RECOVERING];
        if !saved.contains(&audit.volume.state) {
            return Err(format!(
                "the volume is saved in state {}",
                audit.volume.state
            ));
        }
        let mut world = self.world();
        for lbn in world.model.lbns() {
            let data = audit.data(lbn)?;
            world
                .model
                .check_current(lbn, &data)
                .map_err(|violation| violation.to_string())?;
        }
        check_unknown(&audit, &world)
    }

    /// How many compressed blocks of a stream format a stopped volume has in use.
    pub fn compressed_blocks(&self, format: u8) -> Result<u64, String> {
        let image = self.disk.contents();
        let audit = audit(&image, self.strictness)?;
        Ok(audit.compressed.get(&format).copied().unwrap_or(0))
    }

    /// The most references that a block of a stopped volume has.
    pub fn most_references(&self) -> Result<u64, String> {
        let image = self.disk.contents();
        let audit = audit(&image, self.strictness)?;
        let usage = audit.forest.usage.values();
        Ok(usage
            .map(|usage| usage.whole + usage.fragments)
            .max()
            .unwrap_or(0))
    }

    /// Reads everything that was ever written through the volume.
    pub fn read_back(&mut self) -> Result<(), String> {
        let lbns = self.world().model.lbns();
        for lbn in lbns {
            let intake = self.intake.clone();
            let outcome =
                self.drive("read back", async move { intake.read(lbn * 8, 4096).await })?;
            let mut world = self.world();
            let data = outcome.map_err(|error| format!("lbn {lbn}: {error:?}"))?;
            let data = data.try_into().expect("one block");
            let checked = if world.read_only {
                world.model.check_crash(lbn, &data)
            } else {
                world.model.check_current(lbn, &data)
            };
            checked.map_err(|violation| violation.to_string())?;
        }
        Ok(())
    }

    /// The volume has lost what was not flushed: any version that a crash may leave is accepted.
    pub fn after_loss(&mut self) {
        let mut world = self.world();
        world.model.crashed();
        world.read_only = false;
    }

    /// Changes the super block of the stopped volume, as an offline tool would.
    pub fn change_super_block(&mut self, change: impl FnOnce(&mut Block)) {
        let mut image = self.disk.contents();
        let mut findings = Findings::default();
        let start =
            OnDisk::open(&image, &mut findings).map(|volume| volume.data_start - volume.bio_offset);
        image.edit(start.expect("there is a volume"), |block| {
            change(block);
            let crc = crc32(&block[..434]);
            block[434..438].copy_from_slice(&crc.to_le_bytes());
        });
        self.insert(image);
    }

    /// What has gone wrong so far.
    pub fn check(&mut self) -> Result<(), String> {
        let world = self.world();
        if !world.violations.is_empty() {
            return Err(world.violations.join("\n"));
        }
        drop(world);
        let lost = self.intake.lost();
        if !lost.is_empty() {
            return Err(format!("requests were dropped: {}", lost.join(", ")));
        }
        let counts = self.disk.counts();
        if counts.write_hazards > 0 || counts.read_hazards > 0 {
            let hazard = self.disk.last_hazard().unwrap_or_default();
            return Err(format!("hazard on the device: {hazard} ({counts:?})"));
        }
        if self.world().accepted_errors.is_empty() && self.is_read_only() {
            return Err("the volume is read-only".to_string());
        }
        Ok(())
    }

    /// Whether the running volume is in read-only mode.
    pub fn is_read_only(&self) -> bool {
        self.volume
            .as_ref()
            .is_some_and(|volume| volume.store().read_only().is_set())
    }

    fn count_device(&mut self) {
        let Counts {
            reads,
            writes,
            flushes,
            ..
        } = self.disk.counts();
        self.totals.device_operations += reads + writes + flushes;
    }

    /// What this run did.
    pub fn totals(&mut self) -> Totals {
        self.count_device();
        let mut totals = self.totals;
        totals.requests = self.world().requests;
        totals.steps = self.executor.steps();
        totals
    }
}

async fn all(clients: Vec<Slot<()>>) {
    for client in clients {
        client.await;
    }
}

/// Recovers a crashed volume on paper and compares it with what users may expect.
fn check_crashed(image: &Image, world: &World, strictness: Strictness) -> Result<u64, String> {
    let audit = audit(image, strictness)?;
    for lbn in world.model.lbns() {
        let data = audit.data(lbn)?;
        if let Err(violation) = world.model.check_crash(lbn, &data) {
            let mapping = audit.forest.mappings.get(&lbn);
            return Err(format!("{violation}; it is mapped to {mapping:?}"));
        }
    }
    check_unknown(&audit, world)?;
    Ok(audit.replayed)
}

/// Blocks that nobody ever wrote must read as zeros.
fn check_unknown(audit: &Audit<'_>, world: &World) -> Result<(), String> {
    for lbn in audit.forest.mappings.keys() {
        if !world.model.knows(*lbn) && audit.data(*lbn)?.iter().any(|byte| *byte != 0) {
            return Err(format!("lbn {lbn} was never written but holds data"));
        }
    }
    Ok(())
}
