//! How fast background work goes: at most `max`, and down to `min` while clients are at work.

use std::cell::Cell;
use std::time::Duration;

use io::Time;

/// Limits of background work, in bytes of a member per second; they may be changed at any time.
pub(crate) struct Throttle {
    pub(crate) min: Cell<u64>,
    pub(crate) max: Cell<u64>,
    /// Work up to here is paid for.
    paid_until: Cell<Time>,
    /// How often the limits were changed.
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
    /// Changes the limits; what is owed under the old ones is forgotten.
    pub(crate) fn set(&self, min: u64, max: u64, now: Time) {
        self.min.set(min);
        self.max.set(max);
        self.forgive(now);
        self.changes.set(self.changes.get() + 1);
    }

    /// What is owed is forgotten.
    pub(crate) fn forgive(&self, now: Time) {
        self.paid_until.set(now);
    }

    /// How often the limits were changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.get()
    }

    /// When the next piece may begin, if `bytes` were done just now.
    pub(crate) fn next(&self, now: Time, bytes: u64, busy: bool) -> Option<Time> {
        let rate = if busy { self.min.get().min(self.max.get()) } else { self.max.get() };
        if rate == u64::MAX {
            return None;
        }
        let cost = Duration::from_nanos(bytes.saturating_mul(1_000_000_000) / rate.max(1));
        // Idle time is not saved up.
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
