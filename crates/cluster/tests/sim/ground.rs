//! What a seed chooses: shape, timing, clocks, links, and the nodes themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use cluster::append::UNIT_BYTES;
use cluster::client::Client;
use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::coordinator::Coordinator;
use cluster::ids::{
    ArrayId, BootId, ClientId, DiskId, Epoch, Incarnation, MemberId, Ms, Region, RequestId, Term,
};
use cluster::member::{Header, Member};
use cluster::timing::Timing;

use crate::medium::Medium;
use random::Rng;

/// An address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Node {
    Candidate(usize),
    Member(usize),
    Client(usize),
}

/// Shrunk, so that a run has many rounds.
pub const TIMING: Timing = Timing {
    tick_ms: 50,
    member_ms: 400,
    lease_ms: 1500,
    margin_ms: 200,
    drain_ms: 1500,
    takeover_ms: 500,
    store_ms: 300,
    idle_ms: 100,
};

/// A clock that runs at its own rate.
#[derive(Clone, Copy)]
pub struct Skew {
    base: Ms,
    per_mille: u64,
}

impl Skew {
    fn any(rng: &mut Rng) -> Skew {
        Skew { base: rng.below(1000), per_mille: rng.within(980, 1020) }
    }

    pub fn at(&self, now: Ms) -> Ms {
        self.base + now * self.per_mille / 1000
    }
}

/// What every node has.
pub struct Host {
    pub skew: Skew,
    /// Increments with each start: timers of an earlier life are void.
    pub life: u64,
    pub paused_until: Ms,
    /// What arrives until then is lost.
    pub deaf_until: Ms,
}

pub struct CandidateNode {
    pub host: Host,
    pub machine: Option<Coordinator>,
}

/// A request of the workload.
#[derive(Clone, Debug)]
pub enum Task {
    /// These cells.
    Read(Range<usize>),
    Write(Range<usize>),
    /// Covers the writes up to this number.
    Flush(u64),
}

pub struct ClientNode {
    pub host: Host,
    pub machine: Option<Client>,
    pub incarnation: Incarnation,
    pub tasks: BTreeMap<RequestId, Task>,
}

/// What a member has promised by an answer.
#[derive(Default)]
pub struct Promise {
    pub epoch: Epoch,
    pub term: Term,
    pub least: BTreeMap<ClientId, Incarnation>,
}

/// A write of a member's own records.
pub enum Storing {
    Header(usize, Vec<u8>),
    Entry(usize, Vec<u8>),
}

/// A member's disk, and what it has promised.
pub struct DiskState {
    pub number: DiskId,
    pub medium: Medium,
    pub slots: [Vec<u8>; 2],
    pub area: Vec<u8>,
    /// The last header known to be durable.
    pub header: Header,
    pub promise: Promise,
}

pub struct MemberNode {
    pub host: Host,
    pub machine: Option<Member>,
    /// The disk in place.
    pub disk: DiskState,
    /// Disks that were in place before.
    pub drawer: Vec<DiskState>,
    /// What is being written.
    pub storing: Option<Storing>,
    /// Extra time of each request, until then.
    pub slow: (Ms, Ms),
}

/// The links, at the moment.
#[derive(Default)]
pub struct Links {
    /// No message passes from one to the other, until then.
    pub cut: BTreeMap<(Node, Node), Ms>,
    /// Per cent of messages lost, copied, late; until then.
    pub bad: ([u64; 3], Ms),
    /// Always.
    pub usual: [u64; 3],
}

/// A start of everything.
pub struct Ground {
    pub config: Config,
    pub candidates: Vec<CandidateNode>,
    pub members: Vec<MemberNode>,
    pub clients: Vec<ClientNode>,
    pub links: Links,
    /// The room of coordinators.
    pub most_marks: usize,
}

fn host(rng: &mut Rng) -> Host {
    Host { skew: Skew::any(rng), life: 0, paused_until: 0, deaf_until: 0 }
}

