// SPDX-License-Identifier: GPL-2.0

//! Geometry block, super block, and what follows from them.

use std::sync::Arc;

use super::decode::{crc32, u32_at, u64_at};
use super::Findings;
use crate::sim::image::{Block, Blocks};

/// The state that a volume is in.
pub mod state {
    /// Running, or crashed.
    pub const DIRTY: u32 = 0;
    /// Formatted and never started.
    pub const NEW: u32 = 1;
    /// Saved.
    pub const CLEAN: u32 = 2;
    /// In read-only mode.
    pub const READ_ONLY: u32 = 3;
    /// To be rebuilt from the block map.
    pub const FORCE_REBUILD: u32 = 4;
    /// Saved before all slabs had their journals applied.
    pub const RECOVERING: u32 = 5;
}

/// Entries in a block map page.
pub const SLOTS: u64 = 812;

/// A volume to look at: its medium, and where things are.
pub struct Volume<'a> {
    medium: &'a dyn Blocks,
    /// The number that all metadata carries.
    pub nonce: u64,
    /// What to subtract from a PBN to get a block of the medium.
    pub bio_offset: u64,
    /// The PBN of the super block.
    pub data_start: u64,
    /// See [`state`].
    pub state: u32,
    /// What an upgraded volume requires of its readers.
    pub required: Option<u32>,
    /// Recoveries that were completed.
    pub recoveries: u64,
    /// The size that users see.
    pub logical_blocks: u64,
    /// The size of the medium, as recorded.
    pub physical_blocks: u64,
    /// Blocks of a slab.
    pub slab_blocks: u64,
    /// Data blocks of a slab.
    pub data_blocks: u64,
    /// Blocks reserved for the counters of a slab.
    pub reference_blocks: u64,
    /// Blocks of a slab's journal.
    pub slab_journal_blocks: u64,
    /// Blocks of a slab's algorithm map, behind the journal; 0 if there is none.
    pub map_blocks: u64,
    /// The first block of slab 0.
    pub first_block: u64,
    /// The number of slabs.
    pub slabs: u64,
    /// How many zones wrote the summary.
    pub zone_count: u64,
    /// The first block of the recovery journal.
    pub journal_origin: u64,
    /// Its size.
    pub journal_blocks: u64,
    /// Where the journal is to start.
    pub journal_start: u64,
    /// Mapped logical blocks, as recorded by the last save.
    pub logical_blocks_used: u64,
    /// Block map pages in slabs, as recorded by the last save.
    pub block_map_data_blocks: u64,
    /// The first block of the slab summary.
    pub summary_origin: u64,
    /// The first root page.
    pub root_origin: u64,
    /// The number of root pages.
    pub root_count: u64,
}

