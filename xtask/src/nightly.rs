//! `cargo xtask nightly`: checks that are too long for every change. Two concurrent lanes, one
//! table.
//!
//! ```text
//!   lane 1   simulator ─────────────────▶ full ────────▶ sums ───────▶ journal ─▶ aoe ▶
//!   lane 2   sweep ▶ mutants ▶ torture ▶ … ▶ hosts ▶ exhaustive ▶ hosts-sim ▶ model ▶ cluster
//! ```
//!
//! Each part has its share of the time. Unbounded parts get a time limit; the others must finish in
//! time, or the run fails: give it more hours.

use crate::failure::Failure;
use crate::shell;
use crate::steps::{self, Outcome, Step};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A part of the night.
struct Part {
    name: &'static str,
    what: &'static str,
    /// `{seconds}` is its share. No command has a word with a space in it.
    command: &'static str,
    /// Of the time, in a hundred.
    share: u64,
}

const fn part(name: &'static str, what: &'static str, command: &'static str, share: u64) -> Part {
    Part { name, what, command, share }
}

/// The concurrent lanes.
const LANES: [&[Part]; 2] = [
    &[
        part(
            "simulator",
            "new seeds; every mark must be reached",
            "cargo sim --seconds {seconds} --require-marks",
            30,
        ),
        part(
            "full",
            "new seeds with all faults and many requests",
            "cargo sim --full --seconds {seconds}",
            15,
        ),
        part(
            "ruins",
            "new seeds with losses beyond the level's tolerance",
            "cargo sim --full --ruins --seconds {seconds}",
            15,
        ),
        part(
            "sums",
            "new seeds with checksums; every mark must be reached",
            "cargo sim --checksums --seconds {seconds} --require-marks",
            15,
        ),
        part(
            "journal",
            "new seeds with a journal device; every mark must be reached",
            "cargo sim --journal --seconds {seconds} --require-marks",
            15,
        ),
        part(
            "aoe",
            "new seeds over AoE; every mark must be reached",
            "cargo sim --aoe --seconds {seconds} --require-marks",
            5,
        ),
        part(
            "remote",
            "new seeds with network members; every mark must be reached",
            "cargo sim --remote --seconds {seconds} --require-marks",
            5,
        ),
    ],
    &[
        part("sweep", "each single operation fails", "cargo sim --sweep", 8),
        part("mutants", "all mutants are detected", "cargo xtask mutants", 22),
        part(
            "torture",
            "the program under kills and power cuts",
            "cargo xtask torture --seconds {seconds}",
            12,
        ),
        part(
            "power",
            "torture detects a missing flush",
            "cargo xtask torture --rounds 30 --broken FlushMissesOne",
            5,
        ),
        part("fuzz", "all fuzz targets", "cargo xtask fuzz --seconds {seconds} --seed {seed}", 20),
        part(
            "hosts",
            "hosts of a cluster are killed, paused and cut off",
            "cargo xtask hosts --seconds {seconds} --seed {seed}",
            10,
        ),
        part(
            "exhaustive",
            "short workloads, with a crash after every event",
            "cargo sim --exhaustive --seconds {seconds} --order {seed} --jobs 1",
            12,
        ),
        // Nearly ten thousand seeds that no other night has: the day's number and four digits.
        part(
            "hosts-sim",
            "new seeds of the simulated cluster",
            "env CLUSTER_SEEDS={seed}0000..{seed}9999 cargo test --release -p parapet-cluster \
             --test sim seeds_hold",
            2,
        ),
        part(
            "model",
            "the small cluster with each pair of faults, some first ones each night",
            "env CLUSTER_DEVIATIONS=2 CLUSTER_PART={seed}/50 cargo test --release -p \
             parapet-cluster --test sim model_of_all",
            4,
        ),
        part(
            "cluster",
            "machines on a cluster: one moves, two have OCFS2",
            "cargo xtask interop --only cluster --jobs 1",
            5,
        ),
    ],
];

/// Time of a part beyond its share, for its build and its last step.
const GRACE_MINUTES: u64 = 10;

/// `--hours N` (8; 0.5 is half an hour), `--list`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let usage = || Failure::new(arguments.join(" "), "it takes --hours N, or --list");
    let hours: f64 = match arguments {
        [] => 8.0,
        [word, hours] if word == "--hours" => hours.parse().map_err(|_| usage())?,
        [word] if word == "--list" => {
            for Part { name, what, command, share } in LANES.into_iter().flatten() {
                println!("{name:<10} {share:>3} %  {what}: {command}");
            }
            return Ok(());
        }
        _ => return Err(usage()),
    };
    let seconds = (hours * 3600.0).clamp(60.0, 1e7) as u64;
    let root = shell::root()?;
    let night = Night::tonight(&root, hours)?;
    let nights = seconds_since_1970() / 86_400;
    let lanes = LANES.map(|parts| commands(parts, seconds, nights));
    let steps = lanes.each_ref().map(|lane| lane.iter().map(Command::step).collect::<Vec<_>>());
    let outcomes = std::thread::scope(|scope| {
        let lanes = steps.each_ref().map(|lane| scope.spawn(|| carry_out(lane, &root)));
        lanes.map(|lane| lane.join().unwrap_or_default()).into_iter().flatten().collect::<Vec<_>>()
    });
    let missing = steps.iter().map(Vec::len).sum::<usize>() - outcomes.len();
    close(&outcomes, missing, &night)
}

fn seconds_since_1970() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |time| time.as_secs())
}

/// A part with its share of the time.
struct Command {
    part: &'static Part,
    line: String,
    minutes: u64,
}

impl Command {
    fn step(&self) -> Step<'_> {
        steps::step(self.part.name, self.part.what, &self.line, self.minutes)
    }
}

