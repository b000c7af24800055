// SPDX-License-Identifier: GPL-2.0

//! Deduplication of what is being written and of what was written before.

mod dedupe_world;

use std::sync::{Arc, Mutex};

use dedupe_world::part_world::{for_seeds, Crowd, TestEnv, World};
use dedupe_world::{pbn, TestBlocks, TestHome, TestPin, FIRST, REFERENCES_MAX};
use rvdo_host::engine::admitted::Admitted;
use rvdo_host::engine::dedupe::{Dedupe, Entry, Index, VolatileIndex};
use rvdo_host::engine::env::{IoClass, IoError, WriteFlags};
use rvdo_host::engine::format::compressed_block::{CompressedBlockBuilder, StreamFormat};
use rvdo_host::engine::format::{BlockName, Mapping};
use rvdo_host::engine::packer::{Packed, Packer};
use rvdo_host::engine::pin::{Home, SharedBlock};
use rvdo_host::engine::store::Store;
use rvdo_host::engine::units::FragmentSlot;
use rvdo_host::rt;
use rvdo_host::sim::disk::{Fault, Kind};
use rvdo_host::sim::executor::Clock;
use rvdo_host::sim::image::{Block, Blocks, Image};

const BLOCKS: u64 = 10_000;

fn formats() -> rt::Arc<Admitted> {
    rt::Arc::new(Admitted::new(None)).unwrap()
}

type TestDedupe = Dedupe<TestEnv, VolatileIndex, TestBlocks>;

struct Test {
    world: World,
    blocks: TestBlocks,
    dedupe: rt::Arc<TestDedupe>,
}

impl Test {
    fn new(seed: u64, image: Image, requests: usize) -> Self {
        let world = World::new(seed, image);
        let blocks = TestBlocks::default();
        let index = VolatileIndex::new(1024).unwrap();
        let source = rt::Arc::new(blocks.clone()).unwrap();
        let dedupe = Dedupe::new(world.store.clone(), source, index, formats(), requests).unwrap();
        Self {
            world,
            blocks,
            dedupe: rt::Arc::new(dedupe).unwrap(),
        }
    }

    fn writer(&self, name: BlockName, data: Block) -> Writer {
        Writer {
            dedupe: self.dedupe.clone(),
            store: self.world.store.clone(),
            blocks: self.blocks.clone(),
            clock: self.world.clock.clone(),
            page: rt::Page::new().unwrap(),
            name,
            data,
            fails: false,
        }
    }

    fn write(&mut self, data: Block) -> (Mapping, How) {
        let writer = self.writer(BlockName::of(&data), data);
        self.world.run(writer.write()).unwrap()
    }
}

/// How a writer got its data stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Shared,
    Agent,
    Bypass,
}

/// A write as the data path does it.
struct Writer {
    dedupe: rt::Arc<TestDedupe>,
    store: rt::Arc<Store<TestEnv>>,
    blocks: TestBlocks,
    clock: Clock,
    page: rt::Page,
    name: BlockName,
    data: Block,
    /// Gives up as an agent.
    fails: bool,
}

impl Writer {
    async fn write(self) -> Option<(Mapping, How)> {
        let home = self.blocks.allocate();
        let entry = self
            .dedupe
            .enter(self.name, &self.data, Some(home.pbn()), |_| {})
            .await;
        match entry {
            Entry::Duplicate(claimed) => {
                drop(home);
                // The journal takes its time.
                self.clock.sleep(10).await;
                Some((claimed.mapping(), How::Shared))
            }
            Entry::Agent(agent) => {
                self.clock.sleep(3).await;
                if self.fails {
                    return None;
                }
                let pin = store(&self.store, &self.data, self.page, home).await;
                let mapping = Mapping::uncompressed(pin.pbn());
                agent.publish(mapping, &pin);
                self.clock.sleep(10).await;
                Some((mapping, How::Agent))
            }
            Entry::Bypass => {
                let pin = store(&self.store, &self.data, self.page, home).await;
                Some((Mapping::uncompressed(pin.pbn()), How::Bypass))
            }
        }
    }
}

async fn store(
    store: &Store<TestEnv>,
    data: &Block,
    mut page: rt::Page,
    home: TestHome,
) -> TestPin {
    page.copy_from_slice(data);
    let (_, result) = store
        .write(home.pbn(), page, IoClass::Data, WriteFlags::DATA)
        .await;
    result.unwrap();
    let pin = home.into_pin();
    assert!(pin.claim());
    pin
}

