// SPDX-License-Identifier: GPL-2.0

//! What was kept of volumes of the in-tree driver, see `tests/fixtures/README.md`.

use std::collections::BTreeMap;
use std::io::Read;

use rvdo_host::engine::format::block_map_entry::Mapping;
use rvdo_host::engine::format::block_map_page::{self, PageContents};
use rvdo_host::engine::format::block_map_tree::ROOT_LEVEL;
use rvdo_host::engine::format::recovery_journal::JournalHeader;
use rvdo_host::engine::format::recovery_journal_entry::BlockMapSlot;
use rvdo_host::engine::format::reference_block;
use rvdo_host::engine::format::slab_journal::{self, SlabJournalHeader};
use rvdo_host::engine::format::slab_summary::{self, SummaryEntry};
use rvdo_host::engine::format::{Geometry, PartitionId, SuperBlock};
use rvdo_host::engine::units::{Block, Pbn, SequenceNumber, SlabNumber};

pub const ZEROS: Block = [0; 4096];

pub fn unpack(fixture: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(fixture)
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

/// What was kept of a volume.
pub struct Fixture {
    pub blocks: BTreeMap<u64, Box<Block>>,
    pub geometry: Geometry,
    pub super_block: SuperBlock,
}

impl Fixture {
    pub fn load(fixture: &[u8]) -> Self {
        let bytes = unpack(fixture);
        let blocks: BTreeMap<u64, Box<Block>> = bytes
            .chunks_exact(8 + 4096)
            .map(|kept| {
                let (number, block) = kept.split_first_chunk().unwrap();
                (
                    u64::from_le_bytes(*number),
                    Box::new(block.try_into().unwrap()),
                )
            })
            .collect();
        let geometry = Geometry::decode(&blocks[&0]).unwrap();
        let super_block = SuperBlock::decode(&blocks[&geometry.data_region.start.get()]).unwrap();
        super_block.validate(&geometry).unwrap();
        Self {
            blocks,
            geometry,
            super_block,
        }
    }

    pub fn clean() -> Self {
        Self::load(include_bytes!("../../../fixtures/clean.blocks.gz"))
    }

    pub fn crashed() -> Self {
        Self::load(include_bytes!("../../../fixtures/crashed.blocks.gz"))
    }

    /// Blocks that were not kept were zero, or are none that a test asks for.
    pub fn block(&self, pbn: Pbn) -> &Block {
        self.blocks.get(&pbn.get()).map_or(&ZEROS, |block| block)
    }

    /// The blocks of a partition that are not zero.
    pub fn partition(&self, id: PartitionId) -> impl Iterator<Item = (u64, &Block)> {
        let partition = self.super_block.layout.partition(id).unwrap();
        let start = partition.start.get();
        self.blocks
            .range(start..partition.end())
            .map(move |(pbn, block)| (pbn - start, &**block))
    }

    /// Every block of the recovery journal that is of this epoch, by its sequence.
    pub fn journal(&self) -> BTreeMap<SequenceNumber, (JournalHeader, &Block)> {
        let size = self.super_block.config.recovery_journal_size;
        self.partition(PartitionId::RecoveryJournal)
            .filter_map(|(position, block)| {
                let header = JournalHeader::decode(block).unwrap();
                let count = self.super_block.recovery_count();
                header
                    .check(self.geometry.nonce, count, position, size)
                    .ok()
                    .map(|()| (header.sequence, (header, block)))
            })
            .collect()
    }

    /// The pages of the map that are in slabs, and all entries of the leaves.
    pub fn map(&self) -> (Vec<Pbn>, BTreeMap<BlockMapSlot, Mapping>) {
        let state = self.super_block.block_map;
        let mut pages = Vec::new();
        let mut entries = BTreeMap::new();
        let mut todo: Vec<(Pbn, usize)> = (0..state.root_count)
            .map(|root| (state.root_origin.checked_add(root).unwrap(), ROOT_LEVEL))
            .collect();
        while let Some((page, level)) = todo.pop() {
            if level < ROOT_LEVEL {
                pages.push(page);
            }
            let block = self.block(page);
            match block_map_page::classify(block, self.geometry.nonce, page).unwrap() {
                PageContents::Fresh => continue,
                PageContents::Valid => {}
            }
            for (slot, mapping) in block_map_page::entries(block) {
                if level == 0 {
                    assert!(mapping.is_valid());
                    entries.insert(BlockMapSlot { page, slot }, mapping);
                } else {
                    assert!(mapping.is_valid_interior());
                    if mapping.is_mapped() {
                        todo.push((mapping.pbn, level - 1));
                    }
                }
            }
        }
        (pages, entries)
    }

    pub fn summary_entry(&self, slab: SlabNumber) -> SummaryEntry {
        let zone_count = self.super_block.slab_depot.zone_count;
        let copy = slab_summary::authoritative_copy(slab, zone_count);
        let (block, index) = slab_summary::locate(copy, slab).unwrap();
        let summary = self
            .super_block
            .layout
            .partition(PartitionId::SlabSummary)
            .unwrap();
        let pbn = summary.block(block as u64).unwrap();
        slab_summary::entry(self.block(pbn), index).unwrap()
    }

    pub fn slabs(&self) -> impl Iterator<Item = (SlabNumber, Pbn, SummaryEntry)> + '_ {
        let depot = self.super_block.slab_depot;
        (0..depot.slab_count()).map(move |number| {
            let slab = SlabNumber::new(number);
            (
                slab,
                depot.slab_start(slab).unwrap(),
                self.summary_entry(slab),
            )
        })
    }

    pub fn counters(&self, slab_start: Pbn) -> Vec<u8> {
        let config = self.super_block.slab_depot.slab_config;
        let origin = config.reference_origin(slab_start).unwrap();
        let mut counters = vec![0; config.data_blocks as usize];
        for (index, counters) in counters.chunks_mut(4032).enumerate() {
            let block = self.block(origin.checked_add(index as u64).unwrap());
            reference_block::decode(block, counters);
        }
        counters
    }

    /// The blocks of a slab's journal that were ever written, in the order of their sequence.
    pub fn slab_journal(&self, slab_start: Pbn) -> Vec<(SlabJournalHeader, &Block)> {
        let config = self.super_block.slab_depot.slab_config;
        let origin = config.journal_origin(slab_start).unwrap();
        let mut found = Vec::new();
        for position in 0..config.slab_journal_blocks {
            let block = self.block(origin.checked_add(position).unwrap());
            if slab_journal::is_blank(block) {
                continue;
            }
            let header = SlabJournalHeader::decode(block).unwrap();
            header.check(self.geometry.nonce, header.sequence).unwrap();
            assert_eq!(header.sequence.get() % config.slab_journal_blocks, position);
            found.push((header, block));
        }
        found.sort_by_key(|(header, _)| header.sequence);
        found
    }
}
