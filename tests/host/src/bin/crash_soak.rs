// SPDX-License-Identifier: GPL-2.0

//! Power failures at every moment of many lives, each recovered by the engine: `crash_soak [--start N] [--seeds N] [--seconds N]
//! [--failures N] [--every N] [--short] [--conversions]`.
//!
//! Power fails at every moment, or with `--every N` at one in about N/2 that the seed picks, for more lives in the same time. `--short`
//! leaves the long lives out. With `--conversions` every start upgrades or downgrades the volume, which compresses, and has blocks of
//! dm-vdo's unmerged kind whenever it was saved. Goes on after a failure, until there were as many as `--failures` says. `RVDO_SIM_SEED=N crash_soak` prints everything about one life.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rvdo_host::sim::content::DataMix;
use rvdo_host::sim::crash::{live_all, Failure, Plan, Tally};

/// Operations in each part of a short life, at most.
const SHORT: u64 = 400;

fn main() -> ExitCode {
    let (mut start, mut seeds, mut seconds, mut failures) = (0_u64, 1_000, u64::MAX, u64::MAX);
    let (mut every, mut short, mut conversions) = (1_u64, false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => {
                short = true;
                continue;
            }
            "--conversions" => {
                conversions = true;
                continue;
            }
            _ => {}
        }
        let value = words.next().and_then(|value| value.parse().ok());
        match (word.as_str(), value) {
            ("--start", Some(value)) => start = value,
            ("--seeds", Some(value)) => seeds = value,
            ("--seconds", Some(value)) => seconds = value,
            ("--failures", Some(value)) => failures = value,
            ("--every", Some(value)) => every = value,
            _ => {
                eprintln!(
                    "crash_soak: {word}: there are --start N, --seeds N, --seconds N, --failures N, --every N, --short, --conversions"
                );
                return ExitCode::from(2);
            }
        }
    }
    let plan = |rng: &mut _| {
        let mut plan = Plan::any(rng);
        plan.interval = plan.interval.max(every);
        if short && plan.workload.operations > SHORT {
            plan.workload.operations = SHORT;
            plan.interval = every;
        }
        if conversions {
            plan.conversions = 100;
            plan.foreign = 100;
            plan.starts = 3;
            plan.parameters.compression = true;
            plan.parameters.requests = plan.parameters.requests.max(32);
            plan.workload.data = DataMix::COMPRESSIBLE;
        }
        plan
    };
    let begin = Instant::now();
    let mut next_report = Duration::from_secs(60);
    let (mut tally, mut failed) = (Tally::default(), 0_u64);
    for seed in start..start.saturating_add(seeds) {
        if failed >= failures || begin.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        match live_all(seed..seed + 1, plan) {
            Ok(life) => tally.add(life),
            Err(Failure { error, tally: life }) => {
                failed += 1;
                tally.add(life);
                let last = error.lines().rev().take(3).collect::<Vec<_>>();
                let text = if std::env::var_os("RVDO_SIM_SEED").is_some() {
                    error.clone()
                } else {
                    last.into_iter().rev().collect::<Vec<_>>().join(" | ")
                };
                println!(
                    "seed {seed} FAILED after {} power failures in all: {text}",
                    tally.crashes
                );
            }
        }
        if begin.elapsed() > next_report {
            next_report = begin.elapsed() + Duration::from_secs(60);
            report(&tally, failed, begin.elapsed());
        }
    }
    report(&tally, failed, begin.elapsed());
    ExitCode::from(u8::from(failed > 0))
}

fn report(tally: &Tally, failed: u64, elapsed: Duration) {
    println!(
        "{} lives, {} power failures ({} during recoveries, {} recoveries with a failing disk, {} early saves), {} conversions, {:?} foreign blocks, {} requests, {failed} failed lives; {:.0} s, {:.0} power failures per second",
        tally.lives,
        tally.crashes,
        tally.nested,
        tally.faults,
        tally.early_saves,
        tally.conversions,
        tally.foreign,
        tally.requests,
        elapsed.as_secs_f64(),
        tally.crashes as f64 / elapsed.as_secs_f64().max(0.001)
    );
}
