//! Background jobs: spares take over automatically, slots are rebuilt or copied, unsynced ranges
//! are resynced, and scrubs run on request. One job at a time, in that order of urgency.
//!
//! A job walks the array from front to back in units like a client's, a few at once. Everything
//! below its *position* is done. The position is recorded periodically, so that a restart continues
//! from there.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use io::broken::{Broken, broken};
use io::{Completion, Time};
use layout::{Configuration, Family, Mode, RangeSet, Slot, SlotSet};

use crate::keeper::Keeper;
use crate::keeper::bitmap::Asked;
use crate::rows::job::{Report, Task};
use crate::shard::message::ToShard;
use crate::status::EventKind;

/// Sleep interval of throttled background work.
const NAP: Duration = Duration::from_millis(100);

/// The kind of background work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Recovering the contents of slots.
    Rebuild(SlotSet),
    /// Copying a slot to the member that will replace it.
    Replace(Slot),
    /// Making parity and copies agree after a crash or at first use.
    Resync,
    /// Comparing.
    Check,
    /// Comparing and repairing.
    Repair,
    /// Computing the checksums of ranges without valid ones.
    Checksum,
}

/// The running job.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) kind: JobKind,
    /// The part that a scrub compares, if it is not to compare all.
    pub(crate) part: Option<Range<u64>>,
    /// Slots that were in sync when it began.
    pub(crate) in_sync: SlotSet,
    /// Array bytes in its ranges, and those done.
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) started: Time,
    /// Recent times with the array bytes done and the member bytes processed until then, for the
    /// rate.
    pub(crate) recent: VecDeque<(Time, u64, u64)>,
    pub(crate) report: Report,
    /// Time for which the speed limit delayed the job.
    pub(crate) throttled: Duration,
}

/// What a scrub compares.
#[derive(Clone, Default, Debug)]
pub(crate) struct ScrubRange {
    /// Bytes of the array.
    pub(crate) range: Range<u64>,
    /// Only this part was asked for.
    pub(crate) is_part: bool,
}

/// The result of the last scrub.
#[derive(Clone, Debug)]
pub struct ScrubResult {
    /// Check or repair.
    pub repair: bool,
    /// When it ended, microseconds since 1970.
    pub unix_micros: u64,
    /// True if it reached the end of the array, or of the part that was asked for.
    pub complete: bool,
    /// The bytes of the array that it compared.
    pub range: Range<u64>,
    /// How long it took.
    pub duration: Duration,
    /// Its findings.
    pub report: Report,
}

/// A part of the walk in flight.
struct InFlight {
    start: u64,
    len: u64,
    answer: Completion<(metadata::Result<()>, Report)>,
}

/// The end of a walk.
#[derive(PartialEq, Eq, Debug)]
enum Walk {
    Finished,
    /// The configuration changed, or the job was stopped.
    Broken,
}

impl Keeper {
    /// Runs the most urgent job, again and again.
    pub(super) async fn run_jobs(self: Rc<Self>) {
        while !self.is_stopping() {
            if self.configuration.borrow().mode != Mode::ReadWrite {
                self.changed.wait().await;
            } else if self.assign_spare().await {
                continue;
            } else if let Some(task) = self.next_task() {
                self.run_job(task).await;
            } else {
                self.changed.wait().await;
            }
        }
    }

