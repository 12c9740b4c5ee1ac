//! Where members gave errors: unreadable blocks, and blocks with a wrong checksum.
//!
//! Kept until a scrub has covered the place. Bounded: a full scrub finds what is not kept.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use layout::RangeSet;

use crate::api::Span;

/// Places of one member that are kept; further ones are not.
const MOST_PLACES: usize = 16;

/// The places of each member, by its name, in bytes of the array.
#[derive(Default)]
pub(super) struct ErrorPlaces(RefCell<BTreeMap<String, RangeSet>>);

impl ErrorPlaces {
    /// Notes an error of this member.
    pub(super) fn note(&self, member: &str, range: Range<u64>) {
        let mut all = self.0.borrow_mut();
        let places = all.entry(member.into()).or_default();
        if places.iter().count() < MOST_PLACES || places.overlaps(range.clone()) {
            places.insert(range);
        }
    }

    /// Forgets the places in this part of the array: a scrub has compared it.
    pub(super) fn cover(&self, range: &Range<u64>) {
        let mut all = self.0.borrow_mut();
        all.values_mut().for_each(|places| places.remove(range.clone()));
        all.retain(|_, places| !places.is_empty());
    }

    /// Forgets the places of a member that has left its slot.
    pub(super) fn forget(&self, member: &str) {
        self.0.borrow_mut().remove(member);
    }

    /// The places of this member, as the API shows them.
    pub(super) fn of(&self, member: &str) -> Vec<Span> {
        let all = self.0.borrow();
        let ranges = all.get(member).into_iter().flat_map(RangeSet::iter);
        let span =
            |range: Range<u64>| Span { array_offset: range.start, bytes: range.end - range.start };
        ranges.map(span).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_kept_until_a_scrub_covers_them_and_are_bounded() {
        let places = ErrorPlaces::default();
        let at = |index: u64| 100 * index..100 * index + 10;
        (0..MOST_PLACES as u64 + 5).for_each(|index| places.note("a", at(index)));
        places.note("b", at(3));
        assert_eq!(places.of("a").len(), MOST_PLACES);
        places.note("a", 105..120);
        assert_eq!(places.of("a")[1], Span { array_offset: 100, bytes: 20 }, "one that grows");
        places.cover(&(0..305));
        assert_eq!(places.of("a").len(), MOST_PLACES - 3);
        assert_eq!(places.of("b"), [Span { array_offset: 305, bytes: 5 }]);
        places.cover(&(0..400));
        assert!(places.of("b").is_empty());
        places.forget("a");
        assert!(places.of("a").is_empty());
    }
}
