//! One look at all disks of all arrays, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use policy::health::{
    Answer, Day, Disk, Level, Own, Plan, PlannedMember, Reading, Settings, Standing, Verdict,
};

use super::whole::{self, WholeDisk};
use super::{memory, smart};
use crate::api::{Array, DiskHealth, Member, Order, Part, SlotState, Span};
use crate::client::Client;
use crate::failure::Result;
use crate::remote::is_remote;

/// Messages that are not logged again; after so many different ones, all are.
const KEPT_MESSAGES: usize = 1000;

/// See the module.
pub(super) struct Watcher {
    settings: Settings,
    client: Client,
    stopped: Arc<AtomicBool>,
    /// The disks seen so far, by serial number, or else by name.
    disks: BTreeMap<String, Watched>,
    /// When SMART is read next.
    due: Option<Instant>,
    /// When a part of each array was read because of a suspect, by the array's UUID.
    read_at: BTreeMap<String, Instant>,
    /// Messages that the log has.
    logged: BTreeSet<String>,
}

/// A disk with members on it.
struct Watched {
    /// None for the disk of a file: it has no SMART data.
    whole: Option<WholeDisk>,
    disk: Disk,
    verdict: Verdict,
    /// What arrays see of it in this look.
    own: Vec<Own>,
    /// True if smartctl was asked: a disk that joins is not to wait for its turn.
    asked: bool,
    /// The latest day in the history of the disk.
    noted: Option<Date>,
}

impl Watcher {
    pub(super) fn new(settings: Settings, client: Client, stopped: Arc<AtomicBool>) -> Watcher {
        let (disks, read_at, logged) = Default::default();
        Watcher { settings, client, stopped, disks, due: None, read_at, logged }
    }

