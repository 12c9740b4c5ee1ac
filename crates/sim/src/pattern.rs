//! What sectors hold, as one number each.
//!
//! Every sector that a test writes is filled with a pattern grown from its *value*: the number of
//! the write and the address of the sector. So a sector from another place, or from another time,
//! or half of one, is told from the right one; and an oracle needs eight bytes for each sector.

use crate::medium::SECTOR;
use crate::rng::mix;

/// What a sector holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Value(u64);

/// The top bit tells noise from what a test has written.
const NOISE: u64 = 1 << 63;

/// An odd number without pattern: 2⁶⁴ over the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Value {
    /// All zeros.
    pub const ZERO: Value = Value(0);

    /// What write number `write` puts into this sector: 1 ≤ write < 2³¹.
    pub fn of(write: u64, sector: u64) -> Value {
        assert!(write > 0 && write < 1 << 31 && sector < 1 << 32, "numbers stay small");
        Value(write << 32 | sector)
    }

    /// What these bytes of one sector are: a pattern, zeros, or noise.
    pub fn read(bytes: &[u8]) -> Value {
        let word = |at: usize| {
            let eight = bytes[8 * at..8 * at + 8].try_into().expect("eight bytes are eight bytes");
            u64::from_le_bytes(eight)
        };
        let value = Value(word(0));
        if value.0 & NOISE == 0 && (1..64).all(|at| word(at) == value.word(at)) {
            return value;
        }
        // A sum of words mixed each by itself: the places count, and none waits for another.
        let place = |at: usize| (at as u64).wrapping_mul(STEP);
        let sum = (0..64).fold(0_u64, |sum, at| sum.wrapping_add(mix(word(at) ^ place(at))));
        Value(mix(sum) | NOISE)
    }

    fn word(self, at: usize) -> u64 {
        match (self.0, at) {
            (0, _) => 0,
            (value, 0) => value,
            // Odd factors: other values give other words, in every place of the sector.
            (value, at) => {
                (value ^ STEP).wrapping_mul(STEP.wrapping_mul(2 * at as u64 + 1)).rotate_left(29)
            }
        }
    }

    /// Fills one sector.
    pub fn fill(self, bytes: &mut [u8]) {
        assert_eq!(bytes.len() as u64, SECTOR, "a sector");
        for (at, eight) in bytes.chunks_exact_mut(8).enumerate() {
            eight.copy_from_slice(&self.word(at).to_le_bytes());
        }
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
