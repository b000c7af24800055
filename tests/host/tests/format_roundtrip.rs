// SPDX-License-Identifier: GPL-2.0

//! What is encoded is decoded again, whatever it is.

use std::ops::Range;

use proptest::prelude::*;
use rvdo_host::engine::format::block_map_entry::{Mapping, MappingState};
use rvdo_host::engine::format::block_map_page::{self, PageContents};
use rvdo_host::engine::format::compressed_block::{
    CompressedBlock, CompressedBlockBuilder, DoesNotFit, StreamFormat,
};
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::geometry::GeometryVersion;
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::recovery_journal::{self, JournalFormat, JournalHeader};
use rvdo_host::engine::format::recovery_journal_entry::{
    BlockMapSlot, JournalEntry, JournalOperation,
};
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{
    self, ReferenceUpdate, SlabJournalEntry, SlabJournalHeader,
};
use rvdo_host::engine::format::slab_summary::SummaryEntry;
use rvdo_host::engine::format::{Geometry, SuperBlock, VolumeState};
use rvdo_host::engine::units::{
    EntrySlot, FragmentSlot, JournalPoint, Nonce, Pbn, SequenceNumber, SlabBlockNumber,
};

fn pbn() -> impl Strategy<Value = Pbn> {
    (0..Pbn::LIMIT).prop_map(|number| Pbn::new(number).unwrap())
}

fn sequence() -> impl Strategy<Value = SequenceNumber> {
    (0..SequenceNumber::LIMIT).prop_map(|number| SequenceNumber::new(number).unwrap())
}

fn mapping() -> impl Strategy<Value = Mapping> {
    (pbn(), 0..16u8).prop_map(|(pbn, state)| Mapping {
        pbn,
        state: MappingState::decode(state),
    })
}

fn entry_slot() -> impl Strategy<Value = EntrySlot> {
    (0..EntrySlot::LIMIT).prop_map(|slot| EntrySlot::new(slot).unwrap())
}

fn journal_entry() -> impl Strategy<Value = JournalEntry> {
    (any::<bool>(), pbn(), entry_slot(), mapping(), mapping()).prop_map(
        |(is_data, page, slot, mapping, unmapping)| JournalEntry {
            operation: if is_data {
                JournalOperation::DataRemap
            } else {
                JournalOperation::BlockMapRemap
            },
            slot: BlockMapSlot { page, slot },
            mapping,
            unmapping,
        },
    )
}

fn update() -> impl Strategy<Value = ReferenceUpdate> {
    prop_oneof![
        30 => Just(ReferenceUpdate::Increment),
        30 => Just(ReferenceUpdate::Decrement),
        1 => Just(ReferenceUpdate::BlockMapIncrement),
    ]
}

fn slab_journal_entry() -> impl Strategy<Value = SlabJournalEntry> {
    (0..SlabBlockNumber::LIMIT, update()).prop_map(|(sbn, update)| SlabJournalEntry {
        sbn: SlabBlockNumber::new(sbn).unwrap(),
        update,
    })
}

