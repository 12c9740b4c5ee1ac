//! Steps that run two at a time: most have one busy thread, or wait for other processes.
//!
//! ```text
//!   lane 1   format ─▶ tools ─────▶ │       │ interop ───────▶ tests ──▶ …
//!   lane 2   lint ────────────────▶ │ build │ program ───────▶ fuzz ───▶ …
//!                                     alone
//! ```
//!
//! Steps start in the order of the table. One that is alone waits for all before it, and those
//! after it wait for it.

use crate::failure::Failure;
use crate::steps::{self, Outcome, Step};
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// As many as the machines of developers and of CI have cores.
const LANES: usize = 2;
/// A step that takes this many times its usual time hangs; no busy machine is that slow.
const HANG: u32 = 10;

/// A step, and whether it uses the whole machine.
pub(crate) struct Planned<'a> {
    pub(crate) step: Step<'a>,
    pub(crate) alone: bool,
}

/// The next step, and the number of those that run.
struct Turn {
    next: usize,
    running: usize,
}

/// Runs all, also after a failed one, so that one run reports everything. None runs past `end`.
pub(crate) fn run<'a>(
    plan: &'a [Planned<'a>],
    root: &Path,
    end: Option<Instant>,
) -> Result<Vec<Outcome<'a>>, Failure> {
    let (turn, ended) = (Mutex::new(Turn { next: 0, running: 0 }), Condvar::new());
    let lane = || {
        let mut outcomes = Vec::new();
        while let Some(planned) = begin(plan, &turn, &ended) {
            outcomes.push(one(&planned.step, root, end));
            lock(&turn).running -= 1;
            ended.notify_all();
        }
        outcomes
    };
    std::thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        let outcomes = lanes.into_iter().map(|lane| lane.join().expect("a lane does not panic"));
        outcomes.flatten().collect()
    })
}

fn lock(turn: &Mutex<Turn>) -> MutexGuard<'_, Turn> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the next step may start, and takes it.
fn begin<'a>(
    plan: &'a [Planned<'a>],
    turn: &Mutex<Turn>,
    ended: &Condvar,
) -> Option<&'a Planned<'a>> {
    let mut turn = lock(turn);
    loop {
        let planned = plan.get(turn.next)?;
        let after_one_alone = turn.running > 0 && plan[turn.next - 1].alone;
        if turn.running == 0 || !planned.alone && !after_one_alone {
            turn.next += 1;
            turn.running += 1;
            return Some(planned);
        }
        turn = ended.wait(turn).unwrap_or_else(PoisonError::into_inner);
    }
}

fn one<'a>(step: &'a Step<'a>, root: &Path, end: Option<Instant>) -> Result<Outcome<'a>, Failure> {
    println!("==> {}: {}", step.name, step.command);
    let usual = Duration::from_secs(step.minutes * 60);
    let deadline = end.map(|end| end.min(Instant::now() + usual * HANG));
    let print_line = |line: &str| println!("{:<12} | {line}", step.name);
    let outcome = steps::carry_out(step, root, deadline, &print_line)?;
    println!("<== {}: {outcome}", step.name);
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_alone_waits_for_all_before_it_and_those_after_it_wait() {
        let step = |name| steps::step(name, "a step", "true", 1);
        let planned = |name, alone| Planned { step: step(name), alone };
        let plan = [("a", false), ("b", false), ("whole", true), ("c", false), ("d", false)]
            .map(|(name, alone)| planned(name, alone));
        let (turn, ended) = (Mutex::new(Turn { next: 0, running: 0 }), Condvar::new());
        let next = || begin(&plan, &turn, &ended).map(|planned| planned.step.name);
        assert_eq!((next(), next()), (Some("a"), Some("b")));
        std::thread::scope(|scope| {
            let whole = scope.spawn(next);
            for _ in 0..2 {
                assert!(!whole.is_finished());
                lock(&turn).running -= 1;
                ended.notify_all();
            }
            assert_eq!(whole.join().expect("it is there"), Some("whole"));
            let after = scope.spawn(next);
            assert!(!after.is_finished());
            lock(&turn).running -= 1;
            ended.notify_all();
            assert_eq!(after.join().expect("it is there"), Some("c"));
        });
        assert_eq!((next(), next()), (Some("d"), None));
    }

    #[test]
    fn every_step_runs_once_and_a_failed_one_stops_none() {
        let commands = ["true", "false", "true", "false", "true"];
        let plan = commands.map(|command| Planned {
            step: steps::step(command, "a step", command, 1),
            alone: false,
        });
        let outcomes = run(&plan, Path::new("/"), None).expect("all start");
        let sum = |count: fn(&Outcome<'_>) -> u64| outcomes.iter().map(count).sum::<u64>();
        assert_eq!((sum(|o| o.passed), sum(|o| o.failed)), (3, 2));
    }
}
