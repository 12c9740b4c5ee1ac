//! The entrance of a cluster's processes: who comes in, and what a stranger costs.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "time/hand.rs"]
mod hand;
#[allow(dead_code)]
#[path = "nbd/pipe.rs"]
mod pipe;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use cluster::ids::{ArrayId, CandidateId, ClientId, Incarnation, MemberId};
use cluster::roles::{Holder, Role};
use cluster::session::{Ask, Hello, Speaker, Told};
use cluster::wire;
use hand::Hand;
use io::tasks::complete;
use io::{Clock, MemDisk, Stream, TaskSet};
use net::cluster::door::{Accepting, Door, Guard, MAX_SESSIONS};
use net::cluster::member::MemberServer;
use net::nbd::limits::{HANDSHAKE_TIME, MAX_HANDSHAKES};
use pipe::{End, pair};

const CLIENT: Speaker = Speaker::Client(ClientId(1), Incarnation(5));
/// Bytes of a frame's head that announce a long body.
const LONG: [u8; 16] = *b"PpCl\x01\0\x06\0\0\0\x10\0\0\0\0\0";

/// Vouches for one holder, whoever connects.
struct Vouching(Holder);

impl Guard for Vouching {
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting {
        let holder = self.0.clone();
        Box::pin(async move { Ok((stream, holder)) })
    }
}

/// A member without a label behind a door, and the endings of its connections.
struct Rig {
    tasks: Rc<TaskSet>,
    clock: Rc<Hand>,
    door: Rc<Door>,
    server: MemberServer,
    endings: Rc<RefCell<Vec<String>>>,
}

impl Rig {
    fn new(holder: Option<Holder>) -> Rig {
        let (tasks, clock) = (Rc::new(TaskSet::new()), Rc::new(Hand::default()));
        let guard = holder.map(|holder| Rc::new(Vouching(holder)) as Rc<dyn Guard>);
        let door = Rc::new(Door::new(Rc::clone(&clock) as _, guard));
        let disk = Rc::new(MemDisk::new(9 << 20));
        let server = MemberServer::unformatted(disk, Rc::clone(&clock) as _, Rc::new(|_| {}));
        Rig { tasks, clock, door, server, endings: Rc::default() }
    }

    fn connect(&self, bytes: &[u8]) -> End {
        let (near, far) = pair(1 << 20, 1 << 16);
        let (door, server) = (Rc::clone(&self.door), self.server.clone());
        let endings = Rc::clone(&self.endings);
        self.tasks.spawn(async move {
            let ending = match door.enter(Box::new(far)).await {
                Ok(session) => server.serve(session).await,
                Err(error) => error,
            };
            endings.borrow_mut().push(ending.to_string());
        });
        near.push(bytes);
        self.run();
        near
    }

    fn run(&self) {
        complete(self.tasks.run());
    }

    fn ending(&self) -> String {
        self.run();
        self.endings.borrow_mut().pop().unwrap_or_default()
    }
}

fn hello(speaker: Speaker) -> Vec<u8> {
    wire::encode(&Hello { speaker, array: ArrayId(9), member: MemberId(1) })
}

#[test]
fn a_certificate_opens_sessions_of_its_roles_only() {
    let refused = |roles: &[Role], speaker| {
        let rig = Rig::new(Some(Holder::Of(roles.to_vec())));
        let peer = rig.connect(&hello(speaker));
        let ending = rig.ending();
        assert!(ending.is_empty() || peer.is_closed());
        ending.contains("does not allow")
    };
    let (one, two) = (Role::Client(ClientId(1)), Role::Client(ClientId(2)));
    let candidate = Speaker::Candidate(CandidateId(0));
    assert!(!refused(&[one, two], CLIENT));
    assert!(refused(&[two, Role::Coordinator, Role::Member, Role::Admin], CLIENT));
    assert!(!refused(&[Role::Coordinator], candidate));
    assert!(refused(&[one, Role::Member, Role::Admin], candidate));
    assert!(refused(&[], Speaker::Operator));
}

#[test]
fn only_an_admin_formats() {
    let format = Ask::Format(cluster::session::Label {
        name: "pool".into(),
        array: ArrayId(9),
        member: MemberId(0),
        disk: cluster::ids::DiskId(1),
        members: 0,
        shape: cluster::config::Shape {
            level: cluster::config::Level::Mirror,
            regions: 0,
            region_blocks: 0,
            piece_bytes: 0,
            mode: cluster::config::Mode::Shared,
        },
    });
    for (role, word) in [(Role::Client(ClientId(1)), "does not allow"), (Role::Admin, "too small")]
    {
        let rig = Rig::new(Some(Holder::Of(vec![role])));
        let peer = rig.connect(&[hello(Speaker::Operator), wire::encode(&format)].concat());
        let (told, _) = wire::decode::<Told>(&peer.pull()).unwrap();
        let Told::Failed(why) = told else { panic!("{told:?}") };
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn cluster_handshakes() {
    let rig = Rig::new(None);
    let silent: Vec<End> = (0..MAX_HANDSHAKES).map(|_| rig.connect(&[])).collect();
    assert!(silent.iter().all(|peer| !peer.is_closed()));
    let describe = [hello(Speaker::Operator), wire::encode(&Ask::Describe)].concat();
    let guest = rig.connect(&describe);
    assert!(silent[0].is_closed() && !silent[1].is_closed(), "the oldest makes room");
    assert!(wire::decode::<Told>(&guest.pull()).is_ok(), "somebody with a name is served");
    // Silence and single bytes end in time.
    let slow = rig.connect(&[]);
    rig.clock.now.set(HANDSHAKE_TIME.as_nanos() as u64 - 1);
    rig.clock.timers.fire(rig.clock.now());
    slow.push(&hello(CLIENT)[..1]);
    rig.run();
    assert!(!slow.is_closed() && !silent.last().unwrap().is_closed());
    rig.clock.now.set((HANDSHAKE_TIME + Duration::from_nanos(1)).as_nanos() as u64);
    rig.clock.timers.fire(rig.clock.now());
    rig.run();
    assert!(slow.is_closed() && silent.iter().all(End::is_closed));
    assert!(!guest.is_closed(), "a session has no such limit");
}

#[test]
fn a_stranger_sends_a_short_frame_only() {
    let rig = Rig::new(None);
    let peer = rig.connect(&LONG);
    assert!(peer.is_closed());
    assert!(rig.ending().contains("too long"));
}

#[test]
fn cluster_sessions() {
    let rig = Rig::new(None);
    let enter = || rig.connect(&hello(Speaker::Operator));
    let mut guests: Vec<End> = (0..MAX_SESSIONS).map(|_| enter()).collect();
    assert!(guests.iter().all(|guest| !guest.is_closed()));
    assert!(enter().is_closed(), "one too many");
    assert!(rig.ending().contains("too many sessions"));
    guests.pop();
    rig.run();
    guests.push(enter());
    assert!(guests.iter().all(|guest| !guest.is_closed()));
}
