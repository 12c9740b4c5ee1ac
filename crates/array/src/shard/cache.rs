//! The write-back cache of a shard: writes are acknowledged in memory and reach the members later,
//! in whole stripes where they come to that.
//!
//! ```text
//!            ┌─ room? ──▶ copied, held, acknowledged ──▶ freeze ──▶ write-out ──▶ queue ─▶ workers
//!   write ───┤                                             ▲
//!            └─ no ──▶ waits, and all changes behind it    │  its span is full
//!                      it, until write-outs made room      │  half of the memory is used: oldest
//!                                                          │  first
//!   FUA, zero, discard ──▶ what they overlap ──────────────┤  held for `cache_linger`
//!   FLUSH, stop, read-only ──▶ everything ─────────────────┘
//! ```
//!
//! Owns the bytes that are acknowledged and not on the members, and decides when they go there.
//! Never touches a member: a write-out is a unit like any other, with its rows locked, its region
//! marked, its plan and its epoch, so that a member that is lost on the way, a rebuild or a resync
//! means nothing new.
//!
//! **Order.** A write-out is queued before whatever waits for it, and its bytes were frozen then
//! ([`map`]). The queue and the row locks are first come, first served, so overlapping changes
//! reach the members in the order of their arrival, and a worker that waits (FLUSH) waits only for
//! units that have a worker already: it can never be the one that they need.
//!
//! **Reads** look at what is held when they begin, then ask the members, then lay the one over the
//! other. A block leaves the map only when its bytes are on the members, and under the lock of its
//! rows: so any write acknowledged before the read began is in one of the two.
//!
//! **Failure.** What cannot be written out stays readable; the error stays too: every later FLUSH
//! and FUA ends with it, and later writes go to the members directly.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::broken::{Broken, broken};
use io::{Budget, Buf, Cost, Extent, ExtentKind, Permit, Signal};
use layout::{Mode, RangeSet};
use metadata::{Error, Result};

use crate::rows::Scratch;
use crate::rows::engine::RowOp;
use crate::rows::read::Target;
use crate::rows::write_zeroes::push;
use crate::shard::Shard;
use crate::shard::queue::{Action, Gain, Unit};
use map::{Held, Leaving, Piece, memory_of};

pub(crate) mod map;
pub(crate) mod readahead;

/// The cache of one shard. Empty, always, in the other cache modes.
pub(crate) struct Cache {
    held: RefCell<Held>,
    /// Memory: `Bounds::cache_bytes`.
    room: Budget,
    /// Writes for which there is no room, and the changes that came after them.
    waiting: RefCell<VecDeque<Unit>>,
    /// Why something could not be written out.
    failed: RefCell<Option<Error>>,
    /// While not zero nothing is taken in: the array is about to be read-only.
    shut: Cell<u32>,
    /// Write-outs under way that nobody asked for: to make room, or for age.
    early: Cell<usize>,
    /// Raised when a write-out has ended, and when what may be taken in has changed.
    changed: Signal,
    /// Raised when something is held, or waits.
    stirred: Signal,
}

/// A frozen block on its way to the members.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteOut {
    block: Leaving,
    early: bool,
}

impl Cache {
    pub(crate) fn new(bytes: u64) -> Cache {
        Cache {
            held: RefCell::default(),
            room: Budget::new(bytes),
            waiting: RefCell::default(),
            failed: RefCell::default(),
            shut: Cell::new(0),
            early: Cell::new(0),
            changed: Signal::new(),
            stirred: Signal::new(),
        }
    }

    /// Memory of what is acknowledged and not on the members.
    pub(crate) fn used(&self) -> u64 {
        self.room.used()
    }

    /// Takes nothing in from now on, or takes in again: matched calls.
    pub(crate) fn shut(&self, shut: bool) {
        let count = self.shut.get();
        self.shut.set(if shut { count + 1 } else { count - 1 });
        self.changed.raise();
    }

    /// What may be taken in has changed.
    pub(crate) fn look_again(&self) {
        self.changed.raise();
        self.stirred.raise();
    }

    /// Why something could not be written out, if that has happened.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }
}

impl Shard {
    // ---- taking in -----------------------------------------------------------------------------

