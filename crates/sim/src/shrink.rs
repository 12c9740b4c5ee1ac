//! From a failing run to a short one with the same failure.
//!
//! ```text
//!   fewer members, the fewest first ──▶ fewer requests and incidents ──▶ smaller disks
//!        ▲                                                                  │
//!        └────────────────── again, until nothing can go ◀──────────────────┘
//! ```
//!
//! Halves of the requests and incidents are removed, then quarters and so on until no single one
//! can be removed (delta debugging, *ddmin*: Zeller, Hildebrandt 2002). Members come first: with
//! many events, some still hit the relevant member, whatever its number. If the story stays long,
//! they come second, and the shorter story is printed.

use crate::keep::{Choice, Keep};
use crate::options::{Options, Shape, Wish};
use crate::scenario;
use crate::trace::Detail;

/// How the oracle says that a read is wrong.
const WRONG_BYTES: &str = " reads as ";
/// Runs that a shrinking may take.
const RUNS_MAX: usize = 2000;
/// Requests and incidents of a story that need no other one.
const SHORT: usize = 12;
/// Limit on halvings of disks.
const HALVINGS_MAX: u32 = 4;

/// The shortest run found that fails as this seed does; `None` if it does not fail.
pub fn shrink(seed: u64, wish: Wish) -> Option<Keep> {
    let whole = Options::draw(seed, wish);
    let wanted = failure(&whole, &Keep::default())?;
    let parts = |keep: &Keep| {
        let (requests, incidents) = keep.counts(&whole);
        requests + incidents
    };
    let search = || Search { whole: whole.clone(), wanted: wanted.clone(), runs: 0 };
    let first = search().down(Keep::default());
    // With few members it may take much to meet the fault in another way.
    if parts(&first) <= SHORT {
        return Some(first);
    }
    let mut other = search();
    let some = other.fewer_parts(Keep::default());
    let second = other.down(some);
    Some(if parts(&second) < parts(&first) { second } else { first })
}

/// A shrunk run, for people.
pub fn sizes(whole: &Options, short: &Options) -> String {
    let (all, left) = (whole.keep.counts(whole), short.keep.counts(short));
    let disks = |options: &Options| (options.data_bytes.len(), options.data_bytes.iter().sum());
    let ((had, size), (has, rest)): ((usize, u64), (usize, u64)) = (disks(whole), disks(short));
    format!(
        "{} of {} requests, {} of {} incidents, {has} of {had} disks, {} of {} KiB",
        left.0,
        all.0,
        left.1,
        all.1,
        rest >> 10,
        size >> 10
    )
}

/// The failure of a shortened run.
fn failure(whole: &Options, keep: &Keep) -> Option<String> {
    let options = whole.clone().kept(keep.clone()).ok()?;
    scenario::run_with(options, Detail::Nothing).failure.map(|failure| kind(&failure))
}

/// The search for a short run.
struct Search {
    whole: Options,
    /// How it must fail.
    wanted: String,
    runs: usize,
}

impl Search {
    /// The shortest run that is found from here.
    fn down(&mut self, mut keep: Keep) -> Keep {
        loop {
            let before = keep.clone();
            keep = self.fewer_members(keep);
            keep = self.fewer_parts(keep);
            keep = self.smaller_disks(keep);
            if keep == before {
                return keep;
            }
        }
    }

    fn fails(&mut self, keep: &Keep) -> bool {
        self.runs += 1;
        self.runs <= RUNS_MAX && failure(&self.whole, keep).as_ref() == Some(&self.wanted)
    }

