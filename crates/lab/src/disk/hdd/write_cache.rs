//! The write cache of a disk: which dirty extent do the heads write next?

use super::super::Nanos;
use super::super::extents::{Age, Extents};
use super::super::geometry::{Geometry, Place};
use super::Order;
use super::arm::Arm;

/// The write cache of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteCacheSpec {
    /// Its size.
    pub sectors: u64,
    /// From this fill on, destaging competes with reads instead of waiting for idle heads.
    pub high_water: u64,
    /// The order of destaging.
    pub order: Order,
}

/// The start of a dirty extent.
#[derive(Clone, Copy, Debug)]
struct Start {
    place: Place,
    /// The host has sent it by then.
    ready: Nanos,
}

/// What the heads write in one go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) sectors: u64,
    pub(super) place: Place,
    pub(super) ready: Nanos,
}

/// The heads write at most so many sectors before they look for something better to do.
const DESTAGE_SECTORS: u64 = 2048;

/// Dirty sectors, and those that the heads write now.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    pub(super) spec: WriteCacheSpec,
    dirty: Extents<Start>,
    written: u64,
}

impl WriteCache {
    pub(super) fn new(spec: WriteCacheSpec) -> WriteCache {
        WriteCache { spec, dirty: Extents::new(), written: 0 }
    }

    /// Sectors that are not free.
    pub(super) fn used(&self) -> u64 {
        self.dirty.sectors() + self.written
    }

    /// True if the heads have nothing to write.
    pub(super) fn is_clean(&self) -> bool {
        self.dirty.sectors() == 0
    }

    /// True if these sectors fit.
    pub(super) fn has_room(&self, sectors: u64) -> bool {
        self.used() + sectors <= self.spec.sectors
    }

    /// True if all these sectors are dirty here.
    pub(super) fn holds(&self, sector: u64, end: u64) -> bool {
        self.dirty.holds(sector, end)
    }

    /// Adds a write that the host has sent by `ready`.
    pub(super) fn add(&mut self, geometry: &Geometry, sector: u64, end: u64, ready: Nanos) {
        let start = |sector| Start { place: geometry.locate(sector), ready };
        self.dirty.add(sector, end, Age::Oldest, start);
    }

    /// The first sector of the extent to destage next, and its cost.
    pub(super) fn choose(&self, arm: &Arm, now: Nanos) -> Option<(u64, Nanos)> {
        let (sector, extent) = match self.spec.order {
            Order::Shortest => return self.shortest(arm, now),
            Order::Arrival => self.dirty.oldest()?,
            Order::Elevator => self.dirty.sweep(arm.sector)?,
        };
        Some((sector, cost(&extent.first, arm, now)))
    }

    /// From the arm outwards, until the seek alone costs more than the best so far.
    fn shortest(&self, arm: &Arm, now: Nanos) -> Option<(u64, Nanos)> {
        let mut best: Option<(u64, Nanos)> = None;
        let mut look = |sector: u64, start: &Start| {
            let bound = best.map_or(Nanos::MAX, |(_, cost)| cost);
            if arm.at_least(start.place.cylinder) >= bound {
                return false;
            }
            let cost = cost(start, arm, now);
            if cost < bound {
                best = Some((sector, cost));
            }
            true
        };
        let _ = self.dirty.upwards(arm.sector).all(|(at, extent)| look(at, &extent.first));
        let _ = self.dirty.downwards(arm.sector).all(|(at, extent)| look(at, &extent.first));
        best
    }

    /// Takes what the heads write in one go. It stays used until [`WriteCache::free`].
    pub(super) fn take(&mut self, geometry: &Geometry, sector: u64, now: Nanos) -> Chunk {
        let rest = |sector| Start { place: geometry.locate(sector), ready: now };
        let taken = self.dirty.take(sector, DESTAGE_SECTORS, rest);
        self.written += taken.sectors;
        let Start { place, ready } = taken.first;
        Chunk { sectors: taken.sectors, place, ready }
    }

    /// The heads have written what they took.
    pub(super) fn free(&mut self, sectors: u64) {
        self.written -= sectors;
    }
}

fn cost(start: &Start, arm: &Arm, now: Nanos) -> Nanos {
    let at = now.max(start.ready);
    arm.way(&start.place, true, at).time() + (at - now)
}
