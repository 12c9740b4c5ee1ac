//! Deadlines without a timer for each operation: whoever waits for members registers, and a sweep
//! wakes those who have waited too long.
//!
//! A sweep that comes late was kept from it, and so was everything else on its thread: what was to
//! be sent was not sent, what had been answered was not seen. That time is nobody's fault, and is
//! taken off everybody's. Only a sweep says that somebody is overdue.
//!
//! Who could do without the answer also says when that would be *due*: then it is woken too, and
//! does what it waits for in another way (`rows/hedge.rs`).

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::Duration;

use io::{Signal, Time};

/// Those who wait for members, with the time at which they began.
#[derive(Default)]
pub(crate) struct Watch {
    /// Raised when somebody begins to wait.
    pub(crate) begun: Signal,
    /// Raised when somebody is due before the time that is slept until.
    pub(crate) hurried: Signal,
    until: Cell<Time>,
    waiting: RefCell<Vec<Option<Waiter>>>,
}

/// Somebody who waits for members.
struct Waiter {
    since: Time,
    waker: Waker,
    overdue: bool,
    /// When it wants to know that it still waits.
    due: Option<Time>,
    late: bool,
}

/// A registration: ends when it is dropped.
pub(crate) struct Waiting<'a> {
    watch: &'a Watch,
    number: usize,
}

impl Waiting<'_> {
    /// True if it has waited too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.watch.waiting.borrow()[self.number].as_ref().is_some_and(|waiter| waiter.overdue)
    }

    /// True if it has waited until it was due.
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
    /// Registers a waiter, which is woken when it is due, if ever, and when it is overdue.
    pub(crate) fn begin(&self, since: Time, due: Option<Time>, waker: Waker) -> Waiting<'_> {
        self.begun.raise();
        if due.is_some_and(|due| due < self.until.get()) {
            self.until.set(Time(0));
            self.hurried.raise();
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

    /// Wakes everyone who is due.
    pub(crate) fn hurry(&self, now: Time) {
        for waiter in self.waiting.borrow_mut().iter_mut().flatten() {
            if waiter.due.is_some_and(|due| due <= now) {
                (waiter.due, waiter.late) = (None, true);
                waiter.waker.wake_by_ref();
            }
        }
    }

    /// When the next one is due, `latest` at the latest: whoever asks sleeps until then, or until
    /// it is hurried.
    pub(crate) fn next_due(&self, latest: Time) -> Time {
        let waiting = self.waiting.borrow();
        let due = waiting.iter().flatten().filter_map(|waiter| waiter.due).min();
        self.until.set(due.map_or(latest, |due| due.min(latest)));
        self.until.get()
    }

    /// Wakes everyone who began more than `deadline` before `now`, apart from the time for which
    /// this sweep, which was to come at `due`, is late.
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

    /// True if anyone waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.borrow().iter().any(Option::is_some)
    }
}

#[cfg(test)]
mod tests {
    use io::tasks::poll_once;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nobody_is_overdue_for_time_that_the_sweep_itself_was_late() {
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
    fn who_begins_while_a_sweep_is_late_loses_nothing_by_it() {
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
    fn who_is_due_is_woken_once() {
        let (watch, start) = (Watch::default(), Time(0));
        let first = watch.begin(start, Some(start + 2 * SECOND), Waker::noop().clone());
        let second = watch.begin(start, Some(start + SECOND), Waker::noop().clone());
        let never = watch.begin(start, None, Waker::noop().clone());
        let latest = start + 9 * SECOND;
        assert_eq!(watch.next_due(latest), start + SECOND);
        watch.hurry(start + SECOND);
        assert_eq!((first.is_late(), second.is_late(), never.is_late()), (false, true, false));
        assert_eq!(watch.next_due(latest), start + 2 * SECOND);
        drop(first);
        assert_eq!(watch.next_due(latest), latest);
        // Whoever sleeps until then is woken by one who is due before.
        let mut hurried = watch.hurried.wait();
        assert!(poll_once(&mut hurried).is_none());
        let _later = watch.begin(start, Some(latest + SECOND), Waker::noop().clone());
        assert!(poll_once(&mut hurried).is_none());
        let _sooner = watch.begin(start, Some(start + 3 * SECOND), Waker::noop().clone());
        assert!(poll_once(&mut hurried).is_some());
    }
}
