//! Background work as units: what rebuild, resync and scrub do to one range of the array.
//!
//! The keeper's jobs cut the array into ranges and send them to the shards as units like any other;
//! here is what a range asks for and what it reports.

use layout::{Family, Slot, SlotSet};

use crate::batch::Manner;
use crate::error::Result;
use crate::shard::{Scratch, Shard};

/// One range of background work, and what came of it.
#[derive(Clone, Debug)]
pub(crate) struct Upkeep {
    pub(crate) task: Task,
    pub(crate) report: Report,
}

/// What to do to a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    /// Write what these slots should hold.
    Rebuild(SlotSet),
    /// Copy this slot to its twin.
    Copy(Slot),
    /// Make parity and copies agree with the data.
    Resync,
    /// Compare, change nothing.
    Check,
    /// Compare, and repair what can be repaired.
    Repair,
}

/// What a range of background work found.
#[derive(Clone, Default, Debug)]
pub struct Report {
    /// Bytes read from and written to all members.
    pub bytes: u64,
    /// Places where members contradict each other.
    pub findings: Vec<Finding>,
    /// Bytes of members that were changed to agree.
    pub repaired_bytes: u64,
    /// Array ranges that could not be recovered, as (offset, bytes).
    pub lost: Vec<(u64, u64)>,
}

/// A place where members contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finding {
    /// First array byte of the stripe or block concerned.
    pub array_offset: u64,
    /// Offset from the start of the members' data.
    pub member_offset: u64,
    /// How many bytes of a member.
    pub len: u64,
    /// The member that is wrong, where it can be told.
    pub culprit: Option<Slot>,
}

impl Report {
    /// Adds what another range found.
    pub(crate) fn absorb(&mut self, other: Report, findings_max: usize) {
        self.bytes += other.bytes;
        self.repaired_bytes += other.repaired_bytes;
        let room = findings_max.saturating_sub(self.findings.len());
        self.findings.extend(other.findings.into_iter().take(room));
        let room = findings_max.saturating_sub(self.lost.len());
        self.lost.extend(other.lost.into_iter().take(room));
    }
}

mod copies;
mod rows;

impl Shard {
    /// Does one range of background work.
    pub(crate) async fn upkeep(
        &self,
        work: &mut Scratch,
        manner: Manner,
        range: (u64, u64),
        upkeep: &mut Upkeep,
    ) -> Result<()> {
        let (task, report) = (upkeep.task, &mut upkeep.report);
        match self.setup.geometry.family() {
            Family::Plain | Family::Mirror => {
                self.upkeep_copies(work, manner, range, task, report).await
            }
            Family::Parity => self.upkeep_rows(work, manner, range, task, report).await,
        }?;
        // A repair of a degraded array compares nothing.
        let whole = self.view().in_sync == self.setup.geometry.all_slots();
        if whole && matches!(task, Task::Resync | Task::Repair) {
            self.unsynced.borrow_mut().remove(range.0..range.0 + range.1);
        }
        Ok(())
    }
}
