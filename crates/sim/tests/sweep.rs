//! A slice of the n-th I/O sweep; all of it is `cargo sim --sweep`.

use sim::sweep::{phases, run, shapes};

#[test]
fn no_single_operation_that_fails_costs_more_than_its_disk() {
    for shape in shapes() {
        for phase in phases() {
            let tally = run(shape, phase, 11);
            assert!(tally.sites > 10 && tally.cases > 0, "{shape:?} {phase:?}: {tally:?}");
            assert_eq!(tally.violations, 0, "{}", tally.stories.join("\n"));
        }
    }
}
