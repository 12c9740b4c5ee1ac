//! The region table: who holds which region, who waits.
//!
//! ```text
//!              shared W   exclusive X   resync
//!   shared W      yes         no          no       unsync: resync first, whoever waits
//!   exclusive X   no          no          no
//! ```
//!
//! Every holder has a mark of its own in the log, also the second one of a region that is dirty
//! already. A region that must become free is *drained*: the holders flush and release. One that
//! does not answer is evicted; a timeout alone never frees a region.
//!
//! While the log has no room for a mark (`room`), requests wait in the order of their arrival, and
//! the regions that are held longest must become free. Idle ones come back without being asked.
//!
//! At levels 5 and 6 a region may have a *hole* (`resync`): who waits for it is refused.
//!
//! Invariants: a grant is given only after its mark is durable on all live members. Until every
//! holder of an earlier reign has declared itself or is evicted, no mark is cleared, and no region
//! in the log is granted.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Action;
use super::commit::Effect;
use super::leader::Leader;
use crate::broken::{Broken, broken};
use crate::config::{Mode, State};
use crate::ids::{ClientId, GrantId, Incarnation, Ms, Region};
use crate::message::{Claim, ToClient};
use crate::record::{self, Mark};

/// A grant.
pub(super) struct Holder {
    pub(super) incarnation: Incarnation,
    pub(super) grant: GrantId,
    /// Durable, and therefore given.
    logged: bool,
    /// Its turn; 0 if an earlier reign gave it.
    since: u64,
}

/// A client that waits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Waiter {
    client: ClientId,
    incarnation: Incarnation,
    grant: GrantId,
    /// Its turn.
    since: u64,
}

/// A region with holders or waiters.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) holders: BTreeMap<ClientId, Holder>,
    queue: VecDeque<Waiter>,
    /// Since when the holders are asked to release it.
    draining_ms: Option<Ms>,
}

impl Leader {
    pub(super) fn want(
        &mut self,
        client: ClientId,
        incarnation: Incarnation,
        region: Region,
        grant: GrantId,
        out: &mut Vec<Action>,
    ) {
        let joined =
            self.sessions.get(&client).is_some_and(|session| session.incarnation == incarnation);
        let declared = !self.inherited.contains(&(client, incarnation));
        if !joined || !declared || region.0 >= self.config.shape.regions {
            return;
        }
        self.turns += 1;
        let entry = self.regions.entry(region).or_default();
        if let Some(holder) = entry.holders.get(&client) {
            // A copy, or an answer that was lost. An old number makes the client give it back.
            if holder.logged {
                let message = ToClient::Grant(region, holder.grant);
                self.say((client, incarnation), message, out);
            }
            return;
        }
        let waiter = Waiter { client, incarnation, grant, since: self.turns };
        match entry.queue.iter_mut().find(|waiter| waiter.client == client) {
            Some(found) if found.grant < grant => *found = Waiter { since: found.since, ..waiter },
            Some(_) => {}
            None => entry.queue.push_back(waiter),
        }
        self.waited.insert(region);
    }

    /// Forgets what the client waits for.
    pub(super) fn forget_waiter(&mut self, client: ClientId) {
        for region in &self.waited {
            if let Some(entry) = self.regions.get_mut(region) {
                entry.queue.retain(|waiter| waiter.client != client);
            }
        }
    }

    /// Forgets regions without holders and waiters.
    pub(super) fn tidy(&mut self) {
        self.regions.retain(|_, entry| !entry.holders.is_empty() || !entry.queue.is_empty());
    }

    /// Grants whatever can be granted, in the order of arrival: there may not be room for all.
    pub(super) fn admit(&mut self, out: &mut Vec<Action>) {
        let first = |region: &Region| Some(self.regions.get(region)?.queue.front()?.since);
        let turns = self.waited.iter().map(|&region| (first(&region), region));
        let mut turns: Vec<(Option<u64>, Region)> = turns.collect();
        turns.sort_unstable();
        for (_, region) in turns {
            if self.is_holed(region) {
                self.refuse(region, out);
            }
            while self.may_admit(region) {
                let entry = self.regions.get_mut(&region).expect("it was listed");
                let waiter = entry.queue.pop_front().expect("somebody waits");
                self.grant(region, waiter, out);
            }
            if !self.is_waited_for(region) {
                self.waited.remove(&region);
            }
        }
    }

    /// Refuses everybody who waits: nothing that happens by itself would end this.
    fn refuse(&mut self, region: Region, out: &mut Vec<Action>) {
        let Some(entry) = self.regions.get_mut(&region) else { return };
        for Waiter { client, incarnation, grant, .. } in std::mem::take(&mut entry.queue) {
            self.say((client, incarnation), ToClient::Refused(region, grant), out);
        }
    }

