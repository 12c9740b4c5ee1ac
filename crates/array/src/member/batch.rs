//! Batches of member operations: gathered, joined where adjacent, sent, awaited.
//!
//! Owns the lists that travel with operations and reuses them: once warm, a batch allocates
//! nothing. It is independent of levels, plans and parity. A *tag* identifies a buffer to its
//! caller.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Buf, Class, Clock, Completion, Done, ErrorKind, Op, SharedBuf, Time, Work};
use layout::{Slot, SlotSet};

use crate::member::Member;
use crate::member::deadlines::{Waiting, Watch};
use crate::member::latency::Kind;
use crate::member::orphans::Orphan;

/// A set of member operations.
#[derive(Default)]
pub(crate) struct Batch {
    ops: Vec<MemberOp>,
    /// For each slot, its latest operation: an adjacent one can be joined to it.
    latest: Vec<usize>,
    read_lists: Vec<Vec<Buf>>,
    write_lists: Vec<Vec<SharedBuf>>,
    tag_lists: Vec<Vec<u32>>,
    /// Whether any operation had to be waited for, since [`Batch::forget_waiting`].
    waited: Option<bool>,
    /// The time when it was sent.
    since: Time,
    /// Abandoned operations, for the task that collects them.
    orphans: Vec<Orphan>,
    /// A member may have become slow.
    slowed: bool,
}

struct MemberOp {
    member: Rc<Member>,
    slot: Slot,
    /// The base of `start`, in bytes of the member's disk.
    base: u64,
    /// From the start of the member's data.
    start: u64,
    end: u64,
    state: State,
    is_flush: bool,
    is_write: bool,
    tags: Vec<u32>,
}

enum State {
    Gathering(Work),
    Sent(Completion<Done>),
    Ended(Option<Work>, io::Result<()>),
}

/// The options for a batch's operations.
#[derive(Clone, Copy)]
pub(crate) struct IoOptions {
    pub(crate) fua: bool,
    pub(crate) class: Class,
    pub(crate) op_bytes: u64,
    pub(crate) deadline: Duration,
}

/// An operation of a batch that failed.
pub(crate) struct Failure {
    pub(crate) member: Rc<Member>,
    pub(crate) slot: Slot,
    pub(crate) error: io::Error,
}

const NONE: usize = usize::MAX;

impl Batch {
    /// True if the batch has no operation.
    pub(crate) fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Adds a read of `buf.len()` bytes of a member's data.
    pub(crate) fn read(
        &mut self,
        member: &Rc<Member>,
        slot: Slot,
        at: u64,
        buf: Buf,
        tag: u32,
        limit: u64,
    ) {
        let len = buf.len() as u64;
        member.assert_holds(at, len);
        if let Some(op) = self.joinable(member, slot, at, len, limit)
            && let State::Gathering(Work::Read(bufs)) = &mut op.state
        {
            bufs.push(buf);
            op.tags.push(tag);
            op.end += len;
            return;
        }
        let mut bufs = self.read_lists.pop().unwrap_or_default();
        bufs.push(buf);
        self.open(member, slot, at, len, Work::Read(bufs), tag);
    }

    /// Adds a write to a member's data.
    pub(crate) fn write(
        &mut self,
        member: &Rc<Member>,
        slot: Slot,
        at: u64,
        bytes: SharedBuf,
        limit: u64,
    ) {
        let len = bytes.len() as u64;
        member.assert_holds(at, len);
        if let Some(op) = self.joinable(member, slot, at, len, limit)
            && let State::Gathering(Work::Write(bufs)) = &mut op.state
        {
            bufs.push(bytes);
            op.end += len;
            return;
        }
        let mut bufs = self.write_lists.pop().unwrap_or_default();
        bufs.push(bytes);
        self.open(member, slot, at, len, Work::Write(bufs), 0);
    }

    /// Adds any other operation on a member's data.
    pub(crate) fn add(&mut self, member: &Rc<Member>, slot: Slot, at: u64, work: Work, tag: u32) {
        let len = work.len();
        member.assert_holds(at, len);
        self.open(member, slot, at, len, work, tag);
    }

