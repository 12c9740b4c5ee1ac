//! One run: events in order of time, the nodes' actions, the workload, the verdict.

mod carry;
mod deviate;
mod happen;
mod hearing;
mod replace;
mod restore;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use cluster::append;
use cluster::client::Client;
use cluster::code;
use cluster::coordinator::Coordinator;
use cluster::decisions::{self, Value, Version};
use cluster::ids::{CandidateId, ClientId, Epoch, Incarnation, MemberId, Ms, RequestId, Term};
use cluster::member::{Header, IoId, Member, Peer};
use cluster::message::{FromClient, FromMember, ToClient, ToMember};

use crate::faults::{self, CALM_MS, Fault, Hearing, Lasting, schedule};
use crate::ground::{DiskState, Ground, Node, Storing, TIMING};
use crate::marks;
use crate::oracle::{self, CELLS, Oracle};
use crate::verify;
pub use deviate::{Deviation, Plan};
use random::Rng;

/// A message on a link.
#[derive(Clone, Debug)]
pub enum Packet {
    ToMember(Peer, ToMember),
    FromMember(MemberId, FromMember),
    FromClient(ClientId, Incarnation, FromClient),
    ToClient(Incarnation, Term, ToClient),
    Beat(Term),
    /// A candidate that stands by hears a leader.
    Led,
}

#[derive(Clone, Debug)]
pub enum Event {
    Tick(Node, u64),
    Deliver(Node, Packet),
    Stored(usize, u64, u64),
    Finished(usize, u64, IoId),
    /// A store request arrives; does its answer get lost?
    Ask(usize, u64, u64, decisions::Request, bool),
    Answer(usize, u64, u64, decisions::Outcome),
    Fault(Fault),
    Start(Node),
    Work(usize, u64),
    /// Clients are served, although a fault lasts; since then in one term.
    Served(Option<Term>),
    /// The client of the third host has the answers to all requests before this one, after so long;
    /// `None`: look later, at those of now.
    Answered(Option<(RequestId, Ms)>),
    Look,
}

/// What became of a run.
pub struct Outcome {
    pub failure: Option<String>,
    pub history: Vec<String>,
    pub marks: BTreeSet<&'static str>,
    pub steps: u64,
    /// Of a run with a plan: for each step while clients work, the deviations that are possible.
    pub possible: Vec<&'static [Deviation]>,
}

/// A run that is not quiet by then does not end.
const END_MS: Ms = 40_000;
/// No new requests from here on.
const WORK_MS: Ms = CALM_MS + 500;

pub struct World {
    pub rng: Rng,
    pub now: Ms,
    queue: BTreeMap<(Ms, u64), Event>,
    sequence: u64,
    pub ground: Ground,
    pub oracle: Oracle,
    pub version: Version,
    pub value: Value,
    /// An old content, while the store has it.
    restored: Option<Value>,
    /// The deviations of a run without other faults.
    plan: Option<Plan>,
    possible: Vec<&'static [Deviation]>,
    /// Clients work until then.
    work_ms: Ms,
    /// Earlier contents.
    past: Vec<Value>,
    pub store_bad_until: Ms,
    /// The candidate that does not reach the store, until then.
    store_lost: Option<(usize, Ms)>,
    pub failure: Option<String>,
    history: Option<Vec<String>>,
    pub marks: BTreeSet<&'static str>,
    pub next_request: u64,
    pub next_value: u64,
    /// Draws of worlds in which clients write parts of blocks, too.
    pub patches: Option<Rng>,
    /// Draws of worlds in which they read and write several stripes at once, too.
    pub runs: Option<Rng>,
    /// Draws of disks that take the place of others.
    pub blanks: Rng,
    /// The term when the last blank disk was put in.
    pub blank_term: Term,
    /// The last host that held each region exclusively.
    pub holders: BTreeMap<cluster::ids::Region, ClientId>,
    /// Draws of messages between members and candidates that do not lead.
    listening: Rng,
    /// Candidates that stand by tell the others whether they hear a leader.
    reports: bool,
    /// A fault lasts, and there is no other one.
    lasting: Option<Lasting>,
    /// The client of a host that reaches all others, while two do not.
    served: usize,
    /// The incarnations of clients when hosts no longer heard each other.
    cut_incarnations: Vec<Incarnation>,
    /// The epoch in which a client sent a write of a stripe that is not complete.
    pub sent: BTreeMap<(usize, u64), Epoch>,
}

