//! Which data of which rows was written under log records that still matter.
//!
//! A record holds the syndrome of the blocks that its write leaves alone. If one of these was
//! written a moment ago and is not durable yet, a crash may bring its old bytes back, and the
//! syndrome would be of a row that no longer is:
//!
//! ```text
//!   A writes D0, not flushed      B writes D1, its record: p′ = D0(new) ⊕ D2
//!   crash: D0 is the old one again, and p′ tells nothing about D2
//! ```
//!
//! So a write may be logged only when all that older live records cover in its rows is either
//! durable or written by it too.
//!
//! Owns a table of fixed size, from 4 KiB of row to the slots written there and the newest batch
//! that says so. Where the table is full it errs on the safe side: everything conflicts until that
//! batch does not matter any more.

use layout::SlotSet;

/// Rows are looked up in pieces of this size.
const GRAIN: u64 = 4096;
/// Pieces of rows that are known at once.
const CAPACITY: usize = 1 << 14;
/// Places that a piece may be in.
const PROBES: usize = 16;

#[derive(Clone, Copy)]
struct Piece {
    /// Member offset, in grains, plus 1; 0: nobody.
    key: u64,
    slots: SlotSet,
    sequence: u64,
}

/// See the module.
pub(crate) struct Touched {
    pieces: Vec<Piece>,
    /// Something up to this batch found no place in the table.
    flooded: u64,
}

impl Touched {
    pub(crate) fn new() -> Touched {
        let nobody = Piece { key: 0, slots: SlotSet::EMPTY, sequence: 0 };
        Touched { pieces: vec![nobody; CAPACITY], flooded: 0 }
    }

    /// True if a row at `at` on its members, in which `slots` are to be written, has others that
    /// were written under a batch that is live.
    pub(crate) fn conflicts(
        &self,
        (at, len): (u64, u64),
        slots: SlotSet,
        is_live: impl Fn(u64) -> bool,
    ) -> bool {
        if self.flooded > 0 && is_live(self.flooded) {
            return true;
        }
        grains(at, len).any(|key| {
            let found = probes(key).find(|&place| self.pieces[place].key == key);
            found.is_some_and(|place| {
                let piece = &self.pieces[place];
                !piece.slots.is_subset(slots) && is_live(piece.sequence)
            })
        })
    }

    /// `slots` of a row were written under this batch.
    pub(crate) fn insert(
        &mut self,
        (at, len): (u64, u64),
        slots: SlotSet,
        sequence: u64,
        is_live: impl Fn(u64) -> bool,
    ) {
        for key in grains(at, len) {
            let known = probes(key).find(|&place| self.pieces[place].key == key);
            let free = || {
                probes(key).find(|&place| {
                    let piece = &self.pieces[place];
                    piece.key == 0 || !is_live(piece.sequence)
                })
            };
            let Some(place) = known.or_else(free) else {
                self.flooded = sequence;
                continue;
            };
            let piece = &mut self.pieces[place];
            let goes_on = piece.key == key && is_live(piece.sequence);
            let slots = if goes_on { piece.slots.union(slots) } else { slots };
            *piece = Piece { key, slots, sequence };
        }
    }
}

/// The keys of a row.
fn grains(at: u64, len: u64) -> impl Iterator<Item = u64> {
    (at / GRAIN..=(at + len - 1) / GRAIN).map(|grain| grain + 1)
}

/// Where a key may be. Grains that lie side by side have places side by side.
fn probes(key: u64) -> impl Iterator<Item = usize> {
    let spread = (key >> 6).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let first = (spread << 6 ^ key) as usize;
    (0..PROBES).map(move |step| (first + step * 61) % CAPACITY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::Slot;

    fn slots(list: &[usize]) -> SlotSet {
        list.iter().map(|&slot| Slot::new(slot)).collect()
    }

    #[test]
    fn only_other_blocks_of_a_live_row_conflict() {
        let mut touched = Touched::new();
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
    fn what_was_written_before_is_not_forgotten_while_it_is_live() {
        let mut touched = Touched::new();
        touched.insert((0, 4096), slots(&[0]), 1, |_| true);
        touched.insert((0, 4096), slots(&[0, 1]), 2, |_| true);
        assert!(touched.conflicts((0, 512), slots(&[1]), |_| true));
        touched.insert((0, 4096), slots(&[2]), 3, |sequence| sequence == 3);
        assert!(!touched.conflicts((0, 512), slots(&[2]), |sequence| sequence == 3));
    }

    #[test]
    fn a_full_table_conflicts_with_everything_until_it_is_emptied() {
        let mut touched = Touched::new();
        touched.insert((0, 2 * CAPACITY as u64 * GRAIN), slots(&[0]), 1, |_| true);
        assert!(touched.conflicts((u64::MAX / 2, 512), slots(&[1]), |_| true));
        assert!(!touched.conflicts((u64::MAX / 2, 512), slots(&[1]), |_| false));
        let found = (0..100).filter(|row| {
            let mut fresh = Touched::new();
            fresh.insert((row * GRAIN * 77, GRAIN), slots(&[0]), 1, |_| true);
            fresh.conflicts((row * GRAIN * 77, GRAIN), slots(&[1]), |_| true)
        });
        assert_eq!(found.count(), 100);
    }
}
