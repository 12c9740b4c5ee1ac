//! Where a shard's requests are split, and what a unit touches: its rows, its regions.

use io::broken::{Broken, broken};
use layout::{Family, Stripe};

use crate::rows::engine::Engine;
use crate::rows::locks::{Claim, Rows};
use crate::shard::Shard;
use crate::shard::queue::{Action, Unit};

impl Engine {
    /// Units are cut, and merged, at multiples of this array offset: between stripes, unless a
    /// stripe is far more than a unit.
    pub(crate) fn unit_border(&self) -> u64 {
        let stripe = self.setup.geometry.stripe_bytes();
        let unit = self.setup.bounds.unit_bytes;
        if stripe > 4 * unit { unit } else { self.job_border() }
    }

    /// Units of background work are cut at multiples of this array offset: whole stripes.
    pub(crate) fn job_border(&self) -> u64 {
        let stripe = self.setup.geometry.stripe_bytes();
        let unit = self.setup.bounds.unit_bytes;
        if stripe > unit { stripe } else { unit / stripe * stripe }
    }

    /// The rows that an array range touches.
    pub(crate) fn rows_of(&self, offset: u64, len: u64) -> Rows {
        let geometry = &self.setup.geometry;
        if geometry.family() != Family::Parity {
            return Rows { first: 0, last: 0, start: offset, end: offset + len };
        }
        let (first, index, start) = geometry.stripe_of(offset);
        let (last, last_index, end) = geometry.stripe_of(offset + len - 1);
        let (first, last) = (first.0, last.0);
        if broken(Broken::RowsUnlocked) && first == last {
            return Rows { first, last, start: offset, end: offset + len };
        }
        if first == last && index == last_index {
            Rows { first, last, start, end: end + 1 }
        } else {
            Rows { first, last, start: 0, end: geometry.chunk_bytes() }
        }
    }

    /// The array offset where a stripe begins.
    pub(crate) fn stripe_offset(&self, stripe: Stripe) -> u64 {
        stripe.0 * self.setup.geometry.stripe_bytes()
    }
}

impl Shard {
    /// Units that change bytes, or look at whole rows, lock them; plain reads do not.
    pub(super) fn claim_for(&self, unit: &Unit) -> Option<Claim> {
        match unit.action {
            Action::Read(_) | Action::ReadAhead(_) | Action::Extents(_) | Action::Flush { .. } => {
                None
            }
            Action::RangeJob(_) if broken(Broken::RebuildUnlocked) => None,
            _ => {
                let (offset, len) = self.engine.widened((unit.offset, unit.len));
                Some(self.engine.locks.claim(self.engine.rows_of(offset, len)))
            }
        }
    }

    /// The marks of the write-intent bitmap that an array range needs.
    pub(super) fn bits_of(&self, offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
        let (geometry, mark) = (&self.engine.setup.geometry, self.engine.setup.bitmap_bytes);
        let sync = layout::sync::sync_range(geometry, offset..offset + len);
        sync.start / mark..=(sync.end - 1) / mark
    }
}