impl World {
    pub fn new(seed: u64, history: bool) -> World {
        World::with(seed, history, None)
    }

    /// With a plan there are no faults but its deviations.
    pub fn with(seed: u64, history: bool, plan: Option<Plan>) -> World {
        let mut rng = Rng::stream(seed, "cluster", 0);
        let striped = Ground::striped(&mut Rng::stream(seed, "code", 0));
        let areas = &mut Rng::stream(seed, "areas", 0);
        let mut ground = Ground::choose(&mut rng, areas, striped);
        let hearing = &mut Rng::stream(seed, "hearing", 70);
        let Hearing { reports, third, lasting } = match plan {
            Some(_) => Hearing::default(),
            None => faults::hearing(hearing),
        };
        if third {
            ground.add_candidate(hearing);
        }
        let config = ground.config.clone();
        let members = config.slots.len();
        let stripes = (config.shape.regions * config.shape.region_blocks) as usize;
        let blocks = stripes * code::width(&config.shape, members);
        let registers = code::block_bytes(&config.shape, members) / 4 / CELLS;
        let (level, mode) = (config.shape.level, config.shape.mode);
        let faults = schedule(&mut rng, &ground);
        let mut patches = Rng::stream(seed, "patches", 0);
        let mut runs = Rng::stream(seed, "runs", 0);
        let mut world = World {
            rng,
            now: 0,
            queue: BTreeMap::new(),
            sequence: 0,
            oracle: Oracle::new(blocks, registers, level, mode),
            version: Version(1),
            value: Value { term: Term(0), leader: CandidateId(u16::MAX), config },
            ground,
            restored: None,
            possible: Vec::new(),
            work_ms: if plan.is_some() { deviate::WORK_MS } else { WORK_MS },
            plan,
            past: Vec::new(),
            store_bad_until: 0,
            store_lost: None,
            failure: None,
            history: history.then(Vec::new),
            marks: BTreeSet::new(),
            next_request: 0,
            next_value: 0,
            // Drawn apart: the other worlds stay as they were.
            patches: patches.percent(40).then_some(patches),
            runs: runs.percent(40).then_some(runs),
            blanks: Rng::stream(seed, "blanks", 0),
            blank_term: Term(0),
            holders: BTreeMap::new(),
            // Drawn apart, as above.
            listening: Rng::stream(seed, "listening", 0),
            reports,
            lasting,
            served: 0,
            cut_incarnations: Vec::new(),
            sent: BTreeMap::new(),
        };
        let restore = faults::restore(&mut Rng::stream(seed, "restore", 0));
        let replaced = faults::replace(&mut Rng::stream(seed, "replacement", 0), &world.ground);
        let planned = world.plan.is_some();
        let mut faults: Vec<_> = faults.into_iter().chain(restore).chain(replaced).collect();
        if let Some(lasting) = lasting {
            if world.spares_clients() {
                world.ground.links.usual = [0; 3];
            }
            faults = lasting.faults(hearing, &world.ground);
            world.expect_service();
        }
        for (at, fault) in faults.into_iter().filter(|_| !planned) {
            world.at(at, Event::Fault(fault));
        }
        for node in world.ground.nodes() {
            world.at(0, Event::Start(node));
        }
        world.at(if planned { deviate::WORK_MS } else { CALM_MS }, Event::Look);
        world
    }

    pub fn at(&mut self, time: Ms, event: Event) {
        self.sequence += 1;
        self.queue.insert((time.max(self.now), self.sequence), event);
    }

