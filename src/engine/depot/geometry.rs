// SPDX-License-Identifier: GPL-2.0

//! Where the parts of each slab are. Plain arithmetic on numbers that were checked when the depot was made.

use crate::engine::error::Error;
use crate::engine::format::component_state::SlabDepotState;
use crate::engine::format::layout::Partition;
use crate::engine::format::slab_config::SlabConfig;
use crate::engine::units::{
    Nonce, Pbn, SequenceNumber, SlabBlockNumber, SlabNumber, MAX_PHYSICAL_ZONES, MAX_SLABS,
};

/// What a depot is made from.
#[derive(Clone, Copy, Debug)]
pub struct DepotParameters {
    /// The depot's part of the super block.
    pub state: SlabDepotState,
    /// Where the slab summary is.
    pub summary: Partition,
    /// The volume's nonce.
    pub nonce: Nonce,
    /// Requests worked on at a time. Each may have a block allocated and another one pinned.
    pub requests: usize,
    /// What `state` is with the algorithm map, or without it: what the depot can be converted to.
    pub counterpart: Option<SlabDepotState>,
}

/// A block of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) slab: SlabNumber,
    pub(super) sbn: SlabBlockNumber,
}

/// The division of the depot into slabs, and of slabs into their parts.
///
/// # Invariants
///
/// `config` is valid, every slab lies below [`Pbn::LIMIT`], and the journal has at least two blocks with
/// `flushing <= deadline <= blocking < journal_blocks`.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlabGeometry {
    pub(super) config: SlabConfig,
    pub(super) nonce: Nonce,
    first_block: Pbn,
    slab_count: u32,
    slab_bits: u32,
    pub(super) data_blocks: u32,
    pub(super) reference_blocks: usize,
    /// Blocks of the algorithm map, none if there is none.
    pub(super) map_blocks: usize,
    pub(super) journal_blocks: u64,
    /// Length of a journal from which on some reference blocks are written whenever a block is added.
    pub(super) flushing: u64,
    /// Length from which on all of them are.
    pub(super) deadline: u64,
    /// Length from which on entries wait.
    pub(super) blocking: u64,
}

impl SlabGeometry {
    /// Checks the numbers of a depot.
    pub(super) fn new(depot: &SlabDepotState, nonce: Nonce) -> Result<Self, Error> {
        let config = depot.slab_config;
        config.validate()?;
        depot.validate_map()?;
        if usize::from(depot.zone_count) > MAX_PHYSICAL_ZONES {
            return Err(Error::Corrupt("the slab summary has too many zones"));
        }
        if config.slab_journal_blocks < 2 {
            // One block would have to be overwritten while the summary points at it (W12).
            return Err(Error::Unsupported(
                "slab journals of fewer than two blocks are not supported",
            ));
        }
        let slab_bits = config.slab_bits();
        let blocks = depot
            .last_block
            .checked_sub(depot.first_block.get())
            .filter(|_| depot.last_block <= Pbn::LIMIT)
            .ok_or(Error::Corrupt("the slab depot ends where it cannot"))?;
        let slab_count = blocks.checked_shr(slab_bits).unwrap_or(0);
        let slab_count = u32::try_from(slab_count)
            .ok()
            .filter(|count| (1..=MAX_SLABS).contains(count))
            .ok_or(Error::Corrupt("the slab depot must have 1 to 8192 slabs"))?;

        // A block is written over the one `journal_blocks` before it. The newest block on disk may still name a head that is
        // `blocking` blocks back, so blocking at the very size would destroy what a replay starts from.
        let blocking = config
            .blocking_threshold
            .clamp(1, config.slab_journal_blocks.saturating_sub(1));
        let flushing = config.flushing_threshold.min(blocking);
        let deadline = match blocking.saturating_sub(flushing) {
            // Leave the last few blocks for what arrives while everything is being written.
            room if room > 5 => blocking.saturating_sub(5),
            _ => flushing,
        };
        // INVARIANT: checked or clamped above; `last_block` is not above the limit.
        Ok(Self {
            config,
            nonce,
            first_block: depot.first_block,
            slab_count,
            slab_bits,
            data_blocks: u32::try_from(config.data_blocks)
                .map_err(|_| Error::Corrupt("a slab has too many data blocks"))?,
            reference_blocks: usize::try_from(config.used_reference_blocks())
                .map_err(|_| Error::Corrupt("a slab has too many reference blocks"))?,
            map_blocks: usize::try_from(depot.map_blocks())
                .map_err(|_| Error::Corrupt("a slab has too large a map"))?,
            journal_blocks: config.slab_journal_blocks,
            flushing,
            deadline,
            blocking,
        })
    }

