//! Simulated wires: frames that are lost, repeated, late and reordered.
//!
//! ```text
//!   port ──▶ weather ──▶ in the wire, for at most LIFETIME ──▶ every port that it is for
//!              │ lost, repeated
//!   port.down, mtu, wire.cut: dropped
//! ```
//!
//! Owns the frames on their way. Frames that are not late take the same time, so that they keep
//! their order.
//!
//! Invariant: a frame arrives less than [`net::aoe::FRAME_LIFETIME`] after it was sent, or never.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io::Result;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use io::{Clock, Frame, Link, LinkState, Mac, MemLink, MemWire, Signal, Time};

use crate::clock::SimClock;
use random::Rng;

/// The most that a frame takes from port to port: a little less than the bound that the protocols
/// rely on, which begins before the port.
pub const LIFETIME: Duration = net::aoe::FRAME_LIFETIME.saturating_sub(Duration::from_millis(100));
/// The time of a frame that is not late.
const USUAL: Duration = Duration::from_micros(30);

/// How a wire treats frames, each in a thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// Frames that do not arrive.
    pub lost: u64,
    /// Frames that arrive twice.
    pub repeated: u64,
    /// Frames that take longer than others, up to [`LIFETIME`].
    pub late: u64,
    /// Frames above so many bytes do not arrive either; 0: any size does.
    pub hole: u64,
}

/// One wire.
pub struct SimWire {
    clock: Rc<SimClock>,
    rng: RefCell<Rng>,
    weather: Cell<Weather>,
    cut: Cell<bool>,
    /// Frames on their way, by when they arrive and when they were sent.
    flights: RefCell<BTreeMap<(Time, u64), (Mac, Frame)>>,
    order: Cell<u64>,
    ports: RefCell<Vec<Weak<SimLink>>>,
    sent: Signal,
}

/// A port of a [`SimWire`].
pub struct SimLink {
    wire: Rc<SimWire>,
    /// What has arrived, and the state: a port of a wire that nothing else is on.
    port: Rc<MemLink>,
}

impl SimWire {
    /// A wire without ports and faults; [`SimWire::carry`] must be driven.
    pub fn new(clock: &Rc<SimClock>, rng: Rng) -> Rc<SimWire> {
        Rc::new(SimWire {
            clock: Rc::clone(clock),
            rng: RefCell::new(rng),
            weather: Cell::default(),
            cut: Cell::new(false),
            flights: RefCell::default(),
            order: Cell::new(0),
            ports: RefCell::default(),
            sent: Signal::new(),
        })
    }

    /// A new port, up.
    pub fn port(self: &Rc<Self>, address: Mac, mtu: u32) -> Rc<SimLink> {
        let port = MemWire::new().port(address, mtu);
        let link = Rc::new(SimLink { wire: Rc::clone(self), port });
        self.ports.borrow_mut().push(Rc::downgrade(&link));
        link
    }

    /// Treats frames like this from now on.
    pub fn set_weather(&self, weather: Weather) {
        self.weather.set(weather);
    }

    /// Drops every frame, and no port notices; or not.
    pub fn set_cut(&self, cut: bool) {
        self.cut.set(cut);
    }

    /// Frames on their way.
    pub fn in_flight(&self) -> usize {
        self.flights.borrow().len()
    }

    /// Carries frames, for ever.
    pub fn carry(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        let wire = Rc::clone(self);
        async move {
            loop {
                let next = wire.flights.borrow().first_key_value().map(|(&(at, _), _)| at);
                match next {
                    Some(at) if at <= wire.clock.now() => wire.deliver(),
                    Some(at) => wire.wait_until(at).await,
                    None => wire.sent.wait().await,
                }
            }
        }
    }

    /// Until then, or until a frame was sent, which may be due sooner.
    async fn wait_until(&self, at: Time) {
        let mut alarm = pin!(self.clock.sleep_until(at));
        let mut sent = pin!(self.sent.wait());
        poll_fn(|cx| match sent.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => alarm.as_mut().poll(cx),
        })
        .await;
    }

    fn deliver(&self) {
        let Some((_, (source, frame))) = self.flights.borrow_mut().pop_first() else { return };
        let bytes = frame.to_vec();
        let ports: Vec<Rc<SimLink>> =
            self.ports.borrow().iter().filter_map(Weak::upgrade).collect();
        for port in ports {
            if port.address() != source && takes(port.state(), port.address(), &bytes) {
                port.port.deliver(&bytes);
            }
        }
    }

    fn send(&self, source: Mac, frame: &Frame) {
        let Weather { lost, repeated, late, hole } = self.weather.get();
        let mut rng = self.rng.borrow_mut();
        let copies = 1 + u64::from(rng.below(1000) < repeated);
        for _ in 0..copies {
            let is_lost = rng.below(1000) < lost || hole > 0 && frame.bytes() as u64 > hole;
            let is_late = rng.below(1000) < late;
            let time = match is_late {
                true => Duration::from_micros(rng.skewed(LIFETIME.as_micros() as u64)),
                false => USUAL,
            };
            if is_lost || self.cut.get() {
                continue;
            }
            let order = self.order.replace(self.order.get() + 1);
            let at = (self.clock.now() + time, order);
            self.flights.borrow_mut().insert(at, (source, frame.clone()));
        }
        self.sent.raise();
    }
}

