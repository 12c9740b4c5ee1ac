//! A client: turns reads, writes and flushes of blocks into requests to the members.
//!
//! ```text
//!   write ──▶ grant held? ──▶ all live members ──▶ acknowledged ──▶ flush ──▶ idle ──▶ released
//!               │ no: Want        │ new epoch
//!               ▼                 ▼
//!             parked            parked, then sent again: the same bytes, as a new request
//! ```
//!
//! A write is acknowledged when every live member of *one* epoch has it. So a new epoch parks what
//! is not acknowledged and sends it again whole. Nothing is planned again from what members hold.
//!
//! Acknowledged writes that are not flushed are never sent again: another client may have written
//! the block since. If a member that stays in sync restarts, they may be lost in part. Then the
//! next flush fails with [`Failure::Lost`].
//!
//! Invariants: no write is issued in a region without a grant. A flush covers every write that was
//! acknowledged before it, on the boots of its own epoch. Once evicted, nothing more is answered.

mod grants;

use std::collections::{BTreeMap, BTreeSet};

use crate::broken::{Broken, broken};
use crate::code;
use crate::config::{Config, Level, State};
use crate::ids::{ClientId, Epoch, Incarnation, MemberId, Ms, OpId, Region, RequestId, Term};
use crate::message::{FromClient, FromMember, Io, Refusal, Stamp, ToClient, ToMember, Who};
use crate::timing::Timing;
use grants::Hold;

/// A request of the layer above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Read a block.
    Read(u64),
    /// Write a block.
    Write(u64, Vec<u8>),
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

/// A request's cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    Upper(RequestId),
    /// A flush before this region is given back.
    Release(Region),
}

struct Request {
    cause: For,
    work: Work,
    attempt: Option<Attempt>,
    /// Some members may have it: it must be sent until all have.
    started: bool,
    /// When it arrived: the losses reported and the writes acknowledged.
    reported: u64,
    written: u64,
}

/// One execution, in one epoch.
struct Attempt {
    missing: BTreeSet<OpId>,
    got: BTreeMap<MemberId, Vec<u8>>,
    /// Of a flush: writes acknowledged, and writes issued in its region, when it began.
    written: u64,
    issued: u64,
}

/// A member request without an answer.
struct Op {
    member: MemberId,
    request: u64,
    message: ToMember,
    /// Since when the member has been silent about it.
    since_ms: Ms,
}

/// The state machine.
pub struct Client {
    id: ClientId,
    incarnation: Incarnation,
    timing: Timing,
    now: Ms,
    config: Option<Config>,
    /// The newest term heard of.
    term: Term,
    renewed_ms: Ms,
    holds: BTreeMap<Region, Hold>,
    /// In order of arrival.
    requests: BTreeMap<u64, Request>,
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
            config: None,
            term: Term(0),
            renewed_ms: now,
            holds: BTreeMap::new(),
            requests: BTreeMap::new(),
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

    /// The number of requests without an answer.
    pub fn pending(&self) -> usize {
        self.requests.len()
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Ms, event: Event, out: &mut Vec<Action>) {
        self.now = now;
        match event {
            Event::Request(id, work) => self.submit(For::Upper(id), work),
            Event::Coordinator(term, message) => self.coordinator(term, message, out),
            Event::Member(_, message) => self.member(message, out),
        }
        self.advance(out);
    }

    /// Retransmits, renews the lease, gives idle regions back.
    pub fn tick(&mut self, now: Ms, out: &mut Vec<Action>) {
        self.now = now;
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
        let mut silent = BTreeSet::new();
        for op in self.ops.values() {
            out.push(Action::Member(op.member, op.message.clone()));
            if now.saturating_sub(op.since_ms) > self.timing.drain_ms {
                silent.insert(op.member);
            }
        }
        let report = |member| Action::Coordinators(FromClient::Unreachable(member));
        out.extend(silent.into_iter().map(report));
        self.tend_grants(out);
        self.advance(out);
    }

