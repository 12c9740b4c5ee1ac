//! The nodes' actions: messages onto links, requests to media and store.

use cluster::client;
use cluster::coordinator;
use cluster::ids::{ClientId, Incarnation, MemberId, Ms, Term};
use cluster::member::{self, Header, Peer};
use cluster::message::{Answer, FromClient, FromMember, Io, Order, Refusal, ToClient, ToMember};
use cluster::wire::{self, Frame};

use super::{Event, Packet, World};
use crate::ground::{Node, Storing, Task};
use crate::marks;
use crate::oracle::CELLS;

/// True for a probe of a candidate that does not lead, and for its answer.
fn is_probe(packet: &Packet) -> bool {
    match packet {
        Packet::ToMember(_, ToMember::Control(term, _))
        | Packet::FromMember(_, FromMember::Control(term, ..)) => *term == Term(0),
        _ => false,
    }
}

impl World {
    /// Puts a message on a link: lost, late, twice or as it should be.
    pub fn send(&mut self, from: Node, to: Node, packet: Packet) {
        let now = self.now;
        if self.ground.links.cut.get(&(from, to)).is_some_and(|&until| now < until) {
            return;
        }
        let (bad, until) = self.ground.links.bad;
        let [lost, twice, late] = if now < until { bad } else { self.ground.links.usual };
        let rng = if is_probe(&packet) { &mut self.listening } else { &mut self.rng };
        if rng.percent(lost) {
            return;
        }
        let copies = if rng.percent(twice) { 2 } else { 1 };
        let mut delay = || if rng.percent(late) { rng.below(600) } else { rng.within(1, 6) };
        let delays: Vec<Ms> = (0..copies).map(|_| delay()).collect();
        for delay in delays {
            self.at(now + delay, Event::Deliver(to, packet.clone()));
        }
    }

    /// Now and then a message takes its way through bytes.
    fn through_bytes<T: Frame + PartialEq + std::fmt::Debug>(&mut self, message: &T) {
        if self.sequence.is_multiple_of(32) {
            let frame = wire::encode(message);
            let (back, length) = wire::decode::<T>(&frame).expect("a frame that was encoded");
            assert!(back == *message && length == frame.len(), "{message:?} comes back {back:?}");
        }
    }

    pub fn coordinator_actions(&mut self, index: usize, actions: Vec<coordinator::Action>) {
        let me = Node::Candidate(index);
        for action in actions {
            match action {
                coordinator::Action::Client(client, incarnation, term, message) => {
                    self.through_bytes(&message);
                    self.note_answer(client, incarnation, &message);
                    let to = Node::Client(client.0 as usize);
                    self.send(me, to, Packet::ToClient(incarnation, term, message));
                }
                coordinator::Action::Member(member, message) => {
                    self.through_bytes(&message);
                    let id = cluster::ids::CandidateId(index as u16);
                    let packet = Packet::ToMember(Peer::Candidate(id), message);
                    self.send(me, Node::Member(usize::from(member.0)), packet);
                }
                coordinator::Action::Store(number, request) => {
                    self.tell(|| format!("{me:?} asks the store {number}: {request:?}"));
                    let lost = |(candidate, until)| candidate == index && self.now < until;
                    if self.store_lost.is_some_and(lost) {
                        continue;
                    }
                    let bad = self.now < self.store_bad_until && self.rng.percent(70);
                    let life = self.ground.host(me).life;
                    let delay = if bad { self.rng.below(900) } else { self.rng.within(1, 8) };
                    if bad && self.rng.percent(40) {
                        self.mark(marks::STORE_DROPPED);
                    } else {
                        let event = Event::Ask(index, life, number, request, bad);
                        self.at(self.now + delay, event);
                    }
                }
                coordinator::Action::Beat(term) => {
                    for other in (0..self.ground.candidates.len()).filter(|&other| other != index) {
                        self.send(me, Node::Candidate(other), Packet::Beat(term));
                    }
                }
                coordinator::Action::Evicted(client, upto) => {
                    self.tell(|| format!("{me:?}: {client:?} is fenced up to {upto:?}"));
                    let node = &self.ground.clients[client.0 as usize];
                    if node.incarnation <= upto && node.machine.is_some() {
                        if self.spares_clients() {
                            self.require(Err(format!("I13: {client:?} is evicted in vain")));
                        }
                        self.mark(marks::EVICTED_ALIVE);
                    } else if upto.0 > 0 {
                        self.mark(marks::EVICTED_DEAD);
                    }
                    if self.value.config.in_sync().count() < self.value.config.slots.len() {
                        self.mark(marks::EVICTED_DEGRADED);
                    }
                    self.oracle.evicted(client, upto);
                }
            }
        }
        self.compare_leaders(index);
    }

