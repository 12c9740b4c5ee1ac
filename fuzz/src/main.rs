//! The stable run: corpus first, then our own mutator, under a memory and a time budget.
//!
//! ```text
//!   stable [--seconds N] [--seed S] [TARGET…]     fuzz; N seconds in all, 20 unless told
//!   stable --file PATH TARGET                     one input, as it is
//!   stable --write-corpus                         the seeds as files, for libFuzzer
//!   stable --list
//! ```
//!
//! Exit status: 0 if every promise held, 1 if not, 2 for a command line that is not understood.
#![deny(unsafe_code)]

mod hunt;
mod memory;
mod verdict;
mod watchdog;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use parapet_fuzz::{TARGETS, Target};

use hunt::Hunt;

/// What is asked for.
struct Plan {
    seconds: u64,
    seed: u64,
    file: Option<PathBuf>,
    targets: Vec<Target>,
}

/// Understands the command line.
fn plan(arguments: &[String]) -> Result<Plan, String> {
    let mut plan = Plan { seconds: 20, seed: 1, file: None, targets: Vec::new() };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: &String| text.parse().map_err(|_| format!("{text:?} is no number"));
        match word.as_str() {
            "--seconds" => plan.seconds = number(value()?)?,
            "--seed" => plan.seed = number(value()?)?,
            "--file" => plan.file = Some(PathBuf::from(value()?)),
            name => {
                let found = TARGETS.iter().find(|target| target.name == name);
                plan.targets.push(*found.ok_or_else(|| format!("no target {name:?}; --list"))?);
            }
        }
    }
    if plan.file.is_some() != (plan.file.is_some() && plan.targets.len() == 1) {
        return Err(String::from("--file goes with one target"));
    }
    if plan.targets.is_empty() {
        plan.targets = TARGETS.to_vec();
    }
    Ok(plan)
}

/// The folder of this package: the corpus lies beside its source.
fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some("--list") => {
            TARGETS.iter().for_each(|target| println!("{:<18} {}", target.name, target.what));
            return ExitCode::SUCCESS;
        }
        Some("--write-corpus") => return write_corpus(),
        _ => {}
    }
    let plan = match plan(&arguments) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("fuzz: {why}");
            return ExitCode::from(2);
        }
    };
    verdict::listen();
    watchdog::start();
    if let Some(path) = &plan.file {
        return one(&plan.targets[0], path);
    }
    if let Err(why) = hunt::canaries() {
        println!("the run itself is broken: {why}");
        return ExitCode::FAILURE;
    }
    fuzz(&plan)
}

/// All targets in turn; the last line counts them as a test runner does.
fn fuzz(plan: &Plan) -> ExitCode {
    println!("seed {}, {} s for {} targets", plan.seed, plan.seconds, plan.targets.len());
    let end = Instant::now() + Duration::from_secs(plan.seconds);
    let (mut passed, mut failed) = (0, 0);
    for (index, target) in plan.targets.iter().enumerate() {
        let share = end.saturating_duration_since(Instant::now());
        let share = share / (plan.targets.len() - index) as u32;
        let outcome = Hunt::new(target, plan.seed).run(share);
        println!("{outcome}");
        if outcome.failures == 0 {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One input, with the panic's message where there is one.
fn one(target: &Target, path: &Path) -> ExitCode {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            eprintln!("fuzz: {}: {error}", path.display());
            return ExitCode::from(2);
        }
    };
    let before = memory::live();
    drop(verdict::of(target, &bytes));
    let left = memory::live().saturating_sub(before);
    parapet_fuzz::trail::aloud();
    let (verdict, peak) = verdict::of(target, &bytes);
    println!("{verdict:?}, {peak} bytes at most, {left} bytes left behind");
    if verdict.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The seeds of all targets as files. Those that are there already stay.
fn write_corpus() -> ExitCode {
    for target in TARGETS {
        let folder = home().join("corpus").join(target.name);
        for (number, seed) in (target.seeds)().into_iter().enumerate() {
            let path = folder.join(format!("seed-{number:02}"));
            let written =
                std::fs::create_dir_all(&folder).and_then(|()| std::fs::write(&path, seed));
            if let Err(error) = written {
                eprintln!("fuzz: {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
