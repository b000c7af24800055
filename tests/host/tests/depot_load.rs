// SPDX-License-Identifier: GPL-2.0

//! What a depot makes of what it finds on the disk.

mod depot_world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use depot_world::{sbn, Ledger, Shape, World, BLOCK, NONCE};
use rvdo_host::engine::depot::{LoadState, ReferenceUpdate};
use rvdo_host::engine::env::IoError;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{self, SlabJournalEntry};
use rvdo_host::engine::format::slab_summary::fullness_hint;
use rvdo_host::engine::units::{JournalPoint, Nonce, SequenceNumber};
use rvdo_host::sim::disk::{Fault, Kind};
use rvdo_host::sim::image::{Blocks, Image};

/// A saved depot whose slab 0 has journal blocks 1 and 2, and some references.
fn saved(shape: Shape) -> (Image, Ledger) {
    let mut world = World::new(shape, 7);
    let pbns: Vec<_> = (0..60).map(|_| world.store_block()).collect();
    for pbn in &pbns[..20] {
        world.increment(*pbn);
    }
    for pbn in &pbns[40..] {
        world.decrement(*pbn);
    }
    world.churn(pbns[0], BLOCK + 1);
    world.drain().unwrap();
    (world.disk.contents(), world.ledger)
}

/// A depot that was not saved: its journal is on disk, its counters are not, or are of different ages.
fn unsaved(shape: Shape) -> (Image, Ledger) {
    let (image, ledger) = saved(shape);
    let mut world = World::reopened(shape, image, 8).unwrap();
    world.ledger = ledger;
    for _ in 0..10 {
        world.store_block();
    }
    world.decrement(shape.pbn(0, 0));
    let depot = world.depot.clone();
    world.run(async move {
        depot
            .commit_oldest(SequenceNumber::new(1 << 40).unwrap())
            .await
    });
    world.executor.run_until_idle();
    let image = world.disk.contents();
    assert!(shape.summary(&image, 0).is_dirty);
    (image, world.ledger)
}

fn refused(shape: Shape, image: Image) -> Error {
    match World::reopened(shape, image, 9) {
        Ok(_) => panic!("loaded"),
        Err(error) => error,
    }
}

#[test]
fn a_saved_depot_comes_back_as_it_was() {
    let (image, ledger) = saved(Shape::SMALL);
    let summary = Shape::SMALL.summary(&image, 0);
    let free = Shape::SMALL.config().data_blocks - ledger.used();
    assert_eq!(summary.fullness_hint, fullness_hint(free, 13));
    let mut world = World::reopened(Shape::SMALL, image, 8).unwrap();
    world.ledger = ledger;
    world.check_counters();
    assert_eq!(world.depot.allocated_blocks(), world.ledger.used());
    // Reading is all that a clean slab needs.
    assert_eq!(
        world
            .store
            .statistics()
            .ref_counts
            .snapshot()
            .blocks_written,
        0
    );
    assert_eq!(
        world
            .store
            .statistics()
            .slab_journal
            .snapshot()
            .blocks_written,
        0
    );
    world.restart(9).check_counters();
}

#[test]
fn a_new_depot_looks_at_nothing_on_the_disk() {
    let (image, _) = saved(Shape::SMALL);
    let mut world = World::over(Shape::SMALL, image, 8);
    world.load(LoadState::New).unwrap();
    assert_eq!(world.depot.allocated_blocks(), 0);
    for copy in 0..16 {
        let entry = world.shape.summary_copy(&world.disk.contents(), copy, 0);
        assert!(entry.has_blank_journal() && !entry.is_dirty, "copy {copy}");
        assert_eq!(
            entry.fullness_hint,
            fullness_hint(world.shape.config().data_blocks, 13)
        );
        // Slabs that a later growth may add.
        assert_eq!(
            world.shape.summary_copy(&world.disk.contents(), copy, 8191),
            entry
        );
    }
}

