//! Changes to a plan that are worth a look.

use core::fmt;

use layout::{Level, MAX_SLOTS};

use super::candidate::Candidate;
use super::estimate::Estimate;
use super::inputs::Inputs;
use super::rate::HOURS_PER_DAY;

/// The scrub interval that is proposed, in hours.
const SCRUB_HOURS: f64 = 14.0 * HOURS_PER_DAY;

/// A change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Change {
    /// One more disk, as a spare.
    Spare,
    /// A scrub at this interval, in hours.
    Scrub(f64),
    /// RAID 6 in place of RAID 5, with one more disk for each array: the same usable bytes.
    SecondParity,
    /// Rebuilds that run twice as fast.
    FasterRebuild,
}

/// The chance of loss after a change.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WhatIf {
    /// The change.
    pub change: Change,
    /// Chance of any loss in the mission.
    pub loss: Estimate,
    /// The same by the other published rate of latent errors.
    pub loss_at_other_rate: Estimate,
}

impl Change {
    /// Those that make sense for this candidate.
    pub(super) fn sensible(inputs: &Inputs, candidate: &Candidate, redundant: bool) -> Vec<Change> {
        if !redundant {
            return Vec::new();
        }
        let members = inputs.disks - candidate.spares + candidate.arrays;
        let scrub = match inputs.scrub_hours {
            Some(hours) if hours <= SCRUB_HOURS => hours / 2.0,
            _ => SCRUB_HOURS,
        };
        let raid5 = candidate.layout.level() == Level::Raid5;
        let all = [
            (true, Change::Scrub(scrub)),
            (raid5 && members <= MAX_SLOTS, Change::SecondParity),
            (candidate.spares == 0, Change::Spare),
            (true, Change::FasterRebuild),
        ];
        all.into_iter().filter(|(sensible, _)| *sensible).map(|(_, change)| change).collect()
    }

    /// Inputs and candidate after the change.
    pub(super) fn apply(self, inputs: &Inputs, candidate: &Candidate) -> (Inputs, Candidate) {
        let (mut inputs, mut candidate) = (inputs.clone(), *candidate);
        match self {
            Change::Scrub(hours) => inputs.scrub_hours = Some(hours),
            Change::Spare => {
                candidate.spares += 1;
                inputs.disks += 1;
            }
            Change::SecondParity => {
                inputs.disks += candidate.arrays;
                let members = (inputs.disks - candidate.spares) / candidate.arrays;
                candidate.layout = Candidate::new(Level::Raid6, members).layout;
            }
            Change::FasterRebuild => {
                inputs.kind.outer_rate *= 2.0;
                inputs.load.limit = inputs.load.limit.map(|limit| limit * 2.0);
            }
        }
        (inputs, candidate)
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Change::Scrub(hours) if hours >= HOURS_PER_DAY => {
                write!(f, "a scrub every {} days", (hours / HOURS_PER_DAY * 10.0).round() / 10.0)
            }
            Change::Scrub(hours) => write!(f, "a scrub every {} hours", hours.round()),
            Change::SecondParity => f.write_str("raid6 with one more disk"),
            Change::Spare => f.write_str("one more disk as a spare"),
            Change::FasterRebuild => f.write_str("rebuilds twice as fast"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reliability::rebuild::DiskKind;

    #[test]
    fn changes_keep_the_usable_bytes() {
        let (bytes, outer_rate, inner_share) = (500_107_862_016, 86.8e6, 0.5);
        let kind = DiskKind { name: "disk".into(), bytes, outer_rate, inner_share };
        let inputs = Inputs::new(10, kind);
        let mut seen = 0;
        for candidate in inputs.candidates.iter().filter(|c| c.layout.level() != Level::Raid0) {
            let before = candidate.place(10, bytes).expect("a usual array");
            for change in Change::sensible(&inputs, candidate, true) {
                let (inputs, after) = change.apply(&inputs, candidate);
                let after = after.place(inputs.disks, bytes).expect("a sensible change");
                assert_eq!(after.usable_bytes, before.usable_bytes, "{}", candidate.name());
                let second = change == Change::SecondParity;
                assert_eq!(after.tolerated, before.tolerated + usize::from(second), "{change}");
                seen += usize::from(second);
            }
        }
        assert_eq!(seen, 3, "raid5, raid5 + spare and raid50");
    }
}
