//! The initiator: a disk that is a target on the wire.
//!
//! ```text
//!    Disk ── operation ──▶ frames of at most 16 sectors ──▶ path with room ──▶ port ═══ target
//!                             ▲                                │
//!                             └───── no answer in time ────────┘
//!    Disk ◀── all frames answered ◀── answer, by its tag ◀── port
//! ```
//!
//! A frame that is not answered is sent again, with a new tag and on another path if there is one;
//! the answer to any of its tags ends it. Tags count, as those of Linux, so that a target can tell
//! late copies. Frames are made when a path has room: an operation of any length costs its buffers
//! and no more.
//!
//! AoE has no FUA: a write with FUA is followed by a flush. What the target may have lost in a
//! crash of its own is not this module's business: a disk over AoE is volatile until flushed.
//!
//! Invariant: an operation ends exactly once, with all its buffers. After its deadline it has
//! failed with an unknown outcome, and its late answers are ignored.

mod operation;
mod path;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io::Result as IoResult;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::link::HEAD_BYTES;
use io::{
    Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Frame, Limits, Link, Op, Pool,
    Signal, Time,
};

use self::operation::{Operation, Piece};
use self::path::Path;
use super::discover::{discover, identify};
use super::wire::ata::{Ata, error, opcode, status};
use super::wire::identify::Identity;
use super::wire::{self, Address, HEADER_BYTES, Header, SECTOR, VERSION, command, sectors_of};

/// How long an operation without a deadline of its own may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which timeouts are looked for.
const BEAT: Duration = Duration::from_millis(5);
/// The tag's counter is its upper half without bit 31; the lower half makes neighbours differ.
const COUNT_MASK: u32 = 0x7fff;

/// Why a target cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No port was answered.
    Silent,
    /// The targets that answered are not the same device.
    Different(String, String),
    /// A port is gone, or has no room for a sector.
    Link(String),
}

/// A disk over AoE. Clones are the same disk; [`Initiator::run`] must be driven.
#[derive(Clone)]
pub struct Initiator(Rc<Shared>);

struct Shared {
    address: Address,
    identity: Identity,
    links: Vec<Rc<dyn Link>>,
    clock: Rc<dyn Clock>,
    pool: Pool,
    paths: RefCell<Vec<Path>>,
    /// The path that was used last.
    turn: Cell<usize>,
    work: RefCell<Work>,
    outboxes: Vec<RefCell<VecDeque<Frame>>>,
    answers: Completions<Done>,
    submitted: Signal,
    most_sectors: u64,
}

#[derive(Default)]
struct Work {
    operations: BTreeMap<u64, Operation>,
    /// Operations that have frames to be made, in order of arrival.
    unsent: VecDeque<u64>,
    /// Frames to be sent again, before new ones.
    again: VecDeque<u64>,
    frames: BTreeMap<u64, InFlight>,
    /// Frames by the tags they were sent with.
    tags: BTreeMap<u32, u64>,
    next: u64,
    tag: u32,
}

/// A frame that is not answered.
struct InFlight {
    operation: u64,
    piece: Piece,
    /// The tags of all its copies; the last one is the newest.
    tags: Vec<u32>,
    /// Where its newest copy was sent, when, and when an answer is overdue; none while it waits to
    /// be sent again.
    sent: Option<(usize, Time, Time)>,
}

