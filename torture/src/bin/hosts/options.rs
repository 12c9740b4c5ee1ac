//! The command line of `hosts`.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const USAGE: &str = "\
usage: cargo xtask hosts [OPTION]...

Run a cluster of real processes on three or five hosts, break it, and check every read.

Each host is a network namespace. All named faults come first, then random ones and pairs of them.

  --seconds N     begin no fault after this time [the named faults only]
  --seed S        choices of hosts and of random faults [from the time]
  --only NAME     this fault only; repeat it for more; A+B is a pair
  --level L       3.5, 3.5/2 (order 2: five hosts) or 1 [3.5]
  --mode M        shared or exclusive [exclusive]
  --fast          short intervals (lease 4 s, takeover 1.2 s), for a short test
  --program PATH  the program under test [the one that xtask builds]
  --list          print the faults";

/// Shorter than usual, and long enough for a busy machine.
pub(crate) const FAST_TIMING: &str =
    "\n[timing]\nlease_ms = 4000\nmember_ms = 1200\ntakeover_ms = 1200\n";

/// A level, with its number of members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    /// Level 3.5 of order 1: three members.
    Fragments,
    /// Level 3.5 of order 2: five members.
    Wide,
    /// Three copies.
    Mirror,
}

impl Level {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Level::Fragments | Level::Wide => "3.5",
            Level::Mirror => "1",
        }
    }
}

/// The command line.
pub(crate) struct Options {
    pub(crate) seconds: Option<u64>,
    pub(crate) seed: u64,
    pub(crate) only: Vec<String>,
    pub(crate) level: Level,
    pub(crate) mode: String,
    pub(crate) fast: bool,
    pub(crate) program: PathBuf,
}

impl Options {
    /// # Errors
    /// The first wrong argument, and the usage.
    pub(crate) fn parse(arguments: &[String]) -> Result<Options, String> {
        let usage = |what: String| format!("{what}\n{USAGE}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut options = Options {
            seconds: None,
            seed: now % 1_000_000,
            only: Vec::new(),
            level: Level::Fragments,
            mode: "exclusive".into(),
            fast: false,
            program: PathBuf::new(),
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--fast" {
                options.fast = true;
                continue;
            }
            let value = words.next().ok_or_else(|| usage(format!("{word}: value missing")))?;
            let number =
                || value.parse().map_err(|_| usage(format!("{word} {value}: not a number")));
            match (word.as_str(), value.as_str()) {
                ("--seconds", _) => options.seconds = Some(number()?),
                ("--seed", _) => options.seed = number()?,
                ("--only", _) => options.only.push(value.clone()),
                ("--level", "3.5") => options.level = Level::Fragments,
                ("--level", "3.5/2") => options.level = Level::Wide,
                ("--level", "1") => options.level = Level::Mirror,
                ("--mode", "shared" | "exclusive") => options.mode.clone_from(value),
                ("--program", _) => {
                    let path = std::fs::canonicalize(value);
                    options.program = path.map_err(|error| format!("{value}: {error}"))?;
                }
                _ => return Err(usage(format!("{word} {value}: unknown option"))),
            }
        }
        if options.program.as_os_str().is_empty() {
            return Err(usage(String::from("--program is missing")));
        }
        Ok(options)
    }

    /// Members of the array, each on a host of its own.
    pub(crate) fn members(&self) -> usize {
        if self.level == Level::Wide { 5 } else { 3 }
    }

    /// Members that may be lost.
    pub(crate) fn tolerated(&self) -> usize {
        if self.level == Level::Mirror { 2 } else { 1 }
    }
}
