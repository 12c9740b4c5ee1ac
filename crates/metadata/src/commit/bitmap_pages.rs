//! Bits of the write-intent bitmap, on all members.
//!
//! Owns the decision when a page of the bitmap is written, and to which members. The keeper decides
//! which bits are set and when they may be cleared.
//!
//! A bit is first set in memory, which makes its page stale on each member. The task that holds the
//! lock then writes the stale pages. Concurrent calls share one write, and no page is ever written
//! twice at once. Every such write is FUA, because a caller that finds no stale page after its wait
//! relies on it.
//!
//! Invariant: a bit is cleared on disk only when no member is missing, and only after
//! `events_cleared` covers it on every member.

use std::ops::RangeInclusive;

use io::broken::{Broken, broken};
use layout::{Configuration, MemberId, RangeSet, sync};

use crate::bitmap::{Bits, Pages};
use crate::commit::member_io::all;
use crate::commit::record::copy_pages;
use crate::commit::{Failures, MetadataWriter, State};

impl MetadataWriter {
    /// Sets bits, durably on every assigned member before it returns.
    ///
    /// # Errors
    /// The members that could not be written: the bits may not be set there.
    pub async fn set_bits(
        &self,
        assigned: &Configuration,
        regions: &[RangeInclusive<u64>],
    ) -> Result<(), Failures> {
        let asked = |region: &u64| regions.iter().any(|range| range.contains(region));
        self.state.borrow_mut().doomed.retain(|region| !asked(region));
        for range in regions {
            self.change(|bits| bits.set(range.clone()));
        }
        let assigned: Vec<MemberId> = assigned.assigned().map(|(_, id)| id).collect();
        let failures = self.write_bitmap(&assigned).await;
        if !failures.is_empty() {
            return Err(failures);
        }
        let state = self.state.borrow();
        let set = state
            .bits
            .as_ref()
            .is_none_or(|bits| regions.iter().all(|range| bits.are_set(range.clone())));
        assert!(set, "bits of {regions:?} are not set: a crash would hide writes there");
        Ok(())
    }

    /// Clears bits of regions that are in sync and not being written. Bits that are set again
    /// before it returns stay set. Does nothing while a slot is not in sync: a returning member
    /// will need the bits.
    ///
    /// # Errors
    /// The members that could not be written.
    pub async fn clear_bits(
        &self,
        assigned: &Configuration,
        regions: &[u64],
    ) -> Result<(), Failures> {
        let whole = assigned.in_sync().count() == self.geometry.slots();
        if !whole && !broken(Broken::BitClearedDegraded) {
            return Ok(());
        }
        // From here on, a bit that is set again stays set. There was no await since the caller's
        // decision.
        self.state.borrow_mut().doomed.extend(regions);
        let ids: Vec<MemberId> = assigned.assigned().map(|(_, id)| id).collect();
        let events = self.events.get();
        // First invalidates re-adds of former members, which lack more than the bits will cover.
        self.change(|bits| {
            if bits.header().events_cleared == events {
                return Pages::NONE;
            }
            bits.edit_header(|header| header.events_cleared = events);
            Pages::HEADER
        });
        let failures = self.write_bitmap(&ids).await;
        let doomed = std::mem::take(&mut self.state.borrow_mut().doomed);
        if !failures.is_empty() {
            return Err(failures);
        }
        self.change(|bits| bits.clear(doomed));
        let failures = self.write_bitmap(&ids).await;
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Regions whose bit is set, ascending.
    pub fn dirty_bits(&self) -> impl Iterator<Item = u64> + use<> {
        let state = self.state.borrow();
        state.bits.as_ref().map(Bits::dirty).unwrap_or_default().into_iter()
    }

    /// The dirty regions in array space: the ranges that a member lacks if it was lost while all
    /// was clean. Every write adds more until the member has its slot again. So the caller must ask
    /// again when no write can be in flight.
    pub fn dirty_ranges(&self) -> RangeSet {
        let state = self.state.borrow();
        let Some(bits) = &state.bits else { return RangeSet::new() };
        let dirty = bits.dirty().into_iter().map(|region| bits.sync_range(region));
        dirty.map(|range| sync::array_range(&self.geometry, range)).collect()
    }

    /// Changes the bitmap in memory; the changed pages become stale on every member.
    pub(super) fn change(&self, change: impl FnOnce(&mut Bits) -> Pages) {
        let mut state = self.state.borrow_mut();
        let State { records, bits, .. } = &mut *state;
        if let Some(bits) = bits {
            let pages = change(bits);
            records.values_mut().for_each(|record| record.behind = record.behind.union(pages));
        }
    }

    /// Writes the stale pages of these members. When it returns, each member that is not among the
    /// failures holds durably all bits set before the call.
    pub(super) async fn write_bitmap(&self, ids: &[MemberId]) -> Failures {
        if self.state.borrow().bits.is_none() {
            return Failures::new();
        }
        let _turn = self.marking.take().await;
        let late = ids.iter().filter_map(|&id| Some((id, self.late(id)?)));
        let mut failures: Failures = late.collect();
        let work: Vec<_> = {
            let mut state = self.state.borrow_mut();
            let State { records, bits, .. } = &mut *state;
            let bits = bits.as_ref().expect("checked above; a bitmap is never removed");
            let behind = |id: &MemberId| {
                let record = records.get_mut(id)?;
                let pages = std::mem::take(&mut record.behind);
                (!pages.is_empty()).then(|| (*id, record.clone(), pages, copy_pages(bits, pages)))
            };
            let able = ids.iter().filter(|id| !failures.iter().any(|(late, _)| late == *id));
            able.filter_map(behind).collect()
        };
        let writes = work.into_iter().map(|(id, record, pages, bytes)| async move {
            (id, pages, record.write_pages(&self.reach, &bytes).await)
        });
        for (id, pages, result) in all(writes).await {
            if let Err(why) = result {
                let mut state = self.state.borrow_mut();
                if let Some(record) = state.records.get_mut(&id) {
                    record.behind = record.behind.union(pages);
                }
                failures.push((id, why));
            }
        }
        failures
    }
}
