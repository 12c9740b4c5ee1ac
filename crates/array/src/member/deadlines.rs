//! Deadlines of requests that wait for members.
//!
//! Owns the list of waiting requests and decides which of them are due or overdue. Never reads a
//! clock and never cancels a request: the waiter itself acts.
//!
//! Deadlines need no timer per operation: requests that wait for members register, and a sweep
//! wakes those that have waited too long.
//!
//! A late sweep means that its whole thread was blocked: requests were not sent and answers were
//! not processed. That time is no member's fault, so it is deducted from every wait. Only a sweep
//! declares a request overdue.
//!
//! A request that can do without the answer also registers when that would be *due*. It is woken
//! then and hedges (`rows/hedge.rs`).

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use io::{Signal, Time};

/// The requests that wait for members, with their start times.
#[derive(Default)]
pub(crate) struct Watch {
    /// Raised when a request begins to wait.
    pub(crate) begun: Signal,
    /// Raised when a request becomes due before the end of the current sleep.
    pub(crate) due_earlier: Signal,
    until: Cell<Time>,
    waiting: RefCell<Vec<Option<Waiter>>>,
}

/// A request that waits for members.
struct Waiter {
    since: Time,
    waker: Waker,
    overdue: bool,
    /// The time at which it checks for lateness.
    due: Option<Time>,
    late: bool,
}

/// A registration: ends when it is dropped.
pub(crate) struct Waiting<'a> {
    watch: &'a Watch,
    number: usize,
}

impl Waiting<'_> {
    /// True if it has passed its deadline.
    pub(crate) fn is_overdue(&self) -> bool {
        self.watch.waiting.borrow()[self.number].as_ref().is_some_and(|waiter| waiter.overdue)
    }

    /// True if it has passed its due time.
    pub(crate) fn is_late(&self) -> bool {
        self.watch.waiting.borrow()[self.number].as_ref().is_some_and(|waiter| waiter.late)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.watch.waiting.borrow_mut()[self.number] = None;
    }
}

impl Watch {
    /// Registers a waiting request. It is woken when it is due, if ever, and when it is overdue.
    pub(crate) fn begin(&self, since: Time, due: Option<Time>, waker: Waker) -> Waiting<'_> {
        self.begun.raise();
        if due.is_some_and(|due| due < self.until.get()) {
            self.until.set(Time(0));
            self.due_earlier.raise();
        }
        let mut waiting = self.waiting.borrow_mut();
        let entry = Some(Waiter { since, waker, overdue: false, due, late: false });
        let number = if let Some(vacant) = waiting.iter().position(Option::is_none) {
            waiting[vacant] = entry;
            vacant
        } else {
            waiting.push(entry);
            waiting.len() - 1
        };
        Waiting { watch: self, number }
    }

    /// Wakes every request that is due.
    pub(crate) fn wake_due(&self, now: Time) {
        for waiter in self.waiting.borrow_mut().iter_mut().flatten() {
            if waiter.due.is_some_and(|due| due <= now) {
                (waiter.due, waiter.late) = (None, true);
                waiter.waker.wake_by_ref();
            }
        }
    }

    /// The next due time, at most `latest`: the caller sleeps until then or until it is hurried.
    pub(crate) fn next_due(&self, latest: Time) -> Time {
        let waiting = self.waiting.borrow();
        let due = waiting.iter().flatten().filter_map(|waiter| waiter.due).min();
        self.until.set(due.map_or(latest, |due| due.min(latest)));
        self.until.get()
    }

    /// Wakes every request that began more than `deadline` before `now`. The delay of this sweep
    /// itself, which was due at `due`, does not count.
    pub(crate) fn sweep(&self, due: Time, now: Time, deadline: Duration) {
        for waiter in self.waiting.borrow_mut().iter_mut().flatten() {
            let lost = now - waiter.since.max(due);
            waiter.since = waiter.since + lost;
            if now - waiter.since >= deadline {
                waiter.overdue = true;
                waiter.waker.wake_by_ref();
            }
        }
    }

    /// True if any request waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.borrow().iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::tasks::poll_once;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn no_request_is_overdue_because_of_a_late_sweep() {
        let (watch, start) = (Watch::default(), Time(0));
        let waiting = watch.begin(start, None, Waker::noop().clone());
        // Frozen for 100 seconds, a second after it began.
        let (due, now) = (start + SECOND, start + 101 * SECOND);
        watch.sweep(due, now, 2 * SECOND);
        assert!(!waiting.is_overdue());
        watch.sweep(now + SECOND / 2, now + SECOND / 2, 2 * SECOND);
        assert!(!waiting.is_overdue());
        // The second before counts.
        watch.sweep(now + SECOND, now + SECOND, 2 * SECOND);
        assert!(waiting.is_overdue());
    }

    #[test]
    fn a_request_that_begins_during_a_late_sweep_keeps_its_deadline() {
        let (watch, start) = (Watch::default(), Time(0));
        let waiting = watch.begin(start + 3 * SECOND, None, Waker::noop().clone());
        watch.sweep(start + SECOND, start + 4 * SECOND, 2 * SECOND);
        watch.sweep(start + 5 * SECOND, start + 5 * SECOND, 2 * SECOND);
        assert!(!waiting.is_overdue());
        watch.sweep(start + 6 * SECOND, start + 6 * SECOND, 2 * SECOND);
        assert!(waiting.is_overdue());
        drop(waiting);
        assert!(!watch.is_busy());
    }

    #[test]
    fn a_due_request_is_woken_once() {
        let (watch, start) = (Watch::default(), Time(0));
        let first = watch.begin(start, Some(start + 2 * SECOND), Waker::noop().clone());
        let second = watch.begin(start, Some(start + SECOND), Waker::noop().clone());
        let never = watch.begin(start, None, Waker::noop().clone());
        let latest = start + 9 * SECOND;
        assert_eq!(watch.next_due(latest), start + SECOND);
        watch.wake_due(start + SECOND);
        assert_eq!((first.is_late(), second.is_late(), never.is_late()), (false, true, false));
        assert_eq!(watch.next_due(latest), start + 2 * SECOND);
        drop(first);
        assert_eq!(watch.next_due(latest), latest);
        // An earlier due time wakes the sleeper.
        let mut due_earlier = watch.due_earlier.wait();
        assert!(poll_once(&mut due_earlier).is_none());
        let _later = watch.begin(start, Some(latest + SECOND), Waker::noop().clone());
        assert!(poll_once(&mut due_earlier).is_none());
        let _sooner = watch.begin(start, Some(start + 3 * SECOND), Waker::noop().clone());
        assert!(poll_once(&mut due_earlier).is_some());
    }
}
