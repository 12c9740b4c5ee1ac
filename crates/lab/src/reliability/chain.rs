//! Exact chance of loss for exponential failures and repairs: a chain of states, by number of
//! disks down.
//!
//! ```text
//!            n λ        (n−1) λ            (n−m) λ
//!   0 down ──────▶ 1 down ──────▶ … m down ───────▶ lost
//!          ◀──────        ◀──────
//!             μ         2 μ (parallel) or μ (serial)
//! ```
//!
//! Solved by uniformization: jumps of a discrete chain at the instants of a Poisson process that is
//! as fast as the fastest state. All terms are positive, so a chance of 10⁻¹² keeps its digits.
//!
//! The chain has neither latent sector errors nor ageing, and its repairs have no memory. It is the
//! reference for [`simulate`](super::simulate()), not an answer for users. The mean time to data
//! loss says nothing of five years (Greenan, Plank, Wylie, HotStorage'10); only tests compute it.

/// How many disks are repaired at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Crew {
    /// All that are down.
    Parallel,
    /// One after the other.
    Serial,
}

/// A group of disks that survives the loss of any `tolerated` of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Chain {
    /// Disks of the group, spares not counted.
    pub disks: usize,
    /// Disks that may be down at the same time.
    pub tolerated: usize,
    /// Failures of a disk per hour.
    pub failure_rate: f64,
    /// Mean hours from a failure to the end of the rebuild.
    pub repair_hours: f64,
    /// How repairs run.
    pub crew: Crew,
}

impl Chain {
    /// A group with parallel repairs.
    pub fn new(disks: usize, tolerated: usize, failure_rate: f64, repair_hours: f64) -> Chain {
        Chain { disks, tolerated, failure_rate, repair_hours, crew: Crew::Parallel }
    }

    /// Chance that the group loses data within `hours`.
    pub fn loss(&self, hours: f64) -> f64 {
        let states = self.tolerated + 1;
        let fastest =
            (0..states).map(|down| self.failures(down) + self.repairs(down)).fold(0.0, f64::max);
        let jumps = fastest * hours;
        if jumps <= 0.0 {
            return 0.0;
        }
        // Beyond this many jumps the Poisson weights are below 10⁻³⁰.
        let most = jumps + 12.0 * jumps.sqrt() + 50.0;
        let mut chances = vec![0.0; states];
        chances[0] = 1.0;
        let (mut lost, mut within, mut log_weight, mut count) = (0.0, 0.0, -jumps, 0.0);
        while count <= most {
            within += f64::exp(log_weight) * lost;
            lost += chances[states - 1] * self.failures(states - 1) / fastest;
            chances = self.jump(&chances, fastest);
            count += 1.0;
            log_weight += f64::ln(jumps / count);
        }
        within
    }

    /// The chances after one jump; what leaves the last state is lost.
    fn jump(&self, chances: &[f64], fastest: f64) -> Vec<f64> {
        let flow = |down: usize, rate: f64| chances.get(down).map_or(0.0, |c| c * rate / fastest);
        let after = chances.iter().enumerate().map(|(down, chance)| {
            let stay = 1.0 - (self.failures(down) + self.repairs(down)) / fastest;
            let failed = match down {
                0 => 0.0,
                _ => flow(down - 1, self.failures(down - 1)),
            };
            chance * stay + failed + flow(down + 1, self.repairs(down + 1))
        });
        after.collect()
    }

    /// Failures per hour with this many disks down.
    fn failures(&self, down: usize) -> f64 {
        self.disks.saturating_sub(down) as f64 * self.failure_rate
    }

    /// Repairs per hour with this many disks down.
    fn repairs(&self, down: usize) -> f64 {
        let crews = match self.crew {
            Crew::Parallel => down,
            Crew::Serial => down.min(1),
        };
        crews as f64 / self.repair_hours
    }

    /// Mean hours to the loss of data.
    #[cfg(test)]
    pub(super) fn mean_hours(&self) -> f64 {
        // The time to go one state further: 1/failures, and again after each way back.
        let mut further = 0.0;
        let step = |down| {
            let (fail, repair) = (self.failures(down), self.repairs(down));
            further = (1.0 + repair * further) / fail;
            further
        };
        (0..=self.tolerated).map(step).sum()
    }
}

/// Chance that any of `groups` independent groups is lost, if one is lost with this chance: RAID 10
/// over pairs, RAID 50 and 60 over their inner arrays.
pub fn any_of(groups: usize, chance: f64) -> f64 {
    -f64::exp_m1(groups as f64 * f64::ln_1p(-chance))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliability::rate::per_hour;

    const FIVE_YEARS: f64 = 5.0 * 8760.0;
    const COLUMNS: [(f64, f64); 4] = [(0.015, 24.0), (0.015, 72.0), (0.03, 24.0), (0.03, 72.0)];

    /// Equal to four digits and half a unit of the fifth.
    #[track_caller]
    fn same(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 6e-5, "{found:e} instead of {expected:e}");
    }

    #[test]
    fn every_value_of_the_table() {
        let table: [(usize, usize, usize, [f64; 4]); 6] = [
            (2, 1, 1, [6.2539e-6, 1.8736e-5, 2.5398e-5, 7.6069e-5]),
            (4, 1, 1, [3.7517e-5, 1.1236e-4, 1.5232e-4, 4.5587e-4]),
            (10, 1, 1, [2.8120e-4, 8.4112e-4, 1.1407e-3, 3.4038e-3]),
            (10, 2, 1, [4.6578e-8, 4.1803e-7, 3.8105e-7, 3.4158e-6]),
            (11, 3, 1, [7.0706e-12, 1.9031e-10, 1.1658e-10, 3.1341e-9]),
            (2, 1, 5, [3.1269e-5, 9.3679e-5, 1.2698e-4, 3.8029e-4]),
        ];
        for (disks, tolerated, groups, values) in table {
            for ((afr, hours), expected) in COLUMNS.into_iter().zip(values) {
                let chain = Chain::new(disks, tolerated, per_hour(afr), hours);
                same(any_of(groups, chain.loss(FIVE_YEARS)), expected);
            }
        }
    }

    #[test]
    fn serial_repair_doubles_the_loss_of_two_parities() {
        let chain = Chain::new(10, 2, per_hour(0.015), 24.0);
        same(Chain { crew: Crew::Serial, ..chain }.loss(FIVE_YEARS), 9.3116e-8);
    }

    #[test]
    fn mean_times_of_the_table() {
        let years = |disks, tolerated, afr, hours| {
            Chain::new(disks, tolerated, per_hour(afr), hours).mean_hours() / 8760.0
        };
        for (found, expected) in [
            (years(2, 1, 0.015, 24.0), 7.99e5),
            (years(10, 1, 0.015, 24.0), 1.777e4),
            (years(10, 1, 0.03, 72.0), 1464.0),
            (years(10, 2, 0.015, 24.0), 1.073e8),
        ] {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} instead of {expected}");
        }
    }

    #[test]
    fn the_group_of_elerath_and_pecht() {
        let chain = Chain::new(8, 1, 1.0 / 461_386.0, 12.0);
        let years = chain.mean_hours() / 8760.0;
        assert!((years - 36_176.0).abs() < 1.0, "{years}");
        let in_thousand = 1000.0 * chain.loss(10.0 * 8760.0);
        assert!((in_thousand - 0.2763).abs() < 1e-4, "{in_thousand}");
    }

    #[test]
    fn no_redundancy_is_the_first_failure() {
        let chain = Chain::new(4, 0, 1e-6, 24.0);
        same(chain.loss(1000.0), -f64::exp_m1(-4e-3));
    }
}
