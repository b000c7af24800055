// SPDX-License-Identifier: GPL-2.0

//! Table lines: every version, every error text of the words that have a place, round trips.

mod table_lines;

use proptest::prelude::*;
use rvdo_host::target::errno::Errno;
use rvdo_host::target::table_line::{
    BlockMapAge, LogicalBlockSize, TableLine, TableVersion, TargetRange, LOGICAL_SECTORS_MAX,
};
use rvdo_host::target::table_options::{TableOptions, ThreadCounts};
use table_lines::{parse, parse_at, v4, RANGE, V4};

#[test]
fn a_current_line_says_everything_it_has_to() {
    let (line, notices) = parse_at(RANGE, V4);
    let line = line.unwrap();
    assert_eq!(notices, Vec::<String>::new());
    assert_eq!(line.version, TableVersion::V4);
    assert_eq!(line.device(), "/dev/sdb");
    assert_eq!(line.range, RANGE);
    assert_eq!(line.logical_blocks, 2_621_440);
    assert_eq!(line.physical_blocks, Some(1_572_864));
    assert_eq!(line.logical_block_size, LogicalBlockSize::Bytes4096);
    assert_eq!(line.logical_block_size.bytes(), 4096);
    assert_eq!(line.cache_size_pages, 32_768);
    assert_eq!(line.block_map_age, BlockMapAge::DEFAULT);
    assert_eq!(line.options, TableOptions::default());
    assert_eq!(line.words(), V4);
}

#[test]
fn every_old_version_parses_and_is_reported() {
    for (line, version, physical_blocks) in [
        (
            "/dev/sdb 512 x x 32768 16380 on auto pool ack=2,bio=3",
            TableVersion::V0,
            None,
        ),
        (
            "V1 /dev/sdb 1572864 512 x x 32768 16380 on auto pool ack=2,bio=3",
            TableVersion::V1,
            Some(1_572_864),
        ),
        (
            "V2 /dev/sdb 1572864 512 32768 16380 on auto pool ack 2 bio 3",
            TableVersion::V2,
            Some(1_572_864),
        ),
        (
            "V3 /dev/sdb 1572864 512 32768 16380 auto ack 2 bio 3",
            TableVersion::V3,
            Some(1_572_864),
        ),
        (
            "V4 /dev/sdb 1572864 512 32768 16380 ack 2 bio 3",
            TableVersion::V4,
            Some(1_572_864),
        ),
    ] {
        let (parsed, notices) = parse_at(RANGE, line);
        let parsed = parsed.unwrap();
        assert_eq!(parsed.version, version);
        assert_eq!(parsed.device(), "/dev/sdb");
        assert_eq!(parsed.physical_blocks, physical_blocks);
        assert_eq!(parsed.logical_block_size, LogicalBlockSize::Bytes512);
        assert_eq!(parsed.cache_size_pages, 32_768);
        assert_eq!(parsed.block_map_age.as_given(), 16_380);
        assert_eq!(parsed.options.threads.ack, 2);
        assert_eq!(parsed.options.threads.bio, 3);
        assert_eq!(parsed.words(), line);
        let expected: &[String] = match version {
            TableVersion::V4 => &[],
            old => &[format!(
                "the table line has version {old}, current is V4: tools and kernel differ"
            )],
        };
        assert_eq!(notices, expected);
    }
}

#[test]
fn a_line_of_an_old_version_has_its_number_of_words() {
    for (line, text) in [
        (
            "/dev/sdb 4096 x x 32768 16380 x x x",
            "V0: 9, exactly 10 needed",
        ),
        (
            "/dev/sdb 4096 x x 32768 16380 x x x . more",
            "V0: 11, exactly 10 needed",
        ),
        (
            "V1 /dev/sdb 1 4096 x x 32768 16380 x x x",
            "V1: 11, exactly 12 needed",
        ),
        (
            "V1 /dev/sdb 1 4096 x x 32768 16380 x x x . y",
            "V1: 13, exactly 12 needed",
        ),
        (
            "V2 /dev/sdb 1 4096 32768 16380 x x",
            "V2: 8, at least 9 needed",
        ),
        ("V3 /dev/sdb 1 4096 32768 16380", "V3: 6, at least 7 needed"),
        ("V4 /dev/sdb 1 4096 32768", "V4: 5, at least 6 needed"),
        ("V4", "V4: 1, at least 6 needed"),
        ("vfour", "V0: 1, exactly 10 needed"),
    ] {
        assert_eq!(
            parse(line).unwrap_err(),
            format!("Incorrect number of arguments for version {text}")
        );
    }
}

