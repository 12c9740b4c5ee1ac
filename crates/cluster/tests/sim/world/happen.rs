//! Events: ticks, deliveries, completions, faults.

use cluster::client;
use cluster::code;
use cluster::config::{Config, State};
use cluster::coordinator;
use cluster::decisions::{Outcome, Request, Version};
use cluster::ids::MemberId;
use cluster::member;
use cluster::message::{Answer, FromMember, Io, ToClient, Who};
use cluster::record::Mark;

use super::work::is_run;
use super::{Event, Packet, World};
use crate::faults::{CALM_MS, Fault, Lasting};
use crate::ground::{Node, Storing, TIMING, Task};
use crate::marks;
use crate::oracle::cells;
use crate::verify;

impl World {
    /// The node that an event changes.
    pub fn node_of(event: &Event) -> Option<Node> {
        Some(match event {
            Event::Tick(node, _) | Event::Deliver(node, _) => *node,
            Event::Stored(member, ..) | Event::Finished(member, ..) => Node::Member(*member),
            Event::Answer(candidate, ..) => Node::Candidate(*candidate),
            Event::Work(client, _) => Node::Client(*client),
            Event::Ask(..) | Event::Fault(_) | Event::Start(_) => return None,
            Event::Served(_) | Event::Answered(_) | Event::Look => return None,
        })
    }

    /// A paused node gets its events when it goes on.
    fn paused(&mut self, event: &Event) -> bool {
        let Some(node) = World::node_of(event) else { return false };
        let host = self.ground.host(node);
        let (until, deaf_until) = (host.paused_until, host.deaf_until);
        if self.now < deaf_until && matches!(event, Event::Deliver(..)) {
            return true;
        }
        let paused = self.now < until;
        if paused {
            self.at(until, event.clone());
        }
        paused
    }

    pub fn happen(&mut self, event: Event) {
        if self.paused(&event) {
            return;
        }
        match event {
            Event::Tick(node, life) => self.tick(node, life),
            Event::Deliver(node, packet) => self.deliver(node, packet),
            Event::Stored(index, life, generation) => self.stored(index, life, generation),
            Event::Finished(index, life, io) => self.finished(index, life, io),
            Event::Ask(index, life, number, request, lost) => {
                self.ask((index, life, number), request, lost);
            }
            Event::Answer(index, life, number, outcome) => {
                if self.ground.candidates[index].host.life == life {
                    self.candidate(index, coordinator::Event::Store(number, outcome));
                }
            }
            Event::Fault(fault) => self.fault(fault),
            Event::Start(node) => {
                if self.is_dead(node) {
                    self.start(node);
                }
            }
            Event::Work(index, life) => self.work(index, life),
            Event::Served(since) => self.served(since),
            Event::Answered(before) => self.answered(before),
            Event::Look => {}
        }
    }

    pub fn is_dead(&self, node: Node) -> bool {
        match node {
            Node::Candidate(index) => self.ground.candidates[index].machine.is_none(),
            Node::Member(index) => self.ground.members[index].machine.is_none(),
            Node::Client(index) => self.ground.clients[index].machine.is_none(),
        }
    }

    fn tick(&mut self, node: Node, life: u64) {
        let now = self.now;
        let host = self.ground.host(node);
        if host.life != life {
            return;
        }
        let local = host.skew.at(now);
        self.at(now + TIMING.tick_ms, Event::Tick(node, life));
        match node {
            Node::Candidate(index) => {
                let mut out = Vec::new();
                let machine = self.ground.candidates[index].machine.as_mut().expect("it lives");
                machine.tick(local, &mut out);
                self.coordinator_actions(index, out);
                self.report_leader(index);
            }
            Node::Client(index) => {
                let mut out = Vec::new();
                let machine = self.ground.clients[index].machine.as_mut();
                machine.expect("it lives").tick(local, &mut out);
                self.client_actions(index, out);
            }
            Node::Member(_) => {}
        }
    }

    pub fn candidate(&mut self, index: usize, event: coordinator::Event) {
        let local = self.ground.candidates[index].host.skew.at(self.now);
        let node = &mut self.ground.candidates[index];
        let Some(machine) = &mut node.machine else { return };
        let before = (machine.resyncing(), machine.leads());
        let mut out = Vec::new();
        machine.handle(local, event, &mut out);
        let after = (machine.resyncing(), machine.leads());
        let lacks_room = machine.lacks_room();
        if let (Some(region), true) = (before.0, before.0 != after.0 && before.1 == after.1) {
            self.tell(|| format!("candidate {index}: resync of {region:?} ends"));
        }
        if lacks_room {
            self.mark(marks::ROOM_LACKING);
        }
        self.coordinator_actions(index, out);
    }

