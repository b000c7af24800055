// SPDX-License-Identifier: GPL-2.0

//! Pulling the plug at every moment of a volume's life, and letting the engine recover what is left.
//!
//! A life is a few starts, workloads and stops of one volume. Whenever its disk has done something, power fails: not for the
//! volume itself, which goes on, but for a copy of its medium in which unflushed writes survive in some subset, torn by sector. A
//! second volume recovers the copy, perhaps with another cache, perhaps with further power failures while it does so, and is
//! saved. What it leaves is audited by code that the engine does not share, and compared with what users were promised.

use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

use super::audit::volume::{state, Volume as OnDisk};
use super::audit::{audit, Findings, Strictness};
use super::codec::{Behaviour, SimCodec};
use super::content::DataMix;
use super::disk::{Disk, Fault, Kind, Latency};
use super::env::SimEnv;
use super::executor::{Executor, Stop};
use super::foreign;
use super::image::Image;
use super::mkfs::Shape;
use super::oplog::{Event, OpLog};
use super::request::SimIntake;
use super::rng::Rng;
use super::workload::{self, Workload, World};
use crate::engine::env::{IoError, RequestError};
use crate::engine::error::Error;
use crate::engine::format::StreamFormat;
use crate::engine::volume::{DowngradeError, OpenParameters, SuspendKind, Volume};
use crate::rt;

/// Steps that a phase may take before it counts as endless.
const STEPS_MAX: u64 = 20_000_000;
/// Events printed when a life fails.
const LOG_TAIL: usize = 160;

/// What a life is like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The volume.
    pub shape: Shape,
    /// How it is opened.
    pub parameters: OpenParameters,
    /// How long its disk takes.
    pub latency: Latency,
    /// What its users do in each start.
    pub workload: Workload,
    /// How often it is started.
    pub starts: u64,
    /// Moments of the disk between two power failures, at most. 1: power fails at every moment.
    pub interval: u64,
    /// Percentage of recoveries that are cut short by another power failure.
    pub nested: u32,
    /// Percentage of recoveries during which an operation of the disk fails.
    pub faults: u32,
    /// Percentage of starts in which the volume is upgraded, or made one of the original format again, among other work.
    pub conversions: u32,
    /// Percentage of saved volumes that get compressed blocks as dm-vdo's unmerged proposal has them before the next start.
    pub foreign: u32,
}

/// What lives did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Lives.
    pub lives: u64,
    /// Power failures that were recovered from, those during a recovery included.
    pub crashes: u64,
    /// Recoveries that power failures cut short.
    pub nested: u64,
    /// Recoveries during which an operation of the disk failed.
    pub faults: u64,
    /// Saves while slabs were still to be scrubbed.
    pub early_saves: u64,
    /// Upgrades and downgrades of running volumes.
    pub conversions: u64,
    /// Compressed blocks of others that were put onto volumes: LZ4, zstd.
    pub foreign: [u64; 2],
    /// Requests of users.
    pub requests: u64,
}

