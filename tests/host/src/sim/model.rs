// SPDX-License-Identifier: GPL-2.0

//! What each logical block may contain.
//!
//! For every block the model keeps the versions that a crash may still bring back, oldest first.
//! The last ones are what a reader may see. Two rules thin them out:
//!
//! * a flush (or a FUA write) that completes removes everything older than the newest version
//!   that was acknowledged before the flush was sent;
//! * a read shows which of several versions of undetermined order came out on top.
//!
//! Versions share a *group* if nobody knows their order: writes that were under way at the same
//! time, or a write that failed and may or may not have happened.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::image::{Block, BLOCK_SIZE};

/// A version of a block.
#[derive(Clone)]
struct Version {
    id: u64,
    group: u64,
    data: Arc<Block>,
    /// When it was acknowledged.
    acknowledged: Option<u64>,
    /// Whether a reader has seen it, so that later readers must not see an older one.
    seen: bool,
}

#[derive(Default)]
struct Cell {
    versions: Vec<Version>,
    /// Versions dropped while a read was under way, which may still have found them.
    retired: Vec<Version>,
    readers: u32,
    writers: u32,
}

/// What a volume did that it must not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A write under way.
#[derive(Debug)]
pub struct WriteToken {
    lbn: u64,
    id: u64,
}

/// A read under way.
#[derive(Debug)]
pub struct ReadToken {
    lbn: u64,
    /// The oldest version the reader may see.
    floor: u64,
    /// The newest version, if no write was under way when the read was sent.
    quiet: Option<u64>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteEnd {
    /// It was acknowledged.
    Done,
    /// It was acknowledged and had FUA set.
    DoneFua,
    /// It was refused: the old contents stay.
    Refused,
    /// It failed half-way: nobody knows.
    Unknown,
}

/// The model of a volume.
pub struct Model {
    cells: BTreeMap<u64, Cell>,
    zero: Arc<Block>,
    stamp: u64,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// A volume that reads as zeros.
    pub fn new() -> Self {
        Self {
            cells: BTreeMap::new(),
            zero: Arc::new([0; BLOCK_SIZE]),
            stamp: 0,
        }
    }

    fn stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    fn cell(&mut self, lbn: u64) -> &mut Cell {
        let zero = &self.zero;
        self.cells.entry(lbn).or_insert_with(|| Cell {
            versions: vec![Version {
                id: 0,
                group: 0,
                data: Arc::clone(zero),
                acknowledged: Some(0),
                seen: true,
            }],
            ..Cell::default()
        })
    }

    /// Whether the block was ever written or read.
    pub fn knows(&self, lbn: u64) -> bool {
        self.cells.contains_key(&lbn)
    }

    /// Whether a write of this block is under way.
    pub fn is_written(&self, lbn: u64) -> bool {
        self.cells.get(&lbn).is_some_and(|cell| cell.writers > 0)
    }

    /// Whether any request for this block is under way.
    pub fn is_busy(&self, lbn: u64) -> bool {
        let busy = |cell: &Cell| cell.writers > 0 || cell.readers > 0;
        self.cells.get(&lbn).is_some_and(busy)
    }

    /// The contents of the block, if only one version is possible.
    pub fn settled(&self, lbn: u64) -> Option<Arc<Block>> {
        let Some(cell) = self.cells.get(&lbn) else {
            return Some(Arc::clone(&self.zero));
        };
        let last = cell.versions.last()?;
        let alone = cell
            .versions
            .iter()
            .filter(|version| version.group == last.group)
            .count()
            == 1;
        (cell.writers == 0 && alone).then(|| Arc::clone(&last.data))
    }

    /// A write of `data` to `lbn` is sent. With `racing`, other writes of the block are under way.
    pub fn begin_write(&mut self, lbn: u64, data: Arc<Block>, racing: bool) -> WriteToken {
        let id = self.stamp();
        let cell = self.cell(lbn);
        assert!(
            racing || cell.writers == 0,
            "the workload races without saying so"
        );
        let group = match cell.versions.last() {
            Some(last) if cell.writers > 0 => last.group,
            _ => id,
        };
        cell.writers += 1;
        cell.versions.push(Version {
            id,
            group,
            data,
            acknowledged: None,
            seen: false,
        });
        WriteToken { lbn, id }
    }

