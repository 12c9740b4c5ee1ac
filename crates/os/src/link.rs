//! Ethernet ports: a network interface, a tap device, a unix datagram socket.
//!
//! ```text
//!    Port ─┬ batch ──▶ recvmmsg / sendmmsg   interface (AF_PACKET), datagram socket
//!      │   └ ring ───▶ receive ring          interface with jumbo frames
//!      │               readv / writev        tap
//!      └── watch ────▶ rtnetlink: "something changed", then the state is read again
//! ```
//!
//! A frame is received with two pieces: its head, and an aligned buffer of a whole MTU for what
//! follows. The kernel copies each byte once; a buffer is used up only by a frame with data. Jumbo
//! frames of an interface are copied twice, which is cheaper: see `ring`.
//!
//! An interface's socket takes only the frames that a filter in the kernel lets through: of AoE,
//! for whom the port asks. Opening one needs CAP_NET_RAW, using it needs nothing.

mod batch;
mod open;
mod ring;
mod state;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Result;
use std::task::{Context, Poll};

use io::{Frame, Link, LinkState, Mac};
use rustix::io::Errno;

use self::batch::{Inbox, Outbox};
pub use self::open::{Filter, PortError, Role, interfaces};
use self::ring::ReceiveRing;
use self::state::StateSource;
use crate::reactor::source::{Direction, Watched};

/// A port of this machine.
pub struct Port {
    watched: Watched,
    wire: Wire,
    address: Mac,
    state: StateSource,
    ring: RefCell<ReceiveRing>,
    inbox: RefCell<Inbox>,
    outbox: RefCell<Outbox>,
}

/// What is behind a port's descriptor.
enum Wire {
    /// A packet socket, bound to an interface.
    Interface,
    /// A tap device: one frame a call.
    Tap,
    /// A datagram socket, and the address of the other end.
    Datagram(rustix::net::SocketAddrUnix),
}

impl Port {
    /// Receives a batch of frames, and says how many; 0, if all were for others.
    fn receive(&self, into: &mut Vec<Frame>) -> Result<usize> {
        let (own, mtu) = (self.address, self.state.now().mtu);
        let (mut ring, mut inbox) = (self.ring.borrow_mut(), self.inbox.borrow_mut());
        match self.wire {
            Wire::Tap => inbox.receive_one(&self.watched, own, into),
            Wire::Datagram(_) => inbox.receive(&self.watched, own, mtu, into),
            Wire::Interface if ring.is_used() => ring.receive(&self.watched, own, into),
            Wire::Interface => inbox.receive(&self.watched, own, mtu, into),
        }
    }

    /// True if the ring was made anew, so that there may be frames again.
    fn follow_mtu(&self) -> bool {
        let mtu = self.state.now().mtu;
        matches!(self.wire, Wire::Interface) && self.ring.borrow_mut().follow(&self.watched, mtu)
    }
}

impl Link for Port {
    fn address(&self) -> Mac {
        self.address
    }

    fn state(&self) -> LinkState {
        self.state.now()
    }

    fn poll_state(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        let changed = self.state.poll(cx, seen);
        if matches!(changed, Poll::Ready(now) if !now.up) {
            // If the interface was removed, `poll_receive` is to say so.
            cx.waker().wake_by_ref();
        }
        changed
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<Result<()>> {
        loop {
            match self.receive(into) {
                Ok(0) => {}
                Ok(_) => return Poll::Ready(Ok(())),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if self.follow_mtu() {
                        continue;
                    }
                    // The socket does not report the removal of an interface that was down before.
                    if !self.state.now().up && !self.state.exists() {
                        return Poll::Ready(Err(Errno::NODEV.into()));
                    }
                    self.watched.arm(Direction::Read, cx);
                    return Poll::Pending;
                }
                // An interface that was switched off says so once; frames come again when it is on.
                Err(_) if self.state.exists() => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_send(&self, cx: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<Result<()>> {
        let before = frames.len();
        while !frames.is_empty() {
            let mut outbox = self.outbox.borrow_mut();
            let sent = match &self.wire {
                Wire::Tap => outbox.send_one(&self.watched, &frames[0]),
                Wire::Interface => outbox.send(&self.watched, frames, None),
                Wire::Datagram(to) => outbox.send(&self.watched, frames, Some(to)),
            };
            match sent {
                Ok(count) => drop(frames.drain(..count)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    if frames.len() < before {
                        return Poll::Ready(Ok(()));
                    }
                    self.watched.arm(Direction::Write, cx);
                    return Poll::Pending;
                }
                // Down, full, too long, or nobody at the other end: the wire loses the frame.
                Err(_) if self.state.exists() => drop(frames.pop_front()),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}
