//! The requirements for every kernel: match the oracle, and restore lost blocks. Panics, with the
//! kernel's and the verb's name, at the first wrong byte.

use std::fmt::Debug;

use parity::{Kernel, Term, by_name};

use super::{Bytes, Random, Row};

/// The oracle.
pub(crate) fn scalar() -> Kernel {
    by_name("scalar").expect("scalar always runs")
}

/// The tested code: a kernel, or one with an injected fault.
pub(crate) trait Verbs: Debug {
    fn xor(&self, sources: &[&[u8]], target: &mut [u8]);
    fn xor_into(&self, sources: &[&[u8]], target: &mut [u8]);
    fn pq(&self, terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]);
    fn q(&self, terms: &[Term<'_>], q: &mut [u8]);
    fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]);
    fn update_pq(&self, exponent: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]);
    fn update_q(&self, exponent: u8, old: &[u8], new: &[u8], q: &mut [u8]);
    fn recover_one_p(&self, terms: &[Term<'_>], p: &[u8], lost: &mut [u8]);
    fn recover_one_q(&self, terms: &[Term<'_>], q: &[u8], exponent: u8, lost: &mut [u8]);
    fn recover_two(
        &self,
        terms: &[Term<'_>],
        p: &[u8],
        q: &[u8],
        x: (u8, &mut [u8]),
        y: (u8, &mut [u8]),
    );
    fn check_p(&self, sources: &[&[u8]], p: &[u8]) -> bool;
    fn check_pq(&self, terms: &[Term<'_>], p: &[u8], q: &[u8]) -> bool;
}

impl Verbs for Kernel {
    fn xor(&self, sources: &[&[u8]], target: &mut [u8]) {
        Kernel::xor(*self, sources, target);
    }
    fn xor_into(&self, sources: &[&[u8]], target: &mut [u8]) {
        Kernel::xor_into(*self, sources, target);
    }
    fn pq(&self, terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]) {
        Kernel::pq(*self, terms, p, q);
    }
    fn q(&self, terms: &[Term<'_>], q: &mut [u8]) {
        Kernel::q(*self, terms, q);
    }
    fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        Kernel::update_p(*self, old, new, p);
    }
    fn update_pq(&self, exponent: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
        Kernel::update_pq(*self, exponent, old, new, p, q);
    }
    fn update_q(&self, exponent: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
        Kernel::update_q(*self, exponent, old, new, q);
    }
    fn recover_one_p(&self, terms: &[Term<'_>], p: &[u8], lost: &mut [u8]) {
        Kernel::recover_one_p(*self, terms, p, lost);
    }
    fn recover_one_q(&self, terms: &[Term<'_>], q: &[u8], exponent: u8, lost: &mut [u8]) {
        Kernel::recover_one_q(*self, terms, q, exponent, lost);
    }
    fn recover_two(
        &self,
        terms: &[Term<'_>],
        p: &[u8],
        q: &[u8],
        x: (u8, &mut [u8]),
        y: (u8, &mut [u8]),
    ) {
        Kernel::recover_two(*self, terms, p, q, x, y);
    }
    fn check_p(&self, sources: &[&[u8]], p: &[u8]) -> bool {
        Kernel::check_p(*self, sources, p)
    }
    fn check_pq(&self, terms: &[Term<'_>], p: &[u8], q: &[u8]) -> bool {
        Kernel::check_pq(*self, terms, p, q)
    }
}

/// All verbs but recovery, against the oracle.
pub(crate) fn compare(kernel: &impl Verbs, row: &Row, random: &mut Random) {
    let what = || format!("{kernel:?}, {} of {} bytes", row.exponents.len(), row.size);
    let (terms, sources) = (row.terms(), row.sources());
    let (mut p, mut q) = (row.spare(), row.spare());
    let (mut p_true, mut q_true) = (row.spare(), row.spare());
    scalar().pq(&terms, p_true.get_mut(), q_true.get_mut());
    kernel.pq(&terms, p.get_mut(), q.get_mut());
    assert!(p.get() == p_true.get() && q.get() == q_true.get(), "pq, {}", what());
    let mut alone = row.spare();
    kernel.q(&terms, alone.get_mut());
    assert_eq!(alone.get(), q_true.get(), "q, {}", what());
    kernel.xor(&sources, alone.get_mut());
    assert_eq!(alone.get(), p_true.get(), "xor, {}", what());
    kernel.xor_into(&sources, alone.get_mut());
    assert!(scalar().is_zero(alone.get()), "xor_into, {}", what());
    checks(kernel, row, p.get(), q.get());

    updates(kernel, row, p, q, random);
}

fn updates(kernel: &impl Verbs, row: &Row, mut p: Bytes, mut q: Bytes, random: &mut Random) {
    let what = || format!("{kernel:?}, {} of {} bytes", row.exponents.len(), row.size);
    let terms = row.terms();
    let (mut p_true, mut q_true) = (row.spare(), row.spare());
    let (index, new) = (random.below(row.exponents.len()), row.another(random));
    let (exponent, old) = terms[index];
    let (p_before, q_before) = (p.get().to_vec(), q.get().to_vec());
    kernel.update_pq(exponent, old, new.get(), p.get_mut(), q.get_mut());
    let mut changed = terms.clone();
    changed[index].1 = new.get();
    scalar().pq(&changed, p_true.get_mut(), q_true.get_mut());
    assert!(p.get() == p_true.get() && q.get() == q_true.get(), "update_pq, {}", what());
    p.get_mut().copy_from_slice(&p_before);
    kernel.update_p(old, new.get(), p.get_mut());
    assert_eq!(p.get(), p_true.get(), "update_p, {}", what());
    q.get_mut().copy_from_slice(&q_before);
    kernel.update_q(exponent, old, new.get(), q.get_mut());
    assert_eq!(q.get(), q_true.get(), "update_q, {}", what());
}

/// Right parity is accepted; parity with one wrong bit is not, wherever the bit is.
fn checks(kernel: &impl Verbs, row: &Row, p: &[u8], q: &[u8]) {
    let (terms, sources) = (row.terms(), row.sources());
    assert!(kernel.check_p(&sources, p), "check_p, {kernel:?}");
    assert!(kernel.check_pq(&terms, p, q), "check_pq, {kernel:?}");
    for at in (0..row.size).step_by(41).chain(row.size.checked_sub(1)) {
        let (mut wrong_p, mut wrong_q) = (p.to_vec(), q.to_vec());
        wrong_p[at] ^= 1 << (at % 8);
        wrong_q[at] ^= 1 << (at % 8);
        assert!(!kernel.check_p(&sources, &wrong_p), "check_p, {kernel:?}");
        assert!(!kernel.check_pq(&terms, &wrong_p, q), "check_pq, {kernel:?}");
        assert!(!kernel.check_pq(&terms, p, &wrong_q), "check_pq, {kernel:?}");
    }
}

/// Loses blocks `x` and `y` of the row, or one if they are the same, and recovers them each way.
pub(crate) fn lose(kernel: &impl Verbs, row: &Row, x: usize, y: usize) {
    let terms = row.terms();
    let (mut p, mut q) = (row.spare(), row.spare());
    scalar().pq(&terms, p.get_mut(), q.get_mut());
    let left: Vec<Term<'_>> =
        (0..terms.len()).filter(|&i| i != x && i != y).map(|i| terms[i]).collect();
    let (mut first, mut second) = (row.spare(), row.spare());
    if x == y {
        kernel.recover_one_p(&left, p.get(), first.get_mut());
        assert_eq!(first.get(), terms[x].1, "{kernel:?}: {x} from P");
        kernel.recover_one_q(&left, q.get(), terms[x].0, second.get_mut());
        assert_eq!(second.get(), terms[x].1, "{kernel:?}: {x} from Q");
    } else {
        let (to_x, to_y) = ((terms[x].0, first.get_mut()), (terms[y].0, second.get_mut()));
        kernel.recover_two(&left, p.get(), q.get(), to_x, to_y);
        let right = first.get() == terms[x].1 && second.get() == terms[y].1;
        assert!(right, "{kernel:?}: {x} and {y} of {}", terms.len());
    }
}
