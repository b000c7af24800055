// SPDX-License-Identifier: GPL-2.0

//! Which bin a fragment goes into, when bins are written, and what is then on disk.

mod dedupe_world;

use std::sync::{Arc, Mutex};

use dedupe_world::part_world::{for_seeds, Crowd, Op, World};
use dedupe_world::{TestBlocks, TestHome, TestPin, FIRST};
use rvdo_host::engine::env::IoError;
use rvdo_host::engine::format::compressed_block::{CompressedBlock, StreamFormat};
use rvdo_host::engine::packer::{BinTicket, Packed, Packer, OPEN_BINS_MAX};
use rvdo_host::engine::pin::{Home, SharedBlock};
use rvdo_host::rt;
use rvdo_host::sim::disk::{Fault, Kind};
use rvdo_host::sim::image::{Block, Blocks, Image};

const BLOCKS: u64 = 10_000;

type TestPacker = Packer<dedupe_world::part_world::TestEnv, TestPin>;

/// What became of the fragments of a test: by number, the block and slot, or nothing.
type Outcomes = Arc<Mutex<Vec<Option<Outcome>>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Stored(u64, u8),
    /// The block that the caller had is still its own.
    Unpacked(u64),
}

struct Test {
    world: World,
    blocks: TestBlocks,
    packer: rt::Arc<TestPacker>,
    outcomes: Outcomes,
    tickets: Arc<Mutex<Vec<Option<BinTicket>>>>,
    pins: Arc<Mutex<Vec<TestPin>>>,
}

impl Test {
    fn new(seed: u64) -> Self {
        let world = World::new(seed, Image::new(BLOCKS));
        let packer = rt::Arc::new(Packer::new(world.store.clone(), 100).unwrap()).unwrap();
        Self {
            world,
            blocks: TestBlocks::default(),
            packer,
            outcomes: Outcomes::default(),
            tickets: Arc::default(),
            pins: Arc::default(),
        }
    }

    /// Gives the packer a fragment of `bytes` bytes and lets everything happen that can.
    fn pack(&mut self, bytes: usize) {
        self.pack_as(StreamFormat::Lz4, bytes);
    }

    fn pack_as(&mut self, format: StreamFormat, bytes: usize) {
        let number = {
            let mut outcomes = self.outcomes.lock().unwrap();
            outcomes.push(None);
            self.tickets.lock().unwrap().push(None);
            outcomes.len() - 1
        };
        let fragment = fragment(number, bytes);
        let home: TestHome = self.blocks.allocate();
        let (packer, outcomes) = (self.packer.clone(), self.outcomes.clone());
        let (tickets, pins) = (self.tickets.clone(), self.pins.clone());
        self.world.clock.spawn(async move {
            let on_bin = |ticket| tickets.lock().unwrap()[number] = Some(ticket);
            let outcome = match packer.pack(format, &fragment, home, on_bin).await {
                Packed::Stored { pin, mapping } => {
                    assert_eq!(pin.pbn(), mapping.pbn);
                    pins.lock().unwrap().push(pin);
                    Outcome::Stored(mapping.pbn.get(), mapping.fragment().unwrap().get())
                }
                Packed::Unpacked(home) => Outcome::Unpacked(home.pbn().get()),
            };
            outcomes.lock().unwrap()[number] = Some(outcome);
        });
        self.settle();
    }

    fn settle(&mut self) {
        let clock = self.world.clock.clone();
        self.world.run(async move { clock.sleep(1000).await });
    }

    fn flush(&mut self) {
        self.packer.flush();
        self.settle();
    }

    fn kick(&mut self, number: usize) {
        let ticket = self.tickets.lock().unwrap()[number];
        self.packer.kick(ticket.expect("it was in a bin"));
        self.settle();
    }

    /// The home of fragment `number`.
    fn home(number: usize) -> u64 {
        FIRST + number as u64
    }

    /// The groups of fragments that are in one block, by the numbers of their fragments in the order of their slots.
    fn groups(&self) -> Vec<Vec<usize>> {
        let mut groups = std::collections::BTreeMap::<u64, Vec<(u8, usize)>>::new();
        for (number, outcome) in self.outcomes.lock().unwrap().iter().enumerate() {
            if let Some(Outcome::Stored(block, slot)) = outcome {
                groups.entry(*block).or_default().push((*slot, number));
            }
        }
        groups
            .into_values()
            .map(|mut group| {
                group.sort_unstable();
                for (index, (slot, _)) in group.iter().enumerate() {
                    assert_eq!(usize::from(*slot), index, "slots without gaps");
                }
                group.into_iter().map(|(_, number)| number).collect()
            })
            .collect()
    }

