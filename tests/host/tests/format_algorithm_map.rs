// SPDX-License-Identifier: GPL-2.0

//! Algorithm maps, the journals of slabs that have one, and the super block that says so.

use proptest::prelude::*;
use rvdo_host::engine::format::algorithm_map::{
    self, code, map_blocks, set_code, CODES_PER_BLOCK, CODES_PER_SECTOR, CODE_BYTES_PER_BLOCK,
};
use rvdo_host::engine::format::checksum::checksum;
use rvdo_host::engine::format::compressed_block::CompressedBlockBuilder;
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::slab_journal::{self, ReferenceUpdate, SlabJournalEntry};
use rvdo_host::engine::format::slab_journal_coded::{self as coded, CodedEntry};
use rvdo_host::engine::format::{
    BlockCode, FormatError, Geometry, RequiredFlags, SlabConfig, SlabDepotState, StreamFormat,
    SuperBlock,
};
use rvdo_host::engine::units::{Block, JournalPoint, Nonce, Pbn, SequenceNumber, SlabBlockNumber};

const NONCE: Nonce = Nonce::new(0x5EED);
const VALID: [BlockCode; 6] = [
    BlockCode::NONE,
    BlockCode::LZ4,
    BlockCode::ZSTD,
    BlockCode::DEFLATE,
    BlockCode::NAMED_LZ4,
    BlockCode::UNKNOWN,
];

fn depot(slab_bits: u32, journal: u64) -> SlabDepotState {
    SlabDepotState {
        slab_config: SlabConfig::compute(1 << slab_bits, journal).unwrap(),
        first_block: Pbn::new(100).unwrap(),
        last_block: 100 + (3 << slab_bits),
        zone_count: 1,
        has_map: false,
    }
}

fn point(sequence: u64, entry: u16) -> JournalPoint {
    JournalPoint {
        sequence: SequenceNumber::new(sequence).unwrap(),
        entry,
    }
}

fn sbn(number: u32) -> SlabBlockNumber {
    SlabBlockNumber::new(number).unwrap()
}

#[test]
fn the_journal_makes_room_for_the_map_where_enough_of_it_stays() {
    let cut = |bits| {
        let mapped = depot(bits, 224).with_map()?;
        let config = mapped.slab_config;
        let whole = config.data_blocks
            + config.reference_count_blocks
            + config.slab_journal_blocks
            + mapped.map_blocks();
        assert!(whole <= config.slab_blocks, "2^{bits}");
        assert!(mapped.validate_map().is_ok() && config.validate().is_ok());
        Some((mapped.map_blocks(), config.slab_journal_blocks))
    };
    assert_eq!(cut(13), Some((1, 223)));
    assert_eq!(cut(16), Some((9, 215)));
    assert_eq!(cut(18), Some((33, 191)));
    assert_eq!(cut(19), Some((65, 159)));
    for bits in 20..=23 {
        assert_eq!(cut(bits), None, "2^{bits}");
    }
}

#[test]
fn thresholds_are_those_of_the_shorter_journal() {
    let config = depot(19, 224).with_map().unwrap().slab_config;
    let thresholds = (
        config.flushing_threshold,
        config.blocking_threshold,
        config.scrubbing_threshold,
    );
    assert_eq!(thresholds, (120, 147, 157));
    assert_eq!(config.data_blocks, 523_934);
}

#[test]
fn short_journals_give_up_an_eighth_at_most() {
    assert_eq!(depot(9, 8).with_map(), None);
    assert!(depot(9, 16).with_map().is_some());
    assert_eq!(depot(15, 16).with_map(), None);
}

#[test]
fn a_map_can_be_taken_away_again() {
    let plain = depot(19, 224);
    let mapped = plain.with_map().unwrap();
    assert_eq!(mapped.without_map(224), Some(plain));
    assert_eq!(mapped.with_map(), None);
    assert_eq!(plain.without_map(224), None);
    assert_eq!(mapped.without_map(225), None);
}

fn example() -> (Geometry, SuperBlock) {
    let index = IndexConfig::SMALLEST;
    let params = FormatParams::new(2_000_000, 5_000_000, 1 << 13, index, NONCE, [3; 16]);
    let (geometry, mut super_block) = format_volume(&params).unwrap();
    super_block.slab_depot = super_block.slab_depot.with_map().unwrap();
    super_block.required = Some(RequiredFlags::UPGRADED.with(RequiredFlags::SLAB_MAP));
    (geometry, super_block)
}

