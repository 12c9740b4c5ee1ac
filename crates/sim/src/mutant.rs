//! The test of the tests: every mutant of the engine must be detected.
//!
//! ```text
//!   mutant ──────────▶ seeds, or the tool in its table row: seeds of arrays with
//!                         │       checksums, seeds over AoE, sweep, exhaustive mode
//!                         │ fails                                │ no failure
//!                         ▼                                      ▼
//!                       the same with a sound engine: passes?  survived
//!                         │ yes
//!                         ▼
//!                       detected
//! ```
//!
//! Owns the choice of the tool, and the criterion for detection: a seed, a case or a site that
//! fails for the mutant and passes for the sound engine. `cargo xtask mutants` runs the engine
//! tests.

use std::fmt;
use std::process::{Command, ExitCode};

use io::broken::{self, Broken};
use layout::Level;

use crate::exhaust::{self, Extent};
use crate::options::Wish;
use crate::trace::Detail;
use crate::{aoe, remote, report, scenario, sweep};

/// Seeds within which a broken engine must be caught, unless it takes another tool.
const SEEDS: u64 = 3000;

/// The part of the exhaustive mode that is tried: enough for mutants that only it detects.
const EXTENT: Extent =
    Extent { pairs_stride: 1999, singles_stride: 3, triples: 0, ..Extent::WHOLE };

/// Failures that a sound engine may have by chance: alone they prove nothing.
const INNOCENT: [&str; 2] =
    ["a crash interrupted a write to them", "more members are missing than the level tolerates"];

/// Which tool has caught a broken engine, and where.
enum Catch {
    /// Its number; with checksums?
    Seed(u64, bool),
    Case(exhaust::Case),
    Site(String),
    /// A seed of clients and a target on bad wires.
    Aoe(u64),
    /// A run with network members.
    Remote(u64),
}

impl fmt::Display for Catch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Catch::Seed(seed, false) => write!(f, "seed {seed}"),
            Catch::Seed(seed, true) => write!(f, "checksums seed {seed}"),
            Catch::Case(case) => write!(f, "exhaustive {case}"),
            Catch::Site(site) => write!(f, "sweep {site}"),
            Catch::Aoe(seed) => write!(f, "AoE seed {seed}"),
            Catch::Remote(seed) => write!(f, "seed {seed} with network members"),
        }
    }
}

/// The failure, in one line.
fn headline(story: &str) -> String {
    let story = story.lines().map(str::trim).filter(|line| !line.is_empty());
    let words: Vec<&str> = story.take(2).collect();
    words.join(" · ")
}

/// Looks for a seed that fails for the broken engine alone, with arrays as wished for.
fn by_seed(way: Broken, wish: Wish, seeds: std::ops::Range<u64>) -> Option<(Catch, String)> {
    let run = |seed, way| {
        broken::choose(way);
        scenario::run(seed, wish, Detail::Nothing).failure
    };
    seeds.into_iter().find_map(|seed| {
        let story = run(seed, Some(way))?;
        let innocent = INNOCENT.iter().any(|words| story.contains(words));
        let sound = !innocent && run(seed, None).is_none();
        sound.then_some((Catch::Seed(seed, wish.checksums), story))
    })
}

/// Looks for a seed over AoE.
fn by_aoe(way: Broken, seeds: std::ops::Range<u64>) -> Option<(Catch, String)> {
    let run = |seed, way| {
        broken::choose(way);
        aoe::run(seed, &aoe::Keep::default(), Detail::Nothing).failure
    };
    seeds.into_iter().find_map(|seed| {
        let story = run(seed, Some(way))?;
        run(seed, None).is_none().then_some((Catch::Aoe(seed), story))
    })
}

fn by_remote(way: Broken, seeds: std::ops::Range<u64>) -> Option<(Catch, String)> {
    let run = |seed, way| {
        broken::choose(way);
        remote::run(seed, Detail::Nothing).failure
    };
    seeds.into_iter().find_map(|seed| {
        let story = run(seed, Some(way))?;
        run(seed, None).is_none().then_some((Catch::Remote(seed), story))
    })
}

/// Looks for a case of the exhaustive mode.
fn by_case(way: Broken, level: Option<Level>) -> Option<(Catch, String)> {
    let cases = exhaust::all().into_iter();
    cases.filter(|case| level.is_none_or(|level| case.layout.level() == level)).find_map(|case| {
        broken::choose(Some(way));
        let story = exhaust::run(case, EXTENT).stories.into_iter().next()?;
        broken::choose(None);
        let sound = exhaust::run(case, EXTENT).violations == 0;
        sound.then_some((Catch::Case(case), story))
    })
}

