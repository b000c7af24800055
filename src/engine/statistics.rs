// SPDX-License-Identifier: GPL-2.0

//! What a volume counts while it works.
//!
//! Counters are relaxed atomics, each updated where the event happens, under any lock or none;
//! nothing here waits. [`Statistics::snapshot`] reads them one after the other, so sums over
//! several counters may be off by what happened meanwhile. What is not counted but known, such as
//! sizes and modes, is filled into the [`Snapshot`] by the volume.

mod counter;
mod groups;
mod snapshot;

pub use self::counter::{Counter, Gauge, RequestCounters};
pub use self::groups::*;
pub use self::snapshot::{IndexState, JournalStats, OperatingMode, Snapshot};

use crate::engine::env::{IoClass, Operation, WriteFlags};

/// The counters of one volume.
#[derive(Debug, Default)]
pub struct Statistics {
    /// Bios from the user.
    pub bios_in: BioCounters,
    /// Those that are not whole blocks.
    pub bios_in_partial: BioCounters,
    /// Bios of user data to the device.
    pub bios_out: BioCounters,
    /// Bios of all metadata to the device.
    pub bios_meta: BioCounters,
    /// Those of the recovery journal.
    pub bios_journal: BioCounters,
    /// Those of the block map's page cache.
    pub bios_page_cache: BioCounters,
    /// Completed bios of user data.
    pub bios_out_completed: BioCounters,
    /// Completed bios of all metadata.
    pub bios_meta_completed: BioCounters,
    /// Completed bios of the recovery journal.
    pub bios_journal_completed: BioCounters,
    /// Completed bios of the block map's page cache.
    pub bios_page_cache_completed: BioCounters,
    /// Bios acknowledged to the user.
    pub bios_acknowledged: BioCounters,
    /// Those that were not whole blocks.
    pub bios_acknowledged_partial: BioCounters,
    /// User flushes passed on to the device.
    pub flush_out: Counter,
    /// The requests in flight.
    pub requests: RequestCounters,
    /// The packer.
    pub packer: PackerCounters,
    /// The block allocator.
    pub allocator: AllocatorCounters,
    /// The recovery journal.
    pub journal: JournalCounters,
    /// Entries of the recovery journal.
    pub journal_entries: CommitCounters,
    /// Blocks of the recovery journal.
    pub journal_blocks: CommitCounters,
    /// The slab journals.
    pub slab_journal: SlabJournalCounters,
    /// The slab summary.
    pub slab_summary: WriteCounters,
    /// The reference counts.
    pub ref_counts: WriteCounters,
    /// The block map's page cache.
    pub block_map: BlockMapCounters,
    /// The hash locks.
    pub hash_lock: HashLockCounters,
    /// Errors.
    pub errors: ErrorCounters,
    /// Index queries given up, and those not made for want of a context.
    pub dedupe_advice_timeouts: Counter,
    /// The deduplication index.
    pub index: IndexCounters,
    /// Memory.
    pub memory: MemoryCounters,
    /// The codec. Not part of the tools' text.
    pub codec: CodecCounters,
}

impl Statistics {
    /// Counts a bio from the user; `partial` if it is not a number of whole blocks.
    pub fn bio_in(&self, operation: Operation, preflush: bool, fua: bool, partial: bool) {
        self.bios_in.count(operation, preflush, fua);
        if partial {
            self.bios_in_partial.count(operation, preflush, fua);
        }
    }

    /// Counts the acknowledgement of a bio that [`Statistics::bio_in`] counted.
    pub fn bio_acknowledged(&self, operation: Operation, preflush: bool, fua: bool, partial: bool) {
        self.bios_acknowledged.count(operation, preflush, fua);
        if partial {
            self.bios_acknowledged_partial
                .count(operation, preflush, fua);
        }
    }

    /// Counts a read handed to the device.
    pub fn bio_out_read(&self, class: IoClass) {
        self.count_out(class, Operation::Read, WriteFlags::DATA);
    }

