//! The target of a run: ours, or one without a history; it dies and comes back.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;

use io::link::HEAD_BYTES;
use io::{Disk, Frame, Link, Mac, Op, Pool, Work};
use net::aoe::target::{Dropped, Event, Keeping};
use net::aoe::wire::ata::{Ata, opcode};
use net::aoe::wire::identify::Identity;
use net::aoe::wire::query::{Directive, Query};
use net::aoe::wire::smart::Health;
use net::aoe::wire::{HEADER_BYTES, Header, SECTOR, command, sectors_of};
use net::aoe::{Address, Host, Lun, LunOptions, LunState, Target};

use super::watched::{Door, Watched};
use crate::cut::{Cut, Mode};
use crate::disk::SimDisk;
use crate::executor::TaskId;
use crate::link::SimLink;
use crate::parts::Parts;
use crate::world::World;
use random::Rng;

/// Where the target is.
pub(super) const LUN: Address = Address { shelf: 1, slot: 0 };
const SERIAL: &str = "0123";
/// Requests that a target without history announces to queue.
const BUFFERS: u16 = 16;
/// The most time that such a target takes to a request, beside its disk.
const LAZY_MICROS: u64 = 500;

pub(super) struct Server {
    world: World,
    disk: Rc<SimDisk>,
    watched: Rc<Watched>,
    links: Vec<Rc<SimLink>>,
    has_history: bool,
    target: RefCell<Option<Target>>,
    tasks: RefCell<Vec<TaskId>>,
    dropped: RefCell<Dropped>,
    starts: Cell<u64>,
}

struct Nobody;

impl Host for Nobody {
    fn health(&self, _: Address) -> Health {
        Health::default()
    }

    fn keep(&self, _: Address, _: &LunState) -> Keeping {
        Box::pin(async { Ok(()) })
    }

    fn report(&self, _: Address, _: Mac, _: Event) {}
}

impl Server {
    /// A target on these ports, which does not run yet.
    pub(super) fn new(
        world: &World,
        disk: Rc<SimDisk>,
        links: Vec<Rc<SimLink>>,
        has_history: bool,
    ) -> Rc<Server> {
        let watched = Watched::new(world, &disk);
        Rc::new(Server {
            world: world.clone(),
            disk,
            watched,
            links,
            has_history,
            target: RefCell::default(),
            tasks: RefCell::default(),
            dropped: RefCell::default(),
            starts: Cell::new(0),
        })
    }

    /// Starts the target: with nothing that an earlier one knew.
    pub(super) fn start(self: &Rc<Self>) {
        for link in &self.links {
            let mut lost = Vec::new();
            let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
            while link.poll_receive(cx, &mut lost).is_ready() {}
        }
        self.starts.set(self.starts.get() + 1);
        if self.has_history { self.start_ours() } else { self.start_foreign() }
    }

    /// How often it was started.
    pub(super) fn starts(&self) -> u64 {
        self.starts.get()
    }

    fn start_ours(&self) {
        let target = Target::new(Rc::new(Nobody), Pool::new(1 << 20))
            .with_clock(Rc::clone(&self.world.clock) as _);
        let options = LunOptions {
            serial: SERIAL.into(),
            model: "Parapet".into(),
            firmware: "0.1.0".into(),
            ports: Vec::new(),
            read_only: false,
            volatile: false,
            remote_control: false,
        };
        self.spawn("target", target.run());
        let door = Rc::new(Door(Rc::clone(&self.watched)));
        target.online(Rc::new(Lun::new(LUN, door, options, LunState::default(), Pool::new(0))));
        for (number, link) in self.links.iter().enumerate() {
            let serving = target.serve(format!("eth{number}"), Rc::clone(link) as Rc<dyn Link>);
            self.spawn("port of the target", async move { drop(serving.await) });
        }
        self.target.replace(Some(target));
    }

    fn spawn(&self, name: &str, task: impl Future<Output = ()> + 'static) {
        let task = self.world.executor.spawn(name, task);
        self.tasks.borrow_mut().push(task);
    }

