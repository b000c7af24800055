// SPDX-License-Identifier: GPL-2.0

//! What a compressor would save on a volume, after packing.
//!
//! The same rules as the packer's, for sizes alone: the fullest open bin with room takes a fragment, at most 16 bins are open, a
//! bin of one fragment is stored as it is. Pure values: no locks, nothing to await.

use crate::engine::format::StreamFormat;
use crate::engine::packer::OPEN_BINS_MAX;
use crate::engine::units::MAX_FRAGMENTS;

#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    fragments: usize,
    used: usize,
}

/// Blocks that go by, and the blocks they would need.
#[derive(Clone, Debug)]
pub struct Packing {
    format: StreamFormat,
    bins: [Bin; OPEN_BINS_MAX],
    blocks_in: u64,
    blocks_out: u64,
    payload_bytes: u64,
    incompressible: u64,
}

impl Packing {
    /// No block yet.
    pub fn new(format: StreamFormat) -> Self {
        Self {
            format,
            bins: [Bin::default(); OPEN_BINS_MAX],
            blocks_in: 0,
            blocks_out: 0,
            payload_bytes: 0,
            incompressible: 0,
        }
    }

    /// A block that became `bytes` bytes, or that did not become smaller.
    pub fn add(&mut self, bytes: Option<usize>) {
        self.blocks_in = self.blocks_in.saturating_add(1);
        let Some(bytes) = bytes.filter(|bytes| *bytes <= self.format.fragment_bytes_max()) else {
            self.incompressible = self.incompressible.saturating_add(1);
            self.blocks_out = self.blocks_out.saturating_add(1);
            return;
        };
        self.payload_bytes = self.payload_bytes.saturating_add(bytes as u64);
        let payload = self.format.payload_bytes();
        let fits = |bin: &&mut Bin| bin.fragments > 0 && bytes <= payload.saturating_sub(bin.used);
        let best = self.bins.iter_mut().filter(fits).max_by_key(|bin| bin.used);
        let bin = match best {
            Some(bin) => bin,
            // An empty one, or else the fullest, which is written.
            None => {
                let key = |bin: &&mut Bin| (bin.fragments == 0, bin.used);
                let Some(bin) = self.bins.iter_mut().max_by_key(key) else {
                    return;
                };
                if bin.fragments > 0 {
                    if bytes >= bin.used {
                        self.blocks_out = self.blocks_out.saturating_add(1);
                        return;
                    }
                    self.blocks_out = self.blocks_out.saturating_add(1);
                    *bin = Bin::default();
                }
                bin
            }
        };
        bin.fragments = bin.fragments.saturating_add(1);
        bin.used = bin.used.saturating_add(bytes);
        if bin.fragments >= MAX_FRAGMENTS || bin.used >= payload {
            self.blocks_out = self.blocks_out.saturating_add(1);
            *bin = Bin::default();
        }
    }

    /// Blocks so far.
    pub fn blocks_in(&self) -> u64 {
        self.blocks_in
    }

    /// Blocks that they would need.
    pub fn blocks_out(&self) -> u64 {
        let open = self.bins.iter().filter(|bin| bin.fragments > 0).count();
        self.blocks_out.saturating_add(open as u64)
    }

    /// Bytes that the compressed ones became.
    pub fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    /// Blocks that did not become smaller.
    pub fn incompressible(&self) -> u64 {
        self.incompressible
    }

    /// Thousandths of the blocks that would be saved.
    pub fn saved_permille(&self) -> u64 {
        self.blocks_in
            .saturating_sub(self.blocks_out())
            .saturating_mul(1000)
            .checked_div(self.blocks_in)
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fourteen_small_ones_need_one_block() {
        let mut packing = Packing::new(StreamFormat::Lz4);
        for _ in 0..28 {
            packing.add(Some(100));
        }
        assert_eq!((packing.blocks_in(), packing.blocks_out()), (28, 2));
        packing.add(None);
        packing.add(Some(4060));
        assert_eq!((packing.blocks_out(), packing.incompressible()), (4, 2));
        assert_eq!(packing.saved_permille(), 866);
    }

    #[test]
    fn what_does_not_fit_beside_others_saves_nothing() {
        for (format, saved) in [(StreamFormat::Lz4, 500), (StreamFormat::Deflate, 0)] {
            let mut packing = Packing::new(format);
            for _ in 0..100 {
                packing.add(Some(2030));
            }
            // 4060 bytes in one format, 4059 in the other.
            assert_eq!(packing.saved_permille(), saved, "{format:?}");
        }
    }
}
