//! `cargo xtask test`: everything that must hold before a change lands, as a table of command
//! lines.
//!
//! All steps run, also after one has failed, so that one run tells everything.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::shell;
use crate::steps::{self, Outcome, Patience, Step, step};

/// The most that a run takes in all, a third more than is usual: whoever runs it unattended ends it
/// after 90 minutes, and would not say which step was running.
const RUN_MINUTES: u64 = 85;

/// Limits of time are for steps that hang: about ten times what a step takes on two cores.
///
/// One profile (dev, with optimisation) for all of it: two would be built twice. No command has a
/// word with a space in it.
const STEPS: &[Step] = &[
    step("tools", "what the tests talk to is installed", "cargo xtask tools", 15),
    step("format", "the one way to lay out code", "cargo fmt --all --check", 3),
    step("tidy", "the house rules", "cargo xtask tidy", 3),
    step("lint", "clippy", "cargo clippy --workspace --all-targets -- -D warnings", 12),
    step(
        "fuzz-fmt",
        "format, of what fuzzes",
        "cargo fmt --manifest-path fuzz/Cargo.toml --check",
        3,
    ),
    step(
        "fuzz-lint",
        "lint, of what fuzzes",
        "cargo clippy --manifest-path fuzz/Cargo.toml --no-default-features --all-targets -- \
         -D warnings",
        6,
    ),
    step("tests", "unit and integration", "cargo test --workspace --tests --no-fail-fast", 30),
    step("simulator", "the same seeds each time", "cargo sim --seeds 0..2000", 9),
    step(
        "seeds",
        "every seed that ever failed, and a minute of such that nobody has run",
        "cargo sim --regressions --commit --seconds 60",
        12,
    ),
    step("checksums", "seeds of arrays that keep them", "cargo sim --checksums --seeds 0..500", 3),
    step(
        "journal",
        "seeds of arrays with a journal device",
        "cargo sim --journal --seeds 0..600",
        3,
    ),
    step(
        "ruins",
        "more is lost than the level bears",
        "cargo sim --full --ruins --checksums --seeds 0..150",
        6,
    ),
    step(
        "interop",
        "arrays move between Parapet and real kernels: one of each layout; their NBD client",
        "cargo xtask interop --slice",
        33,
    ),
    step("mutants", "an engine broken on purpose is seen", "cargo xtask mutants --quick", 12),
    step(
        "torture",
        "the program is killed, the power of its members cut",
        "cargo xtask torture --rounds 10 --seed 1",
        9,
    ),
    step("fuzz", "hostile bytes, a while for each target", "cargo xtask fuzz --seconds 20", 9),
    step("examples", "code in comments", "cargo test --workspace --doc --no-fail-fast", 6),
    step(
        "manual",
        "links in comments lead somewhere",
        "env RUSTDOCFLAGS=-Drustdoc::broken_intra_doc_links \
         cargo doc --workspace --no-deps --document-private-items",
        6,
    ),
];

/// Runs the steps named, or all; `--list` prints them.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if arguments.iter().any(|argument| argument == "--list") {
        for step in STEPS {
            println!("{:<9} {}: {}", step.name, step.what, step.command);
        }
        return Ok(());
    }
    let known = |name: &String| STEPS.iter().any(|step| step.name == *name);
    if let Some(stranger) = arguments.iter().find(|name| !known(name)) {
        let remedy = "`cargo xtask test --list` shows them";
        return Err(Failure::new(format!("no step {stranger:?}"), remedy));
    }
    let chosen = |step: &&Step| arguments.is_empty() || arguments.iter().any(|a| a == step.name);
    let root = shell::root()?;
    let mut outcomes = Vec::new();
    let until = Instant::now() + Duration::from_secs(RUN_MINUTES * 60);
    for step in STEPS.iter().filter(chosen) {
        println!("\n==> {}: {}", step.name, step.command);
        let outcome = steps::carry_out(step, &root, Patience::OfWhoWatches { until }, &|line| {
            println!("{line}");
        })?;
        println!("<== {}: {outcome}", step.name);
        outcomes.push(outcome);
    }
    close(&outcomes)
}

/// Prints the table of outcomes and the closing line.
fn close(outcomes: &[Outcome<'_>]) -> Result<(), Failure> {
    println!();
    for outcome in outcomes {
        println!("{:<9} {outcome}", outcome.step.name);
    }
    println!();
    let broken = outcomes.iter().filter(|outcome| outcome.failed > 0);
    for Outcome { step, .. } in broken.clone() {
        println!("{} failed; alone: cargo xtask test {0}", step.name);
    }
    let sum = |count: fn(&Outcome<'_>) -> u64| outcomes.iter().map(count).sum::<u64>();
    println!("{} passed, {} failed", sum(|o| o.passed), sum(|o| o.failed));
    // That line is the last, whatever happened: those who run us read it.
    if broken.count() == 0 { Ok(()) } else { Err(Failure::told()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_makes_all_of_it_fail() {
        let step = step("sample", "a step", "true", 1);
        let outcome = |failed| Outcome { failed, ..Outcome::of(&step) };
        assert!(close(&[outcome(0)]).is_ok());
        assert!(close(&[outcome(0), outcome(1)]).is_err());
    }

    #[test]
    fn commands_are_plain_words() {
        for step in STEPS {
            assert!(step.command.split(' ').all(|word| !word.is_empty()), "{}", step.name);
            assert!(!step.command.contains(['"', '\'']), "{}", step.name);
        }
    }

    /// Whoever runs all of it ends the run after 90 minutes: before that the step has to be named.
    #[test]
    fn a_step_that_hangs_is_ended_before_the_run_is() {
        assert!(STEPS.iter().all(|step| step.minutes < RUN_MINUTES));
        const { assert!(RUN_MINUTES < 90) };
    }
}