    pub fn client(&mut self, index: usize, event: client::Event) {
        let local = self.ground.clients[index].host.skew.at(self.now);
        let config = &self.value.config;
        let several = |task: &Task| matches!(task, Task::Write(cells) if is_run(config, cells));
        let runs = self.ground.clients[index].tasks.values().any(several);
        let Some(machine) = &mut self.ground.clients[index].machine else { return };
        let (before, patching) = (machine.epoch(), machine.patching() > 0);
        let mut out = Vec::new();
        machine.handle(local, event, &mut out);
        let changed = before.is_some() && machine.epoch() != before && machine.pending() > 0;
        if changed {
            self.mark(marks::PARKED);
        }
        if changed && patching {
            self.mark(marks::PATCHED_AGAIN);
        }
        if changed && runs {
            self.mark(marks::RUN_AGAIN);
        }
        self.client_actions(index, out);
    }

    fn deliver(&mut self, node: Node, packet: Packet) {
        match (node, packet) {
            (Node::Candidate(index), Packet::FromClient(client, incarnation, message)) => {
                self.candidate(index, coordinator::Event::Client(client, incarnation, message));
            }
            (Node::Candidate(index), Packet::FromMember(member, message)) => {
                if let FromMember::Control(_, _, Answer::LogIs(_, log)) = &message {
                    self.note_logs(log);
                }
                self.note_disk(index, member, &message);
                self.note_leader(index, &message);
                self.candidate(index, coordinator::Event::Member(member, message));
            }
            (Node::Candidate(index), Packet::Beat(term)) => {
                self.candidate(index, coordinator::Event::Beat(term));
            }
            (Node::Candidate(index), Packet::Led) => {
                self.candidate(index, coordinator::Event::Led);
            }
            (Node::Client(index), Packet::FromMember(member, message)) => {
                self.client(index, client::Event::Member(member, message));
            }
            (Node::Client(index), Packet::ToClient(incarnation, term, message)) => {
                if incarnation == self.ground.clients[index].incarnation {
                    let region = match message {
                        ToClient::Grant(region, _) => Some(region),
                        _ => None,
                    };
                    self.client(index, client::Event::Coordinator(term, message));
                    let machine = self.ground.clients[index].machine.as_ref();
                    if let (Some(region), Some(machine)) = (region, machine)
                        && !machine.holds(region)
                    {
                        self.mark(marks::GRANT_RETURNED);
                    }
                }
            }
            (Node::Member(index), Packet::ToMember(peer, message)) => {
                let Some(machine) = &mut self.ground.members[index].machine else { return };
                let mut out = Vec::new();
                machine.handle(member::Event::Message(peer, message.clone()), &mut out);
                self.note_arrival(index, &message, &out);
                self.member_actions(index, out);
            }
            (node, packet) => unreachable!("{node:?} gets {packet:?}"),
        }
    }

    fn note_logs(&mut self, log: &cluster::record::Log) {
        let held = |mark: &Mark| matches!(mark, Mark::Held(..));
        if log.marks.iter().any(held) {
            self.mark(marks::TAKEOVER_BUSY);
        }
        let config = self.value.config.clone();
        if config.in_sync().any(|member| {
            let header = &self.ground.named(&config, member).header;
            header.log.marks != log.marks
        }) {
            self.mark(marks::LOGS_DIFFER);
        }
        let raised = |member: cluster::ids::MemberId| {
            self.ground.named(&config, member).header.epoch >= config.epoch
        };
        if config.epoch.0 > 1 && !config.live().all(raised) {
            self.mark(marks::TAKEOVER_UNDECIDED);
        }
    }

