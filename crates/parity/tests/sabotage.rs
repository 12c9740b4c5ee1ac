//! A test of the tests: kernels that are made to fail, each in one verb and in one way that a
//! real bug would look like, must all be noticed by the agreement that `agree.rs` relies on.

mod rows;

use std::fmt::{Debug, Formatter, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};

use parity::{Kernel, Term, best};
use rows::agreement::{Verbs, compare, lose};
use rows::{Random, Row};

/// The faults of a verb.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing: the control.
    Nothing,
    /// One bit of one entry of a 16-entry table is flipped: columns whose first source ends in the
    /// nibble 7 are wrong by one bit.
    TableEntry,
    /// One block is multiplied by the next power of g.
    Coefficient,
    /// One block is omitted.
    Source,
    /// The last byte is not written.
    Tail,
    /// A check finds everything right.
    Yes,
    /// A check finds everything wrong.
    No,
}

/// The best kernel, with one fault in one verb.
struct Saboteur {
    kernel: Kernel,
    verb: &'static str,
    fault: Fault,
}

impl Debug for Saboteur {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "{:?} with {:?} in {}", self.kernel, self.fault, self.verb)
    }
}

impl Saboteur {
    fn has(&self, verb: &str, fault: Fault) -> bool {
        self.verb == verb && self.fault == fault
    }

    /// Terms as a faulty kernel sees them.
    fn terms<'a>(&self, verb: &str, terms: &[Term<'a>]) -> Vec<Term<'a>> {
        let mut terms = terms.to_vec();
        if self.has(verb, Fault::Coefficient) && !terms.is_empty() {
            terms[0].0 = terms[0].0.wrapping_add(1);
        }
        if self.has(verb, Fault::Source) {
            terms.pop();
        }
        terms
    }

    fn sources<'a>(&self, verb: &str, sources: &[&'a [u8]]) -> Vec<&'a [u8]> {
        let left_out = usize::from(self.has(verb, Fault::Source));
        sources[..sources.len() - left_out].to_vec()
    }

    fn exponent(&self, verb: &str, exponent: u8) -> u8 {
        exponent.wrapping_add(u8::from(self.has(verb, Fault::Coefficient)))
    }

    /// Damages a result that was computed from `source` (and others).
    fn damage(&self, verb: &str, source: &[u8], before: u8, result: &mut [u8]) {
        if self.has(verb, Fault::TableEntry) {
            let wrong = source.iter().map(|byte| byte & 15 == 7);
            result.iter_mut().zip(wrong).for_each(|(byte, wrong)| *byte ^= u8::from(wrong) << 4);
        }
        if let (true, Some(last)) = (self.has(verb, Fault::Tail), result.last_mut()) {
            *last = before;
        }
    }

    fn answer(&self, verb: &str, answer: bool) -> bool {
        (answer || self.has(verb, Fault::Yes)) && !self.has(verb, Fault::No)
    }
}

fn last(bytes: &[u8]) -> u8 {
    bytes.last().copied().unwrap_or(0)
}

impl Verbs for Saboteur {
    fn xor(&self, sources: &[&[u8]], target: &mut [u8]) {
        let before = last(target);
        self.kernel.xor(&self.sources("xor", sources), target);
        self.damage("xor", sources[0], before, target);
    }

    fn xor_into(&self, sources: &[&[u8]], target: &mut [u8]) {
        let before = last(target);
        self.kernel.xor_into(&self.sources("xor_into", sources), target);
        self.damage("xor_into", sources[0], before, target);
    }

