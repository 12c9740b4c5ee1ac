//! Rows in progress: a worker's state of each row of its unit, and the member reads it needs.

use std::ops::Range;
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Buf, Permit, SharedBuf};
use layout::plan::{DataLost, Method, Roles, Row, RowState, WritePlan, plan_write, rows};
use layout::private::CHECKSUM_BLOCK_BYTES;
use layout::{Slot, SlotSet, Stripe, StripeMap};
use metadata::{Error, ErrorKind};

use crate::member::{Member, View};
use crate::rows::engine::Engine;

pub(crate) mod bad_blocks;
pub(crate) mod checksum;
pub(crate) mod engine;
pub(crate) mod extents;
pub(crate) mod flush;
pub(crate) mod hedge;
pub(crate) mod intent;
pub(crate) mod job;
pub(crate) mod locks;
pub(crate) mod mirror;
mod orphans;
pub(crate) mod read;
pub(crate) mod write;
pub(crate) mod write_zeroes;

pub(crate) use engine::Scratch;

/// The most runs of rows remembered as rewritten since a crash but not yet resynced.
const RESOLVED_MAX: usize = 1 << 16;

/// A row of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowWork {
    pub(crate) row: Row,
    pub(crate) map: StripeMap,
    pub(crate) roles: Roles,
    /// Slots of this row with a failed read.
    pub(crate) bad: SlotSet,
    /// Slots with a checksum mismatch, to be repaired.
    pub(crate) wrong: SlotSet,
    /// Of the unreadable slots, those that contradict both their checksums and redundancy.
    pub(crate) contradicted: SlotSet,
    /// The plan of the row.
    pub(crate) plan: Option<WritePlan>,
    /// The parity that its plan leaves out is on record as discarded.
    pub(crate) given_up: bool,
    /// Its pieces: `first..first + count` among the unit's.
    pub(crate) first: usize,
    pub(crate) count: usize,
}

/// The bytes read from one slot for a row.
pub(crate) struct Piece {
    pub(crate) slot: Slot,
    pub(crate) buf: Option<Buf>,
    pub(crate) failed: bool,
}

/// Bytes to be written to a slot. They are kept until they are written, so that a retry sends the
/// same bytes.
pub(crate) struct Outgoing {
    pub(crate) slot: Slot,
    /// From the start of the member's data.
    pub(crate) at: u64,
    pub(crate) bytes: SharedBuf,
}

impl RowWork {
    pub(crate) fn new(row: Row, map: StripeMap, slots: usize) -> RowWork {
        let roles = Roles::of(&map, slots);
        let (bad, wrong, contradicted) = (SlotSet::EMPTY, SlotSet::EMPTY, SlotSet::EMPTY);
        let (plan, given_up, first, count) = (None, false, 0, 0);
        RowWork { row, map, roles, bad, wrong, contradicted, plan, given_up, first, count }
    }

    /// Where the row begins on each member, from the start of its data.
    pub(crate) fn at(&self) -> u64 {
        self.map.member_offset() + self.row.start
    }

    /// The data slots that the request touches.
    pub(crate) fn touched(&self) -> SlotSet {
        (self.row.first..self.row.first + self.row.count)
            .map(|index| self.map.data(index))
            .collect()
    }

    /// Its 4 KiB blocks as rows of their own: bad blocks are recorded by block.
    fn blocks(&self) -> impl Iterator<Item = RowWork> + use<> {
        let (whole, step) = (*self, CHECKSUM_BLOCK_BYTES);
        let cuts = (whole.row.start / step..whole.row.end.div_ceil(step)).map(move |block| Row {
            start: whole.row.start.max(block * step),
            end: whole.row.end.min((block + 1) * step),
            ..whole.row
        });
        cuts.map(move |row| RowWork {
            row,
            bad: SlotSet::EMPTY,
            wrong: SlotSet::EMPTY,
            contradicted: SlotSet::EMPTY,
            plan: None,
            given_up: false,
            first: 0,
            count: 0,
            ..whole
        })
    }

    /// The bytes read from a slot.
    pub(crate) fn have<'a>(&self, pieces: &'a [Piece], slot: Slot) -> Option<&'a [u8]> {
        let pieces = &pieces[self.first..self.first + self.count];
        let bytes = pieces.iter().find(|piece| piece.slot == slot)?.buf.as_deref()?;
        let (have, row) = (bytes.len() as u64, self.row.len());
        assert_eq!(have, row, "bytes of slot {slot} from another row: the lengths differ");
        Some(bytes)
    }
}