    fn stored(&mut self, index: usize, life: u64, generation: u64) {
        if self.ground.members[index].host.life != life {
            return;
        }
        let node = &mut self.ground.members[index];
        match node.storing.take().expect("something is being written") {
            Storing::Header(slot, bytes) => node.disk.slots[slot] = bytes,
            Storing::Entry(at, bytes) => {
                node.disk.area[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        let mut out = Vec::new();
        let machine = node.machine.as_mut().expect("it lives");
        let old = node.disk.header.clone();
        machine.handle(member::Event::Stored(generation), &mut out);
        node.disk.header = machine.durable().clone();
        self.tell(|| format!("member {index} has stored generation {generation}"));
        let config = self.value.config.clone();
        let verdict = self.ground.stored(index, &old);
        self.require(verdict);
        self.note_marks(index, &old, &config);
        let verdict = self.ground.clean_regions_match(&config);
        self.require(verdict);
        self.member_actions(index, out);
    }

    /// Regions that this header changes from unsync to clean, and other news of the log.
    fn note_marks(&mut self, index: usize, old: &member::Header, config: &Config) {
        let new = self.ground.members[index].disk.header.log.marks.clone();
        if new == old.log.marks {
            return;
        }
        for mark in old.log.marks.difference(&new) {
            if let Mark::Unsync(region) = *mark {
                self.mark(marks::RESYNCED);
                if config.slots.iter().any(|slot| slot.state == State::Missing) {
                    self.mark(marks::RESYNC_DEGRADED);
                }
                let width = code::width(&config.shape, config.slots.len()) as u64;
                let stripes = config.shape.stripes(region);
                self.oracle.resynced(cells(stripes.start * width..stripes.end * width));
            }
        }
        let held = |mark: &Mark| match *mark {
            Mark::Held(region, ..) => Some(region),
            _ => None,
        };
        let regions: Vec<_> = new.iter().filter_map(held).collect();
        if regions.windows(2).any(|pair| pair[0] == pair[1]) {
            self.mark(marks::SECOND_HOLDER);
        }
    }

    fn finished(&mut self, index: usize, life: u64, io: member::IoId) {
        if self.ground.members[index].host.life != life {
            return;
        }
        let Some((stamp, request, bytes)) = self.ground.members[index].disk.medium.end(io) else {
            return;
        };
        let config = self.value.config.clone();
        if let Io::Write(first, bytes) = request {
            for stripe in first..first + bytes.len() as u64 / 8 {
                let verdict = self.ground.applied(&config, index, &stamp, stripe);
                self.require(verdict);
                let live = verify::counts(&config, index, &stamp);
                if let (Who::Client(client, _), true) = (stamp.who, live) {
                    let verdict = self.ground.alone(&config, client, stripe);
                    self.require(verdict);
                }
            }
            let verdict = self.ground.clean_regions_match(&config);
            self.require(verdict);
        }
        let mut out = Vec::new();
        let machine = self.ground.members[index].machine.as_mut().expect("it lives");
        machine.handle(member::Event::Finished(io, bytes), &mut out);
        self.member_actions(index, out);
    }

    fn ask(&mut self, (index, life, number): (usize, u64, u64), request: Request, lost: bool) {
        let outcome = match request {
            Request::Read => Outcome::Done(self.version, self.stored_value().clone()),
            Request::Cas(version, value) if version == self.version => {
                self.decide(value);
                if lost {
                    self.mark(marks::STORE_LOST);
                }
                Outcome::Done(self.version, self.stored_value().clone())
            }
            Request::Cas(..) => {
                self.mark(marks::STORE_CONFLICT);
                Outcome::Conflict(self.version, self.stored_value().clone())
            }
        };
        if !lost {
            let delay = self.rng.within(1, 8);
            self.at(self.now + delay, Event::Answer(index, life, number, outcome));
        }
    }

    fn decide(&mut self, value: cluster::decisions::Value) {
        self.version = Version(self.version.0 + 1);
        if let Some(restored) = &mut self.restored {
            let same = restored.config == value.config;
            *restored = value;
            let story = || String::from("I18: a decision about a membership of the past");
            return self.require(if same { Ok(()) } else { Err(story()) });
        }
        let old = std::mem::replace(&mut self.value, value);
        self.past.push(old.clone());
        let old = old.config;
        let new = self.value.config.clone();
        let term = self.value.term;
        self.tell(|| format!("decided: {term:?} {new:?}"));
        self.require(verify::decided(&old, &new));
        self.require(self.ground.replaced(&old, &new));
        if old == new {
            return;
        }
        // Not every node gets to hear of the change.
        let calm = self.plan.is_some() || self.lasting.is_some() || self.now >= CALM_MS - 500;
        if !calm && self.rng.percent(15) {
            let split = crate::faults::split(&mut self.rng, &self.ground.nodes());
            self.fault(split);
        }
        let raised = |member: cluster::ids::MemberId| {
            self.ground.named(&old, member).header.epoch >= old.epoch
        };
        if !old.live().all(raised) {
            self.mark(marks::TWO_CHANGES);
        }
        let resyncs = self.ground.candidates.iter().filter_map(|node| node.machine.as_ref());
        if resyncs.filter(|machine| machine.resyncing().is_some()).count() > 0 {
            self.mark(marks::RESYNC_ABANDONED);
        }
        for (index, (before, after)) in old.slots.iter().zip(&new.slots).enumerate() {
            if before.boot.disk() != after.boot.disk() {
                self.note_replaced(index, before.boot.disk());
            }
            let restarted = before.boot != after.boot;
            let mark = match (before.state, after.state) {
                (State::InSync, State::Missing) => {
                    if self.lasting == Some(Lasting::Standstill) {
                        let story = format!("I13: member {index} is removed in vain");
                        self.require(Err(story));
                    }
                    marks::REMOVED
                }
                (State::InSync, State::Rebuilding) => marks::RESTARTED,
                (State::InSync, State::InSync) if restarted => marks::MASS_RESTART,
                (State::Missing, State::Rebuilding) => marks::RETURNED,
                (State::Rebuilding, State::InSync) => {
                    if after.boot.disk().0 != 0 {
                        self.mark(marks::REPLACED_REBUILT);
                    }
                    marks::REBUILT
                }
                (State::Rebuilding, State::Missing) => marks::REBUILDING_AGAIN,
                (State::Rebuilding, State::Rebuilding) if restarted => marks::REBUILDING_AGAIN,
                _ => continue,
            };
            self.mark(mark);
            if before.state == State::InSync {
                self.oracle.member_lost(new.epoch, mark == marks::MASS_RESTART);
            }
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.tell(|| format!("fault: {fault:?}"));
        let now = self.now;
        match fault {
            Fault::Crash(node, time) => {
                if !self.is_dead(node) {
                    self.crash(node);
                    self.at(now + time, Event::Start(node));
                }
            }
            Fault::PowerCut(time) => {
                for index in 0..self.ground.members.len() {
                    if !self.is_dead(Node::Member(index)) {
                        self.crash(Node::Member(index));
                        let extra = self.rng.below(300);
                        self.at(now + time + extra, Event::Start(Node::Member(index)));
                    }
                }
            }
            Fault::Pause(node, time) => self.ground.host(node).paused_until = now + time,
            Fault::Connect(client, member) => {
                self.client(client, client::Event::Connected(MemberId(member as u16)));
            }
            Fault::Suspend(member, time) => self.suspend(member, time),
            Fault::Standstill(time) => {
                self.mark(marks::STOOD_STILL);
                for node in self.ground.nodes() {
                    let until = now + time + self.rng.below(2 * TIMING.tick_ms);
                    self.ground.host(node).paused_until = until;
                }
            }
            Fault::Cut(from, to, time) => {
                self.ground.links.cut.insert((from, to), now + time);
            }
            Fault::Isolate(node, time) => {
                let both = self.rng.below(3);
                for other in self.ground.nodes() {
                    if both != 0 {
                        self.ground.links.cut.insert((node, other), now + time);
                    }
                    if both != 1 {
                        self.ground.links.cut.insert((other, node), now + time);
                    }
                }
            }
            Fault::Split(some, time) => {
                self.mark(marks::SPLIT);
                for other in self.ground.nodes() {
                    for &node in some.iter().filter(|_| !some.contains(&other)) {
                        self.ground.links.cut.insert((node, other), now + time);
                        self.ground.links.cut.insert((other, node), now + time);
                    }
                }
            }
            Fault::Bad(time) => self.ground.links.bad = ([20, 15, 25], now + time),
            Fault::Slow(index, time) => self.ground.members[index].slow = (300, now + time),
            Fault::Store(time) => self.store_bad_until = now + time,
            Fault::Restore(time) => self.restore(time),
            Fault::Repair => self.repair(),
            Fault::Replace(index, time) => self.replace(index, time),
            Fault::OldDisk(index, time) => self.old_disk(index, time),
            Fault::Disk(index, until) => self.look_at_disk(index, until),
            Fault::CrashLeader => self.crash_leader(),
            Fault::CutLeader(until) => self.cut_leader(until),
            Fault::CutHosts(until) => self.cut_hosts((1, 2), Node::Candidate(0), until),
            Fault::LoseStore(until) => self.lose_store(until),
            Fault::LastHost(until) => self.cut_hosts((0, 1), Node::Member(2), until),
        }
    }
}