#[test]
fn thread_strings_of_the_first_versions() {
    let v1 = |threads: &str| {
        parse_at(
            RANGE,
            &format!("V1 /dev/sdb 1572864 4096 x x 32768 16380 x x x {threads}"),
        )
    };
    let threads = |text: &str| v1(text).0.unwrap().options.threads;
    assert_eq!(threads("."), ThreadCounts::default());
    assert_eq!(
        threads("ack=0,bio=9,bioRotationInterval=7,cpu=6,hash=3,logical=2,physical=1"),
        ThreadCounts {
            ack: 0,
            bio: 9,
            bio_rotation_interval_blocks: 7,
            cpu: 6,
            hash: 3,
            logical: 2,
            physical: 1,
        }
    );
    assert_eq!(threads("cpu=2,cpu=3").cpu, 3, "the later one wins");

    let (line, notices) = v1("cpu=2,gpu=3");
    assert_eq!(line.unwrap().options.threads.cpu, 2);
    assert_eq!(
        notices[1..],
        ["unknown option \"gpu\" with the value 3 ignored"]
    );

    for (text, detail) in [
        ("cpu", "\"cpu\" is not of the form name=number"),
        ("cpu=1,,bio=2", "\"\" is not of the form name=number"),
        ("..", "\"..\" is not of the form name=number"),
        ("cpu=", "cpu must be a number from 1 to 100, not \"\""),
        ("cpu=0", "cpu must be a number from 1 to 100, not \"0\""),
        ("cpu=1=2", "cpu must be a number from 1 to 100, not \"1=2\""),
        (
            "gpu=on",
            "unknown option \"gpu\" with the value \"on\"; an unknown option is ignored only if its value is a number",
        ),
    ] {
        assert_eq!(
            v1(text).0.unwrap_err(),
            format!("Invalid thread-count configuration: {detail}")
        );
    }
}

#[test]
fn every_check_of_the_positional_words_has_its_text() {
    for (line, text) in [
        ("", "Incorrect number of arguments"),
        ("V5 a b c d e f", "Unknown version number detected: \"V5\", this driver knows V1 to V4"),
        ("V0 a b c d e f", "Unknown version number detected: \"V0\", this driver knows V1 to V4"),
        ("V4x a b c d e f", "Unknown version number detected: \"V4x\", this driver knows V1 to V4"),
        (
            "V99999999999999999999 a",
            "Unknown version number detected: \"V99999999999999999999\", this driver knows V1 to V4",
        ),
        (
            "V4 /dev/sdb many 4096 32768 16380",
            "Invalid physical block count: must be a number of 4096-byte blocks, not \"many\"",
        ),
        (
            "V4 /dev/sdb 18446744073709551616 4096 32768 16380",
            "Invalid physical block count: must be a number of 4096-byte blocks, not \"18446744073709551616\"",
        ),
        (
            "V4 /dev/sdb 1 1024 32768 16380",
            "Invalid logical block size: must be 512 or 4096, not \"1024\"",
        ),
        (
            "V4 /dev/sdb 1 0512 32768 16380",
            "Invalid logical block size: must be 512 or 4096, not \"0512\"",
        ),
        (
            "V4 /dev/sdb 1 4096 0 16380",
            "Invalid block map page cache size: must be a number of 4096-byte pages above zero, not \"0\"",
        ),
        (
            "V4 /dev/sdb 1 4096 4294967296 16380",
            "Invalid block map page cache size: must be a number of 4096-byte pages above zero, not \"4294967296\"",
        ),
        (
            "V4 /dev/sdb 1 4096 32768 0",
            "Invalid block map maximum age: must be a number above zero, not \"0\"",
        ),
        (
            "V4 /dev/sdb 1 4096 32768 -1",
            "Invalid block map maximum age: must be a number above zero, not \"-1\"",
        ),
        (
            "V4 /dev/sdb 1 4096 32768 16380 ack",
            "Odd number of optional arguments given but they should be <key> <value> pairs: \"ack\" has no value",
        ),
        (
            "V4 /dev/sdb 1 4096 32768 16380 bad bad ack",
            "Odd number of optional arguments given but they should be <key> <value> pairs: \"ack\" has no value",
        ),
    ] {
        assert_eq!(parse(line).unwrap_err(), text);
    }
}

