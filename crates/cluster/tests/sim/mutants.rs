//! The test of the test: a seed detects each mutant, and passes without it.

use std::ops::Range;

use cluster::broken::{Broken, choose};

use crate::{run, seeds};

/// Seeds within which a mutant must be caught.
const SEEDS: Range<u64> = 0..3000;
/// Tried first: seeds that catch the rarest mutants, to save time; some are out of reach.
const FIRST: [u64; 20] = [
    4070, 2683, 1481, 5754, 1802, 5154, 6013, 10_072, 2306, 6330, 7426, 9256, 20_216, 24_756, 2698,
    1567, 1157, 1137, 892, 776,
];
/// Too rare for seeds: `tests/lost.rs` has members that lose the right writes, `tests/limits.rs` a
/// client at the last start number.
const RARE: [Broken; 2] = [Broken::PatchRevivesLost, Broken::LastLetIn];

#[test]
fn every_mutant_is_caught() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survived = Vec::new();
    let only = std::env::var("CLUSTER_MUTANT").ok();
    for &way in Broken::ALL.iter().filter(|way| !RARE.contains(way)) {
        if only.as_ref().is_some_and(|only| format!("{way:?}") != *only) {
            continue;
        }
        choose(Some(way));
        let mut seeds = FIRST.into_iter().chain(seeds(SEEDS));
        let caught = seeds.find_map(|seed| Some((seed, run(seed, false).failure?)));
        choose(None);
        match caught {
            Some((seed, failure)) => {
                let sound = run(seed, false).failure;
                assert!(sound.is_none(), "{way:?}: seed {seed} fails without it: {sound:?}");
                let story: String = failure.chars().take(90).collect();
                println!("{way:?}: {seed}: {story}");
            }
            None => survived.push(way),
        }
    }
    let _ = std::panic::take_hook();
    assert!(survived.is_empty(), "survived {SEEDS:?}: {survived:?}");
}
