//! Members on other machines: reports the state of their connections, and brings them back.
//!
//! ```text
//!    up ──▶ reconnecting ──▶ missing ─▶ member failed ──▶ up again ─▶ re-added: changed regions
//!    named at the start, unreachable ────────────────────────┘        are copied
//! ```
//!
//! Re-adds only members whose connection was lost, never one that `parapet fail` took out. The
//! engine decides whether a re-add is possible: the member's superblock must be one of this array,
//! and the bitmap must know what changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;

use io::{Clock, Time};
use layout::{MemberId, Mode};
use net::remote::HOLD;
use os::Options;

use super::{Daemon, Served, first};
use crate::disks;
use crate::failure::Result;
use crate::probe;
use crate::remote::State;

/// Interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two attempts to bring a member back.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// How long requests wait for the connection of a member that the array cannot lose; their own
/// deadline is shorter.
const PATIENT_HOLD: Duration = Duration::from_secs(86_400);

/// What the server records of members on other machines.
#[derive(Default)]
struct Connections {
    /// The last logged state of each.
    states: BTreeMap<MemberId, State>,
    /// How many losses of the connection of each have been dealt with: the member has failed.
    losses: BTreeMap<MemberId, u64>,
    /// Members that failed because their connection was lost.
    lost: BTreeSet<MemberId>,
    /// The time of the next attempt to bring members back.
    retry_at: Option<Time>,
    /// The last refusal of each member, by name: logged once.
    refusals: BTreeMap<String, String>,
}

impl Connections {
    /// Logs what failed for a member, unless that was logged.
    fn refuse(&mut self, array: &str, member: &str, what: &str, why: &impl fmt::Display) {
        let line = format!("{array}: {member}: {what}: {why}");
        if self.refusals.get(member) != Some(&line) {
            tracing::warn!("{line}");
            self.refusals.insert(member.to_owned(), line);
        }
    }
}

impl Served {
    /// Records named members that did not answer when the array started.
    pub(crate) fn await_members(&self, unreachable: &[PathBuf]) {
        self.awaited.borrow_mut().extend_from_slice(unreachable);
    }

    /// Watches the connections of members on other machines until the array stops.
    pub(super) async fn watch_connections(self: Rc<Self>, daemon: Weak<Daemon>, clock: &dyn Clock) {
        let mut connections = Connections::default();
        loop {
            let pause = clock.sleep_until(clock.now() + CHECK_INTERVAL);
            if first(pause, self.until_stopped()).await.is_none() {
                return;
            }
            self.check_connections(&mut connections).await;
            if let Some(daemon) = daemon.upgrade() {
                daemon.spread_export(&self).await;
            }
            let now = clock.now();
            let writable = self.array.status().mode == Mode::ReadWrite;
            if writable && connections.retry_at.is_none_or(|at| at <= now) {
                let Some(daemon) = daemon.upgrade() else { return };
                self.bring_members_back(&daemon, &mut connections).await;
                connections.retry_at = Some(clock.now() + RETRY_INTERVAL);
            }
        }
    }

    /// Logs changes, and fails members whose connection was lost for too long.
    async fn check_connections(&self, connections: &mut Connections) {
        let status = self.array.status();
        let faulty = self.faulty();
        for (id, member) in self.all_known() {
            let Some(remote) = &member.remote else { continue };
            // The last copy of the data is waited for, as long as the deadline of requests allows.
            let is_needed = status.redundancy_left == 0 && !faulty.contains(&id);
            remote.set_hold(if is_needed { PATIENT_HOLD } else { HOLD });
            let (state, losses) = (remote.state(), remote.losses());
            let before = connections.states.insert(id, state).unwrap_or(State::Up);
            let is_lost = connections.losses.get(&id).copied().unwrap_or(0) != losses;
            let name = member.path.display().to_string();
            if state != before {
                self.log_connection(&name, state, remote.refused());
            }
            // A read-only array keeps its members: their reads fail until they are back.
            let is_away = is_lost || matches!(state, State::Missing | State::Returned);
            if !is_away || status.mode != Mode::ReadWrite {
                continue;
            }
            if faulty.contains(&id) && !is_lost {
                continue;
            }
            let failed = match faulty.contains(&id) {
                true => Ok(()),
                false => self.array.lose(id).await,
            };
            match failed {
                // Or the array has failed it at the same time, after requests to it had failed.
                Err(why) if !self.faulty().contains(&id) => {
                    connections.refuse(self.name(), &name, "cannot be failed", &why);
                }
                Ok(()) | Err(_) => {
                    connections.losses.insert(id, losses);
                    connections.lost.insert(id);
                }
            }
        }
        connections.lost.retain(|id| self.known(*id).is_some());
    }

