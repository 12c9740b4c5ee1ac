//! Networks between clients and an array: modelled wires under the project's own protocols.
//!
//! ```text
//!   clients ─▶ Initiator ─▶ Port ══ Way ══▶ Port ─▶ Target ─▶ array     AoE, one wire or more
//!   clients ─▶ RemoteDisk ─▶ Pipe ══ Way ══▶ Pipe ─▶ Server ─▶ array    NBD over TCP, one wire
//! ```
//!
//! A wire is two ways: Ethernet is full duplex. A way carries one frame after the other at its
//! rate, and loses none. The ends charge every frame to the core that sends or receives it.

mod ethernet;
mod remote;
mod stream;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::{Clock, Time};

pub use self::ethernet::Port;
pub use self::remote::{Protocol, Reached, Spec, reach};
pub use self::stream::Pipe;

use crate::world::{Agenda, Station, VirtualClock, World};

/// What Ethernet adds to a frame: 4 bytes of checksum, 8 of preamble, 12 of gap.
pub const FRAME_GAP_BYTES: u64 = 24;

/// How long each direction of a link was busy since the start, in nanoseconds.
pub type Busy = [Rc<dyn Fn() -> u64>; 2];

/// One direction of a wire.
pub struct Way<T> {
    clock: Rc<VirtualClock>,
    agenda: Agenda,
    /// Of one byte.
    picoseconds: u64,
    /// From the end of a frame at one end to its arrival at the other.
    delay_ns: u64,
    /// When the last frame has left.
    free_at: Cell<Time>,
    busy_ns: Cell<u64>,
    under_way: RefCell<VecDeque<(Time, T)>>,
    arrived: RefCell<VecDeque<T>>,
    receiver: RefCell<Option<Waker>>,
}

impl<T: 'static> Way<T> {
    /// A way of this rate in megabits per second.
    ///
    /// # Panics
    /// If the rate is 0.
    pub fn new(world: &World, megabits: u64, delay_ns: u64) -> Rc<Way<T>> {
        assert!(megabits > 0, "a wire has a rate");
        world.add(|agenda| Way {
            clock: world.clock(),
            agenda,
            picoseconds: 8_000_000 / megabits,
            delay_ns,
            free_at: Cell::default(),
            busy_ns: Cell::new(0),
            under_way: RefCell::default(),
            arrived: RefCell::default(),
            receiver: RefCell::default(),
        })
    }

    /// Queues a frame that takes so many bytes of the wire.
    fn send(&self, bytes: u64, frame: T) {
        let time = bytes * self.picoseconds / 1000;
        let end = Time(self.clock.now().max(self.free_at.get()).0 + time);
        self.free_at.set(end);
        self.busy_ns.set(self.busy_ns.get() + time);
        let at = Time(end.0 + self.delay_ns);
        self.under_way.borrow_mut().push_back((at, frame));
        self.agenda.schedule(at);
    }

    /// Ready when something has arrived.
    fn poll_arrived(&self, cx: &mut Context<'_>) -> Poll<std::cell::RefMut<'_, VecDeque<T>>> {
        let arrived = self.arrived.borrow_mut();
        if arrived.is_empty() {
            self.receiver.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(arrived)
    }

    /// How long it has carried frames since the start, with those that it has taken in.
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.get()
    }
}

impl<T> Station for Way<T> {
    fn next_event(&self) -> Option<Time> {
        self.under_way.borrow().front().map(|(at, _)| *at)
    }

    fn advance(&self, now: Time) {
        let mut under_way = self.under_way.borrow_mut();
        let due = under_way.partition_point(|(at, _)| *at <= now);
        self.arrived.borrow_mut().extend(under_way.drain(..due).map(|(_, frame)| frame));
        if due > 0
            && let Some(waker) = self.receiver.take()
        {
            waker.wake();
        }
    }
}
