// SPDX-License-Identifier: GPL-2.0

//! The words of `dmsetup message <device> 0 <words>`.
//!
//! Pure values: no locks, nothing to await. Whoever carries a message out takes one that is not
//! [`Message::may_run_beside_others`] only while no other such message runs.

use core::fmt;

/// What of the state `dump` writes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DumpSections {
    /// The queues, `queues` or `threads`.
    pub queues: bool,
    /// The requests in flight one by one, `viopool` or `pools`.
    pub requests: bool,
    /// The state of the volume's parts, `vdo`.
    pub volume: bool,
}

impl DumpSections {
    const NONE: Self = Self {
        queues: false,
        requests: false,
        volume: false,
    };
    /// What is dumped if nothing is named.
    pub const DEFAULT: Self = Self {
        queues: true,
        requests: false,
        volume: true,
    };
    /// Everything.
    pub const ALL: Self = Self {
        queues: true,
        requests: true,
        volume: true,
    };

    /// The names and what they stand for. A word counts if it begins with a name.
    const NAMES: &'static [(&'static str, Self)] = &[
        (
            "viopool",
            Self {
                requests: true,
                ..Self::NONE
            },
        ),
        (
            "pools",
            Self {
                requests: true,
                ..Self::NONE
            },
        ),
        (
            "vdo",
            Self {
                volume: true,
                ..Self::NONE
            },
        ),
        (
            "queues",
            Self {
                queues: true,
                ..Self::NONE
            },
        ),
        (
            "threads",
            Self {
                queues: true,
                ..Self::NONE
            },
        ),
        ("default", Self::DEFAULT),
        ("all", Self::ALL),
    ];

    fn parse(words: &[&str]) -> Result<Self, MessageError> {
        if words.is_empty() {
            return Ok(Self::DEFAULT);
        }
        words.iter().try_fold(Self::NONE, |sections, word| {
            let named = Self::NAMES
                .iter()
                .find(|(name, _)| begins_with(word, name))
                .ok_or(MessageError::UnknownDumpSection)?
                .1;
            Ok(Self {
                queues: sections.queues || named.queues,
                requests: sections.requests || named.requests,
                volume: sections.volume || named.volume,
            })
        })
    }
}

/// The most blocks that `compress-estimate` looks at.
const ESTIMATE_BLOCKS_MAX: u32 = 1_000_000;

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'w> {
    /// Return the statistics.
    Stats,
    /// Return the configuration.
    Config,
    /// Return what the compressor did.
    CompressStats,
    /// Write state to the log.
    Dump(DumpSections),
    /// Write all state to the log when the volume stops.
    DumpOnShutdown,
    /// Close the deduplication index.
    IndexClose,
    /// Close the deduplication index and make a new one.
    IndexCreate,
    /// Keep the deduplication index open but do not ask it.
    IndexDisable,
    /// Open the deduplication index and use it.
    IndexEnable,
    /// Start or stop compressing.
    Compression(bool),
    /// Compress with another algorithm or driver.
    CompressionType(&'w str),
    /// Prefer other drivers for compression, decompression or both.
    Accelerators {
        /// Take the list for compression.
        compression: bool,
        /// Take the list for decompression.
        decompression: bool,
        /// The list as given.
        list: &'w str,
    },
    /// Check every compressed block, or stop that.
    CompressionVerify(bool),
    /// Say what an upgrade would do.
    UpgradeCheck,
    /// Let the volume hold other formats than LZ4.
    Upgrade,
    /// Make the volume one of the original format.
    Downgrade,
    /// Rebuild all metadata at the next start.
    Rebuild,
    /// Say what each algorithm would save, from a sample of that many blocks.
    CompressEstimate(u32),
    /// Compress and decompress a few blocks with an algorithm or driver, or with the one in use.
    SelfTest(Option<&'w str>),
}

impl<'w> Message<'w> {
    /// Recognises a message. Names may be in any case; a word too many makes it unknown.
    pub fn parse(words: &[&'w str]) -> Result<Self, MessageError> {
        let (name, rest) = words.split_first().ok_or(MessageError::Unknown)?;
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        match rest {
            _ if is("dump") => DumpSections::parse(rest).map(Self::Dump),
            [] if is("stats") => Ok(Self::Stats),
            [] if is("config") => Ok(Self::Config),
            [] if is("compress-stats") => Ok(Self::CompressStats),
            [] if is("dump-on-shutdown") => Ok(Self::DumpOnShutdown),
            [] if is("index-close") => Ok(Self::IndexClose),
            [] if is("index-create") => Ok(Self::IndexCreate),
            [] if is("index-disable") => Ok(Self::IndexDisable),
            [] if is("index-enable") => Ok(Self::IndexEnable),
            [value] if is("compression") && value.eq_ignore_ascii_case("on") => {
                Ok(Self::Compression(true))
            }
            [value] if is("compression") && value.eq_ignore_ascii_case("off") => {
                Ok(Self::Compression(false))
            }
            [value] if is("compression-type") => Ok(Self::CompressionType(value)),
            [list] if is("accelerators") => Ok(Self::Accelerators {
                compression: true,
                decompression: true,
                list,
            }),
            [list] if is("compress-accelerators") => Ok(Self::Accelerators {
                compression: true,
                decompression: false,
                list,
            }),
            [list] if is("decompress-accelerators") => Ok(Self::Accelerators {
                compression: false,
                decompression: true,
                list,
            }),
            [value] if is("compression-verify") && value.eq_ignore_ascii_case("on") => {
                Ok(Self::CompressionVerify(true))
            }
            [value] if is("compression-verify") && value.eq_ignore_ascii_case("off") => {
                Ok(Self::CompressionVerify(false))
            }
            [] if is("upgrade") => Ok(Self::Upgrade),
            [what] if is("upgrade") && what.eq_ignore_ascii_case("check") => Ok(Self::UpgradeCheck),
            [] if is("downgrade") => Ok(Self::Downgrade),
            [] if is("rebuild") => Ok(Self::Rebuild),
            [count] if is("compress-estimate") => count
                .parse()
                .ok()
                .filter(|count| (1..=ESTIMATE_BLOCKS_MAX).contains(count))
                .map(Self::CompressEstimate)
                .ok_or(MessageError::EstimateCount),
            [] if is("selftest") => Ok(Self::SelfTest(None)),
            [algorithm] if is("selftest") => Ok(Self::SelfTest(Some(algorithm))),
            _ => Err(MessageError::Unknown),
        }
    }

    /// Whether the message may run while another one does. The others are refused as busy.
    pub const fn may_run_beside_others(&self) -> bool {
        matches!(
            self,
            Self::Stats
                | Self::Config
                | Self::CompressStats
                | Self::UpgradeCheck
                | Self::Dump(_)
                | Self::DumpOnShutdown
                | Self::IndexClose
                | Self::IndexCreate
                | Self::IndexDisable
                | Self::IndexEnable
        )
    }
}

/// Why a message is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// There is no such message, or it takes other words.
    Unknown,
    /// `dump` has no such section.
    UnknownDumpSection,
    /// `compress-estimate` takes a number of blocks.
    EstimateCount,
    /// Another message runs.
    Busy,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unrecognized dmsetup message",
            Self::UnknownDumpSection => {
                "dump: the sections are viopool, pools, vdo, queues, threads, default and all"
            }
            Self::EstimateCount => "compress-estimate: the number of blocks is from 1 to 1000000",
            Self::Busy => "another dmsetup message is being carried out",
        })
    }
}

fn begins_with(word: &str, prefix: &str) -> bool {
    word.as_bytes()
        .get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
}
