// SPDX-License-Identifier: GPL-2.0

//! Numbers that follow from a volume's configuration: slabs, trees, index and layout.

use rvdo_host::engine::format::block_map_tree::{locate, Forest, TreeSlot};
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::layout::{FixedParts, Layout};
use rvdo_host::engine::format::slab_summary::{self, SummaryEntry};
use rvdo_host::engine::format::{FormatError, PartitionId, SlabConfig, SuperBlock};
use rvdo_host::engine::units::{EntrySlot, Lbn, Nonce, Pbn, SlabNumber};

/// (log2 of the slab, reference blocks set aside, used, data blocks).
const SLABS: [(u32, u64, u64, u64); 11] = [
    (13, 2, 2, 7_966),
    (14, 5, 5, 16_155),
    (15, 9, 9, 32_535),
    (16, 17, 17, 65_295),
    (17, 33, 33, 130_815),
    (18, 65, 65, 261_855),
    (19, 130, 130, 523_934),
    (20, 261, 260, 1_048_091),
    (21, 521, 520, 2_096_407),
    (22, 1_041, 1_040, 4_193_039),
    (23, 2_081, 2_080, 8_386_303),
];

#[test]
fn slabs_are_divided_as_known() {
    for (bits, reserved, used, data) in SLABS {
        let config = SlabConfig::compute(1 << bits, 224).unwrap();
        assert_eq!(config.reference_count_blocks, reserved, "2^{bits}");
        assert_eq!(config.used_reference_blocks(), used, "2^{bits}");
        assert_eq!(config.data_blocks, data, "2^{bits}");
        assert_eq!(config.slab_bits(), bits);
        assert_eq!(
            (
                config.flushing_threshold,
                config.blocking_threshold,
                config.scrubbing_threshold
            ),
            (168, 208, 222)
        );
        assert_eq!(config.validate(), Ok(()));
    }
}

/// (journal blocks, flushing, blocking and scrubbing threshold).
const THRESHOLDS: [(u64, u64, u64, u64); 10] = [
    (224, 168, 208, 222),
    (192, 144, 178, 190),
    (160, 120, 148, 158),
    (159, 120, 147, 157),
    (128, 96, 118, 126),
    (96, 72, 89, 94),
    (80, 60, 74, 78),
    (64, 48, 59, 62),
    (48, 36, 44, 46),
    (32, 24, 29, 30),
];

#[test]
fn thresholds_follow_from_the_journal_size() {
    for (journal, flushing, blocking, scrubbing) in THRESHOLDS {
        let config = SlabConfig::compute(1 << 16, journal).unwrap();
        assert_eq!(
            (
                config.flushing_threshold,
                config.blocking_threshold,
                config.scrubbing_threshold
            ),
            (flushing, blocking, scrubbing),
            "{journal} blocks"
        );
    }
}

#[test]
fn impossible_slabs_are_refused() {
    let refused = |slab, journal| {
        assert!(matches!(
            SlabConfig::compute(slab, journal),
            Err(FormatError::BadConfiguration(_))
        ));
    };
    refused(0, 224);
    refused(3000, 224);
    refused(1 << 24, 224);
    refused(256, 256);
    refused(256, 255);
    refused(1 << 13, 0);
    refused(1 << 13, u64::MAX);
    assert!(SlabConfig::compute(256, 254).is_ok_and(|config| config.data_blocks == 1));
}

#[test]
fn configurations_read_from_disk_are_checked() {
    let good = SlabConfig::compute(1 << 13, 224).unwrap();
    let refused = |change: fn(&mut SlabConfig)| {
        let mut config = good;
        change(&mut config);
        assert!(config.validate().is_err(), "{config:?}");
    };
    refused(|config| config.slab_blocks = 8191);
    refused(|config| config.data_blocks = 0);
    refused(|config| config.data_blocks = u64::MAX);
    refused(|config| config.data_blocks += 1);
    refused(|config| config.reference_count_blocks = 1);
    refused(|config| {
        config.data_blocks -= 100;
        config.slab_journal_blocks = 257;
    });
    refused(|config| config.slab_journal_blocks = 0);
    refused(|config| config.flushing_threshold = 209);
    refused(|config| config.blocking_threshold = 223);
    refused(|config| config.scrubbing_threshold = 225);
}

