// SPDX-License-Identifier: GPL-2.0

//! What is known about a volume at one moment: plain values without locks.

use core::fmt;

use super::groups::{
    AllocatorStats, BioStats, BlockMapStats, CommitStats, ErrorStats, HashLockStats, IndexStats,
    JournalSpaceStats, MemoryStats, PackerStats, SlabJournalStats, WriteStats,
};

/// What a volume can be used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OperatingMode {
    /// Everything.
    #[default]
    Normal,
    /// Everything, while slabs are still being scrubbed.
    Recovering,
    /// Reading.
    ReadOnly,
}

impl fmt::Display for OperatingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Normal => "normal",
            Self::Recovering => "recovering",
            Self::ReadOnly => "read-only",
        })
    }
}

/// The state of the deduplication index as status shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IndexState {
    /// Not open.
    #[default]
    Closed,
    /// Being closed.
    Closing,
    /// Of no use after an error.
    Error,
    /// Open, but not asked.
    Offline,
    /// Open and asked.
    Online,
    /// Being opened.
    Opening,
    /// Waiting for the volume to be resumed.
    Suspended,
    /// None of these.
    Unknown,
}

impl fmt::Display for IndexState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "closed",
            Self::Closing => "closing",
            Self::Error => "error",
            Self::Offline => "offline",
            Self::Online => "online",
            Self::Opening => "opening",
            Self::Suspended => "suspended",
            Self::Unknown => "unknown",
        })
    }
}

/// The recovery journal in a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// What happened for want of space.
    pub space: JournalSpaceStats,
    /// Entries.
    pub entries: CommitStats,
    /// Blocks.
    pub blocks: CommitStats,
}

/// All that is known about a volume at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Physical blocks that hold data.
    pub data_blocks_used: u64,
    /// Physical blocks that hold metadata.
    pub overhead_blocks_used: u64,
    /// Logical blocks that are mapped, to zero or to data.
    pub logical_blocks_used: u64,
    /// The physical size.
    pub physical_blocks: u64,
    /// The logical size.
    pub logical_blocks: u64,
    /// The size of the block map's page cache in bytes.
    pub block_map_cache_size_bytes: u64,
    /// Recoveries after a crash so far.
    pub complete_recoveries: u64,
    /// Recoveries from read-only mode so far.
    pub read_only_recoveries: u64,
    /// The operating mode.
    pub mode: OperatingMode,
    /// Whether slabs still wait to be scrubbed.
    pub in_recovery_mode: bool,
    /// The share of slabs that do not, in percent.
    pub recovery_percentage: u8,
    /// The packer.
    pub packer: PackerStats,
    /// The block allocator.
    pub allocator: AllocatorStats,
    /// The recovery journal.
    pub journal: JournalStats,
    /// The slab journals.
    pub slab_journal: SlabJournalStats,
    /// The slab summary.
    pub slab_summary: WriteStats,
    /// The reference counts.
    pub ref_counts: WriteStats,
    /// The block map's page cache.
    pub block_map: BlockMapStats,
    /// The hash locks.
    pub hash_lock: HashLockStats,
    /// Errors.
    pub errors: ErrorStats,
    /// The number of the running volume.
    pub instance: u32,
    /// Requests in flight.
    pub current_vios_in_progress: u64,
    /// The most requests in flight so far.
    pub max_vios: u64,
    /// Index queries given up or not made.
    pub dedupe_advice_timeouts: u64,
    /// User flushes passed on.
    pub flush_out: u64,
    /// The unit in which the device is addressed.
    pub logical_block_size_bytes: u32,
    /// Bios from the user.
    pub bios_in: BioStats,
    /// Those that are not whole blocks.
    pub bios_in_partial: BioStats,
    /// Bios of user data.
    pub bios_out: BioStats,
    /// Bios of all metadata.
    pub bios_meta: BioStats,
    /// Bios of the recovery journal.
    pub bios_journal: BioStats,
    /// Bios of the block map's page cache.
    pub bios_page_cache: BioStats,
    /// Completed bios of user data.
    pub bios_out_completed: BioStats,
    /// Completed bios of all metadata.
    pub bios_meta_completed: BioStats,
    /// Completed bios of the recovery journal.
    pub bios_journal_completed: BioStats,
    /// Completed bios of the block map's page cache.
    pub bios_page_cache_completed: BioStats,
    /// Bios acknowledged.
    pub bios_acknowledged: BioStats,
    /// Those that were not whole blocks.
    pub bios_acknowledged_partial: BioStats,
    /// Bios from the user that are not acknowledged.
    pub bios_in_progress: BioStats,
    /// Memory.
    pub memory_usage: MemoryStats,
    /// The deduplication index.
    pub index: IndexStats,
}