    /// The number of slabs.
    pub(super) fn slab_count(&self) -> u32 {
        self.slab_count
    }

    /// All slabs.
    pub(super) fn slabs(&self) -> impl Iterator<Item = SlabNumber> {
        (0..self.slab_count).map(SlabNumber::new)
    }

    /// Data blocks of all slabs.
    pub(super) fn total_data_blocks(&self) -> u64 {
        u64::from(self.data_blocks).saturating_mul(u64::from(self.slab_count))
    }

    /// Finds the slab of a data block. `None` for any other block.
    pub(super) fn locate(&self, pbn: Pbn) -> Option<Place> {
        let offset = pbn.checked_offset_from(self.first_block)?;
        let slab = offset.checked_shr(self.slab_bits)?;
        let slab = u32::try_from(slab)
            .ok()
            .filter(|slab| *slab < self.slab_count)?;
        let mask = self.config.slab_blocks.wrapping_sub(1);
        let sbn = SlabBlockNumber::new(u32::try_from(offset & mask).ok()?)?;
        self.config.is_data_block(sbn).then_some(Place {
            slab: SlabNumber::new(slab),
            sbn,
        })
    }

    /// The first block of a slab.
    fn start(&self, slab: SlabNumber) -> Option<Pbn> {
        let offset = u64::from(slab.get()).checked_shl(self.slab_bits)?;
        self.first_block.checked_add(offset)
    }

    /// The address of a block of a slab.
    pub(super) fn pbn(&self, place: Place) -> Option<Pbn> {
        self.start(place.slab)?
            .checked_add(u64::from(place.sbn.get()))
    }

    /// Whether slabs have an algorithm map.
    pub(super) fn has_map(&self) -> bool {
        self.map_blocks > 0
    }

    /// Blocks that say something of each data block: reference blocks, and then those of the map.
    pub(super) fn stored_blocks(&self) -> usize {
        self.reference_blocks.saturating_add(self.map_blocks)
    }

    /// The block of the map that is stored block `index`. `None` if that is a reference block.
    pub(super) fn map_index(&self, index: usize) -> Option<usize> {
        index.checked_sub(self.reference_blocks)
    }

    /// The stored block that is block `index` of the map.
    pub(super) fn stored_index(&self, index: usize) -> usize {
        self.reference_blocks.saturating_add(index)
    }

    /// The address of a stored block.
    pub(super) fn stored_block(&self, slab: SlabNumber, index: usize) -> Result<Pbn, Error> {
        let start = self.start(slab);
        let (origin, index) = match self.map_index(index) {
            None => (
                start.and_then(|start| self.config.reference_origin(start)),
                index,
            ),
            Some(index) => (
                start
                    .and_then(|start| self.config.journal_origin(start))
                    .and_then(|origin| origin.checked_add(self.journal_blocks)),
                index,
            ),
        };
        origin
            .and_then(|origin| origin.checked_add(u64::try_from(index).ok()?))
            .ok_or(Error::OutOfRange)
    }

    /// The address of a position of a slab's journal.
    pub(super) fn journal_block(&self, slab: SlabNumber, position: u64) -> Result<Pbn, Error> {
        self.start(slab)
            .and_then(|start| self.config.journal_origin(start))
            .and_then(|origin| origin.checked_add(position))
            .ok_or(Error::OutOfRange)
    }

    /// The position at which a block of a slab's journal belongs.
    pub(super) fn position(&self, sequence: SequenceNumber) -> u64 {
        // The journal has blocks, so there is a remainder.
        sequence.get().checked_rem(self.journal_blocks).unwrap_or(0)
    }
}
