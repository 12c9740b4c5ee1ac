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
//! The requests carry the term: a deposed coordinator's resync is refused, and drained, before its
//! successor starts one. A change of the membership abandons the job; its marks are still set.
//!
//! Invariant: while a job is past *drain*, no client holds the region.

use std::collections::{BTreeMap, BTreeSet};

use super::Action;
use super::commit::Effect;
use super::leader::Leader;
use crate::broken::{Broken, broken};
use crate::code;
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
    /// Pieces of each block.
    got: BTreeMap<u64, BTreeMap<MemberId, Vec<u8>>>,
}

impl Leader {
    /// The region of the current job.
    pub(super) fn job_region(&self) -> Option<Region> {
        self.job.as_ref().map(|job| job.region)
    }

    pub(super) fn stop_job(&mut self) {
        self.job = None;
    }

    /// A region to resync: one that somebody waits for, if there is one.
    fn pick(&self) -> Option<Region> {
        let marks = &self.commit.marks;
        let rebuilding = |member: &MemberId| self.config.slot(*member).state == State::Rebuilding;
        let members = self.config.live().filter(rebuilding);
        let stale = members.flat_map(|member| record::stale(marks, member));
        let regions: BTreeSet<Region> = record::unsync(marks).chain(stale).collect();
        let waited = regions.iter().find(|&&region| self.is_waited_for(region));
        waited.or(regions.first()).copied()
    }

    /// Moves the job on.
    pub(super) fn advance_job(&mut self, out: &mut Vec<Action>) {
        if !self.is_active() || !self.inherited.is_empty() {
            return;
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
        let sources = code::sources(&self.config, region).expect("an active array serves");
        let blocks = self.config.shape.blocks(region);
        let of = |block| sources.iter().map(move |&member| (member, Io::Read(block)));
        blocks.flat_map(of).collect()
    }

    fn writes(&self) -> Vec<(MemberId, Io)> {
        let job = self.job.as_ref().expect("a job runs");
        let count = self.config.slots.len();
        let mut writes = Vec::new();
        for (&block, got) in &job.got {
            let content = code::block(&self.config, got);
            let mut pieces = code::pieces(&self.config.shape, count, &content);
            if broken(Broken::ResyncCopiesFirst) && self.config.shape.level == Level::Fragments {
                let first = pieces[0].clone();
                pieces.fill(first);
            }
            for member in self.config.live().filter(|member| !got.contains_key(member)) {
                writes.push((member, Io::Write(block, pieces[usize::from(member.0)].clone())));
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
        if let Io::Read(block) = io {
            job.got.entry(block).or_default().insert(member, bytes);
        }
    }

    fn finish_job(&mut self, region: Region) {
        self.job = None;
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
