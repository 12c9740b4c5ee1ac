//! The readable kernel: one byte column at a time, straight from the formulas of the theory.
//!
//! Owns: the reference that every other kernel is compared with, and the tails they leave over.
//! Never: clever. Invariant: each function treats the columns `from ..` only, so that `from = 0`
//! is a whole kernel and `from = done` finishes what a vector kernel began.

// Columns are indices into several slices at once; zipping up to six of them reads worse.
#![expect(clippy::needless_range_loop)]

use crate::recover::{OneQ, Two};
use crate::select::Operations;
use crate::{Term, gf};

/// This file as a kernel.
pub(crate) static OPERATIONS: Operations = Operations {
    name: "scalar",
    xor: |sources, target| xor(0, sources, target),
    xor_into: |sources, target| xor_into(0, sources, target),
    pq: |terms, p, q| pq(0, terms, p, q),
    q: |terms, q| self::q(0, terms, q),
    update_pq: |factor, old, new, p, q| update_pq(0, factor, old, new, p, q),
    update_q: |factor, old, new, q| update_q(0, factor, old, new, q),
    recover_one_p: |terms, p, lost| recover_one_p(0, terms, p, lost),
    recover_one_q: |terms, q, one, lost| recover_one_q(0, terms, q, one, lost),
    recover_two: |terms, p, q, two, x, y| recover_two(0, terms, p, q, two, x, y),
    check_p: |sources, p| check_p(0, sources, p),
    check_pq: |terms, p, q| check_pq(0, terms, p, q),
    is_zero: |bytes| is_zero(0, bytes),
};

/// XOR of one column.
fn sum(sources: &[&[u8]], at: usize) -> u8 {
    sources.iter().fold(0, |sum, source| sum ^ source[at])
}

/// P and Q of one column.
fn syndromes(terms: &[Term<'_>], at: usize) -> (u8, u8) {
    terms.iter().fold((0, 0), |(p, q), &(exponent, data)| {
        (p ^ data[at], q ^ gf::mul(gf::exp(exponent), data[at]))
    })
}

pub(crate) fn xor(from: usize, sources: &[&[u8]], target: &mut [u8]) {
    for at in from..target.len() {
        target[at] = sum(sources, at);
    }
}

pub(crate) fn xor_into(from: usize, sources: &[&[u8]], target: &mut [u8]) {
    for at in from..target.len() {
        target[at] ^= sum(sources, at);
    }
}

pub(crate) fn pq(from: usize, terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]) {
    for at in from..p.len() {
        (p[at], q[at]) = syndromes(terms, at);
    }
}

pub(crate) fn q(from: usize, terms: &[Term<'_>], q: &mut [u8]) {
    for at in from..q.len() {
        q[at] = syndromes(terms, at).1;
    }
}

pub(crate) fn update_pq(
    from: usize,
    factor: u8,
    old: &[u8],
    new: &[u8],
    p: &mut [u8],
    q: &mut [u8],
) {
    for at in from..p.len() {
        let delta = old[at] ^ new[at];
        p[at] ^= delta;
        q[at] ^= gf::mul(factor, delta);
    }
}

pub(crate) fn update_q(from: usize, factor: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
    for at in from..q.len() {
        q[at] ^= gf::mul(factor, old[at] ^ new[at]);
    }
}

pub(crate) fn recover_one_p(from: usize, terms: &[Term<'_>], p: &[u8], lost: &mut [u8]) {
    for at in from..lost.len() {
        lost[at] = p[at] ^ syndromes(terms, at).0;
    }
}

pub(crate) fn recover_one_q(from: usize, terms: &[Term<'_>], q: &[u8], one: OneQ, lost: &mut [u8]) {
    for at in from..lost.len() {
        lost[at] = gf::mul(one.scale, q[at] ^ syndromes(terms, at).1);
    }
}

pub(crate) fn recover_two(
    from: usize,
    terms: &[Term<'_>],
    p: &[u8],
    q: &[u8],
    two: Two,
    x: &mut [u8],
    y: &mut [u8],
) {
    for at in from..x.len() {
        let (p_known, q_known) = syndromes(terms, at);
        let (p_lost, q_lost) = (p[at] ^ p_known, q[at] ^ q_known);
        x[at] = gf::mul(two.of_p, p_lost) ^ gf::mul(two.of_q, q_lost);
        y[at] = p_lost ^ x[at];
    }
}

pub(crate) fn check_p(from: usize, sources: &[&[u8]], p: &[u8]) -> bool {
    (from..p.len()).all(|at| p[at] == sum(sources, at))
}

pub(crate) fn check_pq(from: usize, terms: &[Term<'_>], p: &[u8], q: &[u8]) -> bool {
    (from..p.len()).all(|at| (p[at], q[at]) == syndromes(terms, at))
}

pub(crate) fn is_zero(from: usize, bytes: &[u8]) -> bool {
    bytes[from..].iter().all(|&byte| byte == 0)
}
