// SPDX-License-Identifier: GPL-2.0

//! The text of the `compress-stats` message: which drivers compress, and how well.
//!
//! The fields of the `stats` message are an interface that cannot grow, so the codec's are here,
//! in the same form. First come the sums of the volume, then a group for each driver that was used since
//! the volume was opened. New fields go to the end of their group. Pure values: no locks, nothing to await.

use core::fmt::{self, Write};

use crate::engine::depot::BlocksByCode;
use crate::engine::format::{RequiredFlags, StreamFormat};
use crate::engine::statistics::CodecStats;
use crate::target::compression_type::CompressionType;
use crate::target::driver_list::DriverList;
use crate::target::figures::{ratio_x100, Figures};
use crate::target::text::Braces;

/// What the `compress-stats` message tells of a volume.
#[derive(Clone, Copy, Debug)]
pub struct CompressReport<'a> {
    /// What was asked for.
    pub requested: CompressionType,
    /// The algorithm in use.
    pub algorithm: &'a str,
    /// The driver in use.
    pub driver: &'a str,
    /// Whether the driver calls back.
    pub asynchronous: bool,
    /// Whether new blocks are compressed.
    pub enabled: bool,
    /// The format of new blocks.
    pub format: StreamFormat,
    /// The drivers to prefer for compression.
    pub compress_accelerators: DriverList,
    /// The drivers to prefer for decompression.
    pub decompress_accelerators: DriverList,
    /// Whether the driver is being left alone, because it failed.
    pub backing_off: bool,
    /// Whether every compressed block is checked.
    pub verify: bool,
    /// What the volume requires.
    pub required: Option<RequiredFlags>,
    /// What was counted.
    pub codec: CodecStats,
    /// What kinds of blocks the volume has, if it keeps account of that.
    pub blocks: Option<BlocksByCode>,
}

/// Writes the text of the `compress-stats` message.
pub fn write_compress_stats<'f>(
    out: &mut dyn Write,
    report: &CompressReport<'_>,
    drivers: impl Iterator<Item = &'f Figures> + Clone,
) -> fmt::Result {
    let codec = &report.codec;
    let sum = |count: fn(&Figures) -> u64| {
        drivers
            .clone()
            .fold(0_u64, |sum, driver| sum.saturating_add(count(driver)))
    };
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
            (
                "decompress_retries",
                sum(|driver| driver.decompress_errors.get()),
            ),
            ("decompress_errors", codec.decompress_errors),
            ("outstanding", codec.outstanding),
        ])?;
        text.field("requested", report.requested)?;
        text.flag("enabled", report.enabled)?;
        text.field("format", report.format.name())?;
        text.field("compress_accelerators", report.compress_accelerators)?;
        text.field("decompress_accelerators", report.decompress_accelerators)?;
        text.flag("backing_off", report.backing_off)?;
        text.numbers(&[
            ("fallbacks", sum(|driver| driver.fallbacks.get())),
            ("stalls", sum(|driver| driver.stalls.get())),
            ("verify_errors", codec.verify_errors),
        ])?;
        text.flag("verify", report.verify)?;
        match report.required {
            Some(flags) => {
                text.field("volume", format_args!("67.1 {:#010x}", flags.encode()))?;
            }
            None => text.field("volume", "67.0")?,
        }
        text.group("drivers", |text| {
            for driver in drivers.clone() {
                driver.write(text)?;
            }
            Ok(())
        })?;
        // Blocks of the device, not of the user: one has up to 14 of those.
        report.blocks.map_or(Ok(()), |blocks| {
            text.group("compressed_blocks", |text| {
                for format in StreamFormat::ALL {
                    text.field(format.name(), blocks.of_format(format))?;
                }
                text.field("unknown", blocks.unknown())
            })
        })
    })
}
