//! A whole cluster in memory: three members, a coordinator, clients.

#[path = "../time/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "../nbd/pipe.rs"]
mod pipe;

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::decisions::{Outcome, Request, Value, Version};
use cluster::ids::{
    ArrayId, BootId, CandidateId, ClientId, DiskId, Epoch, Incarnation, MemberId, Term,
};
use cluster::roles::Holder;
use cluster::session::{Ask, Hello, Label, Speaker, Told};
use cluster::timing::Timing;
use cluster::wire;
use hand::Hand;
use io::tasks::complete;
use io::{Clock, Disk, MemDisk, Op, Pool, TaskSet};
use net::cluster::area;
use net::cluster::client::ClientDisk;
use net::cluster::coordinator::{CoordinatorServer, Duty, Store};
use net::cluster::door::Session;
use net::cluster::member::MemberServer;

const ARRAY: ArrayId = ArrayId(9);
const DISK: DiskId = DiskId(7);
pub const BLOCK: usize = 4096;

struct Register(RefCell<(Version, Value)>);

impl Store for Register {
    fn ask(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome>>> {
        let mut register = self.0.borrow_mut();
        let mut conflict = false;
        if let Request::Cas(version, value) = request {
            conflict = version != register.0;
            if !conflict {
                *register = (Version(version.0 + 1), value);
            }
        }
        let (version, value) = register.clone();
        let outcome = if conflict { Outcome::Conflict } else { Outcome::Done };
        Box::pin(ready(outcome(version, value)))
    }
}

/// A member's process: its tasks end with it.
struct Process {
    tasks: Rc<TaskSet>,
    server: MemberServer,
}

pub struct Rig {
    tasks: Rc<TaskSet>,
    clock: Rc<Hand>,
    store: Rc<Register>,
    disks: Vec<Rc<MemDisk>>,
    shape: Shape,
    /// Why connections of clients to members ended.
    pub endings: Rc<RefCell<Vec<String>>>,
    members: Rc<RefCell<Vec<Option<Process>>>>,
}

fn spawn(tasks: &Rc<TaskSet>) -> net::cluster::Spawn {
    let tasks = Rc::downgrade(tasks);
    Rc::new(move |task| {
        if let Some(tasks) = tasks.upgrade() {
            tasks.spawn(task);
        }
    })
}

/// Blocks of [`BLOCK`] bytes.
fn shape(level: Level, mode: Mode, region_blocks: u32) -> Shape {
    let piece_bytes = if level == Level::Fragments { 2048 } else { 4096 };
    Shape { level, regions: 4, region_blocks, piece_bytes, mode }
}

fn formatted(bytes: u64, member: u16, disk: DiskId, shape: Shape) -> Rc<MemDisk> {
    let (name, member) = (String::from("pool"), MemberId(member));
    let label = Label { name, array: ARRAY, member, disk, members: 3, shape };
    let medium = Rc::new(MemDisk::new(bytes));
    complete(area::format(&*medium, &label)).unwrap().unwrap();
    medium
}

async fn greet(stream: pipe::End) -> std::io::Result<Session> {
    Session::greet(Box::new(stream), Holder::Anyone).await
}

impl Rig {
    pub fn new(level: Level) -> Rig {
        let mode = if level == Level::Fragments { Mode::Shared } else { Mode::Exclusive };
        Rig::with(level, mode)
    }

    pub fn with(level: Level, mode: Mode) -> Rig {
        Rig::sized(level, mode, 8)
    }

    /// Four regions of so many stripes.
    pub fn sized(level: Level, mode: Mode, region_blocks: u32) -> Rig {
        let shape = shape(level, mode, region_blocks);
        let data = 4 * u64::from(region_blocks) * u64::from(shape.piece_bytes);
        let bytes = area::DATA_AT + data.max(1 << 20);
        let disks = (0..3).map(|member| formatted(bytes, member, DISK, shape)).collect();
        let slots = vec![Slot { state: State::InSync, boot: BootId::first(DISK) }; 3];
        let config = Config { array: ARRAY, epoch: Epoch(1), shape, slots };
        let value = Value { term: Term(0), leader: CandidateId(0), config };
        let store = Rc::new(Register(RefCell::new((Version(1), value))));
        let members = Rc::new(RefCell::new(vec![None, None, None]));
        let (tasks, clock, endings) = (Rc::default(), Rc::default(), Rc::default());
        let rig = Rig { tasks, clock, store, disks, shape, endings, members };
        (0..3).for_each(|member| rig.start(member));
        rig
    }

    pub fn start(&self, member: usize) {
        let tasks = Rc::new(TaskSet::new());
        let disk = Rc::clone(&self.disks[member]);
        let server =
            complete(MemberServer::start(disk, Rc::clone(&self.clock) as _, spawn(&tasks)))
                .unwrap()
                .unwrap();
        self.members.borrow_mut()[member] = Some(Process { tasks, server });
    }

    /// Puts a blank disk in the place of a member that was killed.
    pub fn put_blank(&mut self, member: usize) {
        let (bytes, other) = (self.disks[member].limits().bytes, DiskId(DISK.0 + 1));
        self.disks[member] = formatted(bytes, member as u16, other, self.shape);
    }