    fn submit(&mut self, cause: For, work: Work) {
        let (reported, written) = (self.reported, self.written);
        let request = Request { cause, work, attempt: None, started: false, reported, written };
        self.requests.insert(self.next_request, request);
        self.next_request += 1;
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
        }
    }

    /// Moves to a newer epoch: requests that are not complete start again.
    fn adopt(&mut self, config: Config) {
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
        }
        self.renewed_ms = self.now;
        self.config = Some(config);
        self.ops.clear();
        for request in self.requests.values_mut() {
            request.attempt = None;
        }
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
                    op.since_ms = self.now;
                }
            }
            FromMember::Control(..) => {}
        }
    }

    fn arrived(&mut self, op: OpId, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let Some(Op { member, request, .. }) = self.ops.remove(&op) else { return };
        let found = self.requests.get_mut(&request).expect("ops belong to a request");
        let write = matches!(found.work, Work::Write(..));
        let attempt = found.attempt.as_mut().expect("ops belong to an attempt");
        attempt.missing.remove(&op);
        if !bytes.is_empty() {
            attempt.got.insert(member, bytes);
        }
        let early = write && attempt.missing.len() == 1 && broken(Broken::AcksEarly);
        if attempt.missing.is_empty() || early {
            let left = std::mem::take(&mut attempt.missing);
            left.iter().for_each(|op| {
                self.ops.remove(op);
            });
            self.complete(request, out);
        }
    }

    fn complete(&mut self, number: u64, out: &mut Vec<Action>) {
        let request = self.requests.remove(&number).expect("it is complete once");
        let attempt = request.attempt.expect("it ran");
        let config = self.config.as_ref().expect("it ran in an epoch");
        let result = match request.work {
            Work::Read(_) => Ok(code::block(config, &attempt.got)),
            Work::Write(block, _) => {
                let region = config.shape.region(block);
                self.written += 1;
                self.unflushed = true;
                let hold = self.holds.get_mut(&region);
                hold.expect("held while a write runs").last_ms = self.now;
                Ok(Vec::new())
            }
            Work::Flush => {
                let lost = self.losses > request.reported;
                if let For::Upper(_) = request.cause {
                    // A flush that is older than a lost write does not report it.
                    if request.written >= self.lost_until {
                        self.reported = self.losses;
                    }
                    self.unflushed &= self.written != attempt.written;
                }
                if lost { Err(Failure::Lost) } else { Ok(Vec::new()) }
            }
        };
        match request.cause {
            For::Upper(id) => out.push(Action::Done(id, result)),
            For::Release(region) => self.flushed(region, attempt.issued, out),
        }
    }

    fn stop(&mut self, out: &mut Vec<Action>) {
        if std::mem::replace(&mut self.evicted, true) {
            return;
        }
        self.ops.clear();
        self.holds.clear();
        for request in std::mem::take(&mut self.requests).into_values() {
            if let For::Upper(id) = request.cause {
                out.push(Action::Done(id, Err(Failure::Evicted)));
            }
        }
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
            out.extend(refuse.into_values().filter_map(|request| match request.cause {
                For::Upper(id) => Some(Action::Done(id, Err(Failure::Evicted))),
                For::Release(_) => None,
            }));
            return;
        }
        if !self.may_start() {
            return;
        }
        // Writes of one block run one after the other.
        let mut blocks = BTreeSet::new();
        let numbers: Vec<u64> = self.requests.keys().copied().collect();
        for number in numbers {
            let request = &self.requests[&number];
            let (idle, started) = (request.attempt.is_none(), request.started);
            let ready = match request.work {
                Work::Read(_) | Work::Flush => true,
                Work::Write(block, _) => {
                    blocks.insert(block) && (!idle || self.may_write(block, started, out))
                }
            };
            if idle && ready {
                self.run(number, out);
            }
        }
    }

    fn run(&mut self, number: u64, out: &mut Vec<Action>) {
        let config = self.config.as_ref().expect("requests start in an epoch");
        let request = self.requests.get_mut(&number).expect("it waits");
        let targets = targets(config, &request.work);
        request.started = true;
        let mut attempt = Attempt {
            missing: BTreeSet::new(),
            got: BTreeMap::new(),
            written: self.written,
            issued: 0,
        };
        if let For::Release(region) = request.cause {
            attempt.issued = self.holds.get(&region).map_or(0, |hold| hold.issued);
        }
        if let Work::Write(block, _) = request.work
            && let Some(hold) = self.holds.get_mut(&config.shape.region(block))
        {
            hold.issued += 1;
            hold.dirty = true;
        }
        let floor = self.ops.keys().next().copied().unwrap_or(OpId(self.next_op));
        for (member, io) in targets {
            let op = OpId(self.next_op);
            self.next_op += 1;
            let who = Who::Client(self.id, self.incarnation);
            let (epoch, boot) = (config.epoch, config.slot(member).boot);
            let message = ToMember::Data(Stamp { who, epoch, boot, op, floor }, io);
            out.push(Action::Member(member, message.clone()));
            self.ops.insert(op, Op { member, request: number, message, since_ms: self.now });
            attempt.missing.insert(op);
        }
        request.attempt = Some(attempt);
    }
}

