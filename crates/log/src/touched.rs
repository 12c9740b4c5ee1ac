//! The rows, by data slot, that were written under live log records.
//!
//! A record holds the syndrome of the blocks that its write does not change. If one of these was
//! written recently and is not durable yet, a crash may bring its old bytes back. Then the syndrome
//! no longer matches the row:
//!
//! ```text
//!   A writes D0, not flushed      B writes D1, its record: p′ = D0(new) ⊕ D2
//!   crash: D0 has its old bytes, and p′ no longer determines D2
//! ```
//!
//! So a write may be logged only if it also covers all blocks of older live records in its rows, or
//! if these are durable. It must not cover only a part of a 4 KiB piece that an older live record
//! has with several blocks: the rest of these could not be checked any more. So a block that a
//! newer record partly covers is durable.
//!
//! Owns a table from 4 KiB pieces of rows to the blocks written there and their batches. It grows
//! up to a fixed size. When it is full, everything conflicts until the batch that did not fit is no
//! longer live.

use io::broken::{Broken, broken};
use layout::SlotSet;

/// The size of the pieces in which rows are looked up.
const BLOCK: u64 = 4096;
/// The most pieces that the table holds.
const CAPACITY: usize = 1 << 14;
/// Initial size of the table.
const FIRST: usize = 1 << 8;
/// Growth factor of a full table.
const GROWTH: usize = 4;
/// The number of places that a piece may be in.
const PROBES: usize = 16;

#[derive(Clone, Copy)]
struct Piece {
    /// Member offset in blocks, plus 1; 0: empty.
    key: u64,
    slots: SlotSet,
    /// The written bytes of the piece: first, and one past the last.
    span: (u16, u16),
    /// The newest batch with a record of it.
    sequence: u64,
    /// The oldest batch that was live when newer ones were added.
    oldest: u64,
}

const NOBODY: Piece = Piece { key: 0, slots: SlotSet::EMPTY, span: (0, 0), sequence: 0, oldest: 0 };

impl Piece {
    /// True if any of its batches may not be durable: they end in any order.
    fn matters(&self, is_live: impl Fn(u64) -> bool) -> bool {
        let oldest = if broken(Broken::NewestAlone) { self.sequence } else { self.oldest };
        (oldest..=self.sequence).any(is_live)
    }

    /// True if a write of these slots and bytes leaves a live part of it uncovered.
    fn is_cut_by(&self, slots: SlotSet, (start, end): (u16, u16)) -> bool {
        let overlaps = self.span.0 < end && start < self.span.1;
        let covers = start <= self.span.0 && self.span.1 <= end;
        !self.slots.is_subset(slots) || (self.slots.count() > 1 && overlaps && !covers)
    }
}

/// See the module.
pub struct Touched {
    pieces: Vec<Piece>,
    /// The newest batch that did not fit into the table.
    flooded: u64,
    /// The oldest such batch.
    flooding: u64,
}

impl Default for Touched {
    fn default() -> Touched {
        Touched { pieces: vec![NOBODY; FIRST], flooded: 0, flooding: 0 }
    }
}

impl Touched {
    /// True if a row at `at`, in which `slots` are about to be written, conflicts with a live
    /// batch: it has written other blocks of the row, or more bytes of the same blocks.
    pub fn conflicts(
        &self,
        (at, len): (u64, u64),
        slots: SlotSet,
        is_live: impl Fn(u64) -> bool,
    ) -> bool {
        if self.flooded > 0 && (self.flooding..=self.flooded).any(&is_live) {
            return true;
        }
        blocks(at, len).any(|(key, span)| {
            let piece = self.find(key).map(|place| &self.pieces[place]);
            piece.is_some_and(|piece| piece.is_cut_by(slots, span) && piece.matters(&is_live))
        })
    }

    /// Records that `slots` of a row are written under this batch.
    pub fn insert(
        &mut self,
        (at, len): (u64, u64),
        slots: SlotSet,
        sequence: u64,
        is_live: impl Fn(u64) -> bool,
    ) {
        for (key, span) in blocks(at, len) {
            let place = self.place(key, &is_live);
            let Some(place) = place.or_else(|| self.grow(key, &is_live)) else {
                self.flood(sequence, &is_live);
                continue;
            };
            let piece = &mut self.pieces[place];
            let goes_on = piece.key == key && piece.matters(&is_live);
            let (before, (start, end)) = (*piece, span);
            *piece = Piece { key, slots, span, sequence, oldest: sequence };
            if goes_on {
                let mut batches = before.oldest..=sequence;
                piece.oldest = batches.find(|&batch| is_live(batch)).unwrap_or(sequence);
                piece.slots = before.slots.union(slots);
                piece.span = (before.span.0.min(start), before.span.1.max(end));
            }
        }
    }

    /// Records that a piece of this batch did not fit.
    fn flood(&mut self, sequence: u64, is_live: impl Fn(u64) -> bool) {
        if !(self.flooding..=self.flooded).any(is_live) {
            (self.flooding, self.flooded) = (sequence, sequence);
        }
        self.flooding = self.flooding.min(sequence);
        self.flooded = self.flooded.max(sequence);
    }

    /// The place of a key.
    fn find(&self, key: u64) -> Option<usize> {
        probes(key, self.pieces.len()).find(|&place| self.pieces[place].key == key)
    }

    /// The place of a key, or a free place for it.
    fn place(&self, key: u64, is_live: impl Fn(u64) -> bool) -> Option<usize> {
        let free = |&place: &usize| {
            let piece = &self.pieces[place];
            piece.key == 0 || !piece.matters(&is_live)
        };
        self.find(key).or_else(|| probes(key, self.pieces.len()).find(free))
    }

