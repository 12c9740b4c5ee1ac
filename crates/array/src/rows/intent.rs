//! The intent log of a shard: before a row is partly written, its parity members have logged enough
//! to replay it (`layout::private::log` has the theory and the form).
//!
//! ```text
//!   unit: lock rows ─▶ admit ─▶ barrier, plan, read, compute ─▶ log ─▶ data and parity ─▶ landed
//!                        │                                       │
//!           room in the zone, and no other block                 ▼
//!           of the rows that is not durable yet        next batch: one write per member with a
//!                        ▲                             part in it, shared by all waiting units
//!                        └── retire: a flush of all members
//!
//! `log::batch` builds the bytes of a batch and `log::space` places it; this module waits and does
//! the I/O. It owns a zone of the log on every member, at the same place on all. A batch has one
//! place and one sequence number, and is written to the members that hold parity of its rows. While
//! one batch is written, the next one gathers. This module never touches data.
//!
//! With a journal device (`metadata::commit::journal_device`) a batch is one write of the same
//! records to that device. After its loss, the next batches go to the same zones of the members.
//!
//! With policy `ppl` the records take the form of md's partial parity log (`log::ppl`). There, a
//! batch waits until all rows of the previous one are durable (`log::round`).
//!
//! Invariants:
//! - Units wait for room or for a flush only outside the barrier, because a flush passes it.
//! - No data or parity of a row goes out before the row's batch is durable on all its members. A
//!   member that fails the batch is lost; the rows are then planned and logged again without it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::broken::{Broken, broken};
use io::{Class, Completions, SharedBuf, Signal};
use layout::md::ppl::HEADER_BYTES;
use layout::plan::Row;
use layout::private::log::{BATCH_ALIGNMENT, CHECK_BYTES, Form};
use layout::{Geometry, Slot, SlotSet, Stripe};
use log::LogSetup;
use log::batch::{Gathering, Lane, Numbers};
use log::ring::Placed;
use log::space::Space;
use log::touched::Touched;
use metadata::{Error, ErrorKind, Result};

use crate::member::batch::{Batch, Failure, IoOptions};
use crate::member::{Member, View};
use crate::rows::engine::{Engine, RowOp};
use crate::rows::{RowWork, Scratch, touched_bytes};
use crate::shard::message::ToKeeper;

mod record;
pub(crate) use record::pieces_of;

/// See the module.
pub(crate) struct Log {
    setup: LogSetup,
    /// The form of its batches.
    form: Form,
    space: RefCell<Space>,
    touched: RefCell<Touched>,
    /// The contents of the next batch.
    next: RefCell<Gathering>,
    /// For each unit: its batch, or the members that failed to write it.
    answers: Completions<Logged>,
    /// Raised for the writer.
    wake_writer: Signal,
    /// Raised for the retirer.
    wake_retirer: Signal,
    /// Raised when there may be room, or a row may be durable.
    freed: Signal,
    /// Units that wait for room or for a durable row.
    waiting: Cell<u32>,
    /// Those of them that wait for room.
    short: Cell<u32>,
    /// Padding for batches.
    zeros: SharedBuf,
}

/// A unit that waits for room or for a durable row; counted until it is dropped.
struct Waiting<'a> {
    log: &'a Log,
    /// The unit waits for room.
    short: bool,
}

impl<'a> Waiting<'a> {
    fn new(log: &'a Log, short: bool) -> Waiting<'a> {
        log.waiting.set(log.waiting.get() + 1);
        log.short.set(log.short.get() + u32::from(short));
        Waiting { log, short }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Waiting { log, short } = self;
        assert!(log.waiting.get() > 0, "a wait for log space ends without a start");
        log.waiting.set(log.waiting.get() - 1);
        assert!(log.short.get() >= u32::from(*short), "units that wait for room are miscounted");
        log.short.set(log.short.get() - u32::from(*short));
    }
}

type Logged = std::result::Result<u64, Rc<Vec<(Rc<Member>, Slot, io::Error)>>>;

/// A unit's part in the log, from its admission until all its rows are written.
pub(crate) struct Entry<'a> {
    log: &'a Log,
    /// Bytes of the ring, or the number of a round.
    reserved: Cell<u64>,
    batch: Cell<Option<u64>>,
    /// Rows may be written in part: the batch matters until the end of the session.
    torn: Cell<bool>,
    /// The rows need a flush to be durable.
    volatile: Cell<bool>,
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut space = self.log.space.borrow_mut();
        space.give_back(self.reserved.get());
        match self.batch.get() {
            Some(_) if self.torn.get() => space.tear(),
            Some(batch) => space.rows_written(batch, self.volatile.get()),
            None => {}
        }
        let awaited = matches!(*space, Space::Round(_));
        drop(space);
        self.log.recheck();
        if awaited {
            // The others of the round need not wait for this unit any longer.
            self.log.wake_writer.raise();
        }
    }
}