    fn unpacked(&self) -> Vec<usize> {
        let outcomes = self.outcomes.lock().unwrap();
        let mut unpacked = Vec::new();
        for (number, outcome) in outcomes.iter().enumerate() {
            if let Some(Outcome::Unpacked(home)) = outcome {
                assert_eq!(*home, Self::home(number), "its own block");
                unpacked.push(number);
            }
        }
        unpacked
    }
}

/// Bytes that tell fragments apart, none of them zero.
fn fragment(number: usize, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| ((number * 31 + at * 7) % 255) as u8 + 1)
        .collect()
}

struct Case {
    name: &'static str,
    sizes: Vec<usize>,
    /// What is in blocks before anybody asks for it.
    at_once: Vec<Vec<usize>>,
    unpacked_at_once: Vec<usize>,
    /// What is in blocks after a flush.
    at_last: Vec<Vec<usize>>,
    unpacked_at_last: Vec<usize>,
}

#[test]
fn bins_are_chosen_and_written_by_the_rules() {
    let sixteen = |bytes: usize| vec![bytes; OPEN_BINS_MAX];
    let with = |mut sizes: Vec<usize>, more: &[usize]| {
        sizes.extend_from_slice(more);
        sizes
    };
    let all = |range: std::ops::Range<usize>| range.collect::<Vec<_>>();
    let cases = [
        Case {
            name: "a bin waits for company",
            sizes: vec![100, 200],
            at_once: vec![],
            unpacked_at_once: vec![],
            at_last: vec![vec![0, 1]],
            unpacked_at_last: vec![],
        },
        Case {
            name: "a lone fragment is not packed",
            sizes: vec![100],
            at_once: vec![],
            unpacked_at_once: vec![],
            at_last: vec![],
            unpacked_at_last: vec![0],
        },
        Case {
            name: "fourteen fragments are written",
            sizes: vec![100; 15],
            at_once: vec![all(0..14)],
            unpacked_at_once: vec![],
            at_last: vec![all(0..14)],
            unpacked_at_last: vec![14],
        },
        Case {
            name: "an exactly full bin is written",
            sizes: vec![2030, 2030],
            at_once: vec![vec![0, 1]],
            unpacked_at_once: vec![],
            at_last: vec![vec![0, 1]],
            unpacked_at_last: vec![],
        },
        Case {
            name: "the largest fragment takes one byte besides",
            sizes: vec![4059, 1],
            at_once: vec![vec![0, 1]],
            unpacked_at_once: vec![],
            at_last: vec![vec![0, 1]],
            unpacked_at_last: vec![],
        },
        Case {
            name: "no fragment of nothing, none that fills a block",
            sizes: vec![0, 4060, 5000],
            at_once: vec![],
            unpacked_at_once: vec![0, 1, 2],
            at_last: vec![],
            unpacked_at_last: vec![0, 1, 2],
        },
        Case {
            name: "the fullest bin with room",
            // 3000 | 2000; 1000 goes to the first, 1100 no longer fits there.
            sizes: vec![3000, 2000, 1000, 1100],
            at_once: vec![],
            unpacked_at_once: vec![],
            at_last: vec![vec![0, 2], vec![1, 3]],
            unpacked_at_last: vec![],
        },
        Case {
            name: "the first of equally full bins",
            sizes: vec![3000, 3000, 1060],
            at_once: vec![vec![0, 2]],
            unpacked_at_once: vec![],
            at_last: vec![vec![0, 2]],
            unpacked_at_last: vec![1],
        },
        Case {
            name: "without room the fullest bin goes for a smaller newcomer",
            // The second bin has two fragments and is the fullest.
            sizes: with(vec![3000, 3100], &with(vec![3000; 14], &[900, 2000])),
            at_once: vec![vec![1, 16]],
            unpacked_at_once: vec![],
            at_last: vec![vec![1, 16]],
            unpacked_at_last: with(vec![0], &with(all(2..16), &[17])),
        },
        Case {
            name: "a newcomer as large as what would have to go is not packed",
            sizes: with(sixteen(2500), &[2500, 2600]),
            at_once: vec![],
            unpacked_at_once: vec![16, 17],
            at_last: vec![],
            unpacked_at_last: all(0..18),
        },
        Case {
            name: "the bin that goes may hold a lone fragment",
            sizes: with(sixteen(2500), &[2499, 1000]),
            at_once: vec![],
            unpacked_at_once: vec![0],
            // The newcomer's bin is the emptiest; 1000 goes to a fuller one.
            at_last: vec![vec![1, 17]],
            unpacked_at_last: with(vec![0], &all(2..17)),
        },
    ];
    for case in cases {
        let mut test = Test::new(1);
        for bytes in &case.sizes {
            test.pack(*bytes);
        }
        assert_eq!(test.groups(), case.at_once, "{}", case.name);
        assert_eq!(test.unpacked(), case.unpacked_at_once, "{}", case.name);
        test.flush();
        assert_eq!(test.groups(), case.at_last, "{}", case.name);
        assert_eq!(test.unpacked(), case.unpacked_at_last, "{}", case.name);

        let counters = test.world.store.statistics().packer.snapshot();
        let fragments: usize = case.at_last.iter().map(Vec::len).sum();
        assert_eq!(
            counters.compressed_blocks_written,
            case.at_last.len() as u64
        );
        assert_eq!(counters.compressed_fragments_written, fragments as u64);
        assert_eq!(counters.compressed_fragments_in_packer, 0);
    }
}

