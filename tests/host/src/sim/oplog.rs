// SPDX-License-Identifier: GPL-2.0

//! The last operations of a run, kept in a ring and put into words only when somebody asks.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

/// What happened to a block or to a logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A device read was issued.
    Read,
    /// A device write was issued, with PREFLUSH and FUA.
    Write(bool, bool),
    /// The preflush of a write is done; its data goes out.
    Preflushed,
    /// A device flush was issued.
    Flush,
    /// A device operation completed.
    Done,
    /// A device operation failed.
    Failed,
    /// A request was sent: what, and its length in bytes.
    Request(&'static str, usize),
    /// A request was answered.
    Answer(&'static str),
    /// The workload did something to the volume as a whole.
    Note(&'static str),
}

#[derive(Clone, Copy)]
struct Entry {
    time: u64,
    operation: u64,
    event: Event,
    /// A device block, or for requests a sector.
    place: u64,
}

/// Names a device block: what structure of the volume it belongs to.
pub type Namer = Arc<dyn Fn(u64) -> String + Send + Sync>;

struct Ring {
    entries: VecDeque<Entry>,
    limit: usize,
    namer: Option<Namer>,
}

/// The log, shared by all parts of a simulation.
#[derive(Clone)]
pub struct OpLog {
    ring: Arc<Mutex<Ring>>,
}

impl OpLog {
    /// A log that keeps the last `limit` events.
    pub fn new(limit: usize) -> Self {
        Self {
            ring: Arc::new(Mutex::new(Ring {
                entries: VecDeque::with_capacity(limit),
                limit,
                namer: None,
            })),
        }
    }

    /// Says what blocks are called from now on.
    pub fn name_blocks(&self, namer: Namer) {
        self.ring.lock().expect("no panic").namer = Some(namer);
    }

    /// Adds an event.
    pub fn add(&self, time: u64, operation: u64, event: Event, place: u64) {
        let mut ring = self.ring.lock().expect("no panic");
        if ring.entries.len() == ring.limit {
            ring.entries.pop_front();
        }
        ring.entries.push_back(Entry {
            time,
            operation,
            event,
            place,
        });
    }

    /// The last `count` events as text.
    pub fn tail(&self, count: usize) -> String {
        let ring = self.ring.lock().expect("no panic");
        let mut text = String::new();
        for entry in ring
            .entries
            .iter()
            .skip(ring.entries.len().saturating_sub(count))
        {
            let block = || match &ring.namer {
                Some(namer) => format!("{} ({})", entry.place, namer(entry.place)),
                None => entry.place.to_string(),
            };
            let words = match entry.event {
                Event::Read => format!("read  {}", block()),
                Event::Write(preflush, fua) => format!(
                    "write {}{}{}",
                    block(),
                    if preflush { " PREFLUSH" } else { "" },
                    if fua { " FUA" } else { "" }
                ),
                Event::Preflushed => "     preflushed".to_string(),
                Event::Flush => "flush".to_string(),
                Event::Done => "     done".to_string(),
                Event::Failed => "     FAILED".to_string(),
                Event::Request(what, bytes) => format!(
                    "  request: {what} lbn {}+{} sectors, {bytes} bytes",
                    entry.place / 8,
                    entry.place % 8
                ),
                Event::Answer(result) => format!("  answer: {result}"),
                Event::Note(note) => format!("--- {note}"),
            };
            let _ = writeln!(text, "{:>9} #{:<7} {words}", entry.time, entry.operation);
        }
        text
    }
}
