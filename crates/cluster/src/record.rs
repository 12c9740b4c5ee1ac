//! The grant log: which regions may differ among members, and on whose behalf.
//!
//! A member's log area holds a set of *marks*. Each mark that is set says "careful":
//!
//! ```text
//!   Held     a client may have writes in this region
//!   Unsync   a writer of this region died: make its pieces match
//!   Stale    a member missed writes in this region
//!   Evicted  requests of this client up to this incarnation are refused
//! ```
//!
//! Batches change it, in the order of (term, sequence). A grant is given when *every live member*
//! has the batch, so every member that is in sync has every mark on which a grant relies, and any
//! one of them suffices for recovery. A takeover unites the sets that it can read:
//!
//! ```text
//!   + lost     impossible: all had it      − lost     costs one resync
//! ```
//!
//! Marks name the holder, not just the region. Otherwise a deposed coordinator could admit a second
//! holder of a dirty region from memory, and its successor would clean the region too early.

use std::collections::BTreeSet;

use crate::broken::{Broken, broken};
use crate::ids::{ClientId, Incarnation, MemberId, Region, Term};

/// One fact that must survive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Mark {
    /// The client may have writes in the region.
    Held(Region, ClientId, Incarnation),
    /// Pieces of the region may not match.
    Unsync(Region),
    /// The member may lack writes of the region.
    Stale(MemberId, Region),
    /// The client is fenced up to this incarnation.
    Evicted(ClientId, Incarnation),
}

/// A change of one mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// True: the mark is set. False: it is cleared.
    pub set: bool,
    /// The mark.
    pub mark: Mark,
}

/// The place of a batch in the order of all batches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Position {
    /// The coordinator's term.
    pub term: Term,
    /// The batch's number in this term.
    pub seq: u64,
}

/// The marks that are set, after the batch at a position.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Log {
    /// The last batch.
    pub at: Position,
    /// What is set.
    pub marks: BTreeSet<Mark>,
}

impl Log {
    /// Applies a batch.
    pub fn apply(&mut self, at: Position, records: &[Record]) {
        assert!(at > self.at, "batches are applied in order");
        self.at = at;
        records.iter().for_each(|record| self.change(*record));
    }

    /// Applies one record.
    pub fn change(&mut self, record: Record) {
        let Record { set, mark } = record;
        match set {
            true => self.marks.insert(mark),
            false => self.marks.remove(&mark),
        };
    }

    /// The union of several logs: recovery may only add marks.
    pub fn united<'a>(logs: impl IntoIterator<Item = &'a Log>) -> BTreeSet<Mark> {
        let mut all = BTreeSet::new();
        for log in logs {
            if broken(Broken::RecoveryIntersects) && !all.is_empty() {
                all.retain(|mark| log.marks.contains(mark));
            } else {
                all.extend(log.marks.iter().copied());
            }
        }
        all
    }
}

/// Regions that a client may be writing, or whose pieces may not match.
pub fn dirty(marks: &BTreeSet<Mark>) -> BTreeSet<Region> {
    let region = |mark: &Mark| match *mark {
        Mark::Held(region, ..) | Mark::Unsync(region) => Some(region),
        Mark::Stale(..) | Mark::Evicted(..) => None,
    };
    marks.iter().filter_map(region).collect()
}

// The set is ordered by kind, then by the fields: each of these looks only at what it returns.

/// The marks of a region's holders.
pub fn held(marks: &BTreeSet<Mark>, region: Region) -> impl Iterator<Item = Mark> {
    let least = Mark::Held(region, ClientId(0), Incarnation(0));
    let most = Mark::Held(region, ClientId(u32::MAX), Incarnation(u32::MAX));
    marks.range(least..=most).copied()
}

/// Regions to resync.
pub fn unsync(marks: &BTreeSet<Mark>) -> impl Iterator<Item = Region> {
    let all = Mark::Unsync(Region(0))..=Mark::Unsync(Region(u32::MAX));
    marks.range(all).filter_map(|mark| match *mark {
        Mark::Unsync(region) => Some(region),
        _ => None,
    })
}

/// Regions that this member may lack.
pub fn stale(marks: &BTreeSet<Mark>, member: MemberId) -> impl Iterator<Item = Region> {
    let all = Mark::Stale(member, Region(0))..=Mark::Stale(member, Region(u32::MAX));
    marks.range(all).filter_map(|mark| match *mark {
        Mark::Stale(_, region) => Some(region),
        _ => None,
    })
}

/// The highest incarnation of the client that is evicted.
pub fn evicted(marks: &BTreeSet<Mark>, client: ClientId) -> Option<Incarnation> {
    let least = Mark::Evicted(client, Incarnation(0));
    match marks.range(least..=Mark::Evicted(client, Incarnation(u32::MAX))).next_back() {
        Some(Mark::Evicted(_, incarnation)) => Some(*incarnation),
        _ => None,
    }
}

/// The number of clients with a mark of an eviction: each join leaves one.
pub fn clients(marks: &BTreeSet<Mark>) -> usize {
    marks.range(Mark::Evicted(ClientId(0), Incarnation(0))..).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(region: u32, client: u32) -> Mark {
        Mark::Held(Region(region), ClientId(client), Incarnation(1))
    }

    #[test]
    fn a_takeover_keeps_what_any_log_has() {
        let (mut one, mut two) = (Log::default(), Log::default());
        let at = |seq| Position { term: Term(1), seq };
        let batch =
            [Record { set: true, mark: held(0, 1) }, Record { set: true, mark: held(0, 2) }];
        one.apply(at(1), &batch);
        two.apply(at(1), &batch);
        two.apply(at(2), &[Record { set: false, mark: held(0, 1) }]);
        let united = Log::united([&one, &two]);
        assert_eq!(united, BTreeSet::from([held(0, 1), held(0, 2)]));
        assert_eq!(dirty(&united), BTreeSet::from([Region(0)]));
    }
}