#[test]
fn trees_have_the_pages_that_their_leaves_need() {
    let forest = Forest::new(1, 60).unwrap();
    assert_eq!(forest.leaf_count(), 1);
    assert_eq!((forest.pages(0, 0), forest.pages(1, 0)), (1, 0));
    assert_eq!(
        (forest.pages(59, 4), forest.pages(60, 4), forest.pages(0, 5)),
        (1, 0, 0)
    );

    // 61 leaves: the first tree has two of them.
    let forest = Forest::new(60 * 812 + 1, 60).unwrap();
    assert_eq!(
        (forest.pages(0, 0), forest.pages(1, 0), forest.pages(59, 0)),
        (2, 1, 1)
    );

    // As many as there can be.
    let forest = Forest::new(1 << 40, 60).unwrap();
    assert_eq!(forest.leaf_count(), (1u64 << 40).div_ceil(812));
    assert_eq!(forest.pages(0, 0), 22_567_973);
    assert_eq!(forest.pages(0, 1), 27_794);
    assert_eq!(forest.pages(0, 2), 35);
    assert_eq!(forest.pages(0, 3), 1);

    assert!(Forest::new((1 << 40) + 1, 60).is_err());
    assert!(Forest::new(1, 0).is_err());
    assert!(Forest::new(1, 61).is_err());
}

#[test]
fn every_leaf_belongs_to_one_tree() {
    for logical in [
        1u64,
        811,
        812,
        813,
        60 * 812,
        60 * 812 + 1,
        1_000_000,
        123_456_789,
    ] {
        let forest = Forest::new(logical, 60).unwrap();
        let leaves: u64 = (0..60).map(|root| forest.pages(root, 0)).sum();
        assert_eq!(leaves, forest.leaf_count());
    }
}

#[test]
fn paths_lead_from_the_entry_to_the_root() {
    let slot = |page, slot| TreeSlot {
        page,
        slot: EntrySlot::new(slot).unwrap(),
    };
    // Leaf 60 * (812 * 812 * 5 + 812 * 7 + 9) + 13, entry 800.
    let leaf = 60 * (812 * 812 * 5 + 812 * 7 + 9) + 13;
    let path = locate(Lbn::new(leaf * 812 + 800), 60).unwrap();
    assert_eq!(path.root, 13);
    assert_eq!(
        path.levels,
        [
            slot(812 * 812 * 5 + 812 * 7 + 9, 800),
            slot(812 * 5 + 7, 9),
            slot(5, 7),
            slot(0, 5),
            slot(0, 0),
        ]
    );
    assert_eq!(locate(Lbn::new(0), 0), None);
}

/// (code, sparse, blocks): what the index takes, as published for the formatting tools.
const INDEXES: [(i32, bool, u64); 9] = [
    (-256, false, 679_127),
    (-512, false, 1_366_399),
    (-768, false, 2_053_669),
    (1, false, 2_732_747),
    (2, false, 5_496_229),
    (-256, true, 5_822_251),
    (-512, true, 11_726_359),
    (-768, true, 17_630_467),
    (1, true, 23_452_645),
];

#[test]
fn indexes_take_the_known_number_of_blocks() {
    for (memory, sparse, blocks) in INDEXES {
        let config = IndexConfig::new(memory, sparse).unwrap();
        assert_eq!(config.memory_code(), memory);
        assert_eq!(
            config.region_blocks(),
            blocks,
            "memory {memory}, sparse {sparse}"
        );
    }
}

#[test]
fn index_memory_codes() {
    let valid: Vec<i32> = (-5000..5200)
        .filter(|code| IndexConfig::new(*code, false).is_ok())
        .collect();
    let mut expected = vec![-1792, -1536, -1280, -768, -512, -256];
    expected.extend(1..=1024);
    expected.extend(4097..=5120);
    assert_eq!(valid, expected);
    for code in valid {
        for sparse in [false, true] {
            let config = IndexConfig::new(code, sparse).unwrap();
            assert_eq!(config.memory_code(), code);
            // Also shows that nothing overflows.
            assert!(config.region_blocks() > 600_000);
        }
    }
    assert!(IndexConfig::new(i32::MIN, false).is_err());
    assert!(IndexConfig::new(i32::MAX, true).is_err());
}

