// SPDX-License-Identifier: GPL-2.0

//! The model permits what a block device may do, and nothing else.

use std::sync::Arc;

use rvdo_host::sim::image::{Block, BLOCK_SIZE};
use rvdo_host::sim::model::{Model, WriteEnd};

fn data(byte: u8) -> Arc<Block> {
    Arc::new([byte; BLOCK_SIZE])
}

fn write(model: &mut Model, lbn: u64, byte: u8, end: WriteEnd) {
    let token = model.begin_write(lbn, data(byte), false);
    model.end_write(token, end);
}

/// The bytes a crash may leave.
fn after_crash(model: &Model, lbn: u64) -> Vec<u8> {
    (0..10)
        .filter(|byte| model.check_crash(lbn, &data(*byte)).is_ok())
        .collect()
}

/// The bytes a read may return, if it begins and ends now.
fn current(model: &mut Model, lbn: u64) -> Vec<u8> {
    (0..10)
        .filter(|byte| {
            let token = model.begin_read(lbn);
            model.end_read(token, 0..16, &[*byte; 16]).is_ok()
        })
        .collect()
}

#[test]
fn a_flush_forgets_what_is_older_than_the_last_acknowledged_write() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    write(&mut model, 1, 2, WriteEnd::Done);
    assert_eq!(after_crash(&model, 1), [0, 1, 2]);
    let flush = model.begin_flush();
    write(&mut model, 1, 3, WriteEnd::Done);
    model.end_flush(flush);
    assert_eq!(
        (after_crash(&model, 1), current(&mut model, 1)),
        (vec![2, 3], vec![3])
    );
}

#[test]
fn fua_makes_its_own_block_durable() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    write(&mut model, 2, 1, WriteEnd::Done);
    write(&mut model, 1, 2, WriteEnd::DoneFua);
    assert_eq!(
        (after_crash(&model, 1), after_crash(&model, 2)),
        (vec![2], vec![0, 1])
    );
}

#[test]
fn a_read_during_a_write_sees_either_and_never_goes_back() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    let token = model.begin_write(1, data(2), false);
    assert_eq!(current(&mut model, 1), [1, 2]);
    let read = model.begin_read(1);
    model.end_read(read, 0..BLOCK_SIZE, &data(2)[..]).unwrap();
    assert_eq!(current(&mut model, 1), [2]);
    model.end_write(token, WriteEnd::Done);
    assert_eq!(current(&mut model, 1), [2]);
}

#[test]
fn racing_writes_are_settled_by_a_read() {
    let mut model = Model::new();
    let a = model.begin_write(1, data(1), true);
    let b = model.begin_write(1, data(2), true);
    model.end_write(b, WriteEnd::Done);
    model.end_write(a, WriteEnd::Done);
    assert_eq!(
        (current(&mut model, 1), model.settled(1).is_some()),
        (vec![1, 2], false)
    );
    let flush = model.begin_flush();
    model.end_flush(flush);
    assert_eq!(after_crash(&model, 1), [1, 2]);
    model.check_current(1, &data(1)).unwrap();
    assert_eq!(
        (current(&mut model, 1), model.settled(1).is_some()),
        (vec![1], true)
    );
    assert_eq!(after_crash(&model, 1), [1, 2]);
}

#[test]
fn a_read_that_overlaps_a_race_settles_nothing() {
    let mut model = Model::new();
    let a = model.begin_write(1, data(1), true);
    let b = model.begin_write(1, data(2), true);
    let read = model.begin_read(1);
    model.end_write(a, WriteEnd::Done);
    model.end_write(b, WriteEnd::Done);
    model.end_read(read, 0..BLOCK_SIZE, &data(1)[..]).unwrap();
    assert_eq!(current(&mut model, 1), [1, 2]);
}

#[test]
fn failed_and_refused_writes() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    write(&mut model, 1, 2, WriteEnd::Refused);
    assert_eq!(current(&mut model, 1), [1]);
    write(&mut model, 1, 3, WriteEnd::Unknown);
    assert_eq!(current(&mut model, 1), [1, 3]);
    write(&mut model, 1, 4, WriteEnd::Done);
    assert_eq!(
        (current(&mut model, 1), after_crash(&model, 1)),
        (vec![4], vec![0, 1, 3, 4])
    );
}

#[test]
fn a_read_may_find_what_a_flush_has_made_history() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    let read = model.begin_read(1);
    write(&mut model, 1, 2, WriteEnd::Done);
    let flush = model.begin_flush();
    model.end_flush(flush);
    assert_eq!(after_crash(&model, 1), [2]);
    model.end_read(read, 0..BLOCK_SIZE, &data(1)[..]).unwrap();
}

#[test]
fn after_a_crash_any_version_may_be_current_until_it_is_read() {
    let mut model = Model::new();
    write(&mut model, 1, 1, WriteEnd::Done);
    let _lost = model.begin_write(1, data(2), false);
    model.crashed();
    assert_eq!(current(&mut model, 1), [0, 1, 2]);
    model.check_current(1, &data(1)).unwrap();
    assert_eq!(current(&mut model, 1), [1]);
}
