//! The field GF(2⁸) that Q is computed in, as arithmetic and as tables built at compile time.
//!
//! Owns: the polynomial and the generator; no other file knows them. Never touches block data.
//! Invariants: every table is derived from [`POLYNOMIAL`] by `const fn`, none is typed in.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6" (2004). The polynomial, the generator and
//! the use of them are those of Linux md and of ISA-L, so rows are bit-for-bit interchangeable.

/// x⁸ + x⁴ + x³ + x² + 1, the reducing polynomial.
const POLYNOMIAL: u16 = 0x11d;

/// g, whose powers are all 255 non-zero elements.
pub(crate) const GENERATOR: u8 = 2;

/// The polynomial without x⁸: what a doubling adds when a bit falls out at the top.
pub(crate) const REDUCTION: u8 = (POLYNOMIAL & 0xff) as u8;

/// Number of non-zero elements: g^ORDER = 1, exponents count modulo it.
pub(crate) const ORDER: usize = 255;

/// g^e for every e of a byte. `EXP[255]` is g^255 = g^0 = 1.
pub(crate) static EXP: [u8; 256] = powers();

/// The e with g^e = x, 0 ≤ e < 255. `LOG[0]` means nothing: zero has no logarithm.
pub(crate) static LOG: [u8; 256] = logarithms();

/// For each c: c·0 … c·15, then c·0x00, c·0x10 … c·0xf0. A byte times c is the XOR of one entry
/// from either half, which is what a 16-entry byte shuffle looks up.
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), allow(dead_code))]
pub(crate) static NIBBLES: [[u8; 32]; 256] = nibbles();

/// For each c: multiplication by c as an 8×8 bit matrix in the order that x86's `gf2p8affineqb`
/// reads it (byte 7−i makes bit i of the result). Serves any polynomial, so 0x11d too.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) static MATRICES: [u64; 256] = matrices();

/// a·x, the shift that all products are made of.
const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { REDUCTION } else { 0 }
}

/// a·b by shift and add: slow, from the definition; the tables are built with it.
const fn product(a: u8, b: u8) -> u8 {
    let (mut sum, mut power, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 != 0 {
            sum ^= power;
        }
        power = double(power);
        bit += 1;
    }
    sum
}

const fn powers() -> [u8; 256] {
    let mut table = [1; 256];
    let mut e = 1;
    while e < 256 {
        table[e] = product(table[e - 1], GENERATOR);
        e += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let powers = powers();
    let mut table = [0; 256];
    let mut e = 0;
    while e < ORDER {
        table[powers[e] as usize] = e as u8;
        e += 1;
    }
    table
}

const fn nibbles() -> [[u8; 32]; 256] {
    let mut table = [[0; 32]; 256];
    let mut c = 0;
    while c < 256 {
        let mut n = 0;
        while n < 16 {
            table[c][n] = product(c as u8, n as u8);
            table[c][16 + n] = product(c as u8, (n << 4) as u8);
            n += 1;
        }
        c += 1;
    }
    table
}

const fn matrices() -> [u64; 256] {
    let mut table = [0; 256];
    let mut c = 0;
    while c < 256 {
        let mut column = 0;
        while column < 8 {
            let image = product(c as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                table[c] |= ((image >> row & 1) as u64) << (8 * (7 - row) + column);
                row += 1;
            }
            column += 1;
        }
        c += 1;
    }
    table
}

/// g^e. Exponents are taken modulo 255.
pub(crate) fn exp(e: u8) -> u8 {
    EXP[e as usize]
}

/// a·b by logarithms.
pub(crate) fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    EXP[(LOG[a as usize] as usize + LOG[b as usize] as usize) % ORDER]
}

/// The x with a·x = 1. Asserts a ≠ 0.
pub(crate) fn invert(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    EXP[(ORDER - LOG[a as usize] as usize) % ORDER]
}

