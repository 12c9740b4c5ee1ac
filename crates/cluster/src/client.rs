//! A client: turns reads, writes and flushes of blocks into requests to the members.
//!
//! ```text
//!   write ──▶ grant held? ──▶ all live members ──▶ acknowledged ──▶ flush ──▶ idle ──▶ released
//!               │ no: Want        │ new epoch
//!               ▼                 ▼
//!             parked            parked, then sent again: the same bytes, as a new request
//!
//!   patch ──▶ grant held? ──▶ the block is read ──▶ a write of the whole block
//! ```
//!
//! `requests` has the stages of a request, `grants` those of a grant, `reads` what is asked of the
//! members.
//!
//! A write is acknowledged when every live member of *one* epoch has it. So a new epoch parks what
//! is not acknowledged and sends it again whole: the same bytes, whatever members hold by now. Only
//! a patch may read its block again first, if members have lost writes (`requests`).
//!
//! Nobody else may wait long for a client that does not reach a member. So it checks all of them
//! before it wants a grant, and again while it waits (`grants`). Their silence counts across
//! epochs. It complains of a member that stays silent, and the coordinator evicts it.
//!
//! A patch replaces a part of a block. It reads the block under the grant and the lock of the
//! stripe, and goes on as a write of the whole block under the same. So no host overwrites a part
//! that another one has written meanwhile.
//!
//! Acknowledged writes that are not flushed are never sent again: another client may have written
//! the block since. If a member that stays in sync restarts, they may be lost in part. Then the
//! next flush fails with [`Failure::Lost`].
//!
//! Invariants: no write is issued in a region without a grant. When a flush ends, every write that
//! was acknowledged before it is durable, on the boots of its epoch. Once evicted, nothing more is
//! answered.

mod grants;
mod reads;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use crate::broken::{Broken, broken};
use crate::config::{Config, State};
use crate::ids::{
    ClientId, DiskId, Epoch, Incarnation, MemberId, Ms, OpId, Region, RequestId, Term,
};
use crate::message::{FromClient, FromMember, Refusal, ToClient, ToMember};
use crate::timing::{RunClock, Timing};
use grants::Hold;
use requests::{For, Op, Request, Stage, locks};

/// A request of the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Read so many blocks of one region, from this one on.
    Read(u64, u64),
    /// Write blocks from this one on: some of one stripe, or whole stripes of one region.
    Write(u64, Vec<u8>),
    /// Replace bytes of a block, from this byte on; the rest of the block stays.
    Patch(u64, usize, Vec<u8>),
    /// Make every acknowledged write durable.
    Flush,
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The client was evicted: discard all caches, then start a new incarnation.
    Evicted,
    /// Too many members restarted at once: acknowledged writes that were not flushed may be lost.
    Lost,
    /// Parity of the region may be wrong: a client died that was writing it, while a member that
    /// holds data was not in sync. Nothing was written. Blocks on members in sync can be read.
    Inconsistent,
}

/// An input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request.
    Request(RequestId, Work),
    /// A message of a coordinator.
    Coordinator(Term, ToClient),
    /// A message of a member.
    Member(MemberId, FromMember),
    /// A connection to this member was made: what was sent before may be lost.
    Connected(MemberId),
}

/// An output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send to all candidates: only the coordinator answers.
    Coordinators(FromClient),
    /// Send to a member.
    Member(MemberId, ToMember),
    /// The request is complete; bytes of a read.
    Done(RequestId, Result<Vec<u8>, Failure>),
}

/// Longest pause before a request without an answer is sent again, in ticks.
const LONGEST_PAUSE: Ms = 8;

