//! One thread's entry into an array: its shard there, the split of requests into units, and the
//! rows and regions that a unit touches.
//!
//! ```text
//!   thread 0          thread 1                 each thread with clients has a front:
//!   Array ┐           Front                    a shard with its own handles on the members
//!   Front ┴─ Shard 0 ◀─Mailbox─▶ Shard 1
//!   Keeper    regions 0, 2, 4…    1, 3, 5…     requests go to the shards that own the regions
//! ```
//!
//! Another thread makes its front from a [`Blueprint`], which is plain data. It adds only its own
//! disks, clock and mailbox. Invariant: a front never decides about membership.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use io::broken::{Broken, broken};
use io::{
    Budget, Buf, Clock, Completion, Completions, Disk, Done, Limits, Mailbox, Op, Pool, TaskSet,
    Work,
};
use layout::{Configuration, Family, Geometry, MemberId, RangeSet, Stripe};
use log::LogSetup;
use metadata::Bounds;
use parity::Kernel;

use crate::member::deadlines::Watch;
use crate::member::orphans::Late;
use crate::member::read_balance::Balancer;
use crate::member::{Introduction, Member, View};
use crate::rows::checksum::{ChecksumSetup, ChecksumTable};
use crate::rows::engine::{Engine, Setup};
use crate::rows::flush::{CacheMode, Flushes};
use crate::rows::hedge::Hedges;
use crate::rows::intent::Log;
use crate::rows::locks::{Barrier, Claim, Rows};
use crate::shard::Shard;
use crate::shard::bitmap::Intent;
use crate::shard::message::{Message, Post, ToKeeper};
use crate::shard::queue::{Action, Unit};
use crate::shard::requests::{Load, Origin};

/// Units end inside stripes of more than so many times their size: the 32 data disks that have
/// chunks of 512 KiB at the default bounds.
const LARGE_STRIPE: u64 = 16;

/// The data that a thread needs to run one shard of an array, as of the array's start. Later
/// changes wait in the shard's mailbox.
#[derive(Clone)]
pub struct Blueprint {
    pub(crate) name: String,
    pub(crate) geometry: Geometry,
    pub(crate) bounds: Bounds,
    pub(crate) kernel: Kernel,
    pub(crate) bitmap_bytes: u64,
    pub(crate) limits: Limits,
    pub(crate) cache: CacheMode,
    pub(crate) check_reads: bool,
    pub(crate) parity: bool,
    pub(crate) unverified: bool,
    pub(crate) log: Option<LogSetup>,
    /// Lost array ranges, apart from the members' bad blocks.
    pub(crate) bad: RangeSet,
    /// Interrupted rows must be replayed first.
    pub(crate) settling: bool,
    pub(crate) configuration: Configuration,
    pub(crate) unsynced: RangeSet,
    /// Checksums, if the array keeps them.
    pub(crate) checksums: Option<ChecksumSetup>,
    pub(crate) members: Vec<Introduction>,
    /// One load per shard.
    pub(crate) loads: Arc<[Load]>,
}

impl Blueprint {
    /// The members: a front needs a disk for each.
    pub fn members(&self) -> &[Introduction] {
        &self.members
    }

    pub(crate) fn setup(&self, clock: Rc<dyn Clock>) -> Setup {
        Setup {
            name: self.name.clone(),
            geometry: Rc::new(self.geometry.clone()),
            bounds: self.bounds,
            kernel: self.kernel,
            clock,
            bitmap_bytes: self.bitmap_bytes,
            discard_zeroes: self.limits.discard_zeroes,
            cache: self.cache,
            volatile: self.limits.volatile,
            check_reads: self.check_reads,
            parity: self.parity,
            unverified: self.unverified,
            settling: self.settling,
        }
    }