#[test]
fn a_dirty_slab_is_scrubbed() {
    let shape = Shape::SMALL;
    let (image, ledger) = unsaved(shape);
    let old = World::reopened(shape, image.clone(), 9).unwrap();
    let mut world = old;
    world.ledger = ledger;
    world.check_counters();
    let image = world.disk.contents();
    let summary = shape.summary(&image, 0);
    assert!(!summary.is_dirty && summary.load_reference_counts);
    assert_eq!(
        summary.fullness_hint,
        fullness_hint(shape.config().data_blocks - world.ledger.used(), 13)
    );
    // Only what differed was written.
    assert_eq!(
        world
            .store
            .statistics()
            .ref_counts
            .snapshot()
            .blocks_written,
        1
    );

    // What scrubbing wrote is enough: without the writers, open once more.
    let mut again = World::reopened(shape, image, 10).unwrap();
    again.ledger = world.ledger.clone();
    again.check_counters();
    assert_eq!(
        again
            .store
            .statistics()
            .ref_counts
            .snapshot()
            .blocks_written,
        0
    );
    // And it can be used.
    again.store_block();
    again.restart(11).check_counters();
}

#[test]
fn a_dirty_slab_without_counters_on_disk_comes_out_of_its_journal() {
    let shape = Shape::SMALL;
    let mut world = World::new(shape, 7);
    for _ in 0..30 {
        world.store_block();
    }
    let depot = world.depot.clone();
    world.run(async move { depot.commit_oldest(SequenceNumber::new(1).unwrap()).await });
    let mut image = world.disk.contents();
    assert!(!shape.summary(&image, 0).load_reference_counts);
    // Garbage that must not be looked at.
    let reference_blocks = shape.config().used_reference_blocks();
    for block in 0..reference_blocks {
        image.edit(shape.reference_block(0, block), |data| data.fill(3));
    }
    let mut again = World::reopened(shape, image, 8).unwrap();
    again.ledger = world.ledger;
    again.check_counters();
    assert_eq!(
        again
            .store
            .statistics()
            .ref_counts
            .snapshot()
            .blocks_written,
        reference_blocks
    );
    again.restart(9).check_counters();
}

#[test]
fn a_torn_reference_block_is_made_whole() {
    let shape = Shape::SMALL;
    let (mut image, ledger) = unsaved(shape);
    // Sectors of the block that was to be written next, with a commit point further on than the others'.
    let world = World::reopened(shape, image.clone(), 9).unwrap();
    let newer = world.disk.contents().block(shape.reference_block(0, 0));
    image.edit(shape.reference_block(0, 0), |data| {
        data[..512].copy_from_slice(&newer[..512])
    });
    let points = reference_block::commit_points(&image.block(shape.reference_block(0, 0)));
    assert!(reference_block::is_torn(&points));
    let mut world = World::reopened(shape, image, 10).unwrap();
    world.ledger = ledger;
    world.check_counters();
}

#[test]
fn entries_of_several_zones_come_from_their_own_copies() {
    let shape = Shape {
        slabs: 5,
        ..Shape::TINY
    };
    let mut world = World::new(shape, 7);
    for _ in 0..world.depot.data_blocks() - 30 {
        world.store_block();
    }
    world.drain().unwrap();
    let mut image = world.disk.contents();
    let shape = Shape {
        zone_count: 3,
        ..shape
    };
    for slab in 0..5 {
        let entry = shape.summary(&image, slab);
        for copy in 0..16 {
            let right = copy as u64 == slab % 3;
            shape.edit_summary_copy(&mut image, copy, slab, |stored| {
                *stored = entry;
                if !right {
                    stored.tail_block_offset = 77;
                    stored.is_dirty = true;
                }
            });
        }
    }
    let mut again = World::reopened(shape, image, 8).unwrap();
    again.ledger = world.ledger;
    again.check_counters();
    let image = again.disk.contents();
    for slab in 0..5 {
        for copy in 1..16 {
            assert_eq!(
                shape.summary_copy(&image, copy, slab),
                shape.summary(&image, slab)
            );
        }
    }
    assert_eq!(again.depot.zone_count(), 1);
}

