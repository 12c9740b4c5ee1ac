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
//! late copies. Frames are made when a path has room, of the size that the path carries, and are
//! divided if they are sent again on a path that carries less. An operation of any length costs its
//! buffers and no more.
//!
//! Writes to the same sectors run in the order in which they came, and each waits until no copy of
//! an earlier one can arrive (`copies`).
//!
//! Paths come and go (`tend`): targets are asked for again every ten seconds, and whenever a port
//! comes up; a port that ends does not end the disk while another works.
//!
//! AoE has no FUA: a write with FUA is followed by a flush. What the target may have lost in a
//! crash of its own is not this module's business: a disk over AoE is volatile until flushed, and
//! [`Initiator::broke`] reports when the target may have been restarted.
//!
//! Invariant: an operation ends exactly once, with all its buffers. After its deadline it has
//! failed with an unknown outcome, and its late answers are ignored.

mod copies;
mod operation;
mod path;
mod port;
mod tend;
#[cfg(test)]
mod tests;
mod transfer;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io::Result as IoResult;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{
    Boxed, Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Limits, Link, Op, Pool,
    Signal, Time,
};

use self::copies::Unsettled;
use self::operation::{Operation, Piece};
use self::path::Path;
use self::port::Port;
use self::tend::Tending;
use super::discover::{discover, identify};
use super::wire::identify::Identity;
use super::wire::{Address, SECTOR, sectors_of};

/// How long an operation without a deadline of its own may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which timeouts are looked for.
const BEAT: Duration = Duration::from_millis(5);
/// How long every path is silent, with frames sent, before the target may have been restarted.
pub const SILENCE: Duration = Duration::from_secs(5);
/// The most paths to a target, one for each pair of ports. Answers of further ports are ignored, so
/// that forged ones take no memory.
pub const MAX_PATHS: usize = 64;

/// Why a target cannot be used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// No port was answered.
    Silent,
    /// The targets that answered are not the same device.
    Different(String, String),
    /// Every port is gone, or has no room for a sector.
    Link(String),
}

/// A sign that the target may have been restarted, and have lost what it had not flushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// No path has answered for [`SILENCE`], with frames sent.
    Silence,
    /// The target has announced itself: it starts, or one of its ports does.
    Announcement,
}

/// A disk over AoE. Clones are the same disk; [`Initiator::run`] must be driven.
#[derive(Clone)]
pub struct Initiator(Rc<Shared>);

struct Shared {
    address: Address,
    identity: Identity,
    ports: Vec<Port>,
    clock: Rc<dyn Clock>,
    pool: Pool,
    paths: RefCell<Vec<Path>>,
    /// The path that was used last.
    turn: Cell<usize>,
    work: RefCell<Work>,
    tending: RefCell<Tending>,
    answers: Completions<Done>,
    submitted: Signal,
    quiet: Quiet,
}

/// Whether the target answers.
#[derive(Default)]
struct Quiet {
    /// When the target was heard last.
    heard: Cell<Time>,
    /// Since when frames have waited for an answer.
    since: Cell<Option<Time>>,
    is_reported: Cell<bool>,
    breaks: Cell<u64>,
    last: Cell<Option<Break>>,
    broke: Signal,
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
    unsettled: Unsettled,
    next: u64,
    sent: u64,
}

/// A frame that is not answered.
struct InFlight {
    operation: u64,
    piece: Piece,
    /// The copies that were sent and not answered; the last one is the newest.
    copies: Vec<Copy>,
    /// When the newest copy is overdue; none while the frame waits to be sent again.
    overdue: Option<Time>,
}

/// One sending of a frame.
struct Copy {
    tag: u32,
    path: usize,
    sent: Time,
    /// It counts as in flight on its path, not as lost.
    counts: bool,
}

impl Initiator {
    /// Finds the target of this address on these ports, each open for answers, and asks who it is.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        address: Address,
        links: Vec<Rc<dyn Link>>,
        clock: Rc<dyn Clock>,
        pool: Pool,
    ) -> Boxed<'static, Result<Initiator, OpenError>> {
        Box::pin(async move {
            let ports: Vec<Port> = links.into_iter().map(Port::new).collect();
            let (mut paths, mut fault) = (Vec::new(), None);
            let mut identity: Option<Identity> = None;
            for (index, port) in ports.iter().enumerate() {
                let found = match find(port, &*clock, address).await {
                    Ok(found) => found,
                    Err(error) => {
                        fault = Some(error.to_string());
                        continue;
                    }
                };
                for (path, known) in found.into_iter().map(|(path, known)| (path(index), known)) {
                    if let Some(first) = &identity
                        && !is_same(first, &known)
                    {
                        let name =
                            |it: &Identity| format!("{} of {} sectors", it.serial, it.sectors);
                        return Err(OpenError::Different(name(first), name(&known)));
                    }
                    identity.get_or_insert(known);
                    paths.push(path);
                }
            }
            let identity = identity.ok_or(fault.map_or(OpenError::Silent, OpenError::Link))?;
            if paths.iter().all(|path| path.sectors() == 0) {
                return Err(OpenError::Link("its MTU has no room for a sector".into()));
            }
            paths.truncate(MAX_PATHS);
            Ok(Initiator(Rc::new(Shared {
                address,
                identity,
                ports,
                clock,
                pool,
                paths: RefCell::new(paths),
                turn: Cell::new(0),
                work: RefCell::default(),
                tending: RefCell::default(),
                answers: Completions::new(),
                submitted: Signal::new(),
                quiet: Quiet::default(),
            })))
        })
    }

    /// Who the target is.
    pub fn identity(&self) -> &Identity {
        &self.0.identity
    }

    /// How many paths to it are known, working or not.
    pub fn paths(&self) -> usize {
        self.0.paths.borrow().len()
    }

    /// Completes at the next [`Break`] after this call.
    pub fn broke(&self) -> impl Future<Output = Break> + use<> {
        let shared = Rc::clone(&self.0);
        let seen = shared.quiet.breaks.get();
        async move {
            loop {
                let quiet = &shared.quiet;
                match quiet.last.get() {
                    Some(last) if quiet.breaks.get() != seen => return last,
                    _ => quiet.broke.wait().await,
                }
            }
        }
    }

    /// Sends and receives; to be driven by the host for as long as the disk is used.
    ///
    /// # Errors
    /// Every port is gone. All operations have failed then.
    pub fn run(&self) -> Boxed<'static, IoResult<()>> {
        let shared = Rc::clone(&self.0);
        Box::pin(async move {
            let ports = 0..shared.ports.len();
            let mut running: Vec<_> =
                ports.map(|port| Some(Box::pin(port::run(&shared, port)))).collect();
            let mut beating = pin!(transfer::beat(&shared));
            let mut tending = pin!(tend::tend(&shared));
            poll_fn(|cx| {
                let _ = beating.as_mut().poll(cx);
                let _ = tending.as_mut().poll(cx);
                let mut gone = None;
                for each in &mut running {
                    let Some(port) = each else { continue };
                    if let Poll::Ready(error) = port.as_mut().poll(cx) {
                        (*each, gone) = (None, Some(error));
                    }
                }
                match gone {
                    Some(error) if running.iter().all(Option::is_none) => {
                        shared.fail_all();
                        Poll::Ready(Err(error))
                    }
                    _ => Poll::Pending,
                }
            })
            .await
        })
    }
}

