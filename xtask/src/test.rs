//! `cargo xtask test`: every check that a change must pass, as a table of command lines.
//!
//! Draws no new seeds: a red run means that the change is wrong. `cargo sim --commit` and the
//! nightly draw them.

use crate::artifacts::{PACKAGES, TARGETS};
use crate::failure::Failure;
use crate::lanes::{self, Planned};
use crate::scratch;
use crate::shell;
use crate::steps::{self, Outcome};
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Without a person at the terminal the whole run ends after this many minutes.
const RUN_MINUTES: u64 = 85;

/// The packages of `--quick`.
const ENGINE: &str = "-p parapet-parity -p parapet-layout -p parapet-io -p parapet-random \
    -p parapet-log -p parapet-metadata -p parapet-array -p parapet-sim";

/// A row of the table.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    what: &'static str,
    /// `{packages}`, `{targets}` and `{engine}` are [`PACKAGES`], [`TARGETS`] and [`ENGINE`]; `sim`
    /// is the simulator that an earlier step has built. Arguments contain no spaces.
    command: &'static str,
    /// Its usual time on two cores, rounded up.
    minutes: u64,
    /// It keeps both cores busy: nothing else runs meanwhile.
    alone: bool,
}

const fn check(
    name: &'static str,
    what: &'static str,
    command: &'static str,
    minutes: u64,
) -> Check {
    Check { name, what, command, minutes, alone: false }
}

const fn alone(check: Check) -> Check {
    Check { alone: true, ..check }
}

const FORMAT: Check = check("format", "code format", "cargo fmt --all --check", 1);
const TIDY: Check = check("tidy", "house rules", "cargo xtask tidy", 1);
const LINT: Check = check(
    "lint",
    "clippy",
    "cargo clippy --workspace --lib --bins --benches --test * -- -D warnings",
    3,
);
/// Builds what other steps run.
const BUILD: &str = "build";

/// After a change of the engine: minutes.
const QUICK: &[Check] = &[
    FORMAT,
    LINT,
    TIDY,
    alone(check(
        "engine",
        "tests of the pure crates, the engine and the simulator",
        "cargo test {engine} --no-fail-fast --lib --bins --tests",
        3,
    )),
    check("seeds", "the first seeds", "sim --seeds 0..150", 1),
    check("more", "more seeds", "sim --seeds 150..300", 1),
];

/// One profile (dev, with optimisation) and one set of features for all steps. Steps that run other
/// programs, or one thread, run beside each other.
const ALL: &[Check] = &[
    FORMAT,
    LINT,
    TIDY,
    check("tools", "install the tools that tests need", "cargo xtask tools", 3),
    check("xtask", "tests of this tool", "cargo test -p xtask", 1),
    alone(check(BUILD, "all programs and tests", "cargo build {packages} {targets}", 5)),
    check(
        "interop",
        "real kernels: one array of each layout in both directions; the kernel's NBD client",
        "cargo xtask interop --slice --jobs 2",
        12,
    ),
    check(
        "program",
        "tests of the program",
        "cargo test {packages} --no-fail-fast --test program",
        8,
    ),
    check(
        "tests",
        "unit and integration tests of all else",
        "cargo test {packages} --no-fail-fast --lib --bins --tests",
        8,
    ),
    check(
        "fuzz-fmt",
        "code format of the fuzz targets",
        "cargo fmt --manifest-path fuzz/Cargo.toml --check",
        1,
    ),
    check(
        "fuzz-lint",
        "clippy on the fuzz targets",
        "cargo clippy --manifest-path fuzz/Cargo.toml --all-targets -- -D warnings",
        2,
    ),
    check("small", "the program without its optional parts", "cargo xtask small", 4),
    check("fuzz", "corpus and first inputs of all targets", "cargo xtask fuzz --runs 1000", 4),
    check("simulator", "fixed seeds", "sim --seeds 0..1000", 2),
    check("seeds", "every seed that ever failed", "sim --regressions", 1),
    check("checksums", "seeds with checksums", "sim --checksums --seeds 0..500", 1),
    check("journal", "seeds with a journal device", "sim --journal --seeds 0..600", 1),
    check(
        "ruins",
        "losses beyond the level's tolerance",
        "sim --full --ruins --checksums --seeds 0..150",
        2,
    ),
    check("stores", "members on a store that fills up", "sim --stores --seeds 0..300", 1),
    check(
        "aoe",
        "clients and a target of ATA over Ethernet on bad wires",
        "sim --aoe --seeds 0..3000 --require-marks",
        1,
    ),
    check(
        "remote",
        "members on servers that are cut off, crash, and come back",
        "sim --remote --seeds 0..24 --require-marks",
        2,
    ),
    check("mutants", "fast mutants are detected", "cargo xtask mutants --quick", 1),
    check(
        "torture",
        "the program under kills and power cuts",
        "cargo xtask torture --rounds 10 --seed 1",
        2,
    ),
    check(
        "hosts",
        "a cluster on three hosts: a client dies, then a host is cut off",
        "cargo xtask hosts --fast --seed 1 --only client-killed --only host-cut",
        1,
    ),
    check(
        "hosts-paused",
        "all processes of a cluster are paused for 15 s: no client is evicted",
        "cargo xtask hosts --seed 1 --only all-paused",
        1,
    ),
    check("examples", "code in comments", "cargo test {packages} --no-fail-fast --doc", 1),
    check(
        "manual",
        "links in comments resolve",
        "env RUSTDOCFLAGS=-Drustdoc::broken_intra_doc_links \
         cargo doc --workspace --no-deps --document-private-items",
        1,
    ),
];

