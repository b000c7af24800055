// SPDX-License-Identifier: GPL-2.0

//! What is refused: structures of unknown versions, and numbers that cannot be.

use rvdo_host::engine::format::block_map_entry::Mapping;
use rvdo_host::engine::format::block_map_page::{self, PageContents};
use rvdo_host::engine::format::checksum::checksum;
use rvdo_host::engine::format::compressed_block::{is_version_1, CompressedBlock, StreamFormat};
use rvdo_host::engine::format::formatter::{format_volume, FormatParams};
use rvdo_host::engine::format::index_config::IndexConfig;
use rvdo_host::engine::format::recovery_journal::{self, JournalFormat, JournalHeader};
use rvdo_host::engine::format::recovery_journal_entry::{
    BlockMapSlot, JournalEntry, JournalOperation, OldJournalEntry,
};
use rvdo_host::engine::format::slab_journal::{self, SlabJournalHeader};
use rvdo_host::engine::format::{
    Component, FormatError, Geometry, SuperBlock, Version, VolumeState,
};
use rvdo_host::engine::units::{Block, FragmentSlot, Nonce, Pbn, SequenceNumber};

const NONCE: Nonce = Nonce::new(0x5EED);

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

/// Sizes whose sum is small again in 16 bits must not make a fragment.
#[test]
fn fragment_sizes_are_summed_without_wrapping() {
    let mut block = [0; 4096];
    block[0] = 1;
    block[8..10].copy_from_slice(&4000u16.to_le_bytes());
    block[10..12].copy_from_slice(&65535u16.to_le_bytes());
    block[12..14].copy_from_slice(&100u16.to_le_bytes());
    let parsed = CompressedBlock::parse(&block).unwrap();
    let fragment = |slot| parsed.fragment(FragmentSlot::new(slot).unwrap());
    assert_eq!(fragment(0), Ok(36..4036));
    for slot in 1..14 {
        assert_eq!(fragment(slot), Err(FormatError::BadFragment), "slot {slot}");
    }
}

#[test]
fn a_fragment_may_end_with_the_block_but_not_start_there() {
    let mut block = [0; 4096];
    block[0] = 1;
    block[8..10].copy_from_slice(&4060u16.to_le_bytes());
    block[10..12].copy_from_slice(&1u16.to_le_bytes());
    let parsed = CompressedBlock::parse(&block).unwrap();
    let fragment = |slot| parsed.fragment(FragmentSlot::new(slot).unwrap());
    assert_eq!(fragment(0), Ok(36..4096));
    assert_eq!(fragment(1), Err(FormatError::BadFragment));
}

#[test]
fn compressed_blocks_of_unknown_kinds_are_refused() {
    let mut block = [0; 4096];
    let versions = [(0, 0), (1, 1), (2, 1), (3, 0)];
    for (major, minor) in versions {
        block[0] = major;
        block[4] = minor;
        assert!(matches!(
            CompressedBlock::parse(&block).map(|_| ()),
            Err(FormatError::UnsupportedVersion {
                component: Component::CompressedBlock,
                ..
            })
        ));
    }
    block[0] = 2;
    block[4] = 0;
    for id in 0..=255u8 {
        block[36] = id;
        let format = CompressedBlock::parse(&block)
            .map(|parsed| parsed.format())
            .ok();
        let expected = match id {
            1 => Some(StreamFormat::Lz4),
            2 => Some(StreamFormat::Zstd),
            16 => Some(StreamFormat::Deflate),
            _ => None,
        };
        assert_eq!(format, expected, "id {id}");
    }
}

