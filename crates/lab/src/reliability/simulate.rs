//! Chance of loss by simulation: disks that age, repairs that take their time, latent sector
//! errors, faults that several disks share.
//!
//! A run ([`run`]) is one array over one mission. Data is lost by one of three causes: one disk too
//! many, a latent error on a disk that a rebuild needs, a shared fault. Each run gives the chances
//! of all three on its path; their mean and spread over many runs are the result.
//!
//! The model is optimistic about what it leaves out: administrators, software, fire.

use random::Rng;

use super::estimate::{Estimate, Samples};
use super::latent::Latent;
use super::life::Life;
use super::redundancy::Redundancy;
use super::repair::Repair;

mod run;

use run::{Run, Score};

/// Disks that do not fail independently of each other.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Correlation {
    /// Hazards are multiplied by this while a disk is down.
    pub factor: f64,
    /// Shared faults (shelf, power, batch) per hour.
    pub shared_faults: f64,
    /// Chance that a shared fault takes a disk.
    pub taken: f64,
}

impl Correlation {
    /// Independent disks.
    pub const NONE: Correlation = Correlation { factor: 1.0, shared_faults: 0.0, taken: 0.0 };
}

/// An array and its world.
#[derive(Clone, Debug)]
pub struct System {
    /// What the array survives.
    pub redundancy: Redundancy,
    /// Lives of its disks, and of those that replace them.
    pub life: Life,
    /// Hours that the disks have been in service at the start.
    pub age_hours: f64,
    /// How failed disks are replaced.
    pub repair: Repair,
    /// Latent sector errors.
    pub latent: Latent,
    /// What disks share.
    pub correlation: Correlation,
    /// Hours of the mission.
    pub mission_hours: f64,
}

/// How often, and from which random numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Runs {
    /// Number of runs.
    pub count: u32,
    /// Equal seeds give equal results.
    pub seed: u64,
}

/// Why data is lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Cause {
    /// More disks failed than the array tolerates.
    Disks,
    /// A disk that a rebuild needs has an unreadable sector.
    Sector,
    /// A shared fault took too many disks at once.
    SharedFault,
}

impl Cause {
    const ALL: [Cause; 3] = [Cause::Disks, Cause::Sector, Cause::SharedFault];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Disks => "disk failures",
            Cause::Sector => "sector errors",
            Cause::SharedFault => "shared faults",
        }
    }
}

/// The result of all runs.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outcome {
    /// Chance that anything is lost.
    pub any: Estimate,
    /// Chance that the whole array is lost.
    pub array: Estimate,
    /// Expected number of losses of either kind: a run goes on after a lost sector.
    pub losses: Estimate,
    /// Expected number of rebuilds that met an unreadable sector which they needed.
    pub sectors: f64,
    /// Shares of the causes in `any`, in the order of [`Cause`]; they add up to 1.
    pub shares: [f64; 3],
    /// Mean hours with a disk down, in the mission.
    pub degraded_hours: f64,
}

impl Outcome {
    /// The most frequent cause; `None` if nothing was ever lost.
    pub fn dominating(&self) -> Option<Cause> {
        let most = Cause::ALL
            .into_iter()
            .max_by(|a, b| self.shares[*a as usize].total_cmp(&self.shares[*b as usize]));
        most.filter(|cause| self.shares[*cause as usize] > 0.0)
    }
}

/// Plays all runs.
pub fn simulate(system: &System, runs: Runs) -> Outcome {
    let mut rng = Rng::stream(runs.seed, "reliability", 0);
    let slots = system.redundancy.slots();
    let hazard = system.life.accumulated(system.age_hours + system.mission_hours)
        - system.life.accumulated(system.age_hours);
    let failures = slots.count() as f64 * hazard;
    let mut totals = Totals::default();
    for _ in 0..runs.count {
        let mut run = Run::new(system, slots, failures, &mut rng);
        while run.step() {}
        totals.add(&run.score);
    }
    totals.outcome()
}

#[derive(Default)]
struct Totals {
    any: Samples,
    array: Samples,
    losses: Samples,
    sectors: Samples,
    causes: [f64; 3],
    degraded_hours: Samples,
}

impl Totals {
    fn add(&mut self, score: &Score) {
        self.any.add(score.any.iter().sum());
        self.array.add(score.array);
        self.losses.add(score.array + score.sectors);
        self.sectors.add(score.sectors);
        self.degraded_hours.add(score.degraded_hours);
        for (total, part) in self.causes.iter_mut().zip(score.any) {
            *total += part;
        }
    }

    fn outcome(&self) -> Outcome {
        let all: f64 = self.causes.iter().sum();
        Outcome {
            any: self.any.estimate(),
            array: self.array.estimate(),
            losses: self.losses.estimate(),
            sectors: self.sectors.mean(),
            shares: self.causes.map(|part| if all > 0.0 { part / all } else { 0.0 }),
            degraded_hours: self.degraded_hours.mean(),
        }
    }
}

#[cfg(test)]
mod tests;
