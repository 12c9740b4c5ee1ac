//! The room of one listener: its connections, and apart from them the handshakes.
//!
//! A peer needs no permission to begin a handshake, so handshakes cannot be allowed to take the
//! places of clients. They have places of their own, and when those are full the oldest handshake
//! is dropped for the new one. Listeners are counted apart: whatever comes over the network, the
//! places of a unix socket stay free.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::Signal;

#[derive(Default)]
pub(crate) struct Gate {
    /// Connections in transmission.
    inside: Cell<usize>,
    /// Handshakes in progress, the oldest first.
    outside: RefCell<VecDeque<Rc<Fate>>>,
}

/// Whether a handshake may go on.
#[derive(Default)]
struct Fate {
    dropped: Cell<bool>,
    raised: Signal,
}

impl Gate {
    /// True if one more connection in transmission stays within `most`.
    pub(crate) fn has_room(&self, most: usize) -> bool {
        self.inside.get() < most
    }

    /// Begins a handshake; if `most` are in progress, drops the oldest.
    pub(crate) fn begin_handshake(self: &Rc<Self>, most: usize) -> HandshakeSlot {
        let mut outside = self.outside.borrow_mut();
        while outside.len() >= most.max(1) {
            if let Some(oldest) = outside.pop_front() {
                oldest.dropped.set(true);
                oldest.raised.raise();
            }
        }
        let fate = Rc::new(Fate::default());
        outside.push_back(Rc::clone(&fate));
        HandshakeSlot { gate: Rc::clone(self), fate }
    }
}

/// A handshake's place, given back when dropped.
pub(crate) struct HandshakeSlot {
    gate: Rc<Gate>,
    fate: Rc<Fate>,
}

impl HandshakeSlot {
    /// The outcome of the handshake, or nothing when it is dropped for another.
    pub(crate) async fn unless_dropped<T>(&self, handshake: impl Future<Output = T>) -> Option<T> {
        let mut handshake = std::pin::pin!(handshake);
        let mut raised = self.fate.raised.wait();
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if self.fate.dropped.get() {
                return Poll::Ready(None);
            }
            match handshake.as_mut().poll(cx) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => Pin::new(&mut raised).poll(cx).map(|()| None),
            }
        })
        .await
    }

    /// Goes from the handshake into transmission, if there is a place among `most`.
    pub(crate) fn enter(self, most: usize) -> Option<Inside> {
        let gate = Rc::clone(&self.gate);
        if !gate.has_room(most) {
            return None;
        }
        gate.inside.set(gate.inside.get() + 1);
        Some(Inside(gate))
    }
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        self.gate.outside.borrow_mut().retain(|fate| !Rc::ptr_eq(fate, &self.fate));
    }
}

/// A connection's place, given back when dropped.
pub(crate) struct Inside(Rc<Gate>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.inside.set(self.0.inside.get() - 1);
    }
}