/// An unknown page version must not read as an empty page: that would lose what is mapped there.
#[test]
fn pages_are_told_apart() {
    let pbn = Pbn::new(1000).unwrap();
    let mut page = [0; 4096];
    block_map_page::format(&mut page, NONCE, pbn);
    block_map_page::set_initialized(&mut page, true);
    let classify = |change: fn(&mut Block)| {
        let mut page = page;
        change(&mut page);
        block_map_page::classify(&page, NONCE, pbn)
    };
    assert_eq!(classify(|_| ()), Ok(PageContents::Valid));
    // Never written, half written, or written by somebody else.
    assert_eq!(classify(|page| page.fill(0)), Ok(PageContents::Fresh));
    assert_eq!(classify(|page| page[32] = 0), Ok(PageContents::Fresh));
    assert_eq!(classify(|page| page[8] ^= 1), Ok(PageContents::Fresh));
    // Ours, but of other software or in the wrong place.
    assert_eq!(
        classify(|page| page[4] = 2),
        Err(FormatError::UnsupportedVersion {
            component: Component::BlockMapPage,
            expected: Version::new(4, 1),
            found: Version::new(4, 2),
        })
    );
    assert_eq!(
        classify(|page| page[16] ^= 1),
        Err(FormatError::BadPage {
            expected: 1000,
            found: 1001,
        })
    );
    assert!(classify(|page| page[32] = 2).is_err());
    // Fields without a meaning.
    assert_eq!(
        classify(|page| page[24..32].fill(0xff)),
        Ok(PageContents::Valid)
    );
}

#[test]
fn versions_that_are_not_known_are_named() {
    let decode = |at: usize, value: u8| {
        let mut block = super_block();
        block[at] = value;
        seal_super_block(&mut block);
        SuperBlock::decode(&block)
    };
    let unsupported = |component, major, minor, found_major, found_minor| {
        Err(FormatError::UnsupportedVersion {
            component,
            expected: Version::new(major, minor),
            found: Version::new(found_major, found_minor),
        })
    };
    assert_eq!(
        decode(4, 13),
        unsupported(Component::SuperBlock, 12, 0, 13, 0)
    );
    assert_eq!(decode(28, 2), unsupported(Component::Volume, 67, 0, 67, 2));
    assert_eq!(decode(32, 42), unsupported(Component::Vdo, 41, 0, 42, 0));
    assert_eq!(decode(112, 4), unsupported(Component::Layout, 3, 0, 4, 0));
    assert_eq!(
        decode(249, 8),
        unsupported(Component::RecoveryJournal, 7, 0, 8, 0)
    );
    assert_eq!(
        decode(293, 4),
        unsupported(Component::SlabDepot, 2, 0, 4, 0)
    );
    assert_eq!(decode(386, 1), unsupported(Component::BlockMap, 2, 0, 1, 0));
    assert_eq!(
        decode(0, 9),
        Err(FormatError::IncorrectComponent {
            expected: Component::SuperBlock,
            found: 9,
        })
    );
    assert_eq!(decode(40, 8), Err(FormatError::UnknownState(8)));
    assert_eq!(decode(40, 255), Err(FormatError::UnknownState(255)));
    assert_eq!(
        decode(40, 3).map(|block| block.state),
        Ok(VolumeState::ReadOnly)
    );
    // The size of the super block: smaller ones are known, larger ones are not.
    assert!(decode(12, 0xa3).is_err());
    assert!(decode(12, 0xa1).is_ok());
    // The layout may be larger, the others may not.
    assert!(decode(120, 118).is_ok());
    assert!(decode(120, 116).is_err());
    assert!(decode(257, 25).is_err());
    assert!(decode(301, 72).is_err());
    assert!(decode(394, 33).is_err());

    let message = decode(28, 2).unwrap_err().to_string();
    assert!(
        message.contains("volume version mismatch, expected 67.0, got 67.2"),
        "{message}"
    );
}

