// SPDX-License-Identifier: GPL-2.0

//! What the tests of table lines share.

use rvdo_host::target::errno::Errno;
use rvdo_host::target::table_error::Notice;
use rvdo_host::target::table_line::{TableLine, TargetRange};

pub const RANGE: TargetRange = TargetRange {
    start_sectors: 0,
    length_sectors: 20_971_520,
};

pub const V4: &str = "V4 /dev/sdb 1572864 4096 32768 16380";

/// Parses a line, and returns the texts of its error and of its notices.
pub fn parse_at(range: TargetRange, line: &str) -> (Result<TableLine, String>, Vec<String>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let mut notices = Vec::new();
    let result = TableLine::parse(range, &words, &mut |notice: Notice<'_>| {
        notices.push(notice.to_string());
    });
    let result = result.map_err(|error| {
        assert_eq!(Errno::from(&error), Errno::Invalid);
        let text = error.to_string();
        assert!(
            text.starts_with(error.summary().to_str().unwrap()),
            "the detail repeats the summary: {text}"
        );
        text
    });
    (result, notices)
}

pub fn parse(line: &str) -> Result<TableLine, String> {
    parse_at(RANGE, line).0
}

/// A V4 line with `options`.
pub fn v4(options: &str) -> Result<TableLine, String> {
    parse(&format!("{V4} {options}"))
}
