//! The write-back cache of a shard: writes are acknowledged in memory and reach the members later,
//! as whole stripes where possible.
//!
//! ```text
//!            ┌─ room? ──▶ copied, held, acknowledged ──▶ freeze ──▶ write-out ──▶ queue ─▶ workers
//!   write ───┤                                             ▲
//!            └─ no ──▶ waits, with all later changes,      │  its span is full
//!                      until write-outs have made room     │  half of the memory is used: oldest
//!                                                          │  first
//!   FUA, zero, discard ──▶ overlapping blocks ─────────────┤  held for `cache_linger`
//!   FLUSH, stop, read-only ──▶ everything ─────────────────┘
//! ```
//!
//! The cache owns the bytes that are acknowledged and not on the members, and decides when to write
//! them out. It never touches a member. A write-out is a unit like any other, with row lock, bitmap
//! bit, plan and epoch. Therefore a lost member, a rebuild or a resync is no special case here.
//!
//! **Order.** A write-out is queued before the unit that waits for it, and its bytes are frozen
//! then ([`map`]). The queue and the row locks are first come, first served, so overlapping changes
//! reach the members in order of arrival. A waiting worker (FLUSH) waits only for units that
//! already have a worker, so it cannot deadlock.
//!
//! **Reads** note the held bytes when they begin, then read the members, then lay the held bytes on
//! top. A block leaves the map only once its bytes are on the members, and under the lock of its
//! rows. So a write acknowledged before the read began is in one of the two.
//!
//! **Failure.** Bytes that could not be written out stay readable. The error stays too: every later
//! FLUSH and FUA returns it, and later writes go directly to the members.

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
use crate::rows::extents::push;
use crate::rows::read::Target;
use crate::shard::Shard;
use crate::shard::queue::{Action, Unit};
use crate::shard::requests::Gain;
use map::{Held, Leaving, Piece, memory_of};

pub(crate) mod map;
pub(crate) mod readahead;

/// The cache of one shard. In the other cache modes it is always empty.
pub(crate) struct Cache {
    held: RefCell<Held>,
    /// Memory: `Bounds::cache_bytes`.
    room: Budget,
    /// Writes without room, and the changes that arrived after them.
    waiting: RefCell<VecDeque<Unit>>,
    /// The error of the first failed write-out.
    failed: RefCell<Option<Error>>,
    /// While not zero the cache accepts no write: the array is about to become read-only.
    shut: Cell<u32>,
    /// Write-outs in flight that no request waits for: to make room, or by age.
    early: Cell<usize>,
    /// Raised when a write-out has ended, and when [`Shard::is_held`] may give another answer.
    changed: Signal,
    /// Raised when a write is held, or waits.
    arrived: Signal,
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
            arrived: Signal::new(),
        }
    }

    /// Memory of the bytes that are acknowledged and not on the members.
    pub(crate) fn used(&self) -> u64 {
        self.room.used()
    }

    /// Refuses new writes (true), or accepts them again (false): matched calls.
    pub(crate) fn shut(&self, shut: bool) {
        let count = self.shut.get();
        self.shut.set(if shut { count + 1 } else { count - 1 });
        self.changed.raise();
    }

    /// Wakes the cache's tasks after a change that may affect what it accepts.
    pub(crate) fn recheck(&self) {
        self.changed.raise();
        self.arrived.raise();
    }

    /// The error of the first failed write-out, if any.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.failed.borrow().clone()
    }
}

impl Shard {
    // ---- taking in -----------------------------------------------------------------------------

    /// Accepts a unit, or queues the write-outs before it and returns it for the queue.
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

    /// Holds a unit, makes it wait for room, or returns it for the queue.
    fn take_in(&self, unit: Unit) -> Option<Unit> {
        if !self.is_held(&unit) {
            self.write_out_within(unit.offset..unit.offset + unit.len);
            return Some(unit);
        }
        if let Some(memory) = self.cache.room.try_take(memory_of(unit.len)) {
            self.keep(unit, memory);
        } else {
            self.cache.waiting.borrow_mut().push_back(unit);
            self.cache.arrived.raise();
            self.make_room();
        }
        None
    }

