//! The comparison of layouts: inputs in, rows and one sentence of advice out.
//!
//! A pure function of its inputs, seed included. Speeds are not this module's business: whoever has
//! the engine on modelled disks gives them, and with them the rate of rebuilds under the load.

use metadata::Result;

use super::advice;
use super::candidate::{Candidate, Placement};
use super::estimate::Estimate;
use super::inputs::{Inputs, LatentRate};
use super::latent::{Latent, Scrub};
use super::life::Weibull;
use super::rate::HOURS_PER_YEAR;
use super::rebuild::{Load, RebuildHours, rebuild_hours};
use super::repair::Repair;
use super::simulate::{Cause, Outcome, System, simulate};
use super::what_if::{Change, WhatIf};
use crate::experiment::outcome::Figures;
use crate::parallel::in_parallel;

/// Bytes lost with one unreadable sector: the block of checksums and of most file systems.
const BLOCK_BYTES: f64 = 4096.0;
/// Further questions of a row get this fraction of its runs.
const FEWER_RUNS: f64 = 5.0;
/// More disks get fewer runs: each has more failures, says more and takes longer.
const MANY_DISKS: f64 = 24.0;

/// Speeds of a layout, one for each load of the comparison.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct LayoutSpeeds {
    /// With all disks.
    pub healthy: Vec<Speed>,
    /// With one disk missing; empty where that is fatal.
    pub degraded: Vec<Speed>,
    /// During a rebuild; empty where nothing can be rebuilt.
    pub rebuilding: Vec<Speed>,
    /// Bytes of the new disk that are rebuilt in a second under the load, at its outer tracks.
    pub rebuild_rate: Option<f64>,
}

/// What clients get under a load.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Requests per second.
    pub per_second: f64,
    /// Bytes per second.
    pub bytes_per_second: f64,
    /// Median latency, microseconds.
    pub p50_us: f64,
    /// Latency that one request in a hundred exceeds, microseconds.
    pub p99_us: f64,
}

impl Speed {
    pub(crate) fn of(figures: &Figures) -> Speed {
        Speed {
            per_second: figures.requests_per_s,
            bytes_per_second: figures.bytes_per_s,
            p50_us: figures.p50_ns / 1000.0,
            p99_us: figures.p99_ns / 1000.0,
        }
    }
}

impl LayoutSpeeds {
    /// The healthy speeds in one number: their geometric mean; 0 without any.
    pub fn score(&self) -> f64 {
        let logs = self.healthy.iter().map(|speed| speed.bytes_per_second.max(1.0).ln());
        let mean = logs.sum::<f64>() / self.healthy.len().max(1) as f64;
        if self.healthy.is_empty() { 0.0 } else { mean.exp() }
    }
}

/// One layout's row.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The layout.
    pub candidate: Candidate,
    /// Its name.
    pub name: String,
    /// Bytes for data, after all metadata.
    pub usable_bytes: u64,
    /// Disks that may always be lost.
    pub tolerated: usize,
    /// Speeds, if they were given.
    pub speeds: Option<LayoutSpeeds>,
    /// Hours of a rebuild; `None` where nothing can be rebuilt.
    pub rebuild: Option<RebuildHours>,
    /// Hours from a failure to full redundancy: detection, delivery or spare, rebuild. `None` where
    /// nothing can be rebuilt.
    pub window_hours: Option<f64>,
    /// Chance of any loss of data in the mission.
    pub loss: Estimate,
    /// Its most frequent cause.
    pub cause: Option<Cause>,
    /// The same chance by the other published rate of latent errors.
    pub loss_at_other_rate: Estimate,
    /// Bytes lost in the mission, on average over many arrays.
    pub bytes_lost: f64,
    /// Hours per year with a disk missing, on average.
    pub degraded_hours_per_year: f64,
    /// What would change the chance of loss.
    pub what_if: Vec<WhatIf>,
}

impl Row {
    /// NOMDL: bytes lost in the mission per usable byte (Greenan, Plank, Wylie '10).
    pub fn lost_share(&self) -> f64 {
        self.bytes_lost / self.usable_bytes as f64
    }
}

/// The result of [`plan`].
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The layouts, the best for the goal first.
    pub rows: Vec<Row>,
    /// The rate of latent errors in `loss`.
    pub latent: LatentRate,
    /// The rate in `loss_at_other_rate`.
    pub other_latent: LatentRate,
    /// One sentence.
    pub advice: String,
}

/// To be printed below every comparison.
pub const CAVEAT: &str = "Administrators, software and fire are not in these figures. No layout \
                          replaces a backup.";

