// SPDX-License-Identifier: GPL-2.0

//! Volumes that did not crash by themselves: their journals are damaged by hand, their states set.

use std::collections::BTreeMap;
use std::sync::Arc;

use rvdo_host::engine::env::RequestError;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::volume::{OpenParameters, SuspendKind, Volume};
use rvdo_host::sim::audit::decode::{crc32, u16_at, u64_at};
use rvdo_host::sim::audit::journal::Journal;
use rvdo_host::sim::audit::volume::Volume as OnDisk;
use rvdo_host::sim::audit::{audit, Findings, Strictness};
use rvdo_host::sim::crash::Machine;
use rvdo_host::sim::disk::Latency;
use rvdo_host::sim::env::SimEnv;
use rvdo_host::sim::image::{Block, Blocks, Image};
use rvdo_host::sim::mkfs::Shape;
use rvdo_host::sim::rng::Rng;

const SHAPE: Shape = Shape {
    slab_blocks: 1 << 11,
    slabs: 2,
    slab_journal_blocks: 16,
    journal_blocks: 32,
    logical_blocks: 4_000,
    ..Shape::SMALL
};

const DIRTY: u32 = 0;
const CLEAN: u32 = 2;
const READ_ONLY: u32 = 3;
const FORCE_REBUILD: u32 = 4;
const RECOVERING: u32 = 5;
const REPLAYING: u32 = 6;
const REBUILD_FOR_UPGRADE: u32 = 7;

fn parameters() -> OpenParameters {
    OpenParameters {
        physical_blocks: None,
        logical_blocks: SHAPE.logical_blocks,
        cache_pages: 64,
        maximum_age_blocks: 10,
        requests: 16,
        index_entries: 64,
        compression: false,
        deduplication: false,
    }
}

fn machine(image: Image) -> Machine {
    Machine::new(image, parameters(), Latency::FAST, &mut Rng::new(7))
}

/// What is written to `lbn` by write number `number`.
fn data(lbn: u64, number: u64) -> Block {
    let mut block = [0x5a; 4096];
    block[..8].copy_from_slice(&lbn.to_le_bytes());
    block[8..16].copy_from_slice(&number.to_le_bytes());
    block
}

/// A volume that was used and whose power failed: `writes` blocks one after the other, `lbn(number)` each. Everything that a
/// completed write has on the disk is durable.
fn crashed(writes: u64, lbn: impl Fn(u64) -> u64) -> Image {
    let mut machine = machine(SHAPE.format());
    let _volume = machine.start(|| false).unwrap().unwrap();
    for number in 0..writes {
        let lbn = lbn(number);
        let intake = machine.intake.clone();
        let written = machine.executor.run(async move {
            intake
                .write(lbn * 8, data(lbn, number).to_vec(), true)
                .await
        });
        written.unwrap().unwrap();
    }
    machine.disk.contents()
}

fn super_block(image: &Image) -> Arc<Block> {
    image.block(SHAPE.data_start)
}

fn state(image: &Image) -> u32 {
    u32::from_le_bytes(super_block(image)[40..44].try_into().unwrap())
}

fn recoveries(image: &Image) -> (u64, u64) {
    let block = super_block(image);
    (u64_at(&block[..], 44), u64_at(&block[..], 52))
}

fn set_state(image: &mut Image, state: u32) {
    image.edit(SHAPE.data_start, |block| {
        block[40..44].copy_from_slice(&state.to_le_bytes());
        let crc = crc32(&block[..434]);
        block[434..438].copy_from_slice(&crc.to_le_bytes());
    });
}

fn journal_block(sequence: u64) -> u64 {
    SHAPE.physical_blocks() - 64 - SHAPE.journal_blocks + sequence % SHAPE.journal_blocks
}

/// The number of the newest block of the journal.
fn newest(image: &Image) -> u64 {
    let mut findings = Findings::default();
    let volume = OnDisk::open(image, &mut findings).unwrap();
    Journal::of_crashed(&volume, &mut findings).highest
}

/// What an auditor finds each block to hold that has data.
fn contents(image: &Image) -> BTreeMap<u64, Block> {
    let audit = audit(image, Strictness::OURS).unwrap_or_else(|findings| panic!("{findings}"));
    let lbns: Vec<u64> = audit.forest.mappings.keys().copied().collect();
    lbns.into_iter()
        .map(|lbn| (lbn, *audit.data(lbn).unwrap()))
        .collect()
}