/// Looks for a single failing operation.
fn by_site(way: Broken) -> Option<(Catch, String)> {
    let each = sweep::shapes().into_iter();
    each.flat_map(|shape| sweep::phases().into_iter().map(move |phase| (shape, phase))).find_map(
        |(shape, phase)| {
            broken::choose(Some(way));
            let story = sweep::run(shape, phase, 1).stories.into_iter().next()?;
            broken::choose(None);
            let sound = sweep::run(shape, phase, 1).violations == 0;
            let (layout, members) = shape;
            sound.then(|| (Catch::Site(format!("{phase:?} of {layout}, {members} members")), story))
        },
    )
}

const USAGE: &str = "\
usage: cargo sim --broken NAME [--seeds A..B] [--checksums] [--exhaustive [--level L]] [--sweep]
       cargo sim --broken list

Run a mutant of the engine until a seed, case or operation fails with it and passes without it.

  NAME          the mutant (io/src/broken.rs); list prints them all
  --seeds A..B  run these seeds [up to 3,000, or the tool that the mutant's table names]
  --checksums   enable checksums
  --exhaustive  use the exhaustive mode only
  --level L     the level for --exhaustive
  --sweep       use the sweep only
";

/// The command line.
#[derive(Default)]
struct Request {
    seeds: Option<std::ops::Range<u64>>,
    checksums: bool,
    exhaustive: bool,
    level: Option<Level>,
    sweep: bool,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Request> {
    let mut request = Request::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                request.seeds = Some(from.parse().ok()?..to.parse().ok()?);
            }
            "--checksums" => request.checksums = true,
            "--exhaustive" => request.exhaustive = true,
            "--level" => request.level = Some(words.next()?.parse().ok()?),
            "--sweep" => request.sweep = true,
            _ => return None,
        }
    }
    Some(request)
}

/// Breaks the engine in the way that `PARAPET_BROKEN` names, if it can be broken; gives the name.
/// Then single seeds fail that would not, and are shrunk.
pub fn from_environment() -> Option<String> {
    let name = std::env::var("PARAPET_BROKEN").ok().filter(|_| broken::POSSIBLE)?;
    let way = Broken::named(&name)?;
    broken::choose(Some(way));
    Some(name)
}

/// The command: `--broken` with its arguments.
pub fn command(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if !broken::POSSIBLE {
        return again(&words);
    }
    let mut words = words.into_iter();
    let name = words.next().unwrap_or_default();
    if name == "list" {
        for way in Broken::ALL {
            let (name, what, source) = way.facts();
            let by = way.by().unwrap_or_default();
            println!("{name}\t{source}\t{by}\t{}", what.trim());
        }
        return ExitCode::SUCCESS;
    }
    let (Some(way), Some(request)) = (Broken::named(&name), parse(words)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    println!("{name}, {}", report::head());
    match hunt(way, request) {
        Some((catch, story)) => {
            println!("{name}: caught by {catch}: {}", headline(&story));
            ExitCode::SUCCESS
        }
        None => {
            println!("{name}: SURVIVED");
            ExitCode::FAILURE
        }
    }
}

/// Tries the tools, in order.
fn hunt(way: Broken, request: Request) -> Option<(Catch, String)> {
    let Request { seeds, checksums, exhaustive, level, sweep } = request;
    if way.by() == Some("aoe") {
        return by_aoe(way, seeds.unwrap_or(0..SEEDS));
    }
    if way.by() == Some("remote") {
        return by_remote(way, seeds.unwrap_or(0..SEEDS));
    }
    let by = way.by().filter(|_| seeds.is_none() && !checksums && !exhaustive && !sweep);
    match by {
        Some("sweep") => return by_site(way),
        Some("exhaustive") => return by_case(way, level),
        _ => {}
    }
    let wish = Wish { checksums: checksums || way.by() == Some("checksums"), ..Wish::default() };
    let other = exhaustive || sweep;
    let seeds = seeds.or_else(|| (!other).then_some(0..SEEDS));
    seeds
        .and_then(|seeds| by_seed(way, wish, seeds))
        .or_else(|| exhaustive.then(|| by_case(way, level)).flatten())
        .or_else(|| sweep.then(|| by_site(way)).flatten())
}

/// This simulator is built without mutants: it runs one that has them.
fn again(words: &[String]) -> ExitCode {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["run", "--release", "--quiet", "--package", "parapet-sim"]);
    command.args(["--features", "broken", "--", "--broken"]).args(words);
    match command.status() {
        Ok(status) => ExitCode::from(status.code().map_or(1, |code| code as u8)),
        Err(error) => {
            eprintln!("cargo cannot be started: {error}");
            ExitCode::from(2)
        }
    }
}
