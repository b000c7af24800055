// SPDX-License-Identifier: GPL-2.0

//! Decoders meet bytes that nobody wrote: they say so, and never panic or believe too much.
//!
//! The inputs are the same in each run; `RVDO_SEED` makes others. A failure prints the seed.

use rand_chacha::rand_core::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rvdo_host::engine::format::block_map_entry::Mapping;
use rvdo_host::engine::format::block_map_page::{self, PageContents};
use rvdo_host::engine::format::block_name::Advice;
use rvdo_host::engine::format::checksum::checksum;
use rvdo_host::engine::format::compressed_block::CompressedBlock;
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::recovery_journal::{self, JournalFormat, JournalHeader};
use rvdo_host::engine::format::recovery_journal_entry::{JournalEntry, OldJournalEntry};
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{self, SlabJournalHeader};
use rvdo_host::engine::format::slab_summary;
use rvdo_host::engine::format::{FormatError, Geometry, PartitionId, SuperBlock};
use rvdo_host::engine::units::{
    Block, FragmentSlot, JournalPoint, Nonce, Pbn, SequenceNumber, BLOCK_SIZE,
};

const NONCE: Nonce = Nonce::new(0x5EED);

/// Runs `check` on `inputs` blocks that `damage` made from the ones it got before.
fn fuzz(inputs: u32, original: &Block, significant: usize, mut check: impl FnMut(&Block)) {
    let seed = std::env::var("RVDO_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1u64);
    println!("RVDO_SEED={seed}");
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut block = *original;
    for _ in 0..inputs {
        if random.next_u32() % 8 == 0 {
            block = *original;
        }
        let area = match random.next_u32() % 4 {
            0 => BLOCK_SIZE,
            _ => significant,
        };
        let at = random.next_u32() as usize % area;
        match random.next_u32() % 5 {
            0 => block[at] ^= 1 << (random.next_u32() % 8),
            1 => block[at] = random.next_u32() as u8,
            2 => {
                let end = (at + random.next_u32() as usize % 16).min(BLOCK_SIZE);
                random.fill_bytes(&mut block[at..end]);
            }
            3 => {
                let value =
                    [0, 1, u64::MAX, 1 << 36, 1 << 48, 1 << 63][random.next_u32() as usize % 6];
                let end = (at + 8).min(BLOCK_SIZE);
                block[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            }
            _ => block[at..].fill(0),
        }
        check(&block);
    }
}

fn example() -> (Geometry, SuperBlock) {
    let index = IndexConfig::SMALLEST;
    let params = FormatParams::new(2_000_000, 5_000_000, 1 << 13, index, NONCE, [3; 16]);
    format_volume(&params).unwrap()
}

fn geometry_block() -> Block {
    let mut block = [0; 4096];
    example().0.encode(&mut block).unwrap();
    block
}

fn super_block() -> Block {
    let mut block = [0; 4096];
    example().1.encode(&mut block).unwrap();
    block
}

fn seal_geometry(block: &mut Block) {
    let sum = checksum(&block[..97]);
    block[97..101].copy_from_slice(&sum.to_le_bytes());
}

fn seal_super_block(block: &mut Block) {
    let sum = checksum(&block[..434]);
    block[434..438].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn every_flipped_bit_of_a_checksummed_block_is_noticed() {
    let geometry = geometry_block();
    for bit in 0..101 * 8 {
        let mut block = geometry;
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Geometry::decode(&block).is_err(), "bit {bit}");
    }
    let good = super_block();
    for bit in 0..438 * 8 {
        let mut block = good;
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(SuperBlock::decode(&block).is_err(), "bit {bit}");
    }
}

#[test]
fn every_truncation_of_a_checksummed_block_is_noticed() {
    for end in 0..100 {
        let mut block = geometry_block();
        block[end..].fill(0);
        assert!(Geometry::decode(&block).is_err(), "{end} bytes");
    }
    for end in 0..437 {
        let mut block = super_block();
        block[end..].fill(0);
        assert!(SuperBlock::decode(&block).is_err(), "{end} bytes");
    }
}

/// A byte of the geometry block that is wrong although the checksum is right.
#[test]
fn sealed_geometry_blocks_are_still_checked() {
    for at in 0..97 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut block = geometry_block();
            block[at] = value;
            seal_geometry(&mut block);
            if let Ok(geometry) = Geometry::decode(&block) {
                let mut again = [0; 4096];
                geometry.encode(&mut again).unwrap();
                // All but the word that the index does not use.
                block[92..96].fill(0);
                seal_geometry(&mut block);
                assert_eq!(again, block, "byte {at}");
            }
        }
    }
}

