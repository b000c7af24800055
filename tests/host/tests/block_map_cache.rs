// SPDX-License-Identifier: GPL-2.0

//! The block map against a model, with caches down to a single page.

mod block_map_world;

use std::collections::BTreeMap;

use block_map_world::part_world::{for_seeds, Crowd, World};
use block_map_world::{
    pbn, sequence, slabs, MapUnderTest, DATA_END, DATA_START, NONCE, ROOT_ORIGIN,
};
use rvdo_host::engine::block_map::OnDisk;
use rvdo_host::engine::env::IoError;
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::block_map_page;
use rvdo_host::engine::format::Mapping;
use rvdo_host::engine::units::{EntrySlot, Lbn};
use rvdo_host::sim::disk::{Fault, Kind};
use rvdo_host::sim::image::{Blocks, Image};

/// Everything that tasks put is found again: while others put, after pages were thrown out and read again, and by another map on
/// the same disk once the first one was drained.
#[test]
fn maps_like_a_table_of_any_size() {
    for cache_pages in [1, 2, 3, 7, 64, 200] {
        for_seeds(12, |seed| model(seed, cache_pages));
    }
}

fn model(seed: u64, cache_pages: usize) {
    let mut world = World::new(seed, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, cache_pages, 3);
    let tasks = 8;
    let mut crowd = Crowd::new(&world.clock);
    for task in 0..tasks {
        let mut rng = world.rng.fork();
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        crowd.spawn(async move {
            let mut model = BTreeMap::new();
            for _ in 0..60 {
                // Near each other in two distant places, and no LBN in two tasks.
                let lbn = rng.below(3000) * tasks + task + rng.below(2) * (1 << 39);
                let lbn = Lbn::new(lbn);
                if rng.percent(60) {
                    let at = map.find_or_grow(lbn, &allocator).await.unwrap();
                    let mapping = Mapping::uncompressed(pbn(rng.between(1, 1 << 30)));
                    let tail = allocator.advance(rng.below(2));
                    map.put(at, mapping, tail).await.unwrap();
                    map.era_advanced(tail);
                    model.insert(lbn, mapping);
                } else {
                    let found = match map.find(lbn).await.unwrap() {
                        Some(at) => map.get(at).await.unwrap(),
                        None => Mapping::UNMAPPED,
                    };
                    let expected = model.get(&lbn).copied().unwrap_or_default();
                    assert_eq!(found, expected, "LBN {lbn}");
                }
            }
            model
        });
    }
    let map = test.map.clone();
    let models = world.run(async move {
        let models = crowd.join().await;
        map.drain().await.unwrap();
        models
    });
    assert_eq!(test.locks.held(), []);
    let statistics = test.map.statistics();
    assert_eq!((statistics.dirty_pages, statistics.outgoing_pages), (0, 0));
    let pages = statistics.clean_pages + statistics.free_pages;
    assert!(pages as usize <= cache_pages && pages > 0, "{statistics:?}");
    test.map.stop();

    let other = MapUnderTest::new(&world, cache_pages, 1);
    let map = other.map.clone();
    world.run(async move {
        for (lbn, expected) in models.into_iter().flatten() {
            let at = map.find(lbn).await.unwrap().expect("its page is on disk");
            assert_eq!(map.get(at).await.unwrap(), expected, "LBN {lbn}");
        }
    });
    world.assert_no_hazards();
}

#[test]
fn an_entry_that_cannot_be_is_reported_and_can_be_replaced() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 10, 1);
    let (map, allocator) = (test.map.clone(), test.allocator.clone());
    world.run(async move {
        let at = map.find_or_grow(Lbn::new(5), &allocator).await.unwrap();
        let invalid = Mapping {
            pbn: pbn(7),
            ..Mapping::UNMAPPED
        };
        map.put(at, invalid, sequence(1)).await.unwrap();
        assert_eq!(map.get(at).await, Err(Error::BadMapping));
        map.put(at, Mapping::ZERO_BLOCK, sequence(1)).await.unwrap();
        assert_eq!(map.get(at).await, Ok(Mapping::ZERO_BLOCK));
    });
}

/// Formats the root page of tree 0 with an entry that the walk to LBN 0 meets.
fn image_with_root_entry(mapping: Mapping) -> Image {
    let mut image = Image::new(DATA_END);
    image.edit(ROOT_ORIGIN, |block| {
        block_map_page::format(block, NONCE, pbn(ROOT_ORIGIN));
        block_map_page::set_initialized(block, true);
        block_map_page::set_entry(block, EntrySlot::ZERO, mapping);
    });
    image
}

