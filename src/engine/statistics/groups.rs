// SPDX-License-Identifier: GPL-2.0

//! The counters of each part of the volume, and the plain values of a snapshot beside them.

use super::counter::{Counter, Gauge};
use crate::engine::env::Operation;

/// Defines a group of counters and the plain values that a snapshot of it has.
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $group:ident => $values:ident {
            $($(#[$field_meta:meta])* $field:ident: $kind:ty,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        pub struct $group {
            $($(#[$field_meta])* pub $field: $kind,)*
        }

        impl $group {
            /// The values now.
            pub fn snapshot(&self) -> $values {
                $values { $($field: self.$field.get(),)* }
            }
        }

        #[doc = concat!("What a snapshot has of [`", stringify!($group), "`].")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $values {
            $($(#[$field_meta])* pub $field: u64,)*
        }
    };
}

counters! {
    /// Bios by kind. Each is one of the first four, and a flush or FUA besides.
    BioCounters => BioStats {
        /// Reads.
        read: Counter,
        /// Writes with data.
        write: Counter,
        /// Flushes without data.
        empty_flush: Counter,
        /// Discards.
        discard: Counter,
        /// Anything that flushes first.
        flush: Counter,
        /// Anything that has to be durable when it completes.
        fua: Counter,
    }
}

impl BioCounters {
    /// Counts a bio.
    pub fn count(&self, operation: Operation, preflush: bool, fua: bool) {
        match operation {
            Operation::Read => self.read.increment(),
            Operation::Write => self.write.increment(),
            Operation::Discard => self.discard.increment(),
            Operation::Flush => self.empty_flush.increment(),
        }
        if preflush || operation == Operation::Flush {
            self.flush.increment();
        }
        if fua {
            self.fua.increment();
        }
    }
}

impl BioStats {
    /// What is here and not in `others`; zero where the others were counted in between.
    #[must_use]
    pub const fn minus(self, others: Self) -> Self {
        Self {
            read: self.read.saturating_sub(others.read),
            write: self.write.saturating_sub(others.write),
            empty_flush: self.empty_flush.saturating_sub(others.empty_flush),
            discard: self.discard.saturating_sub(others.discard),
            flush: self.flush.saturating_sub(others.flush),
            fua: self.fua.saturating_sub(others.fua),
        }
    }
}

counters! {
    /// The packer.
    PackerCounters => PackerStats {
        /// Fragments in blocks that were written.
        compressed_fragments_written: Counter,
        /// Blocks of fragments that were written.
        compressed_blocks_written: Counter,
        /// Fragments that wait for others.
        compressed_fragments_in_packer: Gauge,
    }
}

counters! {
    /// The block allocator. The number of slabs is not counted but filled in.
    AllocatorCounters => AllocatorStats {
        /// Slabs in the depot.
        slab_count: Gauge,
        /// Times that a slab was opened for allocation.
        slabs_opened: Counter,
        /// Times that this slab had been used before.
        slabs_reopened: Counter,
    }
}

counters! {
    /// Things of a journal at three points of their way. The last point is read first, because the
    /// tools subtract: a snapshot never has more things written than started.
    CommitCounters => CommitStats {
        /// Durable.
        committed: Counter,
        /// Handed to the device.
        written: Counter,
        /// Taken in.
        started: Counter,
    }
}

counters! {
    /// The recovery journal, without its entries and blocks.
    JournalCounters => JournalSpaceStats {
        /// Times that the journal was full.
        disk_full: Counter,
        /// Times that slab journals were asked to release journal space.
        slab_journal_commits_requested: Counter,
    }
}

counters! {
    /// The slab journals.
    SlabJournalCounters => SlabJournalStats {
        /// Times that a slab journal was full.
        disk_full_count: Counter,
        /// Times that reference counts were flushed to make room.
        flush_count: Counter,
        /// Times that an update waited for room.
        blocked_count: Counter,
        /// Blocks written.
        blocks_written: Counter,
        /// Times that an update waited for the tail block to be written.
        tail_busy_count: Counter,
    }
}

counters! {
    /// Anything of which only the blocks written are counted.
    WriteCounters => WriteStats {
        /// Blocks written.
        blocks_written: Counter,
    }
}

counters! {
    /// The block map's page cache.
    BlockMapCounters => BlockMapStats {
        /// Pages that differ from the disk.
        dirty_pages: Gauge,
        /// Pages that do not.
        clean_pages: Gauge,
        /// Pages of the cache that hold nothing.
        free_pages: Gauge,
        /// Pages that could not be read.
        failed_pages: Gauge,
        /// Pages being read.
        incoming_pages: Gauge,
        /// Pages being written.
        outgoing_pages: Gauge,
        /// Times that no page was free at once.
        cache_pressure: Counter,
        /// Pages asked for to be read.
        read_count: Counter,
        /// Pages asked for to be written.
        write_count: Counter,
        /// Reads that failed.
        failed_reads: Counter,
        /// Writes that failed.
        failed_writes: Counter,
        /// Pages that were taken back while being written.
        reclaimed: Counter,
        /// Reads of pages being written.
        read_outgoing: Counter,
        /// Pages that were there.
        found_in_cache: Counter,
        /// Times that a page had to go for another.
        discard_required: Counter,
        /// Times that someone waited for a page being read.
        wait_for_page: Counter,
        /// Times that a page had to be read.
        fetch_required: Counter,
        /// Pages read.
        pages_loaded: Counter,
        /// Pages written.
        pages_saved: Counter,
        /// Flushes for page writes.
        flush_count: Counter,
    }
}

counters! {
    /// The hash locks.
    HashLockCounters => HashLockStats {
        /// Advice of the index that was right.
        dedupe_advice_valid: Counter,
        /// Advice of the index that was out of date.
        dedupe_advice_stale: Counter,
        /// Writes that found the same data being written.
        concurrent_data_matches: Counter,
        /// Writes that found other data of the same hash being written.
        concurrent_hash_collisions: Counter,
        /// Index queries under way.
        curr_dedupe_queries: Gauge,
    }
}

counters! {
    /// Errors that users see or cause.
    ErrorCounters => ErrorStats {
        /// Advice of the index that names a block that cannot be.
        invalid_advice_pbn_count: Counter,
        /// Requests that failed because the volume was full.
        no_space_error_count: Counter,
        /// Requests that failed because the volume was read-only.
        read_only_error_count: Counter,
    }
}

counters! {
    /// The deduplication index.
    IndexCounters => IndexStats {
        /// Records in the index.
        entries_indexed: Gauge,
        /// Names that were posted and were there.
        posts_found: Counter,
        /// Names that were posted and were not.
        posts_not_found: Counter,
        /// Names that were asked for and were there.
        queries_found: Counter,
        /// Names that were asked for and were not.
        queries_not_found: Counter,
        /// Names that were updated and were there.
        updates_found: Counter,
        /// Names that were updated and were not.
        updates_not_found: Counter,
        /// Records that fell out of the index.
        entries_discarded: Counter,
    }
}

counters! {
    /// The codec. `input_bytes` and `payload_bytes` are those of blocks that became smaller, so
    /// their ratio is the codec's; blocks that did not are counted alone.
    CodecCounters => CodecStats {
        /// Blocks given to the compressor.
        calls: Counter,
        /// Bytes of the blocks that became smaller.
        input_bytes: Counter,
        /// Bytes that they became.
        payload_bytes: Counter,
        /// Blocks that did not become small enough.
        incompressible: Counter,
        /// Blocks that the compressor failed on; they were stored as they are.
        errors: Counter,
        /// Fragments given to the decompressor.
        decompress_calls: Counter,
        /// Fragments that were tried a second time, with a software driver.
        decompress_retries: Counter,
        /// Fragments that could not be read.
        decompress_errors: Counter,
        /// Calls that the driver has not answered yet.
        outstanding: Gauge,
        /// Blocks that did not come out of the decompressor as they went into the compressor; they were stored as they are.
        verify_errors: Counter,
    }
}

impl CodecCounters {
    /// Counts a block of `input` bytes that became `payload` bytes.
    pub fn compressed(&self, input: usize, payload: usize) {
        self.input_bytes.add(input as u64);
        self.payload_bytes.add(payload as u64);
    }
}

counters! {
    /// Memory of the volume, where somebody counts it.
    MemoryCounters => MemoryStats {
        /// Bytes in use.
        bytes_used: Gauge,
        /// The most bytes in use so far.
        peak_bytes_used: Gauge,
    }
}
