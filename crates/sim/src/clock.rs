//! Virtual time: it stands still while any task is ready, and leaps to the next event when none is.
//!
//! Owns the sleepers and the *agenda* of disks: which of them has something to finish, and when.
//! Nanoseconds since the start of the run.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use io::{Clock, Completion, Cost, Time, Timers};

/// Wall-clock time at the start of every run: 2026-01-01, in microseconds since 1970.
const START_UNIX_MICROS: u64 = 1_767_225_600_000_000;

/// The clock of one run.
#[derive(Default)]
pub struct SimClock {
    now: Cell<Time>,
    timers: Timers,
    agenda: RefCell<BinaryHeap<Reverse<(Time, u64, u64)>>>,
    order: Cell<u64>,
}

/// A due event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due {
    /// Sleepers were woken.
    Sleepers,
    /// This operation, by the number that its owner chose.
    Operation(u64),
    /// Nothing, ever.
    Nothing,
}

impl SimClock {
    /// A clock at 0.
    pub fn new() -> SimClock {
        SimClock::default()
    }

    /// Puts an operation on the agenda. Of two at the same moment the earlier entry is due first.
    pub fn schedule(&self, at: Time, operation: u64) {
        let order = self.order.replace(self.order.get() + 1);
        self.agenda.borrow_mut().push(Reverse((at.max(self.now.get()), order, operation)));
    }

    /// Leaps to the next event. Sleepers are woken here; an operation is the caller's to finish.
    pub fn advance_to_next(&self) -> Due {
        let sleeper = self.timers.next();
        let operation = self.agenda.borrow().peek().map(|&Reverse((at, ..))| at);
        match (sleeper, operation) {
            (None, None) => Due::Nothing,
            (Some(at), operation) if operation.is_none_or(|operation| at < operation) => {
                self.now.set(self.now.get().max(at));
                self.timers.fire(at);
                Due::Sleepers
            }
            _ => {
                let Reverse((at, _, number)) =
                    self.agenda.borrow_mut().pop().expect("peeked at just now");
                self.now.set(self.now.get().max(at));
                Due::Operation(number)
            }
        }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now.get() {
            return Completion::ready(());
        }
        self.timers.sleep_until(at)
    }

    fn unix_micros(&self) -> u64 {
        START_UNIX_MICROS + self.now.get().0 / 1000
    }

    fn charge(&self, _cost: Cost, _bytes: u64) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaps_from_event_to_event() {
        let clock = SimClock::new();
        let sleeper = clock.sleep_until(Time(20));
        clock.schedule(Time(30), 7);
        clock.schedule(Time(10), 8);
        assert_eq!(clock.advance_to_next(), Due::Operation(8));
        assert_eq!(clock.now(), Time(10));
        assert_eq!(clock.advance_to_next(), Due::Sleepers);
        assert_eq!(io::tasks::complete(sleeper), Some(()));
        assert_eq!(clock.advance_to_next(), Due::Operation(7));
        assert_eq!(clock.now(), Time(30));
        assert_eq!(clock.advance_to_next(), Due::Nothing);
    }
}
