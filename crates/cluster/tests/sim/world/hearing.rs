//! Links that are cut for long, and standstills.
//!
//! ```text
//!   a member dead, the leader's links to others cut     another one serves
//!   a member dead, the leader does not reach the store  another one serves
//!   candidates 0 and 1 do not hear each other           members tell them: nobody is replaced
//!   hosts 1 and 2 do not hear each other, candidate     one of both serves, and is not replaced
//!     0 is dead
//!   hosts 0 and 1 do not hear each other, member 2      candidate 2 serves, the last in turn
//!     is dead
//!   some nodes are cut off for less than a lease        they come back in an old epoch
//!   everything stands still                             nobody is removed, evicted or replaced
//!   the only candidate stands still                     no client is evicted
//!   more members than the level tolerates are cut off   they return, and no client is evicted
//! ```
//!
//! In worlds with such a fault there is no other one. Clients that reach all members must be served
//! while it lasts. In the end the leader must stay the same, if it can know that it is needed.

use cluster::coordinator::Coordinator;
use cluster::ids::{ClientId, Incarnation, MemberId, Ms, RequestId, Term};
use cluster::message::{Answer, FromMember};
use cluster::session::Report;

use super::{Event, Packet, World};
use crate::faults::{
    CALM_MS, CROWDED_MS, Fault, LASTING_MS, LONGEST_MS, Lasting, MADE_AGAIN_MS, STANDSTILL_MS,
};
use crate::ground::{Node, TIMING};
use crate::marks;

/// From here on the leader stays the same.
const SETTLED_MS: Ms = LASTING_MS - 3500;
/// Until then, and all requests are complete.
const SERVED_MS: Ms = LASTING_MS - 500;

impl World {
    /// A candidate that stands by tells the others that it hears a leader.
    pub fn report_leader(&mut self, index: usize) {
        let machine = self.ground.candidates[index].machine.as_ref();
        let report = machine.filter(|_| self.reports).map(Coordinator::report);
        let Some(Report { term: None, led: true, .. }) = report else { return };
        for other in (0..self.ground.candidates.len()).filter(|&other| other != index) {
            self.send(Node::Candidate(index), Node::Candidate(other), Packet::Led);
        }
    }

    /// A candidate that stands by gets a member's answer.
    pub fn note_leader(&mut self, index: usize, message: &FromMember) {
        let FromMember::Control(Term(0), _, Answer::Deposed(..)) = message else { return };
        let Some(leader) = self.leader() else { return };
        let link = (Node::Candidate(leader), Node::Candidate(index));
        if self.ground.links.cut.get(&link).is_some_and(|&until| self.now < until) {
            self.mark(marks::HEARD_THROUGH);
        }
    }

    fn leader(&self) -> Option<usize> {
        let leads = |machine: &Coordinator| machine.leads().is_some();
        let mut nodes = self.ground.candidates.iter();
        nodes.position(|node| node.machine.as_ref().is_some_and(leads))
    }

    /// Dies, and so do its messages: a late one would look like a sign of life.
    fn die(&mut self, node: Node) {
        self.crash(node);
        self.queue.retain(|_, event| match event {
            Event::Deliver(_, Packet::FromMember(from, _)) => {
                Node::Member(usize::from(from.0)) != node
            }
            _ => true,
        });
    }

    pub fn cut_leader(&mut self, until: Ms) {
        let Some(leader) = self.leader().map(Node::Candidate) else { return };
        let config = &self.value.config;
        let (members, needed) = (config.slots.len(), config.needed());
        let dead = self.rng.below(members as u64) as usize;
        self.die(Node::Member(dead));
        self.at(until, Event::Start(Node::Member(dead)));
        let cut = (0..members).filter(|&member| member != dead).take(members - needed);
        for member in cut.map(Node::Member) {
            self.ground.links.cut.insert((leader, member), until);
            self.ground.links.cut.insert((member, leader), until);
        }
    }

    /// Connections are made again until shortly before the others would be late.
    pub fn suspend(&mut self, member: usize, time: Ms) {
        let until = self.now + time;
        let nodes = [Node::Candidate(0), Node::Member(member)];
        for node in nodes {
            let host = self.ground.host(node);
            (host.paused_until, host.deaf_until) = (until, until);
        }
        for client in 0..self.ground.clients.len() {
            for node in nodes {
                let at = until + self.rng.below(MADE_AGAIN_MS);
                self.ground.links.cut.insert((Node::Client(client), node), at);
                self.ground.links.cut.insert((node, Node::Client(client)), at);
                if node != nodes[0] {
                    self.at(at, Event::Fault(Fault::Connect(client, member)));
                }
            }
        }
    }

