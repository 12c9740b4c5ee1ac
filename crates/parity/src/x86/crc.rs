//! CRC32C with x86-64's instructions: three interleaved chains of `crc32`, or AVX-512 folding.
//!
//! Owns: the speed of the checksum. Never: its definition ([`crc`](crate::crc)).
//! Invariant: each way equals the table for every input; the register is passed as it is, not
//! inverted.
//!
//! `crc32` takes eight bytes at once but needs three cycles until the next may start; three
//! independent chains fill the gaps. Joining them, and folding without `crc32` altogether, rests
//! on one fact: with the message as a polynomial, M·xⁿ mod P moves M forward by n bits, and a
//! carry-less product of 32-bit residues does that for any n.
//!
//! Source: V. Gopal et al., "Fast CRC Computation Using PCLMULQDQ Instruction" (Intel, 2009).

use core::arch::x86_64::*;

use crate::crc::POLYNOMIAL;

/// xⁿ mod P, bits reversed.
const fn power(n: usize) -> u32 {
    let (mut residue, mut done) = (1 << 31, 0);
    while done < n {
        residue = (residue >> 1) ^ if residue & 1 != 0 { POLYNOMIAL } else { 0 };
        done += 1;
    }
    residue
}

/// CRC32C of `bytes` by the quickest way that this CPU has; `None` if it has none.
pub(crate) fn crc32c(crc: u32, bytes: &[u8]) -> Option<u32> {
    let has_fold = || {
        std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("vpclmulqdq")
    };
    if !(std::arch::is_x86_feature_detected!("sse4.2")
        && std::arch::is_x86_feature_detected!("pclmulqdq"))
    {
        return None;
    }
    if bytes.len() >= 2 * FOLD_BYTES && has_fold() {
        // SAFETY: the CPU has these features.
        return Some(unsafe { fold(crc, bytes) });
    }
    // SAFETY: the CPU has these features.
    Some(unsafe { chains(crc, bytes) })
}

/// Bytes of each of three chains, from long inputs to short ones; two rounds of the middle one
/// fit 4 KiB.
const CHAIN_BYTES: [usize; 3] = [4096, 680, 128];

/// How far the first and the second chain's result are moved: over two chains and over one. The
/// 33 is what the product (1) and `crc32` (32) move by themselves.
const CHAIN_SHIFTS: [(u32, u32); 3] = {
    let mut shifts = [(0, 0); 3];
    let mut i = 0;
    while i < 3 {
        shifts[i] = (power(16 * CHAIN_BYTES[i] - 33), power(8 * CHAIN_BYTES[i] - 33));
        i += 1;
    }
    shifts
};

/// Three chains side by side while the input lasts, then one.
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn chains(mut crc: u32, mut bytes: &[u8]) -> u32 {
    for (length, shifts) in CHAIN_BYTES.into_iter().zip(CHAIN_SHIFTS) {
        while let Some((part, rest)) = bytes.split_at_checked(3 * length) {
            crc = three_chains(crc, part, length, shifts);
            bytes = rest;
        }
    }
    let (words, rest) = bytes.as_chunks::<8>();
    let long = words.iter().fold(u64::from(crc), |crc, word| step(crc, word));
    rest.iter().fold(long as u32, |crc, &byte| _mm_crc32_u8(crc, byte))
}

#[inline]
#[target_feature(enable = "sse4.2")]
fn step(crc: u64, word: &[u8; 8]) -> u64 {
    _mm_crc32_u64(crc, u64::from_le_bytes(*word))
}

#[inline]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn three_chains(crc: u32, part: &[u8], length: usize, shifts: (u32, u32)) -> u32 {
    let words = part.as_chunks::<8>().0;
    let (first, rest) = words.split_at(length / 8);
    let (second, third) = rest.split_at(length / 8);
    let (last, third) = third.split_last().expect("a chain has words");
    let (mut a, mut b, mut c) = (u64::from(crc), 0, 0);
    for ((x, y), z) in first.iter().zip(second).zip(third) {
        (a, b, c) = (step(a, x), step(b, y), step(c, z));
    }
    let (a, b) = (step(a, &first[third.len()]), step(b, &second[third.len()]));
    // Both results, moved to where the third chain ends, join it in its last word.
    let moved = product(a, shifts.0) ^ product(b, shifts.1);
    _mm_crc32_u64(c, u64::from_le_bytes(*last) ^ moved) as u32
}

#[inline]
#[target_feature(enable = "pclmulqdq,sse2")]
fn product(a: u64, b: u32) -> u64 {
    let (a, b) = (_mm_cvtsi64_si128(a as i64), _mm_cvtsi64_si128(i64::from(b)));
    _mm_cvtsi128_si64(_mm_clmulepi64_si128::<0>(a, b)) as u64
}

