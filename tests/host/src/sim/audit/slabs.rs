// SPDX-License-Identifier: GPL-2.0

//! Slabs: summary, reference counters and slab journals, brought up to date as a load or a
//! recovery would do it.

use super::decode::{point, show, u16_at, u64_at, CompressedBlock};
use super::journal::Half;
use super::volume::Volume;
use super::Findings;

const PER_SECTOR: u64 = 504;
/// Entries of a slab journal block that holds changes of data blocks only.
const ENTRIES_DATA: u64 = 1353;
/// Entries of one that holds block map increments, too.
const ENTRIES_FULL: u64 = 1299;

/// Codes in a sector of an algorithm map.
const CODES_PER_SECTOR: u64 = 1008;
/// The code of a block of which only the block itself says what it is.
pub const UNKNOWN_CODE: u8 = 15;

/// A slab's entry in the summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Where the next block of the slab journal goes, modulo its size.
    pub tail_offset: u64,
    /// Roughly how much is free.
    pub hint: u64,
    /// Whether there are counters on the medium.
    pub loaded: bool,
    /// Whether the slab journal has something that the counters have not.
    pub dirty: bool,
}

/// A change in a slab journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlabEntry {
    point: u64,
    sbn: u64,
    increment: bool,
    block_map: bool,
    /// What kind of block gets a reference, in a slab with a map.
    code: u8,
}

/// What a slab says of its blocks.
pub struct Contents {
    /// References to each.
    pub counters: Vec<u8>,
    /// What kind of block each is, if the slab has a map.
    pub codes: Option<Vec<u8>>,
}

/// A slab as it is found.
pub struct Slab<'a, 'b> {
    volume: &'b Volume<'a>,
    number: u64,
    /// What the summary says.
    pub summary: Summary,
    counters: Vec<u8>,
    /// The commit point of each sector of counters.
    commits: Vec<u64>,
    codes: Vec<u8>,
    /// The commit point of each sector of codes.
    code_commits: Vec<u64>,
    /// The oldest and the next block of the journal.
    head: u64,
    tail: u64,
    /// The newest change in the journal, as a point of the recovery journal.
    recovery_point: Option<u64>,
    entries: Vec<SlabEntry>,
    /// By journal block: its sequence, its recovery point and the number of entries before its
    /// last one, for the comparison with the recovery journal.
    blocks: Vec<(u64, usize)>,
}

/// The authoritative summary entry of a slab.
pub fn summary(volume: &Volume<'_>, slab: u64) -> Summary {
    let copy = if volume.zone_count > 1 {
        slab % volume.zone_count
    } else {
        0
    };
    summary_in_copy(volume, copy, slab)
}

/// The entry of a slab in one of the 16 copies of the summary.
pub fn summary_in_copy(volume: &Volume<'_>, copy: u64, slab: u64) -> Summary {
    let block = volume.block(volume.summary_origin + 4 * copy + slab / 2048);
    let at = 2 * (slab % 2048) as usize;
    Summary {
        tail_offset: u64::from(block[at]),
        hint: u64::from(block[at + 1] & 0x3f),
        loaded: block[at + 1] & 0x40 != 0,
        dirty: block[at + 1] & 0x80 != 0,
    }
}

/// The hint for a number of free blocks.
pub fn hint(volume: &Volume<'_>, free: u64) -> u64 {
    let shift = volume.slab_blocks.trailing_zeros().saturating_sub(6);
    if free == 0 {
        0
    } else {
        (free >> shift).max(1)
    }
}

impl<'a, 'b> Slab<'a, 'b> {
    /// Reads a slab: its counters, and its journal if that was ever used.
    pub fn load(volume: &'b Volume<'a>, number: u64, findings: &mut Findings) -> Self {
        let mut slab = Self {
            volume,
            number,
            summary: summary(volume, number),
            counters: vec![0; volume.data_blocks as usize],
            commits: vec![0; volume.data_blocks.div_ceil(PER_SECTOR) as usize],
            codes: vec![0; volume.data_blocks as usize],
            code_commits: vec![0; volume.data_blocks.div_ceil(CODES_PER_SECTOR) as usize],
            head: 1,
            tail: 1,
            recovery_point: None,
            entries: Vec::new(),
            blocks: Vec::new(),
        };
        if slab.summary.loaded {
            slab.read_counters();
            slab.read_codes();
        }
        if slab.summary.tail_offset != 0 || slab.summary.loaded || slab.summary.dirty {
            slab.read_journal(findings);
        }
        slab
    }

    fn read_counters(&mut self) {
        let origin = self.volume.slab_origin(self.number) + self.volume.data_blocks;
        for (sector, counters) in self.counters.chunks_mut(PER_SECTOR as usize).enumerate() {
            let block = self.volume.block(origin + sector as u64 / 8);
            let at = sector % 8 * 512;
            self.commits[sector] = u64_at(&block[..], at);
            for (counter, stored) in counters.iter_mut().zip(&block[at + 8..at + 512]) {
                // A provisional reference means nothing on the medium.
                *counter = if *stored == 255 { 0 } else { *stored };
            }
        }
    }

