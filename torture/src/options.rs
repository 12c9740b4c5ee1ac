//! The command line of `torture`.

use crate::plan;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) const USAGE: &str = "\
usage: cargo xtask torture [OPTION]...

Kill the program and cut the power of its members under load, then verify every sector.

  --rounds N      number of rounds [10]
  --seconds N     start no round after this time; unlimited rounds
  --seed N        seed of the first round; each further round increments it [from the time]
  --level L       use this level only
  --program PATH  the program under test [the one that xtask builds]
  --strict        fail if a block or a start is unverified
  --broken NAME   run a mutant (io/src/broken.rs); a round must detect it";

/// The command line.
pub(crate) struct Options {
    pub(crate) rounds: u64,
    /// No round begins after this time.
    pub(crate) seconds: Option<u64>,
    /// Seed of the first round; each further round increments it.
    pub(crate) seed: u64,
    pub(crate) level: Option<String>,
    pub(crate) program: PathBuf,
    /// Fail if a block or a start is unverified: for an engine without a write hole.
    pub(crate) strict: bool,
    /// The mutant (`io/src/broken.rs`) that the program runs with; a round must detect it.
    pub(crate) broken: Option<String>,
}

impl Options {
    /// # Errors
    /// The first wrong argument, and the usage.
    pub(crate) fn parse(arguments: &[String]) -> Result<Options, String> {
        let usage = |what: String| format!("{what}\n{USAGE}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let mut options = Options {
            rounds: 10,
            seconds: None,
            seed: now % 1_000_000 * 1000,
            level: None,
            program: PathBuf::new(),
            strict: false,
            broken: None,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            if word == "--strict" {
                options.strict = true;
                continue;
            }
            let value = words.next().ok_or_else(|| usage(format!("{word}: value missing")))?;
            let number =
                || value.parse().map_err(|_| usage(format!("{word} {value}: not a number")));
            match word.as_str() {
                "--rounds" => options.rounds = number()?,
                "--seconds" => {
                    (options.seconds, options.rounds) = (Some(number()?), u64::from(u32::MAX));
                }
                "--seed" => options.seed = number()?,
                "--program" => {
                    let path = std::fs::canonicalize(value);
                    options.program = path.map_err(|error| format!("{value}: {error}"))?;
                }
                "--broken" => options.broken = Some(value.clone()),
                "--level" if plan::is_level(value) => options.level = Some(value.clone()),
                _ => return Err(usage(format!("{word} {value}: unknown option"))),
            }
        }
        if options.program.as_os_str().is_empty() {
            return Err(usage(String::from("--program is missing")));
        }
        Ok(options)
    }
}
