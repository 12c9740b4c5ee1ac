//! The space of md's partial parity log: one batch at a time, from its first unit until all of its
//! rows are durable.
//!
//! Pure: numbers in, numbers out. Only the newest batch of md's log on a member is used
//! (`layout::md::ppl`). So the next batch may be written only once the previous one is no longer
//! needed:
//!
//! ```text
//!   gathering ─▶ in flight ─▶ landed ─────────▶ gathering, the next round
//!   units join   written;     their rows are    a flush of all members since,
//!                durable      written           where members have volatile caches
//! ```
//!
//! So the other blocks of a logged row are always durable.
//!
//! Invariant: units join only while the round gathers. A unit that has not handed over its records
//! when the batch goes out is not in it.

use io::broken::{Broken, broken};
use layout::Slot;
use layout::md::ppl::{MOST_ENTRIES, MOST_SLOTS};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Gathering,
    /// Units that have not written all their rows.
    UnderWay(u32),
    /// The number of flushes that had begun when the last row was written.
    Landed(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Round {
    /// The size limit of a batch on one member: see [`Round::share`].
    capacity: u64,
    /// Number of the round, from 1: the generation of the batch.
    number: u64,
    phase: Phase,
    /// The space that joined units may need on each slot's member.
    used: [u64; MOST_SLOTS],
    /// Units that have joined but not handed over their records.
    joined: u32,
    /// Units that have handed over their records.
    gathered: u32,
    volatile: bool,
    /// A unit of a batch has left torn rows: the batch must be kept for the rest of the session.
    torn: bool,
    /// Flushes that have begun.
    flushes: u64,
}

impl Round {
    /// A round for batches with at most `pp_bytes` of partial parity on each member.
    pub fn new(pp_bytes: u64) -> Round {
        Round {
            capacity: pp_bytes,
            number: 1,
            phase: Phase::Gathering,
            used: [0; MOST_SLOTS],
            joined: 0,
            gathered: 0,
            volatile: false,
            torn: false,
            flushes: 0,
        }
    }

    /// The space of a row with this much partial parity on its member: at least the share of one
    /// header entry.
    fn share(&self, pp_bytes: u64) -> u64 {
        pp_bytes.max(self.capacity.div_ceil(MOST_ENTRIES as u64))
    }

    /// The most space of one member for the rows of a unit.
    pub fn most(&self) -> u64 {
        self.capacity
    }

    /// The most rows of a batch on one member.
    pub fn most_entries(&self) -> u64 {
        self.capacity / self.share(0)
    }

    /// The most space on any member for rows given by slot and partial parity.
    pub fn most_of(&self, rows: impl Iterator<Item = (Slot, u64)>) -> u64 {
        self.added(&[0; MOST_SLOTS], rows).into_iter().max().unwrap_or(0)
    }

    fn added(
        &self,
        used: &[u64; MOST_SLOTS],
        rows: impl Iterator<Item = (Slot, u64)>,
    ) -> [u64; MOST_SLOTS] {
        let mut used = *used;
        rows.for_each(|(slot, pp_bytes)| used[slot.index()] += self.share(pp_bytes));
        used
    }

    /// Joins a unit with rows given by slot and partial parity. Returns the round's number; `None`
    /// if there is no room, or if the round is not gathering.
    pub fn join(&mut self, rows: impl Iterator<Item = (Slot, u64)>) -> Option<u64> {
        if self.phase != Phase::Gathering || self.torn {
            return None;
        }
        let used = self.added(&self.used, rows);
        if used.iter().any(|&used| used > self.capacity) {
            return None;
        }
        self.used = used;
        self.joined += 1;
        Some(self.number)
    }

    /// A unit that joined this round leaves without handing over records.
    pub fn leave(&mut self, number: u64) {
        if !self.is_late(number) {
            assert!(self.joined > 0, "a unit leaves a round without joining it");
            self.joined -= 1;
            if self.joined + self.gathered == 0 {
                self.used.fill(0);
            }
        }
    }

    /// True if the round that a unit has joined is no longer gathering.
    pub fn is_late(&self, number: u64) -> bool {
        number != self.number || self.phase != Phase::Gathering
    }

    /// A unit that joined and is not late hands over its records.
    pub fn hand_over(&mut self) {
        assert!(self.joined > 0, "a unit passes to a round without joining it");
        self.joined -= 1;
        self.gathered += 1;
    }

    /// True if a batch must be written: when all joined units have handed over their records, or
    /// `at_once` if the others cannot.
    pub fn is_due(&self, at_once: bool) -> bool {
        let all = self.joined == 0 || at_once;
        self.phase == Phase::Gathering && self.gathered > 0 && all
    }

    /// The batch goes out; returns its generation.
    pub fn place(&mut self) -> u64 {
        let empty = self.phase != Phase::Gathering || self.gathered == 0;
        assert!(!empty, "the rows of the round before may not be durable");
        self.phase = Phase::UnderWay(self.gathered);
        self.volatile = false;
        self.number
    }

    /// A member failed to write the batch: no row in it will be written.
    pub fn abandon(&mut self) {
        self.next();
    }

    /// A unit of the batch has written all its rows. With `volatile` they are durable only after a
    /// flush.
    pub fn rows_written(&mut self, volatile: bool) {
        let Phase::UnderWay(users) = &mut self.phase else { return };
        self.volatile |= volatile && !broken(Broken::LogRecycledUnflushed);
        assert!(*users > 0, "a unit has written its rows twice");
        *users -= 1;
        match (*users, self.volatile) {
            (0, true) => self.phase = Phase::Landed(self.flushes),
            (0, false) => self.next(),
            _ => {}
        }
    }

    /// A unit of the batch has left torn rows.
    pub fn tear(&mut self) {
        self.torn = true;
    }

    /// True if nothing can be logged any more: another batch would replace the records of a torn
    /// row.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// True if a flush would end the round.
    pub fn has_landed(&self) -> bool {
        matches!(self.phase, Phase::Landed(_))
    }

    /// A flush of all members begins; returns its number.
    pub fn flush_begins(&mut self) -> u64 {
        self.flushes += 1;
        self.flushes - 1
    }

    /// A flush has succeeded: rows that had landed before it began are durable.
    pub fn flushed(&mut self, number: u64) {
        assert!(number < self.flushes, "an end of a flush that was not started");
        if matches!(self.phase, Phase::Landed(rows_written) if rows_written <= number) {
            self.next();
        }
    }

    fn next(&mut self) {
        self.number += 1;
        self.phase = Phase::Gathering;
        self.used.fill(0);
        (self.joined, self.gathered) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn of(slot: usize, pp_bytes: u64) -> impl Iterator<Item = (Slot, u64)> {
        std::iter::once((Slot::new(slot), pp_bytes))
    }

    #[test]
    fn a_round_ends_when_its_rows_are_durable() {
        let mut round = Round::new(128 * KIB);
        let first = round.join(of(0, 4 * KIB)).unwrap();
        let second = round.join(of(1, 4 * KIB)).unwrap();
        assert!(!round.is_late(first) && !round.is_due(true));
        round.hand_over();
        assert!(!round.is_due(false) && round.is_due(true));
        assert!(!round.is_late(second));
        round.hand_over();
        assert!(round.is_due(false));
        assert_eq!(round.place(), 1);
        assert_eq!(round.join(of(2, 4 * KIB)), None, "under way");
        round.rows_written(true);
        let early = round.flush_begins();
        round.rows_written(false);
        assert!(round.has_landed());
        round.flushed(early);
        assert_eq!(round.join(of(2, 4 * KIB)), None, "the flush began too early");
        let number = round.flush_begins();
        round.flushed(number);
        assert_eq!(round.join(of(2, 4 * KIB)), Some(2));
        round.hand_over();
        assert!(round.is_due(false));
        round.place();
        round.rows_written(false);
        assert!(round.join(of(2, 4 * KIB)).is_some(), "nothing to be flushed");
    }

    #[test]
    fn a_late_unit_is_not_in_the_round() {
        let mut round = Round::new(128 * KIB);
        let early = round.join(of(0, 4 * KIB)).unwrap();
        let late = round.join(of(1, 4 * KIB)).unwrap();
        assert!(!round.is_late(early));
        round.hand_over();
        round.place();
        assert!(round.is_late(late));
        round.leave(late);
        round.abandon();
        assert!(round.is_late(late), "not in the next one either");
        assert_eq!(round.join(of(1, 4 * KIB)), Some(2), "generations are not used twice");
    }

    #[test]
    fn each_member_has_its_room() {
        let mut round = Round::new(128 * KIB);
        let entry = round.share(0);
        assert!(entry * (MOST_ENTRIES as u64 + 1) > 128 * KIB);
        for _ in 0..128 * KIB / entry {
            assert!(round.join(of(3, 0)).is_some());
        }
        assert_eq!(round.join(of(3, 0)), None);
        assert!(round.join(of(4, 128 * KIB)).is_some());
        assert_eq!(round.join(of(2, KIB).chain(of(4, KIB))), None);
        assert!(round.join(of(2, 128 * KIB)).is_some(), "a member that did not join took nothing");
    }

    #[test]
    fn a_round_that_all_have_left_has_all_its_room() {
        let mut round = Round::new(8 * KIB);
        let number = round.join(of(0, 8 * KIB)).unwrap();
        assert_eq!(round.join(of(0, 8 * KIB)), None);
        round.leave(number);
        assert!(round.join(of(0, 8 * KIB)).is_some());
    }

    #[test]
    fn after_a_cut_nothing_is_logged() {
        let mut round = Round::new(8 * KIB);
        assert!(round.join(of(0, KIB)).is_some());
        round.hand_over();
        round.place();
        round.tear();
        let number = round.flush_begins();
        round.flushed(number);
        assert!(round.is_torn());
        assert_eq!(round.join(of(0, KIB)), None);
    }
}