impl Initiator {
    /// Finds the target of this address on these ports, each open for answers, and asks who it is.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub async fn open(
        address: Address,
        links: Vec<Rc<dyn Link>>,
        clock: Rc<dyn Clock>,
        pool: Pool,
    ) -> Result<Initiator, OpenError> {
        let gone = |error: std::io::Error| OpenError::Link(error.to_string());
        let (mut paths, mut sectors) = (Vec::new(), u8::MAX);
        let mut identity: Option<Identity> = None;
        for (index, link) in links.iter().enumerate() {
            for found in discover(&**link, &*clock, address).await.map_err(gone)? {
                let known = identify(&**link, &*clock, found.mac, address).await.map_err(gone)?;
                let Some(known) = known else { continue };
                if let Some(first) = &identity
                    && (&first.serial, first.sectors) != (&known.serial, known.sectors)
                {
                    let name = |it: &Identity| format!("{} of {} sectors", it.serial, it.sectors);
                    return Err(OpenError::Different(name(first), name(&known)));
                }
                identity.get_or_insert(known);
                let theirs = if found.query.sectors == 0 { 2 } else { found.query.sectors };
                sectors = sectors.min(theirs).min(sectors_of(link.state().mtu));
                paths.push(Path::new(index, found.mac, found.query.buffers));
            }
        }
        let identity = identity.ok_or(OpenError::Silent)?;
        if sectors == 0 {
            return Err(OpenError::Link("its MTU has no room for a sector".into()));
        }
        let outboxes = links.iter().map(|_| RefCell::default()).collect();
        Ok(Initiator(Rc::new(Shared {
            address,
            identity,
            links,
            clock,
            pool,
            paths: RefCell::new(paths),
            turn: Cell::new(0),
            work: RefCell::default(),
            outboxes,
            answers: Completions::new(),
            submitted: Signal::new(),
            most_sectors: 1 << sectors.ilog2(),
        })))
    }

    /// Who the target is.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// Sends and receives; to be driven by the host for as long as the disk is used.
    ///
    /// # Errors
    /// A port is gone.
    pub fn run(&self) -> impl Future<Output = IoResult<()>> + use<> {
        let shared = Rc::clone(&self.0);
        async move {
            let receiving = (0..shared.links.len()).map(|link| Box::pin(receive(&shared, link)));
            let mut receiving: Vec<_> = receiving.collect();
            let sending = (0..shared.links.len()).map(|link| Box::pin(send(&shared, link)));
            let mut sending: Vec<_> = sending.collect();
            let mut beating = pin!(beat(&shared));
            poll_fn(|cx| {
                for each in &mut receiving {
                    if let Poll::Ready(outcome) = each.as_mut().poll(cx) {
                        return Poll::Ready(outcome);
                    }
                }
                let _ = beating.as_mut().poll(cx);
                // Last: what was made in this turn goes out in this turn.
                for each in &mut sending {
                    if let Poll::Ready(outcome) = each.as_mut().poll(cx) {
                        return Poll::Ready(outcome);
                    }
                }
                Poll::Pending
            })
            .await
        }
    }
}

impl Disk for Initiator {
    fn submit(&self, op: Op) -> Completion<Done> {
        let shared = &self.0;
        if let Some(why) = self.limits().check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(why)));
        }
        let deadline = op.deadline.unwrap_or(shared.clock.now() + PATIENCE);
        let (ticket, completion) = shared.answers.start();
        match Operation::new(op, ticket, deadline) {
            Ok(operation) => {
                let mut work = shared.work.borrow_mut();
                let number = work.number();
                work.operations.insert(number, operation);
                work.unsent.push_back(number);
            }
            Err(done) => shared.answers.finish(ticket, done),
        }
        shared.submitted.raise();
        completion
    }

    fn limits(&self) -> Limits {
        let Identity { sectors, physical_block, rotational, .. } = self.0.identity;
        let bytes = sectors * SECTOR as u64;
        Limits { physical_block, rotational, ..Limits::plain(bytes) }
    }
}

impl Work {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn next_tag(&mut self) -> u32 {
        self.tag = (self.tag + 1) & COUNT_MASK;
        self.tag << 16 | (self.next & 0xffff) as u32
    }
}