/// A life that did not go well.
#[derive(Debug)]
pub struct Failure {
    /// All there is to know about it.
    pub error: String,
    /// What had been done by then.
    pub tally: Tally,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl Tally {
    /// Adds another one.
    pub fn add(&mut self, other: Tally) {
        self.lives += other.lives;
        self.crashes += other.crashes;
        self.nested += other.nested;
        self.faults += other.faults;
        self.early_saves += other.early_saves;
        self.conversions += other.conversions;
        self.foreign[0] += other.foreign[0];
        self.foreign[1] += other.foreign[1];
        self.requests += other.requests;
    }
}

impl Plan {
    /// A life that the seed makes up. Small volumes and short journals: everything wraps around and fills up in a few hundred
    /// operations, which is when it matters in which order things are done.
    pub fn any(rng: &mut Rng) -> Self {
        // Now and then so long that slab journals fill up and counters are written; power fails less often then.
        let is_long = rng.percent(20);
        let (slab_bits, slab_journal_blocks) =
            *rng.pick(&[(8, 8), (8, 12), (9, 8), (9, 16), (10, 16)]);
        let journal_blocks = *rng.pick(&[8, 16, 16, 32]);
        let shape = Shape {
            slab_blocks: 1 << slab_bits,
            slabs: rng.between(1, 4),
            slab_journal_blocks,
            journal_blocks,
            logical_blocks: *rng.pick(&[812, 5_000, 60 * 812]),
            nonce: rng.next(),
            ..Shape::SMALL
        };
        let usable = journal_blocks - (journal_blocks / 4).min(11);
        let compression = rng.percent(60);
        // Writes may rest in the packer for as long as nobody flushes, with all requests that there are but one.
        let requests = match compression {
            true => *rng.pick(&[2, 32, 256, 256]),
            false => *rng.pick(&[1, 2, 8, 32]),
        };
        let parameters = OpenParameters {
            physical_blocks: None,
            logical_blocks: shape.logical_blocks,
            cache_pages: *rng.pick(&[6, 12, 24, 64]),
            maximum_age_blocks: rng.between(1, usable / 2),
            requests,
            index_entries: 256,
            compression,
            deduplication: rng.percent(80),
        };
        let workload = Workload {
            operations: match is_long {
                true => *rng.pick(&[2_000, 5_000]),
                false => *rng.pick(&[40, 150, 400]),
            },
            clients: *rng.pick(&[1, 4, 16]),
            pages: rng.between(1, 6).min(shape.logical_blocks.div_ceil(812)),
            blocks_per_page: *rng.pick(&[2, 20, 80]),
            reads: 5,
            discards: *rng.pick(&[0, 5, 20]),
            flushes: *rng.pick(&[1, 5, 20]),
            fua: *rng.pick(&[0, 5, 50]),
            partial: *rng.pick(&[0, 10]),
            races: *rng.pick(&[0, 10]),
            discard_blocks_max: *rng.pick(&[1, 4]),
            data: *rng.pick(&[
                DataMix::ALL,
                DataMix::UNIQUE,
                DataMix::COMPRESSIBLE,
                DataMix::DUPLICATES,
            ]),
            data_pool: *rng.pick(&[4, 32]),
            pause_max: *rng.pick(&[0, 0, 50]),
        };
        Self {
            shape,
            parameters,
            latency: any_latency(rng),
            workload,
            starts: rng.between(1, 3),
            interval: if is_long { 100 } else { 1 },
            nested: 20,
            faults: 5,
            conversions: *rng.pick(&[0, 80]),
            foreign: *rng.pick(&[0, 80]),
        }
    }
}

impl Plan {
    /// What its volumes are held to.
    fn strictness(&self) -> Strictness {
        match self.foreign {
            0 => Strictness::OURS,
            _ => Strictness::FOREIGN,
        }
    }
}

fn any_latency(rng: &mut Rng) -> Latency {
    let (max, slow_permille, slow_max) =
        *rng.pick(&[(1, 0, 1), (4, 0, 4), (40, 10, 400), (200, 50, 2_000)]);
    Latency {
        min: 1,
        max,
        slow_permille,
        slow_max,
    }
}

/// One volume with everything around it.
pub struct Machine {
    /// Where its tasks run.
    pub executor: Executor,
    /// Its disk.
    pub disk: Disk,
    /// Where its requests come from.
    pub intake: SimIntake,
    /// How its volume is opened.
    pub parameters: OpenParameters,
    codec: SimCodec,
    log: OpLog,
}

/// How a start went.
pub enum Started {
    /// The volume can be used, if only for reading.
    Running(rt::Arc<Volume<SimEnv>>),
    /// It can not, and was ended.
    Failed(Error),
    /// The plug was pulled.
    Interrupted,
}

/// What a machine is made to do next.
enum Phase {
    Start,
    Work(Workload),
    Suspend(SuspendKind),
    Resume,
    Convert,
}

impl Machine {
    /// A machine with a disk that holds `image`.
    pub fn new(image: Image, parameters: OpenParameters, latency: Latency, rng: &mut Rng) -> Self {
        let log = OpLog::new(4096);
        let names = image.clone();
        log.name_blocks(Arc::new(move |block| {
            let mut findings = Findings::default();
            OnDisk::open(&names, &mut findings)
                .map_or_else(String::new, |on_disk| on_disk.name(block))
        }));
        let mut executor = Executor::new(rng.fork());
        executor.steps_max = STEPS_MAX;
        let clock = executor.clock();
        let disk = Disk::new(image, clock.clone(), rng.fork(), log.clone());
        disk.set_latency(latency);
        let codec = SimCodec::new(clock, rng.fork());
        codec.set_behaviour(Behaviour {
            latency,
            compress_failures_permille: 20,
            incompressible_permille: 20,
            decompress_failures_permille: 0,
        });
        Self {
            executor,
            disk,
            codec,
            intake: SimIntake::new(rng.fork()),
            log,
            parameters,
        }
    }