/// Starts the volume, waits until it is scrubbed, saves it.
fn recover(image: Image) -> Image {
    let mut machine = machine(image);
    let volume = machine.start(|| false).unwrap().unwrap();
    machine.scrub(&volume).unwrap();
    assert!(machine
        .suspend(&volume, SuspendKind::Save, || false)
        .unwrap());
    machine.end(volume).unwrap();
    machine.disk.contents()
}

/// How a start that does not succeed ends, and what is on the disk then.
fn start(image: Image) -> (Result<rvdo_host::rt::Arc<Volume<SimEnv>>, Error>, Machine) {
    let mut machine = machine(image);
    let env = machine.env();
    let started = machine.executor.run(async move {
        let volume = Volume::open(env, parameters()).await?;
        Volume::resume(&volume).await?;
        Ok(volume)
    });
    (started.unwrap(), machine)
}

#[test]
fn a_whole_journal_brings_everything_back() {
    for state_number in [DIRTY, REPLAYING] {
        let mut image = crashed(700, |number| number);
        set_state(&mut image, state_number);
        let newest = newest(&image);
        assert!(newest >= 4, "{newest}");
        let recovered = recover(image);
        assert_eq!(state(&recovered), CLEAN);
        assert_eq!(recoveries(&recovered), (1, 0));
        // The journal goes on behind its newest block.
        assert_eq!(u64_at(&super_block(&recovered)[..], 265), newest + 1);
        let expected: BTreeMap<_, _> = (0..700).map(|lbn| (lbn, data(lbn, lbn))).collect();
        assert!(contents(&recovered) == expected);
    }
}

#[test]
fn a_replay_ends_at_a_hole() {
    let mut image = crashed(800, |number| number);
    let newest = newest(&image);
    assert!(newest >= 4);
    image.edit(journal_block(3), |block| block.fill(0));
    let recovered = recover(image);
    // Entries of the first two blocks, of which a few are for pages of the map.
    let found = contents(&recovered);
    let count = found.len() as u64;
    assert!((400..=2 * 217).contains(&count), "{count}");
    for (lbn, block) in &found {
        assert!(*block == data(*lbn, *lbn), "lbn {lbn}");
    }
    assert!(found.keys().copied().eq(0..count));
    assert_eq!(u64_at(&super_block(&recovered)[..], 265), newest + 1);
}

#[test]
fn a_replay_ends_at_a_torn_sector() {
    for (sector, bytes) in [(3, 0..512), (7, 0..1), (2, 1..2), (4, 2..3)] {
        let mut image = crashed(500, |number| number);
        image.edit(journal_block(2), |block| {
            for byte in &mut block[sector * 512..][bytes.clone()] {
                *byte ^= 0x49;
            }
        });
        let found = contents(&recover(image));
        let count = found.len() as u64;
        let most = 217 + 31 * (sector as u64 - 1);
        assert!(
            (most - 20..=most).contains(&count),
            "sector {sector}: {count}"
        );
        assert!(found.keys().copied().eq(0..count), "sector {sector}");
    }
}

#[test]
fn entries_of_an_earlier_recovery_do_not_count() {
    let image = crashed(300, |number| number);
    let mut recovered = recover(image);
    let expected = contents(&recovered);
    // As if it had crashed right after the start: the journal is full of valid looking blocks.
    set_state(&mut recovered, DIRTY);
    let again = recover(recovered);
    assert!(contents(&again) == expected);
    assert_eq!(recoveries(&again), (2, 0));
}

