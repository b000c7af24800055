// SPDX-License-Identifier: GPL-2.0

//! Which blocks a depot gives out, who holds them, and when they come back.

mod depot_world;

use depot_world::{Shape, World};
use rvdo_host::engine::depot::ReferenceUpdate;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::units::Pbn;

const FREE: Option<u8> = Some(0);
const PROVISIONAL: Option<u8> = Some(255);

#[test]
fn blocks_come_in_ascending_order() {
    let world = World::new(Shape::SMALL, 1);
    let homes: Vec<_> = (0..50).map(|_| world.depot.allocate().unwrap()).collect();
    let expected: Vec<_> = (0..50).map(|sbn| world.shape.pbn(0, sbn)).collect();
    assert_eq!(
        homes.iter().map(|home| home.pbn()).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(world.depot.allocated_blocks(), 50);
}

#[test]
fn a_dropped_allocation_is_free_again() {
    let world = World::new(Shape::TINY, 1);
    let home = world.depot.allocate().unwrap();
    let pbn = home.pbn();
    assert_eq!(world.depot.reference_count(pbn), PROVISIONAL);
    drop(home);
    assert_eq!(world.depot.reference_count(pbn), FREE);
    assert_eq!(world.depot.free_blocks(), world.depot.data_blocks());
}

#[test]
fn every_block_can_be_allocated_and_none_twice() {
    let mut world = World::new(
        Shape {
            slabs: 3,
            ..Shape::TINY
        },
        1,
    );
    let total = world.depot.data_blocks();
    let mut homes: Vec<_> = (0..total)
        .map(|_| world.depot.allocate().unwrap())
        .collect();
    let mut pbns: Vec<Pbn> = homes.iter().map(|home| home.pbn()).collect();
    pbns.sort();
    pbns.dedup();
    assert_eq!(pbns.len() as u64, total);
    assert!(pbns.iter().all(|pbn| world.depot.is_data_block(*pbn)));
    assert!(matches!(world.depot.allocate(), Err(Error::NoSpace)));
    assert_eq!(world.depot.free_blocks(), 0);

    // One that comes back is found again, wherever it is.
    let back = homes.swap_remove(150).pbn();
    homes.push(world.depot.allocate().unwrap());
    assert_eq!(homes.last().unwrap().pbn(), back);

    // Also one that comes back by losing its reference.
    let pbn = world.reference(homes.pop().unwrap());
    world.decrement(pbn);
    assert_eq!(world.depot.allocate().unwrap().pbn(), pbn);
}

#[test]
fn a_slab_that_is_nearly_empty_is_preferred_to_an_unused_one() {
    let mut world = World::new(
        Shape {
            slabs: 3,
            ..Shape::TINY
        },
        1,
    );
    let per_slab = world.shape.config().data_blocks;
    // Use up slab 0, then free nearly all of it.
    let mut pbns: Vec<_> = (0..per_slab).map(|_| world.store_block()).collect();
    let first_of_next = world.store_block();
    assert_eq!(first_of_next, world.shape.pbn(1, 0));
    for pbn in pbns.drain(5..) {
        world.decrement(pbn);
    }
    // Slab 1 is open and stays so to its end; then slab 0 comes before slab 2.
    for _ in 1..per_slab {
        world.store_block();
    }
    assert_eq!(world.store_block(), world.shape.pbn(0, 5));
    let stats = world.store.statistics().allocator.snapshot();
    assert_eq!(
        (stats.slab_count, stats.slabs_opened, stats.slabs_reopened),
        (3, 3, 1)
    );
}

#[test]
fn an_unused_slab_is_preferred_to_one_that_is_half_full() {
    let mut world = World::new(
        Shape {
            slabs: 3,
            ..Shape::TINY
        },
        1,
    );
    let per_slab = world.shape.config().data_blocks;
    let mut pbns: Vec<_> = (0..per_slab).map(|_| world.store_block()).collect();
    world.store_block();
    for pbn in pbns.drain(per_slab as usize / 2..) {
        world.decrement(pbn);
    }
    for _ in 1..per_slab {
        world.store_block();
    }
    assert_eq!(world.store_block(), world.shape.pbn(2, 0));
}

#[test]
fn blocks_that_hold_no_data_are_told_apart() {
    let world = World::new(Shape::SMALL, 1);
    let config = world.shape.config();
    let is_data = |pbn: u64| world.depot.is_data_block(Pbn::new(pbn).unwrap());
    assert!(!is_data(0));
    assert!(!is_data(Shape::FIRST_BLOCK - 1));
    assert!(is_data(Shape::FIRST_BLOCK));
    assert!(is_data(world.shape.slab_start(1) + config.data_blocks - 1));
    assert!(!is_data(world.shape.reference_block(1, 0)));
    assert!(!is_data(world.shape.journal_block(2, 0)));
    assert!(!is_data(world.shape.last_block()));
    let reference_block = Pbn::new(world.shape.reference_block(1, 0)).unwrap();
    assert!(world.depot.pin_candidate(reference_block).is_none());
}

#[test]
fn a_block_that_is_being_written_cannot_be_shared_until_it_is() {
    let mut world = World::new(Shape::TINY, 1);
    let home = world.depot.allocate().unwrap();
    let pbn = home.pbn();
    assert!(world.depot.pin_candidate(pbn).is_none());

    let pin = home.into_pin();
    let other = world
        .depot
        .pin_candidate(pbn)
        .expect("the data is in place");
    assert!(pin.claim() && other.claim());
    world.apply(pbn, ReferenceUpdate::Increment).unwrap();
    world.apply(pbn, ReferenceUpdate::Increment).unwrap();
    drop((pin, other));
    assert_eq!(world.depot.reference_count(pbn), Some(2));
}

#[test]
fn references_are_claimed_up_to_the_limit_and_no_further() {
    let mut world = World::new(Shape::TINY, 1);
    let pin = world.depot.allocate().unwrap().into_pin();
    let pbn = pin.pbn();
    let clone = pin.clone();
    for claim in 0..254 {
        let claimed = if claim % 2 == 0 {
            pin.claim()
        } else {
            clone.claim()
        };
        assert!(claimed, "claim {claim}");
        if claim % 3 == 0 {
            // Counting what was claimed does not make room for more.
            world.apply(pbn, ReferenceUpdate::Increment).unwrap();
        }
    }
    assert!(!pin.claim() && !clone.claim());
    assert!(world.depot.pin_candidate(pbn).is_none());
    while world.ledger.count(pbn) < 254 {
        world.apply(pbn, ReferenceUpdate::Increment).unwrap();
    }
    drop((pin, clone));

    // Rollover: the block is full for everybody who comes, until a reference goes.
    assert!(world.depot.pin_candidate(pbn).is_none());
    world.decrement(pbn);
    let pin = world.depot.pin_candidate(pbn).expect("room for one");
    assert!(pin.claim());
    assert!(!pin.claim());
}

#[test]
fn a_free_block_that_is_pinned_is_nobody_elses() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.shape.pbn(0, 0);
    let pin = world
        .depot
        .pin_candidate(pbn)
        .expect("free blocks can be pinned");
    assert_eq!(world.depot.reference_count(pbn), PROVISIONAL);
    assert_eq!(world.depot.allocated_blocks(), 1);
    assert_eq!(world.depot.allocate().unwrap().pbn(), world.shape.pbn(0, 1));

    // Unused, it is free again; with a reference it stays.
    drop(pin);
    assert_eq!(world.depot.reference_count(pbn), FREE);
    assert_eq!(world.depot.allocated_blocks(), 0);
    world.increment(pbn);
    assert_eq!(world.depot.reference_count(pbn), Some(1));
    assert_eq!(world.depot.allocated_blocks(), 1);
}

