//! Resync and rebuild: one region at a time, by the coordinator itself.
//!
//! ```text
//!   pick ──▶ drain ──▶ read the sources ──▶ write the others ──▶ flush all live ──▶ −Unsync −Stale
//!            no holder, durably                                  also the sources
//! ```
//!
//! A rebuild is the resync of the regions that are stale on a member; both do the same. Regions
//! with waiting writers come first. The sources are flushed too: an evicted client's writes on them
//! may be volatile, and the others now match them.
//!
//! **Holes.** At levels 5 and 6 all blocks of a stripe share its parity. If a client dies while it
//! writes, parity may be old or new. If a member that holds data is not in sync then, its blocks
//! can be recovered from nothing: not even those that nobody wrote. Such a region is UNSYNC *and*
//! stale on a member. No grant is given in it, and so no block in it is recovered, until an
//! operator accepts that blocks of this member may be garbage. Blocks on members in sync are read
//! all along.
//!
//! The requests carry the term: a deposed coordinator's resync is refused, and drained, before its
//! successor starts one. A change of the membership abandons the job; its marks are still set.
//!
//! Invariant: while a job is past *drain*, no client holds the region.

use std::collections::{BTreeMap, BTreeSet};

use super::Action;
use super::commit::Effect;
use super::leader::Leader;
use crate::broken::{Broken, broken};
use crate::code::{self, Pieces};
use crate::config::{Level, State};
use crate::ids::{MemberId, OpId, Region};
use crate::message::{Io, Stamp, ToMember, Who};
use crate::record::{self, Mark};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Draining,
    Reading,
    Writing,
    Flushing,
}

pub(super) struct Job {
    region: Region,
    stage: Stage,
    /// Requests without an answer.
    ops: BTreeMap<OpId, (MemberId, Io)>,
    /// Pieces of each stripe.
    got: BTreeMap<u64, Pieces>,
}

impl Leader {
    /// The region of the current job.
    pub(super) fn job_region(&self) -> Option<Region> {
        self.job.as_ref().map(|job| job.region)
    }

    pub(super) fn stop_job(&mut self) {
        self.job = None;
    }

    /// True if parity of the region may be wrong while a member that holds data is stale: both
    /// marks stay until an operator accepts the loss.
    pub(super) fn is_holed(&self, region: Region) -> bool {
        let marks = &self.commit.marks;
        let stale = |member: MemberId| marks.contains(&Mark::Stale(member, region));
        self.config.shape.level.is_striped()
            && marks.contains(&Mark::Unsync(region))
            && self.config.members().any(stale)
            && !self.accepted.contains(&region)
            && !broken(Broken::HoleRebuilt)
    }

    /// Regions that an operator must decide about.
    pub(super) fn holes(&self) -> BTreeSet<Region> {
        let unsync = record::unsync(&self.commit.marks);
        unsync.filter(|&region| self.is_holed(region)).collect()
    }

    /// A region to resync: one that somebody waits for, if there is one.
    fn pick(&self) -> Option<Region> {
        let marks = &self.commit.marks;
        let rebuilding = |member: &MemberId| self.config.slot(*member).state == State::Rebuilding;
        let members: Vec<MemberId> = self.config.live().filter(rebuilding).collect();
        let stale = |member, region| marks.contains(&Mark::Stale(member, region));
        let wrong = |region: &Region| {
            let stale = members.iter().any(|&member| stale(member, *region));
            stale || marks.contains(&Mark::Unsync(*region))
        };
        let whole = |region: &Region| !self.is_holed(*region);
        let waited = |region: &Region| self.is_waited_for(*region) && wrong(region);
        let waited = self.waited.iter().copied().filter(waited).find(whole);
        // All regions of a member may be stale: only the first of them is looked at.
        let first = || {
            let stale = members.iter().filter_map(|&it| record::stale(marks, it).find(whole));
            stale.chain(record::unsync(marks).find(whole)).min()
        };
        waited.or_else(first)
    }

