// SPDX-License-Identifier: GPL-2.0

//! The loop over seeds, and what a failure says.

use std::ops::Range;
use std::panic::{catch_unwind, AssertUnwindSafe};

use super::harness::Sim;

/// What runs did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Requests sent.
    pub requests: u64,
    /// Steps of executors.
    pub steps: u64,
    /// Device operations.
    pub device_operations: u64,
    /// Power failures tried.
    pub crashes: u64,
    /// Journal entries that recoveries after them replayed.
    pub replayed: u64,
}

impl Totals {
    pub(super) fn add(&mut self, other: Totals) {
        self.requests += other.requests;
        self.steps += other.steps;
        self.device_operations += other.device_operations;
        self.crashes += other.crashes;
        self.replayed += other.replayed;
    }
}

/// Runs a test for many seeds.
pub struct Seeds {
    seeds: Range<u64>,
}

impl Seeds {
    pub(super) fn new(seeds: Range<u64>) -> Self {
        Self { seeds }
    }

    /// Runs `test` for each seed and panics at the first one that fails.
    pub fn run(self, test: impl Fn(&mut Sim) -> Result<(), String>) -> Totals {
        let number = |name| {
            std::env::var(name)
                .ok()
                .and_then(|text| text.parse::<u64>().ok())
        };
        let seeds = match (number("RVDO_SIM_SEED"), number("RVDO_SIM_SEEDS")) {
            (Some(seed), _) => seed..seed + 1,
            (None, Some(count)) => self.seeds.start..self.seeds.start + count,
            (None, None) => self.seeds,
        };
        let mut totals = Totals::default();
        for seed in seeds {
            match run_seed(seed, &test) {
                Ok(run) => totals.add(run),
                Err(report) => panic!("{report}"),
            }
        }
        totals
    }
}

/// Runs `test` for one seed. The error says everything there is to say about a failure.
pub fn run_seed(
    seed: u64,
    test: impl Fn(&mut Sim) -> Result<(), String>,
) -> Result<Totals, String> {
    let mut sim = Sim::new(seed);
    let result = catch_unwind(AssertUnwindSafe(|| test(&mut sim)));
    let error = match result {
        Ok(Ok(())) => return Ok(sim.totals()),
        Ok(Err(error)) => error,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("panic: {}", text.unwrap_or("of unknown kind"))
        }
    };
    let report = format!("{}\nRVDO_SIM_SEED={seed}: {error}", sim.log_tail());
    // After a panic locks may be poisoned; dropping the world could panic again.
    std::mem::forget(sim);
    Err(report)
}
