//! One target's share of a run.
//!
//! Owns the inputs that are worth mutating: corpus, seeds, and whatever left a new trail. Every
//! fault is told once, with the smallest input that was found for it, saved below `artifacts`.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use parapet_fuzz::mutate::{Dice, mutate};
use parapet_fuzz::{Target, Trail, as_it_is};

use crate::verdict::{self, Verdict};
use crate::{memory, watchdog};

/// Inputs that are kept for mutation.
const MOST_KEPT: usize = 2048;
/// Trails that are told apart.
const MOST_TRAILS: usize = 1 << 16;
/// Runs that are spent to make an input that broke something smaller.
const MOST_SHRINKING: usize = 4000;
/// Different faults after which a target has had enough.
const MOST_FAULTS: usize = 5;
/// Inputs that may leave something behind before it counts as a leak.
const MOST_LITTER: u32 = 200;

/// The hunt for one target's faults.
pub(crate) struct Hunt<'a> {
    target: &'a Target,
    dice: Dice,
    kept: Vec<Vec<u8>>,
    trails: BTreeSet<Trail>,
    faults: Vec<Verdict>,
    /// Inputs that left something behind.
    litter: u32,
    outcome: Outcome,
}

/// How it went.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    name: &'static str,
    executions: u64,
    seconds: f64,
    trails: usize,
    peak: usize,
    slowest: Duration,
    pub(crate) failures: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { name, executions, seconds, trails, peak, slowest, failures } = self;
        let rate = *executions as f64 / seconds.max(0.001);
        write!(f, "{name:<18} {executions:>9} runs {rate:>8.0}/s {trails:>5} trails")?;
        write!(f, " {:>6} KiB {:>5} ms", peak >> 10, slowest.as_millis())?;
        write!(f, "  {}", if *failures == 0 { "ok" } else { "FAILED" })
    }
}

impl<'a> Hunt<'a> {
    /// The same seed hunts the same way, as long as time allows.
    pub(crate) fn new(target: &'a Target, seed: u64) -> Hunt<'a> {
        let name =
            target.name.bytes().fold(seed, |sum, byte| sum * 31 % (1 << 40) + u64::from(byte));
        Hunt {
            target,
            dice: Dice::new(name),
            kept: Vec::new(),
            trails: BTreeSet::new(),
            faults: Vec::new(),
            litter: 0,
            outcome: Outcome { name: target.name, ..Outcome::default() },
        }
    }

    /// Corpus and seeds, then mutations until `share` has passed.
    pub(crate) fn run(mut self, share: Duration) -> Outcome {
        let start = Instant::now();
        for bytes in corpus(self.target.name).into_iter().chain((self.target.seeds)()) {
            self.kept.push(bytes.clone());
            self.try_one(&bytes);
        }
        let mut bytes = Vec::new();
        while start.elapsed() < share && self.faults.len() < MOST_FAULTS {
            for _ in 0..16 {
                self.next(&mut bytes);
                self.try_one(&bytes);
            }
        }
        self.outcome.seconds = start.elapsed().as_secs_f64();
        self.outcome.trails = self.trails.len();
        self.outcome
    }

    fn next(&mut self, bytes: &mut Vec<u8>) {
        // The newest inputs are the least explored.
        let count = self.kept.len();
        let recent = count.min(32);
        let index = match self.dice.below(3) {
            0 => count - 1 - self.dice.below(recent),
            _ => self.dice.below(count),
        };
        bytes.clear();
        bytes.extend_from_slice(&self.kept[index]);
        let other = self.dice.below(count);
        mutate(bytes, &self.kept[other], self.target, &mut self.dice);
    }

    fn try_one(&mut self, bytes: &[u8]) {
        let start = Instant::now();
        let before = memory::live();
        let (verdict, peak) = verdict::of(self.target, bytes);
        let left = memory::live().saturating_sub(before);
        self.sweep(bytes, left);
        self.outcome.slowest = self.outcome.slowest.max(start.elapsed());
        self.outcome.peak = self.outcome.peak.max(peak);
        self.outcome.executions += 1;
        match verdict {
            Verdict::Good(trail)
                if self.trails.len() < MOST_TRAILS && self.trails.insert(trail) =>
            {
                self.keep(bytes);
            }
            Verdict::Good(_) => {}
            fault => self.tell(bytes, &fault),
        }
    }

    /// Counts inputs that leave something behind: tables that grow once are few, leaks are many.
    fn sweep(&mut self, bytes: &[u8], left: usize) {
        self.litter += u32::from(left > 0);
        if self.litter == MOST_LITTER {
            self.outcome.failures += 1;
            let path = watchdog::save(self.target.name, "litter", bytes);
            println!("{}: {left} bytes left behind: {}", self.target.name, path.display());
        }
    }

    /// Keeps an input for mutation, in the place of another one if there are many.
    fn keep(&mut self, bytes: &[u8]) {
        if self.kept.len() < MOST_KEPT {
            self.kept.push(bytes.to_vec());
            return;
        }
        let place = self.dice.below(MOST_KEPT);
        self.kept[place] = bytes.to_vec();
    }

    /// Tells about a fault, once.
    fn tell(&mut self, bytes: &[u8], fault: &Verdict) {
        if self.faults.iter().any(|known| known.is_like(fault)) {
            return;
        }
        self.faults.push(fault.clone());
        self.outcome.failures += 1;
        let (small, runs) = shrink(self.target, bytes, fault);
        self.outcome.executions += runs;
        let (verdict, peak) = verdict::of(self.target, &small);
        let path = watchdog::save(self.target.name, "fault", &small);
        println!("{}: {verdict:?} ({peak} bytes at most)", self.target.name);
        println!("  {} bytes, smallest found: {}", small.len(), path.display());
    }
}

/// Takes away whatever the fault does not need, in halves, quarters, and so on; then simplifies
/// bytes to zero. Gives how many runs that took, too.
fn shrink(target: &Target, bytes: &[u8], fault: &Verdict) -> (Vec<u8>, u64) {
    let mut small = bytes.to_vec();
    let mut runs = 0;
    let mut still = |candidate: &[u8]| {
        runs += 1;
        runs < MOST_SHRINKING && verdict::of(target, candidate).0.is_like(fault)
    };
    let mut part = small.len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < small.len() {
            let end = small.len().min(at + part);
            let candidate = [&small[..at], &small[end..]].concat();
            let mut mended = candidate.clone();
            (target.mend)(&mut mended);
            if still(&candidate) {
                small = candidate;
            } else if mended != candidate && still(&mended) {
                small = mended;
            } else {
                at = end;
            }
        }
        part /= 2;
    }
    for at in 0..small.len() {
        if small[at] != 0 {
            let mut candidate = small.clone();
            candidate[at] = 0;
            let plain = candidate.clone();
            (target.mend)(&mut candidate);
            if still(&candidate) {
                small = candidate;
            } else if still(&plain) {
                small = plain;
            }
        }
    }
    (small, runs as u64)
}