fn data(number: u64) -> Block {
    let mut data = [0x5a; 4096];
    data[100..108].copy_from_slice(&number.to_le_bytes());
    data
}

#[test]
fn identical_writes_at_the_same_time_are_stored_once() {
    for_seeds(30, |seed| {
        let mut test = Test::new(seed, Image::new(BLOCKS), 40);
        let mut crowd = Crowd::new(&test.world.clock);
        for _ in 0..40 {
            crowd.spawn(test.writer(BlockName::of(&data(1)), data(1)).write());
        }
        let outcomes: Vec<_> = test.world.run(crowd.join()).into_iter().flatten().collect();
        let agents = outcomes
            .iter()
            .filter(|(_, how)| *how == How::Agent)
            .count();
        assert_eq!((outcomes.len(), agents), (40, 1));
        let block = outcomes[0].0.pbn.get();
        assert!(outcomes
            .iter()
            .all(|(mapping, _)| *mapping == Mapping::uncompressed(pbn(block))));
        assert_eq!(test.blocks.claimed(), [(block, 40)]);
        assert_eq!(test.blocks.given_back().len(), 39);
        assert_eq!(test.blocks.holders(), 0);
        assert_eq!(test.world.device.disk.counts().writes, 1);
        assert_eq!(
            test.world.device.disk.counts().reads,
            0,
            "compared in memory"
        );
        let counters = test.world.store.statistics().hash_lock.snapshot();
        assert_eq!(
            (
                counters.concurrent_data_matches,
                counters.curr_dedupe_queries
            ),
            (39, 0)
        );
    });
}

/// Whatever happens at the same time, each write ends at a block with its data.
#[test]
fn every_write_ends_at_its_own_data() {
    for_seeds(60, |seed| {
        let mut test = Test::new(seed, Image::new(BLOCKS), 100);
        let mut crowd = Crowd::new(&test.world.clock);
        for _ in 0..300 {
            let number = test.world.rng.below(20);
            let mut writer = test.writer(BlockName::of(&data(number)), data(number));
            writer.fails = test.world.rng.percent(10);
            let (clock, start) = (test.world.clock.clone(), test.world.rng.between(1, 400));
            crowd.spawn(async move {
                clock.sleep(start).await;
                (number, writer.write().await)
            });
        }
        let outcomes = test.world.run(crowd.join());
        let contents = test.world.device.disk.contents();
        let mut stored = 0;
        for (number, outcome) in outcomes {
            if let Some((mapping, _)) = outcome {
                stored += 1;
                assert!(*contents.block(mapping.pbn.get()) == data(number));
            }
        }
        assert!(stored >= 200);
        let claimed: u32 = test
            .blocks
            .claimed()
            .iter()
            .map(|(_, claimed)| claimed)
            .sum();
        assert_eq!(claimed, stored);
        assert_eq!(test.blocks.holders(), 0);
    });
}

#[test]
fn other_data_of_the_same_name_is_never_shared() {
    for_seeds(20, |seed| {
        let mut test = Test::new(seed, Image::new(BLOCKS), 10);
        let name = BlockName::of(&data(1));
        let mut crowd = Crowd::new(&test.world.clock);
        for number in [1, 2, 1, 3, 2] {
            let writer = test.writer(name, data(number));
            crowd.spawn(async move { (number, writer.write().await.unwrap()) });
        }
        let outcomes = test.world.run(crowd.join());
        let contents = test.world.device.disk.contents();
        for (number, (mapping, _)) in &outcomes {
            assert!(*contents.block(mapping.pbn.get()) == data(*number));
        }
        let bypassed = outcomes
            .iter()
            .filter(|(_, (_, how))| *how == How::Bypass)
            .count() as u64;
        assert!(bypassed >= 2, "{outcomes:?}");
        let counters = test.world.store.statistics().hash_lock.snapshot();
        assert_eq!(counters.concurrent_hash_collisions, bypassed);

        // The index knows the name now. What is stored under it is compared, not believed.
        let writer = test.writer(name, data(4));
        let (mapping, how) = test.world.run(writer.write()).unwrap();
        assert_eq!(how, How::Agent);
        assert!(*test.world.device.disk.contents().block(mapping.pbn.get()) == data(4));
        assert_eq!(
            test.world
                .store
                .statistics()
                .hash_lock
                .snapshot()
                .dedupe_advice_stale,
            1
        );
    });
}

