//! Group commit of the grant log.
//!
//! ```text
//!   change ──▶ pending ──▶ batch ──▶ all live members ──▶ effects: grants, answers
//!               gathers     one at a time
//! ```
//!
//! While one batch is on its way, the next one gathers. `marks` already contains all of it: every
//! decision of the leader looks there, and batches are durable in the same order.
//!
//! A member whose log is of an earlier reign, or too old, gets the whole log (`Install`), which
//! truncates it as well.
//!
//! Invariant: an effect happens only when every live member has its batch.

use std::collections::BTreeSet;

use super::Action;
use super::leader::Leader;
use crate::broken::{Broken, broken};
use crate::ids::{ClientId, Epoch, GrantId, Incarnation, MemberId, Region, Term};
use crate::message::{Order, ToClient};
use crate::record::{self, Log, Mark, Position, Record};
use crate::room;

/// Longer batches are sent as whole logs: a message is bounded.
const MOST_RECORDS: usize = 1 << 16;

/// Done once its batch is durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    Grant(Region, (ClientId, Incarnation), GrantId),
    Released(Region, (ClientId, Incarnation), GrantId),
    /// The eviction is on record: fence the client.
    Fence(ClientId),
    /// Its grants are replaced by UNSYNC.
    Evicted(ClientId),
    Resynced(Region),
    /// The batch of stale marks for a blank disk, of this epoch.
    Stale(MemberId, Epoch),
}

pub(super) struct Commit {
    /// All changes so far.
    pub(super) marks: BTreeSet<Mark>,
    /// Those that are counted, and those whose clearing is not durable; the most of them (`room`).
    taken: usize,
    most: usize,
    /// The log with the last batch that was sent.
    sent: Log,
    /// The batch on its way.
    batch: Option<(Vec<Record>, Vec<Effect>)>,
    pending: Vec<Record>,
    effects: Vec<Effect>,
}

impl Commit {
    /// A reign starts with the marks of the takeover.
    pub(super) fn new(term: Term, marks: BTreeSet<Mark>, most: usize) -> Commit {
        let sent = Log { at: Position { term, seq: 0 }, marks: marks.clone() };
        let taken = marks.iter().filter(|&&mark| room::is_counted(mark)).count();
        let (pending, effects) = (Vec::new(), Vec::new());
        Commit { marks, taken, most, sent, batch: None, pending, effects }
    }

    /// True if one more grant has room.
    pub(super) fn has_room(&self) -> bool {
        self.taken < self.most
    }

    /// Changes a mark.
    pub(super) fn record(&mut self, set: bool, mark: Mark) {
        let counted = room::is_counted(mark);
        if set && counted && !self.has_room() && broken(Broken::FullLogDrops) {
            return;
        }
        let changed = if set { self.marks.insert(mark) } else { self.marks.remove(&mark) };
        if changed {
            self.pending.push(Record { set, mark });
            self.taken += usize::from(set && counted);
        }
        if changed && !set && counted && broken(Broken::RoomFreedEarly) {
            self.taken -= 1;
        }
    }

    /// The batch on its way is durable.
    fn finish(&mut self) -> Option<Vec<Effect>> {
        let (records, effects) = self.batch.take()?;
        let cleared = |record: &&Record| !record.set && room::is_counted(record.mark);
        if !broken(Broken::RoomFreedEarly) {
            self.taken -= records.iter().filter(cleared).count();
        }
        Some(effects)
    }

    /// Runs `effect` once all changes so far are durable.
    pub(super) fn then(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// True if no change of a grant of the region is on its way, and none is held.
    pub(super) fn is_free(&self, region: Region) -> bool {
        let held = |mark: &Mark| matches!(*mark, Mark::Held(of, ..) if of == region);
        let sent = self.batch.iter().flat_map(|(records, _)| records);
        let moving = self.pending.iter().chain(sent).any(|record| held(&record.mark));
        !moving && record::held(&self.marks, region).next().is_none()
    }
}

impl Leader {
    /// Sends a member the part of the log that it lacks.
    pub(super) fn feed(&mut self, member: MemberId, out: &mut Vec<Action>) {
        let Some(watch) = self.watch(member) else { return };
        let (at, sent) = (watch.at, self.commit.sent.at);
        if at >= sent || self.reading.is_some() {
            return;
        }
        let next = (Position { term: self.term, seq: at.seq + 1 }) == sent && at.term == self.term;
        let order = match &self.commit.batch {
            Some((records, _)) if next && records.len() <= MOST_RECORDS => {
                Order::Append(sent.seq, records.clone())
            }
            _ => Order::Install(self.commit.sent.clone()),
        };
        self.order(member, order, out);
    }

    /// True if the members have the log up to the last batch that was sent.
    pub(super) fn is_logged(&self, member: MemberId) -> bool {
        self.watches[usize::from(member.0)].at >= self.commit.sent.at
    }

    fn all_logged(&self) -> bool {
        let mut live = self.config.live();
        match broken(Broken::OneLogSuffices) {
            true => live.any(|member| self.is_logged(member)),
            false => live.all(|member| self.is_logged(member)),
        }
    }

    pub(super) fn finish_batch(&mut self, out: &mut Vec<Action>) {
        if !self.all_logged() {
            return;
        }
        let Some(effects) = self.commit.finish() else { return };
        for effect in effects {
            match effect {
                Effect::Grant(region, client, grant) => {
                    if self.logged(region, client.0, grant) {
                        self.say(client, ToClient::Grant(region, grant), out);
                    }
                }
                Effect::Released(region, client, grant) => {
                    self.say(client, ToClient::Released(region, grant), out);
                }
                Effect::Fence(client) => self.start_fencing(client, out),
                Effect::Evicted(client) => self.finish_eviction(client, out),
                Effect::Stale(member, epoch) => self.stale_is_durable(member, epoch),
                Effect::Resynced(region) => {
                    self.settling.remove(&region);
                }
            }
        }
    }

    pub(super) fn next_batch(&mut self, out: &mut Vec<Action>) {
        // Also the first batch: then the logs of members in sync differ by one batch at most.
        let logged = self.all_logged();
        let commit = &mut self.commit;
        let nothing = commit.pending.is_empty() && commit.effects.is_empty();
        if commit.batch.is_some() || nothing || !logged {
            return;
        }
        let records = std::mem::take(&mut commit.pending);
        let effects = std::mem::take(&mut commit.effects);
        let at = Position { seq: commit.sent.at.seq + 1, ..commit.sent.at };
        commit.sent.apply(at, &records);
        commit.batch = Some((records, effects));
        let live: Vec<MemberId> = self.config.live().collect();
        live.into_iter().for_each(|member| self.feed(member, out));
    }
}
