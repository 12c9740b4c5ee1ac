//! A wire in memory: the contract of [`Link`] made concrete, and the quickest wire to test with.
//!
//! Every frame arrives at once, in order, at every port that it is for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Result;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use crate::buf::Pool;
use crate::link::{ETHERNET_BYTES, Frame, HEAD_BYTES, Link, LinkState, MIN_FRAME_BYTES, Mac};

/// Frames of one [`Link::poll_receive`].
const BATCH: usize = 64;

/// A wire without ports.
#[derive(Clone, Default)]
pub struct MemWire(Rc<RefCell<Vec<Weak<MemLink>>>>);

/// A port of a [`MemWire`].
pub struct MemLink {
    wire: MemWire,
    address: Mac,
    state: Cell<LinkState>,
    arrived: RefCell<VecDeque<Frame>>,
    pool: Pool,
    receiver: RefCell<Option<Waker>>,
    watcher: RefCell<Option<Waker>>,
}

impl MemWire {
    /// A new wire.
    pub fn new() -> MemWire {
        MemWire::default()
    }

    /// A new port, up.
    pub fn port(&self, address: Mac, mtu: u32) -> Rc<MemLink> {
        let port = Rc::new(MemLink {
            wire: self.clone(),
            address,
            state: Cell::new(LinkState { up: true, mtu }),
            arrived: RefCell::default(),
            pool: Pool::new(0),
            receiver: RefCell::default(),
            watcher: RefCell::default(),
        });
        self.0.borrow_mut().push(Rc::downgrade(&port));
        port
    }
}

impl MemLink {
    /// Puts the port into another state.
    pub fn set_state(&self, state: LinkState) {
        self.state.set(state);
        if let Some(waker) = self.watcher.take() {
            waker.wake();
        }
    }

    /// Lets a frame of these bytes arrive at this port, padded if it is short.
    pub fn deliver(&self, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        bytes.resize(bytes.len().max(MIN_FRAME_BYTES), 0);
        let (head, body) = bytes.split_first_chunk::<HEAD_BYTES>().expect("padded to more");
        let frame = Frame::with_body(*head, self.pool.copy_of(body).freeze());
        self.arrived.borrow_mut().push_back(frame);
        if let Some(waker) = self.receiver.take() {
            waker.wake();
        }
    }

    fn takes(&self, frame: &[u8]) -> bool {
        let LinkState { up, mtu } = self.state.get();
        let destination = frame.first_chunk::<6>().map(|bytes| Mac(*bytes));
        let is_for_us = destination.is_some_and(|it| it == self.address || it.is_group());
        up && is_for_us && frame.len() <= mtu as usize + ETHERNET_BYTES
    }
}

impl Link for MemLink {
    fn address(&self) -> Mac {
        self.address
    }

    fn state(&self) -> LinkState {
        self.state.get()
    }

    fn poll_state(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        if self.state.get() != seen {
            return Poll::Ready(self.state.get());
        }
        self.watcher.replace(Some(cx.waker().clone()));
        Poll::Pending
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<Result<()>> {
        let mut arrived = self.arrived.borrow_mut();
        if arrived.is_empty() {
            self.receiver.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let count = arrived.len().min(BATCH);
        into.extend(arrived.drain(..count));
        Poll::Ready(Ok(()))
    }

    fn poll_send(&self, _: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<Result<()>> {
        let LinkState { up, mtu } = self.state.get();
        for frame in frames.drain(..) {
            if !up || frame.bytes() > mtu as usize + ETHERNET_BYTES {
                continue;
            }
            let bytes = frame.to_vec();
            let ports: Vec<_> = self.wire.0.borrow().iter().filter_map(Weak::upgrade).collect();
            for port in ports {
                if port.address != self.address && port.takes(&bytes) {
                    port.deliver(&bytes);
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(all(test, feature = "contract"))]
mod tests {
    use super::*;
    use crate::contract;
    use crate::tasks::complete;

    #[test]
    fn keeps_the_contract() {
        let wire = MemWire::new();
        let (a, b) = (wire.port(Mac([2, 0, 0, 0, 0, 1]), 1500), wire.port(Mac([2; 6]), 1500));
        complete(contract::link(&*a, &*b)).expect("a wire in memory never waits");
    }
}
