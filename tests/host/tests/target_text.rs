// SPDX-License-Identifier: GPL-2.0

//! The texts that tools read: status, `stats`, `config`, `compress-stats`.

use std::fmt::Write as _;

use rvdo_host::engine::depot::BlocksByCode;
use rvdo_host::engine::format::{RequiredFlags, StreamFormat};
use rvdo_host::engine::statistics::{
    AllocatorStats, BioStats, BlockMapStats, CodecStats, CommitStats, ErrorStats, HashLockStats,
    IndexState, IndexStats, JournalSpaceStats, JournalStats, MemoryStats, OperatingMode,
    PackerStats, SlabJournalStats, Snapshot, WriteStats,
};
use rvdo_host::target::compress_stats::{write_compress_stats, CompressReport};
use rvdo_host::target::compression_type::CompressionType;
use rvdo_host::target::config::{write_config, ConfigReport};
use rvdo_host::target::driver_list::DriverList;
use rvdo_host::target::figures::Figures;
use rvdo_host::target::stats::write_stats;
use rvdo_host::target::status::InfoStatus;
use rvdo_host::target::table_options::IndexMemory;
use rvdo_host::target::text::BoundedText;

/// What the in-tree driver 9.2.0 of Linux 7.3 answered to `stats` on a busy volume.
const DM_VDO: &str = include_str!("data/dm-vdo-9.2.0.stats");

fn stats(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    write_stats(&mut text, snapshot).unwrap();
    text
}

