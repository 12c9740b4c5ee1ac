//! The context in which a worker carries out one unit.
//!
//! ```text
//!   worker ─▶ RowOp { engine, work, opts } ── barrier ──▶ RowOp { …, inside } ─▶ steps
//! ```
//!
//! [`Engine`] is the shared state of a shard's units: view, memory, locks, log, checksums. It has
//! no queues, workers or requests: those are the shard's. [`Scratch`] is the memory of one worker.
//! Each step of a read, a write, a scrub or a rebuild is a method of [`RowOp`]. Steps that depend
//! on the epoch take its view as an argument, so that each decision names its epoch. Steps fail as
//! [`RowOp::lose`] does unless they document other errors.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use io::broken::{Broken, broken};
use io::{Budget, Class, Clock, Completions, Pool};
use layout::{Family, Geometry, Place, RangeSet, Slot};
use metadata::{Bounds, Error, ErrorKind, Result};
use parity::Kernel;

use crate::member::batch::{Batch, Failure, IoOptions};
use crate::member::deadlines::Watch;
use crate::member::orphans::Late;
use crate::member::read_balance::Balancer;
use crate::member::{Member, View};
use crate::rows::checksum::{ChecksumTable, Wanted};
use crate::rows::flush::{CacheMode, Flushes};
use crate::rows::hedge::Hedges;
use crate::rows::intent::Log;
use crate::rows::locks::{Barrier, Inside, Locks};
use crate::rows::read::Parts;
use crate::rows::{Outgoing, Piece, RowWork, checksum};
use crate::shard::cache::map;
use crate::shard::message::{Post, ToKeeper};
use crate::shard::requests::Load;

/// The constant settings of a shard.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) bounds: Bounds,
    pub(crate) kernel: Kernel,
    pub(crate) clock: Rc<dyn Clock>,
    /// Bytes of sync space per bit of the write-intent bitmap.
    pub(crate) bitmap_bytes: u64,
    /// The array promises that discarded bytes read as zeros.
    pub(crate) discard_zeroes: bool,
    /// When writes are acknowledged.
    pub(crate) cache: CacheMode,
    /// The array reports a volatile cache: writes may be lost until a flush.
    pub(crate) volatile: bool,
    /// Compare parity on each read.
    pub(crate) check_reads: bool,
    /// Compute parity at all: off only to measure the cost of parity.
    pub(crate) parity: bool,
    /// Unsynced ranges may hold writes torn by a crash, and the administrator has not accepted
    /// them.
    pub(crate) unverified: bool,
    /// The barrier stays closed until the first configuration arrives.
    pub(crate) settling: bool,
}

/// See the module.
pub(crate) struct Engine {
    pub(crate) index: usize,
    pub(crate) setup: Setup,
    pub(crate) pool: Pool,
    pub(crate) scratch: Budget,
    pub(crate) locks: Rc<Locks>,
    pub(crate) gate: Barrier,
    pub(crate) watch: Watch,
    pub(crate) hedges: Hedges,
    pub(crate) late: Late,
    pub(crate) balancer: Balancer,
    pub(crate) flushes: Flushes,
    pub(crate) log: Option<Log>,
    pub(crate) checksums: Option<ChecksumTable>,
    /// Callers that wait until the keeper has recorded their reports.
    pub(crate) records: Completions<()>,
    pub(crate) post: Rc<Post>,
    pub(crate) view: RefCell<Rc<View>>,
    /// Array ranges of this shard whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Lost array ranges, apart from the members' bad blocks: errors until they are written.
    pub(crate) bad: RefCell<RangeSet>,
    /// Member offsets of rows that were written whole since a crash but are not synced.
    pub(crate) resolved: RefCell<RangeSet>,
    /// Member offsets of rows whose last write found no space: nothing is recovered from them.
    pub(crate) unfinished: RefCell<RangeSet>,
    pub(crate) stopping: Cell<bool>,
    pub(crate) loads: Arc<[Load]>,
}

impl Engine {
    /// The counters of this shard.
    pub(crate) fn load(&self) -> &Load {
        &self.loads[self.index]
    }

    /// The options of background work.
    pub(crate) fn background(&self) -> IoOptions {
        let deadline = self.setup.bounds.deadline;
        IoOptions { fua: false, class: Class::Background, op_bytes: 0, deadline }
    }

    /// Sends the batch and waits for it.
    pub(crate) async fn run(&self, batch: &mut Batch, opts: IoOptions) {
        batch.run(&*self.setup.clock, &self.watch, opts).await;
        self.take_stock(batch);
    }

    /// Handles the consequences of a batch's run.
    pub(crate) fn take_stock(&self, batch: &mut Batch) {
        if batch.take_slowed() {
            self.judge_latency();
        }
        if !batch.orphans().is_empty() {
            self.leave_behind(batch);
        }
    }

    /// Hands a batch's orphaned operations to the task that collects them.
    pub(crate) fn leave_behind(&self, batch: &mut Batch) {
        self.late.take(batch.orphans().drain(..));
        // Their deadlines count from now on.
        self.watch.begun.raise();
    }