    /// Looks at all disks once, and acts.
    pub(super) fn look(&mut self) {
        let arrays = match self.client.arrays() {
            Ok(arrays) => arrays,
            Err(failure) => return self.log_once(&format!("disk health: {failure}")),
        };
        let keys = self.gather(&arrays);
        let now = Instant::now();
        let is_due = self.due.is_none_or(|due| now >= due);
        if is_due {
            self.due = Some(now + self.settings.poll.0);
        }
        self.observe(is_due);
        for array in &arrays {
            if self.is_stopped() {
                return;
            }
            // Reading SMART data may have taken minutes.
            match self.client.array(&array.uuid) {
                Ok(array) => self.act(&array, &keys),
                Err(failure) => tracing::debug!("{}: disk health: {failure}", array.name),
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Collects what the arrays see of each disk. Returns the keys of each member's disks, by the
    /// member's UUID.
    fn gather(&mut self, arrays: &[Array]) -> BTreeMap<String, Vec<String>> {
        self.disks.values_mut().for_each(|watched| watched.own.clear());
        let mut keys = BTreeMap::new();
        for member in arrays.iter().flat_map(Array::members) {
            let is_faulty = |array: &Array| {
                array.faulty.iter().any(|it| it.uuid == member.uuid && !it.replaced)
            };
            let own = Own {
                member: member.uuid.clone(),
                read_errors: member.read_errors,
                checksum_errors: member.checksum_errors,
                slow: member.slow,
                // One that an administrator has marked faulty has no failed write.
                lost: member.write_errors > 0 && arrays.iter().any(is_faulty),
            };
            let places = places_of(member);
            for (key, whole) in &places {
                let watched = self.disks.entry(key.clone()).or_insert_with(|| Watched {
                    whole: whole.clone(),
                    disk: memory::load(key),
                    verdict: Verdict::default(),
                    own: Vec::new(),
                    asked: false,
                    noted: None,
                });
                // The kernel may have given it another name.
                watched.whole.clone_from(whole);
                watched.own.push(own.clone());
            }
            keys.insert(member.uuid.clone(), places.into_iter().map(|(key, _)| key).collect());
        }
        self.disks.retain(|_, watched| !watched.own.is_empty());
        keys
    }

    /// Judges each disk, after reading its SMART data if that is due.
    fn observe(&mut self, is_due: bool) {
        let keys: Vec<String> = self.disks.keys().cloned().collect();
        for key in keys {
            if self.is_stopped() {
                return;
            }
            let Some(watched) = self.disks.get_mut(&key) else { continue };
            let is_new = !std::mem::replace(&mut watched.asked, true);
            let whole = watched.whole.clone().filter(|_| is_due || is_new);
            let reading = whole.and_then(|whole| self.read(&whole));
            let Some(watched) = self.disks.get_mut(&key) else { continue };
            let before = watched.disk.clone();
            let (now, own) = (Timestamp::now(), &watched.own);
            watched.verdict = watched.disk.observe(now, reading.as_ref(), own, &self.settings);
            if watched.disk != before {
                memory::store(&key, &watched.disk);
            }
            if let Some(reading) = &reading {
                let today = now.to_zoned(TimeZone::UTC).date();
                if watched.noted.replace(today) != Some(today) {
                    memory::add_day(&key, Day::of(today, watched.verdict.level, reading));
                }
            }
        }
    }

    fn read(&mut self, disk: &WholeDisk) -> Option<Reading> {
        let path = disk.path();
        let stopped = Arc::clone(&self.stopped);
        let is_stopped = || stopped.load(Ordering::Relaxed);
        match smart::ask(&self.settings.smartctl, &path, &is_stopped) {
            Ok(Answer::Reading(reading)) => return Some(*reading),
            Ok(Answer::Asleep) => tracing::debug!("{}: asleep", path.display()),
            Ok(Answer::Nothing(why)) => {
                self.log_once(&format!("{}: no SMART data: {why}", path.display()));
            }
            Err(_) if is_stopped() => {}
            Err(why) => {
                let smartctl = &self.settings.smartctl;
                let message = format!(
                    "{smartctl}: {why}: SMART data is not read; install the package smartmontools"
                );
                self.log_once(&message);
            }
        }
        None
    }

    /// Reports the disks of an array's members, and replaces one of them if the policy says so.
    fn act(&mut self, array: &Array, keys: &BTreeMap<String, Vec<String>>) {
        let plan = Plan::of(self.settings.policy, &self.standing(array, keys));
        // Before the level is known to the schedule: the whole array would be compared first.
        if let Some((uuid, range)) = &plan.read {
            self.read_around(array, uuid, range);
        }
        let in_use =
            array.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        for member in in_use.chain(&array.spares) {
            let Some(mut health) = self.health_of(keys.get(&member.uuid)) else { continue };
            let waits = plan.waiting.iter().find(|(uuid, _)| *uuid == member.uuid);
            health.step = waits.map(|(_, wait)| wait.words().to_owned());
            if let Some((uuid, with)) = &plan.replace
                && *uuid == member.uuid
            {
                let spare = array.spares.iter().find(|spare| spare.uuid == *with);
                let spare = spare.map_or(with.as_str(), |spare| spare.name.as_str());
                health.step = Some(format!("copying it to the spare {spare}"));
            }
            self.post(array, member, health);
        }
        if let Some((uuid, with)) = &plan.replace
            && let Err(failure) = self.replace(array, uuid, with)
        {
            self.log_once(&format!("{}: a bad disk is not replaced: {failure}", array.name));
            if let Some(member) = array.members().find(|member| member.uuid == *uuid)
                && let Some(mut health) = self.health_of(keys.get(uuid))
            {
                health.step = Some(format!("not replaced yet: {}", failure.message));
                self.post(array, member, health);
            }
        }
    }

    fn replace(&self, array: &Array, member: &str, with: &str) -> Result<()> {
        let (member, with) = (Some(member.to_owned()), Some(with.to_owned()));
        let order = Order { member, with, ..Order::default() };
        let done = self.client.order(&array.uuid, "replace", &order)?;
        tracing::warn!("{}, because of the health of its disk", done.message);
        Ok(())
    }

    /// Compares a part of the array, because a suspect gave errors in it.
    fn read_around(&mut self, array: &Array, member: &str, range: &Range<u64>) {
        let part = Part { array_offset: range.start, bytes: range.end - range.start };
        let order = Order { part: Some(part), ..Order::default() };
        match self.client.order(&array.uuid, "scrub", &order) {
            Ok(done) => {
                self.read_at.insert(array.uuid.clone(), Instant::now());
                let name = array.members().find(|it| it.uuid == member).map(|it| &it.name);
                let name = name.map_or(member, String::as_str);
                tracing::info!(
                    "{}, around the errors of {name}, whose disk may fail",
                    done.message
                );
            }
            // Other work has begun meanwhile.
            Err(failure) => tracing::debug!("{}: {failure}", array.name),
        }
    }

    /// Gives a note to the server, if it is new.
    fn post(&self, array: &Array, member: &Member, health: DiskHealth) {
        if member.health.as_ref() == Some(&health) {
            return;
        }
        let who = Some(member.uuid.clone());
        let order = Order { member: who, health: Some(health), ..Order::default() };
        if let Err(failure) = self.client.order(&array.uuid, "health", &order) {
            // The member may have left the array.
            tracing::debug!("{}: disk health: {failure}", array.name);
        }
    }

    /// The worst of a member's disks; none if nothing is known of them.
    fn health_of(&self, keys: Option<&Vec<String>>) -> Option<DiskHealth> {
        let disks = keys?.iter().filter_map(|key| self.disks.get(key));
        let known = disks.filter(|it| it.disk.reading().is_some() || it.verdict.level > Level::Ok);
        let worst = known.max_by_key(|watched| watched.verdict.level)?;
        Some(smart::health_of(&worst.verdict, worst.disk.reading()))
    }

    /// An array, as the plan sees it.
    fn standing(&self, array: &Array, keys: &BTreeMap<String, Vec<String>>) -> Standing {
        let planned = |member: &Member| {
            let disks = keys.get(&member.uuid).into_iter().flatten();
            let levels = disks.filter_map(|key| Some(self.disks.get(key)?.verdict.level));
            let level = levels.max().unwrap_or_default();
            let place = |it: &Span| it.array_offset..it.array_offset.saturating_add(it.bytes);
            let places = member.error_ranges.iter().map(place).collect();
            PlannedMember { member: member.uuid.clone(), level, places }
        };
        let is_in_sync = |state| state == SlotState::InSync;
        let free = array.slots.iter().filter(|it| is_in_sync(it.state) && it.replacement.is_none());
        Standing {
            members: free.filter_map(|slot| slot.member.as_ref()).map(planned).collect(),
            spares: array.spares.iter().map(planned).collect(),
            is_whole: array.slots.iter().all(|slot| is_in_sync(slot.state)),
            is_replacing: array.slots.iter().any(|slot| slot.replacement.is_some()),
            is_writable: array.writable,
            is_busy: array.job.is_some(),
            since_read: self.read_at.get(&array.uuid).map(Instant::elapsed),
            capacity: array.capacity_bytes,
        }
    }

    /// Logs a message the first time.
    fn log_once(&mut self, message: &str) {
        if self.logged.len() >= KEPT_MESSAGES {
            self.logged.clear();
        }
        if self.logged.insert(message.to_owned()) {
            tracing::warn!("{message}");
        }
    }
}

/// The disks that a member is on, each with its key; a file is a disk of its own. None for a member
/// on another machine, for an array, and for a member without a UUID.
fn places_of(member: &Member) -> Vec<(String, Option<WholeDisk>)> {
    let path = Path::new(&member.name);
    if is_remote(path) || !path.is_absolute() || member.uuid.is_empty() {
        return Vec::new();
    }
    let found = whole::of(path);
    if found.is_empty() {
        return vec![(member.name.clone(), None)];
    }
    found.into_iter().map(|whole| (whole.key(), Some(whole))).collect()
}
