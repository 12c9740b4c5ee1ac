//! Background work as units: what rebuild, resync and scrub do to one range of the array.
//!
//! The keeper's jobs cut the array into ranges and send them to the shards as units like any other;
//! here is what a range asks for and what it reports.

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

/// No block of a disk is smaller.
const SECTOR: u64 = 512;

/// One range of background work, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct RangeJob {
    pub(crate) task: Task,
    pub(crate) report: Report,
}

/// What to do to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Write what these slots should hold.
    Rebuild(SlotSet),
    /// Copy this slot to its replacement.
    Copy(Slot),
    /// Make parity and copies agree with the data.
    Resync,
    /// Compare, change nothing.
    Check,
    /// Compare, and repair what can be repaired.
    Repair,
    /// Compare, and make the checksums that do not count yet.
    Checksum,
}

impl Engine {
    /// The smallest block that every member can write: what is judged as one when members
    /// contradict each other.
    fn block_bytes(&self, view: &View) -> u64 {
        let blocks = view.members().map(|(_, member)| u64::from(member.limits.logical_block));
        blocks.max().unwrap_or(SECTOR).max(SECTOR)
    }
}

impl RowOp<'_> {
    /// Does one range of background work.
    pub(crate) async fn job(&mut self, range: (u64, u64), job: &mut RangeJob) -> Result<()> {
        let (task, report) = (job.task, &mut job.report);
        match self.engine.setup.geometry.family() {
            Family::Plain if broken(Broken::ReplaceCopiesNothing) => Ok(()),
            Family::Plain | Family::Mirror => self.job_on_copies(range, task, report).await,
            Family::Parity => self.job_on_rows(range, task, report).await,
        }?;
        // A repair of a degraded array compares nothing; a resync makes the copies alike that are
        // there.
        let whole = self.engine.view().in_sync == self.engine.setup.geometry.all_slots();
        let alike = task == Task::Resync && self.engine.setup.geometry.family() == Family::Mirror;
        if alike || (whole && matches!(task, Task::Resync | Task::Repair)) {
            self.engine.unsynced.borrow_mut().remove(range.0..range.0 + range.1);
        }
        if let Some(checksums) = &self.engine.checksums {
            let compares = !matches!(task, Task::Rebuild(_) | Task::Copy(_));
            // With the members before any checkpoint says so.
            if compares || !broken(Broken::RebuiltUnsummed) {
                self.write_checksums().await?;
            }
            if checksums.mended.take() {
                // No bit tells of a repair: nobody would look for one that was lost.
                self.engine.make_durable().await?;
            }
            if compares && (alike || whole) {
                checksums.unchecksummed.borrow_mut().remove(range.0..range.0 + range.1);
            }
        }
        Ok(())
    }
}
