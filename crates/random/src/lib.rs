//! Random numbers that are the same each time.
//!
//! Owns one generator per *stream*: a name and a number under the seed of the run. Every component
//! draws from its own streams, so removing one request or incident does not change the rest: the
//! remaining run still fails.
//!
//! Invariant: equal seeds, names and numbers give equal streams; nothing else goes in.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

/// xoshiro256** (Blackman, Vigna 2018), seeded by splitmix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

/// What splitmix64 adds to its state for each number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step of splitmix64: a bijection that leaves no pattern of its argument.
pub const fn mix(value: u64) -> u64 {
    let z = value.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The next number of a stream that has one word of state: splitmix64 itself.
pub fn next(state: &mut u64) -> u64 {
    let drawn = mix(*state);
    *state = state.wrapping_add(STEP);
    drawn
}

/// Fills a buffer with the bytes that belong at this offset of an endless pattern, which differs in
/// each eight bytes.
pub fn fill(offset: u64, buf: &mut [u8]) {
    for (index, bytes) in buf.chunks_mut(8).enumerate() {
        bytes.copy_from_slice(&pattern(offset, index)[..bytes.len()]);
    }
}

/// Counts the bytes that do not belong at this offset of the pattern.
pub fn differing(offset: u64, buf: &[u8]) -> u64 {
    let wrong = buf.chunks(8).enumerate().map(|(index, bytes)| {
        let expected = pattern(offset, index);
        let differs = |(byte, expected): &(&u8, &u8)| byte != expected;
        bytes.iter().zip(&expected).filter(differs).count() as u64
    });
    wrong.sum()
}

fn pattern(offset: u64, index: usize) -> [u8; 8] {
    mix(offset + 8 * index as u64).to_le_bytes()
}

impl Rng {
    /// The stream `name`, number `number`, of the run with this seed.
    pub fn stream(seed: u64, name: &str, number: u64) -> Rng {
        let named = name.bytes().fold(mix(seed), |hash, byte| mix(hash ^ u64::from(byte)));
        let mut state = mix(named ^ mix(number));
        let mut words = [0; 4];
        for word in &mut words {
            state = mix(state);
            *word = state;
        }
        Rng(words)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number in `0..limit`.
    ///
    /// # Panics
    /// If `limit` is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "there is no number below 0");
        ((u128::from(self.bits()) * u128::from(limit)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// One of these, each as often as its weight says.
    ///
    /// # Panics
    /// If all weights are 0.
    pub fn weighted<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut at = self.below(from.iter().map(|&(weight, _)| weight).sum());
        for &(weight, item) in from {
            if at < weight {
                return item;
            }
            at -= weight;
        }
        unreachable!("the number is below the sum of the weights")
    }

    /// Puts these into any order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for left in (2..=items.len()).rev() {
            items.swap(left - 1, self.below(left as u64) as usize);
        }
    }

    /// A number that is small most times: the exponent of two is even over `0..=most.ilog2()`.
    ///
    /// # Panics
    /// If `most` is 0.
    pub fn skewed(&mut self, most: u64) -> u64 {
        let power = self.below(u64::from(most.ilog2()) + 1);
        let low = 1 << power;
        self.within(low, (2 * low - 1).min(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_of_one_word_is_that_of_splitmix64() {
        let mut state = 0;
        let drawn = [(); 3].map(|()| next(&mut state));
        // The reference implementation's first numbers from 0.
        assert_eq!(drawn, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn a_single_wrong_byte_is_counted_and_so_is_data_from_elsewhere() {
        for bytes in [4096, 4095] {
            let mut buf = vec![0; bytes];
            fill(8192, &mut buf);
            assert_eq!(differing(8192, &buf), 0);
            assert!(differing(4096, &buf) > 4000, "the right bytes at the wrong place");
            buf[77] ^= 1;
            assert_eq!(differing(8192, &buf), 1);
            buf.fill(0);
            assert!(differing(8192, &buf) > 4000);
        }
    }

    #[test]
    fn streams_are_apart_and_come_again() {
        let first = |seed, name, number| Rng::stream(seed, name, number).bits();
        assert_eq!(first(1, "disk", 0), first(1, "disk", 0));
        let all =
            [first(1, "disk", 0), first(2, "disk", 0), first(1, "client", 0), first(1, "disk", 1)];
        let mut distinct = all.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }

    #[test]
    fn numbers_cover_their_range_and_no_more() {
        let mut rng = Rng::stream(7, "test", 0);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
            let skewed = rng.skewed(100);
            assert!((1..=100).contains(&skewed));
        }
        assert!(seen.iter().all(|&count| (800..1200).contains(&count)), "{seen:?}");
    }

    #[test]
    fn shuffling_keeps_everything() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::stream(7, "test", 1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
