// SPDX-License-Identifier: GPL-2.0

//! The optional part of a table line: `key value` pairs, or the thread string of the old versions.
//!
//! Every key, its range and its default are here and nowhere else. Pure values: no locks, nothing
//! to await.

use core::fmt;

use crate::target::compression_type::{CompressionType, CompressionTypeError};
use crate::target::driver_list::DriverList;
use crate::target::table_error::Notice;

/// The smallest and the largest slab in blocks.
const SLAB_BLOCKS: (u32, u32) = (1 << 13, 1 << 23);

/// The largest `maxDiscard`: what the block layer's 32-bit byte count can express.
const MAX_DISCARD_BLOCKS_MAX: u32 = u32::MAX / 4096;

/// The largest index memory in gigabytes.
const INDEX_MEMORY_MAX_GIGABYTES: u32 = 1024;

/// How many threads or zones of each kind the table asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCounts {
    /// `ack`: threads that acknowledge requests.
    pub ack: u32,
    /// `bio`: threads that submit I/O.
    pub bio: u32,
    /// `bioRotationInterval`: blocks in a row that go to one `bio` thread.
    pub bio_rotation_interval_blocks: u32,
    /// `cpu`: threads that hash and compress.
    pub cpu: u32,
    /// `hash`: zones of the hash locks.
    pub hash: u32,
    /// `logical`: zones of the block map.
    pub logical: u32,
    /// `physical`: zones of the slabs.
    pub physical: u32,
}

impl Default for ThreadCounts {
    fn default() -> Self {
        Self {
            ack: 1,
            bio: 4,
            bio_rotation_interval_blocks: 64,
            cpu: 1,
            hash: 0,
            logical: 0,
            physical: 0,
        }
    }
}

impl ThreadCounts {
    /// The count called `name` with its smallest and largest value.
    fn by_name(&mut self, name: &str) -> Option<(&mut u32, u32, u32)> {
        Some(match name {
            "ack" => (&mut self.ack, 0, 100),
            "bio" => (&mut self.bio, 1, 100),
            "bioRotationInterval" => (&mut self.bio_rotation_interval_blocks, 1, 1024),
            "cpu" => (&mut self.cpu, 1, 100),
            "hash" => (&mut self.hash, 0, 100),
            "logical" => (&mut self.logical, 0, 60),
            "physical" => (&mut self.physical, 0, 16),
            _ => return None,
        })
    }

    /// Whether the three zone counts are all zero or all given.
    pub fn zones_consistent(&self) -> bool {
        (self.hash == 0) == (self.logical == 0) && (self.logical == 0) == (self.physical == 0)
    }
}

/// The index memory in the encoding of the geometry block: gigabytes, or a negative number of
/// megabytes as two's complement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexMemory(u32);

impl IndexMemory {
    /// A quarter of a gigabyte, the default.
    pub const QUARTER_GIGABYTE: Self = Self(0u32.wrapping_sub(256));
    /// Half a gigabyte.
    pub const HALF_GIGABYTE: Self = Self(0u32.wrapping_sub(512));
    /// Three quarters of a gigabyte.
    pub const THREE_QUARTERS_GIGABYTE: Self = Self(0u32.wrapping_sub(768));

    /// Takes the value from a geometry block. Nothing is checked.
    pub const fn from_encoded(encoded: u32) -> Self {
        Self(encoded)
    }

    /// The value for a geometry block.
    pub const fn encoded(self) -> u32 {
        self.0
    }

    fn parse(word: &str) -> Option<Self> {
        match word {
            "0.25" => Some(Self::QUARTER_GIGABYTE),
            "0.5" | "0.50" => Some(Self::HALF_GIGABYTE),
            "0.75" => Some(Self::THREE_QUARTERS_GIGABYTE),
            _ => match word.parse() {
                Ok(gigabytes) if gigabytes <= INDEX_MEMORY_MAX_GIGABYTES => Some(Self(gigabytes)),
                _ => None,
            },
        }
    }
}

