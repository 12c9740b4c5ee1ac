//! A shard: the part of an array that one thread works on.
//!
//! ```text
//!   units ─▶ queue ─▶ workers ─▶ lock rows ─▶ bitmap bits ─▶ barrier ─▶ plan, read, compute, write
//!                                                              │
//!   keeper ◀── lost, still, mark, quiet ── messages ── close, open, marked, recovered ──▶
//! ```
//!
//! A shard owns its regions' row locks, its queue, its workers, its caches and its view of the
//! membership. It never decides about the membership and never writes a superblock or a bitmap: the
//! keeper does both.
//!
//! Invariant: a unit touches members only inside the barrier, with its rows locked and the bitmap
//! bits of its regions durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Class, Clock, Completion, Completions, SharedBuf, Signal, TaskSet, Ticket, Time};
use layout::{Family, MemberId};
use metadata::{Error, ErrorKind, Result};

use crate::member::batch::IoOptions;
use crate::member::{Member, View};
use crate::rows::Scratch;
use crate::rows::engine::{Engine, RowOp};
use crate::rows::flush::CacheMode;
use crate::rows::job::{RangeJob, Report, Task};
use crate::rows::locks::Claim;
use crate::shard::bitmap::{HeldRegions, Intent};
use crate::shard::cache::Cache;
use crate::shard::cache::readahead::Ahead;
use crate::shard::message::{Post, ToKeeper, ToShard};
use crate::shard::queue::{Action, Merged, Queue, Unit};
use crate::shard::requests::{Ended, Gain, Origin, Requests};
use crate::shard::submit::Blueprint;

pub(crate) mod bitmap;
pub(crate) mod cache;
pub(crate) mod message;
pub(crate) mod queue;
pub(crate) mod requests;
pub(crate) mod submit;
mod tend;

/// Interval of reports to the keeper about errors that clients got.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// One shard.
pub(crate) struct Shard {
    pub(crate) engine: Rc<Engine>,
    pub(crate) count: usize,
    pub(crate) requests: Requests,
    pub(crate) cache: Cache,
    pub(crate) ahead: Ahead,
    /// Empty lists for writing units, kept for reuse.
    lists: RefCell<Vec<Vec<SharedBuf>>>,
    /// Completions of the background work that this shard has sent out.
    pub(crate) jobs: Completions<(Result<()>, Report)>,
    regions: HeldRegions,
    members: RefCell<BTreeMap<MemberId, Rc<Member>>>,
    queue: RefCell<Queue>,
    /// Raised when a write is held in the queue, or waits for no answer any more.
    held_up: Signal,
    idle: RefCell<Vec<Waker>>,
    marking: Rc<Marking>,
    /// Raised when [`Shard::tend_bits`] has new work.
    bits_changed: Signal,
    /// The shard refuses new requests.
    quiescing: Cell<bool>,
    /// The time of the last reported client error, and the number of unreported errors since.
    reported: Cell<(Option<Time>, u64)>,
    /// Raised when the last request may have ended.
    emptied: Signal,
}

/// The local [`Intent`]: asks the keeper by message.
struct Marking {
    post: Rc<Post>,
    waiting: Completions<bool>,
}

impl Intent for Marking {
    fn acquire(&self, regions: std::ops::RangeInclusive<u64>) -> io::Completion<bool> {
        let (ticket, completion) = self.waiting.start();
        let (shard, ticket) = (self.post.address(), ticket.to_bits());
        let (first, last) = (*regions.start(), *regions.end());
        self.post.to_keeper(ToKeeper::Mark { shard, ticket, first, last });
        completion
    }

    fn release(&self, regions: Vec<u64>) {
        self.post.to_keeper(ToKeeper::Unmark { shard: self.post.address(), regions });
    }

    fn quiet(&self) {
        self.post.to_keeper(ToKeeper::Quiet { shard: self.post.address() });
    }
}

