//! What all units of a shard share: members as they are seen, memory, locks, log, checksums.
//!
//! Knows nothing of queues, workers or requests: those are the shard's.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use io::{Budget, Class, Clock, Completions, Pool};
use layout::{Geometry, RangeSet};
use metadata::Bounds;
use parity::Kernel;

use crate::member::batch::{Batch, IoOptions};
use crate::member::deadline::Watch;
use crate::member::orphans::Late;
use crate::member::read_balance::Balancer;
use crate::member::view::View;
use crate::rows::barrier::Barrier;
use crate::rows::checksum::ChecksumTable;
use crate::rows::flush::{CacheMode, Flushes};
use crate::rows::hedge::Hedges;
use crate::rows::intent::Log;
use crate::rows::locks::Locks;
use crate::shard::mail::Post;
use crate::shard::queue::Load;

/// What a shard is told when it starts, and keeps.
pub(crate) struct Setup {
    pub(crate) name: String,
    pub(crate) geometry: Rc<Geometry>,
    pub(crate) bounds: Bounds,
    pub(crate) kernel: Kernel,
    pub(crate) clock: Rc<dyn Clock>,
    /// Bytes of sync space per mark of the write-intent bitmap.
    pub(crate) bitmap_bytes: u64,
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
    pub(crate) unverified: bool,
    /// Nothing may be read or written before the first configuration comes.
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
    /// Who waits for the keeper to put on record what it was told.
    pub(crate) records: Completions<()>,
    pub(crate) post: Rc<Post>,
    pub(crate) view: RefCell<Rc<View>>,
    /// Array ranges of this shard whose parity or copies may disagree.
    pub(crate) unsynced: RefCell<RangeSet>,
    /// Array ranges that are lost, though no member's block is bad: errors until they are written.
    pub(crate) bad: RefCell<RangeSet>,
    /// Member offsets of rows that were written whole since a crash, though not synced.
    pub(crate) resolved: RefCell<RangeSet>,
    pub(crate) stopping: Cell<bool>,
    pub(crate) loads: Arc<[Load]>,
}

impl Engine {
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