#[test]
fn the_super_block_keeps_the_map() {
    let (geometry, super_block) = example();
    let mut block = [0; 4096];
    super_block.encode(&mut block).unwrap();
    // The version of the slab depot, and what is required.
    assert_eq!(block[293..301], [3, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(block[20..24], 0x3_0001_u32.to_le_bytes());
    let read = SuperBlock::decode(&block).unwrap();
    assert_eq!(read, super_block);
    assert_eq!(read.validate(&geometry), Ok(()));
}

#[test]
fn flags_and_depot_must_agree() {
    let (geometry, good) = example();
    for bad in [
        SuperBlock {
            required: Some(RequiredFlags::UPGRADED),
            ..good
        },
        SuperBlock {
            required: None,
            ..good
        },
        SuperBlock {
            slab_depot: good.slab_depot.without_map(224).unwrap(),
            ..good
        },
    ] {
        let refused = bad.validate(&geometry);
        assert!(matches!(refused, Err(FormatError::BadConfiguration(_))));
    }
}

#[test]
fn a_map_that_does_not_fit_is_refused() {
    let (geometry, mut super_block) = example();
    super_block.slab_depot.slab_config.slab_journal_blocks = 224;
    assert!(super_block.validate(&geometry).is_err());
    let (_, super_block) = example();
    let mut block = [0; 4096];
    super_block.encode(&mut block).unwrap();
    block[293] = 4;
    let sum = checksum(&block[..434]);
    block[434..438].copy_from_slice(&sum.to_le_bytes());
    assert!(matches!(
        SuperBlock::decode(&block),
        Err(FormatError::UnsupportedVersion { .. })
    ));
}

/// Built by hand: block 1009 of the slab is the first of the second sector, and its code in the high half of the first byte.
#[test]
fn a_block_of_a_map_is_as_described() {
    let mut packed = vec![0; CODE_BYTES_PER_BLOCK];
    set_code(&mut packed, 0, BlockCode::LZ4);
    set_code(&mut packed, 1, BlockCode::DEFLATE);
    set_code(&mut packed, CODES_PER_SECTOR + 1, BlockCode::ZSTD);
    set_code(&mut packed, CODES_PER_BLOCK - 1, BlockCode::UNKNOWN);
    let mut block = [0xee; 4096];
    algorithm_map::encode(&mut block, point(5, 6), &packed);
    let mut expected = [0; 4096];
    for sector in expected.chunks_mut(512) {
        sector[..8].copy_from_slice(&0x5_0006_u64.to_le_bytes());
    }
    expected[8] = 0x31;
    expected[512 + 8] = 0x20;
    expected[4095] = 0xf0;
    assert!(block == expected);
    assert_eq!(map_blocks(1), 1);
    assert_eq!((map_blocks(8064), map_blocks(8065)), (1, 2));
    let place = algorithm_map::locate(sbn(8064 + 1008));
    assert_eq!((place.block, place.sector), (1, 1));
}

#[test]
fn the_header_of_a_block_gives_its_code() {
    for (format, expected) in [
        (StreamFormat::Lz4, BlockCode::LZ4),
        (StreamFormat::Zstd, BlockCode::ZSTD),
        (StreamFormat::Deflate, BlockCode::DEFLATE),
    ] {
        let mut block: Block = [0; 4096];
        CompressedBlockBuilder::new(&mut block, format)
            .push(&[1, 2, 3])
            .unwrap();
        assert_eq!(BlockCode::of_block(&block), expected);
        assert_eq!(BlockCode::of_format(format), expected);
        assert_eq!(expected.format(), Some(format));
    }
    let mut named: Block = [0; 4096];
    (named[0], named[36]) = (2, 1);
    assert_eq!(BlockCode::of_block(&named), BlockCode::NAMED_LZ4);
    named[36] = 7;
    assert_eq!(BlockCode::of_block(&named), BlockCode::UNKNOWN);
    assert_eq!(BlockCode::of_block(&[0; 4096]), BlockCode::UNKNOWN);
}

fn update() -> impl Strategy<Value = ReferenceUpdate> {
    prop_oneof![
        Just(ReferenceUpdate::Increment),
        Just(ReferenceUpdate::Decrement),
        Just(ReferenceUpdate::BlockMapIncrement),
    ]
}

fn entry() -> impl Strategy<Value = CodedEntry> {
    (0..1_u32 << 19, update(), 0..VALID.len()).prop_map(|(number, update, code)| CodedEntry {
        sbn: sbn(number),
        update,
        code: match update {
            ReferenceUpdate::Increment => VALID[code],
            _ => BlockCode::NONE,
        },
    })
}

fn read(block: &Block) -> Result<Vec<CodedEntry>, FormatError> {
    let header = coded::decode(block)?;
    coded::entries(block, &header).collect()
}

proptest! {
    #[test]
    fn packed_codes_are_a_table(changes in prop::collection::vec((0..200_usize, 0..16_u8), 1..300)) {
        let (mut packed, mut model) = (vec![0; 100], [0; 200]);
        for (index, number) in changes {
            let old = set_code(&mut packed, index, BlockCode::from_low_bits(number));
            prop_assert_eq!(old.map(BlockCode::get), Some(model[index]));
            model[index] = number;
        }
        for (index, number) in model.iter().enumerate() {
            prop_assert_eq!(code(&packed, index).map(BlockCode::get), Some(*number));
        }
        prop_assert_eq!(code(&packed, 200), None);
    }

    #[test]
    fn maps_of_any_length_come_back(bytes in prop::collection::vec(any::<u8>(), 1..=CODE_BYTES_PER_BLOCK)) {
        let mut block = [0x55; 4096];
        algorithm_map::encode(&mut block, point(7, 8), &bytes);
        let mut again = vec![0xaa; bytes.len()];
        let points = algorithm_map::decode(&block, &mut again);
        prop_assert_eq!(again, bytes);
        prop_assert_eq!(points, [point(7, 8); 8]);
    }

    #[test]
    fn coded_journals_come_back(list in prop::collection::vec(entry(), 0..1_400)) {
        let mut block = [9; 4096];
        let sequence = SequenceNumber::new(77).unwrap();
        coded::open(&mut block, NONCE, SequenceNumber::FIRST, sequence);
        let mut kept = Vec::new();
        for (index, entry) in list.iter().enumerate() {
            match coded::append(&mut block, *entry, point(1 + index as u64, 1)) {
                Ok(place) => {
                    prop_assert_eq!(usize::from(place), index);
                    kept.push(*entry);
                }
                Err(_) => {
                    prop_assert!(coded::is_full(&block) && slab_journal::is_full(&block));
                    break;
                }
            }
        }
        prop_assert_eq!(kept.len(), list.len().min(1_353));
        let header = coded::decode(&block).unwrap();
        prop_assert_eq!((header.nonce, header.sequence), (NONCE, sequence));
        prop_assert_eq!(usize::from(header.entry_count), kept.len());
        prop_assert_eq!(read(&block).unwrap(), kept);
    }

    /// Whatever bytes are there: no panic, and every entry that is accepted is one that could have been made.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 4096), count in 0..1_500_u16) {
        let mut block: Block = bytes.try_into().unwrap();
        block[32] = 18;
        block[33] = 0;
        block[34..36].copy_from_slice(&count.to_le_bytes());
        let Ok(header) = coded::decode(&block) else { return Ok(()) };
        for entry in coded::entries(&block, &header).flatten() {
            prop_assert!(entry.code.is_valid() && entry.sbn.get() < 1 << 19);
            prop_assert!(entry.update == ReferenceUpdate::Increment || entry.code == BlockCode::NONE);
            let mut again = [0; 4096];
            coded::open(&mut again, NONCE, SequenceNumber::FIRST, SequenceNumber::FIRST);
            coded::append(&mut again, entry, point(1, 0)).unwrap();
            prop_assert_eq!(read(&again).unwrap(), vec![entry]);
        }
        prop_assert!(BlockCode::of_block(&block).is_valid());
    }
}

#[test]
fn journal_blocks_of_the_other_kind_are_refused_unless_empty() {
    let first = SequenceNumber::FIRST;
    let mut plain = [0; 4096];
    slab_journal::open(&mut plain, NONCE, first, first);
    assert!(coded::decode(&plain).is_ok());
    let entry = SlabJournalEntry {
        sbn: sbn(3),
        update: ReferenceUpdate::Increment,
    };
    slab_journal::append(&mut plain, entry, point(1, 0)).unwrap();
    assert!(coded::decode(&plain).is_err());

    let mut block = [0; 4096];
    coded::open(&mut block, NONCE, first, first);
    assert!(slab_journal::SlabJournalHeader::decode(&block).is_err());
    block[33] = 1;
    assert!(coded::decode(&block).is_err());
    block[33] = 0;
    block[34..36].copy_from_slice(&1_354_u16.to_le_bytes());
    assert!(coded::decode(&block).is_err());
    assert!(coded::decode(&[0; 4096]).is_err());
}

#[test]
fn codes_without_a_meaning_are_refused() {
    for number in 0..16_u8 {
        for increment in [0, 0x80] {
            let mut block = [0; 4096];
            coded::open(
                &mut block,
                NONCE,
                SequenceNumber::FIRST,
                SequenceNumber::FIRST,
            );
            block[34] = 1;
            block[36..39].copy_from_slice(&[5, 0, increment | number << 3]);
            let good = match increment {
                0 => number == 0,
                _ => matches!(number, 0..=4 | 14 | 15),
            };
            assert_eq!(read(&block).is_ok(), good, "code {number}, {increment}");
        }
    }
    let too_far = CodedEntry {
        sbn: sbn(1 << 19),
        update: ReferenceUpdate::Increment,
        code: BlockCode::NONE,
    };
    let mut block = [0; 4096];
    coded::open(
        &mut block,
        NONCE,
        SequenceNumber::FIRST,
        SequenceNumber::FIRST,
    );
    assert!(coded::append(&mut block, too_far, point(1, 0)).is_err());
}