    fn read_codes(&mut self) {
        let volume = self.volume;
        if volume.map_blocks == 0 {
            return;
        }
        let origin = volume.slab_origin(self.number)
            + volume.data_blocks
            + volume.reference_blocks
            + volume.slab_journal_blocks;
        for (sector, codes) in self.codes.chunks_mut(CODES_PER_SECTOR as usize).enumerate() {
            let block = volume.block(origin + sector as u64 / 8);
            let at = sector % 8 * 512;
            self.code_commits[sector] = u64_at(&block[..], at);
            for (index, code) in codes.iter_mut().enumerate() {
                *code = block[at + 8 + index / 2] >> (index % 2 * 4) & 15;
            }
        }
    }

    fn journal_block(&self, position: u64) -> std::sync::Arc<crate::sim::image::Block> {
        let volume = self.volume;
        let origin = volume.slab_origin(self.number) + volume.data_blocks + volume.reference_blocks;
        volume.block(origin + position)
    }

    /// Whether the type is that of the slab's journal, or that of the empty block with which another layout was left.
    fn is_journal_block(&self, block: &[u8; 4096]) -> bool {
        match (block[32], self.volume.map_blocks > 0) {
            (2, false) | (18, true) => true,
            (2, true) => u16_at(&block[..], 34) == 0,
            _ => false,
        }
    }

    fn read_journal(&mut self, findings: &mut Findings) {
        let size = self.volume.slab_journal_blocks;
        let number = self.number;
        let position = (self.summary.tail_offset + size - 1) % size;
        let tail = self.journal_block(position);
        if self.summary.tail_offset == 0 && tail.iter().all(|byte| *byte == 0) {
            // A rebuild wrote the counters and blanked the journal.
            return;
        }
        if u64_at(&tail[..], 24) != self.volume.nonce || !self.is_journal_block(&tail) {
            findings.add(format!(
                "slab {number}: the summary names journal block {position}, which is none"
            ));
            return;
        }
        let newest = u64_at(&tail[..], 8);
        if newest % size != position {
            findings.add(format!(
                "slab {number}: journal block {newest} lies at position {position}"
            ));
        }
        self.tail = newest + 1;
        self.recovery_point = Some(u64_at(&tail[..], 16));
        let recorded = u64_at(&tail[..], 0);
        self.head = if self.summary.dirty {
            recorded
        } else {
            self.tail
        };
        if recorded > newest || recorded == 0 || self.tail - self.head > size {
            findings.add(format!(
                "slab {number}: journal goes from {recorded} to {newest}"
            ));
            self.head = self.tail;
            return;
        }
        let mut last_point = 0;
        for sequence in self.head..self.tail {
            self.read_journal_block(sequence, &mut last_point, findings);
        }
    }

    fn read_journal_block(&mut self, sequence: u64, last_point: &mut u64, findings: &mut Findings) {
        let slab = self.number;
        let block = self.journal_block(sequence % self.volume.slab_journal_blocks);
        let coded = self.volume.map_blocks > 0;
        let full = block[33] != 0;
        let count = u64::from(u16_at(&block[..], 34));
        let limit = if full { ENTRIES_FULL } else { ENTRIES_DATA };
        let recovery_point = u64_at(&block[..], 16);
        let what = || format!("slab {slab}: journal block {sequence}");
        if u64_at(&block[..], 24) != self.volume.nonce
            || !self.is_journal_block(&block)
            || block[33] > u8::from(!coded)
            || u64_at(&block[..], 8) != sequence
            || count > limit
        {
            findings.add(format!("{}: not a valid block of this journal", what()));
            return;
        }
        if recovery_point <= *last_point && count > 0 {
            let (last, this) = (show(*last_point), show(recovery_point));
            findings.add(format!("{}: recovery point {this} after {last}", what()));
        }
        *last_point = recovery_point;
        for number in 0..count {
            let at = 36 + 3 * number as usize;
            let low = u64::from(block[at]) | u64::from(block[at + 1]) << 8;
            let increment = block[at + 2] & 0x80 != 0;
            let flag = |number: usize| block[36 + 3897 + number / 8] >> (number % 8) & 1 == 1;
            let (sbn, code, block_map) = if coded {
                let code = block[at + 2] >> 3 & 15;
                (
                    low | u64::from(block[at + 2] & 7) << 16,
                    if code == 14 { 0 } else { code },
                    code == 14,
                )
            } else {
                let sbn = low | u64::from(block[at + 2] & 0x7f) << 16;
                (sbn, 0, full && flag(number as usize))
            };
            let bad_code = code > 4 && code != UNKNOWN_CODE || code > 0 && !increment;
            if sbn >= self.volume.data_blocks || (block_map && !increment) || bad_code {
                findings.add(format!("{}: entry {number} changes block {sbn}", what()));
                continue;
            }
            self.entries.push(SlabEntry {
                point: point(sequence, number),
                sbn,
                increment,
                block_map,
                code,
            });
        }
        self.blocks.push((recovery_point, self.entries.len()));
    }

