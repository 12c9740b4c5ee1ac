//! Watches the events of a served array, and the files of its members.
//!
//! Records why members were lost, and checks whether their files still exist:
//!
//! ```text
//!   truncated  bytes are lost                       failed at once
//!   deleted    nothing is lost while it is open:    kept and reported; a spare takes over while it
//!              the last chance to save the bytes    serves; failed when the server stops, so that
//!                                                   the next start does not miss it
//! ```
//!
//! Never decides whether the array can lose a member: the engine refuses to lose data.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use array::status::{Event, EventKind, MemberStatus, SlotState};
use io::{Clock, Time};
use jiff::Timestamp;
use layout::{MemberId, Mode};

use super::job_rate::Seen;
use super::served::Known;
use super::{Served, first};
use crate::api::{JobKind, Severity, State};

/// Interval of the checks for deleted files.
const LOOK: Duration = Duration::from_secs(2);

/// Percent of a job between two events of its progress, as in mdadm.
const STEP: u64 = 20;

/// The problem and its consequence, in one sentence.
pub(super) const DELETED: &str =
    "its file was deleted; it works until the server stops, then its bytes are lost";

/// What the server records of an array's members, in addition to the engine.
#[derive(Default)]
pub(super) struct Watched {
    /// Number of events processed.
    seen: u64,
    /// Why members were lost, by name.
    losses: BTreeMap<String, Loss>,
    /// The last slot of each member.
    slots: BTreeMap<MemberId, usize>,
    /// Error counts at the last `parapet clear`: read, write, checksum.
    cleared: BTreeMap<MemberId, [u64; 3]>,
    /// End times of the last scrubs whose findings were logged: of the array, and of a part.
    pub(super) scrubs: [Option<u64>; 2],
    /// The job in progress, and the last step of it that was logged.
    pub(super) steps: Steps,
    /// The last logged state of the array, and the number of members that it could still lose.
    pub(super) state: Option<(State, usize)>,
    /// Members already reported.
    reported: BTreeSet<MemberId>,
}

/// The loss of a member.
#[derive(Clone)]
pub(super) struct Loss {
    /// The cause, in words.
    pub(super) why: String,
    /// The time of the loss.
    pub(super) at: Timestamp,
    /// Its slot at that time.
    pub(super) slot: Option<usize>,
}

/// The job in progress, and the last of its steps that was logged, in percent.
#[derive(Default)]
pub(super) struct Steps {
    job: Option<JobKind>,
    last: u64,
}

impl Steps {
    /// Takes kind and percentage of the job; returns the step of 20, 40, 60 or 80 % that is new.
    /// Of several steps between two looks, only the last counts, as in mdadm.
    fn take(&mut self, kind: JobKind, percent: u64) -> Option<u64> {
        if self.job.replace(kind) != Some(kind) || percent < self.last {
            self.last = 0;
        }
        let step = percent / STEP * STEP;
        let is_new = self.last < step && step < 100;
        self.last = self.last.max(step);
        is_new.then_some(step)
    }
}

impl Loss {
    fn of(event: Event) -> Loss {
        let at = i64::try_from(event.unix_micros / 1_000_000).ok();
        let at = at.and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default();
        Loss { why: event.text, at, slot: event.slot.map(|slot| slot.index()) }
    }
}

/// Returns the read, write and checksum errors of a member since the start.
fn errors(status: &MemberStatus) -> [u64; 3] {
    let writes = status.write_errors + status.timeouts;
    [status.read_errors, writes, status.checksum_errors]
}

impl Served {
    /// Processes new events: records which members were lost, and why.
    pub(super) fn apply_events(&self) {
        let (log, mut watched) = (self.array.log(), self.watched.borrow_mut());
        let events = log.since(watched.seen);
        watched.seen = log.count();
        for slot in &self.array.status().slots {
            for member in slot.member.iter() {
                watched.slots.insert(member.id, slot.slot.index());
            }
        }
        for event in events {
            let Some(member) = event.member.clone() else { continue };
            match event.kind {
                EventKind::Fail | EventKind::TakenOut => {
                    self.error_places.forget(&member);
                    drop(watched.losses.insert(member, Loss::of(event)));
                }
                EventKind::SpareAdded | EventKind::Readded => drop(watched.losses.remove(&member)),
                _ => {}
            }
        }
    }

    /// Returns the loss of a member without a slot, if it happened while the array was served.
    pub(super) fn loss_of(&self, known: &Known) -> Option<Loss> {
        self.apply_events();
        self.watched.borrow().losses.get(&known.path.display().to_string()).cloned()
    }

    /// Returns the last slot of a member.
    pub(super) fn last_slot(&self, id: MemberId) -> Option<usize> {
        self.watched.borrow().slots.get(&id).copied()
    }

    /// Returns the read, write and checksum errors of a member since they were last cleared.
    pub(super) fn errors_since_clear(&self, status: &MemberStatus) -> [u64; 3] {
        let (mut now, watched) = (errors(status), self.watched.borrow());
        // The counters of a re-added member start at zero.
        let before = watched.cleared.get(&status.id).copied().unwrap_or_default();
        now.iter_mut().zip(before).for_each(|(now, before)| *now = now.saturating_sub(before));
        now
    }

    /// Resets the error counters of this member, or of all.
    pub(super) fn clear_errors(&self, only: Option<MemberId>) {
        let mut watched = self.watched.borrow_mut();
        for (id, _) in self.all_known() {
            let Some(status) = self.array.member(id) else { continue };
            if only.is_none_or(|only| only == id) {
                watched.cleared.insert(id, errors(&status));
            }
        }
    }

