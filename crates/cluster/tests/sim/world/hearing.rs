//! Candidates tell each other whom they hear; links that are cut for long.
//!
//! ```text
//!   a member dead, the leader's links to others cut     the leader steps down, another one serves
//!   candidates 0 and 1 do not hear each other           2 tells them: nobody is replaced
//!   hosts 1 and 2 do not hear each other, 0 dead        one of both serves for long enough
//!   some nodes are cut off for less than a lease        they come back in an old epoch
//!   everything stands still                             nobody is removed, evicted or replaced
//!   the only candidate stands still                     no client is evicted
//!   more members than the level tolerates are cut off   they return, and no client is evicted
//! ```
//!
//! In worlds with such a fault there is no other one. Clients that reach all members must be served
//! while it lasts. In the end the leader must stay the same, if it can know that it is needed.

use cluster::coordinator::{Coordinator, Event as Input};
use cluster::ids::{MemberId, Ms, Term};

use super::{Event, Packet, World};
use crate::faults::{Fault, LASTING_MS, Lasting, MADE_AGAIN_MS, STANDSTILL_MS};
use crate::ground::{Node, TIMING};
use crate::marks;

/// From here on the leader stays the same.
const SETTLED_MS: Ms = LASTING_MS - 3500;
/// Until then, and all requests are complete.
const SERVED_MS: Ms = LASTING_MS - 500;

impl World {
    /// A candidate that stands by answers the others' questions.
    pub fn report_heard(&mut self, index: usize) {
        let machine = self.ground.candidates[index].machine.as_ref();
        let standby = machine.filter(|machine| self.reports && machine.leads().is_none());
        let Some(heard) = standby.map(|machine| machine.report().heard) else { return };
        for other in (0..self.ground.candidates.len()).filter(|&other| other != index) {
            self.send(Node::Candidate(index), Node::Candidate(other), Packet::Hears(heard));
        }
    }

    /// Such an answer arrives.
    pub fn hears(&mut self, index: usize, heard: Option<(Term, Ms)>) {
        let patience = TIMING.takeover_ms;
        let recent = |heard: Option<(Term, Ms)>| heard.is_some_and(|(_, ago)| ago <= patience);
        let itself = self.ground.candidates[index].machine.as_ref().map(Coordinator::report);
        if recent(heard) && itself.is_some_and(|it| it.term.is_none() && !recent(it.heard)) {
            self.mark(marks::HEARD_THROUGH);
        }
        let (term, ago_ms) = heard.unwrap_or((Term(0), Ms::MAX));
        self.candidate(index, Input::Heard(term, ago_ms));
    }

    pub fn cut_leader(&mut self, until: Ms) {
        let leads = |machine: &Coordinator| machine.leads().is_some();
        let mut nodes = self.ground.candidates.iter();
        let leader = nodes.position(|node| node.machine.as_ref().is_some_and(leads));
        let Some(leader) = leader.map(Node::Candidate) else { return };
        let config = &self.value.config;
        let (members, needed) = (config.slots.len(), config.needed());
        let dead = self.rng.below(members as u64) as usize;
        self.crash(Node::Member(dead));
        // A late message of it would look like a sign of life.
        let member = MemberId(dead as u16);
        self.queue.retain(|_, event| match event {
            Event::Deliver(_, Packet::FromMember(from, _)) => *from != member,
            _ => true,
        });
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

    pub fn cut_hosts(&mut self, until: Ms) {
        let host = |index| [Node::Candidate(index), Node::Member(index), Node::Client(index)];
        for (one, two) in host(1).into_iter().flat_map(|one| host(2).map(|two| (one, two))) {
            self.ground.links.cut.insert((one, two), until);
            self.ground.links.cut.insert((two, one), until);
        }
        self.crash(Node::Candidate(0));
        self.at(until, Event::Start(Node::Candidate(0)));
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
        let mut clients = self.ground.clients.iter().take(if cut { 1 } else { usize::MAX });
        let waits = clients.position(|client| !client.tasks.is_empty());
        self.require(match waits {
            Some(client) => Err(format!("I13: client {client} waits while a fault lasts")),
            None if since != term && !cut => {
                Err(format!("I13: {since:?} is replaced by {term:?} in vain"))
            }
            None => Ok(()),
        });
    }
}
