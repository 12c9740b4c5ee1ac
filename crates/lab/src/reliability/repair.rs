//! From a failure to full redundancy again: detection, a spare, the rebuild.
//!
//! ```text
//!   failure   detected    a disk is there          rebuilt
//!      │─────────┼─────────────┼──────────────────────┤
//!      │◀─────────── danger window ──────────────────▶│
//! ```
//!
//! A spare takes over after the detection. Its successor is ordered then, and is the new spare. A
//! failure meanwhile waits for that delivery, or has a disk delivered for itself, whichever comes
//! first.

use super::life::Weibull;

/// How failed disks are replaced.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Repair {
    /// Hours until a failure is noticed.
    pub detection_hours: f64,
    /// Hours from there until a disk is delivered and installed.
    pub delivery_hours: f64,
    /// Hours of the rebuild.
    pub rebuild: Weibull,
    /// Spares at hand.
    pub spares: usize,
}

impl Repair {
    /// The whole window drawn from one distribution: no spare, nothing to wait for.
    pub const fn whole(window: Weibull) -> Repair {
        Repair { detection_hours: 0.0, delivery_hours: 0.0, rebuild: window, spares: 0 }
    }

    /// Hours before the rebuild of a first failure begins.
    pub fn wait_hours(&self) -> f64 {
        self.detection_hours + if self.spares > 0 { 0.0 } else { self.delivery_hours }
    }

    /// Hours that a first failure typically lasts: above 0.
    pub fn typical_hours(&self) -> f64 {
        let hours = self.wait_hours() + self.rebuild.location + self.rebuild.scale;
        hours.max(f64::MIN_POSITIVE)
    }
}

/// The spares in one run: when each can be used.
pub(super) struct Spares(Vec<f64>);

impl Spares {
    pub(super) fn new(repair: &Repair) -> Spares {
        Spares(vec![0.0; repair.spares])
    }

    /// When the rebuild of a disk that fails now begins.
    pub(super) fn start(&mut self, repair: &Repair, now: f64) -> f64 {
        let noticed = now + repair.detection_hours;
        let delivered = noticed + repair.delivery_hours;
        match self.0.iter_mut().min_by(|a, b| a.total_cmp(b)) {
            Some(ready) if *ready < delivered => {
                let start = ready.max(noticed);
                *ready = delivered;
                start
            }
            _ => delivered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_failure_waits_for_the_delivery() {
        let rebuild = Weibull::fixed(20.0);
        let repair = Repair { detection_hours: 1.0, delivery_hours: 48.0, rebuild, spares: 1 };
        let mut spares = Spares::new(&repair);
        assert_eq!(spares.start(&repair, 100.0), 101.0);
        // The successor comes at 149.
        assert_eq!(spares.start(&repair, 110.0), 149.0);
        assert_eq!(spares.start(&repair, 120.0), 159.0);
        let mut none = Spares::new(&Repair { spares: 0, ..repair });
        assert_eq!(none.start(&repair, 100.0), 149.0);
    }
}
