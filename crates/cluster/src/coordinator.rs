//! A candidate: stands by, takes over, leads.
//!
//! ```text
//!   Standby ── no leader heard ──▶ Electing ── term + 1 by compare-and-set ──▶ Leading
//!      ▲                              │ another candidate won, or too few        │
//!      │                              │ members answer                           │
//!      └──────────────────────────────┴──────── a higher term is in force ───────┘
//! ```
//!
//! Two candidates may lead at once: one of them does not know yet that it is deposed. That is
//! harmless. A grant needs the answers of all live members, and a takeover raises the term on at
//! least one of those before it reads the grant log. A change of the membership needs the decision
//! store, whose version has moved on.
//!
//! | file | owns |
//! |---|---|
//! | `listening` | which members a candidate hears that does not lead |
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
mod listening;
mod membership;
mod operator;
mod resync;

pub use operator::NotEvicted;

use crate::broken::{Broken, broken};
use crate::config::Config;
use crate::decisions::{Outcome, Request, Value};
use crate::ids::{CandidateId, ClientId, Epoch, Incarnation, MemberId, Ms, Region, Term};
use crate::message::{FromClient, FromMember, ToClient, ToMember};
use crate::room;
use crate::timing::{RunClock, Timing};
use leader::Leader;
use listening::Listening;

/// An input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A message of a client.
    Client(ClientId, Incarnation, FromClient),
    /// A message of a member.
    Member(MemberId, FromMember),
    /// The outcome of the store request with this number.
    Store(u64, Outcome),
    /// Another candidate leads in this term, and can serve the array.
    Beat(Term),
    /// A candidate that stands by hears a leader that can serve the array.
    Led,
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
    /// Tell the other candidates who leads, and can serve the array.
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

/// So many times `takeover_ms` a candidate waits that hears too few members: about a minute.
const MOST_WAITS: u64 = 24;

/// The state machine.
pub struct Coordinator {
    me: CandidateId,
    timing: Timing,
    most_marks: usize,
    clock: RunClock,
    /// On the run clock, as all other times here and in the reign.
    now: Ms,
    /// When a leader was last heard of, or it began to stand by.
    heard_ms: Ms,
    listening: Listening,
    /// When a leader was last heard that can serve the array.
    led_ms: Option<Ms>,
    /// Since when it could not take over, because it does not hear enough members.
    waits_ms: Option<Ms>,
    /// When its election began, on the local clock.
    elects_ms: Ms,
    /// The highest term heard of.
    floor: Term,
    role: Role,
    /// The number of the last store request, and since when it has no answer.
    asked: u64,
    asked_ms: Option<Ms>,
}

impl Coordinator {
    /// A candidate that stands by, for an array of so many members.
    pub fn start(me: CandidateId, members: usize, timing: Timing, now: Ms) -> Coordinator {
        Coordinator {
            me,
            timing,
            most_marks: room::MOST_MARKS,
            clock: RunClock::start(timing, now),
            now,
            heard_ms: now,
            listening: Listening::begin(members, timing, now),
            led_ms: None,
            waits_ms: None,
            elects_ms: now,
            floor: Term(0),
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
            Event::Beat(term) => self.heard(term),
            Event::Led => self.waits_ms = None,
            Event::Store(number, outcome) => {
                if number == self.asked && self.asked_ms.take().is_some() {
                    self.outcome(outcome, out);
                }
            }
            // No fence could name the next one.
            Event::Client(_, incarnation, _)
                if incarnation > Incarnation::LAST && !broken(Broken::LastLetIn) => {}
            Event::Client(client, incarnation, message) => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.client(now, client, incarnation, message, out);
                }
            }
            Event::Member(member, message) => match &mut self.role {
                Role::Leading(leader) => leader.member(now, member, message, out),
                Role::Standby | Role::Electing(_) => {
                    let leads = self.listening.hear(now, member, &message);
                    if let Some(term) = leads.filter(|&term| term >= self.floor)
                        && !broken(Broken::ProbesIgnored)
                    {
                        self.heard(term);
                    }
                }
            },
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
        if !matches!(self.role, Role::Leading(_)) {
            self.listening.probe(out);
        }
        match &mut self.role {
            Role::Leading(leader) => {
                leader.note_well(now, self.asked_ms.is_none());
                if leader.can_serve() || broken(Broken::BeatsInVain) {
                    out.push(Action::Beat(leader.term));
                }
                leader.tick(now, out);
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
    fn patience_ms(&self) -> Ms {
        self.timing.takeover_ms * (2 + u64::from(self.me.0)) / 2
    }

    /// True while it leaves the lead to others, since it does not hear enough members of this
    /// configuration. Not for ever: only a leader tells an operator what is missing.
    fn waits_for_members(&mut self, config: &Config) -> bool {
        if self.listening.hears_enough(self.now, config) || broken(Broken::TakesOverInVain) {
            self.waits_ms = None;
            return false;
        }
        let since = *self.waits_ms.get_or_insert(self.now);
        self.now.saturating_sub(since) <= MOST_WAITS * self.timing.takeover_ms
    }

    /// A leader is alive that can serve the array: no election, unless it has asked for the lead
    /// already.
    fn heard(&mut self, term: Term) {
        self.floor = self.floor.max(term);
        self.heard_ms = self.now;
        (self.led_ms, self.waits_ms) = (Some(self.now), None);
        if matches!(self.role, Role::Electing(None)) {
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
            self.stand_by();
        } else if self.asked_ms.is_none()
            && let Some(config) = leader.proposal()
        {
            let value = Value { term: leader.term, leader: self.me, config };
            let request = Request::Cas(leader.version, value);
            self.ask(request, out);
        }
    }

    fn stand_by(&mut self) {
        if matches!(self.role, Role::Leading(_)) {
            self.listening = Listening::begin(self.listening.members(), self.timing, self.now);
        }
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
        let elects = matches!(self.role, Role::Electing(_));
        let waits = elects && self.waits_for_members(&value.config);
        match &mut self.role {
            Role::Standby => {}
            Role::Electing(Some(term)) if mine && value.term == *term => {
                let (timing, now, most) = (self.timing, self.now, self.most_marks);
                let last_heard = self.listening.last_heard(now, &value.config);
                let mut leader = Leader::new(*term, timing, now, version, value.config, most);
                leader.remember(&last_heard);
                self.waits_ms = None;
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
            Role::Electing(_) if waits => self.stand_by(),
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
                self.stand_by();
            }
        }
    }
}