#[test]
fn the_newest_heads_count_wherever_they_are() {
    // The journal has gone around: blocks of the second round come first.
    let image = crashed(217 * 40, |number| number % 600);
    let newest = newest(&image);
    assert!(newest > SHAPE.journal_blocks, "{newest}");
    let expected = contents(&recover(image.clone()));
    // Make every block but one claim that the journal begins where it began long ago.
    for survivor in [newest, newest - 1] {
        let mut old_heads = image.clone();
        let heads = image.block(journal_block(newest));
        let oldest = newest - SHAPE.journal_blocks + 1;
        for sequence in oldest..=newest {
            old_heads.edit(journal_block(sequence), |block| {
                let head = if sequence == survivor {
                    u64_at(&heads[..], 0)
                } else {
                    1
                };
                block[..8].copy_from_slice(&head.to_le_bytes());
                let head = if sequence == survivor {
                    u64_at(&heads[..], 8)
                } else {
                    1
                };
                block[8..16].copy_from_slice(&head.to_le_bytes());
            });
        }
        assert!(contents(&recover(old_heads)) == expected, "{survivor}");
    }
}

/// Makes the newest block of the journal one of the old format with one entry.
fn make_old(image: &mut Image, sequence: u64) {
    image.edit(journal_block(sequence), |block| {
        block[32] = 1;
        block[33..35].copy_from_slice(&1_u16.to_le_bytes());
        block[514] = 1;
    });
}

#[test]
fn an_old_journal_is_refused_with_the_cure_and_nothing_is_changed() {
    let mut image = crashed(30, |number| number);
    make_old(&mut image, 1);
    let before = super_block(&image);
    let (started, machine) = start(image);
    let Err(Error::Unsupported(text)) = started else {
        panic!("started, or failed otherwise");
    };
    assert!(text.contains("release"), "{text}");
    assert!(!text.contains("rebuild"), "{text}");
    assert_eq!(super_block(&machine.disk.contents()), before);
}

#[test]
fn an_old_journal_does_not_matter_on_a_saved_volume() {
    let mut recovered = recover(crashed(30, |number| number));
    let expected = contents(&recovered);
    make_old(&mut recovered, 1);
    let (started, _machine) = start(recovered.clone());
    assert!(started.is_ok());
    assert!(contents(&recover(recovered)) == expected);
}

#[test]
fn contradictions_make_a_volume_read_only_and_say_why() {
    let damage: [(&str, &dyn Fn(&mut Block)); 3] = [
        // The page of the first entry is the super block.
        ("entry", &|block| {
            block[512 + 5..512 + 9].copy_from_slice(&(SHAPE.data_start as u32).to_le_bytes());
        }),
        // A block that is mapped lies in the journal.
        ("mapping", &|block| {
            let pbn = journal_block(0) as u32;
            block[512 + 3 + 16 * 29 + 7..][..4].copy_from_slice(&pbn.to_le_bytes());
        }),
        ("heads", &|block| {
            block[..8].copy_from_slice(&1_000_u64.to_le_bytes());
            block[8..16].copy_from_slice(&1_000_u64.to_le_bytes());
        }),
    ];
    for (what, damage) in damage {
        let mut image = crashed(100, |number| number);
        assert!(u16_at(&image.block(journal_block(1))[..], 33) > 40);
        image.edit(journal_block(1), damage);
        let (started, mut machine) = start(image);
        let volume = started.unwrap_or_else(|error| panic!("{what}: {error}"));
        let reason = volume.store().read_only().reason().expect(what);
        assert!(
            matches!(reason.error, Error::Corrupt(_) | Error::Format(_)),
            "{what}: {reason:?}"
        );
        let intake = machine.intake.clone();
        let written = machine
            .executor
            .run(async move { intake.write(0, vec![1; 4096], false).await });
        assert_eq!(written.unwrap(), Err(RequestError::ReadOnly), "{what}");
        let intake = machine.intake.clone();
        let read = machine
            .executor
            .run(async move { intake.read(0, 4096).await });
        assert!(read.unwrap().is_ok(), "{what}");
        assert_eq!(state(&machine.disk.contents()), READ_ONLY, "{what}");
    }
}

#[test]
fn a_read_only_volume_comes_up_and_can_be_read() {
    let mut image = recover(crashed(300, |number| number));
    set_state(&mut image, READ_ONLY);
    let before = super_block(&image);
    let (started, mut machine) = start(image);
    let volume = started.unwrap();
    assert!(volume.store().read_only().is_set());
    let intake = machine.intake.clone();
    let read = machine
        .executor
        .run(async move { intake.read(17 * 8, 4096).await });
    assert_eq!(read.unwrap().unwrap(), data(17, 17).to_vec());
    for discard in [false, true] {
        let intake = machine.intake.clone();
        let answer = machine.executor.run(async move {
            match discard {
                true => intake.discard(0, 4096, false).await,
                false => intake.write(0, vec![1; 4096], false).await,
            }
        });
        assert_eq!(answer.unwrap(), Err(RequestError::ReadOnly));
    }
    machine
        .suspend(&volume, SuspendKind::Save, || false)
        .unwrap();
    machine.end(volume).unwrap();
    assert_eq!(super_block(&machine.disk.contents()), before);
}