impl Entry<'_> {
    /// True if the unit must be admitted again: its batch has been written without it.
    fn is_late(&self) -> bool {
        self.log.space.borrow().is_late(self.reserved.get())
    }

    /// Writing of the rows begins: until [`Entry::whole`] they may be torn.
    pub(crate) fn begins(&self) {
        self.torn.set(self.batch.get().is_some());
    }

    /// All rows are written; `volatile` if some of their members have a volatile cache.
    pub(crate) fn whole(&self, volatile: bool) {
        self.torn.set(false);
        self.volatile.set(volatile);
    }
}

impl Log {
    pub(crate) fn new(setup: LogSetup, geometry: &Geometry) -> Log {
        Log {
            setup,
            form: Form::of(geometry.data_count()),
            space: RefCell::new(Space::new(setup)),
            touched: RefCell::new(Touched::default()),
            next: RefCell::new(Gathering::new(geometry.slots())),
            answers: Completions::new(),
            wake_writer: Signal::new(),
            wake_retirer: Signal::new(),
            freed: Signal::new(),
            waiting: Cell::new(0),
            short: Cell::new(0),
            zeros: io::Pool::new(0).take_zeroed(BATCH_ALIGNMENT as usize).freeze(),
        }
    }

    /// Wakes units that wait for room or rows, after any change in the log or the membership.
    pub(crate) fn recheck(&self) {
        if self.waiting.get() > 0 {
            self.freed.raise();
            self.wake_retirer.raise();
            self.wake_writer.raise();
        } else if self.space.borrow().is_filling() {
            self.wake_retirer.raise();
        }
    }

    /// The barrier closes: units of the gathering batch may not be able to enter before it is
    /// written.
    pub(crate) fn gate_closes(&self) {
        if matches!(*self.space.borrow(), Space::Round(_)) {
            self.wake_writer.raise();
        }
    }

    /// Wakes the log's tasks when the shard stops.
    pub(crate) fn end(&self) {
        self.wake_retirer.raise();
        self.wake_writer.raise();
    }

    /// A flush of all members begins; gives its number.
    pub(crate) fn flush_begins(&self) -> u64 {
        self.space.borrow_mut().flush_begins()
    }

    /// This flush has succeeded.
    pub(crate) fn flushed(&self, number: u64) {
        self.space.borrow_mut().flushed(number);
        self.recheck();
    }

    /// The writing of all checksums changed so far begins; returns its number.
    pub(crate) fn checksums_begin(&self) -> u64 {
        self.space.borrow_mut().checksums_begin()
    }

    /// These checksums are on the members: later flushes make them durable.
    pub(crate) fn checksums_written(&self, number: u64) {
        self.space.borrow_mut().checksums_written(number);
        self.recheck();
    }

    /// The size limit for records of rows written together: two such groups fit into the zone.
    fn share(&self) -> u64 {
        self.space.borrow().most() / 2
    }

    /// The most bytes of a ring that these rows may need while these slots are `present`.
    fn most_bytes(&self, rows: &[RowWork], present: SlotSet) -> u64 {
        let row =
            |work: &RowWork| self.setup.row_bytes(&work.row, &work.roles, work.touched(), present);
        log::most_bytes(rows.iter().map(row))
    }

    /// The most space in the log that these rows may need while these slots are `present`.
    fn need(&self, rows: &[RowWork], present: SlotSet) -> u64 {
        match &*self.space.borrow() {
            Space::Ring(_) => self.most_bytes(rows, present),
            Space::Round(round) => round.most_of(rows.iter().map(partial_of)),
        }
    }
}

/// The largest partial parity that a row logs, and the slot of the member that logs it.
fn partial_of(row: &RowWork) -> (Slot, u64) {
    let all = row.touched() == row.roles.data;
    (row.roles.p, if all { 0 } else { row.row.len() })
}