    /// What a volume runs on.
    pub fn env(&self) -> rt::Arc<SimEnv> {
        rt::Arc::new(SimEnv {
            clock: self.executor.clock(),
            disk: self.disk.clone(),
            codec: self.codec.clone(),
            intake: self.intake.clone(),
        })
        .expect("memory")
    }

    fn note(&self, what: &'static str) {
        self.log
            .add(self.executor.clock().now(), 0, Event::Note(what), 0);
    }

    /// Opens and resumes the volume. `None` if `interrupt` came first.
    pub fn start(
        &mut self,
        interrupt: impl FnMut() -> bool,
    ) -> Result<Option<rt::Arc<Volume<SimEnv>>>, String> {
        match self.try_start(interrupt)? {
            Started::Running(volume) => match volume.store().read_only().reason() {
                None => Ok(Some(volume)),
                Some(reason) => Err(format!("the volume starts read-only: {reason:?}")),
            },
            Started::Failed(error) => Err(format!("the volume does not start: {error}")),
            Started::Interrupted => Ok(None),
        }
    }

    /// Opens and resumes the volume. One that cannot be resumed is ended, and must leave nothing behind.
    pub fn try_start(&mut self, mut interrupt: impl FnMut() -> bool) -> Result<Started, String> {
        self.note("start");
        let (env, parameters) = (self.env(), self.parameters);
        let opened = self
            .executor
            .run_until(Volume::open(env, parameters), &mut interrupt);
        let volume = match opened {
            Ok(Ok(volume)) => volume,
            Ok(Err(error)) => return Ok(Started::Failed(error)),
            Err(Stop::Interrupted) => return Ok(Started::Interrupted),
            Err(stop) => return Err(format!("open: {stop}")),
        };
        let resuming = volume.clone();
        let resumed = self.executor.run_until(
            async move { Volume::resume(&resuming).await },
            &mut interrupt,
        );
        match resumed {
            Ok(Ok(())) => Ok(Started::Running(volume)),
            Ok(Err(error)) => {
                // Device-mapper suspends before it removes.
                self.suspend(&volume, SuspendKind::Save, || false)?;
                self.end(volume)?;
                Ok(Started::Failed(error))
            }
            Err(Stop::Interrupted) => Ok(Started::Interrupted),
            Err(stop) => Err(format!("start: {stop}")),
        }
    }

    /// Suspends the volume. `false` if `interrupt` came first.
    pub fn suspend(
        &mut self,
        volume: &rt::Arc<Volume<SimEnv>>,
        kind: SuspendKind,
        interrupt: impl FnMut() -> bool,
    ) -> Result<bool, String> {
        self.note("suspend");
        let volume = volume.clone();
        let suspended = self
            .executor
            .run_until(async move { volume.suspend(kind).await }, interrupt);
        match suspended {
            Ok(Ok(())) => Ok(true),
            Ok(Err(error)) => Err(format!("suspend: {error}")),
            Err(Stop::Interrupted) => Ok(false),
            Err(stop) => Err(format!("suspend: {stop}")),
        }
    }

