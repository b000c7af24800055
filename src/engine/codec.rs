// SPDX-License-Identifier: GPL-2.0

//! What the codec of a volume makes, in terms of the disk format.

use crate::engine::env::Codec;
use crate::engine::format::compressed_block::StreamFormat;

/// The format of what a codec makes. `None` if its algorithm has no place in the disk format.
pub fn stream_format(codec: &impl Codec) -> Option<StreamFormat> {
    match codec.algorithm() {
        "lz4" | "lz4hc" => Some(StreamFormat::Lz4),
        "zstd" => Some(StreamFormat::Zstd),
        "deflate" => Some(StreamFormat::Deflate),
        _ => None,
    }
}
