//! The command: which seeds run, and the marks.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::run;
use crate::mark;
use crate::report;
use crate::trace::Detail;
use random::mix;

const USAGE: &str = "\
usage: cargo sim --remote [SEED] [OPTION]...

Run an array whose members are on servers that are cut off, crash, and come back.

  SEED               run this seed; print its story and its hash
  --seeds A..B       run these seeds [0..200]
  --seconds N        run new seeds for this time, from a random number, which is printed

  --verbose          print every request
  --require-marks    fail if a coverage mark was missed
";

#[derive(Default)]
struct Request {
    seed: Option<u64>,
    seeds: Option<std::ops::Range<u64>>,
    seconds: Option<u64>,
    verbose: bool,
    require_marks: bool,
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
            "--seconds" => request.seconds = Some(words.next()?.parse().ok()?),
            "--verbose" => request.verbose = true,
            "--require-marks" => request.require_marks = true,
            seed => request.seed = Some(seed.parse().ok()?),
        }
    }
    Some(request)
}

/// `cargo sim --remote` with these arguments.
pub fn command(words: impl Iterator<Item = String>) -> ExitCode {
    let Some(request) = parse(words) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(way) = crate::mutant::from_environment() {
        println!("mutant active: {way}");
    }
    let start = Instant::now();
    let seeds: Box<dyn Iterator<Item = u64>> = match (request.seed, request.seconds) {
        (Some(seed), _) => Box::new(seed..=seed),
        (None, Some(seconds)) => {
            let first = report::fresh_seed();
            println!("network members, new seeds from {first}, {}", report::head());
            let time = Duration::from_secs(seconds);
            Box::new((first..).take_while(move |_| start.elapsed() < time))
        }
        (None, None) => Box::new(request.seeds.clone().unwrap_or(0..200)),
    };
    let (mut passed, mut failed, mut hash) = (0, 0, 0);
    let mut marks: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in seeds {
        let detail = if request.verbose { Detail::Steps } else { Detail::Nothing };
        let mut ending = run(seed, detail);
        let failure = ending.failure.take();
        if failure.is_some() && !request.verbose {
            ending = run(seed, Detail::Steps);
        }
        if failure.is_some() || request.seed.is_some() {
            ending.trace.story().iter().for_each(|line| println!("{line}"));
            println!("seed {seed}: hash {:016x}", ending.trace.hash());
        }
        hash = mix(hash ^ ending.trace.hash());
        for (mark, times) in ending.trace.marks() {
            *marks.entry(mark).or_default() += times;
        }
        match failure {
            None => passed += 1,
            Some(failure) => {
                failed += 1;
                println!("FAILED: cargo sim --remote {seed}: {failure}");
            }
        }
    }
    let missed: Vec<_> = mark::remote().filter(|mark| !marks.contains_key(mark)).collect();
    if request.require_marks {
        missed.iter().for_each(|mark| println!("    missed  {mark}"));
    }
    println!("{passed} passed, {failed} failed, hash of all {hash:016x}");
    ExitCode::from(u8::from(failed > 0 || request.require_marks && !missed.is_empty()))
}
