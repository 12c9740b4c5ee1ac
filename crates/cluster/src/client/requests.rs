//! A request in execution: the member requests of each stage, and what completes it.
//!
//! ```text
//!   read, flush    ── all answers ──▶ done
//!   write, 1, 3.5  ── all answers ──▶ done
//!   write, 5, 6    ── old bytes ──▶ settled ── all answers ──▶ stored ── flushed ──▶ done
//!                     Reading       Writing                    Stored
//!   patch          ── the block ──▶ a write of the whole block
//!                     Patching
//! ```
//!
//! A patch that becomes a write keeps the grant and the lock that it read under. An epoch that
//! begins before that makes it read again: it has changed nothing. One that begins later sends the
//! bytes of the whole block again: members may differ in them, so nobody may recover others from
//! them. If members have lost writes, a patch that needs no parity reads again what they have: the
//! bytes that it read before may be lost, and other hosts may have read older ones since.
//!
//! At levels 5 and 6 a write is acknowledged when it is durable: one flush serves all that are
//! stored by then. So the pieces of a stripe differ only while a write to it is not acknowledged. A
//! living client ends such a write with its *settled* bytes, also after a power cut of all members;
//! the regions of a dead one are UNSYNC.

use std::collections::BTreeSet;
use std::ops::Range;

use super::reads::{blocks_of, checked, reads, recovers};
use super::{Action, Client, Failure, Work};
use crate::broken::{Broken, broken};
use crate::change::{Change, Way};
use crate::code::{self, Pieces};
use crate::config::{Config, Level, Mode};
use crate::ids::{MemberId, Ms, OpId, Region, RequestId};
use crate::message::{Io, Stamp, ToMember, Who};

/// A request's cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum For {
    Upper(RequestId),
    /// A flush before this region is given back.
    Release(Region),
    /// A flush before stored writes are acknowledged.
    Commit,
    /// No flush: checks of all live members.
    Check,
}

pub(super) struct Request {
    pub(super) cause: For,
    pub(super) work: Work,
    pub(super) attempt: Option<Attempt>,
    /// Of a write: some members may have it, so it must be sent until all have. Of a read or a
    /// patch: it runs.
    pub(super) started: bool,
    /// Of a write: the bytes of each member, once they are known.
    pub(super) settled: Option<Pieces>,
    /// Of a write that was a patch: its first byte in the block, and its bytes.
    patch: Option<(usize, Vec<u8>)>,
    /// When it arrived: the losses reported and the writes acknowledged.
    pub(super) reported: u64,
    pub(super) written: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Of a write: old bytes.
    Reading(Way),
    Writing,
    /// All members have it.
    Stored,
    /// Of a patch: the block as it is.
    Patching,
    /// Reads and flushes have one stage.
    Only,
}

/// One execution, in one epoch.
pub(super) struct Attempt {
    pub(super) stage: Stage,
    missing: BTreeSet<OpId>,
    got: Pieces,
    /// Of a flush: writes that all members had, and writes issued in its region, when it began.
    written: u64,
    issued: u64,
}

/// A member request without an answer.
pub(super) struct Op {
    pub(super) member: MemberId,
    request: u64,
    pub(super) message: ToMember,
    /// Since when the member has been silent: about it, or about others before this epoch.
    pub(super) since_ms: Ms,
    /// When it is sent again, and the pause before that.
    pub(super) again_ms: Ms,
    pub(super) pause_ms: Ms,
}

impl Request {
    pub(super) fn stage(&self) -> Option<Stage> {
        self.attempt.as_ref().map(|attempt| attempt.stage)
    }

    /// A new epoch begins: it must run again. `lost`: members may have lost unflushed writes.
    pub(super) fn restart(&mut self, config: &Config, lost: bool) {
        self.attempt = None;
        // Members may have a part of what was a write once, whatever it is now.
        self.started &= matches!(self.work, Work::Write(..)) || self.patch.is_some();
        if let (Work::Write(block, _), Some((first, bytes))) = (&self.work, &self.patch)
            && lost
            && !recovers(config, *block, 1)
        {
            self.work = Work::Patch(*block, *first, bytes.clone());
            self.settled = None;
        }
    }
}

impl Client {
    pub(super) fn submit(&mut self, cause: For, work: Work) {
        let (reported, written) = (self.reported, self.written);
        let (attempt, started, settled, patch) = (None, false, None, None);
        let request = Request { cause, work, attempt, started, settled, patch, reported, written };
        self.requests.insert(self.next_request, request);
        self.idle.insert(self.next_request);
        self.fresh.push(self.next_request);
        self.next_request += 1;
    }

