//! The grants of a client, from request to release, and the checks of members that go with them.
//!
//! ```text
//!   (none) ── a write waits ──▶ Wanting ── Grant ──▶ Held ── flushed, drained ──▶ Releasing
//!      ▲                                                                              │
//!      └──── Released ────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every grant has a number of its own. A message that names another number is a copy from an
//! earlier round: it is ignored, and a grant that nobody wants any more is given back.
//!
//! Invariant: `Releasing` begins only after a flush with no write in flight and none issued since.

use super::requests::{For, Op, Stage, locks};
use super::{Action, Client, Failure, Work};
use crate::broken::{Broken, broken};
use crate::config::Mode;
use crate::ids::{GrantId, Ms, Region};
use crate::message::{Claim, FromClient};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Wanting,
    Held,
    Releasing,
}

/// One region's grant.
pub(super) struct Hold {
    pub(super) phase: Phase,
    pub(super) grant: GrantId,
    /// The coordinator wants it back: no write starts any more.
    pub(super) draining: bool,
    /// Some writes are not flushed.
    pub(super) dirty: bool,
    /// Writes issued so far.
    pub(super) issued: u64,
    pub(super) last_ms: Ms,
}

impl Client {
    /// True while it may write the region.
    pub fn holds(&self, region: Region) -> bool {
        self.holds.get(&region).is_some_and(|hold| hold.phase == Phase::Held)
    }

    /// Whether requests may be issued in the region; asks for the grant if not.
    pub(super) fn may_use(&mut self, region: Region, started: bool, out: &mut Vec<Action>) -> bool {
        if let Some(hold) = self.holds.get(&region) {
            let early = hold.phase == Phase::Wanting && broken(Broken::IssuesBeforeGrant);
            let between = started && broken(Broken::ReleasesBetween);
            let held = hold.phase == Phase::Held || early || between;
            return held && (started || !hold.draining);
        }
        // One that does not reach a member would hold regions that it cannot write.
        if !self.reaches_all && !broken(Broken::WantsUnchecked) {
            return false;
        }
        let grant = GrantId(self.next_grant);
        self.next_grant += 1;
        let (draining, dirty) = (false, false);
        let (phase, issued, last_ms) = (Phase::Wanting, 0, self.now);
        let hold = Hold { phase, grant, draining, dirty, issued, last_ms };
        self.holds.insert(region, hold);
        out.push(Action::Coordinators(FromClient::Want(region, grant)));
        false
    }

    /// The grants that a new coordinator must know of.
    pub(super) fn claims(&self) -> Vec<Claim> {
        let held = self.holds.iter().filter(|(_, hold)| hold.phase != Phase::Wanting);
        held.map(|(&region, hold)| Claim { region, grant: hold.grant }).collect()
    }

    pub(super) fn granted(&mut self, region: Region, grant: GrantId, out: &mut Vec<Action>) {
        match self.holds.get_mut(&region) {
            Some(hold) if hold.grant == grant => {
                if hold.phase == Phase::Wanting {
                    hold.phase = Phase::Held;
                    hold.last_ms = self.now;
                }
            }
            _ => out.push(Action::Coordinators(FromClient::Release(region, grant))),
        }
    }

    pub(super) fn drain(&mut self, region: Region, grant: GrantId, out: &mut Vec<Action>) {
        match self.holds.get_mut(&region) {
            // One that overtakes its grant comes again. What waits for the grant runs before, or
            // clients could pass a region on for ever and use it never.
            Some(hold) if hold.grant == grant && hold.phase != Phase::Wanting => {
                hold.draining = true;
                self.tend(region, out);
            }
            // The grant itself may still be under way: `granted` gives it back.
            _ => {}
        }
    }

    pub(super) fn released(&mut self, region: Region, grant: GrantId) {
        let hold = self.holds.get(&region);
        if hold.is_some_and(|hold| hold.grant == grant && hold.phase == Phase::Releasing) {
            self.holds.remove(&region);
        }
    }

    /// Repeats what has no answer, gives idle regions back, checks members while the client waits.
    pub(super) fn tend_grants(&mut self, out: &mut Vec<Action>) {
        let regions: Vec<Region> = self.holds.keys().copied().collect();
        regions.into_iter().for_each(|region| self.tend(region, out));
        self.check_waiting();
    }