impl fmt::Display for IndexMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::QUARTER_GIGABYTE => f.write_str("0.25"),
            Self::HALF_GIGABYTE => f.write_str("0.50"),
            Self::THREE_QUARTERS_GIGABYTE => f.write_str("0.75"),
            Self(encoded) => write!(f, "{encoded}"),
        }
    }
}

/// What the optional part of a table line says, defaults included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// How many threads and zones.
    pub threads: ThreadCounts,
    /// `maxDiscard`: the largest discard request in blocks.
    pub max_discard_blocks: u32,
    /// `deduplication`: whether duplicates are looked for.
    pub deduplication: bool,
    /// `compression`: whether blocks are compressed.
    pub compression: bool,
    /// `compressionType`: with what. `None` if the table does not say.
    pub compression_type: Option<CompressionType>,
    /// `compressAccelerators`, or `accelerators` for both: the drivers to prefer for compression.
    pub compress_accelerators: DriverList,
    /// `decompressAccelerators`, or `accelerators` for both: the drivers to prefer for decompression.
    pub decompress_accelerators: DriverList,
    /// `compressionVerify`: whether every compressed block is checked.
    pub compression_verify: bool,
    /// `upgrade`: whether a volume of the original format is upgraded when it starts.
    pub upgrade: bool,
    /// `indexMemory`: used when the volume is formatted.
    pub index_memory: IndexMemory,
    /// `indexSparse`: used when the volume is formatted.
    pub index_sparse: bool,
    /// `slabSize`: used when the volume is formatted.
    pub slab_size_blocks: u32,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self {
            threads: ThreadCounts::default(),
            max_discard_blocks: 1,
            deduplication: true,
            compression: false,
            compression_type: None,
            compress_accelerators: DriverList::AUTO,
            decompress_accelerators: DriverList::AUTO,
            compression_verify: false,
            upgrade: false,
            index_memory: IndexMemory::QUARTER_GIGABYTE,
            index_sparse: false,
            slab_size_blocks: 1 << 19,
        }
    }
}

impl TableOptions {
    /// Takes one pair. A later one for the same key wins.
    pub(super) fn set<'w>(
        &mut self,
        key: &'w str,
        value: &'w str,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), OptionError<'w>> {
        let wrong = |problem| OptionError {
            key,
            value,
            problem,
        };
        match key {
            "deduplication" => self.deduplication = on_or_off(value).map_err(wrong)?,
            "compression" => self.compression = on_or_off(value).map_err(wrong)?,
            "indexSparse" => self.index_sparse = on_or_off(value).map_err(wrong)?,
            "compressionVerify" => self.compression_verify = on_or_off(value).map_err(wrong)?,
            "upgrade" => self.upgrade = on_or_off(value).map_err(wrong)?,
            "accelerators" | "compressAccelerators" | "decompressAccelerators" => {
                let list = DriverList::parse(value).ok_or(wrong(OptionProblem::Accelerators))?;
                if key != "decompressAccelerators" {
                    self.compress_accelerators = list;
                }
                if key != "compressAccelerators" {
                    self.decompress_accelerators = list;
                }
            }
            "compressionType" => {
                let wanted = CompressionType::parse(value)
                    .map_err(|error| wrong(OptionProblem::CompressionType(error)))?;
                self.compression_type = Some(wanted);
            }
            "indexMemory" => {
                self.index_memory =
                    IndexMemory::parse(value).ok_or(wrong(OptionProblem::IndexMemory))?;
            }
            "slabSize" => {
                let (min, max) = SLAB_BLOCKS;
                let blocks = number(value, min, max)
                    .ok()
                    .filter(|blocks| blocks.is_power_of_two())
                    .ok_or(wrong(OptionProblem::SlabSize { min, max }))?;
                self.slab_size_blocks = blocks;
            }
            "maxDiscard" => {
                self.max_discard_blocks =
                    number(value, 1, MAX_DISCARD_BLOCKS_MAX).map_err(wrong)?;
            }
            _ => self.set_thread_count(key, value, notice).map_err(wrong)?,
        }
        Ok(())
    }

