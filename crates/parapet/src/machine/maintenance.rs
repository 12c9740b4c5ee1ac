//! What the server does unasked with arrays that run: scrubs, shared spares, the latency target.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use array::status::{SlotState, Status};
use io::Clock;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use policy::health::Policy;
use policy::schedule::{Decision, Scrub, Standing, Work};
use policy::spares::{self, Move};

use super::Machine;
use crate::api::{Order, State};
use crate::daemon::{Daemon, Served};
use crate::failure::Result;

/// Interval of the decisions.
const EVERY: Duration = Duration::from_secs(2);
/// A latency target slows background work down to this rate, in bytes of a member per second.
const FLOOR: u64 = 1 << 20;
/// The rate from which a latency target begins, if nothing else limits it.
const BEGINNING: u64 = 256 << 20;

/// What was decided before.
#[derive(Default)]
pub(super) struct Maintenance {
    /// Arrays with a scrub that the schedule has started, by UUID.
    scheduled: RefCell<BTreeSet<String>>,
    /// The rate that a latency target allows now, by UUID.
    allowed: RefCell<BTreeMap<String, u64>>,
    /// Moves of spares that failed: not tried again.
    refused: RefCell<Vec<Move>>,
}

impl Machine {
    /// Decides again and again, until the server ends.
    pub(super) async fn maintain(self: Rc<Self>) {
        let clock = self.daemon.spawner().clock();
        while !self.daemon.is_ending() {
            for served in self.daemon.arrays() {
                let scrub = self.loaded.borrow().config.scrub_of(served.name(), served.uuid());
                self.schedule_scrub(&served, &scrub).await;
                self.hold_latency(&served, &scrub);
            }
            self.share_spares().await;
            clock.sleep_until(clock.now() + EVERY).await;
        }
    }

    /// Starts or pauses a scrub, as the schedule says.
    async fn schedule_scrub(&self, served: &Rc<Served>, scrub: &Scrub) {
        if served.array.geometry().family() == layout::Family::Plain {
            return;
        }
        let (name, uuid) = (served.name(), served.uuid());
        let is_scheduled = self.maintenance.scheduled.borrow().contains(uuid);
        let acts = self.loaded.borrow().config.health.policy == Policy::ReplaceIfSpare;
        let standing = served.scrub_standing(is_scheduled);
        let standing = Standing { is_suspect: standing.is_suspect && acts, ..standing };
        if standing.work != Work::Scheduled {
            self.maintenance.scheduled.borrow_mut().remove(uuid);
        }
        let now = Timestamp::now();
        let local = Zoned::new(now, TimeZone::system()).datetime();
        let done = match scrub.decide(now, local, &standing) {
            Decision::Wait => return,
            Decision::Start(from) => {
                let repair = scrub.repair && served.array.geometry().redundancy() > 0;
                let started = self.daemon.start_scrub(served, repair, from).await;
                self.maintenance.scheduled.borrow_mut().insert(uuid.into());
                let mut why = String::from("scheduled");
                if standing.is_ahead(now) {
                    why += &format!(
                        "; the last one is recorded at {}: a clock was wrong",
                        standing.last
                    );
                }
                if standing.is_suspect {
                    why += "; a disk may fail";
                }
                started.map(|message| format!("{message} ({why})"))
            }
            Decision::Pause => {
                let paused = self.daemon.pause_scrub(served);
                paused.map(|()| format!("{name}: the scrub pauses until its next window"))
            }
        };
        match done {
            Ok(message) => tracing::info!("{message}"),
            Err(failure) => tracing::debug!("{name}: scheduled scrub: {failure}"),
        }
    }

    /// Slows background work down while reads of members take longer than the target: halves the
    /// rate, and raises it by a tenth while they do not.
    fn hold_latency(&self, served: &Served, scrub: &Scrub) {
        let status = served.array.status();
        let Ok(own) = self.settings(served.name(), served.uuid()) else { return };
        let unlimited = |size: Option<crate::size::Size>| size.map_or(u64::MAX, |size| size.0);
        let most = match unlimited(own.speed_max) {
            0 => u64::MAX,
            most => most,
        };
        let mut allowed = self.maintenance.allowed.borrow_mut();
        let target = scrub.latency.filter(|_| status.job.is_some());
        let Some(target) = target else {
            if allowed.remove(served.uuid()).is_some() {
                Machine::flags(&own, false).1.limit(&served.array);
            }
            return;
        };
        let now = allowed.entry(served.uuid().into()).or_insert(BEGINNING.min(most));
        *now = match slowest_read(&status) {
            Some(slowest) if slowest > target.0 => (*now / 2).max(FLOOR),
            _ => (*now + *now / 10).min(most),
        };
        let (min, _) = served.array.speed();
        served.array.set_speed(min.min(*now), *now);
    }

    /// Gives a spare to an array of its group that needs one.
    async fn share_spares(&self) {
        let served = self.daemon.arrays();
        let standings: Vec<spares::Standing> = {
            let loaded = self.loaded.borrow();
            let group = |it: &Served| loaded.config.of(it.name(), it.uuid()).spare_group;
            served.iter().map(|it| standing(&self.daemon, it, group(it))).collect()
        };
        let Some(next) = spares::next_move(&standings) else { return };
        if self.maintenance.refused.borrow().contains(&next) {
            return;
        }
        match self.move_spare(&next).await {
            Ok(message) => tracing::info!("{message} (shared spare)"),
            Err(failure) => {
                tracing::error!("{}: the spare {} is not moved: {failure}", next.to, next.spare);
                self.maintenance.refused.borrow_mut().push(next);
            }
        }
    }

    async fn move_spare(&self, it: &Move) -> Result<String> {
        let unknown = |uuid: &str| {
            let message = format!("{uuid}: this array is served no more");
            crate::failure::Failure::new(crate::failure::Id::NoArray, message, "")
        };
        let find = |uuid: &str| self.daemon.find(uuid).ok_or_else(|| unknown(uuid));
        let (from, to) = (find(&it.from)?, find(&it.to)?);
        let remove = Order { member: Some(it.spare.clone()), ..Order::default() };
        self.daemon.carry_out(&from, "remove", &remove).await?;
        // Only the superblock of the array that it was a spare of may be overwritten.
        let overwrite = self.daemon.own_signatures(&it.spare).await?;
        let add = Order { overwrite, ..remove };
        self.daemon.carry_out(&to, "add", &add).await
    }
}

/// Returns the slowest p99 of the members' reads, without those of members marked slow.
fn slowest_read(status: &Status) -> Option<Duration> {
    let members = status.slots.iter().filter_map(|slot| slot.member.as_ref());
    let known = members.filter(|member| !member.slow).filter_map(|it| it.reads);
    known.map(|latency| latency.p99).max()
}

/// Returns an array as the choice of a spare sees it, named by its UUID.
fn standing(daemon: &Daemon, served: &Served, group: String) -> spares::Standing {
    let status = served.array.status();
    let view = daemon.view(served);
    let empty = status.slots.iter().any(|slot| slot.state == SlotState::Missing);
    let held = status.slots.iter().filter_map(|slot| slot.member.as_ref());
    let least = held.filter_map(|member| served.member_bytes(member.id)).min().unwrap_or(u64::MAX);
    let spares = status.spares.iter().filter_map(|spare| {
        let bytes = served.member_bytes(spare.id)?;
        Some((spare.name.clone(), bytes))
    });
    spares::Standing {
        array: served.uuid().into(),
        group,
        needs_spare: empty && view.writable && view.state != State::Failed,
        is_whole: view.state == State::Healthy,
        least_bytes: least,
        spares: spares.collect(),
    }
}
