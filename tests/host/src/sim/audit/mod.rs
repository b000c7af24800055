// SPDX-License-Identifier: GPL-2.0

//! An independent opinion about a volume.
//!
//! The auditor knows the disk format from its description only and shares no code with the
//! engine. It opens the medium of a saved volume, or does on paper what a recovery would do with
//! that of a crashed one, and then counts again: every reference that the block map makes against
//! the counters, every mapping against the contents of the block it leads to, every record of the
//! usage against the walk.

pub mod decode;
pub mod forest;
pub mod journal;
pub mod slabs;
pub mod volume;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::decode::{CompressedBlock, Mapping, LZ4, ZSTD};
use self::forest::{Forest, Overlay, Usage};
use self::journal::Journal;
use self::slabs::{Contents, Slab};
use self::volume::{state, Volume};
use super::image::{Block, Blocks, BLOCK_SIZE};

/// How many findings of one audit are kept.
const FINDINGS_MAX: usize = 20;

/// What is wrong, if anything.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<String>,
    more: usize,
}

impl Findings {
    /// Adds one.
    pub fn add(&mut self, finding: String) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(finding);
        } else {
            self.more += 1;
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them as text.
    pub fn into_result(self) -> Result<(), String> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut text = self.list.join("\n");
        if self.more > 0 {
            text += &format!("\n... and {} more", self.more);
        }
        Err(text)
    }
}

/// What an auditor insists on beyond what a reader must accept.
#[derive(Clone, Copy, Debug)]
pub struct Strictness {
    /// Unused space in compressed blocks is zero.
    pub zero_tails: bool,
    /// A saved volume has no slab that needs its journal replayed.
    pub clean_slabs: bool,
    /// Every compressed fragment in use is expanded, not only the headers checked.
    pub expand_fragments: bool,
    /// Algorithm maps know what kind of block every block is.
    pub known_codes: bool,
    /// There are no compressed blocks as dm-vdo's unmerged proposal has them, see [`super::foreign`].
    pub own_blocks: bool,
}

impl Strictness {
    /// What rvdo promises.
    pub const OURS: Self = Self {
        zero_tails: true,
        clean_slabs: true,
        expand_fragments: true,
        known_codes: true,
        own_blocks: true,
    };
    /// What rvdo promises of a volume that has blocks of others.
    pub const FOREIGN: Self = Self {
        own_blocks: false,
        ..Self::OURS
    };
    /// What every writer of the format promises.
    pub const FORMAT: Self = Self {
        zero_tails: false,
        clean_slabs: false,
        expand_fragments: true,
        known_codes: false,
        own_blocks: false,
    };
}

/// A volume that has been audited.
pub struct Audit<'a> {
    /// The volume.
    pub volume: Volume<'a>,
    /// Its block map, recovered if that was necessary.
    pub forest: Forest,
    /// Data blocks in use, block map pages among them.
    pub allocated: u64,
    /// Entries that a recovery would have replayed.
    pub replayed: u64,
    /// Compressed blocks in use, by stream format.
    pub compressed: BTreeMap<u8, u64>,
}

/// Audits a volume in any state that a load or a recovery starts from.
pub fn audit(medium: &dyn Blocks, strictness: Strictness) -> Result<Audit<'_>, String> {
    let mut findings = Findings::default();
    let Some(volume) = Volume::open(medium, &mut findings) else {
        findings.into_result()?;
        return Err("the volume cannot be opened".to_string());
    };
    let audit = match volume.state {
        state::NEW => new_volume(volume, &mut findings),
        state::CLEAN => saved_volume(volume, strictness, &mut findings),
        state::RECOVERING => {
            let unscrubbed = Strictness {
                clean_slabs: false,
                ..strictness
            };
            saved_volume(volume, unscrubbed, &mut findings)
        }
        // Nothing is written after the mode was entered: the volume is as if power had failed then.
        state::DIRTY | state::READ_ONLY => crashed_volume(volume, strictness, &mut findings),
        other => {
            return Err(format!("the volume is in state {other}"));
        }
    };
    findings.into_result().map(|()| audit)
}

