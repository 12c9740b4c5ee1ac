//! The setup of a log: its form, and its place on a member.

use layout::SlotSet;
use layout::plan::{Roles, Row};
use layout::private::log::{BATCH_ALIGNMENT, CHECK_BYTES};

/// The log settings of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogSetup {
    /// Our own, in the private area.
    Zone {
        /// Bytes of each shard's zone.
        zone_bytes: u64,
        /// The records include the new data.
        data: bool,
        /// The array keeps checksums.
        checksums: bool,
        /// A journal device holds the whole log until it is lost.
        device: bool,
    },
    /// md's partial parity log, of an array with one shard.
    Ppl {
        /// The most partial parity of a batch on one member, in bytes.
        pp_bytes: u64,
        /// See [`layout::md::ppl::signature`].
        signature: u32,
    },
}

impl LogSetup {
    /// True if records include the new data.
    pub fn with_data(self) -> bool {
        matches!(self, LogSetup::Zone { data: true, .. })
    }

    /// True if a journal device may have both syndromes of a row.
    pub fn may_have_both(self) -> bool {
        matches!(self, LogSetup::Zone { device: true, .. })
    }

    /// True if the array keeps checksums: old and new ones are logged with every row.
    pub fn with_checksums(self) -> bool {
        matches!(self, LogSetup::Zone { checksums: true, .. })
    }

    /// The most bytes that one member may have to log for a row with these `touched` slots, while
    /// these are `present`.
    pub fn row_bytes(self, row: &Row, roles: &Roles, touched: SlotSet, present: SlotSet) -> u64 {
        let words = if self.with_checksums() { 3 } else { 1 };
        let count = row.count as u64;
        let blocks = row.len() / CHECK_BYTES + 2;
        let missing = || touched.difference(present).count() as u64;
        let data = if self.with_data() { count } else { missing() };
        let both = if self.may_have_both() { roles.parity().count() as u64 } else { 1 };
        let partials = if touched == roles.data { 0 } else { both };
        64 * both + words * 4 * blocks * count + row.len() * (partials + data)
    }
}

/// The most bytes that one member may have to log for rows of these sizes, including the batch
/// header.
pub fn most_bytes(rows: impl Iterator<Item = u64>) -> u64 {
    (rows.sum::<u64>() + 2 * BATCH_ALIGNMENT).next_multiple_of(BATCH_ALIGNMENT)
}

/// The place of a member's log on its disk, and the number in its batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPlace {
    /// Bytes from the start of the disk.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u64,
    /// See [`layout::private::LogShape::session`].
    pub session: u64,
}

/// The smallest zone: room for the smallest part of a request, with a block of each touched slot,
/// its syndrome and the batch overhead. The journal policy logs all its data, other policies only
/// that of slots without a member.
pub const fn least_zone(slots: usize, journal: bool) -> u64 {
    let blocks = if journal { slots as u64 } else { 2 };
    2 * BATCH_ALIGNMENT * (blocks + 8)
}
