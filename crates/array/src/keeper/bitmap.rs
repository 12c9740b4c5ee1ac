//! The dirty mark of the superblocks and the bits of the write-intent bitmap.

use std::ops::RangeInclusive;

use io::Ticket;
use io::broken::{Broken, broken};
use layout::Mode;
use layout::sync::array_range;

use crate::keeper::Keeper;
use crate::shard::message::ToShard;

/// A shard that waits for bits.
struct Mark {
    shard: usize,
    ticket: u64,
    regions: RangeInclusive<u64>,
}

/// A shard's request about bits.
pub(crate) enum Asked {
    Mark {
        shard: usize,
        ticket: u64,
        regions: RangeInclusive<u64>,
    },
    Unmark {
        shard: usize,
        regions: Vec<u64>,
    },
    /// This shard has no write in flight; `None`: check all shards.
    Quiet {
        shard: Option<usize>,
    },
    Record {
        shard: usize,
        ticket: u64,
    },
}

impl Keeper {
    /// Handles the shards' requests about bits, in order. A task of its own beside membership
    /// changes: shards wait for bits outside the barrier.
    ///
    /// Marks that wait share the next write of the bitmap (group commit): a durable write of a page
    /// takes a hard disk tens of milliseconds, and random writes over a large array are mostly
    /// first writes to their regions.
    pub(super) async fn run_bits(&self) {
        let mut marks = Vec::new();
        loop {
            let asked = self.inbox.marking.borrow_mut().pop_front();
            match asked {
                Some(Asked::Mark { shard, ticket, regions }) => {
                    self.hold(shard, regions.clone());
                    marks.push(Mark { shard, ticket, regions });
                }
                Some(Asked::Unmark { shard, regions }) => self.unmark(shard, regions),
                Some(Asked::Record { shard, ticket }) => {
                    self.mark_all(std::mem::take(&mut marks)).await;
                    // After a failure the array refuses writes with its own error.
                    let _ = self.record().await;
                    self.home.engine.post.to_shard(shard, ToShard::Recorded { ticket });
                }
                Some(Asked::Quiet { shard }) => {
                    self.mark_all(std::mem::take(&mut marks)).await;
                    self.quiet(shard).await;
                }
                None if marks.is_empty() => self.changed.wait().await,
                None => self.mark_all(std::mem::take(&mut marks)).await,
            }
        }
    }

    /// Counts a shard as a holder of regions. Before their bits are set: a concurrent clearing must
    /// see that they are needed. A refused shard keeps its bits: too many bits do no harm.
    fn hold(&self, shard: usize, regions: RangeInclusive<u64>) {
        self.regions.awake.borrow_mut().insert(shard);
        let mut holders = self.regions.holders.borrow_mut();
        for region in regions {
            holders.entry(region).or_default().insert(shard);
        }
    }

    async fn mark_all(&self, marks: Vec<Mark>) {
        if marks.is_empty() {
            return;
        }
        let regions: Vec<_> = marks.iter().map(|mark| mark.regions.clone()).collect();
        let granted = self.mark(&regions).await;
        for Mark { shard, ticket, .. } in marks {
            let ticket = Ticket::from_bits(ticket).to_bits();
            self.home.engine.post.to_shard(shard, ToShard::Marked { ticket, granted });
        }
    }

    /// Marks members dirty and sets bits. False if the array accepts no writes.
    async fn mark(&self, regions: &[RangeInclusive<u64>]) -> bool {
        // The first write of a session is recorded before it happens, even if a crash left all
        // members dirty. Absent members must become stale.
        let (clean, unrecorded) =
            (self.record.clean.replace(false), self.record.unrecorded.replace(false));
        let unrecorded = unrecorded && !broken(Broken::FirstWriteUnrecorded);
        let marked = broken(Broken::CheckpointTrusted) && !self.sync.unsynced.borrow().is_empty();
        if (clean || unrecorded) && !marked && self.record().await.is_err() {
            return false;
        }
        if self.metadata.facts().bitmap_bytes.is_some() {
            loop {
                let now = self.configuration();
                if now.mode != Mode::ReadWrite {
                    return false;
                }
                let Err(failed) = self.metadata.set_bits(&now, regions).await else {
                    break;
                };
                self.report(failed);
                self.after(now.epoch).await;
            }
        }
        self.configuration.borrow().mode == Mode::ReadWrite
    }

    fn unmark(&self, shard: usize, regions: Vec<u64>) {
        let mut free = Vec::new();
        {
            let mut holders = self.regions.holders.borrow_mut();
            for region in regions {
                let Some(shards) = holders.get_mut(&region) else { continue };
                shards.remove(&shard);
                if shards.is_empty() {
                    holders.remove(&region);
                    free.push(region);
                }
            }
        }
        // A task of its own, so that requests for bits do not wait for flushes.
        self.regions.clearing.borrow_mut().extend(free);
        self.changed.raise();
    }

    /// Clears the bits of released regions when flushes end.
    pub(super) async fn run_clearing(&self) {
        while !self.is_stopping() {
            let regions = self.regions.clearing.take();
            if regions.is_empty() {
                self.changed.wait().await;
            } else {
                self.clear(regions).await;
            }
        }
    }

    /// Clears the bits of regions without a holder. Not while a member is missing, which will need
    /// them. Not where a range is unsynced, or synced but not durably: the flush for a region may
    /// have begun before a resync wrote there.
    async fn clear(&self, mut regions: Vec<u64>) {
        let Some(mark) = self.metadata.facts().bitmap_bytes else { return };
        // Members that are lost or about to be lost will need the bits.
        while !self.inbox.lost.borrow().is_empty() || self.changing.get() {
            self.changed.wait().await;
        }
        let now = self.configuration();
        let whole = Keeper::not_in_sync(&now).is_empty() || broken(Broken::BitClearedDegraded);
        if now.mode != Mode::ReadWrite || !whole {
            return;
        }
        {
            let (holders, unsynced) = (self.regions.holders.borrow(), self.sync.unsynced.borrow());
            let undurable = self.sync.undurable.borrow();
            regions.retain(|&region| {
                let sync = region * mark..(region + 1) * mark;
                let array = array_range(&self.geometry, sync);
                !holders.contains_key(&region)
                    && !unsynced.overlaps(array.clone())
                    && (!undurable.overlaps(array) || broken(Broken::BitClearedUndurable))
            });
        }
        if !regions.is_empty()
            && let Err(failed) = self.metadata.clear_bits(&now, &regions).await
        {
            self.report(failed);
        }
    }

    /// Clears every bit that may be cleared: after a rebuild or resync, and at the end.
    pub(super) async fn clear_all_bits(&self) {
        let dirty: Vec<u64> = self.metadata.dirty_bits().collect();
        self.clear(dirty).await;
    }

    /// Marks the members clean if no shard has a write in flight.
    async fn quiet(&self, shard: Option<usize>) {
        if let Some(shard) = shard {
            self.regions.awake.borrow_mut().remove(&shard);
        }
        let quiet = self.regions.awake.borrow().is_empty();
        // Pending requests for bits come first: they would make the members dirty again.
        let asked =
            self.inbox.marking.borrow().iter().any(|asked| matches!(asked, Asked::Mark { .. }));
        if quiet && !asked && !self.record.clean.get() {
            self.record.clean.set(true);
            if self.record().await.is_err() {
                self.record.clean.set(false);
            }
        }
    }

    /// Drops the shards' bits at the end, when no request is left.
    pub(crate) fn forget_holders(&self) {
        self.regions.holders.borrow_mut().clear();
        self.regions.awake.borrow_mut().clear();
    }
}
