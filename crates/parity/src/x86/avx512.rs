//! 64 bytes at a time with AVX-512 (F and BW) and GFNI: Intel since Ice Lake, AMD since Zen 4.
//!
//! Owns: AVX-512's spelling of [`Vector`]. Never: an algorithm.
//! Invariant: `OPERATIONS` leaves this file through [`detect`] only.
//!
//! GFNI's own multiplication is bound to AES's polynomial. Its affine transformation is not: with
//! the matrix of "times c" it multiplies in our field, in one instruction for any c.

use core::arch::x86_64::*;

use crate::gf;
use crate::select::Operations;
use crate::wide::{Vector, kernel};

kernel!("avx512", Avx512, sums: 4, syndromes: 4, "avx512f,avx512bw,gfni");

/// The kernel, if this CPU can run it.
pub(crate) fn detect() -> Option<&'static Operations> {
    let able = std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("gfni");
    able.then_some(&OPERATIONS)
}

#[derive(Clone, Copy)]
struct Avx512(__m512i);

// SAFETY: `load` and `store` touch 64 bytes; all else needs AVX-512F, AVX-512BW and GFNI and no
// more.
unsafe impl Vector for Avx512 {
    /// The matrix of "times c", eight times.
    type Factor = __m512i;
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX-512 (`Vector`).
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX-512; the caller owns 64 bytes at `from`.
        Self(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has AVX-512; the caller owns 64 bytes at `to`.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512 (`Vector`).
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the CPU has AVX-512 (`Vector`).
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the CPU has AVX-512 (`Vector`).
        unsafe { _mm512_test_epi64_mask(self.0, self.0) == 0 }
    }

    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the CPU has AVX-512 and GFNI (`Vector`).
        unsafe { self.times(Self::factor(gf::GENERATOR)) }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        // SAFETY: the CPU has AVX-512 (`Vector`).
        unsafe { _mm512_set1_epi64(gf::MATRICES[value as usize] as i64) }
    }

    #[inline(always)]
    unsafe fn times(self, factor: Self::Factor) -> Self {
        // SAFETY: the CPU has AVX-512 and GFNI (`Vector`).
        Self(unsafe { _mm512_gf2p8affine_epi64_epi8::<0>(self.0, factor) })
    }
}
