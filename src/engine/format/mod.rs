// SPDX-License-Identifier: GPL-2.0

//! The on-disk format, as the in-tree dm-vdo driver reads and writes it.
//!
//! One file per structure: the table of its bytes, then decoding and encoding. Everything here
//! works on bytes in memory; nothing waits, locks or keeps state. A decoder accepts any bytes and
//! either bounds what it found or says what is wrong with it in a [`FormatError`].
//!
//! All integers are little-endian.

pub mod algorithm_map;
pub mod block_map_entry;
pub mod block_map_page;
pub mod block_map_tree;
pub mod block_name;
pub mod checksum;
pub mod component_state;
pub mod compressed_block;
pub mod error;
mod field;
pub mod formatter;
pub mod geometry;
mod growth;
mod header;
pub mod index_config;
pub mod layout;
pub mod murmur3;
pub mod recovery_journal;
pub mod recovery_journal_entry;
pub mod reference_block;
pub mod required_flags;
pub mod slab_config;
pub mod slab_journal;
pub mod slab_journal_coded;
pub mod slab_summary;
pub mod stream_format;
pub mod super_block;
pub mod vdo_config;
pub mod volume_state;

pub use algorithm_map::BlockCode;
pub use block_map_entry::{Mapping, MappingState};
pub use block_name::BlockName;
pub use component_state::{BlockMapState, RecoveryJournalState, SlabDepotState};
pub use error::{Component, FormatError, Version};
pub use geometry::Geometry;
pub use layout::{Layout, Partition, PartitionId};
pub use required_flags::RequiredFlags;
pub use slab_config::SlabConfig;
pub use stream_format::StreamFormat;
pub use super_block::SuperBlock;
pub use vdo_config::VdoConfig;
pub use volume_state::VolumeState;