impl Shard {
    pub(crate) fn new(
        blueprint: &Blueprint,
        clock: Rc<dyn Clock>,
        post: Rc<Post>,
        intent: Option<Rc<dyn Intent>>,
        members: BTreeMap<MemberId, Rc<Member>>,
    ) -> Rc<Shard> {
        let index = post.address();
        let marking = Rc::new(Marking { post: Rc::clone(&post), waiting: Completions::new() });
        let intent = intent.unwrap_or_else(|| Rc::clone(&marking) as Rc<dyn Intent>);
        let view = View::new(&blueprint.configuration, |id| members.get(&id).cloned());
        let setup = blueprint.setup(clock);
        let (bounds, settling) = (setup.bounds, setup.settling);
        let engine = Rc::new(blueprint.engine(setup, post, view));
        if settling {
            engine.gate.close();
        }
        Rc::new(Shard {
            engine,
            count: blueprint.loads.len(),
            requests: Requests::new(index, Arc::clone(&blueprint.loads)),
            cache: Cache::new(bounds.cache_bytes),
            ahead: Ahead::new(&bounds, blueprint.limits.rotational, &blueprint.geometry),
            lists: RefCell::default(),
            jobs: Completions::new(),
            regions: HeldRegions::new(intent),
            members: RefCell::new(members),
            queue: RefCell::default(),
            held_up: Signal::new(),
            idle: RefCell::default(),
            marking,
            bits_changed: Signal::new(),
            quiescing: Cell::new(false),
            reported: Cell::default(),
            emptied: Signal::new(),
        })
    }