/// Runs the named checks, or all; `--quick` runs the short table, `--list` prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let (options, names): (Vec<&str>, Vec<&str>) =
        arguments.iter().map(String::as_str).partition(|word| word.starts_with("--"));
    if let Some(stranger) = options.iter().find(|word| !["--quick", "--list"].contains(word)) {
        return Err(Failure::new(
            format!("no option {stranger:?}"),
            "there are --quick and --list",
        ));
    }
    let table = if options.contains(&"--quick") { QUICK } else { ALL };
    let chosen = chosen(table, &names)?;
    let lines: Vec<String> = chosen.iter().map(line).collect();
    let plan: Vec<_> =
        chosen.iter().zip(&lines).map(|(check, line)| planned(check, line)).collect();
    if options.contains(&"--list") {
        for Planned { step, .. } in plan {
            println!("{:<12} {}: {}", step.name, step.what, step.command);
        }
        return Ok(());
    }
    let root = shell::root()?;
    scratch::sweep();
    let started = Instant::now();
    let end =
        (!std::io::stdin().is_terminal()).then(|| started + Duration::from_secs(RUN_MINUTES * 60));
    let outcomes = lanes::run(&plan, &root, end)?;
    close(outcomes, started.elapsed())
}

/// The checks with these names, or all of the table. What a check runs is built first.
fn chosen(table: &[Check], names: &[&str]) -> Result<Vec<Check>, Failure> {
    if let Some(stranger) =
        names.iter().find(|name| !table.iter().any(|check| check.name == **name))
    {
        let remedy = "`cargo xtask test --list` shows them";
        return Err(Failure::new(format!("no step {stranger:?}"), remedy));
    }
    let named = |check: &&Check| names.is_empty() || names.contains(&check.name);
    let runs_built = table.iter().filter(named).any(|check| check.command.starts_with("sim "));
    let wanted = |check: &&Check| named(check) || runs_built && check.name == BUILD;
    Ok(table.iter().filter(wanted).copied().collect())
}

fn line(check: &Check) -> String {
    let words = [("{packages}", PACKAGES), ("{targets}", TARGETS), ("{engine}", ENGINE)];
    words.iter().fold(check.command.to_owned(), |line, (name, words)| line.replace(name, words))
}

fn planned<'a>(check: &Check, line: &'a str) -> Planned<'a> {
    Planned { step: steps::step(check.name, check.what, line, check.minutes), alone: check.alone }
}

/// Prints the table of outcomes, longest first, and the closing line.
fn close(mut outcomes: Vec<Outcome<'_>>, took: Duration) -> Result<(), Failure> {
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    println!();
    for outcome in &outcomes {
        println!("{:<12} {outcome}", outcome.step.name);
    }
    println!("\nall of it: {} min {} s\n", took.as_secs() / 60, took.as_secs() % 60);
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
        let step = steps::step("sample", "a step", "true", 1);
        let outcome = |failed| Outcome { failed, ..Outcome::of(&step) };
        assert!(close(vec![outcome(0)], Duration::ZERO).is_ok());
        assert!(close(vec![outcome(0), outcome(1)], Duration::ZERO).is_err());
    }

    #[test]
    fn commands_are_plain_words() {
        for check in ALL.iter().chain(QUICK) {
            let line = line(check);
            assert!(line.split(' ').all(|word| !word.is_empty()), "{}", check.name);
            assert!(!line.contains(['"', '\'', '{']), "{}", check.name);
        }
    }

    #[test]
    fn what_a_check_runs_is_built_first() {
        let names = |names: &[&str]| {
            let chosen = chosen(ALL, names).expect("they are in the table");
            chosen.iter().map(|check| check.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["simulator"]), ["build", "simulator"]);
        assert_eq!(names(&["tidy", "format"]), ["format", "tidy"]);
        assert_eq!(names(&[]).len(), ALL.len());
        assert!(chosen(ALL, &["no-such-step"]).is_err());
    }
}