fn params(physical: u64, slab_bits: u32) -> FormatParams {
    let index = IndexConfig::SMALLEST;
    FormatParams::new(
        physical,
        1000,
        1 << slab_bits,
        index,
        Nonce::new(1),
        [0; 16],
    )
}

#[test]
fn the_smallest_volume() {
    // The size that the formatting tool names when it finds a device too small.
    let smallest = 1_236_309;
    assert!(format_volume(&params(smallest, 19)).is_ok());
    assert_eq!(
        format_volume(&params(smallest - 1, 19)),
        Err(FormatError::NoSpace {
            required: smallest,
            available: smallest - 1,
        })
    );
    assert_eq!(
        format_volume(&params(700_000, 19)),
        Err(FormatError::NoSpace {
            required: smallest,
            available: 700_000,
        })
    );
}

#[test]
fn no_more_slabs_than_the_summary_has_room_for() {
    let most = 679_128 + 1 + 60 + 32_768 + 64 + (8192 << 13);
    assert!(format_volume(&params(most, 13)).is_ok());
    assert_eq!(
        format_volume(&params(most + 8192, 13)),
        Err(FormatError::TooManySlabs {
            slabs: 8193,
            limit: 8192,
        })
    );
}

#[test]
fn a_volume_of_the_largest_size() {
    let (geometry, super_block) = format_volume(&params(1 << 36, 23)).unwrap();
    assert_eq!(super_block.validate(&geometry), Ok(()));
    assert!(format_volume(&params((1 << 36) + 1, 23)).is_err());
}

#[test]
fn blocks_are_found_in_their_slabs() {
    let (_, super_block) = format_volume(&params(2_000_000, 13)).unwrap();
    let depot = super_block.slab_depot;
    let last = SlabNumber::new(depot.slab_count() - 1);
    assert_eq!(depot.slab_start(SlabNumber::ZERO), Some(depot.first_block));
    assert_eq!(depot.slab_start(SlabNumber::new(depot.slab_count())), None);

    let start = depot.slab_start(last).unwrap();
    let (slab, sbn) = depot.locate(start.checked_add(7965).unwrap()).unwrap();
    assert_eq!((slab, sbn.get()), (last, 7965));
    assert!(depot.is_data_block(start.checked_add(7965).unwrap()));
    assert!(!depot.is_data_block(start.checked_add(7966).unwrap()));
    assert!(!depot.is_data_block(Pbn::ZERO));
    assert_eq!(
        depot.locate(Pbn::new(depot.first_block.get() - 1).unwrap()),
        None
    );
    assert_eq!(depot.locate(Pbn::new(depot.last_block).unwrap()), None);
    assert_eq!(
        depot.slab_config.journal_origin(start),
        start.checked_add(7966 + 2)
    );
}

/// A super block that passes, and the ways in which it may not.
#[test]
fn contradictions_in_a_super_block_are_found() {
    let (geometry, good) = format_volume(&params(2_000_000, 13)).unwrap();
    let refused = |change: &dyn Fn(&mut SuperBlock)| {
        let mut super_block = good;
        change(&mut super_block);
        assert!(super_block.validate(&geometry).is_err(), "{super_block:?}");
    };
    refused(&|sb| sb.nonce = Nonce::new(2));
    refused(&|sb| sb.config.physical_blocks += 1);
    refused(&|sb| sb.config.physical_blocks = 0);
    refused(&|sb| sb.config.slab_size = 0);
    refused(&|sb| sb.config.recovery_journal_size = 30_000);
    refused(&|sb| sb.config.recovery_journal_size = 0);
    refused(&|sb| sb.config.recovery_journal_size = 65_536);
    refused(&|sb| sb.config.logical_blocks = (1 << 40) + 1);
    refused(&|sb| sb.layout.partitions[0].start = Pbn::ZERO);
    refused(&|sb| sb.layout.partitions[0].id = PartitionId::BlockMap);
    refused(&|sb| sb.layout.partitions[1].start = sb.layout.partitions[0].start);
    refused(&|sb| sb.layout.partitions[3].blocks = u64::MAX);
    refused(&|sb| sb.slab_depot.first_block = Pbn::new(1).unwrap());
    refused(&|sb| sb.slab_depot.last_block += 1 << 20);
    refused(&|sb| sb.slab_depot.last_block -= 1);
    refused(&|sb| sb.slab_depot.last_block = sb.slab_depot.first_block.get());
    refused(&|sb| sb.slab_depot.zone_count = 17);
    refused(&|sb| sb.slab_depot.slab_config.data_blocks = 9000);
    refused(&|sb| sb.block_map.root_count = 61);
    refused(&|sb| sb.block_map.root_count = 0);
    refused(&|sb| sb.block_map.root_origin = Pbn::ZERO);
}

