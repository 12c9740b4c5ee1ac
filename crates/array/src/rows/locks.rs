//! Concurrency: locks on rows, granted in order of arrival, and the barrier that a membership
//! change closes.
//!
//! A request locks a rectangle: a run of stripes × a range of offsets in their chunks. Two requests
//! that share a row wait for each other even if their data does not overlap, because they share its
//! parity; two that touch different rows of one stripe do not.
//!
//! ```text
//!    stripe  7   8   9
//!   offset ┌───┬───┬───┐
//!          │ A │   │   │   A and B: different rows, parallel
//!          ├───┼───┼───┤
//!          │ B │   │   │   C shares rows with A and B: waits for both
//!          │   │   │   │
//!          ├───┴───┴───┤
//!          └─────C─────┘   C = stripes 7..=9, all offsets
//! ```
//!
//! The mirror levels, which have no rows, use stripe 0 and array offsets.
//!
//! Invariant: a claim is granted exactly when no earlier claim that conflicts with it is left.
//!
//! # The barrier
//!
//! Separates epochs. A unit enters the barrier before it reads the view. To change the membership,
//! the keeper closes the barrier: no unit can enter. The units inside end, or park because they
//! need the change. The shard is *still* when all have ended or parked. Then the keeper makes the
//! change and opens the barrier with a new view.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::Signal;

/// The rows that a request locks: stripes `first..=last`, offsets `start..end` of each of their
/// chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rows {
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Rows {
    fn conflicts(&self, other: &Rows) -> bool {
        self.first <= other.last
            && other.first <= self.last
            && self.start < other.end
            && other.start < self.end
    }
}

/// The locks of one shard.
#[derive(Default)]
pub(crate) struct Locks {
    /// Every claim, held or waiting, in order of arrival.
    claims: RefCell<Vec<Entry>>,
    next: Cell<u64>,
}

struct Entry {
    id: u64,
    rows: Rows,
    waker: Option<Waker>,
}

/// A place in the queue for some rows. As a future it completes when they are locked. Dropping it
/// unlocks them.
#[must_use = "dropping a claim unlocks"]
pub(crate) struct Claim {
    locks: Rc<Locks>,
    id: u64,
}

impl Locks {
    /// Queues for these rows. The order of calls is the order of grants.
    pub(crate) fn claim(self: &Rc<Locks>, rows: Rows) -> Claim {
        assert!(rows.first <= rows.last && rows.start < rows.end, "a lock of nothing: {rows:?}");
        let id = self.next.replace(self.next.get() + 1);
        self.claims.borrow_mut().push(Entry { id, rows, waker: None });
        Claim { locks: Rc::clone(self), id }
    }

    /// The number of claims held or waiting.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.claims.borrow().len()
    }
}

/// The position of claim `id`, and whether no earlier claim conflicts with it.
fn granted(claims: &[Entry], id: u64) -> (usize, bool) {
    let at = claims.iter().position(|entry| entry.id == id).expect("a claim is queued until drop");
    let rows = claims[at].rows;
    (at, !claims[..at].iter().any(|earlier| earlier.rows.conflicts(&rows)))
}

impl Future for &Claim {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut claims = self.locks.claims.borrow_mut();
        let (at, granted) = granted(&claims, self.id);
        if granted {
            return Poll::Ready(());
        }
        claims[at].waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut claims = self.locks.claims.borrow_mut();
        let at = claims.iter().position(|entry| entry.id == self.id);
        let gone = claims.remove(at.expect("a claim is queued until drop"));
        // Waiting claims check again; they may still conflict with other claims.
        let mut woken = at.unwrap_or(0);
        while woken < claims.len() {
            if claims[woken].waker.is_some() && claims[woken].rows.conflicts(&gone.rows) {
                let waker = claims[woken].waker.take();
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            woken += 1;
        }
    }
}

#[derive(Default)]
pub(crate) struct Barrier {
    closed: Cell<bool>,
    inside: Cell<usize>,
    parked: Cell<usize>,
    opened: Signal,
    /// The task that closed the barrier and waits for stillness.
    closer: RefCell<Option<Waker>>,
}

/// A unit's presence inside the barrier.
pub(crate) struct Inside<'a> {
    gate: &'a Barrier,
}

