//! Choices that follow from a seed.
//!
//! SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): any seed is a good one, and a stream of its own is
//! one more number away.

use std::ops::Range;

/// A stream of choices.
pub struct Random(u64);

impl Random {
    /// The stream number `stream` of this seed.
    pub fn new(seed: u64, stream: u64) -> Random {
        Random(mix(seed).wrapping_add(mix(!stream)))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number of the range, which is not empty.
    pub fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.draw() % (range.end - range.start)
    }

    /// A number below this one, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.draw() % count as u64) as usize
    }

    /// True in this many of a hundred cases.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.draw() % 100 < chance
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A number that looks like no other.
pub fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
