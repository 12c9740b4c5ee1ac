//! Dirty sectors of a cache: extents in order of address, joined where they touch or overlap.

use std::collections::BTreeMap;

/// Dirty sectors; `T` belongs to the first sector of an extent.
#[derive(Clone, Debug)]
pub(crate) struct Extents<T> {
    map: BTreeMap<u64, Extent<T>>,
    /// First sectors by age.
    ages: BTreeMap<u64, u64>,
    added: u64,
    sectors: u64,
}

/// A run of dirty sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent<T> {
    pub(crate) sectors: u64,
    pub(crate) first: T,
    age: u64,
}

/// Which age an extent has that was written twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Age {
    /// That of its oldest part.
    Oldest,
    /// That of its newest part.
    Newest,
}

impl<T: Copy> Extents<T> {
    pub(crate) fn new() -> Extents<T> {
        Extents { map: BTreeMap::new(), ages: BTreeMap::new(), added: 0, sectors: 0 }
    }

    /// How many sectors are dirty.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors
    }

    /// True if all sectors of `sector..end` are dirty.
    pub(crate) fn holds(&self, sector: u64, end: u64) -> bool {
        let before = self.map.range(..=sector).next_back();
        before.is_some_and(|(&from, extent)| from + extent.sectors >= end)
    }

    /// Adds `sector..end`. `first` makes what belongs to the first sector of a new extent; one that
    /// keeps its first sector keeps it.
    pub(crate) fn add(&mut self, sector: u64, end: u64, age: Age, first: impl FnOnce(u64) -> T) {
        let (mut from, mut to) = (sector, end);
        let (mut kept, mut oldest) = (None, self.added);
        let before = self.map.range(..sector).next_back();
        let low = before.filter(|(at, extent)| **at + extent.sectors >= sector);
        let low = low.map_or(sector, |(&at, _)| at);
        while let Some((&at, &extent)) = self.map.range(low..=end).next() {
            self.remove(at);
            if at <= from {
                (from, kept) = (at, Some(extent.first));
            }
            to = to.max(at + extent.sectors);
            oldest = oldest.min(extent.age);
        }
        let first = kept.unwrap_or_else(|| first(from));
        let age = if age == Age::Oldest { oldest } else { self.added };
        self.added += 1;
        self.insert(from, Extent { sectors: to - from, first, age });
    }

    /// Takes up to `most` sectors from the start of the extent at `sector`; what is left keeps its
    /// age, and gets its `first`.
    pub(crate) fn take(
        &mut self,
        sector: u64,
        most: u64,
        first: impl FnOnce(u64) -> T,
    ) -> Extent<T> {
        let extent = self.remove(sector);
        if extent.sectors <= most {
            return extent;
        }
        let rest = sector + most;
        self.insert(rest, Extent { sectors: extent.sectors - most, first: first(rest), ..extent });
        Extent { sectors: most, ..extent }
    }

    /// The extents from this sector upwards.
    pub(crate) fn upwards(&self, sector: u64) -> impl Iterator<Item = (u64, &Extent<T>)> {
        self.map.range(sector..).map(|(&at, extent)| (at, extent))
    }

    /// The extents below this sector, downwards.
    pub(crate) fn downwards(&self, sector: u64) -> impl Iterator<Item = (u64, &Extent<T>)> {
        self.map.range(..sector).rev().map(|(&at, extent)| (at, extent))
    }

    /// The next extent of a C-LOOK sweep.
    pub(crate) fn sweep(&self, sector: u64) -> Option<(u64, &Extent<T>)> {
        self.upwards(sector).next().or_else(|| self.upwards(0).next())
    }

    /// The oldest extent.
    pub(crate) fn oldest(&self) -> Option<(u64, &Extent<T>)> {
        let &sector = self.ages.values().next()?;
        Some((sector, &self.map[&sector]))
    }

    fn insert(&mut self, sector: u64, extent: Extent<T>) {
        self.sectors += extent.sectors;
        self.ages.insert(extent.age, sector);
        self.map.insert(sector, extent);
    }

    fn remove(&mut self, sector: u64) -> Extent<T> {
        let extent = self.map.remove(&sector).expect("an extent starts here");
        self.ages.remove(&extent.age);
        self.sectors -= extent.sectors;
        extent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(writes: &[(u64, u64)], age: Age) -> Extents<u64> {
        let mut extents = Extents::new();
        writes.iter().for_each(|&(from, to)| extents.add(from, to, age, |first| first));
        extents
    }

    #[test]
    fn extents_join_where_they_touch_and_count_once() {
        let writes = [(10, 20), (30, 40), (50, 60), (35, 52), (20, 22)];
        let mut extents = of(&writes, Age::Oldest);
        let found: Vec<_> = extents.upwards(0).map(|(at, e)| (at, e.sectors, e.first)).collect();
        assert_eq!(found, [(10, 12, 10), (30, 30, 30)]);
        assert_eq!(extents.sectors(), 42);
        assert!(extents.holds(12, 20) && extents.holds(30, 60));
        assert!(!extents.holds(21, 31) && !extents.holds(60, 61));
        extents.add(5, 100, Age::Oldest, |first| first);
        assert_eq!((extents.sectors(), extents.map.len()), (95, 1));
    }

    #[test]
    fn ages_are_of_the_oldest_or_the_newest_part() {
        let writes = [(0, 8), (100, 108), (4, 8)];
        assert_eq!(of(&writes, Age::Oldest).oldest().map(|(at, _)| at), Some(0));
        assert_eq!(of(&writes, Age::Newest).oldest().map(|(at, _)| at), Some(100));
    }

    #[test]
    fn what_is_left_of_a_long_extent_stays_dirty() {
        let mut extents = of(&[(100, 150), (200, 210)], Age::Oldest);
        assert_eq!(extents.take(100, 20, |first| first).sectors, 20);
        let found: Vec<_> = extents.downwards(201).map(|(at, e)| (at, e.sectors)).collect();
        assert_eq!(found, [(200, 10), (120, 30)]);
        assert_eq!(extents.oldest().map(|(at, _)| at), Some(120));
        assert_eq!(extents.sweep(121).map(|(at, _)| at), Some(200));
        assert_eq!(extents.sweep(201).map(|(at, _)| at), Some(120));
    }
}