#[test]
fn a_volume_saved_while_recovering_is_a_saved_one() {
    let mut image = recover(crashed(300, |number| number));
    let expected = contents(&image);
    set_state(&mut image, RECOVERING);
    let recovered = recover(image);
    assert_eq!((state(&recovered), recoveries(&recovered)), (CLEAN, (1, 0)));
    assert!(contents(&recovered) == expected);
}

#[test]
fn a_rebuild_makes_everything_anew() {
    for (state_number, counts) in [(FORCE_REBUILD, (1, 1)), (REBUILD_FOR_UPGRADE, (0, 0))] {
        let mut image = crashed(700, |number| number % 650);
        set_state(&mut image, state_number);
        // Nothing in the slabs' metadata or in the summary can be believed.
        let noise: Arc<Block> = Arc::new(std::array::from_fn(|byte| (byte * 13 + 5) as u8));
        let slabs = SHAPE.physical_blocks() - 64 - SHAPE.journal_blocks - 2 * SHAPE.slab_blocks;
        for slab in 0..2 {
            for block in SHAPE.data_blocks()..SHAPE.slab_blocks {
                image.put(slabs + slab * SHAPE.slab_blocks + block, noise.clone());
            }
        }
        for block in 0..64 {
            image.put(SHAPE.physical_blocks() - 64 + block, noise.clone());
        }
        let rebuilt = recover(image);
        assert_eq!(state(&rebuilt), CLEAN);
        assert_eq!(recoveries(&rebuilt), counts);
        let expected: BTreeMap<_, _> = (0..650)
            .map(|lbn| (lbn, data(lbn, if lbn < 50 { lbn + 650 } else { lbn })))
            .collect();
        assert!(contents(&rebuilt) == expected);
        // And it can be used again.
        assert!(contents(&recover(rebuilt)) == expected);
    }
}

#[test]
fn a_rebuild_unmaps_what_cannot_be() {
    let mut image = recover(crashed(700, |number| number));
    set_state(&mut image, FORCE_REBUILD);
    let leaf = first_leaf(&image);
    image.edit(leaf, |page| {
        // Unmapped with a block, a block in the journal, a block of the map, a block beyond everything.
        page[36..41].copy_from_slice(&[0, 9, 0, 0, 0]);
        let journal = (journal_block(0) as u32).to_le_bytes();
        page[41] = 1;
        page[42..46].copy_from_slice(&journal);
        page[46] = 1;
        page[47..51].copy_from_slice(&(leaf as u32).to_le_bytes());
        page[51..56].copy_from_slice(&[0xf1, 0xff, 0xff, 0xff, 0xff]);
    });
    let rebuilt = recover(image);
    let found = contents(&rebuilt);
    assert_eq!(found.len() as u64, 700 - 4);
    for (lbn, block) in &found {
        assert!(*lbn >= 4 && *block == data(*lbn, *lbn), "lbn {lbn}");
    }
}

/// The leaf page of the first logical block.
fn first_leaf(image: &Image) -> u64 {
    // In the first entry of the root page of the first tree, and so on down to level 0.
    let mut page = SHAPE.data_start + 1;
    for _ in 0..4 {
        let block = image.block(page);
        page = u64::from(u32::from_le_bytes(block[37..41].try_into().unwrap()));
    }
    page
}

/// The kernel's stack has 16 KiB, and the future of a load is on it.
#[test]
fn a_load_is_small() {
    let mut machine = machine(SHAPE.format());
    let env = machine.env();
    let volume = machine
        .executor
        .run(Volume::open(env, parameters()))
        .unwrap()
        .unwrap();
    let size = std::mem::size_of_val(&Volume::resume(&volume));
    assert!(size < 2048, "{size}");
    volume.stop();
}
