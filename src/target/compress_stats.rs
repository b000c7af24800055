// SPDX-License-Identifier: GPL-2.0

//! The text of the `compress-stats` message: which driver compresses, and how well.
//!
//! The fields of the `stats` message are an interface that cannot grow, so the codec's are here,
//! in the same form. New fields go to the end. Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

use crate::engine::statistics::CodecStats;
use crate::target::text::Braces;

/// What the `compress-stats` message tells of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompressReport<'a> {
    /// What the table asked for.
    pub requested: &'a str,
    /// The algorithm in use.
    pub algorithm: &'a str,
    /// The driver in use.
    pub driver: &'a str,
    /// Whether the driver calls back.
    pub asynchronous: bool,
    /// Whether new blocks are compressed.
    pub enabled: bool,
    /// What was counted.
    pub codec: CodecStats,
}

/// Writes the text of the `compress-stats` message.
pub fn write_compress_stats(out: &mut dyn Write, report: &CompressReport<'_>) -> fmt::Result {
    let codec = &report.codec;
    let ratio_x100 = ratio_x100(codec.input_bytes, codec.payload_bytes);
    Braces::write(out, |text| {
        text.field("algorithm", report.algorithm)?;
        text.field("driver", report.driver)?;
        text.flag("async", report.asynchronous)?;
        text.numbers(&[
            ("calls", codec.calls),
            ("input_bytes", codec.input_bytes),
            ("payload_bytes", codec.payload_bytes),
            (
                "saved_bytes",
                codec.input_bytes.saturating_sub(codec.payload_bytes),
            ),
            ("ratio_x100", ratio_x100),
        ])?;
        text.field(
            "ratio",
            format_args!("{}.{:02}", ratio_x100 / 100, ratio_x100 % 100),
        )?;
        text.numbers(&[
            ("incompressible", codec.incompressible),
            ("errors", codec.errors),
            ("decompress_calls", codec.decompress_calls),
            ("decompress_retries", codec.decompress_retries),
            ("decompress_errors", codec.decompress_errors),
            ("outstanding", codec.outstanding),
        ])?;
        text.field("requested", report.requested)?;
        text.flag("enabled", report.enabled)
    })
}

/// How many times smaller blocks became, in hundredths, rounded down. Zero before the first.
fn ratio_x100(input_bytes: u64, payload_bytes: u64) -> u64 {
    input_bytes
        .saturating_mul(100)
        .checked_div(payload_bytes)
        .unwrap_or(0)
}
