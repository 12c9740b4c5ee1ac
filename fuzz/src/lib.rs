//! Everything that reads foreign bytes, as functions that take any bytes, for libFuzzer.
//!
//! ```text
//!   fuzz_targets/*   one binary for each target, linked with libFuzzer
//!          │ run: memory budget, leaks
//!      TARGETS       a body, good seeds, a checksum corrector, a budget
//!       ┌──┴───────┬─────────┬──────────┬──────────┬──────────┐
//!   metadata      nbd       aoe      cluster    config      image
//! ```
//!
//! A *body* takes any bytes, calls the code under test, and panics if a promise is broken. It
//! returns a [`Trail`] of its events, so that a test can compare runs. Bodies are deterministic.
//!
//! A new target is a `pub const` of type [`Target`], its row in [`TARGETS`], a file of two lines in
//! `fuzz_targets` and its `[[bin]]` in `Cargo.toml`; a test names the missing part.
#![deny(unsafe_code)]

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

pub mod aoe;
pub mod choice;
mod clock;
pub mod cluster;
pub mod config;
pub mod image;
mod memory;
pub mod metadata;
pub mod nbd;
pub mod trail;

pub use aoe::{AOE_INITIATOR, AOE_TARGET};
pub use cluster::{CLUSTER_MEMBER, CLUSTER_WIRE};
pub use config::CONFIG;
pub use image::IMAGE;
pub use metadata::{
    FOREIGN, JOURNAL_HEADER, MD_BADBLOCKS, MD_BITMAP, MD_PPL, MD_SUPERBLOCK, MD_SUPERBLOCK_090,
    PRIVATE_BAD, PRIVATE_CHECKSUMS, PRIVATE_HEADER, PRIVATE_LOG,
};
pub use nbd::{NBD_CLIENT, NBD_HANDSHAKE, NBD_TRANSMISSION};
pub use trail::Trail;

pub use libfuzzer_sys;

/// Something that reads foreign bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// As the command line and the corpus call it.
    pub name: &'static str,
    /// The checks.
    pub what: &'static str,
    /// Runs one input; panics if a promise is broken.
    pub body: fn(&[u8]) -> Trail,
    /// Good inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Makes checksums right again, so that mutations get past them.
    pub mend: fn(&mut [u8]),
    /// Useful tokens for mutations: magic numbers, keywords.
    pub words: &'static [&'static [u8]],
    /// Memory limit of an input.
    pub memory_bytes: usize,
    /// Longest input that is tried.
    pub most_bytes: usize,
}

/// All there are.
pub const TARGETS: &[Target] = &[
    NBD_HANDSHAKE,
    NBD_TRANSMISSION,
    NBD_CLIENT,
    AOE_TARGET,
    AOE_INITIATOR,
    MD_SUPERBLOCK,
    MD_SUPERBLOCK_090,
    MD_BITMAP,
    MD_BADBLOCKS,
    MD_PPL,
    PRIVATE_HEADER,
    JOURNAL_HEADER,
    PRIVATE_LOG,
    PRIVATE_BAD,
    PRIVATE_CHECKSUMS,
    FOREIGN,
    CLUSTER_WIRE,
    CLUSTER_MEMBER,
    CONFIG,
    IMAGE,
];

/// There is no checksum to correct.
pub fn as_it_is(_: &mut [u8]) {}

/// Inputs that may leave memory allocated before that counts as a leak: a table that grows once is
/// none.
const MOST_LEFT: u32 = 200;

/// Runs one input: at most `most_bytes` of it, within the target's memory budget.
///
/// # Panics
/// If the body does, if it allocates more than the budget, or if too many inputs left memory
/// allocated.
pub fn run(target: &Target, bytes: &[u8]) {
    static VERBOSE: Once = Once::new();
    static LEFT: AtomicU32 = AtomicU32::new(0);
    VERBOSE.call_once(|| {
        if std::env::var_os("FUZZ_VERBOSE").is_some() {
            trail::aloud();
        }
    });
    let bytes = &bytes[..bytes.len().min(target.most_bytes)];
    let before = memory::live();
    let (_, peak) = memory::peak_of(|| (target.body)(bytes));
    let (name, budget) = (target.name, target.memory_bytes);
    assert!(peak <= budget, "{name}: {peak} bytes allocated at once; the budget is {budget}");
    let left = memory::live() - before;
    if left > 0 {
        let count = LEFT.fetch_add(1, Ordering::Relaxed);
        assert!(count < MOST_LEFT, "{name}: leak: {left} bytes stay allocated after this input");
    }
}

/// The entry points that libFuzzer calls, for one target. Three of four mutated inputs get right
/// checksums.
#[macro_export]
macro_rules! under_libfuzzer {
    ($target:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::run(&$target, bytes));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8],
                                              size: usize,
                                              max_size: usize,
                                              seed: u32| {
            let size = $crate::libfuzzer_sys::fuzzer_mutate(data, size, max_size);
            if seed % 4 != 0 {
                ($target.mend)(&mut data[..size]);
            }
            size
        });
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_its_file_and_its_row() {
        let manifest = include_str!("../Cargo.toml");
        for target in TARGETS {
            let row = format!("name = \"{0}\"\npath = \"fuzz_targets/{0}.rs\"", target.name);
            assert!(manifest.contains(&row), "no [[bin]] for {}", target.name);
            let file = format!("{}/fuzz_targets/{}.rs", env!("CARGO_MANIFEST_DIR"), target.name);
            let text = std::fs::read_to_string(&file).expect("a file for each target");
            let constant = target.name.to_uppercase();
            assert!(text.contains(&format!("parapet_fuzz::{constant})")), "{file}");
        }
    }

    #[test]
    fn seeds_are_good_inputs_and_leave_different_trails() {
        for target in TARGETS {
            let seeds = (target.seeds)();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            let nothing = (target.body)(&[]);
            for seed in &seeds {
                assert!(seed.len() <= target.most_bytes, "{}: a long seed", target.name);
                assert_ne!((target.body)(seed), nothing, "{}: an idle seed", target.name);
                let mut mended = seed.clone();
                (target.mend)(&mut mended);
                let (trail, again) = ((target.body)(seed), (target.body)(&mended));
                assert_eq!(trail, again, "{}: mending breaks a seed", target.name);
            }
        }
    }

    fn greedy(body: fn(&[u8]) -> Trail) -> Target {
        Target { name: "greedy", body, memory_bytes: 1 << 20, ..TARGETS[0] }
    }

    #[test]
    fn an_input_within_the_budget_passes() {
        run(&greedy(|_| drop_after(vec![0; 1 << 10])), &[]);
    }

    #[test]
    #[should_panic(expected = "the budget is")]
    fn an_input_beyond_the_budget_is_detected() {
        run(&greedy(|_| drop_after(vec![0; 2 << 20])), &[]);
    }

    #[test]
    #[should_panic(expected = "leak")]
    fn a_leak_is_detected() {
        let leaks = greedy(|_| {
            std::mem::forget(std::hint::black_box(vec![0_u8; 1]));
            Trail::new()
        });
        (0..=MOST_LEFT).for_each(|_| run(&leaks, &[]));
    }

    fn drop_after(bytes: Vec<u8>) -> Trail {
        drop(std::hint::black_box(bytes));
        Trail::new()
    }
}