impl Shared {
    /// Sends as much as the paths take.
    fn pump(&self) {
        loop {
            let now = self.clock.now();
            let Some(path) = self.free_path(now) else { return };
            let mut work = self.work.borrow_mut();
            let work = &mut *work;
            let number = match work.again.pop_front() {
                Some(number) if !work.frames.contains_key(&number) => continue,
                Some(number) => number,
                None => match self.make_frame(work) {
                    Some(number) => number,
                    None => return,
                },
            };
            self.transmit(work, number, path, now);
        }
    }

    /// The next path after the last one that takes a frame; a suspect one only if no other does.
    fn free_path(&self, now: Time) -> Option<usize> {
        let paths = self.paths.borrow();
        let after = |step| (self.turn.get() + step) % paths.len();
        let order = || (1..=paths.len()).map(after);
        let good = order().find(|&at| !paths[at].is_suspect() && paths[at].takes(now));
        good.or_else(|| order().find(|&at| paths[at].takes(now)))
    }

    /// Makes the next frame of the first operation that has one.
    fn make_frame(&self, work: &mut Work) -> Option<u64> {
        loop {
            let first = *work.unsent.front()?;
            let Some(operation) = work.operations.get_mut(&first) else {
                work.unsent.pop_front();
                continue;
            };
            let Some(piece) = operation.next_piece(self.most_sectors) else {
                work.unsent.pop_front();
                continue;
            };
            let number = work.number();
            let frame = InFlight { operation: first, piece, tags: Vec::new(), sent: None };
            work.frames.insert(number, frame);
            return Some(number);
        }
    }

    fn transmit(&self, work: &mut Work, number: u64, path: usize, now: Time) {
        let tag = work.next_tag();
        let mut paths = self.paths.borrow_mut();
        let overdue = now + paths[path].sent(now);
        self.turn.set(path);
        let (link, mac) = (paths[path].link, paths[path].mac);
        let frame = work.frames.get_mut(&number).expect("it was looked up by the caller");
        let operation = work.operations.get(&frame.operation).expect("it ends with its frames");
        frame.tags.push(tag);
        frame.sent = Some((path, now, overdue));
        // A tag in use by a frame of a whole round before: that copy is given up.
        if let Some(other) = work.tags.insert(tag, number)
            && let Some(other) = work.frames.get_mut(&other)
        {
            other.tags.retain(|it| *it != tag);
        }
        let frame = &work.frames[&number];
        let header = Header {
            destination: mac,
            source: self.links[link].address(),
            version: VERSION,
            response: false,
            error: None,
            address: self.address,
            command: command::ATA,
            tag,
        };
        let mut head = [0; HEAD_BYTES];
        header.put(&mut head);
        frame.piece.ata.put(&mut head[HEADER_BYTES..]);
        let frame = match operation.payload(&frame.piece, &self.pool) {
            Some(data) => Frame::with_body(head, data),
            None => Frame::new(&head),
        };
        self.outboxes[link].borrow_mut().push_back(frame);
    }

    /// Takes a frame from the wire.
    fn accept(&self, frame: &Frame) {
        let Some(header) = Header::parse(frame.head()) else { return };
        if !header.response || header.address != self.address || header.command != command::ATA {
            return;
        }
        let now = self.clock.now();
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        let Some(&number) = work.tags.get(&header.tag) else { return };
        let Some(in_flight) = work.frames.get(&number) else { return };
        let Some(ata) = frame.head().get(HEADER_BYTES..).and_then(Ata::parse) else { return };
        let piece = &in_flight.piece;
        let outcome = match header.error.map(wire::Error::of) {
            // It may serve later: the frame is sent again until its deadline.
            Some(Some(wire::Error::Unavailable)) => return,
            Some(Some(wire::Error::Reserved)) => Err(ErrorKind::Fenced),
            Some(_) => Err(ErrorKind::Refused),
            None if ata.command & status::BAD != 0 => Err(piece.fault(ata.feature)),
            None => Ok(()),
        };
        if piece.ata.is_read() && outcome.is_ok() && frame.body().len() < piece.bytes() {
            return;
        }
        if let Some((path, sent, _)) = in_flight.sent {
            // Of a frame that was sent twice nobody knows which copy was answered.
            let round_trip = (in_flight.tags.len() == 1).then(|| now - sent);
            self.paths.borrow_mut()[path].answered(round_trip);
        }
        let in_flight = self.forget(work, number);
        let operation = work.operations.get_mut(&in_flight.operation);
        let operation = operation.expect("it ends with its frames");
        if outcome == Err(ErrorKind::Refused)
            && ata.feature & error::ABORTED != 0
            && in_flight.piece.ata.command == opcode::FLUSH_EXT
        {
            operation.flush_the_short_way();
            work.unsent.push_back(in_flight.operation);
            return;
        }
        operation.end_piece(&in_flight.piece, frame.body(), outcome, self.address);
        self.finish_if_done(work, in_flight.operation);
    }

