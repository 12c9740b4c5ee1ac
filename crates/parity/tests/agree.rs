//! Every kernel gives what the scalar kernel gives, at every size and alignment, for dense and
//! gapped exponents, in every verb; and every recovery gives back what was lost.
//!
//! The scalar kernel itself is held to known answers that ISA-L and Linux md also give.

mod rows;

use parity::{Kernel, Term, by_name, kernels};
use rows::{Random, Row};

fn scalar() -> Kernel {
    by_name("scalar").expect("scalar always runs")
}

/// All kernels but the oracle, and `cycle`.
fn candidates() -> impl Iterator<Item = Kernel> {
    kernels().skip(1).chain(by_name("cycle"))
}

/// Dense, with gaps as DDF layouts leave them, wide gaps, and out of order.
fn exponent_sets(count: usize) -> [Vec<u8>; 4] {
    let dense: Vec<u8> = (0..count as u8).collect();
    let gapped = dense.iter().map(|&e| if e < 2 { e } else { e + 2 }).map(|e| e % 255).collect();
    let wide = dense.iter().map(|&e| (1 + e * (254 / count as u8)) % 255).collect();
    let backwards = dense.iter().rev().copied().collect();
    [dense, gapped, wide, backwards]
}

#[test]
fn known_answers() {
    // Computed by ISA-L 2.30's pq_gen, which md's RAID 6 agrees with.
    let blocks: [&[u8]; 4] = [&[0x01, 0xff, 0x80], &[0x02, 0x80, 0x55], &[0x53, 0, 9], &[7, 7, 7]];
    let terms: Vec<Term<'_>> = (0..).zip(blocks).collect();
    for kernel in kernels() {
        let (mut p, mut q) = ([0; 3], [0; 3]);
        kernel.pq(&terms, &mut p, &mut q);
        assert_eq!((p, q), (ISAL_P, ISAL_Q), "{kernel:?}");
    }
}
const ISAL_P: [u8; 3] = [0x57, 0x78, 0xdb];
const ISAL_Q: [u8; 3] = [0x6c, 0xda, 0x36];

#[test]
fn every_size_and_alignment() {
    let mut random = Random(1);
    for size in 0..300 {
        let count = 1 + size % 9;
        for exponents in exponent_sets(count) {
            let row = Row::new(&mut random, exponents, size, size % 67);
            candidates().for_each(|kernel| compare(kernel, &row, &mut random));
        }
    }
}

#[test]
fn every_number_of_sources() {
    let mut random = Random(2);
    for count in (1..=20).chain([64, 253, 254]) {
        for exponents in exponent_sets(count) {
            for size in [512, 1061] {
                let row = Row::new(&mut random, exponents.clone(), size, count % 8);
                candidates().for_each(|kernel| compare(kernel, &row, &mut random));
            }
        }
    }
}

#[test]
fn big_blocks() {
    let mut random = Random(3);
    let row = Row::new(&mut random, (0..10).collect(), 64 << 10, 0);
    candidates().for_each(|kernel| compare(kernel, &row, &mut random));
}

#[test]
fn without_sources_parity_is_zero() {
    for kernel in kernels() {
        for size in [0, 1, 31, 512, 777] {
            let (mut p, mut q) = (vec![9; size], vec![9; size]);
            kernel.pq(&[], &mut p, &mut q);
            assert!(kernel.is_zero(&p) && kernel.is_zero(&q));
            let mut target = vec![9; size];
            kernel.xor(&[], &mut target);
            assert!(kernel.is_zero(&target) && kernel.check_p(&[], &target));
            let before = vec![9; size];
            let mut target = before.clone();
            kernel.xor_into(&[], &mut target);
            assert_eq!(target, before);
        }
    }
}

/// All verbs but recovery, against the oracle.
fn compare(kernel: Kernel, row: &Row, random: &mut Random) {
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
    assert!(kernel.is_zero(alone.get()), "xor_into, {}", what());
    assert!(kernel.check_p(&sources, p.get()) && kernel.check_pq(&terms, p.get(), q.get()));

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

#[test]
fn checks_see_every_flipped_bit() {
    let mut random = Random(4);
    for size in [1, 63, 512, 773] {
        let row = Row::new(&mut random, (0..5).collect(), size, 3);
        let (terms, sources) = (row.terms(), row.sources());
        let (mut p, mut q) = (row.spare(), row.spare());
        scalar().pq(&terms, p.get_mut(), q.get_mut());
        for at in 0..size {
            for kernel in kernels() {
                let bit = 1 << (at % 8);
                p.get_mut()[at] ^= bit;
                assert!(!kernel.check_p(&sources, p.get()));
                assert!(!kernel.check_pq(&terms, p.get(), q.get()));
                p.get_mut()[at] ^= bit;
                q.get_mut()[at] ^= bit;
                assert!(!kernel.check_pq(&terms, p.get(), q.get()));
                q.get_mut()[at] ^= bit;
                assert!(kernel.check_pq(&terms, p.get(), q.get()));
                let mut zero = vec![0; size];
                zero[at] = bit;
                assert!(!kernel.is_zero(&zero));
            }
        }
    }
}

#[test]
fn every_loss_of_one_and_two() {
    let mut random = Random(5);
    for count in 1..=12 {
        for exponents in exponent_sets(count) {
            let row = Row::new(&mut random, exponents, 331, 1);
            let pairs = (0..count).flat_map(|x| (0..count).map(move |y| (x, y)));
            for (x, y) in pairs {
                kernels().for_each(|kernel| lose(kernel, &row, x, y));
            }
        }
    }
}

#[test]
fn losses_in_the_widest_row() {
    let mut random = Random(6);
    let row = Row::new(&mut random, (0..254).collect(), 600, 5);
    for (x, y) in [(0, 253), (253, 0), (0, 1), (252, 253), (17, 130), (99, 99)] {
        kernels().for_each(|kernel| lose(kernel, &row, x, y));
    }
}

/// Loses blocks `x` and `y` of the row, or one if they are the same, and recovers them each way.
fn lose(kernel: Kernel, row: &Row, x: usize, y: usize) {
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

#[test]
fn unequal_lengths_are_refused() {
    let (short, long) = ([0; 64], [0; 65]);
    type Call<'a> = &'a dyn Fn(Kernel);
    let calls: [Call<'_>; 9] = [
        &|k| k.xor(&[&short, &long], &mut [0; 64]),
        &|k| k.xor_into(&[&long], &mut [0; 64]),
        &|k| k.pq(&[(0, &short)], &mut [0; 64], &mut [0; 65]),
        &|k| k.q(&[(0, &short), (1, &long)], &mut [0; 64]),
        &|k| k.update_pq(0, &short, &long, &mut [0; 64], &mut [0; 64]),
        &|k| k.update_q(0, &long, &short, &mut [0; 64]),
        &|k| k.recover_one_p(&[(0, &short)], &long, &mut [0; 64]),
        &|k| k.recover_two(&[], &short, &short, (0, &mut [0; 64]), (1, &mut [0; 65])),
        &|k| {
            k.check_pq(&[(0, &short)], &short, &long);
        },
    ];
    for kernel in kernels() {
        for call in calls {
            let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(kernel)));
            assert!(refused.is_err(), "{kernel:?}");
        }
    }
}