impl Engine {
    /// Completes when these rows may be logged with these slots `present`: the log has room, and
    /// earlier writes to the same rows are durable. Must be called outside the barrier, with the
    /// rows locked. `None` without a log.
    ///
    /// # Errors
    /// If the array accepts no writes any more.
    pub(crate) async fn admit(
        &self,
        rows: &[RowWork],
        present: SlotSet,
    ) -> Result<Option<Entry<'_>>> {
        let Some(log) = &self.log else { return Ok(None) };
        let touched = rows.iter().map(|work| {
            let slots = if work.touched() == work.roles.data {
                self.setup.geometry.all_slots()
            } else {
                work.touched()
            };
            ((work.at(), work.row.len()), slots)
        });
        let bytes = log.most_bytes(rows, present);
        let partials = rows.iter().map(partial_of);
        self.admit_rows(log, touched, bytes, partials).await.map(Some)
    }

    /// Divides rows into groups whose records fit into the log, each with room for another group
    /// beside it, the first group last. `None` if they all fit together.
    pub(crate) fn parts_to_log(&self, rows: &[RowWork]) -> Option<Vec<Vec<RowWork>>> {
        let log = self.log.as_ref()?;
        let (share, present) = (log.share(), self.view().present);
        let bytes = |rows: &[RowWork]| log.need(rows, present);
        if bytes(rows) <= share {
            return None;
        }
        let mut groups: Vec<Vec<RowWork>> = Vec::new();
        let mut todo: Vec<RowWork> = rows.iter().rev().copied().collect();
        while let Some(row) = todo.pop() {
            if bytes(&[row]) > share && row.row.len() > CHECK_BYTES {
                let half = (row.row.len() / 2).next_multiple_of(CHECK_BYTES);
                let middle = row.row.start + half.min(row.row.len() - 512);
                let low = Row { end: middle, ..row.row };
                let high = Row { start: middle, ..row.row };
                todo.extend([high, low].map(|half| RowWork { row: half, ..row }));
                continue;
            }
            match groups.last_mut() {
                Some(group) if bytes(&[&group[..], &[row]].concat()) <= share => group.push(row),
                _ => groups.push(vec![row]),
            }
        }
        let (before, after) = (touched_bytes(rows), groups.iter().map(|g| touched_bytes(g)).sum());
        assert_eq!(before, after, "a write would be logged and written in part");
        groups.reverse();
        Some(groups)
    }

    /// True if the records of these rows fit into an otherwise empty log while these slots are
    /// `present`.
    pub(crate) fn fits_log(&self, rows: &[RowWork], present: SlotSet) -> bool {
        let fits = |log: &Log| log.need(rows, present) <= log.space.borrow().most();
        self.log.as_ref().is_none_or(fits)
    }

    /// Admits the whole stripes `first..first + count`, at most [`Engine::stripes_to_log`] of them.
    /// See [`Engine::admit`].
    pub(crate) async fn admit_stripes(
        &self,
        (first, count): (u64, u64),
    ) -> Result<Option<Entry<'_>>> {
        let Some(log) = &self.log else { return Ok(None) };
        let geometry = &self.setup.geometry;
        let place = (first * geometry.chunk_bytes(), count * geometry.chunk_bytes());
        let all = std::iter::once((place, geometry.all_slots()));
        let partials =
            (first..first + count).map(|stripe| (geometry.stripe(Stripe(stripe)).p(), 0));
        self.admit_rows(log, all, 2 * BATCH_ALIGNMENT, partials).await.map(Some)
    }

    /// The most whole stripes that one record can log as zeros.
    pub(crate) fn stripes_to_log(&self) -> u64 {
        self.log.as_ref().map_or(u64::MAX, |log| log.space.borrow().most_stripes())
    }

    /// Admits rows, given as their touched slots, the ring bytes that they need, and their partial
    /// parity by the slot that logs it.
    async fn admit_rows<'a>(
        &self,
        log: &'a Log,
        rows: impl Iterator<Item = ((u64, u64), SlotSet)> + Clone,
        bytes: u64,
        partials: impl Iterator<Item = (Slot, u64)> + Clone,
    ) -> Result<Entry<'a>> {
        let mut waited = false;
        let reserved = loop {
            let conflict = {
                let (space, touched) = (log.space.borrow(), log.touched.borrow());
                let live = |sequence| space.is_live(sequence);
                rows.clone().any(|(place, slots)| touched.conflicts(place, slots, live))
            };
            let conflict = conflict && !broken(Broken::LogConflictIgnored);
            let reserve = || log.space.borrow_mut().reserve(bytes, partials.clone());
            if let Some(reserved) = (!conflict).then(reserve).flatten() {
                break reserved;
            }
            if conflict && !std::mem::replace(&mut waited, true) {
                let conflicts = &self.load().log_conflicts;
                conflicts.set(conflicts.get() + 1);
            }
            self.check_writable(&self.view())?;
            if log.space.borrow().is_torn() {
                let what = "a write was interrupted, and md's log must keep its records: \
                            restart the array to write again";
                return Err(Error::new(ErrorKind::ReadOnly, what));
            }
            let freed = log.freed.wait();
            let _waiting = Waiting::new(log, !conflict);
            log.wake_retirer.raise();
            log.wake_writer.raise();
            freed.await;
        };
        Ok(Entry {
            log,
            reserved: Cell::new(reserved),
            batch: Cell::new(None),
            torn: Cell::new(false),
            volatile: Cell::new(false),
        })
    }

    /// Flushes the members when the log fills up, or when a unit waits for a durable row.
    pub(crate) async fn retire_logged(self: Rc<Self>) {
        let Some(log) = &self.log else { return };
        let mut scratch = Scratch::default();
        while !self.is_stopping() {
            let (room, due) = {
                let space = log.space.borrow();
                let room = space.is_filling() || log.short.get() > 0;
                let waited = log.waiting.get() > 0 && space.has_volatile();
                (room, waited || (room && space.has_landed()))
            };
            if due {
                let checksummed = !room
                    || RowOp::new(&self, &mut scratch, self.background())
                        .write_checksums()
                        .await
                        .is_ok();
                let durable = self.make_durable().await.is_ok() && checksummed;
                log.freed.raise();
                if durable && !self.view().mode.is_final() {
                    log.wake_writer.raise();
                    continue;
                }
                // The array has failed, or is full: nothing is retired any more, and the waiting
                // units that were woken get the error.
            }
            log.wake_retirer.wait().await;
        }
    }
}