#[test]
fn the_slabs_of_a_forced_rebuild_have_counters_and_a_blank_journal() {
    let shape = Shape::TINY;
    let (mut image, ledger) = saved(shape);
    for position in 0..shape.journal_blocks {
        image.edit(shape.journal_block(0, position), |data| data.fill(0));
    }
    shape.edit_summary(&mut image, 0, |entry| entry.tail_block_offset = 0);
    image.edit(shape.reference_block(0, 0), |data| {
        for sector in data.chunks_mut(512) {
            sector[..8].fill(0);
        }
    });
    let mut world = World::reopened(shape, image, 8).unwrap();
    world.ledger = ledger;
    world.check_counters();
    // The journal begins with its first block, and the counters stay loadable.
    world.store_block();
    let depot = world.depot.clone();
    world.run(async move {
        depot
            .commit_oldest(SequenceNumber::new(1 << 40).unwrap())
            .await
    });
    let summary = shape.summary(&world.disk.contents(), 0);
    assert!(summary.is_dirty && summary.load_reference_counts);
    assert_eq!(summary.tail_block_offset, 2);
    let ledger = world.ledger.clone();
    let mut world = World::reopened(shape, world.disk.contents(), 9).unwrap();
    world.ledger = ledger;
    world.check_counters();
}

#[test]
fn provisional_counts_on_disk_are_no_references() {
    let shape = Shape::TINY;
    let (mut image, ledger) = saved(shape);
    let place = reference_block::locate(sbn(50));
    image.edit(shape.reference_block(0, 0), |data| data[place.offset] = 255);
    let mut world = World::reopened(shape, image, 8).unwrap();
    world.ledger = ledger;
    world.check_counters();
}

#[test]
fn a_damaged_tail_block_is_not_taken_for_a_journal_that_was_never_used() {
    type Damage = fn(&Shape, &mut Image);
    let shape = Shape::TINY;
    let damages: [(&str, Damage); 8] = [
        ("another type", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data[32] = 3)
        }),
        ("another volume", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data[24] ^= 1)
        }),
        ("zeros", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data.fill(0))
        }),
        ("more entries than fit", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data[35] = 0x7f)
        }),
        ("a sequence number of another place", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data[8] += 1);
        }),
        ("a head after the tail", |shape, image| {
            image.edit(shape.tail_block(image, 0), |data| data[0] = 200)
        }),
        ("a summary that points outside", |shape, image| {
            shape.edit_summary(image, 0, |entry| entry.tail_block_offset = 8);
        }),
        ("a summary that denies the counters", |shape, image| {
            shape.edit_summary(image, 0, |entry| entry.load_reference_counts = false);
        }),
    ];
    for (name, damage) in damages {
        let (mut image, _) = saved(shape);
        damage(&shape, &mut image);
        let error = refused(shape, image);
        assert!(
            matches!(error, Error::Format(_) | Error::Corrupt(_)),
            "{name}: {error:?}"
        );
    }
}

/// Adds a journal block to slab 0 of an unsaved depot.
fn with_block(shape: Shape, image: &mut Image, entries: &[SlabJournalEntry]) {
    let summary = shape.summary(image, 0);
    let tail = image.block(shape.tail_block(image, 0));
    let header = slab_journal::SlabJournalHeader::decode(&tail).unwrap();
    let sequence = header.sequence.next().unwrap();
    let mut point = JournalPoint {
        sequence: SequenceNumber::new(1 << 20).unwrap(),
        entry: 0,
    };
    let mut block = [0; 4096];
    slab_journal::open(&mut block, NONCE, header.head, sequence);
    for entry in entries {
        point.entry += 1;
        slab_journal::append(&mut block, *entry, point).unwrap();
    }
    let position = u64::from(summary.tail_block_offset);
    image.put(shape.journal_block(0, position), std::sync::Arc::new(block));
    shape.edit_summary(image, 0, |entry| entry.tail_block_offset += 1);
}

