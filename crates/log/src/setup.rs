//! Set-up of a log: its format, and its place on a member.

use layout::SlotSet;
use layout::plan::{Roles, Row};
use layout::private::log::{BATCH_ALIGNMENT, CHECK_BYTES};

/// A shard's log parameters at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogSetup {
    /// Our own, in the private area.
    Zone {
        /// Bytes of each shard's zone.
        zone_bytes: u64,
        /// The new data is logged too.
        data: bool,
        /// The array keeps checksums.
        checksums: bool,
        /// A journal device has all of it, until it is lost.
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
    /// The new data is logged too.
    pub fn with_data(self) -> bool {
        matches!(self, LogSetup::Zone { data: true, .. })
    }

    /// A journal device may have both syndromes of a row.
    pub fn may_have_both(self) -> bool {
        matches!(self, LogSetup::Zone { device: true, .. })
    }

    /// The array keeps checksums: new and old ones are logged with every row.
    pub fn with_checksums(self) -> bool {
        matches!(self, LogSetup::Zone { checksums: true, .. })
    }

    /// The most that one member may log for a row with these `touched` slots, while these are
    /// `present`.
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

/// The most that one member may log for rows of this many bytes, including the batch around them.
pub fn most_bytes(rows: impl Iterator<Item = u64>) -> u64 {
    (rows.sum::<u64>() + 2 * BATCH_ALIGNMENT).next_multiple_of(BATCH_ALIGNMENT)
}

/// Where a member's log lies on its disk, and the number that its batches carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPlace {
    /// Bytes from the start of the disk.
    pub offset: u64,
    /// Bytes that it has there.
    pub bytes: u64,
    /// See [`layout::private::LogShape::session`].
    pub session: u64,
}

/// The minimum size of a zone: the smallest part of a request (a block of each slot that it may
/// touch, with its syndrome) and the batch around it. With the journal all of its data is logged,
/// otherwise the data of slots without a member.
pub const fn least_zone(slots: usize, journal: bool) -> u64 {
    let blocks = if journal { slots as u64 } else { 2 };
    2 * BATCH_ALIGNMENT * (blocks + 8)
}