    fn may_admit(&self, region: Region) -> bool {
        let marks = &self.commit.marks;
        let is_held = || record::held(marks, region).next().is_some();
        let exclusive = self.config.shape.mode == Mode::Exclusive;
        if !self.is_waited_for(region) || marks.contains(&Mark::Unsync(region)) {
            return false;
        }
        let ignored = broken(Broken::RoomIgnored) || broken(Broken::FullLogDrops);
        if !self.commit.has_room() && !ignored {
            return false;
        }
        if self.job_region() == Some(region) && !broken(Broken::ResyncIgnoresHolders) {
            return false;
        }
        if exclusive && !broken(Broken::ExclusiveShared) {
            // A mark without a holder is one of a client that is not fenced yet.
            return self.inherited.is_empty() && !is_held();
        }
        self.inherited.is_empty() || !is_held()
    }

    fn grant(&mut self, region: Region, waiter: Waiter, out: &mut Vec<Action>) {
        let Waiter { client, incarnation, grant, .. } = waiter;
        self.turns += 1;
        let since = self.turns;
        let entry = self.regions.entry(region).or_default();
        let second = !entry.holders.is_empty() && broken(Broken::SecondHolderUnlogged);
        let early = second || broken(Broken::GrantsBeforeDurable);
        entry.holders.insert(client, Holder { incarnation, grant, logged: early, since });
        // The last holder's time is not this one's.
        entry.draining_ms = None;
        if early {
            self.say((client, incarnation), ToClient::Grant(region, grant), out);
        }
        if second {
            return;
        }
        self.commit.record(true, Mark::Held(region, client, incarnation));
        let active = self.raised == Some(self.config.epoch);
        for member in self.config.members() {
            let misses = match self.config.slot(member).state {
                State::InSync => false,
                // Until it is raised everywhere, clients of the last epoch write without it.
                State::Rebuilding => !active,
                State::Missing => true,
            };
            if misses && !broken(Broken::StaleForgotten) {
                self.commit.record(true, Mark::Stale(member, region));
            }
        }
        self.commit.then(Effect::Grant(region, (client, incarnation), grant));
    }

    /// The grant's mark is durable. False if it was withdrawn meanwhile.
    pub(super) fn logged(&mut self, region: Region, client: ClientId, grant: GrantId) -> bool {
        let entry = self.regions.get_mut(&region);
        let holder = entry.and_then(|entry| entry.holders.get_mut(&client));
        holder.filter(|holder| holder.grant == grant).is_some_and(|holder| {
            holder.logged = true;
            true
        })
    }

    pub(super) fn released(
        &mut self,
        client: ClientId,
        incarnation: Incarnation,
        (region, grant): (Region, GrantId),
        out: &mut Vec<Action>,
    ) {
        if !self.inherited.is_empty() {
            return;
        }
        let entry = self.regions.get_mut(&region);
        let holder = entry.as_ref().and_then(|entry| entry.holders.get(&client));
        let Some(holder) = holder.filter(|holder| holder.grant == grant) else {
            self.say((client, incarnation), ToClient::Released(region, grant), out);
            return;
        };
        if holder.incarnation != incarnation || !holder.logged {
            return;
        }
        entry.expect("it has a holder").holders.remove(&client);
        let last = !self.regions[&region].holders.is_empty();
        if last && broken(Broken::FirstReleaseCleans) {
            let all: Vec<Mark> = record::held(&self.commit.marks, region).collect();
            all.into_iter().for_each(|mark| self.commit.record(false, mark));
        }
        self.commit.record(false, Mark::Held(region, client, incarnation));
        self.commit.then(Effect::Released(region, (client, incarnation), grant));
    }

    /// A holder of an earlier reign says which of its grants it still has.
    pub(super) fn declare(&mut self, client: ClientId, incarnation: Incarnation, held: &[Claim]) {
        if !self.inherited.remove(&(client, incarnation)) {
            return;
        }
        for mark in self.commit.marks.clone() {
            let Mark::Held(region, id, of) = mark else { continue };
            if (id, of) != (client, incarnation) {
                continue;
            }
            match held.iter().find(|claim| claim.region == region) {
                Some(&Claim { grant, .. }) => {
                    let holder = Holder { incarnation, grant, logged: true, since: 0 };
                    self.regions.entry(region).or_default().holders.insert(client, holder);
                }
                // Released and flushed, or never given: grants of the earlier term are void.
                None => self.unclaimed.push(mark),
            }
        }
    }

    /// Repeats grants that the client does not know of: it takes them or gives them back. A late
    /// copy of a request would otherwise leave a grant behind for ever.
    pub(super) fn remind(
        &self,
        host: (ClientId, Incarnation),
        held: &[Claim],
        out: &mut Vec<Action>,
    ) {
        let held: BTreeSet<&Claim> = held.iter().collect();
        for (&region, entry) in &self.regions {
            let Some(holder) = entry.holders.get(&host.0) else { continue };
            let known = held.contains(&Claim { region, grant: holder.grant });
            if holder.logged && holder.incarnation == host.1 && !known {
                self.say(host, ToClient::Grant(region, holder.grant), out);
            }
        }
    }

