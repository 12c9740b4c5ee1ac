//! A member's server: the machine `cluster::member` over a disk and connections.
//!
//! ```text
//!   Hello ──▶ operator: describe, format
//!        ╰──▶ client, candidate ──▶ machine ──▶ disk: header     data: read, write, flush
//!                                      ╰──────▶ answers, to every connection of that peer
//! ```
//!
//! The server is fail-stop: after a failed read or write it ends, and the coordinator counts it as
//! MISSING. It cannot go on with a write whose outcome is unknown. While its disk hangs it answers
//! no order: it counts as MISSING, too, and is rebuilt when the disk goes on.
//!
//! Invariants: a connection carries only messages of its speaker. Nobody is served before the boot
//! of this start is durable.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{Error as StreamError, ErrorKind as Kind};
use std::rc::Rc;
use std::time::Duration;

use cluster::ids::BootId;
use cluster::member::{Action, Event, IoId, Member, Peer};
use cluster::message::{FromMember, Io, MOST_IO_BYTES, ToMember, Who};
use cluster::roles::Holder;
use cluster::session::{Ask, Label, Speaker, Told};
use io::{Boxed, Clock, Disk, Error, Op, Pool, Result, Signal, Time, Work};

use super::door::{Session, forbidden};
use super::line::{self, Inbox, Line};
use super::runs::{Asked, runs, works};
use super::{Spawn, area, sectors};

/// Memory kept for pieces.
const POOL_BYTES: usize = 4 << 20;
/// A disk hangs when a request takes longer. Together with the time until a silent member is
/// MISSING it is shorter than the patience with a client that is to give a region back.
const HANGS_AFTER: Duration = Duration::from_secs(4);

/// A disk that is served. Clones are the same server.
#[derive(Clone)]
pub struct MemberServer(Rc<Shared>);

struct Shared {
    disk: Rc<dyn Disk>,
    pool: Pool,
    clock: Rc<dyn Clock>,
    spawn: Spawn,
    /// None until the disk is formatted.
    station: RefCell<Option<Station>>,
    /// Pieces of frames that arrived together.
    queued: RefCell<Vec<Asked>>,
    lines: RefCell<BTreeMap<u64, (Peer, Rc<Line>)>>,
    /// When the disk's requests began, by their numbers.
    begun: RefCell<BTreeMap<u64, Time>>,
    next: Cell<u64>,
    fault: RefCell<Option<Error>>,
    changed: Signal,
}

struct Station {
    label: Label,
    machine: Member,
    boot: BootId,
    data: Rc<dyn Disk>,
}

fn refused(why: impl Into<String>) -> StreamError {
    StreamError::new(Kind::PermissionDenied, why.into())
}

