//! A whole cluster in memory: three members, a coordinator, two clients; the death of a member.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "time/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "nbd/pipe.rs"]
mod pipe;

use std::cell::RefCell;
use std::future::{Future, ready};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::decisions::{Outcome, Request, Value, Version};
use cluster::ids::{ArrayId, BootId, CandidateId, ClientId, Epoch, Incarnation, MemberId, Term};
use cluster::roles::Holder;
use cluster::session::{Ask, Hello, Label, Speaker, Told};
use cluster::timing::Timing;
use cluster::wire;
use hand::Hand;
use io::tasks::complete;
use io::{Clock, Disk, MemDisk, Op, Pool, TaskSet};
use net::cluster::area;
use net::cluster::client::{ClientDisk, WINDOW};
use net::cluster::coordinator::{CoordinatorServer, Duty, Store};
use net::cluster::door::Session;
use net::cluster::member::MemberServer;

const ARRAY: ArrayId = ArrayId(9);
const BLOCK: usize = 4096;

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

struct Rig {
    tasks: Rc<TaskSet>,
    clock: Rc<Hand>,
    store: Rc<Register>,
    disks: Vec<Rc<MemDisk>>,
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
fn shape(level: Level) -> Shape {
    let (mode, piece_bytes) = match level {
        Level::Fragments => (Mode::Shared, 2048),
        _ => (Mode::Exclusive, 4096),
    };
    Shape { level, regions: 4, region_blocks: 8, piece_bytes, mode }
}

async fn greet(stream: pipe::End) -> std::io::Result<Session> {
    Session::greet(Box::new(stream), Holder::Anyone).await
}

impl Rig {
    fn new(level: Level) -> Rig {
        let shape = shape(level);
        let disk = || Rc::new(MemDisk::new(area::DATA_AT + (1 << 20)));
        let disks: Vec<Rc<MemDisk>> = (0..3).map(|_| disk()).collect();
        for (disk, member) in disks.iter().zip(0..) {
            let (name, member) = (String::from("pool"), MemberId(member));
            let label = Label { name, array: ARRAY, member, members: 3, shape };
            complete(area::format(&**disk, &label)).unwrap().unwrap();
        }
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 3];
        let config = Config { array: ARRAY, epoch: Epoch(1), shape, slots };
        let value = Value { term: Term(0), leader: CandidateId(0), config };
        let store = Rc::new(Register(RefCell::new((Version(1), value))));
        let members = Rc::new(RefCell::new(vec![None, None, None]));
        let rig = Rig { tasks: Rc::default(), clock: Rc::default(), store, disks, members };
        (0..3).for_each(|member| rig.start(member));
        rig
    }

    fn start(&self, member: usize) {
        let tasks = Rc::new(TaskSet::new());
        let disk = Rc::clone(&self.disks[member]);
        let server = complete(MemberServer::start(disk, spawn(&tasks))).unwrap().unwrap();
        self.members.borrow_mut()[member] = Some(Process { tasks, server });
    }