    fn note_answer(&mut self, client: ClientId, incarnation: Incarnation, message: &ToClient) {
        match message {
            ToClient::Drain(..) => self.mark(marks::DRAINED),
            ToClient::Grant(region, _) => {
                self.note_grant(client, incarnation);
                let region = *region;
                self.tell(|| format!("{client:?} gets {region:?}"));
                let exclusive = self.value.config.shape.mode == cluster::config::Mode::Exclusive;
                let last = self.holders.insert(region, client);
                if exclusive && last.is_some_and(|last| last != client) {
                    self.mark(marks::HANDED_OVER);
                }
            }
            _ => {}
        }
    }

    fn compare_leaders(&mut self, index: usize) {
        let leads = |node: &crate::ground::CandidateNode| {
            node.machine.as_ref().and_then(coordinator::Coordinator::leads)
        };
        let count = self.ground.candidates.iter().filter(|node| leads(node).is_some()).count();
        if count > 1 {
            self.mark(marks::TWO_LEADERS);
        }
        if let Some(term) = leads(&self.ground.candidates[index])
            && term.0 > 1
        {
            self.mark(marks::TAKEOVER);
        }
    }

    pub fn client_actions(&mut self, index: usize, actions: Vec<client::Action>) {
        let me = Node::Client(index);
        let id = ClientId(index as u32);
        for action in actions {
            match action {
                client::Action::Coordinators(message) => {
                    self.through_bytes(&message);
                    match &message {
                        FromClient::Release(..) | FromClient::Want(..) => {
                            self.tell(|| format!("{me:?}: {message:?}"));
                        }
                        _ => {}
                    }
                    let incarnation = self.ground.clients[index].incarnation;
                    for candidate in 0..self.ground.candidates.len() {
                        let packet = Packet::FromClient(id, incarnation, message.clone());
                        self.send(me, Node::Candidate(candidate), packet);
                    }
                }
                client::Action::Member(member, message) => {
                    self.through_bytes(&message);
                    self.note_sent(index, &message);
                    let packet = Packet::ToMember(Peer::Client(id), message);
                    self.send(me, Node::Member(usize::from(member.0)), packet);
                }
                client::Action::Done(request, result) => self.done(index, request, result),
            }
        }
        let evicted = |client: &client::Client| client.is_evicted();
        if self.ground.clients[index].machine.as_ref().is_some_and(evicted) {
            // The host discards its caches and starts anew.
            self.crash(me);
            let delay = self.rng.within(1, 100);
            self.at(self.now + delay, Event::Start(me));
        }
    }

    fn note_sent(&mut self, index: usize, message: &ToMember) {
        let ToMember::Data(stamp, Io::Write(stripe, _)) = message else { return };
        let config = &self.ground.config;
        let width = cluster::code::width(&config.shape, config.slots.len());
        let partial = |task: &Task| match task {
            Task::Write(cells) => {
                let block = cells.start / CELLS;
                (block / width) as u64 == *stripe && cells.len().div_ceil(CELLS) < width
            }
            _ => false,
        };
        if self.ground.clients[index].tasks.values().any(partial)
            && self.sent.insert((index, *stripe), stamp.epoch).is_some_and(|it| it < stamp.epoch)
        {
            self.mark(marks::SENT_AGAIN);
        }
    }

