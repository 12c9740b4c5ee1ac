//! The write cache of a disk: dirty extents in order of address, joined where they touch.

use super::super::Nanos;
use super::super::geometry::{Geometry, Place};
use super::arm::Arm;
use super::{Order, Way};

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

/// A run of dirty sectors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub(super) sector: u64,
    pub(super) sectors: u64,
    /// Of the first sector.
    pub(super) place: Place,
    /// The host has sent it by then.
    pub(super) ready: Nanos,
    /// Number of its oldest part, for [`Order::Arrival`].
    order: u64,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.sector + self.sectors
    }
}

/// The heads write at most so many sectors before they look for something better to do.
const DESTAGE_SECTORS: u64 = 2048;

/// Dirty sectors.
#[derive(Clone, Debug)]
pub(super) struct WriteCache {
    pub(super) spec: WriteCacheSpec,
    /// By address, disjoint, not touching.
    extents: Vec<Extent>,
    /// Dirty sectors, and those that the heads write now.
    pub(super) used: u64,
    added: u64,
}

impl WriteCache {
    pub(super) fn new(spec: WriteCacheSpec) -> WriteCache {
        WriteCache { spec, extents: Vec::new(), used: 0, added: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// True if these sectors fit.
    pub(super) fn has_room(&self, sectors: u64) -> bool {
        self.used + sectors <= self.spec.sectors
    }

    /// True if all these sectors are dirty here.
    pub(super) fn holds(&self, sector: u64, end: u64) -> bool {
        let after = self.extents.partition_point(|extent| extent.sector <= sector);
        after > 0 && self.extents[after - 1].end() >= end
    }

    /// Adds a write that the host has sent by `ready`.
    pub(super) fn add(&mut self, geometry: &Geometry, sector: u64, end: u64, ready: Nanos) {
        let first = self.extents.partition_point(|extent| extent.end() < sector);
        let last = self.extents.partition_point(|extent| extent.sector <= end);
        let touched = &self.extents[first..last];
        let before: u64 = touched.iter().map(|extent| extent.sectors).sum();
        let from = touched.first().map_or(sector, |extent| extent.sector.min(sector));
        let to = touched.last().map_or(end, |extent| extent.end().max(end));
        let known = touched.first().filter(|extent| extent.sector == from);
        let place = known.map_or_else(|| geometry.locate(from), |extent| extent.place);
        let ready = known.map_or(ready, |extent| extent.ready);
        let order = touched.iter().map(|extent| extent.order).min().unwrap_or(self.added);
        self.added += 1;
        self.used += (to - from) - before;
        let joined = Extent { sector: from, sectors: to - from, place, ready, order };
        self.extents.splice(first..last, [joined]);
    }

    /// The extent to destage next, and its cost.
    pub(super) fn choose(&self, arm: &Arm, now: Nanos) -> Option<(usize, Nanos)> {
        let index = match self.spec.order {
            Order::Shortest => return self.shortest(arm, now),
            Order::Arrival => {
                (0..self.extents.len()).min_by_key(|&index| self.extents[index].order)?
            }
            Order::Elevator => {
                let next = self.extents.partition_point(|extent| extent.sector < arm.sector);
                if next < self.extents.len() { next } else { 0 }
            }
        };
        let extent = self.extents.get(index)?;
        Some((index, cost(extent, arm, now)))
    }

    /// From the arm outwards, until the seek alone costs more than the best so far.
    fn shortest(&self, arm: &Arm, now: Nanos) -> Option<(usize, Nanos)> {
        let middle = self.extents.partition_point(|extent| extent.sector < arm.sector);
        let mut best: Option<(usize, Nanos)> = None;
        let mut look = |index: usize| {
            let extent = &self.extents[index];
            let bound = best.map_or(Nanos::MAX, |(_, cost)| cost);
            if arm.at_least(extent.place.cylinder) >= bound {
                return false;
            }
            let cost = cost(extent, arm, now);
            if cost < bound {
                best = Some((index, cost));
            }
            true
        };
        let _ = (middle..self.extents.len()).all(&mut look);
        let _ = (0..middle).rev().all(&mut look);
        best
    }

    /// Takes what the heads write in one go. It stays `used` until [`WriteCache::written`].
    pub(super) fn take(&mut self, geometry: &Geometry, index: usize) -> Extent {
        let extent = self.extents[index];
        if extent.sectors <= DESTAGE_SECTORS {
            return self.extents.remove(index);
        }
        let rest = &mut self.extents[index];
        rest.sector += DESTAGE_SECTORS;
        rest.sectors -= DESTAGE_SECTORS;
        rest.place = geometry.locate(rest.sector);
        Extent { sectors: DESTAGE_SECTORS, ..extent }
    }

    /// The heads have written so many sectors of the cache.
    pub(super) fn written(&mut self, sectors: u64) {
        self.used -= sectors;
    }
}

fn cost(extent: &Extent, arm: &Arm, now: Nanos) -> Nanos {
    let start = now.max(extent.ready);
    let way: Way = arm.way(&extent.place, true, start);
    way.time() + (start - now)
}

#[cfg(test)]
mod tests {
    use super::super::super::geometry::Zone;
    use super::*;

    #[test]
    fn extents_join_where_they_touch_and_count_once() {
        let zone = Zone {
            first_cylinder: 0,
            cylinders: 100,
            track_sectors: 100,
            track_skew: 0,
            cylinder_skew: 0,
        };
        let geometry = Geometry::new(&[zone], 1, 1_000_000, 10_000);
        let spec = WriteCacheSpec { sectors: 4096, high_water: 3072, order: Order::Elevator };
        let mut cache = WriteCache::new(spec);
        for (sector, end) in [(10, 20), (30, 40), (50, 60), (35, 52), (20, 22)] {
            cache.add(&geometry, sector, end, 0);
        }
        let found: Vec<_> = cache.extents.iter().map(|e| (e.sector, e.end())).collect();
        assert_eq!(found, [(10, 22), (30, 60)]);
        assert_eq!(cache.used, 42);
        assert!(cache.holds(12, 20) && cache.holds(30, 60));
        assert!(!cache.holds(21, 31) && !cache.holds(60, 61));
        cache.add(&geometry, 5, 100, 0);
        assert_eq!(cache.used, 95);
    }
}
