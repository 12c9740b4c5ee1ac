//! The plan of a read or write of a row, as a value that can be printed, compared and enumerated.
//!
//! Owns the decisions of the parity levels; never does I/O, never computes parity. The engine
//! executes the plans, for clients, rebuild, resync and scrub alike.
//!
//! # Rows
//!
//! A *row* is one range of offsets taken across all the chunks of a stripe: the unit of parity.
//! Bytes at the same offset of different chunks share parity; bytes at different offsets share
//! nothing, so rows can be read, written and locked independently. A contiguous write to a stripe
//! touches at most three rows, and in each a run of whole pieces:
//!
//! ```text
//!              chunk 0    chunk 1    chunk 2        a write from the middle of chunk 0
//!   offset 0  ┌────────┬──────────┬──────────┐      to the middle of chunk 2
//!             │        │▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓│   row A touches 1, 2
//!             ├────────┼──────────┼──────────┤
//!             │▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓│   row B touches 0, 1, 2: full, nothing to read
//!             ├────────┼──────────┼──────────┤
//!             │▓▓▓▓▓▓▓▓│▓▓▓▓▓▓▓▓▓▓│          │   row C touches 0, 1
//!             └────────┴──────────┴──────────┘
//! ```
//!
//! # The decision table for a write
//!
//! First line that holds wins; *touched* slots get new bytes, *kept* slots are the other data
//! slots.
//!
//! ```text
//!   parity  condition                                        method           reads
//!   ──────  ───────────────────────────────────────────────  ───────────────  ──────────────────
//!   none                                                     DataOnly         nothing
//!   some    all data is touched                              Full             nothing
//!   some    in sync; touched and parity readable; fewer      ReadModifyWrite  touched + parity
//!           than kept, or some of kept is unreadable
//!   some    all of kept is readable                          Reconstruct      kept
//!   some    unreadable data can be recovered                 Recover          readable data, and
//!                                                                             parity as needed
//!   some    no parity is readable; touched has members       DataOnly         nothing
//!   some    otherwise                                        data is lost
//! ```
//!
//! *Parity* is the set of writable parity slots.
//!
//! A row out of sync is never updated by `ReadModifyWrite`: wrong parity would stay wrong. Where
//! parity is unverified, unreadable blocks are not recovered for a reader. A write to other slots
//! leaves the row unverified; a write without recovery verifies it.

use core::fmt;

use crate::geometry::StripeMap;
use crate::units::{Slot, SlotSet, Stripe};

/// The same range of offsets in every chunk of a stripe, and which data of it a request touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// The stripe.
    pub stripe: Stripe,
    /// First byte, from the start of the chunk.
    pub start: u64,
    /// Byte after the last one.
    pub end: u64,
    /// The first data index touched.
    pub first: usize,
    /// How many data indices are touched: at least 1.
    pub count: usize,
}

impl Row {
    /// Bytes of the row on one member.
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// A row has at least one byte.
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

/// The rows of the bytes `from..to` of a stripe's data, in order of their offset.
///
/// # Panics
/// If the range is empty.
pub fn rows(stripe: Stripe, from: u64, to: u64, chunk_bytes: u64) -> impl Iterator<Item = Row> {
    assert!(from < to, "a row of no bytes");
    let (first, start) = ((from / chunk_bytes) as usize, from % chunk_bytes);
    let (last, end) = (((to - 1) / chunk_bytes) as usize, (to - 1) % chunk_bytes + 1);
    let row = move |start, end, first, past: usize| Row {
        stripe,
        start,
        end,
        first,
        count: past.saturating_sub(first),
    };
    let cut = if first == last {
        [row(start, end, first, first + 1), row(0, 0, 0, 0), row(0, 0, 0, 0)]
    } else {
        // The first chunk is touched from `start` on, the last one up to `end`, those between
        // whole.
        let middle = if start < end {
            row(start, end, first, last + 1)
        } else {
            row(end, start, first + 1, last)
        };
        [
            row(0, start.min(end), first + 1, last + 1),
            middle,
            row(start.max(end), chunk_bytes, first, last),
        ]
    };
    let rows = cut.into_iter().filter(|row| row.start < row.end && row.count > 0);
    let covered: u64 = rows.clone().map(|row| row.len() * row.count as u64).sum();
    assert_eq!(covered, to - from, "the rows of {from}..{to} are not all of its bytes");
    rows
}

/// The slots of one stripe by their content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles {
    /// Slots with data.
    pub data: SlotSet,
    /// The slot with P.
    pub p: Slot,
    /// The slot with Q, on RAID 6.
    pub q: Option<Slot>,
}

