//! Notes what happens to the array, in its event log.

use std::ops::Range;

use layout::{MemberId, Owner};

use crate::keeper::Keeper;
use crate::status::{Event, EventKind};

impl Keeper {
    /// Notes an event, of this member if it concerns one.
    pub(super) fn note(&self, kind: EventKind, member: Option<MemberId>, text: impl Into<String>) {
        self.note_at(kind, member, None, text);
    }

    /// As [`Keeper::note`], of bytes of the array.
    pub(super) fn note_at(
        &self,
        kind: EventKind,
        member: Option<MemberId>,
        range: Option<Range<u64>>,
        text: impl Into<String>,
    ) {
        let assignment = member.and_then(|id| self.configuration.borrow().slot_of(id));
        let slot = assignment.map(|(slot, _)| slot);
        let member = member.map(|id| self.name_of(id));
        let unix_micros = self.clock.unix_micros();
        self.log.push(Event { unix_micros, kind, member, slot, range, text: text.into() });
    }

    /// The stripes of the array that have bytes at this place of a member's disk; none outside its
    /// data. Only the first stripe, if the place spans parts of the array that lie apart.
    pub(super) fn stripes_at(&self, member: MemberId, disk: Range<u64>) -> Option<Range<u64>> {
        let data_offset = self.known(member)?.data_offset;
        let (slot, _) = self.configuration.borrow().slot_of(member)?;
        let stripe_bytes = self.geometry.stripe_bytes();
        let stripe = |disk_offset: u64| {
            let offset = disk_offset.checked_sub(data_offset)?;
            let start = match self.geometry.owner(slot, offset) {
                Owner::Data { array_offset, .. } => array_offset / stripe_bytes * stripe_bytes,
                Owner::P { stripe, .. } | Owner::Q { stripe, .. } => stripe.0 * stripe_bytes,
                Owner::Unused { .. } => return None,
            };
            Some(start..(start + stripe_bytes).min(self.geometry.capacity()))
        };
        let first = stripe(disk.start)?;
        let last = stripe(disk.end.saturating_sub(1)).filter(|last| last.end >= first.end);
        let spans = |last: &Range<u64>| last.end - first.start <= self.geometry.region_bytes();
        let end = last.filter(spans).map_or(first.end, |last| last.end);
        Some(first.start..end)
    }
}