    /// Starts the shard's own tasks. `keeper` receives the messages addressed to the keeper.
    pub(crate) fn start(self: &Rc<Self>, tasks: &TaskSet, keeper: Option<Rc<dyn Fn(ToKeeper)>>) {
        for _ in 0..self.engine.setup.bounds.units {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.work().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.keep_deadlines().await });
        let engine = Rc::clone(&self.engine);
        tasks.spawn(async move { engine.track_latency().await });
        let engine = Rc::clone(&self.engine);
        tasks.spawn(async move { engine.run_orphans().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.tend_bits().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.release_held().await });
        if self.engine.log.is_some() {
            let engine = Rc::clone(&self.engine);
            tasks.spawn(async move { engine.write_log().await });
            let engine = Rc::clone(&self.engine);
            tasks.spawn(async move { engine.retire_logged().await });
        }
        if self.engine.checksums.is_some() {
            let engine = Rc::clone(&self.engine);
            tasks.spawn(async move { engine.tend_checksums().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.report_stillness().await });
        if self.engine.setup.cache == CacheMode::Writeback {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.run_admission().await });
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.run_aging().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.report_quiescence().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.listen(keeper).await });
        // The last task, so that it delivers the messages that the tasks before it have sent.
        let post = Rc::clone(&self.engine.post);
        tasks.spawn(async move { post.deliver().await });
    }

    /// The shard that owns the region of an array offset.
    pub(crate) fn owner(&self, array_offset: u64) -> usize {
        if self.count == 1 {
            return 0;
        }
        (self.engine.setup.geometry.region(array_offset) % self.count as u64) as usize
    }

    /// Sends a unit to its owner.
    pub(crate) fn dispatch(&self, to: usize, unit: Unit) {
        if to == self.engine.index {
            self.enqueue(unit);
        } else {
            self.engine.post.to_shard(to, ToShard::Unit(unit));
        }
    }

    /// Sends one range of background work to the shard that owns it.
    pub(crate) fn job_range(
        &self,
        task: Task,
        offset: u64,
        len: u64,
    ) -> Completion<(Result<()>, Report)> {
        let (ticket, completion) = self.jobs.start();
        let bits = ticket.to_bits();
        let from =
            Origin { shard: self.engine.index, request: bits as u32, part: (bits >> 32) as u32 };
        let action = Action::RangeJob(RangeJob { task, report: Report::default() });
        let (class, merged) = (Class::Background, Vec::new());
        self.dispatch(
            self.owner(offset),
            Unit { offset, len, action, fua: false, class, from, merged },
        );
        completion
    }

    fn enqueue(&self, unit: Unit) {
        let (shard, first) = (self.engine.index, unit.offset);
        let last = first + unit.len.saturating_sub(1);
        let own = unit.len == 0 || (self.owner(first), self.owner(last)) == (shard, shard);
        assert!(own, "shard {shard} would lock {first}..={last}, which another shard locks too");
        let unit = match self.engine.setup.cache {
            CacheMode::Writeback => self.hold(unit),
            CacheMode::None | CacheMode::Sync => Some(unit),
        };
        let Some(unit) = unit else { return };
        if !matches!(unit.action, Action::Read(_)) {
            return self.line_up(unit);
        }
        self.read_ahead_of(&unit);
        self.line_up(unit);
        self.line_up_ahead();
    }

    /// Puts a unit in the queue.
    pub(crate) fn line_up(&self, unit: Unit) {
        self.queue.borrow_mut().push(unit);
        self.wake_idle();
    }

    /// Wakes a worker that has nothing to do.
    fn wake_idle(&self) {
        let worker = self.idle.borrow_mut().pop();
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// Adds a member handle for later configurations.
    pub(crate) fn introduce(&self, member: Rc<Member>) {
        self.engine.checksums.as_ref().inspect(|checksums| checksums.forget(member.id));
        self.members.borrow_mut().insert(member.id, member);
    }

    /// True if the shard refuses new requests.
    pub(crate) fn is_quiescing(&self) -> bool {
        self.quiescing.get()
    }

    /// The handle on a member.
    pub(crate) fn member(&self, id: MemberId) -> Option<Rc<Member>> {
        self.members.borrow().get(&id).cloned()
    }

    // ---- workers -------------------------------------------------------------------------------

    async fn work(self: Rc<Self>) {
        let mut scratch = Scratch::default();
        while let Some((unit, claim)) = self.next().await {
            let write = matches!(unit.action, Action::Write(_));
            self.carry_out(unit, claim, &mut scratch).await;
            if write && self.queue.borrow_mut().answered() {
                self.held_up.raise();
            }
        }
    }

    /// The next unit and its claim on its rows. Both are taken in order of arrival.
    async fn next(&self) -> Option<(Unit, Option<Claim>)> {
        std::future::poll_fn(|cx| {
            if let Some(unit) = self.take_unit() {
                let claim = self.claim_for(&unit);
                return Poll::Ready(Some((unit, claim)));
            }
            if self.engine.stopping.get() {
                return Poll::Ready(None);
            }
            self.idle.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Takes the next unit. The last part of a write stream is held while it ends inside a stripe,
    /// if its continuation may arrive soon (`shard/queue.rs`).
    fn take_unit(&self) -> Option<Unit> {
        let geometry = &self.engine.setup.geometry;
        let alone = self.requests.load().requests.get() == 1;
        let limit = self.engine.unit_border();
        let border = geometry.stripe_bytes().min(limit);
        let mut queue = self.queue.borrow_mut();
        let held = queue.is_holding();
        let unit = loop {
            let unit = queue.pop(limit)?;
            if geometry.family() != Family::Parity || !queue.may_go_on(&unit, border, alone) {
                break unit;
            }
            queue.hold(unit);
            self.held_up.raise();
        };
        queue.taken(&unit);
        let released = held && !queue.is_holding();
        drop(queue);
        if released {
            // Its own wake-up was used when it was held.
            self.wake_idle();
        }
        Some(unit)
    }

    async fn carry_out(self: &Rc<Self>, mut unit: Unit, claim: Option<Claim>, work: &mut Scratch) {
        if let Some(claim) = &claim {
            claim.await;
        }
        let charged = unit.len;
        self.engine.setup.clock.charge(io::Cost::Request, charged);
        let marked = if self.needs_bits(&unit) {
            let regions = self.bits_of(unit.offset, unit.len);
            match self.regions.enter(regions.clone()).await {
                Ok(()) => Some(regions),
                // A read does not need the bit: it returns the block as it is.
                Err(_) if matches!(unit.action, Action::Read(_)) => None,
                Err(error) => {
                    // The reason why the bit could not be recorded is the better error.
                    let why =
                        self.engine.check_writable(&self.engine.view()).err().unwrap_or(error);
                    return self.finish(unit, Gain::Nothing, Err(why));
                }
            }
        } else {
            None
        };
        let redundant = self.engine.setup.geometry.family() != Family::Plain;
        let unmarked = marked.is_none() && redundant && self.writes(&unit);
        assert!(
            !unmarked,
            "a write at {} without a durable bit: a crash would hide it",
            unit.offset
        );
        let (gain, mut result) = self.act(&mut unit, work).await;
        let covered = (unit.offset, unit.len);
        let mut ended = Vec::new();
        if result.is_err() && !unit.merged.is_empty() && !broken(Broken::MergedFailTogether) {
            // One failing write must not fail the writes merged with it.
            for mut part in unit.take_apart() {
                let (gain, result) = self.act(&mut part, work).await;
                ended.push((part, gain, result));
            }
            result = self.act(&mut unit, work).await.1;
        }
        match unit.action {
            Action::Read(_) => self.ahead.answered(&unit, work.batch.waited()),
            Action::ReadAhead(_) | Action::Extents(_) | Action::Flush { .. } => {}
            _ if broken(Broken::ReadAheadStale) => {}
            // Also after an error, in the same turn, and before any client gets an answer.
            _ => self.ahead.forget(covered),
        }
        if let Some(regions) = marked {
            self.regions.exit(regions, self.engine.setup.clock.now());
            self.bits_changed.raise();
        }
        drop(claim);
        work.release_disks();
        for (part, gain, result) in ended {
            self.finish_durably(part, gain, result).await;
        }
        self.finish_durably(unit, gain, result).await;
    }

    /// True if the unit changes array data.
    fn writes(&self, unit: &Unit) -> bool {
        match unit.action {
            Action::Write(_) | Action::Zero { .. } | Action::Discard | Action::WriteOut(_) => true,
            Action::Read(_)
            | Action::ReadAhead(_)
            | Action::Extents(_)
            | Action::Flush { .. }
            | Action::RangeJob(_) => false,
        }
    }

    fn needs_bits(&self, unit: &Unit) -> bool {
        let settles = || {
            let range = (unit.offset, unit.len);
            matches!(unit.action, Action::Read(_)) && self.engine.must_resolve_copies(range)
        };
        (self.writes(unit) && self.engine.setup.geometry.family() != Family::Plain) || settles()
    }

    async fn act(self: &Rc<Self>, unit: &mut Unit, work: &mut Scratch) -> (Gain, Result<()>) {
        let opts = self.opts(unit);
        let range = (unit.offset, unit.len);
        let writes = self.writes(unit);
        if unit.fua
            && writes
            && let Some(error) = self.cache.failure()
        {
            return (Gain::Nothing, Err(error));
        }
        let mut op = RowOp::new(&self.engine, work, opts);
        match &mut unit.action {
            Action::Read(bufs) => {
                let mut bufs = std::mem::take(bufs);
                let result = self.read_through(&mut op, range, &mut bufs).await;
                (Gain::Bytes(bufs), result)
            }
            Action::Write(bytes) => {
                let result = op.write(range, bytes).await;
                self.overtake_held(range, &result);
                (Gain::Nothing, result)
            }
            Action::Zero { unmap } => {
                let result = op.zero(range, *unmap).await;
                self.overtake_held(range, &result);
                (Gain::Nothing, result)
            }
            Action::Discard => {
                let result = op.discard(range).await;
                if self.engine.setup.discard_zeroes {
                    self.overtake_held(range, &result);
                }
                (Gain::Nothing, result)
            }
            Action::ReadAhead(number) => {
                self.carry_read_ahead(&mut op, range, *number).await;
                (Gain::Nothing, Ok(()))
            }
            Action::WriteOut(write_out) => {
                (Gain::Nothing, self.carry_write_out(&mut op, *write_out).await)
            }
            Action::Extents(found) => {
                let mut found = std::mem::take(found);
                let result = self.extents_through(&mut op, range, &mut found).await;
                (Gain::Extents(found), result)
            }
            Action::Flush { after } => (Gain::Nothing, self.flush_after(work, *after).await),
            Action::RangeJob(job) => {
                let mut job = job.clone();
                let result = op.job(range, &mut job).await;
                (Gain::RangeJob(job), result)
            }
        }
    }

    fn opts(&self, unit: &Unit) -> IoOptions {
        let bounds = &self.engine.setup.bounds;
        IoOptions {
            fua: unit.fua && !broken(Broken::FuaIgnored),
            class: unit.class,
            op_bytes: bounds.member_op_bytes,
            deadline: bounds.deadline,
        }
    }

    /// The context for the shard's own background work.
    fn op<'a>(&'a self, work: &'a mut Scratch) -> RowOp<'a> {
        RowOp::new(&self.engine, work, self.engine.background())
    }

    /// An empty list for a unit that writes.
    pub(crate) fn list(&self) -> Vec<SharedBuf> {
        self.lists.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes back an empty list.
    pub(crate) fn keep_list(&self, mut list: Vec<SharedBuf>) {
        list.clear();
        self.lists.borrow_mut().push(list);
    }

    // ---- answers -------------------------------------------------------------------------------

    /// Answers a unit once it is as durable as its client was promised.
    async fn finish_durably(&self, unit: Unit, gain: Gain, mut result: Result<()>) {
        if result.is_ok() && self.owes_flush() && self.writes(&unit) && !unit.fua {
            result = self.engine.make_durable().await;
        }
        self.finish(unit, gain, result);
    }

    /// True if a write is acknowledged only when it is durable. An array without volatile members
    /// promises that to its clients, also after a member with a cache joins.
    fn owes_flush(&self) -> bool {
        let promised = !self.engine.setup.volatile && !broken(Broken::JoinedCacheUnflushed);
        self.engine.setup.cache == CacheMode::Sync || (promised && self.engine.is_volatile())
    }

    /// Answers a unit, and each request that was merged into it.
    pub(crate) fn finish(&self, mut unit: Unit, gain: Gain, result: Result<()>) {
        if let Err(error) = &result {
            self.report_failure(&unit, error);
        }
        match unit.action {
            Action::Write(list) => self.keep_list(list),
            Action::WriteOut(write_out) => return self.wrote_out(write_out, result),
            Action::ReadAhead(_) => return,
            _ => {}
        }
        for Merged { from: to, .. } in unit.merged.drain(..) {
            self.answer(Ended { to, gain: Gain::Nothing, result: result.clone() });
        }
        if unit.merged.capacity() > 0 {
            self.queue.borrow_mut().keep(unit.merged);
        }
        self.answer(Ended { to: unit.from, gain, result });
    }

    fn answer(&self, ended: Ended) {
        // By message: the keeper must record lost blocks before a checkpoint covers them.
        let reported = matches!(ended.gain, Gain::RangeJob(_)) && !broken(Broken::AnswerOvertakes);
        if ended.to.shard == self.engine.index && !reported {
            self.end(ended);
        } else {
            self.engine.post.to_shard(ended.to.shard, ToShard::Ended(ended));
        }
    }

    /// Ends one unit of a request or job that began on this shard.
    pub(super) fn end(&self, ended: Ended) {
        let Gain::RangeJob(job) = ended.gain else {
            self.requests.end(ended, &self.engine.setup.name);
            if self.quiescing.get() && self.requests.is_empty() {
                self.emptied.raise();
            }
            return;
        };
        let (slot, generation) = (u64::from(ended.to.request), u64::from(ended.to.part));
        let ticket = Ticket::from_bits(generation << 32 | slot);
        self.jobs.finish(ticket, (ended.result, job.report));
    }

    /// Reports an error that a client gets: one a second to the keeper, the others are counted.
    fn report_failure(&self, unit: &Unit, error: &Error) {
        let what = match unit.action {
            Action::Read(_) => "a read",
            Action::Write(_) | Action::WriteOut(_) => "a write",
            Action::Zero { .. } | Action::Discard => "a zeroing",
            Action::Flush { .. } => "a flush",
            Action::Extents(_) | Action::ReadAhead(_) | Action::RangeJob(_) => return,
        };
        // A refused request is the client's mistake.
        if error.kind() != ErrorKind::DataLost {
            return;
        }
        let (now, (last, unreported)) = (self.engine.setup.clock.now(), self.reported.get());
        if last.is_some_and(|last| now - last < REPORT_INTERVAL) {
            return self.reported.set((last, unreported + 1));
        }
        self.reported.set((Some(now), 0));
        let before =
            if unreported > 0 { format!("; {unreported} before it") } else { String::new() };
        let Unit { offset, len, .. } = unit;
        let text =
            format!("{what} of {len} bytes at array offset {offset} failed: {error}{before}");
        self.engine.post.to_keeper(ToKeeper::Refused { text });
    }
}
