//! The fault menu: when what fails, and for how long.

use cluster::ids::Ms;

use crate::ground::{Ground, Node, TIMING};
use random::Rng;

#[derive(Clone, Debug)]
pub enum Fault {
    /// Dies; starts again after this time.
    Crash(Node, Ms),
    /// Power cut of all members.
    PowerCut(Ms),
    /// Stands still, with everything that arrives meanwhile.
    Pause(Node, Ms),
    /// The only candidate's host is suspended, and this member with it: what is sent to them
    /// meanwhile is lost, and connections are made again one after the other.
    Suspend(usize, Ms),
    /// A client has a new connection to a member: the last one broke.
    Connect(usize, usize),
    /// Everything stands still; nodes go on one after the other.
    Standstill(Ms),
    /// No message from the first to the second.
    Cut(Node, Node, Ms),
    /// No message to or from this node.
    Isolate(Node, Ms),
    /// No message between these and the others.
    Split(Vec<Node>, Ms),
    /// Messages are lost, copied and late.
    Bad(Ms),
    /// A member's medium is slow.
    Slow(usize, Ms),
    /// Requests to the store have an unknown outcome.
    Store(Ms),
    /// The store is restored from an old backup.
    Restore(Ms),
    /// The store has its latest content again.
    Repair,
    /// A member's disk dies for good; a blank one takes its place after this time.
    Replace(usize, Ms),
    /// A disk that was replaced is in its old place for this time.
    OldDisk(usize, Ms),
    /// Somebody looks at the disk in place, until then.
    Disk(usize, Ms),
    /// The coordinator that leads dies.
    CrashLeader,
    /// A member dies, and the coordinator that leads reaches too few of the others, until then.
    CutLeader(Ms),
    /// Candidate 0 dies, and hosts 1 and 2 do not hear each other, until then.
    CutHosts(Ms),
    /// A member dies, and the coordinator that leads does not reach the store, until then.
    LoseStore(Ms),
    /// Member 2 dies, and hosts 0 and 1 do not hear each other, until then.
    LastHost(Ms),
}

/// Faults end here.
pub const CALM_MS: Ms = 6000;
/// Except for those that last until then.
pub const LASTING_MS: Ms = 12_500;

fn any(rng: &mut Rng, ground: &Ground) -> Fault {
    let nodes = ground.nodes();
    let member = Node::Member(rng.below(ground.members.len() as u64) as usize);
    let candidate = Node::Candidate(rng.below(ground.candidates.len() as u64) as usize);
    let client = Node::Client(rng.below(ground.clients.len() as u64) as usize);
    let time = rng.within(50, 2500);
    match rng.below(19) {
        0 | 1 => Fault::Crash(member, time),
        2 | 3 => Fault::Crash(client, time),
        4 | 5 => Fault::Crash(candidate, time),
        6 => Fault::PowerCut(rng.within(50, 800)),
        7 => Fault::Pause(client, time),
        8 => Fault::Pause(candidate, time),
        9 => Fault::Pause(member, time),
        10 => Fault::Cut(rng.pick(&nodes), rng.pick(&nodes), time),
        11 => Fault::Isolate(rng.pick(&nodes), time),
        12 => Fault::Bad(time),
        13 | 14 => Fault::Slow(rng.below(ground.members.len() as u64) as usize, time),
        15 => Fault::Store(time),
        16 | 17 => split(rng, &nodes),
        // A quick restart, which a timeout does not see.
        _ => Fault::Crash(member, 5),
    }
}

/// Two groups of nodes.
pub fn split(rng: &mut Rng, nodes: &[Node]) -> Fault {
    let some = nodes.iter().copied().filter(|_| rng.percent(40)).collect();
    Fault::Split(some, rng.within(50, 2500))
}