#[test]
fn sealed_super_blocks_are_still_checked() {
    let (geometry, _) = example();
    let mut accepted = 0;
    for at in 0..434 {
        for value in [0, 1, 0x7f, 0xff] {
            let mut block = super_block();
            block[at] = value;
            seal_super_block(&mut block);
            let Ok(super_block) = SuperBlock::decode(&block) else {
                continue;
            };
            if super_block.validate(&geometry).is_ok() {
                accepted += 1;
                check_bounds(&super_block);
            }
        }
    }
    // Counters, the state, what is not used: not every change can be found.
    assert!((200..1000).contains(&accepted), "{accepted}");
}

/// What a super block must promise once it is validated.
fn check_bounds(super_block: &SuperBlock) {
    let end = super_block.config.physical_blocks;
    assert!(end <= 1 << 36);
    for id in [
        PartitionId::BlockMap,
        PartitionId::SlabDepot,
        PartitionId::RecoveryJournal,
        PartitionId::SlabSummary,
    ] {
        assert!(super_block.layout.partition(id).unwrap().end() <= end);
    }
    let depot = super_block.slab_depot;
    assert!((1..=8192).contains(&depot.slab_count()));
    assert!(depot.last_block <= end);
    assert!(depot.slab_config.data_blocks < depot.slab_config.slab_blocks);
    assert!(depot.zone_count <= 16);
    assert!(super_block.block_map.root_count <= 60);
}

#[test]
fn fuzzed_super_blocks() {
    let (geometry, _) = example();
    fuzz(50_000, &super_block(), 434, |block| {
        let mut block = *block;
        let _ = SuperBlock::decode(&block);
        seal_super_block(&mut block);
        if let Ok(super_block) = SuperBlock::decode(&block) {
            if super_block.validate(&geometry).is_ok() {
                check_bounds(&super_block);
            }
        }
    });
}

#[test]
fn fuzzed_geometry_blocks() {
    fuzz(50_000, &geometry_block(), 97, |block| {
        let mut block = *block;
        let _ = Geometry::decode(&block);
        seal_geometry(&mut block);
        if let Ok(geometry) = Geometry::decode(&block) {
            assert!(geometry.device_block(geometry.index_region.start).is_some());
            assert!(geometry.index.region_blocks() > 0);
        }
    });
}

#[test]
fn fuzzed_block_map_pages() {
    let pbn = Pbn::new(1000).unwrap();
    let mut page = [0; 4096];
    block_map_page::format(&mut page, NONCE, pbn);
    block_map_page::set_initialized(&mut page, true);
    fuzz(20_000, &page, 64, |block| {
        if block_map_page::classify(block, NONCE, pbn) == Ok(PageContents::Valid) {
            assert_eq!(block[..24], page[..24]);
        }
        assert_eq!(block_map_page::entries(block).count(), 812);
    });
}