impl MemberServer {
    /// Serves a disk: as the member that its label names, or for a format only. Returns when the
    /// boot is durable.
    ///
    /// # Errors
    /// If the disk fails, or its headers are damaged.
    pub fn start(
        disk: Rc<dyn Disk>,
        clock: Rc<dyn Clock>,
        spawn: Spawn,
    ) -> Boxed<'static, Result<MemberServer>> {
        Box::pin(async move {
            let label = area::label(&*disk).await?;
            let server = MemberServer::unformatted(disk, clock, spawn);
            if let Some(label) = label {
                server.begin(label).await?;
            }
            Ok(server)
        })
    }

    /// Serves a disk for a format only, whatever it holds: its user has agreed to lose that.
    pub fn unformatted(disk: Rc<dyn Disk>, clock: Rc<dyn Clock>, spawn: Spawn) -> MemberServer {
        MemberServer(Rc::new(Shared {
            disk,
            pool: Pool::new(POOL_BYTES),
            clock,
            spawn,
            station: RefCell::default(),
            queued: RefCell::default(),
            lines: RefCell::default(),
            begun: RefCell::default(),
            next: Cell::new(0),
            fault: RefCell::default(),
            changed: Signal::new(),
        }))
    }

    /// The label, once there is one.
    pub fn label(&self) -> Option<Label> {
        self.0.station.borrow().as_ref().map(|station| station.label.clone())
    }

    /// Completes when the disk fails.
    pub async fn failed(&self) -> Error {
        loop {
            let changed = self.0.changed.wait();
            if let Some(error) = &*self.0.fault.borrow() {
                return error.clone();
            }
            changed.await;
        }
    }

    /// Makes everything durable that was acknowledged.
    ///
    /// # Errors
    /// The disk's.
    pub async fn flush(&self) -> Result<()> {
        let flushed = self.data().submit(Op::flush());
        self.watched(flushed).await.result
    }

    fn number(&self) -> u64 {
        self.0.next.replace(self.0.next.get() + 1)
    }

    /// Waits for a request to the disk, and knows since when.
    async fn watched<T>(&self, request: impl Future<Output = T>) -> T {
        let number = self.number();
        self.0.begun.borrow_mut().insert(number, self.0.clock.now());
        let done = request.await;
        self.0.begun.borrow_mut().remove(&number);
        done
    }

    /// True if the oldest request to the disk takes too long.
    pub fn hangs(&self) -> bool {
        let begun = self.0.begun.borrow();
        let oldest = begun.first_key_value();
        oldest.is_some_and(|(_, &begun)| self.0.clock.now() - begun > HANGS_AFTER)
    }

    /// The data; before a format the disk.
    fn data(&self) -> Rc<dyn Disk> {
        let station = self.0.station.borrow();
        Rc::clone(station.as_ref().map_or(&self.0.disk, |station| &station.data))
    }

    /// Opens the data, starts the machine and makes its boot durable, before anybody is served.
    async fn begin(&self, label: Label) -> Result<BootId> {
        let (parts, spawn) = (area::parts(&self.0.disk)?, self.0.spawn.clone());
        let data = sectors::open(parts, label.shape.piece_bytes, spawn).await?;
        let [one, other] = area::slots(&*self.0.disk).await?;
        let entries = area::entries(&*self.0.disk).await?;
        let mut out = Vec::new();
        let mut machine = Member::start([&one, &other], &entries, &mut out);
        while let Some(action) = out.pop() {
            let Action::Store { slot, generation, bytes } = action else {
                unreachable!("a start only stores its boot")
            };
            area::store(&*self.0.disk, slot, &bytes).await?;
            machine.handle(Event::Stored(generation), &mut out);
        }
        let boot = machine.durable().boot;
        *self.0.station.borrow_mut() = Some(Station { label, machine, boot, data });
        Ok(boot)
    }

    /// Serves a session until it ends; then says why.
    pub fn serve(&self, session: Session) -> Boxed<'_, StreamError> {
        Box::pin(async move {
            let Session { hello, holder, line, inbox, place: _place } = session;
            let peer = match hello.speaker {
                Speaker::Operator => return self.operate(&holder, &line, inbox).await,
                Speaker::Client(id, _) => Peer::Client(id),
                Speaker::Candidate(id) => Peer::Candidate(id),
            };
            let mine = |label: &Label| (label.array, label.member) == (hello.array, hello.member);
            if !self.label().as_ref().is_some_and(mine) {
                return refused("the peer means another array, or another member of it");
            }
            let number = self.number();
            self.0.lines.borrow_mut().insert(number, (peer, line));
            let ended = inbox.run(|frame| self.message(hello.speaker, peer, frame)).await;
            self.0.lines.borrow_mut().remove(&number);
            ended
        })
    }

    /// Answers one command.
    async fn operate(&self, holder: &Holder, line: &Line, mut inbox: Inbox) -> StreamError {
        let told = match inbox.next().await {
            Ok(ask) if !holder.may_ask(&ask) => forbidden(holder),
            Ok(Ask::Describe) if self.hangs() => Told::Failed("the disk does not answer".into()),
            Ok(Ask::Describe) => {
                let sector = self.0.disk.limits().logical_block;
                let station = self.0.station.borrow();
                let label =
                    station.as_ref().map(|it| (it.label.clone(), it.machine.durable().epoch));
                Told::Described(area::data_bytes(&*self.0.disk), sector, label)
            }
            Ok(Ask::Format(label)) => match self.format(label).await {
                Ok(boot) => Told::Formatted(boot),
                Err(error) => Told::Failed(error.to_string()),
            },
            Ok(_) => Told::Failed("a member does not have this command".into()),
            Err(error) => return error,
        };
        line.send(&told);
        inbox.run(|_| Err(refused("one command for each connection"))).await
    }

    async fn format(&self, label: Label) -> Result<BootId> {
        if let Some(old) = self.label() {
            // A command that was sent again.
            if old == label {
                let station = self.0.station.borrow();
                return Ok(station.as_ref().map(|station| station.boot).unwrap_or_default());
            }
            let context = format!("the disk is member {} of {}", old.member.0, old.name);
            return Err(Error::refused(context));
        }
        area::format(&*self.0.disk, &label).await?;
        self.begin(label).await
    }

    fn message(&self, speaker: Speaker, peer: Peer, frame: &[u8]) -> std::io::Result<()> {
        let message: ToMember = line::read(frame)?;
        let own = match (&message, speaker) {
            (ToMember::Data(stamp, _), Speaker::Client(id, incarnation)) => {
                stamp.who == Who::Client(id, incarnation)
            }
            (ToMember::Data(stamp, _), _) => matches!(stamp.who, Who::Coordinator(_)),
            (ToMember::Control(..), speaker) => matches!(speaker, Speaker::Candidate(_)),
        };
        if !own {
            return Err(refused("the message carries another identity"));
        }
        if let ToMember::Data(_, io) = &message
            && !self.contains(io)
        {
            return Err(refused("stripes are out of range, or their pieces have another length"));
        }
        // An order may wait; one of its sender's later copies is answered.
        if !(matches!(message, ToMember::Control(..)) && self.hangs()) {
            self.handle(Event::Message(peer, message));
        }
        Ok(())
    }

    fn contains(&self, io: &Io) -> bool {
        let station = self.0.station.borrow();
        let Some(Station { label: Label { shape, .. }, .. }) = &*station else { return false };
        let stripes = u64::from(shape.regions) * u64::from(shape.region_blocks);
        let piece = u64::from(shape.piece_bytes);
        let (first, bytes) = match io {
            Io::Read(stripe, count) => (*stripe, u64::from(*count) * piece),
            Io::Write(stripe, pieces) => (*stripe, pieces.len() as u64),
            Io::Flush | Io::Check => return true,
        };
        let few = bytes == piece || bytes <= u64::from(MOST_IO_BYTES);
        let end = first.checked_add(bytes / piece);
        few && bytes > 0 && bytes.is_multiple_of(piece) && end.is_some_and(|end| end <= stripes)
    }

    fn handle(&self, event: Event) {
        let mut out = Vec::new();
        if let Some(station) = &mut *self.0.station.borrow_mut() {
            station.machine.handle(event, &mut out);
        }
        for action in out {
            match action {
                Action::Send(peer, message) => self.send(peer, &message),
                Action::Execute(id, _, io) => self.queue(id, io),
                Action::Store { slot, generation, bytes } => {
                    let server = self.clone();
                    (self.0.spawn)(Box::pin(async move {
                        let stored = area::store(&*server.0.disk, slot, &bytes);
                        let stored = server.watched(stored).await;
                        server.then(stored.map(|()| Event::Stored(generation)));
                    }));
                }
                Action::Append { at, generation, bytes } => {
                    let server = self.clone();
                    (self.0.spawn)(Box::pin(async move {
                        let stored = area::append(&*server.0.disk, at, &bytes);
                        let stored = server.watched(stored).await;
                        server.then(stored.map(|()| Event::Stored(generation)));
                    }));
                }
            }
        }
    }

    /// To every connection of the peer: numbers of different incarnations differ.
    fn send(&self, to: Peer, message: &FromMember) {
        let lines = self.0.lines.borrow();
        lines.values().filter(|(peer, _)| *peer == to).for_each(|(_, line)| line.send(message));
    }

    fn then(&self, event: Result<Event>) {
        match event {
            Ok(event) => self.handle(event),
            Err(error) => {
                self.0.fault.borrow_mut().get_or_insert(error);
                self.0.changed.raise();
            }
        }
    }

    /// Executes it together with what arrives with it.
    fn queue(&self, io: IoId, asked: Io) {
        let (stripe, count, bytes) = match asked {
            Io::Read(stripe, count) => (stripe, count as usize, None),
            Io::Write(stripe, bytes) => (stripe, 0, Some(bytes)),
            Io::Flush => {
                let server = self.clone();
                return (self.0.spawn)(Box::pin(async move {
                    let flushed = server.flush().await;
                    server.then(flushed.map(|()| Event::Finished(io, Vec::new())));
                }));
            }
            Io::Check => unreachable!("the machine answers it itself"),
        };
        let piece = self.label().map_or(0, |label| label.shape.piece_bytes) as usize;
        let at = stripe * piece as u64;
        let len = bytes.as_ref().map_or(count * piece, Vec::len);
        let mut queued = self.0.queued.borrow_mut();
        queued.push(Asked { io, at, len, bytes });
        if queued.len() == 1 {
            let server = self.clone();
            (self.0.spawn)(Box::pin(async move {
                for run in runs(server.0.queued.take()) {
                    let server = server.clone();
                    let spawn = server.0.spawn.clone();
                    spawn(Box::pin(async move { server.execute(run).await }));
                }
            }));
        }
    }

    /// Executes what lies side by side.
    async fn execute(&self, run: Vec<Asked>) {
        let mut offset = run[0].at;
        let mut running = Vec::new();
        for work in works(&run, &self.0.pool) {
            let len = work.len();
            running.push(self.data().submit(Op { offset, work, ..Op::flush() }));
            offset += len;
        }
        let mut read = Vec::new();
        for completion in running {
            let done = self.watched(completion).await;
            if let Err(error) = done.result {
                return self.then(Err(error));
            }
            if let Work::Read(bufs) = done.work {
                read = bufs;
            }
        }
        let mut read = read.into_iter();
        for asked in run {
            let bytes = read.next().map(|buf| buf.to_vec()).unwrap_or_default();
            self.handle(Event::Finished(asked.io, bytes));
        }
    }
}
