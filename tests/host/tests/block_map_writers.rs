// SPDX-License-Identifier: GPL-2.0

//! When block map pages are written, in which order, and what they keep of the journal meanwhile.

mod block_map_world;

use block_map_world::part_world::{for_seeds, Crowd, Op, World};
use block_map_world::{
    pbn, sequence, MapUnderTest, TestMap, DATA_END, DATA_START, MAXIMUM_AGE, NONCE, ROOT_ORIGIN,
};
use rvdo_host::engine::block_map::{maximum_age_blocks, Location, OnDisk};
use rvdo_host::engine::format::block_map_page::{self, PageContents};
use rvdo_host::engine::format::Mapping;
use rvdo_host::engine::units::{EntrySlot, Lbn};
use rvdo_host::sim::disk::Latency;
use rvdo_host::sim::image::{Blocks, Image};

fn root(index: u64, slot: u16) -> Location {
    Location {
        page: pbn(ROOT_ORIGIN + index),
        slot: EntrySlot::new(slot).unwrap(),
    }
}

fn mapping(number: u64) -> Mapping {
    Mapping::uncompressed(pbn(number))
}

/// The writes of a block, as whether they say that the page is initialized.
fn writes_of(ops: &[Op], block: u64) -> Vec<bool> {
    ops.iter()
        .filter_map(|op| match op {
            Op::Write(written, data) if *written == block => {
                Some(block_map_page::is_initialized(data))
            }
            _ => None,
        })
        .collect()
}

/// First "not initialized", then a flush, then "initialized"; from then on once. A flush comes before each.
#[test]
fn a_page_is_first_written_twice_and_then_once() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 1);
    let map = test.map.clone();
    world.run(async move {
        map.put(root(3, 8), mapping(500), sequence(1))
            .await
            .unwrap();
        map.drain().await.unwrap();
    });
    let ops = format!("{:?}", world.device.ops());
    assert_eq!(
        ops,
        "[read 13, flush, flushed, write 13, written 13, flush, flushed, write 13, written 13, flush, flushed]"
    );
    assert_eq!(writes_of(&world.device.ops(), 13), [false, true]);

    world.device.clear();
    let map = test.map.clone();
    world.run(async move {
        map.put(root(3, 9), mapping(501), sequence(2))
            .await
            .unwrap();
        map.drain().await.unwrap();
    });
    let ops = format!("{:?}", world.device.ops());
    assert_eq!(
        ops,
        "[flush, flushed, write 13, written 13, flush, flushed]"
    );
    assert_eq!(writes_of(&world.device.ops(), 13), [true]);
}

/// Power may fail at any moment and tear any write between sectors. A page that is valid then holds nothing but what was put
/// into it, and everything that its map did not keep the journal for any more after a flush.
#[test]
fn a_torn_first_write_is_no_page() {
    for_seeds(150, |seed| {
        let mut image = Image::new(DATA_END);
        // What user data can look like at worst: old pages of the map.
        for block in DATA_START..DATA_START + 8 {
            image.edit(block, |data| {
                data.fill(0x11);
                block_map_page::format(data, NONCE, pbn(block));
                for slot in 0..812 {
                    let slot = EntrySlot::new(slot).unwrap();
                    block_map_page::set_entry(data, slot, mapping(0xdead));
                }
            });
        }
        let mut world = World::new(seed, image);
        let test = MapUnderTest::new(&world, 8, 2);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        let clock = world.clock.clone();
        let mut crowd = Crowd::new(&world.clock);
        crowd.spawn(async move {
            for lbn in 0..800 {
                let at = map.find_or_grow(Lbn::new(lbn), &allocator).await.unwrap();
                let tail = allocator.advance(lbn % 2);
                map.put(at, mapping(1000 + lbn), tail).await.unwrap();
                map.era_advanced(tail);
                clock.sleep(1).await;
            }
        });
        let stop_at = world.rng.between(10, 3000);
        let clock = world.clock.clone();
        world.run(async move { clock.sleep(stop_at).await });
        let mut rng = world.rng.fork();
        let mut valid = 0;
        for _ in 0..20 {
            let crashed = world.device.disk.crash(&mut rng);
            for block in DATA_START..DATA_START + 8 {
                let data = crashed.block(block);
                let contents = block_map_page::classify(&data, NONCE, pbn(block)).unwrap();
                if contents == PageContents::Fresh {
                    continue;
                }
                valid += 1;
                for (slot, entry) in block_map_page::entries(&data) {
                    let start = 36 + usize::from(slot.get()) * 5;
                    if start / 512 != (start + 4) / 512 {
                        // Half of it may be old and half new; the journal still has it then.
                        continue;
                    }
                    let expected = mapping(1000 + u64::from(slot.get()));
                    let is_interior = entry.has_block() && entry.pbn.get() < DATA_START + 8;
                    assert!(
                        entry == Mapping::UNMAPPED || entry == expected || is_interior,
                        "block {block}, slot {slot}: {entry}"
                    );
                }
            }
        }
        assert!(valid > 0 || stop_at < 2900, "no page was ever written");
    });
}