#[test]
fn the_table_line_may_only_make_the_volume_larger() {
    let config = params(2_000_000, 13).config;
    assert_eq!(config.reconcile(2_000_000, 1000), Ok(1000));
    assert_eq!(config.reconcile(2_000_000, 5000), Ok(5000));
    assert!(config.reconcile(2_000_000, 999).is_err());
    assert!(config.reconcile(2_000_001, 1000).is_err());
    assert!(config.reconcile(2_000_000, (1 << 40) + 1).is_err());
}

/// A grown volume has only its slabs, journal and summary elsewhere.
#[test]
fn growth_keeps_the_front_of_the_layout() {
    let fixed = FixedParts {
        block_map: 60,
        recovery_journal: 32_768,
        slab_summary: 64,
    };
    let first = Pbn::new(100).unwrap();
    let small = Layout::compute(first, 100_000, fixed).unwrap();
    let large = Layout::compute(first, 200_000, fixed).unwrap();
    for id in [PartitionId::BlockMap, PartitionId::SlabDepot] {
        let start = |layout: &Layout| layout.partition(id).unwrap().start;
        assert_eq!(start(&small), start(&large));
    }
    assert_eq!(large.validate(first, 200_000), Ok(()));
    assert!(large.validate(first, 100_000).is_err());
    assert_eq!(
        large.partition(PartitionId::SlabSummary).unwrap().end(),
        200_000
    );
}

#[test]
fn fullness_hints() {
    let unused = SummaryEntry::unused(&SlabConfig::compute(1 << 19, 224).unwrap());
    assert_eq!(unused.fullness_hint, 63);
    assert_eq!(unused.encode(), [0, 63]);
    assert!(unused.has_blank_journal());
    assert_eq!(slab_summary::fullness_hint(0, 19), 0);
    assert_eq!(slab_summary::fullness_hint(1, 19), 1);
    assert_eq!(slab_summary::fullness_hint(8191, 19), 1);
    assert_eq!(slab_summary::fullness_hint(16384, 19), 2);
    // Slabs of fewer blocks than the hint has steps.
    assert_eq!(slab_summary::fullness_hint(5, 4), 5);
    assert_eq!(slab_summary::fullness_hint(u64::MAX, 13), 63);
}

#[test]
fn summary_entries_say_where_the_journal_ends() {
    let entry = |offset, load| SummaryEntry {
        tail_block_offset: offset,
        load_reference_counts: load,
        ..SummaryEntry::default()
    };
    assert_eq!(entry(0, false).newest_journal_position(224), None);
    let dirty = SummaryEntry {
        is_dirty: true,
        ..entry(0, false)
    };
    assert_eq!(dirty.newest_journal_position(224), Some(223));
    assert_eq!(entry(0, true).newest_journal_position(224), Some(223));
    assert_eq!(entry(1, false).newest_journal_position(224), Some(0));
    assert_eq!(entry(223, true).newest_journal_position(224), Some(222));
    // Not a position of this journal.
    assert_eq!(entry(224, true).newest_journal_position(224), None);
}

#[test]
fn summary_copies_and_blocks() {
    assert_eq!(slab_summary::locate(0, SlabNumber::new(0)), Some((0, 0)));
    assert_eq!(
        slab_summary::locate(3, SlabNumber::new(2049)),
        Some((13, 1))
    );
    assert_eq!(
        slab_summary::locate(15, SlabNumber::new(8191)),
        Some((63, 2047))
    );
    assert_eq!(slab_summary::locate(16, SlabNumber::new(0)), None);
    assert_eq!(slab_summary::locate(0, SlabNumber::new(8192)), None);
    assert_eq!(slab_summary::authoritative_copy(SlabNumber::new(7), 0), 0);
    assert_eq!(slab_summary::authoritative_copy(SlabNumber::new(7), 3), 1);
}
