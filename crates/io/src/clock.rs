//! Time, and the cost of work.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Add, Sub};
use std::time::Duration;

use crate::completion::{Completion, Completions, Ticket};

/// A moment: nanoseconds since the clock's own start. Monotonic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(pub u64);

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, span: Duration) -> Time {
        Time(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Time {
    type Output = Duration;

    /// The time from `earlier` to `self`; zero if it is the other way round.
    fn sub(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The kinds of work that [`Clock::charge`] counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cost {
    /// One call into the kernel.
    Syscall,
    /// Bytes copied.
    Copy,
    /// One request taken apart, planned and answered.
    Request,
    /// Bytes read by a parity kernel.
    Parity,
    /// Bytes read by a checksum.
    Checksum,
}

/// Time as the engine sees it: real, or pretended.
pub trait Clock {
    /// Now.
    fn now(&self) -> Time;

    /// Completes at `at`, or at once if that is past.
    fn sleep_until(&self, at: Time) -> Completion<()>;

    /// Wall-clock time for superblocks: microseconds since 1970, UTC.
    fn unix_micros(&self) -> u64;

    /// Reports finished work to the clock. Free in production; a cost model in the lab.
    fn charge(&self, cost: Cost, bytes: u64);
}

/// The sleepers of a clock, shared by all clocks.
#[derive(Default)]
pub struct Timers {
    heap: RefCell<BinaryHeap<Reverse<(Time, u64, u64)>>>,
    order: std::cell::Cell<u64>,
    sleepers: Completions<()>,
}

impl Timers {
    /// No sleeper.
    pub fn new() -> Timers {
        Timers::default()
    }

    /// Adds a sleeper that wakes at `at`.
    pub fn sleep_until(&self, at: Time) -> Completion<()> {
        let (ticket, completion) = self.sleepers.start();
        let order = self.order.replace(self.order.get() + 1);
        self.heap.borrow_mut().push(Reverse((at, order, ticket.to_bits())));
        completion
    }

    /// When the next sleeper is due; sleepers that gave up are skipped.
    pub fn next(&self) -> Option<Time> {
        let mut heap = self.heap.borrow_mut();
        while let Some(&Reverse((at, _, bits))) = heap.peek() {
            let ticket = Ticket::from_bits(bits);
            if !self.sleepers.is_abandoned(ticket) {
                return Some(at);
            }
            heap.pop();
            self.sleepers.finish(ticket, ());
        }
        None
    }

    /// Wakes every sleeper due at `now`, those of the same moment in the order they lay down.
    /// Returns how many.
    pub fn fire(&self, now: Time) -> usize {
        let mut fired = 0;
        loop {
            let due = {
                let mut heap = self.heap.borrow_mut();
                match heap.peek() {
                    Some(&Reverse((at, _, bits))) if at <= now => {
                        heap.pop();
                        Ticket::from_bits(bits)
                    }
                    _ => return fired,
                }
            };
            self.sleepers.finish(due, ());
            fired += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::complete;

    #[test]
    fn sleepers_wake_in_order_and_the_dropped_ones_do_not_hold_the_clock() {
        let timers = Timers::new();
        let late = timers.sleep_until(Time(20));
        let early = timers.sleep_until(Time(10));
        drop(timers.sleep_until(Time(5)));
        assert_eq!(timers.next(), Some(Time(10)));
        assert_eq!(timers.fire(Time(10)), 1);
        assert_eq!(complete(early), Some(()));
        assert_eq!(timers.next(), Some(Time(20)));
        assert_eq!(timers.fire(Time(19)), 0);
        assert_eq!(timers.fire(Time(20)), 1);
        assert_eq!(complete(late), Some(()));
        assert_eq!(timers.next(), None);
    }
}
