// SPDX-License-Identifier: GPL-2.0

//! The table line: `<start> <length> vdo <words>`.
//!
//! Five versions exist. Each is a row of places in [`TableVersion::places`]; what a place holds is
//! parsed in one function. The line keeps its words, because status has to repeat them exactly.
//! Built while a table loads and then only read: no locks, nothing to await.

use core::fmt;

use crate::rt;
use crate::target::table_error::{Notice, TableError};
use crate::target::table_options::TableOptions;

/// 512-byte sectors in a 4096-byte block.
const SECTORS_PER_BLOCK: u64 = 8;

/// The largest logical size: 4 PiB.
pub const LOGICAL_SECTORS_MAX: u64 = 1 << 43;

/// Cache pages that one logical zone needs: two for each request that may be in flight.
const CACHE_PAGES_PER_LOGICAL_ZONE: u32 = 2 * 2048;

/// Where the target lies in its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetRange {
    /// The first 512-byte sector.
    pub start_sectors: u64,
    /// The length in 512-byte sectors, which is the logical size.
    pub length_sectors: u64,
}

impl TargetRange {
    /// The logical size in blocks.
    fn logical_blocks(self) -> Result<u64, TableError<'static>> {
        let length_sectors = self.length_sectors;
        if length_sectors > LOGICAL_SECTORS_MAX {
            return Err(TableError::LogicalSizeTooLarge { length_sectors });
        }
        if length_sectors % SECTORS_PER_BLOCK != 0 {
            return Err(TableError::LogicalSizeUnaligned { length_sectors });
        }
        Ok(length_sectors / SECTORS_PER_BLOCK)
    }
}

/// The version of a table line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TableVersion {
    /// No version word.
    V0,
    /// `V1`
    V1,
    /// `V2`, the first with pairs.
    V2,
    /// `V3`
    V3,
    /// `V4`
    V4,
}

/// What the word at one place means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Version,
    Device,
    PhysicalBlocks,
    LogicalBlockSize,
    CacheSize,
    MaximumAge,
    Threads,
    /// Once meant something.
    Ignored,
}

impl TableVersion {
    /// The version that today's tools write.
    pub const CURRENT: Self = Self::V4;

    /// The version that the first word of a line announces.
    fn of_first_word(word: &str) -> Result<Self, TableError<'_>> {
        let number = match word.strip_prefix('V') {
            Some(rest) if rest.starts_with(|c: char| c.is_ascii_digit()) => rest,
            _ => return Ok(Self::V0),
        };
        match number {
            "1" => Ok(Self::V1),
            "2" => Ok(Self::V2),
            "3" => Ok(Self::V3),
            "4" => Ok(Self::V4),
            _ => Err(TableError::UnknownVersion { word }),
        }
    }

    /// The words that a line of this version begins with.
    pub(super) const fn places(self) -> &'static [Place] {
        use Place::*;
        match self {
            Self::V0 => &[
                Device,
                LogicalBlockSize,
                Ignored,
                Ignored,
                CacheSize,
                MaximumAge,
                Ignored,
                Ignored,
                Ignored,
                Threads,
            ],
            Self::V1 => &[
                Version,
                Device,
                PhysicalBlocks,
                LogicalBlockSize,
                Ignored,
                Ignored,
                CacheSize,
                MaximumAge,
                Ignored,
                Ignored,
                Ignored,
                Threads,
            ],
            Self::V2 => &[
                Version,
                Device,
                PhysicalBlocks,
                LogicalBlockSize,
                CacheSize,
                MaximumAge,
                Ignored,
                Ignored,
                Ignored,
            ],
            Self::V3 => &[
                Version,
                Device,
                PhysicalBlocks,
                LogicalBlockSize,
                CacheSize,
                MaximumAge,
                Ignored,
            ],
            Self::V4 => &[
                Version,
                Device,
                PhysicalBlocks,
                LogicalBlockSize,
                CacheSize,
                MaximumAge,
            ],
        }
    }

    /// Whether pairs may follow the places.
    pub(super) fn has_options(self) -> bool {
        self >= Self::V2
    }
}