    /// A write has ended.
    pub fn end_write(&mut self, token: WriteToken, end: WriteEnd) {
        let stamp = self.stamp();
        let cell = self.cell(token.lbn);
        cell.writers -= 1;
        let Some(index) = cell
            .versions
            .iter()
            .position(|version| version.id == token.id)
        else {
            return;
        };
        match end {
            WriteEnd::Done => cell.versions[index].acknowledged = Some(stamp),
            WriteEnd::DoneFua => {
                cell.versions[index].acknowledged = Some(stamp);
                cell.forget_before_group_of(index);
            }
            WriteEnd::Refused => {
                // Readers must not have seen it: it does not even become history.
                cell.versions.remove(index);
            }
            WriteEnd::Unknown => cell.join_previous(index),
        }
    }

    /// A read of `lbn` is sent.
    pub fn begin_read(&mut self, lbn: u64) -> ReadToken {
        let cell = self.cell(lbn);
        cell.readers += 1;
        let current = cell
            .versions
            .iter()
            .rev()
            .find(|version| version.acknowledged.is_some() || version.seen)
            .map_or(0, |version| version.group);
        let floor = cell
            .versions
            .iter()
            .find(|version| version.group == current)
            .map_or(0, |version| version.id);
        let newest = cell.versions.iter().map(|version| version.id).max();
        let quiet = newest.filter(|_| cell.writers == 0);
        ReadToken { lbn, floor, quiet }
    }

    /// A read has failed.
    pub fn abandon_read(&mut self, token: ReadToken) {
        self.cell(token.lbn).reader_left();
    }

    /// A read of the bytes in `range` of the block returned `data`.
    pub fn end_read(
        &mut self,
        token: ReadToken,
        range: std::ops::Range<usize>,
        data: &[u8],
    ) -> Result<(), Violation> {
        let lbn = token.lbn;
        let stamp = self.stamp();
        let cell = self.cell(lbn);
        let allowed = |version: &&Version| version.id >= token.floor;
        let matching = |version: &&Version| version.data[range.clone()] == *data;
        let in_place = cell
            .versions
            .iter()
            .filter(allowed)
            .filter(matching)
            .count();
        let in_retired = cell.retired.iter().filter(allowed).filter(matching).count();
        let result = if in_place + in_retired == 0 {
            let older = cell
                .versions
                .iter()
                .chain(&cell.retired)
                .any(|version| matching(&version));
            Err(Violation(format!(
                "lbn {lbn}, bytes {range:?}: read {}, which is {}; possible: {}",
                describe(data),
                if older {
                    "an older version"
                } else {
                    "no version of this block"
                },
                list(cell.versions.iter().filter(allowed), &range),
            )))
        } else {
            if in_place == 1 && in_retired == 0 && range.len() == BLOCK_SIZE {
                let index = cell
                    .versions
                    .iter()
                    .position(|v| allowed(&v) && matching(&v));
                let newest = cell.versions.iter().map(|version| version.id).max();
                let quiet = cell.writers == 0 && token.quiet == newest;
                cell.observe(index.expect("there is one"), quiet, stamp);
            }
            Ok(())
        };
        self.cell(lbn).reader_left();
        result
    }

    /// The same on a volume that may have lost what was not flushed: any version will do.
    pub fn end_read_after_loss(
        &mut self,
        token: ReadToken,
        range: std::ops::Range<usize>,
        data: &[u8],
    ) -> Result<(), Violation> {
        let any = ReadToken {
            floor: 0,
            quiet: None,
            ..token
        };
        self.end_read(any, range, data)
    }

    /// A flush is sent.
    pub fn begin_flush(&mut self) -> u64 {
        self.stamp()
    }

    /// The flush that was sent at `sent` has succeeded.
    pub fn end_flush(&mut self, sent: u64) {
        for cell in self.cells.values_mut() {
            if cell.versions.len() < 2 {
                continue;
            }
            let durable = cell
                .versions
                .iter()
                .rposition(|version| version.acknowledged.is_some_and(|at| at <= sent));
            if let Some(index) = durable {
                cell.forget_before_group_of(index);
            }
        }
    }

    /// The blocks that were ever written.
    pub fn lbns(&self) -> Vec<u64> {
        self.cells.keys().copied().collect()
    }

