//! `cargo xtask test`: everything that must hold before a change lands, as a table of command
//! lines.
//!
//! All steps run, also after one has failed, so that one run tells everything. The last line counts
//! tests: those that a step's own test runner counted, or the step itself as one.

use crate::failure::Failure;
use crate::shell;
use std::io::{BufRead, BufReader, IsTerminal};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// One command line. Unattended, it is ended after so many minutes.
struct Step {
    name: &'static str,
    what: &'static str,
    command: &'static str,
    minutes: u64,
}

const fn step(name: &'static str, what: &'static str, command: &'static str, minutes: u64) -> Step {
    Step { name, what, command, minutes }
}

/// One profile (dev, with optimisation) for all of it: two would be built twice. No command has a
/// word with a space in it.
const STEPS: &[Step] = &[
    step("tools", "what the tests talk to is installed", "cargo xtask tools", 8),
    step("format", "the one way to lay out code", "cargo fmt --all --check", 1),
    step("tidy", "the house rules", "cargo xtask tidy", 1),
    step("lint", "clippy", "cargo clippy --workspace --all-targets -- -D warnings", 10),
    step("tests", "unit and integration", "cargo test --workspace --tests --no-fail-fast", 15),
    step("simulator", "the same seeds each time", "cargo sim --seeds 0..480", 4),
    step(
        "torture",
        "the program is killed, the power of its members cut",
        "cargo xtask torture --rounds 10 --seed 1",
        5,
    ),
    step("fuzz", "hostile bytes, a while for each target", "cargo xtask fuzz --seconds 20", 4),
    step("examples", "code in comments", "cargo test --workspace --doc --no-fail-fast", 4),
    step(
        "manual",
        "links in comments lead somewhere",
        "env RUSTDOCFLAGS=-Drustdoc::broken_intra_doc_links \
         cargo doc --workspace --no-deps --document-private-items",
        3,
    ),
];

/// How a step went.
struct Outcome<'a> {
    step: &'a Step,
    took: Duration,
    passed: u64,
    failed: u64,
}

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
    for step in STEPS.iter().filter(chosen) {
        println!("\n==> {}: {}", step.name, step.command);
        let outcome = carry_out(step, &root)?;
        let good = outcome.failed == 0;
        println!("<== {}: {}, {}", step.name, word(good), seconds(outcome.took));
        outcomes.push(outcome);
    }
    close(&outcomes)
}

fn word(good: bool) -> &'static str {
    if good { "passed" } else { "FAILED" }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