    /// Starts it.
    pub(super) fn run(&mut self, number: u64, out: &mut Vec<Action>) {
        let flushes = match &self.requests[&number] {
            Request { work: Work::Flush, cause, .. } => self.flushes(*cause),
            _ => Vec::new(),
        };
        let config = self.config.as_ref().expect("requests start in an epoch");
        let request = self.requests.get_mut(&number).expect("it waits");
        self.idle.remove(&number);
        self.locked.extend(locks(config, &request.work).into_iter().flatten());
        request.started = true;
        let mut issued = 0;
        let (stage, ios) = match &request.work {
            Work::Flush => (Stage::Only, flushes),
            Work::Read(block, count) => (Stage::Only, reads(config, *block, *count)),
            Work::Patch(block, ..) => (Stage::Patching, reads(config, *block, 1)),
            Work::Write(block, bytes) => {
                let change = Change::new(config, *block, bytes.len());
                if let Some(hold) = self.holds.get_mut(&config.shape.region(change.stripes.start)) {
                    hold.issued += 1;
                    hold.dirty = true;
                }
                if request.settled.is_none() {
                    let (way, reads) = change.plan(config);
                    if reads.is_empty() {
                        let got = Pieces::new();
                        request.settled = Some(change.settle(config, way, bytes, &got));
                    } else {
                        let read = |member| (member, Io::Read(change.stripes.start, 1));
                        let mut reads: Vec<_> = reads.into_iter().map(read).collect();
                        // Bytes of a removed member would be settled for all later epochs.
                        if !broken(Broken::SettlesUnchecked) {
                            reads = checked(config, reads);
                        }
                        return self.send((number, Stage::Reading(way), 0), reads, out);
                    }
                }
                let settled = request.settled.as_ref().expect("settled now");
                (Stage::Writing, writes(config, change.stripes.start, settled))
            }
        };
        if let For::Release(region) = request.cause {
            issued = self.holds.get(&region).map_or(0, |hold| hold.issued);
        }
        let asks_none = ios.is_empty();
        self.send((number, stage, issued), ios, out);
        if asks_none {
            self.next_stage(number, out);
        }
    }

    /// Begins a stage.
    fn send(
        &mut self,
        (number, stage, issued): (u64, Stage, u64),
        ios: Vec<(MemberId, Io)>,
        out: &mut Vec<Action>,
    ) {
        let config = self.config.as_ref().expect("requests run in an epoch");
        let mut missing = BTreeSet::new();
        let floor = self.ops.keys().next().copied().unwrap_or(OpId(self.next_op));
        for (member, io) in ios {
            let op = OpId(self.next_op);
            self.next_op += 1;
            let who = Who::Client(self.id, self.incarnation);
            let (epoch, boot) = (config.epoch, config.slot(member).boot);
            let message = ToMember::Data(Stamp { who, epoch, boot, op, floor }, io);
            out.push(Action::Member(member, message.clone()));
            let since_ms = self.silent_ms.get(&member).copied().unwrap_or(self.ran_ms);
            let pause_ms = self.timing.tick_ms;
            let again_ms = self.ran_ms + pause_ms;
            self.ops
                .insert(op, Op { member, request: number, message, since_ms, again_ms, pause_ms });
            missing.insert(op);
        }
        let (got, written) = (Pieces::new(), self.written);
        let request = self.requests.get_mut(&number).expect("it runs");
        request.attempt = Some(Attempt { stage, missing, got, written, issued });
    }

    pub(super) fn arrived(&mut self, op: OpId, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let Some(Op { member, request, .. }) = self.ops.remove(&op) else { return };
        let found = self.requests.get_mut(&request).expect("ops belong to a request");
        let attempt = found.attempt.as_mut().expect("ops belong to an attempt");
        attempt.missing.remove(&op);
        if !bytes.is_empty() {
            attempt.got.insert(member, bytes);
        }
        let writing = attempt.stage == Stage::Writing;
        let early = writing && attempt.missing.len() == 1 && broken(Broken::AcksEarly);
        if attempt.missing.is_empty() || early {
            let left = std::mem::take(&mut attempt.missing);
            left.iter().for_each(|op| {
                self.ops.remove(op);
            });
            self.next_stage(request, out);
        }
    }

    fn next_stage(&mut self, number: u64, out: &mut Vec<Action>) {
        let config = self.config.as_ref().expect("it ran in an epoch");
        let request = self.requests.get_mut(&number).expect("it is complete once");
        let attempt = request.attempt.as_mut().expect("it ran");
        match (attempt.stage, &request.work) {
            (Stage::Reading(way), Work::Write(block, bytes)) => {
                let change = Change::new(config, *block, bytes.len());
                let settled = change.settle(config, way, bytes, &attempt.got);
                let ios = writes(config, change.stripes.start, &settled);
                request.settled = Some(settled);
                self.send((number, Stage::Writing, 0), ios, out);
            }
            (Stage::Patching, Work::Patch(block, first, bytes)) => {
                let mut whole = blocks_of(config, *block, 1, &attempt.got);
                whole[*first..][..bytes.len()].copy_from_slice(bytes);
                request.patch = Some((*first, bytes.clone()));
                request.work = Work::Write(*block, whole);
                if broken(Broken::PatchReadsUngranted) {
                    (request.attempt, request.started, self.stirred) = (None, false, true);
                    self.idle.insert(number);
                } else {
                    self.run(number, out);
                }
            }
            (Stage::Writing, _) => {
                self.written += 1;
                attempt.stage = Stage::Stored;
                if !config.shape.level.is_striped() || broken(Broken::AcksVolatile) {
                    self.complete(number, out);
                } else {
                    self.stored.insert(self.written, number);
                }
            }
            _ => self.complete(number, out),
        }
    }

