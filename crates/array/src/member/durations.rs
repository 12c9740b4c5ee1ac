//! How long a member's operations have taken: counts that only grow, for monitoring systems.
//!
//! Unlike [`super::latency`], which forgets, they say what happened between any two looks.

use std::time::Duration;

use super::Count;

/// Bounds for each doubling, from 32 microseconds to some 17 seconds.
const BOUNDS: usize = 20;
/// The first bound is 2 to this power of microseconds.
const FIRST: u32 = 5;

/// Counts of one kind of operations; see [`Durations`].
#[derive(Default, Debug)]
pub(crate) struct DurationCounts {
    /// Operations up to each bound, and above the one before; the last without a bound.
    counts: [Count; BOUNDS + 1],
    nanos: Count,
}

impl DurationCounts {
    pub(crate) fn add(&self, duration: Duration) {
        let micros = duration.as_nanos().div_ceil(1000).max(1);
        let bound = (u128::BITS - (micros - 1).leading_zeros()).saturating_sub(FIRST);
        self.counts[(bound as usize).min(BOUNDS)].add(1);
        self.nanos.add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX >> 1));
    }

    /// Adds them to others.
    pub(crate) fn collect(&self, into: &mut Durations) {
        for (sum, count) in into.counts.iter_mut().zip(&self.counts) {
            *sum += count.get();
        }
        into.sum += Duration::from_nanos(self.nanos.get());
    }
}

/// The durations of the operations of clients' requests, since the start of the array. Those that
/// ended as soon as they were sent count as zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durations {
    /// For each of [`Durations::bounds`], the operations that took no longer, and longer than the
    /// bound before. One more for those above the last.
    pub counts: Vec<u64>,
    /// The sum of all durations.
    pub sum: Duration,
}

impl Durations {
    /// The bounds, ascending.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        (0..BOUNDS as u32).map(|bound| Duration::from_micros(1 << (FIRST + bound)))
    }
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { counts: vec![0; BOUNDS + 1], sum: Duration::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_at_the_first_bound_that_is_no_shorter() {
        let bounds: Vec<Duration> = Durations::bounds().collect();
        let nano = Duration::from_nanos(1);
        for (index, bound) in bounds.iter().enumerate() {
            for (duration, wanted) in [(*bound - nano, index), (*bound, index)] {
                assert_eq!(place(duration), wanted, "{duration:?}");
            }
            assert_eq!(place(*bound + nano), index + 1, "{bound:?}");
        }
        assert_eq!(place(Duration::ZERO), 0);
        assert_eq!(place(Duration::from_secs(3600)), bounds.len());
    }

    fn place(duration: Duration) -> usize {
        let (counts, mut all) = (DurationCounts::default(), Durations::default());
        counts.add(duration);
        counts.collect(&mut all);
        assert_eq!((all.counts.iter().sum::<u64>(), all.sum), (1, duration));
        all.counts.iter().position(|&count| count == 1).unwrap()
    }
}
