// SPDX-License-Identifier: GPL-2.0

//! MurmurHash3, the 128-bit variant for 64-bit machines.

const C1: u64 = 0x87c3_7b91_1142_53d5;
const C2: u64 = 0x4cf5_ad43_2745_937f;

/// Hashes `data`. Byte order and result do not depend on the machine.
pub fn murmur3_128(data: &[u8], seed: u32) -> [u8; 16] {
    let mut h1 = u64::from(seed);
    let mut h2 = u64::from(seed);

    let mut chunks = data.chunks_exact(16);
    for chunk in &mut chunks {
        let (k1, k2) = words(chunk);
        h1 ^= scramble_1(k1);
        h1 = h1
            .rotate_left(27)
            .wrapping_add(h2)
            .wrapping_mul(5)
            .wrapping_add(0x52dc_e729);
        h2 ^= scramble_2(k2);
        h2 = h2
            .rotate_left(31)
            .wrapping_add(h1)
            .wrapping_mul(5)
            .wrapping_add(0x3849_5ab5);
    }

    let rest = chunks.remainder();
    if !rest.is_empty() {
        let mut last = [0; 16];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        // Words that are zero because no byte reaches them scramble to zero.
        let (k1, k2) = words(&last);
        h1 ^= scramble_1(k1);
        h2 ^= scramble_2(k2);
    }

    let length = data.len() as u64;
    h1 ^= length;
    h2 ^= length;
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);
    h1 = finish(h1);
    h2 = finish(h2);
    h1 = h1.wrapping_add(h2);
    h2 = h2.wrapping_add(h1);

    (u128::from(h1) | (u128::from(h2) << 64)).to_le_bytes()
}

/// The two words of 16 bytes.
#[inline(always)]
fn words(chunk: &[u8]) -> (u64, u64) {
    // One check for all 16 bytes, which the compiler sees is never taken.
    let bytes = chunk.first_chunk::<16>().copied().unwrap_or([0; 16]);
    let both = u128::from_le_bytes(bytes);
    (both as u64, (both >> 64) as u64)
}

#[inline(always)]
fn scramble_1(k: u64) -> u64 {
    k.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

#[inline(always)]
fn scramble_2(k: u64) -> u64 {
    k.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

/// Makes every bit of the result depend on every bit of `k`.
#[inline(always)]
fn finish(mut k: u64) -> u64 {
    k ^= k >> 33;
    k = k.wrapping_mul(0xff51_afd7_ed55_8ccd);
    k ^= k >> 33;
    k = k.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}
