// SPDX-License-Identifier: GPL-2.0

//! The slab depot: which blocks are free, and how often each of the others is referenced.
//!
//! The depot owns the slabs (data blocks, reference blocks, journal) and the slab summary. A reference that comes or goes is an
//! entry in the journal of its slab and a new value of its counter; reference blocks are written much later, when the journal has
//! become long. Everything is in memory from the load on, so nothing but a full slab journal makes anyone wait.
//!
//! Locks, in the order they are taken: `allocator` (which slab next) → a slab (counters, journal, block states) → a shard of the
//! holds. The queue of slabs for the writers, a block of the summary and the counts of the recovery journal may be taken under
//! any of them and take none. No two slabs are ever locked at a time.
//!
//! What waits: [`Depot::apply`] for room in a slab journal, [`Depot::commit_oldest`] and [`Depot::drain`] for the writers. A slab
//! that somebody waits for is in the queue of the writers, and a writer that is done with it wakes whoever waits, in
//! read-only mode too.

mod algorithm_map;
mod allocator;
mod blocks;
mod codes;
mod convert;
mod counters;
mod geometry;
mod handle;
mod load;
mod pins;
mod rebuild;
mod recover;
mod reference_blocks;
mod replay;
mod scrub;
mod scrubber;
mod slab;
mod slab_journal;
mod summary;
mod work;
mod writer;

pub use self::algorithm_map::BlocksByCode;
pub use self::blocks::{Allocation, Pin};
pub use self::convert::Conversion;
pub use self::geometry::DepotParameters;
pub use self::handle::Depot;
pub use self::load::LoadState;
pub use self::scrubber::{ScrubMemory, SCRUBBERS};
pub use self::writer::WRITERS;
pub use crate::engine::format::slab_journal::ReferenceUpdate;

use crate::engine::units::SequenceNumber;

/// What the recovery journal keeps for the slab journals.
///
/// Called under a slab's lock: the implementation takes no lock under which the depot is called.
pub trait SlabJournalLocks: Send + Sync + 'static {
    /// A slab journal block whose oldest entry comes from recovery journal block `sequence` is not on disk yet.
    fn lock_for_slab(&self, sequence: SequenceNumber);

    /// The slab summary covers such a block now. The summary write has completed; the journal flushes before it reuses space.
    fn unlock_for_slab(&self, sequence: SequenceNumber);
}