    pub fn lose_store(&mut self, until: Ms) {
        self.store_lost = self.leader().map(|leader| (leader, until));
        let dead = Node::Member(self.rng.below(self.ground.members.len() as u64) as usize);
        self.die(dead);
        self.at(until, Event::Start(dead));
    }

    /// Cuts the links between two hosts; what dies is on the third one.
    pub fn cut_hosts(&mut self, (one, two): (usize, usize), dies: Node, until: Ms) {
        let host = |index| [Node::Candidate(index), Node::Member(index), Node::Client(index)];
        for (from, to) in host(one).into_iter().flat_map(|one| host(two).map(|two| (one, two))) {
            self.ground.links.cut.insert((from, to), until);
            self.ground.links.cut.insert((to, from), until);
        }
        self.die(dies);
        self.at(until, Event::Start(dies));
        self.served = 3 - one - two;
        let incarnations = self.ground.clients.iter().map(|client| client.incarnation);
        self.cut_incarnations = incarnations.collect();
        self.answered(None);
    }

    /// A client that started while hosts do not hear each other, and does not reach a live member,
    /// gets no region.
    pub fn note_grant(&mut self, client: ClientId, incarnation: Incarnation) {
        let index = client.0 as usize;
        let old = self.cut_incarnations.get(index).is_none_or(|&last| incarnation <= last);
        let live: Vec<MemberId> = self.value.config.live().collect();
        let is_cut = |member: &MemberId| {
            let link = (Node::Client(index), Node::Member(usize::from(member.0)));
            self.ground.links.cut.get(&link).is_some_and(|&until| self.now < until)
        };
        if !old && live.iter().any(is_cut) {
            self.require(Err(format!(
                "I13: {client:?} gets a region, and does not reach a member"
            )));
        }
    }

    /// Looks again and again whether a request of the third host waits for too long.
    pub fn answered(&mut self, before: Option<(RequestId, Ms)>) {
        if let Some((before, longest_ms)) = before {
            if longest_ms == LONGEST_MS && self.marks.contains(marks::ROOM_LACKING) {
                return;
            }
            let waits =
                self.ground.clients.get(self.served).and_then(|it| it.tasks.range(..before).next());
            let story = waits.map(|(id, _)| format!("I13: {id:?} waits for {longest_ms} ms"));
            self.require(story.map_or(Ok(()), Err));
        } else if self.now < CALM_MS {
            // A region with a hole takes room in the log, which others may lack.
            self.accept();
            for longest_ms in [LONGEST_MS, CROWDED_MS] {
                let next = (RequestId(self.next_request), longest_ms);
                self.at(self.now + longest_ms, Event::Answered(Some(next)));
            }
            self.at(self.now + 4 * TIMING.tick_ms, Event::Answered(None));
        }
    }

    /// Looks later whether clients are served.
    pub fn expect_service(&mut self) {
        let settled_ms = match self.lasting {
            Some(Lasting::Standstill | Lasting::Alone) => STANDSTILL_MS - 1,
            _ => SETTLED_MS,
        };
        self.at(settled_ms, Event::Served(None));
    }

    /// True if no client may be evicted: none is cut off, and none pauses alone.
    pub fn spares_clients(&self) -> bool {
        matches!(self.lasting, Some(Lasting::Standstill | Lasting::Alone | Lasting::Away))
    }

    pub fn served(&mut self, since: Option<Term>) {
        let term = self.value.term;
        let Some(since) = since else { return self.at(SERVED_MS, Event::Served(Some(term))) };
        let cut = self.lasting == Some(Lasting::Hosts);
        let must = |client: usize| !cut || client == self.served;
        let mut clients = self.ground.clients.iter().enumerate();
        let waits = clients.find(|(client, node)| must(*client) && !node.tasks.is_empty());
        self.require(match waits {
            Some((client, _)) => Err(format!("I13: client {client} waits while a fault lasts")),
            None if since != term => Err(format!("I13: {since:?} is replaced by {term:?} in vain")),
            None => Ok(()),
        });
    }
}
