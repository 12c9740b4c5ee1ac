//! The allowed content of each sector after a cut: a set of writes per sector, as bits.

use super::cases::{Care, Workload};
use crate::medium::SECTOR;
use crate::stand::content::Origin;
use random::mix;

/// An action of the array's user, as a note in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Sent this write.
    Sent(Origin),
    /// It was acknowledged.
    Acknowledged(Origin),
    /// Sent a flush, after this write.
    Flushing(Origin),
    /// That was answered.
    Flushed(Origin),
}

impl Step {
    pub(super) fn to_note(self) -> u64 {
        let (kind, origin) = match self {
            Step::Sent(origin) => (0, origin),
            Step::Acknowledged(origin) => (1, origin),
            Step::Flushing(origin) => (2, origin),
            Step::Flushed(origin) => (3, origin),
        };
        kind << 8 | u64::from(origin)
    }

    pub(super) fn from_note(note: u64) -> Step {
        let origin = note as u8;
        match note >> 8 {
            0 => Step::Sent(origin),
            1 => Step::Acknowledged(origin),
            2 => Step::Flushing(origin),
            _ => Step::Flushed(origin),
        }
    }
}

/// The sets, and the data to maintain them.
#[derive(Clone)]
pub(super) struct Allowed {
    /// For each sector, the bits of those writes that it may hold.
    pub(super) sectors: Vec<u8>,
    acknowledged: u8,
    /// For each write: the writes that it supersedes once it is durable.
    supersedes: [u8; 8],
    /// For each flush: the writes that it makes durable.
    flushes: [u8; 8],
}

impl Allowed {
    /// An array of `capacity` bytes before the first write.
    pub(super) fn new(capacity: u64) -> Allowed {
        let sectors = vec![1; (capacity / SECTOR) as usize];
        Allowed { sectors, acknowledged: 1, supersedes: [0; 8], flushes: [0; 8] }
    }

    /// The next step.
    pub(super) fn follow(&mut self, step: Step, workload: &Workload) {
        match step {
            Step::Sent(origin) => {
                self.supersedes[usize::from(origin)] = self.acknowledged;
                for sector in sectors_of(workload, origin) {
                    self.sectors[sector] |= 1 << origin;
                }
            }
            Step::Acknowledged(origin) => {
                self.acknowledged |= 1 << origin;
                if workload[usize::from(origin) - 1].care == Care::Fua {
                    self.drop_older(origin, workload);
                }
            }
            Step::Flushing(origin) => self.flushes[usize::from(origin)] = self.acknowledged,
            Step::Flushed(origin) => {
                let covered = self.flushes[usize::from(origin)];
                for write in (1..8).filter(|write| covered >> write & 1 == 1) {
                    self.drop_older(write, workload);
                }
            }
        }
    }

    /// A write is durable: nothing older comes back.
    fn drop_older(&mut self, origin: Origin, workload: &Workload) {
        for sector in sectors_of(workload, origin) {
            self.sectors[sector] &= !self.supersedes[usize::from(origin)];
        }
    }

    /// May this sector hold that?
    pub(super) fn permits(&self, sector: usize, origin: Origin) -> bool {
        origin < 8 && self.sectors[sector] >> origin & 1 == 1
    }

    /// True if a write to the 4 KiB block of this sector is not durable.
    pub(super) fn is_open(&self, sector: usize) -> bool {
        let first = sector / 8 * 8;
        let block = &self.sectors[first..(first + 8).min(self.sectors.len())];
        block.iter().any(|set| !set.is_power_of_two())
    }

    /// A number for all of it.
    pub(super) fn fingerprint(&self) -> u64 {
        let eights = self.sectors.chunks(8);
        eights.fold(0, |checksum, eight| {
            let word = eight.iter().fold(0, |word, &set| word << 8 | u64::from(set));
            mix(checksum ^ word)
        })
    }
}

fn sectors_of(workload: &Workload, origin: Origin) -> std::ops::Range<usize> {
    let write = workload[usize::from(origin) - 1];
    (write.offset / SECTOR) as usize..((write.offset + write.len) / SECTOR) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exhaust::cases::Write;

    #[test]
    fn a_flush_makes_acknowledged_writes_durable() {
        let write = |care, together| Write { offset: 0, len: 512, care, together };
        let workload = vec![write(Care::Flush, false), write(Care::Fua, false)];
        let mut allowed = Allowed::new(1024);
        let mut after = |step| {
            allowed.follow(step, &workload);
            allowed.sectors[0]
        };
        assert_eq!(after(Step::Sent(1)), 0b11);
        assert_eq!(after(Step::Acknowledged(1)), 0b11, "not flushed yet");
        assert_eq!(after(Step::Flushing(1)), 0b11);
        assert_eq!(after(Step::Flushed(1)), 0b10);
        assert_eq!(after(Step::Sent(2)), 0b110);
        assert_eq!(after(Step::Acknowledged(2)), 0b100, "FUA");
        assert_eq!(allowed.sectors[1], 1, "never written");
    }

    #[test]
    fn writes_at_once_end_in_any_order() {
        let write = |together| Write { offset: 0, len: 512, care: Care::Fua, together };
        let workload = vec![write(false), write(true)];
        let mut allowed = Allowed::new(512);
        let steps = [Step::Sent(1), Step::Sent(2), Step::Acknowledged(1), Step::Acknowledged(2)];
        steps.into_iter().for_each(|step| allowed.follow(step, &workload));
        assert_eq!(allowed.sectors[0], 0b110);
    }
}
