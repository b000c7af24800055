// SPDX-License-Identifier: GPL-2.0

//! Back to a volume that the in-tree driver reads: possible once no block of another kind is left.
//!
//! An algorithm map has the answer. Without one nobody keeps count of the blocks of a format, so they are looked for: every logical
//! block that is mapped into a compressed block is visited and the block's header read. First while requests go on, which finds out most of the time that there is more to do; then
//! with requests held back, because a duplicate of what has been visited may be found in what has not. The switch is one write of
//! the super block, preflushed and durable.

use core::fmt;

use super::Volume;
use crate::engine::depot::BlocksByCode;
use crate::engine::env::{Env, IoClass};
use crate::engine::error::Error;
use crate::engine::format::compressed_block::{is_version_1, CompressedBlock};
use crate::engine::format::{BlockCode, MappingState, StreamFormat};
use crate::engine::units::{Lbn, Pbn, BLOCK_MAP_ENTRIES_PER_PAGE};
use crate::rt::Page;

/// Entries of a leaf of the block map.
const LEAF: u64 = BLOCK_MAP_ENTRIES_PER_PAGE as u64;

/// What can be done about it.
const REMEDY: &str = "): write them anew with compressionType lz4, or discard them, and ask again";

/// Why a volume keeps its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DowngradeError {
    /// It has the original format.
    NotUpgraded,
    /// Logical blocks are stored in blocks that the in-tree driver cannot read.
    InTheWay(InTheWay),
    /// The same, as the algorithm map has it.
    BlocksInTheWay(BlocksByCode),
    /// Something failed.
    Failed(Error),
}

/// Logical blocks that keep a volume from being downgraded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InTheWay {
    /// By format, in the order of [`StreamFormat::ALL`]. LZ4 counts if its blocks name it.
    pub by_format: [u64; StreamFormat::COUNT],
    /// In blocks whose format is not known.
    pub unknown: u64,
    /// The first of all.
    pub first: Option<Lbn>,
}

impl InTheWay {
    /// All of them.
    pub fn blocks(&self) -> u64 {
        self.by_format
            .iter()
            .fold(self.unknown, |sum, blocks| sum.saturating_add(*blocks))
    }
}

impl From<Error> for DowngradeError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl fmt::Display for DowngradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUpgraded => f.write_str("the volume has the original format already"),
            Self::Failed(error) => error.fmt(f),
            Self::InTheWay(found) => {
                write!(
                    f,
                    "{} logical blocks are stored in a format that the in-tree driver cannot read (",
                    found.blocks()
                )?;
                for (format, blocks) in StreamFormat::ALL.iter().zip(found.by_format) {
                    write!(f, "{} {}, ", format.name(), blocks)?;
                }
                write!(f, "unknown {}", found.unknown)?;
                if let Some(first) = found.first {
                    write!(f, "; the first is block {}", first.get())?;
                }
                f.write_str(REMEDY)
            }
            Self::BlocksInTheWay(blocks) => {
                write!(
                    f,
                    "{} blocks are in a format that the in-tree driver cannot read (",
                    blocks.beyond_version_1()
                )?;
                for format in StreamFormat::ALL {
                    let count = match format {
                        StreamFormat::Lz4 => blocks.with_code(BlockCode::NAMED_LZ4),
                        format => blocks.of_format(format),
                    };
                    write!(f, "{} {}, ", format.name(), count)?;
                }
                write!(f, "unknown {}", blocks.unknown())?;
                f.write_str(REMEDY)
            }
        }
    }
}

impl<E: Env> Volume<E> {
    /// Makes the volume one of the original format. The compressor in use makes LZ4.
    pub async fn downgrade(&self) -> Result<(), DowngradeError> {
        if self.required_flags().is_none() {
            return Err(DowngradeError::NotUpgraded);
        }
        self.store.read_only().check()?;
        self.formats.reset();
        let result = self.downgrade_unless_in_the_way().await;
        if result.is_err() {
            for format in StreamFormat::ALL {
                if self.may_hold(format) {
                    self.formats.add(format);
                }
            }
        }
        result
    }