/// What one step of folding consumes: four registers of 64 bytes.
const FOLD_BYTES: usize = 256;

/// Multipliers that move a 128-bit lane forward by `bits`: for its earlier and its later half. A
/// product of bit-reversed numbers comes out one bit short, hence the 1.
const fn fold_by(bits: usize) -> (i64, i64) {
    (((power(bits + 63) as u64) << 32) as i64, ((power(bits - 1) as u64) << 32) as i64)
}

/// Folds the input onto its last 256 bytes, those onto 16, and lets `crc32` do the rest. Needs
/// at least 256 bytes.
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq,sse4.2")]
fn fold(crc: u32, bytes: &[u8]) -> u32 {
    let (parts, rest) = bytes.as_chunks::<FOLD_BYTES>();
    let (first, parts) = parts.split_first().expect("at least 256 bytes");
    let mut sums = [_mm512_setzero_si512(); 4];
    for (sum, lanes) in sums.iter_mut().zip(first.as_chunks::<64>().0) {
        *sum = load(lanes);
    }
    let start = _mm512_zextsi128_si512(_mm_cvtsi32_si128(crc as i32));
    sums[0] = _mm512_xor_si512(sums[0], start);
    let by_part = const { fold_by(8 * FOLD_BYTES) };
    for part in parts {
        for (sum, lanes) in sums.iter_mut().zip(part.as_chunks::<64>().0) {
            *sum = fold_lanes(*sum, load(lanes), by_part);
        }
    }
    let by_register = const { fold_by(512) };
    let sum = fold_lanes(sums[0], sums[1], by_register);
    let sum = fold_lanes(sum, sums[2], by_register);
    let sum = fold_lanes(sum, sums[3], by_register);
    let by_lane = const { fold_by(128) };
    let lane = fold_lane(
        _mm512_extracti32x4_epi32::<0>(sum),
        _mm512_extracti32x4_epi32::<1>(sum),
        by_lane,
    );
    let lane = fold_lane(lane, _mm512_extracti32x4_epi32::<2>(sum), by_lane);
    let lane = fold_lane(lane, _mm512_extracti32x4_epi32::<3>(sum), by_lane);
    let crc = _mm_crc32_u64(0, _mm_cvtsi128_si64(lane) as u64);
    let crc = _mm_crc32_u64(crc, _mm_extract_epi64::<1>(lane) as u64);
    chains(crc as u32, rest)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(lanes: &[u8; 64]) -> __m512i {
    // SAFETY: 64 bytes, any alignment.
    unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) }
}

/// `sum` moved forward, plus `next`; in each of four lanes.
#[inline]
#[target_feature(enable = "avx512f,vpclmulqdq")]
fn fold_lanes(sum: __m512i, next: __m512i, (early, late): (i64, i64)) -> __m512i {
    let by = _mm512_set_epi64(late, early, late, early, late, early, late, early);
    let (early, late) =
        (_mm512_clmulepi64_epi128::<0x00>(sum, by), _mm512_clmulepi64_epi128::<0x11>(sum, by));
    _mm512_ternarylogic_epi64::<XOR3>(early, late, next)
}

/// The truth table of a ^ b ^ c.
const XOR3: i32 = 0x96;

/// `sum` moved forward, plus `next`; one lane.
#[inline]
#[target_feature(enable = "pclmulqdq,sse2")]
fn fold_lane(sum: __m128i, next: __m128i, (early, late): (i64, i64)) -> __m128i {
    let by = _mm_set_epi64x(late, early);
    let (early, late) =
        (_mm_clmulepi64_si128::<0x00>(sum, by), _mm_clmulepi64_si128::<0x11>(sum, by));
    _mm_xor_si128(_mm_xor_si128(early, late), next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Both ways, not just the one that the length would choose.
    #[test]
    fn chains_and_folding_equal_the_table() {
        let bytes: Vec<u8> = (0..30_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
        let lengths = (0..1100).chain([2040, 4096, 12_287, 12_288, 16_384, 29_999]);
        for length in lengths {
            for from in [0, 1] {
                let (part, crc) = (&bytes[from..from + length], !(length as u32));
                let expected = crate::crc::by_table(crc, part);
                if std::arch::is_x86_feature_detected!("pclmulqdq") {
                    // SAFETY: no CPU has PCLMULQDQ without SSE4.2.
                    assert_eq!(unsafe { chains(crc, part) }, expected, "chains of {length}");
                }
                if length >= FOLD_BYTES
                    && std::arch::is_x86_feature_detected!("avx512f")
                    && std::arch::is_x86_feature_detected!("vpclmulqdq")
                {
                    // SAFETY: the CPU has these features.
                    assert_eq!(unsafe { fold(crc, part) }, expected, "folding of {length}");
                }
            }
        }
    }
}