/// Compares all candidates. `speeds` are theirs in the same order, if they were measured.
///
/// # Errors
/// Refused: a candidate that cannot be created on these disks.
pub fn plan(inputs: &Inputs, speeds: Option<&[LayoutSpeeds]>) -> Result<Comparison> {
    inputs.check()?;
    let inputs = &inputs.thinned((inputs.disks as f64 / MANY_DISKS).powi(2).max(1.0));
    let tasks: Vec<_> = inputs.candidates.iter().enumerate().collect();
    let run = |&(index, candidate): &(usize, &Candidate)| {
        row(inputs, candidate, speeds.and_then(|all| all.get(index)))
    };
    let rows = in_parallel(&tasks, inputs.threads, run, &|_, _| {}).into_iter();
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    inputs.goal.sort(&mut rows);
    let advice = advice::sentence(&rows, inputs);
    Ok(Comparison { rows, latent: inputs.latent, other_latent: inputs.latent.other(), advice })
}

fn row(inputs: &Inputs, candidate: &Candidate, speeds: Option<&LayoutSpeeds>) -> Result<Row> {
    let measured = speeds.and_then(|it| it.rebuild_rate).filter(|_| inputs.load.is_measured);
    let share = measured.map(|rate| (rate / inputs.kind.outer_rate).min(1.0));
    let load = Load { share: share.unwrap_or(inputs.load.share), ..inputs.load };
    let inputs = &Inputs { load, ..inputs.clone() };
    let (world, outcome) = answer(inputs, candidate)?;
    let fewer = inputs.thinned(FEWER_RUNS);
    let other = Inputs { latent: inputs.latent.other(), ..fewer.clone() };
    let (placement, redundant) = (&world.placement, world.placement.tolerated > 0);
    Ok(Row {
        candidate: *candidate,
        name: candidate.name(),
        usable_bytes: placement.usable_bytes,
        tolerated: placement.tolerated,
        speeds: speeds.cloned(),
        rebuild: redundant.then_some(world.rebuild),
        window_hours: redundant.then(|| world.repair.typical_hours()),
        loss: outcome.any,
        cause: outcome.dominating(),
        loss_at_other_rate: answer(&other, candidate)?.1.any,
        bytes_lost: outcome.array.mean * placement.usable_bytes as f64
            + outcome.sectors * BLOCK_BYTES,
        degraded_hours_per_year: outcome.degraded_hours / inputs.mission_hours * HOURS_PER_YEAR,
        what_if: what_if(&fewer, candidate, redundant)?,
    })
}

/// What follows from inputs and candidate before anything is simulated.
struct World {
    placement: Placement,
    rebuild: RebuildHours,
    repair: Repair,
}

fn world(inputs: &Inputs, candidate: &Candidate) -> Result<World> {
    let placement = candidate.place(inputs.disks, inputs.kind.bytes)?;
    let rebuild = rebuild_hours(placement.member_bytes, &inputs.kind, inputs.load);
    let repair = Repair {
        detection_hours: inputs.detection_hours,
        delivery_hours: inputs.delivery_hours,
        rebuild: Weibull::fixed(rebuild.zone_corrected),
        spares: candidate.spares,
    };
    Ok(World { placement, rebuild, repair })
}

fn answer(inputs: &Inputs, candidate: &Candidate) -> Result<(World, Outcome)> {
    let world = world(inputs, candidate)?;
    let bits = 8.0 * world.placement.member_bytes as f64;
    let latent = Latent {
        rate: inputs.latent.per_hour(),
        scrub: inputs.scrub_hours.map_or(Scrub::Never, Scrub::Every),
        unread_hours: world.repair.wait_hours() + world.rebuild.zone_corrected / 2.0,
        per_pass: -f64::exp_m1(-inputs.unreadable_bits * bits),
    };
    let system = System {
        redundancy: world.placement.redundancy.clone(),
        life: inputs.life.clone(),
        age_hours: inputs.age_hours,
        repair: world.repair,
        latent,
        correlation: inputs.correlation,
        mission_hours: inputs.mission_hours,
    };
    let outcome = simulate(&system, inputs.runs);
    Ok((world, outcome))
}

/// The changes that make sense here, and their chances of loss.
fn what_if(inputs: &Inputs, candidate: &Candidate, redundant: bool) -> Result<Vec<WhatIf>> {
    let changes = Change::sensible(inputs, candidate, redundant);
    let each = changes.into_iter().map(|change| {
        let (inputs, candidate) = change.apply(inputs, candidate);
        let loss = answer(&inputs, &candidate)?.1.any;
        let other = Inputs { latent: inputs.latent.other(), ..inputs };
        Ok(WhatIf { change, loss, loss_at_other_rate: answer(&other, &candidate)?.1.any })
    });
    each.collect()
}