    /// Adds a write to a member's disk outside its data.
    pub(crate) fn log(
        &mut self,
        member: &Rc<Member>,
        slot: Slot,
        offset: u64,
        bytes: impl Iterator<Item = SharedBuf>,
    ) {
        let mut bufs = self.write_lists.pop().unwrap_or_default();
        bufs.extend(bytes);
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        member.assert_beside(offset, len);
        self.open(member, slot, offset, len, Work::Write(bufs), 0);
        // Later writes must not be joined to it.
        self.latest[slot.index()] = NONE;
        let op = self.ops.last_mut().expect("opened just now");
        op.base = 0;
    }

    /// Adds a read of a member's disk outside its data.
    pub(crate) fn read_elsewhere(
        &mut self,
        member: &Rc<Member>,
        slot: Slot,
        offset: u64,
        buf: Buf,
        tag: u32,
    ) {
        let len = buf.len() as u64;
        let mut bufs = self.read_lists.pop().unwrap_or_default();
        bufs.push(buf);
        self.open(member, slot, offset, len, Work::Read(bufs), tag);
        self.latest[slot.index()] = NONE;
        let op = self.ops.last_mut().expect("opened just now");
        op.base = 0;
    }

    fn joinable(
        &mut self,
        member: &Rc<Member>,
        slot: Slot,
        at: u64,
        len: u64,
        limit: u64,
    ) -> Option<&mut MemberOp> {
        let latest = *self.latest.get(slot.index())?;
        let op = self.ops.get_mut(latest)?;
        let fits =
            op.end == at && Rc::ptr_eq(&op.member, member) && op.end - op.start + len <= limit;
        fits.then_some(op)
    }

    fn open(&mut self, member: &Rc<Member>, slot: Slot, at: u64, len: u64, work: Work, tag: u32) {
        if self.latest.len() <= slot.index() {
            self.latest.resize(slot.index() + 1, NONE);
        }
        self.latest[slot.index()] = self.ops.len();
        let mut tags = self.tag_lists.pop().unwrap_or_default();
        tags.push(tag);
        let member = Rc::clone(member);
        let (base, end) = (member.data_offset, at + len);
        let is_flush = matches!(work, Work::Flush);
        let state = State::Gathering(work);
        let is_write = false;
        let op = MemberOp { member, slot, base, start: at, end, state, is_flush, is_write, tags };
        self.ops.push(op);
    }

    /// Sends everything and waits until each operation has ended or has missed its deadline.
    pub(crate) async fn run(&mut self, clock: &dyn Clock, watch: &Watch, opts: IoOptions) {
        if !self.start(clock, opts) {
            self.wait(clock, watch, opts, None).await;
        }
    }

    /// Like [`Batch::run`], for reads, but returns false if some take longer than their members'
    /// peers would. Then call [`Batch::wait_rest`] or [`Batch::abandon_all`].
    pub(crate) async fn run_until_late(
        &mut self,
        clock: &dyn Clock,
        watch: &Watch,
        opts: IoOptions,
    ) -> bool {
        if self.start(clock, opts) {
            return true;
        }
        let hedge_after =
            self.ops.iter().map(|op| op.member.latency_stats.hedge_after(op.end - op.start)).max();
        let hedge_after = hedge_after.filter(|&hedge_after| hedge_after < u64::MAX);
        let due = hedge_after.map(|nanos| self.since + Duration::from_nanos(nanos));
        self.wait(clock, watch, opts, due).await
    }

    /// Waits for the remaining operations. True if all succeeded.
    pub(crate) async fn wait_rest(
        &mut self,
        clock: &dyn Clock,
        watch: &Watch,
        opts: IoOptions,
    ) -> bool {
        self.wait(clock, watch, opts, None).await;
        self.ops.iter().all(|op| matches!(op.state, State::Ended(_, Ok(()))))
    }

    /// Abandons the unfinished operations.
    pub(crate) fn abandon_all(&mut self) {
        for op in &mut self.ops {
            if matches!(op.state, State::Sent(_)) {
                let orphan = op.leave(self.since, Ok(()));
                self.orphans.extend(orphan);
            }
        }
    }

