//! 16 bytes at a time with NEON, which every 64-bit ARM has.
//!
//! Owns: NEON's spelling of [`Vector`]. Never: an algorithm.
//! Invariant: `OPERATIONS` leaves this file through [`detect`] only.
//!
//! Tested without the hardware: `cargo test -p parapet-parity --target aarch64-unknown-linux-gnu`
//! with `aarch64-linux-gnu-gcc` as the target's linker and `qemu-aarch64 -L /usr/aarch64-linux-gnu`
//! as its runner (Debian: gcc-aarch64-linux-gnu, qemu-user). Its speed has not been measured.

use core::arch::aarch64::*;

use crate::gf;
use crate::select::Operations;
use crate::wide::{Vector, kernel};

kernel!("neon", Neon, sums: 8, syndromes: 4, "neon");

/// The kernel, if this CPU can run it.
pub(crate) fn detect() -> Option<&'static Operations> {
    std::arch::is_aarch64_feature_detected!("neon").then_some(&OPERATIONS)
}

#[derive(Clone, Copy)]
struct Neon(uint8x16_t);

// SAFETY: `load` and `store` touch 16 bytes; all else needs NEON and no more.
unsafe impl Vector for Neon {
    /// Products with the low and with the high four bits of a byte.
    type Factor = (uint8x16_t, uint8x16_t);
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has NEON (`Vector`).
        Self(unsafe { vdupq_n_u8(0) })
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has NEON; the caller owns 16 bytes at `from`.
        Self(unsafe { vld1q_u8(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: the CPU has NEON; the caller owns 16 bytes at `to`.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: the CPU has NEON (`Vector`).
        Self(unsafe { veorq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn or(self, other: Self) -> Self {
        // SAFETY: the CPU has NEON (`Vector`).
        Self(unsafe { vorrq_u8(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn is_zero(self) -> bool {
        // SAFETY: the CPU has NEON (`Vector`).
        unsafe { vmaxvq_u8(self.0) == 0 }
    }

    /// Shifts left; reduces where the top bit, spread over its byte, was set.
    #[inline(always)]
    unsafe fn double(self) -> Self {
        // SAFETY: the CPU has NEON (`Vector`).
        unsafe {
            let overflowed = vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(self.0)));
            let reduction = vandq_u8(overflowed, vdupq_n_u8(gf::REDUCTION));
            Self(veorq_u8(vshlq_n_u8::<1>(self.0), reduction))
        }
    }

    #[inline(always)]
    unsafe fn factor(value: u8) -> Self::Factor {
        let table = gf::NIBBLES[value as usize].as_ptr();
        // SAFETY: the CPU has NEON; the table has 32 bytes.
        unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) }
    }

    #[inline(always)]
    unsafe fn times(self, (low, high): Self::Factor) -> Self {
        // SAFETY: the CPU has NEON (`Vector`).
        unsafe {
            let low_bits = vandq_u8(self.0, vdupq_n_u8(0x0f));
            let high_bits = vshrq_n_u8::<4>(self.0);
            Self(veorq_u8(vqtbl1q_u8(low, low_bits), vqtbl1q_u8(high, high_bits)))
        }
    }
}