    /// The minimum of members: of the clients' array, then of its inner arrays.
    fn fewer_members(&mut self, mut keep: Keep) -> Keep {
        let smaller = |count: &usize, now: Option<usize>| now.is_none_or(|now| *count < now);
        let mut counts = self.whole.outer.fewer();
        counts.retain(|count| smaller(count, keep.members));
        let mut each = self.whole.inner.as_ref().map(Shape::fewer).unwrap_or_default();
        each.retain(|count| smaller(count, keep.inner));
        for members in counts {
            let few = Keep { members: Some(members), ..keep.clone() };
            if self.fails(&few) {
                keep = few;
                break;
            }
        }
        for members in each {
            let few = Keep { inner: Some(members), ..keep.clone() };
            if self.fails(&few) {
                return few;
            }
        }
        keep
    }

    /// A minimal set of requests and incidents.
    fn fewer_parts(&mut self, keep: Keep) -> Keep {
        let (clients, requests) = (self.whole.clients, self.whole.requests);
        let requests = (0..clients).flat_map(|client| (0..requests).map(move |at| (client, at)));
        let requests = requests.map(|(client, at)| Choice::Request(client, at));
        let incidents = (0..self.whole.incidents_total()).map(Choice::Incident);
        let left = requests.chain(incidents).filter(|&choice| keep.keeps(choice)).collect();
        let only = |parts: &[Choice]| Keep {
            choices: Some(parts.iter().copied().collect()),
            ..keep.clone()
        };
        let parts = ddmin(left, |parts| self.fails(&only(parts)));
        only(&parts)
    }

    /// Disks halved as often as will do.
    fn smaller_disks(&mut self, mut keep: Keep) -> Keep {
        while keep.halvings < HALVINGS_MAX {
            let smaller = Keep { halvings: keep.halvings + 1, ..keep.clone() };
            if !self.fails(&smaller) {
                break;
            }
            keep = smaller;
        }
        keep
    }
}

/// The kind of a failure: wrong bytes, whatever the reader and the bytes; else its first line, up
/// to a list, without numbers.
fn kind(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or_default();
    if line.contains(WRONG_BYTES) {
        return WRONG_BYTES.into();
    }
    let line = line.split([';', '{', '[']).next().unwrap_or_default();
    line.chars().filter(|char| !char.is_ascii_hexdigit()).collect()
}

/// The minimal subset that still fails, by removals: no single one of the result can be removed.
/// The full set must fail.
pub fn ddmin<T: Copy>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let (mut start, before) = (0, items.len());
        while start < items.len() {
            let end = (start + size).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            // The piece after a removable one is next: nothing is tried twice in a round.
            if fails(&rest) {
                items = rest;
            } else {
                start = end;
            }
        }
        size = match size {
            1 if items.len() == before => 0,
            1 => 1,
            _ => size.div_ceil(2).min(items.len().max(1)),
        };
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unneeded_parts_are_removed() {
        let mut runs = 0;
        let left = ddmin((0..500).collect(), |items: &[u32]| {
            runs += 1;
            [7, 300, 301].iter().all(|needed| items.contains(needed))
        });
        assert_eq!(left, [7, 300, 301]);
        assert!(runs < 200, "{runs} runs");
        assert!(ddmin(vec![1, 2], |_| true).is_empty());
        assert_eq!(ddmin(vec![1, 2], |_| false), [1, 2]);
    }

    #[test]
    fn failures_are_distinguished_by_their_words() {
        assert_eq!(kind("sector 12 reads as write 7\n at x"), kind("sector 99 reads as write 21"));
        assert_ne!(kind("sector 12 reads as zeros"), kind("hang: nothing is due"));
        let (one, other) =
            ("client 3.4: sector 1 reads as noise; it", "reading all: sector 2 reads as");
        assert_eq!(kind(one), kind(&format!("{other} zeros; it should be write 7, or write 9")));
        assert_eq!(
            kind("disk1: disagrees: Q { stripe: 0 }"),
            kind("disk2: disagrees: Q { len: 1 }")
        );
        assert_ne!(
            kind("disk1: disagrees: Q { stripe: 0 }"),
            kind("disk2: is stale: Q { len: 1 }")
        );
    }
}
