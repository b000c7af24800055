// SPDX-License-Identifier: GPL-2.0

//! The optional part of a table line: every key with the ends of its range and its error text.

mod table_lines;

use rvdo_host::target::compression_type::{check_volume, CompressionType, StreamFormat};
use rvdo_host::target::errno::Errno;
use rvdo_host::target::table_options::{IndexMemory, TableOptions, ThreadCounts};
use table_lines::{parse, parse_at, v4, RANGE, V4};

fn options(options: &str) -> TableOptions {
    v4(options)
        .unwrap_or_else(|e| panic!("{options}: {e}"))
        .options
}

#[test]
fn defaults_are_those_of_the_interface() {
    let options = TableOptions::default();
    assert_eq!(
        options.threads,
        ThreadCounts {
            ack: 1,
            bio: 4,
            bio_rotation_interval_blocks: 64,
            cpu: 1,
            hash: 0,
            logical: 0,
            physical: 0,
        }
    );
    assert_eq!(options.max_discard_blocks, 1);
    assert!(options.deduplication);
    assert!(!options.compression);
    assert_eq!(options.compression_type, None);
    assert_eq!(options.index_memory, IndexMemory::QUARTER_GIGABYTE);
    assert!(!options.index_sparse);
    assert_eq!(options.slab_size_blocks, 524_288);
}

#[test]
fn numbers_are_accepted_to_the_ends_of_their_ranges_and_no_further() {
    type Field = fn(&TableOptions) -> u32;
    let fields: [(&str, u32, u32, Field); 8] = [
        ("ack", 0, 100, |o| o.threads.ack),
        ("bio", 1, 100, |o| o.threads.bio),
        ("bioRotationInterval", 1, 1024, |o| {
            o.threads.bio_rotation_interval_blocks
        }),
        ("cpu", 1, 100, |o| o.threads.cpu),
        ("hash", 0, 100, |o| o.threads.hash),
        ("logical", 0, 60, |o| o.threads.logical),
        ("physical", 0, 16, |o| o.threads.physical),
        ("maxDiscard", 1, 1_048_575, |o| o.max_discard_blocks),
    ];
    for (key, min, max, field) in fields {
        // Zones have to be given together, and need a cache.
        let line = |value: &str| {
            let zones = match (key, value) {
                ("hash" | "logical" | "physical", value) if value != "0" => {
                    "hash 1 logical 1 physical 1"
                }
                _ => "",
            };
            parse(&format!(
                "V4 /dev/sdb 1572864 4096 1000000 16380 {zones} {key} {value}"
            ))
        };
        for value in [min, max] {
            let parsed = line(&value.to_string()).unwrap();
            assert_eq!(field(&parsed.options), value, "{key}");
        }
        let below = min
            .checked_sub(1)
            .map_or("-1".to_string(), |n| n.to_string());
        let above = (max + 1).to_string();
        for value in [&below, &above, "4294967296", "on", "1.5", "0x1"] {
            assert_eq!(
                line(value).unwrap_err(),
                format!(
                    "Invalid optional argument configuration: {key} must be a number from {min} to {max}, not \"{value}\""
                )
            );
        }
    }
}

#[test]
fn switches_are_on_or_off_in_these_letters() {
    type Field = fn(&TableOptions) -> bool;
    let fields: [(&str, Field); 3] = [
        ("deduplication", |o| o.deduplication),
        ("compression", |o| o.compression),
        ("indexSparse", |o| o.index_sparse),
    ];
    for (key, field) in fields {
        assert!(field(&options(&format!("{key} on"))));
        assert!(!field(&options(&format!("{key} off"))));
        for value in ["On", "yes", "1", "true"] {
            assert_eq!(
                v4(&format!("{key} {value}")).unwrap_err(),
                format!(
                    "Invalid optional argument configuration: {key} must be on or off, not \"{value}\""
                )
            );
        }
    }
}

