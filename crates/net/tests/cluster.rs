//! The member's server of a cluster, spoken to over streams in memory.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[allow(dead_code)]
#[path = "time/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "nbd/pipe.rs"]
mod pipe;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use cluster::config::{Level, Mode, Shape};
use cluster::ids::{
    ArrayId, BootId, CandidateId, ClientId, DiskId, Epoch, Incarnation, MemberId, OpId, Term,
};
use cluster::message::{Answer, FromMember, Io, Order, Refusal, Stamp, ToMember, Who};
use cluster::roles::Holder;
use cluster::session::{Ask, Hello, Label, Speaker, Told};
use cluster::wire::{self, Frame};
use hand::Hand;
use io::tasks::complete;
use io::{Completion, Completions, Disk, Done, Limits, MemDisk, Op, TaskSet, Ticket};
use net::cluster::area;
use net::cluster::door::Session;
use net::cluster::member::MemberServer;

const ARRAY: ArrayId = ArrayId(9);
const CLIENT: Who = Who::Client(ClientId(1), Incarnation(5));

/// A running server and the endings of its connections.
struct Rig {
    tasks: Rc<TaskSet>,
    clock: Rc<Hand>,
    server: MemberServer,
    endings: Rc<RefCell<Vec<String>>>,
}

/// A connection; frames that came are decoded in order.
struct Peer {
    end: pipe::End,
    bytes: RefCell<Vec<u8>>,
}

const DISK: DiskId = DiskId(7);

fn label(member: u16) -> Label {
    let (level, mode) = (Level::Fragments, Mode::Shared);
    let shape = Shape { level, regions: 2, region_blocks: 8, piece_bytes: 2048, mode };
    let (name, member, disk) = ("pool".into(), MemberId(member), DISK);
    Label { name, array: ARRAY, member, disk, members: 3, shape }
}

impl Rig {
    fn new(disk: &Rc<MemDisk>) -> Rig {
        Rig::over(Rc::clone(disk) as _)
    }

    fn over(disk: Rc<dyn Disk>) -> Rig {
        let (tasks, clock) = (Rc::new(TaskSet::new()), Rc::new(Hand::default()));
        let on = Rc::clone(&tasks);
        let spawn = Rc::new(move |task| on.spawn(task));
        let server = MemberServer::start(disk, Rc::clone(&clock) as _, spawn);
        let server = complete(server).unwrap().unwrap();
        Rig { tasks, clock, server, endings: Rc::default() }
    }

    fn connect(&self, speaker: Speaker) -> Peer {
        let (near, far) = pipe::pair(1 << 20, 7);
        let (server, endings) = (self.server.clone(), Rc::clone(&self.endings));
        self.tasks.spawn(async move {
            let ending = match Session::greet(Box::new(far), Holder::Anyone).await {
                Ok(session) => server.serve(session).await,
                Err(error) => error,
            };
            let ending = ending.to_string();
            endings.borrow_mut().push(ending);
        });
        let peer = Peer { end: near, bytes: RefCell::default() };
        self.send(&peer, &Hello { speaker, array: ARRAY, member: MemberId(1) });
        peer
    }

    fn send<T: Frame>(&self, peer: &Peer, value: &T) {
        peer.end.push(&wire::encode(value));
        complete(self.tasks.run());
    }

    fn told<T: Frame>(&self, peer: &Peer) -> Option<T> {
        complete(self.tasks.run());
        let mut bytes = peer.bytes.borrow_mut();
        bytes.extend(peer.end.pull());
        let (value, length) = wire::decode(&bytes).ok()?;
        bytes.drain(..length);
        Some(value)
    }

    fn ask(&self, ask: &Ask) -> Told {
        let peer = self.connect(Speaker::Operator);
        self.send(&peer, ask);
        self.told(&peer).unwrap()
    }

    fn order(&self, peer: &Peer, order: Order) -> Answer {
        self.send(peer, &ToMember::Control(Term(1), order));
        match self.told(peer).unwrap() {
            FromMember::Control(Term(1), _, answer) => answer,
            other => panic!("{other:?}"),
        }
    }
}

fn data(epoch: u64, boot: u64, op: u64, io: Io) -> ToMember {
    let (epoch, boot) = (Epoch(epoch), BootId(BootId::unserved(DISK).0 + boot));
    ToMember::Data(Stamp { who: CLIENT, epoch, boot, op: OpId(op), floor: OpId(0) }, io)
}