/// The faults of a seed, with their times. Some come at once: two failures are the hard case.
pub fn schedule(rng: &mut Rng, ground: &Ground) -> Vec<(Ms, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..rng.below(9) {
        let at = rng.within(200, CALM_MS - 500);
        let fault = any(rng, ground);
        // Orders gather while a slow medium writes: the headers after that are the hard case.
        if let Fault::Slow(index, time) = fault
            && rng.percent(80)
        {
            faults.push((at + rng.below(time), Fault::Crash(Node::Member(index), 5)));
        }
        faults.push((at, fault));
        if rng.percent(30) {
            faults.push((at + rng.below(60), any(rng, ground)));
        }
    }
    faults
}

/// The store of some seeds is restored, too. Drawn apart: the other faults stay the same.
pub fn restore(rng: &mut Rng) -> Option<(Ms, Fault)> {
    let (at, time) = (rng.within(1000, CALM_MS - 500), rng.within(50, 2500));
    rng.percent(15).then_some((at, Fault::Restore(time)))
}

/// In some seeds disks are replaced, too. Drawn apart, as above.
pub fn replace(rng: &mut Rng, ground: &Ground) -> Vec<(Ms, Fault)> {
    let mut faults = Vec::new();
    if !rng.percent(15) {
        return faults;
    }
    let index = rng.below(ground.members.len() as u64) as usize;
    for _ in 0..rng.within(1, 3) {
        let (at, time) = (rng.within(600, CALM_MS - 1500), rng.within(5, 800));
        faults.push((at, Fault::Replace(index, time)));
        // A takeover in the middle of it.
        if rng.percent(40) {
            faults.push((at + time + rng.within(300, 700), Fault::CrashLeader));
        }
        if rng.percent(60) {
            let (late, time) = (rng.within(600, 2500), rng.within(5, 1200));
            faults.push(((at + late).min(CALM_MS), Fault::OldDisk(index, time)));
        }
    }
    faults
}

/// How candidates hear of each other. Drawn apart, as above.
#[derive(Default)]
pub struct Hearing {
    /// Those that stand by tell the others whether they hear a leader.
    pub reports: bool,
    /// There are three.
    pub third: bool,
    /// The only faults of the world, which others would hide.
    pub lasting: Option<Lasting>,
}

/// Links that are cut while clients must be served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lasting {
    /// Those of the leader to members, while another member is dead.
    Leader,
    /// Those between candidates 0 and 1; members hear both.
    Candidates,
    /// That of the leader to the store, while a member is dead.
    Store,
    /// Those between two hosts, each with a candidate, a member and a client; the candidate or the
    /// member of the third one is dead.
    Hosts,
    /// No long ones: a client and as many members as may fail hear nobody else, for less than a
    /// lease, again and again. The client comes back in an old epoch, as these members do.
    Brief,
    /// No link is cut: everything stands still for some time, again and again. Nobody is dead.
    Standstill,
    /// There is one candidate. It stands still, again and again, and a member with it, which may
    /// die then.
    Alone,
    /// There is one candidate. More members than the level tolerates are cut off. They return one
    /// after the other, and to clients last.
    Away,
}

/// No request may wait longer while hosts do not hear each other: an election, a lease, a resync.
pub const LONGEST_MS: Ms = 3800;
/// The same where clients also wait for each other's room in the log.
pub const CROWDED_MS: Ms = 5600;

/// A rival may stand still for so long when hosts no longer hear each other.
const SLOW_RIVAL_MS: Ms = 2400;

/// A connection that broke is made again within this time.
pub const MADE_AGAIN_MS: Ms = TIMING.member_ms * 3 / 4;

/// The first time that everything stands still.
pub const STANDSTILL_MS: Ms = 1500;

