//! One port: frames in by batches, answers out by batches.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io::Result;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::{Frame, Link, Signal};

use super::Shared;

/// The most answers that wait for a port; more are dropped, and their clients ask again.
pub(super) const MAX_OUTBOX: usize = 4096;

pub(super) struct Port {
    pub(super) name: String,
    pub(super) link: Rc<dyn Link>,
    outbox: RefCell<VecDeque<Frame>>,
    filled: Signal,
}

impl Port {
    pub(super) fn new(name: String, link: Rc<dyn Link>) -> Port {
        Port { name, link, outbox: RefCell::default(), filled: Signal::new() }
    }

    /// Queues a frame; false if there are too many.
    pub(super) fn push(&self, frame: Frame) -> bool {
        let mut outbox = self.outbox.borrow_mut();
        if outbox.len() == MAX_OUTBOX {
            return false;
        }
        outbox.push_back(frame);
        let first = outbox.len() == 1;
        drop(outbox);
        if first {
            self.filled.raise();
        }
        true
    }
}

/// Serves a port until the target is stopped or the port is gone.
pub(super) async fn run(shared: &Rc<Shared>, port: &Rc<Port>) -> Result<()> {
    let mut receiving = pin!(receive(shared, port));
    let mut sending = pin!(send(port));
    let mut watching = pin!(watch(shared, port));
    let mut stopping = pin!(async {
        while !shared.stopped.get() {
            shared.stop.wait().await;
        }
    });
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = receiving.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        let _ = watching.as_mut().poll(cx);
        // Last, so that answers to this turn's frames go out in this turn.
        if let Poll::Ready(outcome) = sending.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        stopping.as_mut().poll(cx).map(|()| Ok(()))
    })
    .await
}

async fn receive(shared: &Rc<Shared>, port: &Rc<Port>) -> Result<()> {
    let mut frames = Vec::new();
    loop {
        poll_fn(|cx| port.link.poll_receive(cx, &mut frames)).await?;
        for frame in frames.drain(..) {
            shared.accept(port, &frame);
        }
        shared.start_noted();
        // Others get their turn; the waker is ready at once.
        let mut yielded = false;
        poll_fn(|cx| {
            if std::mem::replace(&mut yielded, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

async fn send(port: &Rc<Port>) -> Result<()> {
    loop {
        if port.outbox.borrow().is_empty() {
            port.filled.wait().await;
            continue;
        }
        poll_fn(|cx| {
            let mut outbox = port.outbox.borrow_mut();
            port.link.poll_send(cx, &mut outbox)
        })
        .await?;
    }
}

/// Announces the LUNs again whenever the port comes up or changes its MTU.
async fn watch(shared: &Rc<Shared>, port: &Rc<Port>) {
    let mut seen = port.link.state();
    loop {
        seen = poll_fn(|cx| port.link.poll_state(cx, seen)).await;
        if seen.up {
            shared.announce_all(port);
        }
    }
}
