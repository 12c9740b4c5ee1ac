//! A client as a disk: the machine `cluster::client` over connections, under `io::Disk`.
//!
//! Requests are cut into parts of [`MOST_IO_BYTES`] of each member, on wide arrays of a quarter of
//! [`WINDOW`]. A part waits until there is room for it. Parts of a long read are there together, so
//! that members' disks do not turn between those of several reads. A range may begin and end
//! anywhere: the machine patches a block that is written in part, under its grant. A write with FUA
//! is a write and a flush. Nothing times out: requests wait until enough members are in sync, or
//! fail with `Fenced` once the cluster has evicted this client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::Error as StreamError;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use cluster::client::{Action, Client, Event, Failure, Work as Request};
use cluster::code;
use cluster::config::{Config, Mode};
use cluster::ids::{ClientId, Incarnation, MemberId, Ms, RequestId};
use cluster::message::{FromClient, FromMember, MOST_IO_BYTES, Refusal};
use cluster::session::{FromCoordinator, Hello, Speaker};
use cluster::timing::Timing;
use io::{
    Boxed, Buf, Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind,
    Limits, Op, Result, Signal, Stream, Ticket, Work,
};

use super::line::{self, Line};
use super::links::Links;
use super::parts::{Grid, Part};
use super::{Spawn, milliseconds};

/// Blocks of all requests with the machine at once; one stripe may be longer.
pub const WINDOW: u64 = 1024;

type Answer = std::result::Result<Vec<u8>, Failure>;

/// A client that is running, as a disk. Clones are the same one.
#[derive(Clone)]
pub struct ClientDisk(Rc<Shared>);

struct Shared {
    machine: RefCell<Client>,
    hello: Hello,
    timing: Timing,
    limits: Limits,
    grid: Grid,
    clock: Rc<dyn Clock>,
    spawn: Spawn,
    members: Links,
    coordinators: RefCell<BTreeMap<u64, Rc<Line>>>,
    next: Cell<u64>,
    /// Those with the machine, with their blocks.
    requests: RefCell<BTreeMap<RequestId, (Ticket, u64)>>,
    waiting: Cell<u64>,
    room: Signal,
    answers: Completions<Answer>,
    done: Completions<Done>,
}

impl ClientDisk {
    /// Starts an incarnation for an array of this configuration.
    pub fn start(
        (client, incarnation): (ClientId, Incarnation),
        config: &Config,
        timing: Timing,
        clock: Rc<dyn Clock>,
        spawn: Spawn,
    ) -> ClientDisk {
        let now = milliseconds(&*clock);
        let speaker = Speaker::Client(client, incarnation);
        let hello = Hello { speaker, array: config.array, member: MemberId(0) };
        let block = code::block_bytes(&config.shape, config.slots.len()) as u64;
        let width = code::width(&config.shape, config.slots.len()) as u64;
        let region = u64::from(config.shape.region_blocks);
        let stripes = u64::from(config.shape.regions) * region;
        let run = u64::from(MOST_IO_BYTES / config.shape.piece_bytes);
        let run = run.min(WINDOW / 4 / width).max(1);
        let sector = u32::try_from(block).expect("a block is small");
        let limits = Limits {
            // Holders of a shared region would replace each other's parts of a block.
            logical_block: if config.shape.mode == Mode::Shared { sector } else { 1 },
            physical_block: sector,
            atomic_write: 0,
            optimal: sector * u32::try_from(width).expect("a stripe is small"),
            ..Limits::plain(stripes * width * block)
        };
        ClientDisk(Rc::new(Shared {
            machine: RefCell::new(Client::start(client, incarnation, timing, now)),
            hello,
            timing,
            limits,
            grid: Grid { block, stripe: width, run: run * width, region: region * width },
            clock,
            spawn,
            members: Links::new(speaker, config.array, config.slots.len()),
            coordinators: RefCell::default(),
            next: Cell::new(0),
            requests: RefCell::default(),
            waiting: Cell::new(0),
            room: Signal::new(),
            answers: Completions::new(),
            done: Completions::new(),
        }))
    }

