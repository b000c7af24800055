// SPDX-License-Identifier: GPL-2.0

//! Messages: their words, and which of them may run together.

use proptest::prelude::*;
use rvdo_host::target::errno::Errno;
use rvdo_host::target::messages::{DumpSections, Message, MessageError};

fn parse(text: &str) -> Result<Message<'_>, MessageError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    Message::parse(&words)
}

/// Messages with how many words they have, and whether they run beside others.
const MESSAGES: &[(&str, Message<'static>, bool)] = &[
    ("stats", Message::Stats, true),
    ("config", Message::Config, true),
    ("compress-stats", Message::CompressStats, true),
    ("dump", Message::Dump(DumpSections::DEFAULT), true),
    ("dump-on-shutdown", Message::DumpOnShutdown, true),
    ("index-close", Message::IndexClose, true),
    ("index-create", Message::IndexCreate, true),
    ("index-disable", Message::IndexDisable, true),
    ("index-enable", Message::IndexEnable, true),
    ("compression on", Message::Compression(true), false),
    ("compression off", Message::Compression(false), false),
    (
        "compression-type lz4:3",
        Message::CompressionType("lz4:3"),
        false,
    ),
    (
        "accelerators none",
        Message::Accelerators {
            compression: true,
            decompression: true,
            list: "none",
        },
        false,
    ),
    (
        "compress-accelerators a,b",
        Message::Accelerators {
            compression: true,
            decompression: false,
            list: "a,b",
        },
        false,
    ),
    (
        "decompress-accelerators auto",
        Message::Accelerators {
            compression: false,
            decompression: true,
            list: "auto",
        },
        false,
    ),
    (
        "compression-verify on",
        Message::CompressionVerify(true),
        false,
    ),
    (
        "compression-verify off",
        Message::CompressionVerify(false),
        false,
    ),
    ("upgrade check", Message::UpgradeCheck, true),
    ("upgrade", Message::Upgrade, false),
    ("downgrade", Message::Downgrade, false),
    ("rebuild", Message::Rebuild, false),
    ("compress-estimate 1", Message::CompressEstimate(1), false),
    (
        "compress-estimate 1000000",
        Message::CompressEstimate(1_000_000),
        false,
    ),
    ("selftest", Message::SelfTest(None), false),
    (
        "selftest deflate-iaa",
        Message::SelfTest(Some("deflate-iaa")),
        false,
    ),
];

#[test]
fn every_message_is_known_in_any_case() {
    for (text, message, concurrent) in MESSAGES {
        assert_eq!(parse(text), Ok(*message), "{text}");
        // Names of drivers are as they are.
        let names_drivers = matches!(
            message,
            Message::SelfTest(Some(_)) | Message::CompressionType(_) | Message::Accelerators { .. }
        );
        if !names_drivers {
            assert_eq!(parse(&text.to_uppercase()), Ok(*message), "{text}");
        }
        assert_eq!(message.may_run_beside_others(), *concurrent, "{text}");
    }
}

#[test]
fn a_word_too_many_or_too_few_makes_it_unknown() {
    for (text, message, _) in MESSAGES {
        if matches!(message, Message::Dump(_) | Message::SelfTest(None)) {
            continue;
        }
        let more = format!("{text} more");
        assert_eq!(parse(&more), Err(MessageError::Unknown), "{more}");
    }
    for text in [
        "",
        "compression",
        "compression maybe",
        "statistics",
        "stat",
        "nonsense",
    ] {
        assert_eq!(parse(text), Err(MessageError::Unknown), "{text:?}");
    }
}

#[test]
fn dump_sections_are_known_by_their_beginning() {
    let sections = |queues, requests, volume| {
        Ok(Message::Dump(DumpSections {
            queues,
            requests,
            volume,
        }))
    };
    for (text, expected) in [
        ("dump", sections(true, false, true)),
        ("dump default", sections(true, false, true)),
        ("dump viopool", sections(false, true, false)),
        ("dump POOLS", sections(false, true, false)),
        ("dump vdo", sections(false, false, true)),
        ("dump queues", sections(true, false, false)),
        ("dump threads", sections(true, false, false)),
        ("dump all", sections(true, true, true)),
        ("dump everything", Err(MessageError::UnknownDumpSection)),
        ("dump vd", Err(MessageError::UnknownDumpSection)),
        ("dump viopoolandmore queues", sections(true, true, false)),
        ("dump vdo nonsense", Err(MessageError::UnknownDumpSection)),
        ("dump d\u{e9}fault", Err(MessageError::UnknownDumpSection)),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn refusals_say_what_to_do() {
    for (error, text, errno) in [
        (
            MessageError::Unknown,
            "unrecognized dmsetup message",
            Errno::Invalid,
        ),
        (
            MessageError::UnknownDumpSection,
            "dump: the sections are viopool, pools, vdo, queues, threads, default and all",
            Errno::Invalid,
        ),
        (
            MessageError::Busy,
            "another dmsetup message is being carried out",
            Errno::Busy,
        ),
    ] {
        assert_eq!(error.to_string(), text);
        assert_eq!(Errno::from(error), errno);
    }
}

proptest! {
    #[test]
    fn any_words_are_known_or_refused(
        words in proptest::collection::vec("(\\PC{0,12}|dump|compression|on|viopool\\PC?)", 0..5),
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Ok(message) = Message::parse(&words) {
            prop_assert!(!words.is_empty(), "{message:?}");
        }
    }
}

#[test]
fn an_estimate_needs_a_number_of_blocks() {
    for words in [
        ["compress-estimate", "0"],
        ["compress-estimate", "1000001"],
        ["compress-estimate", "all"],
    ] {
        assert_eq!(Message::parse(&words), Err(MessageError::EstimateCount));
    }
    assert_eq!(
        Message::parse(&["upgrade", "now"]),
        Err(MessageError::Unknown)
    );
}
