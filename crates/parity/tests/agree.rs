//! Every kernel matches the scalar kernel, at every size and alignment, for dense and gapped
//! exponents, in every verb; and every recovery restores the lost blocks.
//!
//! The scalar kernel itself is compared with known answers that ISA-L and Linux md also give.

mod rows;

use parity::{Kernel, Term, by_name, kernels};
use rows::agreement::{compare, lose, scalar};
use rows::{Random, Row};

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
            candidates().for_each(|kernel| compare(&kernel, &row, &mut random));
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
                candidates().for_each(|kernel| compare(&kernel, &row, &mut random));
            }
        }
    }
}

#[test]
fn big_blocks() {
    let mut random = Random(3);
    let row = Row::new(&mut random, (0..10).collect(), 64 << 10, 0);
    candidates().for_each(|kernel| compare(&kernel, &row, &mut random));
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
                kernels().for_each(|kernel| lose(&kernel, &row, x, y));
            }
        }
    }
}

#[test]
fn losses_in_the_widest_row() {
    let mut random = Random(6);
    let row = Row::new(&mut random, (0..254).collect(), 600, 5);
    for (x, y) in [(0, 253), (253, 0), (0, 1), (252, 253), (17, 130), (99, 99)] {
        kernels().for_each(|kernel| lose(&kernel, &row, x, y));
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