    /// The most urgent task.
    fn next_task(&self) -> Option<(JobKind, Task)> {
        let now = self.configuration.borrow();
        let slots = now.slots.iter().enumerate();
        let rebuilding: SlotSet = slots
            .clone()
            .filter(|(_, assignment)| assignment.member.is_some() && assignment.recovered.is_some())
            .map(|(slot, _)| Slot::new(slot))
            .collect();
        if !rebuilding.is_empty() {
            return Some((JobKind::Rebuild(rebuilding), Task::Rebuild(rebuilding)));
        }
        let copying = slots.clone().find(|(_, assignment)| assignment.replacement.is_some());
        if let Some((slot, _)) = copying {
            let slot = Slot::new(slot);
            return Some((JobKind::Replace(slot), Task::Copy(slot)));
        }
        if !self.sync.unsynced.borrow().is_empty() && self.can_resync(&now) {
            return Some((JobKind::Resync, Task::Resync));
        }
        let whole = Keeper::not_in_sync(&now).is_empty();
        if whole
            && self.jobs.scrub.borrow().is_none()
            && !self.sync.unchecksummed.borrow().is_empty()
        {
            return Some((JobKind::Checksum, Task::Checksum));
        }
        let scrub = self.jobs.scrub.borrow_mut().take()?;
        let kind = if scrub == Task::Repair { JobKind::Repair } else { JobKind::Check };
        Some((kind, scrub))
    }

    /// True if parity or copies can be resynced. Parity needs every member. Present copies must
    /// agree even without the others: otherwise the next loss would change data that was read. The
    /// bits of missing members stay set.
    fn can_resync(&self, now: &Configuration) -> bool {
        self.geometry.family() == Family::Mirror || Keeper::not_in_sync(now).is_empty()
    }

    /// True if the task resolves the present copies even when members are missing.
    fn resolves_present_copies(&self, task: Task) -> bool {
        task == Task::Resync && self.geometry.family() == Family::Mirror
    }

    /// The ranges that a task must cover.
    fn ranges_of(&self, task: Task) -> RangeSet {
        let end = self.geometry.capacity();
        let now = self.configuration.borrow();
        match task {
            Task::Rebuild(slots) => slots
                .iter()
                .flat_map(|slot| {
                    let assignment = now.slots[slot.index()];
                    let partial = self.sync.partial.borrow();
                    let known = assignment.member.and_then(|id| partial.get(&id).cloned());
                    let rest = assignment.recovered.unwrap_or(end);
                    let whole = RangeSet::from(rest..end);
                    known.unwrap_or(whole).iter().collect::<Vec<_>>()
                })
                .collect(),
            Task::Copy(slot) => {
                let copied = now.slots[slot.index()].replacement.map_or(0, |(_, copied)| copied);
                RangeSet::from(copied..end)
            }
            Task::Resync => self.sync.unsynced.borrow().clone(),
            Task::Checksum => self.sync.unchecksummed.borrow().clone(),
            Task::Check | Task::Repair => {
                RangeSet::from(self.jobs.scrub_range.borrow().range.clone())
            }
        }
    }

    /// Runs one job from beginning to end.
    async fn run_job(&self, (kind, task): (JobKind, Task)) {
        let (ranges, assignments) = (self.ranges_of(task), self.assignments.get());
        let started = self.clock.now();
        let is_scrub = matches!(kind, JobKind::Check | JobKind::Repair);
        let scrub = self.jobs.scrub_range.borrow().clone();
        let part = (is_scrub && scrub.is_part).then(|| scrub.range.clone());
        let what = describe_job(kind, part.as_ref());
        *self.jobs.job.borrow_mut() = Some(Job {
            kind,
            part,
            in_sync: self.configuration.borrow().in_sync(),
            total: ranges.bytes(),
            done: 0,
            started,
            recent: VecDeque::new(),
            report: Report::default(),
            throttled: Duration::ZERO,
        });
        self.note(EventKind::JobStarted, None, format!("{what} started"));
        let walk = self.walk(task, &ranges, assignments).await;
        let finished = walk == Walk::Finished;
        self.finish_job(task, finished, assignments).await;
        let job = self.jobs.job.borrow_mut().take().expect("set above and only taken here");
        if is_scrub {
            let (jobs, from) = (&self.jobs, scrub.range.start);
            let last = if scrub.is_part { &jobs.last_part } else { &jobs.last_scrub };
            *last.borrow_mut() = Some(ScrubResult {
                repair: kind == JobKind::Repair,
                unix_micros: self.clock.unix_micros(),
                complete: finished,
                range: from..from + job.done,
                duration: self.clock.now() - started,
                report: job.report.clone(),
            });
        }
        let text = self.outcome(&job, finished);
        let event = if finished { EventKind::JobFinished } else { EventKind::JobInterrupted };
        self.note(event, None, text);
        self.changed.raise();
    }

