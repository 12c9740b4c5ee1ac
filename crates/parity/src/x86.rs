//! Vector kernels for x86-64.
//!
//! Owns: the instructions, and the question whether this CPU has them. Never decides which
//! kernel is best: [`select`](crate::select) does.

mod avx2;
mod avx512;
mod crc;

pub(crate) use avx2::detect as avx2;
pub(crate) use avx512::detect as avx512;
pub(crate) use crc::crc32c;
