//! One port of ours: frames out by batches, answers in by batches, changes of its state.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::Error;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::{Frame, Link, LinkState};

use super::Shared;

pub(super) struct Port {
    pub(super) link: Rc<dyn Link>,
    pub(super) outbox: RefCell<VecDeque<Frame>>,
    pub(super) state: Cell<LinkState>,
    /// It has ended and will not return.
    pub(super) gone: Cell<bool>,
}

impl Port {
    pub(super) fn new(link: Rc<dyn Link>) -> Port {
        let state = Cell::new(link.state());
        Port { link, outbox: RefCell::default(), state, gone: Cell::new(false) }
    }

    /// True if it carries frames.
    pub(super) fn is_up(&self) -> bool {
        self.state.get().up && !self.gone.get()
    }
}

/// Runs a port until it is gone, and says why it is.
pub(super) async fn run(shared: &Shared, port: usize) -> Error {
    let mut receiving = pin!(receive(shared, port));
    let mut sending = pin!(send(shared, port));
    let mut watching = pin!(watch(shared, port));
    let error = poll_fn(|cx| {
        if let Poll::Ready(error) = receiving.as_mut().poll(cx) {
            return Poll::Ready(error);
        }
        let _ = watching.as_mut().poll(cx);
        // Last: what was made in this turn goes out in this turn.
        sending.as_mut().poll(cx)
    })
    .await;
    shared.ports[port].gone.set(true);
    shared.port_changed(port);
    error
}

async fn receive(shared: &Shared, port: usize) -> Error {
    let mut frames = Vec::new();
    loop {
        let received = poll_fn(|cx| shared.ports[port].link.poll_receive(cx, &mut frames)).await;
        for frame in frames.drain(..) {
            shared.accept(port, &frame);
        }
        if let Err(error) = received {
            return error;
        }
        shared.submitted.raise();
    }
}

async fn send(shared: &Shared, port: usize) -> Error {
    let Port { link, outbox, .. } = &shared.ports[port];
    loop {
        shared.pump();
        if outbox.borrow().is_empty() {
            shared.submitted.wait().await;
            continue;
        }
        let sent = poll_fn(|cx| {
            // A frame that was answered meanwhile may have left the outbox.
            let mut frames = outbox.borrow_mut();
            if frames.is_empty() { Poll::Ready(Ok(())) } else { link.poll_send(cx, &mut frames) }
        });
        if let Err(error) = sent.await {
            return error;
        }
    }
}

/// Follows the state of a port.
async fn watch(shared: &Shared, port: usize) {
    let Port { link, state, .. } = &shared.ports[port];
    loop {
        let now = poll_fn(|cx| link.poll_state(cx, state.get())).await;
        state.set(now);
        shared.port_changed(port);
    }
}
