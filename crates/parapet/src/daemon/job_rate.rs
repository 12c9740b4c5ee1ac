//! How fast background work goes, and how it went: what the server has seen of the engine's jobs.
//!
//! The rate is that of the last minute, but never from before a limit was changed: an estimate made
//! under another limit is wrong. Owns no timer: it sees what it is shown.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use array::JobKind as Kind;
use array::status::{Event, EventKind, JobStatus};
use io::Time;
use jiff::Timestamp;

use crate::api::LastRebuild;

/// How far back a rate looks, and how much it needs.
const WINDOW: Duration = Duration::from_secs(60);
const ENOUGH: Duration = Duration::from_millis(500);
/// After a change of limits it needs more: what was under way still goes as it did.
const SETTLING: Duration = Duration::from_secs(3);

/// What took less, in seconds, has no rate worth telling.
const SHORTEST_S: f64 = 0.1;

/// See the module.
#[derive(Default)]
pub(super) struct JobRate {
    /// When, and how many bytes of the array were done.
    samples: RefCell<VecDeque<(Time, u64)>>,
    /// Bytes over all members for each byte of the array.
    share: Cell<Option<f64>>,
    kind: RefCell<Option<Kind>>,
    started: Cell<Option<Timestamp>>,
    changed: Cell<bool>,
    last: RefCell<Option<LastRebuild>>,
}

/// What is seen of a job: bytes of the array that are done; bytes per second, as the engine
/// measures them, of the array and over all members.
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
    /// Takes note of how far the job is.
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

    /// Forgets what was seen under other limits.
    pub(super) fn limits_changed(&self) {
        self.samples.borrow_mut().clear();
        self.changed.set(true);
    }

    /// Bytes of the array per second, if that can be told yet; zero if nothing moves.
    pub(super) fn array_rate(&self) -> Option<u64> {
        let samples = self.samples.borrow();
        let (&(since, before), &(now, done)) = (samples.front()?, samples.back()?);
        let enough = if self.changed.get() { SETTLING } else { ENOUGH };
        let span = now - since;
        (span >= enough).then(|| ((done - before) as f64 / span.as_secs_f64()) as u64)
    }

    /// Bytes over all members for each byte of the array.
    pub(super) fn share(&self) -> Option<f64> {
        self.share.get()
    }

    /// When the job under way has begun.
    pub(super) fn started(&self) -> Option<Timestamp> {
        self.started.get()
    }

    /// How the last rebuild or replacement went.
    pub(super) fn last(&self) -> Option<LastRebuild> {
        self.last.borrow().clone()
    }

    /// Learns from what has happened; `job` is what is being done, `capacity` the array's bytes.
    pub(super) fn learn(&self, event: &Event, job: Option<&JobStatus>, capacity: u64) {
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
        assert_eq!(job_rate.array_rate(), Some(0), "it stands still");
        job_rate.see(second(300), None);
        assert_eq!(job_rate.array_rate(), None);
    }
}
