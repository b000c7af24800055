// SPDX-License-Identifier: GPL-2.0

//! Runs the simulation for many seeds: `soak [--start N] [--seeds N] [--ops N] [--seconds N] [--failures N]
//! [--faults]`.
//!
//! Goes on after a failure and prints one line for each, so that a night's run finds more than
//! one thing, until there were as many as `--failures` says. `RVDO_SIM_SEED` and the log belong to `--start N --seeds 1 --verbose`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rvdo_host::sim::scenario::{any_life, faulty_life};
use rvdo_host::sim::seeds::run_seed;

struct Options {
    start: u64,
    seeds: u64,
    operations: u64,
    seconds: u64,
    failures: usize,
    verbose: bool,
    faults: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        start: 0,
        seeds: 1_000,
        operations: 2_000,
        seconds: u64::MAX,
        failures: usize::MAX,
        verbose: false,
        faults: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a number"))?;
            value
                .parse::<u64>()
                .map_err(|error| format!("{word} {value}: {error}"))
        };
        match word.as_str() {
            "--start" => options.start = number()?,
            "--seeds" => options.seeds = number()?,
            "--ops" => options.operations = number()?,
            "--seconds" => options.seconds = number()?,
            "--failures" => options.failures = usize::try_from(number()?).unwrap_or(usize::MAX),
            "--verbose" => options.verbose = true,
            "--faults" => options.faults = true,
            _ => {
                return Err(format!(
                    "{word} is no option; there are --start, --seeds, --ops, --seconds, --failures, --faults, --verbose"
                ))
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(error) => {
            eprintln!("soak: {error}");
            return ExitCode::from(2);
        }
    };
    if !options.verbose {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let begin = Instant::now();
    let mut failures = BTreeMap::<u64, String>::new();
    let (mut seeds, mut requests, mut crashes, mut replayed, mut device) = (0_u64, 0, 0, 0, 0);
    for seed in options.start..options.start.saturating_add(options.seeds) {
        if begin.elapsed() > Duration::from_secs(options.seconds)
            || failures.len() >= options.failures
        {
            break;
        }
        seeds += 1;
        let life = if options.faults {
            faulty_life
        } else {
            any_life
        };
        match run_seed(seed, |sim| life(sim, options.operations)) {
            Ok(totals) => {
                requests += totals.requests;
                crashes += totals.crashes;
                replayed += totals.replayed;
                device += totals.device_operations;
            }
            Err(report) => {
                if options.verbose {
                    println!("{report}");
                }
                let lines = report
                    .lines()
                    .skip_while(|line| !line.starts_with("RVDO_SIM_SEED"));
                let error: Vec<&str> = lines.take(4).collect();
                println!(
                    "seed {seed} FAILED after {requests} requests and {crashes} power failures of seeds before: {}",
                    error.join("\n    ")
                );
                failures.insert(seed, error.join(" "));
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds, {} failed; {requests} requests ({:.0}/s), {device} device operations, \
         {crashes} power failures, {replayed} entries replayed, {seconds:.0} s",
        failures.len(),
        requests as f64 / seconds
    );
    ExitCode::from(u8::from(!failures.is_empty()))
}
