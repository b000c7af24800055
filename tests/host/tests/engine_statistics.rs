// SPDX-License-Identifier: GPL-2.0

//! Counters: what an event is counted as, and what a snapshot makes of it.

use rvdo_host::engine::env::{IoClass, Operation, WriteFlags};
use rvdo_host::engine::statistics::{BioStats, Snapshot, Statistics};

const NONE: BioStats = BioStats {
    read: 0,
    write: 0,
    empty_flush: 0,
    discard: 0,
    flush: 0,
    fua: 0,
};

#[test]
fn nothing_counted_is_all_zero() {
    assert_eq!(Statistics::default().snapshot(), Snapshot::default());
}

#[test]
fn a_bio_is_one_kind_and_a_flush_or_fua_besides() {
    for (operation, preflush, fua, expected) in [
        (Operation::Read, false, false, BioStats { read: 1, ..NONE }),
        (
            Operation::Write,
            false,
            false,
            BioStats { write: 1, ..NONE },
        ),
        (
            Operation::Discard,
            false,
            false,
            BioStats { discard: 1, ..NONE },
        ),
        (
            Operation::Flush,
            false,
            false,
            BioStats {
                empty_flush: 1,
                flush: 1,
                ..NONE
            },
        ),
        (
            Operation::Flush,
            true,
            false,
            BioStats {
                empty_flush: 1,
                flush: 1,
                ..NONE
            },
        ),
        (
            Operation::Write,
            true,
            true,
            BioStats {
                write: 1,
                flush: 1,
                fua: 1,
                ..NONE
            },
        ),
    ] {
        let statistics = Statistics::default();
        statistics.bio_in(operation, preflush, fua, false);
        let snapshot = statistics.snapshot();
        assert_eq!(snapshot.bios_in, expected, "{operation:?}");
        assert_eq!(snapshot.bios_in_partial, NONE);
        assert_eq!(snapshot.bios_in_progress, expected);

        statistics.bio_acknowledged(operation, preflush, fua, true);
        let snapshot = statistics.snapshot();
        assert_eq!(snapshot.bios_acknowledged, expected);
        assert_eq!(snapshot.bios_acknowledged_partial, expected);
        assert_eq!(snapshot.bios_in_progress, NONE);
    }
}

#[test]
fn what_is_acknowledged_before_it_is_seen_to_begin_is_not_negative() {
    let statistics = Statistics::default();
    statistics.bio_acknowledged(Operation::Write, false, false, false);
    assert_eq!(statistics.snapshot().bios_in_progress, NONE);
}

#[test]
fn journal_bios_are_metadata_too() {
    let statistics = Statistics::default();
    statistics.bio_out_write(IoClass::Data, WriteFlags::DATA);
    statistics.bio_out_read(IoClass::Metadata);
    statistics.bio_out_write(IoClass::Journal, WriteFlags::PREFLUSH_FUA);
    statistics.bio_out_write(IoClass::Index, WriteFlags::META);
    statistics.bio_out_completed_write(IoClass::Journal, WriteFlags::PREFLUSH_FUA);
    statistics.bio_out_completed_read(IoClass::Data);

    let journal = BioStats {
        write: 1,
        flush: 1,
        fua: 1,
        ..NONE
    };
    let snapshot = statistics.snapshot();
    assert_eq!(snapshot.bios_out, BioStats { write: 1, ..NONE });
    assert_eq!(snapshot.bios_meta, BioStats { read: 1, ..journal });
    assert_eq!(snapshot.bios_journal, journal);
    assert_eq!(snapshot.bios_page_cache, NONE);
    assert_eq!(snapshot.bios_out_completed, BioStats { read: 1, ..NONE });
    assert_eq!(snapshot.bios_meta_completed, journal);
    assert_eq!(snapshot.bios_journal_completed, journal);
}

#[test]
fn the_most_requests_in_flight_are_remembered() {
    let statistics = Statistics::default();
    statistics.requests.begin();
    statistics.requests.begin();
    statistics.requests.end();
    statistics.requests.begin();
    statistics.requests.end();
    let snapshot = statistics.snapshot();
    assert_eq!(snapshot.current_vios_in_progress, 1);
    assert_eq!(snapshot.max_vios, 2);
}

#[test]
fn a_gauge_below_zero_reads_as_zero() {
    let statistics = Statistics::default();
    let gauge = &statistics.packer.compressed_fragments_in_packer;
    gauge.decrement();
    assert_eq!(
        statistics.snapshot().packer.compressed_fragments_in_packer,
        0
    );
    gauge.increment();
    gauge.increment();
    assert_eq!(
        statistics.snapshot().packer.compressed_fragments_in_packer,
        1
    );
    gauge.set(7);
    assert_eq!(gauge.get(), 7);
}

#[test]
fn each_part_is_found_in_the_snapshot() {
    let statistics = Statistics::default();
    statistics.packer.compressed_blocks_written.add(1);
    statistics.allocator.slabs_opened.add(2);
    statistics.journal.disk_full.add(3);
    statistics.journal_entries.committed.add(4);
    statistics.journal_blocks.written.add(5);
    statistics.slab_journal.flush_count.add(6);
    statistics.slab_summary.blocks_written.add(7);
    statistics.ref_counts.blocks_written.add(8);
    statistics.block_map.pages_saved.add(9);
    statistics.hash_lock.dedupe_advice_stale.add(10);
    statistics.errors.no_space_error_count.add(11);
    statistics.dedupe_advice_timeouts.add(12);
    statistics.flush_out.add(13);
    statistics.index.updates_found.add(14);
    statistics.memory.bytes_used.set(15);
    let snapshot = statistics.snapshot();
    assert_eq!(
        [
            snapshot.packer.compressed_blocks_written,
            snapshot.allocator.slabs_opened,
            snapshot.journal.space.disk_full,
            snapshot.journal.entries.committed,
            snapshot.journal.blocks.written,
            snapshot.slab_journal.flush_count,
            snapshot.slab_summary.blocks_written,
            snapshot.ref_counts.blocks_written,
            snapshot.block_map.pages_saved,
            snapshot.hash_lock.dedupe_advice_stale,
            snapshot.errors.no_space_error_count,
            snapshot.dedupe_advice_timeouts,
            snapshot.flush_out,
            snapshot.index.updates_found,
            snapshot.memory_usage.bytes_used,
        ],
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]
    );
}

#[test]
fn the_codec_counts_bytes_of_what_became_smaller() {
    let statistics = Statistics::default();
    statistics.codec.compressed(4096, 1000);
    statistics.codec.compressed(4096, 96);
    let codec = statistics.codec.snapshot();
    assert_eq!((codec.input_bytes, codec.payload_bytes), (8192, 1096));
}
