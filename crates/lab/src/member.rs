//! A modelled disk as the engine sees it: `io::Disk`, in virtual time.
//!
//! The model decides when an operation is answered; the store has its bytes. Bytes move at the
//! moment of the answer, so that operations in flight land in the order in which the disk does
//! them.

mod store;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::{
    Clock, Completion, Completions, Disk, Done, Error, Limits, Op, Ticket, Work, ZeroSupport,
};

use crate::disk::{Answer, Model, Nanos, Request, SECTOR};
use crate::world::LabClock;
use store::Store;

/// What a member has done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Reads that were answered.
    pub reads: u64,
    /// Writes that were answered.
    pub writes: u64,
    /// Flushes that were answered.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// An operation that the model has.
struct Flight {
    op: Op,
    ticket: Ticket,
}

/// A modelled disk in a [`crate::world::World`].
pub struct Member {
    /// For people.
    pub name: String,
    limits: Limits,
    clock: Rc<LabClock>,
    model: RefCell<Box<dyn Model>>,
    store: RefCell<Store>,
    flights: RefCell<Vec<Option<Flight>>>,
    vacant: RefCell<Vec<u64>>,
    answers: Completions<Done>,
    counts: Cell<Counts>,
}

impl Member {
    /// A disk of zeros. `rotational`: distance costs time. `volatile`: it has a write cache that a
    /// power cut empties.
    pub(crate) fn new(
        name: &str,
        model: Box<dyn Model>,
        (rotational, volatile): (bool, bool),
        clock: &Rc<LabClock>,
    ) -> Member {
        let bytes = model.sectors() * SECTOR / 4096 * 4096;
        let limits = Limits {
            rotational,
            volatile,
            zero: ZeroSupport::Written,
            discard: false,
            ..Limits::plain(bytes)
        };
        Member {
            name: name.to_string(),
            limits,
            clock: Rc::clone(clock),
            model: RefCell::new(model),
            store: RefCell::default(),
            flights: RefCell::default(),
            vacant: RefCell::default(),
            answers: Completions::new(),
            counts: Cell::default(),
        }
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// Bytes that are not zeros, in whole pages.
    pub fn stored(&self) -> u64 {
        self.store.borrow().stored()
    }

    /// When its model has something to do.
    pub(crate) fn next_event(&self) -> Option<Nanos> {
        self.model.borrow().next_event()
    }

    /// Lets its model advance to `now`.
    pub(crate) fn advance(&self, now: Nanos, answers: &mut Vec<Answer>) {
        self.model.borrow_mut().advance(now, answers);
    }

    /// An operation is done: its bytes move, and its submitter has the answer.
    pub(crate) fn answer(&self, tag: u64) {
        let flight = self.flights.borrow_mut()[tag as usize].take();
        let Flight { mut op, ticket } = flight.expect("the model answers each request once");
        self.vacant.borrow_mut().push(tag);
        self.land(&mut op);
        self.answers.finish(ticket, Done::ok(op.work));
    }

    fn land(&self, op: &mut Op) {
        let (mut counts, mut at) = (self.counts.get(), op.offset);
        let len = op.work.len();
        let mut store = self.store.borrow_mut();
        match &mut op.work {
            Work::Read(bufs) => {
                for buf in bufs {
                    store.read(at, buf);
                    at += buf.len() as u64;
                }
                counts.reads += 1;
                counts.read_bytes += len;
            }
            Work::Write(bufs) => {
                for buf in bufs {
                    store.write(at, buf);
                    at += buf.len() as u64;
                }
                counts.writes += 1;
                counts.written_bytes += len;
            }
            Work::Zero { len, .. } => {
                store.zero(at, *len);
                counts.writes += 1;
                counts.written_bytes += *len;
            }
            Work::Flush => counts.flushes += 1,
            Work::Discard { .. } | Work::Extents { .. } => {}
        }
        self.counts.set(counts);
    }

    /// The request to the model; `None` if nothing of the operation needs time.
    fn request(op: &Op, tag: u64) -> Option<Request> {
        let (sector, sectors) = (op.offset / SECTOR, op.work.len() / SECTOR);
        if sectors == 0 && !matches!(op.work, Work::Flush) {
            return None;
        }
        let sectors = u32::try_from(sectors).unwrap_or(u32::MAX);
        match op.work {
            Work::Read(_) => Some(Request::read(tag, sector, sectors)),
            Work::Write(_) | Work::Zero { .. } => {
                Some(Request { durable: op.fua, ..Request::write(tag, sector, sectors) })
            }
            Work::Flush => Some(Request::flush(tag)),
            Work::Discard { .. } | Work::Extents { .. } => None,
        }
    }
}

impl Disk for Member {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            let error = Error::refused(format!("{}, offset {}: {fault}", self.name, op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        let vacant = self.vacant.borrow_mut().pop();
        let mut flights = self.flights.borrow_mut();
        let tag = vacant.unwrap_or(flights.len() as u64);
        let Some(request) = Member::request(&op, tag) else {
            self.vacant.borrow_mut().extend(vacant);
            let mut work = op.work;
            if let Work::Extents { len, found } = &mut work {
                self.store.borrow().extents(op.offset, *len, found);
            }
            return Completion::ready(Done::ok(work));
        };
        let (ticket, completion) = self.answers.start();
        let flight = Some(Flight { op, ticket });
        match flights.get_mut(tag as usize) {
            Some(place) => *place = flight,
            None => flights.push(flight),
        }
        drop(flights);
        self.model.borrow_mut().submit(self.clock.now().0, request);
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
