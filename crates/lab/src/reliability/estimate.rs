//! Estimates with intervals, and chances as people read them.

use core::fmt;

/// No chance below this is printed: the model is not that good.
pub const LEAST_PRINTED: f64 = 1e-6;
/// Above this, hundredths would be rounded to certainty.
const CERTAIN: f64 = 0.99;
/// Half the width of a 95 % interval in standard errors.
const NINETY_FIVE: f64 = 1.96;

/// A mean, with its 95 % interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Estimate {
    /// The estimate.
    pub mean: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Estimate {
    /// Half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Prints the chance with its interval, in two digits: `1 in 290 (270 to 310)`.
impl fmt::Display for Estimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, mean, high) =
            (Odds::rounded(self.low), Odds::rounded(self.mean), Odds::rounded(self.high));
        write!(f, "{mean}")?;
        let (from, to) = match (high.one_in(), low.one_in()) {
            _ if mean.0 < LEAST_PRINTED => return Ok(()),
            (Some(from), Some(to)) => (grouped(from), grouped(to)),
            (None, None) if low.0 >= LEAST_PRINTED => (low.hundredths(), high.hundredths()),
            _ => (high.to_string(), low.to_string()),
        };
        if from == to { Ok(()) } else { write!(f, " ({from} to {to})") }
    }
}

/// A chance: prints `1 in 1,095`, `55 in 100` from 1 in 10 on, and nothing beyond one in a million.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
pub struct Odds(pub f64);

impl Odds {
    /// The chance in two digits, as much as an estimate is worth.
    pub fn rounded(chance: f64) -> Odds {
        if !(LEAST_PRINTED..0.1).contains(&chance) {
            return Odds(chance);
        }
        let one_in = 1.0 / chance;
        let unit = 10_f64.powf(one_in.log10().floor() - 1.0);
        Odds(1.0 / ((one_in / unit).round() * unit))
    }

    /// N of "N in 100".
    fn hundredths(self) -> String {
        (self.0 * 100.0).round().to_string()
    }

    /// N of "1 in N", where that is printed.
    pub fn one_in(self) -> Option<u64> {
        (LEAST_PRINTED..0.1).contains(&self.0).then(|| (1.0 / self.0).round() as u64)
    }
}

impl fmt::Display for Odds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.one_in() {
            Some(one_in) => write!(f, "1 in {}", grouped(one_in)),
            None if self.0 < LEAST_PRINTED => f.write_str("less than 1 in 1,000,000"),
            None if self.0 > CERTAIN => f.write_str("over 99 in 100"),
            None => write!(f, "{} in 100", self.hundredths()),
        }
    }
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Collects values for an [`Estimate`] of their mean.
#[derive(Clone, Copy, Default)]
pub(super) struct Samples {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Samples {
    pub(super) fn add(&mut self, value: f64) {
        self.count += 1.0;
        self.sum += value;
        self.squares += value * value;
    }

    pub(super) fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// With nothing but zeros the interval ends at 3 divided by their number.
    pub(super) fn estimate(&self) -> Estimate {
        let count = self.count.max(1.0);
        let mean = self.mean();
        if self.sum == 0.0 {
            return Estimate { mean, low: 0.0, high: 3.0 / count };
        }
        let variance = (self.squares / count - mean * mean).max(0.0);
        let half = NINETY_FIVE * (variance / count).sqrt();
        Estimate { mean, low: (mean - half).max(0.0), high: mean + half }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odds_as_people_read_them() {
        for (chance, text) in [
            (1.0 / 293.79, "1 in 294"),
            (1.0 / 292_758.3, "1 in 292,758"),
            (1.0 / 1_000_000.0, "1 in 1,000,000"),
            (1.0 / 2_392_162.0, "less than 1 in 1,000,000"),
            (7e-12, "less than 1 in 1,000,000"),
            (0.0, "less than 1 in 1,000,000"),
            (0.5519, "55 in 100"),
            (0.9971, "over 99 in 100"),
        ] {
            assert_eq!(Odds(chance).to_string(), text);
        }
        assert_eq!(Odds::rounded(1.0 / 292_758.3).to_string(), "1 in 290,000");
    }

    #[test]
    fn estimates_show_their_interval() {
        let estimate = Estimate { mean: 1.0 / 294.0, low: 1.0 / 306.0, high: 1.0 / 271.0 };
        assert_eq!(estimate.to_string(), "1 in 290 (270 to 310)");
        let often = Estimate { mean: 0.4466, low: 0.442, high: 0.451 };
        assert_eq!(often.to_string(), "45 in 100 (44 to 45)");
        let wide = Estimate { mean: 2e-6, low: 0.0, high: 4e-6 };
        let text = "1 in 500,000 (1 in 250,000 to less than 1 in 1,000,000)";
        assert_eq!(wide.to_string(), text);
        let rare = Estimate { mean: 1e-9, low: 0.0, high: 2e-9 };
        assert_eq!(rare.to_string(), "less than 1 in 1,000,000");
    }

    #[test]
    fn the_interval_is_that_of_the_mean() {
        let mut samples = Samples::default();
        (0..10_000).for_each(|n| samples.add(f64::from(n % 2)));
        let estimate = samples.estimate();
        assert!((estimate.mean - 0.5).abs() < 1e-12);
        assert!((estimate.half_width() - 1.96 * 0.5 / 100.0).abs() < 1e-9);
    }
}
