// SPDX-License-Identifier: GPL-2.0

//! The data of the simulated users: unique, repeated, zero, more and less compressible.

use std::sync::Arc;

use super::image::{Block, BLOCK_SIZE};
use super::rng::Rng;

/// How often which kind of data is written, in percent. The rest is incompressible.
#[derive(Clone, Copy, Debug)]
pub struct DataMix {
    /// Blocks of zeros.
    pub zero: u32,
    /// Blocks that have been written before.
    pub duplicate: u32,
    /// Blocks that shrink to some hundred bytes or less.
    pub compressible: u32,
    /// Blocks that shrink a little: two or three to a block, or not enough to be packed.
    pub barely: u32,
}

impl DataMix {
    /// Some of everything.
    pub const ALL: Self = Self {
        zero: 8,
        duplicate: 25,
        compressible: 30,
        barely: 17,
    };
    /// What needs a block each.
    pub const UNIQUE: Self = Self {
        zero: 0,
        duplicate: 0,
        compressible: 0,
        barely: 0,
    };
    /// What ends up in compressed blocks.
    pub const COMPRESSIBLE: Self = Self {
        zero: 0,
        duplicate: 10,
        compressible: 70,
        barely: 15,
    };
    /// Few different blocks.
    pub const DUPLICATES: Self = Self {
        zero: 2,
        duplicate: 96,
        compressible: 1,
        barely: 0,
    };
    /// No block but those of the pool, so that reference counts run over.
    pub const SAME: Self = Self {
        zero: 0,
        duplicate: 100,
        compressible: 0,
        barely: 0,
    };
}

/// Makes blocks and remembers some to repeat them.
pub struct DataSource {
    rng: Rng,
    mix: DataMix,
    pool: Vec<Arc<Block>>,
    pool_max: usize,
    zero: Arc<Block>,
}

impl DataSource {
    /// A source that repeats one of its last `pool_max` blocks.
    pub fn new(rng: Rng, mix: DataMix, pool_max: usize) -> Self {
        Self {
            rng,
            mix,
            pool: Vec::new(),
            pool_max: pool_max.max(1),
            zero: Arc::new([0; BLOCK_SIZE]),
        }
    }

    /// The next block to write.
    pub fn block(&mut self) -> Arc<Block> {
        let mut dice = self.rng.below(100) as u32;
        let mut falls = |percent: u32| {
            let hit = dice < percent;
            dice = dice.wrapping_sub(percent);
            hit
        };
        if falls(self.mix.zero) {
            return Arc::clone(&self.zero);
        }
        if falls(self.mix.duplicate) && !self.pool.is_empty() {
            return Arc::clone(self.rng.pick(&self.pool));
        }
        let noise = if falls(self.mix.compressible) {
            *self.rng.pick(&[8, 16, 64, 200, 280, 500, 1000])
        } else if falls(self.mix.barely) {
            *self
                .rng
                .pick(&[1300, 1900, 2030, 2600, 3500, 3900, 4000, 4030, 4050])
        } else {
            BLOCK_SIZE
        };
        let block = Arc::new(noisy_block(&mut self.rng, noise));
        if self.pool.len() < self.pool_max {
            self.pool.push(Arc::clone(&block));
        } else {
            let index = self.rng.index(self.pool_max);
            self.pool[index] = Arc::clone(&block);
        }
        block
    }

    /// A piece of a block.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        if self.rng.percent(30) {
            return vec![0; count];
        }
        let mut bytes = vec![0; count];
        self.rng.fill(&mut bytes);
        bytes
    }
}

/// A block with `noise` bytes that do not compress; the rest repeats one byte.
pub fn noisy_block(rng: &mut Rng, noise: usize) -> Block {
    let mut block = [rng.next() as u8 | 1; BLOCK_SIZE];
    rng.fill(&mut block[..noise]);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_decides_how_well_a_block_compresses() {
        let mut rng = Rng::new(1);
        let mut size = |noise| lz4_flex::block::compress(&noisy_block(&mut rng, noise)).len();
        assert!(size(8) < 60);
        assert!((1900..2030).contains(&size(1900)));
        assert!(size(4096) > 4096);
    }

    #[test]
    fn duplicates_repeat_earlier_blocks() {
        let mut source = DataSource::new(Rng::new(1), DataMix::DUPLICATES, 16);
        let blocks: std::collections::HashSet<Vec<u8>> =
            (0..500).map(|_| source.block().to_vec()).collect();
        assert!(blocks.len() < 60, "{} different blocks", blocks.len());
    }
}