/// Data bytes that these rows touch.
pub(crate) fn touched_bytes(rows: &[RowWork]) -> u64 {
    rows.iter().map(|work| work.row.len() * work.row.count as u64).sum()
}

impl Engine {
    /// The rows that an array range touches, stripe by stripe.
    pub(crate) fn split_rows(&self, offset: u64, len: u64, into: &mut Vec<RowWork>) {
        into.clear();
        let geometry = &self.setup.geometry;
        let (stripe_bytes, chunk) = (geometry.stripe_bytes(), geometry.chunk_bytes());
        let (mut at, end) = (offset, offset + len);
        assert!(end <= geometry.capacity(), "rows beyond the end of the array");
        while at < end {
            let stripe = Stripe(at / stripe_bytes);
            let from = at % stripe_bytes;
            let to = stripe_bytes.min(from + (end - at));
            let map = geometry.stripe(stripe);
            for row in rows(stripe, from, to, chunk) {
                into.push(RowWork::new(row, map, geometry.slots()));
            }
            at += to - from;
        }
    }

    /// Memory for these rows of all slots.
    pub(crate) async fn memory_for_rows(&self, rows: &[RowWork]) -> Permit {
        let slots = self.setup.geometry.slots() as u64;
        self.scratch.take(rows.iter().map(|row| row.row.len() * slots).sum()).await
    }

    /// The current state of a row.
    pub(crate) fn state_of(&self, view: &View, work: &RowWork) -> RowState {
        let geometry = &self.setup.geometry;
        let (Row { stripe, start, end, .. }, chunk) = (work.row, geometry.chunk_bytes());
        assert!(
            start < end && end <= chunk,
            "row {start}..{end} leaves its chunk of {chunk} bytes"
        );
        let start = self.stripe_offset(stripe);
        let unfinished = self.is_unfinished(work.at(), work.row.len());
        let synced = !unfinished && !self.is_unsynced(start, geometry.stripe_bytes());
        let end = start + geometry.stripe_bytes();
        let readable = |slot: &Slot| view.is_readable(*slot, end, work.at(), work.row.len());
        let readable: SlotSet = view.present.iter().filter(readable).collect();
        let readable = readable.difference(work.bad);
        let suspect = unfinished || !synced && self.is_suspect(work);
        let whole_only = broken(Broken::RebuildMissesWrites);
        let writable = if whole_only { view.in_sync } else { view.present };
        RowState { readable, writable, synced, suspect }
    }

    /// True if a write torn by a crash may have left this unsynced row's parity wrong.
    fn is_suspect(&self, work: &RowWork) -> bool {
        let range = work.at()..work.at() + work.row.len();
        self.setup.unverified && !self.resolved.borrow().covers(&range)
    }

    /// Marks rows as resolved whose parity has been computed from all their data since the crash.
    pub(crate) fn resolve_rows(&self, rows: &[RowWork]) {
        for work in rows {
            let whole = work.plan.is_some_and(|plan| {
                matches!(plan.method, Method::Full | Method::Reconstruct)
                    && !work.roles.parity().intersection(plan.write).is_empty()
            });
            if whole {
                self.mark_resolved(work.at()..work.at() + work.row.len());
            }
        }
    }

    /// Marks a range of all members as resolved.
    pub(crate) fn mark_resolved(&self, range: Range<u64>) {
        let mut resolved = self.resolved.borrow_mut();
        let asked = self.setup.unverified && !self.unsynced.borrow().is_empty();
        // An error in place of a recovery is the only cost of a forgotten range.
        if asked && resolved.count() < RESOLVED_MAX {
            resolved.insert(range);
        }
    }

    /// Plans the writing of every row.
    pub(crate) fn plan_rows(&self, view: &View, rows: &mut [RowWork]) -> Result<(), Error> {
        rows.iter_mut().for_each(|row| row.plan = None);
        for work in rows {
            let state = self.state_of(view, work);
            let plan = plan_write(&work.roles, &state, work.touched());
            let mut plan = plan.map_err(|lost| self.data_lost(work, lost))?;
            if !work.contradicted.is_subset(work.touched().union(work.roles.parity())) {
                return Err(self.contradicted(work));
            }
            if broken(Broken::ParityStaleDegraded) && !view.is_whole() {
                plan.write = plan.write.intersection(work.roles.data);
            }
            work.plan = Some(plan);
        }
        Ok(())
    }

