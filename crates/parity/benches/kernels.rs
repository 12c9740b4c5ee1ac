//! How fast each kernel of this CPU is, verb by verb: GB/s of data blocks (of changed data for
//! updates), 1 GB = 10⁹ bytes. One JSON line a figure; medians of interleaved rounds.
//!
//! `cargo bench -p parapet-parity --bench kernels [-- FILTER]`; pin it to a core with taskset.

mod stage;

use std::time::Duration;

use parity::{Kernel, kernels};
use stage::{Room, Row, Shape, Stage, median, seconds};

const ROUNDS: usize = 5;
const SLICE: Duration = Duration::from_millis(30);

type Verb = (&'static str, fn(Kernel, &mut Row<'_>) -> usize);

/// Each runs once over the next row and says how many bytes count as treated.
const VERBS: [Verb; 8] = [
    ("xor", |kernel, row| {
        let [p, ..] = &mut row.parity;
        kernel.xor(&row.sources, p);
        p.len() * row.sources.len()
    }),
    ("pq", |kernel, row| {
        let [p, q, ..] = &mut row.parity;
        kernel.pq(&row.terms, p, q);
        p.len() * row.terms.len()
    }),
    ("pq_gapped", |kernel, row| {
        let [p, q, ..] = &mut row.parity;
        row.terms.iter_mut().zip(0..).skip(2).for_each(|(term, index)| term.0 = index + 2);
        kernel.pq(&row.terms, p, q);
        row.terms.iter_mut().zip(0..).for_each(|(term, index)| term.0 = index);
        p.len() * row.terms.len()
    }),
    ("update_pq", |kernel, row| {
        let [p, q, new, _] = &mut row.parity;
        kernel.update_pq(2, row.sources[2], new, p, q);
        p.len()
    }),
    ("recover_one_q", |kernel, row| {
        let [_, q, lost, _] = &mut row.parity;
        kernel.recover_one_q(&row.terms[1..], q, 0, lost);
        lost.len() * row.terms.len()
    }),
    ("recover_two", |kernel, row| {
        let [p, q, x, y] = &mut row.parity;
        kernel.recover_two(&row.terms[2..], p, q, (0, x), (1, y));
        p.len() * row.terms.len()
    }),
    ("check_pq", |kernel, row| {
        let [p, q, ..] = &mut row.parity;
        if !kernel.check_pq(&row.terms, p, q) {
            kernel.pq(&row.terms, p, q); // the first time on this row
        }
        p.len() * row.terms.len()
    }),
    ("is_zero", |kernel, row| {
        let [p, ..] = &mut row.parity;
        if !kernel.is_zero(p) {
            p.fill(0); // the first time on this row
        }
        p.len()
    }),
];

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    for shape in Shape::all() {
        let mut room = Room::new(shape);
        let mut stage = room.stage();
        for (verb, run) in VERBS {
            if filter.as_ref().is_some_and(|filter| !verb.contains(filter.as_str())) {
                continue;
            }
            measure(&mut stage, verb, run);
        }
    }
}

fn measure(stage: &mut Stage<'_>, verb: &str, run: fn(Kernel, &mut Row<'_>) -> usize) {
    let kernels: Vec<Kernel> = kernels().collect();
    let mut figures = vec![Vec::new(); kernels.len()];
    for _ in 0..ROUNDS {
        for (kernel, figures) in kernels.iter().zip(&mut figures) {
            let mut bytes = 0;
            let seconds = seconds(SLICE, || bytes = run(*kernel, stage.next()));
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