/// The state machine.
pub struct Client {
    id: ClientId,
    incarnation: Incarnation,
    timing: Timing,
    now: Ms,
    clock: RunClock,
    /// On the run clock.
    ran_ms: Ms,
    config: Option<Config>,
    /// The newest term heard of.
    term: Term,
    renewed_ms: Ms,
    holds: BTreeMap<Region, Hold>,
    /// In order of arrival.
    requests: BTreeMap<u64, Request>,
    /// Those that do not run.
    idle: BTreeSet<u64>,
    /// Those of them that have not been looked at.
    fresh: Vec<u64>,
    /// The stripes that running requests lock.
    locked: BTreeSet<u64>,
    /// The stripes of idle requests that were looked at and could not start.
    blocked: BTreeSet<u64>,
    /// Something has changed that may let such a request start.
    stirred: bool,
    /// Writes that wait for a flush: the value of `written` after each, and its request.
    stored: BTreeMap<u64, u64>,
    /// The flush for them runs.
    committing: bool,
    ops: BTreeMap<OpId, Op>,
    next_request: u64,
    next_op: u64,
    next_grant: u64,
    /// Writes acknowledged.
    written: u64,
    /// Some of them are not flushed.
    unflushed: bool,
    /// Times that unflushed writes may have been lost, and how many of these a flush reported.
    losses: u64,
    reported: u64,
    /// Writes acknowledged at the last loss.
    lost_until: u64,
    /// When each member answered last, on the run clock.
    heard_ms: BTreeMap<MemberId, Ms>,
    /// Members that owed an answer when this epoch began, and since when they have been silent.
    silent_ms: BTreeMap<MemberId, Ms>,
    /// All members have answered a check once: it may want grants.
    reaches_all: bool,
    /// When the last check began.
    checked_ms: Ms,
    evicted: bool,
}

impl Client {
    /// Starts an incarnation; it must be higher than any earlier one of this client.
    pub fn start(id: ClientId, incarnation: Incarnation, timing: Timing, now: Ms) -> Client {
        Client {
            id,
            incarnation,
            timing,
            now,
            clock: RunClock::start(timing, now),
            ran_ms: now,
            config: None,
            term: Term(0),
            renewed_ms: now,
            holds: BTreeMap::new(),
            requests: BTreeMap::new(),
            idle: BTreeSet::new(),
            fresh: Vec::new(),
            locked: BTreeSet::new(),
            blocked: BTreeSet::new(),
            stirred: false,
            stored: BTreeMap::new(),
            committing: false,
            ops: BTreeMap::new(),
            next_request: 0,
            // Numbers of different incarnations differ.
            next_op: u64::from(incarnation.0) << 32,
            next_grant: u64::from(incarnation.0) << 32,
            written: 0,
            unflushed: false,
            losses: 0,
            reported: 0,
            lost_until: 0,
            heard_ms: BTreeMap::new(),
            silent_ms: BTreeMap::new(),
            reaches_all: false,
            checked_ms: now,
            evicted: false,
        }
    }

    /// True once the cluster has excluded this incarnation.
    pub fn is_evicted(&self) -> bool {
        self.evicted
    }

    /// The epoch that it uses; `None` before it joined.
    pub fn epoch(&self) -> Option<Epoch> {
        self.config.as_ref().map(|config| config.epoch)
    }

    /// The disk of a member in that epoch.
    pub fn disk(&self, member: MemberId) -> Option<DiskId> {
        self.config.as_ref().map(|config| config.slot(member).boot.disk())
    }

    /// The number of requests without an answer.
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// The number of patches that read their block.
    pub fn patching(&self) -> usize {
        let stages = self.requests.values().filter_map(|request| request.stage());
        stages.filter(|&stage| stage == Stage::Patching).count()
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Ms, event: Event, out: &mut Vec<Action>) {
        self.read_clocks(now);
        match event {
            Event::Request(id, work) => self.submit(For::Upper(id), work),
            Event::Coordinator(term, message) => {
                self.stirred = true;
                self.coordinator(term, message, out);
            }
            Event::Member(member, message) => {
                self.hear(member);
                self.member(message, out);
            }
            Event::Connected(member) => self.send_again(member, out),
        }
        self.advance(out);
    }