fn member(disk: &Rc<MemDisk>) -> Rig {
    let rig = Rig::new(disk);
    assert_eq!(rig.ask(&Ask::Format(label(1))), Told::Formatted(BootId::first(DISK)));
    rig
}

fn client(rig: &Rig) -> Peer {
    rig.connect(Speaker::Client(ClientId(1), Incarnation(5)))
}

/// A disk that keeps its requests while it hangs.
struct Hanging {
    disk: MemDisk,
    hangs: Cell<bool>,
    kept: RefCell<Vec<(Ticket, Op)>>,
    answers: Completions<Done>,
}

impl Hanging {
    fn go_on(&self) {
        self.hangs.set(false);
        for (ticket, op) in self.kept.take() {
            self.answers.finish(ticket, complete(self.disk.submit(op)).unwrap());
        }
    }
}

impl Disk for Hanging {
    fn submit(&self, op: Op) -> Completion<Done> {
        if !self.hangs.get() {
            return self.disk.submit(op);
        }
        let (ticket, answer) = self.answers.start();
        self.kept.borrow_mut().push((ticket, op));
        answer
    }

    fn limits(&self) -> Limits {
        self.disk.limits()
    }
}

#[test]
fn a_member_whose_disk_hangs_answers_no_order() {
    let disk = MemDisk::new(area::DATA_AT + (1 << 20));
    let (hangs, kept, answers) = (Cell::new(false), RefCell::default(), Completions::new());
    let disk = Rc::new(Hanging { disk, hangs, kept, answers });
    let rig = Rig::over(Rc::clone(&disk) as _);
    assert_eq!(rig.ask(&Ask::Format(label(1))), Told::Formatted(BootId::first(DISK)));
    let leader = rig.connect(Speaker::Candidate(CandidateId(0)));
    let raise = Order::Raise(DISK, Epoch(3), Vec::new());
    assert_eq!(rig.order(&leader, raise), Answer::Raised(Epoch(3)));
    let writer = client(&rig);
    disk.hangs.set(true);
    rig.send(&writer, &data(3, 1, 1, Io::Flush));
    let probe = ToMember::Control(Term(1), Order::Probe(false));
    let after = |time: Duration| {
        rig.clock.now.set(time.as_nanos() as u64);
        rig.send(&leader, &probe);
        rig.told::<FromMember>(&leader).is_some()
    };
    assert!(after(Duration::from_secs(4)), "a slow disk");
    assert!(!after(Duration::from_secs(4) + Duration::from_nanos(1)));
    assert_eq!(rig.ask(&Ask::Describe), Told::Failed("the disk does not answer".into()));
    assert_eq!(rig.told::<FromMember>(&writer), None);
    disk.go_on();
    assert_eq!(rig.told(&writer), Some(FromMember::Done(OpId(1), Vec::new())));
    assert!(after(Duration::from_secs(9)), "it goes on");
}

#[test]
fn pieces_lie_in_the_data_area_and_fences_survive_a_restart() {
    let disk = Rc::new(MemDisk::new(area::DATA_AT + (1 << 20)));
    let rig = member(&disk);
    let leader = rig.connect(Speaker::Candidate(CandidateId(0)));
    let raise = |disk| Order::Raise(disk, Epoch(3), Vec::new());
    assert_eq!(rig.order(&leader, raise(DiskId(8))), Answer::Alive(Epoch(0)), "another disk");
    assert_eq!(rig.ask(&Ask::Describe), Told::Described(1 << 20, 512, Some((label(1), Epoch(0)))));
    assert_eq!(rig.order(&leader, raise(DISK)), Answer::Raised(Epoch(3)));
    let writer = client(&rig);
    rig.send(&writer, &data(3, 1, 1, Io::Write(5, vec![7; 2048])));
    assert_eq!(rig.told(&writer), Some(FromMember::Done(OpId(1), Vec::new())));
    rig.send(&writer, &data(3, 1, 2, Io::Flush));
    assert_eq!(rig.told(&writer), Some(FromMember::Done(OpId(2), Vec::new())));
    let mut found = vec![0; 3 * 2048];
    disk.peek(area::DATA_AT + 4 * 2048, &mut found);
    assert_eq!(found, [[0; 2048], [7; 2048], [0; 2048]].concat());
    let fence = Order::Fence(ClientId(1), Incarnation(6));
    assert_eq!(rig.order(&leader, fence), Answer::Fenced(ClientId(1), Incarnation(6)));

    let rig = Rig::new(&disk);
    let told = rig.ask(&Ask::Describe);
    assert_eq!(told, Told::Described(1 << 20, 512, Some((label(1), Epoch(3)))));
    let writer = client(&rig);
    rig.send(&writer, &data(3, 1, 3, Io::Read(5, 1)));
    let refusal = FromMember::Refused(OpId(3), Refusal::Boot(BootId::first(DISK).next()));
    assert_eq!(rig.told(&writer), Some(refusal), "another boot");
    rig.send(&writer, &data(3, 2, 4, Io::Read(5, 1)));
    assert_eq!(rig.told(&writer), Some(FromMember::Refused(OpId(4), Refusal::Fenced)));
}

