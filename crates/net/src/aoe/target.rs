//! The target: LUNs on ports.
//!
//! ```text
//!    port ──frame──▶ header, LUNs of this address, mask
//!                      ├─ ATA       range, reservation ─▶ history ─▶ flights ─▶ runs ─▶ Disk
//!                      ├─ query     config string
//!                      └─ mask, reserve, keyed     access
//!    port ◀─answer── the newest copies of the request, each where it came from
//! ```
//!
//! All ports of a target are served by one thread, so that requests have one order of arrival.
//! Invariants: a target never sends an error for being busy, it drops the frame, and the client
//! repeats it; memory is bounded by [`MAX_FLIGHTS`] for a LUN and `port::MAX_OUTBOX` for a port;
//! a frame that is malformed or meant for others changes nothing.

pub mod access;
mod ata;
mod control;
mod flights;
mod history;
mod lun;
mod port;
mod runs;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::Result;
use std::pin::Pin;
use std::rc::Rc;

use io::{Boxed, Clock, Frame, Link, Mac, Pool, Signal, TaskSet, Time};

pub use self::flights::MAX_FLIGHTS;
pub use self::lun::{Change, Lun, LunOptions, LunPolicy, LunState};
use self::port::Port;
use super::wire::smart::Health;
use super::wire::{Address, Error, Header, VERSION, command};

/// What a target needs from its host.
pub trait Host {
    /// The health of the disk behind a LUN.
    fn health(&self, lun: Address) -> Health;

    /// Keeps the new state of a LUN. Its client gets the answer when this is done.
    fn keep(&self, lun: Address, state: &LunState) -> Keeping;

    /// Reports what a client did, for the log.
    fn report(&self, lun: Address, client: Mac, event: Event);
}

/// See [`Host::keep`]. The error says why the state was not kept.
pub type Keeping = Pin<Box<dyn Future<Output = std::result::Result<(), String>>>>;

/// What a client did to a LUN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// It changed this part of the state.
    Changed(Part),
    /// It tried to change this part of the state, which the LUN does not permit.
    Refused(Part),
    /// Its change was not kept, for this reason.
    NotKept(Part, String),
}

/// A part of a LUN's state that clients can change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// The config string.
    Config,
    /// The mask list.
    Mask,
    /// The reservation, keyed or not.
    Reservation,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Config => "config string",
            Part::Mask => "mask list",
            Part::Reservation => "reservation",
        })
    }
}

/// Frames that a target dropped, since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Too short, or with counts that do not fit.
    pub malformed: u64,
    /// For want of room: more requests than a LUN queues, or more answers than a port sends.
    pub overload: u64,
    /// Copies of a request in flight.
    pub repeated: u64,
    /// Late copies of a write that was done, and not done again.
    pub late: u64,
}

/// Serves LUNs on ports. Clones are the same target.
#[derive(Clone)]
pub struct Target(Rc<Shared>);

struct Shared {
    luns: RefCell<BTreeMap<Address, Rc<Lun>>>,
    ports: RefCell<Vec<Rc<Port>>>,
    /// LUNs with requests that are given to the disk at the end of this batch of frames.
    starting: RefCell<Vec<Rc<Lun>>>,
    host: Rc<dyn Host>,
    pool: Pool,
    clock: RefCell<Option<Rc<dyn Clock>>>,
    tasks: TaskSet,
    dropped: Cell<Dropped>,
    stopped: Cell<bool>,
    stop: Signal,
}

impl Target {
    /// A target without LUNs and ports; memory for reads comes from `pool`.
    pub fn new(host: Rc<dyn Host>, pool: Pool) -> Target {
        Target(Rc::new(Shared {
            luns: RefCell::default(),
            ports: RefCell::default(),
            starting: RefCell::default(),
            host,
            pool,
            clock: RefCell::default(),
            tasks: TaskSet::new(),
            dropped: Cell::default(),
            stopped: Cell::new(false),
            stop: Signal::new(),
        }))
    }

    /// Forgets writes after a while by this clock. Without one the target remembers them until many
    /// frames have passed, and may take a write of a client that was restarted for a late copy.
    #[must_use]
    pub fn with_clock(self, clock: Rc<dyn Clock>) -> Target {
        self.0.clock.replace(Some(clock));
        self
    }