    /// True if the cache accepts this unit.
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
        self.report_cached();
        self.finish(unit, Gain::Nothing, Ok(()));
        self.cache.arrived.raise();
        self.make_room();
    }

    /// Publishes the size of the held bytes for the keeper's thread.
    fn report_cached(&self) {
        self.requests.load().cached_bytes.set(self.cache.used());
    }

    /// The range that is written out together: whole stripes up to a unit's size, within one
    /// region.
    fn span_of(&self, offset: u64) -> Range<u64> {
        let geometry = &self.engine.setup.geometry;
        let (step, region) = (self.engine.job_border(), geometry.region_bytes());
        let start = (offset / step * step).max(offset / region * region);
        let end = (offset / step + 1) * step;
        let end = end.min((offset / region + 1) * region).min(geometry.capacity());
        assert!(start <= offset && offset < end, "byte {offset} outside its span {start}..{end}");
        start..end
    }

    /// Accepts waiting writes in order as room becomes free.
    pub(crate) async fn run_admission(self: Rc<Self>) {
        while !self.engine.is_stopping() {
            let first = self.cache.waiting.borrow().front().map(|unit| memory_of(unit.len));
            let Some(need) = first else {
                self.cache.arrived.wait().await;
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

    /// Completes with memory for the first waiting unit, or with none if the cache does not accept
    /// it.
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

    /// Writes out the held bytes of a range before another request changes it.
    fn write_out_within(&self, range: Range<u64>) {
        loop {
            let Some(span) = self.cache.held.borrow().open_within(&range) else { return };
            self.write_out(span, false);
        }
    }

    /// The most write-outs without a waiting request: they must leave workers to others.
    fn early_limit(&self) -> usize {
        (self.engine.setup.bounds.units / 2).max(1)
    }

    /// Writes out the oldest blocks while more than half of the memory is used, or while a write
    /// waits for room and no write-out is in flight.
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

    /// Writes out blocks by age.
    pub(crate) async fn run_aging(self: Rc<Self>) {
        let clock = Rc::clone(&self.engine.setup.clock);
        while !self.engine.is_stopping() {
            let Some((span, since)) = self.oldest_held() else {
                self.cache.arrived.wait().await;
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

    /// Carries out a write-out. The caller holds the lock of its rows.
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

    /// A write-out has ended. Its rows may already be unlocked, so nothing is removed from the map
    /// here.
    pub(crate) fn wrote_out(&self, write_out: WriteOut, result: Result<()>) {
        let cache = &self.cache;
        let early = cache.early.get().checked_sub(usize::from(write_out.early));
        cache.early.set(early.expect("an early write-out ends once"));
        if let Err(error) = result {
            cache.held.borrow_mut().stick(write_out.block);
            cache.failed.borrow_mut().get_or_insert(error);
        }
        self.report_cached();
        cache.recheck();
        self.make_room();
    }

    // ---- for other requests ---------------------------------------------------------------------

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
            // The held bytes are on the members now, except those of failed write-outs. The
            // checksums are the last write of a stopping array. They cannot come earlier, since
            // requests arrive at other shards too. A member that fails to write them is lost before
            // the others are marked clean.
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

    /// Reads a range: held bytes, bytes read ahead, and the members.
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

    /// Reads only the ranges between the held pieces: the members may have lost the bytes that
    /// these pieces will replace.
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

    /// Reports the allocation status of the members and of the held bytes.
    pub(crate) async fn extents_through(
        &self,
        op: &mut RowOp<'_>,
        range: (u64, u64),
        found: &mut Vec<Extent>,
    ) -> Result<()> {
        self.look_at_held(op.work, range);
        let result = op.extents(range, found).await;
        report_stored(&mut op.work.held, range.0, found);
        result
    }

    /// Bytes of this range were changed past the cache, with their rows still locked. After a
    /// success they are newer than the bytes of failed write-outs.
    pub(crate) fn overtake_held(&self, (offset, len): (u64, u64), result: &Result<()>) {
        if result.is_ok() && self.cache.failed.borrow().is_some() {
            self.cache.held.borrow_mut().overtaken(&(offset..offset + len));
        }
    }

    /// Notes the held pieces of a range. True if they cover it.
    fn look_at_held(&self, work: &mut Scratch, (offset, len): (u64, u64)) -> bool {
        let held = self.cache.held.borrow();
        if held.is_empty() {
            return false;
        }
        let range = offset..offset + len;
        held.look(&range, &mut work.held);
        map::cover(&work.held, &range, &mut work.order)
    }

    /// Copies the noted pieces over the bytes that were read.
    fn lay_over(&self, work: &mut Scratch, offset: u64, bufs: &mut [Buf]) {
        let mut target = Target { offset, bufs };
        for piece in work.held.drain(..) {
            target.put(piece.start, &piece.bytes);
            self.engine.setup.clock.charge(Cost::Copy, piece.bytes.len() as u64);
        }
    }
}

/// Reports held bytes as stored, whatever the members report.
fn report_stored(held: &mut Vec<Piece>, offset: u64, found: &mut Vec<Extent>) {
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