/// The first word means something in a volume of version 67.1 only, and every bit of it does.
#[test]
fn required_flags_are_read_and_kept() {
    let with_flags = |flags: u32| {
        let mut block = super_block();
        block[20..24].copy_from_slice(&flags.to_le_bytes());
        block[28] = 1;
        seal_super_block(&mut block);
        block
    };
    let original = SuperBlock::decode(&super_block()).unwrap();
    assert_eq!(original.required, None);
    for flags in [0, 1, 0x0001_0001, 0x0301_0001] {
        let block = with_flags(flags);
        let decoded = SuperBlock::decode(&block).unwrap();
        assert_eq!(decoded.required.unwrap().encode(), flags);
        let mut encoded = block;
        decoded.encode(&mut encoded).unwrap();
        assert!(encoded == block);
        // Back to what it was.
        SuperBlock {
            required: None,
            unused: original.unused,
            ..decoded
        }
        .encode(&mut encoded)
        .unwrap();
        assert!(encoded == super_block());
    }
    for bit in [1, 2, 15, 18, 23, 26, 31] {
        let error = SuperBlock::decode(&with_flags(0x0001_0001 | 1 << bit)).unwrap_err();
        assert_eq!(error, FormatError::UnknownFeature { bit });
        assert!(error.to_string().contains(&format!("feature {bit} ")));
    }
}

/// Blocks of version 2.0 as dm-vdo's own proposal has them: LZ4 and zstd, with LZ4 in the place of our deflate.
#[test]
fn compressed_blocks_name_their_format() {
    let mut block = [0; 4096];
    block[0] = 2;
    block[8..12].copy_from_slice(&[5, 0, 7, 0]);
    for (id, format) in [
        (1, StreamFormat::Lz4),
        (2, StreamFormat::Zstd),
        (16, StreamFormat::Deflate),
    ] {
        block[36] = id;
        let compressed = CompressedBlock::parse(&block).unwrap();
        assert_eq!(compressed.format(), format);
        let fragment = |slot| compressed.fragment(FragmentSlot::new(slot).unwrap());
        assert_eq!(fragment(0), Ok(37..42));
        assert_eq!(fragment(1), Ok(42..49));
        assert_eq!(fragment(2), Err(FormatError::BadFragment));
        assert!(!is_version_1(&block));
    }
    for id in [0, 3, 15, 17, 255] {
        block[36] = id;
        assert!(CompressedBlock::parse(&block).is_err(), "{id}");
    }
}

#[test]
fn geometry_versions() {
    let decode = |at: usize, value: u8| {
        let mut block = geometry_block();
        block[at] = value;
        seal_geometry(&mut block);
        Geometry::decode(&block).map(|_| ())
    };
    assert_eq!(decode(0, b'x'), Err(FormatError::BadMagic));
    for (at, value, expected, found) in [
        (12, 3, Version::new(4, 0), Version::new(3, 0)),
        (12, 6, Version::new(5, 0), Version::new(6, 0)),
        (16, 1, Version::new(5, 0), Version::new(5, 1)),
    ] {
        assert_eq!(
            decode(at, value),
            Err(FormatError::UnsupportedVersion {
                component: Component::Geometry,
                expected,
                found,
            })
        );
    }
    // A 5.0 block that says it is 4.0 has the wrong size for that.
    assert!(matches!(
        decode(12, 4),
        Err(FormatError::UnsupportedSize { .. })
    ));
    assert!(matches!(
        decode(20, 100),
        Err(FormatError::UnsupportedSize { .. })
    ));
    assert!(matches!(
        decode(8, 0),
        Err(FormatError::IncorrectComponent { .. })
    ));
}

#[test]
fn entries_that_cannot_be_are_refused() {
    // Operations 2 and 3, and slots from 812 on.
    for operation in [2, 3] {
        let mut bytes = [0; 16];
        bytes[0] = operation;
        assert!(matches!(
            JournalEntry::decode(bytes),
            Err(FormatError::CorruptJournal(_))
        ));
    }
    for slot in 0..1024u16 {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&(slot << 2).to_le_bytes());
        assert_eq!(JournalEntry::decode(bytes).is_ok(), slot < 812);
        let old: [u8; 11] = bytes[..11].try_into().unwrap();
        assert_eq!(OldJournalEntry::decode(old).is_ok(), slot < 812);
    }
    // A block map page that is released.
    let first = SequenceNumber::FIRST;
    let mut block = [0; 4096];
    slab_journal::open(&mut block, NONCE, first, first);
    block[33] = 1;
    block[34] = 1;
    block[3933] = 1;
    let header = SlabJournalHeader::decode(&block).unwrap();
    assert!(slab_journal::entries(&block, &header).all(|entry| entry.is_err()));
}