    /// Moves the job on.
    pub(super) fn advance_job(&mut self, out: &mut Vec<Action>) {
        if !self.is_active() || !self.inherited.is_empty() {
            return;
        }
        // Its holder may have died meanwhile.
        let drains = |job: &Job| job.stage == Stage::Draining && self.is_holed(job.region);
        if self.job.as_ref().is_some_and(drains) {
            self.stop_job();
        }
        if self.job.is_none() {
            let Some(region) = self.pick() else { return };
            let (ops, got) = (BTreeMap::new(), BTreeMap::new());
            self.job = Some(Job { region, stage: Stage::Draining, ops, got });
        }
        while let Some(job) = &self.job
            && job.ops.is_empty()
        {
            let region = job.region;
            let next = match job.stage {
                Stage::Draining => {
                    if !self.commit.is_free(region) && !broken(Broken::ResyncIgnoresHolders) {
                        return;
                    }
                    Some((Stage::Reading, self.reads(region)))
                }
                Stage::Reading => Some((Stage::Writing, self.writes())),
                Stage::Writing if broken(Broken::ResyncUnflushed) => None,
                Stage::Writing => {
                    let flushes = self.config.live().map(|member| (member, Io::Flush));
                    Some((Stage::Flushing, flushes.collect()))
                }
                Stage::Flushing => None,
            };
            match next {
                Some((stage, ios)) => self.begin(stage, ios, out),
                None => self.finish_job(region),
            }
        }
    }

    fn reads(&self, region: Region) -> Vec<(MemberId, Io)> {
        if broken(Broken::ResyncSkipped) {
            return Vec::new();
        }
        let stripes = self.config.shape.stripes(region);
        let of = |stripe| {
            let sources = code::sources(&self.config, stripe, |it| self.is_source(it, region));
            let sources = sources.expect("an active array serves");
            sources.into_iter().map(move |member| (member, Io::Read(stripe, 1)))
        };
        stripes.flat_map(of).collect()
    }

    /// True if this member's pieces of the region are as good as those of one in sync. Mirrors and
    /// level 3.5 do not ask: their readers do not read it.
    fn is_source(&self, member: MemberId, region: Region) -> bool {
        let whole = match self.config.slot(member).state {
            State::InSync => true,
            State::Rebuilding => {
                let stale = self.commit.marks.contains(&Mark::Stale(member, region));
                self.config.shape.level.is_striped() && (!stale || broken(Broken::StaleIsSource))
            }
            State::Missing => false,
        };
        let all = self.config.in_sync().count() == self.config.slots.len();
        let recovered = self.config.shape.level.is_striped() && member == MemberId(0) && all;
        whole && !(recovered && broken(Broken::ResyncTrustsParity))
    }

    fn writes(&self) -> Vec<(MemberId, Io)> {
        let job = self.job.as_ref().expect("a job runs");
        let (shape, count) = (&self.config.shape, self.config.slots.len());
        let mut writes = Vec::new();
        for (&stripe, got) in &job.got {
            let content = code::content(&self.config, stripe, got);
            let mut pieces = code::pieces(shape, count, stripe, &content);
            if broken(Broken::ResyncCopiesFirst) && shape.level != Level::Mirror {
                let first = pieces[&MemberId(0)].clone();
                pieces.values_mut().for_each(|piece| piece.clone_from(&first));
            }
            for member in self.config.live().filter(|member| !got.contains_key(member)) {
                writes.push((member, Io::Write(stripe, pieces[&member].clone())));
            }
        }
        writes
    }

    fn begin(&mut self, stage: Stage, ios: Vec<(MemberId, Io)>, out: &mut Vec<Action>) {
        let mut ops = BTreeMap::new();
        for (member, io) in ios {
            ops.insert(self.next_op, (member, io));
            self.next_op.0 += 1;
        }
        let job = self.job.as_mut().expect("a job runs");
        (job.stage, job.ops) = (stage, ops);
        self.resync_again(out);
    }

    /// Sends the requests that have no answer.
    pub(super) fn resync_again(&self, out: &mut Vec<Action>) {
        let Some(job) = &self.job else { return };
        let floor = job.ops.keys().next().copied().unwrap_or(self.next_op);
        for (&op, (member, io)) in &job.ops {
            let boot = self.config.slot(*member).boot;
            let (who, epoch) = (Who::Coordinator(self.term), self.config.epoch);
            let stamp = Stamp { who, epoch, boot, op, floor };
            out.push(Action::Member(*member, ToMember::Data(stamp, io.clone())));
        }
    }

    pub(super) fn resync_answer(&mut self, op: OpId, bytes: Vec<u8>) {
        let Some(job) = &mut self.job else { return };
        let Some((member, io)) = job.ops.remove(&op) else { return };
        if let Io::Read(stripe, _) = io {
            job.got.entry(stripe).or_default().insert(member, bytes);
        }
    }

    fn finish_job(&mut self, region: Region) {
        self.job = None;
        self.accepted.remove(&region);
        self.commit.record(false, Mark::Unsync(region));
        let rebuilding: Vec<MemberId> = self
            .config
            .live()
            .filter(|&member| self.config.slot(member).state == State::Rebuilding)
            .collect();
        for member in rebuilding {
            self.commit.record(false, Mark::Stale(member, region));
        }
        self.settling.insert(region);
        self.commit.then(Effect::Resynced(region));
    }
}
