//! A disk on another machine, over a sequence of connections.
//!
//! ```text
//!    submit ─▶ operation ─▶ connection ─▶ answer             up
//!                  ▲             ✗ break
//!                  └── held ◀────┘  connect again ─▶ replay  reconnecting, for `hold` at most
//!                                        ✗ too late
//!              fails with `Gone`    connect again            missing
//!              fails with `Gone`    wait for `resume`        returned: nothing is trusted yet
//! ```
//!
//! A break may be a crash of the server, and no protocol says so: NBD and AoE have no boot id. So
//! after each break **nothing that was acknowledged without a flush is trusted**. Such writes are
//! kept (`unflushed`) and are written again, in their order, and flushed, before any other
//! operation goes on. If they cannot be kept, or the server is away too long, the disk fails
//! everything with `Gone`, also when the server is back, until its owner says that it knows
//! ([`Remote::resume`]): an array marks the member as failed, and its bitmap knows what to copy.
//!
//! A write in flight at a break may still land later: a request in the old server's queue, a frame
//! on the wire. Until [`QUARANTINE`] has passed, no other write to these bytes is sent
//! (`quarantine`), and a disk that was missing is not offered again.

mod operation;
mod quarantine;
mod supervise;
#[cfg(test)]
mod tests;
mod unflushed;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{
    Boxed, Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Limits, Op, Pool, Signal,
    TaskSet, Ticket, Time,
};

use self::quarantine::Quarantine;
use self::unflushed::Unflushed;

/// How long a write whose outcome is unknown may take to land, if it ever does. Longer than TCP
/// and the servers' queues on a local network need; a server that was stopped for longer and then
/// goes on is not covered.
pub const QUARANTINE: Duration = Duration::from_secs(10);
/// Breaks within [`FLAP_WINDOW`] that make a disk missing at once, for [`COOL_DOWN`].
pub const FLAPS: usize = 3;
/// See [`FLAPS`].
pub const FLAP_WINDOW: Duration = Duration::from_secs(600);
/// See [`FLAPS`].
pub const COOL_DOWN: Duration = Duration::from_secs(60);
/// Default of [`RemoteOptions::hold`].
pub const HOLD: Duration = Duration::from_secs(8);
/// The most bytes of operations that wait for a connection; and the most bytes of unflushed writes
/// that are kept.
pub const MAX_HELD_BYTES: u64 = 64 << 20;
/// An operation that takes longer makes the disk slow.
const SLOW: Duration = Duration::from_secs(2);
/// An operation that takes longer ends the connection: a server that hangs is as one that is away.
const STALL: Duration = Duration::from_secs(10);

/// A live connection: the disk, the future that drives it and ends with it, and the identity that
/// the server states (a serial number; empty if it has none).
pub struct Connection {
    /// The disk; its operations fail with `Gone` when the connection ends.
    pub disk: Rc<dyn Disk>,
    /// Drives the connection. Ends when it breaks, and when the server may have restarted.
    pub run: Boxed<'static, ()>,
    /// Compared at each return.
    pub identity: String,
}

/// A connection to come, or why there is none.
pub type Connecting<'a> = Boxed<'a, Result<Connection, String>>;

/// Connects to one disk, as often as it is asked.
pub trait Connect {
    /// Connects. Ends by itself after some seconds if there is no answer.
    fn connect(&self) -> Connecting<'_>;
}

/// How a remote disk behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoteOptions {
    /// How long operations wait for a connection; then they fail with `Gone`.
    pub hold: Duration,
}

impl Default for RemoteOptions {
    fn default() -> RemoteOptions {
        RemoteOptions { hold: HOLD }
    }
}

/// The state of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Connected.
    Up,
    /// Connected, and an operation has waited for two seconds.
    Slow,
    /// The connection is lost; operations are held.
    Reconnecting,
    /// The connection is lost; operations fail with `Gone`.
    Missing,
    /// Connected again after it was missing, with writes that may be lost: operations fail with
    /// `Gone` until [`Remote::resume`].
    Returned,
}

/// A disk on another machine. Clones are the same disk; [`Remote::run`] must be driven.
#[derive(Clone)]
pub struct Remote(Rc<Handle>);

/// Ends the connection when the last clone is dropped.
struct Handle(Rc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.closed.set(true);
        self.0.changed.raise();
    }
}

struct Shared {
    name: String,
    connect: Box<dyn Connect>,
    clock: Rc<dyn Clock>,
    pool: Pool,
    identity: String,
    limits: Limits,
    hold: Cell<Duration>,
    state: Cell<State>,
    /// The current connection's disk, and the number of the connection.
    disk: RefCell<Option<Rc<dyn Disk>>>,
    session: Cell<u64>,
    losses: Cell<u64>,
    /// Writes may be lost, and the owner does not know yet.
    unconfirmed: Cell<bool>,
    /// Why the disk is refused for good, if it is.
    refused: RefCell<Option<String>>,
    /// The first connection, until `run` takes it over.
    first: RefCell<Option<Connection>>,
    arrived: RefCell<Vec<(Op, Ticket)>>,
    in_flight: RefCell<BTreeMap<u64, Flight>>,
    next: Cell<u64>,
    held_bytes: Cell<u64>,
    unflushed: RefCell<Unflushed>,
    quarantine: RefCell<Quarantine>,
    answers: Completions<Done>,
    submitted: Signal,
    /// Raised when the state, the connection, or the quarantine changes.
    changed: Signal,
    closed: Cell<bool>,
}