#[test]
fn index_memory_is_a_fraction_or_gigabytes() {
    let memory = |value: &str| options(&format!("indexMemory {value}")).index_memory;
    assert_eq!(memory("0.25").encoded(), (-256i32) as u32);
    assert_eq!(memory("0.5").encoded(), (-512i32) as u32);
    assert_eq!(memory("0.50").encoded(), (-512i32) as u32);
    assert_eq!(memory("0.75").encoded(), (-768i32) as u32);
    assert_eq!(memory("0").encoded(), 0);
    assert_eq!(memory("1024").encoded(), 1024);
    for value in ["1025", "0.250", ".25", "1.0", "-1", "on"] {
        assert_eq!(
            v4(&format!("indexMemory {value}")).unwrap_err(),
            format!(
                "Invalid optional argument configuration: indexMemory must be 0.25, 0.5, 0.75 or a number of gigabytes up to 1024, not \"{value}\""
            )
        );
    }
}

#[test]
fn slabs_are_powers_of_two() {
    for bits in 13..=23 {
        let blocks = 1u32 << bits;
        assert_eq!(
            options(&format!("slabSize {blocks}")).slab_size_blocks,
            blocks
        );
    }
    for value in ["4096", "16777216", "8191", "8193", "10000", "0", "8k"] {
        assert_eq!(
            v4(&format!("slabSize {value}")).unwrap_err(),
            format!(
                "Invalid optional argument configuration: slabSize must be a power of two from 8192 to 8388608 blocks, not \"{value}\""
            )
        );
    }
}

#[test]
fn the_later_of_two_equal_keys_wins() {
    let options = options(
        "compression on ack 5 compression off ack 6 compressionType zstd compressionType lz4",
    );
    assert!(!options.compression);
    assert_eq!(options.threads.ack, 6);
    assert_eq!(options.compression_type.unwrap().to_string(), "lz4");
}

#[test]
fn unknown_options_are_passed_over_only_with_numbers() {
    let (line, notices) = parse_at(RANGE, &format!("{V4} newThing 18446744073709551615 ack 3"));
    assert_eq!(line.unwrap().options.threads.ack, 3);
    assert_eq!(
        notices,
        ["unknown option \"newThing\" with the value 18446744073709551615 ignored"]
    );
    // Keys are case-sensitive, so this one is unknown.
    assert_eq!(options("Ack 99").threads.ack, 1);
    for (key, value) in [
        ("newThing", "on"),
        ("newThing", "-1"),
        ("Compression", "on"),
    ] {
        assert_eq!(
            v4(&format!("{key} {value}")).unwrap_err(),
            format!(
                "Invalid optional argument configuration: unknown option \"{key}\" with the value \"{value}\"; an unknown option is ignored only if its value is a number"
            )
        );
    }
}

#[test]
fn compression_types_name_a_stream_format() {
    for (word, format) in [
        ("lz4", StreamFormat::Lz4),
        ("lz4hc", StreamFormat::Lz4),
        ("lz4-scomp", StreamFormat::Lz4),
        ("deflate", StreamFormat::Deflate),
        ("deflate-iaa", StreamFormat::Deflate),
        ("deflate-generic", StreamFormat::Deflate),
        ("qat_deflate", StreamFormat::Deflate),
        ("zstd", StreamFormat::Zstd),
        ("qat_zstd", StreamFormat::Zstd),
    ] {
        let parsed = CompressionType::parse(word).unwrap();
        assert_eq!(parsed.algorithm(), word);
        assert_eq!(parsed.option(), None);
        assert_eq!(parsed.to_string(), word);
        assert_eq!(parsed.stored_as(None), Ok(format));
        assert_eq!(StreamFormat::of_algorithm(format.name()), Some(format));
    }
    assert_eq!(CompressionType::default().algorithm(), "lz4");
    assert_eq!(
        CompressionType::default(),
        CompressionType::parse("lz4").unwrap()
    );

    // A driver that only the kernel knows.
    let private = CompressionType::parse("my-accelerator").unwrap();
    assert_eq!(
        private.stored_as(Some("deflate")),
        Ok(StreamFormat::Deflate)
    );
    for kernel_algorithm in [None, Some("lzo-rle")] {
        assert_eq!(
            private.stored_as(kernel_algorithm).unwrap_err().to_string(),
            "must name an lz4, deflate or zstd driver that this kernel has"
        );
    }
}

