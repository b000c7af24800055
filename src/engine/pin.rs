// SPDX-License-Identifier: GPL-2.0

//! What deduplication and the packer need to know about physical blocks.
//!
//! The depot provides it; tests have stand-ins. Nothing here waits. May be called with a hash lock's shard or the packer locked,
//! except that no [`SharedBlock`] is dropped there.

use crate::engine::depot::{Allocation, Depot, Pin, SlabJournalLocks};
use crate::engine::env::Env;
use crate::engine::format::BlockCode;
use crate::engine::units::Pbn;

/// A block that does not become free as long as this or a clone of it lives.
pub trait SharedBlock: Clone + Send + 'static {
    /// The block.
    fn pbn(&self) -> Pbn;

    /// Says what kind of block it was found to be, which may be news if nothing referred to it any more. `false`: it is known to be
    /// of another kind. Whoever keeps no account of that has nothing to do.
    fn note_code(&self, _code: BlockCode) -> bool {
        true
    }

    /// Claims the right to add one reference. `false` once the block can have no more. A holder that claimed a reference keeps
    /// its pin until the reference is counted.
    fn claim(&self) -> bool;
}

/// A block that was allocated for one write. Dropping it gives the block back.
pub trait Home: Send {
    /// The block once others may share it.
    type Pin: SharedBlock;

    /// The block.
    fn pbn(&self) -> Pbn;

    /// Says what kind of block the data that is in place makes it. Whoever keeps no account of that has nothing to do.
    fn note_code(&self, _code: BlockCode) {}

    /// The data is in place: others may share the block now.
    fn into_pin(self) -> Self::Pin;
}

/// Where pins come from.
pub trait PinSource: Send + Sync + 'static {
    /// A pin.
    type Pin: SharedBlock;

    /// Whether user data can be in a block.
    fn is_data_block(&self, pbn: Pbn) -> bool;

    /// Pins a block that is to get more references. `None` if it cannot have any, or is being written.
    fn pin_candidate(&self, pbn: Pbn) -> Option<Self::Pin>;
}

impl SharedBlock for Pin {
    fn pbn(&self) -> Pbn {
        Pin::pbn(self)
    }

    fn note_code(&self, code: BlockCode) -> bool {
        Pin::note_code(self, code)
    }

    fn claim(&self) -> bool {
        Pin::claim(self)
    }
}

impl Home for Allocation {
    type Pin = Pin;

    fn pbn(&self) -> Pbn {
        Allocation::pbn(self)
    }

    fn note_code(&self, code: BlockCode) {
        Allocation::note_code(self, code);
    }

    fn into_pin(self) -> Pin {
        Allocation::into_pin(self)
    }
}

impl<E: Env, J: SlabJournalLocks> PinSource for Depot<E, J> {
    type Pin = Pin;

    fn is_data_block(&self, pbn: Pbn) -> bool {
        Depot::is_data_block(self, pbn)
    }

    fn pin_candidate(&self, pbn: Pbn) -> Option<Pin> {
        Depot::pin_candidate(self, pbn)
    }
}