/// The bytes that an operation in flight changes (none for others), and since when it is in flight.
type Flight = (Range<u64>, Time);

/// An operation that a connection works on, while this lives.
struct InFlight<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> InFlight<'a> {
    fn begin(shared: &'a Shared, number: u64, written: Range<u64>) -> InFlight<'a> {
        shared.in_flight.borrow_mut().insert(number, (written, shared.clock.now()));
        InFlight { shared, number }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.shared.in_flight.borrow_mut().remove(&self.number);
    }
}

impl Remote {
    /// Connects to the disk. `name` is its name in errors.
    ///
    /// # Errors
    /// Why there is no connection, from `connect`.
    pub fn open(
        name: String,
        connect: Box<dyn Connect>,
        clock: Rc<dyn Clock>,
        options: RemoteOptions,
    ) -> Boxed<'static, Result<Remote, String>> {
        Box::pin(async move {
            let connection = connect.connect().await?;
            let limits = Limits { volatile: true, ..connection.disk.limits() };
            Ok(Remote(Rc::new(Handle(Rc::new(Shared {
                name,
                connect,
                clock,
                pool: Pool::new(0),
                identity: connection.identity.clone(),
                limits,
                hold: Cell::new(options.hold),
                state: Cell::new(State::Up),
                disk: RefCell::new(Some(Rc::clone(&connection.disk))),
                session: Cell::new(0),
                losses: Cell::new(0),
                unconfirmed: Cell::new(false),
                refused: RefCell::default(),
                first: RefCell::new(Some(connection)),
                arrived: RefCell::default(),
                in_flight: RefCell::default(),
                next: Cell::new(0),
                held_bytes: Cell::new(0),
                unflushed: RefCell::default(),
                quarantine: RefCell::default(),
                answers: Completions::new(),
                submitted: Signal::new(),
                changed: Signal::new(),
                closed: Cell::new(false),
            })))))
        })
    }

    /// Keeps the connection alive and carries out operations; for the host to drive. Ends when the
    /// last clone of the disk is dropped.
    ///
    /// # Panics
    /// If it is called twice.
    pub fn run(&self) -> Boxed<'static, ()> {
        let shared = Rc::clone(&self.0.0);
        Box::pin(async move {
            let operations = TaskSet::new();
            let mut supervising = pin!(supervise::supervise(&shared));
            let mut submitted = pin!(shared.submitted.wait());
            poll_fn(|cx| {
                while submitted.as_mut().poll(cx).is_ready() {
                    submitted.set(shared.submitted.wait());
                }
                for (op, ticket) in shared.arrived.take() {
                    operations.spawn(operation::serve(Rc::clone(&shared), op, ticket));
                }
                let _: Poll<()> = operations.poll(cx);
                // Last: what the operations submitted goes out in this turn.
                supervising.as_mut().poll(cx)
            })
            .await;
        })
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.0.0.state.get()
    }

    /// How often the disk became missing: operations have failed with `Gone` each time.
    pub fn losses(&self) -> u64 {
        self.0.0.losses.get()
    }

    /// The identity that the server stated.
    pub fn identity(&self) -> &str {
        &self.0.0.identity
    }

    /// Why the disk does not come back, if another disk answers in its place.
    pub fn refused(&self) -> Option<String> {
        self.0.0.refused.borrow().clone()
    }

    /// Lets operations through again after the disk was missing: the owner knows that writes may be
    /// lost, those after the last flush that succeeded. Does nothing in other states.
    pub fn resume(&self) {
        let shared = &self.0.0;
        if shared.state.get() == State::Returned {
            shared.unconfirmed.set(false);
            shared.set_state(State::Up);
        }
    }

    /// Changes how long operations wait for a connection. An array that cannot do without the disk
    /// waits longer.
    pub fn set_hold(&self, hold: Duration) {
        if self.0.0.hold.replace(hold) != hold {
            self.0.0.changed.raise();
        }
    }
}

impl Disk for Remote {
    fn submit(&self, op: Op) -> Completion<Done> {
        let shared = &self.0.0;
        if let Some(fault) = shared.limits.check(&op) {
            let context = format!("{}, offset {}: {fault}", shared.name, op.offset);
            return Completion::ready(Done::failed(op.work, Error::refused(context)));
        }
        let (ticket, completion) = shared.answers.start();
        shared.arrived.borrow_mut().push((op, ticket));
        shared.submitted.raise();
        completion
    }

    fn limits(&self) -> Limits {
        self.0.0.limits
    }
}

/// The outcome of `work`; none if `end` comes first. Drives both.
async fn unless<T>(work: impl Future<Output = T>, end: impl Future) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => end.as_mut().poll(cx).map(|_| None),
    })
    .await
}

impl Shared {
    /// The number of a new operation.
    fn number(&self) -> u64 {
        self.next.replace(self.next.get() + 1)
    }

    fn set_state(&self, state: State) {
        if self.state.replace(state) != state {
            self.changed.raise();
        }
    }

    fn gone(&self) -> Error {
        let why = match &*self.refused.borrow() {
            Some(why) => why.clone(),
            None => "the server does not answer".into(),
        };
        Error::new(ErrorKind::Gone, format!("{}: {why}", self.name))
    }
}