    /// Takes the thread string of the versions that have no pairs: `.`, or `name=number` with
    /// commas between.
    pub(super) fn set_thread_string<'w>(
        &mut self,
        text: &'w str,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), OptionError<'w>> {
        if text == "." {
            return Ok(());
        }
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or(OptionError {
                key: part,
                value: "",
                problem: OptionProblem::NoEqualsSign,
            })?;
            self.set_thread_count(key, value, notice)
                .map_err(|problem| OptionError {
                    key,
                    value,
                    problem,
                })?;
        }
        Ok(())
    }

    /// Takes a thread count. A name that is not known is passed over if its value is a number:
    /// it may be one that newer tools give.
    fn set_thread_count(
        &mut self,
        key: &str,
        value: &str,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), OptionProblem> {
        match self.threads.by_name(key) {
            Some((count, min, max)) => *count = number(value, min, max)?,
            None if value.parse::<u64>().is_ok() => notice(Notice::UnknownOption { key, value }),
            None => return Err(OptionProblem::UnknownKey),
        }
        Ok(())
    }
}

fn on_or_off(value: &str) -> Result<bool, OptionProblem> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(OptionProblem::NotOnOff),
    }
}

fn number(value: &str, min: u32, max: u32) -> Result<u32, OptionProblem> {
    match value.parse() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(OptionProblem::NotInRange { min, max }),
    }
}

/// A pair that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionError<'w> {
    /// The key as given.
    pub key: &'w str,
    /// The value as given.
    pub value: &'w str,
    /// What is wrong with them.
    pub problem: OptionProblem,
}

/// What is wrong with a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionProblem {
    /// The value is not a number, or too small or too large.
    NotInRange {
        /// The smallest value.
        min: u32,
        /// The largest value.
        max: u32,
    },
    /// The value is neither `on` nor `off`.
    NotOnOff,
    /// The value is not an amount of index memory.
    IndexMemory,
    /// The value is not a slab size.
    SlabSize {
        /// The smallest value.
        min: u32,
        /// The largest value.
        max: u32,
    },
    /// The value is not a type of compression.
    CompressionType(CompressionTypeError),
    /// The value is not a list of drivers.
    Accelerators,
    /// There is no such key, and its value is not a number.
    UnknownKey,
    /// A part of a thread string has no number.
    NoEqualsSign,
}

impl fmt::Display for OptionError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, value, .. } = self;
        match self.problem {
            OptionProblem::NotInRange { min, max } => {
                write!(
                    f,
                    "{key} must be a number from {min} to {max}, not {value:?}"
                )
            }
            OptionProblem::NotOnOff => write!(f, "{key} must be on or off, not {value:?}"),
            OptionProblem::IndexMemory => write!(
                f,
                "{key} must be 0.25, 0.5, 0.75 or a number of gigabytes up to \
                 {INDEX_MEMORY_MAX_GIGABYTES}, not {value:?}"
            ),
            OptionProblem::SlabSize { min, max } => write!(
                f,
                "{key} must be a power of two from {min} to {max} blocks, not {value:?}"
            ),
            OptionProblem::CompressionType(error) => write!(f, "{key} {error}, not {value:?}"),
            OptionProblem::Accelerators => write!(
                f,
                "{key} must be auto, none, or names of drivers with commas between, not {value:?}"
            ),
            OptionProblem::UnknownKey => write!(
                f,
                "unknown option {key:?} with the value {value:?}; an unknown option is ignored \
                 only if its value is a number"
            ),
            OptionProblem::NoEqualsSign => {
                write!(f, "{key:?} is not of the form name=number")
            }
        }
    }
}
