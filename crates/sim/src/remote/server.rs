//! The server of one member: connections, a network before it, and a disk that it shares with none.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use io::{Completion, Completions, Disk, Done, Limits, Op, Signal, Work};
use net::remote::{Connect, Connecting, Connection, QUARANTINE};

use crate::cut::{Cut, Mode};
use crate::disk::SimDisk;
use crate::mark;
use crate::parts::Parts;
use crate::world::World;
use random::Rng;

/// A request in the network or the server's queue, in microseconds.
const DELAY_MICROS: u64 = 400;
/// A request that waits long.
const LATE_MICROS: u64 = 500_000;
/// A request of an ended connection is carried out at the latest so long after its end.
const ZOMBIE_MICROS: u64 = QUARANTINE.as_micros() as u64 - 1_000_000;

pub(super) struct Server {
    world: World,
    disk: Rc<SimDisk>,
    rng: RefCell<Rng>,
    is_up: Cell<bool>,
    stalled: Cell<bool>,
    /// Every write waits long on its way.
    jammed: Cell<bool>,
    changed: Signal,
    /// Counts crashes: requests of an earlier life are lost.
    life: Cell<u64>,
    sessions: RefCell<Vec<Rc<Session>>>,
    /// The bytes of writes that were carried out after their connection had ended.
    late: RefCell<Vec<Range<u64>>>,
}

/// One connection.
struct Session {
    server: Rc<Server>,
    life: u64,
    ended: Rc<Cell<bool>>,
    end: Signal,
    answers: Completions<Done>,
}

impl Server {
    pub(super) fn new(world: &World, disk: Rc<SimDisk>, number: u64) -> Rc<Server> {
        Rc::new(Server {
            world: world.clone(),
            disk,
            rng: RefCell::new(world.rng("server", number)),
            is_up: Cell::new(true),
            stalled: Cell::new(false),
            jammed: Cell::new(false),
            changed: Signal::new(),
            life: Cell::new(0),
            sessions: RefCell::default(),
            late: RefCell::default(),
        })
    }

    /// Ends all connections; nothing connects until it comes back, if it is `down`. Requests under
    /// way are still carried out.
    pub(super) fn cut(&self, down: bool) {
        self.is_up.set(!down);
        for session in self.sessions.take() {
            session.ended.set(true);
            session.end.raise();
        }
    }

    /// Every write waits long on its way: a cut then leaves many that are carried out late.
    pub(super) fn set_jammed(&self, jammed: bool) {
        self.jammed.set(jammed);
    }

    /// Loses the power, and what was not flushed.
    pub(super) fn crash(&self, rng: &mut Rng) {
        self.life.set(self.life.get() + 1);
        let mut cut = Cut::new(Mode::draw(rng), false, Rng::stream(rng.bits(), "cut", 0));
        self.disk.crash(true, &mut cut, &Parts::of(&self.disk, None));
        self.cut(true);
    }

    /// Carries out nothing, and keeps its connections.
    pub(super) fn set_stalled(&self, stalled: bool) {
        self.stalled.set(stalled);
        self.changed.raise();
    }

    /// Notes a write that is carried out now: late, or after a late one to its bytes.
    fn note_write(&self, bytes: Range<u64>, is_late: bool) {
        let mut late = self.late.borrow_mut();
        if is_late {
            late.push(bytes);
            self.world.trace.mark(mark::REMOTE_ZOMBIE);
            return;
        }
        let before = late.len();
        late.retain(|it| it.end <= bytes.start || bytes.end <= it.start);
        if late.len() < before {
            self.world.trace.mark(mark::REMOTE_AFTER_ZOMBIE);
        }
    }

    pub(super) fn come_back(&self) {
        self.is_up.set(true);
        self.changed.raise();
    }
}

impl Disk for Session {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.answers.start();
        let (server, answers, life) = (Rc::clone(&self.server), self.answers.clone(), self.life);
        let delay = {
            let mut rng = server.rng.borrow_mut();
            let is_late =
                (server.jammed.get() || rng.percent(2)) && matches!(op.work, Work::Write(_));
            rng.skewed(if is_late { LATE_MICROS } else { DELAY_MICROS })
        };
        let (ended, session_ended) = (self.ended.get(), Rc::clone(&self.ended));
        let world = self.server.world.clone();
        self.server.world.executor.spawn("request", async move {
            world.pause(delay).await;
            while server.stalled.get() {
                server.changed.wait().await;
            }
            let is_late = session_ended.get();
            if is_late {
                // It waits in the queue of a connection that has ended.
                let more = {
                    let mut rng = server.rng.borrow_mut();
                    let soon = rng.percent(50);
                    if soon { rng.skewed(ZOMBIE_MICROS) } else { rng.within(0, ZOMBIE_MICROS) }
                };
                world.pause(more).await;
            }
            if ended || life != server.life.get() {
                return;
            }
            if matches!(op.work, Work::Write(_)) {
                server.note_write(op.offset..op.offset + op.work.len(), is_late);
            }
            let done = server.disk.submit(op).await;
            if life == server.life.get() {
                answers.finish(ticket, done);
            }
        });
        completion
    }

    fn limits(&self) -> Limits {
        self.server.disk.limits()
    }
}

pub(super) struct Connector(pub(super) Rc<Server>);

impl Connect for Connector {
    fn connect(&self) -> Connecting<'_> {
        let server = &self.0;
        Box::pin(async move {
            let delay = server.rng.borrow_mut().skewed(20_000);
            server.world.pause(delay).await;
            if !server.is_up.get() || server.stalled.get() {
                return Err("the server does not answer".into());
            }
            let session = Rc::new(Session {
                server: Rc::clone(server),
                life: server.life.get(),
                ended: Rc::default(),
                end: Signal::new(),
                answers: Completions::new(),
            });
            server.sessions.borrow_mut().push(Rc::clone(&session));
            let watched = Rc::clone(&session);
            let run = Box::pin(async move {
                while !watched.ended.get() {
                    watched.end.wait().await;
                }
            });
            Ok(Connection { disk: session, run, identity: String::new() })
        })
    }
}