/// The writer's buffers, kept between batches.
#[derive(Default)]
struct Desk {
    batch: Batch,
    failures: Vec<Failure>,
    /// The lists of the previous batch, for reuse.
    spare: Gathering,
}

impl Log {
    /// True if a batch must be written now. `closed` is the state of the barrier.
    fn is_due(&self, closed: bool) -> bool {
        match &*self.space.borrow() {
            Space::Ring(ring) => {
                let makes_room = self.waiting.get() > 0 && ring.has_retired();
                !self.next.borrow().units.is_empty() || makes_room
            }
            Space::Round(round) => round.is_due(closed),
        }
    }

    /// A member that failed a batch may still write the next one before it is removed. That batch
    /// must not name the failed one as its predecessor, or the reader would take the log for
    /// damaged.
    fn forget_failed(&self, failures: &[Failure]) {
        if matches!(self.setup, LogSetup::Zone { .. }) && !broken(Broken::FailedBatchNamed) {
            let members = failures.iter().map(|failure| &failure.member);
            members.for_each(|member| member.logged.set(member.logged_before.get()));
        }
    }
}

impl Engine {
    /// Writes batches until the shard stops.
    pub(crate) async fn write_log(self: Rc<Self>) {
        let Some(log) = &self.log else { return };
        let spare = Gathering::new(self.setup.geometry.slots());
        let mut desk = Desk { spare, ..Desk::default() };
        while !self.is_stopping() {
            if log.is_due(self.gate.is_closed()) {
                self.write_batch(log, &mut desk).await;
                log.recheck();
            } else {
                log.wake_writer.wait().await;
            }
        }
    }

