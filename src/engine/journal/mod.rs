// SPDX-License-Identifier: GPL-2.0

//! The recovery journal: what makes a change to the block map and the reference counts one step.
//!
//! Every change of a mapping is first an entry here. An entry is *recorded* when its block is durable and the *applier*, a task
//! of the volume, has passed both halves of it to the slabs. The applier takes entries in the order of the journal, one
//! after the other, so every slab journal has its entries in that order too (W3).
//!
//! * `state.rs` the blocks in memory and the positions in them;
//! * `locks.rs` who still needs a block on disk;
//! * `recovery_journal.rs` recording, committing, applying, reaping.
//!
//! Lock order: the journal's state lock takes no other lock of the engine.

mod locks;
mod recovery_journal;
mod state;

pub use self::recovery_journal::{Batch, EntryLock, Journal, JournalParameters};
