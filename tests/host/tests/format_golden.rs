// SPDX-License-Identifier: GPL-2.0

//! Volumes of the in-tree driver and of its tools: every structure decodes, says what it should,
//! and is encoded again to the same bytes. See `tests/fixtures/README.md`.

mod format_world;

use std::collections::BTreeMap;

use format_world::{unpack, Fixture, ZEROS};
use rvdo_host::engine::format::block_map_entry::{Mapping, MappingState};
use rvdo_host::engine::format::block_map_page::{self};
use rvdo_host::engine::format::block_map_tree::Forest;
use rvdo_host::engine::format::compressed_block::{
    CompressedBlock, CompressedBlockBuilder, StreamFormat,
};
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::recovery_journal::{self};
use rvdo_host::engine::format::recovery_journal_entry::{
    BlockMapSlot, JournalEntry, JournalOperation,
};
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{self, ReferenceUpdate};
use rvdo_host::engine::format::slab_summary::{self, SummaryEntry};
use rvdo_host::engine::format::{Geometry, PartitionId, SuperBlock, VolumeState};
use rvdo_host::engine::units::{Block, FragmentSlot, JournalPoint, Pbn, SlabNumber};

/// What `vdoformat` made for devices of several sizes.
#[test]
fn formatted_volumes_are_laid_out_alike() {
    let bytes = unpack(include_bytes!("../../fixtures/formatted.gz"));
    let mut count = 0;
    for pair in bytes.chunks_exact(2 * 4096) {
        let (first, second) = pair.split_first_chunk::<4096>().unwrap();
        let second: &Block = second.try_into().unwrap();
        let geometry = Geometry::decode(first).unwrap();
        let super_block = SuperBlock::decode(second).unwrap();
        assert_eq!(super_block.validate(&geometry), Ok(()));
        assert_eq!(super_block.state, VolumeState::New);

        let params = FormatParams {
            config: super_block.config,
            nonce: geometry.nonce,
            uuid: geometry.uuid,
            index: geometry.index,
            index_blocks: geometry.index.region_blocks(),
        };
        assert_eq!(format_volume(&params), Ok((geometry, super_block)));

        let (mut again_first, mut again_second) = ([0xa5; 4096], ZEROS);
        geometry.encode(&mut again_first).unwrap();
        super_block.encode(&mut again_second).unwrap();
        assert!(again_first == *first, "geometry block {count}");
        assert!(again_second == *second, "super block {count}");
        count += 1;
    }
    assert_eq!(count, 8);
}

#[test]
fn super_blocks_are_encoded_alike() {
    for (fixture, state) in [
        (Fixture::clean(), VolumeState::Clean),
        (Fixture::crashed(), VolumeState::Dirty),
    ] {
        assert_eq!(fixture.super_block.state, state);
        assert_eq!(fixture.geometry.index, IndexConfig::SMALLEST);
        let start = fixture.geometry.data_region.start;
        let mut again = *fixture.block(start);
        again[..438].fill(0xa5);
        fixture.super_block.encode(&mut again).unwrap();
        assert!(again == *fixture.block(start));
        let mut again = [0xa5; 4096];
        fixture.geometry.encode(&mut again).unwrap();
        assert!(again == *fixture.block(Pbn::ZERO));
    }
}