impl Lasting {
    pub fn faults(self, rng: &mut Rng, ground: &Ground) -> Vec<(Ms, Fault)> {
        let at = rng.within(1000, 4000);
        let cut = |from, to| {
            let (from, to) = (Node::Candidate(from), Node::Candidate(to));
            (at, Fault::Cut(from, to, LASTING_MS - at))
        };
        match self {
            Lasting::Leader => vec![(at, Fault::CutLeader(LASTING_MS))],
            Lasting::Store => vec![(at, Fault::LoseStore(LASTING_MS))],
            Lasting::Candidates => vec![cut(0, 1), cut(1, 0)],
            // At most levels only candidate 2 reaches enough then, and is the slowest.
            Lasting::Hosts
                if ground.clients.len().min(ground.members.len()) > 2 && rng.percent(40) =>
            {
                vec![(at, Fault::LastHost(LASTING_MS))]
            }
            Lasting::Hosts => {
                let mut faults = vec![(at, Fault::CutHosts(LASTING_MS))];
                // One of the rivals may be much slower than the other.
                if rng.percent(50) {
                    let rival = Node::Candidate(rng.within(1, 2) as usize);
                    faults.push((at, Fault::Pause(rival, rng.below(SLOW_RIVAL_MS))));
                }
                faults
            }
            Lasting::Brief => {
                let (members, clients) = (ground.members.len(), ground.clients.len() as u64);
                let spares = ground.config.shape.level.spares(members);
                let brief = |at: Ms| {
                    let first = rng.below(members as u64) as usize;
                    let few = (first..first + spares).map(|member| member % members);
                    let client = Node::Client(rng.below(clients) as usize);
                    let group = few.map(Node::Member).chain([client]).collect();
                    (at, Fault::Split(group, rng.within(TIMING.member_ms, 1300)))
                };
                [1000, 2500, 4000, 5500].map(brief).into()
            }
            Lasting::Away => {
                let (members, mut faults) = (ground.members.len(), lone(ground));
                for member in 0..=ground.config.shape.level.spares(members) {
                    let time = rng.within(1000, 4000);
                    let node = Node::Member(member);
                    faults.push((at, Fault::Split(vec![node], time)));
                    for index in 0..ground.clients.len() {
                        let (time, client) = (time + rng.below(MADE_AGAIN_MS), Node::Client(index));
                        faults.push((at, Fault::Cut(client, node, time)));
                        faults.push((at, Fault::Cut(node, client, time)));
                        faults.push((at + time, Fault::Connect(index, member)));
                    }
                }
                faults
            }
            Lasting::Standstill => {
                standstills(rng).map(|(at, time)| (at, Fault::Standstill(time))).into()
            }
            Lasting::Alone => {
                let mut faults = lone(ground);
                let leader = |time| Fault::Pause(Node::Candidate(0), time);
                for (at, time) in standstills(rng) {
                    let index = rng.below(ground.members.len() as u64) as usize;
                    let member = Node::Member(index);
                    let more = time + rng.within(50, 100);
                    let (dies, stops) = (Fault::Crash(member, more), Fault::Pause(member, time));
                    match rng.below(3) {
                        // Clients are connected again before the next one.
                        0 => faults.push((at, Fault::Suspend(index, time.min(1500)))),
                        1 => faults.extend([(at, leader(time)), (at, stops)]),
                        _ => faults.extend([(at, leader(time)), (at, dies)]),
                    }
                }
                faults
            }
        }
    }
}

/// All candidates but one are dead: another leader would hear everything anew.
fn lone(ground: &Ground) -> Vec<(Ms, Fault)> {
    let others = (1..ground.candidates.len()).map(Node::Candidate);
    others.map(|other| (1, Fault::Crash(other, LASTING_MS))).collect()
}

/// When everything or the only candidate stands still, and for how long.
fn standstills(rng: &mut Rng) -> [(Ms, Ms); 3] {
    [0, 2100, 4200].map(|after| (STANDSTILL_MS + after, rng.within(TIMING.member_ms, 2000)))
}

pub fn hearing(rng: &mut Rng) -> Hearing {
    let third = rng.percent(50);
    let lasting = match rng.below(100) {
        0..4 => Lasting::Leader,
        4..8 => Lasting::Candidates,
        8..12 => Lasting::Hosts,
        12..16 => Lasting::Brief,
        16..20 => Lasting::Standstill,
        20..24 => Lasting::Alone,
        24..28 => Lasting::Away,
        28..31 => Lasting::Store,
        31..35 => return Hearing { reports: true, third, lasting: None },
        _ => return Hearing::default(),
    };
    Hearing { reports: true, third: third || lasting != Lasting::Leader, lasting: Some(lasting) }
}
