// SPDX-License-Identifier: GPL-2.0

//! Volumes with metadata that nobody made in good faith: any field of any structure at an extreme, the checksums right. They are
//! opened, read, written and saved. What comes of it is the volume's to say; nobody may panic, wait for ever or leave anything
//! behind.
//!
//! `RVDO_SIM_SEEDS=n` runs `n` inputs instead, `RVDO_SIM_SEED=n` only that one.

use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

use rvdo_host::engine::format::StreamFormat;
use rvdo_host::engine::volume::{OpenParameters, SuspendKind};
use rvdo_host::sim::audit::decode::crc32;
use rvdo_host::sim::audit::volume::{state, Volume as OnDisk};
use rvdo_host::sim::audit::{audit, Findings, Strictness};
use rvdo_host::sim::content::DataMix;
use rvdo_host::sim::crash::{Machine, Started};
use rvdo_host::sim::disk::Latency;
use rvdo_host::sim::harness::Sim;
use rvdo_host::sim::image::{Block, Blocks, Image};
use rvdo_host::sim::mkfs::Shape;
use rvdo_host::sim::rng::Rng;
use rvdo_host::sim::workload::Workload;

const SHAPE: Shape = Shape {
    slab_blocks: 1 << 9,
    slabs: 4,
    slab_journal_blocks: 16,
    journal_blocks: 32,
    logical_blocks: 5_000,
    ..Shape::SMALL
};
/// Inputs in `make test`.
const INPUTS: u64 = 2_000;

/// A volume, and its metadata by kind of block.
struct Victim {
    image: Image,
    blocks: BTreeMap<&'static str, Vec<u64>>,
    lbns: Vec<u64>,
}

impl Victim {
    fn new(image: Image) -> Self {
        let mut blocks = BTreeMap::<_, Vec<u64>>::new();
        let lbns = {
            let mut findings = Findings::default();
            let on_disk = OnDisk::open(&image, &mut findings).expect("a volume");
            let written = (0..image.blocks()).filter(|block| image.block(*block)[..] != [0; 4096]);
            for block in written {
                let name = on_disk.name(block);
                let kind = [
                    "geometry",
                    "super block",
                    "recovery journal",
                    "slab summary",
                ]
                .into_iter()
                .chain(["root page", "counters", "algorithm map", "journal"])
                .find(|kind| name.contains(kind));
                if let Some(kind) = kind {
                    blocks.entry(kind).or_default().push(block);
                }
            }
            let audit = audit(&image, Strictness::FORMAT).expect("a sound volume");
            for (pbn, usage) in &audit.forest.usage {
                let kind = match (usage.pages, usage.fragments) {
                    (0, 0) => continue,
                    (0, _) => "compressed block",
                    _ => "block map page",
                };
                blocks
                    .entry(kind)
                    .or_default()
                    .push(pbn - on_disk.bio_offset);
            }
            audit.forest.mappings.keys().copied().collect()
        };
        for of_kind in blocks.values_mut() {
            of_kind.sort_unstable();
        }
        Self {
            image,
            blocks,
            lbns,
        }
    }

    /// Volumes that were saved, that crashed, and that are to be rebuilt; of the original format and with maps.
    fn all() -> Vec<Self> {
        let mut victims = Vec::new();
        for is_upgraded in [false, true] {
            let mut sim = Sim::new(77);
            sim.format(SHAPE);
            sim.start().unwrap();
            let workload = || Workload {
                data: DataMix::ALL,
                ..Workload::new(600)
            };
            sim.work(workload()).unwrap();
            if is_upgraded {
                sim.upgrade(StreamFormat::Zstd).unwrap();
                sim.work(workload()).unwrap();
            }
            let mut rng = Rng::new(78);
            let crashed = sim.disk().crash(&mut rng);
            sim.stop().unwrap();
            let mut rebuilt = sim.disk().contents();
            victims.push(Self::new(crashed));
            victims.push(Self::new(rebuilt.clone()));
            let super_block = SHAPE.data_start;
            let mut victim = Self::new(rebuilt.clone());
            rebuilt.edit(super_block, |block| {
                block[40] = state::FORCE_REBUILD as u8;
                seal(block, 434);
            });
            victim.image = rebuilt;
            victims.push(victim);
        }
        victims
    }
}

