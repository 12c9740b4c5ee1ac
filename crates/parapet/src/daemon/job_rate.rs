//! The speed of background jobs, measured from the engine's progress.
//!
//! The rate covers the last minute, but nothing before the last change of limits. An estimate from
//! other limits would be wrong. Owns no timer: the caller supplies the samples.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use array::JobKind as Kind;
use array::status::{Event, EventKind, JobStatus};
use io::Time;
use jiff::Timestamp;

use crate::api::LastRebuild;

/// The window of a rate, and the minimum time that it needs.
const WINDOW: Duration = Duration::from_secs(60);
const ENOUGH: Duration = Duration::from_millis(500);
/// The minimum time after a change of limits: chunks in flight still run under the old ones.
const SETTLING: Duration = Duration::from_secs(3);

/// A job that took fewer seconds has no meaningful rate.
const SHORTEST_S: f64 = 0.1;

/// See the module.
#[derive(Default)]
pub(super) struct JobRate {
    /// Time of each sample, and the bytes of the array done by then.
    samples: RefCell<VecDeque<(Time, u64)>>,
    /// Bytes over all members for each byte of the array.
    share: Cell<Option<f64>>,
    kind: RefCell<Option<Kind>>,
    started: Cell<Option<Timestamp>>,
    changed: Cell<bool>,
    last: RefCell<Option<LastRebuild>>,
}

/// A sample of a job: bytes of the array done, and the engine's rates in bytes per second, of the
/// array and over all members.
#[derive(Clone, Copy)]
pub(super) struct Seen {
    done: u64,
    array_rate: Option<u64>,
    member_rate: Option<u64>,
}

impl Seen {
    pub(super) fn of(job: &JobStatus) -> Seen {
        let (array_rate, member_rate) = (job.array_rate, job.member_rate);
        Seen { done: job.done_bytes, array_rate, member_rate }
    }
}

impl JobRate {
    /// Records the progress of the job.
    pub(super) fn see(&self, now: Time, job: Option<Seen>) {
        let mut samples = self.samples.borrow_mut();
        let Some(job) = job else { return samples.clear() };
        if samples.back().is_some_and(|&(_, done)| job.done < done) {
            samples.clear();
        }
        if let (Some(all), Some(array)) = (job.member_rate, job.array_rate.filter(|&rate| rate > 0))
        {
            self.share.set(Some(all as f64 / array as f64));
        }
        while samples.len() > 2 && samples.front().is_some_and(|&(then, _)| now - then > WINDOW) {
            samples.pop_front();
        }
        samples.push_back((now, job.done));
    }

    /// Discards the samples taken under other limits.
    pub(super) fn limits_changed(&self) {
        self.samples.borrow_mut().clear();
        self.changed.set(true);
    }

    /// Returns bytes of the array per second, or none without enough samples; zero if nothing
    /// moves.
    pub(super) fn array_rate(&self) -> Option<u64> {
        let samples = self.samples.borrow();
        let (&(since, before), &(now, done)) = (samples.front()?, samples.back()?);
        let enough = if self.changed.get() { SETTLING } else { ENOUGH };
        let span = now - since;
        (span >= enough).then(|| ((done - before) as f64 / span.as_secs_f64()) as u64)
    }

    /// Returns bytes over all members for each byte of the array.
    pub(super) fn share(&self) -> Option<f64> {
        self.share.get()
    }

    /// Returns the start time of the running job.
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.started.get()
    }

    /// Returns the result of the last rebuild or replacement.
    pub(super) fn last(&self) -> Option<LastRebuild> {
        self.last.borrow().clone()
    }

    /// Updates the state from an event; `job` is the running job, `capacity` the array's bytes.
    pub(super) fn apply_event(&self, event: &Event, job: Option<&JobStatus>, capacity: u64) {
        let time = i64::try_from(event.unix_micros).ok();
        let time = time.and_then(|micros| Timestamp::from_microsecond(micros).ok());
        match event.kind {
            EventKind::JobStarted => {
                self.samples.borrow_mut().clear();
                self.changed.set(false);
                self.share.set(None);
                self.started.set(time);
                *self.kind.borrow_mut() = job.map(|job| job.kind);
            }
            EventKind::JobFinished => {
                let kind = self.kind.borrow_mut().take();
                let (Some(began), Some(ended)) = (self.started.take(), time) else { return };
                if !matches!(kind, Some(Kind::Rebuild(_) | Kind::Replace(_))) {
                    return;
                }
                let seconds = ended.duration_since(began).as_secs_f64();
                let share = self.share.get().filter(|_| seconds >= SHORTEST_S);
                let rate = share.map(|share| (capacity as f64 / seconds * share) as u64);
                *self.last.borrow_mut() = Some(LastRebuild {
                    replace: matches!(kind, Some(Kind::Replace(_))),
                    ended,
                    seconds,
                    member_bytes_per_second: rate,
                });
            }
            EventKind::JobInterrupted => {
                self.started.take();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(done: u64) -> Option<Seen> {
        Some(Seen { done, array_rate: Some(100), member_rate: Some(150) })
    }

    #[test]
    fn a_rate_forgets_what_was_before_a_change_of_limits() {
        let (job_rate, second) = (JobRate::default(), |s: u64| Time(s * 1_000_000_000));
        job_rate.see(second(0), job(0));
        assert_eq!(job_rate.array_rate(), None);
        job_rate.see(second(10), job(10_000));
        assert_eq!((job_rate.array_rate(), job_rate.share()), (Some(1000), Some(1.5)));
        job_rate.limits_changed();
        job_rate.see(second(11), job(10_100));
        job_rate.see(second(12), job(10_100));
        assert_eq!(job_rate.array_rate(), None, "too early to tell");
        job_rate.see(second(15), job(10_100));
        assert_eq!(job_rate.array_rate(), Some(0), "the job makes no progress");
        job_rate.see(second(300), None);
        assert_eq!(job_rate.array_rate(), None);
    }
}