impl Barrier {
    /// Waits until the barrier is open, and enters.
    pub(crate) async fn enter(&self) -> Inside<'_> {
        while self.closed.get() {
            self.opened.wait().await;
        }
        self.inside.set(self.inside.get() + 1);
        Inside { gate: self }
    }

    /// Closes the barrier: no unit can enter.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.wake_closer();
    }

    /// True if the barrier is closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Completes when the barrier opens next.
    pub(crate) async fn opening(&self) {
        self.opened.wait().await;
    }

    /// True if the barrier is closed and every unit inside is parked.
    pub(crate) fn is_quiesced(&self) -> bool {
        self.closed.get() && self.inside.get() == self.parked.get()
    }

    /// Completes when the barrier is still.
    pub(crate) async fn wait_quiesced(&self) {
        std::future::poll_fn(|cx| {
            if self.is_quiesced() {
                return std::task::Poll::Ready(());
            }
            *self.closer.borrow_mut() = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }

    /// Opens the barrier; parked units continue.
    pub(crate) fn open(&self) {
        self.closed.set(false);
        // They are in flight again from here on, even before they are polled.
        self.parked.set(0);
        self.opened.raise();
    }

    fn wake_closer(&self) {
        if self.is_quiesced()
            && let Some(waker) = self.closer.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

impl Inside<'_> {
    /// Parks until `until` holds. It is checked each time the barrier opens.
    pub(crate) async fn park(&self, until: impl Fn() -> bool) {
        while !until() {
            let opened = self.gate.opened.wait();
            self.gate.parked.set(self.gate.parked.get() + 1);
            let all = self.gate.parked.get() <= self.gate.inside.get();
            assert!(all, "the gate would seem still while someone moves inside");
            self.gate.wake_closer();
            opened.await;
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let inside = self.gate.inside.get();
        assert!(inside > 0, "a unit leaves the barrier without having entered");
        self.gate.inside.set(inside - 1);
        self.gate.wake_closer();
    }
}

#[cfg(test)]
mod tests {
    use io::tasks::{complete, poll_once};
    use std::pin::pin;

    use super::*;

    fn rows(stripe: u64, start: u64, end: u64) -> Rows {
        Rows { first: stripe, last: stripe, start, end }
    }

    #[test]
    fn different_rows_of_one_stripe_are_locked_at_once() {
        let locks = Rc::new(Locks::default());
        let a = locks.claim(rows(7, 0, 512));
        let b = locks.claim(rows(7, 512, 1024));
        let other_stripe = locks.claim(rows(8, 0, 512));
        assert!(poll_once(&a).is_some());
        assert!(poll_once(&b).is_some());
        assert!(poll_once(&other_stripe).is_some());
    }

    #[test]
    fn overlapping_rows_are_granted_in_order_of_arrival() {
        let locks = Rc::new(Locks::default());
        let first = locks.claim(rows(7, 0, 512));
        let wide = locks.claim(Rows { first: 6, last: 9, start: 0, end: 4096 });
        let late = locks.claim(rows(7, 1024, 1536));
        assert!(poll_once(&first).is_some());
        assert!(poll_once(&wide).is_none());
        assert!(poll_once(&late).is_none(), "must not overtake the wide one");
        drop(first);
        assert!(poll_once(&wide).is_some());
        assert!(poll_once(&late).is_none());
        drop(wide);
        assert!(poll_once(&late).is_some());
        drop(late);
        assert_eq!(locks.len(), 0);
    }

    #[test]
    fn a_waiter_that_gives_up_lets_others_through() {
        let locks = Rc::new(Locks::default());
        let first = locks.claim(rows(1, 0, 10));
        let wide = locks.claim(rows(1, 0, 20));
        let late = locks.claim(rows(1, 10, 20));
        assert!(poll_once(&late).is_none());
        drop(wide);
        assert!(poll_once(&late).is_some());
        drop(first);
    }

    #[test]
    fn closing_waits_for_those_inside_unless_they_are_parked() {
        let gate = Barrier::default();
        let a = complete(gate.enter()).expect("open");
        let b = complete(gate.enter()).expect("open");
        gate.close();
        assert!(poll_once(pin!(gate.enter())).is_none());
        assert!(!gate.is_quiesced());
        drop(a);
        let changed = Cell::new(false);
        let mut parked = pin!(b.park(|| changed.get()));
        assert!(poll_once(&mut parked).is_none());
        assert!(gate.is_quiesced());
        changed.set(true);
        gate.open();
        assert!(poll_once(&mut parked).is_some());
        assert!(complete(gate.enter()).is_some());
    }
}
