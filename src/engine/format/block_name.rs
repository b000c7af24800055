// SPDX-License-Identifier: GPL-2.0

//! The name of a block's contents, and what the deduplication index keeps under it.
//!
//! A name is the MurmurHash3 of the 4096 bytes. It is no proof: equal names are compared byte by
//! byte before anything is shared. Blocks of zeros have no name, they are never looked up.
//!
//! A record of the index:
//!
//! | offset | size | field                                                   |
//! |-------:|-----:|---------------------------------------------------------|
//! |      0 |    1 | version 2                                               |
//! |      1 |    1 | mapping state, see [`MappingState`]; not 0              |
//! |      2 |    8 | physical block                                          |
//! |     10 |    6 | unspecified; written as zero                            |

use super::block_map_entry::{Mapping, MappingState};
use super::murmur3::murmur3_128;
use crate::engine::units::{Block, Pbn};

const SEED: u32 = 0x62ea_60be;
const ADVICE_VERSION: u8 = 2;

/// Size of a name, and of what the index keeps under it.
pub const NAME_BYTES: usize = 16;

/// The name of a block's contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockName([u8; NAME_BYTES]);

impl BlockName {
    /// Computes the name of `data`.
    pub fn of(data: &Block) -> Self {
        Self(murmur3_128(data, SEED))
    }

    /// A name that was stored.
    pub const fn from_bytes(bytes: [u8; NAME_BYTES]) -> Self {
        Self(bytes)
    }

    /// The name's bytes, as they are stored.
    pub const fn as_bytes(&self) -> &[u8; NAME_BYTES] {
        &self.0
    }

    /// The part of the name that hash tables use.
    pub const fn key(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

/// Where the index says that a block with a certain name may be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advice(pub Mapping);

impl Advice {
    /// Reads a record. `None` if it is of another version or names no data.
    pub fn decode(bytes: &[u8; NAME_BYTES]) -> Option<Self> {
        let [version, state, p0, p1, p2, p3, p4, p5, p6, p7, ..] = *bytes;
        if version != ADVICE_VERSION || state > 0xf {
            return None;
        }
        let pbn = Pbn::new(u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]))?;
        let mapping = Mapping {
            pbn,
            state: MappingState::decode(state),
        };
        mapping.has_block().then_some(Self(mapping))
    }

    /// The stored form.
    pub fn encode(&self) -> [u8; NAME_BYTES] {
        let pbn = self.0.pbn.get();
        let [p0, p1, p2, p3, p4, p5, p6, p7] = pbn.to_le_bytes();
        [
            ADVICE_VERSION,
            self.0.state.encode(),
            p0,
            p1,
            p2,
            p3,
            p4,
            p5,
            p6,
            p7,
            0,
            0,
            0,
            0,
            0,
            0,
        ]
    }
}
