// SPDX-License-Identifier: GPL-2.0

//! Power failures at any moment of a depot's life: whatever the disk has kept, recovery finds every reference.

mod depot_world;

use depot_world::{recovery, Ledger, Shape, World, ENTRIES_PER_BLOCK};
use rvdo_host::engine::depot::{Pin, ReferenceUpdate};
use rvdo_host::engine::units::{Pbn, SequenceNumber};
use rvdo_host::sim::disk::Latency;
use rvdo_host::sim::rng::Rng;

/// What one run is like.
#[derive(Clone, Copy)]
struct Run {
    shape: Shape,
    entries: usize,
    /// How often, in a thousand steps of the executor, power fails.
    crash_permille: u32,
    /// How often, in a thousand entries, the recovery journal asks for a commit.
    commit_permille: u32,
    /// How often, in a hundred entries, a block of the block map is allocated.
    block_map_percent: u32,
    /// Blocks that have a reference when it begins.
    stored: usize,
    /// How often, in a hundred entries, the next one comes a while later. The disk does little otherwise until a journal is full.
    pause_percent: u32,
}

/// The next thing to happen to a reference, and the guards that it needs.
fn pick(
    world: &mut World,
    live: &mut Vec<Pbn>,
    ledger: &Ledger,
    run: &Run,
) -> (Pbn, ReferenceUpdate, Option<Pin>) {
    loop {
        let choice = world.rng.below(100);
        if choice < u64::from(run.block_map_percent) {
            if let Ok(home) = world.depot.allocate() {
                let pbn = home.pbn();
                // The pin keeps it until its reference is counted.
                return (
                    pbn,
                    ReferenceUpdate::BlockMapIncrement,
                    Some(home.into_pin()),
                );
            }
        } else if choice < 45 || live.is_empty() {
            if let Ok(home) = world.depot.allocate() {
                let pin = home.into_pin();
                assert!(pin.claim());
                live.push(pin.pbn());
                return (pin.pbn(), ReferenceUpdate::Increment, Some(pin));
            }
        } else if choice < 55 {
            let pbn = *world.rng.pick(live);
            let pin = world.depot.pin_candidate(pbn).filter(Pin::claim);
            if pin.is_some() {
                return (pbn, ReferenceUpdate::Increment, pin);
            }
        } else {
            let index = world.rng.index(live.len());
            let pbn = live[index];
            if ledger.count(pbn) == 1 {
                live.swap_remove(index);
            }
            return (pbn, ReferenceUpdate::Decrement, None);
        }
        if live.is_empty() {
            panic!("full of block map pages");
        }
    }
}