/// Makes the checksum right that is at `at`.
fn seal(block: &mut Block, at: usize) {
    let crc = crc32(&block[..at]);
    block[at..at + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Puts a field of a block at an extreme. Returns what it did.
fn damage(block: &mut Block, kind: &str, rng: &mut Rng) -> String {
    let width = *rng.pick(&[1_usize, 2, 4, 8]);
    let end = match kind {
        "geometry" => 89,
        "super block" => 434,
        // Headers more often than what they are of.
        _ => *rng.pick(&[48, 48, 512, 4096]),
    };
    let at = rng.index(end - width);
    let mut old = [0; 8];
    old[..width].copy_from_slice(&block[at..at + width]);
    let old = u64::from_le_bytes(old);
    let bits = 8 * width as u32;
    let top = 1_u64 << (bits - 1);
    let any = rng.next();
    let new = *rng.pick(&[
        0,
        1,
        2,
        top,
        top - 1,
        u64::MAX,
        u64::MAX - 1,
        old.wrapping_add(1),
        old.wrapping_sub(1),
        old ^ 1 << (any % u64::from(bits)),
        old.wrapping_mul(2),
        any,
    ]);
    block[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    match kind {
        "geometry" => seal(block, if block[12] == 5 { 97 } else { 89 }),
        "super block" => seal(block, 434),
        _ => {}
    }
    format!("{kind}: {width} bytes at {at}: {old:#x} -> {new:#x}")
}

/// What became of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Refused,
    ReadOnly,
    Running,
}

/// Uses a volume as if nothing was wrong with it.
fn live(image: Image, lbns: &[u64], rng: &mut Rng) -> Result<Fate, String> {
    let parameters = OpenParameters {
        physical_blocks: None,
        logical_blocks: SHAPE.logical_blocks,
        cache_pages: *rng.pick(&[4, 64]),
        maximum_age_blocks: 4,
        requests: 8,
        index_entries: 64,
        compression: true,
        deduplication: true,
    };
    let mut machine = Machine::new(image, parameters, Latency::FAST, rng);
    let volume = match machine.try_start(|| false)? {
        Started::Running(volume) => volume,
        Started::Failed(_) => return Ok(Fate::Refused),
        Started::Interrupted => return Err("interrupted by nobody".to_string()),
    };
    let was_read_only = volume.store().read_only().is_set();
    let (intake, lbns) = (machine.intake.clone(), lbns.to_vec());
    let mut choice = rng.fork();
    // Errors are as good as answers.
    let used = machine.executor.run(async move {
        for lbn in lbns.iter().take(40) {
            let _ = intake.read(lbn * 8, 4096).await;
        }
        for number in 0..30_u64 {
            let lbn = *choice.pick(&lbns);
            let byte = (number % 5) as u8;
            let _ = intake
                .write(lbn * 8, vec![byte; 4096], number % 7 == 0)
                .await;
            let _ = intake.discard(choice.pick(&lbns) * 8, 4096, false).await;
        }
        let _ = intake.flush().await;
    });
    used.map_err(|stop| format!("use: {stop}"))?;
    // What cannot be saved is read-only from then on, and ends all the same.
    let _ = machine.suspend(&volume, SuspendKind::Save, || false);
    match machine.end(volume) {
        // Two mappings of one block may well be written at the same time.
        Err(error) if !error.starts_with("hazard") => return Err(error),
        _ => {}
    }
    Ok(match was_read_only {
        true => Fate::ReadOnly,
        false => Fate::Running,
    })
}

#[test]
fn no_volume_brings_the_engine_down() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let inputs = number("RVDO_SIM_SEEDS").unwrap_or(INPUTS);
    let seeds = number("RVDO_SIM_SEED").map_or(0..inputs, |seed: u64| seed..seed + 1);
    let victims = Victim::all();
    let mut fates = BTreeMap::<(&str, Fate), u64>::new();
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let victim = rng.pick(&victims);
        let kinds: Vec<_> = victim.blocks.keys().copied().collect();
        let kind = *rng.pick(&kinds);
        let mut image = victim.image.clone();
        let mut what = Vec::new();
        for _ in 0..*rng.pick(&[1, 1, 1, 3]) {
            let block = *rng.pick(&victim.blocks[kind]);
            let mut done = String::new();
            image.edit(block, |block| done = damage(block, kind, &mut rng));
            what.push(format!("block {block}, {done}"));
        }
        let lived = catch_unwind(AssertUnwindSafe(|| live(image, &victim.lbns, &mut rng)));
        match lived {
            Ok(Ok(fate)) => *fates.entry((kind, fate)).or_default() += 1,
            Ok(Err(error)) => panic!("RVDO_SIM_SEED={seed}: {what:?}: {error}"),
            Err(_) => panic!("RVDO_SIM_SEED={seed}: {what:?}: a panic, see above"),
        }
    }
    println!("{fates:?}");
}
