//! One shard's side of the write-intent bitmap: the regions that it may write to.
//!
//! Before the first write to a region, its bit must be durable on the members. The keeper does that
//! ([`Intent`]). A shard keeps its grants, so only the first write to a region costs a message. It
//! releases a region once no write has come for a while and everything is flushed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Completion, Time};
use metadata::{Error, ErrorKind, Result};

/// Makes bits durable: the keeper with md's bitmap, or a cluster's coordinator.
pub trait Intent {
    /// Sets the bits of these regions. Completes with true once they are durable; after false, the
    /// regions must not be written.
    fn acquire(&self, regions: RangeInclusive<u64>) -> Completion<bool>;

    /// The holder has flushed all its writes to these regions and has stopped writing there.
    fn release(&self, regions: Vec<u64>);

    /// The holder has no write in flight in any region.
    fn quiet(&self);
}

/// The bits that a shard holds.
pub(crate) struct HeldRegions {
    intent: Rc<dyn Intent>,
    held: RefCell<BTreeMap<u64, Region>>,
    /// The keeper counts this shard as writing.
    awake: Cell<bool>,
    writers: Cell<usize>,
    last_write: Cell<Time>,
}

#[derive(Default)]
struct Region {
    granted: bool,
    writers: u32,
    last_write: Time,
}

impl HeldRegions {
    pub(crate) fn new(intent: Rc<dyn Intent>) -> HeldRegions {
        HeldRegions {
            intent,
            held: RefCell::default(),
            awake: Cell::new(false),
            writers: Cell::new(0),
            last_write: Cell::new(Time(0)),
        }
    }

    /// Completes when these regions may be written. Each success needs one [`HeldRegions::exit`].
    pub(crate) async fn enter(&self, regions: RangeInclusive<u64>) -> Result<()> {
        self.writers.set(self.writers.get() + 1);
        let mut granted = self.awake.get();
        for region in regions.clone() {
            let mut held = self.held.borrow_mut();
            let mark = held.entry(region).or_default();
            mark.writers += 1;
            granted &= mark.granted;
        }
        if granted {
            return Ok(());
        }
        let acquired = self.intent.acquire(regions.clone());
        if !broken(Broken::BitAfterData) && !acquired.await {
            self.exit(regions, Time(0));
            return Err(Error::new(ErrorKind::ReadOnly, "the write intent could not be recorded"));
        }
        self.awake.set(true);
        for region in regions {
            self.held.borrow_mut().entry(region).or_default().granted = true;
        }
        Ok(())
    }

    /// A write to these regions has ended.
    pub(crate) fn exit(&self, regions: RangeInclusive<u64>, now: Time) {
        assert!(self.writers.get() > 0, "a write ends that did not begin: bits would be cleared");
        self.writers.set(self.writers.get() - 1);
        self.last_write.set(now);
        let mut held = self.held.borrow_mut();
        for region in regions {
            let mark = held.get_mut(&region).expect("held since enter");
            assert!(mark.writers > 0, "the bit of region {region} would be cleared under a write");
            mark.writers -= 1;
            mark.last_write = now;
        }
    }

    /// Regions without writes since `linger` before `now`.
    pub(crate) fn idle(&self, now: Time, linger: Duration) -> Vec<u64> {
        let held = self.held.borrow();
        let idle = |mark: &Region| mark.writers == 0 && now - mark.last_write >= linger;
        held.iter().filter(|(_, mark)| idle(mark)).map(|(&region, _)| region).collect()
    }

    /// Releases those of `regions` that were not written after `since`. A flush of all members that
    /// began at `since` must have completed.
    pub(crate) fn release(&self, mut regions: Vec<u64>, since: Time) {
        let mut held = self.held.borrow_mut();
        regions.retain(|region| {
            held.get(region).is_some_and(|mark| mark.writers == 0 && mark.last_write <= since)
        });
        for region in &regions {
            held.remove(region);
        }
        drop(held);
        if !regions.is_empty() {
            self.intent.release(regions);
        }
    }

    /// True if no write came for `delay` and the keeper still counts this shard as writing.
    pub(crate) fn may_resolve(&self, now: Time, delay: Duration) -> bool {
        let rests = self.writers.get() == 0 || broken(Broken::CleanWhileWriting);
        self.awake.get() && rests && now - self.last_write.get() >= delay
    }

    /// Reports to the keeper that the shard is quiet, if no write came for `delay`.
    pub(crate) fn report_quiet(&self, now: Time, delay: Duration) {
        if self.may_resolve(now, delay) {
            self.awake.set(false);
            self.intent.quiet();
        }
    }

    /// True if there is something to report or release later.
    pub(crate) fn is_busy(&self) -> bool {
        self.awake.get() || !self.held.borrow().is_empty()
    }
}