#[test]
fn compression_options_are_bounded_by_the_algorithm() {
    for (word, option) in [
        ("lz4:1", 1),
        ("lz4:65537", 65_537),
        ("my-accelerator:4294967295", u32::MAX),
    ] {
        let parsed = CompressionType::parse(word).unwrap();
        assert_eq!(parsed.option(), Some(option));
        assert_eq!(parsed.to_string(), word);
    }
    let longest = "a".repeat(127);
    assert_eq!(
        CompressionType::parse(&longest).unwrap().algorithm(),
        longest
    );
    let too_long = "a".repeat(128);

    let name = "must be <algorithm>[:<option>], for example lz4, lz4:3, deflate or deflate-iaa";
    let no_option =
        "has a number after the colon, but the kernel's driver for this algorithm takes none (lz4 does)";
    for (value, detail) in [
        (":3", name),
        ("lz4/x", name),
        ("lz\u{e4}", name),
        (too_long.as_str(), name),
        ("lz4:", "must have a number after the colon"),
        ("lz4:fast", "must have a number after the colon"),
        ("lz4:1:2", "must have a number after the colon"),
        ("lz4:4294967296", "must have a number after the colon"),
        (
            "lz4:0",
            "must have a number from 1 to 65537 after the colon",
        ),
        (
            "lz4:65538",
            "must have a number from 1 to 65537 after the colon",
        ),
        ("deflate-iaa:1", no_option),
        ("lz4hc:9", no_option),
        ("zstd:3", no_option),
    ] {
        assert_eq!(
            v4(&format!("compressionType {value}")).unwrap_err(),
            format!(
                "Invalid optional argument configuration: compressionType {detail}, not {value:?}"
            )
        );
    }
}

#[test]
fn a_volume_of_the_original_format_takes_lz4_alone() {
    for (word, original, upgraded) in [
        ("lz4", true, true),
        ("lz4hc", true, true),
        ("deflate", false, true),
        ("deflate-iaa", false, true),
        ("zstd", false, true),
    ] {
        let wanted = CompressionType::parse(word).unwrap();
        let format = wanted.stored_as(None).unwrap();
        assert_eq!(check_volume(&wanted, format, true).is_ok(), upgraded);
        let result = check_volume(&wanted, format, false);
        assert_eq!(result.is_ok(), original, "{word}");
        if let Err(error) = result {
            assert_eq!(
                error.to_string(),
                format!(
                    "compressionType {word} needs the per-block algorithm field; this volume has the original format, whose blocks can only be lz4. Load it once with 'upgrade on', or send 'dmsetup message <device> 0 upgrade' (see docs/upgrade.md). The volume stays as it is."
                )
            );
            assert_eq!(Errno::from(error), Errno::Invalid);
        }
    }
}

#[test]
fn accelerators_are_lists_of_drivers_for_either_direction() {
    let options = v4("compressionVerify on upgrade on accelerators qat_deflate,deflate-iaa decompressAccelerators none")
        .unwrap()
        .options;
    assert!(options.compression_verify && options.upgrade);
    assert_eq!(
        options.compress_accelerators.to_string(),
        "qat_deflate,deflate-iaa"
    );
    assert_eq!(options.decompress_accelerators.to_string(), "none");
    let options = v4("compressAccelerators a").unwrap().options;
    assert!(!options.compression_verify && !options.upgrade);
    assert_eq!(options.compress_accelerators.to_string(), "a");
    assert!(options.decompress_accelerators.is_automatic());
    assert_eq!(
        v4("accelerators a,,b").unwrap_err(),
        "Invalid optional argument configuration: accelerators must be auto, none, or names of drivers with commas between, not \"a,,b\""
    );
}