    /// Compares the journal with the changes in the recovery journal, which must be the same ones
    /// in the same order.
    pub fn compare(&self, halves: &[Half], findings: &mut Findings) {
        let mut start = 0;
        for (recovery_point, end) in &self.blocks {
            let entries = &self.entries[start..*end];
            start = *end;
            let known = halves.partition_point(|half| half.point <= *recovery_point);
            // The recovery journal may not reach back so far.
            let Some(first) = known.checked_sub(entries.len()) else {
                continue;
            };
            let Some(last) = halves[first..known].last() else {
                continue;
            };
            let same = entries
                .iter()
                .zip(&halves[first..known])
                .all(|(entry, half)| {
                    (entry.sbn, entry.increment, entry.block_map)
                        == (half.sbn, half.increment, half.block_map && half.increment)
                });
            if !same || last.point != *recovery_point {
                findings.add(format!(
                    "slab {}: the journal block up to {} differs from the recovery journal",
                    self.number,
                    show(*recovery_point)
                ));
            }
        }
    }

    /// Adds what only the recovery journal has, at the places where a recovery puts it.
    pub fn replay_recovery(&mut self, halves: &[Half], findings: &mut Findings) {
        let volume = self.volume;
        let (mut sequence, mut number, mut full) = (self.tail, 0, false);
        for half in halves {
            if self.recovery_point.is_some_and(|done| half.point <= done) {
                continue;
            }
            let block_map = half.block_map && half.increment;
            let limit = match full || block_map {
                true if self.volume.map_blocks == 0 => ENTRIES_FULL,
                _ => ENTRIES_DATA,
            };
            if number >= limit {
                (sequence, number, full) = (sequence + 1, 0, false);
            }
            full |= block_map;
            self.entries.push(SlabEntry {
                point: point(sequence, number),
                sbn: half.sbn,
                increment: half.increment,
                block_map,
                code: match half.compressed && half.increment {
                    true => code_of(volume, volume.slab_origin(self.number) + half.sbn),
                    false => 0,
                },
            });
            number += 1;
        }
        let blocks = sequence + u64::from(number > 0) - self.head;
        if blocks > self.volume.slab_journal_blocks {
            findings.add(format!(
                "slab {}: replay needs {blocks} journal blocks",
                self.number
            ));
        }
    }

    /// Applies the journal to the counters and codes and returns them.
    pub fn contents(mut self, findings: &mut Findings) -> Contents {
        let slab = self.number;
        let mut last = point(self.tail.saturating_sub(1), 0xffff);
        for entry in &self.entries {
            last = last.max(entry.point);
            let commit = self.code_commits[(entry.sbn / CODES_PER_SECTOR) as usize];
            if entry.increment && (entry.point > commit || commit == 0) {
                self.codes[entry.sbn as usize] = entry.code;
            }
            let commit = self.commits[(entry.sbn / PER_SECTOR) as usize];
            if entry.point <= commit && commit != 0 {
                continue;
            }
            let counter = &mut self.counters[entry.sbn as usize];
            let before = *counter;
            let after = match (entry.block_map, entry.increment) {
                (true, _) if before == 0 => Some(254),
                (false, true) if before < 254 => Some(before + 1),
                (false, false) if before > 0 => Some(before - 1),
                _ => None,
            };
            match after {
                Some(after) => *counter = after,
                None => findings.add(format!(
                    "slab {slab}: replay of {entry:?} (at {}) on a counter of {before}, commit point {}",
                    show(entry.point),
                    show(commit)
                )),
            }
        }
        if let Some(commit) = self.commits.iter().chain(&self.code_commits).copied().max() {
            if commit > last {
                findings.add(format!(
                    "slab {slab}: counters are at {}, beyond the journal's {}",
                    show(commit),
                    show(last)
                ));
            }
        }
        Contents {
            counters: self.counters,
            codes: (self.volume.map_blocks > 0).then_some(self.codes),
        }
    }

    /// Whether the slab's journal starts empty and its counters are what it says.
    pub fn is_clean(&self) -> bool {
        !self.summary.dirty
    }
}

/// What kind of compressed block `pbn` is, by its header.
pub fn code_of(volume: &Volume<'_>, pbn: u64) -> u8 {
    let block = volume.block(pbn);
    match CompressedBlock::read(&block) {
        Ok(read) => match (read.version, read.format) {
            (1, _) => 1,
            (_, 1) => 4,
            (_, 2) => 2,
            (_, 16) => 3,
            _ => UNKNOWN_CODE,
        },
        Err(_) => UNKNOWN_CODE,
    }
}
