//! `cargo sim`: runs seeds, and prints the story of failing ones.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use layout::Level;
use random::mix;
use sim::keep::Keep;
use sim::mark;
use sim::options::display::CACHES;
use sim::options::{Options, Size, Wish};
use sim::report;
use sim::scenario;
use sim::shrink::shrink;
use sim::trace::{Detail, Trace};

const USAGE: &str = "\
usage: cargo sim [SEED] [OPTION]...
       cargo sim --exhaustive | --sweep | --aoe | --remote | --broken NAME    (each has a --help)

Run simulated arrays under faults and check them against an oracle. A failing seed is shrunk.

  SEED               run this seed; print its options and its hash
  --seeds A..B       run these seeds
  --regressions      run every seed that ever failed (crates/sim/seeds.txt)
  --fresh            run new seeds from a random number, which is printed [default]
  --commit           like --fresh, with the first seed derived from the commit
  --seconds N        time limit of new seeds [10]

  --full             all faults, 200 to 2,000 requests, 5 to 8 crashes in each run
  --standard         the runs of the speed measurement: 3 to 8 members, 200 to 2,000 requests,
                     at least 5 crashes and about 30 faults
  --checksums        enable checksums where the array allows them
  --journal          give arrays with parity a journal device
  --ruins            lose more members than the level tolerates, repeatedly
  --stores           fill a store that members share, repeatedly
  --level L          use this level only: linear, 0, 1, 10, 4, 5, 6, 3.5
  --shards N         number of shards, 1 to 16
  --cache MODE       use this cache mode only: none, sync, writeback

  --verbose          print the story and every operation of every disk
  --marks            print how often each coverage mark was reached, and the missed marks
  --require-marks    fail if a mark was missed
  --whole            do not shrink failures
  --keep PARTS       run these parts of one seed only, as a shrunk failure prints them:
                     rC.N request N of client C, iN incident N, mN number of members (nN each if
                     they are arrays), hN number of times the disks are halved, none the array only
";

/// The command line.
#[derive(Default)]
struct Request {
    seed: Option<u64>,
    seeds: Option<(u64, u64)>,
    regressions: bool,
    fresh: bool,
    of_commit: bool,
    seconds: Option<u64>,
    wish: Wish,
    verbose: bool,
    marks: bool,
    require_marks: bool,
    keep: Keep,
    whole: bool,
}

impl Request {
    /// The options of a seed under the options of the command line.
    fn options(&self, seed: u64) -> Result<Options, String> {
        Options::draw(seed, self.wish).kept(self.keep.clone())
    }

    /// Checks that the options allow a run.
    ///
    /// # Errors
    /// If a part to keep does not exist, or `--keep` comes without a seed.
    fn possible(self) -> Result<Request, String> {
        match self.seed {
            Some(seed) => self.options(seed).map(drop)?,
            None if self.keep.is_all() => {}
            None => return Err("--keep needs one seed".into()),
        }
        Ok(self)
    }

