// SPDX-License-Identifier: GPL-2.0

//! What an empty device becomes, from the words of a table line.

mod table_lines;

use rvdo_host::engine::format::formatter::format_volume;
use rvdo_host::engine::format::FormatError;
use rvdo_host::target::new_volume::{new_volume, RANDOM_BYTES};
use table_lines::{parse, v4};

const DEVICE_BLOCKS: u64 = 2_000_000;
const RANDOM: [u8; RANDOM_BYTES] = [0xff; RANDOM_BYTES];

#[test]
fn the_usual_volume() {
    let line = v4("").unwrap();
    let params = new_volume(&line, DEVICE_BLOCKS, &RANDOM).unwrap();
    assert_eq!(params.config.physical_blocks, 1_572_864);
    assert_eq!(params.config.logical_blocks, line.logical_blocks);
    assert_eq!(params.config.slab_size, 1 << 19);
    assert_eq!(params.config.recovery_journal_size, 32_768);
    assert_eq!(params.config.slab_journal_blocks, 224);
    assert_eq!(params.index.memory_code(), -256);
    assert!(!params.index.sparse);
    let (geometry, _) = format_volume(&params).unwrap();
    assert_eq!(geometry.data_region.start.get(), 679_128);
}

#[test]
fn every_option_that_is_for_an_empty_device() {
    let line = v4("slabSize 8388608 indexMemory 2 indexSparse on").unwrap();
    let params = new_volume(&line, DEVICE_BLOCKS, &RANDOM).unwrap();
    assert_eq!(params.config.slab_size, 1 << 23);
    assert_eq!(params.index.memory_code(), 2);
    assert!(params.index.sparse);
}

#[test]
fn a_line_without_a_physical_size_takes_the_device() {
    let line = parse("/dev/sdb 512 x x 32768 16380 on auto pool ack=2,bio=3").unwrap();
    let params = new_volume(&line, DEVICE_BLOCKS, &RANDOM).unwrap();
    assert_eq!(params.config.physical_blocks, DEVICE_BLOCKS);
}

/// RFC 9562, section 5.4: a random uuid says that it is one.
#[test]
fn uuid_and_nonce_are_random() {
    let line = v4("").unwrap();
    let random = core::array::from_fn(|byte| byte as u8);
    let params = new_volume(&line, DEVICE_BLOCKS, &random).unwrap();
    assert_eq!(params.nonce.get(), 0x0706_0504_0302_0100);
    assert_eq!(
        params.uuid,
        [8, 9, 10, 11, 12, 13, 0x4e, 15, 0x90, 17, 18, 19, 20, 21, 22, 23]
    );
}

#[test]
fn an_index_without_memory_is_refused() {
    let line = v4("indexMemory 0").unwrap();
    assert_eq!(
        new_volume(&line, DEVICE_BLOCKS, &RANDOM),
        Err(FormatError::OutOfRange("memory size of the index"))
    );
}
