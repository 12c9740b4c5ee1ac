//! Latent sector errors: a sector has become unreadable, and nobody has noticed.
//!
//! A scrub finds and repairs them while the array has redundancy left. The rebuild of a disk meets
//! those that are left on the disks it needs:
//!
//! ```text
//!   scrub            error        failure     the rebuild reads the sector
//!     │────────────────┼─────────────┼────────────────┼──▶ time
//!     │◀───────────── exposure ──────────────────────▶│
//! ```
//!
//! With periodic scrubs the chance of an error is computed from the exposure, not drawn: one run
//! says as much as thousands that draw. Errors of two disks in the same row are left out: with one
//! disk down, RAID 6 loses such a row, but errors are far too few for that.

use random::Rng;

use super::life::{Weibull, exponential, uniform};

/// When latent errors are found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scrub {
    /// By rebuilds only.
    Never,
    /// By a scrub of the whole array, every so many hours.
    Every(f64),
    /// Each error by itself, this long after it has come: the model of Elerath and Pecht.
    Each(Weibull),
}

/// How latent errors come, and how they are found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latent {
    /// Errors per disk-hour.
    pub rate: f64,
    /// How they are found.
    pub scrub: Scrub,
    /// Mean hours from a failure until the rebuild has read a sector: errors that come until then
    /// count.
    pub unread_hours: f64,
    /// Chance that reading a whole disk meets an error that no scrub could find: the data sheet's
    /// "1 in 10^14 bits" taken literally. 0 otherwise.
    pub per_pass: f64,
}

impl Latent {
    /// No latent errors.
    pub const NONE: Latent =
        Latent { rate: 0.0, scrub: Scrub::Never, unread_hours: 0.0, per_pass: 0.0 };

    /// Errors at this rate, found so.
    pub const fn new(rate: f64, scrub: Scrub) -> Latent {
        Latent { rate, scrub, ..Latent::NONE }
    }
}

/// The latent errors of an array in one run.
pub(super) struct Errors {
    latent: Latent,
    /// A scrub ends at this time, and every interval before and after.
    phase: f64,
    disks: Vec<Disk>,
}

/// One disk's.
#[derive(Clone, Copy)]
struct Disk {
    /// Without errors until this time at least.
    clean: f64,
    /// The next or present error and when it is found; [`Scrub::Each`] only.
    error: (f64, f64),
}

impl Errors {
    /// Clean disks.
    pub(super) fn new(latent: Latent, disks: usize, rng: &mut Rng) -> Errors {
        let phase = match latent.scrub {
            Scrub::Every(interval) => interval * uniform(rng),
            Scrub::Never | Scrub::Each(_) => 0.0,
        };
        let clean = Disk { clean: 0.0, error: (-1.0, 0.0) };
        Errors { latent, phase, disks: vec![clean; disks] }
    }

    /// The disk was replaced, or read and repaired.
    pub(super) fn clean(&mut self, disk: usize, now: f64) {
        self.disks[disk] = Disk { clean: now, error: (-1.0, now) };
    }

    /// Chance that a rebuild that becomes necessary now meets an error on this disk.
    pub(super) fn risk(&mut self, disk: usize, now: f64, rng: &mut Rng) -> f64 {
        let Latent { rate, scrub, unread_hours, per_pass } = self.latent;
        let disk = &mut self.disks[disk];
        let scrubbed = match scrub {
            Scrub::Never => 0.0,
            Scrub::Every(interval) => {
                self.phase + ((now - self.phase) / interval).floor() * interval
            }
            Scrub::Each(_) if rate == 0.0 => return per_pass,
            Scrub::Each(found) => {
                while disk.error.1 <= now {
                    let from = disk.error.1 + exponential(rng) / rate;
                    disk.error = (from, from + found.sample(rng));
                }
                return if disk.error.0 <= now { 1.0 } else { per_pass };
            }
        };
        let exposure = (now + unread_hours - disk.clean.max(scrubbed)).max(0.0);
        1.0 - f64::exp(-rate * exposure) * (1.0 - per_pass)
    }
}

/// How many rebuilds meet a latent error in a mission, by hand: this many `rebuilds` that must
/// succeed, each reading `sources` disks that were exposed for so many hours on average (half the
/// scrub interval; half the mission without).
///
/// A check for simulations, and too much where errors are frequent: it takes each rebuild's errors
/// as independent of the last rebuild's, which would have met them.
pub fn by_hand(rebuilds: f64, sources: usize, rate: f64, exposure_hours: f64) -> f64 {
    rebuilds * -f64::exp_m1(-(sources as f64) * rate * exposure_hours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposure_begins_at_the_last_scrub_or_replacement() {
        let mut rng = Rng::stream(1, "latent", 0);
        let latent = Latent { unread_hours: 10.0, ..Latent::new(1e-3, Scrub::Every(100.0)) };
        let mut errors = Errors::new(latent, 2, &mut rng);
        let at_scrub = errors.phase + 700.0;
        let hours = |risk: f64| -f64::ln(1.0 - risk) / 1e-3;
        assert!((hours(errors.risk(0, at_scrub + 40.0, &mut rng)) - 50.0).abs() < 1e-6);
        errors.clean(0, at_scrub + 25.0);
        assert!((hours(errors.risk(0, at_scrub + 40.0, &mut rng)) - 25.0).abs() < 1e-6);
    }

    #[test]
    fn errors_that_are_found_one_by_one_are_present_for_their_share() {
        let mut rng = Rng::stream(1, "latent", 1);
        let latent = Latent::new(1e-2, Scrub::Each(Weibull::fixed(100.0)));
        let mut errors = Errors::new(latent, 1, &mut rng);
        let count = 20_000;
        let present: f64 =
            (1..=count).map(|step| errors.risk(0, f64::from(step) * 50.0, &mut rng)).sum();
        assert!((present / f64::from(count) - 0.5).abs() < 0.02, "{present}");
    }

    #[test]
    fn the_data_sheet_taken_literally() {
        let mut rng = Rng::stream(1, "latent", 2);
        let mut errors = Errors::new(Latent { per_pass: 0.04, ..Latent::NONE }, 1, &mut rng);
        assert!((errors.risk(0, 5.0, &mut rng) - 0.04).abs() < 1e-12);
    }
}