#[test]
fn the_logical_size_is_bounded_and_whole() {
    let at = |length_sectors| {
        let range = TargetRange {
            start_sectors: 8,
            length_sectors,
        };
        parse_at(range, V4).0
    };
    assert_eq!(LOGICAL_SECTORS_MAX, (4 << 50) / 512);
    assert_eq!(at(LOGICAL_SECTORS_MAX).unwrap().logical_blocks, 1 << 40);
    assert_eq!(at(8).unwrap().logical_blocks, 1);
    assert_eq!(
        at(LOGICAL_SECTORS_MAX + 8).unwrap_err(),
        "Logical size exceeds the maximum: 8796093022216 sectors, at most 8796093022208"
    );
    assert_eq!(
        at(u64::MAX).unwrap_err(),
        "Logical size exceeds the maximum: 18446744073709551615 sectors, at most 8796093022208"
    );
    assert_eq!(
        at(12).unwrap_err(),
        "Logical size must be a multiple of 4096: 12 sectors is not a multiple of 8"
    );
}

#[test]
fn the_first_failing_check_is_the_one_reported() {
    let unaligned = TargetRange {
        start_sectors: 0,
        length_sectors: 9,
    };
    let too_large = TargetRange {
        start_sectors: 0,
        length_sectors: LOGICAL_SECTORS_MAX + 1,
    };
    // Each line repairs what the one before was refused for.
    for (range, line, summary) in [
        (too_large, "", "Logical size exceeds"),
        (unaligned, "", "Logical size must be a multiple"),
        (RANGE, "", "Incorrect number of arguments"),
        (RANGE, "V9 x", "Unknown version number"),
        (RANGE, "V4 x", "Incorrect number of arguments for version"),
        (RANGE, "V4 d x x x x odd", "Invalid physical block count"),
        (RANGE, "V4 d 1 x x x odd", "Invalid logical block size"),
        (
            RANGE,
            "V4 d 1 512 x x odd",
            "Invalid block map page cache size",
        ),
        (RANGE, "V4 d 1 512 1 x odd", "Invalid block map maximum age"),
        (
            RANGE,
            "V4 d 1 512 1 1 odd",
            "Odd number of optional arguments",
        ),
        (
            RANGE,
            "V4 d 1 512 1 1 logical 1 odd x",
            "Invalid optional argument configuration",
        ),
        (
            RANGE,
            "V4 d 1 512 1 1 logical 1",
            "Logical, physical, and hash zones",
        ),
        (
            RANGE,
            "V4 d 1 512 1 1 logical 1 hash 1 physical 1",
            "Insufficient block map cache",
        ),
    ] {
        let error = parse_at(range, line).0.unwrap_err();
        assert!(error.starts_with(summary), "{line}: {error}");
    }
}

#[test]
fn words_that_would_spoil_the_log_are_escaped() {
    assert_eq!(
        parse("V4 /dev/sdb \u{1b}[31m 4096 32768 16380").unwrap_err(),
        "Invalid physical block count: must be a number of 4096-byte blocks, not \"\\u{1b}[31m\""
    );
}

#[test]
fn zones_are_all_given_or_all_zero_and_need_their_cache() {
    for (hash, logical, physical) in [
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (1, 1, 0),
        (1, 0, 1),
        (0, 1, 1),
    ] {
        assert_eq!(
            v4(&format!("hash {hash} logical {logical} physical {physical}")).unwrap_err(),
            format!(
                "Logical, physical, and hash zones counts must all be zero or all non-zero: logical {logical}, physical {physical}, hash {hash}"
            )
        );
    }
    let with_cache = |pages: u32| {
        parse(&format!(
            "V4 /dev/sdb 1572864 4096 {pages} 16380 hash 1 logical 3 physical 1"
        ))
    };
    assert_eq!(with_cache(12_288).unwrap().options.threads.logical, 3);
    assert_eq!(
        with_cache(12_287).unwrap_err(),
        "Insufficient block map cache for logical zones: 12287 pages, 3 logical zones need at least 12288"
    );
    assert_eq!(
        parse("V4 /dev/sdb 1572864 4096 1 16380")
            .unwrap()
            .cache_size_pages,
        1,
        "without zones any cache will do"
    );
}

