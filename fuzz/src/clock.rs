//! Time that passes when a body says so.

use std::cell::Cell;
use std::time::Duration;

use io::{Clock, Completion, Cost, Time, Timers};

/// A clock moved by hand.
#[derive(Default)]
pub(crate) struct HandClock {
    now: Cell<u64>,
    timers: Timers,
}

impl HandClock {
    /// Lets the shortest sleeps end; true if there was one.
    pub(crate) fn tick(&self) -> bool {
        self.now.set(self.now.get() + 1);
        self.timers.fire(Time(self.now.get())) > 0
    }

    /// Lets this much time pass at once.
    pub(crate) fn pass(&self, span: Duration) {
        self.now.set(self.now.get() + span.as_nanos() as u64);
        self.timers.fire(Time(self.now.get()));
    }

    /// Leaps to the end of the next sleep, but not beyond `until`; false if that is reached.
    pub(crate) fn leap(&self, until: Time) -> bool {
        let next = self.timers.next().filter(|next| *next <= until);
        let now = next.unwrap_or(until).max(self.now());
        self.now.set(now.0);
        self.timers.fire(now);
        next.is_some()
    }
}

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time(self.now.get())
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now() { Completion::ready(()) } else { self.timers.sleep_until(at) }
    }

    fn unix_micros(&self) -> u64 {
        0
    }

    fn charge(&self, _: Cost, _: u64) {}
}