impl Ground {
    /// Some seeds have a level with several blocks in a stripe. Drawn apart: the others stay as
    /// they were.
    pub fn striped(rng: &mut Rng) -> Option<(Level, usize)> {
        let level = rng.pick(&[Level::Raid5, Level::Raid6]);
        let count = level.least() + rng.below(3) as usize;
        rng.percent(45).then_some((level, count))
    }

    /// `areas` are draws of their own: other sizes leave the rest of a seed alone.
    pub fn choose(rng: &mut Rng, areas: &mut Rng, striped: Option<(Level, usize)>) -> Ground {
        let choices = [
            (3, (Level::Fragments, 3)),
            (1, (Level::Fragments, 5)),
            (2, (Level::Mirror, 2)),
            (2, (Level::Mirror, 3)),
        ];
        let (mut level, mut count) = rng.weighted(&choices);
        let mut mode = rng.pick(&[Mode::Shared, Mode::Shared, Mode::Exclusive]);
        if let Some(striped) = striped {
            ((level, count), mode) = (striped, Mode::Exclusive);
        }
        let regions = rng.within(1, 4) as u32;
        let shape = Shape { level, regions, region_blocks: 2, piece_bytes: 8, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; count];
        let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
        let mut member = |rng: &mut Rng| MemberNode {
            host: host(rng),
            machine: None,
            disk: DiskState {
                number: DiskId(0),
                medium: Medium::default(),
                slots: [Vec::new(), Vec::new()],
                // Small, so that it is full often; or none at all.
                area: vec![0; UNIT_BYTES * areas.pick(&[0, 1, 2, 5])],
                header: Header::default(),
                promise: Promise::default(),
            },
            drawer: Vec::new(),
            storing: None,
            slow: (0, 0),
        };
        let client = |rng: &mut Rng| ClientNode {
            host: host(rng),
            machine: None,
            incarnation: Incarnation(0),
            tasks: BTreeMap::new(),
        };
        let members = (0..count).map(|_| member(rng)).collect();
        let usual = if rng.percent(50) { [0, 0, 0] } else { [2, 3, 3] };
        Ground {
            config,
            candidates: (0..2).map(|_| CandidateNode { host: host(rng), machine: None }).collect(),
            members,
            clients: (0..rng.within(2, 3)).map(|_| client(rng)).collect(),
            links: Links { usual, ..Links::default() },
            // Tiny in some worlds, so that it is reached.
            most_marks: areas.pick(&[1, 2, 3, 1000, 1000, 1000, 1000, 1000]),
        }
    }

    /// One more candidate; drawn apart.
    pub fn add_candidate(&mut self, rng: &mut Rng) {
        self.candidates.push(CandidateNode { host: host(rng), machine: None });
    }

    pub fn host(&mut self, node: Node) -> &mut Host {
        match node {
            Node::Candidate(index) => &mut self.candidates[index].host,
            Node::Member(index) => &mut self.members[index].host,
            Node::Client(index) => &mut self.clients[index].host,
        }
    }

    pub fn nodes(&self) -> Vec<Node> {
        let candidates = (0..self.candidates.len()).map(Node::Candidate);
        let members = (0..self.members.len()).map(Node::Member);
        candidates.chain(members).chain((0..self.clients.len()).map(Node::Client)).collect()
    }

    /// The disk of a member that the configuration names.
    pub fn named(&self, config: &Config, member: MemberId) -> &DiskState {
        let (node, number) =
            (&self.members[usize::from(member.0)], config.slot(member).boot.disk());
        node.drawer.iter().find(|disk| disk.number == number).unwrap_or(&node.disk)
    }

    /// Regions that a mark of the durable log of this member makes dirty.
    pub fn dirty(&self, config: &Config, member: MemberId) -> BTreeSet<Region> {
        cluster::record::dirty(&self.named(config, member).header.log.marks)
    }
}
