// SPDX-License-Identifier: GPL-2.0

//! The block map: a walk from the roots.

use std::collections::{BTreeMap, HashMap};

use super::decode::{u32_at, u64_at, Mapping};
use super::volume::{Volume, SLOTS};
use super::Findings;

/// Changes that are in the recovery journal only, by page and slot.
pub type Overlay = BTreeMap<(u64, u64), Mapping>;

/// How often and as what a block is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// References as a whole block.
    pub whole: u64,
    /// References to fragments in it.
    pub fragments: u64,
    /// Uses as a block map page.
    pub pages: u64,
}

impl Usage {
    /// Whether anything refers to the block.
    pub fn is_used(&self) -> bool {
        self.whole + self.fragments + self.pages > 0
    }
}

/// What the block map says.
#[derive(Default)]
pub struct Forest {
    /// What every mapped logical block is mapped to.
    pub mappings: BTreeMap<u64, Mapping>,
    /// Every block in use.
    pub usage: HashMap<u64, Usage>,
    /// Pages that lie in slabs.
    pub pages: u64,
}

/// What a page turned out to be.
enum Page {
    /// Never written: all its entries are unmapped.
    Fresh,
    /// Written, with these entries.
    Entries(Vec<Mapping>),
}

impl Forest {
    /// Walks all trees, as they are once `overlay` is applied.
    pub fn walk(volume: &Volume<'_>, overlay: &Overlay, findings: &mut Findings) -> Self {
        let mut forest = Self::default();
        for root in 0..volume.root_count {
            forest.descend(
                volume,
                overlay,
                findings,
                volume.root_origin + root,
                root,
                4,
                0,
            );
        }
        forest
    }

    #[expect(clippy::too_many_arguments, reason = "the place in the walk")]
    fn descend(
        &mut self,
        volume: &Volume<'_>,
        overlay: &Overlay,
        findings: &mut Findings,
        pbn: u64,
        root: u64,
        level: u32,
        index: u64,
    ) {
        let mut changes = overlay.range((pbn, 0)..(pbn, SLOTS)).peekable();
        let mut entries = match read_page(volume, pbn, level, findings) {
            Page::Fresh if changes.peek().is_none() => return,
            Page::Fresh => vec![Mapping::default(); SLOTS as usize],
            Page::Entries(entries) => entries,
        };
        for ((_, slot), mapping) in changes {
            entries[*slot as usize] = *mapping;
        }
        for (slot, entry) in entries.into_iter().enumerate() {
            let place = index * SLOTS + slot as u64;
            if entry == Mapping::default() {
                continue;
            }
            let what = || format!("block map page {pbn} (root {root}, level {level}), slot {slot}");
            if !entry.is_valid() {
                findings.add(format!("{}: invalid entry {entry:?}", what()));
                continue;
            }
            if entry.pbn != 0 && volume.data_block(entry.pbn).is_none() {
                findings.add(format!("{}: {entry:?} is no data block", what()));
                continue;
            }
            if level > 0 {
                if entry.state != 1 || entry.pbn == 0 {
                    findings.add(format!("{}: {entry:?} is no page", what()));
                    continue;
                }
                let usage = self.usage.entry(entry.pbn).or_default();
                usage.pages += 1;
                self.pages += 1;
                if usage.pages > 1 {
                    findings.add(format!("{}: page {} is used twice", what(), entry.pbn));
                    continue;
                }
                self.descend(volume, overlay, findings, entry.pbn, root, level - 1, place);
            } else {
                self.map(volume, findings, root, place, entry);
            }
        }
    }

    fn map(
        &mut self,
        volume: &Volume<'_>,
        findings: &mut Findings,
        root: u64,
        place: u64,
        entry: Mapping,
    ) {
        let (leaf, slot) = (place / SLOTS, place % SLOTS);
        let lbn = (leaf * volume.root_count + root) * SLOTS + slot;
        if lbn >= volume.logical_blocks {
            findings.add(format!("lbn {lbn} is mapped to {entry:?} but past the end"));
        }
        self.mappings.insert(lbn, entry);
        if entry.pbn != 0 {
            let usage = self.usage.entry(entry.pbn).or_default();
            match entry.state {
                1 => usage.whole += 1,
                _ => usage.fragments += 1,
            }
        }
    }

    /// Checks that no block is used in two ways or too often.
    pub fn check_usage(&self, findings: &mut Findings) {
        for (pbn, usage) in &self.usage {
            let ways = [usage.whole, usage.fragments, usage.pages];
            if ways.iter().filter(|count| **count > 0).count() > 1 {
                findings.add(format!(
                    "block {pbn} is used in more than one way: {usage:?}"
                ));
            }
            if usage.whole + usage.fragments > 254 {
                findings.add(format!("block {pbn} has too many references: {usage:?}"));
            }
        }
    }
}

fn read_page(volume: &Volume<'_>, pbn: u64, level: u32, findings: &mut Findings) -> Page {
    let block = volume.block(pbn);
    let version = (u32_at(&block[..], 0), u32_at(&block[..], 4));
    let nonce = u64_at(&block[..], 8);
    if version != (4, 1) || block[32] == 0 || nonce != volume.nonce {
        if nonce == volume.nonce && version.0 == 4 && version != (4, 1) {
            findings.add(format!("block map page {pbn} has version {version:?}"));
        }
        return Page::Fresh;
    }
    if u64_at(&block[..], 16) != pbn {
        findings.add(format!(
            "block map page {pbn} (level {level}) thinks it is {}",
            u64_at(&block[..], 16)
        ));
        return Page::Fresh;
    }
    if block[32] != 1 || block[33] != 0 {
        findings.add(format!(
            "block map page {pbn}: bytes 32 and 33 are {:?}",
            &block[32..34]
        ));
    }
    let entries = (0..SLOTS as usize).map(|slot| Mapping::at(&block[..], 36 + 5 * slot));
    Page::Entries(entries.collect())
}