    /// The current view.
    pub(crate) fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// True if a write was left unfinished in these bytes of the members.
    pub(crate) fn is_unfinished(&self, member_offset: u64, len: u64) -> bool {
        let range = member_offset..member_offset + len;
        self.unfinished.borrow().overlaps(range) && !broken(Broken::UnfinishedRecovered)
    }

    /// True if parity and copies of this array range may disagree.
    pub(crate) fn is_unsynced(&self, offset: u64, len: u64) -> bool {
        let unsynced = self.unsynced.borrow();
        !unsynced.is_empty() && unsynced.overlaps(offset..offset + len)
    }
}

/// A worker's buffers and lists, kept between units so that nothing is allocated again.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) batch: Batch,
    pub(crate) failures: Vec<Failure>,
    pub(crate) rows: Vec<RowWork>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) outgoing: Vec<Outgoing>,
    pub(crate) parts: Parts,
    pub(crate) chosen: Vec<Place>,
    /// Parts of members whose checksums are needed, their pages, and new checksums.
    pub(crate) wanted: Vec<Wanted>,
    pub(crate) pages: Vec<Rc<checksum::Page>>,
    pub(crate) news: Vec<checksum::New>,
    /// The pieces that the cache held of a range when its read began, and room to sort them.
    pub(crate) held: Vec<map::Piece>,
    pub(crate) order: Vec<(u64, u64)>,
    /// A write has taken blocks off a bad-block list, and that is not on record yet.
    pub(crate) cleared_bad: bool,
}

impl Scratch {
    /// Adds a part of a slot, on these members, to the wanted checksums.
    pub(crate) fn add_wanted<'m>(
        &mut self,
        members: impl IntoIterator<Item = &'m Rc<Member>>,
        slot: Slot,
        range: Range<u64>,
    ) {
        let wanted = |member| Wanted { member: Rc::clone(member), slot, range: range.clone() };
        self.wanted.extend(members.into_iter().map(wanted));
    }
}

impl Scratch {
    /// An idle worker must not keep a disk open: the member may have been removed.
    pub(crate) fn release_disks(&mut self) {
        self.failures.clear();
        self.wanted.clear();
        self.pages.clear();
    }
}

/// One unit in progress, or one step of it with other options.
pub(crate) struct RowOp<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) work: &'a mut Scratch,
    pub(crate) opts: IoOptions,
    /// Its presence behind the barrier: `None` before it has entered.
    inside: Option<&'a Inside<'a>>,
}

impl<'a> RowOp<'a> {
    /// A unit that has not entered the barrier.
    pub(crate) fn new(engine: &'a Engine, work: &'a mut Scratch, opts: IoOptions) -> RowOp<'a> {
        RowOp { engine, work, opts, inside: None }
    }

    /// The same unit, inside the barrier.
    pub(crate) fn inside<'b>(&'b mut self, inside: &'b Inside<'b>) -> RowOp<'b> {
        RowOp { engine: self.engine, work: self.work, opts: self.opts, inside: Some(inside) }
    }

    /// The same unit, with other options for its I/O.
    pub(crate) fn with(&mut self, opts: IoOptions) -> RowOp<'_> {
        RowOp { engine: self.engine, work: self.work, opts, inside: self.inside }
    }

    /// The same step with other memory: `work` keeps its contents.
    pub(crate) fn beside<'b>(&self, other: &'b mut Scratch) -> RowOp<'b>
    where
        'a: 'b,
    {
        RowOp { engine: self.engine, work: other, opts: self.opts, inside: self.inside }
    }

    /// The guard of the barrier.
    ///
    /// # Panics
    /// If the unit has not entered.
    pub(crate) fn guard(&self) -> &'a Inside<'a> {
        self.inside.expect("steps that change members run inside the barrier")
    }

    /// Reports members that failed, and parks until the membership has changed.
    ///
    /// # Errors
    /// If the array has no redundancy, or is broken without these members.
    pub(crate) async fn lose(&mut self, view: &View) -> Result<()> {
        let (mut reported, mut fatal) = (Vec::new(), Ok(()));
        for Failure { member, slot, error } in self.work.failures.drain(..) {
            let plain = self.engine.setup.geometry.family() == Family::Plain;
            // A failed replacement must not cost the slot.
            if plain && (!view.is_replacement(slot, member.id) || broken(Broken::FailedCopyKept)) {
                let kind = ErrorKind::DataLost;
                let what = format!("{} failed, and the level has no redundancy", member.name);
                fatal = Err(Error::new(kind, what).in_slot(slot).because(error));
            } else if view.has(member.id) && !reported.contains(&member.id) {
                reported.push(member.id);
                self.engine.post.to_keeper(ToKeeper::Lost { member: member.id, why: error });
            }
        }
        fatal?;
        self.guard().park(|| self.engine.view.borrow().epoch > view.epoch).await;
        Ok(())
    }
}
