//! A slice of the exhaustive mode; all of it is `cargo sim --exhaustive`.

use layout::private::Consistency;
use sim::exhaust::{Case, Extent, Promise, all, run};

const SLICE: Extent =
    Extent { singles_stride: 29, pairs_stride: 9973, triples: 0, ..Extent::WHOLE };

/// Every level and layout: some workloads, some of the states that their cuts can leave, all
/// losses.
#[test]
fn short_workloads_cut_anywhere_hold_on_every_level_and_layout() {
    for case in all() {
        let tally = run(case, Extent { states_stride: 37, ..SLICE });
        assert!(tally.states > 0 && tally.trials > 0, "{case}: {tally:?}");
        assert_eq!(tally.violations, 0, "{}", tally.stories.join("\n"));
    }
}

/// The check itself can fail: without the intent log the engine refuses arrays that it recovers
/// with it.
#[test]
fn a_broken_promise_is_detected_when_required() {
    let parity = |case: &Case| case.to_string().starts_with("raid5");
    let case = all().into_iter().find(parity).expect("RAID 5 is among them");
    let consistency = Consistency::Bitmap;
    let promise = Promise::Unverified;
    let extent = Extent { states_stride: 101, consistency, promise, ..SLICE };
    let unverified = run(case, extent);
    assert!(unverified.refused > 0 && unverified.violations == 0, "{unverified:?}");
    let closed = run(case, Extent { promise: Promise::Closed, ..extent });
    assert!(closed.violations > 0 && closed.refused == 0, "{closed:?}");
    assert!(closed.stories[0].contains("lost: ["), "{}", closed.stories[0]);
}
