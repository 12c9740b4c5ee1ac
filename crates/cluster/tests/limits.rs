//! The room in a member's header: each limit at `limit - 1`, `limit` and `limit + 1`, through
//! writer, parser, coordinator and member.
#![allow(missing_docs)]

use std::collections::{BTreeSet, VecDeque};

use cluster::broken::{Broken, choose};
use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::coordinator::{self, Coordinator};
use cluster::decisions::{Outcome, Request, Value, Version};
use cluster::ids::{
    ArrayId, BootId, CandidateId, ClientId, Epoch, GrantId, Incarnation, MemberId, Ms, Region, Term,
};
use cluster::member::{self, Header, Member, Peer};
use cluster::message::{FromClient, FromMember, ToClient, ToMember};
use cluster::record::{Log, Mark};
use cluster::room::{HEADER_BYTES, MOST_CLIENTS, MOST_MARKS, MOST_STALE, fits};
use cluster::session::Decided;
use cluster::timing::Timing;
use cluster::wire::{Malformed, Wire, decode, encode};

fn shape(regions: usize) -> Shape {
    let (level, mode) = (Level::Mirror, Mode::Shared);
    let regions = u32::try_from(regions).expect("a small number");
    Shape { level, regions, region_blocks: 1, piece_bytes: 512, mode }
}

fn config(regions: usize, members: usize) -> Config {
    let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; members];
    Config { array: ArrayId(1), epoch: Epoch(1), shape: shape(regions), slots }
}

/// Each holder is being evicted, and each of very many members lacks everything.
#[test]
fn the_fullest_header_fits_its_slot_and_comes_back() {
    let mut header = Header::default();
    let most = |count: usize| 0..u32::try_from(count).expect("a small number");
    for region in most(MOST_MARKS) {
        let held = Mark::Held(Region(region), ClientId(region), Incarnation(1));
        header.log.marks.extend([held, Mark::Unsync(Region(region))]);
    }
    for client in most(MOST_CLIENTS).map(ClientId) {
        let evicted = |upto| Mark::Evicted(client, Incarnation(upto));
        header.log.marks.extend([evicted(1), evicted(2)]);
        header.least.insert(client, Incarnation(3));
    }
    let members = 4096;
    let regions = MOST_STALE / usize::from(members);
    assert!(fits(&shape(regions), members.into()));
    let of = |member| most(regions).map(move |region| Mark::Stale(member, Region(region)));
    header.log.marks.append(&mut (0..members).map(MemberId).flat_map(of).collect());
    let bytes = encode(&header);
    assert!(bytes.len() <= HEADER_BYTES, "{}", bytes.len());
    assert!(decode(&bytes) == Ok((header, bytes.len())), "it comes back");
}

#[test]
fn regions() {
    for members in [1, 2, 3] {
        let limit = MOST_STALE / members;
        for (regions, expected) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
            let config = config(regions, members);
            assert_eq!(fits(&config.shape, members), expected);
            let value = Value { term: Term(1), leader: CandidateId(0), config };
            let bytes = encode(&Decided { version: Version(1), value });
            let read = decode::<Decided>(&bytes);
            assert_eq!(read.is_ok(), expected, "{regions} regions of {members} members");
        }
    }
}

fn log(marks: &[Mark]) -> Log {
    Log { marks: BTreeSet::from_iter(marks.iter().copied()), ..Log::default() }
}

fn bytes_of(log: &Log) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.put(&mut bytes);
    bytes
}

#[test]
fn bitmaps_have_one_form() {
    let stale = |member, region| Mark::Stale(MemberId(member), Region(region));
    let some = log(&[stale(0, 0), stale(0, 7), stale(0, 8), stale(2, 41), Mark::Unsync(Region(3))]);
    let bytes = bytes_of(&some);
    assert_eq!(Log::take(&mut &bytes[..]), Ok(some));
    let last = u32::try_from(MOST_STALE - 1).expect("a small number");
    for (region, expected) in [(last - 1, true), (last, true), (last + 16, false)] {
        let bytes = bytes_of(&log(&[stale(0, region)]));
        assert_eq!(Log::take(&mut &bytes[..]).is_ok(), expected, "region {region}");
    }
    let of = |marks: Vec<Mark>, bitmaps: Vec<(MemberId, Vec<u8>)>| {
        let mut bytes = Vec::new();
        Log::default().at.put(&mut bytes);
        marks.put(&mut bytes);
        bitmaps.put(&mut bytes);
        Log::take(&mut &bytes[..])
    };
    let (one, two) = (MemberId(1), MemberId(2));
    assert_eq!(of(vec![], vec![(one, vec![2])]), Ok(log(&[stale(1, 1)])));
    let wrong = [
        of(vec![stale(1, 1)], vec![]),
        of(vec![], vec![(one, vec![])]),
        of(vec![], vec![(one, vec![2, 0])]),
        of(vec![], vec![(two, vec![1]), (one, vec![1])]),
    ];
    assert_eq!(wrong, [const { Err(Malformed::Value) }; 4]);
}