    /// Retransmits, renews the lease, gives idle regions back.
    pub fn tick(&mut self, now: Ms, out: &mut Vec<Action>) {
        self.read_clocks(now);
        if self.evicted {
            return;
        }
        let Some(config) = &self.config else {
            out.push(Action::Coordinators(FromClient::Join));
            return;
        };
        let (sent_ms, term, epoch, held) = (now, self.term, config.epoch, self.claims());
        let renew = FromClient::Renew { sent_ms, term, held, epoch };
        out.push(Action::Coordinators(renew));
        // The coordinator hears complaints for some time before it evicts.
        let patience = self.timing.drain_ms.saturating_sub(self.timing.member_ms);
        // The oldest request of each member that does not answer.
        let mut silent = BTreeMap::new();
        for (&number, op) in &mut self.ops {
            if self.ran_ms >= op.again_ms {
                out.push(Action::Member(op.member, op.message.clone()));
                op.pause_ms = (2 * op.pause_ms).min(LONGEST_PAUSE * self.timing.tick_ms);
                op.again_ms = self.ran_ms + op.pause_ms;
            }
            if self.ran_ms.saturating_sub(op.since_ms) > patience {
                silent.entry(op.member).or_insert(number);
            }
        }
        let report = |(member, op)| Action::Coordinators(FromClient::Unreachable(member, op));
        out.extend(silent.into_iter().map(report));
        self.tend_grants(out);
        self.stirred = true;
        self.advance(out);
    }

    fn read_clocks(&mut self, now: Ms) {
        self.now = now;
        self.ran_ms = self.clock.read(now);
    }

    /// Sends what has no answer of this member.
    fn send_again(&mut self, member: MemberId, out: &mut Vec<Action>) {
        for op in self.ops.values_mut().filter(|op| op.member == member) {
            out.push(Action::Member(member, op.message.clone()));
            op.pause_ms = self.timing.tick_ms;
            op.again_ms = self.ran_ms + op.pause_ms;
        }
    }

    fn coordinator(&mut self, term: Term, message: ToClient, out: &mut Vec<Action>) {
        // Grants of a lower term end when the first message of a higher one arrives.
        if term < self.term && !broken(Broken::OldGrantTaken) {
            return;
        }
        self.term = self.term.max(term);
        match message {
            ToClient::Renewed(sent_ms) => self.renewed_ms = self.renewed_ms.max(sent_ms),
            ToClient::Config(config) => self.adopt(config),
            ToClient::Grant(region, grant) => self.granted(region, grant, out),
            ToClient::Drain(region, grant) => self.drain(region, grant, out),
            ToClient::Released(region, grant) => self.released(region, grant),
            ToClient::Evicted(least) if self.incarnation < least => self.stop(out),
            ToClient::Evicted(_) => {}
            ToClient::Refused(region, grant) => self.refused(region, grant, out),
        }
    }

    /// Moves to a newer epoch: requests that are not complete start again.
    fn adopt(&mut self, config: Config) {
        let mut lost = false;
        if let Some(old) = &self.config {
            if config.epoch <= old.epoch {
                return;
            }
            let mut slots = old.slots.iter().zip(&config.slots);
            let restarted =
                slots.any(|(old, new)| new.state == State::InSync && new.boot != old.boot);
            if restarted && self.unflushed && !broken(Broken::LossUnreported) {
                self.losses += 1;
                self.lost_until = self.written;
            }
            lost = restarted && !config.shape.level.is_striped();
            self.silent_ms = self.still_silent(old, &config);
        }
        self.renewed_ms = self.now;
        self.config = Some(config.clone());
        self.ops.clear();
        self.locked.clear();
        self.stored.clear();
        self.idle = self.requests.keys().copied().collect();
        for request in self.requests.values_mut() {
            request.restart(&config, lost && !broken(Broken::PatchRevivesLost));
            if broken(Broken::ParityRecomputed) {
                request.settled = None;
            }
        }
        // Other requests might not ask a silent member, or might wait for its disk.
        if !self.reaches_all || !self.silent_ms.is_empty() {
            self.check_members();
        }
    }

    /// A member answers: what it owes is not late any more.
    fn hear(&mut self, member: MemberId) {
        self.heard_ms.insert(member, self.ran_ms);
        if self.silent_ms.remove(&member).is_some() {
            let owed = self.ops.values_mut().filter(|op| op.member == member);
            owed.for_each(|op| op.since_ms = self.ran_ms);
        }
    }

    /// Members that owe an answer, and since when they are silent. Otherwise each change of the
    /// membership would give more time to a client that does not reach a member.
    fn still_silent(&self, old: &Config, new: &Config) -> BTreeMap<MemberId, Ms> {
        let mut silent = BTreeMap::new();
        for Op { member, since_ms, .. } in self.ops.values() {
            let same = new.slot(*member).boot == old.slot(*member).boot;
            if same && !broken(Broken::SilenceForgotten) {
                let heard_ms = self.heard_ms.get(member).copied().unwrap_or_default();
                silent.entry(*member).or_insert(heard_ms.max(*since_ms));
            }
        }
        silent
    }

