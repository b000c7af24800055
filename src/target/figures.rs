// SPDX-License-Identifier: GPL-2.0

//! What is counted of one compression driver of one volume, for as long as the volume is open.
//!
//! Relaxed atomics, counted under any lock or none.

use core::fmt::{self, Write};

use crate::engine::statistics::{Counter, Gauge};
use crate::target::text::{BoundedText, Braces};

/// Columns of the histogram: the last one has everything from about eight seconds on.
const LATENCIES: usize = 24;
const NAME_BYTES: usize = 64;

/// The figures of one driver.
#[derive(Debug)]
pub struct Figures {
    name: [u8; NAME_BYTES],
    /// Blocks given to the compressor.
    pub calls: Counter,
    /// Bytes of the blocks that became smaller.
    pub input_bytes: Counter,
    /// Bytes that they became.
    pub payload_bytes: Counter,
    /// Blocks that did not become small enough.
    pub incompressible: Counter,
    /// Blocks that the driver failed on.
    pub errors: Counter,
    /// Fragments given to the decompressor.
    pub decompress_calls: Counter,
    /// Fragments that the driver did not decompress.
    pub decompress_errors: Counter,
    /// Calls of both kinds that a software driver answered instead.
    pub fallbacks: Counter,
    /// Calls that were not answered in time.
    pub stalls: Counter,
    /// Calls that the driver has not answered yet.
    pub outstanding: Gauge,
    latency: [Counter; LATENCIES],
}

impl Figures {
    /// The figures of the driver called `name`.
    pub fn new(name: &str) -> Self {
        let mut bytes = [0; NAME_BYTES];
        // Longer than the kernel's names can be: cut.
        let _ = BoundedText::new(&mut bytes).write_str(name);
        Self {
            name: bytes,
            calls: Counter::default(),
            input_bytes: Counter::default(),
            payload_bytes: Counter::default(),
            incompressible: Counter::default(),
            errors: Counter::default(),
            decompress_calls: Counter::default(),
            decompress_errors: Counter::default(),
            fallbacks: Counter::default(),
            stalls: Counter::default(),
            outstanding: Gauge::default(),
            latency: [const { Counter::new() }; LATENCIES],
        }
    }

    /// The driver.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|byte| *byte == 0);
        let name = self
            .name
            .get(..end.unwrap_or(NAME_BYTES))
            .unwrap_or_default();
        core::str::from_utf8(name).unwrap_or_default()
    }

    /// Counts a call that took `latency_us` microseconds.
    pub fn answered(&self, latency_us: u64) {
        let column = u64::BITS.saturating_sub(latency_us.leading_zeros());
        let column = usize::try_from(column).unwrap_or(LATENCIES);
        if let Some(counter) = self.latency.get(column.min(LATENCIES - 1)) {
            counter.increment();
        }
    }

    /// Writes the figures as a group. Of the histogram only columns with calls: `below_8_us : 3` are those of 4 to 7.
    pub(super) fn write(&self, text: &mut Braces<'_>) -> fmt::Result {
        text.group(self.name(), |text| {
            let input = self.input_bytes.get();
            let payload = self.payload_bytes.get();
            text.numbers(&[
                ("calls", self.calls.get()),
                ("input_bytes", input),
                ("payload_bytes", payload),
                ("saved_bytes", input.saturating_sub(payload)),
                ("ratio_x100", ratio_x100(input, payload)),
                ("incompressible", self.incompressible.get()),
                ("errors", self.errors.get()),
                ("decompress_calls", self.decompress_calls.get()),
                ("decompress_errors", self.decompress_errors.get()),
                ("fallbacks", self.fallbacks.get()),
                ("stalls", self.stalls.get()),
                ("outstanding", self.outstanding.get()),
            ])?;
            text.group("latency", |text| {
                for (column, counter) in (0_u32..).zip(&self.latency) {
                    let calls = counter.get();
                    if calls > 0 {
                        text.field(
                            "below",
                            format_args!("{}us {}", 1_u64.checked_shl(column).unwrap_or(0), calls),
                        )?;
                    }
                }
                Ok(())
            })
        })
    }
}

/// How many times smaller blocks became, in hundredths, rounded down. Zero before the first.
pub(super) fn ratio_x100(input_bytes: u64, payload_bytes: u64) -> u64 {
    input_bytes
        .saturating_mul(100)
        .checked_div(payload_bytes)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_sorted_by_powers_of_two() {
        let figures = Figures::new("deflate-iaa");
        for latency_us in [0, 1, 2, 3, 4, 7, 8, u64::MAX] {
            figures.answered(latency_us);
        }
        figures.input_bytes.add(8192);
        figures.payload_bytes.add(3000);
        let mut text = String::new();
        Braces::write(&mut text, |text| figures.write(text)).unwrap();
        assert!(text.starts_with("{ deflate-iaa : { calls : 0, input_bytes : 8192, payload_bytes : 3000, saved_bytes : 5192, ratio_x100 : 273, "), "{text}");
        assert!(
            text.contains("latency : { below : 1us 1, below : 2us 1, below : 4us 2, below : 8us 2, below : 16us 1, below : 8388608us 1, }"),
            "{text}"
        );
    }
}
