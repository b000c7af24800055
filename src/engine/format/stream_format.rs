// SPDX-License-Identifier: GPL-2.0

//! What the bytes of a fragment are. The number on disk names a format, never an engine that makes it.
//!
//! | number | format                                                                             |
//! |-------:|------------------------------------------------------------------------------------|
//! |      1 | one LZ4 block, without a frame                                                     |
//! |      2 | one zstd frame                                                                     |
//! |     16 | raw deflate (RFC 1951) that decodes to 4096 bytes, with distances of 4095 at most  |
//!
//! Numbers below 16 are left to dm-vdo. A new format is a row in [`ROWS`] and a variant.

use super::required_flags::RequiredFlags;

/// What a fragment's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamFormat {
    /// One LZ4 block, without a frame.
    Lz4,
    /// One zstd frame.
    Zstd,
    /// Raw deflate.
    Deflate,
}

struct Row {
    format: StreamFormat,
    id: u8,
    name: &'static str,
    flag: RequiredFlags,
}

const ROWS: [Row; StreamFormat::COUNT] = [
    Row {
        format: StreamFormat::Lz4,
        id: 1,
        name: "lz4",
        flag: RequiredFlags::LZ4,
    },
    Row {
        format: StreamFormat::Zstd,
        id: 2,
        name: "zstd",
        flag: RequiredFlags::ZSTD,
    },
    Row {
        format: StreamFormat::Deflate,
        id: 16,
        name: "deflate",
        flag: RequiredFlags::DEFLATE,
    },
];

impl StreamFormat {
    /// How many formats there are.
    pub const COUNT: usize = 3;
    /// All of them, in the order of [`StreamFormat::index`].
    pub const ALL: [Self; Self::COUNT] = [Self::Lz4, Self::Zstd, Self::Deflate];

    const fn row(self) -> &'static Row {
        match self {
            Self::Lz4 => &ROWS[0],
            Self::Zstd => &ROWS[1],
            Self::Deflate => &ROWS[2],
        }
    }

    /// Its place among [`StreamFormat::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Reads a stored number.
    pub fn decode(id: u8) -> Option<Self> {
        ROWS.iter().find(|row| row.id == id).map(|row| row.format)
    }

    /// The stored number.
    pub const fn encode(self) -> u8 {
        self.row().id
    }

    /// What the format is called. The kernel calls the algorithm that decodes it the same.
    pub const fn name(self) -> &'static str {
        self.row().name
    }

    /// What a volume with blocks of this format says in its super block.
    pub const fn flag(self) -> RequiredFlags {
        self.row().flag
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_variants_agree() {
        for (index, format) in StreamFormat::ALL.into_iter().enumerate() {
            assert_eq!(format.index(), index);
            assert_eq!(format.row().format, format);
            assert_eq!(StreamFormat::decode(format.encode()), Some(format));
        }
        assert_eq!(StreamFormat::decode(0), None);
        assert_eq!(StreamFormat::decode(3), None);
    }
}
