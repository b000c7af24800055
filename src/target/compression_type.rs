// SPDX-License-Identifier: GPL-2.0

//! The value of `compressionType`: `<algorithm>[:<option>]`.
//!
//! The word names an algorithm or a driver of the kernel's compression interface. What is stored
//! on the volume is a stream format, which several drivers may produce and read; the mapping from
//! one to the other is here. Pure values: no locks, nothing to await.

use core::fmt;

pub use crate::engine::format::StreamFormat;

/// The longest name the crypto API knows, without its terminating NUL.
const NAME_MAX_BYTES: usize = 127;

/// An algorithm or driver whose output is known.
struct Algorithm {
    name: &'static str,
    format: StreamFormat,
    /// The smallest and the largest value of its option, if it has one.
    option: Option<(u32, u32)>,
}

const fn plain(name: &'static str, format: StreamFormat) -> Algorithm {
    Algorithm {
        name,
        format,
        option: None,
    }
}

/// One row for each. Drivers that are not here are found by the algorithm that the kernel says they implement.
const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "lz4",
        format: StreamFormat::Lz4,
        // The acceleration. A driver of our own takes it, see `ACCELERATED_LZ4`.
        option: Some((1, 65_537)),
    },
    plain("lz4-scomp", StreamFormat::Lz4),
    plain("lz4hc", StreamFormat::Lz4),
    plain("lz4hc-scomp", StreamFormat::Lz4),
    plain("hisi-lz4-acomp", StreamFormat::Lz4),
    plain("deflate", StreamFormat::Deflate),
    plain("deflate-generic", StreamFormat::Deflate),
    plain("deflate-scomp", StreamFormat::Deflate),
    plain("deflate-iaa", StreamFormat::Deflate),
    plain("qat_deflate", StreamFormat::Deflate),
    plain("hisi-deflate-acomp", StreamFormat::Deflate),
    plain("zstd", StreamFormat::Zstd),
    plain("zstd-generic", StreamFormat::Zstd),
    plain("zstd-scomp", StreamFormat::Zstd),
    plain("qat_zstd", StreamFormat::Zstd),
];

/// The algorithm that the driver for `lz4` with an acceleration registers, followed by the acceleration.
pub const ACCELERATED_LZ4: &str = "rvdo-lz4-";

fn known(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
}

impl StreamFormat {
    /// The format that the kernel's algorithm or driver `name` produces, if it has one here.
    pub fn of_algorithm(name: &str) -> Option<Self> {
        if name.starts_with(ACCELERATED_LZ4) {
            return Some(Self::Lz4);
        }
        known(name).map(|algorithm| algorithm.format)
    }
}

/// An algorithm or driver, and its option.
///
/// # Invariants
///
/// The first `length` bytes of `name` are ASCII, and `length` is from 1 to [`NAME_MAX_BYTES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CompressionType {
    name: [u8; NAME_MAX_BYTES],
    length: usize,
    option: Option<u32>,
}

impl CompressionType {
    /// Parses `<algorithm>[:<option>]`. A name that is not known here may still be a driver that
    /// this kernel has; whoever looks it up calls [`CompressionType::stored_as`] with the answer.
    pub fn parse(word: &str) -> Result<Self, CompressionTypeError> {
        let (algorithm, option) = match word.split_once(':') {
            Some((algorithm, option)) => (algorithm, Some(option)),
            None => (word, None),
        };
        let well_formed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.()".contains(&byte);
        if algorithm.is_empty() || !algorithm.bytes().all(well_formed) {
            return Err(CompressionTypeError::BadName);
        }
        let mut name = [0; NAME_MAX_BYTES];
        name.get_mut(..algorithm.len())
            .ok_or(CompressionTypeError::BadName)?
            .copy_from_slice(algorithm.as_bytes());

        let option = match option {
            Some(text) => Some(parse_option(algorithm, text)?),
            None => None,
        };
        // INVARIANT: The name was checked to be ASCII and not empty, and it fitted.
        Ok(Self {
            name,
            length: algorithm.len(),
            option,
        })
    }

    /// The algorithm or driver that was asked for.
    pub fn algorithm(&self) -> &str {
        let name = self.name.get(..self.length).unwrap_or_default();
        core::str::from_utf8(name).unwrap_or_default()
    }