    /// The text about the end of a job.
    fn outcome(&self, job: &Job, finished: bool) -> String {
        let (Report { compared_bytes, lost_bytes, .. }, whole) = (&job.report, job.in_sync);
        let mut text = describe_job(job.kind, job.part.as_ref());
        text.push_str(if finished { " finished" } else { " interrupted" });
        if !finished && matches!(job.kind, JobKind::Check | JobKind::Repair) {
            let now = self.configuration.borrow().in_sync();
            let why = if whole.is_subset(now) { "" } else { ": a member was lost" };
            let end = self.geometry.capacity();
            text += &format!("{why}; {compared_bytes} of {end} bytes compared");
        }
        if *lost_bytes > 0 {
            text += &format!(", {lost_bytes} bytes could not be recovered");
        }
        text
    }

    /// Applies the result of a walk.
    async fn finish_job(&self, task: Task, finished: bool, assignments: u64) {
        match task {
            Task::Rebuild(slots) if finished => {
                for slot in slots.iter() {
                    let member = self.configuration.borrow().slots[slot.index()].member;
                    if let Some(id) = member {
                        self.sync.partial.borrow_mut().remove(&id);
                        self.rebuilt(slot, id, assignments).await;
                        if self.configuration.borrow().in_sync().contains(slot) {
                            let text = format!("slot {slot} is in sync");
                            self.note(EventKind::SpareActive, Some(id), text);
                        }
                    }
                }
                self.clear_all_bits().await;
            }
            Task::Copy(slot) if finished => {
                // The replacement is recorded as complete before the old member is recorded as
                // removed: a crash may leave either superblock alone.
                let recorded = broken(Broken::TakesOverInOneStep) || self.record().await.is_ok();
                let replacement = self.configuration.borrow().slots[slot.index()].replacement;
                if let Some((id, _)) = replacement.filter(|_| recorded) {
                    self.replaced(slot, id).await;
                }
            }
            Task::Resync | Task::Repair | Task::Checksum
                if self.configuration.borrow().mode == Mode::ReadWrite =>
            {
                // A failed commit is a loss and is handled as one.
                let recorded = self.record().await.is_ok();
                if recorded && finished && task != Task::Repair {
                    self.clear_all_bits().await;
                    // After a crash the next write may be far off. Until then another crash must
                    // not resync everything again.
                    self.inbox.marking.borrow_mut().push_back(Asked::Quiet { shard: None });
                    self.changed.raise();
                }
            }
            _ => {}
        }
    }