#[test]
fn a_wrong_peer_is_refused_and_changes_nothing() {
    let disk = Rc::new(MemDisk::new(area::DATA_AT + (1 << 20)));
    let rig = member(&disk);
    let ended = |rig: &Rig| rig.endings.take().pop().unwrap_or_default();
    rig.endings.take();
    let stranger = rig.connect(Speaker::Client(ClientId(2), Incarnation(1)));
    rig.send(&stranger, &data(0, 1, 1, Io::Write(0, vec![1; 2048])));
    assert!(ended(&rig).contains("another identity"));
    let orders = client(&rig);
    rig.send(&orders, &ToMember::Control(Term(9), Order::Raise(DISK, Epoch(9), Vec::new())));
    assert!(ended(&rig).contains("another identity"));
    let wrong = [
        Io::Write(16, vec![1; 2048]),
        Io::Write(15, vec![1; 4096]),
        Io::Write(0, vec![1; 2047]),
        Io::Write(0, Vec::new()),
        Io::Read(16, 1),
        Io::Read(15, 2),
        Io::Read(0, 0),
        Io::Read(0, u32::MAX),
        Io::Read(u64::MAX, 1),
    ];
    for io in wrong {
        let writer = client(&rig);
        rig.send(&writer, &data(0, 1, 1, io));
        assert!(ended(&rig).contains("out of range"));
    }
    let damaged = client(&rig);
    let mut frame = wire::encode(&data(0, 1, 1, Io::Write(0, vec![1; 2048])));
    *frame.last_mut().unwrap() ^= 1;
    damaged.end.push(&frame);
    complete(rig.tasks.run());
    assert!(ended(&rig).contains("checksum"));
    let (near, far) = pipe::pair(1 << 20, 7);
    let hello =
        Hello { speaker: Speaker::Candidate(CandidateId(0)), array: ARRAY, member: MemberId(2) };
    near.push(&wire::encode(&hello));
    let greeting = Session::greet(Box::new(far), Holder::Anyone);
    let session = complete(greeting).unwrap().unwrap();
    let ending = complete(rig.server.serve(session)).unwrap();
    assert!(ending.to_string().contains("another member"), "{ending}");
    let mut found = vec![0; 1 << 20];
    disk.peek(area::DATA_AT, &mut found);
    assert!(found.iter().all(|&byte| byte == 0));
}

#[test]
fn a_disk_with_other_data_is_not_formatted() {
    let disk = Rc::new(MemDisk::new(area::DATA_AT + (1 << 20)));
    let spawn = || Rc::new(|_| {}) as net::cluster::Spawn;
    let clock = || Rc::new(Hand::default()) as _;
    let start = || complete(MemberServer::start(Rc::clone(&disk) as _, clock(), spawn())).unwrap();
    disk.poke(1080, &[0x53, 0xef]);
    assert!(start().err().unwrap().to_string().contains("holds other data"));
    disk.poke(1080, &[0, 0]);
    let rig = member(&disk);
    assert!(matches!(rig.ask(&Ask::Format(label(2))), Told::Failed(_)), "it is a member already");
    assert_eq!(rig.ask(&Ask::Format(label(1))), Told::Formatted(BootId::first(DISK)), "a copy");
    // Without its fences a member must not serve.
    disk.poke((1 << 20) + 20, &[0xff; 64]);
    disk.poke((4 << 20) + 20, &[0xff; 64]);
    assert!(start().err().unwrap().to_string().contains("damaged"));
}