/// W6: between the moment a change was made and the write of its page a flush began and ended.
#[test]
fn a_flush_separates_changes_and_the_write_of_their_page() {
    for_seeds(60, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 4, 3);
        let mut crowd = Crowd::new(&world.clock);
        for task in 0..4 {
            let (map, device) = (test.map.clone(), world.device.clone());
            let mut rng = world.rng.fork();
            crowd.spawn(async move {
                for change in 0..50 {
                    // Each change is recognised by its number.
                    let number = 1 + task * 1000 + change;
                    let at = root(rng.below(8), (task * 50 + change) as u16);
                    map.put(at, mapping(number), sequence(1 + change))
                        .await
                        .unwrap();
                    device.note(Op::Note(number));
                    map.era_advanced(sequence(1 + change));
                }
            });
        }
        let map = test.map.clone();
        world.run(async move {
            crowd.join().await;
            map.drain().await.unwrap();
        });
        let ops = world.device.ops();
        let mut checked = 0;
        for (now, op) in ops.iter().enumerate() {
            let Op::Write(_, data) = op else { continue };
            let end = ops[..now]
                .iter()
                .rposition(|op| matches!(op, Op::Flushed))
                .expect("a flush");
            let begin = ops[..end]
                .iter()
                .rposition(|op| matches!(op, Op::Flush))
                .expect("its start");
            for (_, entry) in block_map_page::entries(data).filter(|(_, entry)| entry.has_block()) {
                let made = ops
                    .iter()
                    .position(|op| matches!(op, Op::Note(number) if *number == entry.pbn.get()));
                assert!(
                    made.expect("noted") < begin,
                    "{entry} was made after the flush"
                );
                checked += 1;
            }
        }
        assert!(checked >= 200);
        assert_eq!(test.locks.held(), []);
        world.assert_no_hazards();
    });
}

/// Written when the tail is `MAXIMUM_AGE` past the oldest change, and not a block earlier.
#[test]
fn a_page_is_written_when_its_era_is_over() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 2);
    let (map, clock) = (test.map.clone(), world.clock.clone());
    let device = world.device.clone();
    let locks = test.locks.clone();
    world.run(async move {
        let writes = || device.disk.counts().writes;
        map.put(root(0, 0), mapping(500), sequence(5))
            .await
            .unwrap();
        map.put(root(1, 0), mapping(501), sequence(7))
            .await
            .unwrap();
        // Newer changes do not make a page younger.
        map.put(root(0, 1), mapping(502), sequence(8))
            .await
            .unwrap();
        map.era_advanced(sequence(5 + MAXIMUM_AGE - 1));
        clock.sleep(10_000).await;
        assert_eq!(writes(), 0);
        map.era_advanced(sequence(5 + MAXIMUM_AGE));
        clock.sleep(10_000).await;
        assert_eq!(writes(), 2, "one page, for the first time");
        assert_eq!(locks.held(), [(7, 1)]);
        map.era_advanced(sequence(7 + MAXIMUM_AGE));
        clock.sleep(10_000).await;
        assert_eq!(writes(), 4);
        assert_eq!(locks.held(), []);
    });
}

/// Changes arrive out of order: the page keeps the oldest block of the journal, and is written in that one's turn.
#[test]
fn a_page_keeps_the_oldest_block_of_its_changes() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 1);
    let map = test.map.clone();
    let locks = test.locks.clone();
    let (clock, device) = (world.clock.clone(), world.device.clone());
    world.run(async move {
        map.put(root(0, 0), mapping(1), sequence(9)).await.unwrap();
        assert_eq!(locks.held(), [(9, 1)]);
        map.put(root(1, 0), mapping(1), sequence(8)).await.unwrap();
        map.put(root(0, 1), mapping(2), sequence(7)).await.unwrap();
        assert_eq!(locks.held(), [(7, 1), (8, 1)]);
        map.put(root(0, 2), mapping(3), sequence(20)).await.unwrap();
        assert_eq!(locks.held(), [(7, 1), (8, 1)]);
        map.era_advanced(sequence(7 + MAXIMUM_AGE));
        clock.sleep(10_000).await;
        assert_eq!(locks.held(), [(8, 1)]);
        assert_eq!(writes_of(&device.ops(), ROOT_ORIGIN).len(), 2);
    });
}