    fn complete(&mut self, number: u64, out: &mut Vec<Action>) {
        let request = self.requests.remove(&number).expect("it is complete once");
        let attempt = request.attempt.expect("it ran");
        let config = self.config.as_ref().expect("it ran in an epoch");
        for stripe in locks(config, &request.work).into_iter().flatten() {
            self.locked.remove(&stripe);
            self.stirred |= self.blocked.contains(&stripe);
        }
        let result = match request.work {
            Work::Patch(..) => unreachable!("it has become a write"),
            Work::Read(block, count) => Ok(blocks_of(config, block, count, &attempt.got)),
            Work::Write(block, _) => {
                let region = config.shape.region(code::place(config, block).0);
                // What is durable cannot be lost.
                self.unflushed |= !config.shape.level.is_striped();
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
            For::Commit => self.committed(attempt.written, out),
            For::Check => (self.reaches_all, self.stirred) = (true, true),
        }
    }

    /// Acknowledges the writes up to this number: they are durable.
    fn committed(&mut self, upto: u64, out: &mut Vec<Action>) {
        self.committing = false;
        let later = self.stored.split_off(&(upto + 1));
        let durable = std::mem::replace(&mut self.stored, later);
        durable.into_values().for_each(|number| self.complete(number, out));
    }

    /// What a flush of this cause asks the members. At levels 5 and 6 acknowledged writes are
    /// durable, so only a commit flushes: the members of the stored writes. The disks of all others
    /// may have writes of other hosts to flush, and would make this one wait.
    fn flushes(&self, cause: For) -> Vec<(MemberId, Io)> {
        let config = self.config.as_ref().expect("requests start in an epoch");
        let stored = || self.stored.values().filter_map(|number| self.requests.get(number));
        let holds = |write: &Request, member| {
            write.settled.as_ref().is_some_and(|pieces| pieces.contains_key(&member))
        };
        let asked = |&member: &MemberId| match cause {
            For::Check => true,
            _ if !config.shape.level.is_striped() => true,
            For::Commit => stored().any(|write| holds(write, member)),
            For::Upper(_) | For::Release(_) => false,
        };
        let io = if cause == For::Check { Io::Check } else { Io::Flush };
        let skipped = usize::from(broken(Broken::FlushSkipsOne));
        let members = config.live().filter(asked).skip(skipped);
        members.map(|member| (member, io.clone())).collect()
    }

    /// One flush at a time serves all writes that are stored before it begins.
    pub(super) fn commit(&mut self) {
        if !self.committing && !self.stored.is_empty() {
            self.committing = true;
            self.submit(For::Commit, Work::Flush);
        }
    }
}

/// The stripes that this work locks, and whose region it needs.
pub(super) fn locks(config: &Config, work: &Work) -> Option<Range<u64>> {
    let stripes = match work {
        Work::Patch(..) if broken(Broken::PatchReadsUngranted) => return None,
        Work::Write(block, bytes) => Change::new(config, *block, bytes.len()).stripes,
        Work::Patch(block, ..) => code::stripes(config, *block, 1),
        Work::Read(block, count) => {
            let locks = config.shape.mode == Mode::Exclusive && recovers(config, *block, *count);
            if !locks || broken(Broken::RecoversUngranted) {
                return None;
            }
            code::stripes(config, *block, *count)
        }
        Work::Flush => return None,
    };
    let first = stripes.start..stripes.start + 1;
    Some(if broken(Broken::LocksFirstStripe) { first } else { stripes })
}

fn writes(config: &Config, stripe: u64, settled: &Pieces) -> Vec<(MemberId, Io)> {
    let last = code::columns(config.shape.level, config.slots.len(), stripe).last().copied();
    let piece = |member: MemberId| {
        let mut piece = settled.get(&member)?.clone();
        let parity = config.shape.level != Level::Mirror && last == Some(member);
        if parity && broken(Broken::NoParity) {
            piece.fill(0);
        }
        Some((member, Io::Write(stripe, piece)))
    };
    let skip = broken(Broken::RebuildingSkipped);
    config.live().filter(|&member| config.is_in_sync(member) || !skip).filter_map(piece).collect()
}
