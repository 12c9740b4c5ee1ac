//! The state of one reign; dispatch of messages and timers.
//!
//! After every event `settle` moves each part on as far as it goes. The parts do not wait for each
//! other with callbacks: they look at the state that the event left.

use std::collections::{BTreeMap, BTreeSet};

use super::Action;
use super::blank::{Other, Prepared};
use super::commit::Commit;
use super::eviction::Eviction;
use super::grants::Entry;
use super::resync::Job;
use crate::broken::{Broken, broken};
use crate::config::Config;
use crate::decisions::Version;
use crate::ids::{BootId, ClientId, Epoch, Incarnation, MemberId, Ms, OpId, Region, Term};
use crate::message::{Answer, FromClient, FromMember, Order, Refusal, ToClient, ToMember};
use crate::record::{self, Log, Mark, Position};
use crate::timing::Timing;

/// A member's disk, as far as this reign has heard of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch {
    /// When it was heard last before this reign, if that counts; else its begin.
    pub(super) before_ms: Ms,
    pub(super) heard_ms: Option<Ms>,
    /// It was never late since then.
    pub(super) since_ms: Ms,
    pub(super) boot: BootId,
    /// The epoch that it adopted for this reign, with all fences.
    pub(super) raised: Epoch,
    pub(super) at: Position,
    /// Another disk in its place.
    pub(super) other: Option<Other>,
}

/// A client's complaint that a member does not answer a request.
#[derive(Clone, Copy)]
pub(super) struct Complaint {
    op: OpId,
    /// When it was first heard.
    since_ms: Ms,
}

/// A client that is joined.
pub(super) struct Session {
    pub(super) incarnation: Incarnation,
    pub(super) heard_ms: Ms,
    pub(super) epoch: Epoch,
    /// The last one about each member.
    pub(super) complaints: BTreeMap<MemberId, Complaint>,
}

pub(super) struct Leader {
    pub(super) term: Term,
    pub(super) timing: Timing,
    pub(super) now: Ms,
    pub(super) begun_ms: Ms,
    /// When it lacked nothing last to serve the array, or members.
    pub(super) well_ms: Ms,
    /// When it had read the log: clients have their lease from then on.
    pub(super) read_ms: Ms,
    pub(super) version: Version,
    pub(super) config: Config,
    /// The last proposal without a known outcome; only a mutant looks at it.
    pub(super) proposed: Option<Config>,
    /// A replacement of unknown outcome may still take effect.
    pub(super) unsettled: bool,
    /// The last epoch that every live member has adopted.
    pub(super) raised: Option<Epoch>,
    /// The highest epoch that a member reported.
    pub(super) newest: Epoch,
    /// A higher term that was heard of.
    pub(super) deposed: Term,
    pub(super) watches: Vec<Watch>,
    /// The logs read so far, until the takeover knows enough.
    pub(super) reading: Option<BTreeMap<MemberId, Log>>,
    /// Holders in the log that have not declared their grants to this reign.
    pub(super) inherited: BTreeSet<(ClientId, Incarnation)>,
    /// Marks of holders that declared that they do not hold the region.
    pub(super) unclaimed: Vec<Mark>,
    pub(super) commit: Commit,
    /// Most marks of its log that are counted (`room`).
    pub(super) most_marks: usize,
    pub(super) regions: BTreeMap<Region, Entry>,
    /// Those with waiters.
    pub(super) waited: BTreeSet<Region>,
    /// Requests and grants so far: their order.
    pub(super) turns: u64,
    pub(super) sessions: BTreeMap<ClientId, Session>,
    pub(super) evictions: BTreeMap<ClientId, Eviction>,
    pub(super) job: Option<Job>,
    /// Regions whose resync is complete but not yet durable in the log.
    pub(super) settling: BTreeSet<Region>,
    /// Regions whose possible garbage the operator accepts; forgotten by the next reign, and when
    /// another member is lost.
    pub(super) accepted: BTreeSet<Region>,
    /// Slots that blank disks may take soon.
    pub(super) prepared: BTreeMap<MemberId, Prepared>,
    pub(super) next_op: OpId,
}

impl Leader {
    pub(super) fn new(
        term: Term,
        timing: Timing,
        now: Ms,
        version: Version,
        config: Config,
        most_marks: usize,
    ) -> Leader {
        Leader {
            term,
            timing,
            now,
            begun_ms: now,
            well_ms: now,
            read_ms: now,
            version,
            watches: vec![Watch { before_ms: now, ..Watch::default() }; config.slots.len()],
            config,
            proposed: None,
            unsettled: false,
            raised: None,
            newest: Epoch(0),
            deposed: Term(0),
            reading: Some(BTreeMap::new()),
            inherited: BTreeSet::new(),
            unclaimed: Vec::new(),
            commit: Commit::new(term, BTreeSet::new(), most_marks),
            most_marks,
            regions: BTreeMap::new(),
            waited: BTreeSet::new(),
            turns: 0,
            sessions: BTreeMap::new(),
            evictions: BTreeMap::new(),
            job: None,
            settling: BTreeSet::new(),
            accepted: BTreeSet::new(),
            prepared: BTreeMap::new(),
            // Numbers of different reigns differ.
            next_op: OpId(term.0 << 32),
        }
    }