fn commands(parts: &'static [Part], seconds: u64, seed: u64) -> Vec<Command> {
    let command = |part: &'static Part| {
        let share = seconds * part.share / 100;
        let line = part.command.replace("{seconds}", &share.to_string());
        let line = line.replace("{seed}", &seed.to_string());
        Command { part, line, minutes: share / 60 + GRACE_MINUTES }
    };
    parts.iter().map(command).collect()
}

/// Runs one lane; a part that cannot start is reported and missing.
fn carry_out<'a>(lane: &'a [Step<'a>], root: &Path) -> Vec<Outcome<'a>> {
    let mut outcomes = Vec::new();
    for step in lane {
        println!("{:<10} | {}", step.name, step.command);
        let print_line = |line: &str| println!("{:<10} | {line}", step.name);
        let deadline = Instant::now() + Duration::from_secs(step.minutes * 60);
        match steps::carry_out(step, root, Some(deadline), &print_line) {
            Ok(outcome) => outcomes.push(outcome),
            Err(failure) => println!("{:<10} | {failure}", step.name),
        }
    }
    outcomes
}

/// Where the tables of earlier nights are, newest first.
const TABLES: &str = "docs/testing/nightly.md";

/// Adds the table of this night to [`TABLES`], prints it, and fails if a part has failed.
fn close(outcomes: &[Outcome<'_>], missing: usize, night: &Night) -> Result<(), Failure> {
    let bad = outcomes.iter().filter(|outcome| outcome.failed > 0).count() + missing;
    let table = table(outcomes, missing, night);
    println!("\n{table}");
    let path = night.root.join(TABLES);
    let unwritable =
        |error| Failure::new(format!("{TABLES}: {error}"), "copy the table above into it");
    let text = std::fs::read_to_string(&path).map_err(unwritable)?;
    std::fs::write(&path, inserted(&text, &table)).map_err(unwritable)?;
    println!("{} parts passed, {bad} failed; see {TABLES}", outcomes.len() + missing - bad);
    if bad == 0 { Ok(()) } else { Err(Failure::reported()) }
}

/// What a table says of its run.
struct Night {
    root: PathBuf,
    date: String,
    commit: String,
    hours: f64,
}

impl Night {
    /// The commit is followed by `, changed` if the work tree has changes.
    fn tonight(root: &Path, hours: f64) -> Result<Night, Failure> {
        let word = |words| Ok::<_, Failure>(shell::output(root, words)?.trim().to_owned());
        let date = word(&["date", "-u", "+%F"])?;
        let commit = word(&["git", "describe", "--always", "--dirty=, changed", "--exclude=*"])?;
        Ok(Night { root: root.to_path_buf(), date, commit, hours })
    }
}

/// Result and last line of each part, as Markdown.
fn table(outcomes: &[Outcome<'_>], missing: usize, night: &Night) -> String {
    let Night { date, commit, hours, .. } = night;
    let mut text = format!("## {date}, commit {commit}, {hours} hours\n\n");
    text += "| part | result | minutes | last line |\n|---|---|---|---|\n";
    for Outcome { step, took, failed, last, .. } in outcomes {
        let word = if *failed == 0 { "passed" } else { "**FAILED**" };
        let last = last.trim().replace('|', "\\|");
        text += &format!("| {} | {word} | {} | {last} |\n", step.name, took.as_secs() / 60);
    }
    if missing > 0 {
        text += &format!("| {missing} more | **not started** | | |\n");
    }
    text
}

/// `text` with `table` before its first section.
fn inserted(text: &str, table: &str) -> String {
    let at = text.find("\n## ").map_or(text.len(), |at| at + 1);
    let (head, rest) = text.split_at(at);
    format!("{}\n\n{table}\n{rest}", head.trim_end()).trim_end().to_owned() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_shares_out_its_time_and_no_more() {
        for lane in LANES {
            assert_eq!(lane.iter().map(|part| part.share).sum::<u64>(), 100);
        }
        let [_, lane] = LANES.map(|parts| commands(parts, 1000, 7));
        assert_eq!(lane[4].line, "cargo xtask fuzz --seconds 200 --seed 7");
        assert!(lane.iter().all(|command| !command.line.contains(['{', '"', '\''])));
    }

    fn night(root: &Path) -> Night {
        let (date, commit) = (String::from("2026-11-29"), String::from("abc"));
        Night { root: root.to_path_buf(), date, commit, hours: 0.5 }
    }

    #[test]
    fn one_part_that_fails_fails_the_night_and_the_newest_table_comes_first() {
        let root = std::env::temp_dir().join(format!("parapet-nightly-{}", std::process::id()));
        std::fs::create_dir_all(root.join("docs/testing")).expect("a writable temporary folder");
        std::fs::write(root.join(TABLES), "# Nights\n").expect("writable");
        let step = steps::step("sample", "a part", "true", 1);
        let outcome =
            |failed, last: &str| Outcome { failed, last: String::from(last), ..Outcome::of(&step) };
        assert!(close(&[outcome(0, "a | b"), outcome(0, "")], 0, &night(&root)).is_ok());
        assert!(close(&[outcome(0, ""), outcome(1, "bad")], 0, &night(&root)).is_err());
        assert!(close(&[outcome(0, "")], 1, &night(&root)).is_err());
        let text = std::fs::read_to_string(root.join(TABLES)).expect("it is there");
        let places =
            ["# Nights", "not started", "**FAILED** | 0 | bad |", "passed | 0 | a \\| b |"]
                .map(|part| text.find(part).unwrap_or_else(|| panic!("no {part:?} in:\n{text}")));
        assert!(places.is_sorted(), "{text}");
        std::fs::remove_dir_all(&root).expect("our own folder");
    }
}