/// A block can have 254 references. The next write stores the data again, and the others go on from there.
#[test]
fn a_block_without_references_left_is_replaced() {
    for_seeds(5, |seed| {
        let writes = 600;
        let mut test = Test::new(seed, Image::new(BLOCKS), writes);
        let mut crowd = Crowd::new(&test.world.clock);
        for _ in 0..writes {
            crowd.spawn(test.writer(BlockName::of(&data(1)), data(1)).write());
        }
        let outcomes = test.world.run(crowd.join());
        assert!(outcomes.iter().all(Option::is_some));
        let mut claimed: Vec<u32> = test
            .blocks
            .claimed()
            .iter()
            .map(|(_, claimed)| *claimed)
            .collect();
        claimed.sort_unstable();
        assert_eq!(claimed, [92, REFERENCES_MAX, REFERENCES_MAX]);
        assert_eq!(test.blocks.holders(), 0);

        // The index has the last one of the blocks.
        let (mapping, how) = test.write(data(1));
        assert_eq!(
            (test.blocks.use_of(mapping.pbn.get()).claimed, how),
            (93, How::Shared)
        );
    });
}

#[test]
fn another_member_takes_over_when_the_agent_fails() {
    for_seeds(30, |seed| {
        let mut test = Test::new(seed, Image::new(BLOCKS), 10);
        let failures = 4;
        let mut crowd = Crowd::new(&test.world.clock);
        for number in 0..10 {
            let mut writer = test.writer(BlockName::of(&data(1)), data(1));
            writer.fails = number < failures;
            crowd.spawn(writer.write());
        }
        let outcomes = test.world.run(crowd.join());
        // A writer that fails does so only as the agent.
        let stored: Vec<_> = outcomes.into_iter().flatten().collect();
        assert!(stored.len() >= 10 - failures);
        assert_eq!(
            stored.iter().filter(|(_, how)| *how == How::Agent).count(),
            1
        );
        assert!(stored.iter().all(|(mapping, _)| *mapping == stored[0].0));
        assert_eq!(test.blocks.holders(), 0);
    });
}

/// On a full volume some writers have a block and some have none. Those with one come first; without any, everybody is told.
#[test]
fn a_member_with_a_block_takes_over_from_an_agent_without() {
    for_seeds(30, |seed| {
        for with_home in [0, 1] {
            let mut test = Test::new(seed, Image::new(BLOCKS), 10);
            let mut crowd = Crowd::new(&test.world.clock);
            for number in 0..6 {
                let (dedupe, blocks) = (test.dedupe.clone(), test.blocks.clone());
                let clock = test.world.clock.clone();
                // The one with a block comes last.
                let has_home = number >= 6 - with_home;
                crowd.spawn(async move {
                    clock.sleep(1 + number * 10).await;
                    let home = has_home.then(|| blocks.allocate());
                    let at = home.as_ref().map(Home::pbn);
                    match dedupe
                        .enter(BlockName::of(&data(1)), &data(1), at, |_| {})
                        .await
                    {
                        Entry::Duplicate(claimed) => {
                            clock.sleep(20).await;
                            Some(claimed.mapping())
                        }
                        Entry::Agent(agent) => {
                            clock.sleep(200).await;
                            let pin = home?.into_pin();
                            assert!(pin.claim());
                            let mapping = Mapping::uncompressed(pin.pbn());
                            agent.publish(mapping, &pin);
                            Some(mapping)
                        }
                        Entry::Bypass => panic!("no collision here"),
                    }
                });
            }
            let outcomes = test.world.run(crowd.join());
            let stored = outcomes.iter().flatten().count();
            // The first agent has none in either case.
            assert_eq!(stored, if with_home == 0 { 0 } else { 5 }, "{outcomes:?}");
            assert_eq!(test.blocks.holders(), 0);
        }
    });
}