/// A message from the machines of one coordinator and one member.
enum Packet {
    Down(ToMember),
    Up(FromMember),
    Stored(u64),
    Answer(u64, Request),
}

/// These machines; what is sent arrives at once.
struct Rig {
    now: Ms,
    coordinator: Coordinator,
    member: Member,
    value: (Version, Value),
    queue: VecDeque<Packet>,
    /// Answers to clients.
    told: Vec<(ClientId, ToClient)>,
    /// Bytes of the longest header.
    longest: usize,
    /// Pieces of a resync that the member was asked to read or write.
    resynced: usize,
}

const FIRST: Incarnation = Incarnation(1);

impl Rig {
    /// The coordinator leads, and the epoch is open.
    fn new() -> Rig {
        let value = Value { term: Term(0), leader: CandidateId(9), config: config(1 << 20, 1) };
        let mut out = Vec::new();
        let mut rig = Rig {
            now: 0,
            coordinator: Coordinator::start(CandidateId(0), 1, Timing::DEFAULT, 0),
            member: Member::start([&[], &[]], &[0; 1 << 20], &mut out),
            value: (Version(1), value),
            queue: VecDeque::new(),
            told: Vec::new(),
            longest: 0,
            resynced: 0,
        };
        rig.member_actions(out);
        while rig.coordinator.active().is_none() {
            rig.tick();
        }
        rig
    }

    fn tick(&mut self) {
        self.now += Timing::DEFAULT.tick_ms;
        let mut out = Vec::new();
        self.coordinator.tick(self.now, &mut out);
        self.coordinator_actions(out);
        self.run();
    }

    fn client(&mut self, client: u32, message: FromClient) {
        self.client_as(client, FIRST, message);
    }

    fn client_as(&mut self, client: u32, incarnation: Incarnation, message: FromClient) {
        let mut out = Vec::new();
        let event = coordinator::Event::Client(ClientId(client), incarnation, message);
        self.coordinator.handle(self.now, event, &mut out);
        self.coordinator_actions(out);
    }

    fn want(&mut self, client: u32, region: u32) {
        self.client(client, FromClient::Want(Region(region), GrantId(region.into())));
    }

    fn run(&mut self) {
        while let Some(packet) = self.queue.pop_front() {
            let (mut down, mut up) = (Vec::new(), Vec::new());
            match packet {
                Packet::Down(message) => {
                    let peer = Peer::Candidate(CandidateId(0));
                    self.member.handle(member::Event::Message(peer, message), &mut up);
                }
                Packet::Stored(generation) => {
                    self.member.handle(member::Event::Stored(generation), &mut up);
                }
                Packet::Up(message) => {
                    let event = coordinator::Event::Member(MemberId(0), message);
                    self.coordinator.handle(self.now, event, &mut down);
                }
                Packet::Answer(number, request) => {
                    if let Request::Cas(_, value) = request {
                        self.value = (Version(self.value.0.0 + 1), value);
                    }
                    let (version, value) = self.value.clone();
                    let event = coordinator::Event::Store(number, Outcome::Done(version, value));
                    self.coordinator.handle(self.now, event, &mut down);
                }
            }
            self.coordinator_actions(down);
            self.member_actions(up);
        }
    }

    fn coordinator_actions(&mut self, out: Vec<coordinator::Action>) {
        for action in out {
            match action {
                coordinator::Action::Client(client, _, _, told) => self.told.push((client, told)),
                coordinator::Action::Member(_, message) => {
                    self.queue.push_back(Packet::Down(message));
                }
                coordinator::Action::Store(number, request) => {
                    self.queue.push_back(Packet::Answer(number, request));
                }
                coordinator::Action::Beat(_) | coordinator::Action::Evicted(..) => {}
            }
        }
    }

    fn member_actions(&mut self, out: Vec<member::Action>) {
        for action in out {
            match action {
                member::Action::Store { generation, bytes, .. } => {
                    self.longest = self.longest.max(bytes.len());
                    self.queue.push_back(Packet::Stored(generation));
                }
                member::Action::Append { generation, .. } => {
                    self.queue.push_back(Packet::Stored(generation));
                }
                member::Action::Send(_, message) => self.queue.push_back(Packet::Up(message)),
                member::Action::Execute(..) => self.resynced += 1,
            }
        }
    }