    /// Once all holders are known, clears the marks that nobody claims.
    pub(super) fn clear_unclaimed(&mut self) {
        if self.inherited.is_empty() {
            for mark in std::mem::take(&mut self.unclaimed) {
                self.commit.record(false, mark);
            }
        }
    }

    /// Regions that must become free.
    fn wanted_free(&self) -> BTreeSet<Region> {
        let unsync = record::unsync(&self.commit.marks);
        let exclusive = self.config.shape.mode == Mode::Exclusive;
        let waited = self.waited.iter().copied().filter(|_| exclusive);
        unsync.chain(waited).chain(self.job_region()).chain(self.longest_held()).collect()
    }

    /// True if requests wait for room in the log.
    pub(super) fn lacks_room(&self) -> bool {
        !self.commit.has_room() && !self.waited.is_empty()
    }

    /// The regions held longest: one for each request, if these wait for room.
    fn longest_held(&self) -> impl Iterator<Item = Region> {
        let mut held = Vec::new();
        if self.lacks_room() {
            let first = |entry: &Entry| entry.holders.values().map(|holder| holder.since).min();
            let all = self.regions.iter();
            held.extend(all.filter_map(|(&region, entry)| Some((first(entry)?, region))));
            held.sort_unstable();
            let queues = self.waited.iter().filter_map(|region| self.regions.get(region));
            held.truncate(queues.map(|entry| entry.queue.len()).sum());
        }
        held.into_iter().map(|(_, region)| region)
    }

    /// True if somebody waits for the region.
    pub(super) fn is_waited_for(&self, region: Region) -> bool {
        self.regions.get(&region).is_some_and(|entry| !entry.queue.is_empty())
    }

    /// Asks the holders of regions that must become free; evicts those that do not answer, although
    /// all live members do: without these nobody can flush.
    pub(super) fn request_drains(&mut self, out: &mut Vec<Action>) {
        let wanted = self.wanted_free();
        let possible = self.hears_all() || broken(Broken::DrainsInVain);
        let active = self.is_active() && self.inherited.is_empty();
        let (now, timeout) = (self.now, self.timing.drain_ms);
        let mut messages = Vec::new();
        let mut late = BTreeSet::new();
        for (&region, entry) in &mut self.regions {
            if !wanted.contains(&region) || !active || entry.holders.is_empty() {
                entry.draining_ms = None;
                continue;
            }
            let since = match entry.draining_ms {
                Some(since) if possible => since,
                _ => now,
            };
            entry.draining_ms = Some(since);
            for (&client, holder) in &entry.holders {
                let to = (client, holder.incarnation);
                messages.push((to, ToClient::Drain(region, holder.grant)));
                if now.saturating_sub(since) > timeout {
                    late.insert((client, holder.incarnation));
                }
            }
        }
        messages.into_iter().for_each(|(to, message)| self.say(to, message, out));
        late.into_iter().for_each(|(client, incarnation)| self.evict(client, incarnation, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Level, Shape, Slot};
    use crate::decisions::Version;
    use crate::ids::{ArrayId, BootId, Epoch, Term};
    use crate::timing::Timing;

    /// Clients hand a region on all the time, each long before its drain is late. None of them may
    /// be evicted, however long there is always another one that waits.
    #[test]
    fn a_new_holder_has_all_the_time_to_release() {
        let (region, mode) = (Region(0), Mode::Exclusive);
        let shape =
            Shape { level: Level::Mirror, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }];
        let (array, epoch) = (ArrayId(1), Epoch(1));
        let config = Config { array, epoch, shape, slots };
        let mut leader = Leader::new(Term(2), Timing::DEFAULT, 0, Version(1), config, 8);
        leader.raised = Some(epoch);
        leader.waited.insert(region);
        let waiter = |number: u64| Waiter {
            client: ClientId(number as u32 % 2),
            incarnation: Incarnation(1),
            grant: GrantId(number),
            since: number,
        };
        for number in 0..10 {
            let out = &mut Vec::new();
            leader.grant(region, waiter(number), out);
            let entry = leader.regions.get_mut(&region).expect("it has a holder");
            entry.queue = VecDeque::from([waiter(number + 1)]);
            leader.request_drains(out);
            leader.now += leader.timing.drain_ms / 2;
            leader.request_drains(out);
            let entry = leader.regions.get_mut(&region).expect("it has a holder");
            entry.holders.clear();
        }
        assert!(leader.evictions.is_empty());
        // One that keeps it is late.
        leader.grant(region, waiter(0), &mut Vec::new());
        leader.request_drains(&mut Vec::new());
        leader.now += leader.timing.drain_ms + 1;
        leader.request_drains(&mut Vec::new());
        assert!(leader.evictions.is_empty(), "it cannot flush: the member does not answer");
        leader.now += leader.timing.drain_ms + 1;
        leader.watches[0].heard_ms = Some(leader.now);
        leader.request_drains(&mut Vec::new());
        assert_eq!(leader.evictions.len(), 1);
    }
}