/// A damaged pointer is not followed: what it points at would be taken for an empty page and overwritten.
#[test]
fn an_interior_entry_leads_only_to_data_blocks() {
    let slot = rvdo_host::engine::units::FragmentSlot::ZERO;
    let reference_block = DATA_START + slabs().slab_config.data_blocks;
    for mapping in [
        Mapping::uncompressed(pbn(reference_block)),
        Mapping::uncompressed(pbn(DATA_START + (1 << 16) - 1)),
        Mapping::uncompressed(pbn(DATA_START - 1)),
        Mapping::uncompressed(pbn(DATA_END)),
        Mapping::ZERO_BLOCK,
        Mapping::compressed(pbn(DATA_START), slot),
    ] {
        let mut world = World::new(1, image_with_root_entry(mapping));
        let test = MapUnderTest::new(&world, 10, 1);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        world.run(async move {
            let found = map.find(Lbn::new(0)).await;
            assert!(
                matches!(found, Err(Error::Corrupt(_))),
                "{mapping}: {found:?}"
            );
            let grown = map.find_or_grow(Lbn::new(0), &allocator).await;
            assert!(
                matches!(grown, Err(Error::Corrupt(_))),
                "{mapping}: {grown:?}"
            );
        });
        assert_eq!(test.allocator.made(), []);
    }
}

/// What looks like the page may be left of another life of the block. The journal has all that the page has had since.
#[test]
fn a_page_that_a_recovery_creates_is_not_looked_for_on_the_disk() {
    for (on_disk, entries_left) in [(OnDisk::Nothing, 1), (OnDisk::PageOrNothing, 2)] {
        let mut image = Image::new(DATA_END);
        image.edit(DATA_START, |block| {
            block_map_page::format(block, NONCE, pbn(DATA_START));
            block_map_page::set_initialized(block, true);
            let old = Mapping::uncompressed(pbn(DATA_START + 7));
            block_map_page::set_entry(block, EntrySlot::ZERO, old);
        });
        let mut world = World::new(1, image);
        let test = MapUnderTest::new(&world, 10, 1);
        let map = test.map.clone();
        world.run(async move {
            map.replay_page(pbn(DATA_START), on_disk, |block| {
                let slot = EntrySlot::new(5).unwrap();
                let new = Mapping::uncompressed(pbn(DATA_START + 8));
                block_map_page::set_entry(block, slot, new);
            })
            .await
            .unwrap();
            map.drain().await.unwrap();
        });
        let data = world.device.disk.contents().block(DATA_START);
        let entries = block_map_page::entries(&data).filter(|(_, entry)| entry.has_block());
        assert_eq!(entries.count(), entries_left);
    }
}

#[test]
fn a_page_that_belongs_elsewhere_makes_the_volume_read_only() {
    let mut image = image_with_root_entry(Mapping::uncompressed(pbn(DATA_START)));
    image.edit(DATA_START, |block| {
        block_map_page::format(block, NONCE, pbn(DATA_START + 1));
        block_map_page::set_initialized(block, true);
    });
    let mut world = World::new(1, image);
    let test = MapUnderTest::new(&world, 10, 1);
    let map = test.map.clone();
    let found = world.run(async move { map.find(Lbn::new(0)).await });
    assert!(matches!(found, Err(Error::Format(_))), "{found:?}");
    assert!(world.store.read_only().is_set());
}

#[test]
fn a_page_that_cannot_be_read_fails_its_readers_only() {
    let mut world = World::new(1, Image::new(DATA_END));
    world.device.disk.inject(Fault {
        kind: Kind::Read,
        blocks: ROOT_ORIGIN..ROOT_ORIGIN + 1,
        skip: 0,
        count: 1,
        error: IoError::Timeout,
    });
    let test = MapUnderTest::new(&world, 10, 1);
    let map = test.map.clone();
    world.run(async move {
        let found = map.find(Lbn::new(0)).await;
        assert_eq!(found, Err(Error::Io(IoError::Timeout)));
        // Another root; and the same one again, now that the medium is well.
        assert_eq!(map.find(Lbn::new(812)).await, Ok(None));
        assert_eq!(map.find(Lbn::new(0)).await, Ok(None));
        let statistics = map.statistics();
        assert_eq!((statistics.failed_reads, statistics.pages_loaded), (1, 2));
        assert_eq!(statistics.incoming_pages, 0);
    });
    assert!(world.store.read_only().is_set());
}