    async fn downgrade_unless_in_the_way(&self) -> Result<(), DowngradeError> {
        let mut page = Page::new().map_err(Error::from)?;
        // What is still being compressed in another format gets to where it can be found.
        self.settle().await;
        if self.has_algorithm_map() {
            self.scrubbed().await?;
        }
        if !self.algorithm_map_agrees()? {
            page = self.look_for_block_formats(page).await?;
        }

        let pause = self.activity.pause();
        self.settle().await;
        self.activity.idle().await;
        if !self.algorithm_map_agrees()? {
            self.look_for_block_formats(page).await?;
        }
        if self.has_algorithm_map() {
            return Ok(self
                .remove_algorithm_map(|content| content.required = None)
                .await?);
        }
        let update = self
            .super_block
            .update(|content| content.required = None)
            .await;
        drop(pause);
        Ok(self
            .store
            .read_only()
            .guard(update, "downgrading the volume")?)
    }

    /// Asks the algorithm map. `Ok(true)`: nothing is in the way. `Ok(false)`: it does not know, or there is none.
    fn algorithm_map_agrees(&self) -> Result<bool, DowngradeError> {
        match self.blocks_by_code() {
            Some(blocks) if blocks.beyond_version_1() > 0 => {
                Err(DowngradeError::BlocksInTheWay(blocks))
            }
            Some(blocks) => Ok(blocks.unknown() == 0),
            None => Ok(false),
        }
    }

    async fn look_for_block_formats(&self, mut page: Page) -> Result<Page, DowngradeError> {
        let mut found = InTheWay::default();
        // Logical blocks of one compressed block often follow each other.
        let mut last: Option<(Pbn, Option<Kind>)> = None;
        let end = self.logical_blocks();
        let mut lbn = 0;
        while lbn < end {
            let Some(location) = self.block_map.find(Lbn::new(lbn)).await? else {
                // A leaf that does not exist: on to the next.
                let slot = lbn.checked_rem(LEAF).unwrap_or(0);
                lbn = lbn.saturating_add(LEAF.saturating_sub(slot));
                continue;
            };
            let mapping = match self.block_map.get(location).await {
                Ok(mapping) => Some(mapping),
                // Nobody can read it, whatever its format.
                Err(Error::BadMapping) => None,
                Err(error) => return Err(error.into()),
            };
            if let Some(mapping) = mapping {
                if matches!(mapping.state, MappingState::Compressed(_)) {
                    let kind = match last {
                        Some((pbn, kind)) if pbn == mapping.pbn => kind,
                        _ => {
                            let kind;
                            (page, kind) = self.kind_of(mapping.pbn, page).await?;
                            last = Some((mapping.pbn, kind));
                            kind
                        }
                    };
                    note(&mut found, kind, Lbn::new(lbn));
                }
            }
            lbn = lbn.saturating_add(1);
        }
        if found.blocks() > 0 {
            return Err(DowngradeError::InTheWay(found));
        }
        Ok(page)
    }

    async fn kind_of(&self, pbn: Pbn, page: Page) -> Result<(Page, Option<Kind>), Error> {
        if !self.depot.is_data_block(pbn) {
            return Ok((page, None));
        }
        let (page, result) = self.store.read(pbn, page, IoClass::Data).await;
        result?;
        let kind = if is_version_1(&page) {
            None
        } else {
            Some(
                CompressedBlock::parse(&page)
                    .map_or(Kind::Unknown, |block| Kind::Of(block.format())),
            )
        };
        Ok((page, kind))
    }
}

/// What a block is that the in-tree driver cannot read.
#[derive(Clone, Copy)]
enum Kind {
    Of(StreamFormat),
    Unknown,
}

fn note(found: &mut InTheWay, kind: Option<Kind>, lbn: Lbn) {
    let counter = match kind {
        None => return,
        Some(Kind::Unknown) => &mut found.unknown,
        Some(Kind::Of(format)) => match found.by_format.get_mut(format.index()) {
            Some(counter) => counter,
            None => return,
        },
    };
    *counter = counter.saturating_add(1);
    found.first = found.first.or(Some(lbn));
}
