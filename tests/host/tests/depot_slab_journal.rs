// SPDX-License-Identifier: GPL-2.0

//! Slab journals that fill, wrap around, block and are written on demand.

mod depot_world;

use depot_world::{Shape, World, BLOCK};
use rvdo_host::engine::depot::{LoadState, ReferenceUpdate};
use rvdo_host::engine::env::IoError;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::slab_journal::{SlabJournalHeader, FULL_FORM_ENTRIES};
use rvdo_host::engine::units::SequenceNumber;
use rvdo_host::rt::host::alloc::forbidden;
use rvdo_host::sim::disk::{Fault, Kind};

fn tail(world: &World, slab: u64) -> SlabJournalHeader {
    let image = world.disk.contents();
    let block = depot_world::block_of(&image, world.shape.tail_block(&image, slab));
    SlabJournalHeader::decode(&block).unwrap()
}

#[test]
fn a_full_block_is_written_and_covered_by_the_summary() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.store_block();
    assert_eq!(world.locks.held(), [1]);
    world.churn(pbn, BLOCK - 1);
    world.executor.run_until_idle();

    let image = world.disk.contents();
    let summary = world.shape.summary(&image, 0);
    assert_eq!(summary.tail_block_offset, 2);
    assert!(summary.is_dirty && !summary.load_reference_counts);
    let header = tail(&world, 0);
    assert_eq!(header.sequence, SequenceNumber::FIRST);
    assert_eq!(usize::from(header.entry_count), BLOCK);
    assert_eq!(
        header.recovery_point,
        world.ledger.entries.last().unwrap().0
    );
    assert_eq!(world.locks.held(), [0_u64; 0]);
}

#[test]
fn a_block_map_entry_that_does_not_fit_its_form_closes_the_block() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.store_block();
    world.churn(pbn, usize::from(FULL_FORM_ENTRIES) + 1);
    let home = world.depot.allocate().unwrap();
    world
        .apply(home.pbn(), ReferenceUpdate::BlockMapIncrement)
        .unwrap();
    world.executor.run_until_idle();
    let header = tail(&world, 0);
    assert_eq!(
        (header.full_form, header.entry_count),
        (false, FULL_FORM_ENTRIES + 2)
    );

    // The next one takes the full form, and is full earlier.
    world.churn(pbn, usize::from(FULL_FORM_ENTRIES) - 1);
    world.executor.run_until_idle();
    let header = tail(&world, 0);
    assert_eq!(
        (header.sequence.get(), header.full_form, header.entry_count),
        (2, true, FULL_FORM_ENTRIES)
    );
}

#[test]
fn nothing_is_entered_behind_a_full_block_until_it_is_on_its_way() {
    let mut world = World::over(Shape::TINY, Shape::TINY.blank_image(), 1);
    world.load(LoadState::New).unwrap();
    let pbn = world.store_block();
    world.churn(pbn, BLOCK - 1);
    let point = world.ledger.enter(pbn, ReferenceUpdate::Decrement);
    let depot = world.depot.clone();
    // There is no writer yet.
    world.expect_stuck(depot.apply(point, pbn, ReferenceUpdate::Decrement));
    assert_eq!(world.depot.reference_count(pbn), Some(1));
    assert_eq!(
        world
            .store
            .statistics()
            .slab_journal
            .snapshot()
            .tail_busy_count,
        1
    );

    world.start_writers();
    let depot = world.depot.clone();
    world
        .run(depot.apply(point, pbn, ReferenceUpdate::Decrement))
        .unwrap();
    assert_eq!(world.depot.reference_count(pbn), Some(0));
}

#[test]
fn a_journal_that_wraps_around_many_times_keeps_its_counters() {
    let mut world = World::new(Shape::TINY, 1);
    let mut pbns: Vec<_> = (0..40).map(|_| world.store_block()).collect();
    for round in 0..25 {
        let pbn = pbns[round % pbns.len()];
        world.churn(pbn, BLOCK + 1);
        pbns.push(world.store_block());
    }
    world.executor.run_until_idle();
    let header = tail(&world, 0);
    assert!(header.sequence.get() > 3 * world.shape.journal_blocks);
    assert!(
        world
            .shape
            .summary(&world.disk.contents(), 0)
            .load_reference_counts
    );
    let stats = world.store.statistics();
    assert!(stats.slab_journal.snapshot().flush_count > 0);
    assert!(stats.ref_counts.snapshot().blocks_written > 0);
    assert_eq!(world.disk.counts().write_hazards, 0);
    world.check_counters();
    world.restart(2).check_counters();
}

#[test]
fn a_journal_of_two_blocks_works() {
    let mut world = World::new(
        Shape {
            journal_blocks: 2,
            ..Shape::TINY
        },
        1,
    );
    let pbn = world.store_block();
    world.churn(pbn, 7 * BLOCK - 1);
    world.executor.run_until_idle();
    assert!(tail(&world, 0).sequence.get() >= 6);
    let world = world.restart(2);
    world.check_counters();
}

#[test]
fn the_blocking_threshold_holds_until_reference_blocks_are_durable() {
    // Writing reference blocks is what makes room; as long as the device does not, entries wait.
    let shape = Shape::TINY;
    let mut world = World::new(shape, 1);
    let pbn = world.store_block();
    let blocking = shape.config().blocking_threshold as usize;
    world.disk.inject(Fault {
        kind: Kind::Write,
        blocks: shape.reference_block(0, 0)..shape.reference_block(0, 1),
        skip: 0,
        count: u64::MAX,
        error: IoError::Io,
    });
    let result = (0..2 * blocking * BLOCK).try_for_each(|entry| {
        let pin = world.depot.pin_candidate(pbn);
        let update = match entry % 2 {
            0 => ReferenceUpdate::Increment,
            _ => ReferenceUpdate::Decrement,
        };
        let result = world.apply(pbn, update);
        drop(pin);
        result
    });
    assert_eq!(result, Err(Error::ReadOnly));
    let reason = world.store.read_only().reason().unwrap();
    assert_eq!(reason.error, Error::Io(IoError::Io));
    assert!(world.ledger.entries.len() <= blocking * BLOCK + 1);
}