impl fmt::Display for TableVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V0 => "V0",
            Self::V1 => "V1",
            Self::V2 => "V2",
            Self::V3 => "V3",
            Self::V4 => "V4",
        })
    }
}

/// The unit in which the device is to be addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogicalBlockSize {
    /// 512 bytes; smaller writes are read-modify-write.
    Bytes512,
    /// 4096 bytes.
    Bytes4096,
}

impl LogicalBlockSize {
    /// The size in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }
}

/// How long a block map page may stay dirty, in the unit of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockMapAge(u32);

impl BlockMapAge {
    /// The age that the tools give unless told otherwise, and the largest they document.
    pub const DEFAULT: Self = Self(16_380);

    /// The number in the table.
    pub const fn as_given(self) -> u32 {
        self.0
    }

    /// The age in recovery journal blocks. The table still counts blocks of the journal's former
    /// format, with 311 updates each; a block of today's has 434.
    pub const fn journal_blocks(self) -> u64 {
        (self.0 as u64 * 311).div_ceil(434)
    }

    /// The age in recovery journal blocks, checked against the journal: a page has to be written
    /// before the journal comes round to what it still needs.
    pub fn checked_journal_blocks(self, usable_journal_blocks: u64) -> Result<u64, AgeOutOfRange> {
        let age_blocks = self.journal_blocks();
        let max_blocks = usable_journal_blocks / 2;
        if (1..=max_blocks).contains(&age_blocks) {
            Ok(age_blocks)
        } else {
            Err(AgeOutOfRange {
                age: self,
                max_blocks,
            })
        }
    }
}

/// The block map's maximum age does not suit the journal of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeOutOfRange {
    /// The age in the table.
    pub age: BlockMapAge,
    /// The largest age in journal blocks.
    pub max_blocks: u64,
}

impl fmt::Display for AgeOutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block map maximum age {} is {} journal blocks, it must be from 1 to {}",
            self.age.0,
            self.age.journal_blocks(),
            self.max_blocks
        )
    }
}

/// A table line that has been checked as far as it can be without the device.
#[derive(Debug)]
pub struct TableLine {
    words: Text,
    device: Text,
    /// The version of the line.
    pub version: TableVersion,
    /// Where the target lies.
    pub range: TargetRange,
    /// The logical size in blocks.
    pub logical_blocks: u64,
    /// The physical size in blocks. `None` in a line of version 0: the size of the device.
    pub physical_blocks: Option<u64>,
    /// The unit in which the device is addressed.
    pub logical_block_size: LogicalBlockSize,
    /// The size of the block map's page cache.
    pub cache_size_pages: u32,
    /// How long a block map page may stay dirty.
    pub block_map_age: BlockMapAge,
    /// Everything that has a default.
    pub options: TableOptions,
}

impl TableLine {
    /// Parses the words after the target's name. `notice` hears what is worth a line in the log
    /// although the line can be used.
    pub fn parse<'w>(
        range: TargetRange,
        words: &[&'w str],
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<Self, TableError<'w>> {
        let logical_blocks = range.logical_blocks()?;
        let first = words.first().ok_or(TableError::NoArguments)?;
        let version = TableVersion::of_first_word(first)?;
        let (positional, pairs) = split_words(version, words)?;
        if version != TableVersion::CURRENT {
            notice(Notice::OldVersion { version });
        }

        let mut line = Self {
            words: Text::joined(words)?,
            device: Text::new(),
            version,
            range,
            logical_blocks,
            physical_blocks: None,
            logical_block_size: LogicalBlockSize::Bytes4096,
            cache_size_pages: 0,
            block_map_age: BlockMapAge::DEFAULT,
            options: TableOptions::default(),
        };
        for (place, word) in version.places().iter().zip(positional) {
            line.set_place(*place, word, notice)?;
        }
        line.set_options(pairs, notice)?;
        line.check_zones()?;
        Ok(line)
    }