#[test]
fn data_written_before_is_found_and_compared() {
    let mut test = Test::new(1, Image::new(BLOCKS), 10);
    assert_eq!(
        test.write(data(1)),
        (Mapping::uncompressed(pbn(FIRST)), How::Agent)
    );
    assert_eq!(
        test.write(data(1)),
        (Mapping::uncompressed(pbn(FIRST)), How::Shared)
    );
    assert_eq!(test.world.device.disk.counts().reads, 1);
    let counters = test.world.store.statistics().hash_lock.snapshot();
    assert_eq!(
        (counters.dedupe_advice_valid, counters.dedupe_advice_stale),
        (1, 0)
    );
    // Posted before it was stored, and where it was stored: no update needed.
    let index = test.dedupe.index_statistics();
    assert_eq!((index.posts_not_found, index.posts_found), (1, 1));
    assert_eq!(index.updates_found + index.updates_not_found, 0);
}

/// Advice that is wrong in any way costs a second copy and is replaced by the new location.
#[test]
fn wrong_advice_is_not_followed_and_corrected() {
    type Spoil = fn(&mut Test);
    let cases: [(&str, Spoil); 4] = [
        ("other data", |test| {
            let store = test.world.store.clone();
            let mut page = rt::Page::new().unwrap();
            page.copy_from_slice(&data(77));
            test.world.run(async move {
                let write = store.write(pbn(FIRST), page, IoClass::Data, WriteFlags::DATA);
                write.await.1.unwrap();
            });
        }),
        ("no references left", |test| test.blocks.exhaust(FIRST)),
        ("unreadable", |test| {
            test.world.device.disk.inject(Fault {
                kind: Kind::Read,
                blocks: FIRST..FIRST + 1,
                skip: 0,
                count: 1,
                error: IoError::Io,
            });
        }),
        ("being written", |test| {
            std::mem::forget(test.blocks.allocate());
        }),
    ];
    for (name, spoil) in cases {
        let mut test = Test::new(1, Image::new(BLOCKS), 10);
        if name == "being written" {
            // The index names a block that somebody else has by now.
            let posting = test.dedupe.clone();
            test.world.run(async move {
                let block_name = BlockName::of(&data(1));
                drop(
                    posting
                        .enter(block_name, &data(1), Some(pbn(FIRST)), |_| {})
                        .await,
                );
            });
        } else {
            test.write(data(1));
        }
        spoil(&mut test);
        let (mapping, how) = test.write(data(1));
        assert_eq!(
            (mapping, how),
            (Mapping::uncompressed(pbn(FIRST + 1)), How::Agent),
            "{name}"
        );
        assert!(!test.world.store.read_only().is_set(), "{name}");
        let (mapping, how) = test.write(data(1));
        assert_eq!(
            (mapping, how),
            (Mapping::uncompressed(pbn(FIRST + 1)), How::Shared),
            "{name}"
        );
    }
}

#[test]
fn advice_outside_of_the_data_is_counted_and_ignored() {
    let mut world = World::new(1, Image::new(BLOCKS));
    let blocks = TestBlocks::default();
    let index = VolatileIndex::new(1024).unwrap();
    index.update(
        &BlockName::of(&data(1)),
        Mapping::uncompressed(pbn(FIRST - 1)),
    );
    let source = rt::Arc::new(blocks.clone()).unwrap();
    let dedupe = Dedupe::new(world.store.clone(), source, index, formats(), 4).unwrap();
    let is_agent = world.run(async {
        let entry = dedupe
            .enter(BlockName::of(&data(1)), &data(1), None, |_| {})
            .await;
        matches!(entry, Entry::Agent(_))
    });
    assert!(is_agent);
    assert_eq!(
        world
            .store
            .statistics()
            .errors
            .snapshot()
            .invalid_advice_pbn_count,
        1
    );
    assert_eq!(world.device.disk.counts().reads, 0);
}