    async fn write_batch(&self, log: &Log, desk: &mut Desk) {
        let view = self.view();
        let mut gathered = log.next.replace(std::mem::take(&mut desk.spare));
        if view.journal.is_some() {
            gathered.join();
        }
        let placed = {
            let (mut space, mut touched) = (log.space.borrow_mut(), log.touched.borrow_mut());
            gathered.place(log.form, &mut space, &mut touched)
        };
        self.send_batch(log, desk, &mut gathered, placed, &view);
        let opts = IoOptions {
            fua: !broken(Broken::LogVolatile),
            class: Class::Foreground,
            op_bytes: 0,
            deadline: self.setup.bounds.deadline,
        };
        // The barrier does not wait for a batch without units.
        let alone = gathered.units.is_empty() && !broken(Broken::BatchOvertaken);
        let members = view.members().filter(|_| alone);
        let ungated: Vec<Rc<Member>> = members.map(|(_, member)| Rc::clone(member)).collect();
        ungated.iter().for_each(|member| member.counters().late_writes.add(1));
        self.run(&mut desk.batch, opts).await;
        desk.batch.drain(|_, _, _| {}, |_, _, _| {}, &mut desk.failures);
        log.forget_failed(&desk.failures);
        let answer = match desk.failures.is_empty() || broken(Broken::LogErrorIgnored) {
            true => Ok(placed.sequence),
            false => {
                let failed = desk.failures.drain(..);
                Err(Rc::new(failed.map(|f| (f.member, f.slot, f.error)).collect::<Vec<_>>()))
            }
        };
        desk.failures.clear();
        if let Err(failed) = &answer
            && gathered.units.is_empty()
        {
            // No unit waits for this batch, so no unit reports the failures.
            for (member, _, why) in failed.iter().filter(|(member, ..)| view.has(member.id)) {
                let (member, why) = (member.id, why.clone());
                self.post.to_keeper(ToKeeper::Lost { member, why });
            }
        }
        // The write counts as late until its failure is reported: a member must not return before
        // that.
        ungated.iter().for_each(|member| member.counters().late_writes.sub(1));
        log.space.borrow_mut().written(placed.sequence, answer.is_err());
        for ticket in gathered.units.drain(..) {
            log.answers.finish(ticket, answer.clone());
        }
        desk.spare = gathered;
    }

    /// Adds the writes of a batch, one for each member with a part in it. A batch without units
    /// only records released space; it goes to all members. A journal device, if any, gets
    /// everything.
    fn send_batch(
        &self,
        log: &Log,
        desk: &mut Desk,
        gathered: &mut Gathering,
        placed: Placed,
        view: &View,
    ) {
        let add = |(slot, member): (Slot, &Rc<Member>), lane: &Lane, batch: &mut Batch| {
            let place = member.log.expect("every member of an array with a log has one");
            let payload = lane.payload.iter().cloned();
            let zone_bytes = match log.setup {
                LogSetup::Zone { zone_bytes, .. } => zone_bytes,
                LogSetup::Ppl { signature, .. } => {
                    let (mark, log) = ((signature, placed.sequence), (place, member.logged.get()));
                    let geometry = &self.setup.geometry;
                    let (header, at, end) = log::ppl::unit(lane, mark, geometry, slot, log);
                    member.logged.set(end);
                    let mut head = self.pool.take(HEADER_BYTES as usize);
                    head.copy_from_slice(&header.print(parity::crc32c));
                    let parts = std::iter::once(head.freeze()).chain(payload);
                    return batch.log(member, slot, place.offset + at, parts);
                }
            };
            let zones_end = (self.index as u64 + 1) * zone_bytes;
            assert!(zones_end <= place.bytes, "a zone beyond the log of {}", member.name);
            assert!(member.logged.get() < placed.sequence, "the numbers of batches grow");
            let numbers = Numbers {
                session: place.session,
                previous: member.logged.get(),
                zone: self.index as u32,
            };
            let head = lane.head(log.form, placed, numbers, &self.pool);
            let at = place.offset + self.index as u64 * zone_bytes + placed.start;
            let padding = log.zeros.slice(0..lane.padding(log.form) as usize);
            let padding = Some(padding).filter(|padding| !padding.is_empty());
            batch.log(member, slot, at, std::iter::once(head).chain(payload).chain(padding));
            member.logged_before.set(member.logged.replace(placed.sequence));
        };
        let batch = &mut desk.batch;
        if let Some(journal) = &view.journal {
            add((Slot::new(0), journal), &gathered.lanes[0], batch);
        } else if gathered.units.is_empty() {
            let empty = Lane::default();
            let all =
                view.present.iter().flat_map(|slot| view.targets(slot).map(move |m| (slot, m)));
            all.for_each(|place| add(place, &empty, batch));
        } else {
            for slot in gathered.slots_in_use() {
                let lane = &gathered.lanes[slot.index()];
                view.targets(slot).for_each(|member| add((slot, member), lane, batch));
            }
        }
        gathered.clear();
    }
}