/// The files below `corpus/NAME`, in order of their names.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let Ok(entries) = std::fs::read_dir(crate::home().join("corpus").join(name)) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.into_iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// Targets that break their promises on purpose: a run that does not find them finds nothing.
///
/// # Errors
/// Which one was not found.
pub(crate) fn canaries() -> Result<(), String> {
    let canary = |name, body: fn(&[u8]) -> Trail| Target {
        name,
        what: "a fault on purpose",
        body,
        seeds: || vec![vec![0; 16]],
        mend: as_it_is,
        words: &[b"Pprivate"],
        memory_bytes: 1 << 20,
        most_bytes: 64,
    };
    let panics = canary("canary_panic", |bytes| {
        let found = bytes.windows(8).any(|window| window == b"Pprivate");
        assert!(!found, "the canary sings");
        Trail::new()
    });
    let hoards = canary("canary_memory", |bytes| {
        let claimed = bytes.first_chunk().map_or(0, |&field| u32::from_be_bytes(field));
        drop(vec![0_u8; claimed.min(64 << 20) as usize]);
        Trail::new()
    });
    for (target, greedy) in [(panics, false), (hoards, true)] {
        let mut hunt = Hunt::new(&target, 1);
        hunt.kept = (target.seeds)();
        let mut bytes = Vec::new();
        let found = (0..20_000).find_map(|_| {
            hunt.next(&mut bytes);
            let (verdict, _) = verdict::of(&target, &bytes);
            (!verdict.is_good()).then_some(verdict)
        });
        let verdict = found.ok_or_else(|| format!("{} was not found", target.name))?;
        if matches!(verdict, Verdict::Greedy { .. }) != greedy {
            return Err(format!("{} was taken for something else: {verdict:?}", target.name));
        }
        let (small, _) = shrink(&target, &bytes, &verdict);
        if small.len() > 8 {
            return Err(format!("{} was not made small: {} bytes", target.name, small.len()));
        }
    }
    Ok(())
}