/// The text with every number replaced by `0`.
fn skeleton(text: &str) -> String {
    text.split(' ')
        .map(|word| match word.strip_suffix(',').unwrap_or(word) {
            number if number.parse::<u64>().is_ok() => word.replace(number, "0"),
            _ => word.to_string(),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn labels_order_and_separators_are_those_of_the_in_tree_driver() {
    assert_eq!(skeleton(&stats(&Snapshot::default())), skeleton(DM_VDO));
}

/// A snapshot whose numbers count up in the order in which `vdostats` reads them.
fn numbered() -> (Snapshot, u64) {
    let mut last = 0u64;
    let mut n = || {
        last += 1;
        last
    };
    let snapshot = Snapshot {
        data_blocks_used: n(),
        overhead_blocks_used: n(),
        logical_blocks_used: n(),
        physical_blocks: n(),
        logical_blocks: n(),
        block_map_cache_size_bytes: n(),
        complete_recoveries: n(),
        read_only_recoveries: n(),
        mode: OperatingMode::ReadOnly,
        in_recovery_mode: true,
        recovery_percentage: n() as u8,
        packer: PackerStats {
            compressed_fragments_written: n(),
            compressed_blocks_written: n(),
            compressed_fragments_in_packer: n(),
        },
        allocator: AllocatorStats {
            slab_count: n(),
            slabs_opened: n(),
            slabs_reopened: n(),
        },
        journal: JournalStats {
            space: JournalSpaceStats {
                disk_full: n(),
                slab_journal_commits_requested: n(),
            },
            entries: CommitStats {
                started: n(),
                written: n(),
                committed: n(),
            },
            blocks: CommitStats {
                started: n(),
                written: n(),
                committed: n(),
            },
        },
        slab_journal: SlabJournalStats {
            disk_full_count: n(),
            flush_count: n(),
            blocked_count: n(),
            blocks_written: n(),
            tail_busy_count: n(),
        },
        slab_summary: WriteStats {
            blocks_written: n(),
        },
        ref_counts: WriteStats {
            blocks_written: n(),
        },
        block_map: BlockMapStats {
            dirty_pages: n(),
            clean_pages: n(),
            free_pages: n(),
            failed_pages: n(),
            incoming_pages: n(),
            outgoing_pages: n(),
            cache_pressure: n(),
            read_count: n(),
            write_count: n(),
            failed_reads: n(),
            failed_writes: n(),
            reclaimed: n(),
            read_outgoing: n(),
            found_in_cache: n(),
            discard_required: n(),
            wait_for_page: n(),
            fetch_required: n(),
            pages_loaded: n(),
            pages_saved: n(),
            flush_count: n(),
        },
        hash_lock: HashLockStats {
            dedupe_advice_valid: n(),
            dedupe_advice_stale: n(),
            concurrent_data_matches: n(),
            concurrent_hash_collisions: n(),
            curr_dedupe_queries: n(),
        },
        errors: ErrorStats {
            invalid_advice_pbn_count: n(),
            no_space_error_count: n(),
            read_only_error_count: n(),
        },
        instance: n() as u32,
        current_vios_in_progress: n(),
        max_vios: n(),
        dedupe_advice_timeouts: n(),
        flush_out: n(),
        logical_block_size_bytes: n() as u32,
        bios_in: bios(&mut n),
        bios_in_partial: bios(&mut n),
        bios_out: bios(&mut n),
        bios_meta: bios(&mut n),
        bios_journal: bios(&mut n),
        bios_page_cache: bios(&mut n),
        bios_out_completed: bios(&mut n),
        bios_meta_completed: bios(&mut n),
        bios_journal_completed: bios(&mut n),
        bios_page_cache_completed: bios(&mut n),
        bios_acknowledged: bios(&mut n),
        bios_acknowledged_partial: bios(&mut n),
        bios_in_progress: bios(&mut n),
        memory_usage: MemoryStats {
            bytes_used: n(),
            peak_bytes_used: n(),
        },
        index: IndexStats {
            entries_indexed: n(),
            posts_found: n(),
            posts_not_found: n(),
            queries_found: n(),
            queries_not_found: n(),
            updates_found: n(),
            updates_not_found: n(),
            entries_discarded: n(),
        },
    };
    (snapshot, last)
}

fn bios(n: &mut impl FnMut() -> u64) -> BioStats {
    BioStats {
        read: n(),
        write: n(),
        empty_flush: n(),
        discard: n(),
        flush: n(),
        fua: n(),
    }
}

#[test]
fn every_field_stands_under_its_own_label() {
    let (snapshot, last) = numbered();
    let text = stats(&snapshot);
    let numbers: Vec<u64> = text
        .split(' ')
        .filter_map(|word| word.strip_suffix(',')?.parse().ok())
        .collect();
    // The constants and the flag, where they belong.
    let mut expected: Vec<u64> = (1..=last).collect();
    expected.insert(0, 36);
    expected.insert(7, 4096);
    expected.insert(10, 1);
    assert_eq!(numbers, expected);
    assert!(text.contains(
        "readOnlyRecoveries : 8, mode : read-only, inRecoveryMode : 1, recoveryPercentage : 9, "
    ));
}

#[test]
fn a_text_that_is_cut_off_fills_its_buffer() {
    let whole = stats(&Snapshot::default());
    for size in (0..whole.len() + 3)
        .step_by(7)
        .chain([1, 2, whole.len(), whole.len() + 1])
    {
        let mut buffer = vec![0xff; size + 4];
        let (inside, guard) = buffer.split_at_mut(size);
        let mut text = BoundedText::new(inside);
        let result = write_stats(&mut text, &Snapshot::default());
        let (length, full) = (text.len(), text.is_full());
        assert_eq!(text.is_empty(), length == 0);

        assert_eq!(guard, [0xff; 4], "nothing is written past the end");
        let kept = whole.len().min(size.saturating_sub(1));
        assert_eq!(length, kept);
        assert_eq!(inside.get(..kept), Some(&whole.as_bytes()[..kept]));
        assert_eq!(inside.get(kept).copied().unwrap_or(0), 0, "ends with NUL");
        assert_eq!(result.is_ok(), size > whole.len());
        // Device-mapper asks again if the text and its NUL take the whole buffer.
        assert_eq!(full, kept + 1 >= size);
    }
}

#[test]
fn bounded_text_goes_on_where_it_stopped() {
    let mut buffer = [0xff; 8];
    let mut text = BoundedText::new(&mut buffer);
    assert!(!text.is_full());
    write!(text, "ab").unwrap();
    write!(text, "c{}", 1).unwrap();
    assert_eq!(text.len(), 4);
    write!(text, "defgh").unwrap_err();
    write!(text, "i").unwrap_err();
    assert!(text.is_full());
    assert_eq!(&buffer, b"abc1def\0");
}

#[test]
fn status_has_seven_words() {
    let status = InfoStatus {
        backing_device: "dm-3",
        mode: OperatingMode::Normal,
        recovering: false,
        index: IndexState::Online,
        compression: true,
        used_blocks: 736_434,
        total_blocks: 1_572_864,
    };
    assert_eq!(
        status.to_string(),
        "/dev/dm-3 normal - online online 736434 1572864"
    );
    for (mode, recovering, compression, text) in [
        (
            OperatingMode::Recovering,
            true,
            false,
            "recovering recovering closed offline",
        ),
        (
            OperatingMode::ReadOnly,
            false,
            true,
            "read-only - closed online",
        ),
    ] {
        let other = InfoStatus {
            mode,
            recovering,
            compression,
            index: IndexState::Closed,
            ..status
        };
        assert_eq!(
            other.to_string(),
            format!("/dev/dm-3 {text} 736434 1572864")
        );
        assert_eq!(other.to_string().split(' ').count(), 7);
    }
    for (index, word) in [
        (IndexState::Closed, "closed"),
        (IndexState::Closing, "closing"),
        (IndexState::Error, "error"),
        (IndexState::Offline, "offline"),
        (IndexState::Online, "online"),
        (IndexState::Opening, "opening"),
        (IndexState::Suspended, "suspended"),
        (IndexState::Unknown, "unknown"),
    ] {
        assert_eq!(index.to_string(), word);
    }
}

#[test]
fn config_is_the_text_of_the_in_tree_driver() {
    let report = ConfigReport {
        physical_size_bytes: 6_442_450_944,
        logical_size_bytes: 10_737_418_240,
        slab_size_blocks: 8192,
        index_memory: IndexMemory::from_encoded((-256i32) as u32),
        index_sparse: false,
    };
    let text = |report: &ConfigReport| {
        let mut text = String::new();
        write_config(&mut text, report).unwrap();
        text
    };
    assert_eq!(
        text(&report),
        "{ version : 1, physicalSize : 6442450944, logicalSize : 10737418240, slabSize : 8192, index :  { memorySize : 0.25, isSparse : 0, }, }"
    );
    for (memory, word) in [
        ((-512i32) as u32, "0.50"),
        ((-768i32) as u32, "0.75"),
        (12, "12"),
        ((-1280i32) as u32, "4294966016"),
        (0x1001, "4097"),
    ] {
        let report = ConfigReport {
            index_memory: IndexMemory::from_encoded(memory),
            index_sparse: true,
            ..report
        };
        assert!(text(&report).ends_with(&format!(
            "index :  {{ memorySize : {word}, isSparse : 1, }}, }}"
        )));
    }
}

#[test]
fn compress_stats_tell_drivers_and_ratio() {
    let hardware = Figures::new("deflate-iaa");
    hardware.calls.add(6);
    hardware.decompress_errors.add(3);
    hardware.stalls.add(2);
    let software = Figures::new("deflate-generic");
    software.fallbacks.add(9);
    let drivers = [hardware, software];
    let text = |codec, required| {
        let report = CompressReport {
            requested: CompressionType::parse("deflate-iaa").unwrap(),
            algorithm: "deflate",
            driver: "deflate-generic",
            asynchronous: false,
            enabled: true,
            format: StreamFormat::Deflate,
            compress_accelerators: DriverList::AUTO,
            decompress_accelerators: DriverList::NONE,
            backing_off: false,
            verify: true,
            required,
            codec,
            blocks: required.map(|_| BlocksByCode::default()),
        };
        let mut text = String::new();
        write_compress_stats(&mut text, &report, drivers.iter()).unwrap();
        text
    };
    let counted = CodecStats {
        calls: 13,
        input_bytes: 40_960,
        payload_bytes: 20_000,
        incompressible: 2,
        errors: 1,
        decompress_calls: 7,
        decompress_errors: 4,
        outstanding: 5,
        verify_errors: 8,
        ..CodecStats::default()
    };
    let all = text(counted, Some(RequiredFlags::UPGRADED));
    let sums = "{ algorithm : deflate, driver : deflate-generic, async : 0, calls : 13, input_bytes : 40960, payload_bytes : 20000, saved_bytes : 20960, ratio_x100 : 204, ratio : 2.04, incompressible : 2, errors : 1, decompress_calls : 7, decompress_retries : 3, decompress_errors : 4, outstanding : 5, requested : deflate-iaa, enabled : 1, format : deflate, compress_accelerators : auto, decompress_accelerators : none, backing_off : 0, fallbacks : 9, stalls : 2, verify_errors : 8, verify : 1, volume : 67.1 0x00010001, drivers : { deflate-iaa : { calls : 6, ";
    assert!(all.starts_with(sums), "{all}");
    assert!(all.contains("}, deflate-generic : { calls : 0, "), "{all}");
    let end = "latency : { }, }, }, compressed_blocks : { lz4 : 0, zstd : 0, deflate : 0, unknown : 0, }, }";
    assert!(all.ends_with(end), "{all}");

    let nothing = text(CodecStats::default(), None);
    assert!(nothing.contains("saved_bytes : 0, ratio_x100 : 0, ratio : 0.00, "));
    assert!(nothing.contains("volume : 67.0, "));
    assert!(nothing.ends_with("latency : { }, }, }, }"), "{nothing}");
    let huge = CodecStats {
        input_bytes: u64::MAX,
        payload_bytes: 1,
        ..CodecStats::default()
    };
    let huge = text(huge, None);
    assert!(
        huge.contains("ratio_x100 : 18446744073709551615, "),
        "{huge}"
    );
}
