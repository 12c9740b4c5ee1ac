//! Member operations that go out together: gathered, joined where they touch, sent, awaited.
//!
//! Owns the lists that travel with operations and uses them again: once warm, a batch allocates
//! nothing. Knows nothing of levels, plans or parity. A *tag* names a buffer to whoever added it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{Buf, Class, Clock, Completion, Done, ErrorKind, Op, SharedBuf, Work};
use layout::Slot;

use crate::member::Member;
use crate::watch::Watch;

/// A set of member operations.
#[derive(Default)]
pub(crate) struct Batch {
    ops: Vec<MemberOp>,
    /// For each slot, its latest operation: what touches it can be joined to it.
    latest: Vec<usize>,
    read_lists: Vec<Vec<Buf>>,
    write_lists: Vec<Vec<SharedBuf>>,
    tag_lists: Vec<Vec<u32>>,
    /// Whether operations were waited for, since it was forgotten.
    waited: Option<bool>,
}

struct MemberOp {
    member: Rc<Member>,
    slot: Slot,
    /// From the start of the member's data.
    start: u64,
    end: u64,
    state: State,
    is_flush: bool,
    tags: Vec<u32>,
}

enum State {
    Gathering(Work),
    Sent(Completion<Done>),
    Ended(Option<Work>, io::Result<()>),
}

/// How operations of a batch are sent.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
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
    /// True if nothing was added.
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
        self.open(member, slot, at, len, work, tag);
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
        let is_flush = matches!(work, Work::Flush);
        let state = State::Gathering(work);
        self.ops.push(MemberOp { member, slot, start: at, end: at + len, state, is_flush, tags });
    }

    /// Sends everything and waits until each operation has ended or has missed its deadline.
    pub(crate) async fn run(&mut self, clock: &dyn Clock, watch: &Watch, manner: Manner) {
        for op in &mut self.ops {
            op.send(manner);
        }
        let at_once = self.poll_ended();
        self.waited = Some(self.waited == Some(true) || !at_once);
        if at_once {
            return;
        }
        let since = clock.now();
        let mut registered: Option<usize> = None;
        poll_fn(|cx| {
            let overdue = registered.is_some_and(|number| watch.is_overdue(number));
            let mut ended = true;
            for op in &mut self.ops {
                if let State::Sent(completion) = &mut op.state {
                    match Pin::new(completion).poll(cx) {
                        Poll::Ready(done) => op.end(done),
                        Poll::Pending if overdue => op.give_up(manner.deadline),
                        Poll::Pending => ended = false,
                    }
                }
            }
            if ended {
                return Poll::Ready(());
            }
            if registered.is_none() {
                registered = Some(watch.begin(since, cx.waker().clone()));
            }
            Poll::Pending
        })
        .await;
        if let Some(number) = registered {
            watch.end(number);
        }
    }

    /// Whether members took their time, if they were asked anything.
    pub(crate) fn waited(&self) -> Option<bool> {
        self.waited
    }

    /// See [`Batch::waited`].
    pub(crate) fn forget_waiting(&mut self) {
        self.waited = None;
    }

    /// Takes what has ended already, without waiting; true if that is everything.
    fn poll_ended(&mut self) -> bool {
        let mut all = true;
        for op in &mut self.ops {
            if let State::Sent(completion) = &mut op.state {
                match completion.take_ready() {
                    Some(done) => op.end(done),
                    None => all = false,
                }
            }
        }
        all
    }

    /// Empties the batch: hands each read's buffers to `read` with their tags (no buffer where it
    /// stays with a member that does not answer), each other ended work to `other`, and gives the
    /// failures.
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
    fn send(&mut self, manner: Manner) {
        let State::Gathering(work) = std::mem::replace(&mut self.state, State::Ended(None, Ok(())))
        else {
            unreachable!("an operation is sent once")
        };
        let counters = self.member.counters();
        counters.operations.add(1);
        if work.is_write() {
            self.member.unflushed.set(true);
            counters.written_bytes.add(self.end - self.start);
        } else {
            counters.read_bytes.add(self.end - self.start);
        }
        self.member.busy.set(self.member.busy.get() + 1);
        if self.is_flush {
            self.member.flushing.set(self.member.flushing.get() + 1);
        }
        let offset = match work {
            Work::Flush => 0,
            _ => self.member.data_offset + self.start,
        };
        let op = Op { offset, work, fua: manner.fua, deadline: None, class: manner.class };
        self.state = State::Sent(self.member.disk.submit(op));
    }

    fn end(&mut self, done: Done) {
        self.settle();
        if done.result.is_err() {
            let counters = self.member.counters();
            let counter =
                if done.work.is_write() { &counters.write_errors } else { &counters.read_errors };
            counter.add(1);
        }
        self.state = State::Ended(Some(done.work), done.result);
    }

    /// One operation less is under way.
    fn settle(&self) {
        self.member.busy.set(self.member.busy.get() - 1);
        if self.is_flush {
            self.member.flushing.set(self.member.flushing.get() - 1);
        }
    }

    /// The answer is not waited for any longer; its buffers stay with the member.
    fn give_up(&mut self, deadline: Duration) {
        self.settle();
        self.member.counters().timeouts.add(1);
        let what = format!("{}: no answer within {} s", self.member.name, deadline.as_secs_f32());
        self.state = State::Ended(None, Err(io::Error::new(ErrorKind::Timeout, what)));
    }
}