/// Prints the table of outcomes and the closing line.
fn close(outcomes: &[Outcome<'_>]) -> Result<(), Failure> {
    println!();
    for Outcome { step, took, passed, failed } in outcomes {
        let state = word(*failed == 0);
        println!(
            "{:<9} {state}  {:>8}  {passed} passed, {failed} failed",
            step.name,
            seconds(*took)
        );
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

/// Runs a step, printing what it prints.
fn carry_out<'a>(step: &'a Step, root: &Path) -> Result<Outcome<'a>, Failure> {
    let started = Instant::now();
    let words: Vec<_> = step.command.split(' ').collect();
    let mut command = shell::command(root, &words);
    command.stdout(Stdio::piped());
    // With a person at the terminal, Ctrl-C must reach the step and patience is theirs. Without,
    // the step gets a process group of its own, so that everything it started can be ended with it.
    let attended = std::io::stdin().is_terminal();
    if !attended {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| {
        Failure::new(format!("`{}`: {error}", step.command), "is it installed?")
    })?;
    let limit = (!attended).then(|| started + Duration::from_secs(step.minutes * 60));
    let lines = printed_by(&mut child);
    let (mut passed, mut failed) = (0, 0);
    let mut each = |line: &str| {
        println!("{line}");
        if let Some((good, bad)) = counts(line) {
            (passed, failed) = (passed + good, failed + bad);
        }
    };
    let in_time = follow(&mut child, &lines, limit, &mut each);
    if !in_time {
        println!("ended: not done after {} minutes", step.minutes);
        end_group(&mut child, root);
    }
    let succeeded = child.wait().is_ok_and(|status| status.success()) && in_time;
    match (succeeded, passed, failed) {
        (true, 0, 0) => passed = 1,
        (false, _, 0) => failed = 1,
        _ => {}
    }
    Ok(Outcome { step, took: started.elapsed(), passed, failed })
}

/// The lines of the child's standard output, as they come.
fn printed_by(child: &mut Child) -> Receiver<String> {
    let output = child.stdout.take().expect("its output was asked for");
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Hands each line on until the child is done; false if `limit` came first.
fn follow(
    child: &mut Child,
    lines: &Receiver<String>,
    limit: Option<Instant>,
    each: &mut dyn FnMut(&str),
) -> bool {
    loop {
        match lines.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => each(&line),
            Err(RecvTimeoutError::Disconnected) => return true,
            // What it left running may hold its output open for ever.
            Err(RecvTimeoutError::Timeout) if matches!(child.try_wait(), Ok(Some(_))) => {
                return true;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if limit.is_some_and(|limit| Instant::now() > limit) {
            return false;
        }
    }
}

/// Ends the child and all that it started.
fn end_group(child: &mut Child, root: &Path) {
    let group = format!("-{}", child.id());
    if !shell::succeeds(root, &["kill", "-KILL", "--", &group]) {
        // Without a `kill` program, at least the child itself; it may have ended meanwhile.
        drop(child.kill());
    }
}

/// Passed and failed in a closing line of cargo's test runner.
fn counts(line: &str) -> Option<(u64, u64)> {
    let rest = line.strip_prefix("test result: ")?;
    let number = |unit: &str| {
        let part = rest.split([';', '.']).map(str::trim).find(|part| part.ends_with(unit))?;
        part.split(' ').next()?.parse().ok()
    };
    Some((number(" passed")?, number(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(60);

    fn sample(command: &'static str) -> Step {
        step("sample", "a step", command, 1)
    }

    #[test]
    fn closing_lines_of_the_test_runner_are_read() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("test result of something else"), None);
        assert_eq!(counts("12 passed; 3 failed"), None);
    }

    #[test]
    fn a_step_without_a_test_runner_counts_as_one() {
        let (good, bad) = (sample("true"), sample("false"));
        let [good, bad] = [&good, &bad].map(|step| carry_out(step, Path::new("/")));
        let (good, bad) = (good.expect("it starts"), bad.expect("it starts"));
        assert_eq!((good.passed, good.failed), (1, 0));
        assert_eq!((bad.passed, bad.failed), (0, 1));
        assert!(carry_out(&sample("no-such-program"), Path::new("/")).is_err());
        assert!(close(&[good]).is_ok());
        assert!(close(&[bad]).is_err());
    }

    #[test]
    fn a_test_runner_s_counts_are_added_up_and_its_failure_is_never_lost() {
        let folder = std::env::temp_dir().join(format!("parapet-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable temporary folder");
        let script = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'\n".repeat(2);
        for (end, failed) in [("exit 0", 0), ("exit 1", 1)] {
            std::fs::write(folder.join("run.sh"), format!("{script}{end}")).expect("writable");
            let step = sample("sh run.sh");
            let outcome = carry_out(&step, &folder).expect("it starts");
            assert_eq!((outcome.passed, outcome.failed), (4, failed));
        }
        std::fs::remove_dir_all(&folder).expect("our own folder");
    }

    #[test]
    fn a_step_that_takes_too_long_is_ended_with_all_it_started() {
        let words = ["sh", "-c", "sleep 1000 & echo started; wait"];
        let mut command = shell::command(Path::new("/"), &words);
        let mut child = command.stdout(Stdio::piped()).process_group(0).spawn().expect("sh");
        let lines = printed_by(&mut child);
        assert_eq!(lines.recv_timeout(LATER).expect("it says so"), "started");
        assert!(!follow(&mut child, &lines, Some(Instant::now()), &mut |_| {}));
        end_group(&mut child, Path::new("/"));
        assert!(!child.wait().expect("a child of ours").success());
        // The sleeper held the other end: the pipe closes only when it, too, is gone.
        assert_eq!(lines.recv_timeout(LATER), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn commands_are_plain_words() {
        for step in STEPS {
            assert!(step.command.split(' ').all(|word| !word.is_empty()), "{}", step.name);
            assert!(!step.command.contains(['"', '\'']), "{}", step.name);
        }
        assert!(STEPS.iter().map(|step| step.minutes).sum::<u64>() <= 60);
    }
}
