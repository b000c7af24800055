// SPDX-License-Identifier: GPL-2.0

//! Compressed blocks as dm-vdo's own, unmerged proposal has them, put onto a saved volume: version 2.0 with LZ4 (type 1) or zstd
//! (type 2). The engine reads such blocks and does not make them.

use super::audit::decode::{crc32, CompressedBlock, LZ4, ZSTD};
use super::audit::volume::{state, Volume};
use super::audit::{audit, Strictness};
use super::codec::encode;
use super::image::{Block, Image, BLOCK_SIZE};
use super::rng::Rng;
use crate::engine::format::StreamFormat;

/// Where the first required flag word and its checksum are in the super block.
const FLAGS_AT: usize = 20;
const CHECKSUM_AT: usize = 434;
/// The flag of zstd.
const ZSTD_FLAG: u32 = 1 << 25;
/// Codes in a sector of an algorithm map, and in a block of it.
const CODES_PER_SECTOR: u64 = 1008;
const CODES_PER_BLOCK: u64 = 8 * CODES_PER_SECTOR;

/// What is to be changed, by block of the medium.
struct Rewrite {
    at: u64,
    block: Block,
    /// The block of the algorithm map, the place of the code in it, and the code.
    code: Option<(u64, u64, u8)>,
}

/// Makes about half of the compressed blocks of a saved volume such blocks, if what they hold fits. Returns how many it made of
/// either type.
pub fn rewrite(image: &mut Image, rng: &mut Rng) -> Result<[u64; 2], String> {
    let mut made = [0, 0];
    let (rewrites, super_block) = {
        let audit = audit(image, Strictness::FOREIGN)?;
        if audit.volume.state != state::CLEAN {
            return Ok(made);
        }
        let mut compressed: Vec<u64> = audit
            .forest
            .usage
            .iter()
            .filter(|(_, usage)| usage.fragments > 0)
            .map(|(pbn, _)| *pbn)
            .collect();
        compressed.sort_unstable();
        compressed.retain(|_| rng.percent(50));
        let volume = &audit.volume;
        let rewrites: Vec<Rewrite> = compressed
            .into_iter()
            .filter_map(|pbn| {
                let format = *rng.pick(&[LZ4, ZSTD]);
                let block = remake(&volume.block(pbn), format)?;
                made[usize::from(format == ZSTD)] += 1;
                Some(Rewrite {
                    at: pbn - volume.bio_offset,
                    block,
                    code: code_place(volume, pbn).map(|(map, index)| match format {
                        LZ4 => (map, index, 4),
                        _ => (map, index, 2),
                    }),
                })
            })
            .collect();
        let flags = volume.required.filter(|_| made[1] > 0);
        let at = volume.data_start - volume.bio_offset;
        (rewrites, flags.map(|flags| (at, flags | ZSTD_FLAG)))
    };
    for Rewrite { at, block, code } in rewrites {
        image.edit(at, |old| *old = block);
        if let Some((map, index, code)) = code {
            image.edit(map, |block| set_code(block, index, code));
        }
    }
    if let Some((at, flags)) = super_block {
        image.edit(at, |block| {
            block[FLAGS_AT..FLAGS_AT + 4].copy_from_slice(&flags.to_le_bytes());
            let crc = crc32(&block[..CHECKSUM_AT]);
            block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&crc.to_le_bytes());
        });
    }
    Ok(made)
}

/// Puts what a compressed block holds into one of version 2.0. `None` if it does not fit.
fn remake(old: &Block, format: u8) -> Option<Block> {
    let read = CompressedBlock::read(old).ok()?;
    let stream = match format {
        LZ4 => StreamFormat::Lz4,
        _ => StreamFormat::Zstd,
    };
    let mut new = [0; BLOCK_SIZE];
    new[0] = 2;
    new[36] = format;
    let mut end = 37;
    for slot in 0..read.fragments.len() {
        let mut fragment = [0; 2 * BLOCK_SIZE];
        let bytes = encode(stream, &read.expand(slot)?, &mut fragment)?;
        new.get_mut(end..end + bytes)?
            .copy_from_slice(&fragment[..bytes]);
        new[8 + 2 * slot..10 + 2 * slot].copy_from_slice(&u16::try_from(bytes).ok()?.to_le_bytes());
        end += bytes;
    }
    Some(new)
}

/// The block of the medium with the code of a data block, and its place there. `None` if there is no map.
fn code_place(volume: &Volume<'_>, pbn: u64) -> Option<(u64, u64)> {
    let (slab, sbn) = volume
        .data_block(pbn)
        .filter(|_| volume.required.is_some() && volume.map_blocks > 0)?;
    let map = volume.slab_origin(slab)
        + volume.data_blocks
        + volume.reference_blocks
        + volume.slab_journal_blocks;
    let block = map + sbn / CODES_PER_BLOCK - volume.bio_offset;
    Some((block, sbn % CODES_PER_BLOCK))
}

fn set_code(block: &mut Block, index: u64, code: u8) {
    let (sector, index) = (index / CODES_PER_SECTOR, index % CODES_PER_SECTOR);
    let byte = &mut block[(sector * 512 + 8 + index / 2) as usize];
    *byte = match index % 2 {
        0 => *byte & 0xf0 | code,
        _ => *byte & 0x0f | code << 4,
    };
}