    fn pq(&self, terms: &[Term<'_>], p: &mut [u8], q: &mut [u8]) {
        let before = last(q);
        self.kernel.pq(&self.terms("pq", terms), p, q);
        self.damage("pq", terms[0].1, before, q);
    }

    fn q(&self, terms: &[Term<'_>], q: &mut [u8]) {
        let before = last(q);
        self.kernel.q(&self.terms("q", terms), q);
        self.damage("q", terms[0].1, before, q);
    }

    fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        let before = last(p);
        self.kernel.update_p(old, new, p);
        self.damage("update_p", old, before, p);
    }

    fn update_pq(&self, exponent: u8, old: &[u8], new: &[u8], p: &mut [u8], q: &mut [u8]) {
        let before = last(q);
        self.kernel.update_pq(self.exponent("update_pq", exponent), old, new, p, q);
        self.damage("update_pq", old, before, q);
    }

    fn update_q(&self, exponent: u8, old: &[u8], new: &[u8], q: &mut [u8]) {
        let before = last(q);
        self.kernel.update_q(self.exponent("update_q", exponent), old, new, q);
        self.damage("update_q", old, before, q);
    }

    fn recover_one_p(&self, terms: &[Term<'_>], p: &[u8], lost: &mut [u8]) {
        let before = last(lost);
        self.kernel.recover_one_p(&self.terms("recover_one_p", terms), p, lost);
        self.damage("recover_one_p", p, before, lost);
    }

    fn recover_one_q(&self, terms: &[Term<'_>], q: &[u8], exponent: u8, lost: &mut [u8]) {
        let before = last(lost);
        let exponent = self.exponent("recover_one_q", exponent);
        self.kernel.recover_one_q(&self.terms("recover_one_q", terms), q, exponent, lost);
        self.damage("recover_one_q", q, before, lost);
    }

    fn recover_two(
        &self,
        terms: &[Term<'_>],
        p: &[u8],
        q: &[u8],
        x: (u8, &mut [u8]),
        y: (u8, &mut [u8]),
    ) {
        let before = last(y.1);
        let terms = self.terms("recover_two", terms);
        self.kernel.recover_two(&terms, p, q, (x.0, x.1), (y.0, y.1));
        self.damage("recover_two", p, before, y.1);
    }

    fn check_p(&self, sources: &[&[u8]], p: &[u8]) -> bool {
        self.answer("check_p", self.kernel.check_p(&self.sources("check_p", sources), p))
    }

    fn check_pq(&self, terms: &[Term<'_>], p: &[u8], q: &[u8]) -> bool {
        self.answer("check_pq", self.kernel.check_pq(&self.terms("check_pq", terms), p, q))
    }
}

/// One line, one verb and the ways in which it can be broken.
const MENU: [(&str, &[Fault]); 12] = {
    use Fault::*;
    [
        ("xor", &[TableEntry, Source, Tail]),
        ("xor_into", &[TableEntry, Source, Tail]),
        ("pq", &[TableEntry, Coefficient, Source, Tail]),
        ("q", &[TableEntry, Coefficient, Source, Tail]),
        ("update_p", &[TableEntry, Tail]),
        ("update_pq", &[TableEntry, Coefficient, Tail]),
        ("update_q", &[TableEntry, Coefficient, Tail]),
        ("recover_one_p", &[TableEntry, Source, Tail]),
        ("recover_one_q", &[TableEntry, Coefficient, Source, Tail]),
        ("recover_two", &[TableEntry, Coefficient, Source, Tail]),
        ("check_p", &[Source, Yes, No]),
        ("check_pq", &[Coefficient, Source, Yes, No]),
    ]
};

/// Whether the agreement test fails, and for which verb.
fn noticed(saboteur: &Saboteur) -> Option<String> {
    let mut random = Random(9);
    let row = Row::new(&mut random, (0..5).collect(), 777, 3);
    let agreement = AssertUnwindSafe(|| {
        compare(saboteur, &row, &mut random);
        (0..5).for_each(|x| (0..5).for_each(|y| lose(saboteur, &row, x, y)));
    });
    let objection = catch_unwind(agreement).err()?;
    Some(objection.downcast_ref::<String>().cloned().unwrap_or_default())
}

#[test]
fn every_fault_is_noticed() {
    for (verb, faults) in MENU {
        for &fault in faults {
            let saboteur = Saboteur { kernel: best(), verb, fault };
            let objection = noticed(&saboteur);
            let objection = objection.unwrap_or_else(|| panic!("{saboteur:?} passed"));
            assert!(objection.contains("with"), "noticed by accident: {objection}");
        }
    }
}

#[test]
fn without_a_fault_nothing_is_noticed() {
    let control = Saboteur { kernel: best(), verb: "pq", fault: Fault::Nothing };
    assert_eq!(noticed(&control), None);
}