fn states() -> impl Strategy<Value = VolumeState> {
    (0..8u32).prop_map(|state| VolumeState::decode(state).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn mappings(mapping in mapping()) {
        prop_assert_eq!(Mapping::decode(mapping.encode()), mapping);
    }

    #[test]
    fn journal_points(sequence in sequence(), entry in any::<u16>()) {
        let point = JournalPoint { sequence, entry };
        prop_assert_eq!(JournalPoint::decode(point.encode()), point);
    }

    #[test]
    fn summary_entries(bytes in any::<[u8; 2]>()) {
        prop_assert_eq!(SummaryEntry::decode(bytes).encode(), bytes);
    }

    #[test]
    fn block_map_pages(
        nonce in any::<u64>(),
        pbn in pbn(),
        entries in prop::collection::vec((entry_slot(), mapping()), 0..50),
    ) {
        let nonce = Nonce::new(nonce);
        let mut page = [0xa5; 4096];
        block_map_page::format(&mut page, nonce, pbn);
        prop_assert_eq!(block_map_page::classify(&page, nonce, pbn), Ok(PageContents::Fresh));
        block_map_page::set_initialized(&mut page, true);
        let mut expected = [Mapping::UNMAPPED; 812];
        for (slot, mapping) in entries {
            block_map_page::set_entry(&mut page, slot, mapping);
            expected[usize::from(slot.get())] = mapping;
        }
        prop_assert_eq!(block_map_page::classify(&page, nonce, pbn), Ok(PageContents::Valid));
        for (slot, mapping) in block_map_page::entries(&page) {
            prop_assert_eq!(mapping, expected[usize::from(slot.get())]);
        }
    }

    #[test]
    fn reference_blocks(
        point in any::<u64>(),
        counters in prop::collection::vec(any::<u8>(), 0..=4032),
    ) {
        let point = JournalPoint::decode(point);
        let mut block = [0xa5; 4096];
        reference_block::encode(&mut block, point, &counters);
        let mut decoded = vec![7; counters.len()];
        let points = reference_block::decode(&block, &mut decoded);
        prop_assert_eq!(points, [point; 8]);
        prop_assert!(!reference_block::is_torn(&points));
        for (index, (found, counter)) in decoded.iter().zip(&counters).enumerate() {
            // A provisional reference does not outlive the machine.
            prop_assert_eq!(*found, if *counter == 255 { 0 } else { *counter });
            let place = reference_block::locate(SlabBlockNumber::new(index as u32).unwrap());
            prop_assert_eq!(block[place.offset], *found);
        }
    }

    #[test]
    fn super_blocks(
        state in states(),
        recoveries in any::<[u64; 2]>(),
        unused in any::<u32>(),
        counters in any::<[u64; 2]>(),
        start in sequence(),
        zone_count in 0..=16u8,
        rest in any::<u8>(),
    ) {
        let params = FormatParams::new(
            2_000_000, 5_000_000, 1 << 14, IndexConfig::SMALLEST, Nonce::new(77), [3; 16],
        );
        let (geometry, mut super_block) = format_volume(&params).unwrap();
        super_block.state = state;
        super_block.complete_recoveries = recoveries[0];
        super_block.read_only_recoveries = recoveries[1];
        super_block.unused = unused;
        super_block.recovery_journal.journal_start = start;
        super_block.recovery_journal.logical_blocks_used = counters[0];
        super_block.recovery_journal.block_map_data_blocks = counters[1];
        super_block.slab_depot.zone_count = zone_count;
        super_block.layout.partitions.swap(0, 2);

        // What others keep behind the super block survives.
        let mut block = [rest; 4096];
        super_block.encode(&mut block).unwrap();
        prop_assert!(block[438..].iter().all(|byte| *byte == rest));
        prop_assert_eq!(SuperBlock::decode(&block), Ok(super_block));
        prop_assert_eq!(super_block.validate(&geometry), Ok(()));
    }

    #[test]
    fn geometry_blocks(
        old in any::<bool>(),
        nonce in any::<u64>(),
        uuid in any::<[u8; 16]>(),
        unused in any::<u32>(),
        offset in 0..1000u64,
        sparse in any::<bool>(),
    ) {
        let geometry = Geometry {
            version: if old { GeometryVersion::V4 } else { GeometryVersion::V5 },
            unused,
            nonce: Nonce::new(nonce),
            uuid,
            bio_offset: if old { 0 } else { offset },
            index_region: rvdo_host::engine::format::geometry::Region {
                id: 0,
                start: Pbn::new(1 + offset).unwrap(),
            },
            data_region: rvdo_host::engine::format::geometry::Region {
                id: 1,
                start: Pbn::new(100_000 + offset).unwrap(),
            },
            index: IndexConfig::new(-512, sparse).unwrap(),
        };
        let mut block = [0xa5; 4096];
        geometry.encode(&mut block).unwrap();
        prop_assert_eq!(Geometry::decode(&block), Ok(geometry));
        let device_block = geometry.device_block(geometry.data_region.start).unwrap();
        prop_assert_eq!(device_block.get(), if old { 100_000 + offset } else { 100_000 });
        prop_assert_eq!(geometry.index_blocks(), 99_999);
    }

    #[test]
    fn compressed_blocks(
        sizes in prop::collection::vec(1..900usize, 0..20),
        format in prop_oneof![
            Just(StreamFormat::Lz4), Just(StreamFormat::Zstd), Just(StreamFormat::Deflate)
        ],
    ) {
        let mut block = [0xa5; 4096];
        let mut builder = CompressedBlockBuilder::new(&mut block, format);
        let mut pushed = Vec::new();
        for (index, size) in sizes.into_iter().enumerate() {
            let fragment = vec![index as u8 + 1; size];
            let room = builder.room();
            match builder.push(&fragment) {
                Ok(slot) => {
                    prop_assert!(size <= room);
                    pushed.push((slot, fragment));
                }
                Err(DoesNotFit) => prop_assert!(size > room || pushed.len() == 14),
            }
        }
        let count = usize::from(builder.count());
        let room = builder.room();
        prop_assert_eq!(count, pushed.len());

        let parsed = CompressedBlock::parse(&block).unwrap();
        prop_assert_eq!(parsed.format(), format);
        for (slot, fragment) in &pushed {
            let range = parsed.fragment(*slot).unwrap();
            prop_assert_eq!(&block[range], &fragment[..]);
        }
        for slot in count..14 {
            prop_assert!(parsed.fragment(FragmentSlot::new(slot as u8).unwrap()).is_err());
        }
        prop_assert!(block[4096 - room..].iter().all(|byte| *byte == 0));
    }
}

fn recovery_header(journal_blocks: u64, sequence: SequenceNumber) -> JournalHeader {
    JournalHeader {
        block_map_head: SequenceNumber::FIRST,
        slab_journal_head: SequenceNumber::FIRST,
        sequence,
        nonce: Nonce::new(0x1234),
        format: JournalFormat::Current,
        entry_count: 0,
        logical_blocks_used: 11,
        block_map_data_blocks: 12,
        check_byte: recovery_journal::check_byte(sequence, journal_blocks),
        recovery_count: 200,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(50) })]

    #[test]
    fn recovery_journal_blocks(
        sequence in sequence(),
        entries in prop::collection::vec(journal_entry(), 0..=217),
    ) {
        let journal_blocks = 64;
        let mut expected = recovery_header(journal_blocks, sequence);
        let mut block = [0xa5; 4096];
        recovery_journal::open(&mut block, &expected);
        for (index, entry) in entries.iter().enumerate() {
            prop_assert!(!recovery_journal::is_full(&block));
            prop_assert_eq!(recovery_journal::append(&mut block, entry), Ok(index as u16));
        }
        let head = SequenceNumber::new(sequence.get() / 2).unwrap();
        recovery_journal::set_heads(&mut block, head, sequence);
        expected.block_map_head = head;
        expected.slab_journal_head = sequence;
        expected.entry_count = entries.len() as u16;

        let header = JournalHeader::decode(&block).unwrap();
        prop_assert_eq!(header, expected);
        let place = recovery_journal::position(sequence, journal_blocks);
        prop_assert_eq!(header.check(expected.nonce, 200, place, journal_blocks), Ok(()));
        prop_assert!(header.check(expected.nonce, 201, place, journal_blocks).is_err());
        prop_assert!(header.check(Nonce::new(1), 200, place, journal_blocks).is_err());
        prop_assert!(header.check(expected.nonce, 200, place ^ 1, journal_blocks).is_err());
        prop_assert_eq!(recovery_journal::intact_entries(&block, &header), entries.len() as u16);
        for (index, entry) in entries.iter().enumerate() {
            prop_assert_eq!(recovery_journal::entry(&block, index as u16), Ok(*entry));
        }
        // Sectors that no entry reaches stay zero.
        let used = 512 + entries.len().div_ceil(31) * 512;
        prop_assert!(block[used..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn slab_journal_blocks(
        sequence in sequence(),
        entries in prop::collection::vec(slab_journal_entry(), 0..1400),
    ) {
        let mut block = [0xa5; 4096];
        let head = SequenceNumber::new(sequence.get() / 2).unwrap();
        slab_journal::open(&mut block, Nonce::new(5), SequenceNumber::ZERO, sequence);
        let mut point = JournalPoint::ZERO;
        let mut kept = Vec::new();
        for entry in entries {
            let full_form_needed = entry.update == ReferenceUpdate::BlockMapIncrement
                || kept.iter().any(|kept: &SlabJournalEntry| {
                    kept.update == ReferenceUpdate::BlockMapIncrement
                });
            let capacity = if full_form_needed { 1299 } else { 1353 };
            let fits = kept.len() < capacity;
            prop_assert_eq!(slab_journal::has_room(&block, entry.update), fits);
            let next = JournalPoint { sequence, entry: kept.len() as u16 };
            let appended = slab_journal::append(&mut block, entry, next);
            prop_assert_eq!(appended.is_ok(), fits);
            if fits {
                point = next;
                kept.push(entry);
            }
        }
        slab_journal::set_head(&mut block, head);

        let header = SlabJournalHeader::decode(&block).unwrap();
        prop_assert_eq!(header.head, head);
        prop_assert_eq!(header.recovery_point, point);
        prop_assert_eq!(usize::from(header.entry_count), kept.len());
        prop_assert_eq!(header.check(Nonce::new(5), sequence), Ok(()));
        prop_assert!(header.check(Nonce::new(6), sequence).is_err());
        let decoded: Result<Vec<_>, _> = slab_journal::entries(&block, &header).collect();
        prop_assert_eq!(decoded, Ok(kept));
    }
}

fn full_block(update: impl Fn(u16) -> ReferenceUpdate) -> ([u8; 4096], u16) {
    let mut block = [0; 4096];
    slab_journal::open(
        &mut block,
        Nonce::new(5),
        SequenceNumber::FIRST,
        SequenceNumber::FIRST,
    );
    let mut count = 0;
    loop {
        let entry = SlabJournalEntry {
            sbn: SlabBlockNumber::new(count.into()).unwrap(),
            update: update(count),
        };
        if slab_journal::append(&mut block, entry, JournalPoint::ZERO).is_err() {
            return (block, count);
        }
        count += 1;
    }
}

#[test]
fn slab_journal_blocks_take_as_many_entries_as_their_form_has() {
    let (block, count) = full_block(|_| ReferenceUpdate::Increment);
    assert_eq!(count, 1353);
    assert!(slab_journal::is_full(&block));

    let (block, count) = full_block(|index| match index {
        1298 => ReferenceUpdate::BlockMapIncrement,
        _ => ReferenceUpdate::Decrement,
    });
    assert_eq!(count, 1299);
    assert!(slab_journal::is_full(&block));

    // Too late for the full form; others still fit.
    let (block, count) = full_block(|index| match index {
        1299 => ReferenceUpdate::BlockMapIncrement,
        _ => ReferenceUpdate::Decrement,
    });
    assert_eq!(count, 1299);
    assert!(!slab_journal::is_full(&block));
    assert!(slab_journal::has_room(&block, ReferenceUpdate::Decrement));
}

/// All the ways in which a block of the recovery journal can be torn.
#[test]
fn torn_recovery_journal_blocks_count_up_to_the_tear() {
    let header = recovery_header(64, SequenceNumber::new(700).unwrap());
    let entry = JournalEntry {
        operation: JournalOperation::DataRemap,
        slot: BlockMapSlot {
            page: Pbn::new(9).unwrap(),
            slot: EntrySlot::ZERO,
        },
        mapping: Mapping::ZERO_BLOCK,
        unmapping: Mapping::UNMAPPED,
    };
    let block_of = |header: &JournalHeader, entries: u16| {
        let mut block = [0; 4096];
        recovery_journal::open(&mut block, header);
        for _ in 0..entries {
            recovery_journal::append(&mut block, &entry).unwrap();
        }
        block
    };
    let with_sector = |mut block: [u8; 4096], other: &[u8; 4096], sector: usize| {
        let bytes = sector * 512..(sector + 1) * 512;
        block[bytes.clone()].copy_from_slice(&other[bytes]);
        block
    };
    let intact = |block: &[u8; 4096]| {
        let header = JournalHeader::decode(block).unwrap();
        recovery_journal::intact_entries(block, &header)
    };

    let new = block_of(&header, 150);
    assert_eq!(intact(&new), 150);
    // An earlier write of the same block.
    let earlier = block_of(&header, 40);
    assert_eq!(intact(&with_sector(new, &earlier, 1)), 150);
    assert_eq!(intact(&with_sector(new, &earlier, 2)), 40);
    assert_eq!(intact(&with_sector(new, &earlier, 3)), 62);
    // A block of an earlier round.
    let old_header = recovery_header(64, SequenceNumber::new(700 - 64).unwrap());
    let old = block_of(&old_header, 217);
    let tears: Range<usize> = 1..6;
    for sector in tears {
        assert_eq!(
            intact(&with_sector(new, &old, sector)),
            (sector as u16 - 1) * 31
        );
    }
    assert_eq!(intact(&with_sector(new, &old, 6)), 150);
    // A sector with more entries than the header knows.
    assert_eq!(intact(&with_sector(new, &block_of(&header, 217), 5)), 150);
}

#[test]
fn torn_reference_blocks_are_noticed() {
    let point = |sequence| JournalPoint {
        sequence: SequenceNumber::new(sequence).unwrap(),
        entry: 3,
    };
    let mut block = [0; 4096];
    reference_block::encode(&mut block, point(4), &[1; 4032]);
    let mut newer = [0; 4096];
    reference_block::encode(&mut newer, point(5), &[2; 4032]);
    block[512 * 6..].copy_from_slice(&newer[512 * 6..]);

    let points = reference_block::commit_points(&block);
    assert!(reference_block::is_torn(&points));
    assert_eq!((points[5], points[6]), (point(4), point(5)));
}
