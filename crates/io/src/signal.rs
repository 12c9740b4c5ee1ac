//! Waiting for something that changes: the simplest wait list.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Wakes all waiters each time it is raised. Single-threaded.
///
/// Use it as a condition variable: `while !ready() { signal.wait().await }`.
#[derive(Default)]
pub struct Signal {
    raised: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
}

impl Signal {
    /// A signal without waiters.
    pub fn new() -> Signal {
        Signal::default()
    }

    /// Wakes all current waiters.
    pub fn raise(&self) {
        self.raised.set(self.raised.get() + 1);
        // The list's room is kept for the next round: waiting allocates nothing once warm.
        let mut woken = self.waiting.take();
        for waker in woken.drain(..) {
            waker.wake();
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            *waiting = woken;
        }
    }

    /// Completes at the next [`raise`](Signal::raise) after this call.
    pub fn wait(&self) -> Wait<'_> {
        Wait { signal: self, seen: self.raised.get() }
    }
}

/// The turn of one task; it ends when this is dropped, so that no early return keeps it. Tasks that
/// wait for their turn wait for the signal.
///
/// ```text
///   let turn = loop {
///       match Turn::take(&taken, &changed) {
///           Some(turn) => break turn,
///           None => changed.wait().await,
///       }
///   };
/// ```
#[must_use = "the turn ends when this is dropped"]
pub struct Turn<'a> {
    taken: &'a Cell<bool>,
    changed: &'a Signal,
}

impl<'a> Turn<'a> {
    /// Takes the turn, unless another task has it.
    pub fn take(taken: &'a Cell<bool>, changed: &'a Signal) -> Option<Turn<'a>> {
        // Lazily: a turn that is dropped ends.
        (!taken.replace(true)).then(|| Turn { taken, changed })
    }

    /// The turn that `taken` was created with, for the one task meant to have it; `None` if it is
    /// free.
    pub fn adopt(taken: &'a Cell<bool>, changed: &'a Signal) -> Option<Turn<'a>> {
        taken.get().then(|| Turn { taken, changed })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.taken.set(false);
        self.changed.raise();
    }
}

/// See [`Signal::wait`].
#[must_use = "a future does nothing unless awaited"]
pub struct Wait<'a> {
    signal: &'a Signal,
    seen: u64,
}

impl Future for Wait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal.raised.get() != self.seen {
            return Poll::Ready(());
        }
        let mut waiting = self.signal.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_turn_leaves_the_turn_to_its_owner() {
        let (taken, changed) = (Cell::new(false), Signal::new());
        let turn = Turn::take(&taken, &changed).expect("the first");
        assert!(Turn::take(&taken, &changed).is_none());
        assert!(taken.get() && Turn::take(&taken, &changed).is_none());
        drop(turn);
        assert!(Turn::adopt(&taken, &changed).is_none(), "free");
        assert!(Turn::take(&taken, &changed).is_some());
    }
}
