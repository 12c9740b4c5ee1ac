//! Evictions: on record, fenced at every live member, then the regions are UNSYNC.
//!
//! ```text
//!   evict ──▶ +Evicted durable ──▶ Fence ──▶ all live members: durable, drained ──▶ −Held +Unsync
//!                                                                                      │ durable
//!                       join of the next incarnation, fence agent ◀────────────────────┘
//! ```
//!
//! A timeout only starts this. The client's regions become free when no request of it can change
//! a member any more. Every join evicts all earlier incarnations of the client first: a host that
//! restarted cannot say which of its old requests are still on their way.
//!
//! Invariant: no region that an evicted client held is granted exclusively or resynced before all
//! live members have answered the fence.

use std::collections::{BTreeMap, BTreeSet};

use super::Action;
use super::commit::Effect;
use super::grants::Holder;
use super::leader::{Leader, Session};
use crate::broken::{Broken, broken};
use crate::ids::{ClientId, Epoch, Incarnation, MemberId};
use crate::message::{Order, ToClient};
use crate::record::{self, Mark};
use crate::room;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Logging,
    Fencing,
    Clearing,
}

pub(super) struct Eviction {
    /// Incarnations up to this one.
    upto: Incarnation,
    stage: Stage,
    fenced: BTreeSet<MemberId>,
    /// The incarnation that waits to join.
    joiner: Option<Incarnation>,
}

impl Leader {
    pub(super) fn join(
        &mut self,
        client: ClientId,
        incarnation: Incarnation,
        out: &mut Vec<Action>,
    ) {
        let Some(earlier) = incarnation.0.checked_sub(1).map(Incarnation) else { return };
        match self.sessions.get_mut(&client) {
            Some(session) if session.incarnation == incarnation => {
                session.heard_ms = self.now;
                if self.raised == Some(self.config.epoch) {
                    let config = ToClient::Config(self.config.clone());
                    self.say((client, incarnation), config, out);
                }
            }
            Some(session) if session.incarnation > incarnation => {
                let least = session.incarnation;
                self.say((client, incarnation), ToClient::Evicted(least), out);
            }
            // Its mark and its fence stay for ever.
            _ if record::evicted(&self.commit.marks, client).is_none()
                && record::clients(&self.commit.marks) >= room::MOST_CLIENTS => {}
            _ => self.evict(client, earlier, Some(incarnation)),
        }
    }

    pub(super) fn evict(
        &mut self,
        client: ClientId,
        upto: Incarnation,
        joiner: Option<Incarnation>,
    ) {
        if let Some(eviction) = self.evictions.get_mut(&client) {
            eviction.joiner = eviction.joiner.max(joiner);
            if eviction.upto >= upto {
                return;
            }
        }
        let waits = self.evictions.get(&client).and_then(|eviction| eviction.joiner);
        if let Some(old) = record::evicted(&self.commit.marks, client)
            && old < upto
        {
            self.commit.record(false, Mark::Evicted(client, old));
        }
        self.commit.record(true, Mark::Evicted(client, upto));
        self.commit.then(Effect::Fence(client));
        self.forget_waiter(client);
        if self.sessions.get(&client).is_some_and(|session| session.incarnation <= upto) {
            self.sessions.remove(&client);
        }
        let joiner = waits.max(joiner);
        let (stage, fenced) = (Stage::Logging, BTreeSet::new());
        self.evictions.insert(client, Eviction { upto, stage, fenced, joiner });
    }

    pub(super) fn start_fencing(&mut self, client: ClientId, out: &mut Vec<Action>) {
        if let Some(eviction) = self.evictions.get_mut(&client) {
            if eviction.stage == Stage::Logging {
                eviction.stage = Stage::Fencing;
            }
            self.fence_again(out);
        }
    }

    /// Sends each fence to the members that have not answered it.
    pub(super) fn fence_again(&mut self, out: &mut Vec<Action>) {
        let fencing = |eviction: &&Eviction| eviction.stage == Stage::Fencing;
        for (&client, eviction) in &self.evictions {
            let Some(eviction) = Some(eviction).filter(fencing) else { continue };
            let least = eviction.upto.next();
            for member in self.config.live().filter(|member| !eviction.fenced.contains(member)) {
                self.order(member, Order::Fence(client, least), out);
            }
        }
    }