    /// The slots whose parity the row's plan leaves out. Once the data is written, that parity no
    /// longer matches the row.
    fn passed_parity(&self, view: &View, work: &RowWork) -> SlotSet {
        match work.plan {
            Some(plan) if plan.method == Method::DataOnly => {
                work.roles.parity().intersection(view.present)
            }
            Some(_) => SlotSet::EMPTY,
            None => self.useless_parity(view, work),
        }
    }

    /// The slots with useless parity, of a row that cannot be written: all its data members are
    /// present, but it has lost more blocks than parity can recover. Empty if a data member may
    /// return with its bytes, or is still being rebuilt.
    fn useless_parity(&self, view: &View, work: &RowWork) -> SlotSet {
        let state = self.state_of(view, work);
        let resolved = work.roles.data.is_subset(view.in_sync);
        match plan_write(&work.roles, &state, work.touched()) {
            Err(_) if resolved => work.roles.parity().intersection(state.readable),
            _ => SlotSet::EMPTY,
        }
    }

    /// The members with parity that a row's plan leaves out, also those being rebuilt. Members
    /// whose whole row is listed as bad are not among them.
    pub(crate) fn trusted_parity<'v>(
        &self,
        view: &'v View,
        work: &RowWork,
    ) -> impl Iterator<Item = &'v Rc<Member>> + use<'v> {
        let (at, len) = (work.at(), work.row.len());
        let members = self.passed_parity(view, work).iter().flat_map(|slot| {
            let most = if broken(Broken::CopyOfParityTrusted) { 1 } else { usize::MAX };
            view.targets(slot).take(most)
        });
        members.filter(move |member| !member.is_bad(at, len))
    }

    /// True if parity of the row must be discarded, on record, before the row can be written.
    pub(crate) fn is_trusted(&self, view: &View, work: &RowWork) -> bool {
        let passed = !self.passed_parity(view, work).is_empty();
        passed && (!work.given_up || self.trusted_parity(view, work).next().is_some())
    }

    /// Splits rows into blocks if bad blocks cost them their parity or more: the loss of one block
    /// must not affect another. False if there are no such rows.
    pub(crate) fn take_apart(&self, view: &View, rows: &mut Vec<RowWork>) -> bool {
        let bad = |work: &RowWork| {
            let (at, len) = (work.at(), work.row.len());
            let mut members = view.members();
            !work.bad.is_empty() || members.any(|(_, member)| !member.is_good(at, len))
        };
        let apart = |work: &RowWork| {
            let poor = work.plan.is_none_or(|plan| plan.method == Method::DataOnly);
            poor && work.blocks().nth(1).is_some() && bad(work)
        };
        if !self.setup.parity || !rows.iter().any(apart) {
            return false;
        }
        let each = rows.iter().flat_map(|work| {
            let (whole, parts) =
                if apart(work) { (None, Some(work.blocks())) } else { (Some(*work), None) };
            whole.into_iter().chain(parts.into_iter().flatten())
        });
        let parts: Vec<RowWork> = each.collect();
        let (before, after) = (touched_bytes(rows), touched_bytes(&parts));
        assert_eq!(after, before, "a row of other length than the blocks that it was split into");
        *rows = parts;
        true
    }

    /// Plans to write only the data and to leave parity as it is. Used only to measure the cost of
    /// parity.
    ///
    /// # Errors
    /// [`ErrorKind::DataLost`] where a slot is missing: only parity could hold its bytes.
    pub(crate) fn plan_without_parity(
        &self,
        view: &View,
        rows: &mut [RowWork],
    ) -> Result<(), Error> {
        for work in rows {
            let write = work.touched();
            let slots = write.difference(view.present);
            if !slots.is_empty() {
                return Err(self.data_lost(work, DataLost { slots }));
            }
            work.plan = Some(WritePlan { method: Method::DataOnly, read: SlotSet::EMPTY, write });
        }
        Ok(())
    }

    /// The error for a row that has lost too much.
    pub(crate) fn data_lost(&self, work: &RowWork, lost: DataLost) -> Error {
        Error::new(ErrorKind::DataLost, lost.to_string()).at(self.stripe_offset(work.row.stripe))
    }
}