    /// The answers since the last call that this function accepts.
    fn answers<T>(&mut self, accepts: impl Fn(ClientId, ToClient) -> Option<T>) -> Vec<T> {
        let told = std::mem::take(&mut self.told);
        told.into_iter().filter_map(|(client, message)| accepts(client, message)).collect()
    }

    fn grants(&mut self) -> Vec<u32> {
        self.run();
        self.answers(|_, message| match message {
            ToClient::Grant(region, _) => Some(region.0),
            _ => None,
        })
    }

    fn drains(&mut self) -> Vec<u32> {
        self.tick();
        self.answers(|_, message| match message {
            ToClient::Drain(region, _) => Some(region.0),
            _ => None,
        })
    }
}

#[test]
fn marks() {
    let mut rig = Rig::new();
    rig.client(1, FromClient::Join);
    rig.run();
    let most = u32::try_from(MOST_MARKS).expect("a small number");
    // Descending: the order of regions is not that of their age.
    (2..most).rev().for_each(|region| rig.want(1, region));
    assert_eq!(rig.grants().len(), MOST_MARKS - 2);
    for (region, count) in [(most, "limit - 1"), (most + 1, "limit")] {
        rig.want(1, region);
        assert_eq!(rig.grants(), [region], "{count}");
    }
    assert_eq!(rig.drains(), []);
    for region in [most + 2, 0] {
        rig.want(1, region);
        assert_eq!(rig.grants(), [], "limit + 1");
    }
    assert!(rig.coordinator.lacks_room());
    assert_eq!(rig.drains(), [most - 2, most - 1], "the two that are held longest");
    rig.client(1, FromClient::Release(Region(most - 1), GrantId(u64::from(most - 1))));
    assert_eq!(rig.grants(), [most + 2], "first come, first served");
    assert_eq!(rig.drains(), [most - 2]);
    assert!(rig.longest < HEADER_BYTES, "{} bytes", rig.longest);
    assert_eq!(rig.member.durable().log.marks.len(), MOST_MARKS + 1, "and one of the join");
}

#[test]
fn clients() {
    let mut rig = Rig::new();
    let joined = |client: ClientId, told: ToClient| match told {
        ToClient::Config(_) => Some(client.0),
        _ => None,
    };
    let most = u32::try_from(MOST_CLIENTS).expect("a small number");
    for client in 2..most {
        rig.client(client, FromClient::Join);
        rig.run();
    }
    assert_eq!(rig.answers(joined).len(), MOST_CLIENTS - 2);
    for (client, expected) in [(most, true), (most + 1, true), (most + 2, false), (most, true)] {
        rig.client(client, FromClient::Join);
        rig.run();
        assert_eq!(rig.answers(joined).len(), usize::from(expected), "client {client}");
    }
    assert_eq!(rig.member.durable().least.len(), MOST_CLIENTS);
}

/// The last incarnation is fenced, and its region is resynced; the number after it is not let in.
#[test]
fn incarnations() {
    let Incarnation(last) = Incarnation::LAST;
    for (number, is_let_in) in [(last - 1, true), (last, true), (last + 1, false)] {
        let mut rig = Rig::new();
        let incarnation = Incarnation(number);
        rig.client_as(1, incarnation, FromClient::Join);
        rig.run();
        rig.client_as(1, incarnation, FromClient::Want(Region(7), GrantId(7)));
        assert_eq!(rig.grants().is_empty(), !is_let_in, "{number}");
        let mut out = Vec::new();
        let evicted = rig.coordinator.evict(rig.now, ClientId(1), &mut out);
        assert_eq!(evicted.is_ok(), is_let_in, "{number}");
        rig.coordinator_actions(out);
        (0..20).for_each(|_| rig.tick());
        assert_eq!(rig.resynced > 0, is_let_in, "{number}: the eviction ends");
        let least = rig.member.durable().least.get(&ClientId(1)).copied();
        assert_eq!(least, is_let_in.then(|| incarnation.next()), "{number}");
    }
    choose(Some(Broken::LastLetIn));
    let mut rig = Rig::new();
    rig.client_as(1, Incarnation(last + 1), FromClient::Join);
    rig.run();
    rig.client_as(1, Incarnation(last + 1), FromClient::Want(Region(7), GrantId(7)));
    assert_eq!(rig.grants(), [7], "the mutant");
    choose(None);
}
