//! One run: an array over one mission, event by event.
//!
//! Losses are rare, so chance is replaced by arithmetic wherever possible:
//!
//! - **The last failure is never played.** While some disks are *critical* (the next failure of one
//!   of them loses data), each stretch of time adds the exact chance that one of them fails in it,
//!   and the run goes on with the rest of its weight.
//! - **Failures on the way there are forced** (balanced failure biasing: Shahabuddin, Management
//!   Science 1994; Nicola, Heidelberger, Shahabuddin 1992). While disks are down and none is
//!   critical, the next event is a failure with chance q of about one half, at a uniform time. The
//!   weight corrects both, exactly for every hazard h that accumulates to H from now on:
//!
//! ```text
//!     failure at s:   weight × h(s) exp(−H(s)) / (q / window)
//!     rebuilt first:  weight × exp(−H(window)) / (1 − q)
//! ```
//!
//!   With one disk down q is smaller the more failures a mission has, because each rebuild that
//!   ends well costs a factor 1 / (1 − q) of weight.
//! - **Rebuilds on the way there are long ones**, since most losses happen in long windows.
//! - **The first failure is forced** into the mission, and shared faults into half of the runs.

use layout::{Slot, SlotSet};
use random::Rng;

use super::super::latent::Errors;
use super::super::life::{Life, exponential, uniform};
use super::super::repair::Spares;
use super::{Cause, Correlation, System};

/// In place of the mission's failures in the choice of q, once two disks are down.
const DEEP: f64 = 0.25;
/// A long rebuild is chosen among this many samples …
const CHOICE: usize = 4;
/// … by its hours and this part of the typical window, so that no weight becomes large.
const EVEN: f64 = 0.5;
/// Half of the runs have a shared fault, if it is rarer than that.
const SHARED_FAULT_SHARE: f64 = 0.5;

/// What one run adds up; all are weighted chances.
#[derive(Clone, Copy, Default)]
pub(super) struct Score {
    /// Of the first loss, by cause.
    pub(super) any: [f64; 3],
    /// Of the loss of the array.
    pub(super) array: f64,
    /// Of unreadable sectors that were needed, summed over the mission.
    pub(super) sectors: f64,
    /// Hours with a disk down.
    pub(super) degraded_hours: f64,
}

/// What ends a stretch of time.
#[derive(Clone, Copy)]
enum Event {
    End,
    Rebuilt,
    SharedFault,
    Failure(Slot),
}

