//! A candidate: stands by, takes over, leads.
//!
//! ```text
//!   Standby ── no beat for a while ──▶ Electing ── term + 1 by compare-and-set ──▶ Leading
//!      ▲                                  │ another candidate won                     │
//!      └──────────────────────────────────┴──── a higher term is in force ────────────┘
//! ```
//!
//! Two candidates may lead at once: one of them does not know yet that it is deposed. That is
//! harmless. A grant needs the answers of all live members, and a takeover raises the term on at
//! least one of those before it reads the grant log. A change of the membership needs the decision
//! store, whose version has moved on.
//!
//! | file | owns |
//! |---|---|
//! | `leader` | the state of a reign, dispatch and timers |
//! | `blank` | blank disks, and disks that were replaced |
//! | `commit` | batches of the grant log |
//! | `grants` | the region table |
//! | `eviction` | log, fence, then clear |
//! | `membership` | takeover, decide, raise, activate |
//! | `operator` | what an operator asks: the report, an eviction |
//! | `resync` | one region at a time: read, write, flush, clear |
//!
//! Invariant: a leader acts only on a configuration that it has read or written in the store under
//! its own term.

mod blank;
mod commit;
mod eviction;
mod grants;
mod leader;
mod membership;
mod operator;
mod resync;

pub use operator::NotEvicted;

use crate::broken::{Broken, broken};
use crate::decisions::{Outcome, Request, Value};
use crate::ids::{CandidateId, ClientId, Epoch, Incarnation, MemberId, Ms, Region, Term};
use crate::message::{FromClient, FromMember, ToClient, ToMember};
use crate::room;
use crate::timing::{RunClock, Timing};
use leader::Leader;

/// An input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message of a client.
    Client(ClientId, Incarnation, FromClient),
    /// A message of a member.
    Member(MemberId, FromMember),
    /// The outcome of the store request with this number.
    Store(u64, Outcome),
    /// Another candidate leads in this term.
    Beat(Term),
    /// A candidate that stands by has heard that one so many milliseconds ago; [`Term`] 0: nobody.
    /// Without this, two candidates that do not hear each other would replace each other for ever.
    Heard(Term, Ms),
}

/// An output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Send to a client's incarnation, under this term.
    Client(ClientId, Incarnation, Term, ToClient),
    /// Send to a member.
    Member(MemberId, ToMember),
    /// Ask the decision store.
    Store(u64, Request),
    /// Tell the other candidates who leads.
    Beat(Term),
    /// This client is fenced up to this incarnation: its locks may be broken (a fence agent waits
    /// for this).
    Evicted(ClientId, Incarnation),
}

enum Role {
    Standby,
    Electing(Option<Term>),
    Leading(Box<Leader>),
}

/// Most doublings of the time after which a leader steps down: about ten minutes.
const MOST_DOUBLINGS: u32 = 8;
/// Most doublings of the time after which a leader that was deposed elects again: about a minute.
const MOST_DEFERRALS: u32 = 2;

/// The state machine.
pub struct Coordinator {
    me: CandidateId,
    timing: Timing,
    most_marks: usize,
    clock: RunClock,
    /// On the run clock, as all other times here and in the reign.
    now: Ms,
    /// When a coordinator was last heard of.
    heard_ms: Ms,
    /// The coordinator heard without the help of others, and when.
    direct: Option<(Term, Ms)>,
    /// When its election began, on the local clock.
    elects_ms: Ms,
    /// The highest term heard of.
    floor: Term,
    /// When a candidate that stands by was last heard.
    standby_ms: Option<Ms>,
    /// Since when too few members answer this leader, and how often it has stepped down for that.
    cut_off_ms: Option<Ms>,
    step_downs: u32,
    /// Reigns in a row that another candidate ended, without an open epoch or within a lease.
    fruitless: u32,
    role: Role,
    /// The number of the last store request, and since when it has no answer.
    asked: u64,
    asked_ms: Option<Ms>,
}

impl Coordinator {
    /// A candidate that stands by.
    pub fn start(me: CandidateId, timing: Timing, now: Ms) -> Coordinator {
        Coordinator {
            me,
            timing,
            most_marks: room::MOST_MARKS,
            clock: RunClock::start(timing, now),
            now,
            heard_ms: now,
            direct: None,
            elects_ms: now,
            floor: Term(0),
            standby_ms: None,
            cut_off_ms: None,
            step_downs: 0,
            fruitless: 0,
            role: Role::Standby,
            asked: 0,
            asked_ms: None,
        }
    }