    /// Takes a unit in, or puts write-outs before it and gives it back for the queue.
    pub(crate) fn hold(&self, mut unit: Unit) -> Option<Unit> {
        match &mut unit.action {
            Action::Flush { after } => {
                while let Some((span, _)) = self.oldest_held() {
                    self.write_out(span, false);
                }
                *after = self.cache.held.borrow().next();
                Some(unit)
            }
            Action::Write(_) | Action::Zero { .. } | Action::Discard => {
                if self.cache.waiting.borrow().is_empty() {
                    self.take_in(unit)
                } else {
                    self.cache.waiting.borrow_mut().push_back(unit);
                    None
                }
            }
            _ => Some(unit),
        }
    }

    /// The first in line is held, waits for room, or is given back for the queue.
    fn take_in(&self, unit: Unit) -> Option<Unit> {
        if !self.is_held(&unit) {
            self.write_out_within(unit.offset..unit.offset + unit.len);
            return Some(unit);
        }
        if let Some(memory) = self.cache.room.try_take(memory_of(unit.len)) {
            self.keep(unit, memory);
        } else {
            self.cache.waiting.borrow_mut().push_back(unit);
            self.cache.stirred.raise();
            self.make_room();
        }
        None
    }

    /// True if this unit is for the cache.
    fn is_held(&self, unit: &Unit) -> bool {
        let cache = &self.cache;
        matches!(unit.action, Action::Write(_))
            && !unit.fua
            && memory_of(unit.len) <= self.engine.setup.bounds.cache_bytes
            && cache.shut.get() == 0
            && cache.failed.borrow().is_none()
            && self.engine.view().mode == Mode::ReadWrite
    }