    /// Ticks until the cluster has evicted this incarnation.
    pub fn run(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let tick = Duration::from_millis(self.0.timing.tick_ms);
            while !self.0.machine.borrow().is_evicted() {
                self.step(|machine, now, out| machine.tick(now, out));
                self.0.clock.sleep_until(self.0.clock.now() + tick).await;
            }
        })
    }

    /// Uses this connection to a member until it ends; then says why. A server that refuses a
    /// request because it has another disk than the member's is not the member.
    pub fn connect_member(
        &self,
        member: MemberId,
        stream: Box<dyn Stream>,
    ) -> Boxed<'_, StreamError> {
        Box::pin(async move {
            let each = |message| {
                if let FromMember::Refused(_, Refusal::Boot(boot)) = message
                    && self.0.machine.borrow().disk(member).is_some_and(|disk| !boot.is_of(disk))
                {
                    return Err(StreamError::other("another disk answers than that of the member"));
                }
                self.handle(Event::Member(member, message));
                Ok(())
            };
            let opened = || self.handle(Event::Connected(member));
            self.0.members.run(member, stream, opened, each).await
        })
    }

    /// Uses this connection to a coordinator until it ends; then says why.
    pub fn connect_coordinator(&self, stream: Box<dyn Stream>) -> Boxed<'_, StreamError> {
        Box::pin(async move {
            let (line, inbox) = Line::open(stream);
            line.send(&self.0.hello);
            let number = self.number();
            self.0.coordinators.borrow_mut().insert(number, line);
            let ended = inbox.run(|frame| {
                let FromCoordinator(term, message) = line::read(frame)?;
                self.handle(Event::Coordinator(term, message));
                Ok(())
            });
            let ended = ended.await;
            self.0.coordinators.borrow_mut().remove(&number);
            ended
        })
    }

    fn number(&self) -> u64 {
        self.0.next.replace(self.0.next.get() + 1)
    }

    fn handle(&self, event: Event) {
        self.step(|machine, now, out| machine.handle(now, event, out));
    }

    fn step(&self, work: impl FnOnce(&mut Client, Ms, &mut Vec<Action>)) {
        let (mut out, now) = (Vec::new(), milliseconds(&*self.0.clock));
        work(&mut self.0.machine.borrow_mut(), now, &mut out);
        for action in out {
            match action {
                Action::Coordinators(message) => self.to_coordinators(&message),
                Action::Member(member, message) => self.0.members.send(member, &message),
                Action::Done(id, answer) => {
                    let found = self.0.requests.borrow_mut().remove(&id);
                    let (ticket, blocks) = found.expect("a request is answered once");
                    self.0.answers.finish(ticket, answer);
                    self.0.waiting.set(self.0.waiting.get() - blocks);
                    self.0.room.raise();
                }
            }
        }
    }

    fn to_coordinators(&self, message: &FromClient) {
        self.0.coordinators.borrow().values().for_each(|line| line.send(message));
    }

    /// Gives the machine a request when there is room for it.
    async fn request(&self, work: Request) -> Completion<Answer> {
        let blocks = match &work {
            Request::Read(_, count) => *count,
            Request::Write(_, bytes) => bytes.len() as u64 / self.0.grid.block,
            Request::Patch(..) => 1,
            Request::Flush => 0,
        };
        while self.waiting() > 0 && self.waiting() + blocks > WINDOW {
            self.0.room.wait().await;
        }
        let (id, (ticket, answer)) = (RequestId(self.number()), self.0.answers.start());
        self.0.requests.borrow_mut().insert(id, (ticket, blocks));
        self.0.waiting.set(self.waiting() + blocks);
        self.handle(Event::Request(id, work));
        answer
    }

    /// Blocks that are with the machine.
    pub fn waiting(&self) -> u64 {
        self.0.waiting.get()
    }

    /// Executes these requests, as there is room for them; passes on what they read, in order.
    async fn execute(
        &self,
        requests: impl Iterator<Item = Request>,
        (offset, len): (u64, u64),
        mut each: impl FnMut(&[u8]),
    ) -> Result<()> {
        let mut running = Vec::new();
        for request in requests {
            running.push(self.request(request).await);
        }
        let mut outcome = Ok(());
        for answer in running {
            outcome = outcome.and(answer.await.map(|bytes| each(&bytes)));
        }
        outcome.map_err(|failure| match failure {
            Failure::Evicted => Error::new(ErrorKind::Fenced, "the cluster evicted this client"),
            Failure::Lost => {
                let context = "too many members restarted: unflushed writes may be lost";
                Error::new(ErrorKind::Gone, context)
            }
            Failure::Inconsistent => {
                let context = "a client died in a write while a member was not in sync";
                Error::new(ErrorKind::Medium { offset, len }, context)
            }
        })
    }

    /// Fills the buffers with an extent.
    async fn read(&self, extent @ (offset, len): (u64, u64), bufs: &mut [Buf]) -> Result<()> {
        let grid = self.0.grid;
        let mut content = Vec::with_capacity((len + 2 * grid.block) as usize);
        let reads = grid.reads(offset, len).map(|(block, count)| Request::Read(block, count));
        self.execute(reads, extent, |bytes| content.extend_from_slice(bytes)).await?;
        let mut rest = &content[(offset % grid.block) as usize..];
        for buf in bufs {
            let (part, after) = rest.split_at(buf.len());
            buf.copy_from_slice(part);
            rest = after;
        }
        Ok(())
    }

    /// Writes an extent; `content`: these bytes of it.
    async fn write(
        &self,
        extent @ (offset, len): (u64, u64),
        content: impl Fn(Range<usize>) -> Vec<u8>,
    ) -> Result<()> {
        let grid = self.0.grid;
        let writes = grid.writes(offset, len).map(|part| {
            let patch = part.is_patch(grid.block as usize);
            let Part { block, first, bytes } = part;
            let bytes = content(bytes);
            if patch { Request::Patch(block, first, bytes) } else { Request::Write(block, bytes) }
        });
        self.execute(writes, extent, |_| {}).await
    }

    async fn carry_out(&self, op: &mut Op) -> Result<()> {
        let extent = (op.offset, op.work.len());
        let wrote = op.work.is_write();
        match &mut op.work {
            Work::Read(bufs) => self.read(extent, bufs).await?,
            Work::Write(bufs) => {
                let joined;
                let content = match &bufs[..] {
                    [one] => &one[..],
                    _ => {
                        joined = bufs.iter().map(|buf| &buf[..]).collect::<Vec<_>>().concat();
                        &joined[..]
                    }
                };
                self.write(extent, |bytes| content[bytes].to_vec()).await?;
            }
            Work::Zero { .. } => self.write(extent, |bytes| vec![0; bytes.len()]).await?,
            Work::Flush => self.execute(std::iter::once(Request::Flush), extent, |_| {}).await?,
            Work::Discard { .. } => {}
            Work::Extents { len, found } => {
                *found = vec![Extent { len: *len, kind: ExtentKind::Data }];
            }
        }
        if wrote && op.fua {
            self.execute(std::iter::once(Request::Flush), extent, |_| {}).await?;
        }
        Ok(())
    }
}

impl Disk for ClientDisk {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        if let Some(fault) = self.0.limits.check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(fault)));
        }
        if op.work.is_empty() && !matches!(op.work, Work::Flush) {
            return Completion::ready(Done::ok(op.work));
        }
        let (ticket, completion) = self.0.done.start();
        let disk = self.clone();
        (self.0.spawn)(Box::pin(async move {
            let result = disk.carry_out(&mut op).await;
            disk.0.done.finish(ticket, Done { work: op.work, result });
        }));
        completion
    }

    fn limits(&self) -> Limits {
        self.0.limits
    }
}
