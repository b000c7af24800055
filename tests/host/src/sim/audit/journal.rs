// SPDX-License-Identifier: GPL-2.0

//! The recovery journal, as somebody who recovers the volume would read it.

use std::collections::BTreeMap;

use super::decode::{point, u16_at, u32_at, u64_at, Mapping};
use super::forest::Overlay;
use super::volume::{Volume, SLOTS};
use super::Findings;

const PER_SECTOR: u64 = 31;
const PER_BLOCK: u64 = 217;

/// An entry of the recovery journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its block and its number in that, not expanded.
    pub sequence: u64,
    /// The number in the block.
    pub number: u64,
    /// Whether a block map page is added to the tree.
    pub grows_map: bool,
    /// The page that is changed.
    pub page: u64,
    /// The slot that is changed.
    pub slot: u64,
    /// What it will hold.
    pub mapping: Mapping,
    /// What it held.
    pub unmapping: Mapping,
}

/// A change of one reference counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Half {
    /// The expanded journal point.
    pub point: u64,
    /// The slab.
    pub slab: u64,
    /// The block in it.
    pub sbn: u64,
    /// Up or down.
    pub increment: bool,
    /// Whether the block becomes a block map page.
    pub block_map: bool,
    /// Whether a fragment in the block is meant.
    pub compressed: bool,
}

/// A valid block of the journal.
#[derive(Clone, Debug)]
struct JournalBlock {
    map_head: u64,
    slab_head: u64,
    used: u64,
    pages: u64,
    entries: Vec<Entry>,
    /// Whether the block has all the entries it can have and none is missing.
    full: bool,
}

/// The part of the journal that can be used.
#[derive(Default)]
pub struct Journal {
    /// All usable entries in order, in blocks without a gap.
    pub entries: Vec<Entry>,
    /// The sequence number of the first block of `entries`.
    pub first: u64,
    /// The oldest block the block map needs.
    pub map_head: u64,
    /// The oldest block the slab journals need.
    pub slab_head: u64,
    /// The largest sequence number of all.
    pub highest: u64,
    /// Mapped blocks and block map pages after the last entry, if the journal knows.
    pub usage: Option<(u64, u64)>,
}

impl Journal {
    /// Reads the journal of a crashed volume: what a recovery would replay.
    pub fn of_crashed(volume: &Volume<'_>, findings: &mut Findings) -> Self {
        let blocks = scan(volume, findings);
        let start = volume.journal_start;
        let map_head = blocks
            .values()
            .map(|block| block.map_head)
            .fold(start, u64::max);
        let slab_head = blocks
            .values()
            .map(|block| block.slab_head)
            .fold(start, u64::max);
        let highest = blocks.keys().copied().fold(start, u64::max);
        let mut journal = Self {
            first: map_head.min(slab_head),
            map_head,
            slab_head,
            highest,
            ..Self::default()
        };
        journal.take(&blocks, journal.first);
        journal
    }

    /// Reads the journal of a saved volume: what is left of the last epoch, for cross-checks.
    pub fn of_clean(volume: &Volume<'_>, findings: &mut Findings) -> Self {
        let blocks = scan(volume, findings);
        let tail = volume.journal_start;
        if let Some(newest) = blocks.keys().next_back() {
            if newest + 1 != tail {
                findings.add(format!(
                    "recovery journal: newest block is {newest}, but the tail is {tail}"
                ));
            }
        }
        let mut first = tail;
        while first > 0 && blocks.contains_key(&(first - 1)) {
            first -= 1;
        }
        if blocks.len() as u64 != tail - first {
            findings.add(format!(
                "recovery journal: blocks {first}..{tail} are not all that there is"
            ));
        }
        let mut journal = Self {
            first,
            map_head: tail,
            slab_head: tail,
            highest: tail.saturating_sub(1),
            ..Self::default()
        };
        // Blocks of a saved epoch need not be full: every suspend closes one.
        for block in blocks.range(first..).map(|(_, block)| block) {
            journal.entries.extend(&block.entries);
            journal.usage = Some(usage_after(block));
        }
        journal
    }

    fn take(&mut self, blocks: &BTreeMap<u64, JournalBlock>, from: u64) {
        let mut sequence = from;
        while let Some(block) = blocks.get(&sequence) {
            self.entries.extend(&block.entries);
            self.usage = Some(usage_after(block));
            if !block.full {
                break;
            }
            sequence += 1;
        }
    }

    /// The changes of the block map that may not be in its pages.
    pub fn overlay(&self) -> Overlay {
        let needed = self
            .entries
            .iter()
            .filter(|entry| entry.sequence >= self.map_head);
        needed
            .map(|entry| ((entry.page, entry.slot), entry.mapping))
            .collect()
    }

    /// The changes of counters by slab, in order, from block `from` on.
    pub fn halves(&self, volume: &Volume<'_>, from: u64) -> BTreeMap<u64, Vec<Half>> {
        let mut slabs = BTreeMap::<u64, Vec<Half>>::new();
        for entry in self.entries.iter().filter(|entry| entry.sequence >= from) {
            for (number, mapping, increment) in [
                (2 * entry.number, entry.mapping, true),
                (2 * entry.number + 1, entry.unmapping, false),
            ] {
                if let Some((slab, sbn)) = volume.data_block(mapping.pbn) {
                    slabs.entry(slab).or_default().push(Half {
                        point: point(entry.sequence, number),
                        slab,
                        sbn,
                        increment,
                        block_map: entry.grows_map,
                        compressed: !entry.grows_map && mapping.state > 1,
                    });
                }
            }
        }
        slabs
    }

