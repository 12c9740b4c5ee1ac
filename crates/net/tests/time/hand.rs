//! A clock that a test moves on.

use std::cell::Cell;

use io::{Clock, Completion, Cost, Time, Timers};

/// See the module.
#[derive(Default)]
pub struct Hand {
    pub now: Cell<u64>,
    pub timers: Timers,
}

impl Clock for Hand {
    fn now(&self) -> Time {
        Time(self.now.get())
    }
    fn sleep_until(&self, at: Time) -> Completion<()> {
        self.timers.sleep_until(at)
    }
    fn unix_micros(&self) -> u64 {
        0
    }
    fn charge(&self, _: Cost, _: u64) {}
}