/// On a clean volume the counters are what the block map says, to the last one.
#[test]
fn counters_of_a_clean_volume_are_those_of_its_map() {
    let fixture = Fixture::clean();
    let depot = fixture.super_block.slab_depot;
    let (pages, entries) = fixture.map();
    let forest = Forest::new(fixture.super_block.config.logical_blocks, 60).unwrap();
    assert!(pages.len() as u64 <= forest.allocated_pages_max());

    let mut expected: BTreeMap<Pbn, u8> = pages.iter().map(|page| (*page, 254)).collect();
    for mapping in entries.values().filter(|mapping| mapping.has_block()) {
        assert!(depot.is_data_block(mapping.pbn));
        *expected.entry(mapping.pbn).or_default() += 1;
    }
    assert!(
        expected.values().any(|count| (2..254).contains(count)),
        "nothing is shared"
    );

    for (slab, start, summary) in fixture.slabs() {
        let counters = if summary.load_reference_counts {
            fixture.counters(start)
        } else {
            vec![0; depot.slab_config.data_blocks as usize]
        };
        for (sbn, counter) in counters.iter().enumerate() {
            let pbn = start.checked_add(sbn as u64).unwrap();
            let count = expected.remove(&pbn).unwrap_or(0);
            assert_eq!(*counter, count, "block {sbn} of slab {slab}");
        }
        let free = counters.iter().filter(|counter| **counter == 0).count() as u64;
        assert!(!summary.is_dirty);
        assert_eq!(
            summary.fullness_hint,
            slab_summary::fullness_hint(free, depot.slab_config.slab_bits())
        );
    }
    assert_eq!(expected, BTreeMap::new(), "not in any slab");

    let journal = fixture.super_block.recovery_journal;
    let used = entries
        .values()
        .filter(|mapping| mapping.is_mapped())
        .count();
    assert_eq!(journal.logical_blocks_used, used as u64);
    assert_eq!(journal.block_map_data_blocks, pages.len() as u64);
    assert!(entries
        .values()
        .any(|mapping| *mapping == Mapping::ZERO_BLOCK));
}

#[test]
fn block_map_pages_are_encoded_alike() {
    for fixture in [Fixture::clean(), Fixture::crashed()] {
        let (pages, _) = fixture.map();
        assert!(pages.len() > 8);
        for page in pages {
            let block = fixture.block(page);
            if block == &ZEROS {
                continue;
            }
            let mut again = ZEROS;
            block_map_page::format(&mut again, fixture.geometry.nonce, page);
            block_map_page::set_initialized(&mut again, block_map_page::is_initialized(block));
            for (slot, mapping) in block_map_page::entries(block) {
                block_map_page::set_entry(&mut again, slot, mapping);
            }
            // Three fields are unused, and not always zero.
            again[24..32].copy_from_slice(&block[24..32]);
            again[33..36].copy_from_slice(&block[33..36]);
            assert!(again == *block, "page {page}");
        }
    }
}

