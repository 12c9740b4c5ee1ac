//! `cargo xtask test`: every check that a change must pass, as a table of command lines.
//!
//! All steps run, also after a failed one, so that one run reports everything.

use crate::failure::Failure;
use crate::scratch;
use crate::shell;
use crate::steps::{self, Outcome, Step, step};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// A step that takes this many times its usual time hangs; no busy machine is that slow.
const HANG: u32 = 10;
/// Without a person at the terminal the whole run ends after this many minutes.
const RUN_MINUTES: u64 = 85;

/// One profile (dev, with optimisation) for all steps: two profiles would build everything twice.
/// Arguments contain no spaces.
const STEPS: &[Step] = &[
    step("tools", "install the tools that tests need", "cargo xtask tools", 3),
    step("format", "code format", "cargo fmt --all --check", 1),
    step("tidy", "house rules", "cargo xtask tidy", 1),
    step("lint", "clippy", "cargo clippy --workspace --all-targets -- -D warnings", 3),
    step(
        "fuzz-fmt",
        "code format of the fuzz targets",
        "cargo fmt --manifest-path fuzz/Cargo.toml --check",
        1,
    ),
    step(
        "fuzz-lint",
        "clippy on the fuzz targets",
        "cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings",
        2,
    ),
    step(
        "tests",
        "unit and integration tests",
        "cargo test --workspace --tests --no-fail-fast",
        10,
    ),
    step("simulator", "fixed seeds", "cargo sim --seeds 0..2000", 3),
    step(
        "seeds",
        "every seed that ever failed, and one minute of new seeds",
        "cargo sim --regressions --commit --seconds 60",
        2,
    ),
    step("checksums", "seeds with checksums", "cargo sim --checksums --seeds 0..500", 1),
    step("journal", "seeds with a journal device", "cargo sim --journal --seeds 0..600", 1),
    step(
        "ruins",
        "losses beyond the level's tolerance",
        "cargo sim --full --ruins --checksums --seeds 0..150",
        2,
    ),
    step("stores", "members on a store that fills up", "cargo sim --stores --seeds 0..300", 1),
    step(
        "aoe",
        "clients and a target of ATA over Ethernet on bad wires",
        "cargo sim --aoe --seeds 0..3000 --require-marks",
        1,
    ),
    step(
        "remote",
        "members on servers that are cut off, crash, and come back",
        "cargo sim --remote --seeds 0..40 --require-marks",
        1,
    ),
    step(
        "interop",
        "real kernels: one array of each layout in both directions; the kernel's NBD client",
        "cargo xtask interop --slice",
        7,
    ),
    step("mutants", "fast mutants are detected", "cargo xtask mutants --quick", 4),
    step(
        "torture",
        "the program under kills and power cuts",
        "cargo xtask torture --rounds 10 --seed 1",
        3,
    ),
    step(
        "hosts",
        "a cluster on three hosts: a client dies, then a host is cut off",
        "cargo xtask hosts --fast --seed 1 --only client-killed --only host-cut",
        1,
    ),
    step(
        "hosts-paused",
        "all processes of a cluster are paused for 15 s: no client is evicted",
        "cargo xtask hosts --seed 1 --only all-paused",
        1,
    ),
    step(
        "fuzz-tests",
        "corpus of the fuzz targets",
        "cargo test --manifest-path fuzz/Cargo.toml --lib",
        3,
    ),
    step("fuzz", "all fuzz targets", "cargo xtask fuzz --seconds 20", 3),
    step("small", "the program without its optional parts", "cargo xtask small", 3),
    step("examples", "code in comments", "cargo test --workspace --doc --no-fail-fast", 2),
    step(
        "manual",
        "links in comments resolve",
        "env RUSTDOCFLAGS=-Drustdoc::broken_intra_doc_links \
         cargo doc --workspace --no-deps --document-private-items",
        2,
    ),
];

/// Runs the named steps, or all; `--list` prints them.
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
    scratch::sweep();
    let mut outcomes = Vec::new();
    let end = (!std::io::stdin().is_terminal())
        .then(|| Instant::now() + Duration::from_secs(RUN_MINUTES * 60));
    for step in STEPS.iter().filter(chosen) {
        println!("\n==> {}: {}", step.name, step.command);
        let deadline = end.map(|end| end.min(Instant::now() + usual(step) * HANG));
        let outcome = steps::carry_out(step, &root, deadline, &|line| println!("{line}"))?;
        println!("<== {}: {outcome}", step.name);
        outcomes.push(outcome);
    }
    close(&outcomes)
}

fn usual(step: &Step<'_>) -> Duration {
    Duration::from_secs(step.minutes * 60)
}

/// Prints the table of outcomes and the closing line.
fn close(outcomes: &[Outcome<'_>]) -> Result<(), Failure> {
    println!();
    for outcome in outcomes {
        println!("{:<9} {outcome}", outcome.step.name);
    }
    println!();
    let broken = outcomes.iter().filter(|outcome| outcome.failed > 0);
    for Outcome { step, broken, .. } in broken.clone() {
        println!("{} failed; alone: cargo xtask test {0}", step.name);
        broken.iter().for_each(|line| println!("  {line}"));
    }
    let sum = |count: fn(&Outcome<'_>) -> u64| outcomes.iter().map(count).sum::<u64>();
    println!("{} passed, {} failed", sum(|o| o.passed), sum(|o| o.failed));
    // This line is always the last: callers parse it.
    if broken.count() == 0 { Ok(()) } else { Err(Failure::reported()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_fails_the_run() {
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
        assert!(STEPS.iter().map(|step| step.minutes).sum::<u64>() <= 65);
    }
}
