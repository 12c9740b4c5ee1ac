//! `cargo sim --exhaustive`: the selection of cases, and the table of results.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use layout::Level;
use layout::private::Consistency;

use super::{Case, Extent, Promise, Tally, all, run};
use crate::report;

const USAGE: &str = "\
cargo sim --exhaustive [--level L] [--case WORDS] [--stride N] [--states N] [--triples N]
                       [--turned N] [--seconds N [--order N]] [--jobs N] [--bitmap]

  --level L    only this level
  --case WORDS only cases in whose names these are
  --stride N   only every N-th workload of two writes (default: 1, all)
  --states N   only one of N states (default: 1, all)
  --triples N  so many workloads of three writes for each case (default: 50)
  --turned N   of cases that differ from another in the numbers of the members only, every N-th of
               these (default: 16; 1 for all)
  --seconds N  about so long: each case has the same share
  --order N    the order of workloads then, so that another night tries others (default: 0)
  --jobs N     so many threads (default: one for each core)
  --bitmap     arrays without the intent log: dirty and degraded they may be refused";

/// The command: tries all cases, prints the table.
pub fn command(mut words: impl Iterator<Item = String>) -> ExitCode {
    let mut extent = Extent::WHOLE;
    let (mut level, mut name) = (None, String::new());
    let mut jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut seconds, mut order) = (None, 0);
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse::<usize>().ok());
        let known = match word.as_str() {
            "--stride" => number().map(|n| extent.pairs_stride = n.max(1)).is_some(),
            "--states" => number().map(|n| extent.states_stride = n.max(1) as u64).is_some(),
            "--triples" => number().map(|n| extent.triples = n).is_some(),
            "--turned" => number().map(|n| extent.turned_stride = n.max(1)).is_some(),
            "--seconds" => number().map(|n| seconds = Some(n as u64)).is_some(),
            "--order" => number().map(|n| order = n as u64).is_some(),
            "--jobs" => number().map(|n| jobs = n.max(1)).is_some(),
            "--bitmap" => {
                extent.promise = Promise::Unverified;
                extent.consistency = Consistency::Bitmap;
                true
            }
            "--case" => words.next().map(|words| name = words).is_some(),
            "--level" => {
                level = words.next().and_then(|name| name.parse::<Level>().ok());
                level.is_some()
            }
            _ => false,
        };
        if !known {
            eprintln!("{word}: not understood\n{USAGE}");
            return ExitCode::from(2);
        }
    }
    let mut chosen = all();
    chosen.retain(|case| {
        level.is_none_or(|l| case.layout.level() == l) && case.to_string().contains(&name)
    });
    let cases = chosen.len();
    println!("exhaustive mode, {cases} cases, {}, {extent:?}", report::head());
    let share = (jobs.min(chosen.len()) as u32, chosen.len().max(1) as u32);
    let time = |seconds| Duration::from_secs(seconds) * share.0 / share.1;
    extent.limit = seconds.map(|seconds| (time(seconds), order));
    table(chosen, extent, jobs)
}

/// Tries these cases on this many threads, and prints a line for each finished one.
fn table(cases: Vec<Case>, extent: Extent, jobs: usize) -> ExitCode {
    let start = Instant::now();
    println!(
        "{:<34} {:>9} {:>9} {:>9} {:>9} {:>8} {:>10} {:>9} {:>9} {:>6} {:>7}",
        "case",
        "workloads",
        "not tried",
        "moments",
        "states",
        "sampled",
        "cases",
        "trials",
        "refused",
        "wrong",
        "seconds"
    );
    let queue = Mutex::new(cases.into_iter());
    let total = Mutex::new(Tally::default());
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).next();
                    let Some(case) = next else { return };
                    let begun = Instant::now();
                    let tally = run(case, extent);
                    let mut total = total.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                    line(&case.to_string(), &tally, begun.elapsed());
                    tally.stories.iter().for_each(|story| println!("  WRONG {story}"));
                    total.add(&tally);
                }
            });
        }
    });
    let total = total.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    line("all", &total, start.elapsed());
    let rate = total.trials as f64 / start.elapsed().as_secs_f64() * 60.0;
    println!("{rate:.0} trials a minute");
    ExitCode::from(u8::from(total.violations > 0))
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.workloads += other.workloads;
        self.skipped += other.skipped;
        self.moments += other.moments;
        self.sampled += other.sampled;
        self.states += other.states;
        self.enumerated += other.enumerated;
        self.trials += other.trials;
        self.refused += other.refused;
        self.violations += other.violations;
    }
}

fn line(name: &str, tally: &Tally, time: Duration) {
    let Tally { workloads, moments, sampled, states, enumerated, trials, .. } = tally;
    let Tally { skipped, refused, violations, .. } = tally;
    println!(
        "{name:<34} {workloads:>9} {skipped:>9} {moments:>9} {states:>9} {sampled:>8} \
         {enumerated:>10} {trials:>9} {refused:>9} {violations:>6} {:>7.1}",
        time.as_secs_f64()
    );
}
