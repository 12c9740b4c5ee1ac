//! A clock for tests, which moves when the test says so.

use std::cell::Cell;
use std::time::Duration;

use crate::{Clock, Completion, Cost, Time, Timers};

/// See the module. It begins at 0.
#[derive(Default)]
pub struct HandClock {
    now: Cell<Time>,
    timers: Timers,
}

impl HandClock {
    /// When the next sleep ends; none if nothing sleeps.
    pub fn next(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Moves to this time, unless it is past, and ends the sleeps until then. Returns how many.
    pub fn move_to(&self, at: Time) -> usize {
        self.now.set(self.now.get().max(at));
        self.timers.fire(self.now.get())
    }

    /// Moves on by this time.
    pub fn pass(&self, span: Duration) -> usize {
        self.move_to(self.now.get() + span)
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now.get() { Completion::ready(()) } else { self.timers.sleep_until(at) }
    }

    fn unix_micros(&self) -> u64 {
        0
    }

    fn charge(&self, _: Cost, _: u64) {}
}