/// True if a port in this state takes the frame.
fn takes(state: LinkState, address: Mac, frame: &[u8]) -> bool {
    let destination = frame.first_chunk::<6>().map(|bytes| Mac(*bytes));
    let is_for_us = destination.is_some_and(|it| it == address || it.is_group());
    state.up && is_for_us && fits(state, frame.len())
}

fn fits(state: LinkState, bytes: usize) -> bool {
    bytes <= state.mtu as usize + io::link::ETHERNET_BYTES
}

impl SimLink {
    /// Puts the port into another state.
    pub fn set_state(&self, state: LinkState) {
        self.port.set_state(state);
    }
}

impl Link for SimLink {
    fn address(&self) -> Mac {
        self.port.address()
    }

    fn state(&self) -> LinkState {
        self.port.state()
    }

    fn poll_state(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        self.port.poll_state(cx, seen)
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<Result<()>> {
        self.port.poll_receive(cx, into)
    }

    fn poll_send(&self, _: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<Result<()>> {
        let state = self.state();
        for frame in frames.drain(..).filter(|frame| state.up && fits(state, frame.bytes())) {
            self.wire.send(self.address(), &frame);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Trace;
    use crate::world::World;

    const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const B: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn wire(world: &World) -> Rc<SimWire> {
        let wire = SimWire::new(&world.clock, world.rng("wire", 0));
        world.executor.spawn("wire", wire.carry());
        wire
    }

    #[test]
    fn keeps_the_contract_without_faults() {
        let world = World::new(1, Trace::default());
        let wire = wire(&world);
        let (a, b) = (wire.port(A, 9000), wire.port(B, 1500));
        world.run(async move { io::contract::link(&*a, &*b).await }).expect("it ends");
    }

    /// How many frames of a thousand arrive, how many twice, and how many after a later one.
    fn arrivals(weather: Weather) -> (usize, usize, usize) {
        let world = World::new(1, Trace::default());
        let wire = wire(&world);
        let (a, b) = (wire.port(A, 1500), wire.port(B, 1500));
        wire.set_weather(weather);
        let pause = world.clone();
        let arrived = world.run(async move {
            for number in 0..1000_u16 {
                let mut bytes = [0; 60];
                bytes[..6].copy_from_slice(&B.0);
                bytes[20..22].copy_from_slice(&number.to_be_bytes());
                let mut frames = VecDeque::from([Frame::new(&bytes)]);
                let _ = poll_fn(|cx| a.poll_send(cx, &mut frames)).await;
                pause.pause(10).await;
            }
            pause.pause(LIFETIME.as_micros() as u64).await;
            let mut frames = Vec::new();
            poll_fn(|cx| {
                while b.poll_receive(cx, &mut frames).is_ready() {}
                Poll::Ready(())
            })
            .await;
            frames
        });
        let arrived = arrived.expect("it ends");
        let number = |frame: &Frame| u16::from_be_bytes([frame.head()[20], frame.head()[21]]);
        let numbers: Vec<u16> = arrived.iter().map(number).collect();
        let mut seen = numbers.clone();
        seen.sort_unstable();
        seen.dedup();
        let late = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
        (seen.len(), numbers.len() - seen.len(), late)
    }

    #[test]
    fn frames_are_lost_repeated_and_late_as_the_weather_says() {
        assert_eq!(arrivals(Weather::default()), (1000, 0, 0));
        let (seen, twice, late) = arrivals(Weather { lost: 200, ..Weather::default() });
        assert!((700..900).contains(&seen) && (twice, late) == (0, 0), "{seen} {twice} {late}");
        let (seen, twice, late) = arrivals(Weather { repeated: 200, ..Weather::default() });
        assert!(seen == 1000 && (100..300).contains(&twice) && late == 0, "{twice} {late}");
        let (seen, twice, late) = arrivals(Weather { late: 200, ..Weather::default() });
        assert!(seen == 1000 && twice == 0 && late > 20, "{seen} {twice} {late}");
        assert_eq!(arrivals(Weather { hole: 59, ..Weather::default() }).0, 0);
    }
}
