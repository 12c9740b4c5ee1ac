//! A set of byte ranges: regions out of sync, bad blocks.

use alloc::collections::BTreeMap;
use core::ops::Range;

/// Disjoint, non-adjacent ranges of bytes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct RangeSet {
    /// Start → end.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// No byte.
    pub fn new() -> RangeSet {
        RangeSet::default()
    }

    /// True if there is no byte in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many bytes are in the set.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// How many ranges these are.
    pub fn count(&self) -> usize {
        self.ranges.len()
    }

    /// True if every byte of the range is in the set.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        let last = self.ranges.range(..=range.start).next_back();
        range.is_empty() || last.is_some_and(|(_, &end)| end >= range.end)
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        assert!(range.start <= range.end, "a range that ends before it begins: {range:?}");
        if range.is_empty() {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        // Swallow every range that overlaps or touches the new one.
        while let Some((&s, &e)) = self.ranges.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ranges.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        assert!(range.start <= range.end, "a range that ends before it begins: {range:?}");
        if range.is_empty() {
            return;
        }
        while let Some((&s, &e)) = self.ranges.range(..range.end).next_back() {
            if e <= range.start {
                break;
            }
            self.ranges.remove(&s);
            if e > range.end {
                self.ranges.insert(range.end, e);
            }
            if s < range.start {
                self.ranges.insert(s, range.start);
            }
        }
    }

    /// True if any byte of the range is in the set.
    pub fn overlaps(&self, range: Range<u64>) -> bool {
        self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
            && !range.is_empty()
    }

    /// The first range at or after `from`, cut to begin there.
    pub fn next(&self, from: u64) -> Option<Range<u64>> {
        if let Some((_, &end)) = self.ranges.range(..=from).next_back()
            && end > from
        {
            return Some(from..end);
        }
        self.ranges.range(from..).next().map(|(&start, &end)| start..end)
    }

    /// The ranges in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }
}

impl From<Range<u64>> for RangeSet {
    fn from(range: Range<u64>) -> RangeSet {
        let mut set = RangeSet::new();
        set.insert(range);
        set
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> RangeSet {
        let mut set = RangeSet::new();
        ranges.into_iter().for_each(|range| set.insert(range));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every short sequence of inserts and removals against a plain array of flags.
    #[test]
    fn agrees_with_an_array_of_flags() {
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..500 {
            let (mut set, mut flags) = (RangeSet::new(), [false; 40]);
            for _ in 0..12 {
                let (a, b) = (random(40), random(41));
                let range = a.min(b)..a.max(b);
                let add = random(3) > 0;
                if add {
                    set.insert(range.clone())
                } else {
                    set.remove(range.clone())
                }
                flags[range.start as usize..range.end as usize].fill(add);
                assert_eq!(set.bytes(), flags.iter().filter(|&&flag| flag).count() as u64);
                let (x, y) = (random(40), random(41));
                let probe = x.min(y)..x.max(y);
                let probed = &flags[probe.start as usize..probe.end as usize];
                assert_eq!(set.covers(&probe), !probed.contains(&false));
                assert_eq!(set.count(), set.iter().count());
                assert_eq!(set.overlaps(probe), probed.contains(&true));
                let next =
                    flags[x as usize..].iter().position(|&flag| flag).map(|at| at as u64 + x);
                assert_eq!(set.next(x).map(|range| range.start), next);
                let mut last = None;
                for range in set.iter() {
                    assert!(last.is_none_or(|end| end < range.start), "{set:?}");
                    last = Some(range.end);
                }
            }
        }
    }
}