    /// Resets the counters when a member starts anew under this number.
    pub(super) fn forget_errors(&self, id: MemberId) {
        self.watched.borrow_mut().cleared.remove(&id);
    }

    /// Watches for members whose files are truncated or deleted.
    pub(super) async fn watch_members(self: Rc<Self>, clock: &dyn Clock) {
        loop {
            let pause = clock.sleep_until(clock.now() + LOOK);
            if first(pause, self.until_stopped()).await.is_none() {
                return;
            }
            self.sample_job_rate(clock.now());
            self.note_scrub_position(clock.now());
            self.log_state();
            self.log_steps();
            let faulty = self.faulty();
            for (id, member) in self.all_known() {
                let Some(file) = member.file.as_ref().filter(|_| !faulty.contains(&id)) else {
                    continue;
                };
                file.look();
                if file.is_gone() {
                    self.fail_cut(id, &member).await;
                } else if file.is_deleted() {
                    self.save_deleted(id, &member).await;
                }
            }
        }
    }

    /// Samples the progress of the background job.
    pub(super) fn sample_job_rate(&self, now: Time) {
        self.job_rate.see(now, self.array.status().job.as_ref().map(Seen::of));
    }

    /// Logs the progress of a job in steps, in mdadm's words: `Rebuild20` to `Rebuild80`.
    fn log_steps(&self) {
        let status = self.array.status();
        let job = status.job.as_ref().filter(|job| !job.is_part);
        let Some(job) = job.map(|job| self.job(job)) else {
            return self.watched.borrow_mut().steps = Steps::default();
        };
        let step = self.watched.borrow_mut().steps.take(job.kind, job.percent as u64);
        let Some(step) = step else { return };
        let message = format!("{}: {step} % done", job.kind.word());
        tracing::info!("{}: {message}", self.name());
        self.history.note((&format!("Rebuild{step}"), Severity::Info), None, &message);
    }

    /// Returns true the first time it is called for a member.
    fn is_first_report(&self, id: MemberId) -> bool {
        self.watched.borrow_mut().reported.insert(id)
    }

    /// Fails a member whose file was truncated, before the array relies on the lost bytes.
    async fn fail_cut(&self, id: MemberId, member: &Known) {
        let (array, path) = (self.name(), member.path.display().to_string());
        let news = self.is_first_report(id);
        if news {
            tracing::error!("{array}: {path}: cut while in use, or unplugged: failed");
        }
        // A read-only array cannot update superblocks; reads of the missing bytes return errors.
        if self.array.status().mode == Mode::ReadOnly {
            return;
        }
        // An unplugged disk keeps its bytes; a truncated file has lost some permanently.
        let lost = match member.is_file() {
            true => self.array.lose_truncated(id).await,
            false => self.array.lose(id).await,
        };
        if let Err(error) = lost
            && news
        {
            tracing::error!("{array}: {path}: kept all the same: {error}");
        }
    }

    /// Replaces a deleted file with a spare while its bytes are still readable.
    async fn save_deleted(&self, id: MemberId, member: &Known) {
        let (array, path) = (self.name(), member.path.display().to_string());
        if self.is_first_report(id) {
            tracing::error!("{array}: {path}: {DELETED}: parapet replace it now");
        }
        let status = self.array.status();
        let mut slots = status.slots.iter();
        let slot = slots.find(|slot| slot.member.as_ref().is_some_and(|member| member.id == id));
        let Some(slot) = slot.filter(|slot| slot.state == SlotState::InSync) else { return };
        let sound = |id: MemberId| self.known(id).is_some_and(|known| !known.is_deleted());
        let Some(spare) = status.spares.iter().find(|spare| sound(spare.id)) else { return };
        // The array may be rebuilding another slot; the next round tries again.
        if let Err(refusal) = self.array.replace(slot.slot, spare.id).await {
            tracing::debug!("{array}: {path}: not replaced yet: {refusal}");
        }
    }

    /// Fails members with deleted files before they are closed, where redundancy permits. The
    /// superblocks record it, so the next start does without them and needs no flag.
    pub(super) async fn fail_deleted(&self) {
        if self.array.status().mode != Mode::ReadWrite {
            return;
        }
        let faulty = self.faulty();
        for (id, member) in self.all_known() {
            if faulty.contains(&id) || !member.is_deleted() {
                continue;
            }
            let (array, path) = (self.name(), member.path.display().to_string());
            match self.array.lose(id).await {
                Ok(()) => tracing::warn!("{array}: {path}: deleted: taken out at the end"),
                Err(error) => tracing::error!("{array}: {path}: deleted, and needed: {error}"),
            }
        }
    }
}

impl Known {
    /// Returns true if its file has no name any more.
    pub(super) fn is_deleted(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_deleted())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_job_is_new_once() {
        let mut steps = Steps::default();
        let mut take = |percents: &[u64]| {
            let step = |&percent: &u64| steps.take(JobKind::Rebuild, percent);
            percents.iter().map(step).collect::<Vec<_>>()
        };
        assert_eq!(take(&[0, 19, 20, 39, 40]), [None, None, Some(20), None, Some(40)]);
        assert_eq!(take(&[85, 99, 100]), [Some(80), None, None]);
        assert_eq!(take(&[20, 21]), [Some(20), None], "another rebuild");
        assert_eq!(steps.take(JobKind::Check, 62), Some(60), "it goes on where it stopped");
    }
}