/// Every byte of the block is what the format says; what no fragment covers is zero, also in a bin that was used before.
#[test]
fn a_written_block_is_exact() {
    let mut test = Test::new(1);
    // Fills the pages of a bin with other bytes first.
    test.pack(2030);
    test.pack(2030);
    for bytes in [300, 1, 500] {
        test.pack(bytes);
    }
    test.flush();

    let mut expected = [0; 4096];
    expected[0] = 1;
    for (slot, bytes) in [300_u16, 1, 500].into_iter().enumerate() {
        expected[8 + 2 * slot..][..2].copy_from_slice(&bytes.to_le_bytes());
    }
    expected[36..336].copy_from_slice(&fragment(2, 300));
    expected[336..337].copy_from_slice(&fragment(3, 1));
    expected[337..837].copy_from_slice(&fragment(4, 500));
    let found: Arc<Block> = test.world.device.disk.contents().block(Test::home(2));
    assert!(*found == expected);

    let writes = test
        .world
        .device
        .ops()
        .iter()
        .filter(|op| matches!(op, Op::Write(..)))
        .count();
    assert_eq!(writes, 2, "one write for each block and nothing else");
}

/// The one who opened the bin gives its block, with a reference claimed for each member; the others give theirs back.
#[test]
fn one_block_is_used_and_the_others_are_given_back() {
    let mut test = Test::new(1);
    for bytes in [100, 200, 300] {
        test.pack(bytes);
    }
    test.flush();
    assert_eq!(test.groups(), [[0, 1, 2]]);
    assert_eq!(test.blocks.claimed(), [(FIRST, 3)]);
    assert_eq!(test.blocks.given_back(), [FIRST + 1, FIRST + 2]);
    assert_eq!(
        test.blocks.use_of(FIRST).holders,
        3,
        "one pin for each member, none for the packer"
    );
    test.pins.lock().unwrap().clear();
    assert_eq!(test.blocks.holders(), 0);
}

#[test]
fn a_kick_writes_the_bin_and_an_old_ticket_does_nothing() {
    let mut test = Test::new(1);
    test.pack(100);
    test.pack(100);
    test.kick(1);
    assert_eq!(test.groups(), [[0, 1]]);

    test.pack(100);
    // The bin is used again, but these tickets name its former use.
    test.kick(0);
    test.kick(1);
    assert_eq!(test.unpacked(), []);
    test.kick(2);
    assert_eq!(test.unpacked(), [2]);
}

#[test]
fn a_kick_from_the_one_who_has_just_come_counts() {
    let mut test = Test::new(1);
    test.pack(100);
    let (packer, home) = (test.packer.clone(), test.blocks.allocate());
    let packed = test.world.run(async move {
        let kicker = packer.clone();
        packer
            .pack(StreamFormat::Lz4, &fragment(9, 90), home, move |ticket| {
                kicker.kick(ticket)
            })
            .await
    });
    assert!(matches!(packed, Packed::Stored { mapping, .. } if mapping.pbn.get() == FIRST));
}

#[test]
fn a_closed_packer_packs_nothing() {
    let mut test = Test::new(1);
    test.pack(100);
    test.pack(100);
    test.packer.close();
    test.settle();
    assert_eq!(test.groups(), [[0, 1]]);
    test.pack(100);
    assert_eq!(test.unpacked(), [2]);
    test.packer.open();
    test.pack(100);
    assert_eq!(test.unpacked(), [2]);
    test.flush();
    assert_eq!(test.unpacked(), [2, 3]);
}

/// When the block cannot be written every member keeps what it had, and nothing was claimed or given back.
#[test]
fn a_failed_write_unpacks_every_member() {
    let mut test = Test::new(1);
    test.world.device.disk.inject(Fault {
        kind: Kind::Write,
        blocks: 0..BLOCKS,
        skip: 0,
        count: 1,
        error: IoError::Io,
    });
    for _ in 0..14 {
        test.pack(100);
    }
    assert_eq!(test.unpacked(), (0..14).collect::<Vec<_>>());
    assert_eq!(test.blocks.claimed(), []);
    assert!(
        !test.world.store.read_only().is_set(),
        "data can still be stored as it is"
    );
    // And the bin is good for others.
    for _ in 0..14 {
        test.pack(100);
    }
    assert_eq!(test.groups(), [(14..28).collect::<Vec<_>>()]);
}

