// SPDX-License-Identifier: GPL-2.0

//! Power fails after every single operation of the disk; the engine recovers.

use rvdo_host::sim::crash::{live_all, Plan};

/// What was flushed is there, whatever else was written since the last flush is old or new, and the metadata of the recovered
/// volume agree with each other in every detail.
#[test]
fn every_crash_is_recovered_from() {
    let tally = live_all(0..8, Plan::any).unwrap_or_else(|failure| panic!("{failure}"));
    println!("{tally:?}");
    assert!(tally.crashes > 8_000, "{tally:?}");
    assert!(tally.nested > 500, "{tally:?}");
    assert!(tally.early_saves > 200, "{tally:?}");
}