/// Runs a workload, tries power failures all along, and returns how many.
fn crash(run: Run, seed: u64) -> u64 {
    let mut world = World::new(run.shape, seed);
    world.disk.set_latency(Latency {
        min: 1,
        max: 40,
        slow_permille: 20,
        slow_max: 400,
    });
    let mut ledger = Ledger::default();
    let mut live = Vec::new();
    let mut crashes = 0;
    let mut crash_rng = Rng::new(seed ^ 0xc4a5);
    for _ in 0..run.stored {
        live.push(world.store_block());
    }
    ledger.clone_from(&world.ledger);
    for _ in 0..run.entries {
        if world.rng.permille(run.commit_permille) {
            let depot = world.depot.clone();
            let newest = 1 + ledger.entries.len() as u64 / u64::from(ENTRIES_PER_BLOCK);
            // What was stored before is on disk long since.
            let oldest = match run.stored {
                0 => 1,
                _ => newest,
            };
            let up_to = SequenceNumber::new(world.rng.between(oldest, newest)).unwrap();
            world
                .executor
                .clock()
                .spawn(async move { depot.commit_oldest(up_to).await });
        }
        let (pbn, update, pin) = pick(&mut world, &mut live, &ledger, &run);
        // Durable in the recovery journal from here on.
        let point = ledger.enter(pbn, update);
        let depot = world.depot.clone();
        let (disk, shape) = (world.disk.clone(), run.shape);
        let clock = world.executor.clock();
        let pause = match world.rng.percent(run.pause_percent) {
            true => world.rng.between(1, 20),
            false => 0,
        };
        let apply = async {
            if pause > 0 {
                clock.sleep(pause).await;
            }
            depot.apply(point, pbn, update).await
        };
        let result = world.executor.run_until(apply, || {
            if crash_rng.permille(run.crash_permille) {
                crashes += 1;
                let image = disk.crash(&mut crash_rng);
                if let Err(what) = recovery::check(&shape, &image, &ledger) {
                    panic!("seed {seed}, crash {crashes}: {what}");
                }
            }
            false
        });
        result
            .unwrap_or_else(|stop| panic!("seed {seed}: {stop}"))
            .unwrap();
        drop(pin);
    }
    world.ledger = ledger.clone();
    world.check_counters();
    // Power may fail while the depot is saved, too.
    let depot = world.depot.clone();
    let (disk, shape) = (world.disk.clone(), run.shape);
    let result = world
        .executor
        .run_until(async move { depot.drain().await }, || {
            if crash_rng.permille(100) {
                crashes += 1;
                let image = disk.crash(&mut crash_rng);
                if let Err(what) = recovery::check(&shape, &image, &ledger) {
                    panic!("seed {seed}, crash {crashes} while saving: {what}");
                }
            }
            false
        });
    result
        .unwrap_or_else(|stop| panic!("seed {seed}: {stop}"))
        .unwrap();
    assert_eq!(world.disk.counts().write_hazards, 0, "seed {seed}");
    let used = world.ledger.used();
    let world = world.restart(seed);
    world.check_counters();
    assert_eq!(world.depot.allocated_blocks(), used, "seed {seed}");
    crashes
}

#[test]
fn every_reference_survives_a_power_failure() {
    // Journals so short that they are full, wrap and are emptied again and again.
    let run = |journal_blocks| Run {
        shape: Shape {
            slab_bits: 8,
            slabs: 1,
            journal_blocks,
            zone_count: 0,
        },
        entries: 12 * depot_world::BLOCK,
        crash_permille: 4,
        commit_permille: 1,
        block_map_percent: 0,
        stored: 0,
        pause_percent: 0,
    };
    let crashes: u64 = (1..=3)
        .map(|seed| crash(run(2), seed) + crash(run(8), seed))
        .sum();
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn every_reference_survives_in_several_slabs_with_many_commits() {
    let run = Run {
        shape: Shape {
            slab_bits: 8,
            slabs: 3,
            journal_blocks: 8,
            zone_count: 0,
        },
        entries: 1500,
        crash_permille: 20,
        commit_permille: 60,
        block_map_percent: 1,
        stored: 0,
        pause_percent: 0,
    };
    let crashes: u64 = (1..=40).map(|seed| crash(run, seed)).sum();
    assert!(crashes > 100, "{crashes}");
}

#[test]
fn every_reference_survives_in_several_reference_blocks() {
    // 8192 blocks are two reference blocks with sixteen commit points; a long history of partial blocks.
    let run = Run {
        shape: Shape {
            slab_bits: 13,
            slabs: 1,
            journal_blocks: 16,
            zone_count: 0,
        },
        entries: 4000,
        crash_permille: 10,
        commit_permille: 100,
        block_map_percent: 1,
        stored: 0,
        pause_percent: 0,
    };
    let crashes: u64 = (1..=10).map(|seed| crash(run, seed)).sum();
    assert!(crashes > 50, "{crashes}");
}

/// W5, W11: more reference blocks are written together than there are pages for, so some are copied long after the summary was
/// written that covers a journal block with room left. Their commit points name entries of the block after that.
#[test]
fn every_reference_survives_in_more_reference_blocks_than_are_written_at_a_time() {
    let run = Run {
        shape: Shape {
            slab_bits: 16,
            slabs: 1,
            journal_blocks: 8,
            zone_count: 0,
        },
        entries: 1_000,
        crash_permille: 30,
        commit_permille: 40,
        block_map_percent: 0,
        stored: 62_000,
        pause_percent: 60,
    };
    let crashes: u64 = (1..=4).map(|seed| crash(run, seed)).sum();
    assert!(crashes > 50, "{crashes}");
}
