// SPDX-License-Identifier: GPL-2.0

//! Growing the trees of the block map.

mod block_map_world;

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};

use block_map_world::part_world::{for_seeds, Crowd, World};
use block_map_world::{MapUnderTest, DATA_END, ROOT_ORIGIN};
use rvdo_host::engine::error::Error;
use rvdo_host::engine::format::block_map_tree::locate;
use rvdo_host::engine::units::Lbn;
use rvdo_host::sim::image::Image;

/// A walk to a block where nothing was ever written adds a page in each level below the root, from the top down, each named by
/// the one above it in the slot that the format says.
#[test]
fn a_first_write_adds_one_page_in_every_level() {
    for lbn in [0, 811, 812, 60 * 812, 0x12_3456_789a, (1 << 40) - 1] {
        let lbn = Lbn::new(lbn);
        let path = locate(lbn, 60).unwrap();
        let mut world = World::new(1, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 20, 1);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        let at = world.run(async move {
            assert_eq!(map.find(lbn).await, Ok(None));
            let at = map.find_or_grow(lbn, &allocator).await.unwrap();
            assert_eq!(map.find(lbn).await, Ok(Some(at)));
            assert_eq!(map.find_or_grow(lbn, &allocator).await, Ok(at));
            at
        });
        let made = test.allocator.made();
        assert_eq!(made.len(), 4);
        let mut parent = ROOT_ORIGIN + path.root;
        for ((location, page), level) in made.iter().zip(path.levels.iter().skip(1).rev()) {
            assert_eq!((location.page.get(), location.slot), (parent, level.slot));
            parent = page.get();
        }
        assert_eq!((at.page.get(), at.slot), (parent, path.levels[0].slot));
        // Every page that was added or changed is dirty because of the one journal block.
        assert_eq!(test.locks.held(), [(1, 5)]);
    }
}

#[test]
fn concurrent_writes_add_each_page_once() {
    for_seeds(50, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 3, 2);
        let mut crowd = Crowd::new(&world.clock);
        for task in 0..12 {
            let (map, allocator) = (test.map.clone(), test.allocator.clone());
            // Two leaves of one tree.
            let lbn = Lbn::new(task + (task % 2) * 60 * 812);
            crowd.spawn(async move { (lbn, map.find_or_grow(lbn, &allocator).await.unwrap()) });
        }
        let found = world.run(crowd.join());
        for (lbn, at) in &found {
            let (_, first) = found
                .iter()
                .find(|(other, _)| other.get() % 2 == lbn.get() % 2)
                .unwrap();
            assert_eq!(at.page, first.page);
        }
        assert_eq!(
            test.allocator.made().len(),
            5,
            "three interior pages and two leaves"
        );
        world.assert_no_hazards();
    });
}

/// Writes down who is woken.
struct Bell(usize, Arc<Mutex<Vec<usize>>>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// Those who wait for a page go on together as soon as it is there, in the order in which they came. One after the other, they would
/// mix with those who come later, and with them the blocks that they allocate.
#[test]
fn all_who_wait_for_a_page_go_on_together() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 20, 1);
    let (map, allocator) = (test.map.clone(), test.allocator.clone());
    world
        .run(async move { map.find_or_grow(Lbn::new(0), &allocator).await })
        .unwrap();

    let woken = Arc::new(Mutex::new(Vec::new()));
    let mut walks: Vec<_> = (0..20)
        .map(|walk| {
            // The next leaf of the same tree.
            let lbn = Lbn::new(60 * 812 + walk);
            Box::pin(test.map.find_or_grow(lbn, &test.allocator))
        })
        .collect();
    let mut poll = |walk: usize| {
        let waker = Arc::new(Bell(walk, woken.clone())).into();
        let polled = walks[walk].as_mut().poll(&mut Context::from_waker(&waker));
        polled.is_ready()
    };
    assert!((0..20).all(|walk| !poll(walk)));
    let clock = world.clock.clone();
    world.run(async move { clock.sleep(10).await });
    assert_eq!(*woken.lock().unwrap(), [0], "the page was allocated");
    assert!(poll(0));
    assert_eq!(*woken.lock().unwrap(), Vec::from_iter(0..20));
    assert!((1..20).all(poll));
}

/// Whoever finds the volume full fails; nothing is left locked, and the next one with space goes on where it stopped.
#[test]
fn growing_can_fail_half_way() {
    for_seeds(20, |seed| {
        let mut world = World::new(seed, Image::new(DATA_END));
        let test = MapUnderTest::new(&world, 6, 1);
        test.allocator.limit(2);
        let mut crowd = Crowd::new(&world.clock);
        for _ in 0..3 {
            let (map, allocator) = (test.map.clone(), test.allocator.clone());
            crowd.spawn(async move { map.find_or_grow(Lbn::new(4), &allocator).await });
        }
        let found = world.run(crowd.join());
        assert_eq!(found, [Err(Error::NoSpace); 3]);
        assert_eq!(test.allocator.made().len(), 2);

        test.allocator.limit(2);
        let (map, allocator) = (test.map.clone(), test.allocator.clone());
        world
            .run(async move { map.find_or_grow(Lbn::new(4), &allocator).await })
            .unwrap();
        assert_eq!(test.allocator.made().len(), 4);
    });
}

/// What the new page's block held before is never looked at, whatever it pretends to be.
#[test]
fn old_data_in_a_new_page_is_not_read() {
    use block_map_world::{pbn, DATA_START, NONCE};
    use rvdo_host::engine::format::{block_map_page, Mapping};
    use rvdo_host::engine::units::EntrySlot;

    let mut image = Image::new(DATA_END);
    for block in DATA_START..DATA_START + 4 {
        image.edit(block, |data| {
            block_map_page::format(data, NONCE, pbn(block));
            block_map_page::set_initialized(data, true);
            for slot in 0..812 {
                let slot = EntrySlot::new(slot).unwrap();
                block_map_page::set_entry(data, slot, Mapping::uncompressed(pbn(DATA_START)));
            }
        });
    }
    let mut world = World::new(1, image);
    let test = MapUnderTest::new(&world, 1, 1);
    let (map, allocator) = (test.map.clone(), test.allocator.clone());
    world.run(async move {
        let at = map.find_or_grow(Lbn::new(0), &allocator).await.unwrap();
        assert_eq!(map.get(at).await, Ok(Mapping::UNMAPPED));
        map.drain().await.unwrap();
        assert_eq!(
            map.find(Lbn::new(60 * 812)).await,
            Ok(None),
            "the next leaf"
        );
    });
    assert_eq!(test.allocator.made().len(), 4);
}

#[test]
fn a_block_beyond_every_tree_is_out_of_range() {
    let mut world = World::new(1, Image::new(DATA_END));
    let test = MapUnderTest::new(&world, 4, 1);
    let map = test.map.clone();
    let found = world.run(async move { map.find(Lbn::new(u64::MAX)).await });
    assert_eq!(found, Err(Error::OutOfRange));
}