#[test]
fn fuzzed_recovery_journal_blocks() {
    let sequence = SequenceNumber::new(5000).unwrap();
    let header = JournalHeader {
        block_map_head: sequence,
        slab_journal_head: sequence,
        sequence,
        nonce: NONCE,
        format: JournalFormat::Current,
        entry_count: 0,
        logical_blocks_used: 0,
        block_map_data_blocks: 0,
        check_byte: recovery_journal::check_byte(sequence, 64),
        recovery_count: 1,
    };
    let mut original = [0; 4096];
    recovery_journal::open(&mut original, &header);
    let entry = JournalEntry::decode([0; 16]).unwrap();
    while recovery_journal::append(&mut original, &entry).is_ok() {}

    fuzz(50_000, &original, 64, |block| {
        let Ok(header) = JournalHeader::decode(block) else {
            return;
        };
        let _ = header.check(NONCE, 1, 5000 % 64, 64);
        let intact = recovery_journal::intact_entries(block, &header);
        assert!(intact <= header.entry_count);
        assert!(header.entry_count <= header.format.entries_per_block());
        for sector in 0..10 {
            let first = recovery_journal::first_entry_of_sector(header.format, sector);
            for index in 0..recovery_journal::sector_entries(block, &header, sector).unwrap_or(0) {
                let index = first + index;
                assert!(index < header.format.entries_per_block());
                match header.format {
                    JournalFormat::Current => drop(recovery_journal::entry(block, index)),
                    JournalFormat::Old => drop(recovery_journal::old_entry(block, index)),
                }
            }
        }
    });
}

#[test]
fn fuzzed_slab_journal_blocks() {
    let first = SequenceNumber::FIRST;
    let mut original = [0; 4096];
    slab_journal::open(&mut original, NONCE, first, first);
    fuzz(20_000, &original, 64, |block| {
        if let Ok(header) = SlabJournalHeader::decode(block) {
            let entries = slab_journal::entries(block, &header);
            assert_eq!(entries.count(), usize::from(header.entry_count));
            assert!(header.entry_count <= 1353);
            let _ = header.check(NONCE, first);
        }
        // Whatever is in the buffer, appending stays inside it.
        let mut block = *block;
        let entry = slab_journal::SlabJournalEntry {
            sbn: rvdo_host::engine::units::SlabBlockNumber::ZERO,
            update: slab_journal::ReferenceUpdate::BlockMapIncrement,
        };
        if slab_journal::append(&mut block, entry, JournalPoint::ZERO).is_ok() {
            assert!(slab_journal::entry_count(&block) <= 1299);
        }
    });
}

#[test]
fn fuzzed_compressed_blocks() {
    for version in [1, 2] {
        let mut original = [0; 4096];
        original[0] = version;
        for slot in 0..14 {
            original[8 + 2 * slot] = 200;
        }
        original[36] = 1;
        fuzz(50_000, &original, 40, |block| {
            let Ok(parsed) = CompressedBlock::parse(block) else {
                return;
            };
            let data = if block[0] == 1 { 36 } else { 37 };
            let mut end = data;
            for slot in (0..14).filter_map(FragmentSlot::new) {
                match parsed.fragment(slot) {
                    Ok(range) => {
                        assert!(range.start >= end && range.start < range.end);
                        assert!(range.end <= 4096);
                        end = range.end;
                    }
                    Err(error) => assert_eq!(error, FormatError::BadFragment),
                }
            }
        });
    }
}

#[test]
fn fuzzed_small_structures() {
    fuzz(20_000, &[0; 4096], 64, |block| {
        let bytes = |at: usize| block[at..at + 16].try_into().unwrap();
        let _ = JournalEntry::decode(bytes(0));
        let _ = OldJournalEntry::decode(block[16..27].try_into().unwrap());
        if let Some(advice) = Advice::decode(&bytes(32)) {
            assert!(advice.0.is_valid() && advice.0.has_block());
        }
        let mapping = block[48..53].try_into().unwrap();
        assert_eq!(Mapping::decode(mapping).encode(), mapping);
        let mut counters = [0; 4032];
        reference_block::decode(block, &mut counters);
        assert!(counters.iter().all(|counter| *counter < 255));
        for index in [0, 2047] {
            let entry = slab_summary::entry(block, index).unwrap();
            assert!(entry
                .newest_journal_position(224)
                .is_none_or(|place| place < 224));
        }
        assert_eq!(slab_summary::entry(block, 2048), None);
        assert_eq!(slab_summary::entry(block, usize::MAX), None);
    });
}
