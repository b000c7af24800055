// SPDX-License-Identifier: GPL-2.0

//! The index in memory: what it remembers and what it forgets.

mod dedupe_world;

use dedupe_world::part_world::World;
use dedupe_world::pbn;
use rvdo_host::engine::dedupe::{Index, VolatileIndex};
use rvdo_host::engine::format::block_name::Advice;
use rvdo_host::engine::format::{BlockName, Mapping};
use rvdo_host::engine::units::FragmentSlot;
use rvdo_host::sim::image::Image;

fn name(number: u64) -> BlockName {
    let mut data = [0; 4096];
    data[..8].copy_from_slice(&number.to_le_bytes());
    BlockName::of(&data)
}

fn at(number: u64) -> Mapping {
    Mapping::uncompressed(pbn(number))
}

fn look_up(index: &VolatileIndex, number: u64, location: Option<Mapping>) -> Option<Mapping> {
    let mut world = World::new(0, Image::new(1));
    let found = world.run(index.query_or_post(&name(number), location));
    found.map(|Advice(mapping)| mapping)
}

#[test]
fn a_post_inserts_only_what_is_not_there() {
    let index = VolatileIndex::new(64).unwrap();
    assert_eq!(look_up(&index, 1, None), None);
    assert_eq!(look_up(&index, 1, Some(at(10))), None);
    assert_eq!(look_up(&index, 1, Some(at(11))), Some(at(10)));
    assert_eq!(look_up(&index, 1, None), Some(at(10)));
    let fragment = Mapping::compressed(pbn((1 << 36) - 1), FragmentSlot::new(13).unwrap());
    index.update(&name(1), fragment);
    assert_eq!(look_up(&index, 1, None), Some(fragment));
    index.update(&name(2), at(20));
    assert_eq!(look_up(&index, 2, None), Some(at(20)));

    let statistics = index.statistics();
    assert_eq!(
        (statistics.queries_not_found, statistics.queries_found),
        (1, 3)
    );
    assert_eq!((statistics.posts_not_found, statistics.posts_found), (1, 1));
    assert_eq!(
        (statistics.updates_found, statistics.updates_not_found),
        (1, 1)
    );
    assert_eq!(
        (statistics.entries_indexed, statistics.entries_discarded),
        (2, 0)
    );
}

#[test]
fn the_index_never_holds_more_than_it_was_made_for() {
    for entries in [8, 64, 100, 1000, 5000] {
        let index = VolatileIndex::new(entries).unwrap();
        let names = 4 * entries as u64;
        for number in 0..names {
            index.update(&name(number), at(number + 1));
        }
        let statistics = index.statistics();
        assert!(statistics.entries_indexed <= entries as u64);
        assert!(
            statistics.entries_indexed * 10 >= entries as u64 * 8,
            "{entries}: {statistics:?}"
        );
        assert_eq!(
            statistics.entries_indexed + statistics.entries_discarded,
            names
        );
        // What is there is right.
        let mut found = 0;
        for number in 0..names {
            if let Some(mapping) = look_up(&index, number, None) {
                assert_eq!(mapping, at(number + 1));
                found += 1;
            }
        }
        assert_eq!(found, statistics.entries_indexed);
    }
}

#[test]
fn what_was_asked_for_stays_longest() {
    // One set of eight.
    let index = VolatileIndex::new(8).unwrap();
    for number in 0..8 {
        index.update(&name(number), at(number + 1));
    }
    assert_eq!(look_up(&index, 0, None), Some(at(1)));
    index.update(&name(100), at(100));
    assert_eq!(look_up(&index, 0, None), Some(at(1)), "just used");
    assert_eq!(look_up(&index, 1, None), None, "used longest ago");
}

#[test]
fn an_index_without_room_remembers_nothing() {
    let index = VolatileIndex::new(7).unwrap();
    index.update(&name(1), at(1));
    assert_eq!(look_up(&index, 1, Some(at(1))), None);
    assert_eq!(look_up(&index, 1, None), None);
    assert_eq!(index.statistics().entries_indexed, 0);
}

#[test]
fn a_location_without_data_is_not_remembered() {
    let index = VolatileIndex::new(64).unwrap();
    index.update(&name(1), Mapping::UNMAPPED);
    index.update(&name(2), Mapping::ZERO_BLOCK);
    assert_eq!(
        (look_up(&index, 1, None), look_up(&index, 2, None)),
        (None, None)
    );
}
