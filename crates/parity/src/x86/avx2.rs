//! 32 bytes at a time with AVX2.
//!
//! Owns: AVX2's spelling of [`Vector`]. Never: an algorithm.
//! Invariant: `OPERATIONS` leaves this file through [`detect`] only.

use core::arch::x86_64::*;

use crate::gf;
use crate::select::Operations;
use crate::wide::{Vector, kernel};

kernel!("avx2", Avx2, sums: 8, syndromes: 4, "avx2");

/// The kernel, if this CPU can run it.
pub(crate) fn detect() -> Option<&'static Operations> {
    std::arch::is_x86_feature_detected!("avx2").then_some(&OPERATIONS)
}

#[derive(Clone, Copy)]
struct Avx2(__m256i);

// SAFETY: `load` and `store` touch 32 bytes; all else needs AVX2 and no more.
unsafe impl Vector for Avx2 {
    /// Products with the low and with the high four bits of a byte, in both 16-byte lanes.
    type Factor = (__m256i, __m256i);
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX2 (`Vector`).
        Self(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX2; the caller owns 32 bytes at `from`.
        Self(unsafe { _mm256_loadu_si256(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has AVX2; the caller owns 32 bytes at `to`.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2 (`Vector`).
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX2 (`Vector`).
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the CPU has AVX2 (`Vector`).
        unsafe { _mm256_testz_si256(self.0, self.0) != 0 }
    }

    /// Shifts left by adding to itself; reduces where the top bit, the one shifted out, was set.
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the CPU has AVX2 (`Vector`).
        unsafe { Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction(self.0))) }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        let table = gf::NIBBLES[value as usize].as_ptr();
        // SAFETY: the CPU has AVX2; the table has 32 bytes.
        unsafe {
            let low = _mm_loadu_si128(table.cast());
            let high = _mm_loadu_si128(table.add(16).cast());
            (_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high))
        }
    }

    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the CPU has AVX2 (`Vector`).
        unsafe {
            let mask = _mm256_set1_epi8(0x0f);
            let low_bits = _mm256_and_si256(self.0, mask);
            let high_bits = _mm256_and_si256(_mm256_srli_epi64::<4>(self.0), mask);
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(low, low_bits),
                _mm256_shuffle_epi8(high, high_bits),
            ))
        }
    }
}

/// The reducing polynomial in every byte whose top bit is set, zero elsewhere.
///
/// `_mm256_blendv_epi8` would say the same, but LLVM knows that one side is zero and turns it into
/// a comparison and an AND: two instructions, and P+Q from L2 a quarter slower on Zen 5.
#[inline]
#[target_feature(enable = "avx2")]
fn reduction(of: __m256i) -> __m256i {
    let reduction: __m256i;
    // SAFETY: AVX2 is on; the instruction reads and writes the named registers only.
    unsafe {
        core::arch::asm!(
            "vpblendvb {reduction}, {zero}, {polynomial}, {of}",
            reduction = lateout(ymm_reg) reduction,
            zero = in(ymm_reg) _mm256_setzero_si256(),
            polynomial = in(ymm_reg) _mm256_set1_epi8(gf::REDUCTION as i8),
            of = in(ymm_reg) of,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    reduction
}
