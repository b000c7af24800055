// SPDX-License-Identifier: GPL-2.0

//! How a slab is divided, and when its journal must be emptied.
//!
//! A slab is a row of data blocks, then reference count blocks, then its journal. All slabs of a
//! depot are alike. Stored in the super block as seven u64:
//!
//! | offset | field                                                          |
//! |-------:|----------------------------------------------------------------|
//! |      0 | slab_blocks: distance from one slab to the next, a power of two |
//! |      8 | data_blocks                                                    |
//! |     16 | reference_count_blocks                                         |
//! |     24 | slab_journal_blocks                                            |
//! |     32 | flushing_threshold, in blocks of the journal                   |
//! |     40 | blocking_threshold                                             |
//! |     48 | scrubbing_threshold                                            |

use super::field::{Reader, Writer};
use super::reference_block::COUNTERS_PER_BLOCK;
use super::slab_journal::FULL_FORM_ENTRIES;
use super::FormatError;
use crate::engine::units::{Pbn, SlabBlockNumber, MAX_SLAB_BLOCKS, MAX_SLAB_JOURNAL_BLOCKS};

/// Counters in a reference block.
const COUNTERS: u64 = COUNTERS_PER_BLOCK as u64;

/// Updates that a crash can leave for one slab beyond the blocking threshold, as the format's
/// own formula has it.
const PENDING_UPDATES: u64 = 2048;

/// How a slab is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabConfig {
    /// The size of a slab. A power of two.
    pub slab_blocks: u64,
    /// Blocks for data.
    pub data_blocks: u64,
    /// Blocks set aside for reference counts; the last one may not be needed.
    pub reference_count_blocks: u64,
    /// Blocks of the slab's journal.
    pub slab_journal_blocks: u64,
    /// Length of the journal from which on reference blocks are written.
    pub flushing_threshold: u64,
    /// Length of the journal from which on new entries wait.
    pub blocking_threshold: u64,
    /// Length of the journal from which on the slab is scrubbed before it is used again.
    pub scrubbing_threshold: u64,
}

impl SlabConfig {
    /// Size of the stored form.
    pub const BYTES: usize = 56;

    /// Divides slabs of `slab_blocks` with a journal of `slab_journal_blocks`.
    pub fn compute(slab_blocks: u64, slab_journal_blocks: u64) -> Result<Self, FormatError> {
        check_slab_blocks(slab_blocks)?;
        if slab_journal_blocks == 0 || slab_journal_blocks >= slab_blocks {
            return Err(FormatError::BadConfiguration(
                "the slab journal does not fit into a slab",
            ));
        }

        // A little generous: the counters of the reference blocks themselves are not needed.
        let counted = slab_blocks - slab_journal_blocks;
        let reference_count_blocks = counted.div_ceil(COUNTERS);
        let data_blocks = match counted.checked_sub(reference_count_blocks) {
            Some(blocks) if blocks > 0 => blocks,
            _ => {
                return Err(FormatError::BadConfiguration(
                    "a slab has no room for data blocks",
                ))
            }
        };

        Ok(Self {
            slab_blocks,
            data_blocks,
            reference_count_blocks,
            slab_journal_blocks,
            flushing_threshold: 0,
            blocking_threshold: 0,
            scrubbing_threshold: 0,
        }
        .with_journal(slab_journal_blocks))
    }

    /// The same slab with a journal of another size, and the thresholds that go with it. Whether the parts still fit into the slab
    /// is for [`SlabConfig::validate`] to say.
    #[must_use]
    pub fn with_journal(self, slab_journal_blocks: u64) -> Self {
        let flushing = slab_journal_blocks.saturating_mul(3).div_ceil(4);
        let blocking = flushing.saturating_add(
            slab_journal_blocks
                .saturating_sub(flushing)
                .saturating_mul(5)
                / 7,
        );
        let spare = 1 + PENDING_UPDATES / u64::from(FULL_FORM_ENTRIES);
        let scrubbing = if slab_journal_blocks > spare {
            slab_journal_blocks - spare
        } else {
            blocking
        };
        Self {
            slab_journal_blocks,
            flushing_threshold: flushing,
            blocking_threshold: blocking.min(scrubbing),
            scrubbing_threshold: scrubbing,
            ..self
        }
    }