    /// Copies the bytes of a write and acknowledges it.
    fn keep(&self, unit: Unit, memory: Permit) {
        let Action::Write(list) = &unit.action else { unreachable!("only writes are held") };
        let mut copy = self.engine.pool.take(unit.len as usize);
        let mut at = 0;
        for bytes in list {
            copy[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        }
        let (copy, memory) = (copy.freeze(), Rc::new(memory));
        let clock = &self.engine.setup.clock;
        clock.charge(Cost::Request, 0);
        clock.charge(Cost::Copy, unit.len);
        let (start, end) = (unit.offset, unit.offset + unit.len);
        let (mut at, now) = (start, clock.now());
        while at < end {
            let span = self.span_of(at);
            let to = span.end.min(end);
            let bytes = copy.slice((at - start) as usize..(to - start) as usize);
            let piece = Piece::new(at, bytes, Rc::clone(&memory));
            let full = self.cache.held.borrow_mut().put(span.clone(), piece, now);
            if full {
                self.write_out(span.start, false);
            }
            at = to;
        }
        self.tell_cached();
        self.finish(unit, Gain::Nothing, Ok(()));
        self.cache.stirred.raise();
        self.make_room();
    }

    /// Tells the keeper's thread how much is held.
    fn tell_cached(&self) {
        self.requests.load().cached_bytes.set(self.cache.used());
    }

    /// What is written out together: whole stripes, as many as a unit has, within one region.
    fn span_of(&self, offset: u64) -> Range<u64> {
        let geometry = &self.engine.setup.geometry;
        let (step, region) = (self.engine.job_border(), geometry.region_bytes());
        let start = (offset / step * step).max(offset / region * region);
        let end = (offset / step + 1) * step;
        start..end.min((offset / region + 1) * region).min(geometry.capacity())
    }

    /// Lets in those who wait, in order, as room is made.
    pub(crate) async fn mind_waiting(self: Rc<Self>) {
        while !self.engine.is_stopping() {
            let first = self.cache.waiting.borrow().front().map(|unit| memory_of(unit.len));
            let Some(need) = first else {
                self.cache.stirred.wait().await;
                continue;
            };
            let memory = self.room_for_first(need).await;
            let unit = self.cache.waiting.borrow_mut().pop_front().expect("only taken out here");
            if let Some(memory) = memory {
                self.keep(unit, memory);
            } else {
                self.write_out_within(unit.offset..unit.offset + unit.len);
                self.line_up(unit);
            }
        }
    }

    /// Completes with memory for the first in line, or with none if it is not for the cache, or not
    /// any more.
    async fn room_for_first(&self, need: u64) -> Option<Permit> {
        let cache = &self.cache;
        let mut room = pin!(cache.room.take(need));
        loop {
            let mut changed = pin!(cache.changed.wait());
            let answer = std::future::poll_fn(|cx| {
                if !cache.waiting.borrow().front().is_some_and(|unit| self.is_held(unit)) {
                    return Poll::Ready(Some(None));
                }
                if let Poll::Ready(memory) = room.as_mut().poll(cx) {
                    return Poll::Ready(Some(Some(memory)));
                }
                changed.as_mut().poll(cx).map(|()| None)
            });
            if let Some(answer) = answer.await {
                return answer;
            }
            self.make_room();
        }
    }

    // ---- writing out ---------------------------------------------------------------------------

    fn oldest_held(&self) -> Option<(u64, io::Time)> {
        self.cache.held.borrow().oldest()
    }

    /// Freezes the open block of a span and queues its write-out.
    fn write_out(&self, span: u64, early: bool) {
        let frozen = self.cache.held.borrow_mut().freeze(span);
        let Some((block, range)) = frozen else { return };
        self.cache.early.set(self.cache.early.get() + usize::from(early));
        let action = Action::WriteOut(WriteOut { block, early });
        self.line_up(Unit::unasked(self.engine.index, range, action));
    }

    /// Writes out what is held of a range, before something else changes it.
    fn write_out_within(&self, range: Range<u64>) {
        loop {
            let Some(span) = self.cache.held.borrow().open_within(&range) else { return };
            self.write_out(span, false);
        }
    }

    /// Write-outs that nobody asked for leave workers to others.
    fn early_limit(&self) -> usize {
        (self.engine.setup.bounds.units / 2).max(1)
    }

    /// Writes out the oldest while more than half of the memory is used, or someone waits for room
    /// and none is being made.
    fn make_room(&self) {
        let cache = &self.cache;
        while cache.early.get() < self.early_limit() {
            let span = {
                let held = cache.held.borrow();
                let full = held.open_memory() > self.engine.setup.bounds.cache_bytes / 2;
                let needed = !held.is_leaving() && !cache.waiting.borrow().is_empty();
                held.oldest().filter(|_| full || needed)
            };
            let Some((span, _)) = span else { return };
            self.write_out(span, true);
        }
    }

    /// Writes out what has been held for long enough.
    pub(crate) async fn mind_age(self: Rc<Self>) {
        let clock = Rc::clone(&self.engine.setup.clock);
        while !self.engine.is_stopping() {
            let Some((span, since)) = self.oldest_held() else {
                self.cache.stirred.wait().await;
                continue;
            };
            let due = since + self.engine.setup.bounds.cache_linger;
            if clock.now() < due {
                clock.sleep_until(due).await;
            } else if self.cache.early.get() < self.early_limit() {
                self.write_out(span, true);
            } else {
                self.cache.changed.wait().await;
            }
        }
    }

    /// Carries a write-out out: its rows are locked.
    pub(crate) async fn carry_write_out(
        &self,
        op: &mut RowOp<'_>,
        write_out: WriteOut,
    ) -> Result<()> {
        let mut list = self.list();
        let (mut next, mut result) = (0, Ok(()));
        while result.is_ok() {
            let run = self.cache.held.borrow().run(write_out.block, next, &mut list);
            let Some(run) = run else { break };
            next += list.len();
            result = op.write((run.start, run.end - run.start), &mut list).await;
            list.clear();
        }
        self.keep_list(list);
        if result.is_ok() {
            self.cache.held.borrow_mut().left(write_out.block);
        }
        result
    }

    /// A write-out has ended. Its rows may be unlocked already: nothing is taken out here.
    pub(crate) fn wrote_out(&self, write_out: WriteOut, result: Result<()>) {
        let cache = &self.cache;
        cache.early.set(cache.early.get() - usize::from(write_out.early));
        if let Err(error) = result {
            cache.held.borrow_mut().stick(write_out.block);
            cache.failed.borrow_mut().get_or_insert(error);
        }
        self.tell_cached();
        cache.look_again();
        self.make_room();
    }

    // ---- what others ask -----------------------------------------------------------------------

    /// Flushes the members when every write-out before this number has ended.
    ///
    /// # Errors
    /// If any write-out has failed since the start, or a member cannot be flushed.
    pub(crate) async fn flush_after(&self, work: &mut Scratch, before: u64) -> Result<()> {
        let cache = &self.cache;
        let forgets = broken(Broken::FlushForgetsHeld);
        while !forgets && cache.held.borrow().is_leaving_before(before) {
            cache.changed.wait().await;
        }
        let failure = cache.failure();
        if self.is_quiescing() && (failure.is_none() || !broken(Broken::StuckStopUnsummed)) {
            // What was held is on the members now, but for what could not be written out: the last
            // that is written. Not before, since requests come in at other shards too.
            // Who does not take them is lost before the others are said to be clean.
            while RowOp::new(&self.engine, work, self.engine.background())
                .write_checksums()
                .await
                .is_err()
            {}
        }
        match failure {
            Some(error) => Err(error),
            None => self.engine.make_durable().await,
        }
    }

    /// Reads a range: what is held, what was read ahead, and the members.
    pub(crate) async fn read_through(
        &self,
        op: &mut RowOp<'_>,
        range: (u64, u64),
        bufs: &mut Vec<Buf>,
    ) -> Result<()> {
        op.work.batch.forget_waiting();
        if !self.look_at_held(op.work, range) && !self.copy_read_ahead(range, bufs).await {
            let result = op.read(range, bufs).await;
            if result.is_err() && op.work.held.is_empty() {
                return result;
            }
            if result.is_err() {
                let held = std::mem::take(&mut op.work.held);
                let beside = self.read_beside(op, (range.0, &held[..]), bufs).await;
                op.work.held = held;
                if beside.is_err() {
                    op.work.held.clear();
                    return beside;
                }
            }
        }
        self.lay_over(op.work, range.0, bufs);
        Ok(())
    }

    /// Reads what lies beside the held pieces: the members may have lost what they are about to be
    /// given.
    async fn read_beside(
        &self,
        op: &mut RowOp<'_>,
        (offset, held): (u64, &[Piece]),
        bufs: &mut [Buf],
    ) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum::<u64>();
        let mut beside: RangeSet = std::iter::once(offset..offset + len).collect();
        held.iter().for_each(|piece| beside.remove(piece.start..piece.end()));
        for Range { start, end } in beside.iter() {
            let mut part = vec![self.engine.pool.take((end - start) as usize)];
            op.read((start, end - start), &mut part).await?;
            let mut at = start;
            for bytes in &part {
                Target { offset, bufs }.put(at, bytes);
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Tells what is stored: on the members, and here.
    pub(crate) async fn extents_through(
        &self,
        op: &mut RowOp<'_>,
        range: (u64, u64),
        found: &mut Vec<Extent>,
    ) -> Result<()> {
        self.look_at_held(op.work, range);
        let result = op.extents(range, found).await;
        tell_stored(&mut op.work.held, range.0, found);
        result
    }

    /// Bytes of this range were changed past the cache, their rows still locked: if that went well
    /// they are newer than what could not be written out.
    pub(crate) fn overtake_held(&self, (offset, len): (u64, u64), result: &Result<()>) {
        if result.is_ok() && self.cache.failed.borrow().is_some() {
            self.cache.held.borrow_mut().overtaken(&(offset..offset + len));
        }
    }

    /// Notes what is held of a range. True if that is all of it.
    fn look_at_held(&self, work: &mut Scratch, (offset, len): (u64, u64)) -> bool {
        let held = self.cache.held.borrow();
        if held.is_empty() {
            return false;
        }
        let range = offset..offset + len;
        held.look(&range, &mut work.held);
        map::cover(&work.held, &range, &mut work.order)
    }

    /// Lays what was noted over the bytes that were read.
    fn lay_over(&self, work: &mut Scratch, offset: u64, bufs: &mut [Buf]) {
        let mut target = Target { offset, bufs };
        for piece in work.held.drain(..) {
            target.put(piece.start, &piece.bytes);
            self.engine.setup.clock.charge(Cost::Copy, piece.bytes.len() as u64);
        }
    }
}

/// What is held counts as stored, whatever the members say of it.
fn tell_stored(held: &mut Vec<Piece>, offset: u64, found: &mut Vec<Extent>) {
    if held.is_empty() {
        return;
    }
    held.sort_unstable_by_key(|piece| piece.start);
    let (mut merged, mut at) = (Vec::with_capacity(found.len()), offset);
    for extent in found.drain(..) {
        let end = at + extent.len;
        for piece in held.iter() {
            let (from, to) = (piece.start.max(at), piece.end().min(end));
            if from < to {
                push(&mut merged, Extent { len: from - at, kind: extent.kind });
                push(&mut merged, Extent { len: to - from, kind: ExtentKind::Data });
                at = to;
            }
        }
        push(&mut merged, Extent { len: end - at, kind: extent.kind });
        at = end;
    }
    held.clear();
    *found = merged;
}
