// SPDX-License-Identifier: GPL-2.0

//! What software has to understand before it may touch a volume of version 67.1.
//!
//! One 32-bit word, in the place of the first word of the super block's content. A volume of version 67.0 has no such word: what is
//! stored there means nothing.
//!
//! | bit | the volume may have                                                          |
//! |----:|------------------------------------------------------------------------------|
//! |   0 | compressed blocks of LZ4. The meaning that dm-vdo has planned for the bit    |
//! |  16 | compressed blocks that name their format ([`compressed_block`] version 2.0)  |
//! |  17 | an [algorithm map] in each slab                                              |
//! |  24 | compressed blocks of deflate                                                 |
//! |  25 | compressed blocks of zstd                                                    |
//!
//! [`compressed_block`]: super::compressed_block
//! [algorithm map]: super::algorithm_map

use super::stream_format::StreamFormat;
use super::FormatError;

/// A set of features that a volume requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequiredFlags(u32);

impl RequiredFlags {
    /// Blocks of LZ4.
    pub const LZ4: Self = Self(1 << 0);
    /// Compressed blocks that name their format.
    pub const BLOCK_FORMAT: Self = Self(1 << 16);
    /// An algorithm map in each slab.
    pub const SLAB_MAP: Self = Self(1 << 17);
    /// Blocks of deflate.
    pub const DEFLATE: Self = Self(1 << 24);
    /// Blocks of zstd.
    pub const ZSTD: Self = Self(1 << 25);

    /// What a volume gets when it is upgraded: it may have blocks of LZ4 from before.
    pub const UPGRADED: Self = Self(Self::LZ4.0 | Self::BLOCK_FORMAT.0);

    const KNOWN: Self = Self(
        Self::LZ4.0 | Self::BLOCK_FORMAT.0 | Self::SLAB_MAP.0 | Self::DEFLATE.0 | Self::ZSTD.0,
    );

    /// Reads the stored word. A bit that is not known is refused: what it stands for cannot be guessed.
    pub const fn decode(word: u32) -> Result<Self, FormatError> {
        let unknown = word & !Self::KNOWN.0;
        if unknown == 0 {
            Ok(Self(word))
        } else {
            Err(FormatError::UnknownFeature {
                bit: unknown.trailing_zeros(),
            })
        }
    }

    /// The stored word.
    pub const fn encode(self) -> u32 {
        self.0
    }

    /// Whether all of `others` are among these.
    pub const fn contains(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These and `others`.
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These without `others`.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether the volume may have blocks of `format`.
    pub const fn has_format(self, format: StreamFormat) -> bool {
        self.contains(format.flag())
    }

    /// What a bit stands for, in a message.
    pub const fn name_of(bit: u32) -> &'static str {
        match bit {
            0 => "lz4",
            16 => "per-block algorithm",
            17 => "slab algorithm map",
            24 => "deflate",
            25 => "zstd",
            _ => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bit_is_refused_by_its_number() {
        assert_eq!(
            RequiredFlags::decode(0x0301_0001),
            Ok(RequiredFlags::UPGRADED
                .with(RequiredFlags::DEFLATE)
                .with(RequiredFlags::ZSTD))
        );
        for bit in (0..32).filter(|bit| ![0, 16, 17, 24, 25].contains(bit)) {
            assert_eq!(
                RequiredFlags::decode(1 << 16 | 1 << bit),
                Err(FormatError::UnknownFeature { bit })
            );
        }
        let text = FormatError::UnknownFeature { bit: 18 }.to_string();
        assert!(text.contains("18"), "{text}");
    }
}
