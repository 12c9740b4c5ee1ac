//! A shard: the part of an array that one thread works on.
//!
//! ```text
//!   units ─▶ queue ─▶ workers ─▶ lock rows ─▶ mark regions ─▶ gate ─▶ plan, read, compute, write
//!                                                              │
//!   keeper ◀── lost, still, mark, quiet ── messages ── close, open, marked, recovered ──▶
//! ```
//!
//! Owns its regions' row locks, its queue, its workers, its caches, its view of the membership.
//! Never decides about the membership, never writes a superblock or a bitmap: that is the keeper's.
//!
//! Invariant: whatever a unit does to members it does inside the gate, under the lock of its rows,
//! and with the marks of its regions durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use io::broken::{Broken, broken};
use io::{Budget, Clock, Completions, Pool, SharedBuf, Signal, TaskSet, Time};
use layout::{Family, Geometry, MemberId, RangeSet};
use metadata::{Bounds, Error, ErrorKind, Result};
use parity::Kernel;

use crate::cache::Cache;
use crate::cache::readahead::Ahead;
use crate::checksum::Sums;
use crate::member::Member;
use crate::member::batch::{Batch, Failure, IoOptions};
use crate::member::deadline::Watch;
use crate::member::orphans::Late;
use crate::member::read_balance::Balancer;
use crate::member::view::View;
use crate::rows::hedge::Hedges;
use crate::rows::intent::Log;
use crate::rows::job::Report;
use crate::shard::barrier::{Barrier, Inside};
use crate::shard::bitmap::{Intent, Marks};
use crate::shard::flush::{CacheMode, Flushes};
use crate::shard::locks::{Claim, Locks};
use crate::shard::mail::Post;
use crate::shard::message::{ToKeeper, ToShard};
use crate::shard::queue::{Action, Gain, Queue, Requests, Unit};
use crate::shard::submit::Blueprint;

pub(crate) mod barrier;
pub(crate) mod bitmap;
mod cut;
mod ending;
pub(crate) mod flush;
pub(crate) mod locks;
pub(crate) mod mail;
pub(crate) mod message;
pub(crate) mod queue;
mod scratch;
pub(crate) mod submit;
mod tell;
mod tend;

pub(crate) use scratch::Scratch;

/// What a shard is told when it starts, and keeps.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) bounds: Bounds,
    pub(crate) kernel: Kernel,
    pub(crate) clock: Rc<dyn Clock>,
    /// Bytes of sync space per mark of the write-intent bitmap.
    pub(crate) mark_bytes: u64,
    /// The array promises that discarded bytes read as zeros.
    pub(crate) discard_zeroes: bool,
    /// When writes are acknowledged.
    pub(crate) cache: CacheMode,
    /// The array says that what is written may be lost until it is flushed.
    pub(crate) volatile: bool,
    /// Compare parity on each read.
    pub(crate) check_reads: bool,
    /// Compute parity at all: off only to measure what it costs.
    pub(crate) parity: bool,
    /// What is not synced may have been cut by a crash, and nobody has said that this will do.
    pub(crate) doubt: bool,
    /// Nothing may be read or written before the first configuration comes.
    pub(crate) settling: bool,
}

