//! A port of Ethernet: [`io::Link`] on a modelled wire.

use std::collections::VecDeque;
use std::io::Result;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use io::link::{ETHERNET_BYTES, MIN_FRAME_BYTES};
use io::{Clock, Cost, Frame, Link, LinkState, Mac};

use super::{FRAME_GAP_BYTES, Way};
use crate::world::{VirtualClock, World};

/// Frames of one [`Link::poll_receive`].
const BATCH: usize = 64;

/// An end of a wire with two ends. It stays up, and loses nothing.
pub struct Port {
    clock: Rc<VirtualClock>,
    address: Mac,
    mtu: u32,
    sends: Rc<Way<Frame>>,
    receives: Rc<Way<Frame>>,
}

impl Port {
    /// Both ends of a wire of this rate in megabits per second.
    pub fn pair(
        world: &World,
        (megabits, delay_ns): (u64, u64),
        mtu: u32,
        addresses: [Mac; 2],
    ) -> [Rc<Port>; 2] {
        let [there, back] = [(); 2].map(|()| Way::new(world, megabits, delay_ns));
        let port = |address, sends: &Rc<Way<Frame>>, receives: &Rc<Way<Frame>>| {
            let (sends, receives) = (Rc::clone(sends), Rc::clone(receives));
            Rc::new(Port { clock: world.clock(), address, mtu, sends, receives })
        };
        [port(addresses[0], &there, &back), port(addresses[1], &back, &there)]
    }

    /// The way from this port.
    pub fn way(&self) -> &Rc<Way<Frame>> {
        &self.sends
    }

    /// A frame in the core's hands: a call, and a copy between kernel and program.
    fn charge(&self, frame: &Frame) {
        self.clock.charge_frames(1);
        self.clock.charge(Cost::Copy, frame.bytes() as u64);
    }

    fn fits(&self, frame: &Frame) -> bool {
        frame.bytes() <= self.mtu as usize + ETHERNET_BYTES
    }

    fn is_for_us(&self, frame: &Frame) -> bool {
        let destination = frame.head().first_chunk::<6>().map(|bytes| Mac(*bytes));
        destination.is_some_and(|it| it == self.address || it.is_group())
    }
}

/// Filled with zeros to the shortest frame.
fn padded(frame: Frame) -> Frame {
    if frame.bytes() >= MIN_FRAME_BYTES {
        return frame;
    }
    let mut bytes = frame.to_vec();
    bytes.resize(MIN_FRAME_BYTES, 0);
    Frame::new(&bytes)
}

impl Link for Port {
    fn address(&self) -> Mac {
        self.address
    }

    fn state(&self) -> LinkState {
        LinkState { up: true, mtu: self.mtu }
    }

    fn poll_state(&self, _: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        if self.state() == seen { Poll::Pending } else { Poll::Ready(self.state()) }
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<Result<()>> {
        let before = into.len();
        while into.len() == before {
            let mut arrived = ready!(self.receives.poll_arrived(cx));
            let count = arrived.len().min(BATCH);
            let mine = arrived.drain(..count).filter(|it| self.is_for_us(it) && self.fits(it));
            into.extend(mine);
        }
        into[before..].iter().for_each(|frame| self.charge(frame));
        Poll::Ready(Ok(()))
    }

    fn poll_send(&self, _: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<Result<()>> {
        for frame in frames.drain(..) {
            if self.fits(&frame) {
                let frame = padded(frame);
                self.charge(&frame);
                self.sends.send(frame.bytes() as u64 + FRAME_GAP_BYTES, frame);
            }
        }
        Poll::Ready(Ok(()))
    }
}
