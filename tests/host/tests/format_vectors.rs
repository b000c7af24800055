// SPDX-License-Identifier: GPL-2.0

//! Known bytes of the on-disk format: what other software computes for the same input.

use rvdo_host::engine::format::block_map_entry::{Mapping, MappingState};
use rvdo_host::engine::format::block_name::{Advice, BlockName};
use rvdo_host::engine::format::checksum::checksum;
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::murmur3::murmur3_128;
use rvdo_host::engine::format::recovery_journal_entry::{
    BlockMapSlot, JournalEntry, JournalOperation,
};
use rvdo_host::engine::format::slab_journal::{self, ReferenceUpdate, SlabJournalEntry};
use rvdo_host::engine::format::{Geometry, PartitionId, SuperBlock, VolumeState};
use rvdo_host::engine::units::{
    EntrySlot, FragmentSlot, JournalPoint, Nonce, Pbn, SequenceNumber, SlabBlockNumber,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn pbn(number: u64) -> Pbn {
    Pbn::new(number).unwrap()
}

/// The volume that the geometry and super block vectors are of.
fn example() -> FormatParams {
    FormatParams::new(
        2_621_440,
        4_194_304,
        1 << 19,
        IndexConfig::SMALLEST,
        Nonce::new(0x0123_4567_89AB_CDEF),
        core::array::from_fn(|byte| byte as u8),
    )
}

#[test]
fn checksum_starts_from_zero_and_is_inverted() {
    assert_eq!(checksum(b"123456789"), 0xD202_D277);
}

#[test]
fn block_names() {
    let name = |data: [u8; 4096]| hex(BlockName::of(&data).as_bytes());
    let counting = core::array::from_fn(|byte| byte as u8);
    assert_eq!(name(counting), "e780e2dafd9f88cdac7f54d5960be94c");
    assert_eq!(name([0xff; 4096]), "2cf69009d52d6d3523e969b0c066121a");
    assert_eq!(name([0; 4096]), "81a3ec86657ee7844a63fd811c8008b7");
}

/// The last bytes of data that is no multiple of 16 long count as well.
#[test]
fn murmur3_of_odd_lengths() {
    assert_eq!(
        hex(&murmur3_128(b"", 0)),
        "00000000000000000000000000000000"
    );
    assert_eq!(
        hex(&murmur3_128(b"hello", 0)),
        "029bbd41b3a7d8cb191dae486a901e5b"
    );
    assert_eq!(
        hex(&murmur3_128(
            b"The quick brown fox jumps over the lazy dog",
            0
        )),
        "6c1b07bc7bbc4be347939ac4a93c437a"
    );
}

/// The index derives its nonces with the same hash.
#[test]
fn index_nonce() {
    let info: [u8; 32] = core::array::from_fn(|byte| byte as u8);
    let start = 0xA1B1_E0FCu64;
    let digest = murmur3_128(&info, (start ^ (start >> 27)) as u32);
    let nonce = u64::from_le_bytes(digest[4..12].try_into().unwrap());
    assert_eq!(nonce, 0x9936_2694_4ABB_C835);
}

#[test]
fn geometry_block() {
    let (geometry, _) = format_volume(&example()).unwrap();
    assert_eq!(geometry.data_region.start, pbn(679_128));

    let mut block = [0xaa; 4096];
    geometry.encode(&mut block).unwrap();
    assert_eq!(
        hex(&block[..97]),
        "646d76646f303031050000000500000000000000650000000000000000000000efcdab896745230100010203\
         0405060708090a0b0c0d0e0f000000000000000000000000010000000000000001000000d85c0a0000000000\
         00ffffff0000000000"
    );
    assert_eq!(block[97..101], 0x1577_A884u32.to_le_bytes());
    assert!(block[101..].iter().all(|byte| *byte == 0));
    assert_eq!(Geometry::decode(&block), Ok(geometry));
}

#[test]
fn super_block() {
    let (geometry, super_block) = format_volume(&example()).unwrap();
    let parts = [
        (PartitionId::SlabDepot, 679_189, 1_909_419),
        (PartitionId::RecoveryJournal, 2_588_608, 32_768),
        (PartitionId::SlabSummary, 2_621_376, 64),
        (PartitionId::BlockMap, 679_129, 60),
    ];
    for (found, (id, start, blocks)) in super_block.layout.partitions.iter().zip(parts) {
        assert_eq!(
            (found.id, found.start, found.blocks),
            (id, pbn(start), blocks)
        );
    }
    assert_eq!(super_block.layout.first_free, 2_588_608);
    assert_eq!(super_block.layout.last_free, 2_588_608);
    assert_eq!(super_block.slab_depot.slab_count(), 3);
    assert_eq!(super_block.state, VolumeState::New);

    let mut block = [0; 4096];
    super_block.encode(&mut block).unwrap();
    assert_eq!(block[434..438], 0x0AA8_CB4Au32.to_le_bytes());
    assert_eq!(SuperBlock::decode(&block), Ok(super_block));
    assert_eq!(super_block.validate(&geometry), Ok(()));
}

#[test]
fn block_map_entry() {
    let slot = FragmentSlot::new(3).unwrap();
    let mapping = Mapping::compressed(pbn(0x9_8765_4321), slot);
    assert_eq!(mapping.state.encode(), 5);
    assert_eq!(mapping.encode(), [0x95, 0x21, 0x43, 0x65, 0x87]);
    assert_eq!(Mapping::decode([0x95, 0x21, 0x43, 0x65, 0x87]), mapping);
}

#[test]
fn slab_journal_entry() {
    for (update, last) in [
        (ReferenceUpdate::Increment, 0x87),
        (ReferenceUpdate::Decrement, 0x07),
    ] {
        let sbn = SlabBlockNumber::new(0x7ABCD).unwrap();
        let mut block = [0; 4096];
        slab_journal::open(
            &mut block,
            Nonce::new(1),
            SequenceNumber::FIRST,
            SequenceNumber::FIRST,
        );
        let entry = SlabJournalEntry { sbn, update };
        assert_eq!(
            slab_journal::append(&mut block, entry, JournalPoint::ZERO),
            Ok(0)
        );
        assert_eq!(block[36..39], [0xCD, 0xAB, last]);
    }
}

#[test]
fn recovery_journal_entry() {
    let entry = JournalEntry {
        operation: JournalOperation::BlockMapRemap,
        slot: BlockMapSlot {
            page: pbn(0x3_0000_0002),
            slot: EntrySlot::new(811).unwrap(),
        },
        mapping: Mapping::uncompressed(pbn(0x1_0000_0005)),
        unmapping: Mapping::UNMAPPED,
    };
    let bytes = entry.encode();
    assert_eq!(bytes[..6], [0xAD, 0x3C, 0x02, 0, 0, 0]);
    assert_eq!(bytes[6..11], [0x11, 0x05, 0, 0, 0]);
    assert_eq!(bytes[11..], [0; 5]);
    assert_eq!(JournalEntry::decode(bytes), Ok(entry));
}

#[test]
fn journal_point() {
    let point = JournalPoint {
        sequence: SequenceNumber::new(0x1234).unwrap(),
        entry: 7,
    };
    assert_eq!(point.encode(), 0x0000_0000_1234_0007);
    assert_eq!(JournalPoint::decode(0x0000_0000_1234_0007), point);
}

#[test]
fn advice() {
    let advice = Advice(Mapping::uncompressed(pbn(0x1234)));
    let bytes = advice.encode();
    assert_eq!(bytes[..10], [2, 1, 0x34, 0x12, 0, 0, 0, 0, 0, 0]);
    assert_eq!(Advice::decode(&bytes), Some(advice));

    // Another version, a state that maps nothing, the zero block, a block that cannot be.
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes;
        bytes[at] = byte;
        Advice::decode(&bytes)
    };
    assert_eq!(with(0, 1), None);
    assert_eq!(with(1, 0), None);
    assert_eq!(with(1, 16), None);
    assert_eq!(with(9, 1), None);
    assert_eq!(Advice::decode(&Advice(Mapping::ZERO_BLOCK).encode()), None);
    assert_eq!(
        with(1, 15).map(|advice| advice.0.state),
        FragmentSlot::new(13).map(MappingState::Compressed)
    );
}