impl Roles {
    /// The roles in a stripe of an array of `slots` members.
    pub fn of(map: &StripeMap, slots: usize) -> Roles {
        let parity = SlotSet::only(map.p()).union(map.q().map_or(SlotSet::EMPTY, SlotSet::only));
        Roles { data: SlotSet::first(slots).difference(parity), p: map.p(), q: map.q() }
    }

    /// All slots.
    pub fn all(&self) -> SlotSet {
        self.data.union(self.parity())
    }

    /// Slots with parity.
    pub fn parity(&self) -> SlotSet {
        SlotSet::only(self.p).union(self.q.map_or(SlotSet::EMPTY, SlotSet::only))
    }
}

/// The known state of one row when a plan is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowState {
    /// Slots with current and readable bytes of this row: not missing, below the recovery offset,
    /// no bad block, no checksum mismatch.
    pub readable: SlotSet,
    /// Slots that must be written: the readable ones and those being rebuilt.
    pub writable: SlotSet,
    /// Parity is known to agree with the data.
    pub synced: bool,
    /// Parity may belong to a write that a crash interrupted: blocks recovered from it may never
    /// have been written.
    pub suspect: bool,
}

/// How a write computes parity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// No parity member is present, or parity is lost in this row: just write the data.
    DataOnly,
    /// All data of the row is new: parity from it alone.
    Full,
    /// The change of the data updates parity.
    ReadModifyWrite,
    /// Parity from the new data and the data that is kept.
    Reconstruct,
    /// Recover unreadable blocks, then as `Reconstruct`.
    Recover(Erasure),
}

/// Which parity recovers data that cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Erasure {
    /// One block, from P.
    FromP(Slot),
    /// One block, from Q.
    FromQ(Slot),
    /// Two blocks, from P and Q.
    FromPq(Slot, Slot),
}

impl Erasure {
    /// The data slots that are recovered.
    pub fn lost(&self) -> SlotSet {
        match *self {
            Erasure::FromP(slot) | Erasure::FromQ(slot) => SlotSet::only(slot),
            Erasure::FromPq(x, y) => SlotSet::only(x).with(y),
        }
    }
}

/// How to write a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WritePlan {
    /// How parity is computed.
    pub method: Method,
    /// Slots whose old bytes are read first.
    pub read: SlotSet,
    /// Slots that are written: touched data and parity, as far as they are there.
    pub write: SlotSet,
}

/// How to read a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadPlan {
    /// Slots that are read.
    pub read: SlotSet,
    /// The recovery computed from them, if a required block is unreadable.
    pub recover: Option<Erasure>,
}

/// The losses exceed the level's tolerance: these data slots' bytes of the row are lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataLost {
    /// Data slots that can be neither read nor recovered.
    pub slots: SlotSet,
}

impl fmt::Display for DataLost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "more members are missing than the level tolerates; lost: slots ")?;
        f.debug_set().entries(self.slots.iter().map(|slot| slot.0)).finish()
    }
}

/// How to recover all the data that cannot be read, and the parity slots to read for it.
fn erasure(roles: &Roles, state: &RowState) -> Result<(Option<Erasure>, SlotSet), DataLost> {
    let lost = roles.data.difference(state.readable);
    let p = state.readable.contains(roles.p);
    let q = roles.q.filter(|&q| state.readable.contains(q));
    let mut slots = lost.iter();
    Ok(match (slots.next(), slots.next(), slots.next()) {
        (None, ..) => (None, SlotSet::EMPTY),
        (Some(x), None, _) if p => (Some(Erasure::FromP(x)), SlotSet::only(roles.p)),
        (Some(x), None, _) if q.is_some() => (Some(Erasure::FromQ(x)), q.into_iter().collect()),
        (Some(x), Some(y), None) if p && q.is_some() => {
            (Some(Erasure::FromPq(x, y)), roles.parity())
        }
        _ => return Err(DataLost { slots: lost }),
    })
}