    /// Ends a suspended volume, of which nothing may be left.
    pub fn end(&mut self, volume: rt::Arc<Volume<SimEnv>>) -> Result<(), String> {
        volume.stop();
        drop(volume);
        self.executor.run_until_idle();
        if self.executor.tasks() > 0 {
            let left = self.executor.run(std::future::pending::<()>());
            return Err(format!("tasks are left: {}", left.unwrap_err()));
        }
        if !self.disk.is_idle() {
            return Err("device operations are left after the stop".to_string());
        }
        let hazards = self.disk.counts();
        if hazards.write_hazards > 0 {
            return Err(format!(
                "hazard on the device: {}",
                self.disk.last_hazard().unwrap_or_default()
            ));
        }
        Ok(())
    }

    /// Upgrades the volume, or makes it one of the original format if that can be, and changes what it compresses to.
    fn convert(
        &mut self,
        volume: &rt::Arc<Volume<SimEnv>>,
        interrupt: impl FnMut() -> bool,
        rng: &mut Rng,
    ) -> Result<(), String> {
        self.note("convert");
        let back = volume.has_block_formats() && rng.percent(40);
        let format = match back {
            true => StreamFormat::Lz4,
            false => *rng.pick(&StreamFormat::ALL),
        };
        if back {
            self.codec.set_format(format);
        }
        let converting = volume.clone();
        let converted = self.executor.run_until(
            async move {
                if back {
                    return match converting.downgrade().await {
                        Err(DowngradeError::Failed(error)) => Err(error),
                        _ => Ok(()),
                    };
                }
                converting.upgrade().await?;
                converting.admit_format(format).await
            },
            interrupt,
        );
        match converted {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(format!("convert: {error}")),
            Err(stop) => return Err(format!("convert: {stop}")),
        }
        self.codec.set_format(format);
        volume.compressor_changed();
        Ok(())
    }

    /// Waits until all slabs are scrubbed.
    pub fn scrub(&mut self, volume: &rt::Arc<Volume<SimEnv>>) -> Result<(), String> {
        let (watched, clock) = (volume.clone(), self.executor.clock());
        let scrubbed = self.executor.run(async move {
            while watched.snapshot().in_recovery_mode && !watched.store().read_only().is_set() {
                clock.sleep(20).await;
            }
        });
        match (scrubbed, volume.store().read_only().reason()) {
            (_, Some(reason)) => Err(format!("read-only while slabs are scrubbed: {reason:?}")),
            (Err(stop), _) => Err(format!("scrubbing: {stop}")),
            _ => Ok(()),
        }
    }
}

/// What a recovery is compared with, and what came of it.
struct Judge<'a> {
    world: &'a World,
    logical_blocks: u64,
    maximum_age_blocks: u64,
    nested: u32,
    faults: u32,
    strictness: Strictness,
    tally: &'a mut Tally,
}

