// SPDX-License-Identifier: GPL-2.0

//! When to leave a driver in trouble alone, and when to try it again.
//!
//! After some failures in a row, or one that leaves no doubt, the driver is not used for a second; then one call may try. Each try
//! that fails doubles the time, up to about a minute. One that succeeds makes everything as it was. Two atomics, no lock; a race
//! between calls costs a try too many or too few.

use crate::rt::atomic::{AtomicU32, AtomicU64, Ordering};

/// Failures in a row that may still be the data's.
const FAILURES_IN_A_ROW: u32 = 8;
const FIRST_DELAY_US: u64 = 1_000_000;
const DELAY_MAX_US: u64 = 64_000_000;

/// How a driver has been doing.
#[derive(Debug, Default)]
pub struct BackOff {
    failures: AtomicU32,
    /// 0 while the driver works.
    delay_us: AtomicU64,
    retry_at_us: AtomicU64,
}

impl BackOff {
    /// Whether a call at `now_us` may use the driver.
    pub fn admits(&self, now_us: u64) -> bool {
        let delay_us = self.delay_us.load(Ordering::Relaxed);
        if delay_us == 0 {
            return true;
        }
        let retry_at_us = self.retry_at_us.load(Ordering::Relaxed);
        // Whoever moves the time on is the one that tries.
        now_us >= retry_at_us
            && self
                .retry_at_us
                .compare_exchange(
                    retry_at_us,
                    now_us.saturating_add(delay_us),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Whether the driver is being left alone.
    pub fn is_open(&self) -> bool {
        self.delay_us.load(Ordering::Relaxed) != 0
    }

    /// The driver did what it was asked to. `true` if it had been left alone before.
    pub fn succeeded(&self) -> bool {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        self.is_open() && self.delay_us.swap(0, Ordering::Relaxed) != 0
    }

    /// The driver failed at `now_us`; `surely` if the data cannot be to blame. `true` if from here on it is left alone.
    pub fn failed(&self, now_us: u64, surely: bool) -> bool {
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let delay_us = self.delay_us.load(Ordering::Relaxed);
        if delay_us == 0 && !surely && failures < FAILURES_IN_A_ROW {
            return false;
        }
        let next_us = match delay_us {
            0 => FIRST_DELAY_US,
            delay_us
                if now_us
                    >= self
                        .retry_at_us
                        .load(Ordering::Relaxed)
                        .saturating_sub(delay_us) =>
            {
                delay_us.saturating_mul(2).min(DELAY_MAX_US)
            }
            // A call from before the driver was left alone.
            delay_us => delay_us,
        };
        self.delay_us.store(next_us, Ordering::Relaxed);
        self.retry_at_us
            .store(now_us.saturating_add(next_us), Ordering::Relaxed);
        delay_us == 0
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
        assert!(!back_off.succeeded());
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
            assert!(!back_off.admits(now_us + delay_us - 1));
            now_us += delay_us;
            assert!(back_off.admits(now_us));
            assert!(!back_off.admits(now_us), "a second try");
            assert!(!back_off.failed(now_us, true), "a second log line");
            delay_us = (2 * delay_us).min(64_000_000);
        }
        assert!(back_off.admits(now_us + delay_us));
        assert!(back_off.succeeded());
        assert!(!back_off.succeeded());
        assert!(back_off.admits(now_us));
        assert!(back_off.failed(now_us, true));
        assert!(back_off.admits(now_us + 1_000_000));
    }
}