    /// Walks over `ranges` in units, a few at a time.
    async fn walk(&self, task: Task, ranges: &RangeSet, assignments: u64) -> Walk {
        let step = self.home.engine.job_border();
        let (stripe, region) = (self.geometry.stripe_bytes(), self.geometry.region_bytes());
        let region = if broken(Broken::JobsCrossRegions) { u64::MAX / 2 } else { region };
        let end = self.geometry.capacity();
        let mut flights: VecDeque<InFlight> = VecDeque::new();
        let (mut next, mut recorded) = (0, 0);
        loop {
            let intact = self.may_continue(task) && self.assignments.get() == assignments;
            while intact && flights.len() < self.bounds.job_units {
                let Some(range) = ranges.next(next) else { break };
                // Whole stripes, up to the next border of a unit or region: the work of one shard.
                let start = range.start / stripe * stripe;
                let border = ((start / step + 1) * step).min((start / region + 1) * region);
                let len = border.min(end) - start;
                let len = len.min(range.end.next_multiple_of(stripe) - start).min(end - start);
                assert!(start + len > next, "the walk stands still");
                next = start + len;
                let answer = self.home.job_range(task, start, len);
                flights.push_back(InFlight { start, len, answer });
            }
            let Some(flight) = flights.pop_front() else {
                return if intact { Walk::Finished } else { Walk::Broken };
            };
            let (result, report) = flight.answer.await;
            // Work done for one member does not count for a later member of its slot.
            if result.is_err() || self.assignments.get() != assignments {
                // The walk ends only after all of its units, because they hold locks.
                for flight in flights {
                    let _ = flight.answer.await;
                }
                return Walk::Broken;
            }
            let position = flight.start + flight.len;
            assert!(
                position > recorded,
                "the checkpoint at {recorded} would go back to {position}"
            );
            let done =
                if broken(Broken::WatermarkAhead) { next - flight.start } else { flight.len };
            self.progress(task, ranges, flight.start, done, report);
            if position - recorded >= self.checkpoint_bytes() && self.may_continue(task) {
                recorded = position;
                if !matches!(task, Task::Check | Task::Repair) {
                    let _ = self.record().await;
                }
            }
            self.hold_back(task, flight.len).await;
        }
    }

    /// Bytes of the array between checkpoints.
    fn checkpoint_bytes(&self) -> u64 {
        let slots = self.geometry.slots() as u64;
        self.bounds.checkpoint_bytes.saturating_mul(slots)
    }

    /// True while the configuration still requires the task.
    fn may_continue(&self, task: Task) -> bool {
        let now = self.configuration.borrow();
        if self.is_stopping() || now.mode != Mode::ReadWrite {
            return false;
        }
        match task {
            Task::Rebuild(slots) => {
                let recovering = |slot: Slot| {
                    let assignment = now.slots[slot.index()];
                    assignment.member.is_some() && assignment.recovered.is_some()
                };
                let all = (0..now.slots.len()).map(Slot::new).filter(|&slot| recovering(slot));
                all.collect::<SlotSet>() == slots
            }
            Task::Copy(slot) => now.slots[slot.index()].replacement.is_some(),
            Task::Resync => self.can_resync(&now),
            Task::Checksum => {
                Keeper::not_in_sync(&now).is_empty() && self.jobs.scrub.borrow().is_none()
            }
            // A lost member cannot be compared, and a spare must not wait for the end of the scrub.
            Task::Check | Task::Repair => !self.scrub_cancelled() && !self.scrub_degraded(),
        }
    }

    fn scrub_cancelled(&self) -> bool {
        self.jobs.job.borrow().as_ref().is_some_and(|job| job.total == 0)
    }

    /// True if a member was lost since the scrub began.
    fn scrub_degraded(&self) -> bool {
        let in_sync = self.configuration.borrow().in_sync();
        self.jobs.job.borrow().as_ref().is_some_and(|job| !job.in_sync.is_subset(in_sync))
    }

    /// Stops the running scrub. False if there is none.
    pub(crate) fn cancel_scrub(&self) -> bool {
        let waiting = self.jobs.scrub.borrow_mut().take().is_some();
        let mut job = self.jobs.job.borrow_mut();
        match job.as_mut() {
            Some(job) if matches!(job.kind, JobKind::Check | JobKind::Repair) => {
                job.total = 0;
                true
            }
            _ => waiting,
        }
    }

