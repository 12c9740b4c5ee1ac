//! What is read ahead of two streams that share the members of a RAID 5 or 6: runs of members.
//!
//! Between two rows of which a member holds parity, it has a *run* of data. To pass over parity
//! takes as long as to read it, and as long as to go to the other stream. So members had better
//! change streams between their runs, and read whole ones. In array order they would change within
//! them, whenever they have read all that they have of the window.
//!
//! ```text
//!   row        0  1  2  3  4  5  6  7
//!   member 0   ·  ·  P  ├──── run ────
//!   member 1   ·  P  ├──── run ────┤ P      in each row, one member begins its run;
//!   member 2   P  ├──── run ────┤ P  ├──    half of them are with the other stream
//! ```
//!
//! Each stream has half of a member's time, so the member reads two chunks of a run while the
//! reader passes a row. So chunk `n` of a run that begins in row `r` is due when the reader comes
//! to row `r + n / 2`, less a lead. Asked for much earlier, members would read it while the other
//! stream waits; later, they would find nothing to read, and leave the run.

use std::ops::Range;

use layout::{Family, Geometry, Slot, Stripe, StripeMap, StripeRole};

/// How much earlier chunks are due, in half rows. On modelled disks, two thirds of a half row give
/// two readers all of one's rate if they ask again at once, but a fifth less than windows do if
/// they pause for 0.1 ms. With three, both get 0.97 of it.
const LEAD: u64 = 3;

/// True if members read long enough runs, of at least `least` bytes, and these fit in `most` bytes
/// of memory.
pub(super) fn pay(geometry: &Geometry, least: u64, most: u64) -> bool {
    if geometry.family() != Family::Parity || geometry.stripes() < 2 {
        return false;
    }
    let (run, slots) = (geometry.stripe_bytes(), geometry.slots() as u64);
    let rotates = row_of(geometry, 0).p() != row_of(geometry, 1).p();
    // A chunk waits for the lead, half a row for each data chunk before it in its run, and its own
    // half row. Their mean is a quarter of `slots` and 2 more.
    rotates && run >= least && run / 4 * (slots + 8) <= most
}

/// The half rows that are due when a reader is at this array offset.
pub(super) fn due(geometry: &Geometry, at: u64) -> u64 {
    at / (geometry.stripe_bytes() / 2) + LEAD + 1
}

/// Hands the chunks that are due in these half rows to `each`, run by run, as long as it returns
/// true. False if it did not.
pub(super) fn each_due(
    geometry: &Geometry,
    half_rows: &Range<u64>,
    mut each: impl FnMut(Range<u64>) -> bool,
) -> bool {
    let (chunk, stripe) = (geometry.chunk_bytes(), geometry.stripe_bytes());
    let last = (half_rows.end / 2).min(geometry.stripes() - 1);
    // A run that began earlier has been passed.
    for first in last.saturating_sub(geometry.slots() as u64)..=last {
        for slot in runs_from(geometry, first) {
            for half in 2 * first..half_rows.end {
                let row = half - first;
                if row >= geometry.stripes() {
                    break;
                }
                let Some(index) = data(&row_of(geometry, row), slot) else { break };
                let start = row * stripe + index as u64 * chunk;
                if half_rows.contains(&half) && !each(start..start + chunk) {
                    return false;
                }
            }
        }
    }
    true
}

/// The slots whose runs begin in a row.
fn runs_from(geometry: &Geometry, row: u64) -> impl Iterator<Item = Slot> {
    let before = row.checked_sub(1).map(|before| row_of(geometry, before));
    let map = row_of(geometry, row);
    let begins = move |slot: &Slot| {
        let goes_on = before.as_ref().is_some_and(|before| data(before, *slot).is_some());
        data(&map, *slot).is_some() && !goes_on
    };
    geometry.all_slots().iter().filter(begins)
}

fn row_of(geometry: &Geometry, row: u64) -> StripeMap {
    geometry.stripe(Stripe(row))
}

fn data(map: &StripeMap, slot: Slot) -> Option<usize> {
    match map.role(slot) {
        StripeRole::Data(index) => Some(index),
        StripeRole::P | StripeRole::Q => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use layout::{Layout, Level, Shape};

    const CHUNK: u64 = 64 << 10;
    const STEP: u64 = 16 << 10;

    fn geometry(layout: Layout, slots: usize) -> Geometry {
        let members = vec![40 * CHUNK; slots];
        Geometry::new(Shape { layout, chunk_bytes: CHUNK, members }).expect("a small array")
    }

    /// A reader gets each chunk once, before it comes to its row; the chunks of a member in order;
    /// and few of them at a time.
    #[test]
    fn each_chunk_is_due_once_and_in_time() {
        let mut seen = 0;
        for (level, slots) in [(Level::Raid5, 3), (Level::Raid5, 8), (Level::Raid6, 7)] {
            for layout in Layout::all(level, slots) {
                let geometry = geometry(layout, slots);
                if !pay(&geometry, 0, u64::MAX) {
                    continue;
                }
                let (mut done, mut chunks) = (0, Vec::new());
                let mut latest = vec![None; slots];
                for at in (0..geometry.capacity()).step_by(STEP as usize) {
                    let until = due(&geometry, at);
                    let handed = each_due(&geometry, &(done..until), |chunk| {
                        let (row, index, _) = geometry.stripe_of(chunk.start);
                        let slot = geometry.stripe(row).data(index);
                        assert!(Some(row) > latest[slot.index()], "{layout:?}: out of order");
                        latest[slot.index()] = Some(row);
                        assert!(row.0 == 0 || chunk.start >= at, "{layout:?}: too late");
                        chunks.push(chunk);
                        true
                    });
                    assert!(handed);
                    done = until;
                    let ahead = chunks.iter().filter(|chunk| chunk.end > at).count() as u64;
                    let most = geometry.stripe_bytes() / 4 * (slots as u64 + 8) + 2 * CHUNK;
                    assert!(ahead * CHUNK <= most, "{layout:?}: {ahead} chunks");
                }
                chunks.sort_by_key(|chunk| chunk.start);
                let all = (0..geometry.capacity()).step_by(CHUNK as usize);
                assert!(chunks.into_iter().eq(all.map(|start| start..start + CHUNK)));
                seen += 1;
            }
        }
        assert!(seen > 8, "{seen} layouts");
    }

    #[test]
    fn runs_must_end_be_long_enough_and_fit_in_memory() {
        let five = geometry(Layout::default_for(Level::Raid5, 8), 8);
        assert!(pay(&five, 7 * CHUNK, 28 * CHUNK));
        assert!(!pay(&five, 8 * CHUNK, 28 * CHUNK) && !pay(&five, 7 * CHUNK, 27 * CHUNK));
        let four = geometry(Layout::Raid4, 8);
        assert!(!pay(&four, 0, u64::MAX), "a member of RAID 4 has no parity to pass over");
        let copies = geometry(Layout::default_for(Level::Raid10, 8), 8);
        assert!(!pay(&copies, 0, u64::MAX));
    }
}