impl Judge<'_> {
    /// Recovers `image` and checks the result.
    fn try_crash(&mut self, image: Image, rng: &mut Rng) -> Result<(), String> {
        let mut image = image;
        let mut depth = 0;
        loop {
            self.tally.crashes += 1;
            let original = image.clone();
            let cut_short = depth < 3 && rng.percent(self.nested);
            let faulty = depth < 3 && !cut_short && rng.percent(self.faults);
            let mut machine = Machine::new(image, self.parameters(rng), Latency::FAST, rng);
            let result = match faulty {
                true => self.recover_with_fault(&mut machine, rng),
                false => self.recover(&mut machine, cut_short, rng),
            };
            match result {
                Ok(Some(next)) => {
                    image = next;
                    depth += 1;
                    self.tally.nested += u64::from(cut_short);
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    // Was it the recovery, or was the volume beyond recovery already?
                    let before = match audit(&original, self.strictness) {
                        Ok(_) => "the crashed volume was sound".to_string(),
                        Err(findings) => format!("the crashed volume was unsound: {findings}"),
                    };
                    let tail = machine.log.tail(LOG_TAIL);
                    std::mem::forget(machine);
                    return Err(format!("{tail}\nrecovery {depth}: {error}\n{before}"));
                }
            }
        }
    }

    fn parameters(&self, rng: &mut Rng) -> OpenParameters {
        OpenParameters {
            physical_blocks: None,
            logical_blocks: self.logical_blocks,
            cache_pages: *rng.pick(&[1, 3, 8, 32]),
            maximum_age_blocks: self.maximum_age_blocks,
            requests: 1,
            index_entries: 64,
            compression: true,
            deduplication: true,
        }
    }

    /// Begins to recover while one operation of the disk fails. Either the volume comes up all the same, or it does not and can be
    /// recovered later. The result is what it leaves behind; `None` if it became read-only once it was in use.
    fn recover_with_fault(
        &mut self,
        machine: &mut Machine,
        rng: &mut Rng,
    ) -> Result<Option<Image>, String> {
        self.tally.faults += 1;
        let before = on_disk_state(&machine.disk.contents());
        machine.disk.inject(Fault {
            kind: *rng.pick(&[Kind::Read, Kind::Write, Kind::Flush]),
            blocks: 0..u64::MAX,
            skip: rng.between(0, 150),
            count: 1,
            error: *rng.pick(&[IoError::Io, IoError::Timeout, IoError::NoSpace]),
        });
        let started = machine.try_start(|| false)?;
        machine.disk.heal();
        match started {
            Started::Running(volume) => {
                // A scrubber may have met the fault, before or after the start came to its end.
                let _ = machine.scrub(&volume);
                let is_read_only = volume.store().read_only().is_set();
                let saved = machine.suspend(&volume, SuspendKind::Save, || false);
                machine.end(volume)?;
                let state = on_disk_state(&machine.disk.contents());
                match (is_read_only, saved, state) {
                    (true, _, Some(state::READ_ONLY)) => Ok(None),
                    (false, Ok(true), Some(state::CLEAN)) => {
                        // A block that could not be read does not keep the volume from coming up.
                        let strictness = Strictness {
                            known_codes: false,
                            ..self.strictness
                        };
                        self.judge(&machine.disk.contents(), strictness)?;
                        Ok(None)
                    }
                    other => Err(format!("after a fault: {other:?}")),
                }
            }
            Started::Failed(Error::Io(_)) => {
                let image = machine.disk.contents();
                match on_disk_state(&image) {
                    // The fault may have hit the very end of the recovery.
                    state if state == before => Ok(Some(image)),
                    state => Err(format!("state {before:?} became {state:?} by a fault")),
                }
            }
            Started::Failed(error) => Err(format!("after a fault: {error}")),
            Started::Interrupted => Err("interrupted by nobody".to_string()),
        }
    }

    /// Recovers what is on the disk of `machine`, or begins to: then the result is what another power failure leaves.
    fn recover(
        &mut self,
        machine: &mut Machine,
        cut_short: bool,
        rng: &mut Rng,
    ) -> Result<Option<Image>, String> {
        let disk = machine.disk.clone();
        let end = match cut_short {
            true => rng.between(1, 400),
            false => u64::MAX,
        };
        let cut = move || disk.moment() >= end;
        let Some(volume) = machine.start(&cut)? else {
            return Ok(Some(machine.disk.crash(rng)));
        };
        // Sometimes the volume is saved before it is scrubbed, and comes up once more.
        let early = rng.percent(30);
        if !early {
            machine.scrub(&volume)?;
        }
        if !machine.suspend(&volume, SuspendKind::Save, &cut)? {
            drop(volume);
            return Ok(Some(machine.disk.crash(rng)));
        }
        let is_scrubbed = !volume.snapshot().in_recovery_mode;
        machine.end(volume)?;
        if is_scrubbed {
            self.judge(&machine.disk.contents(), self.strictness)?;
            return Ok(None);
        }
        self.tally.early_saves += 1;
        let parameters = self.parameters(rng);
        let mut again = Machine::new(machine.disk.contents(), parameters, Latency::FAST, rng);
        let result = (|| {
            let Some(volume) = again.start(|| false)? else {
                return Err("interrupted by nobody".to_string());
            };
            again.scrub(&volume)?;
            again.suspend(&volume, SuspendKind::Save, || false)?;
            again.end(volume)?;
            self.judge(&again.disk.contents(), self.strictness)
        })();
        match result {
            Ok(()) => Ok(None),
            Err(error) => {
                let tail = again.log.tail(LOG_TAIL);
                std::mem::forget(again);
                Err(format!("{tail}\nafter an early save: {error}"))
            }
        }
    }

    /// Checks a saved volume.
    fn judge(&self, image: &Image, strictness: Strictness) -> Result<(), String> {
        let audit = audit(image, strictness)?;
        if audit.volume.state != state::CLEAN {
            return Err(format!("saved in state {}", audit.volume.state));
        }
        let model = &self.world.model;
        for lbn in model.lbns() {
            let data = audit.data(lbn)?;
            model
                .check_crash(lbn, &data)
                .map_err(|violation| violation.to_string())?;
        }
        for lbn in audit.forest.mappings.keys() {
            if !model.knows(*lbn) && audit.data(*lbn)?.iter().any(|byte| *byte != 0) {
                return Err(format!("lbn {lbn} was never written but holds data"));
            }
        }
        Ok(())
    }
}