    /// The target's process dies, perhaps with its host.
    pub(super) fn kill(&self, power: bool, rng: &mut Rng) {
        self.note_counts();
        for task in self.tasks.take() {
            self.world.executor.abort(task);
        }
        self.target.replace(None);
        let mut cut = Cut::new(Mode::draw(rng), false, Rng::stream(rng.bits(), "cut", 0));
        self.disk.crash(power, &mut cut, &Parts::of(&self.disk, None));
    }

    fn note_counts(&self) {
        let Some(target) = &*self.target.borrow() else { return };
        let mut all = self.dropped.borrow_mut();
        let Dropped { repeated, late, .. } = target.dropped();
        (all.repeated, all.late) = (all.repeated + repeated, all.late + late);
    }

    /// What our targets dropped, all together.
    pub(super) fn dropped(&self) -> Dropped {
        self.note_counts();
        self.target.replace(None);
        *self.dropped.borrow()
    }

    /// The first rule that our target broke, in words.
    pub(super) fn fault(&self) -> Option<String> {
        self.watched.fault()
    }

    /// Its size in sectors.
    pub(super) fn sectors(&self) -> u64 {
        self.disk.limits().bytes / SECTOR as u64
    }

    /// What the disk holds.
    pub(super) fn peek(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.disk.limits().bytes as usize];
        self.disk.peek(0, &mut bytes);
        bytes
    }

    // ---- a target without history: one process for each port, one request at a time

    fn start_foreign(self: &Rc<Self>) {
        for number in 0..self.links.len() {
            let (server, rng) = (Rc::clone(self), self.world.rng("foreign", number as u64));
            self.spawn("process of a port", async move { server.serve_port(number, rng).await });
        }
    }

    async fn serve_port(&self, number: usize, mut rng: Rng) {
        let link = &self.links[number];
        let mut frames = Vec::new();
        loop {
            let received = poll_fn(|cx| link.poll_receive(cx, &mut frames)).await;
            received.expect("a simulated port stays");
            for frame in frames.split_off(0) {
                self.world.pause(1 + rng.below(LAZY_MICROS)).await;
                let answer = self.execute(link, &frame).await;
                let mut frames = answer.into_iter().collect();
                let sent = poll_fn(|cx| link.poll_send(cx, &mut frames)).await;
                sent.expect("a simulated port stays");
            }
        }
    }

    async fn execute(&self, link: &SimLink, frame: &Frame) -> Option<Frame> {
        let header = Header::parse(frame.head())?;
        if header.response || !header.address.covers(LUN) {
            return None;
        }
        let answer = header.answer(link.address(), LUN);
        if header.command == command::QUERY {
            let sectors = sectors_of(link.state().mtu);
            let directive = Directive::Read as u8;
            let text = Vec::new();
            let query = Query { buffers: BUFFERS, firmware: 0, sectors, directive, text };
            let mut bytes = vec![0; HEADER_BYTES];
            answer.put(&mut bytes);
            query.put(true, &mut bytes);
            return Some(Frame::new(&bytes));
        }
        let ata = Ata::parse(frame.head().get(HEADER_BYTES..)?)?;
        let (offset, bytes) =
            (ata.first_sector() * SECTOR as u64, usize::from(ata.sectors) * SECTOR);
        let data = match ata.command {
            opcode::IDENTIFY => {
                let identity = Identity {
                    serial: SERIAL.into(),
                    model: "foreign".into(),
                    firmware: "1".into(),
                    sectors: self.sectors(),
                    physical_block: 512,
                    rotational: false,
                };
                Some(self.world.pool.copy_of(&identity.to_sector()).freeze())
            }
            _ if ata.is_write() => {
                let write = Op::write(offset, frame.share_body(bytes)?).with_fua();
                self.disk.submit(write).await.result.ok()?;
                None
            }
            _ if ata.is_read() => {
                let done = self.disk.submit(Op::read(offset, self.world.pool.take(bytes))).await;
                let Work::Read(mut bufs) = done.work else { return None };
                done.result.ok()?;
                bufs.pop().map(io::Buf::freeze)
            }
            _ => {
                self.disk.submit(Op::flush()).await.result.ok()?;
                None
            }
        };
        let mut head = [0; HEAD_BYTES];
        answer.put(&mut head);
        ata.done().put(&mut head[HEADER_BYTES..]);
        Some(match data {
            Some(data) => Frame::with_body(head, data),
            None => Frame::new(&head),
        })
    }
}
