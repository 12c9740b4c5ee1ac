//! Commands that run one after the other, each ended at a deadline.
//!
//! A step counts the tests that its own test runner counted, or itself as one.

use crate::failure::Failure;
use crate::shell;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// One command line.
pub(crate) struct Step<'a> {
    pub(crate) name: &'a str,
    pub(crate) what: &'a str,
    pub(crate) command: &'a str,
    /// Its usual time on two cores, rounded up.
    pub(crate) minutes: u64,
}

pub(crate) const fn step<'a>(
    name: &'a str,
    what: &'a str,
    command: &'a str,
    minutes: u64,
) -> Step<'a> {
    Step { name, what, command, minutes }
}

/// How a step went.
pub(crate) struct Outcome<'a> {
    pub(crate) step: &'a Step<'a>,
    pub(crate) took: Duration,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// The last line that it printed.
    pub(crate) last: String,
    /// The lines in which its test runner names a test that has failed.
    pub(crate) broken: Vec<String>,
}

impl<'a> Outcome<'a> {
    /// Of a step that has not begun.
    pub(crate) fn of(step: &'a Step<'a>) -> Outcome<'a> {
        let (last, broken) = (String::new(), Vec::new());
        Outcome { step, took: Duration::ZERO, passed: 0, failed: 0, last, broken }
    }
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.failed == 0 { "passed" } else { "FAILED" };
        let seconds = format!("{:.1} s", self.took.as_secs_f64());
        write!(f, "{word} {seconds:>10}  {} passed, {} failed", self.passed, self.failed)
    }
}

/// Runs a step, up to its deadline, if any, and passes each printed line to `print_line`.
pub(crate) fn carry_out<'a>(
    step: &'a Step<'a>,
    root: &Path,
    deadline: Option<Instant>,
    print_line: &dyn Fn(&str),
) -> Result<Outcome<'a>, Failure> {
    let started = Instant::now();
    let words: Vec<_> = step.command.split(' ').collect();
    let mut command = shell::command(root, &words);
    command.stdout(Stdio::piped());
    // A step with a deadline gets a process group of its own, so that everything it started can be
    // ended with it. Without one it stays in ours, where Ctrl-C reaches it.
    if deadline.is_some() {
        command.process_group(0);
    }
    let mut child = command.spawn().map_err(|error| {
        Failure::new(format!("`{}`: {error}", step.command), "is it installed?")
    })?;
    let lines = printed_by(&mut child);
    let mut outcome = Outcome::of(step);
    let mut each = |line: &str| {
        print_line(line);
        if let Some((good, bad)) = counts(line) {
            outcome.passed += good;
            outcome.failed += bad;
        }
        if names_a_failure(line) {
            outcome.broken.push(line.to_string());
        }
        if !line.trim().is_empty() {
            outcome.last = line.to_string();
        }
    };
    let in_time = follow(&mut child, &lines, deadline, &mut each);
    if !in_time {
        let minutes = started.elapsed().as_secs() / 60;
        each(&format!("{}: ended after {minutes} minutes: deadline passed", step.name));
        end_group(&mut child, root);
    }
    let succeeded = child.wait().is_ok_and(|status| status.success()) && in_time;
    match (succeeded, outcome.passed, outcome.failed) {
        (true, 0, 0) => outcome.passed = 1,
        (false, _, 0) => outcome.failed = 1,
        _ => {}
    }
    outcome.took = started.elapsed();
    Ok(outcome)
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
            // A process left running may hold its output open for ever.
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

/// True for the line of a test, or of a story of `vm`, that has failed.
fn names_a_failure(line: &str) -> bool {
    line.starts_with("test ") && line.ends_with(" ... FAILED") || line.starts_with("FAILED ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: Duration = Duration::from_secs(60);

    fn sample(command: &str) -> Step<'_> {
        step("sample", "a step", command, 1)
    }

    fn run<'a>(step: &'a Step<'a>, folder: &Path) -> Result<Outcome<'a>, Failure> {
        carry_out(step, folder, Some(Instant::now() + LATER), &|_| {})
    }

    #[test]
    fn closing_lines_of_the_test_runner_are_read() {
        let line =
            "test result: FAILED. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("test result of something else"), None);
        assert_eq!(counts("12 passed; 3 failed"), None);
        assert!(names_a_failure("test a::b ... FAILED") && names_a_failure("FAILED  1.0 s  story"));
        assert!(!names_a_failure(line) && !names_a_failure("test a::b ... ok"));
    }

    #[test]
    fn a_step_without_a_test_runner_counts_as_one() {
        let (good, bad) = (sample("true"), sample("false"));
        let [good, bad] = [&good, &bad].map(|step| run(step, Path::new("/")));
        let (good, bad) = (good.expect("it starts"), bad.expect("it starts"));
        assert_eq!((good.passed, good.failed), (1, 0));
        assert_eq!((bad.passed, bad.failed), (0, 1));
        assert!(run(&sample("no-such-program"), Path::new("/")).is_err());
    }

    #[test]
    fn a_test_runner_s_counts_are_added_up_and_its_failure_is_never_lost() {
        let folder = std::env::temp_dir().join(format!("parapet-steps-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable temporary folder");
        let script = "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'\n".repeat(2);
        for (end, failed) in [("exit 0", 0), ("exit 1", 1)] {
            std::fs::write(folder.join("run.sh"), format!("{script}{end}")).expect("writable");
            let step = sample("sh run.sh");
            let outcome = run(&step, &folder).expect("it starts");
            assert_eq!((outcome.passed, outcome.failed), (4, failed));
            assert!(outcome.last.starts_with("test result: ok. 2"), "{}", outcome.last);
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
}