    /// Builds the state that the units of one shard share.
    pub(crate) fn engine(&self, setup: Setup, post: Rc<Post>, view: View) -> Engine {
        let bounds = setup.bounds;
        // Two stripes that are read ahead: a stream would allocate and clear each of them anew.
        let stripe = self.geometry.stripe_bytes().min(bounds.ahead_rotating_bytes);
        let keep_bytes = bounds.keep_bytes.max(2 * stripe as usize);
        Engine {
            index: post.address(),
            pool: Pool::new(keep_bytes),
            scratch: Budget::new(bounds.scratch_bytes),
            setup,
            locks: Rc::default(),
            gate: Barrier::default(),
            watch: Watch::default(),
            hedges: Hedges::new(bounds.hedges),
            late: Late::default(),
            balancer: Balancer::new(self.limits.rotational),
            flushes: Flushes::default(),
            log: self.log.map(|setup| Log::new(setup, &self.geometry)),
            checksums: self
                .checksums
                .as_ref()
                .map(|setup| ChecksumTable::new(setup, bounds.checksums_bytes)),
            records: Completions::new(),
            post,
            view: RefCell::new(Rc::new(view)),
            unsynced: RefCell::new(self.unsynced.clone()),
            bad: RefCell::new(self.bad.clone()),
            resolved: RefCell::default(),
            unfinished: RefCell::default(),
            stopping: Cell::new(false),
            loads: Arc::clone(&self.loads),
        }
    }
}

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Front {
    shard: Rc<Shard>,
    limits: Limits,
    tasks: Rc<TaskSet>,
}

impl Front {
    /// The front of a thread without the keeper. `disks` are this thread's own, one for each of
    /// [`Blueprint::members`] in the same order. Its shard is the one at the mailbox's address.
    ///
    /// # Panics
    /// If the number of disks is not the number of members.
    pub fn join(
        blueprint: &Blueprint,
        disks: Vec<Rc<dyn Disk>>,
        clock: Rc<dyn Clock>,
        intent: Option<Rc<dyn Intent>>,
        mailbox: Rc<dyn Mailbox<Message>>,
    ) -> Front {
        let post = Rc::new(Post::new(mailbox, blueprint.loads.len()));
        let front = Front::new(blueprint, disks, clock, intent, post, Rc::default());
        front.shard.start(&front.tasks, None);
        front
    }

    /// A front whose tasks have not started yet.
    pub(crate) fn new(
        blueprint: &Blueprint,
        disks: Vec<Rc<dyn Disk>>,
        clock: Rc<dyn Clock>,
        intent: Option<Rc<dyn Intent>>,
        post: Rc<Post>,
        tasks: Rc<TaskSet>,
    ) -> Front {
        assert_eq!(disks.len(), blueprint.members.len(), "one disk for each member");
        let index = post.address();
        let handle = |(known, disk): (&Introduction, _)| {
            (known.id, Rc::new(Member::new(known, disk, index)))
        };
        let members: BTreeMap<MemberId, _> =
            blueprint.members.iter().zip(disks).map(handle).collect();
        let shard = Shard::new(blueprint, clock, post, intent, members);
        Front { shard, limits: blueprint.limits, tasks }
    }

    /// Starts the front's tasks on the keeper's thread.
    pub(crate) fn start(&self, keeper: Option<Rc<dyn Fn(ToKeeper)>>) {
        self.shard.start(&self.tasks, keeper);
    }

    pub(crate) fn shard(&self) -> &Rc<Shard> {
        &self.shard
    }

