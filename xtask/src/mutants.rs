//! `cargo xtask mutants`: the test of the tests. Selects every mutant of `io/src/broken.rs` in turn
//! and requires that the simulator, or the named test, detects it.
//!
//! Fails if a mutant survives: then the tests are blind there. The canary, an engine that starts no
//! array, must be detected too; otherwise this program is blind.

use crate::artifacts::Artifacts;
use crate::failure::Failure;
use crate::shell;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Mutants tested concurrently.
const AT_ONCE: usize = 2;

/// Printed lines of a failure's story.
const STORY_MAX: usize = 90;

/// The mutants of every test run: those detected quickly.
const QUICK: &[&str] = &[
    "Canary",
    "ReaddCopiesNothing",
    "ParityStaleDegraded",
    "QStale",
    "WrongCoefficient",
    "RmwBufferReused",
    "UnstableBuffer",
    "RowsUnlocked",
    "PartialOfAll",
    "DegradedUnlogged",
    "ForeignLog",
    "SessionReused",
    "ChangeUnrecorded",
    "HeaderUnwritten",
    "ReadsUnrebuilt",
    "HedgeReadsUnrebuilt",
    "RebuildUnlocked",
    "RebuildMissesWrites",
    "WatermarkAhead",
    "JobsCrossRegions",
    "DirtyReadsBalanced",
    "ScrubTrustsData",
    "DegradedReadsNothing",
    "ReadErrorIgnored",
    "DiscardMisplaced",
    "DiscardOneOffset",
    "DiscardKeepsEdges",
    "FlushForgetsHeld",
    "AoeLateExecuted",
    "AoeCopyInFlightExecuted",
    "AoeReackedWithoutHistory",
    "AoeRangeReused",
];
/// Within these seeds.
const QUICK_SEEDS: &[&str] = &["--seeds", "0..100"];

/// A way to break the engine.
#[derive(Clone, Debug)]
struct Mutant {
    name: String,
    source: String,
    /// The tool that detects it, if not a seed: `checksums`, `aoe`, `remote`, `sweep`,
    /// `exhaustive`, `test NAME`, `net NAME`.
    by: String,
    what: String,
}

/// A program of tests that detects a mutant.
struct ByTest<'a> {
    package: &'static str,
    program: &'a str,
    /// Only the tests whose names contain this.
    filter: String,
}

impl Mutant {
    /// The tests that detect it, if no seed does. Those of the engine are modules of one program.
    fn test(&self) -> Option<ByTest<'_>> {
        if let Some(module) = self.by.strip_prefix("test ") {
            let filter = format!("{module}::");
            return Some(ByTest { package: "parapet-array", program: "engine", filter });
        }
        let program = self.by.strip_prefix("net ")?;
        Some(ByTest { package: "parapet-net", program, filter: String::new() })
    }
}

/// The outcome for one mutant.
struct Outcome {
    mutant: Mutant,
    /// The detecting tool, its input and the failure; `None` if the mutant survived.
    caught: Option<(String, String)>,
    took: Duration,
}

/// Looks for the mutants named, or all; `--list` prints them, `--quick` tries a few that are caught
/// at once.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let root = shell::root()?;
    let sim = Sim::build(&root)?;
    let all = sim.list()?;
    if arguments.iter().any(|argument| argument == "--list") {
        for Mutant { name, source, by, what } in &all {
            println!("{name:<24} {source:<12} {by:<12} {what}");
        }
        return Ok(());
    }
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let wanted: Vec<&String> = arguments.iter().filter(|argument| *argument != "--quick").collect();
    if let Some(stranger) = wanted.iter().find(|name| !all.iter().any(|m| m.name == ***name)) {
        let remedy = "`cargo xtask mutants --list` shows them";
        return Err(Failure::new(format!("no mutant {stranger:?}"), remedy));
    }
    if let Some(gone) = QUICK.iter().find(|name| !all.iter().any(|m| m.name == **name)) {
        return Err(Failure::new(format!("no mutant {gone:?}"), "take it out of QUICK"));
    }
    let chosen = all.into_iter().filter(|mutant| {
        let named = wanted.is_empty() || wanted.iter().any(|name| **name == mutant.name);
        named && (!quick || QUICK.contains(&&*mutant.name))
    });
    let chosen: VecDeque<Mutant> = chosen.collect();
    // A program that no longer exists must not pass for a mutant that survives.
    for test in chosen.iter().filter_map(Mutant::test) {
        sim.built.test(test.package, test.program)?;
    }
    let started = Instant::now();
    let outcomes = hunt(&sim, chosen, if quick { QUICK_SEEDS } else { &[] });
    close(&outcomes, started.elapsed())
}

/// The simulator and the tests, built: a change of the code meanwhile changes nothing.
struct Sim {
    root: PathBuf,
    program: String,
    built: Artifacts,
}

