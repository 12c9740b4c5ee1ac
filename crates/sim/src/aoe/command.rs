//! The command: which seeds run, the shortest form of a failure, and the marks.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::{Keep, describe, run};
use crate::mark;
use crate::report;
use crate::trace::Detail;
use random::mix;

const USAGE: &str = "\
usage: cargo sim --aoe [SEED] [OPTION]...

Run clients and a target of ATA over Ethernet on bad wires. A failing seed is shrunk.

  SEED               run this seed; print its options and its hash
  --seeds A..B       run these seeds [0..1000]
  --seconds N        run new seeds for this time, from a random number, which is printed

  --verbose          print every request
  --marks            print how often each coverage mark was reached, and the missed marks
  --require-marks    fail if a mark was missed
  --rounds N         run N rounds of requests of each client only
  --incidents LIST   let these incidents happen only: 0,2, or none
";

/// The command line.
#[derive(Default)]
struct Request {
    seed: Option<u64>,
    seeds: Option<std::ops::Range<u64>>,
    seconds: Option<u64>,
    verbose: bool,
    marks: bool,
    require_marks: bool,
    keep: Keep,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Request> {
    let mut request = Request::default();
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--seeds" => {
                let range = words.next()?;
                let (from, to) = range.split_once("..")?;
                request.seeds = Some(from.parse().ok()?..to.parse().ok()?);
            }
            "--seconds" => request.seconds = Some(number()?),
            "--rounds" => request.keep.rounds = Some(number()? as usize),
            "--incidents" => {
                let list = words.next()?;
                let list = list.split(',').filter(|word| *word != "none");
                let numbers = list.map(|word| word.parse().ok()).collect::<Option<_>>()?;
                request.keep.incidents = Some(numbers);
            }
            "--verbose" => request.verbose = true,
            "--marks" => request.marks = true,
            "--require-marks" => request.require_marks = true,
            seed => request.seed = Some(seed.parse().ok()?),
        }
    }
    Some(request)
}

#[derive(Default)]
struct Tally {
    passed: u64,
    failed: u64,
    hash: u64,
    marks: BTreeMap<&'static str, u64>,
}

/// `cargo sim --aoe` with these arguments.
pub fn command(words: impl Iterator<Item = String>) -> ExitCode {
    let words: Vec<String> = words.collect();
    if words.iter().any(|word| matches!(word.as_str(), "--help" | "-h")) {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let Some(request) = parse(words.into_iter()) else {
        eprint!("{USAGE}");
        return ExitCode::from(2);
    };
    if let Some(way) = crate::mutant::from_environment() {
        println!("mutant active: {way}");
    }
    let (start, mut tally) = (Instant::now(), Tally::default());
    let seeds = || -> Box<dyn Iterator<Item = u64>> {
        if let Some(seed) = request.seed {
            println!("seed {seed}, {}", report::head());
            return Box::new(seed..=seed);
        }
        if let Some(seconds) = request.seconds {
            let first = report::fresh_seed();
            println!("AoE, new seeds from {first}, {}", report::head());
            let time = Duration::from_secs(seconds);
            return Box::new((first..).take_while(move |_| start.elapsed() < time));
        }
        let seeds = request.seeds.clone().unwrap_or(0..1000);
        println!("AoE, seeds {}..{}, {}", seeds.start, seeds.end, report::head());
        Box::new(seeds)
    };
    for seed in seeds() {
        one(seed, &request, &mut tally);
    }
    close(&request, &tally, start.elapsed())
}

fn one(seed: u64, request: &Request, tally: &mut Tally) {
    let detail = match request.verbose {
        true => Detail::Steps,
        false => Detail::Nothing,
    };
    let ending = run(seed, &request.keep, detail);
    if request.seed.is_some() {
        println!("{}", describe(seed, &request.keep));
        ending.trace.story().iter().for_each(|line| println!("{line}"));
        println!("hash {:016x} after {} events", ending.trace.hash(), ending.trace.events());
    }
    tally.hash = mix(tally.hash ^ ending.trace.hash());
    for (mark, times) in ending.trace.marks() {
        *tally.marks.entry(mark).or_default() += times;
    }
    let Some(failure) = ending.failure else {
        tally.passed += 1;
        return;
    };
    tally.failed += 1;
    println!("\nFAILED: seed {seed}: {failure}");
    if request.seed.is_none() && tally.failed == 1 {
        let keep = shrink(seed);
        let again = run(seed, &keep, Detail::Steps);
        println!("{}", describe(seed, &keep));
        again.trace.story().iter().for_each(|line| println!("{line}"));
        let incidents = keep.incidents.iter().flatten().map(usize::to_string);
        let mut incidents: Vec<String> = incidents.collect();
        if incidents.is_empty() {
            incidents.push("none".into());
        }
        println!(
            "replay: cargo sim --aoe {seed} --rounds {} --incidents {} --verbose",
            keep.rounds.unwrap_or_default(),
            incidents.join(",")
        );
    }
}

/// The fewest incidents, then the fewest rounds, with which the seed still fails.
fn shrink(seed: u64) -> Keep {
    let fails = |keep: &Keep| run(seed, keep, Detail::Nothing).failure.is_some();
    let options = super::Options::draw(seed);
    let mut kept: Vec<usize> = (0..options.incidents.len()).collect();
    let mut at = 0;
    while at < kept.len() {
        let mut fewer = kept.clone();
        fewer.remove(at);
        let keep = Keep { incidents: Some(fewer.clone()), ..Keep::default() };
        if fails(&keep) { kept = fewer } else { at += 1 }
    }
    let with = |rounds| Keep { rounds: Some(rounds), incidents: Some(kept.clone()) };
    let rounds = (1..=options.rounds).find(|&rounds| fails(&with(rounds)));
    with(rounds.unwrap_or(options.rounds))
}

fn close(request: &Request, tally: &Tally, took: Duration) -> ExitCode {
    let Tally { passed, failed, hash, marks } = tally;
    let missed: Vec<_> = mark::aoe().filter(|mark| !marks.contains_key(mark)).collect();
    if request.marks {
        marks.iter().for_each(|(mark, times)| println!("{times:>10}  {mark}"));
        println!("{} marks reached, {} missed", marks.len(), missed.len());
    }
    if request.marks || request.require_marks {
        missed.iter().for_each(|mark| println!("    missed  {mark}"));
    }
    let rate = (passed + failed) as f64 / took.as_secs_f64() * 60.0;
    println!("{rate:.0} seeds a minute, in {:.1} s", took.as_secs_f64());
    println!("{passed} passed, {failed} failed, hash of all {hash:016x}");
    ExitCode::from(u8::from(*failed > 0 || request.require_marks && !missed.is_empty()))
}
