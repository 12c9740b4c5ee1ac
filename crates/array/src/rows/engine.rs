//! What all units of a shard share: members as they are seen, memory, locks, log, checksums.
//!
//! Knows nothing of queues, workers or requests: those are the shard's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use io::{Budget, Class, Completions, Pool};
use layout::RangeSet;

use crate::checksum::Sums;
use crate::member::batch::{Batch, IoOptions};
use crate::member::deadline::Watch;
use crate::member::orphans::Late;
use crate::member::read_balance::Balancer;
use crate::member::view::View;
use crate::rows::hedge::Hedges;
use crate::rows::intent::Log;
use crate::shard::Setup;
use crate::shard::barrier::Barrier;
use crate::shard::flush::Flushes;
use crate::shard::locks::Locks;
use crate::shard::mail::Post;
use crate::shard::queue::Load;
use crate::shard::submit::Blueprint;

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
    pub(crate) sums: Option<Sums>,
    /// Who waits for the keeper to put on record what it was told.
    pub(crate) records: Completions<()>,
    pub(crate) post: Rc<Post>,
    pub(crate) view: RefCell<Rc<View>>,
    /// Array ranges of this shard whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Array ranges that are lost, though no member's block is bad: errors until they are written.
    pub(crate) bad: RefCell<RangeSet>,
    /// Member offsets of rows that were written whole since a crash, though not synced.
    pub(crate) settled: RefCell<RangeSet>,
    pub(crate) stopping: Cell<bool>,
    loads: Arc<[Load]>,
}

impl Engine {
    pub(crate) fn new(blueprint: &Blueprint, setup: Setup, post: Rc<Post>, view: View) -> Engine {
        let bounds = setup.bounds;
        Engine {
            index: post.address(),
            pool: Pool::new(bounds.keep_bytes),
            scratch: Budget::new(bounds.scratch_bytes),
            setup,
            locks: Rc::default(),
            gate: Barrier::default(),
            watch: Watch::default(),
            hedges: Hedges::new(bounds.hedges),
            late: Late::default(),
            balancer: Balancer::default(),
            flushes: Flushes::default(),
            log: blueprint.log.map(|setup| Log::new(setup, &blueprint.geometry)),
            sums: blueprint.sums.as_ref().map(|setup| Sums::new(setup, bounds.sums_bytes)),
            records: Completions::new(),
            post,
            view: RefCell::new(Rc::new(view)),
            unsynced: RefCell::new(blueprint.unsynced.clone()),
            bad: RefCell::new(blueprint.bad.clone()),
            settled: RefCell::default(),
            stopping: Cell::new(false),
            loads: Arc::clone(&blueprint.loads),
        }
    }

    /// The counters of this shard.
    pub(crate) fn load(&self) -> &Load {
        &self.loads[self.index]
    }

    /// The options of work in the background.
    pub(crate) fn background(&self) -> IoOptions {
        let deadline = self.setup.bounds.deadline;
        IoOptions { fua: false, class: Class::Background, op_bytes: 0, deadline }
    }

    /// Sends the batch and waits for it.
    pub(crate) async fn run(&self, batch: &mut Batch, opts: IoOptions) {
        batch.run(&*self.setup.clock, &self.watch, opts).await;
        self.take_stock(batch);
    }

    /// The view of now.
    pub(crate) fn view(&self) -> Rc<View> {
        Rc::clone(&self.view.borrow())
    }

    /// True if parity and copies of this array range may disagree.
    pub(crate) fn is_unsynced(&self, offset: u64, len: u64) -> bool {
        let unsynced = self.unsynced.borrow();
        !unsynced.is_empty() && unsynced.overlaps(offset..offset + len)
    }
}