    /// The line above the runs of many seeds.
    fn head(&self, seeds: &str) {
        let wish = self.wish.to_string();
        let wish = if wish.is_empty() { "default options" } else { &wish };
        println!("{seeds}, {}, {wish}", report::head());
    }
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Request, String> {
    let mut request = Request::default();
    let number = |word: Option<String>, what: &str| {
        let word = word.ok_or_else(|| format!("{what} needs a number"))?;
        word.parse::<u64>().map_err(|_| format!("{what}: {word:?} is not a number"))
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => request.seconds = Some(number(words.next(), "--seconds")?),
            "--shards" => {
                let shards = number(words.next(), "--shards")?;
                request.wish.shards = Some((shards as usize).clamp(1, 16));
            }
            "--seeds" => {
                let range = words.next().ok_or("--seeds needs a range: 0..1000")?;
                let (from, to) = range.split_once("..").ok_or("--seeds needs a range: 0..1000")?;
                let from = number(Some(from.into()), "--seeds")?;
                request.seeds = Some((from, number(Some(to.into()), "--seeds")?));
            }
            "--level" => {
                let name = words.next().ok_or("--level needs a level")?;
                let short = |level: &Level| level.name().strip_prefix("raid") == Some(&name);
                let level =
                    Level::ALL.into_iter().find(|level| level.name() == name || short(level));
                let names = Level::ALL.map(Level::name).join(", ");
                let unknown = format!("--level {name}: unknown level; choose one of {names}");
                request.wish.level = Some(level.ok_or(unknown)?);
            }
            "--cache" => {
                let name = words.next().ok_or("--cache needs a mode")?;
                let mode = CACHES.into_iter().find(|&(_, word)| word == name);
                let unknown =
                    format!("--cache {name}: unknown mode; choose one of none, sync, writeback");
                request.wish.cache = Some(mode.ok_or(unknown)?.0);
            }
            "--keep" => {
                request.keep = Keep::parse(&words.next().ok_or("--keep needs parts: r0.3,i1")?)?;
            }
            "--regressions" => request.regressions = true,
            "--fresh" => request.fresh = true,
            "--commit" => (request.fresh, request.of_commit) = (true, true),
            "--full" => request.wish.size = Size::Full,
            "--standard" => request.wish.size = Size::Standard,
            "--checksums" => request.wish.checksums = true,
            "--journal" => request.wish.journal = true,
            "--ruins" => request.wish.ruins = true,
            "--stores" => request.wish.stores = true,
            "--whole" => request.whole = true,
            "--verbose" => request.verbose = true,
            "--marks" => request.marks = true,
            "--require-marks" => request.require_marks = true,
            seed => request.seed = Some(number(Some(seed.into()), "the seed")?),
        }
    }
    Ok(request)
}