    /// When each member was heard last before this reign. It has a third of the usual time for an
    /// answer to this one.
    pub(super) fn remember(&mut self, last_heard: &[Ms]) {
        let least_ms = self.begun_ms.saturating_sub(self.timing.member_ms * 2 / 3);
        for (watch, &before_ms) in self.watches.iter_mut().zip(last_heard) {
            watch.before_ms = before_ms.max(least_ms);
        }
    }

    pub(super) fn watch(&mut self, member: MemberId) -> Option<&mut Watch> {
        self.watches.get_mut(usize::from(member.0))
    }

    pub(super) fn say(
        &self,
        (client, incarnation): (ClientId, Incarnation),
        message: ToClient,
        out: &mut Vec<Action>,
    ) {
        out.push(Action::Client(client, incarnation, self.term, message));
    }

    pub(super) fn order(&self, member: MemberId, order: Order, out: &mut Vec<Action>) {
        out.push(Action::Member(member, ToMember::Control(self.term, order)));
    }

    /// True while clients may do I/O in the current epoch.
    pub(super) fn is_active(&self) -> bool {
        self.raised == Some(self.config.epoch) && self.config.serves() && self.later().is_none()
    }

    pub(super) fn member(
        &mut self,
        now: Ms,
        member: MemberId,
        message: FromMember,
        out: &mut Vec<Action>,
    ) {
        self.now = now;
        match message {
            FromMember::Done(op, bytes) => self.resync_answer(op, bytes),
            FromMember::Refused(_, Refusal::Term(term)) => self.deposed = self.deposed.max(term),
            FromMember::Refused(..) => {}
            FromMember::Control(_, _, Answer::Deposed(term, _)) => {
                self.deposed = self.deposed.max(term);
            }
            FromMember::Control(term, boot, answer) if term == self.term => {
                self.control(member, boot, answer, out);
            }
            FromMember::Control(..) => {}
        }
        self.settle(out);
    }

    fn control(&mut self, member: MemberId, boot: BootId, answer: Answer, out: &mut Vec<Action>) {
        let (now, patience) = (self.now, self.timing.member_ms);
        let Some(slot) = self.config.slots.get(usize::from(member.0)) else { return };
        if !boot.is_of(slot.boot.disk()) {
            return self.other_answers(member, boot, &answer);
        }
        let Some(watch) = self.watch(member) else { return };
        // A late answer of an earlier boot.
        if boot < watch.boot {
            return;
        }
        if boot > watch.boot {
            *watch = Watch { boot, before_ms: watch.before_ms, ..Watch::default() };
        }
        if watch.heard_ms.is_none_or(|heard_ms| now.saturating_sub(heard_ms) > patience) {
            watch.since_ms = now;
        }
        watch.heard_ms = Some(now);
        match answer {
            Answer::Alive(epoch) => self.newest = self.newest.max(epoch),
            Answer::Raised(epoch) => {
                watch.raised = watch.raised.max(epoch);
                self.newest = self.newest.max(epoch);
            }
            Answer::Appended(at) => {
                watch.at = watch.at.max(at);
                self.feed(member, out);
            }
            Answer::LogIs(epoch, log) => self.read(member, epoch, log),
            Answer::Fenced(client, least) => self.fenced(member, client, least),
            Answer::Deposed(..) => {}
        }
    }

    fn read(&mut self, member: MemberId, epoch: Epoch, log: Log) {
        self.newest = self.newest.max(epoch);
        let Some(logs) = &mut self.reading else { return };
        // Nothing is written before the logs are read. So another leader wrote this one under our
        // term, before an old backup of the register was restored.
        if log.at.term >= self.term && !broken(Broken::TermReused) {
            self.deposed = Term(log.at.term.0 + 1);
        }
        logs.insert(member, log);
    }

    pub(super) fn client(
        &mut self,
        now: Ms,
        client: ClientId,
        incarnation: Incarnation,
        message: FromClient,
        out: &mut Vec<Action>,
    ) {
        self.now = now;
        if self.reading.is_some() {
            return;
        }
        let evicted = record::evicted(&self.commit.marks, client);
        let logged = evicted.is_some_and(|evicted| incarnation <= evicted);
        if logged && !self.evictions.contains_key(&client) {
            let least = evicted.unwrap_or_default().next();
            self.say((client, incarnation), ToClient::Evicted(least), out);
            return;
        }
        if logged {
            return;
        }
        match message {
            FromClient::Join => self.join(client, incarnation, out),
            FromClient::Renew { sent_ms, term, held, epoch } => {
                self.renew(client, incarnation, epoch, out);
                if term == self.term {
                    self.declare(client, incarnation, &held);
                    self.remind((client, incarnation), &held, out);
                }
                self.say((client, incarnation), ToClient::Renewed(sent_ms), out);
            }
            FromClient::Want(region, grant) => self.want(client, incarnation, region, grant, out),
            FromClient::Release(region, grant) => {
                self.released(client, incarnation, (region, grant), out);
            }
            FromClient::Unreachable(member, op) => {
                self.unreachable((client, incarnation), member, op);
            }
        }
        self.settle(out);
    }

