//! The simulator itself: the same seed is the same run, its disks are disks, and it can fail.

use std::rc::Rc;

use io::{Limits, Pool, ZeroSupport};
use sim::disk::{Build, SimDisk};
use sim::medium::Fill;
use sim::options::{Size, Wish};
use sim::scenario;
use sim::trace::{Detail, Trace};
use sim::world::World;

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in [3, 14, 15, 92] {
        let run = |telling| scenario::run(seed, Wish::default(), telling).trace;
        let (first, second) = (run(Detail::Nothing), run(Detail::Everything));
        assert!(first.events() > 100, "something happens");
        assert_eq!(first.hash(), second.hash(), "seed {seed}");
        assert_eq!(first.events(), second.events(), "seed {seed}");
    }
    let hash = |seed| scenario::run(seed, Wish::default(), Detail::Nothing).trace.hash();
    assert_ne!(hash(3), hash(4));
}

#[test]
fn some_seeds_of_each_level_hold() {
    for level in layout::Level::ALL {
        for seed in 1000..1012 {
            let wish = Wish {
                level: Some(level),
                shards: Some(1 + 2 * (seed as usize % 2)),
                cache: None,
                size: if seed % 5 == 2 { Size::Standard } else { Size::Drawn },
                checksums: seed % 3 == 0,
                journal: seed % 4 == 1,
                ruins: seed % 6 == 3,
                stores: seed % 5 == 4,
            };
            let ending = scenario::run(seed, wish, Detail::Nothing);
            let failure = ending.failure.unwrap_or_default();
            assert!(failure.is_empty(), "cargo sim {seed} --level {}: {failure}", level.name());
        }
    }
}

/// A disk that keeps the contract whatever its latencies are.
#[test]
fn a_simulated_disk_is_a_disk() {
    for (seed, volatile) in [(1, false), (2, true)] {
        let world = World::new(seed, Trace::new(Detail::Nothing));
        let limits = Limits {
            volatile,
            zero: ZeroSupport::Fast,
            discard: true,
            discard_zeroes: volatile,
            ..Limits::plain(io::contract::MIN_BYTES)
        };
        let build = Build { limits, fill: Fill::Noise(seed), latency_us: 20 };
        let disk: Rc<SimDisk> = world.disk(build);
        let check = async move { io::contract::check(disk, &Pool::new(1 << 20)).await };
        world.run(check).expect("the request completes");
    }
}
