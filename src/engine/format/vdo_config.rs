// SPDX-License-Identifier: GPL-2.0

//! The sizes that a volume was given.
//!
//! | offset | size | field                         |
//! |-------:|-----:|-------------------------------|
//! |      0 |    8 | logical_blocks                |
//! |      8 |    8 | physical_blocks               |
//! |     16 |    8 | slab_size, in blocks          |
//! |     24 |    8 | recovery_journal_size, in blocks |
//! |     32 |    8 | slab_journal_blocks           |

use super::field::{Reader, Writer};
use super::slab_config::SlabConfig;
use super::FormatError;
use crate::engine::units::{MAX_LOGICAL_BLOCKS, MAX_PHYSICAL_BLOCKS};

/// The sizes that a volume was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdoConfig {
    /// Blocks that the volume presents.
    pub logical_blocks: u64,
    /// Blocks that it has underneath, counted from block 0 of the device.
    pub physical_blocks: u64,
    /// Blocks of a slab. A power of two.
    pub slab_size: u64,
    /// Blocks of the recovery journal. A power of two.
    pub recovery_journal_size: u64,
    /// Blocks of a slab journal.
    pub slab_journal_blocks: u64,
}

impl VdoConfig {
    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            logical_blocks: reader.u64()?,
            physical_blocks: reader.u64()?,
            slab_size: reader.u64()?,
            recovery_journal_size: reader.u64()?,
            slab_journal_blocks: reader.u64()?,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u64(self.logical_blocks)?;
        writer.u64(self.physical_blocks)?;
        writer.u64(self.slab_size)?;
        writer.u64(self.recovery_journal_size)?;
        writer.u64(self.slab_journal_blocks)
    }

    /// Checks the sizes by themselves.
    pub fn validate(&self) -> Result<(), FormatError> {
        SlabConfig::compute(self.slab_size, self.slab_journal_blocks)?;
        if self.physical_blocks == 0 || self.physical_blocks > MAX_PHYSICAL_BLOCKS {
            return Err(FormatError::OutOfRange("physical size"));
        }
        if self.logical_blocks > MAX_LOGICAL_BLOCKS {
            return Err(FormatError::OutOfRange("logical size"));
        }
        if !self.recovery_journal_size.is_power_of_two() {
            return Err(FormatError::BadConfiguration(
                "the size of the recovery journal must be a power of two",
            ));
        }
        Ok(())
    }

    /// Checks the sizes against those on the table line, and says how many logical blocks the
    /// volume is to have: a larger logical size on the table line is adopted.
    pub fn reconcile(
        &self,
        table_physical_blocks: u64,
        table_logical_blocks: u64,
    ) -> Result<u64, FormatError> {
        if self.physical_blocks != table_physical_blocks {
            return Err(FormatError::ParameterMismatch {
                parameter: "the physical size",
                volume: self.physical_blocks,
                table: table_physical_blocks,
            });
        }
        if table_logical_blocks > MAX_LOGICAL_BLOCKS {
            return Err(FormatError::OutOfRange("logical size"));
        }
        if table_logical_blocks < self.logical_blocks {
            return Err(FormatError::ParameterMismatch {
                parameter: "the logical size",
                volume: self.logical_blocks,
                table: table_logical_blocks,
            });
        }
        Ok(table_logical_blocks)
    }
}
