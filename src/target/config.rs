// SPDX-License-Identifier: GPL-2.0

//! The text of the `config` message. Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

use crate::target::table_options::IndexMemory;
use crate::target::text::Braces;

/// The version of the text.
const CONFIG_VERSION: u32 = 1;

/// What the `config` message tells of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigReport {
    /// The physical size.
    pub physical_size_bytes: u64,
    /// The logical size.
    pub logical_size_bytes: u64,
    /// The size of a slab.
    pub slab_size_blocks: u64,
    /// The memory of the index, as the geometry block has it.
    pub index_memory: IndexMemory,
    /// Whether the index is a sparse one.
    pub index_sparse: bool,
}

/// Writes the text of the `config` message.
pub fn write_config(out: &mut dyn Write, report: &ConfigReport) -> fmt::Result {
    Braces::write(out, |text| {
        text.field("version", CONFIG_VERSION)?;
        text.numbers(&[
            ("physicalSize", report.physical_size_bytes),
            ("logicalSize", report.logical_size_bytes),
            ("slabSize", report.slab_size_blocks),
        ])?;
        // The tools' form has a second blank before this group's brace.
        text.group_opened_by("index :  { ", |text| {
            text.field("memorySize", report.index_memory)?;
            text.flag("isSparse", report.index_sparse)
        })
    })
}
