//! A connection of TCP on a modelled wire: [`io::Stream`] with a buffer in each direction.
//!
//! Bytes go out as full packets and a last short one; acknowledgements are not modelled, because
//! the other direction of Ethernet is free for them. Nothing is lost, so the window is that of the
//! buffers.

use std::cell::{Cell, RefCell};
use std::io::{IoSlice, Result};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use io::{Clock, Cost};

use super::{FRAME_GAP_BYTES, Way};
use crate::world::{VirtualClock, World};

/// Headers of Ethernet, IP and TCP with time stamps.
const HEADER_BYTES: u64 = 14 + 20 + 32;
/// Of those, what the MTU includes.
const WITHIN_MTU: u64 = 52;
/// Bytes under way at most: usual buffers of sockets.
const BUFFER_BYTES: u64 = 4 << 20;

/// A packet; an empty one is the end.
pub(super) type Packet = Vec<u8>;

/// An end of a connection.
pub struct Pipe {
    clock: Rc<VirtualClock>,
    packet_bytes: u64,
    sends: Rc<Lane>,
    receives: Rc<Lane>,
    /// Bytes of the first packet that were read.
    read: Cell<usize>,
}

/// A direction, and the bytes in it.
struct Lane {
    way: Rc<Way<Packet>>,
    held: Cell<u64>,
    /// Waits for room.
    writer: RefCell<Option<Waker>>,
}

impl Pipe {
    /// Both ends of a connection over a wire of this rate in megabits per second.
    pub fn pair(world: &World, (megabits, delay_ns): (u64, u64), mtu: u32) -> [Pipe; 2] {
        let [there, back] = [(); 2].map(|()| {
            let way = Way::new(world, megabits, delay_ns);
            Rc::new(Lane { way, held: Cell::new(0), writer: RefCell::default() })
        });
        let pipe = |sends: &Rc<Lane>, receives: &Rc<Lane>| Pipe {
            clock: world.clock(),
            packet_bytes: u64::from(mtu).saturating_sub(WITHIN_MTU).max(1),
            sends: Rc::clone(sends),
            receives: Rc::clone(receives),
            read: Cell::new(0),
        };
        [pipe(&there, &back), pipe(&back, &there)]
    }

    /// The way from this end.
    pub(super) fn way(&self) -> Rc<Way<Packet>> {
        Rc::clone(&self.sends.way)
    }

    fn send(&self, bytes: Vec<u8>) {
        self.sends.held.set(self.sends.held.get() + bytes.len() as u64);
        self.clock.charge_frames(1);
        self.sends.way.send(bytes.len() as u64 + HEADER_BYTES + FRAME_GAP_BYTES, bytes);
    }
}

impl io::Stream for Pipe {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        let mut arrived = ready!(self.receives.way.poll_arrived(cx));
        let mut filled = 0;
        while filled < into.len()
            && let Some(packet) = arrived.front()
            && !packet.is_empty()
        {
            let left = &packet[self.read.get()..];
            let part = left.len().min(into.len() - filled);
            into[filled..filled + part].copy_from_slice(&left[..part]);
            filled += part;
            self.read.set(self.read.get() + part);
            if part == left.len() {
                self.read.set(0);
                self.clock.charge_frames(1);
                arrived.pop_front();
            }
        }
        self.clock.charge(Cost::Syscall, 0);
        self.receives.held.set(self.receives.held.get() - filled as u64);
        if let Some(waker) = self.receives.writer.take() {
            waker.wake();
        }
        Poll::Ready(Ok(filled))
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let room = BUFFER_BYTES.saturating_sub(self.sends.held.get()) as usize;
        let all: usize = bytes.iter().map(|part| part.len()).sum();
        if all == 0 {
            return Poll::Ready(Ok(0));
        }
        if room == 0 {
            self.sends.writer.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let mut taken = Vec::with_capacity(all.min(room));
        for part in bytes {
            let left = room - taken.len();
            taken.extend_from_slice(&part[..part.len().min(left)]);
        }
        self.clock.charge(Cost::Syscall, 0);
        taken.chunks(self.packet_bytes as usize).for_each(|part| self.send(part.to_vec()));
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_close(&self, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.send(Vec::new());
        Poll::Ready(Ok(()))
    }
}
