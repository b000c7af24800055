// SPDX-License-Identifier: GPL-2.0

//! The `blockMap` group of a volume's statistics.
//!
//! Each shard of the page cache counts for itself under its own lock; the group is their sum. `flush_count` has one flush for each
//! page written and one more for a first write; the device sees fewer, because the store shares them.

use crate::engine::statistics::BlockMapStats;

/// Adds the numbers of a shard to the sum.
pub(super) fn add(sum: &mut BlockMapStats, mut shard: BlockMapStats) {
    for (sum, number) in fields(sum).into_iter().zip(fields(&mut shard)) {
        *sum = sum.saturating_add(*number);
    }
}

fn fields(stats: &mut BlockMapStats) -> [&mut u64; 20] {
    [
        &mut stats.dirty_pages,
        &mut stats.clean_pages,
        &mut stats.free_pages,
        &mut stats.failed_pages,
        &mut stats.incoming_pages,
        &mut stats.outgoing_pages,
        &mut stats.cache_pressure,
        &mut stats.read_count,
        &mut stats.write_count,
        &mut stats.failed_reads,
        &mut stats.failed_writes,
        &mut stats.reclaimed,
        &mut stats.read_outgoing,
        &mut stats.found_in_cache,
        &mut stats.discard_required,
        &mut stats.wait_for_page,
        &mut stats.fetch_required,
        &mut stats.pages_loaded,
        &mut stats.pages_saved,
        &mut stats.flush_count,
    ]
}

/// Counts one more.
pub(super) fn count(counter: &mut u64) {
    *counter = counter.wrapping_add(1);
}
