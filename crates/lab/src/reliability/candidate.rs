//! The layouts to compare, and what each makes of the disks.
//!
//! Bytes come from the plan that `parapet create` shows, down to the last one: superblocks, bitmap,
//! intent log and checksum table are subtracted, and chunks rounded.

use io::Limits;
use layout::{Geometry, Layout, Level, MAX_SLOTS, Slot};
use metadata::create::{NewArray, plan as plan_array};
use metadata::{Error, Result};

use super::redundancy::Redundancy;

/// The chunk of a new array, as of `parapet create`.
const CHUNK_BYTES: u64 = 512 << 10;

/// A layout over a number of equal disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Level and layout; of the inner arrays, if nested.
    pub layout: Layout,
    /// Bytes of a chunk; ignored for RAID 1.
    pub chunk_bytes: u64,
    /// 1, or the number of equal arrays with a RAID 0 over them (RAID 50, 60).
    pub arrays: usize,
    /// How many of the disks are spares.
    pub spares: usize,
}

/// What a candidate makes of its disks.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Bytes for data.
    pub usable_bytes: u64,
    /// Bytes that a rebuild writes.
    pub member_bytes: u64,
    /// Disks that may always be lost, whichever they are.
    pub tolerated: usize,
    /// What the array survives.
    pub redundancy: Redundancy,
}

impl Candidate {
    /// A level's usual layout.
    pub fn new(level: Level, disks: usize) -> Candidate {
        let layout = Layout::default_for(level, disks);
        Candidate { layout, chunk_bytes: CHUNK_BYTES, arrays: 1, spares: 0 }
    }

    /// The same with this many spares among the disks.
    #[must_use]
    pub fn with_spares(self, spares: usize) -> Candidate {
        Candidate { spares, ..self }
    }

    /// The usual layouts for this many disks.
    pub fn usual(disks: usize) -> Vec<Candidate> {
        let new = |level| Candidate::new(level, disks);
        let striped = |level| Candidate { arrays: 2, ..Candidate::new(level, disks / 2) };
        let (even, spare) = (disks.is_multiple_of(2), |level| new(level).with_spares(1));
        let all = [
            (disks >= 2, new(Level::Raid0)),
            (disks == 2 || disks == 3, new(Level::Raid1)),
            (disks >= 3, new(Level::Raid5)),
            (disks >= 4, spare(Level::Raid5)),
            (disks >= 4, new(Level::Raid6)),
            (disks >= 5, spare(Level::Raid6)),
            (disks >= 4, new(Level::Raid10)),
            (disks >= 6 && even, striped(Level::Raid5)),
            (disks >= 8 && even, striped(Level::Raid6)),
        ];
        all.into_iter().filter(|(fits, _)| *fits).map(|(_, candidate)| candidate).collect()
    }

    /// What it makes of this many disks of this size.
    ///
    /// # Errors
    /// Refused: what `parapet create` would refuse; disks that do not divide into equal arrays.
    pub fn place(&self, disks: usize, disk_bytes: u64) -> Result<Placement> {
        let (arrays, in_slots) = (self.arrays, disks.saturating_sub(self.spares));
        if arrays == 0 || !in_slots.is_multiple_of(arrays) {
            return Err(Error::refused(format!(
                "{in_slots} disks do not divide into {arrays} equal arrays; choose another number"
            )));
        }
        if in_slots > MAX_SLOTS {
            return Err(Error::refused(format!(
                "{in_slots} disks are more than the {MAX_SLOTS} of a comparison; choose fewer"
            )));
        }
        let inner = self.geometry(self.layout, in_slots / arrays, disk_bytes)?;
        let redundancy = Redundancy::of(&inner, arrays).ok_or_else(|| {
            Error::refused("RAID 10 with far copies cannot be nested here; choose near copies")
        })?;
        let usable_bytes = match arrays {
            1 => inner.capacity(),
            _ => {
                let outer = Layout::default_for(Level::Raid0, arrays);
                self.geometry(outer, arrays, inner.capacity())?.capacity()
            }
        };
        Ok(Placement {
            usable_bytes,
            member_bytes: inner.member_bytes(Slot(0)),
            tolerated: inner.redundancy(),
            redundancy,
        })
    }

