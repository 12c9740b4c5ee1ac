//! A modelled disk as a member of an array.
//!
//! ```text
//!   Op ─▶ arrives at the local time of the core ─▶ Model: when? ─▶ Contents: which bytes? ─▶ Done
//! ```
//!
//! An operation takes effect when it is answered. Contents keep only pages with a byte that is not
//! zero: a load that writes zeros needs no memory, however large its disks are, while superblocks,
//! bitmaps and logs stay. Parity and checksums of zeros agree with each other.

mod contents;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use io::{
    Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits, Op,
    Ticket, Time, Work,
};

use self::contents::Contents;
use crate::disk::catalogue::Built;
use crate::disk::{Answer, Kind, Model, Request, SECTOR};
use crate::world::{Agenda, Station, VirtualClock, World};

/// The most sectors of one request; a longer operation is several.
const MAX_SECTORS: u64 = 1 << 20;
/// A disk's size is a multiple of this.
pub(crate) const BLOCK: u64 = 4096;

/// See the module.
pub struct Member {
    clock: Rc<VirtualClock>,
    agenda: Agenda,
    limits: Limits,
    model: RefCell<Box<dyn Model>>,
    contents: RefCell<Contents>,
    /// On their way to the disk, in order of time.
    arriving: RefCell<VecDeque<(Time, Request)>>,
    pending: RefCell<BTreeMap<u64, Pending>>,
    answers: RefCell<Vec<Answer>>,
    completions: Completions<Done>,
    tags: Cell<u64>,
    gone: Cell<bool>,
    counts: Cell<Counts>,
}

struct Pending {
    op: Op,
    ticket: Ticket,
    /// Requests of the operation without an answer.
    requests: usize,
}

/// What a member has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Member {
    /// Adds a hard disk of zeros, whose cache a power cut empties, to the world.
    pub fn new(world: &World, model: Box<dyn Model>) -> Rc<Member> {
        Member::built(world, Built { model, rotational: true, volatile: true })
    }

    /// Adds a disk of zeros to the world.
    pub fn built(world: &World, Built { model, rotational, volatile }: Built) -> Rc<Member> {
        let bytes = model.sectors() * SECTOR / BLOCK * BLOCK;
        let limits = Limits { rotational, volatile, ..Limits::plain(bytes) };
        world.add(|agenda| Member {
            clock: world.clock(),
            agenda,
            limits,
            model: RefCell::new(model),
            contents: RefCell::default(),
            arriving: RefCell::default(),
            pending: RefCell::default(),
            answers: RefCell::default(),
            completions: Completions::new(),
            tags: Cell::new(0),
            gone: Cell::new(false),
            counts: Cell::default(),
        })
    }

    /// From now on every operation fails.
    pub fn remove(&self) {
        self.gone.set(true);
    }

    /// Bytes that are kept: pages with a byte that is not zero.
    pub fn kept_bytes(&self) -> u64 {
        self.contents.borrow().kept_bytes()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    fn count(&self, op: &Op) {
        let (mut counts, len) = (self.counts.get(), op.work.len());
        match op.work {
            Work::Read(_) => {
                counts.reads += 1;
                counts.read_bytes += len;
            }
            Work::Flush => counts.flushes += 1,
            _ => {
                counts.writes += 1;
                counts.written_bytes += len;
            }
        }
        self.counts.set(counts);
    }

    fn finish(&self, Pending { mut op, ticket, .. }: Pending) {
        let gone = || Error::new(ErrorKind::Gone, "the modelled disk was removed");
        let done = match self.gone.get() {
            true => Done::failed(op.work, gone()),
            false => {
                self.contents.borrow_mut().perform(&mut op);
                Done::ok(op.work)
            }
        };
        self.completions.finish(ticket, done);
    }
}

/// An operation as requests to a model. Zeroes and discards are writes.
pub(crate) fn requests(tag: u64, op: &Op) -> Vec<Request> {
    let kind = match op.work {
        Work::Flush => return vec![Request::flush(tag)],
        Work::Read(_) => Kind::Read,
        _ => Kind::Write,
    };
    let (first, sectors) = (op.offset / SECTOR, op.work.len() / SECTOR);
    let piece = |start: u64| Request {
        tag,
        kind,
        sector: first + start,
        sectors: (sectors - start).min(MAX_SECTORS) as u32,
        durable: op.fua,
    };
    (0..sectors).step_by(MAX_SECTORS as usize).map(piece).collect()
}

impl Disk for Member {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(fault)));
        }
        if let Work::Extents { len, found } = &mut op.work {
            *found = vec![Extent { len: *len, kind: ExtentKind::Data }];
            return Completion::ready(Done::ok(op.work));
        }
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Completion::ready(Done::ok(op.work));
        }
        self.clock.charge_member_op();
        self.count(&op);
        let (ticket, completion) = self.completions.start();
        let tag = self.tags.replace(self.tags.get() + 1);
        let requests = requests(tag, &op);
        let pending = Pending { op, ticket, requests: requests.len() };
        self.pending.borrow_mut().insert(tag, pending);
        let now = self.clock.now();
        let mut arriving = self.arriving.borrow_mut();
        let place = arriving.partition_point(|&(at, _)| at <= now);
        for (index, request) in requests.into_iter().enumerate() {
            arriving.insert(place + index, (now, request));
        }
        self.agenda.schedule(now);
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

impl Station for Member {
    fn next_event(&self) -> Option<Time> {
        let arrival = self.arriving.borrow().front().map(|&(at, _)| at);
        let event = self.model.borrow().next_event().map(Time);
        arrival.into_iter().chain(event).min()
    }

    fn advance(&self, now: Time) {
        let mut answers = self.answers.take();
        {
            let mut model = self.model.borrow_mut();
            let mut arriving = self.arriving.borrow_mut();
            while let Some(&(at, request)) = arriving.front()
                && at <= now
            {
                arriving.pop_front();
                model.advance(at.0, &mut answers);
                model.submit(at.0, request);
            }
            model.advance(now.0, &mut answers);
        }
        for answer in answers.drain(..) {
            let mut pending = self.pending.borrow_mut();
            let Some(entry) = pending.get_mut(&answer.tag) else { continue };
            entry.requests -= 1;
            if entry.requests == 0
                && let Some(entry) = pending.remove(&answer.tag)
            {
                drop(pending);
                self.finish(entry);
            }
        }
        self.answers.replace(answers);
    }
}

#[cfg(test)]
pub(crate) mod tests;
