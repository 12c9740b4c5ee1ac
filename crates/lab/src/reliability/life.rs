//! How long disks live and repairs take: distributions of hours.
//!
//! Everything is said by the *accumulated hazard* H(age): a disk of age a survives to b with chance
//! exp(H(a) − H(b)). A life is sampled by inverting H at an exponential number, and residual lives
//! and weights of importance sampling need nothing else.

use random::Rng;

use super::rate::HOURS_PER_YEAR;

/// A Weibull distribution that begins at `location`. Hours.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Weibull {
    /// Nothing happens earlier.
    pub location: f64,
    /// The characteristic time: 63 % happen within it (after `location`). 0: all at `location`.
    pub scale: f64,
    /// 1: exponential. Less: early failures. More: wear.
    pub shape: f64,
}

impl Weibull {
    /// With all three parameters.
    pub const fn new(shape: f64, scale: f64, location: f64) -> Weibull {
        Weibull { location, scale, shape }
    }

    /// The exponential distribution with this mean.
    pub const fn exponential(mean: f64) -> Weibull {
        Weibull::new(1.0, mean, 0.0)
    }

    /// Always the same time.
    pub const fn fixed(hours: f64) -> Weibull {
        Weibull::new(1.0, 0.0, hours)
    }

    /// A random time.
    pub fn sample(&self, rng: &mut Rng) -> f64 {
        match self.scale {
            0.0 => self.location,
            _ => self.time_at(exponential(rng)),
        }
    }

    fn accumulated(&self, time: f64) -> f64 {
        let reduced = ((time - self.location) / self.scale).max(0.0);
        if self.shape == 1.0 { reduced } else { reduced.powf(self.shape) }
    }

    fn time_at(&self, accumulated: f64) -> f64 {
        let reduced =
            if self.shape == 1.0 { accumulated } else { accumulated.powf(1.0 / self.shape) };
        self.location + self.scale * reduced
    }

    fn hazard(&self, time: f64) -> f64 {
        let reduced = (time - self.location) / self.scale;
        if reduced < 0.0 {
            0.0
        } else if self.shape == 1.0 {
            1.0 / self.scale
        } else {
            self.shape / self.scale * reduced.powf(self.shape - 1.0)
        }
    }
}

/// The lives of disks.
#[derive(Clone, PartialEq, Debug)]
pub enum Life {
    /// By a Weibull distribution of the age at failure.
    Weibull(Weibull),
    /// By rates that are constant over ranges of age.
    Ages(Vec<AgeRange>),
}

/// From this age on, up to the next range, disks fail at a constant rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AgeRange {
    /// Hours.
    from: f64,
    /// Failures per disk-hour.
    rate: f64,
    /// Hazard accumulated before.
    before: f64,
}

impl Life {
    /// The same rate (failures per hour) at every age.
    pub fn constant(rate: f64) -> Life {
        Life::Weibull(Weibull::exponential(1.0 / rate))
    }

    /// By (age in years, failures per hour from then on), in order of age. The first rate also
    /// holds before its age, the last one for ever.
    ///
    /// # Panics
    /// If there is no range, ages do not rise, or a rate is not positive.
    pub fn by_age(rates: &[(f64, f64)]) -> Life {
        assert!(!rates.is_empty() && rates.iter().all(|(_, rate)| *rate > 0.0));
        assert!(rates.windows(2).all(|pair| pair[0].0 < pair[1].0), "ages must rise");
        let (mut ranges, mut before) = (Vec::<AgeRange>::new(), 0.0);
        for (index, &(years, rate)) in rates.iter().enumerate() {
            let from = if index == 0 { 0.0 } else { years * HOURS_PER_YEAR };
            if let Some(last) = ranges.last() {
                before += last.rate * (from - last.from);
            }
            ranges.push(AgeRange { from, rate, before });
        }
        Life::Ages(ranges)
    }

    /// Hazard accumulated up to an age.
    pub fn accumulated(&self, age: f64) -> f64 {
        match self {
            Life::Weibull(weibull) => weibull.accumulated(age),
            Life::Ages(ranges) => {
                let range = last(ranges, |range| range.from <= age);
                range.before + range.rate * (age - range.from)
            }
        }
    }

    /// The age at which this hazard has accumulated.
    pub fn age_at(&self, accumulated: f64) -> f64 {
        match self {
            Life::Weibull(weibull) => weibull.time_at(accumulated),
            Life::Ages(ranges) => {
                let range = last(ranges, |range| range.before <= accumulated);
                range.from + (accumulated - range.before) / range.rate
            }
        }
    }

    /// Failures per hour at an age.
    pub fn hazard(&self, age: f64) -> f64 {
        match self {
            Life::Weibull(weibull) => weibull.hazard(age),
            Life::Ages(ranges) => last(ranges, |range| range.from <= age).rate,
        }
    }
}

/// The last range for which this holds, or the first one.
fn last(ranges: &[AgeRange], holds: impl Fn(&AgeRange) -> bool) -> &AgeRange {
    let past = ranges.partition_point(holds);
    &ranges[past.saturating_sub(1)]
}

/// A number in (0, 1].
pub(super) fn uniform(rng: &mut Rng) -> f64 {
    ((rng.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// An exponential number with mean 1.
pub(super) fn exponential(rng: &mut Rng) -> f64 {
    -uniform(rng).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulated_and_age_are_inverse() {
        let ages = Life::by_age(&[(0.0, 1e-6), (1.0, 3e-6), (4.0, 2e-6)]);
        let by_hand = (1.0 * 1e-6 + 3.0 * 3e-6 + 0.5 * 2e-6) * HOURS_PER_YEAR;
        assert!((ages.accumulated(4.5 * HOURS_PER_YEAR) / by_hand - 1.0).abs() < 1e-12);
        let weibull = Life::Weibull(Weibull::new(1.12, 461_386.0, 0.0));
        for life in [ages, weibull, Life::constant(2e-6)] {
            for age in [1.0, 8760.0, 20_000.0, 90_000.0] {
                let back = life.age_at(life.accumulated(age));
                assert!((back / age - 1.0).abs() < 1e-9, "{back} instead of {age}");
                let slope = (life.accumulated(age + 0.5) - life.accumulated(age)) / 0.5;
                assert!((slope / life.hazard(age + 0.25) - 1.0).abs() < 1e-3, "{slope} at {age}");
            }
        }
    }

    #[test]
    fn samples_have_the_mean() {
        // Γ(1 + 1/3) = 0.8930: the time to a scrub of Elerath's set is 6 + 168 · 0.893 h.
        let (scrub, mut rng) = (Weibull::new(3.0, 168.0, 6.0), Rng::stream(1, "mean", 0));
        let count = 100_000;
        let mean = (0..count).map(|_| scrub.sample(&mut rng)).sum::<f64>() / f64::from(count);
        assert!((mean - 156.02).abs() < 0.6, "{mean}");
        assert_eq!(Weibull::fixed(72.0).sample(&mut rng), 72.0);
    }
}
