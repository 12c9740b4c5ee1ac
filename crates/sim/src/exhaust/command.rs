//! `cargo sim --exhaustive`: the selection of cases, and the table of results.

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use layout::Level;
use layout::private::Consistency;

use super::{Case, Extent, Promise, Tally, all, run};
use crate::report;

const USAGE: &str = "\
usage: cargo sim --exhaustive [OPTION]...

Crash short workloads after every event, and check every state that the disks may then hold.

  --level L    run this level only
  --case TEXT  run the cases only whose name contains TEXT
  --stride N   run every N-th workload of two writes only [1]
  --states N   check one of N states only [1]
  --triples N  number of workloads of three writes for each case [50]
  --turned N   run every N-th case only of those that renumber the members of another [16]
  --seconds N  time limit, divided evenly among the cases
  --order N    seed of the order of workloads under a time limit [0]
  --jobs N     number of threads [one for each core]
  --bitmap     use arrays without an intent log; assembly may refuse them dirty and degraded";

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
        if matches!(word.as_str(), "--help" | "-h") {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        if !known {
            eprintln!("{word}: unknown option\n{USAGE}");
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