fn new_volume<'a>(volume: Volume<'a>, findings: &mut Findings) -> Audit<'a> {
    let forest = Forest::walk(&volume, &Overlay::new(), findings);
    if !forest.mappings.is_empty() || forest.pages > 0 {
        findings.add("a new volume has mappings".to_string());
    }
    Audit {
        volume,
        forest,
        allocated: 0,
        replayed: 0,
        compressed: BTreeMap::new(),
    }
}

fn saved_volume<'a>(
    volume: Volume<'a>,
    strictness: Strictness,
    findings: &mut Findings,
) -> Audit<'a> {
    let journal = Journal::of_clean(&volume, findings);
    journal.check(&volume, findings);
    let forest = Forest::walk(&volume, &Overlay::new(), findings);
    let recorded = (volume.logical_blocks_used, volume.block_map_data_blocks);
    let counted = (forest.used(), forest.pages);
    if recorded != counted {
        findings.add(format!(
            "the super block counts {recorded:?} mapped blocks and pages; there are {counted:?}"
        ));
    }
    if journal.usage.is_some_and(|usage| usage != recorded) {
        findings.add(format!(
            "the super block counts {recorded:?}, the journal {:?}",
            journal.usage
        ));
    }
    let chain: BTreeMap<_, _> = journal
        .entries
        .iter()
        .map(|entry| ((entry.page, entry.slot), entry.mapping))
        .collect();
    for ((page, slot), mapping) in chain {
        let block = volume.block(page);
        let found = Mapping::at(&block[..], 36 + 5 * slot as usize);
        if found != mapping {
            findings.add(format!(
                "page {page} slot {slot} holds {found:?}, the journal ends with {mapping:?}"
            ));
        }
    }
    let allocated = check_slabs(&volume, &journal, &forest, strictness, findings);
    let compressed = check_data(&volume, &forest, strictness, findings);
    Audit {
        volume,
        forest,
        allocated,
        replayed: 0,
        compressed,
    }
}

fn crashed_volume<'a>(
    volume: Volume<'a>,
    strictness: Strictness,
    findings: &mut Findings,
) -> Audit<'a> {
    let journal = Journal::of_crashed(&volume, findings);
    journal.check(&volume, findings);
    let forest = Forest::walk(&volume, &journal.overlay(), findings);
    if let Some(usage) = journal.usage {
        if usage != (forest.used(), forest.pages) {
            let counted = (forest.used(), forest.pages);
            findings.add(format!(
                "the journal counts {usage:?} mapped blocks and pages; there are {counted:?}"
            ));
        }
    }
    let allocated = check_slabs(&volume, &journal, &forest, strictness, findings);
    let compressed = check_data(&volume, &forest, strictness, findings);
    Audit {
        replayed: journal.entries.len() as u64,
        volume,
        forest,
        allocated,
        compressed,
    }
}

/// Counts references again and compares. Returns how many blocks are in use.
fn check_slabs(
    volume: &Volume<'_>,
    journal: &Journal,
    forest: &Forest,
    strictness: Strictness,
    findings: &mut Findings,
) -> u64 {
    forest.check_usage(findings);
    let saved = [state::CLEAN, state::RECOVERING].contains(&volume.state);
    let all_halves = journal.halves(volume, journal.first);
    let needed_halves = journal.halves(volume, journal.slab_head);
    let mut expected = vec![BTreeMap::<u64, Usage>::new(); volume.slabs as usize];
    for (pbn, usage) in &forest.usage {
        if let Some((slab, sbn)) = volume.data_block(*pbn) {
            expected[slab as usize].insert(sbn, *usage);
        }
    }
    let mut allocated = 0;
    for number in 0..volume.slabs {
        let mut slab = Slab::load(volume, number, findings);
        slab.compare(all_halves.get(&number).map_or(&[], Vec::as_slice), findings);
        if !saved {
            slab.replay_recovery(
                needed_halves.get(&number).map_or(&[], Vec::as_slice),
                findings,
            );
        }
        if saved && strictness.clean_slabs && !slab.is_clean() {
            findings.add(format!("slab {number} of a saved volume is dirty"));
        }
        let (summary, clean) = (slab.summary, slab.is_clean());
        let Contents { counters, codes } = slab.contents(findings);
        let mut free = 0;
        for (sbn, counter) in counters.iter().enumerate() {
            let usage = expected[number as usize]
                .get(&(sbn as u64))
                .copied()
                .unwrap_or_default();
            let count = if usage.pages > 0 {
                254
            } else {
                usage.whole + usage.fragments
            };
            free += u64::from(*counter == 0);
            if count != u64::from(*counter) {
                findings.add(format!(
                    "slab {number} block {sbn} (pbn {}): counted {counter}, but used {count} times: {usage:?}",
                    volume.slab_origin(number) + sbn as u64
                ));
            }
        }
        allocated += volume.data_blocks - free;
        let used = expected[number as usize].iter();
        for (sbn, usage) in used.filter(|(_, usage)| usage.is_used()) {
            let Some(found) = codes.as_ref().map(|codes| codes[*sbn as usize]) else {
                break;
            };
            let pbn = volume.slab_origin(number) + sbn;
            let right = match usage.fragments {
                0 => 0,
                _ => slabs::code_of(volume, pbn),
            };
            let excused = found == slabs::UNKNOWN_CODE && !strictness.known_codes;
            if found != right && !excused {
                findings.add(format!(
                    "slab {number} block {sbn} (pbn {pbn}): the map has code {found}, the block is {right}: {usage:?}"
                ));
            }
        }
        if saved && clean && summary.hint != slabs::hint(volume, free) {
            findings.add(format!(
                "slab {number}: {free} blocks are free, the hint is {}",
                summary.hint
            ));
        }
    }
    allocated
}

