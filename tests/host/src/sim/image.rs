// SPDX-License-Identifier: GPL-2.0

//! What is on a medium at one moment, and where auditors read it from.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A block of bytes.
pub type Block = [u8; BLOCK_SIZE];

/// Size in bytes of a block.
pub const BLOCK_SIZE: usize = 4096;
/// Size in bytes of a sector, which is never torn.
pub const SECTOR_SIZE: usize = 512;

/// A hash for block numbers: fast, and the same in every run.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 29);
    }
}

/// A table keyed by numbers.
pub type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// Something that blocks can be read from, whatever is known about them.
pub trait Blocks {
    /// The size in blocks.
    fn blocks(&self) -> u64;

    /// The contents of a block; zeros past the end.
    fn block(&self, block: u64) -> Arc<Block>;
}

/// The contents of a simulated medium. Blocks that were never written are zero.
#[derive(Clone)]
pub struct Image {
    blocks: u64,
    written: NumberMap<Arc<Block>>,
    zero: Arc<Block>,
}

impl Image {
    /// An empty medium.
    pub fn new(blocks: u64) -> Self {
        Self {
            blocks,
            written: NumberMap::default(),
            zero: Arc::new([0; BLOCK_SIZE]),
        }
    }

    /// Replaces a block.
    pub fn put(&mut self, block: u64, data: Arc<Block>) {
        assert!(block < self.blocks, "block {block} is past the end");
        self.written.insert(block, data);
    }

    /// Changes a block in place.
    pub fn edit(&mut self, block: u64, change: impl FnOnce(&mut Block)) {
        let mut data = *self.block(block);
        change(&mut data);
        self.put(block, Arc::new(data));
    }

    /// The size given to a medium that has been enlarged.
    pub fn grow(&mut self, blocks: u64) {
        self.blocks = self.blocks.max(blocks);
    }
}

impl Blocks for Image {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block(&self, block: u64) -> Arc<Block> {
        Arc::clone(self.written.get(&block).unwrap_or(&self.zero))
    }
}

/// A volume in a file, for instance one that other software has written.
pub struct ImageFile {
    file: File,
    blocks: u64,
}

impl ImageFile {
    /// Opens the file at `path` for reading.
    pub fn open(path: impl AsRef<std::path::Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        let blocks = file.metadata()?.len() / BLOCK_SIZE as u64;
        Ok(Self { file, blocks })
    }
}

impl Blocks for ImageFile {
    fn blocks(&self) -> u64 {
        self.blocks
    }

    fn block(&self, block: u64) -> Arc<Block> {
        let mut data = [0; BLOCK_SIZE];
        if block < self.blocks {
            self.file
                .read_exact_at(&mut data, block * BLOCK_SIZE as u64)
                .expect("the image file is readable");
        }
        Arc::new(data)
    }
}
