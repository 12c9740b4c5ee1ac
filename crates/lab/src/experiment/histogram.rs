//! A histogram of latencies: 64 buckets to each power of two, as fio has it. A value read from it
//! is wrong by at most 0.8 %.

use serde::{Deserialize, Serialize};

/// Buckets to a power of two.
const STEPS: u64 = 64;

/// A histogram of nanoseconds. Its serialized form is a list of `[lower bound, count]`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Histogram {
    counts: Vec<u64>,
}

fn index(value: u64) -> usize {
    let shift = (63 - (value | STEPS).leading_zeros() as u64) - 6;
    (shift * STEPS + (value >> shift)) as usize
}

fn lower(index: usize) -> u64 {
    let index = index as u64;
    let shift = (index / STEPS).saturating_sub(1);
    let bound = u128::from(index - shift * STEPS) << shift;
    u64::try_from(bound).unwrap_or(u64::MAX)
}

impl Histogram {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    fn add_many(&mut self, value: u64, count: u64) {
        let index = index(value);
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] = self.counts[index].saturating_add(count);
    }

    /// Adds the values of another one.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.resize(self.counts.len().max(other.counts.len()), 0);
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| {
            *mine = mine.saturating_add(*theirs);
        });
    }

    /// How many values it has.
    pub fn len(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// True if it has no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The buckets that are not empty: lower bound, first value above it, count.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let counts = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        counts.map(|(index, &count)| (lower(index), lower(index + 1), count))
    }

    /// The value that this share (0 to 1) does not exceed: the middle of its bucket; 0 without any.
    pub fn percentile(&self, share: f64) -> u64 {
        let rank = ((self.len() as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        let mut reached = self.buckets().skip_while(|(_, _, count)| {
            below = count.saturating_add(below);
            below < rank
        });
        reached.next().map_or(0, |(from, to, _)| from + (to - from) / 2)
    }

    /// The share (0 to 1) of values in `from..to`, as far as buckets tell.
    pub fn share(&self, from: u64, to: u64) -> f64 {
        let inside = self.buckets().filter(|(lower, upper, _)| {
            let middle = lower + (upper - lower) / 2;
            from <= middle && middle < to
        });
        inside.map(|(_, _, count)| count as f64).sum::<f64>() / self.len().max(1) as f64
    }
}

impl From<Vec<(u64, u64)>> for Histogram {
    fn from(list: Vec<(u64, u64)>) -> Histogram {
        let mut histogram = Histogram::default();
        list.into_iter().for_each(|(value, count)| histogram.add_many(value, count));
        histogram
    }
}

impl From<Histogram> for Vec<(u64, u64)> {
    fn from(histogram: Histogram) -> Vec<(u64, u64)> {
        histogram.buckets().map(|(lower, _, count)| (lower, count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_its_bucket_and_buckets_are_narrow() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1 << shift) + (1 << shift) / 3, u64::MAX >> shift] {
                let index = index(value);
                assert!(lower(index) <= value, "{value}");
                if value < 1 << 62 {
                    assert!(value < lower(index + 1), "{value}");
                    assert!((lower(index + 1) - lower(index)) as f64 <= value as f64 / 64.0 + 1.0);
                }
            }
        }
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        let mut histogram = Histogram::default();
        (1..=1000u64).for_each(|value| histogram.add(value * 1_000_000));
        for (share, ms) in [(0.0, 1.0), (0.5, 500.0), (0.99, 990.0), (0.999, 999.0), (1.0, 1000.0)]
        {
            let found = histogram.percentile(share) as f64 / 1e6;
            assert!((found / ms - 1.0).abs() < 0.01, "{share}: {found}");
        }
        assert_eq!(Histogram::default().percentile(0.5), 0);
        let json = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }
}
