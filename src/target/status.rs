// SPDX-License-Identifier: GPL-2.0

//! The words of `dmsetup status`. LVM reads them by position, so there are always seven.
//!
//! Pure values: no locks, nothing to await.

use core::fmt;

use crate::engine::statistics::{IndexState, OperatingMode};

/// What `dmsetup status` shows of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InfoStatus<'a> {
    /// The kernel's name of the backing device, without `/dev/`.
    pub backing_device: &'a str,
    /// The operating mode.
    pub mode: OperatingMode,
    /// Whether slabs still wait to be scrubbed.
    pub recovering: bool,
    /// The state of the deduplication index.
    pub index: IndexState,
    /// Whether new blocks are compressed.
    pub compression: bool,
    /// Blocks that hold data or are overhead.
    pub used_blocks: u64,
    /// The physical size.
    pub total_blocks: u64,
}

impl fmt::Display for InfoStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "/dev/{} {} {} {} {} {} {}",
            self.backing_device,
            self.mode,
            if self.recovering { "recovering" } else { "-" },
            self.index,
            if self.compression {
                "online"
            } else {
                "offline"
            },
            self.used_blocks,
            self.total_blocks
        )
    }
}