/// The paths from this port, and the device at the end of each.
async fn find(
    port: &Port,
    clock: &dyn Clock,
    address: Address,
) -> IoResult<Vec<(impl FnOnce(usize) -> Path + use<>, Identity)>> {
    let mut paths = Vec::new();
    for found in discover(&*port.link, clock, address).await? {
        let known = identify(&*port.link, clock, found.mac, address).await?;
        let ours = sectors_of(port.link.state().mtu);
        let (buffers, theirs) = (found.query.buffers, found.query.sectors);
        let path = move |index| Path::new(index, found.mac, buffers, theirs, ours);
        paths.extend(known.map(|known| (path, known)));
    }
    Ok(paths)
}

/// True if both are the same device.
fn is_same(one: &Identity, other: &Identity) -> bool {
    (&one.serial, one.sectors) == (&other.serial, other.sectors)
}

impl Disk for Initiator {
    fn submit(&self, op: Op) -> Completion<Done> {
        let shared = &self.0;
        if let Some(why) = self.limits().check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(why)));
        }
        if shared.ports.iter().all(|port| port.gone.get()) {
            let error = Error::new(ErrorKind::Gone, shared.gone());
            return Completion::ready(Done::failed(op.work, error));
        }
        let deadline = op.deadline.unwrap_or(shared.clock.now() + PATIENCE);
        let (ticket, completion) = shared.answers.start();
        match Operation::new(op, ticket, deadline) {
            Ok(operation) => shared.work.borrow_mut().take(operation),
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

    /// Takes an operation in. A write waits for earlier ones to the same sectors.
    fn take(&mut self, mut operation: Operation) {
        let sectors = operation.written();
        if !sectors.is_empty() {
            let overlaps = |it: &Operation| {
                let other = it.written();
                other.start < sectors.end && sectors.start < other.end
            };
            let earlier = self.operations.iter().filter(|(_, it)| overlaps(it));
            operation.begin_after(earlier.map(|(&number, _)| number).collect());
        }
        let number = self.number();
        self.operations.insert(number, operation);
        self.unsent.push_back(number);
    }

    /// A tag that was not used for 2³¹ frames: the counter is its upper half without bit 31, as
    /// Linux has it; the lower half counts the rounds.
    fn next_tag(&mut self) -> u32 {
        self.sent += 1;
        (self.sent as u32 & 0x7fff) << 16 | (self.sent >> 15) as u32 & 0xffff
    }
}

impl Shared {
    fn gone(&self) -> String {
        format!("aoe:{}: every port is gone", self.address)
    }

    /// Fails every operation: no port is left.
    fn fail_all(&self) {
        let mut work = self.work.borrow_mut();
        let operations = std::mem::take(&mut *work).operations;
        for operation in operations.into_values() {
            let (ticket, done) = operation.give_up(ErrorKind::Gone, self.gone());
            self.answers.finish(ticket, done);
        }
    }

    /// Takes note that the target has answered.
    fn hear(&self, now: Time) {
        self.quiet.heard.set(now);
        self.quiet.is_reported.set(false);
    }

    /// Reports a sign that the target may have been restarted.
    fn report(&self, sign: Break) {
        self.quiet.last.set(Some(sign));
        self.quiet.breaks.set(self.quiet.breaks.get() + 1);
        self.quiet.broke.raise();
    }

    /// Reports silence, once, if frames have waited for long.
    fn listen(&self, work: &Work, now: Time) {
        let quiet = &self.quiet;
        if work.frames.is_empty() {
            return quiet.since.set(None);
        }
        let since = quiet.since.get().unwrap_or(now);
        quiet.since.set(Some(since));
        if now - since.max(quiet.heard.get()) >= SILENCE && !quiet.is_reported.replace(true) {
            self.report(Break::Silence);
        }
    }
}
