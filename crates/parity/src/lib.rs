//! # Parity: the theory
//!
//! A *row* of an array is one range of bytes at the same place in the chunks of a stripe. Byte k
//! of every block in a row belongs together, and nothing else does: all that follows is said of
//! one byte column and done to every column alike.
//!
//! ```text
//!            data blocks, each with its exponent e             parity blocks
//!        ┌────────┬────────┬────────┬─ ─ ─ ─┬────────┐      ┌────────┬────────┐
//!        │  D₀    │  D₁    │  D₂    │       │  Dₙ₋₁  │      │   P    │   Q    │
//!        └───┬────┴───┬────┴───┬────┴─ ─ ─ ─┴───┬────┘      └───▲────┴───▲────┘
//!            │        │        │                │               │        │
//!            ├────────┴────────┴── Σ D ─────────┴───────────────┘        │
//!            └─ ·g⁰ ──── ·g¹ ──── ·g² ── Σ gᵉ·D ── ·gⁿ⁻¹ ────────────────┘
//! ```
//!
//! **The field.** A byte is an element of GF(2⁸): a polynomial over bits, modulo
//! x⁸ + x⁴ + x³ + x² + 1 (0x11d). Addition is XOR, hence its own inverse. The element g = 2 runs
//! through all 255 non-zero elements before it returns to 1: gᵉ ≠ gᶠ for different e, f < 255.
//! It is the field of Linux md
//! and of ISA-L, so that rows written by one can be recovered by the other.
//!
//! **Encoding.** P = Σ D and Q = Σ gᵉ·D. Which exponent a block has is the layout's business. In
//! most layouts they are 0 … n−1 in some order; in the DDF layouts the places of P and Q leave
//! gaps. Q is computed by Horner's rule, from the highest exponent down, so that it needs only
//! doublings: `((Dₙ₋₁·g + Dₙ₋₂)·g + …)·g + D₀`.
//!
//! **Updating** one block from `old` to `new`, with Δ = old + new: P += Δ, Q += gᵉ·Δ. The other
//! data blocks are not read.
//!
//! **Recovering.** Let Px = P + Σ D and Qx = Q + Σ gᵉ·D over the data that survive. Then
//!
//! | lost             | equations left                      | solution                            |
//! |------------------|-------------------------------------|-------------------------------------|
//! | P, Q or both     | all data is there                   | encode again                        |
//! | Dx               | Px = Dx                             | Dx = Px                             |
//! | Dx and Q         | Px = Dx                             | Dx = Px, encode Q                   |
//! | Dx and P         | Qx = gˣ·Dx                          | Dx = g⁻ˣ·Qx, encode P               |
//! | Dx and Dy        | Px = Dx + Dy, Qx = gˣ·Dx + gʸ·Dy    | Dx = A·Px + B·Qx, Dy = Px + Dx      |
//!
//! with A = gʸ⁻ˣ / (gʸ⁻ˣ + 1) and B = g⁻ˣ / (gʸ⁻ˣ + 1). The divisor is not zero, since x ≠ y.
//!
//! **Locating.** If nothing is lost but P and Q do not match, and one block is wrong, the mismatch
//! identifies it: see [`locate`].
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6" (2004).
//!
//! # A row of three, two of them lost
//!
//! ```
//! let row: [&[u8]; 3] = [b"never", b"again", b"lost!"];
//! let kernel = parity::best();
//! let (mut p, mut q) = ([0; 5], [0; 5]);
//! kernel.pq(&[(0, row[0]), (1, row[1]), (2, row[2])], &mut p, &mut q);
//!
//! let (mut first, mut last) = ([0; 5], [0; 5]);
//! kernel.recover_two(&[(1, row[1])], &p, &q, (0, &mut first), (2, &mut last));
//! assert_eq!((&first, &last), (b"never", b"lost!"));
//! ```
//!
//! # The code
//!
//! `gf` is the field, `scalar` these formulas spelled out (the oracle of all tests), `wide` the
//! fast algorithms over any vector, `x86` and `neon` the vectors, `select` the choice of a kernel,
//! `recover` the coefficients above and the search for a wrong block, `crc` a checksum.
//!
//! Owns: bytes → bytes. Never: allocates, blocks, does I/O, refers to members or layouts.
//! Invariants: all slices of one call have one length (asserted; a difference is a bug of the
//! caller); any length from 0 and any alignment works; terms come in any order; results do not
//! depend on the kernel.
#![no_std]
#![deny(unsafe_code)]
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

// For CPU detection, which `core` does not have, and for tests.
#[cfg(any(test, target_arch = "x86_64", target_arch = "aarch64"))]
extern crate std;

mod crc;
mod gf;
#[cfg(target_arch = "aarch64")]
#[allow(unsafe_code)]
mod neon;
mod recover;
mod scalar;
mod select;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[allow(unsafe_code)]
mod wide;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code)]
mod x86;

pub use crc::crc32c;
pub use recover::{Culprit, locate};
pub use select::{Kernel, best, by_name, kernels};

use recover::{OneQ, Two};

/// A data block of a row: its exponent in Q, and its bytes.
pub type Term<'a> = (u8, &'a [u8]);

/// The most data blocks that one call takes: 255 exponents are distinguishable.
pub const TERMS_MAX: usize = gf::ORDER;