    /// The geometry of a new array on this many disks.
    fn geometry(&self, layout: Layout, disks: usize, disk_bytes: u64) -> Result<Geometry> {
        let chunk_bytes = if layout == Layout::Raid1 { 0 } else { self.chunk_bytes };
        let disks: Vec<(String, Limits)> =
            (0..disks).map(|disk| (format!("disk {disk}"), Limits::plain(disk_bytes))).collect();
        Ok(plan_array(&NewArray::new("plan", layout, chunk_bytes), &disks)?.geometry)
    }

    /// Its name: `raid5 + spare`, `raid60`.
    pub fn name(&self) -> String {
        let level = self.layout.level();
        let layout = match self.layout {
            Layout::Raid10 { near, far, .. } if (near, far) != (2, 1) => {
                format!(" {}", self.layout)
            }
            _ => String::new(),
        };
        let nested = if self.arrays > 1 { "0" } else { "" };
        let spares = match self.spares {
            0 => String::new(),
            1 => " + spare".into(),
            count => format!(" + {count} spares"),
        };
        format!("{level}{nested}{layout}{spares}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u64 = 500_107_862_016;

    #[test]
    fn usable_bytes_are_those_of_the_creation_plan() {
        let disks: Vec<_> = (0..10).map(|n| (format!("d{n}"), Limits::plain(DISK))).collect();
        for level in [Level::Raid0, Level::Raid5, Level::Raid6, Level::Raid10] {
            let candidate = Candidate::new(level, 10);
            let new = NewArray::new("tank", candidate.layout, 512 << 10);
            let created = plan_array(&new, &disks).expect("a usual array");
            let placed = candidate.place(10, DISK).expect("a usual array");
            assert_eq!(placed.usable_bytes, created.capacity, "{level}");
            assert_eq!(placed.tolerated, created.redundancy, "{level}");
            assert!(placed.member_bytes < DISK && placed.member_bytes > DISK / 100 * 99);
        }
    }

    #[test]
    fn spares_and_nested_arrays_take_their_disks() {
        let bytes = |candidate: Candidate| candidate.place(10, DISK).expect("fits").usable_bytes;
        let raid5 = Candidate::new(Level::Raid5, 10);
        let member = raid5.place(10, DISK).expect("fits").member_bytes;
        assert_eq!(bytes(raid5), 9 * member);
        assert_eq!(bytes(raid5.with_spares(1)), 8 * member);
        let nested = Candidate { arrays: 2, ..Candidate::new(Level::Raid6, 5) };
        let without_overhead = 2 * 3 * member;
        let placed = bytes(nested);
        assert!(placed < without_overhead && placed > without_overhead / 1000 * 995, "{placed}");
        assert!(Candidate { arrays: 3, ..nested }.place(10, DISK).is_err());
        assert!(Candidate { arrays: 50, ..nested }.place(500, DISK).is_err());
        assert!(raid5.with_spares(12).place(10, DISK).is_err());
    }

    #[test]
    fn every_usual_candidate_can_be_created() {
        for disks in 2..=32 {
            for candidate in Candidate::usual(disks) {
                let placed = candidate.place(disks, DISK);
                let members = placed.expect("a usual array").redundancy.slots().count();
                assert_eq!(members, disks - candidate.spares, "{}", candidate.name());
            }
        }
        let names: Vec<_> = Candidate::usual(10).iter().map(Candidate::name).collect();
        let expected = "raid0 raid5 raid5 + spare raid6 raid6 + spare raid10 raid50 raid60";
        assert_eq!(names.join(" "), expected);
    }
}
