//! Chance, and what it does to an input.
//!
//! Owns the mutations and the stream of chance behind them; never looks at what an input means. The
//! same seed gives the same inputs, on every machine.

use crate::Target;

/// Chance under a seed: SplitMix64.
pub struct Dice(u64);

impl Dice {
    /// Dice that fall the same way each time.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ bits >> 31
    }

    /// A number below `count`, which is not 0.
    pub fn below(&mut self, count: usize) -> usize {
        (self.bits() % count as u64) as usize
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// Numbers at which something happens: signs, powers of two, and their neighbours.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x1ff,
    0x200,
    0xfff,
    0x1000,
    0x7fff,
    0x8000,
    0xff00,
    0xfffd,
    0xfffe,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 53,
    (1 << 53) + 1,
    u64::MAX / 512,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// Lengths of the numbers in formats and protocols.
const WIDTHS: &[usize] = &[1, 2, 2, 4, 4, 4, 8, 8];

/// Makes another input out of `bytes`; `other` gives parts.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], target: &Target, dice: &mut Dice) {
    for _ in 0..1 << dice.below(4) {
        once(bytes, other, target, dice);
    }
    bytes.truncate(target.most_bytes);
    if dice.below(4) != 0 {
        (target.mend)(bytes);
    }
}

fn once(bytes: &mut Vec<u8>, other: &[u8], target: &Target, dice: &mut Dice) {
    if bytes.is_empty() {
        bytes.extend_from_slice(other);
        bytes.push(dice.bits() as u8);
        return;
    }
    let at = dice.below(bytes.len());
    match dice.below(16) {
        0 | 1 => bytes[at] ^= 1 << dice.below(8),
        2 => bytes[at] = dice.bits() as u8,
        3 | 4 => {
            let edge = dice.pick(EDGES);
            put(bytes, at, edge, dice);
        }
        5 | 6 => nudge(bytes, at, dice),
        7 => claim(bytes, at, dice),
        8 => {
            let end = bytes.len().min(at + 1 + run(dice));
            bytes.drain(at..end);
        }
        9 => {
            let fresh: Vec<u8> = (0..1 + run(dice)).map(|_| dice.bits() as u8).collect();
            bytes.splice(at..at, fresh);
        }
        10 => {
            let end = bytes.len().min(at + 1 + run(dice));
            let copy = bytes[at..end].to_vec();
            let to = dice.below(bytes.len());
            bytes.splice(to..to, copy);
        }
        11 => {
            let end = bytes.len().min(at + 1 + run(dice));
            let to = dice.below(bytes.len() - (end - at) + 1);
            bytes.copy_within(at..end, to);
        }
        12 => {
            let end = bytes.len().min(at + 1 + run(dice));
            let fill = dice.pick(&[0, 0xff, 0x20, 0x80]);
            bytes[at..end].fill(fill);
        }
        13 => splice(bytes, at, other, dice),
        14 => word(bytes, at, target, dice),
        _ => {
            if dice.below(4) == 0 {
                bytes.truncate(at);
            } else {
                let to = (at + 1 + dice.below(8)) % bytes.len();
                bytes.swap(at, to);
            }
        }
    }
}

/// Short mostly, long at times.
fn run(dice: &mut Dice) -> usize {
    let most = dice.pick(&[1, 4, 8, 28, 64, 512]);
    dice.below(most)
}

/// Writes a number of some width, in either byte order.
fn put(bytes: &mut [u8], at: usize, number: u64, dice: &mut Dice) {
    let width = dice.pick(WIDTHS);
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    if dice.below(2) == 0 {
        place.copy_from_slice(&number.to_le_bytes()[..width]);
    } else {
        place.copy_from_slice(&number.to_be_bytes()[8 - width..]);
    }
}

/// Adds a little to a number, or takes it away.
fn nudge(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    let (width, big) = (dice.pick(WIDTHS), dice.below(2) == 0);
    let Some(place) = bytes.get_mut(at..at + width) else { return };
    let mut number = [0; 8];
    number[..width].copy_from_slice(place);
    if big {
        number[..width].reverse();
    }
    let step = 1 + dice.below(16) as u64;
    let old = u64::from_le_bytes(number);
    let new = if dice.below(2) == 0 { old.wrapping_add(step) } else { old.wrapping_sub(step) };
    number = new.to_le_bytes();
    if big {
        number[..width].reverse();
    }
    place.copy_from_slice(&number[..width]);
}

/// Makes a number what a length would be: the bytes that follow it, a few more, a few less.
fn claim(bytes: &mut [u8], at: usize, dice: &mut Dice) {
    let left = (bytes.len() - at) as u64;
    let number = match dice.below(4) {
        0 => left.wrapping_add(dice.below(16) as u64),
        1 => left.wrapping_sub(dice.below(16) as u64),
        2 => left << dice.below(24),
        _ => dice.bits() >> dice.below(64),
    };
    put(bytes, at, number, dice);
}

/// A part of the other input in place of ours, or all from here on.
fn splice(bytes: &mut Vec<u8>, at: usize, other: &[u8], dice: &mut Dice) {
    if other.is_empty() {
        return;
    }
    let from = dice.below(other.len());
    if dice.below(2) == 0 {
        bytes.truncate(at);
        bytes.extend_from_slice(&other[from..]);
    } else {
        let end = other.len().min(from + 1 + run(dice));
        let until = bytes.len().min(at + run(dice));
        bytes.splice(at..until, other[from..end].iter().copied());
    }
}

/// One of the target's words, over what is there or before it.
fn word(bytes: &mut Vec<u8>, at: usize, target: &Target, dice: &mut Dice) {
    if target.words.is_empty() {
        return;
    }
    let word = dice.pick(target.words);
    let over = if dice.below(2) == 0 { word.len() } else { 0 };
    let end = bytes.len().min(at + over);
    bytes.splice(at..end, word.iter().copied());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(seed: u64) -> Vec<u8> {
        let mut dice = Dice::new(seed);
        let mut bytes = vec![7; 100];
        for _ in 0..1000 {
            mutate(&mut bytes, b"another input", &crate::MD_BITMAP, &mut dice);
        }
        bytes
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(chain(1), chain(1));
        assert_ne!(chain(1), chain(2));
    }

    #[test]
    fn a_nudge_moves_a_number_by_a_little_in_its_byte_order() {
        let mut dice = Dice::new(3);
        for _ in 0..1000 {
            let mut bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0];
            let before = bytes;
            nudge(&mut bytes, 0, &mut dice);
            let near = |width: usize| {
                let read = |bytes: &[u8; 8], big: bool| {
                    let mut whole = [0; 8];
                    whole[..width].copy_from_slice(&bytes[..width]);
                    if big {
                        whole[..width].reverse();
                    }
                    u64::from_le_bytes(whole)
                };
                [false, true].into_iter().any(|big| {
                    let (old, new) = (read(&before, big), read(&bytes, big));
                    (1..=16).contains(&old.abs_diff(new)) && before[width..] == bytes[width..]
                })
            };
            assert!([1, 2, 4, 8].into_iter().any(near), "{bytes:x?}");
        }
    }
}