/// a − b as exponents: g^exponent_difference(a, b) = g^a / g^b.
pub(crate) fn exponent_difference(a: u8, b: u8) -> u8 {
    ((a as usize + ORDER - b as usize % ORDER) % ORDER) as u8
}

/// The coefficients (A, B) of `Dx = A·(Dx + Dy) + B·(g^x·Dx + g^y·Dy)`; see the crate's theory.
/// Asserts that x and y are different blocks.
pub(crate) fn two_lost(x: u8, y: u8) -> (u8, u8) {
    let ratio = exp(exponent_difference(y, x));
    assert!(ratio != 1, "the two lost blocks have one exponent: {x} and {y}");
    let scale = invert(ratio ^ 1);
    (mul(ratio, scale), mul(exp(exponent_difference(0, x)), scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axioms() {
        for a in 0..=255u8 {
            assert_eq!(mul(a, 1), a);
            assert_eq!(mul(a, GENERATOR), double(a));
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), product(a, b), "{a}·{b}");
                assert_eq!(mul(a, b), mul(b, a));
                assert!(mul(a, b) != 0 || a == 0 || b == 0, "zero divisors {a}, {b}");
                for c in [0, 1, 2, 3, 0x1d, 0x80, 0x8e, 0xff] {
                    assert_eq!(mul(mul(a, b), c), mul(a, mul(b, c)));
                    assert_eq!(mul(a, b ^ c), mul(a, b) ^ mul(a, c));
                }
            }
            if a != 0 {
                assert_eq!(mul(a, invert(a)), 1);
                assert_eq!(exp(LOG[a as usize]), a);
            }
        }
    }

    #[test]
    fn generator_reaches_every_element() {
        let mut seen = [false; 256];
        for e in 0..ORDER {
            assert!(!core::mem::replace(&mut seen[EXP[e] as usize], true));
        }
        assert!(!seen[0] && exp(255) == 1);
    }

    /// Values everyone agrees on, Linux's raid6 tables among them: 2⁸ = 0x1d, 1/2 = 0x8e.
    #[test]
    fn known_values() {
        assert_eq!((exp(0), exp(1), exp(7), exp(8), exp(254)), (1, 2, 0x80, 0x1d, 0x8e));
        assert_eq!(mul(0x80, 2), 0x1d);
        assert_eq!(mul(0x53, 0xca), 0x8f); // by hand; in AES's field it would be 1
        assert_eq!(invert(2), 0x8e);
    }

    #[test]
    fn nibbles_and_matrices_multiply() {
        for c in 0..=255u8 {
            let (table, matrix) = (&NIBBLES[c as usize], MATRICES[c as usize]);
            for d in 0..=255u8 {
                let looked_up = table[(d & 15) as usize] ^ table[16 + (d >> 4) as usize];
                assert_eq!(looked_up, product(c, d));
                let bit = |i: u32| {
                    let row = (matrix >> (8 * (7 - i))) as u8;
                    ((row & d).count_ones() as u8 & 1) << i
                };
                assert_eq!((0..8).fold(0, |sum, i| sum | bit(i)), product(c, d));
            }
        }
    }

    #[test]
    fn differences_are_quotients() {
        for a in 0..=255u8 {
            for b in 0..=255u8 {
                assert_eq!(mul(exp(exponent_difference(a, b)), exp(b)), exp(a));
            }
        }
    }

    #[test]
    fn two_lost_solves_both_equations() {
        for x in 0..=254u8 {
            for y in (0..=254u8).filter(|&y| y != x) {
                let (a, b) = two_lost(x, y);
                // Dx alone gives 1, Dy alone gives 0.
                assert_eq!(a ^ mul(b, exp(x)), 1);
                assert_eq!(a ^ mul(b, exp(y)), 0);
            }
        }
    }

    #[test]
    #[should_panic(expected = "one exponent")]
    fn equal_exponents_cannot_be_solved() {
        two_lost(0, 255);
    }
}
