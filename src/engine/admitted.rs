// SPDX-License-Identifier: GPL-2.0

//! The kinds of blocks that new references may go to: one atomic word, which only ever has what the super block on the disk has.
//!
//! A block of another kind may be on the disk all the same: nobody refers to it any more, and the deduplication index remembers it.

use crate::engine::format::{BlockCode, RequiredFlags, StreamFormat};
use crate::rt::atomic::{AtomicU32, Ordering};

/// The formats that blocks may have which something refers to from now on.
pub struct Admitted(AtomicU32);

impl Admitted {
    /// Those of a volume with these flags. LZ4 needs none.
    pub fn new(required: Option<RequiredFlags>) -> Self {
        let flags = required.unwrap_or_default().with(RequiredFlags::LZ4);
        Self(AtomicU32::new(flags.encode()))
    }

    /// The volume is an upgraded one, and has blocks of `format`.
    pub fn add(&self, format: StreamFormat) {
        let flags = format.flag().with(RequiredFlags::BLOCK_FORMAT);
        self.0.fetch_or(flags.encode(), Ordering::AcqRel);
    }

    /// Only what the in-tree driver reads from here on.
    pub fn reset(&self) {
        self.0.store(RequiredFlags::LZ4.encode(), Ordering::Release);
    }

    /// Whether compressed blocks may have fragments of `format`.
    pub fn has(&self, format: StreamFormat) -> bool {
        self.has_all(format.flag())
    }

    /// Whether something may refer to a block of this kind.
    pub fn has_kind(&self, code: BlockCode) -> bool {
        match (code, code.format()) {
            (BlockCode::NONE | BlockCode::LZ4, _) => true,
            (_, Some(format)) => self.has_all(format.flag().with(RequiredFlags::BLOCK_FORMAT)),
            (_, None) => false,
        }
    }

    fn has_all(&self, flags: RequiredFlags) -> bool {
        let flags = flags.encode();
        self.0.load(Ordering::Acquire) & flags == flags
    }
}