#[test]
fn a_pinned_block_outlives_its_last_reference() {
    let mut world = World::new(Shape::TINY, 1);
    let pbn = world.store_block();
    let pin = world.depot.pin_candidate(pbn).unwrap();
    let other = pin.clone();
    world.decrement(pbn);
    assert_eq!(world.depot.reference_count(pbn), PROVISIONAL);
    drop(pin);
    assert_eq!(world.depot.reference_count(pbn), PROVISIONAL);

    assert!(other.claim());
    world.apply(pbn, ReferenceUpdate::Increment).unwrap();
    drop(other);
    assert_eq!(world.depot.reference_count(pbn), Some(1));

    let pin = world.depot.pin_candidate(pbn).unwrap();
    world.decrement(pbn);
    drop(pin);
    assert_eq!(world.depot.reference_count(pbn), FREE);
    assert_eq!(world.depot.allocated_blocks(), 0);
}

#[test]
fn a_block_map_page_stays_for_ever() {
    let mut world = World::new(Shape::TINY, 1);
    let home = world.depot.allocate().unwrap();
    let pbn = home.pbn();
    world
        .apply(pbn, ReferenceUpdate::BlockMapIncrement)
        .unwrap();
    home.consume();
    assert_eq!(world.depot.reference_count(pbn), Some(254));
    assert!(world.depot.pin_candidate(pbn).is_none());
}