    fn member(&mut self, message: FromMember, out: &mut Vec<Action>) {
        match message {
            FromMember::Done(op, bytes) => self.arrived(op, bytes, out),
            FromMember::Refused(op, _) if broken(Broken::LastAnswerCounts) => {
                self.arrived(op, Vec::new(), out);
            }
            FromMember::Refused(op, Refusal::Fenced) if self.ops.contains_key(&op) => {
                self.stop(out);
            }
            // The coordinator says when it may run; until then it is sent again.
            FromMember::Refused(op, _) => {
                if let Some(op) = self.ops.get_mut(&op) {
                    op.since_ms = self.ran_ms;
                    op.pause_ms = self.timing.tick_ms;
                    op.again_ms = self.ran_ms + op.pause_ms;
                }
            }
            FromMember::Control(..) => {}
        }
    }

    fn stop(&mut self, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.evicted, true) {
            return;
        }
        self.ops.clear();
        self.holds.clear();
        self.idle.clear();
        self.stored.clear();
        for request in std::mem::take(&mut self.requests).into_values() {
            if let For::Upper(id) = request.cause {
                out.push(Action::Done(id, Err(Failure::Evicted)));
            }
        }
    }

    fn gives_way(&self, request: &Request) -> bool {
        let config = self.config.as_ref().expect("requests start in an epoch");
        !request.started && locks(config, &request.work).is_some()
    }

    /// True while requests may start.
    fn may_start(&self) -> bool {
        let lease = self.timing.lease_ms.saturating_sub(self.timing.margin_ms);
        let leased = self.now.saturating_sub(self.renewed_ms) < lease;
        leased && self.config.as_ref().is_some_and(Config::serves)
    }

    /// Starts all requests that can start, in order of arrival.
    fn advance(&mut self, out: &mut Vec<Action>) {
        if self.evicted {
            let refuse = std::mem::take(&mut self.requests);
            self.idle.clear();
            out.extend(refuse.into_values().filter_map(|request| match request.cause {
                For::Upper(id) => Some(Action::Done(id, Err(Failure::Evicted))),
                For::Release(_) | For::Commit | For::Check => None,
            }));
            return;
        }
        if !self.may_start() {
            return;
        }
        self.commit();
        // Requests that lock one stripe run one after the other; one that locks several gets them
        // all at once. They give way to writes that members may have: these must end before a
        // region is given back. The flush before a release keeps its place: no later write may run
        // when it begins.
        for number in self.candidates() {
            let request = &self.requests[&number];
            let started = request.started;
            let config = self.config.as_ref().expect("requests start in an epoch");
            let Some(stripes) = locks(config, &request.work) else {
                self.run(number, out);
                continue;
            };
            let region = config.shape.region(stripes.start);
            let none = |of: &BTreeSet<u64>| of.range(stripes.clone()).next().is_none();
            let first = none(&self.locked) && none(&self.blocked);
            let free = first || overlaps(&request.work);
            if free && self.may_use(region, started, out) {
                self.run(number, out);
            } else {
                self.blocked.extend(stripes);
            }
        }
    }

    /// Idle requests that may start now: new ones, or all if anything has changed. To look at all
    /// of them after each answer of a member would take longer than the requests themselves.
    fn candidates(&mut self) -> Vec<u64> {
        let fresh = std::mem::take(&mut self.fresh);
        let mut numbers = match std::mem::take(&mut self.stirred) {
            true => {
                self.blocked.clear();
                self.idle.iter().copied().collect()
            }
            false => fresh,
        };
        numbers.sort_by_cached_key(|number| (self.gives_way(&self.requests[number]), *number));
        numbers
    }
}

/// A mutant: the lock of the stripe is skipped.
fn overlaps(work: &Work) -> bool {
    match work {
        Work::Read(..) => broken(Broken::RecoversUnlocked),
        Work::Patch(..) => broken(Broken::PatchUnlocked),
        _ => broken(Broken::StripeUnlocked),
    }
}
