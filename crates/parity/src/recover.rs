//! Factors for lost blocks, and the wrong block when P and Q mismatch.
//!
//! Owns: the coefficients of a recovery, and the search for a silently wrong block. Never runs
//! over block data with a multiplication: that is the kernels' part.
//! Invariant: coefficients come from [`gf`] alone, once per call, not once per byte.

use crate::gf;

/// D = scale · (Q + the survivors' share of Q): one data block from Q.
#[derive(Clone, Copy)]
pub(crate) struct OneQ {
    /// g^−e of the lost block.
    pub(crate) scale: u8,
}

impl OneQ {
    pub(crate) fn new(exponent: u8) -> Self {
        Self { scale: gf::exp(gf::exponent_difference(0, exponent)) }
    }
}

/// Dx = of_p · Px + of_q · Qx and Dy = Px + Dx, where Px and Qx are P and Q less the survivors.
#[derive(Clone, Copy)]
pub(crate) struct Two {
    pub(crate) of_p: u8,
    pub(crate) of_q: u8,
}

impl Two {
    /// Asserts that `x` and `y` are different modulo 255.
    pub(crate) fn new(x: u8, y: u8) -> Self {
        let (of_p, of_q) = gf::two_lost(x, y);
        Self { of_p, of_q }
    }
}

/// Which single block of a row explains its wrong parity; see [`locate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// Both syndromes are zero: nothing is wrong.
    None,
    /// P alone is wrong.
    P,
    /// Q alone is wrong.
    Q,
    /// The data block with this exponent is wrong.
    Data(u8),
    /// No single block explains every wrong byte: two or more are wrong.
    Unclear,
}

/// Finds the one block that explains the syndromes of a row, byte by byte, unanimously.
///
/// `p_syndrome` is P as stored ^ P as computed from the data as stored, `q_syndrome` likewise;
/// `exponents` are those of the row's data blocks. A data block with exponent z that is wrong by
/// E leaves P' = E and Q' = g^z·E, so every byte with an error names z = log Q' − log P'
/// (Anvin, "The mathematics of RAID-6", section 4). Bytes without an error have no say.
///
/// Limits. One wrong block is always found. Two wrong blocks cannot be distinguished from one with
/// certainty: each byte where both are wrong points to a random block (a valid one about n + 2
/// times in 256). So an answer is a proof only if exactly one block is wrong. Two blocks wrong in
/// different bytes always give [`Culprit::Unclear`]; errors of k random bytes each agree on one
/// innocent block with a probability of about ((n + 2) / 256)ᵏ.
///
/// Panics if the syndromes differ in length.
pub fn locate(p_syndrome: &[u8], q_syndrome: &[u8], exponents: &[u8]) -> Culprit {
    assert_eq!(p_syndrome.len(), q_syndrome.len(), "syndromes of one row have one length");
    let mut culprit = Culprit::None;
    for (&p, &q) in p_syndrome.iter().zip(q_syndrome) {
        let suspect = match (p, q) {
            (0, 0) => continue,
            (_, 0) => Culprit::P,
            (0, _) => Culprit::Q,
            _ => named_by(p, q, exponents),
        };
        if suspect == Culprit::Unclear || (culprit != Culprit::None && culprit != suspect) {
            return Culprit::Unclear;
        }
        culprit = suspect;
    }
    culprit
}

/// The data block that one byte's syndromes, both non-zero, point at.
fn named_by(p: u8, q: u8, exponents: &[u8]) -> Culprit {
    let z = gf::exponent_difference(gf::LOG[q as usize], gf::LOG[p as usize]);
    match exponents.iter().find(|&&exponent| gf::exp(exponent) == gf::exp(z)) {
        Some(&exponent) => Culprit::Data(exponent),
        None => Culprit::Unclear,
    }
}