    /// Checks all members while the client waits for a grant, or for a member. Otherwise it would
    /// notice only later that it does not reach another one, and other clients would wait for its
    /// regions until then.
    fn check_waiting(&mut self) {
        let exclusive = self.config.as_ref().is_some_and(|it| it.shape.mode == Mode::Exclusive);
        let pause_ms = self.timing.member_ms / 3;
        let is_old = |since_ms: Ms| self.now.saturating_sub(since_ms) > pause_ms;
        let wants = |hold: &Hold| hold.phase == Phase::Wanting && is_old(hold.last_ms);
        let asks = |op: &Op| self.ran_ms.saturating_sub(op.since_ms) > pause_ms;
        let waits = || self.holds.values().any(wants) || self.ops.values().any(asks);
        if exclusive && is_old(self.checked_ms) && waits() && !broken(Broken::WaitsUnchecked) {
            self.check_members();
        }
    }

    /// Asks all live members for an answer, unless it does so already: this shows which ones the
    /// client does not reach, whatever its other requests ask.
    pub(super) fn check_members(&mut self) {
        if !self.requests.values().any(|request| request.cause == For::Check) {
            self.checked_ms = self.now;
            self.submit(For::Check, Work::Flush);
        }
    }

    fn tend(&mut self, region: Region, out: &mut Vec<Action>) {
        let hold = &self.holds[&region];
        let grant = hold.grant;
        match hold.phase {
            Phase::Wanting => out.push(Action::Coordinators(FromClient::Want(region, grant))),
            Phase::Releasing => out.push(self.release_message(region)),
            Phase::Held => {
                let idle = self.now.saturating_sub(hold.last_ms) >= self.timing.idle_ms;
                let wanted = self.is_used(region, false) && !hold.draining;
                if (!idle && !hold.draining) || wanted {
                    return;
                }
                if self.is_used(region, true) && !broken(Broken::ReleasesInFlight) {
                    return;
                }
                if hold.dirty && !broken(Broken::ReleasesUnflushed) {
                    let cause = For::Release(region);
                    if !self.requests.values().any(|request| request.cause == cause) {
                        self.submit(cause, Work::Flush);
                    }
                } else {
                    self.release(region, out);
                }
            }
        }
    }

    /// Any request that uses the region and is not complete; `started`: that is under way.
    fn is_used(&self, region: Region, started: bool) -> bool {
        let config = self.config.as_ref().expect("grants are held in an epoch");
        self.requests.values().any(|request| {
            let reading = matches!(request.stage(), Some(Stage::Reading(_) | Stage::Patching));
            let forgotten = started && reading && broken(Broken::ReleasesBetween);
            let stripes = locks(config, &request.work);
            let uses = stripes.is_some_and(|it| config.shape.region(it.start) == region);
            uses && (request.started || !started) && !forgotten
        })
    }

    /// The coordinator does not give the grant: nothing can be issued in the region.
    pub(super) fn refused(&mut self, region: Region, grant: GrantId, out: &mut Vec<Action>) {
        let waits = |hold: &Hold| hold.grant == grant && hold.phase == Phase::Wanting;
        if !self.holds.get(&region).is_some_and(waits) {
            return;
        }
        self.holds.remove(&region);
        let config = self.config.as_ref().expect("grants are wanted in an epoch");
        let waits = |work: &Work| {
            locks(config, work).is_some_and(|it| config.shape.region(it.start) == region)
        };
        self.requests.retain(|_, request| {
            let refused = waits(&request.work);
            if let (true, For::Upper(id)) = (refused, request.cause) {
                out.push(Action::Done(id, Err(Failure::Inconsistent)));
            }
            !refused
        });
        self.idle.retain(|number| self.requests.contains_key(number));
    }

    /// The flush before a release is complete.
    pub(super) fn flushed(&mut self, region: Region, issued: u64, out: &mut Vec<Action>) {
        let quiet = !self.is_used(region, true);
        let Some(hold) = self.holds.get_mut(&region) else { return };
        if hold.phase != Phase::Held || hold.issued != issued || !quiet {
            return;
        }
        hold.dirty = false;
        let draining = hold.draining;
        if draining || !self.is_used(region, false) {
            self.release(region, out);
        }
    }

    fn release(&mut self, region: Region, out: &mut Vec<Action>) {
        let hold = self.holds.get_mut(&region).expect("it is held");
        hold.phase = Phase::Releasing;
        out.push(self.release_message(region));
    }

    fn release_message(&self, region: Region) -> Action {
        Action::Coordinators(FromClient::Release(region, self.holds[&region].grant))
    }
}