    /// Removes a frame, with all its tags.
    fn forget(&self, work: &mut Work, number: u64) -> InFlight {
        let in_flight = work.frames.remove(&number).expect("it was looked up by the caller");
        for tag in &in_flight.tags {
            if work.tags.get(tag) == Some(&number) {
                work.tags.remove(tag);
            }
        }
        in_flight
    }

    fn finish_if_done(&self, work: &mut Work, number: u64) {
        let operation = work.operations.get_mut(&number).expect("the caller has it");
        if !operation.is_done() {
            return;
        }
        if operation.needs_flush() {
            operation.flush();
            work.unsent.push_back(number);
            return;
        }
        let operation = work.operations.remove(&number).expect("just looked up");
        let (ticket, done) = operation.end();
        self.answers.finish(ticket, done);
    }

    /// Sends overdue frames again, and fails operations that are past their deadline.
    fn look_at_the_clock(&self) {
        let now = self.clock.now();
        let mut work = self.work.borrow_mut();
        let work = &mut *work;
        for (&number, frame) in &mut work.frames {
            if let Some((path, _, overdue)) = frame.sent
                && overdue <= now
            {
                self.paths.borrow_mut()[path].timed_out();
                frame.sent = None;
                work.again.push_back(number);
            }
        }
        let late = work.operations.iter().filter(|(_, it)| it.deadline() <= now);
        let late: Vec<u64> = late.map(|(&number, _)| number).collect();
        for number in late {
            let frames = work.frames.iter().filter(|(_, frame)| frame.operation == number);
            let frames: Vec<u64> = frames.map(|(&frame, _)| frame).collect();
            for frame in frames {
                if let Some((path, ..)) = self.forget(work, frame).sent {
                    self.paths.borrow_mut()[path].given_up();
                }
            }
            let operation = work.operations.remove(&number).expect("just listed");
            let (ticket, done) = operation.timed_out(self.address);
            self.answers.finish(ticket, done);
        }
    }
}

async fn receive(shared: &Shared, link: usize) -> IoResult<()> {
    let mut frames = Vec::new();
    loop {
        poll_fn(|cx| shared.links[link].poll_receive(cx, &mut frames)).await?;
        for frame in frames.drain(..) {
            shared.accept(&frame);
        }
        shared.submitted.raise();
    }
}

async fn send(shared: &Shared, link: usize) -> IoResult<()> {
    loop {
        shared.pump();
        if shared.outboxes[link].borrow().is_empty() {
            shared.submitted.wait().await;
            continue;
        }
        poll_fn(|cx| {
            let mut outbox = shared.outboxes[link].borrow_mut();
            shared.links[link].poll_send(cx, &mut outbox)
        })
        .await?;
    }
}

/// Looks for timeouts while there is work.
async fn beat(shared: &Shared) {
    loop {
        while shared.work.borrow().operations.is_empty() {
            shared.submitted.wait().await;
        }
        shared.clock.sleep_until(shared.clock.now() + BEAT).await;
        shared.look_at_the_clock();
        shared.submitted.raise();
    }
}
