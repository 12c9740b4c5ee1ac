//! The commands of an operator: a report of the reign, an eviction.

use std::collections::BTreeSet;

use super::{Action, Coordinator, Role};
use crate::ids::{ClientId, Incarnation, Ms, Region};
use crate::record::{self, Mark};
use crate::session::{Joined, Report};

/// Why an eviction did not begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotEvicted {
    /// Another candidate leads, or none.
    Standby,
    /// This coordinator has just taken over, and does not know the clients yet.
    TakingOver,
    /// No client of this id has ever joined.
    NeverJoined,
}

impl Coordinator {
    /// The state of the reign, or whether it hears a leader.
    pub fn report(&self) -> Report {
        let Role::Leading(leader) = &self.role else {
            let recent = |at| self.now.saturating_sub(at) <= self.timing.takeover_ms;
            return Report { led: self.led_ms.is_some_and(recent), ..Report::default() };
        };
        let marks = &leader.commit.marks;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let held = |client| {
            let all = marks.range(..Mark::Unsync(Region(0)));
            all.filter(|mark| matches!(**mark, Mark::Held(_, id, _) if id == client)).count()
        };
        let clients = leader.sessions.iter().map(|(&client, session)| Joined {
            client,
            incarnation: session.incarnation,
            silent_ms: leader.now.saturating_sub(session.heard_ms),
            regions: count(held(client)),
        });
        let stale = leader.config.members();
        let stale = stale.map(|member| count(record::stale(marks, member).count()));
        let undeclared: BTreeSet<ClientId> =
            leader.inherited.iter().map(|&(client, _)| client).collect();
        Report {
            term: Some(leader.term),
            led: leader.can_serve(),
            active: leader.is_active() && leader.hears_enough(),
            config: Some(leader.config.clone()),
            clients: clients.collect(),
            undeclared: undeclared.into_iter().collect(),
            later: leader.later(),
            evicting: leader.evictions.keys().copied().collect(),
            unsync: count(record::unsync(marks).count()),
            stale: stale.collect(),
            others: leader.others(),
            resyncing: leader.job_region(),
            holes: count(leader.holes().len()),
        }
    }

    /// Accepts that blocks may be garbage in the regions of which nobody can tell, on the members
    /// that are not in sync there; returns these regions. They are resynced, and served again.
    pub fn accept_loss(&mut self, now: Ms, out: &mut Vec<Action>) -> Vec<Region> {
        let now = self.read_clock(now);
        let Role::Leading(leader) = &mut self.role else { return Vec::new() };
        let holes = leader.holes();
        leader.accepted.extend(holes.iter().copied());
        if !holes.is_empty() {
            leader.tick(now, out);
            self.after(out);
        }
        holes.into_iter().collect()
    }

