//! The arm: where the heads are, and how long they take to the start of a request.

use super::super::geometry::{Geometry, Place};
use super::super::seek::SeekCurve;
use super::Nanos;

/// The mechanism of a disk and its position.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) geometry: Geometry,
    pub(super) seek: SeekCurve,
    pub(super) head_switch: Nanos,
    pub(super) write_settle: Nanos,
    /// The track under the heads; its angle means nothing.
    pub(super) at: Place,
    /// The last sector that passed.
    pub(super) sector: u64,
}

/// The way to the start of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    /// Seek, head switch and settling.
    pub(super) seek: Nanos,
    /// Then the wait for the first sector.
    pub(super) rotate: Nanos,
}

impl Way {
    pub(super) fn time(self) -> Nanos {
        self.seek + self.rotate
    }
}

impl Arm {
    /// The way to a place for an access that starts at `start`.
    ///
    /// Changing to a neighbour track is what skews are made for: only longer seeks settle longer
    /// before they write.
    pub(super) fn way(&self, to: &Place, write: bool, start: Nanos) -> Way {
        let distance = self.at.cylinder.abs_diff(to.cylinder);
        let mut seek = self.seek.time(distance);
        if self.at.head != to.head {
            seek = seek.max(self.head_switch);
        }
        if write && distance > 1 {
            seek += self.write_settle;
        }
        let revolution = self.geometry.revolution();
        let arrives = (start + seek) % revolution;
        let rotate = match to.angle >= arrives {
            true => to.angle - arrives,
            false => to.angle + revolution - arrives,
        };
        Way { seek, rotate }
    }

    /// A time that no access over this distance beats.
    pub(super) fn at_least(&self, cylinder: u32) -> Nanos {
        self.seek.time(self.at.cylinder.abs_diff(cylinder))
    }

    /// Puts the heads onto the track of a sector.
    pub(super) fn put(&mut self, sector: u64) {
        self.sector = sector.min(self.geometry.sectors() - 1);
        self.at = self.geometry.locate(self.sector);
    }
}