impl Sim {
    fn build(root: &Path) -> Result<Sim, Failure> {
        let built = Artifacts::build(root)?;
        Ok(Sim { root: root.to_path_buf(), program: built.program("sim")?, built })
    }

    /// All mutants, as the simulator knows them.
    fn list(&self) -> Result<Vec<Mutant>, Failure> {
        let text = shell::output(&self.root, &[&self.program, "--broken", "list"])?;
        let parse = |line: &str| {
            let mut fields = line.split('\t').map(String::from);
            let mut next = || fields.next();
            Some(Mutant { name: next()?, source: next()?, by: next()?, what: next()? })
        };
        Ok(text.lines().filter_map(parse).collect())
    }

    fn look_for(&self, mutant: Mutant, how: &[&str]) -> Outcome {
        let started = Instant::now();
        if let Some(test) = mutant.test() {
            let caught = self.by_test(&mutant.name, &test);
            return Outcome { mutant, caught, took: started.elapsed() };
        }
        let words = [&[&*self.program, "--broken", &*mutant.name], how].concat();
        let output = shell::command(&self.root, &words).stderr(Stdio::inherit()).output();
        let caught = output.ok().filter(|output| output.status.success()).and_then(|output| {
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let (_, rest) = text.trim_end().rsplit_once('\n').unwrap_or(("", text.trim_end()));
            let rest = rest.strip_prefix(&format!("{}: caught by ", mutant.name))?;
            rest.split_once(": ").map(|(by, story)| (by.to_string(), story.to_string()))
        });
        Outcome { mutant, caught, took: started.elapsed() }
    }

    /// Looks for one with tests, which must pass for sound code.
    fn by_test(&self, mutant: &str, test: &ByTest<'_>) -> Option<(String, String)> {
        let program = self.built.test(test.package, test.program).ok()?;
        let run = |name: &str| {
            let mut command = shell::command(&self.root, &[&program, &test.filter]);
            command.env("PARAPET_BROKEN", name).output().ok()
        };
        let broken = run(mutant).filter(|output| !output.status.success())?;
        run("").filter(|output| output.status.success())?;
        let text = String::from_utf8_lossy(&broken.stdout).into_owned();
        let story = text.lines().find_map(|line| line.strip_suffix("... FAILED"))?;
        let story = story.trim_start_matches("test ").trim_end().to_string();
        Some((format!("test {}", test.program), story))
    }
}

/// Looks for each, a few at a time, and prints a line as it is done.
fn hunt(sim: &Sim, chosen: VecDeque<Mutant>, how: &[&str]) -> Vec<Outcome> {
    let queue = Mutex::new(chosen);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().ok().and_then(|mut queue| queue.pop_front());
                    let Some(mutant) = next else { return };
                    let outcome = sim.look_for(mutant, how);
                    println!("{}", line(&outcome));
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(outcome);
                    }
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_default()
}

fn line(outcome: &Outcome) -> String {
    let Outcome { mutant: Mutant { name, source, what, .. }, caught, took } = outcome;
    let seconds = took.as_secs_f64();
    match caught {
        Some((by, story)) => {
            let story: String = story.chars().take(STORY_MAX).collect();
            format!("{name:<24} {source:<12} {seconds:>6.1} s  {by:<12} {story}")
        }
        None => format!("{name:<24} {source:<12} {seconds:>6.1} s  SURVIVED     {what}"),
    }
}

/// Prints the result.
fn close(outcomes: &[Outcome], took: Duration) -> Result<(), Failure> {
    let survivors: Vec<&str> = outcomes
        .iter()
        .filter(|outcome| outcome.caught.is_none())
        .map(|outcome| &*outcome.mutant.name)
        .collect();
    let mut seeds: Vec<u64> = outcomes
        .iter()
        .filter_map(|outcome| outcome.caught.as_ref()?.0.rsplit_once("seed ")?.1.parse().ok())
        .collect();
    seeds.sort_unstable();
    let others = outcomes.len() - survivors.len() - seeds.len();
    println!(
        "\n{} mutants in {:.0} s: {} caught by a seed (median {}, worst {}), {others} by other \
         tools, {} survived",
        outcomes.len(),
        took.as_secs_f64(),
        seeds.len(),
        seeds.get(seeds.len() / 2).unwrap_or(&0),
        seeds.last().unwrap_or(&0),
        survivors.len()
    );
    if survivors.is_empty() {
        return Ok(());
    }
    let remedy = if survivors.contains(&"Canary") {
        "the canary too: nothing is reported at all"
    } else {
        "teach the simulator to see it, or show that it changes nothing"
    };
    Err(Failure::new(format!("survived: {}", survivors.join(", ")), remedy))
}
