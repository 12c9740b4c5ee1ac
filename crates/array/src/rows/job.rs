//! Background work as units: rebuild, resync and scrub of one range of the array.
//!
//! The keeper's jobs cut the array into ranges and send them to the shards as units like any other.
//! This module defines the tasks and the reports of a range.

use io::broken::{Broken, broken};
use layout::{Family, Slot, SlotSet};
use metadata::Result;

use crate::member::View;
use crate::rows::engine::{Engine, RowOp};

pub(crate) mod mirror;
pub(crate) mod rebuild;
mod report;
pub(crate) mod scrub;

pub use report::{Finding, Report};
pub(crate) use scrub::row_blocks;

/// The smallest logical block of any disk.
const SECTOR: u64 = 512;

/// One range of background work, and its report.
#[derive(Clone, Debug)]
pub(crate) struct RangeJob {
    pub(crate) task: Task,
    pub(crate) report: Report,
}

/// The task for a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Write the recovered contents of these slots.
    Rebuild(SlotSet),
    /// Copy this slot to its replacement.
    Copy(Slot),
    /// Make parity and copies agree with the data.
    Resync,
    /// Compare, change nothing.
    Check,
    /// Compare, and repair what can be repaired.
    Repair,
    /// Compare, and compute the checksums of unchecksummed ranges.
    Checksum,
}

impl Engine {
    /// The smallest block that every member can write: the unit of comparison between members.
    fn block_bytes(&self, view: &View) -> u64 {
        let blocks = view.members().map(|(_, member)| u64::from(member.limits.logical_block));
        blocks.max().unwrap_or(SECTOR).max(SECTOR)
    }

    /// Checks a range of background work. After the work, all of the range counts as done.
    ///
    /// # Panics
    /// If the range ends beyond the array, or has part of a stripe with parity.
    fn assert_whole_stripes(&self, (offset, len): (u64, u64)) {
        let (geometry, end) = (&self.setup.geometry, offset + len);
        assert!(end <= geometry.capacity(), "background work up to {end}, beyond the array");
        if geometry.family() == Family::Parity {
            let stripe = geometry.stripe_bytes();
            let whole = offset.is_multiple_of(stripe) && len.is_multiple_of(stripe);
            assert!(whole, "{len} bytes at {offset} are not whole stripes of {stripe} bytes");
        }
    }
}

impl RowOp<'_> {
    /// Does one range of background work.
    pub(crate) async fn job(&mut self, range: (u64, u64), job: &mut RangeJob) -> Result<()> {
        let (task, report) = (job.task, &mut job.report);
        self.engine.assert_whole_stripes(range);
        match self.engine.setup.geometry.family() {
            Family::Plain if broken(Broken::ReplaceCopiesNothing) => Ok(()),
            Family::Plain | Family::Mirror => self.job_on_copies(range, task, report).await,
            Family::Parity => self.job_on_rows(range, task, report).await,
        }?;
        // A repair of a degraded array compares nothing. A resync resolves the remaining copies
        // even then.
        let whole = self.engine.view().in_sync == self.engine.setup.geometry.all_slots();
        let alike = task == Task::Resync && self.engine.setup.geometry.family() == Family::Mirror;
        if alike || (whole && matches!(task, Task::Resync | Task::Repair)) {
            self.engine.unsynced.borrow_mut().remove(range.0..range.0 + range.1);
        }
        if let Some(checksums) = &self.engine.checksums {
            let compares = !matches!(task, Task::Rebuild(_) | Task::Copy(_));
            // The checksums must be on the members before a checkpoint covers the range.
            if compares || !broken(Broken::RebuiltUnsummed) {
                self.write_checksums().await?;
            }
            if checksums.repaired.take() {
                // No bitmap bit covers a repair: a crash would silently undo it.
                self.engine.make_durable().await?;
            }
            if compares && (alike || whole) {
                checksums.unchecksummed.borrow_mut().remove(range.0..range.0 + range.1);
            }
        }
        Ok(())
    }
}