/// One shard.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) count: usize,
    pub(crate) setup: Setup,
    pub(crate) pool: Pool,
    pub(crate) scratch: Budget,
    pub(crate) locks: Rc<Locks>,
    pub(crate) gate: Barrier,
    pub(crate) watch: Watch,
    pub(crate) hedges: Hedges,
    pub(crate) late: Late,
    pub(crate) balancer: Balancer,
    pub(crate) requests: Requests,
    pub(crate) flushes: Flushes,
    pub(crate) log: Option<Log>,
    pub(crate) sums: Option<Sums>,
    pub(crate) cache: Cache,
    pub(crate) ahead: Ahead,
    /// Lists for units that write, to be used again.
    lists: RefCell<Vec<Vec<SharedBuf>>>,
    /// Background work sent out from this shard.
    pub(crate) upkeeps: Completions<(Result<()>, Report)>,
    /// Who waits for the keeper to put on record what it was told.
    pub(crate) records: Completions<()>,
    marks: Marks,
    view: RefCell<Rc<View>>,
    members: RefCell<BTreeMap<MemberId, Rc<Member>>>,
    /// Array ranges of this shard whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Array ranges that are lost, though no member's block is bad: errors until they are written.
    pub(crate) bad: RefCell<RangeSet>,
    /// Member offsets of rows that were written whole since a crash, though not synced.
    pub(crate) settled: RefCell<RangeSet>,
    queue: RefCell<Queue>,
    /// Raised when a write is held in the queue.
    held_up: Signal,
    idle: RefCell<Vec<Waker>>,
    pub(crate) post: Rc<Post>,
    marking: Rc<Marking>,
    /// Raised when the ticker has something to look after.
    stirred: Signal,
    /// No new request is taken.
    quiescing: Cell<bool>,
    /// When an error to a client was told last, and how many were not since.
    told: Cell<(Option<Time>, u64)>,
    /// Raised when it may be that no request is under way any more.
    emptied: Signal,
    stopping: Cell<bool>,
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
        let gate = Barrier::default();
        if setup.settling {
            gate.close();
        }
        let setup_bounds = setup.bounds;
        Rc::new(Shard {
            index,
            count: blueprint.loads.len(),
            pool: Pool::new(setup.bounds.keep_bytes),
            scratch: Budget::new(setup.bounds.scratch_bytes),
            cache: Cache::new(setup.bounds.cache_bytes),
            ahead: Ahead::new(setup.bounds.ahead_bytes, setup.bounds.ahead_streams),
            setup,
            locks: Rc::default(),
            gate,
            watch: Watch::default(),
            hedges: Hedges::new(setup_bounds.hedges),
            late: Late::default(),
            balancer: Balancer::default(),
            requests: Requests::new(index, Arc::clone(&blueprint.loads)),
            flushes: Flushes::default(),
            log: blueprint.log.map(|setup| Log::new(setup, &blueprint.geometry)),
            sums: blueprint.sums.as_ref().map(|setup| Sums::new(setup, setup_bounds.sums_bytes)),
            lists: RefCell::default(),
            upkeeps: Completions::new(),
            records: Completions::new(),
            marks: Marks::new(intent),
            view: RefCell::new(Rc::new(view)),
            members: RefCell::new(members),
            unsynced: RefCell::new(blueprint.unsynced.clone()),
            bad: RefCell::new(blueprint.bad.clone()),
            settled: RefCell::default(),
            queue: RefCell::default(),
            held_up: Signal::new(),
            idle: RefCell::default(),
            post,
            marking,
            stirred: Signal::new(),
            quiescing: Cell::new(false),
            told: Cell::default(),
            emptied: Signal::new(),
            stopping: Cell::new(false),
        })
    }

    /// Starts the shard's own tasks. `keeper` is told what comes in for it.
    pub(crate) fn start(self: &Rc<Self>, tasks: &TaskSet, keeper: Option<Rc<dyn Fn(ToKeeper)>>) {
        for _ in 0..self.setup.bounds.units {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.work().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.keep_deadlines().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.keep_pace().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.mind_late().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.tend_marks().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.release_held().await });
        if self.log.is_some() {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.write_log().await });
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.retire_logged().await });
        }
        if self.sums.is_some() {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.tend_sums().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.report_stillness().await });
        if self.setup.cache == CacheMode::Writeback {
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.mind_waiting().await });
            let shard = Rc::clone(self);
            tasks.spawn(async move { shard.mind_age().await });
        }
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.report_quiescence().await });
        let shard = Rc::clone(self);
        tasks.spawn(async move { shard.listen(keeper).await });
        // Last, so that it hands over what the others have sent in their turn.
        let post = Rc::clone(&self.post);
        tasks.spawn(async move { post.deliver().await });
    }

    /// The view of now.
    pub(crate) fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// The shard that owns the region of an array offset.
    pub(crate) fn owner(&self, array_offset: u64) -> usize {
        if self.count == 1 {
            return 0;
        }
        (self.setup.geometry.region(array_offset) % self.count as u64) as usize
    }

    /// Sends a unit to its owner.
    pub(crate) fn dispatch(&self, to: usize, unit: Unit) {
        if to == self.index {
            self.enqueue(unit);
        } else {
            self.post.to_shard(to, ToShard::Unit(unit));
        }
    }

    fn enqueue(&self, unit: Unit) {
        if let Some(unit) = self.hold(unit) {
            self.read_ahead_of(&unit);
            self.line_up(unit);
            self.line_up_ahead();
        }
    }

    /// Puts a unit in the queue.
    pub(crate) fn line_up(&self, unit: Unit) {
        self.queue.borrow_mut().push(unit);
        self.rouse();
    }

    /// Wakes a worker that has nothing to do.
    fn rouse(&self) {
        let worker = self.idle.borrow_mut().pop();
        if let Some(worker) = worker {
            worker.wake();
        }
    }

    /// A member handle for configurations to come.
    pub(crate) fn introduce(&self, member: Rc<Member>) {
        self.sums.as_ref().inspect(|sums| sums.forget(member.id));
        self.members.borrow_mut().insert(member.id, member);
    }

    /// True if no new request is taken.
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
            self.carry_out(unit, claim, &mut scratch).await;
        }
    }

    /// The next unit, with its claim on its rows: both taken in the order of arrival.
    async fn next(&self) -> Option<(Unit, Option<Claim>)> {
        std::future::poll_fn(|cx| {
            if let Some(unit) = self.take_unit() {
                let claim = self.claim_for(&unit);
                return Poll::Ready(Some((unit, claim)));
            }
            if self.stopping.get() {
                return Poll::Ready(None);
            }
            self.idle.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The unit whose turn it is. The last part of a stream of writes, short of a whole stripe, is
    /// held for a moment if there were several under way: half a stripe costs reads, and its other
    /// half is often still on its way through the socket.
    fn take_unit(&self) -> Option<Unit> {
        let mut queue = self.queue.borrow_mut();
        let unit = queue.pop(self.unit_border())?;
        let geometry = &self.setup.geometry;
        let alone = self.requests.load().requests.get() == 1;
        let border = geometry.stripe_bytes().min(self.unit_border());
        if geometry.family() == Family::Parity && queue.may_go_on(&unit, border, alone) {
            queue.hold(unit);
            self.held_up.raise();
            return None;
        }
        queue.taken(&unit);
        Some(unit)
    }

    async fn carry_out(self: &Rc<Self>, mut unit: Unit, claim: Option<Claim>, work: &mut Scratch) {
        if let Some(claim) = &claim {
            claim.await;
        }
        let charged = unit.len;
        self.setup.clock.charge(io::Cost::Request, charged);
        let marked = if self.needs_marks(&unit) {
            let marks = self.marks_of(unit.offset, unit.len);
            match self.marks.enter(marks.clone()).await {
                Ok(()) => Some(marks),
                // It is read as it is, then.
                Err(_) if matches!(unit.action, Action::Read(_)) => None,
                Err(error) => {
                    // Why the intent could not be recorded says more.
                    let why = self.check_writable(&self.view()).err().unwrap_or(error);
                    return self.finish(unit, Gain::Nothing, Err(why));
                }
            }
        } else {
            None
        };
        let (gain, mut result) = self.act(&mut unit, work).await;
        let covered = (unit.offset, unit.len);
        let mut ended = Vec::new();
        if result.is_err() && !unit.merged.is_empty() && !broken(Broken::MergedFailTogether) {
            // What one of those that were merged cannot have, the others may.
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
            // Whatever came of it, in the same turn, and before anybody is told.
            _ => self.ahead.forget(covered),
        }
        if let Some(marks) = marked {
            self.marks.exit(marks, self.setup.clock.now());
            self.stirred.raise();
        }
        drop(claim);
        work.let_go();
        for (part, gain, result) in ended {
            self.finish_durably(part, gain, result).await;
        }
        self.finish_durably(unit, gain, result).await;
    }

    /// True if a client's bytes change.
    fn writes(&self, unit: &Unit) -> bool {
        match unit.action {
            Action::Write(_) | Action::Zero { .. } | Action::Discard | Action::WriteOut(_) => true,
            Action::Read(_)
            | Action::ReadAhead(_)
            | Action::Extents(_)
            | Action::Flush { .. }
            | Action::Upkeep(_) => false,
        }
    }

    fn needs_marks(&self, unit: &Unit) -> bool {
        let settles = || {
            let range = (unit.offset, unit.len);
            matches!(unit.action, Action::Read(_)) && self.must_settle_copies(range)
        };
        (self.writes(unit) && self.setup.geometry.family() != Family::Plain) || settles()
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
        match &mut unit.action {
            Action::Read(bufs) => {
                let mut bufs = std::mem::take(bufs);
                let result = self.read_through(work, opts, range, &mut bufs).await;
                (Gain::Bytes(bufs), result)
            }
            Action::Write(bytes) => {
                let result = self.write(work, opts, range, bytes).await;
                self.overtake_held(range, &result);
                (Gain::Nothing, result)
            }
            Action::Zero { unmap } => {
                let result = self.zero(work, opts, range, *unmap).await;
                self.overtake_held(range, &result);
                (Gain::Nothing, result)
            }
            Action::Discard => {
                let result = self.discard(work, opts, range).await;
                if self.setup.discard_zeroes {
                    self.overtake_held(range, &result);
                }
                (Gain::Nothing, result)
            }
            Action::ReadAhead(number) => {
                self.carry_read_ahead(work, opts, range, *number).await;
                (Gain::Nothing, Ok(()))
            }
            Action::WriteOut(write_out) => {
                (Gain::Nothing, self.carry_write_out(work, opts, *write_out).await)
            }
            Action::Extents(found) => {
                let mut found = std::mem::take(found);
                let result = self.extents_through(work, opts, range, &mut found).await;
                (Gain::Extents(found), result)
            }
            Action::Flush { after } => (Gain::Nothing, self.flush_after(work, *after).await),
            Action::Upkeep(upkeep) => {
                let mut upkeep = upkeep.clone();
                let result = self.upkeep(work, opts, range, &mut upkeep).await;
                (Gain::Upkeep(upkeep), result)
            }
        }
    }

    fn opts(&self, unit: &Unit) -> IoOptions {
        let bounds = &self.setup.bounds;
        IoOptions {
            fua: unit.fua && !broken(Broken::FuaIgnored),
            class: unit.class,
            op_bytes: bounds.member_op_bytes,
            deadline: bounds.deadline,
        }
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

    // ---- what units share ----------------------------------------------------------------------

    /// Sends the batch and waits for it.
    pub(crate) async fn run(&self, batch: &mut Batch, opts: IoOptions) {
        batch.run(&*self.setup.clock, &self.watch, opts).await;
        self.take_stock(batch);
    }

    /// Reports members that failed, and parks until the membership has changed.
    ///
    /// # Errors
    /// If the array has no redundancy, or is broken without these members.
    pub(crate) async fn lose(
        &self,
        inside: &Inside<'_>,
        view: &View,
        failures: &mut Vec<Failure>,
    ) -> Result<()> {
        let (mut told, mut fatal) = (Vec::new(), Ok(()));
        for Failure { member, slot, error } in failures.drain(..) {
            let plain = self.setup.geometry.family() == Family::Plain;
            // A copy can be done without, and must not take the slot.
            if plain && (!view.is_replacement(slot, member.id) || broken(Broken::FailedCopyKept)) {
                let kind = ErrorKind::DataLost;
                let what = format!("{} failed, and the level has no redundancy", member.name);
                fatal = Err(Error::new(kind, what).in_slot(slot).because(error));
            } else if view.has(member.id) && !told.contains(&member.id) {
                told.push(member.id);
                self.post.to_keeper(ToKeeper::Lost { member: member.id, why: error });
            }
        }
        fatal?;
        inside.park(|| self.view.borrow().epoch > view.epoch).await;
        Ok(())
    }

    /// True if parity and copies of this array range may disagree.
    pub(crate) fn is_unsynced(&self, offset: u64, len: u64) -> bool {
        let unsynced = self.unsynced.borrow();
        !unsynced.is_empty() && unsynced.overlaps(offset..offset + len)
    }
}