/// One run.
pub(super) struct Run<'a> {
    system: &'a System,
    rng: &'a mut Rng,
    slots: SlotSet,
    /// Failures that a mission has on average.
    failures: f64,
    now: f64,
    /// Ratio of the true chance of this path to the chance with which it was played.
    weight: f64,
    /// Chance that no sector was lost so far.
    intact: f64,
    down: SlotSet,
    /// For each slot: when its disk had the age 0, or when the slot is rebuilt.
    times: Vec<f64>,
    spares: Spares,
    errors: Errors,
    shared_fault: f64,
    /// The first failure, where it is known beforehand.
    first: Option<(f64, Event)>,
    /// The result so far.
    pub(super) score: Score,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        system: &'a System,
        slots: SlotSet,
        failures: f64,
        rng: &'a mut Rng,
    ) -> Run<'a> {
        let errors = Errors::new(system.latent, slots.count(), rng);
        let mut run = Run {
            system,
            rng,
            slots,
            failures,
            now: 0.0,
            weight: 1.0,
            intact: 1.0,
            down: SlotSet::EMPTY,
            times: vec![-system.age_hours; slots.count()],
            spares: Spares::new(&system.repair),
            errors,
            shared_fault: f64::INFINITY,
            first: None,
            score: Score::default(),
        };
        run.first_shared_fault();
        run.first_failure();
        run
    }

    /// Draws the time of the first shared fault; forces it into the mission in half of the runs.
    fn first_shared_fault(&mut self) {
        let expected = self.system.correlation.shared_faults * self.system.mission_hours;
        if expected == 0.0 {
            return;
        }
        let chance = -f64::exp_m1(-expected);
        let played = chance.max(SHARED_FAULT_SHARE);
        if uniform(self.rng) < played {
            self.weight *= chance / played;
            // Exponential, given that it is within the mission.
            let reduced = -f64::ln_1p(-chance * uniform(self.rng));
            self.shared_fault = reduced / expected * self.system.mission_hours;
        } else {
            self.weight *= (1.0 - chance) / (1.0 - played);
        }
    }

    /// Draws the first failure, and forces it into the mission: nothing is lost without one. All
    /// disks have the same age then, so any of them fails.
    fn first_failure(&mut self) {
        let simple = self.system.correlation.shared_faults == 0.0;
        if !simple || !self.system.redundancy.critical(SlotSet::EMPTY).is_empty() {
            return;
        }
        let chance = -f64::exp_m1(-self.failures);
        let reduced = -f64::ln_1p(-chance * uniform(self.rng)) / self.slots.count() as f64;
        let (life, age) = (&self.system.life, self.system.age_hours);
        let time = life.age_at(life.accumulated(age) + reduced) - age;
        let slot = Slot::new(self.rng.below(self.slots.count() as u64) as usize);
        self.weight *= chance;
        self.first = Some((time.clamp(0.0, self.system.mission_hours), Event::Failure(slot)));
    }

    /// Plays up to the next event; false after the last one.
    pub(super) fn step(&mut self) -> bool {
        let critical = self.system.redundancy.critical(self.down);
        let others = self.slots.difference(self.down).difference(critical);
        let (until, event) = self.horizon();
        let forced = !self.down.is_empty() && critical.is_empty();
        let (until, event) = match self.first.take() {
            Some(first) => first,
            None => self.next(others, until, event, forced),
        };
        let risk = -f64::exp_m1(-self.hazard(critical, self.now, until));
        self.score.array += self.weight * risk;
        self.score.any[Cause::Disks as usize] += self.weight * self.intact * risk;
        self.weight *= 1.0 - risk;
        if self.down.is_empty() {
            // Without redundancy an unreadable sector is lost as it comes.
            let expected = self.system.latent.rate * (until - self.now);
            self.lose_sectors(f64::exp(-expected * critical.count() as f64));
        }
        if !self.down.is_empty() {
            self.score.degraded_hours += self.weight * (until - self.now);
        }
        self.now = until;
        match event {
            Event::End => return false,
            Event::Rebuilt => self.rebuilt(),
            Event::SharedFault => self.shared_fault(),
            Event::Failure(slot) => self.fail(SlotSet::only(slot)),
        }
        self.weight > 0.0
    }

    /// The first event that is already determined.
    fn horizon(&self) -> (f64, Event) {
        let rebuilt = self.down.iter().map(|slot| self.times[slot.index()]);
        let rebuilt = rebuilt.fold(f64::INFINITY, f64::min);
        let mut first = (self.system.mission_hours, Event::End);
        for (time, event) in [(self.shared_fault, Event::SharedFault), (rebuilt, Event::Rebuilt)] {
            if time < first.0 {
                first = (time, event);
            }
        }
        first
    }

    /// That event, or an earlier failure of one of these disks.
    fn next(&mut self, disks: SlotSet, until: f64, event: Event, forced: bool) -> (f64, Event) {
        let window = until - self.now;
        let hazard = if forced { self.hazard(disks, self.now, until) } else { 0.0 };
        let depth = self.down.count() as f64;
        let scale = if depth == 1.0 { self.failures } else { DEEP };
        let q = window / (window + scale * self.system.repair.typical_hours() / depth.max(1.0));
        // Never play a failure more rarely than it is.
        if !forced || -f64::exp_m1(-hazard) >= q {
            return self.natural(disks, until).unwrap_or((until, event));
        }
        if uniform(self.rng) >= q {
            self.weight *= f64::exp(-hazard) / (1.0 - q);
            return (until, event);
        }
        let time = self.now + window * uniform(self.rng);
        let (slot, rate) = self.pick(disks, time);
        self.weight *= rate * f64::exp(-self.hazard(disks, self.now, time)) * window / q;
        (time, Event::Failure(slot))
    }

    /// The first failure of these disks before `until`, by its true chance.
    fn natural(&mut self, disks: SlotSet, until: f64) -> Option<(f64, Event)> {
        let (life, factor) = (&self.system.life, self.factor());
        let mut first: Option<(f64, Event)> = None;
        let mut same_age = SameAge::default();
        for slot in disks.iter() {
            let born = self.times[slot.index()];
            let (start, end) = same_age.hazards(life, born, (self.now, until));
            let needed = exponential(self.rng) / factor;
            if needed >= end - start {
                continue;
            }
            let time = (born + life.age_at(start + needed)).clamp(self.now, until);
            if first.is_none_or(|(earlier, _)| time < earlier) {
                first = Some((time, Event::Failure(slot)));
            }
        }
        first
    }

    /// One of these disks, by their hazards at this time, and the sum of those.
    fn pick(&mut self, disks: SlotSet, time: f64) -> (Slot, f64) {
        let rate = |slot: Slot| self.system.life.hazard(time - self.times[slot.index()]);
        let sum: f64 = disks.iter().map(rate).sum();
        let mut left = uniform(self.rng) * sum;
        let mut chosen = Slot(0);
        for slot in disks.iter() {
            let rate = self.system.life.hazard(time - self.times[slot.index()]);
            if rate > 0.0 {
                chosen = slot;
            }
            left -= rate;
            if left <= 0.0 {
                break;
            }
        }
        (chosen, sum * self.factor())
    }

    /// Hazard that these disks accumulate between two times.
    fn hazard(&self, disks: SlotSet, from: f64, to: f64) -> f64 {
        let mut same_age = SameAge::default();
        let of = |slot: Slot| {
            let (a, b) = same_age.hazards(&self.system.life, self.times[slot.index()], (from, to));
            b - a
        };
        self.factor() * disks.iter().map(of).sum::<f64>()
    }

    fn factor(&self) -> f64 {
        if self.down.is_empty() { 1.0 } else { self.system.correlation.factor }
    }

    /// These disks fail, and no data is lost with them. Rebuilds that need every remaining disk may
    /// meet latent errors.
    fn fail(&mut self, failed: SlotSet) {
        let before = self.system.redundancy.critical(self.down);
        self.down = self.down.union(failed);
        let critical = self.system.redundancy.critical(self.down).difference(before);
        for slot in failed.iter() {
            let start = self.spares.start(&self.system.repair, self.now);
            let hours = match critical.is_empty() {
                true => self.long_rebuild(),
                false => self.system.repair.rebuild.sample(self.rng),
            };
            self.times[slot.index()] = start + hours;
        }
        let mut readable = 1.0;
        for slot in critical.iter() {
            readable *= 1.0 - self.errors.risk(slot.index(), self.now, self.rng);
            self.errors.clean(slot.index(), self.now + self.system.latent.unread_hours);
        }
        self.lose_sectors(readable);
    }

    /// With this chance all sectors that are needed are readable.
    fn lose_sectors(&mut self, readable: f64) {
        let risk = 1.0 - readable;
        self.score.sectors += self.weight * risk;
        self.score.any[Cause::Sector as usize] += self.weight * self.intact * risk;
        self.intact *= readable;
    }

    /// Hours of a rebuild, more often long ones than short ones, and the weight that corrects it:
    /// one of several true samples, chosen by its length.
    fn long_rebuild(&mut self) -> f64 {
        let repair = &self.system.repair;
        let samples: [f64; CHOICE] = std::array::from_fn(|_| repair.rebuild.sample(self.rng));
        let size = |hours: f64| hours + EVEN * repair.typical_hours();
        let sum: f64 = samples.iter().map(|hours| size(*hours)).sum();
        let mut left = uniform(self.rng) * sum;
        let chosen = samples.iter().find(|hours| {
            left -= size(**hours);
            left <= 0.0
        });
        let hours = *chosen.unwrap_or(&samples[0]);
        self.weight *= sum / CHOICE as f64 / size(hours);
        hours
    }

    /// The disks whose rebuild ends now are new; those that it read have no latent errors.
    fn rebuilt(&mut self) {
        for slot in self.down.iter().filter(|slot| self.times[slot.index()] <= self.now) {
            self.down.remove(slot);
            for clean in self.system.redundancy.read_by_rebuild(slot).with(slot).iter() {
                self.errors.clean(clean.index(), self.now);
            }
        }
    }

    /// Takes each disk by its chance.
    fn shared_fault(&mut self) {
        let Correlation { shared_faults, taken, .. } = self.system.correlation;
        self.shared_fault = self.now + exponential(self.rng) / shared_faults;
        let up = self.slots.difference(self.down);
        let failed: SlotSet = up.iter().filter(|_| uniform(self.rng) < taken).collect();
        if self.system.redundancy.survives(self.down.union(failed)) {
            return self.fail(failed);
        }
        self.score.array += self.weight;
        self.score.any[Cause::SharedFault as usize] += self.weight * self.intact;
        self.weight = 0.0;
    }
}

/// Accumulated hazards at two times; most disks of an array have the same age.
#[derive(Default)]
struct SameAge(Option<(f64, (f64, f64))>);

impl SameAge {
    fn hazards(&mut self, life: &Life, born: f64, (from, to): (f64, f64)) -> (f64, f64) {
        match self.0 {
            Some((known, hazards)) if known == born => hazards,
            _ => {
                let hazards = (life.accumulated(from - born), life.accumulated(to - born));
                self.0 = Some((born, hazards));
                hazards
            }
        }
    }
}
