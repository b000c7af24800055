// SPDX-License-Identifier: GPL-2.0

//! The text of the `stats` message.
//!
//! `vdostats` scans it from left to right for fixed labels: names, order and separators are an
//! interface. A change of any of them needs a new [`STATS_VERSION`].
//! Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

use crate::engine::statistics::{BioStats, CommitStats, Snapshot};
use crate::target::text::Braces;

/// The version of the text.
const STATS_VERSION: u64 = 36;

/// The block size that the text gives.
const BLOCK_BYTES: u64 = 4096;

/// Writes the text of the `stats` message.
pub fn write_stats(out: &mut dyn Write, snapshot: &Snapshot) -> fmt::Result {
    Braces::write(out, |text| {
        volume(text, snapshot)?;
        parts(text, snapshot)?;
        block_map(text, snapshot)?;
        requests(text, snapshot)?;
        bios(text, snapshot)?;
        memory_and_index(text, snapshot)
    })
}

fn volume(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    text.numbers(&[
        ("version", STATS_VERSION),
        ("dataBlocksUsed", snapshot.data_blocks_used),
        ("overheadBlocksUsed", snapshot.overhead_blocks_used),
        ("logicalBlocksUsed", snapshot.logical_blocks_used),
        ("physicalBlocks", snapshot.physical_blocks),
        ("logicalBlocks", snapshot.logical_blocks),
        ("blockMapCacheSize", snapshot.block_map_cache_size_bytes),
        ("blockSize", BLOCK_BYTES),
        ("completeRecoveries", snapshot.complete_recoveries),
        ("readOnlyRecoveries", snapshot.read_only_recoveries),
    ])?;
    text.field("mode", snapshot.mode)?;
    text.flag("inRecoveryMode", snapshot.in_recovery_mode)?;
    text.field("recoveryPercentage", snapshot.recovery_percentage)
}

fn parts(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    let packer = &snapshot.packer;
    text.number_group(
        "packer",
        &[
            (
                "compressedFragmentsWritten",
                packer.compressed_fragments_written,
            ),
            ("compressedBlocksWritten", packer.compressed_blocks_written),
            (
                "compressedFragmentsInPacker",
                packer.compressed_fragments_in_packer,
            ),
        ],
    )?;
    let allocator = &snapshot.allocator;
    text.number_group(
        "allocator",
        &[
            ("slabCount", allocator.slab_count),
            ("slabsOpened", allocator.slabs_opened),
            ("slabsReopened", allocator.slabs_reopened),
        ],
    )?;
    let journal = &snapshot.journal;
    text.group("journal", |text| {
        text.numbers(&[
            ("diskFull", journal.space.disk_full),
            (
                "slabJournalCommitsRequested",
                journal.space.slab_journal_commits_requested,
            ),
        ])?;
        commits(text, "entries", &journal.entries)?;
        commits(text, "blocks", &journal.blocks)
    })?;
    let slab_journal = &snapshot.slab_journal;
    text.number_group(
        "slabJournal",
        &[
            ("diskFullCount", slab_journal.disk_full_count),
            ("flushCount", slab_journal.flush_count),
            ("blockedCount", slab_journal.blocked_count),
            ("blocksWritten", slab_journal.blocks_written),
            ("tailBusyCount", slab_journal.tail_busy_count),
        ],
    )?;
    text.number_group(
        "slabSummary",
        &[("blocksWritten", snapshot.slab_summary.blocks_written)],
    )?;
    text.number_group(
        "refCounts",
        &[("blocksWritten", snapshot.ref_counts.blocks_written)],
    )
}

fn block_map(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    let block_map = &snapshot.block_map;
    text.number_group(
        "blockMap",
        &[
            ("dirtyPages", block_map.dirty_pages),
            ("cleanPages", block_map.clean_pages),
            ("freePages", block_map.free_pages),
            ("failedPages", block_map.failed_pages),
            ("incomingPages", block_map.incoming_pages),
            ("outgoingPages", block_map.outgoing_pages),
            ("cachePressure", block_map.cache_pressure),
            ("readCount", block_map.read_count),
            ("writeCount", block_map.write_count),
            ("failedReads", block_map.failed_reads),
            ("failedWrites", block_map.failed_writes),
            ("reclaimed", block_map.reclaimed),
            ("readOutgoing", block_map.read_outgoing),
            ("foundInCache", block_map.found_in_cache),
            ("discardRequired", block_map.discard_required),
            ("waitForPage", block_map.wait_for_page),
            ("fetchRequired", block_map.fetch_required),
            ("pagesLoaded", block_map.pages_loaded),
            ("pagesSaved", block_map.pages_saved),
            ("flushCount", block_map.flush_count),
        ],
    )
}

