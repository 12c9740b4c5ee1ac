//! Runs over AoE: the same seed is the same run, and they hold. That they can fail, mutants show.

use sim::aoe::{Keep, run};
use sim::trace::Detail;

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 14, 15, 92] {
        let run = |detail| run(seed, &Keep::default(), detail).trace;
        let (first, second) = (run(Detail::Nothing), run(Detail::Everything));
        assert!(first.events() > 20, "something happens");
        assert_eq!((first.hash(), first.events()), (second.hash(), second.events()), "seed {seed}");
    }
    let hash = |seed| run(seed, &Keep::default(), Detail::Nothing).trace.hash();
    assert_ne!(hash(3), hash(4));
}

#[test]
fn some_seeds_hold() {
    for seed in 1000..1100 {
        let failure = run(seed, &Keep::default(), Detail::Nothing).failure;
        assert_eq!(failure, None, "cargo sim --aoe {seed}");
    }
}

/// Seeds that failed: late copies during a later write or through a port that was not known yet, a
/// counter that began anew, and a read that joined a read during a write (22193).
#[test]
fn seeds_that_failed_hold() {
    for seed in [18, 75, 106, 160, 162, 509, 586, 614, 846, 852, 942, 22193] {
        let failure = run(seed, &Keep::default(), Detail::Nothing).failure;
        assert_eq!(failure, None, "cargo sim --aoe {seed}");
    }
}