    pub(super) fn fenced(&mut self, member: MemberId, client: ClientId, least: Incarnation) {
        if let Some(eviction) = self.evictions.get_mut(&client)
            && eviction.upto.next() <= least
        {
            eviction.fenced.insert(member);
        }
    }

    /// Frees the regions of clients that every live member has fenced.
    pub(super) fn advance_evictions(&mut self, out: &mut Vec<Action>) {
        let ready = |eviction: &Eviction| {
            let fenced = self.config.live().all(|member| eviction.fenced.contains(&member));
            let skip = broken(Broken::EvictsUnfenced);
            eviction.stage == Stage::Fencing && (fenced || skip)
        };
        let ready: Vec<ClientId> = self
            .evictions
            .iter()
            .filter(|(_, eviction)| ready(eviction))
            .map(|(&client, _)| client)
            .collect();
        for client in ready {
            let eviction = self.evictions.get_mut(&client).expect("it was listed");
            eviction.stage = Stage::Clearing;
            let upto = eviction.upto;
            self.clear_holder(client, upto);
            self.commit.then(Effect::Evicted(client));
        }
        self.next_batch(out);
    }

    fn clear_holder(&mut self, client: ClientId, upto: Incarnation) {
        for mark in self.commit.marks.clone() {
            let Mark::Held(region, id, incarnation) = mark else { continue };
            if id != client || incarnation > upto || broken(Broken::DeadHolderKept) {
                continue;
            }
            if !broken(Broken::EvictForgetsUnsync) {
                self.commit.record(true, Mark::Unsync(region));
            }
            self.commit.record(false, mark);
            if let Some(entry) = self.regions.get_mut(&region) {
                let evicted = |holder: &Holder| holder.incarnation <= upto;
                if entry.holders.get(&client).is_some_and(evicted) {
                    entry.holders.remove(&client);
                }
            }
        }
        self.inherited.retain(|&(id, incarnation)| id != client || incarnation > upto);
        // A later incarnation's marks stay: it has declared that it does not hold them, and nobody
        // else clears them.
        self.unclaimed.retain(|mark| {
            !matches!(*mark, Mark::Held(_, id, incarnation) if id == client && incarnation <= upto)
        });
    }

    pub(super) fn finish_eviction(&mut self, client: ClientId, out: &mut Vec<Action>) {
        let clearing = |eviction: &&Eviction| eviction.stage == Stage::Clearing;
        let Some(&Eviction { upto, joiner, .. }) = self.evictions.get(&client).filter(clearing)
        else {
            return;
        };
        self.evictions.remove(&client);
        out.push(Action::Evicted(client, upto));
        if let Some(incarnation) = joiner.filter(|&joiner| joiner > upto) {
            let (heard_ms, epoch, complaints) = (self.now, Epoch(0), BTreeMap::new());
            let session = Session { incarnation, heard_ms, epoch, complaints };
            self.sessions.insert(client, session);
            self.join(client, incarnation, out);
        } else {
            self.say((client, upto), ToClient::Evicted(upto.next()), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Level, Mode, Shape};
    use crate::decisions::Version;
    use crate::ids::{ArrayId, Epoch, Region, Term};
    use crate::timing::Timing;

    /// After a takeover a client declared that it no longer holds a region. Then a late copy of its
    /// join evicts its earlier incarnation. The mark of the region must still be cleared, or the
    /// region could never be resynced.
    #[test]
    fn an_eviction_leaves_the_marks_of_later_incarnations() {
        let (client, other) = (ClientId(0), (ClientId(1), Incarnation(1)));
        let (level, mode) = (Level::Mirror, Mode::Shared);
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let (array, epoch, slots) = (ArrayId(1), Epoch(1), Vec::new());
        let config = Config { array, epoch, shape, slots };
        let mut leader = Leader::new(Term(2), Timing::DEFAULT, 0, Version(1), config, 1);
        let mark = Mark::Held(Region(0), client, Incarnation(2));
        leader.commit.record(true, mark);
        leader.inherited.extend([(client, Incarnation(2)), other]);
        leader.declare(client, Incarnation(2), &[]);
        leader.clear_holder(client, Incarnation(1));
        assert!(leader.commit.marks.contains(&mark), "another holder is not known yet");
        leader.inherited.clear();
        leader.clear_unclaimed();
        assert!(!leader.commit.marks.contains(&mark), "no client holds the region");
    }
}