/// The state in the super block.
fn on_disk_state(image: &Image) -> Option<u32> {
    OnDisk::open(image, &mut Findings::default()).map(|volume| volume.state)
}

/// Lives the life of `seed`, adding to `tally`.
pub fn live(seed: u64, plan: &Plan, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    tally.lives += 1;
    let world: Arc<Mutex<World>> = Arc::default();
    world
        .lock()
        .expect("no panic")
        .accepted_errors
        .push(RequestError::NoSpace);
    let mut image = plan.shape.format();
    for start in 0..plan.starts {
        if start > 0 && rng.percent(plan.foreign) {
            add_foreign_blocks(&mut image, rng, tally)?;
        }
        let mut machine = Machine::new(image, plan.parameters, plan.latency, rng);
        match one_start(plan, &mut machine, &world, tally, rng) {
            Ok(left) => image = left,
            Err(error) => {
                let tail = machine.log.tail(LOG_TAIL);
                std::mem::forget(machine);
                return Err(format!("{tail}\nseed {seed}: {error}"));
            }
        }
    }
    tally.requests += world.lock().expect("no panic").requests;
    Ok(())
}

/// Puts blocks of others onto a volume, if it was saved.
fn add_foreign_blocks(image: &mut Image, rng: &mut Rng, tally: &mut Tally) -> Result<(), String> {
    if on_disk_state(image) == Some(state::CLEAN) {
        let [lz4, zstd] = foreign::rewrite(image, rng)?;
        tally.foreign[0] += lz4;
        tally.foreign[1] += zstd;
    }
    Ok(())
}