/// The result of a set of seeds.
#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    events: u64,
    /// Hash over the hashes of all runs, in order.
    hash: u64,
    marks: BTreeMap<&'static str, u64>,
    /// One entry for each run.
    crashes: Vec<u64>,
    faults: Vec<u64>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1).peekable();
    if words.next_if(|word| word == "--exhaustive").is_some() {
        return sim::exhaust::command(words);
    }
    if words.next_if(|word| word == "--broken").is_some() {
        return sim::mutant::command(words);
    }
    if words.next_if(|word| word == "--aoe").is_some() {
        return sim::aoe::command(words);
    }
    if words.next_if(|word| word == "--remote").is_some() {
        return sim::remote::command(words);
    }
    if words.next_if(|word| word == "--sweep").is_some() {
        return sim::sweep::command(words);
    }
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let request = match parse(words.into_iter()).and_then(|request| request.possible()) {
        Ok(request) => request,
        Err(fault) => {
            eprintln!("{fault}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(way) = sim::mutant::from_environment() {
        println!("engine mutant active: {way}");
    }
    let start = Instant::now();
    let mut tally = Tally::default();
    run(&request, &mut tally);
    let missed: Vec<_> =
        mark::all(request.wish).filter(|mark| !tally.marks.contains_key(mark)).collect();
    if request.marks {
        for (mark, times) in &tally.marks {
            println!("{times:>10}  {mark}");
        }
        println!("{} marks reached, {} missed", tally.marks.len(), missed.len());
    }
    if request.marks || request.require_marks {
        missed.iter().for_each(|mark| println!("    missed  {mark}"));
    }
    let Tally { passed, failed, events, hash, .. } = tally;
    let (crashes, faults) = (spread(&mut tally.crashes), spread(&mut tally.faults));
    println!("per seed: crashes {crashes}; faults {faults}");
    let seconds = start.elapsed().as_secs_f64();
    let rate = (passed + failed) as f64 / seconds * 60.0;
    println!("{rate:.0} seeds a minute, {events} events in {seconds:.1} s");
    println!("{passed} passed, {failed} failed, hash of all {hash:016x}");
    ExitCode::from(u8::from(failed > 0 || (request.require_marks && !missed.is_empty())))
}

/// Runs the command.
fn run(request: &Request, tally: &mut Tally) {
    if let Some(seed) = request.seed {
        return one(seed, request, tally);
    }
    if request.regressions {
        println!("every seed that ever failed, with the options of the list, {}", report::head());
        for words in sim::regressions::all() {
            let line = parse(words.into_iter()).expect("a test reads the list");
            let seed = line.seed.expect("a test reads the list");
            try_seed(seed, &Request { whole: request.whole, ..line }, tally);
        }
    }
    if let Some((from, to)) = request.seeds {
        request.head(&format!("seeds {from}..{to}"));
        (from..to).for_each(|seed| try_seed(seed, request, tally));
    }
    if request.fresh || !request.regressions && request.seeds.is_none() {
        let first = if request.of_commit { report::commit_seed() } else { report::fresh_seed() };
        let start = Instant::now();
        request.head(&format!("new seeds from {first}"));
        let time = Duration::from_secs(request.seconds.unwrap_or(10));
        let seeds = (first..).take_while(|_| start.elapsed() < time);
        seeds.for_each(|seed| try_seed(seed, request, tally));
    }
}

/// Minimum, median and maximum, as text.
fn spread(numbers: &mut [u64]) -> String {
    numbers.sort_unstable();
    let numbers = &*numbers;
    match (numbers.first(), numbers.get(numbers.len() / 2), numbers.last()) {
        (Some(least), Some(median), Some(most)) => format!("{least} to {most}, median {median}"),
        _ => "none".into(),
    }
}

fn one(seed: u64, request: &Request, tally: &mut Tally) {
    println!("seed {seed}, {}", report::head());
    let options = request.options(seed).expect("`possible` checked these options");
    println!("{options}");
    let telling = if request.verbose { Detail::Everything } else { Detail::Nothing };
    let ending = scenario::run_with(options, telling);
    for line in ending.trace.story() {
        println!("{line}");
    }
    println!("hash {:016x} after {} events", ending.trace.hash(), ending.trace.events());
    count(seed, ending, request, tally);
}

fn try_seed(seed: u64, request: &Request, tally: &mut Tally) {
    let ending = scenario::run(seed, request.wish, Detail::Nothing);
    count(seed, ending, request, tally);
}

fn count(seed: u64, ending: scenario::Ending, request: &Request, tally: &mut Tally) {
    tally.events += ending.trace.events();
    tally.hash = mix(tally.hash ^ ending.trace.hash());
    for (mark, times) in ending.trace.marks() {
        *tally.marks.entry(mark).or_default() += times;
    }
    let crashes = [mark::KILLED, mark::CUT].map(|m| ending.trace.marks().get(m).copied());
    tally.crashes.push(crashes.into_iter().flatten().sum());
    tally.faults.push(ending.trace.faults());
    let Some(failure) = &ending.failure else {
        tally.passed += 1;
        return;
    };
    tally.failed += 1;
    fail(seed, &ending.trace, failure, request, tally.failed == 1);
}

/// Prints a failure: the first one in its shortest form.
fn fail(seed: u64, trace: &Trace, failure: &str, request: &Request, first: bool) {
    println!("\nFAILED: seed {seed}, {}", report::head());
    let short = !request.whole && request.keep.is_all() && first;
    let keep = match short {
        true => shrink(seed, request.wish).unwrap_or_default(),
        false => request.keep.clone(),
    };
    let same = keep == request.keep;
    let whole = Options::draw(seed, request.wish);
    let options = whole.clone().kept(keep.clone()).expect("this selection was run");
    println!("{options}");
    let mut failure = failure.to_string();
    if !same {
        println!("shrunk to: {}", sim::shrink::sizes(&whole, &options));
    }
    if !request.verbose || !same {
        let again = scenario::run_with(options, Detail::Steps);
        for line in again.trace.story() {
            println!("{line}");
        }
        if same && again.trace.hash() != trace.hash() {
            println!("NOT DETERMINISTIC: the second run of this seed has another hash");
        }
        // The short story's own numbers.
        failure = again.failure.unwrap_or(failure);
    }
    println!("failure: {failure}");
    let wish = request.wish.to_string();
    let blank = if wish.is_empty() { "" } else { " " };
    let kept = if keep.is_all() { String::new() } else { format!(" --keep {keep}") };
    println!("replay: cargo sim {seed}{blank}{wish}{kept} --verbose");
}