    pub fn kill(&self, member: usize) {
        let process = self.members.borrow_mut()[member].take().unwrap();
        process.tasks.clear();
    }

    /// Keeps a host connected to each member.
    fn dial(&self, connect: impl AsyncFn(MemberId, Box<pipe::End>) + Clone + 'static) {
        for index in 0..3 {
            let (members, clock) = (Rc::clone(&self.members), Rc::clone(&self.clock));
            let connect = connect.clone();
            self.tasks.spawn(async move {
                loop {
                    let (near, far) = pipe::pair(1 << 20, 1 << 16);
                    let up = members.borrow()[index].as_ref().is_some_and(|process| {
                        let server = process.server.clone();
                        process.tasks.spawn(async move {
                            if let Ok(session) = greet(far).await {
                                server.serve(session).await;
                            }
                        });
                        true
                    });
                    if up {
                        connect(MemberId(index as u16), Box::new(near)).await;
                    }
                    clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
                }
            });
        }
    }

    pub fn coordinator(&self) -> CoordinatorServer {
        let (name, addresses) = (String::from("pool"), vec![String::new(); 3]);
        let (me, timing) = (CandidateId(0), Timing::DEFAULT);
        let duty = Duty { me, array: ARRAY, name, addresses, timing };
        let (clock, store) = (Rc::clone(&self.clock), Rc::clone(&self.store));
        let server = CoordinatorServer::new(duty, store, clock, spawn(&self.tasks));
        let host = server.clone();
        self.dial(async move |member, stream| {
            host.connect(member, stream).await;
        });
        let ticking = server.clone();
        self.tasks.spawn(async move { ticking.run().await });
        server
    }

    pub fn client(&self, id: u32, coordinator: &CoordinatorServer) -> Rc<ClientDisk> {
        let config = self.store.0.borrow().1.config.clone();
        let who = (ClientId(id), Incarnation(1));
        let clock = Rc::clone(&self.clock);
        let disk = ClientDisk::start(who, &config, Timing::DEFAULT, clock, spawn(&self.tasks));
        let (host, endings) = (disk.clone(), Rc::clone(&self.endings));
        self.dial(async move |member, stream| {
            let ended = host.connect_member(member, stream).await;
            endings.borrow_mut().push(ended.to_string());
        });
        let (near, far) = pipe::pair(1 << 20, 1 << 16);
        let (server, speaking, ticking) = (coordinator.clone(), disk.clone(), disk.clone());
        self.tasks.spawn(async move {
            server.serve(greet(far).await.unwrap()).await;
        });
        self.tasks.spawn(async move { drop(speaking.connect_coordinator(Box::new(near)).await) });
        self.tasks.spawn(async move { ticking.run().await });
        Rc::new(disk)
    }

    /// Lets time pass until the condition holds.
    pub fn until(&self, mut holds: impl FnMut() -> bool) {
        for _ in 0..100_000 {
            for _ in 0..8 {
                complete(self.tasks.run());
                for process in self.members.borrow().iter().flatten() {
                    complete(process.tasks.run());
                }
            }
            if holds() {
                return;
            }
            self.clock.now.set(self.clock.now.get() + 1_000_000);
            self.clock.timers.fire(self.clock.now());
        }
        panic!("it does not happen");
    }

    pub fn done(&self, disk: &ClientDisk, op: Op) -> io::Done {
        let mut answer = disk.submit(op);
        let mut done = None;
        self.until(|| {
            done = answer.take_ready();
            done.is_some()
        });
        done.unwrap()
    }

    pub fn run(&self, disk: &ClientDisk, op: Op) -> io::Done {
        let done = self.done(disk, op);
        done.result.clone().unwrap();
        done
    }

    /// What a coordinator answers to an operator.
    pub fn ask(&self, coordinator: &CoordinatorServer, ask: &Ask) -> Told {
        let (near, far) = pipe::pair(1 << 20, 1 << 16);
        let server = coordinator.clone();
        self.tasks.spawn(async move { drop(server.serve(greet(far).await.unwrap()).await) });
        let hello = Hello { speaker: Speaker::Operator, array: ARRAY, member: MemberId(0) };
        near.push(&[wire::encode(&hello), wire::encode(ask)].concat());
        let mut told = Vec::new();
        self.until(|| {
            told.extend(near.pull());
            wire::decode::<Told>(&told).is_ok()
        });
        wire::decode(&told).unwrap().0
    }

    pub fn write(&self, disk: &ClientDisk, block: usize, value: u8) {
        let buf = Pool::new(0).copy_of(&[value; BLOCK]);
        self.run(disk, Op::write((block * BLOCK) as u64, buf.freeze()));
    }

    pub fn read(&self, disk: &ClientDisk, block: usize) -> u8 {
        let op = Op::read((block * BLOCK) as u64, Pool::new(0).take(BLOCK));
        let buf = self.run(disk, op).into_buf();
        assert!(buf.iter().all(|byte| *byte == buf[0]));
        buf[0]
    }
}