    /// Counts a write handed to the device.
    pub fn bio_out_write(&self, class: IoClass, flags: WriteFlags) {
        self.count_out(class, Operation::Write, flags);
    }

    /// Counts a read that the device completed.
    pub fn bio_out_completed_read(&self, class: IoClass) {
        self.count_completed(class, Operation::Read, WriteFlags::DATA);
    }

    /// Counts a write that the device completed.
    pub fn bio_out_completed_write(&self, class: IoClass, flags: WriteFlags) {
        self.count_completed(class, Operation::Write, flags);
    }

    fn count_out(&self, class: IoClass, operation: Operation, flags: WriteFlags) {
        let groups = [
            &self.bios_out,
            &self.bios_meta,
            &self.bios_journal,
            &self.bios_page_cache,
        ];
        count_by_class(groups, class, operation, flags);
    }

    fn count_completed(&self, class: IoClass, operation: Operation, flags: WriteFlags) {
        let groups = [
            &self.bios_out_completed,
            &self.bios_meta_completed,
            &self.bios_journal_completed,
            &self.bios_page_cache_completed,
        ];
        count_by_class(groups, class, operation, flags);
    }

    /// Reads all counters. The volume adds what it knows.
    pub fn snapshot(&self) -> Snapshot {
        let bios_in = self.bios_in.snapshot();
        let bios_acknowledged = self.bios_acknowledged.snapshot();
        Snapshot {
            packer: self.packer.snapshot(),
            allocator: self.allocator.snapshot(),
            journal: JournalStats {
                space: self.journal.snapshot(),
                entries: self.journal_entries.snapshot(),
                blocks: self.journal_blocks.snapshot(),
            },
            slab_journal: self.slab_journal.snapshot(),
            slab_summary: self.slab_summary.snapshot(),
            ref_counts: self.ref_counts.snapshot(),
            block_map: self.block_map.snapshot(),
            hash_lock: self.hash_lock.snapshot(),
            errors: self.errors.snapshot(),
            current_vios_in_progress: self.requests.in_flight(),
            max_vios: self.requests.most(),
            dedupe_advice_timeouts: self.dedupe_advice_timeouts.get(),
            flush_out: self.flush_out.get(),
            bios_in,
            bios_in_partial: self.bios_in_partial.snapshot(),
            bios_out: self.bios_out.snapshot(),
            bios_meta: self.bios_meta.snapshot(),
            bios_journal: self.bios_journal.snapshot(),
            bios_page_cache: self.bios_page_cache.snapshot(),
            bios_out_completed: self.bios_out_completed.snapshot(),
            bios_meta_completed: self.bios_meta_completed.snapshot(),
            bios_journal_completed: self.bios_journal_completed.snapshot(),
            bios_page_cache_completed: self.bios_page_cache_completed.snapshot(),
            bios_acknowledged,
            bios_acknowledged_partial: self.bios_acknowledged_partial.snapshot(),
            bios_in_progress: bios_in.minus(bios_acknowledged),
            memory_usage: self.memory.snapshot(),
            index: self.index.snapshot(),
            ..Snapshot::default()
        }
    }
}

/// Counts a bio to the device. Those of the journal and the page cache are metadata as well; the index has I/O of its
/// own, for which the tools have no column.
fn count_by_class(
    [data, metadata, journal, page_cache]: [&BioCounters; 4],
    class: IoClass,
    operation: Operation,
    flags: WriteFlags,
) {
    let count = |bios: &BioCounters| bios.count(operation, flags.preflush, flags.fua);
    match class {
        IoClass::Data => count(data),
        IoClass::Metadata => count(metadata),
        IoClass::Journal => {
            count(metadata);
            count(journal);
        }
        IoClass::BlockMap => {
            count(metadata);
            count(page_cache);
        }
        IoClass::Index => {}
    }
}