/// From a start to a stop or a crash. The result is what is on the medium then.
fn one_start(
    plan: &Plan,
    machine: &mut Machine,
    world: &Arc<Mutex<World>>,
    tally: &mut Tally,
    rng: &mut Rng,
) -> Result<Image, String> {
    let mut failure = None;
    let mut phases = vec![Phase::Start, Phase::Work(plan.workload.clone())];
    if rng.percent(plan.conversions) {
        phases.push(Phase::Convert);
        phases.push(Phase::Work(plan.workload.clone()));
    }
    if rng.percent(50) {
        let kind = match rng.percent(50) {
            true => SuspendKind::Save,
            false => SuspendKind::NoFlush,
        };
        phases.push(Phase::Suspend(kind));
        phases.push(Phase::Resume);
        phases.push(Phase::Work(plan.workload.clone()));
    }
    if rng.percent(60) {
        phases.push(Phase::Suspend(SuspendKind::Save));
    }
    let mut volume = None;
    let mut is_saved = false;
    for phase in phases {
        let disk = machine.disk.clone();
        let (watched, mut crash_rng) = (Arc::clone(world), rng.fork());
        let mut next = disk.moment() + 1;
        let interrupt = || {
            let moment = disk.moment();
            if failure.is_none() && moment >= next {
                next = moment + crash_rng.between(1, plan.interval);
                let image = disk.crash(&mut crash_rng);
                let world = watched.lock().expect("no panic");
                let mut judge = Judge {
                    world: &world,
                    logical_blocks: plan.shape.logical_blocks,
                    maximum_age_blocks: plan.parameters.maximum_age_blocks,
                    nested: plan.nested,
                    faults: plan.faults,
                    strictness: plan.strictness(),
                    tally,
                };
                if let Err(error) = judge.try_crash(image, &mut crash_rng) {
                    failure = Some(format!("power failure at moment {moment}:\n{error}"));
                }
            }
            failure.is_some()
        };
        is_saved = false;
        let is_conversion = matches!(phase, Phase::Convert);
        let result = match (phase, &volume) {
            (Phase::Start, _) => machine.start(interrupt).map(|started| volume = started),
            (Phase::Work(workload), Some(running)) => {
                let logical_blocks = running.logical_blocks();
                work(machine, workload, logical_blocks, world, interrupt, rng)
            }
            (Phase::Suspend(kind), Some(running)) => {
                machine.suspend(running, kind, interrupt).map(|_| {
                    is_saved = kind == SuspendKind::Save;
                })
            }
            (Phase::Resume, Some(running)) => {
                machine.note("resume");
                let running = running.clone();
                let resumed = machine
                    .executor
                    .run_until(async move { Volume::resume(&running).await }, interrupt);
                match resumed {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(format!("resume: {error}")),
                    Err(stop) => Err(format!("resume: {stop}")),
                }
            }
            (Phase::Convert, Some(running)) => machine.convert(running, interrupt, rng),
            (_, None) => Ok(()),
        };
        if let Some(failure) = failure {
            return Err(failure);
        }
        result?;
        tally.conversions += u64::from(is_conversion);
        let world = world.lock().expect("no panic");
        if !world.violations.is_empty() {
            return Err(world.violations.join("\n"));
        }
        let reason = volume
            .as_ref()
            .and_then(|volume| volume.store().read_only().reason());
        if let Some(reason) = reason {
            return Err(format!("read-only: {reason:?}"));
        }
    }
    match volume {
        Some(volume) if is_saved => {
            let was_scrubbed = !volume.snapshot().in_recovery_mode;
            machine.end(volume)?;
            let image = machine.disk.contents();
            if was_scrubbed {
                audit(&image, plan.strictness())?;
            }
            Ok(image)
        }
        volume => {
            machine.note("power failure");
            let image = machine.disk.crash(rng);
            drop(volume);
            machine.executor.halt();
            world.lock().expect("no panic").model.crashed();
            Ok(image)
        }
    }
}

fn work(
    machine: &mut Machine,
    workload: Workload,
    logical_blocks: u64,
    world: &Arc<Mutex<World>>,
    interrupt: impl FnMut() -> bool,
    rng: &mut Rng,
) -> Result<(), String> {
    machine.note("work");
    let clients = workload::start(
        workload,
        logical_blocks,
        &machine.executor.clock(),
        &machine.intake,
        &machine.log,
        world,
        rng,
    );
    let all = async move {
        for client in clients {
            client.await;
        }
    };
    match machine.executor.run_until(all, interrupt) {
        Ok(()) => Ok(()),
        Err(stop) => {
            let violations = world.lock().expect("no panic").violations.join("\n");
            Err(format!("work: {stop}\n{violations}"))
        }
    }
}

/// Lives the lives of many seeds; `plan` makes each of them up. The error has all there is to know about the first that failed.
pub fn live_all(seeds: Range<u64>, plan: impl Fn(&mut Rng) -> Plan) -> Result<Tally, Failure> {
    let only = std::env::var("RVDO_SIM_SEED")
        .ok()
        .and_then(|text| text.parse::<u64>().ok());
    let seeds = only.map_or(seeds, |seed| seed..seed + 1);
    let mut tally = Tally::default();
    for seed in seeds {
        let life = catch_unwind(AssertUnwindSafe(|| {
            let mut rng = Rng::new(seed);
            let plan = plan(&mut rng);
            live(seed, &plan, &mut rng, &mut tally).map_err(|error| format!("{plan:?}\n{error}"))
        }));
        let error = match life {
            Ok(Ok(())) => continue,
            Ok(Err(error)) => error,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                format!("panic: {}", text.unwrap_or("of unknown kind"))
            }
        };
        let error = format!("{error}\nRVDO_SIM_SEED={seed}");
        return Err(Failure { error, tally });
    }
    Ok(tally)
}