#[test]
fn more_blocks_than_the_depot_was_made_for_cannot_be_held() {
    let world = World::new(Shape::SMALL, 1);
    let mut homes = Vec::new();
    let error = loop {
        match world.depot.allocate() {
            Ok(home) => homes.push(home),
            Err(error) => break error,
        }
    };
    assert_eq!(error, Error::Busy);
    assert!(homes.len() >= 128);
    let allocated = world.depot.allocated_blocks();
    assert_eq!(allocated, homes.len() as u64);
    drop(homes);
    assert_eq!(world.depot.allocated_blocks(), 0);
}

#[test]
fn contradictions_make_the_volume_read_only() {
    type Case = (&'static str, fn(&mut World) -> Result<(), Error>);
    let cases: [Case; 6] = [
        ("reference to a free block", |world| {
            world.apply(world.shape.pbn(0, 0), ReferenceUpdate::Increment)
        }),
        ("page in a block in use", |world| {
            let pbn = world.store_block();
            let point = world
                .ledger
                .enter(world.shape.pbn(0, 9), ReferenceUpdate::Increment);
            let depot = world.depot.clone();
            world.run(depot.apply(point, pbn, ReferenceUpdate::BlockMapIncrement))
        }),
        ("one reference less than none", |world| {
            let point = world
                .ledger
                .enter(world.shape.pbn(0, 9), ReferenceUpdate::Increment);
            let depot = world.depot.clone();
            world.run(depot.apply(point, world.shape.pbn(0, 0), ReferenceUpdate::Decrement))
        }),
        ("one reference more than 254", |world| {
            let pbn = world.store_block();
            let pin = world.depot.pin_candidate(pbn).unwrap();
            for _ in 1..254 {
                assert!(pin.claim());
                world.apply(pbn, ReferenceUpdate::Increment).unwrap();
            }
            let point = world
                .ledger
                .enter(world.shape.pbn(0, 9), ReferenceUpdate::Increment);
            let depot = world.depot.clone();
            world.run(depot.apply(point, pbn, ReferenceUpdate::Increment))
        }),
        ("reference to metadata", |world| {
            let pbn = Pbn::new(world.shape.journal_block(0, 0)).unwrap();
            world.apply(pbn, ReferenceUpdate::Increment)
        }),
        ("an entry that comes twice", |world| {
            let pbn = world.store_block();
            let (point, ..) = *world.ledger.entries.last().unwrap();
            let depot = world.depot.clone();
            world.run(depot.apply(point, pbn, ReferenceUpdate::Increment))
        }),
    ];
    for (name, case) in cases {
        let mut world = World::new(Shape::TINY, 1);
        let result = case(&mut world);
        assert!(
            matches!(result, Err(Error::Corrupt(_))),
            "{name}: {result:?}"
        );
        assert!(world.store.read_only().is_set(), "{name}");
        assert!(
            matches!(world.depot.allocate(), Err(Error::ReadOnly)),
            "{name}"
        );
        assert_eq!(world.drain(), Err(Error::ReadOnly), "{name}");
    }
}