    /// With room for at least one mark, but fewer than usual.
    #[must_use]
    pub fn with_room(mut self, most_marks: usize) -> Coordinator {
        self.most_marks = most_marks;
        self
    }

    /// The term in which it leads.
    pub fn leads(&self) -> Option<Term> {
        match &self.role {
            Role::Leading(leader) => Some(leader.term),
            Role::Standby | Role::Electing(_) => None,
        }
    }

    /// The epoch that is open to clients.
    pub fn active(&self) -> Option<Epoch> {
        match &self.role {
            Role::Leading(leader) => leader.raised.filter(|&epoch| epoch == leader.config.epoch),
            Role::Standby | Role::Electing(_) => None,
        }
    }

    /// The region that it resyncs.
    pub fn resyncing(&self) -> Option<Region> {
        match &self.role {
            Role::Leading(leader) => leader.job_region(),
            Role::Standby | Role::Electing(_) => None,
        }
    }

    /// True if requests wait for room in the grant log.
    pub fn lacks_room(&self) -> bool {
        match &self.role {
            Role::Leading(leader) => leader.lacks_room(),
            Role::Standby | Role::Electing(_) => false,
        }
    }

    /// Handles an event.
    pub fn handle(&mut self, now: Ms, event: Event, out: &mut Vec<Action>) {
        let now = self.read_clock(now);
        match event {
            Event::Beat(term) => {
                self.direct = Some((term, now));
                self.fruitless = 0;
                self.heard(term, now);
            }
            Event::Heard(term, ago_ms) => {
                self.standby_ms = Some(now);
                if term >= self.floor && !broken(Broken::HeardIgnored) {
                    self.heard(term, now.saturating_sub(ago_ms));
                }
            }
            Event::Store(number, outcome) => {
                if number == self.asked && self.asked_ms.take().is_some() {
                    self.outcome(outcome, out);
                }
            }
            Event::Client(client, incarnation, message) => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.client(now, client, incarnation, message, out);
                }
            }
            Event::Member(member, message) => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.member(now, member, message, out);
                }
            }
        }
        self.after(out);
    }

    /// Retransmits, watches peers, takes over.
    pub fn tick(&mut self, now: Ms, out: &mut Vec<Action>) {
        let now = self.read_clock(now);
        if self.asked_ms.is_some_and(|since| now.saturating_sub(since) > self.timing.store_ms) {
            self.asked_ms = None;
            self.outcome(Outcome::Unknown, out);
        }
        match &mut self.role {
            Role::Leading(leader) => {
                out.push(Action::Beat(leader.term));
                leader.tick(now, out);
                self.step_down();
            }
            Role::Standby => {
                if now.saturating_sub(self.heard_ms) > self.patience_ms() {
                    self.role = Role::Electing(None);
                    self.elects_ms = self.clock.local_ms();
                    self.ask(Request::Read, out);
                }
            }
            Role::Electing(_) => {}
        }
        self.after(out);
    }

    fn read_clock(&mut self, now: Ms) -> Ms {
        self.now = self.clock.read(now);
        self.now
    }

    /// How long it waits for a coordinator. Candidates take turns, so that they rarely compete.
    ///
    /// Two that do not hear each other depose each other, if no third one tells them. Whoever could
    /// do nothing in its reign waits longer then: the other one may be able to serve, after it has
    /// removed members and evicted clients that it does not reach.
    fn patience_ms(&self) -> Ms {
        let Timing { takeover_ms, lease_ms, member_ms, .. } = self.timing;
        let deferral = match self.fruitless.checked_sub(1) {
            None => 0,
            Some(more) => (lease_ms + member_ms + takeover_ms) << more.min(MOST_DEFERRALS),
        };
        takeover_ms * (2 + u64::from(self.me.0)) / 2 + deferral
    }

    /// Stands by if too few members answer, and another candidate does: links may be cut, and that
    /// one may reach more. The first time it does so at once. They may all be down, so then it
    /// waits twice as long each time.
    fn step_down(&mut self) {
        let Role::Leading(leader) = &self.role else { return };
        if leader.hears_enough() || broken(Broken::NeverStepsDown) {
            self.cut_off_ms = None;
            self.step_downs = if leader.is_active() { 0 } else { self.step_downs };
            return;
        }
        let since = *self.cut_off_ms.get_or_insert(self.now);
        let patience = self.timing.takeover_ms * ((1 << self.step_downs.min(MOST_DOUBLINGS)) - 1);
        let recent = |at: Ms| self.now.saturating_sub(at) <= self.timing.takeover_ms;
        if self.now.saturating_sub(since) >= patience && self.standby_ms.is_some_and(recent) {
            self.step_downs += 1;
            self.stand_by();
            // After all others.
            self.heard_ms = self.now + 2 * self.timing.takeover_ms;
        }
    }

    /// A coordinator was alive at `since`: no election, unless it has asked for the lead already.
    fn heard(&mut self, term: Term, since: Ms) {
        self.floor = self.floor.max(term);
        self.heard_ms = self.heard_ms.max(since);
        let recently = self.now.saturating_sub(self.heard_ms) <= self.patience_ms();
        if recently && matches!(self.role, Role::Electing(None)) {
            self.stand_by();
        }
    }

    fn ask(&mut self, request: Request, out: &mut Vec<Action>) {
        self.asked += 1;
        self.asked_ms = Some(self.now);
        out.push(Action::Store(self.asked, request));
    }

    /// Carries out what the leader cannot do itself.
    fn after(&mut self, out: &mut Vec<Action>) {
        let Role::Leading(leader) = &mut self.role else { return };
        self.floor = self.floor.max(leader.deposed);
        if self.floor > leader.term {
            self.deposed();
        } else if self.asked_ms.is_none()
            && let Some(config) = leader.proposal()
        {
            let value = Value { term: leader.term, leader: self.me, config };
            let request = Request::Cas(leader.version, value);
            self.ask(request, out);
        }
    }

    /// Another candidate leads.
    fn deposed(&mut self) {
        if let Role::Leading(leader) = &self.role {
            let brief = self.now.saturating_sub(leader.begun_ms) < self.timing.lease_ms;
            let fruitless = leader.raised.is_none() || brief;
            let count = fruitless && !broken(Broken::DeposedAtOnce);
            self.fruitless = if count { self.fruitless.saturating_add(1) } else { 0 };
        }
        self.stand_by();
    }

    fn stand_by(&mut self) {
        self.cut_off_ms = None;
        self.role = Role::Standby;
        self.heard_ms = self.now;
        self.asked_ms = None;
    }

    fn outcome(&mut self, outcome: Outcome, out: &mut Vec<Action>) {
        let (Outcome::Done(version, value) | Outcome::Conflict(version, value)) = outcome else {
            if let Role::Leading(leader) = &mut self.role {
                leader.unknown();
            }
            return self.ask(Request::Read, out);
        };
        let mine = value.leader == self.me;
        match &mut self.role {
            Role::Standby => {}
            Role::Electing(Some(term)) if mine && value.term == *term => {
                let (timing, now, most) = (self.timing, self.now, self.most_marks);
                let leader = Leader::new(*term, timing, now, version, value.config, most);
                self.role = Role::Leading(Box::new(leader));
            }
            // Another candidate was faster.
            Role::Electing(Some(term)) if value.term >= *term => {
                self.floor = self.floor.max(value.term);
                self.stand_by();
            }
            // It was cut off or stood still, and could not have heard anybody: it listens first.
            Role::Electing(None)
                if self.clock.local_ms().saturating_sub(self.elects_ms) > self.timing.store_ms =>
            {
                self.floor = self.floor.max(value.term);
                self.stand_by();
            }
            Role::Electing(trying) => {
                let term = Term(value.term.0.max(self.floor.0) + 1);
                *trying = Some(term);
                let value = Value { term, leader: self.me, config: value.config };
                self.ask(Request::Cas(version, value), out);
            }
            Role::Leading(leader) if mine && value.term == leader.term => {
                leader.decided(version, value.config);
            }
            Role::Leading(_) => {
                self.floor = self.floor.max(value.term);
                self.deposed();
            }
        }
    }
}