    /// Drives the tasks of a front that has joined. The thread's host spawns this future; it
    /// completes when the array has stopped.
    pub fn run(&self) -> impl Future<Output = ()> + 'static {
        let front = self.clone();
        std::future::poll_fn(move |cx| {
            let poll = front.tasks.poll(cx);
            if front.shard.engine.is_stopping() { Poll::Ready(()) } else { poll }
        })
    }

    /// The array's name.
    pub fn name(&self) -> &str {
        &self.shard.engine.setup.name
    }

    /// Gives the shard its handle on a joining member before the member is enlisted: see
    /// [`Array::admit`](crate::Array::admit).
    pub fn introduce(&self, member: &Introduction, disk: Rc<dyn Disk>) {
        self.shard.introduce(Rc::new(Member::new(member, disk, self.shard.engine.index)));
    }

    fn submit_op(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.refusal(&op) {
            let error = io::Error::refused(format!("array {}: {fault}", self.name()));
            return Completion::ready(Done::failed(op.work, error));
        }
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Completion::ready(Done::ok(op.work));
        }
        match op.work {
            Work::Flush => self.flush(op.class),
            Work::Read(bufs) => self.submit_read(op.offset, op.class, bufs),
            _ => self.submit_ranges(op),
        }
    }

    fn refusal(&self, op: &Op) -> Option<&'static str> {
        if self.shard.is_quiescing() {
            return Some("the array is being stopped");
        }
        if let Work::Zero { len, fast: true, .. } = op.work
            && !self.shard.engine.zeroes_fast(op.offset, len)
        {
            return Some("these bytes cannot be zeroed faster than by writing zeros");
        }
        self.limits.check(op)
    }

    /// Flushes every shard, even while the array is stopping.
    pub(crate) fn flush(&self, class: io::Class) -> Completion<Done> {
        let shard = &self.shard;
        let (request, completion) = shard.requests.begin(0, Work::Flush, shard.count as u32);
        for to in 0..shard.count {
            let from = Origin { shard: shard.engine.index, request, part: to as u32 };
            let action = Action::Flush { after: 0 };
            let merged = Vec::new();
            let unit = Unit { offset: 0, len: 0, action, fua: false, class, from, merged };
            shard.dispatch(to, unit);
        }
        completion
    }

    fn submit_read(&self, offset: u64, class: io::Class, bufs: Vec<Buf>) -> Completion<Done> {
        let shard = &self.shard;
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let parts = self.parts(offset, len);
        let units = parts.clone().count() as u32;
        let (request, completion) = shard.requests.begin(offset, Work::Read(Vec::new()), units);
        shard.requests.shape(request, bufs.iter().map(|buf| buf.len() as u32), units);
        let unit = |part, offset, len, bufs| Unit {
            offset,
            len,
            action: Action::Read(bufs),
            fua: false,
            class,
            from: Origin { shard: shard.engine.index, request, part },
            merged: Vec::new(),
        };
        if units == 1 {
            shard.dispatch(shard.owner(offset), unit(0, offset, len, bufs));
            return completion;
        }
        let (mut bufs, mut rest) = (bufs, None);
        let mut whole = bufs.drain(..);
        for (part, (at, len)) in parts.enumerate() {
            let (mut own, mut left) = (shard.requests.list(), len as usize);
            while left > 0 {
                let mut buf: Buf =
                    rest.take().or_else(|| whole.next()).expect("buffers cover the read");
                if buf.len() > left {
                    rest = Some(buf.split_off(left));
                }
                left -= buf.len();
                own.push(buf);
            }
            shard.dispatch(shard.owner(at), unit(part as u32, at, len, own));
        }
        let all = rest.is_none() && whole.len() == 0;
        assert!(all, "buffers of a read of {len} bytes belong to no unit");
        drop(whole);
        shard.requests.keep(bufs);
        completion
    }

    /// Submits writes and all other requests with a range.
    fn submit_ranges(&self, op: Op) -> Completion<Done> {
        let shard = &self.shard;
        let len = op.work.len();
        // A block status reply may cover less than the request: one unit is enough.
        let status = matches!(op.work, Work::Extents { .. });
        let parts = self.parts(op.offset, len).take(if status { 1 } else { usize::MAX });
        let units = parts.clone().count() as u32;
        let (offset, fua, class) = (op.offset, op.fua, op.class);
        let (request, completion) = shard.requests.begin(offset, op.work, units);
        for (part, (at, len)) in parts.enumerate() {
            let from = Origin { shard: shard.engine.index, request, part: part as u32 };
            let action = shard.requests.action(request, offset, (at, len), || shard.list());
            let merged = Vec::new();
            let unit = Unit { offset: at, len, action, fua, class, from, merged };
            shard.dispatch(shard.owner(at), unit);
        }
        completion
    }

    /// Cuts a range at unit and region borders.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> + Clone {
        let step = self.shard.engine.unit_border();
        let region = self.shard.engine.setup.geometry.region_bytes();
        let (mut at, end) = (offset, offset + len);
        let capacity = self.shard.engine.setup.geometry.capacity();
        assert!(end <= capacity, "{len} bytes at {offset} passed the check of an array's limits");
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let border = ((at / step + 1) * step).min((at / region + 1) * region).min(end);
            let part = (at, border - at);
            at = border;
            Some(part)
        })
    }
}

