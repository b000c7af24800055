// SPDX-License-Identifier: GPL-2.0

//! The limits of the request queue of a mapped device.

use kernel::prelude::*;

use crate::bindings as b;

/// The limits device mapper has derived from the devices below, for a target to change.
pub struct QueueLimits<'a>(&'a mut b::queue_limits);

impl<'a> QueueLimits<'a> {
    pub(super) fn new(limits: &'a mut b::queue_limits) -> Self {
        Self(limits)
    }

    /// The smallest unit that can be addressed.
    pub fn logical_block_bytes(&self) -> c_uint {
        self.0.logical_block_size
    }

    /// Sets the smallest unit that can be addressed.
    pub fn set_logical_block_bytes(&mut self, bytes: c_uint) {
        self.0.logical_block_size = bytes;
    }

    /// Sets the smallest unit that can be written without reading first.
    pub fn set_physical_block_bytes(&mut self, bytes: c_uint) {
        self.0.physical_block_size = bytes;
    }

    /// Sets the smallest unit that is good for random I/O.
    pub fn set_io_min_bytes(&mut self, bytes: c_uint) {
        self.0.io_min = bytes;
    }

    /// Sets the unit that is good for streaming I/O.
    pub fn set_io_opt_bytes(&mut self, bytes: c_uint) {
        self.0.io_opt = bytes;
    }

    /// Sets the longest discard. Zero: no discards.
    pub fn set_max_discard_sectors(&mut self, sectors: c_uint) {
        self.0.max_hw_discard_sectors = sectors;
    }

    /// Sets the unit in which discards take effect.
    pub fn set_discard_granularity_bytes(&mut self, bytes: c_uint) {
        self.0.discard_granularity = bytes;
    }
}
