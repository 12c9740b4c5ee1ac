//! Time that jumps when no task is ready, and the tasks.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use array::Array;
use io::{Clock, Completion, Cost, Time, Timers};
use metadata::commit::Random;

/// Polls after which something must have happened.
const MOST_POLLS: u32 = 500_000;

/// Something has happened: it is worth asking again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The clock.
#[derive(Default)]
pub(super) struct JumpClock {
    now: Cell<u64>,
    timers: Timers,
}

impl Clock for JumpClock {
    fn now(&self) -> Time {
        Time(self.now.get())
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        if at <= self.now() { Completion::ready(()) } else { self.timers.sleep_until(at) }
    }

    fn unix_micros(&self) -> u64 {
        1_700_000_000_000_000 + self.now.get() / 1000
    }

    fn charge(&self, _: Cost, _: u64) {}
}

/// A clock and a source of numbers that look like chance.
#[derive(Clone, Default)]
pub(super) struct World {
    clock: Rc<JumpClock>,
    chance: Rc<Cell<u64>>,
}

impl World {
    pub(super) fn clock(&self) -> Rc<dyn Clock> {
        Rc::clone(&self.clock) as _
    }

    pub(super) fn random(&self) -> Random {
        let chance = Rc::clone(&self.chance);
        Rc::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                let next = chance.get().wrapping_mul(6_364_136_223_846_793_005);
                chance.set(next.wrapping_add(1_442_695_040_888_963_407));
                *byte = (chance.get() >> 33) as u8;
            }
        })
    }

    /// Waits for something that needs no array.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        let outcome = self.poll(MOST_POLLS, |cx| future.as_mut().poll(cx));
        outcome.expect("it never ends")
    }

    /// Runs the array until the future completes.
    pub(super) fn run<T>(&self, array: &Array, future: impl Future<Output = T>) -> T {
        self.run_for(MOST_POLLS, array, future).expect("a request is never answered")
    }

    /// Runs the array until the future completes, or for this many polls.
    pub(super) fn run_for<T>(
        &self,
        polls: u32,
        array: &Array,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let (mut future, mut run) = (pin!(future), pin!(array.run()));
        let mut stopped = false;
        self.poll(polls, |cx| {
            let poll = future.as_mut().poll(cx);
            if poll.is_pending() && !stopped {
                stopped = run.as_mut().poll(cx).is_ready();
                return future.as_mut().poll(cx);
            }
            poll
        })
    }

    fn poll<T>(&self, polls: u32, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Option<T> {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        for _ in 0..polls {
            if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
                return Some(value);
            }
            if !woken.0.swap(false, Ordering::Relaxed)
                && let Some(next) = self.clock.timers.next()
            {
                let now = self.clock.now.get().max(next.0);
                self.clock.now.set(now);
                self.clock.timers.fire(Time(now));
            }
        }
        None
    }
}