/// In read-only mode changes stay in memory, where reads find them. Other pages can be read all the same; a change that would need
/// room fails instead of waiting.
#[test]
fn read_only_mode_keeps_what_cannot_be_written() {
    for_seeds(20, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        world.device.disk.inject(Fault {
            kind: Kind::Write,
            blocks: 0..DATA_END,
            skip: 0,
            count: u64::MAX,
            error: IoError::Io,
        });
        let cache_pages = 5;
        let test = MapUnderTest::new(&world, cache_pages, 2);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        let store = world.store.clone();
        world.run(async move {
            // All five pages on the way are dirty now.
            let at = map.find_or_grow(Lbn::new(0), &allocator).await.unwrap();
            let mapping = Mapping::uncompressed(pbn(77));
            map.put(at, mapping, sequence(1)).await.unwrap();
            // Another root needs a frame: a page is written for it, which fails.
            assert_eq!(map.find(Lbn::new(812)).await, Ok(None));
            assert!(store.read_only().is_set());
            assert_eq!(map.find(Lbn::new(2 * 812)).await, Ok(None));
            assert_eq!(
                map.find_or_grow(Lbn::new(812), &allocator).await,
                Err(Error::ReadOnly)
            );
            assert_eq!(map.find(Lbn::new(812)).await, Ok(None));
            assert_eq!(map.get(at).await, Ok(mapping));
            assert_eq!(map.drain().await, Err(Error::ReadOnly));
        });
        let writes = world.device.disk.counts().writes;
        assert!(
            (1..=2).contains(&writes),
            "one write for each writer at most, not {writes}"
        );
    });
}

/// A task that waits for a frame learns of a read-only mode that somebody else entered.
#[test]
fn waiting_for_room_ends_when_read_only_mode_begins() {
    let mut world = World::new(3, Image::new(DATA_END));
    // No writers: nobody makes room.
    let test = MapUnderTest::new(&world, 5, 0);
    let (map, allocator) = (test.map.clone(), test.allocator.clone());
    let mut crowd = Crowd::new(&world.clock);
    let (store, clock) = (world.store.clone(), world.clock.clone());
    world.run(async { map.find_or_grow(Lbn::new(0), &allocator).await.unwrap() });
    let (reader, writer, grow) = (test.map.clone(), test.map.clone(), test.allocator.clone());
    crowd.spawn(async move { reader.find(Lbn::new(812)).await });
    crowd.spawn(async move {
        writer
            .find_or_grow(Lbn::new(2 * 812), &grow)
            .await
            .map(Some)
    });
    let found = world.run(async move {
        clock.sleep(1000).await;
        store.read_only().enter(Error::Io(IoError::Io), "a test");
        map.abandon();
        crowd.join().await
    });
    assert_eq!(found, [Ok(None), Err(Error::ReadOnly)]);
}

/// Read-only mode with nothing but changes in memory: everything else is read, also by several at a time.
#[test]
fn read_only_mode_reads_what_is_not_in_memory() {
    for_seeds(20, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 5, 2);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        let mapping = |tree: u64| Mapping::uncompressed(pbn(500 + tree));
        let stored = world.run({
            let (map, allocator) = (map.clone(), allocator.clone());
            async move {
                let mut stored = Vec::new();
                for tree in 1..6 {
                    let lbn = Lbn::new(tree * 812);
                    let at = map.find_or_grow(lbn, &allocator).await.unwrap();
                    map.put(at, mapping(tree), sequence(1)).await.unwrap();
                    stored.push(at);
                }
                map.drain().await.unwrap();
                stored
            }
        });
        // All five pages on the way to a block of another tree are new, and stay in memory.
        world.device.disk.inject(Fault {
            kind: Kind::Write,
            blocks: 0..DATA_END,
            skip: 0,
            count: u64::MAX,
            error: IoError::Io,
        });
        let store = world.store.clone();
        world.run({
            let map = map.clone();
            async move {
                let _ = map.find_or_grow(Lbn::new(0), &allocator).await;
                store.read_only().enter(Error::Io(IoError::Io), "a test");
                map.abandon();
            }
        });
        let mut crowd = Crowd::new(&world.clock);
        for (index, at) in stored.iter().enumerate() {
            let (map, at) = (map.clone(), *at);
            crowd.spawn(async move { (index, map.get(at).await) });
        }
        for (index, found) in world.run(crowd.join()) {
            assert_eq!(found, Ok(mapping(index as u64 + 1)));
        }
        let refused = world.run({
            let (map, at) = (map.clone(), stored[0]);
            async move { map.put(at, mapping(9), sequence(2)).await }
        });
        assert_eq!(refused, Err(Error::ReadOnly));
    });
}
