//! Copies of writes that the wire may still hold.
//!
//! ```text
//!   W1 tag 1 ────────(late)──────────────────────────────▶ undoes W2, unless W2 has waited
//!   W1 tag 2 ──▶ answered        W2 to the same sectors
//!                      └── waits ──┘
//! ```
//!
//! A target without a history (vblade: one process for each port) carries out every copy when it
//! comes. So sectors are free for another write only when each copy of the last one was answered,
//! or is too old to arrive ([`FRAME_LIFETIME`]).

use std::ops::Range;

use io::Time;
use io::broken::{Broken, broken};

use super::super::FRAME_LIFETIME;

/// The write of some sectors that has ended, and whose copies have not.
struct Write {
    sectors: Range<u64>,
    operation: u64,
    /// The tags of the copies that were not answered.
    tags: Vec<u32>,
    /// When the last of them is too old to arrive.
    until: Time,
}

/// Ended writes with copies that may still arrive.
#[derive(Default)]
pub(super) struct Unsettled(Vec<Write>);

impl Unsettled {
    /// Adds a write of this operation that has ended; `sent` is when its last copy was.
    pub(super) fn add(&mut self, sectors: Range<u64>, operation: u64, tags: Vec<u32>, sent: Time) {
        if !tags.is_empty() && !sectors.is_empty() {
            self.0.push(Write { sectors, operation, tags, until: sent + FRAME_LIFETIME });
        }
    }

    /// A copy was answered. True if that makes sectors free.
    pub(super) fn answered(&mut self, tag: u32) -> bool {
        let Some(at) = self.0.iter().position(|write| write.tags.contains(&tag)) else {
            return false;
        };
        self.0[at].tags.retain(|it| *it != tag);
        let free = self.0[at].tags.is_empty();
        if free {
            self.0.swap_remove(at);
        }
        free
    }

    /// Forgets copies that are too old. True if that makes sectors free.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        let before = self.0.len();
        self.0.retain(|write| write.until > now);
        self.0.len() < before
    }

    /// True if a write of another operation to these sectors must wait.
    pub(super) fn blocks(&self, sectors: &Range<u64>, operation: u64) -> bool {
        let overlaps =
            |it: &Write| it.sectors.start < sectors.end && sectors.start < it.sectors.end;
        !broken(Broken::AoeRangeReused)
            && self.0.iter().any(|it| it.operation != operation && overlaps(it))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_are_free_when_every_copy_is_answered_or_too_old() {
        let mut unsettled = Unsettled::default();
        unsettled.add(8..16, 1, vec![4, 5], Time(0));
        unsettled.add(32..33, 1, vec![6], Time(9));
        unsettled.add(40..48, 1, Vec::new(), Time(9));
        for (sectors, blocked) in [(0..8, false), (0..9, true), (15..16, true), (16..32, false)] {
            assert_eq!(unsettled.blocks(&sectors, 2), blocked, "{sectors:?}");
            assert!(!unsettled.blocks(&sectors, 1), "the same data cannot be undone by itself");
        }
        assert!(!unsettled.blocks(&(40..48), 2), "all its copies were answered");
        assert!(!unsettled.answered(7) && !unsettled.answered(4) && !unsettled.answered(4));
        assert!(unsettled.blocks(&(8..9), 2), "a copy is not answered");
        assert!(unsettled.answered(5) && !unsettled.blocks(&(8..9), 2));
        assert!(!unsettled.expire(Time(8) + FRAME_LIFETIME) && unsettled.blocks(&(32..33), 2));
        assert!(unsettled.expire(Time(9) + FRAME_LIFETIME) && !unsettled.blocks(&(32..33), 2));
    }
}