/// The verbs. Every slice of one call must have the same length, or the call panics.
impl Kernel {
    /// target = XOR of all sources. Without sources, target becomes zero.
    pub fn xor(self, sources: &[&[u8]], target: &mut [u8]) {
        assert_sources(sources, target.len());
        (self.operations().xor)(sources, target);
    }

    /// target ^= XOR of all sources.
    pub fn xor_into(self, sources: &[&[u8]], target: &mut [u8]) {
        assert_sources(sources, target.len());
        (self.operations().xor_into)(sources, target);
    }

    /// P and Q of a row. Exponents in any order, gaps allowed; quickest when they are exactly
    /// 0 … n−1 in order. Both results are overwritten.
    pub fn pq(self, terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]) {
        assert_terms(terms, p.len(), &[q.len()]);
        ascending(terms, |terms| (self.operations().pq)(terms, p, q));
    }

    /// Q of a row alone, where P is lost.
    pub fn q(self, terms: &[Term<'_>], q: &mut [u8]) {
        assert_terms(terms, q.len(), &[]);
        ascending(terms, |terms| (self.operations().q)(terms, q));
    }

    /// P after one data block changed: p ^= old ^ new.
    pub fn update_p(self, old: &[u8], new: &[u8], p: &mut [u8]) {
        self.xor_into(&[old, new], p);
    }

    /// P and Q after the data block with this exponent changed: p ^= Δ, q ^= gᵉ·Δ with
    /// Δ = old ^ new.
    pub fn update_pq(self, exponent: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
        assert_lengths(p.len(), &[old.len(), new.len(), q.len()]);
        (self.operations().update_pq)(gf::exp(exponent), old, new, p, q);
    }

    /// Q after the data block with this exponent changed, where P is lost.
    pub fn update_q(self, exponent: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
        assert_lengths(q.len(), &[old.len(), new.len()]);
        (self.operations().update_q)(gf::exp(exponent), old, new, q);
    }

    /// One data block from P. `terms` are all other data blocks of the row.
    pub fn recover_one_p(self, terms: &[Term<'_>], p: &[u8], lost: &mut [u8]) {
        assert_terms(terms, lost.len(), &[p.len()]);
        (self.operations().recover_one_p)(terms, p, lost);
    }

    /// The data block with this exponent from Q, where P is lost too or not trusted. `terms` are
    /// all other data blocks of the row.
    pub fn recover_one_q(self, terms: &[Term<'_>], q: &[u8], exponent: u8, lost: &mut [u8]) {
        assert_terms(terms, lost.len(), &[q.len()]);
        let one = OneQ::new(exponent);
        ascending(terms, |terms| (self.operations().recover_one_q)(terms, q, one, lost));
    }

    /// Two data blocks from P and Q; `x` and `y` are their exponents and where to put them.
    /// `terms` are all other data blocks of the row. Panics if the exponents are equal.
    pub fn recover_two(
        self,
        terms: &[Term<'_>],
        p: &[u8],
        q: &[u8],
        x: (u8, &mut [u8]),
        y: (u8, &mut [u8]),
    ) {
        assert_terms(terms, p.len(), &[q.len(), x.1.len(), y.1.len()]);
        let two = Two::new(x.0, y.0);
        ascending(terms, |terms| (self.operations().recover_two)(terms, p, q, two, x.1, y.1));
    }

    /// Whether `p` is the XOR of all sources. Needs no scratch memory.
    pub fn check_p(self, sources: &[&[u8]], p: &[u8]) -> bool {
        assert_sources(sources, p.len());
        (self.operations().check_p)(sources, p)
    }

    /// Whether `p` and `q` both match the row's data. Needs no scratch memory.
    pub fn check_pq(self, terms: &[Term<'_>], p: &[u8], q: &[u8]) -> bool {
        assert_terms(terms, p.len(), &[q.len()]);
        ascending(terms, |terms| (self.operations().check_pq)(terms, p, q))
    }

    /// Whether all bytes are zero.
    pub fn is_zero(self, bytes: &[u8]) -> bool {
        (self.operations().is_zero)(bytes)
    }
}

/// The vector kernels rely on this for memory safety.
fn assert_lengths(length: usize, others: &[usize]) {
    assert!(others.iter().all(|&other| other == length), "blocks of one row have one length");
}

fn assert_sources(sources: &[&[u8]], length: usize) {
    let equal = sources.iter().all(|source| source.len() == length);
    assert!(equal, "blocks of one row have one length");
}

fn assert_terms(terms: &[Term<'_>], length: usize, others: &[usize]) {
    let equal = terms.iter().all(|term| term.1.len() == length);
    assert!(equal, "blocks of one row have one length");
    assert_lengths(length, others);
    assert!(terms.len() <= TERMS_MAX, "more terms than exponents");
}

/// Runs `run` with the terms sorted by exponent, as Horner's rule wants them. They nearly always
/// are already.
fn ascending<R>(terms: &[Term<'_>], run: impl FnOnce(&[Term<'_>]) -> R) -> R {
    let by_exponent = |term: &Term<'_>| term.0;
    if terms.is_sorted_by_key(by_exponent) {
        return run(terms);
    }
    let mut room: [Term<'_>; TERMS_MAX] = [(0, &[]); TERMS_MAX];
    let sorted = &mut room[..terms.len()];
    sorted.copy_from_slice(terms);
    sorted.sort_unstable_by_key(by_exponent);
    run(sorted)
}
