//! The state of an array at one moment: the parts of a [`Status`](crate::Status).

use std::time::Duration;

use io::broken::{Broken, broken};
use layout::{Configuration, Family, MemberId, Slot, SlotAssignment, SlotSet};
use metadata::{Error, Result};

use crate::array::Inner;
use crate::status::{JobStatus, JournalStatus, MemberStatus, SlotState, SlotStatus};

/// Polling interval for a disk's late answers.
const NAP: Duration = Duration::from_millis(10);

impl Inner {
    /// Waits until a former member has answered all its writes: a late one would overwrite newer
    /// data.
    ///
    /// # Errors
    /// Refused if it does not answer within the deadline.
    pub(super) async fn drained(&self, name: &str, id: Option<MemberId>) -> Result<()> {
        let until = self.clock.now() + self.blueprint.bounds.deadline;
        while self.keeper.late_writes(name, id) > 0 && !broken(Broken::LateWritesLand) {
            if self.clock.now() >= until {
                let what = format!(
                    "{name} has not answered what was written to it before it was lost, and that \
                     may still land; disconnect it, or stop the array and assemble it again"
                );
                return Err(Error::refused(what));
            }
            self.clock.sleep_until(self.clock.now() + NAP).await;
        }
        Ok(())
    }

    /// The number of arbitrary members that may still be lost. Parity that may be wrong somewhere
    /// does not count, because a lost member's data there would be lost with it. Copies do count:
    /// acknowledged writes are on all of them, synced or not.
    pub(super) fn redundancy_left(&self, in_sync: SlotSet) -> usize {
        let geometry = &self.geometry;
        let lost = geometry.all_slots().difference(in_sync);
        if !geometry.survives(lost) || !self.keeper.has_parity() {
            return 0;
        }
        match geometry.family() {
            Family::Plain => 0,
            Family::Parity => geometry.redundancy() - lost.count(),
            Family::Mirror => {
                let any = |slot| geometry.survives(lost.with(slot));
                let one = in_sync.iter().all(any);
                let left = geometry.redundancy().saturating_sub(lost.count());
                left.max(usize::from(one))
            }
        }
    }

    /// True if these slots hold any data twice.
    pub(super) fn can_compare(&self, in_sync: SlotSet) -> bool {
        let geometry = &self.geometry;
        let lost = geometry.all_slots().difference(in_sync);
        match geometry.family() {
            Family::Plain => false,
            Family::Parity => lost.count() < geometry.redundancy(),
            Family::Mirror => {
                // The pattern of copies repeats after as many chunks as there are slots.
                let chunk = geometry.chunk_bytes().max(1);
                let here = |index: u64| {
                    let copies = geometry.places((index * chunk).min(geometry.capacity() - 1));
                    copies.copies().filter(|place| in_sync.contains(place.slot)).count()
                };
                (0..geometry.slots() as u64).any(|index| here(index) > 1)
            }
        }
    }

    pub(super) fn slot_status(&self, slot: Slot, assignment: &SlotAssignment) -> SlotStatus {
        let state = match (assignment.member, assignment.recovered, assignment.replacement) {
            (None, ..) => SlotState::Missing,
            (_, Some(below), _) => SlotState::Rebuilding { below },
            (_, None, Some((_, below))) => SlotState::Replacing { below },
            (_, None, None) => SlotState::InSync,
        };
        SlotStatus {
            slot,
            state,
            member: assignment.member.map(|id| self.member_status(id)),
            replacement: assignment.replacement.map(|(id, _)| self.member_status(id)),
        }
    }

    pub(super) fn member_status(&self, id: MemberId) -> MemberStatus {
        let name = self.keeper.name_of(id);
        let mut status = MemberStatus {
            id,
            name,
            read_bytes: 0,
            written_bytes: 0,
            read_errors: 0,
            write_errors: 0,
            timeouts: 0,
            checksum_errors: 0,
            repaired_bytes: 0,
            slow: false,
            reads: None,
            writes: None,
            durations: Default::default(),
            bad_bytes: self.keeper.metadata.bad_bytes(id),
        };
        for counters in self.keeper.known(id).iter().flat_map(|known| known.counters.iter()) {
            status.read_bytes += counters.read_bytes.get();
            status.written_bytes += counters.written_bytes.get();
            status.read_errors += counters.read_errors.get();
            status.write_errors += counters.write_errors.get();
            status.timeouts += counters.timeouts.get();
            status.checksum_errors += counters.checksum_errors.get();
            status.repaired_bytes += counters.repaired_bytes.get();
            status.slow |= counters.slow.get() > 0;
            let [reads, writes] = counters.latency();
            status.reads = status.reads.max(reads);
            status.writes = status.writes.max(writes);
            for (sum, counts) in status.durations.iter_mut().zip(&counters.durations) {
                counts.collect(sum);
            }
        }
        status
    }

    pub(super) fn journal_status(&self, now: &Configuration) -> Option<JournalStatus> {
        let metadata = &self.keeper.metadata;
        let note = metadata.journal_note(now)?;
        let device = metadata.journal().filter(|journal| journal.uuid == note.uuid);
        Some(JournalStatus {
            uuid: note.uuid.0,
            name: device.map_or_else(|| note.name.to_string(), |journal| journal.name.clone()),
            used: note.used,
            member: device.map(|_| self.member_status(MemberId::JOURNAL)),
        })
    }

    pub(super) fn job_status(&self) -> Option<JobStatus> {
        let job = self.keeper.jobs.job.borrow();
        let job = job.as_ref()?;
        let now = self.clock.now();
        let rate = |pick: fn(&(io::Time, u64, u64)) -> u64| {
            let (first, last) = (job.recent.front()?, job.recent.back()?);
            let span = (last.0 - first.0).as_secs_f64();
            (span > 0.05).then(|| ((pick(last) - pick(first)) as f64 / span) as u64)
        };
        let array_rate = rate(|&(_, done, _)| done);
        let left = job.total.saturating_sub(job.done);
        let seconds = array_rate.filter(|&rate| rate > 0).map(|rate| left as f64 / rate as f64);
        Some(JobStatus {
            kind: job.kind,
            is_part: job.part.is_some(),
            total_bytes: job.total,
            done_bytes: job.done,
            elapsed: now - job.started,
            array_rate,
            member_rate: rate(|&(_, _, bytes)| bytes),
            remaining: seconds.map(Duration::from_secs_f64),
            throttled: job.throttled > (now - job.started) / 10,
            mismatches: job.report.mismatches,
            lost_bytes: job.report.lost_bytes,
        })
    }
}