#[test]
fn the_age_is_converted_and_fits_half_the_journal() {
    // 32768 blocks, of which eleven are kept free.
    const USABLE_JOURNAL_BLOCKS: u64 = 32_757;
    let age = |age: u32| {
        parse(&format!("V4 /dev/sdb 1572864 4096 32768 {age}"))
            .unwrap()
            .block_map_age
    };
    assert_eq!(age(1).journal_blocks(), 1);
    assert_eq!(age(434).journal_blocks(), 311);
    assert_eq!(age(435).journal_blocks(), 312);
    assert_eq!(age(16_380).journal_blocks(), 11_738);
    assert_eq!(age(u32::MAX).journal_blocks(), 3_077_730_021);

    assert_eq!(age(1).checked_journal_blocks(USABLE_JOURNAL_BLOCKS), Ok(1));
    assert_eq!(
        age(22_855).checked_journal_blocks(USABLE_JOURNAL_BLOCKS),
        Ok(16_378)
    );
    let error = age(22_856)
        .checked_journal_blocks(USABLE_JOURNAL_BLOCKS)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "block map maximum age 22856 is 16379 journal blocks, it must be from 1 to 16378"
    );
    assert_eq!(Errno::from(error), Errno::Invalid);
    assert!(age(1).checked_journal_blocks(1).is_err());
}

/// A V4 line that can be used, in words.
fn usable_line() -> impl Strategy<Value = Vec<String>> {
    let pair = prop_oneof![
        (0..=100u32).prop_map(|n| ("ack".to_string(), n.to_string())),
        (1..=100u32).prop_map(|n| ("bio".to_string(), n.to_string())),
        (1..=1024u32).prop_map(|n| ("bioRotationInterval".to_string(), n.to_string())),
        (1..=1_048_575u32).prop_map(|n| ("maxDiscard".to_string(), n.to_string())),
        any::<bool>().prop_map(|on| {
            (
                "compression".to_string(),
                if on { "on" } else { "off" }.to_string(),
            )
        }),
        "[a-z]{1,8}(:[1-9])?".prop_map(|word| ("compressionType".to_string(), word)),
        ("[A-Z][a-z]{1,8}", any::<u32>()).prop_map(|(key, n)| (key, n.to_string())),
    ];
    (
        "/dev/[a-z0-9/]{1,20}",
        any::<u64>(),
        any::<bool>(),
        1..=u32::MAX,
        1..=u32::MAX,
        proptest::collection::vec(pair, 0..8),
    )
        .prop_map(|(device, physical, emulated, cache, age, pairs)| {
            let block_size = if emulated { "512" } else { "4096" };
            let mut words = vec!["V4".to_string(), device, physical.to_string()];
            words.extend([block_size.to_string(), cache.to_string(), age.to_string()]);
            words.extend(pairs.into_iter().flat_map(|(key, value)| [key, value]));
            words
        })
}

proptest! {
    /// What status shows can be loaded again and means the same.
    #[test]
    fn the_words_of_a_line_make_the_same_line(words in usable_line()) {
        let text = words.join(" ");
        let first = parse(&text).map_err(TestCaseError::fail)?;
        prop_assert_eq!(first.words(), &text);
        prop_assert_eq!(first.device(), &words[1]);
        let again = parse(first.words()).map_err(TestCaseError::fail)?;
        prop_assert_eq!(format!("{first:?}"), format!("{again:?}"));
    }

    /// No words make the parser panic, and what it accepts it repeats.
    #[test]
    fn any_words_are_parsed_or_refused(
        length_sectors in any::<u64>(),
        version in "(V[0-9]{0,2})?",
        words in proptest::collection::vec("(\\PC{0,12}|[0-9]{1,20}|512|4096|on|ack|compressionType|lz4:[0-9]*|[a-z]+=[0-9]*,?)", 0..16),
    ) {
        let words: Vec<&str> = std::iter::once(version.as_str())
            .chain(words.iter().map(String::as_str))
            .collect();
        for length_sectors in [length_sectors, RANGE.length_sectors] {
            let range = TargetRange { start_sectors: 0, length_sectors };
            match TableLine::parse(range, &words, &mut |notice| { let _ = notice.to_string(); }) {
                Ok(line) => prop_assert_eq!(line.words(), words.join(" ")),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