    /// Records progress up to the end of this piece: for the shards, for the next checkpoint and
    /// for the status.
    fn progress(&self, task: Task, ranges: &RangeSet, start: u64, len: u64, report: Report) {
        let end = start + len;
        let below = ranges.next(end).map_or(self.geometry.capacity(), |range| range.start);
        {
            let mut now = self.configuration.borrow_mut();
            let mut notes: Vec<(Slot, bool)> = Vec::new();
            match task {
                Task::Rebuild(slots) => {
                    for slot in slots.iter() {
                        let assignment = &mut now.slots[slot.index()];
                        if let Some(recovered) = &mut assignment.recovered {
                            *recovered = (*recovered).max(below);
                            notes.push((slot, false));
                        }
                    }
                }
                Task::Copy(slot) => {
                    if let Some((_, copied)) = &mut now.slots[slot.index()].replacement {
                        *copied = (*copied).max(below);
                        notes.push((slot, true));
                    }
                }
                Task::Resync if self.can_resync(&now) => self.synced(start..end),
                // A repair of a degraded array compares nothing.
                Task::Repair if Keeper::not_in_sync(&now).is_empty() => self.synced(start..end),
                Task::Resync | Task::Repair | Task::Check | Task::Checksum => {}
            }
            let compares = !matches!(task, Task::Rebuild(_) | Task::Copy(_));
            if compares
                && (Keeper::not_in_sync(&now).is_empty() || self.resolves_present_copies(task))
            {
                self.sync.unchecksummed.borrow_mut().remove(start..end);
            }
            for (slot, replacement) in notes {
                self.home.engine.post.to_all(|| ToShard::Recovered { slot, replacement, below });
            }
        }
        let now = self.clock.now();
        if let Some(job) = self.jobs.job.borrow_mut().as_mut() {
            job.done += len;
            job.report.absorb(report);
            job.recent.push_back((now, job.done, job.report.bytes));
            while job.recent.front().is_some_and(|&(at, ..)| now - at > Duration::from_secs(60)) {
                job.recent.pop_front();
            }
        }
    }

    /// Records that parity or copies of an array range agree, though not durably yet.
    fn synced(&self, range: Range<u64>) {
        let mut unsynced = self.sync.unsynced.borrow_mut();
        if unsynced.overlaps(range.clone()) {
            unsynced.remove(range.clone());
            self.sync.undurable.borrow_mut().insert(range);
        }
    }

    /// Waits as the speed limit requires.
    async fn hold_back(&self, task: Task, array_bytes: u64) {
        let share = layout::sync::member_share(&self.geometry, array_bytes);
        let mut busy = self.requests() > 0;
        let (now, limits) = (self.clock.now(), self.jobs.throttle.changes());
        if let Some(mut until) = self.jobs.throttle.next(now, share.max(1), busy) {
            // In small steps, so that a stop, a loss or a new limit takes effect at once.
            while self.clock.now() < until
                && self.may_continue(task)
                && self.jobs.throttle.changes() == limits
            {
                let nap = self.clock.now() + NAP;
                self.clock.sleep_until(until.min(nap)).await;
                if busy && self.requests() == 0 && !broken(Broken::ClientsRemembered) {
                    // Clients are idle again: the delay for the slow rate no longer applies.
                    let now = self.clock.now();
                    busy = false;
                    self.jobs.throttle.cancel_delay(now);
                    until = self.jobs.throttle.next(now, share.max(1), busy).unwrap_or(now);
                }
            }
            if let Some(job) = self.jobs.job.borrow_mut().as_mut() {
                job.throttled += self.clock.now() - now;
            }
        }
    }
}

/// The text for a job, of a part of the array if that is meant.
fn describe_job(kind: JobKind, part: Option<&Range<u64>>) -> String {
    match part {
        Some(part) => {
            let bytes = part.end - part.start;
            format!("{} of {bytes} bytes at {} of the array", describe(kind), part.start)
        }
        None => describe(kind),
    }
}

/// The text for a job.
pub(crate) fn describe(kind: JobKind) -> String {
    match kind {
        JobKind::Rebuild(slots) => {
            let slots: Vec<String> = slots.iter().map(|slot| slot.to_string()).collect();
            format!("rebuild of slot {}", slots.join(", "))
        }
        JobKind::Replace(slot) => format!("replacement of slot {slot}"),
        JobKind::Resync => "resync".into(),
        JobKind::Check => "check".into(),
        JobKind::Repair => "repair".into(),
        JobKind::Checksum => "checksumming".into(),
    }
}
