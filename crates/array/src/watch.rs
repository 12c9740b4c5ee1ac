//! Deadlines without a timer for each operation: whoever waits for members registers, and a sweep
//! wakes those who have waited too long.

use std::cell::RefCell;
use std::task::Waker;
use std::time::Duration;

use io::{Signal, Time};

/// Those who wait for members, with the time at which they began.
#[derive(Default)]
pub(crate) struct Watch {
    /// Raised when somebody begins to wait.
    pub(crate) begun: Signal,
    waiting: RefCell<Vec<Option<(Time, Waker)>>>,
}

impl Watch {
    /// Registers a waiter; gives the number to change or end the registration with.
    pub(crate) fn begin(&self, since: Time, waker: Waker) -> usize {
        self.begun.raise();
        let mut waiting = self.waiting.borrow_mut();
        let entry = Some((since, waker));
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

    /// Wakes everyone who began more than `deadline` before `now`.
    pub(crate) fn sweep(&self, now: Time, deadline: Duration) {
        for (since, waker) in self.waiting.borrow().iter().flatten() {
            if now - *since >= deadline {
                waker.wake_by_ref();
            }
        }
    }

    /// True if anyone waits.
    pub(crate) fn is_busy(&self) -> bool {
        self.waiting.borrow().iter().any(Option::is_some)
    }
}