#[test]
fn reference_blocks_are_encoded_alike() {
    let fixture = Fixture::clean();
    let config = fixture.super_block.slab_depot.slab_config;
    let mut count = 0;
    for (_, start, summary) in fixture.slabs() {
        if !summary.load_reference_counts {
            continue;
        }
        let origin = config.reference_origin(start).unwrap();
        for (index, counters) in fixture.counters(start).chunks(4032).enumerate() {
            let block = fixture.block(origin.checked_add(index as u64).unwrap());
            let points = reference_block::commit_points(block);
            assert!(!reference_block::is_torn(&points));
            let mut again = [0xa5; 4096];
            reference_block::encode(&mut again, points[0], counters);
            assert!(again == *block);
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn slab_summaries_are_encoded_alike() {
    for fixture in [Fixture::clean(), Fixture::crashed()] {
        let unused = SummaryEntry::unused(&fixture.super_block.slab_depot.slab_config);
        let mut used = 0;
        let mut blocks = 0;
        for (_, block) in fixture.partition(PartitionId::SlabSummary) {
            let mut again = [0xa5; 4096];
            for index in 0..slab_summary::ENTRIES_PER_BLOCK {
                let entry = slab_summary::entry(block, index).unwrap();
                used += usize::from(entry != unused);
                slab_summary::set_entry(&mut again, index, entry).unwrap();
            }
            assert!(again == *block);
            blocks += 1;
        }
        assert_eq!(blocks, 64);
        assert!(used > 0);
    }
}

/// All blocks of the slab journals are made again from their entries, and what they say agrees
/// with the recovery journal.
#[test]
fn slab_journals_are_encoded_alike() {
    for fixture in [Fixture::clean(), Fixture::crashed()] {
        let nonce = fixture.geometry.nonce;
        let mut full_form = 0;
        let mut data_form = 0;
        for (slab, start, summary) in fixture.slabs() {
            let blocks = fixture.slab_journal(start);
            let newest = summary.newest_journal_position(224);
            let Some((last, _)) = blocks.last() else {
                assert_eq!(newest, None, "slab {slab}");
                continue;
            };
            // The newest block may not have made it into the summary before a crash.
            let position = last.sequence.get() % 224;
            let behind = (position + 224 - newest.unwrap_or(position)) % 224;
            if fixture.super_block.state == VolumeState::Clean {
                assert_eq!(behind, 0, "slab {slab}");
            }

            let mut point = JournalPoint::ZERO;
            for (header, block) in blocks {
                assert!(header.recovery_point > point);
                point = header.recovery_point;
                let mut again = [0xa5; 4096];
                slab_journal::open(&mut again, nonce, header.head, header.sequence);
                for entry in slab_journal::entries(block, &header) {
                    let entry = entry.unwrap();
                    assert!(u64::from(entry.sbn.get()) < 7966);
                    slab_journal::append(&mut again, entry, point).unwrap();
                }
                let entries_end = 36 + 3 * usize::from(header.entry_count);
                assert!(again[..entries_end] == block[..entries_end]);
                if header.full_form {
                    full_form += 1;
                    assert!(again == *block, "slab {slab}, block {}", header.sequence);
                } else {
                    data_form += 1;
                }
            }
        }
        assert!(
            full_form > 0 && data_form > 0,
            "{full_form} and {data_form}"
        );
    }
}

/// All blocks of the recovery journal are made again from their entries.
#[test]
fn recovery_journals_are_encoded_alike() {
    for fixture in [Fixture::clean(), Fixture::crashed()] {
        let journal = fixture.journal();
        assert!(journal.len() > 10);
        let depot = fixture.super_block.slab_depot;
        let physical_blocks = fixture.super_block.config.physical_blocks;
        let mut expected = None;
        for (sequence, (header, block)) in &journal {
            assert!(
                expected.is_none_or(|expected| expected == *sequence),
                "a gap"
            );
            expected = sequence.next();

            assert_eq!(
                recovery_journal::intact_entries(block, header),
                header.entry_count
            );
            let mut again = [0xa5; 4096];
            recovery_journal::open(&mut again, header);
            for index in 0..header.entry_count {
                let entry = recovery_journal::entry(block, index).unwrap();
                entry
                    .validate(physical_blocks, |pbn| depot.is_data_block(pbn))
                    .unwrap();
                recovery_journal::append(&mut again, &entry).unwrap();
            }
            assert!(again == **block, "block {sequence}");
        }
    }
}

fn journal_entries(fixture: &Fixture) -> Vec<(JournalPoint, JournalEntry)> {
    let mut entries = Vec::new();
    for (sequence, (header, block)) in fixture.journal() {
        for entry in 0..header.entry_count {
            let point = JournalPoint { sequence, entry };
            entries.push((point, recovery_journal::entry(block, entry).unwrap()));
        }
    }
    entries
}

/// Each entry replaces what the entry before it stored, and the last one is what the map has.
#[test]
fn journal_entries_lead_to_the_map() {
    let fixture = Fixture::clean();
    let (pages, entries) = fixture.map();
    let mut latest: BTreeMap<BlockMapSlot, Mapping> = BTreeMap::new();
    let mut new_pages = 0;
    for (point, entry) in journal_entries(&fixture) {
        let before = latest.insert(entry.slot, entry.mapping).unwrap_or_default();
        assert_eq!(entry.unmapping, before, "entry {point}");
        if entry.operation == JournalOperation::BlockMapRemap {
            assert!(pages.contains(&entry.mapping.pbn));
            new_pages += 1;
            latest.remove(&entry.slot);
        }
    }
    assert_eq!(new_pages, pages.len());
    for (slot, mapping) in latest {
        assert_eq!(entries.get(&slot), Some(&mapping));
    }

    let (header, block) = fixture.journal().into_values().next_back().unwrap();
    let state = fixture.super_block.recovery_journal;
    assert_eq!(header.sequence.next(), Some(state.journal_start));
    let mut used = header.logical_blocks_used;
    for index in 0..header.entry_count {
        let entry = recovery_journal::entry(block, index).unwrap();
        if entry.operation == JournalOperation::DataRemap {
            used += u64::from(entry.mapping.is_mapped());
            used -= u64::from(entry.unmapping.is_mapped());
        }
    }
    assert_eq!(used, state.logical_blocks_used);
}

/// Each slab's journal is the halves of the recovery journal's entries that are in the slab, in
/// their order, and the point of a block is that of its last entry.
#[test]
fn slab_journals_repeat_the_recovery_journal() {
    for fixture in [Fixture::clean(), Fixture::crashed()] {
        let depot = fixture.super_block.slab_depot;
        let mut halves: BTreeMap<SlabNumber, Vec<_>> = BTreeMap::new();
        let mut add = |pbn: Pbn, update, point| {
            if let Some((slab, sbn)) = depot.locate(pbn) {
                let point = slab_journal::expand_point(point, update);
                halves.entry(slab).or_default().push((sbn, update, point));
            }
        };
        for (point, entry) in journal_entries(&fixture) {
            let increment = match entry.operation {
                JournalOperation::DataRemap => ReferenceUpdate::Increment,
                JournalOperation::BlockMapRemap => ReferenceUpdate::BlockMapIncrement,
            };
            add(entry.mapping.pbn, increment, point);
            add(entry.unmapping.pbn, ReferenceUpdate::Decrement, point);
        }

        let mut compared = 0;
        for (slab, start, _) in fixture.slabs() {
            let mut expected = halves.remove(&slab).unwrap_or_default().into_iter();
            for (header, block) in fixture.slab_journal(start) {
                let mut point = JournalPoint::ZERO;
                for entry in slab_journal::entries(block, &header) {
                    let entry = entry.unwrap();
                    let (sbn, update, next) = expected.next().expect("an entry too many");
                    assert_eq!((entry.sbn, entry.update), (sbn, update), "slab {slab}");
                    point = next;
                    compared += 1;
                }
                assert_eq!(header.recovery_point, point);
            }
            if fixture.super_block.state == VolumeState::Clean {
                assert_eq!(expected.len(), 0, "slab {slab} misses entries");
            }
        }
        assert!(compared > 2000, "only {compared} entries");
    }
}

#[test]
fn fragments_expand_to_blocks() {
    let fixture = Fixture::clean();
    let (_, entries) = fixture.map();
    let mut blocks: BTreeMap<Pbn, Vec<FragmentSlot>> = BTreeMap::new();
    for mapping in entries.values() {
        if let MappingState::Compressed(slot) = mapping.state {
            if fixture.blocks.contains_key(&mapping.pbn.get()) {
                blocks.entry(mapping.pbn).or_default().push(slot);
            }
        }
    }
    assert!(blocks.len() >= 10);

    for (pbn, slots) in blocks {
        let block = fixture.block(pbn);
        let parsed = CompressedBlock::parse(block).unwrap();
        assert_eq!(parsed.format(), StreamFormat::Lz4);
        for slot in slots {
            let range = parsed.fragment(slot).unwrap();
            let data = lz4_flex::block::decompress(&block[range], 4096).unwrap();
            assert_eq!(data.len(), 4096);
        }

        let mut again = [0xa5; 4096];
        let mut builder = CompressedBlockBuilder::new(&mut again, StreamFormat::Lz4);
        for slot in (0..FragmentSlot::LIMIT).filter_map(FragmentSlot::new) {
            if let Ok(range) = parsed.fragment(slot) {
                assert_eq!(builder.push(&block[range]), Ok(slot));
            }
        }
        assert!(builder.count() >= 2);
        // The rest is what the writer's buffer held.
        let end = 4096 - builder.room();
        assert!(again[..end] == block[..end], "block {pbn}");
    }
}

/// A crashed volume has counters older than its journals, and only those.
#[test]
fn counters_of_a_crashed_volume_are_behind_its_journals() {
    let fixture = Fixture::crashed();
    let config = fixture.super_block.slab_depot.slab_config;
    let (mut dirty, mut behind) = (0, 0);
    for (slab, start, summary) in fixture.slabs() {
        dirty += usize::from(summary.is_dirty);
        if !summary.load_reference_counts {
            continue;
        }
        let newest = fixture.slab_journal(start).last().unwrap().0;
        let origin = config.reference_origin(start).unwrap();
        for index in 0..config.used_reference_blocks() {
            let block = fixture.block(origin.checked_add(index).unwrap());
            for point in reference_block::commit_points(block) {
                assert!(point.sequence <= newest.sequence, "slab {slab}");
                behind += usize::from(point.sequence < newest.sequence);
            }
        }
    }
    assert!(dirty > 0 && behind > 0, "{dirty} and {behind}");
}