    /// Grows the table until there is a place for this key.
    fn grow(&mut self, key: u64, is_live: impl Fn(u64) -> bool) -> Option<usize> {
        while self.pieces.len() < CAPACITY {
            let larger = vec![NOBODY; self.pieces.len() * GROWTH];
            let old = std::mem::replace(&mut self.pieces, larger);
            for piece in old.into_iter().filter(|piece| piece.key != 0 && piece.matters(&is_live)) {
                match self.place(piece.key, &is_live) {
                    Some(place) => self.pieces[place] = piece,
                    None => {
                        self.flood(piece.oldest, &is_live);
                        self.flood(piece.sequence, &is_live);
                    }
                }
            }
            if let Some(place) = self.place(key, &is_live) {
                return Some(place);
            }
        }
        None
    }
}

/// The keys of a row, and its bytes in each.
fn blocks(at: u64, len: u64) -> impl Iterator<Item = (u64, (u16, u16))> {
    let end = at + len;
    (at / BLOCK..=(end - 1) / BLOCK).map(move |block| {
        let start = block * BLOCK;
        let within = |offset: u64| offset.clamp(start, start + BLOCK) - start;
        (block + 1, (within(at) as u16, within(end) as u16))
    })
}

/// The possible places of a key. Adjacent pieces have adjacent places.
fn probes(key: u64, capacity: usize) -> impl Iterator<Item = usize> {
    let spread = (key >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let first = (spread << 6 ^ key) as usize;
    (0..PROBES).map(move |step| (first + step * 61) % capacity)
}

#[cfg(test)]
mod tests {
    use layout::Slot;

    use super::*;

    fn slots(list: &[usize]) -> SlotSet {
        list.iter().map(|&slot| Slot::new(slot)).collect()
    }

    #[test]
    fn only_other_blocks_of_a_live_row_conflict() {
        let mut touched = Touched::default();
        let live = |sequence| sequence >= 3;
        touched.insert((8192, 1024), slots(&[0]), 3, live);
        let row = (9000, 512);
        assert!(touched.conflicts(row, slots(&[1]), live));
        assert!(!touched.conflicts(row, slots(&[0]), live), "the same block again");
        assert!(!touched.conflicts(row, slots(&[0, 1]), live), "and another one");
        assert!(!touched.conflicts((16384, 512), slots(&[1]), live), "another row");
        assert!(!touched.conflicts(row, slots(&[1]), |sequence| sequence > 3), "durable since");
    }

    #[test]
    fn a_live_record_of_several_blocks_is_not_partly_overwritten() {
        let live = |_| true;
        for (several, conflict) in [(true, true), (false, false)] {
            let mut touched = Touched::default();
            let slots = slots(if several { &[0, 1] } else { &[0] });
            touched.insert((4096 + 512, 1024), slots, 1, live);
            assert_eq!(touched.conflicts((4096, 1024), slots, live), conflict);
            assert_eq!(touched.conflicts((4096 + 1024, 2048), slots, live), conflict);
            assert!(!touched.conflicts((4096, 512), slots, live), "beside it");
            assert!(!touched.conflicts((4096 + 1536, 512), slots, live), "beside it");
            assert!(!touched.conflicts((4096, 2048), slots, live), "all of it");
        }
    }

    #[test]
    fn live_records_are_never_forgotten() {
        let mut touched = Touched::default();
        touched.insert((0, 4096), slots(&[0]), 1, |_| true);
        touched.insert((0, 4096), slots(&[0, 1]), 2, |_| true);
        assert!(touched.conflicts((0, 512), slots(&[1]), |_| true));
        touched.insert((0, 4096), slots(&[2]), 3, |sequence| sequence == 3);
        assert!(!touched.conflicts((0, 512), slots(&[2]), |sequence| sequence == 3));
    }

    #[test]
    fn a_full_table_conflicts_with_everything_until_it_is_emptied() {
        let mut touched = Touched::default();
        touched.insert((0, 2 * CAPACITY as u64 * BLOCK), slots(&[0]), 1, |_| true);
        assert!(touched.conflicts((u64::MAX / 2, 512), slots(&[1]), |_| true));
        assert!(!touched.conflicts((u64::MAX / 2, 512), slots(&[1]), |_| false));
        let found = (0..100).filter(|row| {
            let mut fresh = Touched::default();
            fresh.insert((row * BLOCK * 77, BLOCK), slots(&[0]), 1, |_| true);
            fresh.conflicts((row * BLOCK * 77, BLOCK), slots(&[1]), |_| true)
        });
        assert_eq!(found.count(), 100);
    }

    #[test]
    fn nothing_is_forgotten_while_the_table_grows() {
        let (mut touched, rows) = (Touched::default(), 0..4 * FIRST as u64);
        for row in rows.clone() {
            touched.insert((row * BLOCK * 77, BLOCK), slots(&[0]), row, |_| true);
        }
        assert_eq!(touched.flooded, 0);
        for row in rows {
            assert!(touched.conflicts((row * BLOCK * 77, BLOCK), slots(&[1]), |_| true), "{row}");
        }
    }

    /// Of two batches that did not fit, the newer one is durable first.
    #[test]
    fn a_newer_flood_that_is_over_does_not_hide_an_older_one() {
        let mut touched = Touched::default();
        let slots = SlotSet::only(layout::Slot::new(0));
        let other = SlotSet::only(layout::Slot::new(1));
        let mut at = 0;
        while touched.flooded == 0 {
            touched.insert((at, BLOCK), slots, 5, |_| true);
            at += BLOCK;
        }
        let lost = at - BLOCK;
        while touched.flooded == 5 {
            touched.insert((at, BLOCK), slots, 6, |_| true);
            at += BLOCK;
        }
        assert!(touched.conflicts((lost, BLOCK), other, |sequence| sequence == 5));
    }
}
