//! What matters most to the user: the order of the layouts.

use super::compare::Row;
use super::estimate::LEAST_PRINTED;

/// What matters most.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Goal {
    /// The least chance of loss.
    #[default]
    Safe,
    /// The most requests under the load, with all disks.
    Fast,
    /// The most usable bytes.
    Space,
}

/// Speeds and sizes that differ by less than this are equal: the next criterion decides.
const EQUAL_SPEED: f64 = 0.05;
const EQUAL_SIZE: f64 = 0.01;

impl Goal {
    /// Sorts rows, the best first. Layouts that survive no failure are last whatever the goal is:
    /// they stand there for comparison.
    pub(super) fn sort(self, rows: &mut [Row]) {
        let speed = |row: &Row| row.speeds.as_ref().map_or(0.0, |speeds| speeds.score());
        let fastest = rows.iter().map(speed).fold(1.0, f64::max);
        let largest = rows.iter().map(|row| row.usable_bytes as f64).fold(1.0, f64::max);
        // Steps below the best, as a whole number: small is good.
        let slowness = |row: &Row| steps(fastest / speed(row).max(1e-9), EQUAL_SPEED);
        let smallness = |row: &Row| steps(largest / row.usable_bytes as f64, EQUAL_SIZE);
        // Chances that are not printed are equal.
        let loss = |row: &Row| row.loss.mean.max(LEAST_PRINTED);
        rows.sort_by(|a, b| {
            let safe = loss(a).total_cmp(&loss(b));
            let fast = slowness(a).cmp(&slowness(b));
            let space = smallness(a).cmp(&smallness(b));
            let order = match self {
                Goal::Safe => safe.then(space).then(fast),
                Goal::Fast => fast.then(safe).then(space),
                Goal::Space => space.then(safe).then(fast),
            };
            (a.tolerated == 0).cmp(&(b.tolerated == 0)).then(order)
        });
    }
}

fn steps(ratio: f64, step: f64) -> i64 {
    (ratio.ln() / step).round() as i64
}
