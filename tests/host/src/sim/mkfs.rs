// SPDX-License-Identifier: GPL-2.0

//! Formats volumes of any size, with an encoder of its own.
//!
//! The formatting tools insist on sizes that no simulation could fill. The format itself does
//! not, so small slabs and short journals make a volume wrap around within a few thousand writes.

use std::sync::Arc;

use super::audit::decode::crc32;
use super::image::{Block, Image, BLOCK_SIZE};

/// What a volume is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Blocks of a slab, a power of two.
    pub slab_blocks: u64,
    /// Slabs.
    pub slabs: u64,
    /// Blocks of a slab's journal.
    pub slab_journal_blocks: u64,
    /// Blocks of the recovery journal, a power of two.
    pub journal_blocks: u64,
    /// Blocks that users see.
    pub logical_blocks: u64,
    /// What the volume's metadata carries.
    pub nonce: u64,
    /// Blocks in front of the super block: geometry and index.
    pub data_start: u64,
}

impl Shape {
    /// A volume that is as small as the table line allows.
    pub const SMALL: Self = Self {
        slab_blocks: 1 << 13,
        slabs: 2,
        slab_journal_blocks: 16,
        journal_blocks: 64,
        logical_blocks: 60 * 812 * 2,
        nonce: 0x1234_5678_9abc_def0,
        data_start: 9,
    };

    /// Blocks of the whole volume.
    pub fn physical_blocks(&self) -> u64 {
        self.data_start + 1 + 60 + self.slabs * self.slab_blocks + self.journal_blocks + 64
    }

    /// Blocks that hold the counters of a slab.
    pub fn reference_blocks(&self) -> u64 {
        (self.slab_blocks - self.slab_journal_blocks).div_ceil(4032)
    }

    /// Data blocks of a slab.
    pub fn data_blocks(&self) -> u64 {
        self.slab_blocks - self.slab_journal_blocks - self.reference_blocks()
    }

    /// A medium with a freshly formatted volume. Everything that a reader must not look at is
    /// filled with noise.
    pub fn format(&self) -> Image {
        let mut image = Image::new(self.physical_blocks());
        let noise: Arc<Block> = Arc::new(std::array::from_fn(|byte| (byte * 7 + 1) as u8));
        let depot = self.depot_origin();
        for block in depot..depot + self.slabs * self.slab_blocks {
            image.put(block, Arc::clone(&noise));
        }
        for block in 0..64 {
            image.put(self.physical_blocks() - 64 + block, Arc::clone(&noise));
        }
        image.put(self.data_start, Arc::new(self.super_block()));
        image.put(0, Arc::new(self.geometry()));
        image
    }

    fn depot_origin(&self) -> u64 {
        self.data_start + 1 + 60
    }

    fn geometry(&self) -> Block {
        let mut out = Encoder::default();
        out.bytes(b"dmvdo001")
            .header(5, 5, 101)
            .u32(0)
            .u64(self.nonce);
        out.bytes(&[0x5a; 16]).u64(0);
        out.u32(0).u64(1).u32(1).u64(self.data_start);
        out.u32(-256_i32 as u32).u32(0).bytes(&[0]);
        out.finish()
    }

    fn super_block(&self) -> Block {
        let j = self.slab_journal_blocks;
        let flushing = (3 * j).div_ceil(4);
        let blocking = flushing + (j - flushing) * 5 / 7;
        let scrubbing = if j > 2 { j - 2 } else { blocking };
        let physical = self.physical_blocks();
        let depot_blocks = self.slabs * self.slab_blocks;
        let journal_origin = physical - 64 - self.journal_blocks;
        let free = self.depot_origin() + depot_blocks;

        let mut out = Encoder::default();
        out.header(0, 12, 418).u32(0).version(67).version(41).u32(1);
        out.u64(0).u64(0);
        out.u64(self.logical_blocks)
            .u64(physical)
            .u64(self.slab_blocks);
        out.u64(self.journal_blocks).u64(j).u64(self.nonce);
        out.header(1, 3, 117).u64(free).u64(free).bytes(&[4]);
        for (id, offset, count) in [
            (1, self.depot_origin(), depot_blocks),
            (2, journal_origin, self.journal_blocks),
            (3, physical - 64, 64),
            (0, self.data_start + 1, 60),
        ] {
            out.bytes(&[id]).u64(offset).u64(0).u64(count);
        }
        out.header(2, 7, 24).u64(1).u64(0).u64(0);
        out.header(3, 2, 73)
            .u64(self.slab_blocks)
            .u64(self.data_blocks());
        out.u64(self.reference_blocks()).u64(j);
        out.u64(flushing)
            .u64(blocking.min(scrubbing))
            .u64(scrubbing);
        out.u64(self.depot_origin()).u64(free).bytes(&[0]);
        out.header(4, 2, 32)
            .u64(1)
            .u64(0)
            .u64(self.data_start + 1)
            .u64(60);
        out.finish()
    }
}

#[derive(Default)]
struct Encoder {
    bytes: Vec<u8>,
}

impl Encoder {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes(&number.to_le_bytes())
    }

    fn version(&mut self, major: u32) -> &mut Self {
        self.u32(major).u32(0)
    }

    fn header(&mut self, id: u32, major: u32, size: u64) -> &mut Self {
        self.u32(id).version(major).u64(size)
    }

    /// Adds the checksum and fills up the block.
    fn finish(&mut self) -> Block {
        let crc = crc32(&self.bytes);
        self.u32(crc);
        let mut block = [0; BLOCK_SIZE];
        block[..self.bytes.len()].copy_from_slice(&self.bytes);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::super::audit::{audit, Strictness};
    use super::super::image::Blocks;
    use super::*;

    #[test]
    fn a_fresh_volume_passes_the_audit() {
        let image = Shape::SMALL.format();
        let audit =
            audit(&image, Strictness::OURS).map(|audit| (audit.allocated, audit.forest.used()));
        assert_eq!(audit, Ok((0, 0)));
    }

    #[test]
    fn the_super_block_is_the_one_of_the_format_description() {
        // The numbers of the test vector, with a layout that has the same place for everything.
        let shape = Shape {
            slab_blocks: 1 << 19,
            slabs: 3,
            slab_journal_blocks: 224,
            journal_blocks: 32768,
            logical_blocks: 4_194_304,
            nonce: 0x0123_4567_89ab_cdef,
            data_start: 679_128,
        };
        assert_eq!(
            (shape.data_blocks(), shape.reference_blocks()),
            (523_934, 130)
        );
        let block = shape.super_block();
        assert_eq!(block[349..357], 208_u64.to_le_bytes());
        assert_eq!(block[418..426], 679_129_u64.to_le_bytes());
        assert_eq!(
            block[434..438].len() + block[438..].iter().filter(|byte| **byte == 0).count(),
            4096 - 434
        );
    }

    #[test]
    fn every_flipped_byte_of_the_description_is_noticed() {
        let image = Shape::SMALL.format();
        for (block, bytes) in [(0, 101), (Shape::SMALL.data_start, 438)] {
            for byte in (0..bytes).step_by(7) {
                let mut bad = image.clone();
                bad.edit(block, |block| block[byte] ^= 0x40);
                assert!(
                    audit(&bad, Strictness::OURS).is_err(),
                    "block {block} byte {byte}"
                );
                assert_eq!(bad.blocks(), image.blocks());
            }
        }
    }
}