    fn kill(&self, member: usize) {
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

    fn coordinator(&self) -> CoordinatorServer {
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

    fn client(&self, id: u32, coordinator: &CoordinatorServer) -> Rc<ClientDisk> {
        let config = self.store.0.borrow().1.config.clone();
        let who = (ClientId(id), Incarnation(1));
        let clock = Rc::clone(&self.clock);
        let disk = ClientDisk::start(who, &config, Timing::DEFAULT, clock, spawn(&self.tasks));
        let host = disk.clone();
        self.dial(async move |member, stream| {
            host.connect_member(member, stream).await;
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
    fn until(&self, mut holds: impl FnMut() -> bool) {
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

    fn done(&self, disk: &ClientDisk, op: Op) -> io::Done {
        let mut answer = disk.submit(op);
        let mut done = None;
        self.until(|| {
            done = answer.take_ready();
            done.is_some()
        });
        done.unwrap()
    }

    fn run(&self, disk: &ClientDisk, op: Op) -> io::Done {
        let done = self.done(disk, op);
        done.result.clone().unwrap();
        done
    }

    /// What a coordinator answers to an operator.
    fn ask(&self, coordinator: &CoordinatorServer, ask: &Ask) -> Told {
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

    fn write(&self, disk: &ClientDisk, block: usize, value: u8) {
        let buf = Pool::new(0).copy_of(&[value; BLOCK]);
        self.run(disk, Op::write((block * BLOCK) as u64, buf.freeze()));
    }

    fn read(&self, disk: &ClientDisk, block: usize) -> u8 {
        let op = Op::read((block * BLOCK) as u64, Pool::new(0).take(BLOCK));
        let buf = self.run(disk, op).into_buf();
        assert!(buf.iter().all(|byte| *byte == buf[0]));
        buf[0]
    }
}

#[test]
fn two_clients_go_on_while_a_member_dies_and_comes_back() {
    [Level::Fragments, Level::Raid5].into_iter().for_each(go_on);
}

fn go_on(level: Level) {
    let rig = Rig::new(level);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    rig.write(&one, 0, 1);
    rig.write(&two, 9, 2);
    assert_eq!((rig.read(&two, 0), rig.read(&one, 9)), (1, 2));
    rig.run(&one, Op::flush());

    rig.kill(1);
    rig.write(&one, 1, 3);
    rig.write(&two, 17, 4);
    assert_eq!((rig.read(&two, 1), rig.read(&one, 17), rig.read(&two, 0)), (3, 4, 1));
    let state = |member: usize| coordinator.report().config.unwrap().slots[member].state;
    assert_eq!(state(1), State::Missing);

    rig.start(1);
    rig.until(|| state(1) == State::InSync && coordinator.report().active);
    // Each block is on it: another member may go.
    rig.kill(0);
    for (block, value) in [(0, 1), (1, 3), (9, 2), (17, 4)] {
        assert_eq!((rig.read(&one, block), rig.read(&two, block)), (value, value));
    }
}

/// Each takes memory, and time of every member.
#[test]
fn few_blocks_of_many_large_requests_are_under_way_at_once() {
    let rig = Rig::new(Level::Fragments);
    let client = rig.client(1, &rig.coordinator());
    let requests = 2 * WINDOW / 32;
    let write = |_| {
        let content = Pool::new(0).copy_of(&[7; 32 * BLOCK]);
        client.submit(Op::write(0, content.freeze()))
    };
    let mut answers: Vec<_> = (0..requests).map(write).collect();
    rig.until(|| {
        assert!(client.waiting() <= WINDOW + answers.len(), "{} are", client.waiting());
        answers.retain_mut(|answer| answer.take_ready().is_none());
        answers.is_empty()
    });
}

#[test]
fn an_evicted_client_fails_and_the_other_goes_on() {
    let rig = Rig::new(Level::Fragments);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    rig.write(&one, 0, 1);
    let answer = rig.ask(&coordinator, &Ask::Evict(ClientId(1)));
    assert_eq!(answer, Told::Evicted(Incarnation(1)));
    let failed = rig.done(&one, Op::read(0, Pool::new(0).take(BLOCK))).result.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::Fenced);
    rig.write(&two, 1, 2);
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1)), (1, 2));
    rig.until(|| coordinator.report().unsync == 0);
}

/// RAID 5: one write of seven blocks ends in the middle of a stripe and starts in one.
#[test]
fn a_long_write_is_cut_where_stripes_end() {
    let rig = Rig::new(Level::Raid5);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    (0..10).for_each(|block| rig.write(&one, block, 1));
    let bytes: Vec<u8> = (2..9).flat_map(|value| [value; BLOCK]).collect();
    rig.run(&two, Op::write(BLOCK as u64, Pool::new(0).copy_of(&bytes).freeze()));
    let content = |disk| (0..10).map(|block| rig.read(disk, block)).collect::<Vec<u8>>();
    assert_eq!(content(&one), [1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
    rig.kill(2);
    assert_eq!(content(&one), [1, 2, 3, 4, 5, 6, 7, 8, 1, 1]);
    assert_eq!(one.limits().bytes, 4 * 8 * 2 * BLOCK as u64);
}

/// RAID 5: a client is evicted that was writing while a member is missing.
#[test]
fn an_inconsistent_region_fails_until_the_loss_is_accepted() {
    let rig = Rig::new(Level::Raid5);
    let coordinator = rig.coordinator();
    let (one, two) = (rig.client(1, &coordinator), rig.client(2, &coordinator));
    (0..4).for_each(|block| rig.write(&one, block, 1));
    rig.write(&two, 20, 2);
    rig.kill(0);
    rig.write(&one, 1, 3);
    assert_eq!(rig.ask(&coordinator, &Ask::Evict(ClientId(1))), Told::Evicted(Incarnation(1)));
    rig.until(|| coordinator.report().holes == 1);
    // Stripe 0 is blocks 0 and 1 and the parity, in the order of members; stripe 1 is turned.
    let failed = rig.done(&two, Op::read(0, Pool::new(0).take(BLOCK))).result.unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::Medium { offset: 0, len: BLOCK as u64 });
    let zeros = Pool::new(0).copy_of(&[0; BLOCK]).freeze();
    assert!(rig.done(&two, Op::write(BLOCK as u64, zeros)).result.is_err());
    // What lies on members in sync is read, and other regions are written.
    assert_eq!((rig.read(&two, 1), rig.read(&two, 20)), (3, 2));
    rig.write(&two, 21, 4);
    assert_eq!(rig.ask(&coordinator, &Ask::AcceptLoss), Told::Accepted(1));
    rig.until(|| coordinator.report().unsync == 0);
    // No write was under way: parity is right.
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1), rig.read(&two, 2)), (1, 3, 1));
    rig.write(&two, 0, 5);
    rig.start(0);
    let whole = |slot: &Slot| slot.state == State::InSync;
    rig.until(|| coordinator.report().config.unwrap().slots.iter().all(whole));
    assert_eq!((rig.read(&two, 0), rig.read(&two, 1)), (5, 3));
}