fn requests(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    let hash_lock = &snapshot.hash_lock;
    text.number_group(
        "hashLock",
        &[
            ("dedupeAdviceValid", hash_lock.dedupe_advice_valid),
            ("dedupeAdviceStale", hash_lock.dedupe_advice_stale),
            ("concurrentDataMatches", hash_lock.concurrent_data_matches),
            (
                "concurrentHashCollisions",
                hash_lock.concurrent_hash_collisions,
            ),
            ("currDedupeQueries", hash_lock.curr_dedupe_queries),
        ],
    )?;
    let errors = &snapshot.errors;
    text.number_group(
        "errors",
        &[
            ("invalidAdvicePBNCount", errors.invalid_advice_pbn_count),
            ("noSpaceErrorCount", errors.no_space_error_count),
            ("readOnlyErrorCount", errors.read_only_error_count),
        ],
    )?;
    text.field("instance", snapshot.instance)?;
    text.numbers(&[
        ("currentVIOsInProgress", snapshot.current_vios_in_progress),
        ("maxVIOs", snapshot.max_vios),
        ("dedupeAdviceTimeouts", snapshot.dedupe_advice_timeouts),
        ("flushOut", snapshot.flush_out),
    ])?;
    text.field("logicalBlockSize", snapshot.logical_block_size_bytes)
}

fn bios(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    let groups = [
        ("biosIn", &snapshot.bios_in),
        ("biosInPartial", &snapshot.bios_in_partial),
        ("biosOut", &snapshot.bios_out),
        ("biosMeta", &snapshot.bios_meta),
        ("biosJournal", &snapshot.bios_journal),
        ("biosPageCache", &snapshot.bios_page_cache),
        ("biosOutCompleted", &snapshot.bios_out_completed),
        ("biosMetaCompleted", &snapshot.bios_meta_completed),
        ("biosJournalCompleted", &snapshot.bios_journal_completed),
        (
            "biosPageCacheCompleted",
            &snapshot.bios_page_cache_completed,
        ),
        ("biosAcknowledged", &snapshot.bios_acknowledged),
        (
            "biosAcknowledgedPartial",
            &snapshot.bios_acknowledged_partial,
        ),
        ("biosInProgress", &snapshot.bios_in_progress),
    ];
    groups
        .iter()
        .try_for_each(|(name, bios)| bio_kinds(text, name, bios))
}

fn memory_and_index(text: &mut Braces<'_>, snapshot: &Snapshot) -> fmt::Result {
    let memory = &snapshot.memory_usage;
    text.number_group(
        "memoryUsage",
        &[
            ("bytesUsed", memory.bytes_used),
            ("peakBytesUsed", memory.peak_bytes_used),
        ],
    )?;
    let index = &snapshot.index;
    text.number_group(
        "index",
        &[
            ("entriesIndexed", index.entries_indexed),
            ("postsFound", index.posts_found),
            ("postsNotFound", index.posts_not_found),
            ("queriesFound", index.queries_found),
            ("queriesNotFound", index.queries_not_found),
            ("updatesFound", index.updates_found),
            ("updatesNotFound", index.updates_not_found),
            ("entriesDiscarded", index.entries_discarded),
        ],
    )
}

fn commits(text: &mut Braces<'_>, name: &str, commits: &CommitStats) -> fmt::Result {
    text.number_group(
        name,
        &[
            ("started", commits.started),
            ("written", commits.written),
            ("committed", commits.committed),
        ],
    )
}

fn bio_kinds(text: &mut Braces<'_>, name: &str, bios: &BioStats) -> fmt::Result {
    text.number_group(
        name,
        &[
            ("read", bios.read),
            ("write", bios.write),
            ("emptyFlush", bios.empty_flush),
            ("discard", bios.discard),
            ("flush", bios.flush),
            ("fua", bios.fua),
        ],
    )
}
