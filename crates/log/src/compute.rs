//! Parity of rows whose bytes lie in several pieces: cuts them into runs and calls the kernels.

use std::ops::Range;

use io::broken::{Broken, broken};
use layout::plan::Erasure;
use layout::{Slot, StripeMap, StripeRole};
use parity::Kernel;

/// Terms that fit on the stack; wider arrays allocate a list.
const INLINE: usize = 16;

/// Calls `with` with all of these as one slice.
fn gathered<T: Copy, R>(each: impl Iterator<Item = T>, none: T, with: impl FnOnce(&[T]) -> R) -> R {
    let mut inline = [none; INLINE];
    let mut count = 0;
    let mut each = each.peekable();
    while count < INLINE
        && let Some(one) = each.next()
    {
        inline[count] = one;
        count += 1;
    }
    if each.peek().is_none() {
        return with(&inline[..count]);
    }
    let mut all = inline.to_vec();
    all.extend(each);
    with(&all)
}

/// Calls `with` with these sources as one slice.
pub fn sources<'a, R>(
    each: impl Iterator<Item = &'a [u8]>,
    with: impl FnOnce(&[&'a [u8]]) -> R,
) -> R {
    gathered(each, &[], with)
}

/// Calls `with` with these terms, exponent and bytes, as one slice.
pub fn terms<'a, R>(
    each: impl Iterator<Item = (u8, &'a [u8])>,
    with: impl FnOnce(&[(u8, &'a [u8])]) -> R,
) -> R {
    gathered(each, (0, &[]), with)
}

/// Computes P, Q or both of a row of `len` bytes from all its data. `source(index, at)` returns the
/// contiguous bytes of data `index` from offset `at` on: at least one byte.
pub fn encode<'a>(
    kernel: Kernel,
    map: &StripeMap,
    len: usize,
    source: impl Fn(usize, usize) -> &'a [u8],
    mut p: Option<&mut [u8]>,
    mut q: Option<&mut [u8]>,
) {
    let count = map.data_count();
    let mut at = 0;
    while at < len {
        let run = (0..count).map(|index| source(index, at).len()).min().unwrap_or(0);
        let run = run.min(len - at);
        assert!(run > 0, "a row has bytes of every data slot");
        let part = at..at + run;
        let p = p.as_deref_mut().map(|p| &mut p[part.clone()]);
        let q = q.as_deref_mut().map(|q| &mut q[part]);
        let part = |index| &source(index, at)[..run];
        let wrong = |index: usize| index == 1 && broken(Broken::WrongCoefficient);
        let exponent = |index| map.exponent(if wrong(index) { 0 } else { index });
        let term = |index| (exponent(index), part(index));
        match (p, q) {
            (Some(p), None) => sources((0..count).map(part), |all| kernel.xor(all, p)),
            (None, Some(q)) => terms((0..count).map(term), |all| kernel.q(all, q)),
            (Some(p), Some(q)) => terms((0..count).map(term), |all| kernel.pq(all, p, q)),
            (None, None) => {}
        }
        at += run;
    }
}

/// Updates P and Q of a row for a change of one data block. `new(at)` returns its contiguous new
/// bytes from `at` on.
pub fn update<'a>(
    kernel: Kernel,
    exponent: u8,
    old: &[u8],
    new: impl Fn(usize) -> &'a [u8],
    mut p: Option<&mut [u8]>,
    mut q: Option<&mut [u8]>,
) {
    let mut at = 0;
    while at < old.len() {
        let fresh = new(at);
        let run = fresh.len().min(old.len() - at);
        assert!(run > 0, "new bytes cover the row");
        let part = at..at + run;
        let (old, fresh) = (&old[part.clone()], &fresh[..run]);
        let p = p.as_deref_mut().map(|p| &mut p[part.clone()]);
        let q = q.as_deref_mut().map(|q| &mut q[part]);
        match (p, q) {
            (Some(p), Some(q)) => kernel.update_pq(exponent, old, fresh, p, q),
            (Some(p), None) => kernel.update_p(old, fresh, p),
            (None, Some(q)) => kernel.update_q(exponent, old, fresh, q),
            (None, None) => {}
        }
        at += run;
    }
}

/// Removes the new data of the `touched` indices from the new `parity` (P or Q) of a row.
/// `from(index, at)` returns the contiguous bytes of that data from `at` on.
///
/// ```text
///   p′ = P′ ⊕ new data          q′ = Q′ ⊕ Σ gⁱ · new data
/// ```
pub fn partial<'a>(
    kernel: Kernel,
    (map, q): (&StripeMap, bool),
    touched: Range<usize>,
    parity: &[u8],
    from: impl Fn(usize, usize) -> &'a [u8],
    rest: &mut [u8],
) {
    let mut at = 0;
    while at < parity.len() {
        let run = touched.clone().map(|index| from(index, at).len()).min().unwrap_or(0);
        let run = run.min(parity.len() - at);
        assert!(run > 0, "new bytes cover the row");
        let (old, target) = (&parity[at..at + run], &mut rest[at..at + run]);
        let touched = touched.clone().filter(|_| !broken(Broken::PartialOfAll));
        let data = touched.map(|index| (index, &from(index, at)[..run]));
        if q {
            let all = data.map(|(index, bytes)| (map.exponent(index), bytes));
            terms(std::iter::once((0, old)).chain(all), |all| kernel.q(all, target));
        } else {
            let all = std::iter::once(old).chain(data.map(|(_, bytes)| bytes));
            sources(all, |all| kernel.xor(all, target));
        }
        at += run;
    }
}

/// Recovers the lost data of a row. `have(slot)` returns the bytes of any slot that was read. The
/// result goes to `x` and, for two lost blocks, `y`, in the order of [`Erasure::lost`].
pub fn recover<'a>(
    kernel: Kernel,
    map: &StripeMap,
    erasure: Erasure,
    have: impl Fn(Slot) -> &'a [u8],
    x: &mut [u8],
    y: &mut [u8],
) {
    let lost = erasure.lost();
    let exponent = |slot: Slot| match map.role(slot) {
        StripeRole::Data(index) => map.exponent(index),
        StripeRole::P | StripeRole::Q => unreachable!("only data is recovered"),
    };
    let survivors = (0..map.data_count())
        .filter(|&index| !lost.contains(map.data(index)))
        .map(|index| (map.exponent(index), have(map.data(index))));
    let q = || have(map.q().expect("an erasure by Q has a Q"));
    terms(survivors, |all| match erasure {
        Erasure::FromP(_) => kernel.recover_one_p(all, have(map.p()), x),
        Erasure::FromQ(slot) => kernel.recover_one_q(all, q(), exponent(slot), x),
        Erasure::FromPq(a, b) => {
            kernel.recover_two(all, have(map.p()), q(), (exponent(a), x), (exponent(b), y));
        }
    });
}