/// The member requests that execute a request.
fn targets(config: &Config, work: &Work) -> Vec<(MemberId, Io)> {
    match work {
        Work::Flush if broken(Broken::FlushSkipsOne) => {
            config.live().skip(1).map(|member| (member, Io::Flush)).collect()
        }
        Work::Flush => config.live().map(|member| (member, Io::Flush)).collect(),
        Work::Write(block, bytes) => {
            let mut pieces = code::pieces(&config.shape, config.slots.len(), bytes);
            let parity = config.shape.level == Level::Fragments && broken(Broken::NoParity);
            if parity && let Some(last) = pieces.last_mut() {
                last.fill(0);
            }
            let piece = |member: MemberId| pieces[usize::from(member.0)].clone();
            let wanted = |member: &MemberId| {
                config.is_in_sync(*member) || !broken(Broken::RebuildingSkipped)
            };
            let live = config.live().filter(wanted);
            live.map(|member| (member, Io::Write(*block, piece(member)))).collect()
        }
        Work::Read(block) => {
            let region = config.shape.region(*block);
            let sources = code::sources(config, region).expect("the array serves");
            let mut all: Vec<_> =
                sources.iter().map(|&member| (member, Io::Read(*block))).collect();
            // A member that was removed would still answer an old epoch. Until a later one opens,
            // only live members of this one can be in sync, so one of them refuses it then.
            let meets = sources.len() + config.needed() > config.slots.len();
            if !meets && !broken(Broken::ReadsUnchecked) {
                let asked = |member: &MemberId| {
                    config.is_in_sync(*member) || !broken(Broken::RebuildingUnchecked)
                };
                let others = config.live().filter(asked).filter(|it| !sources.contains(it));
                all.extend(others.map(|member| (member, Io::Check)));
            }
            all
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Mode, Shape, Slot};
    use crate::ids::{ArrayId, BootId};

    fn asked(level: Level, states: &[State]) -> Vec<(u16, Io)> {
        let mode = Mode::Shared;
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 8, mode };
        let slots = states.iter().map(|&state| Slot { state, boot: BootId(1) }).collect();
        let config = Config { array: ArrayId(1), epoch: Epoch(5), shape, slots };
        let targets = targets(&config, &Work::Read(0));
        targets.into_iter().map(|(member, io)| (member.0, io)).collect()
    }

    /// Member 1 is rebuilt in epoch 5, enters in 6, which never opens, and is alone in 7: member 0
    /// knows nothing of this.
    #[test]
    fn a_read_meets_every_member_that_can_be_alone_in_a_later_epoch() {
        use State::{InSync, Missing, Rebuilding};
        let (read, check) = (|member| (member, Io::Read(0)), |member| (member, Io::Check));
        assert_eq!(asked(Level::Mirror, &[InSync, Rebuilding]), [read(0), check(1)]);
        assert_eq!(asked(Level::Mirror, &[InSync, InSync, Missing]), [read(0), check(1)]);
        assert_eq!(asked(Level::Fragments, &[InSync, Rebuilding]), [read(0), check(1)]);
        assert_eq!(asked(Level::Fragments, &[InSync, Rebuilding, InSync]), [read(0), read(2)]);
    }
}