#[test]
fn a_commit_that_is_asked_for_releases_the_recovery_journal() {
    let shape = Shape {
        slabs: 4,
        slab_bits: 8,
        ..Shape::TINY
    };
    let mut world = World::new(shape, 1);
    // One block in each slab, from different blocks of the recovery journal.
    let per_slab = shape.config().data_blocks;
    for _ in 0..4 * per_slab {
        world.store_block();
    }
    let held = world.locks.held();
    assert!(held.len() >= 3, "{held:?}");
    let depot = world.depot.clone();
    let up_to = SequenceNumber::new(held[1]).unwrap();
    world.run(async move { depot.commit_oldest(up_to).await });
    assert_eq!(world.locks.held(), held[2..]);
    assert!(world.shape.summary(&world.disk.contents(), 0).is_dirty);

    // The slab goes on in its next block.
    let pbn = shape.pbn(0, 0);
    world.increment(pbn);
    world.executor.run_until_idle();
    assert!(world.locks.held().len() >= 2);
    let world = world.restart(2);
    world.check_counters();
}

#[test]
fn nothing_follows_a_partial_block_until_the_summary_covers_it() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.store_block();
    let pin = world.depot.pin_candidate(pbn).unwrap();
    let depot = world.depot.clone();
    let commit = async move { depot.commit_oldest(SequenceNumber::new(1).unwrap()).await };
    let mut entered_early = false;
    let point = world.ledger.enter(pbn, ReferenceUpdate::Decrement);
    let depot = world.depot.clone();
    world.executor.clock().spawn(commit);
    // Step until the journal block has been handed to the device.
    let disk = world.disk.clone();
    let writes = disk.counts().writes;
    let moved = disk.clone();
    let _ = world
        .executor
        .run_until(std::future::pending::<()>(), move || {
            moved.counts().writes > writes
        });
    let shape = world.shape;
    let apply = depot.apply(point, pbn, ReferenceUpdate::Decrement);
    let counting = world.depot.clone();
    let seen = disk.clone();
    let result = world.executor.run_until(apply, || {
        let covered = shape.summary(&seen.contents(), 0).tail_block_offset == 2;
        entered_early |= !covered && counting.reference_count(pbn) != Some(1);
        false
    });
    assert_eq!(result, Ok(Ok(())));
    assert!(!entered_early);
    assert_eq!(
        world
            .store
            .statistics()
            .slab_journal
            .snapshot()
            .tail_busy_count,
        1
    );
    drop(pin);
    assert_eq!(world.depot.reference_count(pbn), Some(0));
}

#[test]
fn a_depot_that_was_saved_has_nothing_left_to_write() {
    let mut world = World::new(Shape::SMALL, 1);
    let pbns: Vec<_> = (0..20).map(|_| world.store_block()).collect();
    world.decrement(pbns[3]);
    world.drain().unwrap();
    let writes = world.disk.counts().writes;
    let summary = world.shape.summary(&world.disk.contents(), 0);
    assert!(summary.load_reference_counts && !summary.is_dirty);
    assert!(
        !world
            .shape
            .summary(&world.disk.contents(), 1)
            .load_reference_counts
    );
    world.drain().unwrap();
    assert_eq!(world.disk.counts().writes, writes);

    // It can be used again after that, and is dirty then.
    world.increment(pbns[0]);
    let depot = world.depot.clone();
    world.run(async move { depot.commit_oldest(SequenceNumber::new(9).unwrap()).await });
    assert!(world.shape.summary(&world.disk.contents(), 0).is_dirty);
    let world = world.restart(2);
    assert_eq!(world.depot.allocated_blocks(), 19);
    world.check_counters();
}

#[test]
fn writers_end_when_stopped_after_what_they_have_to_do() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.store_block();
    world.churn(pbn, BLOCK - 1);
    world.depot.stop();
    world.executor.run_until_idle();
    assert_eq!(world.executor.tasks(), 0);
    assert_eq!(world.locks.held(), [0_u64; 0]);
}

#[test]
fn nothing_is_allocated_while_the_depot_is_used() {
    let mut world = World::new(Shape::TINY, 1);
    world.executor.run_until_idle();
    forbidden(|| {
        for _ in 0..100 {
            world.store_block();
        }
        let pbn = world.store_block();
        world.churn(pbn, 12 * BLOCK);
        world.drain().unwrap();
    });
}

#[test]
fn a_failed_write_ends_everything_that_waits() {
    for skip in 0..6 {
        let mut world = World::new(Shape::TINY, 1);
        let pbn = world.store_block();
        world.churn(pbn, 2 * (BLOCK / 2));
        let failing = Fault {
            kind: Kind::Write,
            blocks: 0..u64::MAX,
            skip,
            count: 1,
            error: IoError::Removed,
        };
        world.disk.inject(failing);
        let result = world.drain();
        if world.store.read_only().is_set() {
            assert_eq!(result, Err(Error::ReadOnly), "skip {skip}");
        } else {
            assert_eq!(result, Ok(()), "skip {skip}");
        }
        assert_eq!(world.store.read_only().is_set(), skip < 4, "skip {skip}");
        // Nobody waits for ever.
        let depot = world.depot.clone();
        world.run(async move { depot.commit_oldest(SequenceNumber::new(99).unwrap()).await });
    }
}
