// SPDX-License-Identifier: GPL-2.0

//! When to leave a driver in trouble alone, and when to try it again.
//!
//! After some failures in a row, or one that leaves no doubt, the driver is not used for a second; then one call may try. Each try
//! that fails doubles the time, up to about a minute. One that succeeds has the driver used again; if it fails again soon, the time
//! goes on from where it was, so that a driver that fails now and then does not fill the log. Atomics, no lock; a race between calls
//! costs a try too many or too few.

use crate::rt::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Failures in a row that may still be the data's.
const FAILURES_IN_A_ROW: u32 = 8;
const FIRST_DELAY_US: u64 = 1_000_000;
const DELAY_MAX_US: u64 = 64_000_000;
/// How many times its last delay a driver has to work for the next delay to be the first again.
const CALM_DELAYS: u64 = 4;

/// How a driver has been doing.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: AtomicU32,
    /// The driver is being left alone.
    open: AtomicBool,
    /// A call tries whether it works again.
    trying: AtomicBool,
    /// The last delay.
    delay_us: AtomicU64,
    retry_at_us: AtomicU64,
    calm_at_us: AtomicU64,
}

impl BackOff {
    /// Whether a call at `now_us` may use the driver.
    pub fn admits(&self, now_us: u64) -> bool {
        if !self.is_open() {
            return true;
        }
        let retry_at_us = self.retry_at_us.load(Ordering::Relaxed);
        let delay_us = self.delay_us.load(Ordering::Relaxed);
        // Whoever moves the time on is the one that tries.
        let tries = now_us >= retry_at_us
            && self
                .retry_at_us
                .compare_exchange(
                    retry_at_us,
                    now_us.saturating_add(delay_us),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok();
        if tries {
            self.trying.store(true, Ordering::Relaxed);
        }
        tries
    }

    /// Whether the driver is being left alone.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    /// The driver did what it was asked to at `now_us`. `true` if it had been left alone before. Calls from before that do not
    /// count: only the one that tries.
    pub fn succeeded(&self, now_us: u64) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        if !self.is_open() || !self.trying.swap(false, Ordering::Relaxed) {
            return false;
        }
        let calm_us = self
            .delay_us
            .load(Ordering::Relaxed)
            .saturating_mul(CALM_DELAYS);
        self.calm_at_us
            .store(now_us.saturating_add(calm_us), Ordering::Relaxed);
        self.open.swap(false, Ordering::Relaxed)
    }

    /// The driver failed at `now_us`; `surely` if the data cannot be to blame. `true` if from here on it is left alone.
    pub fn failed(&self, now_us: u64, surely: bool) -> bool {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let is_open = self.is_open();
        let counts = if is_open {
            self.trying.swap(false, Ordering::Relaxed)
        } else {
            surely || failures >= FAILURES_IN_A_ROW
        };
        if !counts {
            return false;
        }
        let relapsed = is_open || now_us < self.calm_at_us.load(Ordering::Relaxed);
        let delay_us = if relapsed {
            self.delay_us
                .load(Ordering::Relaxed)
                .saturating_mul(2)
                .min(DELAY_MAX_US)
        } else {
            FIRST_DELAY_US
        };
        self.delay_us.store(delay_us, Ordering::Relaxed);
        self.retry_at_us
            .store(now_us.saturating_add(delay_us), Ordering::Relaxed);
        !self.open.swap(true, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_needs_eight_failures_in_a_row() {
        let back_off = BackOff::default();
        for _ in 0..7 {
            assert!(!back_off.failed(0, false));
        }
        assert!(!back_off.succeeded(0));
        for _ in 0..7 {
            assert!(!back_off.failed(0, false));
            assert!(back_off.admits(0));
        }
        assert!(back_off.failed(0, false));
        assert!(!back_off.admits(999_999));
    }

    #[test]
    fn one_call_tries_and_the_time_doubles_to_a_limit() {
        let back_off = BackOff::default();
        let mut now_us = 5;
        assert!(back_off.failed(now_us, true));
        let mut delay_us = 1_000_000;
        for _ in 0..10 {
            // Calls from before change nothing.
            assert!(!back_off.failed(now_us, true));
            assert!(!back_off.succeeded(now_us));
            assert!(!back_off.admits(now_us + delay_us - 1));
            now_us += delay_us;
            assert!(back_off.admits(now_us));
            assert!(!back_off.admits(now_us), "a second try");
            assert!(!back_off.failed(now_us, true), "a second log line");
            delay_us = (2 * delay_us).min(64_000_000);
        }
        now_us += delay_us;
        assert!(back_off.admits(now_us));
        assert!(back_off.succeeded(now_us));
        assert!(!back_off.succeeded(now_us));
        assert!(back_off.admits(now_us));
        // Calm for long enough: from the beginning.
        now_us += 4 * 64_000_000;
        assert!(back_off.failed(now_us, true));
        assert!(back_off.admits(now_us + 1_000_000));
    }

    #[test]
    fn a_driver_that_fails_now_and_then_is_logged_ever_less() {
        let back_off = BackOff::default();
        let mut logged = 0;
        for now_us in (0..600_000_000).step_by(10_000) {
            if back_off.admits(now_us) {
                // Every other call fails.
                if now_us / 10_000 % 2 == 0 {
                    logged += u32::from(back_off.failed(now_us, true));
                } else {
                    back_off.succeeded(now_us);
                }
            }
        }
        assert!(logged < 30, "{logged} times in ten minutes");
    }
}
