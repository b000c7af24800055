// SPDX-License-Identifier: GPL-2.0

//! What can be wrong with a table line, in words.
//!
//! Each error has two texts: [`TableError::summary`] is fixed and goes where device-mapper wants
//! a static string; the `Display` form repeats it and adds the word at fault and what to write
//! instead, for the log. Pure values: no locks, nothing to await.

use core::ffi::CStr;
use core::fmt;

use crate::rt::AllocError;
use crate::target::table_line::{TableVersion, LOGICAL_SECTORS_MAX};
use crate::target::table_options::{OptionError, ThreadCounts};

/// Why a table line cannot be used. All of them are the caller's mistake but the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError<'w> {
    /// The target is longer than a volume can be.
    LogicalSizeTooLarge {
        /// Its length.
        length_sectors: u64,
    },
    /// The target does not end at the end of a block.
    LogicalSizeUnaligned {
        /// Its length.
        length_sectors: u64,
    },
    /// There are no words.
    NoArguments,
    /// The first word looks like a version and is not one of the known.
    UnknownVersion {
        /// The word.
        word: &'w str,
    },
    /// The version wants another number of words.
    WrongArgumentCount {
        /// The version.
        version: TableVersion,
        /// How many words there are.
        found: usize,
    },
    /// The physical size is not a number.
    PhysicalBlocks {
        /// The word.
        word: &'w str,
    },
    /// The logical block size is neither 512 nor 4096.
    LogicalBlockSize {
        /// The word.
        word: &'w str,
    },
    /// The cache size is not a number above zero.
    CacheSize {
        /// The word.
        word: &'w str,
    },
    /// The block map's maximum age is not a number above zero.
    MaximumAge {
        /// The word.
        word: &'w str,
    },
    /// The last key has no value.
    OddOptions {
        /// The last word.
        last: &'w str,
    },
    /// A pair cannot be used.
    Option(OptionError<'w>),
    /// The thread string cannot be used.
    ThreadConfig(OptionError<'w>),
    /// Only some of the zone counts are zero.
    MixedZoneCounts {
        /// All the counts.
        threads: ThreadCounts,
    },
    /// The cache cannot serve that many logical zones.
    CacheTooSmall {
        /// The cache asked for.
        cache_size_pages: u32,
        /// The zones asked for.
        logical_zones: u32,
        /// The smallest cache for them.
        needed_pages: u32,
    },
    /// No memory to keep the table line in.
    OutOfMemory,
}

impl TableError<'_> {
    /// The check that failed, as a text that does not depend on the words.
    pub const fn summary(&self) -> &'static CStr {
        match self {
            Self::LogicalSizeTooLarge { .. } => c"Logical size exceeds the maximum",
            Self::LogicalSizeUnaligned { .. } => c"Logical size must be a multiple of 4096",
            Self::NoArguments => c"Incorrect number of arguments",
            Self::UnknownVersion { .. } => c"Unknown version number detected",
            Self::WrongArgumentCount { .. } => c"Incorrect number of arguments for version",
            Self::PhysicalBlocks { .. } => c"Invalid physical block count",
            Self::LogicalBlockSize { .. } => c"Invalid logical block size",
            Self::CacheSize { .. } => c"Invalid block map page cache size",
            Self::MaximumAge { .. } => c"Invalid block map maximum age",
            Self::OddOptions { .. } => {
                c"Odd number of optional arguments given but they should be <key> <value> pairs"
            }
            Self::Option(_) => c"Invalid optional argument configuration",
            Self::ThreadConfig(_) => c"Invalid thread-count configuration",
            Self::MixedZoneCounts { .. } => {
                c"Logical, physical, and hash zones counts must all be zero or all non-zero"
            }
            Self::CacheTooSmall { .. } => c"Insufficient block map cache for logical zones",
            Self::OutOfMemory => c"Out of memory",
        }
    }
}

impl From<AllocError> for TableError<'_> {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}

impl fmt::Display for TableError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary().to_str().unwrap_or_default())?;
        match self {
            Self::LogicalSizeTooLarge { length_sectors } => write!(
                f,
                ": {length_sectors} sectors, at most {LOGICAL_SECTORS_MAX}"
            ),
            Self::LogicalSizeUnaligned { length_sectors } => {
                write!(f, ": {length_sectors} sectors is not a multiple of 8")
            }
            Self::NoArguments | Self::OutOfMemory => Ok(()),
            Self::UnknownVersion { word } => {
                write!(f, ": {word:?}, this driver knows V1 to V4")
            }
            Self::WrongArgumentCount { version, found } => write!(
                f,
                " {version}: {found}, {} {} needed",
                if version.has_options() {
                    "at least"
                } else {
                    "exactly"
                },
                version.places().len(),
            ),
            Self::PhysicalBlocks { word } => {
                write!(f, ": must be a number of 4096-byte blocks, not {word:?}")
            }
            Self::LogicalBlockSize { word } => write!(f, ": must be 512 or 4096, not {word:?}"),
            Self::CacheSize { word } => write!(
                f,
                ": must be a number of 4096-byte pages above zero, not {word:?}"
            ),
            Self::MaximumAge { word } => write!(f, ": must be a number above zero, not {word:?}"),
            Self::OddOptions { last } => {
                write!(f, ": {last:?} has no value")
            }
            Self::Option(error) | Self::ThreadConfig(error) => write!(f, ": {error}"),
            Self::MixedZoneCounts { threads } => write!(
                f,
                ": logical {}, physical {}, hash {}",
                threads.logical, threads.physical, threads.hash
            ),
            Self::CacheTooSmall {
                cache_size_pages,
                logical_zones,
                needed_pages,
            } => write!(
                f,
                ": {cache_size_pages} pages, {logical_zones} logical zones need at least \
                 {needed_pages}"
            ),
        }
    }
}

/// Something worth a line in the log about a table line that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'w> {
    /// The line is of another version than the current one.
    OldVersion {
        /// Its version.
        version: TableVersion,
    },
    /// An option is not known here and has no effect.
    UnknownOption {
        /// Its name.
        key: &'w str,
        /// Its value.
        value: &'w str,
    },
}

impl fmt::Display for Notice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldVersion { version } => write!(
                f,
                "the table line has version {version}, current is {}: tools and kernel differ",
                TableVersion::CURRENT
            ),
            Self::UnknownOption { key, value } => {
                write!(f, "unknown option {key:?} with the value {value} ignored")
            }
        }
    }
}