/// Whatever order changes arrive in, no journal block older than the maximum age stays locked, and none is let go before its time.
#[test]
fn every_page_is_written_in_its_turn() {
    for_seeds(20, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 100, 2);
        for tail in 20..60 {
            // The blocks that entries are put late from.
            for _ in 0..4 {
                let at = root(world.rng.below(60), world.rng.below(812) as u16);
                let late = sequence(tail - world.rng.below(6));
                let map = test.map.clone();
                world.run(async move { map.put(at, mapping(1), late).await.unwrap() });
            }
            let written = test.map.statistics().pages_saved;
            let held = test.locks.held();
            test.map.era_advanced(sequence(tail));
            let clock = world.clock.clone();
            world.run(async move { clock.sleep(2000).await });
            let (due, young): (Vec<_>, Vec<_>) = held
                .into_iter()
                .partition(|(block, _)| *block + MAXIMUM_AGE <= tail);
            assert_eq!(test.locks.held(), young, "tail {tail}");
            let pages: u64 = due.iter().map(|(_, pages)| u64::from(*pages)).sum();
            assert_eq!(test.map.statistics().pages_saved, written + pages);
        }
    });
}

/// A change of a page that is being written is not lost and keeps its own block; the page is not written twice at a time.
#[test]
fn a_page_can_change_while_it_is_written() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 2);
    let slow = Latency {
        min: 1000,
        max: 1000,
        ..Latency::FAST
    };
    let (map, clock, device) = (test.map.clone(), world.clock.clone(), world.device.clone());
    let locks = test.locks.clone();
    world.run(async move {
        map.put(root(0, 0), mapping(1), sequence(1)).await.unwrap();
        device.disk.set_latency(slow);
        map.era_advanced(sequence(1 + MAXIMUM_AGE));
        // In the middle of the flush, the first write, the flush, the second write.
        for change in 1..5 {
            clock.sleep(800).await;
            let at = root(0, change as u16);
            map.put(at, mapping(1 + change), sequence(20 + change))
                .await
                .unwrap();
            assert_eq!(locks.held(), [(1, 1), (21, 1)]);
        }
        clock.sleep(10_000).await;
        assert_eq!(locks.held(), [(21, 1)]);
        map.drain().await.unwrap();
        assert_eq!(locks.held(), []);
    });
    assert_eq!(
        writes_of(&world.device.ops(), ROOT_ORIGIN),
        [false, true, true]
    );
    let data = world.device.disk.contents().block(ROOT_ORIGIN);
    let found: Vec<u64> = block_map_page::entries(&data)
        .take(5)
        .map(|(_, entry)| entry.pbn.get())
        .collect();
    assert_eq!(found, [1, 2, 3, 4, 5]);
    assert_eq!(test.map.statistics().reclaimed, 1);
    world.assert_no_hazards();
}

async fn replay(map: &TestMap, at: Location, mapping: Mapping) {
    map.replay_page(at.page, OnDisk::Page, |page| {
        block_map_page::set_entry(page, at.slot, mapping);
    })
    .await
    .unwrap();
}

/// What is replayed from the journal locks nothing, but is written; a journaled change of the same page locks its block.
#[test]
fn replayed_changes_lock_nothing() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 1);
    let map = test.map.clone();
    let locks = test.locks.clone();
    world.run(async move {
        replay(&map, root(0, 0), mapping(1)).await;
        assert_eq!(locks.held(), []);
        map.put(root(0, 1), mapping(2), sequence(4)).await.unwrap();
        assert_eq!(locks.held(), [(4, 1)]);
        replay(&map, root(0, 2), mapping(3)).await;
        assert_eq!(locks.held(), [(4, 1)]);
        map.drain().await.unwrap();
        assert_eq!(locks.held(), []);
    });
    let data = world.device.disk.contents().block(ROOT_ORIGIN);
    assert_eq!(
        block_map_page::entries(&data)
            .filter(|(_, entry)| entry.has_block())
            .count(),
        3
    );
}

#[test]
fn the_age_on_the_table_line_is_converted() {
    assert_eq!(maximum_age_blocks(1), 1);
    assert_eq!(maximum_age_blocks(16380), 11738);
    assert_eq!(maximum_age_blocks(434), 311);
    assert_eq!(maximum_age_blocks(435), 312);
}
