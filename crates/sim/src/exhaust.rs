//! Every short workload, with a crash at every moment, every subset of non-durable data, and every
//! tolerated set of lost members.
//!
//! Bounded black-box testing (CrashMonkey and ACE: Mohan et al., OSDI 2018): nearly every known
//! crash bug of a file system needs only a few operations on a fresh image. So this mode enumerates
//! the small cases, while `scenario.rs` draws large ones.
//!
//! ```text
//!   case ─▶ workload ─▶ log of the real engine ─▶ states ─▶ without these members ─▶ verdict
//!   level,  1 or 2       events: sent, landed,     subsets   assemble, read, recover, read, lose
//!   layout  writes       flushed, acknowledged     of ≤ 10   another, read, write, stop, check
//! ```
//!
//! Equivalent trials run once: the same members are lost and the others have the same content,
//! whatever the lost ones have; and a trial with weaker promises proves nothing new (`seen.rs`).
//! Cases beyond the limits are sampled, and counted as sampled.
//!
//! Owns the bounds and the table. Invariant: the same code gives the same numbers.

use std::time::{Duration, Instant};

use layout::private::Consistency;
use layout::{Family, Slot, SlotSet};

use crate::stand::Event;
use random::{Rng, mix};

mod allowed;
mod cases;
mod command;
mod crash;
mod seen;
mod trial;

pub use cases::{Case, all};
pub use command::command;

use allowed::{Allowed, Step};
use cases::Workload;
use crash::{Coverage, Moment, State};
use seen::Seen;
use trial::{Bench, Verdict};

/// The engine's promises for a crash during writes *and* a lost member, on levels with parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Promise {
    /// The write hole is closed: the array starts, and no block that was not written is harmed.
    #[default]
    Closed,
    /// The array refuses to start, unless forced.
    Unverified,
}

/// How much is tried.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Every this many'th workload of two writes: 1 for all.
    pub pairs_stride: usize,
    /// Every this many'th workload of one write.
    pub singles_stride: usize,
    /// For cases that differ from another one in the numbers of the members only: as many times
    /// fewer workloads of two writes.
    pub turned_stride: usize,
    /// Workloads of three writes, drawn by chance.
    pub triples: usize,
    /// One of this many states is tried: 1 for all.
    pub states_stride: u64,
    /// The promise.
    pub promise: Promise,
    /// How arrays with parity stand against the write hole.
    pub consistency: Consistency,
    /// How long a case may take, and in which order its workloads are tried then; else it is done
    /// when all are.
    pub limit: Option<(Duration, u64)>,
}

impl Extent {
    /// All workloads of one and two writes, some of three.
    pub const WHOLE: Extent = Extent {
        pairs_stride: 1,
        singles_stride: 1,
        turned_stride: 16,
        triples: 50,
        states_stride: 1,
        promise: Promise::Closed,
        consistency: Consistency::Intent,
        limit: None,
    };
}

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Workloads run.
    pub workloads: u64,
    /// Workloads for which there was no time.
    pub skipped: u64,
    /// Moments at which a cut was made.
    pub moments: u64,
    /// Of these, the ones with too many pending units, whose subsets were sampled.
    pub sampled: u64,
    /// States, each different.
    pub states: u64,
    /// States, each with every set of members that may be lost.
    pub enumerated: u64,
    /// Trials: the cases without equivalent ones.
    pub trials: u64,
    /// Trials that were not started, as promised.
    pub refused: u64,
    /// Trials in which something was wrong.
    pub violations: u64,
    /// The first of these, in words.
    pub stories: Vec<String>,
}

/// This many violations of a case are printed.
const STORIES_MAX: usize = 3;
/// A case with this many violations is aborted.
const VIOLATIONS_MAX: u64 = 100;

/// Tries a case.
pub fn run(case: Case, extent: Extent) -> Tally {
    let mut tally = Tally::default();
    let mut bench = match Bench::new(case, extent.consistency) {
        Ok(bench) => bench,
        Err(fault) => {
            tally.violations = 1;
            tally.stories.push(format!("{case}: {fault}"));
            return tally;
        }
    };
    let mut rng = Rng::stream(0, "exhaust", 0);
    let begun = Instant::now();
    let pairs_stride =
        extent.pairs_stride * if case.is_turned() { extent.turned_stride } else { 1 };
    let strided = |workloads: Vec<Workload>, stride: usize| workloads.into_iter().step_by(stride);
    let mut workloads: Vec<Workload> = Vec::new();
    workloads.extend(strided(cases::singles(&bench.geometry), extent.singles_stride));
    workloads.extend(strided(cases::pairs(&bench.geometry), pairs_stride));
    workloads.extend(cases::triples(&bench.geometry, extent.triples, &mut rng));
    if let Some((_, order)) = extent.limit {
        Rng::stream(order, "order of workloads", 0).shuffle(&mut workloads);
    }
    let mut seen = Seen::default();
    for workload in &workloads {
        if extent.limit.is_some_and(|(time, _)| begun.elapsed() >= time) {
            tally.skipped = workloads.len() as u64 - tally.workloads;
            break;
        }
        tally.workloads += 1;
        match bench.record(workload) {
            Ok(log) => {
                let mut cuts = Cuts { bench: &mut bench, workload, extent, seen: &mut seen };
                cuts.all(&log, &mut rng, &mut tally);
            }
            Err(fault) => tally.violate(format!("{case}: {}: {fault}", cases::describe(workload))),
        }
        if tally.violations >= VIOLATIONS_MAX {
            break;
        }
    }
    tally
}