impl<'a> Volume<'a> {
    /// Reads and checks the geometry block and the super block.
    pub fn open(medium: &'a dyn Blocks, findings: &mut Findings) -> Option<Self> {
        let block = medium.block(0);
        let geometry = &block[..];
        let check = |ok: bool, what: &str, findings: &mut Findings| {
            if !ok {
                findings.add(format!("geometry or super block: {what}"));
            }
        };
        if geometry[..8] != *b"dmvdo001" {
            findings.add("there is no volume: block 0 has no magic number".to_string());
            return None;
        }
        let new = u32_at(geometry, 12) == 5;
        let (regions, crc_at, size) = if new { (64, 97, 101) } else { (56, 89, 93) };
        let header = (
            u32_at(geometry, 8),
            u32_at(geometry, 12),
            u32_at(geometry, 16),
            u64_at(geometry, 20),
        );
        check(
            header == (5, if new { 5 } else { 4 }, 0, size),
            "geometry header",
            findings,
        );
        check(
            u32_at(geometry, crc_at) == crc32(&geometry[..crc_at]),
            "geometry checksum",
            findings,
        );
        let nonce = u64_at(geometry, 32);
        let bio_offset = if new { u64_at(geometry, 56) } else { 0 };
        let data_start = u64_at(geometry, regions + 16);

        let block = medium.block(data_start.wrapping_sub(bio_offset));
        let sb = &block[..438];
        check(
            u32_at(sb, 434) == crc32(&sb[..434]),
            "super block checksum",
            findings,
        );
        let depot_version = match u32_at(sb, 293) {
            3 => 3,
            _ => 2,
        };
        for (at, id, major, size, name) in [
            (0, 0, 12, 418, "super block header"),
            (108, 1, 3, 117, "layout header"),
            (245, 2, 7, 24, "recovery journal header"),
            (289, 3, depot_version, 73, "slab depot header"),
            (382, 4, 2, 32, "block map header"),
        ] {
            let found = (
                u32_at(sb, at),
                u32_at(sb, at + 4),
                u32_at(sb, at + 8),
                u64_at(sb, at + 12),
            );
            check(found == (id, major, 0, size), name, findings);
        }
        let required = (u32_at(sb, 28) == 1).then(|| u32_at(sb, 20));
        check(
            u32_at(sb, 24) == 67 && u32_at(sb, 28) <= 1,
            "volume version",
            findings,
        );
        check(
            (u32_at(sb, 32), u32_at(sb, 36)) == (41, 0),
            "component version",
            findings,
        );
        check(
            required.is_some() || u32_at(sb, 20) == u32_at(geometry, 28),
            "release word differs from the geometry's",
            findings,
        );
        // LZ4, formats by block, slab maps, deflate, zstd; an upgraded volume has the second.
        let known = required.is_none_or(|flags| flags & !0x0303_0001 == 0 && flags & 0x1_0000 != 0);
        check(known, "required flags", findings);
        let has_map = required.is_some_and(|flags| flags & 0x2_0000 != 0);
        check(
            has_map == (depot_version == 3),
            "the flags and the slab depot disagree about maps",
            findings,
        );
        check(u64_at(sb, 100) == nonce, "nonce", findings);
        check(
            u64_at(sb, 402) == 1 && u64_at(sb, 410) == 0,
            "flat page numbers",
            findings,
        );
        check(sb[144] == 4, "partition count", findings);

        let mut partitions = [(0, 0); 4];
        for index in 0..4 {
            let at = 145 + 25 * index;
            if let Some(partition) = partitions.get_mut(usize::from(sb[at])) {
                *partition = (u64_at(sb, at + 1), u64_at(sb, at + 17));
            }
        }
        let physical_blocks = u64_at(sb, 68);
        let total: u64 = partitions.iter().map(|(_, count)| count).sum();
        check(
            data_start + 1 + total == physical_blocks,
            "the partitions do not fill the volume",
            findings,
        );
        check(
            partitions
                .iter()
                .all(|(offset, count)| *offset > data_start && *count > 0),
            "partitions",
            findings,
        );

        let [(map_origin, _), (depot_origin, depot_blocks), (journal_origin, journal_partition), (summary_origin, _)] =
            partitions;
        let slab_blocks = u64_at(sb, 309).max(1);
        let first_block = u64_at(sb, 365);
        let slabs = u64_at(sb, 373).saturating_sub(first_block) / slab_blocks;
        let journal_blocks = u64_at(sb, 84);
        check(
            slab_blocks == u64_at(sb, 76) && slab_blocks.is_power_of_two(),
            "slab size",
            findings,
        );
        check(
            first_block == depot_origin && slabs == depot_blocks / slab_blocks,
            "slabs",
            findings,
        );
        check(
            journal_blocks == journal_partition && journal_blocks.is_power_of_two(),
            "journal size",
            findings,
        );
        check(u64_at(sb, 418) == map_origin, "root origin", findings);
        let volume = Self {
            medium,
            nonce,
            bio_offset,
            data_start,
            state: u32_at(sb, 40),
            required,
            recoveries: u64_at(sb, 44),
            logical_blocks: u64_at(sb, 60),
            physical_blocks,
            slab_blocks,
            data_blocks: u64_at(sb, 317),
            reference_blocks: u64_at(sb, 325),
            slab_journal_blocks: u64_at(sb, 333),
            map_blocks: if has_map {
                u64_at(sb, 317).div_ceil(8064)
            } else {
                0
            },
            first_block,
            slabs,
            zone_count: u64::from(sb[381]),
            journal_origin,
            journal_blocks,
            journal_start: u64_at(sb, 265),
            logical_blocks_used: u64_at(sb, 273),
            block_map_data_blocks: u64_at(sb, 281),
            summary_origin,
            root_origin: map_origin,
            root_count: u64_at(sb, 426),
        };
        let parts = volume.data_blocks
            + volume.reference_blocks
            + volume.slab_journal_blocks
            + volume.map_blocks;
        check(
            parts <= slab_blocks,
            "the parts of a slab exceed it",
            findings,
        );
        check(volume.zone_count <= 16, "zone count", findings);
        findings.is_empty().then_some(volume)
    }

