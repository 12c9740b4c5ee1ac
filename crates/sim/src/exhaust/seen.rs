//! The trials done so far.
//!
//! A *trial* is the content of the remaining members after a cut, and the set of lost ones. It is
//! compared with a *promise*: the allowed content of each sector. A state that satisfies a strict
//! promise also satisfies a weaker one, which allows at least the same content for each sector. So
//! the same disks are tried again only with a promise that is stricter somewhere.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use super::allowed::Allowed;
use random::mix;

/// Numbers that are mixed already are their own hash.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

type Build = BuildHasherDefault<Mixed>;

/// The trials of a case up to now.
#[derive(Default)]
pub(super) struct Seen {
    /// Promises, each for every sector: which writes it may hold, as bits.
    promises: Vec<Vec<u8>>,
    /// Where a promise is in `promises`, by its number.
    numbers: HashMap<u64, u32, Build>,
    /// The promise that counts now, and its number.
    now: (u32, u64),
    states: HashSet<u64, Build>,
    trials: HashMap<u64, u32, Build>,
    /// Promises that a trial was compared with after its first one.
    more: HashMap<u64, Vec<u32>, Build>,
}

impl Seen {
    /// From now on this is promised.
    pub(super) fn promise(&mut self, allowed: &Allowed) {
        let number = allowed.fingerprint();
        let next = self.promises.len() as u32;
        let known = *self.numbers.entry(number).or_insert(next);
        if known == next {
            self.promises.push(allowed.sectors.clone());
        }
        self.now = (known, number);
    }

    /// Is it new, with the current promise? All disks have the content of this number.
    pub(super) fn is_state(&mut self, whole: u64) -> bool {
        self.states.insert(mix(whole ^ self.now.1))
    }

    /// Must this be tried? The members that are left, and which they are, have this number.
    pub(super) fn is_trial(&mut self, left: u64) -> bool {
        let now = self.now.0;
        let first = match self.trials.entry(left) {
            Entry::Vacant(place) => {
                place.insert(now);
                return true;
            }
            Entry::Occupied(place) => *place.get(),
        };
        let promises = &self.promises;
        let covers = |&then: &u32| {
            then == now || is_stricter(&promises[then as usize], &promises[now as usize])
        };
        if covers(&first) {
            return false;
        }
        let more = self.more.entry(left).or_default();
        let fresh = !more.iter().any(covers);
        if fresh {
            more.push(now);
        }
        fresh
    }
}

/// Whatever `one` allows, `other` allows too.
fn is_stricter(one: &[u8], other: &[u8]) -> bool {
    one.iter().zip(other).all(|(one, other)| one & !other == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_promise_that_asks_for_more_is_tried_again() {
        let mut seen = Seen::default();
        let mut tried = |sectors: [u8; 2]| {
            let mut allowed = Allowed::new(1024);
            allowed.sectors = sectors.to_vec();
            seen.promise(&allowed);
            (seen.is_state(7), seen.is_trial(8))
        };
        assert_eq!(tried([0b11, 1]), (true, true));
        assert_eq!(tried([0b11, 1]), (false, false));
        assert_eq!(tried([0b11, 0b101]), (true, false), "weaker");
        assert_eq!(tried([0b101, 1]), (true, true), "neither");
        assert_eq!(tried([1, 1]), (true, true), "stricter");
        assert_eq!(tried([0b100, 1]), (true, true));
        assert_eq!(tried([0b111, 1]), (true, false));
    }
}