    fn log_connection(&self, member: &str, state: State, refused: Option<String>) {
        let array = self.name();
        match (state, refused) {
            (_, Some(why)) => {
                let quoted = crate::places::quoted(member);
                tracing::error!("{array}: {member}: {why}; parapet add {array} {quoted} takes it");
            }
            (State::Up | State::Returned, _) => tracing::info!("{array}: {member}: connected"),
            (State::Slow, _) => tracing::warn!("{array}: {member}: its server answers slowly"),
            (State::Reconnecting, _) => {
                tracing::warn!("{array}: {member}: connection lost: reconnecting");
            }
            (State::Missing, _) => tracing::error!("{array}: {member}: its server does not answer"),
        }
    }

    /// Re-adds the members that have come back.
    async fn bring_members_back(&self, daemon: &Daemon, connections: &mut Connections) {
        let faulty = self.faulty();
        for id in connections.lost.clone() {
            if !faulty.contains(&id) {
                connections.lost.remove(&id);
                continue;
            }
            let Some(known) = self.known(id) else { continue };
            let Some(remote) = &known.remote else { continue };
            if remote.state() == State::Missing {
                continue;
            }
            // The array has recorded the loss: its bitmap knows what to copy.
            remote.resume();
            let name = known.path.display().to_string();
            match daemon.readmit(self, &name).await {
                Ok(_) => {
                    connections.lost.remove(&id);
                    connections.refusals.remove(&name);
                }
                Err(why) => connections.refuse(self.name(), &name, "not re-added", &why),
            }
        }
        self.take_awaited(daemon, connections).await;
    }

    /// Takes the members that did not answer when the array started, and do now.
    async fn take_awaited(&self, daemon: &Daemon, connections: &mut Connections) {
        let awaited = self.awaited.borrow().clone();
        for path in awaited {
            let name = path.display().to_string();
            let arrays = daemon.arrays();
            let others = || arrays.iter().filter(|other| other.uuid() != self.uuid());
            if others().any(|other| other.awaited.borrow().contains(&path)) {
                match self.is_mine(&path, daemon).await {
                    Ok(true) => {}
                    // One of the others takes it.
                    Ok(false) => {
                        self.await_no_more(&path);
                        continue;
                    }
                    Err(why) => {
                        connections.refuse(self.name(), &name, "not re-added", &why);
                        continue;
                    }
                }
            }
            match daemon.readmit(self, &name).await {
                Ok(_) => arrays.iter().for_each(|array| array.await_no_more(&path)),
                Err(why) => connections.refuse(self.name(), &name, "not re-added", &why),
            }
        }
    }

    fn await_no_more(&self, path: &Path) {
        self.awaited.borrow_mut().retain(|awaited| awaited != path);
    }

    /// Returns true if a disk on another machine has a superblock of this array.
    ///
    /// # Errors
    /// If it does not answer, or cannot be read.
    async fn is_mine(&self, path: &Path, daemon: &Daemon) -> Result<bool> {
        let options = Options { read_only: true, ..Options::default() };
        let opened = disks::open_one(path, &options, &daemon.spawner).await?;
        let found = probe::contents(&opened).await?.superblocks;
        Ok(found.iter().any(|superblock| superblock.set_uuid.to_string() == self.uuid()))
    }
}