    /// The contents of a block of the volume.
    pub fn block(&self, pbn: u64) -> Arc<Block> {
        self.medium.block(pbn.wrapping_sub(self.bio_offset))
    }

    /// The slab and the number in it of a data block; `None` if `pbn` is no data block.
    pub fn data_block(&self, pbn: u64) -> Option<(u64, u64)> {
        let offset = pbn.checked_sub(self.first_block)?;
        let (slab, sbn) = (offset / self.slab_blocks, offset % self.slab_blocks);
        (slab < self.slabs && sbn < self.data_blocks).then_some((slab, sbn))
    }

    /// Whether compressed blocks of that version and stream format may be on the volume.
    pub fn admits(&self, version: u32, format: u8) -> bool {
        let Some(required) = self.required else {
            return version == 1;
        };
        let flag = match format {
            super::decode::LZ4 => 1 << 0,
            super::decode::DEFLATE => 1 << 24,
            _ => 1 << 25,
        };
        // LZ4 alone keeps the version that every reader knows.
        required & flag != 0 && (version == 1) == (format == super::decode::LZ4)
    }

    /// The first block of a slab.
    pub fn slab_origin(&self, slab: u64) -> u64 {
        self.first_block + slab * self.slab_blocks
    }

    /// What a block of the medium belongs to, in words.
    pub fn name(&self, block: u64) -> String {
        let pbn = block + self.bio_offset;
        let within =
            |origin: u64, count: u64| pbn.checked_sub(origin).filter(|offset| *offset < count);
        if block == 0 {
            return "geometry".to_string();
        }
        if pbn == self.data_start {
            return "super block".to_string();
        }
        if let Some(offset) = within(self.journal_origin, self.journal_blocks) {
            return format!("recovery journal {offset}");
        }
        if let Some(offset) = within(self.summary_origin, 64) {
            return format!("slab summary {offset}");
        }
        if let Some(offset) = within(self.root_origin, self.root_count) {
            return format!("root page {offset}");
        }
        let Some(offset) = within(self.first_block, self.slabs * self.slab_blocks) else {
            return "unused".to_string();
        };
        let (slab, sbn) = (offset / self.slab_blocks, offset % self.slab_blocks);
        let journal = self.data_blocks + self.reference_blocks;
        if sbn < self.data_blocks {
            format!("slab {slab} data {sbn}")
        } else if sbn < journal {
            format!("slab {slab} counters {}", sbn - self.data_blocks)
        } else if sbn < journal + self.slab_journal_blocks {
            format!("slab {slab} journal {}", sbn - journal)
        } else {
            let map = journal + self.slab_journal_blocks;
            format!("slab {slab} algorithm map {}", sbn - map)
        }
    }
}