    pub(super) fn decode(reader: &mut Reader<'_>) -> Result<Self, FormatError> {
        Ok(Self {
            slab_blocks: reader.u64()?,
            data_blocks: reader.u64()?,
            reference_count_blocks: reader.u64()?,
            slab_journal_blocks: reader.u64()?,
            flushing_threshold: reader.u64()?,
            blocking_threshold: reader.u64()?,
            scrubbing_threshold: reader.u64()?,
        })
    }

    pub(super) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), FormatError> {
        writer.u64(self.slab_blocks)?;
        writer.u64(self.data_blocks)?;
        writer.u64(self.reference_count_blocks)?;
        writer.u64(self.slab_journal_blocks)?;
        writer.u64(self.flushing_threshold)?;
        writer.u64(self.blocking_threshold)?;
        writer.u64(self.scrubbing_threshold)
    }

    /// Checks what was read: the parts fit into the slab, every data block has a counter, and
    /// the thresholds come in their order and inside the journal.
    pub fn validate(&self) -> Result<(), FormatError> {
        check_slab_blocks(self.slab_blocks)?;
        let used = self
            .data_blocks
            .checked_add(self.reference_count_blocks)
            .and_then(|blocks| blocks.checked_add(self.slab_journal_blocks));
        if self.data_blocks == 0 || used.is_none_or(|blocks| blocks > self.slab_blocks) {
            return Err(FormatError::BadConfiguration(
                "the parts of a slab do not fit into it",
            ));
        }
        if self.used_reference_blocks() > self.reference_count_blocks {
            return Err(FormatError::BadConfiguration(
                "a slab has fewer reference counters than data blocks",
            ));
        }
        if self.slab_journal_blocks == 0 || self.slab_journal_blocks > MAX_SLAB_JOURNAL_BLOCKS {
            return Err(FormatError::BadConfiguration(
                "the slab journal must have 1 to 256 blocks",
            ));
        }
        if self.flushing_threshold > self.blocking_threshold
            || self.blocking_threshold > self.scrubbing_threshold
            || self.scrubbing_threshold > self.slab_journal_blocks
        {
            return Err(FormatError::BadConfiguration(
                "the thresholds of the slab journal are out of order",
            ));
        }
        Ok(())
    }

    /// The logarithm of the slab size to base two.
    pub fn slab_bits(&self) -> u32 {
        self.slab_blocks.trailing_zeros()
    }

    /// Reference blocks that are read and written, sometimes one fewer than are set aside.
    pub fn used_reference_blocks(&self) -> u64 {
        self.data_blocks.div_ceil(COUNTERS)
    }

    /// Whether `sbn` is a data block.
    pub fn is_data_block(&self, sbn: SlabBlockNumber) -> bool {
        u64::from(sbn.get()) < self.data_blocks
    }

    /// The first reference block of the slab that starts at `slab_start`.
    pub fn reference_origin(&self, slab_start: Pbn) -> Option<Pbn> {
        slab_start.checked_add(self.data_blocks)
    }

    /// The first journal block of the slab that starts at `slab_start`.
    pub fn journal_origin(&self, slab_start: Pbn) -> Option<Pbn> {
        self.reference_origin(slab_start)?
            .checked_add(self.reference_count_blocks)
    }
}

/// Checks the size of a slab by itself.
pub(super) fn check_slab_blocks(slab_blocks: u64) -> Result<(), FormatError> {
    if !slab_blocks.is_power_of_two() || slab_blocks > MAX_SLAB_BLOCKS {
        return Err(FormatError::BadConfiguration(
            "the slab size must be a power of two and at most 2^23 blocks",
        ));
    }
    Ok(())
}
