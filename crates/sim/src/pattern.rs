//! The content of sectors, as one number each.
//!
//! Every sector that a test writes is filled with a pattern grown from its *value*: the number of
//! the write and the address of the sector. So a misplaced, old or torn sector differs from the
//! right one, and an oracle needs eight bytes for each sector.

use crate::medium::SECTOR;
use random::mix;

/// The content of a sector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value(u64);

/// The top bit distinguishes noise from test data.
const NOISE: u64 = 1 << 63;

/// Words of a sector.
const WORDS: usize = SECTOR as usize / 8;

/// An odd number without pattern: 2⁶⁴ over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Value {
    /// All zeros.
    pub const ZERO: Value = Value(0);

    /// The value of write number `write` in this sector: 1 ≤ write < 2³¹.
    pub fn of(write: u64, sector: u64) -> Value {
        assert!(write > 0 && write < 1 << 31 && sector < 1 << 32, "numbers stay small");
        Value(write << 32 | sector)
    }

    /// The kind of one sector's bytes: a pattern, zeros, or noise.
    ///
    /// # Panics
    /// If these are not the bytes of one sector.
    pub fn read(bytes: &[u8]) -> Value {
        let (words, rest) = bytes.as_chunks::<8>();
        assert!(words.len() == WORDS && rest.is_empty(), "a sector");
        let value = Value(u64::from_le_bytes(words[0]));
        if value.0 & NOISE == 0 && value.fills(words) {
            return value;
        }
        // A checksum of words mixed each by itself: the places count, and none waits for another.
        let place = |at: usize| (at as u64).wrapping_mul(STEP);
        let mixed = |(at, &word): (usize, _)| mix(u64::from_le_bytes(word) ^ place(at));
        let checksum = words.iter().enumerate().map(mixed).fold(0, u64::wrapping_add);
        Value(mix(checksum) | NOISE)
    }

    /// The words of a sector after its first, which is the value itself. Odd factors: different
    /// values give different words, in every place of the sector. Sums and shifts only, without
    /// dependent comparisons: this is a simulator's most frequent operation.
    fn words(self) -> impl Iterator<Item = u64> {
        let mut word = if self == Value::ZERO { 0 } else { (self.0 ^ STEP).wrapping_mul(STEP) };
        let twice = word << 1;
        (1..WORDS).map(move |_| {
            word = word.wrapping_add(twice);
            word.rotate_left(29)
        })
    }

    /// Are all words but the first as they should be?
    fn fills(self, words: &[[u8; 8]]) -> bool {
        let pairs = words[1..].iter().zip(self.words());
        pairs.fold(0, |all, (&word, own)| all | (u64::from_le_bytes(word) ^ own)) == 0
    }

    /// Fills one sector.
    ///
    /// # Panics
    /// If these are not the bytes of one sector.
    pub fn fill(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len() as u64, SECTOR, "a sector");
        let (words, _) = bytes.as_chunks_mut::<8>();
        words[0] = self.0.to_le_bytes();
        words[1..].iter_mut().zip(self.words()).for_each(|(eight, word)| {
            *eight = word.to_le_bytes();
        });
    }

    /// True if no test has written this.
    pub fn is_noise(self) -> bool {
        self.0 & NOISE != 0
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => f.write_str("zeros"),
            noise if noise & NOISE != 0 => write!(f, "noise {:x}", noise & 0xffff),
            value => write!(f, "write {} of sector {}", value >> 32, value as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_recognized_and_a_torn_one_is_not() {
        let mut bytes = [0; 512];
        assert_eq!(Value::read(&bytes), Value::ZERO);
        let value = Value::of(7, 9);
        value.fill(&mut bytes);
        assert_eq!(Value::read(&bytes), value);
        let mut other = [0; 512];
        Value::of(8, 9).fill(&mut other);
        for cut in (8..512).step_by(8) {
            let mut torn = bytes;
            torn[cut..].copy_from_slice(&other[cut..]);
            assert!(Value::read(&torn).is_noise(), "cut at {cut}");
        }
        bytes[511] ^= 1;
        assert!(Value::read(&bytes).is_noise());
    }
}