    /// The slots with unfinished operations.
    pub(crate) fn pending(&self) -> SlotSet {
        let pending = self.ops.iter().filter(|op| matches!(op.state, State::Sent(_)));
        pending.map(|op| op.slot).collect()
    }

    /// True if a member may have become slow since the last call.
    pub(crate) fn take_slowed(&mut self) -> bool {
        std::mem::take(&mut self.slowed)
    }

    /// The abandoned operations; their buffers stay with the members.
    pub(crate) fn orphans(&mut self) -> &mut Vec<Orphan> {
        &mut self.orphans
    }

    /// Sends everything. True if all completed at once.
    fn start(&mut self, clock: &dyn Clock, opts: IoOptions) -> bool {
        for op in &mut self.ops {
            op.send(opts);
        }
        let at_once = self.poll_ended(opts.class);
        self.waited = Some(self.waited == Some(true) || !at_once);
        if !at_once {
            self.since = clock.now();
        }
        at_once
    }

    /// Waits until each operation has ended or missed its deadline. False if `due` comes first.
    async fn wait(
        &mut self,
        clock: &dyn Clock,
        watch: &Watch,
        opts: IoOptions,
        due: Option<Time>,
    ) -> bool {
        let Batch { ops, orphans, since, slowed, .. } = self;
        let since = *since;
        let mut waiting: Option<Waiting<'_>> = None;
        poll_fn(|cx| {
            let overdue = waiting.as_ref().is_some_and(Waiting::is_overdue);
            let late = waiting.as_ref().is_some_and(Waiting::is_late);
            let (mut ended, mut now) = (true, None);
            for op in ops.iter_mut() {
                let State::Sent(completion) = &mut op.state else { continue };
                match Pin::new(completion).poll(cx) {
                    Poll::Ready(done) => {
                        let now = *now.get_or_insert_with(|| clock.now());
                        op.count_duration(now - since, opts.class);
                        *slowed |= op.measure(since, now, opts.class);
                        op.end(done);
                    }
                    Poll::Pending if overdue => {
                        let error = op.overdue(opts.deadline);
                        orphans.extend(op.leave(since, Err(error)));
                        if broken(Broken::LateTrusted) && op.is_write {
                            op.state = State::Ended(None, Ok(()));
                        }
                    }
                    Poll::Pending => {
                        if late {
                            // The final time comes later, if ever: the time so far is measured now.
                            let now = *now.get_or_insert_with(|| clock.now());
                            *slowed |= op.measure(since, now, opts.class);
                        }
                        ended = false;
                    }
                }
            }
            if ended || late {
                return Poll::Ready(ended);
            }
            if waiting.is_none() {
                waiting = Some(watch.begin(since, due, cx.waker().clone()));
            }
            Poll::Pending
        })
        .await
    }

    /// Whether members made the caller wait; `None` if none was asked.
    pub(crate) fn waited(&self) -> Option<bool> {
        self.waited
    }

    /// See [`Batch::waited`].
    pub(crate) fn forget_waiting(&mut self) {
        self.waited = None;
    }

    /// Takes completed operations without waiting; true if all have completed.
    fn poll_ended(&mut self, class: Class) -> bool {
        let mut all = true;
        for op in &mut self.ops {
            if let State::Sent(completion) = &mut op.state {
                match completion.take_ready() {
                    Some(done) => {
                        // Not worth a look at the clock.
                        op.count_duration(Duration::ZERO, class);
                        op.end(done);
                    }
                    None => all = false,
                }
            }
        }
        all
    }

    /// Empties a batch that is not sent: `each` gets what its operations cover on their members.
    pub(crate) fn abandon(&mut self, mut each: impl FnMut(Range<u64>)) {
        self.ops.drain(..).for_each(|op| each(op.start..op.end));
        self.latest.fill(NONE);
    }

