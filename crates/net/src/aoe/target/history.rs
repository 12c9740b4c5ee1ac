//! Writes that were done, so that a late copy of one does not undo a later write.
//!
//! ```text
//!   client    W1 tag 1 ──────────(delayed)─────────────────────▶ ✗ late: must not be done again
//!             W1 tag 2 ──▶ done      W2 tag 3 ──▶ done
//! ```
//!
//! The protocol does not tell a late copy from a new request. A write is taken for a copy only if
//! the same client wrote exactly the same data to the same sectors lately, and
//!
//! - it has *the same tag*: the wire made the copy, or a client that repeats with the same tag (iPXE,
//!   Windows); or
//! - it was *sent before an overlapping write that was done since*, by the counter that Linux and
//!   Plan 9 have in the upper half of the tag: a client sends a write only when the overlapping
//!   ones before it are answered.
//!
//! Otherwise it is done. A program may write old data anew, and frames may arrive in another order
//! than they were sent in: neither alone makes a copy. So a late copy is not recognized if another
//! client has overwritten it, or if its client does not count.
//!
//! **One client with several addresses.** Linux sends through all its ports with one counter. Two
//! addresses are one client if the counts seen from them interleave and never coincide: two clients
//! that count for themselves, and are at the same place, use every count twice.
//!
//! Counters wrap, and begin anew when a client restarts, so what is older than [`LATELY`] frames or
//! [`REMEMBERED`] is not compared. Tags of Linux have bit 31
//! clear; those of its user-space tools, which are random, have it set.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Mac, Time};

use super::super::FRAME_LIFETIME;

/// How many writes of a LUN are remembered.
pub(super) const MAX_WRITES: usize = 4096;
/// Chains of writes with equal hashes: as many as writes, so that a chain has about one.
const CHAINS: usize = MAX_WRITES;
/// How many addresses of clients of a LUN are remembered.
pub(super) const MAX_CLIENTS: usize = 256;
/// How many frames of a LUN back tags are compared: a quarter of what the counter counts.
const LATELY: u64 = 8192;
/// How long a write is remembered: its answer may be as late as a frame can be, and the client may
/// send a copy just before it comes.
const REMEMBERED: Duration = FRAME_LIFETIME.saturating_mul(2);
/// How many counts of an address are remembered, to tell clients apart.
const MAX_COUNTS: usize = 64;
/// With how many other addresses one is compared for a frame, however many a flood invents.
const MAX_COMPARED: usize = 8;
/// So many counts of each of two addresses must interleave.
const ENOUGH: usize = 4;
/// Counts of one client from two addresses are not further apart.
const NEAR: u32 = 64;

/// The bit that tells random tags from counted ones.
const RANDOM: u32 = 1 << 31;
/// The counter of a tag: its upper half, without that bit.
const COUNT_MASK: u32 = 0x7fff;
/// Counters wrap: one that is behind by less than this is older, not newer.
const HALF: u32 = 0x4000;

/// A write by what it does: sectors and data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Content {
    pub(super) first: u64,
    pub(super) sectors: u8,
    pub(super) print: u64,
}

impl Content {
    fn overlaps(&self, other: &Content) -> bool {
        let end = |it: &Content| it.first + u64::from(it.sectors);
        self.first < end(other) && other.first < end(self)
    }

    /// The chain of writes with this content. The sectors count too: many have the same data.
    fn chain(&self) -> usize {
        let mixed = (self.print ^ self.first).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 32) as usize % CHAINS
    }
}

/// A write that was done.
struct Written {
    client: Mac,
    tag: u32,
    content: Content,
    /// The number of the frame that was taken in last when it was done.
    at: u64,
    /// When it was done.
    done: Time,
    /// The end of the number range of the chain's earlier writes: the number after the last one.
    chain_end: u64,
}

/// A count that was seen.
#[derive(Clone, Copy)]
struct Count {
    count: u32,
    at: Time,
}

impl Count {
    /// True if one counter can have been at both: it has the same count again after a restart.
    fn is_about(self, other: Count) -> bool {
        self.at.max(other.at) - self.at.min(other.at) <= REMEMBERED
    }
}

pub(super) struct History {
    /// The newest writes, numbered from `first_number`.
    writes: VecDeque<Written>,
    first_number: u64,
    /// For each chain the number after its newest write.
    chain_ends: Box<[u64; CHAINS]>,
    /// The newest counts of each address, as they came.
    counts: BTreeMap<Mac, VecDeque<Count>>,
    /// Frames taken in.
    frames: u64,
    now: Time,
}