    /// Checks that the entries make sense and follow from each other.
    pub fn check(&self, volume: &Volume<'_>, findings: &mut Findings) {
        let mut last = BTreeMap::<(u64, u64), Mapping>::new();
        for entry in &self.entries {
            let what = || format!("recovery journal entry {}:{}", entry.sequence, entry.number);
            let page_ok = volume.data_block(entry.page).is_some()
                || (volume.root_origin..volume.root_origin + volume.root_count)
                    .contains(&entry.page);
            let known =
                |mapping: &Mapping| mapping.pbn == 0 || volume.data_block(mapping.pbn).is_some();
            let growth_ok = !entry.grows_map
                || (entry.mapping.state == 1
                    && entry.mapping.pbn != 0
                    && entry.unmapping == Mapping::default());
            if !page_ok
                || entry.slot >= SLOTS
                || !entry.mapping.is_valid()
                || !entry.unmapping.is_valid()
                || !known(&entry.mapping)
                || !known(&entry.unmapping)
                || !growth_ok
            {
                findings.add(format!("{}: invalid: {entry:?}", what()));
            }
            if let Some(before) = last.insert((entry.page, entry.slot), entry.mapping) {
                if before != entry.unmapping {
                    findings.add(format!(
                        "{}: unmaps {:?}, but {before:?} was there",
                        what(),
                        entry.unmapping
                    ));
                }
            }
        }
    }
}

fn usage_after(block: &JournalBlock) -> (u64, u64) {
    let mut usage = (block.used, block.pages);
    for entry in &block.entries {
        if entry.grows_map {
            usage.1 += 1;
        } else {
            let used = usage.0 + u64::from(entry.mapping.is_mapped());
            usage.0 = used.saturating_sub(u64::from(entry.unmapping.is_mapped()));
        }
    }
    usage
}

/// All blocks of the current epoch, by sequence number.
fn scan(volume: &Volume<'_>, findings: &mut Findings) -> BTreeMap<u64, JournalBlock> {
    (0..volume.journal_blocks)
        .filter_map(|position| read_block(volume, position, findings))
        .collect()
}

fn read_block(
    volume: &Volume<'_>,
    position: u64,
    findings: &mut Findings,
) -> Option<(u64, JournalBlock)> {
    let block = volume.block(volume.journal_origin + position);
    let sequence = u64_at(&block[..], 16);
    let count = u64::from(u16_at(&block[..], 33));
    let (check, recovery) = (block[51], block[52]);
    if u64_at(&block[..], 24) != volume.nonce
        || recovery != volume.recoveries as u8
        || block[32] != 3
        || count > PER_BLOCK
        || sequence % volume.journal_blocks != position
    {
        return None;
    }
    let expected = ((sequence / volume.journal_blocks) & 0x7f) as u8 | 0x80;
    if check != expected {
        findings.add(format!(
            "recovery journal block {sequence}: check byte {check:#x}, not {expected:#x}"
        ));
    }
    let (map_head, slab_head) = (u64_at(&block[..], 0), u64_at(&block[..], 8));
    if map_head > sequence || slab_head > sequence {
        findings.add(format!(
            "recovery journal block {sequence}: heads {map_head} and {slab_head} are ahead"
        ));
    }
    let mut entries = Vec::new();
    let mut torn = false;
    'sectors: for (index, sector) in block.chunks_exact(512).enumerate().skip(1) {
        let wanted = count
            .saturating_sub(PER_SECTOR * (index as u64 - 1))
            .min(PER_SECTOR);
        if wanted == 0 {
            break;
        }
        let here = u64::from(sector[2]);
        if sector[0] != check || sector[1] != recovery || here > PER_SECTOR {
            torn = true;
            break 'sectors;
        }
        for number in 0..wanted.min(here) {
            let number_in_block = entries.len() as u64;
            entries.push(read_entry(
                &sector[3 + 16 * number as usize..],
                sequence,
                number_in_block,
            ));
        }
        if here < wanted {
            torn = true;
            break 'sectors;
        }
    }
    let full = !torn && count == PER_BLOCK;
    Some((
        sequence,
        JournalBlock {
            map_head,
            slab_head,
            used: u64_at(&block[..], 35),
            pages: u64_at(&block[..], 43),
            entries,
            full,
        },
    ))
}

fn read_entry(bytes: &[u8], sequence: u64, number: u64) -> Entry {
    let head = u16_at(bytes, 0);
    Entry {
        sequence,
        number,
        grows_map: head & 3 == 1,
        page: u64::from(head >> 12) << 32 | u64::from(u32_at(bytes, 2)),
        slot: u64::from(head >> 2) & 0x3ff,
        mapping: Mapping::at(bytes, 6),
        unmapping: Mapping::at(bytes, 11),
    }
}