/// Plans the reading of the data slots `wanted` of a row.
///
/// # Errors
/// [`DataLost`] if something wanted can be neither read nor recovered, or could be recovered from
/// suspect parity only.
///
/// # Panics
/// If `wanted` is not a set of data slots.
pub fn plan_read(roles: &Roles, state: &RowState, wanted: SlotSet) -> Result<ReadPlan, DataLost> {
    assert!(wanted.is_subset(roles.data), "only data is read: {wanted:?} of {roles:?}");
    if wanted.is_subset(state.readable) {
        return Ok(ReadPlan { read: wanted, recover: None });
    }
    if state.suspect {
        return Err(DataLost { slots: wanted.difference(state.readable) });
    }
    let (recover, parity) = erasure(roles, state)
        .map_err(|lost| DataLost { slots: lost.slots.intersection(wanted) })?;
    assert!(parity.is_subset(state.readable), "recovery from parity that is not current");
    Ok(ReadPlan { read: roles.data.intersection(state.readable).union(parity), recover })
}

/// Plans the writing of new bytes to the data slots `touched` of a row.
///
/// # Errors
/// [`DataLost`] if the row's losses exceed its parity: nothing may be written.
///
/// # Panics
/// If `touched` is empty or not a set of data slots, or the plan would break its own rules.
pub fn plan_write(
    roles: &Roles,
    state: &RowState,
    touched: SlotSet,
) -> Result<WritePlan, DataLost> {
    assert!(!touched.is_empty() && touched.is_subset(roles.data));
    assert!(state.readable.is_subset(state.writable), "readable slots are written");
    let parity = roles.parity().intersection(state.writable);
    let kept = roles.data.difference(touched);
    let write = touched.intersection(state.writable).union(parity);
    let plan = |method, read: SlotSet| {
        assert!(read.is_subset(state.readable), "a plan reads a slot that is not readable");
        assert!(write.is_subset(state.writable), "a plan writes a slot without a member");
        Ok(WritePlan { method, read, write })
    };

    if parity.is_empty() {
        let lost = roles.data.difference(state.writable);
        // Data that has no member and no parity would have nowhere to go.
        let nowhere = touched.intersection(lost);
        return if nowhere.is_empty() {
            plan(Method::DataOnly, SlotSet::EMPTY)
        } else {
            Err(DataLost { slots: nowhere })
        };
    }
    // Full is the limit of Reconstruct with nothing kept; but the lost blocks must not exceed the
    // parity.
    let unwritten = touched.difference(state.writable);
    if unwritten.count() > parity.count() {
        return Err(DataLost { slots: unwritten });
    }
    if kept.is_empty() {
        return plan(Method::Full, SlotSet::EMPTY);
    }
    let modify = touched.union(parity);
    let can_modify = state.synced && modify.is_subset(state.readable);
    let can_reconstruct = kept.is_subset(state.readable);
    if can_modify && (!can_reconstruct || modify.count() < kept.count()) {
        return plan(Method::ReadModifyWrite, modify);
    }
    if can_reconstruct {
        return plan(Method::Reconstruct, kept);
    }
    let (recover, from) = match erasure(roles, state) {
        Ok(erasure) => erasure,
        // Parity is lost already, and stays so: there is nothing to keep true.
        Err(_) if parity.intersection(state.readable).is_empty() && unwritten.is_empty() => {
            return Ok(WritePlan {
                method: Method::DataOnly,
                read: SlotSet::EMPTY,
                write: touched,
            });
        }
        Err(lost) => return Err(lost),
    };
    let recover = recover.expect("a kept block is unreadable, so a block is lost");
    let read = roles.data.intersection(state.readable).union(from);
    let circular = !recover.lost().intersection(read).is_empty();
    assert!(!circular, "{recover:?} reads what it recovers: {read:?}");
    plan(Method::Recover(recover), read)
}

#[cfg(test)]
mod tests;