    /// The acceleration or level that was asked for. The kernel's compression interface has no
    /// parameters: a codec that cannot honour the option has to say so when the volume loads.
    pub const fn option(&self) -> Option<u32> {
        self.option
    }

    /// The stream format this type produces. `kernel_algorithm` is the algorithm that the kernel
    /// reports for the driver, if it was looked up.
    pub fn stored_as(
        &self,
        kernel_algorithm: Option<&str>,
    ) -> Result<StreamFormat, CompressionTypeError> {
        StreamFormat::of_algorithm(self.algorithm())
            .or_else(|| kernel_algorithm.and_then(StreamFormat::of_algorithm))
            .ok_or(CompressionTypeError::UnknownAlgorithm)
    }
}

impl Default for CompressionType {
    /// LZ4 by whichever driver the kernel prefers, as the original driver compresses.
    fn default() -> Self {
        let mut name = [0; NAME_MAX_BYTES];
        for (to, from) in name.iter_mut().zip(b"lz4") {
            *to = *from;
        }
        // INVARIANT: Three ASCII bytes.
        Self {
            name,
            length: 3,
            option: None,
        }
    }
}

impl fmt::Debug for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompressionType({self})")
    }
}

impl fmt::Display for CompressionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm())?;
        match self.option {
            Some(option) => write!(f, ":{option}"),
            None => Ok(()),
        }
    }
}

/// Parses what follows the colon. For a driver that is not known here any number will do.
fn parse_option(algorithm: &str, text: &str) -> Result<u32, CompressionTypeError> {
    let option = text
        .parse()
        .map_err(|_| CompressionTypeError::OptionNotANumber)?;
    if let Some(algorithm) = known(algorithm) {
        let (min, max) = algorithm.option.ok_or(CompressionTypeError::NoOption)?;
        if !(min..=max).contains(&option) {
            return Err(CompressionTypeError::OptionOutOfRange { min, max });
        }
    }
    Ok(option)
}

/// Why a `compressionType` cannot be used. The text leaves the value itself to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressionTypeError {
    /// The name is empty, too long or has characters that no algorithm's name has.
    BadName,
    /// What follows the colon is not a number.
    OptionNotANumber,
    /// The number after the colon is not one that the algorithm has.
    OptionOutOfRange {
        /// The smallest value.
        min: u32,
        /// The largest value.
        max: u32,
    },
    /// The algorithm has no option.
    NoOption,
    /// Neither this driver nor the kernel knows what the algorithm's output looks like.
    UnknownAlgorithm,
}

impl fmt::Display for CompressionTypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName => f.write_str(
                "must be <algorithm>[:<option>], for example lz4, lz4:3, deflate or deflate-iaa",
            ),
            Self::OptionNotANumber => f.write_str("must have a number after the colon"),
            Self::OptionOutOfRange { min, max } => {
                write!(f, "must have a number from {min} to {max} after the colon")
            }
            Self::NoOption => f.write_str(
                "has a number after the colon, but the kernel's driver for this algorithm takes none (lz4 does)",
            ),
            Self::UnknownAlgorithm => {
                f.write_str("must name an lz4, deflate or zstd driver that this kernel has")
            }
        }
    }
}

/// Checks that blocks of `format` may be written to a volume. `per_block_algorithm` tells whether
/// the volume's blocks say how they are compressed; on a volume of the original format they do
/// not, and LZ4 is taken for granted by everything that reads them.
pub fn check_volume(
    wanted: &CompressionType,
    format: StreamFormat,
    per_block_algorithm: bool,
) -> Result<(), NeedsUpgrade<'_>> {
    if per_block_algorithm || format == StreamFormat::Lz4 {
        Ok(())
    } else {
        Err(NeedsUpgrade { wanted })
    }
}

/// A compression type was asked for that the volume has no way to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeedsUpgrade<'a> {
    /// What was asked for.
    pub wanted: &'a CompressionType,
}

impl fmt::Display for NeedsUpgrade<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "compressionType {} needs the per-block algorithm field; this volume has the original \
             format, whose blocks can only be lz4. Load it once with 'upgrade on', or send \
             'dmsetup message <device> 0 upgrade' (see docs/upgrade.md). The volume stays as it is.",
            self.wanted
        )
    }
}
