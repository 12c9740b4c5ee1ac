//! Every single operation of a member fails, once and for ever, in every phase of an array's life.
//!
//! SQLite's method (sqlite.org/testing.html): count the operations of a scenario, then run it again
//! for each of them, with that one failing. So every error path is taken, and no caller can have
//! forgotten one.
//!
//! ```text
//!   shape × scenario ─▶ count: n operations ─▶ for each: fails once │ it and all that follow
//!                                               × medium error, gone, no space, no answer
//! ```
//!
//! After each: no panic, every request is answered, acknowledged data reads back if the level
//! tolerates the loss of the failed disk, unreadable data returns an error and never wrong data,
//! and the array can be assembled again.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Instant;

use layout::{Layout, Level, Raid5Layout, Raid6Layout};

use crate::report;
use crate::stand::{Fault, How};

mod phase;
mod rig;

pub use phase::{Phase, all as phases};
use rig::{End, Rig};

/// Ways to fail.
const HOWS: [How; 4] = [How::Medium, How::Gone, How::NoSpace, How::Hang];

/// The arrays that are swept: layout and members, spares apart.
pub fn shapes() -> Vec<(Layout, usize)> {
    vec![
        (Layout::Raid1, 2),
        (Layout::Raid1, 3),
        (Layout::Raid10 { near: 2, far: 1, offset: false }, 4),
        (Layout::Raid4, 4),
        (Layout::Raid5(Raid5Layout::LeftSymmetric), 4),
        (Layout::Raid6(Raid6Layout::LeftSymmetric), 5),
        (Layout::Raid35 { order: 1 }, 3),
    ]
}

/// The result of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Operations of members in the scenario.
    pub sites: u64,
    /// Runs: a site with a way to fail.
    pub cases: u64,
    /// Of these, where the scenario's own work was refused or failed, honestly.
    pub failed: u64,
    /// Where something was wrong.
    pub violations: u64,
    /// The first of these, in words.
    pub stories: Vec<String>,
}

/// This many violations of a scenario are printed.
const STORIES_MAX: usize = 3;

/// Sweeps one phase of one shape; one of every `stride` operations fails.
pub fn run((layout, members): (Layout, usize), phase: Phase, stride: u64) -> Tally {
    let mut tally = Tally::default();
    let mut rig = match Rig::new(layout, members, phase) {
        Ok(rig) => rig,
        Err(fault) => {
            tally.violate(format!("{layout} of {members}: {phase:?}: {fault}"));
            return tally;
        }
    };
    tally.sites = match attempt(&mut rig, None) {
        (End { failed: None, .. }, sites) => sites,
        (End { failed: Some(fault), .. }, _) => {
            tally.violate(format!("{layout} of {members}: {phase:?}: nothing fails: {fault}"));
            return tally;
        }
    };
    for op in (0..tally.sites).step_by(stride as usize) {
        for how in HOWS {
            for for_ever in [false, true] {
                tally.cases += 1;
                let fault = Fault { op, for_ever, how };
                let (end, _) = attempt(&mut rig, Some(fault));
                tally.failed += u64::from(end.failed.is_some());
                if let Some(wrong) = end.wrong {
                    tally.violate(format!(
                        "{layout} of {members}: {phase:?}: operation {op} of {}: {how:?}, {}: \
                         {wrong}",
                        tally.sites,
                        if for_ever { "for ever" } else { "once" },
                    ));
                }
            }
        }
    }
    tally
}

/// One run; panics are caught. Gives how many operations the phase took, too.
fn attempt(rig: &mut Rig, fault: Option<Fault>) -> (End, u64) {
    let mut result = (End::default(), 0);
    let run = || result = rig.play(fault);
    if let Some(panic) = report::caught(|| catch_unwind(AssertUnwindSafe(run))) {
        result.0.wrong = Some(panic.clone());
        result.0.failed = Some(panic);
    }
    if fault.is_none() && result.0.failed.is_none() {
        result.0.failed.clone_from(&result.0.wrong);
    }
    result
}

impl Tally {
    fn violate(&mut self, story: String) {
        self.violations += 1;
        if self.stories.len() < STORIES_MAX {
            self.stories.push(story);
        }
    }
}

const USAGE: &str = "\
usage: cargo sim --sweep [--level L] [--stride N]

Fail each single disk operation in turn, in every phase of an array's life.

  --level L    sweep this level only
  --stride N   fail every N-th operation only [1]";

/// The command: sweeps everything, prints the table.
pub fn command(mut words: impl Iterator<Item = String>) -> ExitCode {
    let (mut level, mut stride) = (None, 1);
    while let Some(word) = words.next() {
        let next = words.next().unwrap_or_default();
        let known = match word.as_str() {
            "--stride" => next.parse::<u64>().map(|n| stride = n.max(1)).is_ok(),
            "--level" => next.parse::<Level>().map(|l| level = Some(l)).is_ok(),
            _ => false,
        };
        if matches!(word.as_str(), "--help" | "-h") {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        if !known {
            eprintln!("{word} {next}: unknown option\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    let start = Instant::now();
    let which = level.map_or("all levels", Level::name);
    println!("sweep of {which}, one operation of {stride}, {}", report::head());
    println!("{:<40} {:>7} {:>8} {:>8} {:>6}", "phase", "sites", "cases", "failed", "wrong");
    let (mut sites, mut cases, mut violations) = (0, 0, 0);
    let chosen =
        shapes().into_iter().filter(|(layout, _)| level.is_none_or(|l| layout.level() == l));
    for (layout, members) in chosen {
        for phase in phases() {
            let tally = run((layout, members), phase, stride);
            let name = format!("{} {layout} of {members}: {phase:?}", layout.level());
            let Tally { failed, .. } = tally;
            println!(
                "{name:<40} {:>7} {:>8} {failed:>8} {:>6}",
                tally.sites, tally.cases, tally.violations
            );
            tally.stories.iter().for_each(|story| println!("  WRONG {story}"));
            sites += tally.sites;
            cases += tally.cases;
            violations += tally.violations;
        }
    }
    println!(
        "{sites} sites, {cases} cases, {violations} wrong, in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    ExitCode::from(u8::from(violations > 0))
}

/// Images that several runs begin with.
type Images = Vec<Rc<crate::stand::Image>>;