    /// Empties the batch. Hands each read's buffers to `read` with their tags (no buffer if it
    /// stays with a hung member) and other completed work to `other`. Appends the failures.
    pub(crate) fn drain(
        &mut self,
        mut read: impl FnMut(u32, Option<Buf>, bool),
        mut other: impl FnMut(u32, Work, bool),
        failures: &mut Vec<Failure>,
    ) {
        for mut op in self.ops.drain(..) {
            let State::Ended(work, result) = op.state else {
                unreachable!("a batch is drained after it was run")
            };
            let ok = result.is_ok();
            match work {
                Some(Work::Read(mut bufs)) => {
                    assert_eq!(bufs.len(), op.tags.len(), "a buffer for each tag");
                    for (buf, &tag) in bufs.drain(..).zip(&op.tags) {
                        read(tag, Some(buf), ok);
                    }
                    self.read_lists.push(bufs);
                }
                Some(Work::Write(mut bufs)) => {
                    bufs.clear();
                    self.write_lists.push(bufs);
                }
                Some(work) => other(op.tags[0], work, ok),
                None => op.tags.iter().for_each(|&tag| read(tag, None, false)),
            }
            op.tags.clear();
            self.tag_lists.push(op.tags);
            if let Err(error) = result {
                failures.push(Failure { member: op.member, slot: op.slot, error });
            }
        }
        self.latest.fill(NONE);
    }
}

impl MemberOp {
    fn send(&mut self, opts: IoOptions) {
        let State::Gathering(work) = std::mem::replace(&mut self.state, State::Ended(None, Ok(())))
        else {
            unreachable!("an operation is sent once")
        };
        let counters = self.member.counters();
        counters.operations.add(1);
        self.is_write = work.is_write();
        if broken(Broken::FlushCoversFlying) && self.is_write {
            self.member.unflushed.set(true);
        }
        if self.is_write {
            counters.written_bytes.add(self.end - self.start);
        } else {
            counters.read_bytes.add(self.end - self.start);
        }
        self.member.busy.set(self.member.busy.get() + 1);
        let offset = if self.is_flush { 0 } else { self.base + self.start };
        let op = Op { offset, work, fua: opts.fua, deadline: None, class: opts.class };
        self.state = State::Sent(self.member.disk.submit(op));
    }

    fn end(&mut self, done: Done) {
        self.end_load();
        if self.is_write && !broken(Broken::FlushCoversFlying) {
            // Set at the end, not at the start: a flush sent in between does not cover the write.
            self.member.unflushed.set(true);
        }
        if done.result.is_err() {
            let counters = self.member.counters();
            let counter =
                if done.work.is_write() { &counters.write_errors } else { &counters.read_errors };
            counter.add(1);
        }
        self.state = State::Ended(Some(done.work), done.result);
    }

    /// Counts one operation less in flight.
    fn end_load(&self) {
        let busy = self.member.busy.get();
        assert!(busy > 0, "an end of an operation that was not sent");
        self.member.busy.set(busy - 1);
    }

    fn count_duration(&self, duration: Duration, class: Class) {
        if class == Class::Foreground && !self.is_flush {
            self.member.counters().durations[usize::from(self.is_write)].add(duration);
        }
    }

    /// Records the answer time, or the time so far. True if the member may have become slow by
    /// this.
    fn measure(&self, since: Time, now: Time, class: Class) -> bool {
        if class != Class::Foreground || self.is_flush {
            return false;
        }
        let kind = if self.is_write { Kind::Write } else { Kind::Read };
        self.member.latency_stats.add(kind, self.end - self.start, since, now)
    }

    /// Handles a passed deadline.
    fn overdue(&self, deadline: Duration) -> io::Error {
        self.end_load();
        self.member.unflushed.set(true);
        self.member.counters().timeouts.add(1);
        let what = format!("{}: no answer within {} s", self.member.name, deadline.as_secs_f32());
        io::Error::new(ErrorKind::Timeout, what)
    }

    /// Abandons the operation; its buffers stay with the member.
    fn leave(&mut self, since: Time, result: io::Result<()>) -> Option<Orphan> {
        let missed = result.is_err();
        match std::mem::replace(&mut self.state, State::Ended(None, result)) {
            State::Sent(answer) => {
                let (member, bytes) = (Rc::clone(&self.member), self.end - self.start);
                let (writes, probe) = (self.is_write, false);
                Some(Orphan { member, answer, since, bytes, writes, missed, probe })
            }
            _ => None,
        }
    }
}
