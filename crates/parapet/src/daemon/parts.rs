//! Ranges of an array, widened to a resolution that keeps a status short.

use std::ops::Range;

use layout::RangeSet;

use crate::api::Span;

/// Parts of an array that its status tells apart; `Integrity::unsynced_ranges` documents it.
const PARTS: u64 = 128;

/// Widens ranges to whole parts of the array.
pub(super) fn coarse(ranges: &RangeSet, capacity_bytes: u64) -> Vec<Span> {
    let part = capacity_bytes.div_ceil(PARTS).max(1);
    let mut widened = RangeSet::new();
    for range in ranges.iter() {
        let end = range.end.div_ceil(part).saturating_mul(part).min(capacity_bytes);
        widened.insert(range.start / part * part..end);
    }
    let span =
        |range: Range<u64>| Span { array_offset: range.start, bytes: range.end - range.start };
    widened.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranges_become_few_that_cover_them() {
        let capacity = 1000 * PARTS + 5;
        let mut ranges = RangeSet::new();
        (0..capacity).step_by(3).for_each(|start| ranges.insert(start..start + 1));
        let all = Span { array_offset: 0, bytes: capacity };
        assert_eq!(coarse(&ranges, capacity), [all]);
        let mut every_other = RangeSet::new();
        (0..PARTS / 2).for_each(|index| every_other.insert(index * 2002..index * 2002 + 1));
        let found = coarse(&every_other, capacity);
        assert_eq!(found.len(), 64);
        assert_eq!(found[1], Span { array_offset: 2002, bytes: 1001 });
        assert!(coarse(&RangeSet::new(), 0).is_empty());
    }
}