    /// Checks what `lbn` holds after a crash at this moment.
    pub fn check_crash(&self, lbn: u64, data: &Block) -> Result<(), Violation> {
        let Some(cell) = self.cells.get(&lbn) else {
            return if data[..] == self.zero[..] {
                Ok(())
            } else {
                Err(Violation(format!(
                    "lbn {lbn}: never written, but holds {}",
                    describe(data)
                )))
            };
        };
        if cell
            .versions
            .iter()
            .any(|version| version.data[..] == data[..])
        {
            return Ok(());
        }
        let was = cell
            .retired
            .iter()
            .any(|version| version.data[..] == data[..]);
        Err(Violation(format!(
            "lbn {lbn} after a crash: {}, which is {}; possible: {}",
            describe(data),
            if was {
                "older than the last flush"
            } else {
                "no version since the last flush"
            },
            list(cell.versions.iter(), &(0..BLOCK_SIZE)),
        )))
    }

    /// Checks what `lbn` holds when nothing is under way.
    pub fn check_current(&mut self, lbn: u64, data: &Block) -> Result<(), Violation> {
        let token = self.begin_read(lbn);
        self.end_read(token, 0..BLOCK_SIZE, data)
    }

    /// The volume comes back after a crash: requests under way are gone, any version may be the
    /// current one.
    pub fn crashed(&mut self) {
        for cell in self.cells.values_mut() {
            cell.retired.clear();
            cell.readers = 0;
            cell.writers = 0;
            let group = cell.versions.last().map_or(0, |version| version.group);
            for version in &mut cell.versions {
                version.group = group;
                version.acknowledged = Some(0);
                version.seen = false;
            }
        }
    }
}

impl Cell {
    fn reader_left(&mut self) {
        self.readers -= 1;
        if self.readers == 0 {
            self.retired.clear();
        }
    }

    fn forget_before_group_of(&mut self, index: usize) {
        let group = self.versions[index].group;
        let start = self
            .versions
            .iter()
            .position(|version| version.group == group)
            .unwrap_or(0);
        let gone = self.versions.drain(..start);
        if self.readers > 0 {
            self.retired.extend(gone);
        }
    }

    /// The version at `index` may not have happened: its order with the one before is open, and
    /// with those that were under way at the same time anyway.
    fn join_previous(&mut self, index: usize) {
        let group = self.versions[index].group;
        let first = self
            .versions
            .iter()
            .position(|version| version.group == group)
            .unwrap_or(index);
        let Some(previous) = first
            .checked_sub(1)
            .map(|previous| self.versions[previous].group)
        else {
            return;
        };
        for version in &mut self.versions {
            if version.group == group {
                version.group = previous;
            }
        }
    }

    /// A reader found exactly the version at `index`, at `stamp`. With `quiet`, no write was under
    /// way at any time while it read.
    fn observe(&mut self, index: usize, quiet: bool, stamp: u64) {
        self.versions[index].seen = true;
        let group = self.versions[index].group;
        let last = self.versions.last().map_or(0, |version| version.group);
        let members = self
            .versions
            .iter()
            .filter(|version| version.group == group)
            .count();
        if quiet && group == last && members > 1 {
            // This is the last one of its group.
            let mut version = self.versions.remove(index);
            version.acknowledged.get_or_insert(stamp);
            version.group = stamp;
            version.id = stamp;
            self.versions.push(version);
        }
    }
}

/// Says what bytes look like, in a few characters.
pub fn describe(data: &[u8]) -> String {
    if data.iter().all(|byte| *byte == 0) {
        return "zeros".to_string();
    }
    let head: Vec<String> = data
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let tail: Vec<String> = data
        .iter()
        .rev()
        .take(4)
        .rev()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}..{}", head.concat(), tail.concat())
}

fn list<'a>(versions: impl Iterator<Item = &'a Version>, range: &std::ops::Range<usize>) -> String {
    let mut words: Vec<String> = versions
        .map(|version| {
            let state = if version.acknowledged.is_some() {
                "acknowledged"
            } else {
                "under way"
            };
            format!("{} ({state})", describe(&version.data[range.clone()]))
        })
        .collect();
    let count = words.len();
    words.truncate(4);
    if count > words.len() {
        words.push(format!("{} more", count - words.len()));
    }
    words.join(", ")
}
