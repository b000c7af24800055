// SPDX-License-Identifier: GPL-2.0

//! A block of reference counts.
//!
//! Eight sectors, each of
//!
//! | offset | size | field                                              |
//! |-------:|-----:|----------------------------------------------------|
//! |      0 |    8 | commit point in the slab's journal                 |
//! |      8 |  504 | counters, one byte each                            |
//!
//! All sectors are written with the same commit point. A sector that has an older one than its
//! neighbours was torn off; replay compares every entry with the point of its counter's sector.

use super::field::bytes_at;
use crate::engine::units::{
    Block, JournalPoint, SlabBlockNumber, MAX_REFERENCE_COUNT, SECTORS_PER_BLOCK, SECTOR_SIZE,
};

/// Counters in a sector.
pub const COUNTERS_PER_SECTOR: usize = 504;
/// Counters in a block.
pub const COUNTERS_PER_BLOCK: usize = SECTORS_PER_BLOCK * COUNTERS_PER_SECTOR;

const COUNTERS: usize = SECTOR_SIZE - COUNTERS_PER_SECTOR;

/// The commit points of the sectors of a block.
pub type CommitPoints = [JournalPoint; SECTORS_PER_BLOCK];

/// Where the counter of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterPlace {
    /// The reference block, counted from the first of its slab.
    pub block: usize,
    /// The sector in it.
    pub sector: usize,
    /// The byte in the block.
    pub offset: usize,
}

/// Finds the counter of a block of the slab.
pub fn locate(sbn: SlabBlockNumber) -> CounterPlace {
    let index = sbn.get() as usize;
    let in_block = index % COUNTERS_PER_BLOCK;
    let sector = in_block / COUNTERS_PER_SECTOR;
    CounterPlace {
        block: index / COUNTERS_PER_BLOCK,
        sector,
        offset: sector * SECTOR_SIZE + COUNTERS + in_block % COUNTERS_PER_SECTOR,
    }
}

/// Makes `block` one of `counters`, which are fewer than fit only at the end of a slab.
///
/// Provisional references end with the machine, so they are written as the zero that a reader
/// would take them for.
pub fn encode(block: &mut Block, commit_point: JournalPoint, counters: &[u8]) {
    let point = commit_point.encode().to_le_bytes();
    let mut from = counters.iter();
    for sector in block.chunks_exact_mut(SECTOR_SIZE) {
        if let Some((head, to)) = sector.split_first_chunk_mut() {
            *head = point;
            for counter in to {
                *counter = from.next().copied().map_or(0, settled);
            }
        }
    }
}

/// Reads the counters of `block` into `counters`, which are fewer than there are only at the end
/// of a slab.
pub fn decode(block: &Block, counters: &mut [u8]) -> CommitPoints {
    for (sector, to) in block
        .chunks_exact(SECTOR_SIZE)
        .zip(counters.chunks_mut(COUNTERS_PER_SECTOR))
    {
        for (to, from) in to.iter_mut().zip(sector.iter().skip(COUNTERS)) {
            *to = settled(*from);
        }
    }
    commit_points(block)
}

/// The commit points of the sectors.
pub fn commit_points(block: &Block) -> CommitPoints {
    let mut points = CommitPoints::default();
    for (point, sector) in points.iter_mut().zip(block.chunks_exact(SECTOR_SIZE)) {
        let packed = bytes_at(sector, 0).unwrap_or_default();
        *point = JournalPoint::decode(u64::from_le_bytes(packed));
    }
    points
}

/// Whether the block was torn: not all of its sectors are of the same write.
pub fn is_torn(points: &CommitPoints) -> bool {
    let [first, others @ ..] = points;
    others.iter().any(|point| point != first)
}

/// A counter without a provisional reference.
fn settled(counter: u8) -> u8 {
    if counter > MAX_REFERENCE_COUNT {
        0
    } else {
        counter
    }
}