impl Default for History {
    fn default() -> History {
        History {
            writes: VecDeque::new(),
            first_number: 0,
            chain_ends: Box::new([0; CHAINS]),
            counts: BTreeMap::new(),
            frames: 0,
            now: Time::default(),
        }
    }
}

/// The counter of a tag; none if its client does not count.
fn count_of(tag: u32) -> Option<u32> {
    (tag & RANDOM == 0).then_some(tag >> 16)
}

/// True if `count` was used before `other`.
fn is_before(count: u32, other: u32) -> bool {
    let behind = other.wrapping_sub(count) & COUNT_MASK;
    behind != 0 && behind < HALF
}

impl History {
    /// It is so late now.
    pub(super) fn tick(&mut self, now: Time) {
        self.now = now;
    }

    /// Takes note of a request.
    pub(super) fn note(&mut self, client: Mac, tag: u32) {
        self.frames += 1;
        let Some(count) = count_of(tag) else { return };
        if !self.counts.contains_key(&client) && self.counts.len() == MAX_CLIENTS {
            // Forgetting only means that late copies of that client are not recognized for a while.
            self.counts.pop_first();
        }
        let counts = self.counts.entry(client).or_default();
        counts.push_back(Count { count, at: self.now });
        if counts.len() > MAX_COUNTS {
            counts.pop_front();
        }
    }

    /// True if this write was done and must not be done again.
    pub(super) fn is_repeated(&self, client: Mac, tag: u32, content: Content) -> bool {
        let since = self.frames.saturating_sub(LATELY);
        let is_recent = |it: &Written| it.at >= since && self.now - it.done <= REMEMBERED;
        let mut lately = self.with_content(content).take_while(|&(_, it)| is_recent(it));
        let mut family = Family { history: self, client, compared: Vec::new() };
        let Some((newest, _)) = lately.clone().find(|(_, it)| family.has(it.client)) else {
            return false;
        };
        if broken(Broken::AoeReackedWithoutHistory) {
            return true;
        }
        if lately.any(|(_, it)| (it.client, it.tag) == (client, tag)) {
            return true;
        }
        let Some(count) = count_of(tag) else { return false };
        // Done after its last copy, by a request that was sent later.
        self.writes.range(newest + 1..).any(|it| {
            let later = count_of(it.tag).is_some_and(|other| is_before(count, other));
            later && it.content.overlaps(&content) && family.has(it.client)
        })
    }

    /// The remembered writes with this content and their places, the newest first.
    fn with_content(&self, content: Content) -> impl Iterator<Item = (usize, &Written)> + Clone {
        let place = |chain_end: u64| {
            let number = chain_end.checked_sub(1)?.checked_sub(self.first_number)?;
            usize::try_from(number).ok()
        };
        let newest = place(self.chain_ends[content.chain()]);
        let chain = std::iter::successors(newest, move |&at| place(self.writes[at].chain_end));
        let chain = chain.map(|at| (at, &self.writes[at]));
        chain.filter(move |(_, it)| it.content == content)
    }

    /// Remembers a write that was done.
    pub(super) fn record(&mut self, client: Mac, tag: u32, content: Content) {
        let end = self.first_number + self.writes.len() as u64 + 1;
        let chain_end = std::mem::replace(&mut self.chain_ends[content.chain()], end);
        let (at, done) = (self.frames, self.now);
        self.writes.push_back(Written { client, tag, content, at, done, chain_end });
        if self.writes.len() > MAX_WRITES {
            self.writes.pop_front();
            self.first_number += 1;
        }
    }

    /// True if two addresses are of one client.
    fn is_one(&self, one: Mac, other: Mac) -> bool {
        let verdict = |ones, others| interleave(ones, others) == Some(true);
        let counts = self.counts.get(&one).zip(self.counts.get(&other));
        one == other || counts.is_some_and(|(ones, others)| verdict(ones, others))
    }
}

/// The addresses of a client, as far as they were compared.
struct Family<'a> {
    history: &'a History,
    client: Mac,
    compared: Vec<(Mac, bool)>,
}

impl Family<'_> {
    fn has(&mut self, other: Mac) -> bool {
        if other == self.client {
            return true;
        }
        if let Some((_, is_one)) = self.compared.iter().find(|(mac, _)| *mac == other) {
            return *is_one;
        }
        if self.compared.len() == MAX_COMPARED {
            return false;
        }
        let is_one = self.history.is_one(self.client, other);
        self.compared.push((other, is_one));
        is_one
    }
}

