//! The barrier between epochs.
//!
//! Units go through the gate before they look at the view. To change the membership the keeper
//! closes the gate: no unit enters; those inside end, or park because they need the change. When
//! all are parked or gone the shard is *still*, the change may be made, and the gate opens with a
//! new view.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use io::Signal;

#[derive(Default)]
pub(crate) struct Barrier {
    closed: Cell<bool>,
    inside: Cell<usize>,
    parked: Cell<usize>,
    opened: Signal,
    /// Who closed the gate and waits for stillness.
    closer: RefCell<Option<Waker>>,
}

/// The presence of a unit inside the gate.
pub(crate) struct Inside<'a> {
    gate: &'a Barrier,
}

impl Barrier {
    /// Waits until the gate is open, and enters.
    pub(crate) async fn enter(&self) -> Inside<'_> {
        while self.closed.get() {
            self.opened.wait().await;
        }
        self.inside.set(self.inside.get() + 1);
        Inside { gate: self }
    }

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        self.settle();
    }

    /// True if nobody gets in at the moment.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Completes when the gate opens next.
    pub(crate) async fn opening(&self) {
        self.opened.wait().await;
    }

    /// True if nobody moves inside.
    pub(crate) fn is_still(&self) -> bool {
        self.closed.get() && self.inside.get() == self.parked.get()
    }

    /// Completes when nobody moves inside.
    pub(crate) async fn still(&self) {
        std::future::poll_fn(|cx| {
            if self.is_still() {
                return std::task::Poll::Ready(());
            }
            *self.closer.borrow_mut() = Some(cx.waker().clone());
            std::task::Poll::Pending
        })
        .await;
    }

    /// Opens the gate; the parked go on.
    pub(crate) fn open(&self) {
        self.closed.set(false);
        // They move again from here on, even if they have not been polled yet.
        self.parked.set(0);
        self.opened.raise();
    }

    fn settle(&self) {
        if self.is_still()
            && let Some(waker) = self.closer.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

impl Inside<'_> {
    /// Waits inside until `until` holds: asked each time the gate opens.
    pub(crate) async fn park(&self, until: impl Fn() -> bool) {
        while !until() {
            let opened = self.gate.opened.wait();
            self.gate.parked.set(self.gate.parked.get() + 1);
            self.gate.settle();
            opened.await;
        }
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.gate.inside.set(self.gate.inside.get() - 1);
        self.gate.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use io::tasks::{complete, poll_once};

    use super::*;

    #[test]
    fn closing_waits_for_those_inside_unless_they_are_parked() {
        let gate = Barrier::default();
        let a = complete(gate.enter()).expect("open");
        let b = complete(gate.enter()).expect("open");
        gate.close();
        assert!(poll_once(pin!(gate.enter())).is_none());
        assert!(!gate.is_still());
        drop(a);
        let changed = Cell::new(false);
        let mut parked = pin!(b.park(|| changed.get()));
        assert!(poll_once(&mut parked).is_none());
        assert!(gate.is_still());
        changed.set(true);
        gate.open();
        assert!(poll_once(&mut parked).is_some());
        assert!(complete(gate.enter()).is_some());
    }
}