    fn renew(
        &mut self,
        client: ClientId,
        incarnation: Incarnation,
        epoch: Epoch,
        out: &mut Vec<Action>,
    ) {
        let heard_ms = self.now;
        match self.sessions.get_mut(&client) {
            // It must join first.
            Some(session) if session.incarnation != incarnation => return,
            Some(session) => (session.heard_ms, session.epoch) = (heard_ms, epoch),
            None => {
                let complaints = BTreeMap::new();
                let session = Session { incarnation, heard_ms, epoch, complaints };
                self.sessions.insert(client, session);
            }
        }
        if epoch < self.config.epoch && self.raised == Some(self.config.epoch) {
            self.say((client, incarnation), ToClient::Config(self.config.clone()), out);
        }
    }

    /// Evicts a client that does not reach a member, once the member has answered for as long as it
    /// may be silent, and the client has complained of the same request all the time. Either alone
    /// does not tell: sockets of a host that stood still have old answers and old complaints, and a
    /// member that has just returned has not answered anybody yet.
    fn unreachable(&mut self, host: (ClientId, Incarnation), member: MemberId, op: OpId) {
        let (now, patience) = (self.now, self.timing.member_ms);
        let (active, epoch) = (self.is_active(), self.config.epoch);
        let Some(Watch { heard_ms: Some(heard_ms), since_ms, .. }) = self.watch(member).copied()
        else {
            return;
        };
        let session = self.sessions.get_mut(&host.0);
        let current = |it: &&mut Session| active && (it.incarnation, it.epoch) == (host.1, epoch);
        let Some(session) = session.filter(current) else { return };
        let complaint = session.complaints.entry(member);
        let complaint = complaint.or_insert(Complaint { op, since_ms: now });
        if complaint.op != op {
            *complaint = Complaint { op, since_ms: now };
        }
        let both_ms = complaint.since_ms.max(since_ms) + patience;
        let at_once =
            broken(Broken::ComplaintCountsAtOnce) && now.saturating_sub(heard_ms) < patience;
        if heard_ms >= both_ms || at_once {
            self.evict(host.0, host.1, None);
        }
    }

    pub(super) fn tick(&mut self, now: Ms, out: &mut Vec<Action>) {
        self.now = now;
        let serves = self.can_serve() && self.is_reached();
        for member in self.config.members() {
            self.order(member, Order::Probe(serves), out);
        }
        if self.reading.is_some() {
            for member in self.config.live() {
                self.order(member, Order::ReadLog, out);
            }
        } else {
            self.raise(out);
            let live: Vec<MemberId> = self.config.live().collect();
            live.into_iter().for_each(|member| self.feed(member, out));
            self.fence_again(out);
            self.watch_clients();
            self.request_drains(out);
            self.resync_again(out);
            self.tidy();
        }
        self.settle(out);
    }

    /// Evicts clients whose lease ended, and holders that do not declare themselves.
    fn watch_clients(&mut self) {
        let (now, lease) = (self.now, self.timing.lease_ms);
        let late = |since: Ms| now.saturating_sub(since) > lease;
        let silent: Vec<(ClientId, Incarnation)> = self
            .sessions
            .iter()
            .filter(|(_, session)| late(session.heard_ms))
            .map(|(&client, session)| (client, session.incarnation))
            .collect();
        for (client, incarnation) in silent {
            self.sessions.remove(&client);
            let holds = |mark: &Mark| matches!(*mark, Mark::Held(_, id, _) if id == client);
            if self.commit.marks.iter().any(holds) {
                self.evict(client, incarnation, None);
            }
        }
        if late(self.read_ms) {
            for (client, incarnation) in self.inherited.clone() {
                self.evict(client, incarnation, None);
            }
        }
    }

    /// Moves every part on.
    fn settle(&mut self, out: &mut Vec<Action>) {
        if self.reading.is_some() {
            self.finish_reading();
        }
        if self.reading.is_some() {
            return;
        }
        self.activate(out);
        self.finish_batch(out);
        self.advance_evictions(out);
        // Before anything is granted: a new grant may set one of these marks again.
        self.clear_unclaimed();
        self.advance_job(out);
        self.admit(out);
        self.prepare();
        self.next_batch(out);
    }
}