impl Tally {
    fn violate(&mut self, story: String) {
        self.violations += 1;
        if self.stories.len() < STORIES_MAX {
            self.stories.push(story);
        }
    }
}

/// The cuts of one run.
struct Cuts<'a> {
    bench: &'a mut Bench,
    workload: &'a Workload,
    extent: Extent,
    seen: &'a mut Seen,
}

impl Cuts<'_> {
    /// Cuts after everything in the log.
    fn all(&mut self, log: &[Event], rng: &mut Rng, tally: &mut Tally) {
        let mut moment = Moment::new(&self.bench.images);
        let mut allowed = Allowed::new(self.bench.geometry.capacity());
        let losses = losses(self.bench);
        self.cut(&moment, &allowed, &losses, (0, log), rng, tally);
        for (at, event) in log.iter().enumerate() {
            if let Event::Note(note) = event {
                allowed.follow(Step::from_note(*note), self.workload);
            }
            if moment.follow(event) {
                self.cut(&moment, &allowed, &losses, (at + 1, log), rng, tally);
            }
        }
    }

    /// Cuts here, in every way.
    fn cut(
        &mut self,
        moment: &Moment,
        allowed: &Allowed,
        losses: &[SlotSet],
        (at, log): (usize, &[Event]),
        rng: &mut Rng,
        tally: &mut Tally,
    ) {
        tally.moments += 1;
        let Cuts { bench, workload, extent, seen } = self;
        seen.promise(allowed);
        let mut fresh = Vec::new();
        let coverage = moment.states(rng, |numbers, state| {
            let whole = without(numbers, SlotSet::default());
            if !whole.is_multiple_of(extent.states_stride) || !seen.is_state(whole) {
                return;
            }
            tally.states += 1;
            tally.enumerated += losses.len() as u64;
            fresh.clear();
            fresh.extend(losses.iter().filter(|lost| seen.is_trial(without(numbers, **lost))));
            if fresh.is_empty() {
                return;
            }
            let state = state();
            for &lost in &fresh {
                tally.trials += 1;
                match bench.attempt(&state, lost, allowed, extent.promise) {
                    Verdict::Held => {}
                    Verdict::Refused => tally.refused += 1,
                    Verdict::Violated(fault) => {
                        tally.violate(describe(bench, workload, (at, log), &state, lost, &fault));
                    }
                }
            }
        });
        tally.sampled += u64::from(coverage == Coverage::Sampled);
    }
}

/// The number of a trial: the lost members, and the content of the others.
fn without(numbers: &[u64], lost: SlotSet) -> u64 {
    let left = numbers.iter().enumerate().filter(|(disk, _)| !lost.contains(Slot::new(*disk)));
    left.fold(0, |checksum, (disk, &number)| mix(checksum ^ number) ^ mix(disk as u64))
}

/// Every set of members that the level can do without; the empty one first.
fn losses(bench: &Bench) -> Vec<SlotSet> {
    let geometry = &bench.geometry;
    let mut sets = vec![SlotSet::default()];
    if geometry.family() == Family::Plain {
        return sets;
    }
    for slot in geometry.all_slots().iter() {
        let more: Vec<SlotSet> = sets.iter().map(|set| set.with(slot)).collect();
        sets.extend(more);
    }
    sets.retain(|&set| geometry.survives(set));
    sets.sort_by_key(|set| set.count());
    sets
}

/// A violation in words.
fn describe(
    bench: &Bench,
    workload: &Workload,
    (at, log): (usize, &[Event]),
    state: &State<'_>,
    lost: SlotSet,
    fault: &str,
) -> String {
    let place = |disk: usize, sector: u64, live: u8| {
        let byte = sector * crate::medium::SECTOR;
        let map = &bench.map;
        let parts = [
            ("superblock", Some(map.superblock.clone())),
            ("bitmap", map.bitmap.clone()),
            ("private", map.private.clone()),
            ("data", Some(map.data.clone())),
        ];
        let part = parts.into_iter().find_map(|(name, range)| {
            let range = range.filter(|range| range.contains(&byte))?;
            Some(format!("{name}+{}", byte - range.start))
        });
        format!("disk{disk} {} ({live:08b})", part.unwrap_or_else(|| format!("byte {byte}")))
    };
    let landed: Vec<String> =
        state.landed.iter().map(|unit| place(unit.disk, unit.sector, unit.live)).collect();
    let slots: Vec<String> = lost.iter().map(|slot| slot.to_string()).collect();
    let last = at.checked_sub(1).and_then(|at| log.get(at));
    let last = last.map_or("the start".to_string(), |event| match event {
        Event::Sent { op, disk, .. } => format!("operation {op} was sent to disk{disk}"),
        Event::Landed { op } => format!("operation {op} landed"),
        Event::Note(note) => format!("{:?}", Step::from_note(*note)),
    });
    format!(
        "{}: {}\n    cut after event {at} of {} ({last}); landed but not durable: [{}]\n    \
         lost: [{}]: {fault}",
        bench.case,
        cases::describe(workload),
        log.len(),
        landed.join(", "),
        slots.join(", "),
    )
}