#[test]
fn a_replay_believes_nothing_that_cannot_be() {
    let shape = Shape::SMALL;
    let data_blocks = shape.config().data_blocks as u32;
    let entry = |number, update| SlabJournalEntry {
        sbn: sbn(number),
        update,
    };
    let harmless = entry(100, ReferenceUpdate::Increment);

    let (mut image, ledger) = unsaved(shape);
    with_block(shape, &mut image, &[harmless]);
    let world = World::reopened(shape, image, 9).unwrap();
    assert_eq!(world.depot.allocated_blocks(), ledger.used() + 1);

    let too_many = [harmless; 255];
    let cases: [(&str, &[SlabJournalEntry]); 5] = [
        (
            "a block that holds no data",
            &[harmless, entry(data_blocks, ReferenceUpdate::Increment)],
        ),
        (
            "a block beyond the slab",
            &[entry((1 << 23) - 1, ReferenceUpdate::Decrement)],
        ),
        (
            "one reference less than none",
            &[entry(100, ReferenceUpdate::Decrement)],
        ),
        ("more references than a counter holds", &too_many),
        (
            "a page in a block in use",
            &[harmless, entry(100, ReferenceUpdate::BlockMapIncrement)],
        ),
    ];
    for (name, entries) in cases {
        let (mut image, _) = unsaved(shape);
        with_block(shape, &mut image, entries);
        let error = refused(shape, image);
        assert!(matches!(error, Error::Corrupt(_)), "{name}: {error:?}");
    }

    // A block in the middle that is missing, from another volume, or older than the one before it.
    for (name, damage) in [
        ("missing", (|block| block.fill(0)) as fn(&mut [u8; 4096])),
        ("of another volume", |block| {
            block[24..32].copy_from_slice(&Nonce::new(1).get().to_le_bytes())
        }),
        ("of another round", |block| block[8] = 1),
        ("out of order", |block| block[16..24].fill(0xff)),
    ] {
        let (mut image, _) = unsaved(shape);
        let middle = shape.tail_block(&image, 0);
        with_block(shape, &mut image, &[harmless]);
        image.edit(middle, damage);
        let error = refused(shape, image);
        assert!(
            matches!(error, Error::Format(_) | Error::Corrupt(_)),
            "{name}: {error:?}"
        );
    }
}

#[test]
fn counters_must_not_be_newer_than_the_journal() {
    let shape = Shape::SMALL;
    for (image, _) in [saved(shape), unsaved(shape)] {
        let mut image = image;
        let place = shape.reference_block(0, 1);
        image.edit(place, |data| {
            let point = JournalPoint {
                sequence: SequenceNumber::new(40).unwrap(),
                entry: 0,
            };
            data[512..520].copy_from_slice(&point.encode().to_le_bytes());
        });
        let error = refused(shape, image);
        assert!(matches!(error, Error::Corrupt(_)), "{error:?}");
    }
}

#[test]
fn what_cannot_be_read_is_not_made_up() {
    let shape = Shape::SMALL;
    for (what, block) in [
        ("the summary", shape.summary_origin()),
        ("counters", shape.reference_block(0, 1)),
        ("the tail block", shape.journal_block(0, 2)),
    ] {
        let (image, _) = saved(shape);
        let mut world = World::over(shape, image, 9);
        world.disk.inject(Fault {
            kind: Kind::Read,
            blocks: block..block + 1,
            skip: 0,
            count: 1,
            error: IoError::Io,
        });
        assert_eq!(
            world.load(LoadState::Clean),
            Err(Error::Io(IoError::Io)),
            "{what}"
        );
        assert!(
            matches!(world.depot.allocate(), Err(Error::NoSpace)),
            "{what}"
        );
    }
}

/// A volume that cannot be loaded to the end is stopped whatever runs by then.
#[test]
fn a_scrubber_waits_for_no_writer_that_has_ended() {
    let (image, ledger) = unsaved(Shape::SMALL);
    let mut world = World::over(Shape::SMALL, image, 10);
    world.ledger = ledger;
    world.load(LoadState::Recovering).unwrap();
    assert!(world.depot.unscrubbed_slabs() > 0);
    // Nobody commits it.
    world.decrement(Shape::SMALL.pbn(0, 1));
    let scrubber = world.depot.clone();
    let memory = scrubber.scrub_memory().unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let end = ended.clone();
    world.executor.clock().spawn(async move {
        scrubber.run_scrubber(memory).await;
        end.store(true, Ordering::Relaxed);
    });
    world.executor.run_until_idle();
    assert!(
        !ended.load(Ordering::Relaxed),
        "there was something to commit"
    );
    world.depot.stop();
    world.executor.run_until_idle();
    assert!(ended.load(Ordering::Relaxed));
}
