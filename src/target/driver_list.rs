// SPDX-License-Identifier: GPL-2.0

//! `accelerators`: the drivers to prefer, and in which order drivers are tried.
//!
//! `auto` leaves it to `compressionType`; `none` is software only; otherwise names with commas between, the best first. There is one
//! list for compression and one for decompression. Pure values: no locks, nothing to await.

use core::fmt;

use crate::engine::format::StreamFormat;
use crate::target::compression_type::CompressionType;

/// The longest list in characters.
const LIST_MAX_BYTES: usize = 127;

/// The drivers to prefer.
///
/// # Invariants
///
/// The first `length` bytes of `text` are ASCII.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DriverList {
    text: [u8; LIST_MAX_BYTES],
    length: usize,
    automatic: bool,
}

impl DriverList {
    /// Whatever `compressionType` asks for.
    pub const AUTO: Self = Self {
        text: [0; LIST_MAX_BYTES],
        length: 0,
        automatic: true,
    };
    /// Software only.
    pub const NONE: Self = Self {
        automatic: false,
        ..Self::AUTO
    };

    /// Parses `auto`, `none` or `name,name`. `None`: it is none of them.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "auto" => return Some(Self::AUTO),
            "none" => return Some(Self::NONE),
            _ => {}
        }
        let is_name = |name: &str| {
            let well_formed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.()".contains(&byte);
            !name.is_empty() && name.bytes().all(well_formed)
        };
        if !word.split(',').all(is_name) {
            return None;
        }
        let mut text = [0; LIST_MAX_BYTES];
        text.get_mut(..word.len())?.copy_from_slice(word.as_bytes());
        // INVARIANT: All names were checked to be ASCII.
        Some(Self {
            text,
            length: word.len(),
            automatic: false,
        })
    }

    fn text(&self) -> &str {
        let text = self.text.get(..self.length).unwrap_or_default();
        core::str::from_utf8(text).unwrap_or_default()
    }

    /// The names, the best first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.text().split(',').filter(|name| !name.is_empty())
    }

    /// Whether `compressionType` decides.
    pub const fn is_automatic(&self) -> bool {
        self.automatic
    }
}

impl Default for DriverList {
    fn default() -> Self {
        Self::AUTO
    }
}

impl fmt::Display for DriverList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.automatic, self.text()) {
            (true, _) => "auto",
            (false, "") => "none",
            (false, text) => text,
        })
    }
}

impl fmt::Debug for DriverList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverList({self})")
    }
}

/// A driver to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate<'a> {
    /// The best implementation of this name, hardware included.
    Any(&'a str),
    /// The best implementation of this name that computes on the CPU.
    Software(&'a str),
    /// LZ4 of our own, with an acceleration.
    AcceleratedLz4(u32),
}

/// The drivers to try for compression to `format`, the best first. Those that turn out to be of another format are passed over.
pub fn compressors<'a>(
    wanted: &'a CompressionType,
    list: &'a DriverList,
    format: StreamFormat,
) -> impl Iterator<Item = Candidate<'a>> {
    let asked = wanted.algorithm();
    let automatic = list.is_automatic();
    // With a list, hardware is used if it is in the list, or asked for by the name of its driver while there is any list.
    let accelerated = wanted.option().map(Candidate::AcceleratedLz4);
    let by_name = automatic || (asked != format.name() && list.names().next().is_some());
    accelerated
        .into_iter()
        .chain(by_name.then_some(Candidate::Any(asked)))
        .chain(list.names().map(Candidate::Any))
        .chain(automatic.then_some(Candidate::Any(format.name())))
        .chain([
            Candidate::Software(asked),
            Candidate::Software(format.name()),
        ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(wanted: &str, list: &str, format: StreamFormat) -> String {
        let wanted = CompressionType::parse(wanted).unwrap();
        let list = DriverList::parse(list).unwrap();
        let names: Vec<_> = compressors(&wanted, &list, format)
            .map(|candidate| match candidate {
                Candidate::Any(name) => name.to_string(),
                Candidate::Software(name) => format!("{name}!"),
                Candidate::AcceleratedLz4(acceleration) => format!("own:{acceleration}"),
            })
            .collect();
        names.join(" ")
    }

    #[test]
    fn candidates_come_in_the_order_of_the_lists() {
        let deflate = StreamFormat::Deflate;
        assert_eq!(
            order("deflate-iaa", "auto", deflate),
            "deflate-iaa deflate deflate-iaa! deflate!"
        );
        assert_eq!(order("deflate", "none", deflate), "deflate! deflate!");
        assert_eq!(
            order("deflate-iaa", "none", deflate),
            "deflate-iaa! deflate!"
        );
        assert_eq!(
            order("deflate", "qat_deflate,deflate-iaa", deflate),
            "qat_deflate deflate-iaa deflate! deflate!"
        );
        assert_eq!(
            order("deflate-iaa", "qat_deflate", deflate),
            "deflate-iaa qat_deflate deflate-iaa! deflate!"
        );
        assert_eq!(order("lz4:3", "none", StreamFormat::Lz4), "own:3 lz4! lz4!");
        assert_eq!(order("lz4hc", "none", StreamFormat::Lz4), "lz4hc! lz4!");
    }

    #[test]
    fn lists_are_names_with_commas() {
        for word in ["auto", "none", "deflate-iaa", "a,b,c"] {
            assert_eq!(DriverList::parse(word).unwrap().to_string(), word);
        }
        for word in ["", ",", "a,", "a b", "a,,b", &"x".repeat(128)] {
            assert_eq!(DriverList::parse(word), None, "{word:?}");
        }
    }
}
