//! From a run that fails to a short one that fails alike.
//!
//! Every request and every incident is drawn from a stream of its own, so each can be left out and
//! the others stay what they were. Leaving out is tried by halves, quarters and so on until no
//! single one can go (delta debugging, *ddmin*: Zeller, Hildebrandt 2002); then disks are halved.
//!
//! Invariant: the seed, the wishes and the [`Keep`] give the run; nothing else is needed to replay.

use std::collections::BTreeSet;
use std::fmt;

use crate::options::{Options, Wish};
use crate::scenario;
use crate::trace::Telling;

/// Runs that a shrinking may take.
const RUNS_MAX: usize = 2000;
/// Disks are never smaller than this.
const LEAST_BYTES: u64 = 64 << 10;

/// Something that can be left out of a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Choice {
    /// A client's request, by its number.
    Request(usize, usize),
    /// An incident, as numbered when it was drawn.
    Incident(usize),
}

/// What is left of a run. The default is all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Keep {
    /// The parts that are kept; `None`: all.
    pub choices: Option<BTreeSet<Choice>>,
    /// How often the size of every disk is halved.
    pub halvings: u32,
}

impl Keep {
    /// Is this part of the run?
    pub fn keeps(&self, choice: Choice) -> bool {
        self.choices.as_ref().is_none_or(|kept| kept.contains(&choice))
    }

    /// A disk's size in this run.
    pub fn bytes(&self, bytes: u64) -> u64 {
        let halved = (bytes >> self.halvings.min(63)) / LEAST_BYTES * LEAST_BYTES;
        if self.halvings == 0 { bytes } else { halved.max(LEAST_BYTES) }
    }

    /// Back from what [`Keep`] prints: `r0.3,r2.1,i4,h1`.
    ///
    /// # Errors
    /// The word that means nothing.
    pub fn parse(text: &str) -> Result<Keep, String> {
        let mut keep = Keep { choices: Some(BTreeSet::new()), halvings: 0 };
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = || format!("--keep: {word:?} is no part of a run");
            let (kind, rest) = word.split_at_checked(1).ok_or_else(wrong)?;
            let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
            let choice = match kind {
                "r" => {
                    let (client, index) = rest.split_once('.').ok_or_else(wrong)?;
                    Choice::Request(number(client)?, number(index)?)
                }
                "i" => Choice::Incident(number(rest)?),
                "h" => {
                    keep.halvings = number(rest)? as u32;
                    continue;
                }
                _ => return Err(wrong()),
            };
            keep.choices.get_or_insert_default().insert(choice);
        }
        Ok(keep)
    }
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.choices.iter().flatten().map(|part| match part {
            Choice::Request(client, index) => format!("r{client}.{index}"),
            Choice::Incident(number) => format!("i{number}"),
        });
        let halved = (self.halvings > 0).then(|| format!("h{}", self.halvings));
        f.write_str(&parts.chain(halved).collect::<Vec<_>>().join(","))
    }
}

/// The shortest run found that fails as this seed does; `None` if it does not fail.
pub fn shrink(seed: u64, wish: Wish) -> Option<Keep> {
    let options = Options::draw(seed, wish);
    let failure = |keep: &Keep| {
        let options = Options { keep: keep.clone(), ..options.clone() };
        scenario::run_with(options, Telling::Nothing).failure.map(|failure| kind(&failure))
    };
    let wanted = failure(&Keep::default())?;
    let clients = 0..options.clients;
    let requests =
        clients.flat_map(|client| (0..options.requests).map(move |at| Choice::Request(client, at)));
    let incidents = (0..options.happenings()).map(Choice::Incident);
    let all: Vec<Choice> = requests.chain(incidents).collect();
    let mut runs = 0;
    let mut fails = |keep: &Keep| {
        runs += 1;
        runs <= RUNS_MAX && failure(keep).as_ref() == Some(&wanted)
    };
    let kept = ddmin(all, |parts| {
        fails(&Keep { choices: Some(parts.iter().copied().collect()), halvings: 0 })
    });
    let mut keep = Keep { choices: Some(kept.into_iter().collect()), halvings: 0 };
    while keep.halvings < 4 {
        let smaller = Keep { halvings: keep.halvings + 1, ..keep.clone() };
        if !fails(&smaller) {
            break;
        }
        keep = smaller;
    }
    Some(keep)
}

/// What kind of failure it is: its first line without its numbers.
fn kind(failure: &str) -> String {
    let line = failure.lines().next().unwrap_or_default();
    line.chars().filter(|char| !char.is_ascii_hexdigit()).collect()
}

/// The fewest of these with which it still fails, as far as leaving out can tell: of the answer no
/// single one can be left out. Everything together is taken to fail.
pub fn ddmin<T: Copy>(mut items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut size = items.len().div_ceil(2);
    while size > 0 {
        let (mut start, before) = (0, items.len());
        while start < items.len() {
            let end = (start + size).min(items.len());
            let rest = [&items[..start], &items[end..]].concat();
            // What comes after a piece that can go is next: nothing is tried twice in a round.
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
    fn what_is_not_needed_goes() {
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
    fn what_is_kept_is_read_back() {
        let text = "r0.3,r12.1,i4,h2";
        let keep = Keep::parse(text).expect("as printed");
        assert_eq!(keep.to_string(), text);
        assert!(keep.keeps(Choice::Incident(4)) && !keep.keeps(Choice::Request(0, 4)));
        assert_eq!((keep.bytes(512 << 10), Keep::default().bytes(1000)), (128 << 10, 1000));
        assert!(Keep::parse("x1").is_err() && Keep::parse("r1").is_err());
        assert!(Keep::default().keeps(Choice::Request(9, 9)));
    }

    /// Leaving out leaves the rest as it was.
    #[test]
    fn the_other_requests_stay() {
        let mut options = Options::draw(3, Wish::default());
        let whole = crate::workload::draw(&options, 0, 1 << 20, 4096);
        options.keep.choices = Some([Choice::Request(0, 2), Choice::Request(1, 0)].into());
        let keep = crate::workload::draw(&options, 0, 1 << 20, 4096);
        assert_eq!(keep.len(), 1);
        assert_eq!(keep[0].to_string(), whole[2].to_string());
    }

    #[test]
    fn failures_are_told_apart_by_their_words() {
        assert_eq!(kind("sector 12 reads as write 7\n at x"), kind("sector 99 reads as write 21"));
        assert_ne!(kind("sector 12 reads as zeros"), kind("hang: nothing is due"));
    }
}
