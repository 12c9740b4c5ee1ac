//! The arm: where the heads are, and how long they take to the start of a request.

use super::super::geometry::{Geometry, Place};
use super::super::seek::SeekCurve;
use super::Nanos;

/// The mechanism of a disk and its position.
#[derive(Clone, Debug)]
pub(super) struct Arm {
    pub(super) geometry: Geometry,
    pub(super) read_seek: SeekCurve,
    pub(super) write_seek: SeekCurve,
    pub(super) head_switch: Nanos,
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
    pub(super) fn way(&self, to: &Place, write: bool, start: Nanos) -> Way {
        let distance = self.at.cylinder.abs_diff(to.cylinder);
        let curve = if write { &self.write_seek } else { &self.read_seek };
        let mut seek = curve.time(distance);
        if self.at.head != to.head {
            seek = seek.max(self.head_switch);
        }
        let revolution = self.geometry.revolution();
        let arrives = (start + seek) % revolution;
        let rotate = match to.angle >= arrives {
            true => to.angle - arrives,
            false => to.angle + revolution - arrives,
        };
        Way { seek, rotate }
    }

    /// A time that no write to this cylinder beats.
    pub(super) fn at_least(&self, cylinder: u32) -> Nanos {
        self.write_seek.time(self.at.cylinder.abs_diff(cylinder))
    }

    /// Puts the heads onto the track of a sector.
    pub(super) fn put(&mut self, sector: u64) {
        self.sector = sector.min(self.geometry.sectors() - 1);
        self.at = self.geometry.locate(self.sector);
    }
}
