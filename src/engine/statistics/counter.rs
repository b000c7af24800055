// SPDX-License-Identifier: GPL-2.0

//! One number that is counted: relaxed atomics, usable under any lock and in any context.

use crate::rt::atomic::{AtomicU64, Ordering};

/// Counts events. Wraps around, which nobody lives to see.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Nothing counted yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts one event.
    pub fn increment(&self) {
        self.add(1);
    }

    /// Counts `n` events.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// How many events there were.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many of something there are now.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// One more; returns the new number.
    pub fn increment(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// One less.
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Replaces the number, for those who have it from elsewhere.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number. Readers may see a decrement before the increment it belongs to: that is zero.
    pub fn get(&self) -> u64 {
        let n = self.0.load(Ordering::Relaxed);
        if n > u64::MAX / 2 {
            0
        } else {
            n
        }
    }
}

/// Requests being served.
#[derive(Debug, Default)]
pub struct RequestCounters {
    in_flight: Gauge,
    most: AtomicU64,
}

impl RequestCounters {
    /// A request was taken in.
    pub fn begin(&self) {
        let now = self.in_flight.increment();
        self.most.fetch_max(now, Ordering::Relaxed);
    }

    /// A request is done with.
    pub fn end(&self) {
        self.in_flight.decrement();
    }

    /// How many requests there are now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.get()
    }

    /// How many there were at the most.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }
}