/// True if these counts are of one counter, false if of two; none if they do not say. Repeated
/// frames have their count twice, so two counts in common are needed to tell.
fn interleave(ones: &VecDeque<Count>, others: &VecDeque<Count>) -> Option<bool> {
    let is_same = |one: &Count, other: &Count| one.count == other.count && one.is_about(*other);
    let common = ones.iter().filter(|one| others.iter().any(|other| is_same(one, other)));
    if common.count() > 1 {
        return Some(false);
    }
    // Counts of one that lie between near counts of the other.
    let between = |some: &VecDeque<Count>, of: &VecDeque<Count>| {
        let is_next = |low: Count, high: Count| {
            let apart = high.count.wrapping_sub(low.count) & COUNT_MASK;
            is_before(low.count, high.count) && apart < NEAR && low.is_about(high)
        };
        let inside = some.iter().filter(|&&count| {
            of.iter().any(|&low| is_next(low, count)) && of.iter().any(|&high| is_next(count, high))
        });
        inside.count()
    };
    let enough = between(ones, others) >= ENOUGH && between(others, ones) >= ENOUGH;
    enough.then_some(true)
}

/// A number that tells data apart: two that differ have the same one with a chance of 2⁻⁶⁴. Not
/// against an adversary, who could write what he likes anyway.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    const LANES: usize = 8;
    const KEYS: [u64; 4] = [
        0x9e37_79b9_7f4a_7c15,
        0xc2b2_ae3d_27d4_eb4f,
        0x1656_67b1_9e37_79f9,
        0x85eb_ca77_c2b2_ae63,
    ];
    let fold = |a: u64, b: u64| {
        let product = u128::from(a) * u128::from(b);
        product as u64 ^ (product >> 64) as u64
    };
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    // Eight lanes of 16 bytes: a multiplication of each is under way.
    let mut lanes: [u64; LANES] = std::array::from_fn(|lane| KEYS[lane % 2] ^ lane as u64);
    let (chunks, rest) = bytes.as_chunks::<{ 16 * LANES }>();
    for chunk in chunks {
        for lane in 0..LANES {
            let half = |at: usize| word(&chunk[16 * lane + at..16 * lane + at + 8]);
            lanes[lane] = fold(half(0) ^ lanes[lane], half(8) ^ KEYS[2]);
        }
    }
    for rest in rest.chunks(8) {
        lanes[0] = fold(word(rest) ^ lanes[0], KEYS[3]);
    }
    lanes.iter().fold(bytes.len() as u64, |print, lane| fold(print ^ lane, KEYS[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Mac = Mac([2, 0, 0, 0, 0, 0xa]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 0xb]);

    fn tag(count: u32) -> u32 {
        (count & COUNT_MASK) << 16 | 7
    }

    fn content(print: u64) -> Content {
        Content { first: 8, sectors: 2, print }
    }

    /// Notes and records a write, as the target does.
    fn write(history: &mut History, client: Mac, tag: u32, content: Content) {
        history.note(client, tag);
        history.record(client, tag, content);
    }

    /// Notes a write, and asks whether it is repeated.
    fn is_repeated(history: &mut History, client: Mac, tag: u32, content: Content) -> bool {
        history.note(client, tag);
        history.is_repeated(client, tag, content)
    }

    #[test]
    fn counts_wrap() {
        for (count, other, before) in [
            (5, 6, true),
            (6, 5, false),
            (5, 5, false),
            (0x7fff, 0, true),
            (0, 0x7fff, false),
            (1, 0x4000, true),
            (0, 0x4000, false),
        ] {
            assert_eq!(is_before(count, other), before, "{count:#x} and {other:#x}");
        }
        assert_eq!((count_of(tag(9)), count_of(tag(9) | RANDOM)), (Some(9), None));
    }

    #[test]
    fn a_late_copy_is_recognized_and_an_old_value_written_anew_is_not() {
        let mut history = History::default();
        write(&mut history, A, tag(2), content(1));
        write(&mut history, A, tag(4), content(2));
        let mut repeated = |count, print| is_repeated(&mut history, A, tag(count), content(print));
        assert!(repeated(2, 1), "the same frame again");
        assert!(!repeated(2, 3), "other data, the same tag");
        assert!(repeated(1, 1), "the first copy, overwritten since");
        assert!(repeated(3, 1), "a second copy, overwritten since");
        assert!(!repeated(1, 4), "sent before, and never done");
        assert!(!repeated(5, 1), "the old value, a new write");
    }

    #[test]
    fn another_client_may_write_the_same() {
        let mut history = History::default();
        for count in 1..20 {
            history.note(B, tag(count));
        }
        write(&mut history, A, tag(50), content(1));
        write(&mut history, A, tag(51), content(2));
        assert!(!is_repeated(&mut history, B, tag(20), content(1)));
        assert!(!is_repeated(&mut history, B, tag(18), content(1)), "late, and not its own");
    }

    #[test]
    fn addresses_with_one_counter_are_one_client() {
        let mut history = History::default();
        for count in 0..32 {
            history.note(if count % 2 == 0 { A } else { B }, tag(count));
        }
        assert!(history.is_one(A, B) && history.is_one(B, A));
        // The first copy comes from the other address, where nothing has overtaken it.
        write(&mut history, B, tag(41), content(1));
        write(&mut history, B, tag(42), content(2));
        assert!(is_repeated(&mut history, A, tag(40), content(1)));
        // The old value anew: another path is quicker, which proves nothing.
        write(&mut history, B, tag(61), Content { first: 90, ..content(7) });
        assert!(!is_repeated(&mut history, A, tag(60), content(1)));
    }

    #[test]
    fn addresses_that_count_for_themselves_are_two_clients() {
        let mut history = History::default();
        for count in 0..64 {
            history.note(A, tag(count));
            history.note(B, tag(count));
        }
        assert!(!history.is_one(A, B));
        for count in 64..128 {
            history.note(A, tag(count));
        }
        for count in 200..264 {
            history.note(B, tag(count));
        }
        assert!(!history.is_one(A, B), "far apart");
    }

    #[test]
    fn a_client_that_restarts_writes_the_same_again() {
        for (pause, is_late) in [(REMEMBERED, true), (REMEMBERED + Duration::from_nanos(1), false)]
        {
            let mut history = History::default();
            write(&mut history, A, tag(100), content(1));
            write(&mut history, A, tag(101), content(2));
            history.tick(Time(0) + pause);
            assert_eq!(is_repeated(&mut history, A, tag(3), content(1)), is_late, "{pause:?}");
        }
    }

    #[test]
    fn what_is_old_is_not_compared() {
        for (frames, lately) in [(LATELY - 1, true), (LATELY, true), (LATELY + 1, false)] {
            let mut history = History::default();
            write(&mut history, A, tag(2), content(1));
            for _ in 1..frames {
                history.note(B, tag(1) | RANDOM);
            }
            assert_eq!(is_repeated(&mut history, A, tag(2), content(1)), lately, "{frames}");
        }
    }

    #[test]
    fn chains_find_what_a_search_of_all_writes_finds() {
        let mut history = History::default();
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..3 * MAX_WRITES {
            let content = Content { first: next(40), sectors: 1 + next(2) as u8, print: next(50) };
            history.note(A, tag(0));
            history.record(A, tag(next(0x8000) as u32), content);
            let all = history.writes.iter().enumerate().rev();
            let found = all.filter(|(_, it)| it.content == content).map(|(at, _)| at);
            let chained = history.with_content(content).map(|(at, _)| at);
            assert!(chained.eq(found), "{content:?}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        for (count, kept) in [(MAX_WRITES - 1, true), (MAX_WRITES, true), (MAX_WRITES + 1, false)] {
            let mut history = History::default();
            for number in 0..count as u32 {
                history.record(A, number, content(number.into()));
            }
            assert_eq!(history.is_repeated(A, 0, content(0)), kept, "{count}");
            assert!(history.writes.len() <= MAX_WRITES);
        }
        let mut history = History::default();
        for number in 0..=2 * MAX_CLIENTS {
            let [.., high, low] = number.to_be_bytes();
            for count in 0..MAX_COUNTS as u32 + 1 {
                history.note(Mac([2, 0, 0, 0, high, low]), tag(count));
            }
            assert!(history.counts.len() <= MAX_CLIENTS);
            assert!(history.counts.values().all(|it| it.len() <= MAX_COUNTS));
        }
    }

    #[test]
    fn fingerprints_of_different_data_differ() {
        let mut seen = std::collections::BTreeSet::new();
        let data: Vec<u8> = (0..1024_u32).map(|it| (it * 7 / 4) as u8).collect();
        for len in 0..data.len() {
            assert!(seen.insert(fingerprint(&data[..len])), "{len} bytes");
        }
        for bit in 0..data.len() * 8 {
            let mut data = data.clone();
            data[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(fingerprint(&data)), "bit {bit}");
        }
        assert!(seen.insert(fingerprint(&[0; 64])) && seen.insert(fingerprint(&[0; 96])));
    }
}