/// Many writers, kicks and flushes at once: everybody gets out, and what was stored is on disk where the mapping says.
#[test]
fn every_fragment_finds_its_way() {
    for_seeds(40, |seed| {
        let mut world = World::new(seed, Image::new(BLOCKS));
        let blocks = TestBlocks::default();
        // With few bins they run out at times.
        let requests = *world.rng.pick(&[2, 4, 64]);
        let packer: TestPacker = Packer::new(world.store.clone(), requests).unwrap();
        let packer = rt::Arc::new(packer).unwrap();
        let mut crowd = Crowd::new(&world.clock);
        for task in 0..64 {
            let (packer, blocks, clock) = (packer.clone(), blocks.clone(), world.clock.clone());
            let mut rng = world.rng.fork();
            crowd.spawn(async move {
                let mut stored = Vec::new();
                for round in 0..6 {
                    clock.sleep(rng.between(1, 20)).await;
                    let bytes = if rng.percent(50) {
                        rng.between(1, 400)
                    } else {
                        rng.between(400, 4059)
                    };
                    let fragment = fragment(task * 100 + round, bytes as usize);
                    let is_impatient = rng.percent(10);
                    let kicker = packer.clone();
                    let on_bin = move |ticket| {
                        if is_impatient {
                            kicker.kick(ticket);
                        }
                    };
                    match packer
                        .pack(StreamFormat::Lz4, &fragment, blocks.allocate(), on_bin)
                        .await
                    {
                        Packed::Stored { pin, mapping } => stored.push((fragment, pin, mapping)),
                        Packed::Unpacked(home) => drop(home),
                    }
                }
                stored
            });
        }
        let (flusher, clock) = (packer.clone(), world.clock.clone());
        world.clock.spawn(async move {
            for _ in 0..10_000 {
                clock.sleep(50).await;
                flusher.flush();
            }
        });
        let stored: Vec<_> = world.run(crowd.join()).into_iter().flatten().collect();
        assert!(!stored.is_empty());
        let contents = world.device.disk.contents();
        for (fragment, _, mapping) in &stored {
            let block = contents.block(mapping.pbn.get());
            let parsed = CompressedBlock::parse(&block).unwrap();
            assert_eq!(parsed.format(), StreamFormat::Lz4);
            let range = parsed.fragment(mapping.fragment().unwrap()).unwrap();
            assert!(block[range] == fragment[..]);
        }
        let claimed: u32 = blocks.claimed().iter().map(|(_, claimed)| claimed).sum();
        assert_eq!(claimed as usize, stored.len());
        assert_eq!(blocks.holders() as usize, stored.len());
        let counters = world.store.statistics().packer.snapshot();
        assert_eq!(counters.compressed_fragments_written as usize, stored.len());
        assert_eq!(counters.compressed_fragments_in_packer, 0);
        drop(stored);
        assert_eq!(blocks.holders(), 0);
        world.assert_no_hazards();
    });
}

/// A block holds one format, however the compressors take turns; its header says which.
#[test]
fn formats_do_not_mix() {
    let mut test = Test::new(1);
    let formats = [
        StreamFormat::Lz4,
        StreamFormat::Deflate,
        StreamFormat::Deflate,
        StreamFormat::Zstd,
        StreamFormat::Lz4,
        StreamFormat::Zstd,
        StreamFormat::Deflate,
    ];
    for format in formats {
        test.pack_as(format, 100);
    }
    test.flush();
    assert_eq!(test.groups(), [vec![0, 4], vec![1, 2, 6], vec![3, 5]]);
    for (number, format) in [
        (0, StreamFormat::Lz4),
        (1, StreamFormat::Deflate),
        (3, StreamFormat::Zstd),
    ] {
        let block: Arc<Block> = test.world.device.disk.contents().block(Test::home(number));
        let compressed = CompressedBlock::parse(&block).unwrap();
        assert_eq!(compressed.format(), format);
        assert_eq!(block[0], if format == StreamFormat::Lz4 { 1 } else { 2 });
    }
}

/// A block that names its format has a byte less for fragments.
#[test]
fn the_name_of_the_format_takes_a_byte() {
    for (format, fits) in [(StreamFormat::Lz4, true), (StreamFormat::Deflate, false)] {
        let mut test = Test::new(1);
        test.pack_as(format, 2030);
        test.pack_as(format, 2030);
        assert_eq!(test.groups().len(), usize::from(fits), "{format:?}");
        test.flush();
        // One byte more than the largest fragment.
        test.pack_as(format, format.fragment_bytes_max() + 1);
        assert!(test.unpacked().contains(&2));
    }
}
