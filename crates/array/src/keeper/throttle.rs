//! The speed of background work: at most `max`, and at least `min` while clients are active.

use std::cell::Cell;
use std::time::Duration;

use io::Time;

/// Limits of background work, in bytes of a member per second. They may change at any time.
pub(crate) struct Throttle {
    pub(crate) min: Cell<u64>,
    pub(crate) max: Cell<u64>,
    /// End of the time that past work has used up.
    paid_until: Cell<Time>,
    /// Number of changes of the limits.
    changes: Cell<u64>,
}

impl Default for Throttle {
    fn default() -> Throttle {
        let (min, max) = (Cell::new(64 << 20), Cell::new(u64::MAX));
        let (paid_until, changes) = (Cell::new(Time(0)), Cell::new(0));
        Throttle { min, max, paid_until, changes }
    }
}

impl Throttle {
    /// Changes the limits and cancels the delay due under the old ones.
    pub(crate) fn set(&self, min: u64, max: u64, now: Time) {
        self.min.set(min);
        self.max.set(max);
        self.cancel_delay(now);
        self.changes.set(self.changes.get() + 1);
    }

    /// Cancels the delay that is due.
    pub(crate) fn cancel_delay(&self, now: Time) {
        self.paid_until.set(now);
    }

    /// Number of changes of the limits.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// The start time of the next piece, after `bytes` were just done.
    pub(crate) fn next(&self, now: Time, bytes: u64, busy: bool) -> Option<Time> {
        let rate = if busy { self.min.get().min(self.max.get()) } else { self.max.get() };
        if rate == u64::MAX {
            return None;
        }
        let cost = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1));
        // Idle time does not accumulate.
        let until = self.paid_until.get().max(now) + cost;
        self.paid_until.set(until);
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_spread_to_the_rate_of_the_moment() {
        let throttle = Throttle::default();
        assert_eq!(throttle.next(Time(0), 1 << 20, false), None, "unlimited");
        throttle.max.set(1 << 20);
        assert_eq!(throttle.next(Time(0), 1 << 20, false), Some(Time(1_000_000_000)));
        assert_eq!(throttle.next(Time(0), 1 << 20, false), Some(Time(2_000_000_000)));
        throttle.max.set(u64::MAX);
        throttle.min.set(1 << 19);
        let later = Time(5_000_000_000);
        assert_eq!(throttle.next(later, 1 << 20, true), Some(Time(7_000_000_000)));
    }
}
