// SPDX-License-Identifier: GPL-2.0

//! Power failures at every moment of many lives, each recovered by the engine: `crash_soak [--start N] [--seeds N] [--seconds N]
//! [--failures N]`.
//!
//! Goes on after a failure, until there were as many as `--failures` says. `RVDO_SIM_SEED=N crash_soak` prints everything about one life.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use rvdo_host::sim::crash::{live_all, Plan, Tally};

fn main() -> ExitCode {
    let (mut start, mut seeds, mut seconds, mut failures) = (0_u64, 1_000, u64::MAX, u64::MAX);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|value| value.parse().ok());
        match (word.as_str(), value) {
            ("--start", Some(value)) => start = value,
            ("--seeds", Some(value)) => seeds = value,
            ("--seconds", Some(value)) => seconds = value,
            ("--failures", Some(value)) => failures = value,
            _ => {
                eprintln!(
                    "crash_soak: {word}: there are --start N, --seeds N, --seconds N, --failures N"
                );
                return ExitCode::from(2);
            }
        }
    }
    let begin = Instant::now();
    let (mut tally, mut failed) = (Tally::default(), 0_u64);
    for seed in start..start.saturating_add(seeds) {
        if failed >= failures || begin.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        match live_all(seed..seed + 1, Plan::any) {
            Ok(life) => tally.add(life),
            Err(error) => {
                failed += 1;
                let last = error.lines().rev().take(3).collect::<Vec<_>>();
                let text = if std::env::var_os("RVDO_SIM_SEED").is_some() {
                    error.clone()
                } else {
                    last.into_iter().rev().collect::<Vec<_>>().join(" | ")
                };
                println!("seed {seed} FAILED: {text}");
            }
        }
        if (seed - start + 1) % 100 == 0 {
            report(&tally, failed, begin.elapsed());
        }
    }
    report(&tally, failed, begin.elapsed());
    ExitCode::from(u8::from(failed > 0))
}

fn report(tally: &Tally, failed: u64, elapsed: Duration) {
    println!(
        "{} lives, {} power failures ({} during recoveries, {} recoveries with a failing disk, {} early saves), {} requests, {failed} failed lives; {:.0} power failures per second",
        tally.lives,
        tally.crashes,
        tally.nested,
        tally.faults,
        tally.early_saves,
        tally.requests,
        tally.crashes as f64 / elapsed.as_secs_f64().max(0.001)
    );
}