    /// The words as they were given, with single spaces between: what `dmsetup table` shows.
    pub fn words(&self) -> &str {
        self.words.as_str()
    }

    /// The path or the numbers of the backing device.
    pub fn device(&self) -> &str {
        self.device.as_str()
    }

    fn set_place<'w>(
        &mut self,
        place: Place,
        word: &'w str,
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), TableError<'w>> {
        match place {
            Place::Version | Place::Ignored => {}
            Place::Device => self.device = Text::joined(&[word])?,
            Place::PhysicalBlocks => {
                let blocks = word
                    .parse()
                    .map_err(|_| TableError::PhysicalBlocks { word })?;
                self.physical_blocks = Some(blocks);
            }
            Place::LogicalBlockSize => {
                self.logical_block_size = match word {
                    "512" => LogicalBlockSize::Bytes512,
                    "4096" => LogicalBlockSize::Bytes4096,
                    _ => return Err(TableError::LogicalBlockSize { word }),
                };
            }
            Place::CacheSize => {
                self.cache_size_pages = above_zero(word).ok_or(TableError::CacheSize { word })?;
            }
            Place::MaximumAge => {
                let age = above_zero(word).ok_or(TableError::MaximumAge { word })?;
                self.block_map_age = BlockMapAge(age);
            }
            Place::Threads => self
                .options
                .set_thread_string(word, notice)
                .map_err(TableError::ThreadConfig)?,
        }
        Ok(())
    }

    fn set_options<'w>(
        &mut self,
        pairs: &[&'w str],
        notice: &mut dyn FnMut(Notice<'_>),
    ) -> Result<(), TableError<'w>> {
        let pairs = pairs.chunks_exact(2);
        if let [last] = pairs.remainder() {
            return Err(TableError::OddOptions { last });
        }
        for pair in pairs {
            if let [key, value] = pair {
                self.options
                    .set(key, value, notice)
                    .map_err(TableError::Option)?;
            }
        }
        Ok(())
    }

    fn check_zones(&self) -> Result<(), TableError<'static>> {
        let threads = self.options.threads;
        if !threads.zones_consistent() {
            return Err(TableError::MixedZoneCounts { threads });
        }
        let needed_pages = threads.logical.saturating_mul(CACHE_PAGES_PER_LOGICAL_ZONE);
        if self.cache_size_pages < needed_pages {
            return Err(TableError::CacheTooSmall {
                cache_size_pages: self.cache_size_pages,
                logical_zones: threads.logical,
                needed_pages,
            });
        }
        Ok(())
    }
}

/// Divides the words into those that have a place and the pairs, and checks their number.
fn split_words<'a, 'w>(
    version: TableVersion,
    words: &'a [&'w str],
) -> Result<(&'a [&'w str], &'a [&'w str]), TableError<'w>> {
    match words.split_at_checked(version.places().len()) {
        Some((positional, pairs)) if pairs.is_empty() || version.has_options() => {
            Ok((positional, pairs))
        }
        _ => Err(TableError::WrongArgumentCount {
            version,
            found: words.len(),
        }),
    }
}

fn above_zero(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| *number > 0)
}

/// A text of its own.
///
/// # Invariants
///
/// The bytes are a sequence of whole strings, hence UTF-8.
struct Text(rt::Vec<u8>);

impl Text {
    const fn new() -> Self {
        Self(rt::Vec::new())
    }

    /// The words with single spaces between.
    fn joined(words: &[&str]) -> Result<Self, rt::AllocError> {
        let mut bytes = rt::Vec::new();
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                bytes.push(b' ')?;
            }
            bytes.extend_from_slice(word.as_bytes())?;
        }
        // INVARIANT: Only whole strings were appended.
        Ok(Self(bytes))
    }

    fn as_str(&self) -> &str {
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}
