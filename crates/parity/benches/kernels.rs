//! How fast each kernel of this CPU is, verb by verb: GB/s of data blocks (of changed data for
//! updates), 1 GB = 10⁹ bytes. One JSON line a figure; medians of interleaved rounds.
//!
//! `cargo bench -p parapet-parity --bench kernels [-- FILTER]`; pin it to a core with taskset.

mod stage;

use std::time::Duration;

use parity::{Kernel, kernels};
use stage::{Shape, Stage, median, seconds};

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(30);

type Verb = (&'static str, fn(Kernel, &mut Stage) -> usize);

/// Each runs once over the next row and says how many bytes count as treated.
const VERBS: [Verb; 8] = [
    ("xor", |kernel, stage| {
        let row = stage.next();
        let [p, ..] = row.parity;
        kernel.xor(&row.sources, p);
        p.len() * row.sources.len()
    }),
    ("pq", |kernel, stage| {
        let row = stage.next();
        let [p, q, ..] = row.parity;
        kernel.pq(&row.terms, p, q);
        p.len() * row.terms.len()
    }),
    ("pq_gapped", |kernel, stage| {
        let mut row = stage.next();
        let [p, q, ..] = row.parity;
        row.terms.iter_mut().skip(2).for_each(|term| term.0 += 2);
        kernel.pq(&row.terms, p, q);
        p.len() * row.terms.len()
    }),
    ("update_pq", |kernel, stage| {
        let row = stage.next();
        let [p, q, new, _] = row.parity;
        kernel.update_pq(2, row.sources[2], new, p, q);
        p.len()
    }),
    ("recover_one_q", |kernel, stage| {
        let row = stage.next();
        let [_, q, lost, _] = row.parity;
        kernel.recover_one_q(&row.terms[1..], q, 0, lost);
        lost.len() * row.terms.len()
    }),
    ("recover_two", |kernel, stage| {
        let row = stage.next();
        let [p, q, x, y] = row.parity;
        kernel.recover_two(&row.terms[2..], p, q, (0, x), (1, y));
        p.len() * row.terms.len()
    }),
    ("check_pq", |kernel, stage| {
        let mut row = stage.next();
        let [p, q, ..] = row.parity;
        // All-zero data with matching parity would be cheating; doubled sources cancel instead.
        let half = row.terms.len() / 2;
        (0..half).for_each(|i| row.terms[half + i] = row.terms[i]);
        if p.first() != Some(&0) || q.first() != Some(&0) {
            p.fill(0);
            q.fill(0);
        }
        row.terms.truncate(2 * half);
        assert!(std::hint::black_box(kernel.check_pq(&row.terms, p, q)));
        p.len() * row.terms.len()
    }),
    ("is_zero", |kernel, stage| {
        let row = stage.next();
        let [p, ..] = row.parity;
        if p.first() != Some(&0) {
            p.fill(0);
        }
        assert!(std::hint::black_box(kernel.is_zero(p)));
        p.len()
    }),
];

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for shape in Shape::all() {
        let mut stage = Stage::new(shape);
        for (verb, run) in VERBS {
            if filter.as_ref().is_some_and(|filter| !verb.contains(filter.as_str())) {
                continue;
            }
            measure(&mut stage, verb, run);
        }
    }
}

fn measure(stage: &mut Stage, verb: &str, run: fn(Kernel, &mut Stage) -> usize) {
    let kernels: Vec<Kernel> = kernels().collect();
    let mut figures = vec![Vec::new(); kernels.len()];
    for _ in 0..ROUNDS {
        for (kernel, figures) in kernels.iter().zip(&mut figures) {
            let mut bytes = 0;
            let seconds = seconds(SLICE, || bytes = run(*kernel, stage));
            figures.push(bytes as f64 / seconds / 1e9);
        }
    }
    for (kernel, figures) in kernels.iter().zip(figures) {
        let Shape { place, data, .. } = stage.shape;
        let (name, rate) = (kernel.name(), median(figures));
        println!(
            r#"{{"name":"{verb}","shape":"{data}+2 {place}","kernel":"{name}","GB/s":{rate:.1}}}"#
        );
    }
}