    pub fn mark(&mut self, mark: &'static str) {
        self.marks.insert(mark);
    }

    pub fn tell(&mut self, story: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(history) = &mut self.history {
            history.push(format!("{now:>6} {}", story()));
        }
    }

    pub fn require(&mut self, verdict: Result<(), String>) {
        if let Err(story) = verdict
            && self.failure.is_none()
        {
            self.failure = Some(format!("{} ms: {story}", self.now));
        }
    }

    pub fn run(mut self) -> Outcome {
        let mut steps = 0;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while self.failure.is_none() {
                let Some(((time, _), event)) = self.queue.pop_first() else { break };
                self.now = time;
                steps += 1;
                if matches!(event, Event::Look) {
                    match self.unrest() {
                        None => break,
                        Some(story) if time > END_MS => {
                            self.require(Err(format!("I13: no end: {story}")));
                        }
                        Some(_) => {
                            self.at(time + 100, Event::Look);
                            self.accept();
                        }
                    }
                } else if let Some(event) = self.deviate(steps, event) {
                    self.happen(event);
                }
            }
            if self.failure.is_none() {
                let verdict = self.whole();
                self.require(verdict);
            }
        }));
        if let Err(panic) = caught {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or(panic.downcast_ref::<&str>().map(|text| String::from(*text)));
            self.failure = Some(format!("{} ms: panic: {}", self.now, text.unwrap_or_default()));
        }
        let history = self.history.unwrap_or_default();
        let (failure, marks, possible) = (self.failure, self.marks, self.possible);
        Outcome { failure, history, marks, steps, possible }
    }

    /// What is not at rest yet.
    fn unrest(&self) -> Option<String> {
        if self.now < self.work_ms {
            return Some(String::from("clients work"));
        }
        if self.lasting.is_some() && self.now < faults::LASTING_MS {
            return Some(String::from("a fault lasts"));
        }
        for (index, client) in self.ground.clients.iter().enumerate() {
            if client.machine.is_none() || !client.tasks.is_empty() {
                return Some(format!("client {index} waits for {:?}", client.tasks));
            }
        }
        let config = &self.value.config;
        if config.in_sync().count() < config.slots.len() {
            return Some(format!("{config:?}"));
        }
        for member in config.members() {
            let dirty = self.ground.dirty(config, member);
            if !dirty.is_empty() {
                return Some(format!("{member:?} has dirty {dirty:?}"));
            }
        }
        let leaders = self.ground.candidates.iter().filter_map(|node| node.machine.as_ref());
        let active = leaders.filter_map(Coordinator::active).max();
        (active != Some(config.epoch)).then(|| format!("{:?} is not active", config.epoch))
    }

    /// Everything is healthy: the media hold what reads may return, and match.
    fn whole(&mut self) -> Result<(), String> {
        let config = self.value.config.clone();
        self.ground.clean_regions_match(&config)?;
        for block in 0..self.oracle.blocks() {
            let (stripe, index) = code::place(&config, block);
            let bytes = self.ground.content(&config, stripe, false).expect("all are in sync");
            let length = code::block_bytes(&config.shape, config.slots.len());
            let bytes = &bytes[index * length..][..length];
            let (value, cells) = (verify::registers(bytes), oracle::cells(block..block + 1));
            let reader = (ClientId(u32::MAX), Incarnation(0));
            if self.oracle.read(reader, RequestId(0), cells.clone()) {
                self.oracle.check((reader, RequestId(0)), cells, &value, config.epoch)?;
            }
        }
        Ok(())
    }

    pub fn start(&mut self, node: Node) {
        let now = self.now;
        let host = self.ground.host(node);
        host.life += 1;
        host.paused_until = 0;
        let (life, local) = (host.life, host.skew.at(now));
        match node {
            Node::Candidate(index) => {
                let room = self.ground.most_marks;
                let me = CandidateId(index as u16);
                let members = self.ground.members.len();
                let machine = Coordinator::start(me, members, TIMING, local).with_room(room);
                self.ground.candidates[index].machine = Some(machine);
            }
            Node::Client(index) => {
                let client = &mut self.ground.clients[index];
                client.incarnation.0 += 1;
                let id = ClientId(index as u32);
                client.machine = Some(Client::start(id, client.incarnation, TIMING, local));
                let first = now + self.rng.below(50);
                self.at(first, Event::Work(index, life));
            }
            Node::Member(index) => {
                let mut out = Vec::new();
                let DiskState { slots: [one, other], area, .. } = &self.ground.members[index].disk;
                let machine = Member::start([one, other], area, &mut out);
                let found = machine.durable().clone();
                let replayed = found.generation > Header::newest([one, other]).1.generation;
                let node = &mut self.ground.members[index];
                let fits = found == node.disk.header;
                let old = node.disk.header.clone();
                node.machine = Some(machine);
                if !fits {
                    self.require(Err(format!("I5: member {index} lost {old:?}, has {found:?}")));
                }
                if replayed {
                    self.mark(marks::REPLAYED);
                }
                self.member_actions(index, out);
            }
        }
        self.tell(|| format!("{node:?} starts, life {life}"));
        let first = now + self.rng.below(TIMING.tick_ms);
        self.at(first, Event::Tick(node, life));
    }

    pub fn crash(&mut self, node: Node) {
        self.tell(|| format!("{node:?} dies"));
        self.ground.host(node).life += 1;
        match node {
            Node::Candidate(index) => self.ground.candidates[index].machine = None,
            Node::Client(index) => {
                let client = &mut self.ground.clients[index];
                client.machine = None;
                client.tasks.clear();
                self.sent.retain(|&(of, _), _| of != index);
                if self.ground.config.shape.level.is_striped() {
                    self.forget_sent(index);
                }
            }
            Node::Member(index) => {
                let lost = self.ground.members[index].disk.medium.crash(&mut self.rng);
                if lost {
                    self.mark(marks::CACHE_LOST);
                }
                self.tear(index);
                self.ground.members[index].machine = None;
            }
        }
    }

    /// Some of what a dead client has sent never left its host: a stripe is new in part.
    fn forget_sent(&mut self, index: usize) {
        let peer = Peer::Client(ClientId(index as u32));
        let rng = &mut self.rng;
        self.queue.retain(|_, event| match event {
            Event::Deliver(_, Packet::ToMember(from, _)) if *from == peer => rng.percent(50),
            _ => true,
        });
    }

    /// What was being written is old, new or torn.
    fn tear(&mut self, index: usize) {
        let node = &mut self.ground.members[index];
        let Some(storing) = node.storing.take() else { return };
        let node = &mut node.disk;
        let mut new = node.header.clone();
        let (place, at, bytes, torn) = match storing {
            Storing::Header(slot, bytes) => {
                (_, new) = Header::newest([&bytes, &[]]);
                let slot = &mut node.slots[slot];
                slot.resize(slot.len().max(bytes.len()), 0);
                (slot, 0, bytes, marks::TORN_HEADER)
            }
            Storing::Entry(at, bytes) => {
                append::replay(&mut new, &bytes);
                (&mut node.area, at, bytes, marks::TORN_ENTRY)
            }
        };
        let whole = bytes.len();
        let keep = match self.rng.below(4) {
            0 => 0,
            1 | 2 => self.rng.within(1, whole as u64 - 1) as usize,
            _ => whole,
        };
        place[at..at + keep].copy_from_slice(&bytes[..keep]);
        // A start must find the last state or this one, whole.
        let [one, other] = &node.slots;
        let (_, mut found) = Header::newest([one, other]);
        append::replay(&mut found, &node.area);
        if found == new {
            node.header = new;
        }
        if (1..whole).contains(&keep) {
            self.mark(torn);
        }
    }
}
