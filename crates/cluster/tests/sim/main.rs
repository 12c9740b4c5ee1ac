//! The cluster in a simulated world: the same state machines over bad links, clocks and disks.
//!
//! ```text
//!   cargo test -p parapet-cluster --test sim                      seeds, all mutants
//!   CLUSTER_SEED=42 cargo test -p parapet-cluster --test sim one  one seed, with its history
//!   CLUSTER_SEEDS=0..100000 cargo test --release … --test sim     many seeds
//!   CLUSTER_MUTANT=NoDrain CLUSTER_SEEDS=0..9000 … --test sim every   seeds that catch a mutant
//!   CLUSTER_DEVIATIONS=1 cargo test --release … --test sim model  all runs of the `model`
//! ```
//!
//! The same seed gives the same run. A failure names its seed; `one` prints what happened.

// Everything here is the binary's own.
#![allow(unreachable_pub)]

mod faults;
mod ground;
mod marks;
mod medium;
mod model;
mod mutants;
mod oracle;
mod verify;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;

use world::{Outcome, World};

/// Seeds of a plain test run.
const SEEDS: Range<u64> = 0..2000;

fn run(seed: u64, history: bool) -> Outcome {
    World::new(seed, history).run()
}

/// Seeds from the environment: `FROM..TO`, or a count; else the usual ones.
fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("CLUSTER_SEEDS") else { return usual };
    let number = |text: &str| text.parse::<u64>().expect("CLUSTER_SEEDS: FROM..TO or a count");
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => 0..number(&text),
    }
}

#[test]
fn seeds_hold_the_invariants_and_reach_every_mark() {
    let seeds = seeds(SEEDS);
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    let mut steps = 0;
    for seed in seeds.clone() {
        let outcome = run(seed, false);
        steps += outcome.steps;
        outcome.marks.iter().for_each(|mark| *reached.entry(mark).or_default() += 1);
        if let Some(failure) = outcome.failure {
            let history = run(seed, true).history;
            let tail = history.len().saturating_sub(400);
            history[tail..].iter().for_each(|line| println!("{line}"));
            panic!("seed {seed}: {failure}");
        }
    }
    for mark in marks::ALL {
        println!("{:>8}  {mark}", reached.get(mark).copied().unwrap_or(0));
    }
    println!("{} seeds, {steps} steps", seeds.end - seeds.start);
    let missed: Vec<&&str> =
        marks::ALL.iter().filter(|mark| !reached.contains_key(**mark)).collect();
    assert!(seeds.end - seeds.start < SEEDS.end || missed.is_empty(), "never reached: {missed:?}");
}

/// One seed with its history; does nothing without `CLUSTER_SEED`.
#[test]
fn one() {
    let Ok(seed) = std::env::var("CLUSTER_SEED") else { return };
    let outcome = run(seed.parse().expect("CLUSTER_SEED: a number"), true);
    outcome.history.iter().for_each(|line| println!("{line}"));
    println!("{:?} {:?}", outcome.failure, outcome.marks);
    assert!(outcome.failure.is_none());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, true).history, run(seed, true).history, "seed {seed}");
    }
}
