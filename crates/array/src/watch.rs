//! Deadlines without a timer for each operation: whoever waits for members registers, and a sweep
//! wakes those who have waited too long.
//!
//! A sweep that comes late was kept from it, and so was everything else on its thread: what was to
//! be sent was not sent, what had been answered was not seen. That time is nobody's fault, and is
//! taken off everybody's. Only a sweep says that somebody is overdue.

use std::cell::RefCell;
use std::task::Waker;
use std::time::Duration;

use io::{Signal, Time};

/// Those who wait for members, with the time at which they began.
#[derive(Default)]
pub(crate) struct Watch {
    /// Raised when somebody begins to wait.
    pub(crate) begun: Signal,
    waiting: RefCell<Vec<Option<Waiter>>>,
}

/// Somebody who waits for members.
struct Waiter {
    since: Time,
    waker: Waker,
    overdue: bool,
}

impl Watch {
    /// Registers a waiter; gives the number to change or end the registration with.
    pub(crate) fn begin(&self, since: Time, waker: Waker) -> usize {
        self.begun.raise();
        let mut waiting = self.waiting.borrow_mut();
        let entry = Some(Waiter { since, waker, overdue: false });
        if let Some(vacant) = waiting.iter().position(Option::is_none) {
            waiting[vacant] = entry;
            vacant
        } else {
            waiting.push(entry);
            waiting.len() - 1
        }
    }

    /// Ends a registration.
    pub(crate) fn end(&self, number: usize) {
        self.waiting.borrow_mut()[number] = None;
    }

    /// True if the waiter with this number has waited too long.
    pub(crate) fn is_overdue(&self, number: usize) -> bool {
        self.waiting.borrow()[number].as_ref().is_some_and(|waiter| waiter.overdue)
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
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nobody_is_overdue_for_time_that_the_sweep_itself_was_late() {
        let (watch, start) = (Watch::default(), Time(0));
        let number = watch.begin(start, Waker::noop().clone());
        // Frozen for 100 seconds, a second after it began.
        let (due, now) = (start + SECOND, start + 101 * SECOND);
        watch.sweep(due, now, 2 * SECOND);
        assert!(!watch.is_overdue(number));
        watch.sweep(now + SECOND / 2, now + SECOND / 2, 2 * SECOND);
        assert!(!watch.is_overdue(number));
        // The second before counts.
        watch.sweep(now + SECOND, now + SECOND, 2 * SECOND);
        assert!(watch.is_overdue(number));
    }

    #[test]
    fn who_begins_while_a_sweep_is_late_loses_nothing_by_it() {
        let (watch, start) = (Watch::default(), Time(0));
        let number = watch.begin(start + 3 * SECOND, Waker::noop().clone());
        watch.sweep(start + SECOND, start + 4 * SECOND, 2 * SECOND);
        watch.sweep(start + 5 * SECOND, start + 5 * SECOND, 2 * SECOND);
        assert!(!watch.is_overdue(number));
        watch.sweep(start + 6 * SECOND, start + 6 * SECOND, 2 * SECOND);
        assert!(watch.is_overdue(number));
        watch.end(number);
        assert!(!watch.is_busy());
    }
}
