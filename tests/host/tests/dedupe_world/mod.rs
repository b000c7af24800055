// SPDX-License-Identifier: GPL-2.0

//! Stand-ins for the depot: blocks that can be allocated, pinned and claimed, with an account of all of that.

#![allow(dead_code, reason = "every test binary uses a part of this")]

#[path = "../part_world/mod.rs"]
pub mod part_world;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rvdo_host::engine::pin::{Home, PinSource, SharedBlock};
use rvdo_host::engine::units::Pbn;

pub fn pbn(number: u64) -> Pbn {
    Pbn::new(number).unwrap()
}

/// What is known about a block that is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    pub holders: u32,
    pub is_exclusive: bool,
    pub claimed: u32,
}

struct State {
    next: u64,
    blocks: BTreeMap<u64, Use>,
    given_back: Vec<u64>,
}

/// The blocks.
#[derive(Clone)]
pub struct TestBlocks(Arc<Mutex<State>>);

/// References that a block can have.
pub const REFERENCES_MAX: u32 = 254;
/// The first block that can be allocated; user data is from here on.
pub const FIRST: u64 = 100;

impl Default for TestBlocks {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            next: FIRST,
            blocks: BTreeMap::new(),
            given_back: Vec::new(),
        })))
    }
}

impl TestBlocks {
    fn with<R>(&self, number: u64, f: impl FnOnce(&mut Use) -> R) -> R {
        f(self.0.lock().unwrap().blocks.entry(number).or_default())
    }

    /// Allocates the next block.
    pub fn allocate(&self) -> TestHome {
        let number = {
            let mut state = self.0.lock().unwrap();
            let number = state.next;
            state.next += 1;
            number
        };
        self.with(number, |block| {
            block.holders = 1;
            block.is_exclusive = true;
        });
        TestHome {
            pin: TestPin {
                blocks: self.clone(),
                number,
            },
        }
    }

    /// Claims every reference of a block.
    pub fn exhaust(&self, number: u64) {
        self.with(number, |block| block.claimed = REFERENCES_MAX);
    }

    pub fn use_of(&self, number: u64) -> Use {
        self.with(number, |block| *block)
    }

    /// Holders of all blocks.
    pub fn holders(&self) -> u32 {
        self.0
            .lock()
            .unwrap()
            .blocks
            .values()
            .map(|block| block.holders)
            .sum()
    }

    /// Blocks with claimed references, and how many.
    pub fn claimed(&self) -> Vec<(u64, u32)> {
        let state = self.0.lock().unwrap();
        let blocks = state.blocks.iter();
        blocks
            .filter(|(_, block)| block.claimed > 0)
            .map(|(number, block)| (*number, block.claimed))
            .collect()
    }

    /// Blocks that were allocated and not used.
    pub fn given_back(&self) -> Vec<u64> {
        let mut blocks = self.0.lock().unwrap().given_back.clone();
        blocks.sort_unstable();
        blocks
    }
}

/// A holder of a block.
pub struct TestPin {
    blocks: TestBlocks,
    number: u64,
}

impl Clone for TestPin {
    fn clone(&self) -> Self {
        self.blocks.with(self.number, |block| block.holders += 1);
        Self {
            blocks: self.blocks.clone(),
            number: self.number,
        }
    }
}

impl Drop for TestPin {
    fn drop(&mut self) {
        let is_unused = self.blocks.with(self.number, |block| {
            block.holders -= 1;
            block.is_exclusive = false;
            block.holders == 0 && block.claimed == 0
        });
        if is_unused {
            self.blocks.0.lock().unwrap().given_back.push(self.number);
        }
    }
}

impl SharedBlock for TestPin {
    fn pbn(&self) -> Pbn {
        pbn(self.number)
    }

    fn claim(&self) -> bool {
        self.blocks.with(self.number, |block| {
            assert!(!block.is_exclusive, "claimed before the data was there");
            let is_free = block.claimed < REFERENCES_MAX;
            block.claimed += u32::from(is_free);
            is_free
        })
    }
}

/// A block for a write.
pub struct TestHome {
    pin: TestPin,
}

impl Home for TestHome {
    type Pin = TestPin;

    fn pbn(&self) -> Pbn {
        self.pin.pbn()
    }

    fn into_pin(self) -> TestPin {
        self.pin
            .blocks
            .with(self.pin.number, |block| block.is_exclusive = false);
        self.pin
    }
}

impl PinSource for TestBlocks {
    type Pin = TestPin;

    fn is_data_block(&self, pbn: Pbn) -> bool {
        pbn.get() >= FIRST
    }

    fn pin_candidate(&self, pbn: Pbn) -> Option<TestPin> {
        let is_free = self.with(pbn.get(), |block| {
            let is_free = !block.is_exclusive && block.claimed < REFERENCES_MAX;
            block.holders += u32::from(is_free);
            is_free
        });
        is_free.then(|| TestPin {
            blocks: self.clone(),
            number: pbn.get(),
        })
    }
}
