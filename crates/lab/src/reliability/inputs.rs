//! What a comparison is made of.

use metadata::{Error, Result};

use super::candidate::Candidate;
use super::goal::Goal;
use super::life::Life;
use super::rate::{ELERATH_LATENT_RATE, HOURS_PER_YEAR, NEARLINE_LATENT_RATE, Rates};
use super::rebuild::{DiskKind, Load};
use super::simulate::{Correlation, Runs};

/// How often latent sector errors come.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum LatentRate {
    /// As on nearline disks: [`NEARLINE_LATENT_RATE`].
    Nearline,
    /// [`ELERATH_LATENT_RATE`], 28 times as often.
    Elerath,
    /// This many per disk-hour.
    PerHour(f64),
}

impl LatentRate {
    /// Errors per disk-hour.
    pub const fn per_hour(self) -> f64 {
        match self {
            LatentRate::Nearline => NEARLINE_LATENT_RATE,
            LatentRate::Elerath => ELERATH_LATENT_RATE,
            LatentRate::PerHour(rate) => rate,
        }
    }

    /// The published rate to show beside this one.
    pub const fn other(self) -> LatentRate {
        match self {
            LatentRate::Elerath => LatentRate::Nearline,
            LatentRate::Nearline | LatentRate::PerHour(_) => LatentRate::Elerath,
        }
    }
}

/// What a comparison is made of.
#[derive(Clone, PartialEq, Debug)]
pub struct Inputs {
    /// Number of disks, spares included.
    pub disks: usize,
    /// Their model.
    pub kind: DiskKind,
    /// The layouts to compare.
    pub candidates: Vec<Candidate>,
    /// How long disks live.
    pub life: Life,
    /// Hours that the disks have been in service.
    pub age_hours: f64,
    /// The time to look at, in hours.
    pub mission_hours: f64,
    /// How often latent sector errors come.
    pub latent: LatentRate,
    /// Hours between two scrubs; `None`: never.
    pub scrub_hours: Option<f64>,
    /// Unreadable bits per bit read, found by no scrub; 0: none. Data sheets say "less than 1e-14".
    pub unreadable_bits: f64,
    /// Hours until a failure is noticed.
    pub detection_hours: f64,
    /// Hours until a new disk is installed.
    pub delivery_hours: f64,
    /// What a rebuild gets of the disks.
    pub load: Load,
    /// What disks share.
    pub correlation: Correlation,
    /// What matters most.
    pub goal: Goal,
    /// How thoroughly to simulate.
    pub runs: Runs,
    /// Threads that compute: one unless the caller says so. They change no figure.
    pub threads: usize,
}

impl Inputs {
    /// Five years of disks as Backblaze has them, on average: a scrub every 30 days, two days to
    /// replace a disk, rebuilds that get half of the disks' rate.
    pub fn new(disks: usize, kind: DiskKind) -> Inputs {
        let rates = Rates::built_in();
        let fleet = rates.class("fleet").expect("the table has this class");
        Inputs {
            disks,
            kind,
            candidates: Candidate::usual(disks),
            life: fleet.life(),
            age_hours: 0.0,
            mission_hours: 5.0 * HOURS_PER_YEAR,
            latent: LatentRate::Nearline,
            scrub_hours: Some(30.0 * 24.0),
            unreadable_bits: 0.0,
            detection_hours: 1.0,
            delivery_hours: 48.0,
            load: Load { share: 0.5, ..Load::IDLE },
            correlation: Correlation::NONE,
            goal: Goal::Safe,
            runs: Runs { count: 50_000, seed: 1 },
            threads: 1,
        }
    }

    /// The same with fewer runs.
    pub(super) fn thinned(&self, divisor: f64) -> Inputs {
        let count = (f64::from(self.runs.count) / divisor) as u32;
        Inputs { runs: Runs { count, ..self.runs }, ..self.clone() }
    }

    /// Refuses numbers that mean nothing.
    pub(super) fn check(&self) -> Result<()> {
        let hazard = self.life.accumulated(self.age_hours + self.mission_hours)
            - self.life.accumulated(self.age_hours);
        let above_zero = [
            ("mission", self.mission_hours),
            ("failure rate", hazard),
            ("rate of the disk", self.kind.outer_rate),
            ("inner tracks", self.kind.inner_share),
            ("share of a rebuild", self.load.share),
            ("limit of a rebuild", self.load.limit.unwrap_or(1.0)),
            ("scrub interval", self.scrub_hours.unwrap_or(1.0)),
            ("correlation factor", self.correlation.factor),
        ];
        let not_negative = [
            ("age", self.age_hours),
            ("detection", self.detection_hours),
            ("delivery", self.delivery_hours),
            ("latent errors", self.latent.per_hour()),
            ("unreadable bits", self.unreadable_bits),
            ("shared faults", self.correlation.shared_faults),
        ];
        let above_zero = above_zero.into_iter().map(|(what, value)| (what, value, value > 0.0));
        let others = not_negative.into_iter().map(|(what, value)| (what, value, value >= 0.0));
        let wrong =
            above_zero.chain(others).find(|(_, value, right)| !right || value.is_infinite());
        match wrong {
            None => Ok(()),
            Some((what, value, _)) => Err(Error::refused(format!(
                "plan: {what}: {value} is out of range; choose a positive number"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_nothing_are_refused() {
        let kind = DiskKind {
            name: "disk".into(),
            bytes: 1_000_000_000_000,
            outer_rate: 200e6,
            inner_share: 0.5,
        };
        let inputs = Inputs::new(6, kind);
        assert!(inputs.check().is_ok());
        let with = |change: fn(&mut Inputs)| {
            let mut inputs = inputs.clone();
            change(&mut inputs);
            inputs.check().expect_err("out of range").to_string()
        };
        for (change, what) in [
            ((|i| i.mission_hours = 0.0) as fn(&mut Inputs), "mission"),
            (|i| i.life = Life::constant(0.0), "failure rate"),
            (|i| i.load.share = f64::NAN, "share of a rebuild"),
            (|i| i.scrub_hours = Some(-1.0), "scrub interval"),
            (|i| i.delivery_hours = f64::INFINITY, "delivery"),
            (|i| i.latent = LatentRate::PerHour(-1.0), "latent errors"),
        ] {
            let text = with(change);
            assert!(text.contains(&format!("plan: {what}: ")), "{text}");
        }
    }
}
