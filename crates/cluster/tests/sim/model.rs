//! A bounded search: all runs with at most N deviations from a default schedule.
//!
//! ```text
//!   default   no message lost or late, nobody dies          2 clients, 3 members, 2 coordinators,
//!      ├──▶   each deviation at each step                   2 regions; 1.4 s of work, then rest
//!      │         └──▶ each second one at each later step
//!      └──▶   …
//! ```
//!
//! A step is one event of one node: a message, a tick, the end of a write. At each, the message is
//! lost, late or copied, or the node dies for a short or a long time. The machines are the real
//! ones, the verdict is that of the simulator with all its invariants.
//!
//! *Not covered*: orders of events that no such deviation makes, deviations after the work, other
//! delays than those of `world::deviate`, other workloads than one for each level and mode.
//!
//! A plain test tries one deviation at every `PART`-th step, `CLUSTER_DEVIATIONS=1` at all steps (a
//! minute, release), `2` all pairs, which takes hours. `CLUSTER_PART=N/M` takes first deviations
//! only at steps that leave the same as N when divided by M.

use cluster::broken::{Broken, choose};
use cluster::config::{Level, Mode};

use crate::world::{Outcome, Plan, World};

/// A plain test takes one step of so many.
const PART: u64 = 61;

/// The first seed whose world has this shape, and perfect links. In mode exclusive clients write
/// parts of blocks, too.
fn seed(level: Level, mode: Mode) -> u64 {
    let fits = |seed: &u64| {
        let World { ground, patches, .. } = World::with(*seed, false, Some(Plan::new()));
        let shape = ground.config.shape;
        let sizes = (ground.config.slots.len(), ground.clients.len(), shape.regions);
        let plain = ground.links.usual == [0; 3];
        let fits = (mode == Mode::Shared || patches.is_some()) && plain;
        (shape.level, shape.mode) == (level, mode) && sizes == (3, 2, 2) && fits
    };
    (0..).find(fits).expect("some seed")
}

struct Search {
    seed: u64,
    /// Of the first deviations: those of steps that leave `part.0` when divided by `part.1`.
    part: (u64, u64),
    runs: u64,
}

impl Search {
    fn new(seed: u64, part: (u64, u64)) -> Search {
        Search { seed, part, runs: 0 }
    }

    fn run(&self, plan: &Plan, history: bool) -> Outcome {
        World::with(self.seed, history, Some(plan.clone())).run()
    }

    /// The first plan that extends this one, by at most `more` deviations, and fails.
    fn failure(&mut self, plan: &mut Plan, more: u32) -> Option<(Plan, String)> {
        let outcome = self.run(plan, false);
        self.runs += 1;
        if let Some(failure) = outcome.failure {
            return Some((plan.clone(), failure));
        }
        if more == 0 {
            return None;
        }
        let first = plan.last().map_or(1, |(step, _)| step + 1);
        let steps = (1..).zip(outcome.possible).filter(|(step, _)| *step >= first);
        for (step, deviations) in steps {
            if plan.is_empty() && step % self.part.1 != self.part.0 {
                continue;
            }
            for &deviation in deviations {
                plan.push((step, deviation));
                let failure = self.failure(plan, more - 1);
                plan.pop();
                if failure.is_some() {
                    return failure;
                }
            }
        }
        None
    }
}

fn part() -> Option<(u64, u64)> {
    let text = std::env::var("CLUSTER_PART").ok()?;
    let (part, parts) = text.split_once('/')?;
    let (part, parts): (u64, u64) = (part.parse().ok()?, parts.parse().ok()?);
    Some((part.checked_rem(parts)?, parts))
}

/// Tries all plans of so many deviations, in four worlds.
fn explore(deviations: u32, part: (u64, u64)) {
    for level in [Level::Fragments, Level::Mirror] {
        for mode in [Mode::Shared, Mode::Exclusive] {
            let mut search = Search::new(seed(level, mode), part);
            if let Some((plan, failure)) = search.failure(&mut Plan::new(), deviations) {
                let history = search.run(&plan, true).history;
                history.iter().for_each(|line| println!("{line}"));
                panic!("{level:?} {mode:?} {plan:?}: {failure}");
            }
            println!("{level:?} {mode:?}: {} runs", search.runs);
        }
    }
}

#[test]
fn model_of_some_deviations_holds() {
    explore(1, (0, PART));
}

/// All steps; does nothing without `CLUSTER_DEVIATIONS`.
#[test]
fn model_of_all_deviations_holds() {
    let Ok(deviations) = std::env::var("CLUSTER_DEVIATIONS") else { return };
    let deviations = deviations.parse().expect("CLUSTER_DEVIATIONS: a number");
    explore(deviations, part().unwrap_or((0, 1)));
}

/// Mutants with which the default schedule passes: only a deviation shows them.
const CAUGHT: [Broken; 10] = [
    Broken::OneLogSuffices,
    Broken::RebuildingSkipped,
    Broken::AnswersBeforeDurable,
    Broken::OneSlot,
    Broken::EpochUnchecked,
    Broken::CopiesExecuted,
    Broken::RestartIgnored,
    Broken::PromotesEarly,
    Broken::StaleForgotten,
    Broken::ResyncUnflushed,
];

#[test]
fn model_catches_mutants() {
    let seed = seed(Level::Fragments, Mode::Shared);
    for way in CAUGHT {
        choose(Some(way));
        let mut search = Search::new(seed, (0, 7));
        let found = search.failure(&mut Plan::new(), 1);
        choose(None);
        let (plan, failure) = found.unwrap_or_else(|| panic!("{way:?} survives"));
        println!("{way:?}: {} runs, {plan:?}: {failure:.90}", search.runs);
        assert_eq!(plan.len(), 1, "{way:?} needs a deviation");
    }
}