#[test]
fn entries_that_cannot_be_replayed_are_refused() {
    let data = Pbn::new(50).unwrap();
    let page = Pbn::new(7).unwrap();
    let good = JournalEntry {
        operation: JournalOperation::DataRemap,
        slot: BlockMapSlot {
            page,
            slot: Default::default(),
        },
        mapping: Mapping::uncompressed(data),
        unmapping: Mapping::ZERO_BLOCK,
    };
    let new_page = JournalEntry {
        operation: JournalOperation::BlockMapRemap,
        unmapping: Mapping::UNMAPPED,
        ..good
    };
    let valid = |entry: JournalEntry| entry.validate(100, |pbn| pbn == data).is_ok();
    assert!(valid(good) && valid(new_page));

    let at = |number| Mapping::uncompressed(Pbn::new(number).unwrap());
    let mut outside = good;
    outside.slot.page = Pbn::new(100).unwrap();
    assert!(!valid(outside));
    outside.slot.page = Pbn::ZERO;
    assert!(!valid(outside));
    assert!(!valid(JournalEntry {
        mapping: at(51),
        ..good
    }));
    assert!(!valid(JournalEntry {
        unmapping: at(51),
        ..good
    }));
    let zero_fragment = Mapping::compressed(Pbn::ZERO, FragmentSlot::ZERO);
    assert!(!valid(JournalEntry {
        mapping: zero_fragment,
        ..good
    }));
    let unmapped_block = Mapping {
        pbn: data,
        ..Mapping::UNMAPPED
    };
    assert!(!valid(JournalEntry {
        unmapping: unmapped_block,
        ..good
    }));
    assert!(!valid(JournalEntry {
        unmapping: Mapping::ZERO_BLOCK,
        ..new_page
    }));
    assert!(!valid(JournalEntry {
        mapping: Mapping::ZERO_BLOCK,
        ..new_page
    }));
    let fragment = Mapping::compressed(data, FragmentSlot::ZERO);
    assert!(valid(JournalEntry {
        mapping: fragment,
        ..good
    }));
    assert!(!valid(JournalEntry {
        mapping: fragment,
        ..new_page
    }));
}

#[test]
fn old_journal_blocks_are_read() {
    // A block of the old format with 311 entries, each naming its place as its slot's page.
    let mut block = [0; 4096];
    block[16..24].copy_from_slice(&9u64.to_le_bytes());
    block[24..32].copy_from_slice(&NONCE.get().to_le_bytes());
    block[32] = 1;
    block[33..35].copy_from_slice(&311u16.to_le_bytes());
    block[51] = 0x80;
    block[52] = 4;
    for index in 0..311usize {
        let sector = 512 * (1 + index / 46);
        block[sector] = 0x80;
        block[sector + 1] = 4;
        block[sector + 2] += 1;
        let at = sector + 3 + 11 * (index % 46);
        block[at] = 1;
        block[at + 2..at + 6].copy_from_slice(&(index as u32).to_le_bytes());
        block[at + 6] = 1;
    }
    let header = JournalHeader::decode(&block).unwrap();
    assert_eq!(header.format, JournalFormat::Old);
    assert!(header.is_full());
    assert_eq!(header.check(NONCE, 4, 9, 64), Ok(()));
    assert_eq!(recovery_journal::intact_entries(&block, &header), 311);
    for index in 0..311 {
        let entry = recovery_journal::old_entry(&block, index).unwrap();
        assert_eq!(entry.slot.page.get(), u64::from(index));
        assert_eq!(entry.restores(), Some(Mapping::ZERO_BLOCK));
    }
    assert!(recovery_journal::old_entry(&block, 311).is_err());

    block[33..35].copy_from_slice(&312u16.to_le_bytes());
    assert!(JournalHeader::decode(&block).is_err());
    block[32] = 2;
    assert!(JournalHeader::decode(&block).is_err());
}