    /// Carries out what the ports accept; to be driven by the host until it completes, after
    /// [`Target::stop`]. If it is dropped sooner, requests in flight are not answered.
    pub fn run(&self) -> Boxed<'static, ()> {
        let shared = Rc::clone(&self.0);
        let stopped = Rc::clone(&shared);
        shared.tasks.spawn(async move {
            while !stopped.stopped.get() {
                stopped.stop.wait().await;
            }
        });
        // Requests in flight hold the target, which holds them.
        let driven = Driven(shared);
        Box::pin(async move { driven.0.tasks.run().await })
    }

    /// Serves on this port: a future to be driven by the host. It completes when the target was
    /// stopped.
    ///
    /// # Errors
    /// The port is gone.
    pub fn serve(&self, name: impl Into<String>, link: Rc<dyn Link>) -> Boxed<'static, Result<()>> {
        let shared = Rc::clone(&self.0);
        let port = Rc::new(Port::new(name.into(), link));
        shared.ports.borrow_mut().push(Rc::clone(&port));
        Box::pin(async move {
            shared.announce_all(&port);
            let outcome = port::run(&shared, &port).await;
            shared.ports.borrow_mut().retain(|it| !Rc::ptr_eq(it, &port));
            outcome
        })
    }

    /// Serves this LUN from now on, in place of one with the same address, and announces it.
    pub fn online(&self, lun: Rc<Lun>) {
        self.0.luns.borrow_mut().insert(lun.address(), Rc::clone(&lun));
        self.0.ports.borrow().iter().for_each(|port| self.0.announce(&lun, port));
    }

    /// Serves this LUN no more. The future completes when its requests have ended.
    pub fn offline(&self, address: Address) -> impl Future<Output = ()> + use<> {
        let lun = self.0.luns.borrow_mut().remove(&address);
        async move {
            if let Some(lun) = lun {
                lun.idle().await;
            }
        }
    }

    /// The LUN of this address.
    pub fn lun(&self, address: Address) -> Option<Rc<Lun>> {
        self.0.luns.borrow().get(&address).cloned()
    }

    /// Frames dropped so far.
    pub fn dropped(&self) -> Dropped {
        self.0.dropped.get()
    }

    /// Ends the ports, and [`Target::run`] when the requests in flight have ended.
    pub fn stop(&self) {
        self.0.stopped.set(true);
        self.0.stop.raise();
    }
}

/// Ends the tasks of a target with their driver.
struct Driven(Rc<Shared>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.tasks.clear();
    }
}

/// A request, and where its answer goes.
struct Arrival<'a> {
    port: &'a Rc<Port>,
    header: Header,
    frame: &'a Frame,
}

impl Shared {
    /// Takes one frame in.
    fn accept(self: &Rc<Self>, port: &Rc<Port>, frame: &Frame) {
        let Some(header) = Header::parse(frame.head()) else {
            return self.count(|dropped| &mut dropped.malformed);
        };
        // Answers are for clients; and nobody sends from a group's address, or from ours.
        let for_us = header.destination == port.link.address() || header.destination.is_group();
        if header.response || header.source.is_group() || !for_us || self.is_own(header.source) {
            return;
        }
        let arrival = Arrival { port, header, frame };
        if header.address.is_broadcast() {
            let luns: Vec<Rc<Lun>> = self.luns.borrow().values().cloned().collect();
            let covered = luns.iter().filter(|lun| header.address.covers(lun.address()));
            covered.for_each(|lun| self.accept_for(lun, &arrival));
        } else if let Some(lun) = self.lun(header.address) {
            self.accept_for(&lun, &arrival);
        }
    }

    fn accept_for(self: &Rc<Self>, lun: &Rc<Lun>, arrival: &Arrival<'_>) {
        let Arrival { port, header, .. } = *arrival;
        if !lun.is_on(&port.name) || !lun.state().masks.admits(header.source) {
            return;
        }
        if header.version != VERSION {
            return self.refuse(lun, arrival, Error::Version);
        }
        let outcome = match header.command {
            command::ATA => self.ata(lun, arrival),
            command::QUERY => self.query(lun, arrival),
            command::MASK => self.mask(lun, arrival),
            command::RESERVE => self.reserve(lun, arrival),
            command::KEYED => self.keyed(lun, arrival),
            _ => Err(Error::Command),
        };
        if let Err(error) = outcome {
            self.refuse(lun, arrival, error);
        }
    }

    /// Answers with the error flag.
    fn refuse(&self, lun: &Lun, arrival: &Arrival<'_>, error: Error) {
        if matches!(error, Error::Argument) {
            self.count(|dropped| &mut dropped.malformed);
        }
        let Arrival { port, header, frame } = *arrival;
        let answer = header.answer(port.link.address(), lun.address()).with_error(error);
        // The argument is repeated, without data.
        let mut head = frame.head().to_vec();
        answer.put(&mut head);
        self.send(port, Frame::new(&head));
    }

    fn send(&self, port: &Port, frame: Frame) {
        if !port.push(frame) {
            self.count(|dropped| &mut dropped.overload);
        }
    }

    fn count(&self, which: impl FnOnce(&mut Dropped) -> &mut u64) {
        let mut dropped = self.dropped.get();
        *which(&mut dropped) += 1;
        self.dropped.set(dropped);
    }

    fn lun(&self, address: Address) -> Option<Rc<Lun>> {
        self.luns.borrow().get(&address).cloned()
    }

    fn now(&self) -> Time {
        self.clock.borrow().as_ref().map_or(Time::default(), |clock| clock.now())
    }

    fn is_own(&self, mac: Mac) -> bool {
        self.ports.borrow().iter().any(|port| port.link.address() == mac)
    }

    fn announce_all(&self, port: &Port) {
        self.luns.borrow().values().for_each(|lun| self.announce(lun, port));
    }
}
