//! The machine's own time.
//!
//! `CLOCK_MONOTONIC` as it is, so times of all executors in one boot compare. Never set, never
//! slewed by us. Sleepers are woken by the executor that owns the clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use io::{Clock, Completion, Cost, Time, Timers};
use rustix::time::{ClockId, clock_gettime};

/// See the module.
pub struct MonotonicClock {
    timers: Timers,
}

impl MonotonicClock {
    pub(crate) fn new() -> MonotonicClock {
        MonotonicClock { timers: Timers::new() }
    }

    /// Time until the next sleeper is due; `None` without sleepers.
    pub(crate) fn wait_limit(&self) -> Option<Duration> {
        self.timers.next().map(|at| at - self.now())
    }

    /// Wakes all due sleepers.
    pub(crate) fn fire(&self) {
        self.timers.fire(self.now());
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Time {
        let now = clock_gettime(ClockId::Monotonic);
        // Neither part is ever negative, and seconds since boot in nanoseconds last for 584 years.
        Time(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now() {
            return Completion::ready(());
        }
        self.timers.sleep_until(at)
    }

    fn unix_micros(&self) -> u64 {
        // A clock before 1970 is a clock that was never set.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn charge(&self, _: Cost, _: u64) {}
}