/// Checks that every mapping leads to something that can be read.
fn check_data(
    volume: &Volume<'_>,
    forest: &Forest,
    strictness: Strictness,
    findings: &mut Findings,
) -> BTreeMap<u8, u64> {
    let mut formats = BTreeMap::new();
    let mut slots = BTreeMap::<u64, u16>::new();
    for mapping in forest.mappings.values().filter(|mapping| mapping.state > 1) {
        *slots.entry(mapping.pbn).or_default() |= 1 << (mapping.state - 2);
    }
    for (pbn, used) in slots {
        let block = volume.block(pbn);
        let compressed = match CompressedBlock::read(&block) {
            Ok(compressed) => compressed,
            Err(error) => {
                findings.add(format!("block {pbn} {error}"));
                continue;
            }
        };
        let (version, format) = (compressed.version, compressed.format);
        *formats.entry(format).or_default() += 1;
        let is_foreign = version == 2 && [LZ4, ZSTD].contains(&format);
        if !volume.admits(version, format) && (strictness.own_blocks || !is_foreign) {
            findings.add(format!(
                "compressed block {pbn} has version {version} and format {format}, the volume admits {:x?}",
                volume.required
            ));
        }
        if compressed.fragments.len() < 2 {
            findings.add(format!(
                "compressed block {pbn} has {} fragments",
                compressed.fragments.len()
            ));
        }
        if strictness.zero_tails && !compressed.tail_is_zero {
            findings.add(format!(
                "compressed block {pbn} has old bytes behind its fragments"
            ));
        }
        for slot in (0..14).filter(|slot| used >> slot & 1 == 1) {
            let readable = if strictness.expand_fragments {
                compressed.expand(slot).is_some()
            } else {
                slot < compressed.fragments.len()
            };
            if !readable {
                findings.add(format!(
                    "fragment {slot} of block {pbn} is in use but cannot be read"
                ));
            }
        }
    }
    formats
}

impl Forest {
    /// Mapped logical blocks.
    pub fn used(&self) -> u64 {
        self.mappings.len() as u64
    }
}

impl Audit<'_> {
    /// What a logical block contains.
    pub fn data(&self, lbn: u64) -> Result<Arc<Block>, String> {
        let mapping = self.forest.mappings.get(&lbn).copied().unwrap_or_default();
        if mapping.pbn == 0 {
            return Ok(Arc::new([0; BLOCK_SIZE]));
        }
        let block = self.volume.block(mapping.pbn);
        if mapping.state == 1 {
            return Ok(block);
        }
        CompressedBlock::read(&block)?
            .expand(usize::from(mapping.state) - 2)
            .map(Arc::new)
            .ok_or_else(|| format!("lbn {lbn}: {mapping:?} cannot be read"))
    }
}
