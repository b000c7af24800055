// SPDX-License-Identifier: GPL-2.0

//! The simulated disk loses, keeps and fails what a real one may, and nothing else.

use rvdo_host::engine::env::{Device, IoClass, IoError, WriteFlags};
use rvdo_host::engine::units::DeviceBlock;
use rvdo_host::rt::Page;
use rvdo_host::sim::disk::{Disk, Fault, Kind, Latency};
use rvdo_host::sim::executor::Executor;
use rvdo_host::sim::image::{Blocks, Image};
use rvdo_host::sim::oplog::OpLog;
use rvdo_host::sim::rng::Rng;

fn page(byte: u8) -> Page {
    let mut page = Page::new().unwrap();
    page.fill(byte);
    page
}

fn world(seed: u64) -> (Executor, Disk) {
    let mut rng = Rng::new(seed);
    let executor = Executor::new(rng.fork());
    let disk = Disk::new(Image::new(64), executor.clock(), rng.fork(), OpLog::new(64));
    (executor, disk)
}

/// The bytes that crashes at this moment leave in the first and the last sector of `block`.
fn survivors(disk: &Disk, block: u64) -> std::collections::BTreeSet<(u8, u8)> {
    let mut rng = Rng::new(99);
    (0..400)
        .map(|_| {
            let data = disk.crash(&mut rng).block(block);
            (data[0], data[4095])
        })
        .collect()
}

async fn write(disk: &Disk, block: u64, byte: u8, flags: WriteFlags) {
    let (_, result) = disk
        .write(DeviceBlock::new(block), page(byte), IoClass::Data, flags)
        .await;
    result.unwrap();
}

#[test]
fn a_completed_write_is_seen_but_may_be_lost_or_torn() {
    let (mut executor, disk) = world(1);
    executor
        .run(async {
            write(&disk, 3, 7, WriteFlags::DATA).await;
            let (page, result) = disk.read(DeviceBlock::new(3), page(0), IoClass::Data).await;
            assert_eq!((page[17], result), (7, Ok(())));
        })
        .unwrap();
    let all = [(0, 0), (0, 7), (7, 0), (7, 7)];
    assert_eq!(survivors(&disk, 3).into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn a_flush_makes_durable_what_completed_before_it() {
    let (mut executor, disk) = world(2);
    executor
        .run(async {
            write(&disk, 3, 7, WriteFlags::DATA).await;
            disk.flush().await.unwrap();
            assert_eq!(survivors(&disk, 3).len(), 1);
            write(&disk, 3, 8, WriteFlags::DATA).await;
            write(&disk, 4, 9, WriteFlags::PREFLUSH_FUA).await;
        })
        .unwrap();
    assert_eq!(
        survivors(&disk, 3).into_iter().collect::<Vec<_>>(),
        [(8, 8)]
    );
    assert_eq!(
        survivors(&disk, 4).into_iter().collect::<Vec<_>>(),
        [(9, 9)]
    );
}

#[test]
fn a_flush_does_not_cover_what_completes_while_it_runs() {
    let (mut executor, disk) = world(3);
    disk.set_latency(Latency {
        min: 50,
        max: 50,
        ..Latency::FAST
    });
    executor
        .run(async {
            let flush = disk.flush();
            disk.set_latency(Latency::FAST);
            write(&disk, 3, 7, WriteFlags::DATA).await;
            flush.await.unwrap();
        })
        .unwrap();
    assert_eq!(survivors(&disk, 3).len(), 4);
}

#[test]
fn a_preflush_comes_before_the_data() {
    let (mut executor, disk) = world(4);
    let clock = executor.clock();
    executor
        .run(async {
            write(&disk, 3, 7, WriteFlags::DATA).await;
            disk.set_latency(Latency {
                min: 50,
                max: 50,
                ..Latency::FAST
            });
            let second = disk.write(
                DeviceBlock::new(4),
                page(8),
                IoClass::Metadata,
                WriteFlags::PREFLUSH,
            );
            clock.sleep(40).await;
            assert_eq!(
                survivors(&disk, 4).into_iter().collect::<Vec<_>>(),
                [(0, 0)]
            );
            clock.sleep(30).await;
            assert_eq!(
                survivors(&disk, 3).into_iter().collect::<Vec<_>>(),
                [(7, 7)]
            );
            assert_eq!(survivors(&disk, 4).len(), 4);
            second.await.1.unwrap();
        })
        .unwrap();
}

#[test]
fn faults_hit_what_they_were_told_to() {
    let (mut executor, disk) = world(5);
    disk.inject(Fault {
        kind: Kind::Write,
        blocks: 5..6,
        skip: 1,
        count: 1,
        error: IoError::Io,
    });
    disk.inject(Fault {
        kind: Kind::Flush,
        blocks: 0..0,
        skip: 0,
        count: 1,
        error: IoError::Timeout,
    });
    executor
        .run(async {
            write(&disk, 5, 1, WriteFlags::DATA).await;
            let (_, result) = disk
                .write(
                    DeviceBlock::new(5),
                    page(2),
                    IoClass::Data,
                    WriteFlags::DATA,
                )
                .await;
            assert_eq!(result, Err(IoError::Io));
            assert_eq!(disk.flush().await, Err(IoError::Timeout));
            assert_eq!(disk.flush().await, Ok(()));
            write(&disk, 6, 1, WriteFlags::DATA).await;
        })
        .unwrap();
    assert_eq!(disk.contents().block(5)[0], 1);
}

#[test]
fn writes_of_one_block_at_a_time_are_a_hazard() {
    let (mut executor, disk) = world(6);
    executor
        .run(async {
            let first = disk.write(
                DeviceBlock::new(5),
                page(1),
                IoClass::Data,
                WriteFlags::DATA,
            );
            let second = disk.write(
                DeviceBlock::new(5),
                page(2),
                IoClass::Data,
                WriteFlags::DATA,
            );
            first.await.1.unwrap();
            second.await.1.unwrap();
        })
        .unwrap();
    assert_eq!(
        (disk.counts().write_hazards, disk.counts().read_hazards),
        (1, 0)
    );
    assert!(disk.is_idle());
}