    pub fn member_actions(&mut self, index: usize, actions: Vec<member::Action>) {
        let me = Node::Member(index);
        let life = self.ground.host(me).life;
        for action in actions {
            match action {
                member::Action::Store { slot, generation, bytes } => {
                    let node = &self.ground.members[index];
                    let [one, other] = &node.disk.slots;
                    if node.disk.header.generation > Header::newest([one, other]).1.generation {
                        self.mark(marks::CHECKPOINT);
                    }
                    self.begin_storing(index, generation, Storing::Header(slot, bytes));
                }
                member::Action::Append { at, generation, bytes } => {
                    self.begin_storing(index, generation, Storing::Entry(at, bytes));
                }
                member::Action::Execute(io, stamp, request) => {
                    if let Io::Write(block, _) = &request {
                        self.tell(|| format!("{me:?} writes block {block} for {stamp:?}"));
                    }
                    let delay = self.rng.below(5) + self.slowness(index);
                    self.ground.members[index].disk.medium.begin(io, stamp, request);
                    self.at(self.now + delay, Event::Finished(index, life, io));
                }
                member::Action::Send(peer, message) => {
                    self.through_bytes(&message);
                    self.note_promise(index, &message);
                    let to = match peer {
                        Peer::Client(client) => Node::Client(client.0 as usize),
                        Peer::Candidate(candidate) => Node::Candidate(usize::from(candidate.0)),
                    };
                    let member = MemberId(index as u16);
                    self.send(me, to, Packet::FromMember(member, message));
                }
            }
        }
    }

    fn begin_storing(&mut self, index: usize, generation: u64, storing: Storing) {
        let node = &mut self.ground.members[index];
        assert!(node.storing.is_none(), "one write at a time");
        node.storing = Some(storing);
        let (life, delay) = (node.host.life, self.rng.within(1, 6) + self.slowness(index));
        self.at(self.now + delay, Event::Stored(index, life, generation));
    }

    /// Extra time of one request to the medium.
    fn slowness(&mut self, index: usize) -> Ms {
        let (extra, until) = self.ground.members[index].slow;
        if self.now < until { self.rng.below(extra) } else { 0 }
    }

    /// What an answer promises; what a refusal shows.
    fn note_promise(&mut self, index: usize, message: &FromMember) {
        let promise = &mut self.ground.members[index].disk.promise;
        match message {
            FromMember::Control(term, _, answer) => {
                if !matches!(answer, Answer::Deposed(..) | Answer::Alive(_)) {
                    promise.term = promise.term.max(*term);
                }
                match answer {
                    Answer::Raised(epoch) => promise.epoch = promise.epoch.max(*epoch),
                    Answer::Fenced(client, least) => {
                        let entry = promise.least.entry(*client).or_default();
                        *entry = (*entry).max(*least);
                    }
                    Answer::Deposed(..) if *term > Term(0) => self.mark(marks::DEPOSED),
                    _ => {}
                }
            }
            FromMember::Refused(_, refusal) => {
                let mark = match refusal {
                    Refusal::Boot(_) => marks::OLD_BOOT,
                    Refusal::Epoch(_) => marks::OLD_EPOCH,
                    Refusal::Fenced => marks::FENCED,
                    Refusal::Term(_) => marks::DEPOSED,
                };
                self.mark(mark);
            }
            FromMember::Done(..) => {}
        }
    }

    /// Marks that depend on what arrives at a member.
    pub fn note_arrival(&mut self, index: usize, message: &ToMember, actions: &[member::Action]) {
        let silent = actions.is_empty();
        match message {
            ToMember::Data(_, Io::Write(..)) if silent => self.mark(marks::COPY_DROPPED),
            ToMember::Control(_, Order::Raise(..) | Order::Fence(..))
                if silent && self.ground.members[index].storing.is_none() =>
            {
                self.mark(marks::DRAIN_WAITED);
            }
            _ => {}
        }
    }
}