/// Data in a compressed block is found as well; a slot without a fragment is no duplicate.
#[test]
fn fragments_are_found_and_compared() {
    let mut image = Image::new(BLOCKS);
    let fragments: Vec<_> = (0..3)
        .map(|number| lz4_flex::block::compress(&data(number)))
        .collect();
    image.edit(FIRST, |block| {
        let mut builder = CompressedBlockBuilder::new(block, StreamFormat::Lz4);
        for fragment in &fragments {
            builder.push(fragment).unwrap();
        }
    });
    for (slot, number, is_duplicate) in [(0, 0, true), (2, 2, true), (1, 2, false), (3, 2, false)] {
        let mut world = World::new(1, image.clone());
        let blocks = TestBlocks::default();
        let index = VolatileIndex::new(1024).unwrap();
        let mapping = Mapping::compressed(pbn(FIRST), FragmentSlot::new(slot).unwrap());
        index.update(&BlockName::of(&data(number)), mapping);
        let source = rt::Arc::new(blocks.clone()).unwrap();
        let dedupe = Dedupe::new(world.store.clone(), source, index, formats(), 4).unwrap();
        let found = world.run(async {
            let name = BlockName::of(&data(number));
            match dedupe.enter(name, &data(number), None, |_| {}).await {
                Entry::Duplicate(claimed) => Some(claimed.mapping()),
                _ => None,
            }
        });
        assert_eq!(found, is_duplicate.then_some(mapping), "slot {slot}");
    }
}

/// An agent that sits in the packer is got out of there by the next write of the same data, whichever of the two comes first to
/// the point where they meet.
#[test]
fn a_member_gets_its_agent_out_of_the_packer() {
    for_seeds(60, |seed| {
        let mut test = Test::new(seed, Image::new(BLOCKS), 10);
        let packer: Packer<TestEnv, TestPin> = Packer::new(test.world.store.clone(), 10).unwrap();
        let packer = rt::Arc::new(packer).unwrap();
        let kicks = Arc::new(Mutex::new(0));
        let mut crowd = Crowd::new(&test.world.clock);
        for number in 0..2 {
            let (dedupe, blocks, clock) = (
                test.dedupe.clone(),
                test.blocks.clone(),
                test.world.clock.clone(),
            );
            let (packer, store, kicks) = (packer.clone(), test.world.store.clone(), kicks.clone());
            let page = rt::Page::new().unwrap();
            let delay = test.world.rng.between(1, 12);
            crowd.spawn(async move {
                clock.sleep(1 + number * delay).await;
                let home = blocks.allocate();
                let kick = |ticket| {
                    *kicks.lock().unwrap() += 1;
                    packer.kick(ticket);
                };
                let entry = dedupe
                    .enter(BlockName::of(&data(1)), &data(1), Some(home.pbn()), kick)
                    .await;
                match entry {
                    Entry::Duplicate(claimed) => claimed.mapping(),
                    Entry::Agent(agent) => {
                        let fragment = [1; 100];
                        let packed = packer
                            .pack(StreamFormat::Lz4, &fragment, home, |ticket| {
                                if !agent.enter_bin(ticket) {
                                    kick(ticket);
                                }
                            })
                            .await;
                        let Packed::Unpacked(home) = packed else {
                            panic!("alone in its bin");
                        };
                        let pin = super_store(&store, page, home).await;
                        let mapping = Mapping::uncompressed(pin.pbn());
                        agent.publish(mapping, &pin);
                        clock.sleep(100).await;
                        mapping
                    }
                    Entry::Bypass => panic!("no collision here"),
                }
            });
        }
        let outcomes = test.world.run(crowd.join());
        assert_eq!(outcomes[0], outcomes[1]);
        assert_eq!(*kicks.lock().unwrap(), 1);
        assert_eq!(test.blocks.claimed(), [(outcomes[0].pbn.get(), 2)]);
    });
}

async fn super_store(to: &Store<TestEnv>, page: rt::Page, home: TestHome) -> TestPin {
    store(to, &data(1), page, home).await
}

#[test]
fn more_names_than_locks_cost_deduplication_only() {
    let mut test = Test::new(1, Image::new(BLOCKS), 1);
    let mut crowd = Crowd::new(&test.world.clock);
    for number in 0..4 {
        crowd.spawn(
            test.writer(BlockName::of(&data(number)), data(number))
                .write(),
        );
    }
    let outcomes = test.world.run(crowd.join());
    let agents = outcomes
        .iter()
        .flatten()
        .filter(|(_, how)| *how == How::Agent)
        .count();
    let bypassed = outcomes
        .iter()
        .flatten()
        .filter(|(_, how)| *how == How::Bypass)
        .count();
    assert_eq!((agents, bypassed), (1, 3));
    // The lock was given back.
    assert_eq!(test.write(data(9)).1, How::Agent);
    assert_eq!(test.write(data(9)).1, How::Shared);
}