impl Disk for Front {
    fn submit(&self, op: Op) -> Completion<Done> {
        self.submit_op(op)
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Engine {
    /// Units are cut and merged at multiples of this array offset: between stripes, unless a stripe
    /// is far larger than a unit. Cut inside stripes, a stream is written at the rate of small
    /// writes: reads first, and two flushes of the log.
    pub(crate) fn unit_border(&self) -> u64 {
        let stripe = self.setup.geometry.stripe_bytes();
        let unit = self.setup.bounds.unit_bytes;
        if stripe > LARGE_STRIPE * unit { unit } else { self.job_border() }
    }

    /// Units of background work are cut at multiples of this array offset: whole stripes.
    pub(crate) fn job_border(&self) -> u64 {
        let stripe = self.setup.geometry.stripe_bytes();
        let unit = self.setup.bounds.unit_bytes;
        if stripe > unit { stripe } else { unit / stripe * stripe }
    }

    /// The rows that an array range touches.
    pub(crate) fn rows_of(&self, offset: u64, len: u64) -> Rows {
        let geometry = &self.setup.geometry;
        assert!(len > 0, "a lock of no bytes at {offset} keeps nothing out");
        if geometry.family() != Family::Parity {
            return Rows { first: 0, last: 0, start: offset, end: offset + len };
        }
        let (first, index, start) = geometry.stripe_of(offset);
        let (last, last_index, end) = geometry.stripe_of(offset + len - 1);
        let (first, last) = (first.0, last.0);
        if broken(Broken::RowsUnlocked) && first == last {
            return Rows { first, last, start: offset, end: offset + len };
        }
        if first == last && index == last_index {
            Rows { first, last, start, end: end + 1 }
        } else {
            Rows { first, last, start: 0, end: geometry.chunk_bytes() }
        }
    }

    /// The array offset where a stripe begins.
    pub(crate) fn stripe_offset(&self, stripe: Stripe) -> u64 {
        stripe.0 * self.setup.geometry.stripe_bytes()
    }
}

impl Shard {
    /// Claims the rows of units that change bytes or read whole rows. Plain reads take no lock.
    pub(super) fn claim_for(&self, unit: &Unit) -> Option<Claim> {
        match unit.action {
            Action::Read(_) | Action::ReadAhead(_) | Action::Extents(_) | Action::Flush { .. } => {
                None
            }
            Action::RangeJob(_) if broken(Broken::RebuildUnlocked) => None,
            _ => {
                let (offset, len) = self.engine.widened((unit.offset, unit.len));
                Some(self.engine.locks.claim(self.engine.rows_of(offset, len)))
            }
        }
    }

    /// The bits of the write-intent bitmap that cover an array range.
    pub(super) fn bits_of(&self, offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
        let (geometry, mark) = (&self.engine.setup.geometry, self.engine.setup.bitmap_bytes);
        let sync = layout::sync::sync_range(geometry, offset..offset + len);
        sync.start / mark..=(sync.end - 1) / mark
    }
}
