// SPDX-License-Identifier: GPL-2.0

//! What may change when a new table is loaded for a running volume.
//!
//! A reload is checked and prepared when the table is loaded and performed when the device
//! resumes. This is the check; it knows two table lines and the volume's condition and nothing
//! else. The engine decides whether a larger physical size suits the layout.
//! Pure values: no locks, nothing to await.

use core::ffi::CStr;
use core::fmt;

use crate::target::table_line::TableLine;

/// What of a volume's condition decides whether it may grow physically.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeCondition {
    /// The volume has been resumed at least once.
    pub started: bool,
    /// Slabs still wait to be scrubbed.
    pub recovering: bool,
    /// The volume is in read-only mode.
    pub read_only: bool,
    /// The new table names the device that the volume is on.
    pub same_device: bool,
}

/// A size before and after, in blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The size now.
    pub from_blocks: u64,
    /// The size wanted.
    pub to_blocks: u64,
}

/// What a reload changes. `None` and `false` mean: as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The logical size grows.
    pub logical: Option<Growth>,
    /// The physical size grows.
    pub physical: Option<Growth>,
    /// The largest discard in blocks.
    pub max_discard_blocks: Option<u32>,
    /// Whether to look for duplicates.
    pub deduplication: Option<bool>,
    /// Whether to compress.
    pub compression: Option<bool>,
    /// Another algorithm or driver is wanted.
    pub compression_type: bool,
}

/// Compares the table a volume runs with to the one that is to replace it.
pub fn check_reload(
    old: &TableLine,
    new: &TableLine,
    condition: VolumeCondition,
) -> Result<Changes, ReloadError> {
    let unchanged = |same: bool, field| {
        if same {
            Ok(())
        } else {
            Err(ReloadError::Changed { field })
        }
    };
    unchanged(
        old.range.start_sectors == new.range.start_sectors,
        FixedField::StartSector,
    )?;
    unchanged(
        old.logical_block_size == new.logical_block_size,
        FixedField::LogicalBlockSize,
    )?;
    unchanged(condition.same_device, FixedField::Device)?;
    let logical = growth(old.logical_blocks, new.logical_blocks)
        .map_err(|shrinking| ReloadError::LogicalShrinks { shrinking })?;
    if logical.is_some() && condition.read_only {
        return Err(ReloadError::LogicalReadOnly);
    }
    unchanged(
        old.cache_size_pages == new.cache_size_pages,
        FixedField::CacheSize,
    )?;
    unchanged(
        old.block_map_age == new.block_map_age,
        FixedField::MaximumAge,
    )?;
    unchanged(
        old.options.threads == new.options.threads,
        FixedField::Threads,
    )?;
    Ok(Changes {
        logical,
        physical: physical_growth(old, new, condition)?,
        max_discard_blocks: changed(
            old.options.max_discard_blocks,
            new.options.max_discard_blocks,
        ),
        deduplication: changed(old.options.deduplication, new.options.deduplication),
        compression: changed(old.options.compression, new.options.compression),
        compression_type: old.options.compression_type.unwrap_or_default()
            != new.options.compression_type.unwrap_or_default(),
    })
}

/// The physical sizes of two tables. A table of version 0 names none and so asks for no growth.
fn physical_growth(
    old: &TableLine,
    new: &TableLine,
    condition: VolumeCondition,
) -> Result<Option<Growth>, ReloadError> {
    let (Some(from_blocks), Some(to_blocks)) = (old.physical_blocks, new.physical_blocks) else {
        return Ok(None);
    };
    let physical = growth(from_blocks, to_blocks)
        .map_err(|shrinking| ReloadError::PhysicalShrinks { shrinking })?;
    if physical.is_some() {
        if !condition.started {
            return Err(ReloadError::NotStarted);
        }
        if condition.read_only {
            return Err(ReloadError::ReadOnly);
        }
        if condition.recovering {
            return Err(ReloadError::Recovering);
        }
    }
    Ok(physical)
}

/// `Err` carries the sizes if the second is the smaller.
fn growth(from_blocks: u64, to_blocks: u64) -> Result<Option<Growth>, Growth> {
    let growth = Growth {
        from_blocks,
        to_blocks,
    };
    match to_blocks {
        same if same == from_blocks => Ok(None),
        larger if larger > from_blocks => Ok(Some(growth)),
        _ => Err(growth),
    }
}

fn changed<T: PartialEq>(old: T, new: T) -> Option<T> {
    (old != new).then_some(new)
}

/// What no reload may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedField {
    /// The target's place in its device.
    StartSector,
    /// The unit in which the device is addressed.
    LogicalBlockSize,
    /// The block map's page cache.
    CacheSize,
    /// The block map's maximum age.
    MaximumAge,
    /// Any count of threads or zones.
    Threads,
    /// The device that the volume is on.
    Device,
}

/// Why a table cannot replace the one a volume runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadError {
    /// A field differs that has to stay.
    Changed {
        /// The field.
        field: FixedField,
    },
    /// The logical size is smaller.
    LogicalShrinks {
        /// The sizes.
        shrinking: Growth,
    },
    /// The physical size is smaller.
    PhysicalShrinks {
        /// The sizes.
        shrinking: Growth,
    },
    /// The logical size is larger, but the volume is in read-only mode.
    LogicalReadOnly,
    /// The physical size is larger, but the volume was never resumed.
    NotStarted,
    /// The physical size is larger, but the volume is in read-only mode.
    ReadOnly,
    /// The physical size is larger, but the volume is recovering.
    Recovering,
}

impl ReloadError {
    /// The rule that is broken, as a fixed text for device-mapper.
    pub const fn summary(&self) -> &'static CStr {
        match self {
            Self::Changed { field } => match field {
                FixedField::StartSector => c"Starting sector cannot change",
                FixedField::LogicalBlockSize => c"Logical block size cannot change",
                FixedField::CacheSize => c"Block map cache size cannot change",
                FixedField::MaximumAge => c"Block map maximum age cannot change",
                FixedField::Threads => c"Thread configuration cannot change",
                FixedField::Device => c"Storage device cannot change",
            },
            Self::LogicalShrinks { .. } => c"Can't shrink VDO logical size",
            Self::PhysicalShrinks { .. } => {
                c"Removing physical storage from a VDO is not supported"
            }
            Self::LogicalReadOnly => c"Can't grow VDO logical size in read-only mode",
            Self::NotStarted => c"Can't grow VDO physical size before its first resume",
            Self::ReadOnly => c"Can't grow VDO physical size in read-only mode",
            Self::Recovering => c"Can't grow VDO physical size while it is recovering",
        }
    }
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.summary().to_str().unwrap_or_default())?;
        match self {
            Self::Changed { .. } => f.write_str(
                ": the volume has to be stopped and started with the new table for this",
            ),
            Self::LogicalShrinks { shrinking } | Self::PhysicalShrinks { shrinking } => write!(
                f,
                ": it has {} blocks, the new table {}",
                shrinking.from_blocks, shrinking.to_blocks
            ),
            Self::LogicalReadOnly | Self::NotStarted | Self::ReadOnly => Ok(()),
            Self::Recovering => f.write_str(": try again when dmsetup status shows normal"),
        }
    }
}
