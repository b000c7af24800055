// SPDX-License-Identifier: GPL-2.0

//! What a reload may change, one field at a time.

use rvdo_host::target::errno::Errno;
use rvdo_host::target::reload::{check_reload, Changes, Growth, ReloadError, VolumeCondition};
use rvdo_host::target::table_line::{TableLine, TargetRange};

const RUNNING: VolumeCondition = VolumeCondition {
    started: true,
    recovering: false,
    read_only: false,
    same_device: true,
};

const OLD: &str = "V4 /dev/sdb 1000 4096 32768 16380 ack 1";

fn table(start_sectors: u64, logical_blocks: u64, line: &str) -> TableLine {
    let range = TargetRange {
        start_sectors,
        length_sectors: logical_blocks * 8,
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    TableLine::parse(range, &words, &mut |_| {}).unwrap()
}

fn reload(
    start: u64,
    blocks: u64,
    line: &str,
    condition: VolumeCondition,
) -> Result<Changes, ReloadError> {
    check_reload(&table(0, 2000, OLD), &table(start, blocks, line), condition)
}

#[test]
fn the_same_table_changes_nothing() {
    assert_eq!(reload(0, 2000, OLD, RUNNING), Ok(Changes::default()));
    // Defaults that are spelt out, an old version and ignored options are no change either.
    for line in [
        "V4 /dev/sdb 1000 4096 32768 16380 bio 4 compression off compressionType lz4",
        "V2 /dev/sdb 1000 4096 32768 16380 x x x",
        "V4 /dev/sdb 1000 4096 32768 16380 indexMemory 1 indexSparse on slabSize 8192",
    ] {
        assert_eq!(
            reload(0, 2000, line, RUNNING),
            Ok(Changes::default()),
            "{line}"
        );
    }
}

#[test]
fn each_free_field_is_reported_alone() {
    for (blocks, line, expected) in [
        (
            2001,
            OLD,
            Changes {
                logical: Some(Growth {
                    from_blocks: 2000,
                    to_blocks: 2001,
                }),
                ..Changes::default()
            },
        ),
        (
            2000,
            "V4 /dev/sdb 1001 4096 32768 16380",
            Changes {
                physical: Some(Growth {
                    from_blocks: 1000,
                    to_blocks: 1001,
                }),
                ..Changes::default()
            },
        ),
        (
            2000,
            "V4 /dev/sdb 1000 4096 32768 16380 maxDiscard 7",
            Changes {
                max_discard_blocks: Some(7),
                ..Changes::default()
            },
        ),
        (
            2000,
            "V4 /dev/sdb 1000 4096 32768 16380 deduplication off",
            Changes {
                deduplication: Some(false),
                ..Changes::default()
            },
        ),
        (
            2000,
            "V4 /dev/sdb 1000 4096 32768 16380 compression on",
            Changes {
                compression: Some(true),
                ..Changes::default()
            },
        ),
        (
            2000,
            "V4 /dev/sdb 1000 4096 32768 16380 compressionType lz4hc",
            Changes {
                compression_type: true,
                ..Changes::default()
            },
        ),
    ] {
        assert_eq!(reload(0, blocks, line, RUNNING), Ok(expected), "{line}");
    }
}

#[test]
fn fixed_fields_stay() {
    let restart = "the volume has to be stopped and started with the new table for this";
    let mut cases = vec![
        (8, OLD.to_string(), "Starting sector cannot change"),
        (
            0,
            "V4 /dev/sdb 1000 512 32768 16380".to_string(),
            "Logical block size cannot change",
        ),
        (
            0,
            "V4 /dev/sdb 1000 4096 32769 16380".to_string(),
            "Block map cache size cannot change",
        ),
        (
            0,
            "V4 /dev/sdb 1000 4096 32768 16379".to_string(),
            "Block map maximum age cannot change",
        ),
    ];
    for threads in [
        "ack 2",
        "bio 5",
        "bioRotationInterval 63",
        "cpu 2",
        "hash 1 logical 1 physical 1",
    ] {
        cases.push((
            0,
            format!("V4 /dev/sdb 1000 4096 32768 16380 {threads}"),
            "Thread configuration cannot change",
        ));
    }
    for (start, line, summary) in cases {
        let error = reload(start, 2000, &line, RUNNING).unwrap_err();
        assert_eq!(error.summary().to_str(), Ok(summary));
        assert_eq!(error.to_string(), format!("{summary}: {restart}"));
        assert_eq!(Errno::from(error), Errno::Invalid);
    }
}

#[test]
fn sizes_never_shrink() {
    assert_eq!(
        reload(0, 1999, OLD, RUNNING).unwrap_err().to_string(),
        "Can't shrink VDO logical size: it has 2000 blocks, the new table 1999"
    );
    let line = "V4 /dev/sdb 999 4096 32768 16380";
    for condition in [
        RUNNING,
        VolumeCondition {
            started: false,
            ..RUNNING
        },
    ] {
        assert_eq!(
            reload(0, 2000, line, condition).unwrap_err().to_string(),
            "Removing physical storage from a VDO is not supported: it has 1000 blocks, the new table 999"
        );
    }
}

#[test]
fn physical_growth_needs_a_volume_in_order() {
    let line = "V4 /dev/sdb 1001 4096 32768 16380";
    for (condition, text) in [
        (
            VolumeCondition {
                started: false,
                ..RUNNING
            },
            "Can't grow VDO physical size before its first resume",
        ),
        (
            VolumeCondition {
                read_only: true,
                ..RUNNING
            },
            "Can't grow VDO physical size in read-only mode",
        ),
        (
            VolumeCondition {
                recovering: true,
                ..RUNNING
            },
            "Can't grow VDO physical size while it is recovering: try again when dmsetup status shows normal",
        ),
    ] {
        let error = reload(0, 2000, line, condition).unwrap_err();
        assert_eq!(error.to_string(), text);
        // Everything else may change all the same.
        assert!(reload(0, 2000, "V4 /dev/sdb 1000 4096 32768 16380", condition).is_ok());
    }
}

#[test]
fn a_table_without_a_physical_size_asks_for_no_growth() {
    let line = "/dev/sdb 4096 x x 32768 16380 x x x .";
    assert_eq!(reload(0, 2000, line, RUNNING), Ok(Changes::default()));
}

#[test]
fn the_logical_size_grows_unless_the_volume_is_read_only() {
    for (read_only, recovering) in [(false, false), (false, true), (true, false)] {
        let condition = VolumeCondition {
            read_only,
            recovering,
            ..RUNNING
        };
        assert_eq!(reload(0, 2001, OLD, condition).is_err(), read_only);
    }
    let condition = VolumeCondition {
        read_only: true,
        ..RUNNING
    };
    let error = reload(0, 2001, OLD, condition).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Can't grow VDO logical size in read-only mode"
    );
}

/// The name says nothing: it may be another name of the same device, or the same name of another.
#[test]
fn the_device_stays() {
    let other_name = "V4 /dev/disk/by-id/x 1000 4096 32768 16380";
    assert!(reload(0, 2000, other_name, RUNNING).is_ok());
    let elsewhere = VolumeCondition {
        same_device: false,
        ..RUNNING
    };
    assert_eq!(
        reload(0, 2000, OLD, elsewhere).unwrap_err().to_string(),
        "Storage device cannot change: the volume has to be stopped and started with the new table for this"
    );
}
