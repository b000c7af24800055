// SPDX-License-Identifier: GPL-2.0

//! The source of every decision of a simulation: a small generator that is the same everywhere.

/// A seeded generator (xoshiro256++, seeded by splitmix64).
#[derive(Clone, Debug)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator that `seed` determines completely.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Self { state }
    }

    /// A generator of its own for one part of the simulation, so that parts do not disturb each
    /// other's sequences.
    pub fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// The next 64 bits.
    #[expect(
        clippy::should_implement_trait,
        reason = "a generator is no iterator: it has no end"
    )]
    pub fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let t = b << 17;
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ t, d.rotate_left(45)];
        result
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// An index below `limit`, which must not be 0.
    pub fn index(&mut self, limit: usize) -> usize {
        self.below(limit as u64) as usize
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `permille` times out of a thousand.
    pub fn permille(&mut self, permille: u32) -> bool {
        permille > 0 && self.below(1000) < u64::from(permille)
    }

    /// True `percent` times out of a hundred.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.permille(percent * 10)
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// Fills `bytes` with noise.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let noise = self.next().to_le_bytes();
            chunk.copy_from_slice(&noise[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_determines_the_sequence() {
        let (mut a, mut b, mut c) = (Rng::new(7), Rng::new(7), Rng::new(8));
        let first: Vec<u64> = (0..8).map(|_| a.next()).collect();
        assert_eq!(first, (0..8).map(|_| b.next()).collect::<Vec<_>>());
        assert_ne!(first, (0..8).map(|_| c.next()).collect::<Vec<_>>());
    }

    #[test]
    fn limits_are_kept_and_reached() {
        let mut rng = Rng::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.between(3, 6)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5, 6]);
        assert!((0..100).all(|_| !rng.permille(0) && rng.percent(100)));
    }
}
