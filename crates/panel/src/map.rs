//! The array cut into equal parts, each with its state.

use crate::document::{Array, JobKind, SlotState};

/// State of a part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    /// Parity or copies match the data.
    Synced,
    /// The last or the running scrub has compared it.
    Scrubbed,
    /// A member has no data of it yet.
    Unfilled,
    /// Parity or copies may not match the data.
    Unsynced,
    /// The last scrub left a mismatch.
    Bad,
}

impl Part {
    /// The word for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Part::Synced => "in sync",
            Part::Scrubbed => "in sync and scrubbed",
            Part::Unfilled => "to be rebuilt",
            Part::Unsynced => "out of sync",
            Part::Bad => "mismatch",
        }
    }

    /// The class in the style sheet.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Part::Synced => "synced",
            Part::Scrubbed => "scrubbed",
            Part::Unfilled => "unfilled",
            Part::Unsynced => "unsynced",
            Part::Bad => "bad",
        }
    }
}

/// Parts of a map; the ranges of the control API have this resolution.
pub(crate) const PARTS: u64 = 128;

/// Returns the state of each part, in order; nothing for an array without redundancy or data.
pub(crate) fn parts(array: &Array) -> Vec<Part> {
    let part_bytes = array.capacity_bytes.div_ceil(PARTS);
    if part_bytes == 0 || array.redundancy == 0 {
        return Vec::new();
    }
    let scrubbed = scrubbed_below(array);
    let filled = filled_below(array);
    let part = |index: u64| {
        let (start, end) = (index * part_bytes, (index + 1) * part_bytes);
        let end = end.min(array.capacity_bytes);
        let unsynced = |(from, to): (u64, u64)| from < end && start < to;
        let mut ranges = array.unsynced_ranges.iter();
        let findings = array.last_scrub.iter().flat_map(|scrub| &scrub.findings);
        let mut bad = findings.filter(|finding| !finding.repaired);
        if bad.any(|finding| (start..end).contains(&finding.array_offset)) {
            Part::Bad
        } else if ranges
            .any(|span| unsynced((span.array_offset, span.array_offset.saturating_add(span.bytes))))
        {
            Part::Unsynced
        } else if end > filled {
            Part::Unfilled
        } else if end <= scrubbed {
            Part::Scrubbed
        } else {
            Part::Synced
        }
    };
    let count = array.capacity_bytes.div_ceil(part_bytes);
    (0..count).map(part).collect()
}

/// Returns the array offset below which a scrub has compared all data. A scrub runs from 0 to the
/// end.
fn scrubbed_below(array: &Array) -> u64 {
    match (&array.job, &array.last_scrub) {
        (Some(job), _) if matches!(job.kind, JobKind::Check | JobKind::Repair) => job.done_bytes,
        (_, Some(scrub)) if scrub.complete => array.capacity_bytes,
        _ => 0,
    }
}

/// Returns the array offset below which every member in service has its data.
fn filled_below(array: &Array) -> u64 {
    let rebuilding = array.slots.iter().filter(|slot| slot.state == SlotState::Rebuilding);
    let filled = rebuilding.map(|slot| slot.filled_bytes.unwrap_or(0));
    filled.min().unwrap_or(array.capacity_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Finding, Span};
    use crate::verdict::tests::healthy;

    #[test]
    fn each_part_has_its_worst_state() {
        let mut array = healthy();
        let part_bytes = array.capacity_bytes / PARTS;
        assert_eq!(parts(&array), vec![Part::Synced; 128]);
        array.unsynced_ranges = vec![Span { array_offset: 0, bytes: 1 }];
        array.slots[1].state = SlotState::Rebuilding;
        array.slots[1].filled_bytes = Some(100 * part_bytes);
        let scrub = serde_json::json!({ "complete": true, "ended": "2026-01-01T00:00:00Z",
            "mismatches": 1 });
        array.last_scrub = serde_json::from_value(scrub).unwrap();
        let finding = Finding { array_offset: 2 * part_bytes, repaired: false };
        array.last_scrub.as_mut().unwrap().findings.push(finding);
        let found = parts(&array);
        assert_eq!(found[..4], [Part::Unsynced, Part::Scrubbed, Part::Bad, Part::Scrubbed]);
        assert_eq!((found[99], found[100]), (Part::Scrubbed, Part::Unfilled));
    }

    #[test]
    fn small_arrays_have_fewer_parts_and_stripes_without_redundancy_none() {
        let mut array = healthy();
        array.capacity_bytes = 3;
        assert_eq!(parts(&array).len(), 3);
        array.capacity_bytes = 0;
        assert!(parts(&array).is_empty());
        array.capacity_bytes = 1 << 20;
        array.redundancy = 0;
        assert!(parts(&array).is_empty());
    }
}