    /// Starts to evict all incarnations of a client so far; [`Action::Evicted`] tells the end.
    /// Returns the last of them.
    ///
    /// Each call fences a higher incarnation, even if all were fenced before. Only so are late
    /// answers to an earlier fence no answers to this one: a coordinator that was replaced without
    /// its knowledge could take a client for fenced that has joined its successor.
    ///
    /// # Errors
    /// If this coordinator can evict nobody now, or no client of this id has ever joined: each join
    /// leaves a mark.
    pub fn evict(
        &mut self,
        now: Ms,
        client: ClientId,
        out: &mut Vec<Action>,
    ) -> Result<Incarnation, NotEvicted> {
        let now = self.read_clock(now);
        let Role::Leading(leader) = &mut self.role else { return Err(NotEvicted::Standby) };
        if leader.reading.is_some() {
            return Err(NotEvicted::TakingOver);
        }
        let held = leader.commit.marks.iter().filter_map(|mark| match *mark {
            Mark::Held(_, id, incarnation) if id == client => Some(incarnation),
            _ => None,
        });
        let joined = leader.sessions.get(&client).map(|session| session.incarnation);
        // A join evicts all earlier incarnations first, so that no later one than the next was ever
        // let in. That one may be alive: not heard yet in this reign, or for longer than its lease.
        let evicted = record::evicted(&leader.commit.marks, client);
        let unheard = evicted.map(Incarnation::next);
        let upto = held.chain(joined).chain(unheard).max().ok_or(NotEvicted::NeverJoined)?;
        leader.evict(client, upto, None);
        leader.tick(now, out);
        self.after(out);
        Ok(upto)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::config::{Config, Level, Mode, Shape, Slot, State};
    use crate::coordinator::leader::Leader;
    use crate::coordinator::{Event, MOST_WAITS};
    use crate::decisions::{Outcome, Request, Value, Version};
    use crate::ids::{ArrayId, BootId, CandidateId, Epoch, MemberId, Term};
    use crate::message::{Answer, FromMember};
    use crate::timing::Timing;

    /// A coordinator that the candidate does not hear probes member 0 until it dies. Then the
    /// candidate takes over without more delay.
    #[test]
    fn a_candidate_hears_the_coordinator_through_a_member() {
        let timing = Timing::DEFAULT;
        let mut one = Coordinator::start(CandidateId(1), 3, timing, 0);
        let (dead_ms, patience) = (60_000, timing.takeover_ms * 3 / 2);
        for now in (0..).step_by(500) {
            let out = &mut Vec::new();
            let answer = Answer::Deposed(Term(7), now.min(dead_ms));
            let message = FromMember::Control(Term(0), BootId(1), answer);
            one.handle(now, Event::Member(MemberId(0), message), out);
            one.tick(now, out);
            assert_eq!(!asks(out).is_empty(), now > dead_ms + patience, "after {now} ms");
            if !asks(out).is_empty() {
                return;
            }
        }
    }

    /// Ticks from one time to the other: a coordinator that stood still has not heard silence.
    fn tick(one: &mut Coordinator, times: Range<Ms>, out: &mut Vec<Action>) {
        let tick_ms = Timing::DEFAULT.tick_ms as usize;
        times.step_by(tick_ms).for_each(|now| one.tick(now, out));
    }

    fn asks(out: &[Action]) -> Vec<&Request> {
        let requests = out.iter().filter_map(|action| match action {
            Action::Store(_, request) => Some(request),
            _ => None,
        });
        requests.collect()
    }

    /// A candidate whose host was cut off hears nobody, and elects in vain. When the store answers
    /// again, the coordinator of the others is alive and must not be replaced.
    #[test]
    fn a_candidate_that_was_cut_off_listens_before_it_elects() {
        let (timing, out) = (Timing::DEFAULT, &mut Vec::new());
        let mut one = Coordinator::start(CandidateId(0), 3, timing, 0);
        let end = 60_000;
        tick(&mut one, 0..end, out);
        assert!(asks(out).len() > 10 && asks(out).iter().all(|it| **it == Request::Read));
        let (level, mode) = (Level::Mirror, Mode::Shared);
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }];
        let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
        let value = Value { term: Term(7), leader: CandidateId(1), config };
        let answer = |one: &mut Coordinator, now| {
            let (number, out) = (one.asked, &mut Vec::new());
            one.handle(now, Event::Store(number, Outcome::Done(Version(1), value.clone())), out);
            out.clone()
        };
        assert!(asks(&answer(&mut one, end)).is_empty(), "it listens");
        out.clear();
        one.handle(end + 100, Event::Beat(Term(7)), out);
        let alive = FromMember::Control(Term(0), BootId(1), Answer::Alive(Epoch(1)));
        let alive = Event::Member(MemberId(0), alive);
        one.handle(end + 100, alive.clone(), out);
        tick(&mut one, end..end + timing.takeover_ms, out);
        assert!(asks(out).is_empty(), "it hears the coordinator");
        let late = end + timing.takeover_ms + 400;
        tick(&mut one, end + timing.takeover_ms..late, out);
        assert_eq!(asks(out), [&Request::Read], "it hears nobody any more");
        one.handle(late, alive, out);
        assert!(matches!(asks(&answer(&mut one, late + 1))[..], [Request::Cas(..)]));
    }

    /// Another candidate may hear more members. Somebody has to lead in the end.
    #[test]
    fn a_candidate_that_hears_too_few_members_leaves_the_lead_to_others() {
        let timing = Timing::DEFAULT;
        let (level, mode) = (Level::Fragments, Mode::Shared);
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 3];
        let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
        let value = Value { term: Term(7), leader: CandidateId(1), config };
        let left_ms = MOST_WAITS * timing.takeover_ms;
        for (heard, elects_ms) in [(2, 0..5000), (1, left_ms..left_ms + 10_000)] {
            let mut one = Coordinator::start(CandidateId(0), 3, timing, 0);
            let elects = (0..2 * left_ms).step_by(200).find(|&now| {
                let out = &mut Vec::new();
                for member in (0..heard).map(MemberId) {
                    let alive = FromMember::Control(Term(0), BootId(1), Answer::Alive(Epoch(1)));
                    one.handle(now, Event::Member(member, alive), out);
                }
                one.tick(now, out);
                let done = Outcome::Done(Version(1), value.clone());
                one.handle(now, Event::Store(one.asked, done), out);
                asks(out).iter().any(|request| matches!(request, Request::Cas(..)))
            });
            assert!(elects.is_some_and(|at| elects_ms.contains(&at)), "{heard}: {elects:?}");
        }
    }

    #[test]
    fn an_election_ends_when_a_coordinator_is_heard() {
        let (timing, out) = (Timing::DEFAULT, &mut Vec::new());
        let mut one = Coordinator::start(CandidateId(0), 3, timing, 0);
        let heard = timing.takeover_ms + 400;
        tick(&mut one, 0..heard, out);
        assert_eq!(asks(out).len(), 1);
        one.handle(heard, Event::Beat(Term(7)), out);
        tick(&mut one, heard..heard + timing.store_ms, out);
        assert_eq!(asks(out).len(), 1, "no further request");
    }

    #[test]
    fn an_earlier_term_is_not_heard() {
        let timing = Timing::DEFAULT;
        let mut one = Coordinator::start(CandidateId(1), 3, timing, 0);
        one.handle(0, Event::Beat(Term(7)), &mut Vec::new());
        let mut out = Vec::new();
        for now in (0..2 * timing.takeover_ms).step_by(200) {
            let answer = Answer::Deposed(Term(6), now);
            let message = FromMember::Control(Term(0), BootId(1), answer);
            one.handle(now, Event::Member(MemberId(0), message), &mut out);
            one.tick(now, &mut out);
        }
        assert!(!asks(&out).is_empty(), "it takes over");
    }

    /// A client joined as incarnation 5, which put the eviction of 4 on record, and fell silent
    /// without a region. It may come back, so it must be fenced.
    #[test]
    fn a_client_that_nobody_hears_is_evicted() {
        let (level, mode) = (Level::Mirror, Mode::Shared);
        let shape = Shape { level, regions: 1, region_blocks: 1, piece_bytes: 1, mode };
        let slots = vec![Slot { state: State::InSync, boot: BootId(1) }];
        let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
        let mut leader = Leader::new(Term(2), Timing::DEFAULT, 0, Version(1), config, 8);
        leader.reading = None;
        let client = ClientId(1);
        leader.commit.record(true, Mark::Evicted(client, Incarnation(4)));
        let mut coordinator = Coordinator::start(CandidateId(0), 3, Timing::DEFAULT, 0);
        let mut out = Vec::new();
        assert_eq!(coordinator.evict(1, client, &mut out), Err(NotEvicted::Standby));
        let mut new =
            Leader::new(Term(3), Timing::DEFAULT, 0, Version(1), leader.config.clone(), 8);
        new.commit.record(true, Mark::Evicted(client, Incarnation(4)));
        coordinator.role = Role::Leading(Box::new(new));
        assert_eq!(coordinator.evict(1, client, &mut out), Err(NotEvicted::TakingOver));
        coordinator.role = Role::Leading(Box::new(leader));
        assert_eq!(coordinator.evict(1, client, &mut out), Ok(Incarnation(5)));
        let again = coordinator.evict(1, client, &mut out);
        assert_eq!(again, Ok(Incarnation(6)), "answers to the first fence do not count");
        let unknown = coordinator.evict(1, ClientId(2), &mut out);
        assert_eq!(unknown, Err(NotEvicted::NeverJoined));
    }
}
