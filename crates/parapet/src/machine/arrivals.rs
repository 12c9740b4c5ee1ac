//! Finds the members of arrays in the folders, at the start and whenever a disk appears.
//!
//! ```text
//!    disk appears ─▶ look (read-only, unlocked) ─▶ its array is served     ─▶ re-add it
//!                                                  all its members are there ─▶ start it
//!                                                  some are missing          ─▶ wait, then start
//!                                                                               it without them
//! ```
//!
//! A disk is looked at once: again only if it was unplugged or written meanwhile. So an idle disk
//! may sleep. Like mdadm's last-resort timer, the wait begins with the first member.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Time};
use os::{Options, Uevents};

use super::Machine;
use crate::api::Order;
use crate::cmd::serve::sources;
use crate::daemon::{Served, first};
use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result};

/// Interval of the searches. Devices are found at once, by their uevents.
const SEARCH_EVERY: Duration = Duration::from_secs(5);
/// Events come in bursts: one search for all.
const BURST: Duration = Duration::from_millis(200);

/// What is known of the disks that no array of this server uses.
#[derive(Default)]
pub(super) struct Arrivals {
    seen: RefCell<BTreeMap<PathBuf, KnownDisk>>,
    /// Arrays that are not served, by UUID.
    waiting: RefCell<BTreeMap<String, Waiting>>,
    /// Served arrays that are members of others, by the UUID of the outer array.
    inner: RefCell<Vec<(String, Rc<Served>)>>,
    /// Devices with an event since the last search.
    touched: RefCell<BTreeSet<PathBuf>>,
    /// Folders that could not be read.
    unreadable: RefCell<BTreeSet<String>>,
}

/// A disk that was looked at.
struct KnownDisk {
    stamp: Stamp,
    /// UUID of its array.
    array: Option<String>,
}

/// Changes when the disk at a path is another one, or was written.
#[derive(Clone, PartialEq, Eq)]
struct Stamp {
    disk: DiskIdentity,
    /// When a file was written last.
    written: String,
}

/// Changes when the disk at a path is another one.
#[derive(Clone, PartialEq, Eq)]
struct DiskIdentity {
    node: (u64, u64),
    /// The kernel's number of a device that was plugged in.
    sequence: Option<String>,
}

/// A disk to be looked at.
struct Fresh {
    path: PathBuf,
    stamp: Stamp,
    /// False if the disk was there at the last search: it was only written.
    appeared: bool,
}

/// An array that is not served.
struct Waiting {
    name: String,
    slots: usize,
    /// When its first member was seen.
    since: Time,
    /// The last attempt to start it: its members, and whether some could be missing.
    tried: Option<(usize, bool)>,
    /// What was logged of it last.
    said: String,
}

impl Machine {
    /// Searches again and again, until the server ends.
    pub(super) async fn watch_arrivals(self: Rc<Self>) {
        let clock = self.daemon.spawner().clock();
        loop {
            let wait = clock.sleep_until(clock.now() + SEARCH_EVERY.min(self.next_start(&*clock)));
            let stirred = async {
                self.stirred.wait().await;
                clock.sleep_until(clock.now() + BURST).await;
            };
            first(stirred, wait).await;
            let _turn = self.daemon.turn().await;
            if self.daemon.is_ending() {
                return;
            }
            self.look().await;
        }
    }

    /// Notes the devices that appear or change.
    pub(super) async fn watch_uevents(self: Rc<Self>) {
        let events = match Uevents::listen(self.daemon.spawner()) {
            Ok(events) => events,
            Err(error) => {
                let seconds = SEARCH_EVERY.as_secs();
                tracing::warn!("no uevents: {error}: new disks are found within {seconds} s");
                return;
            }
        };
        loop {
            match events.next().await {
                Some(event) if event.action == "remove" => {}
                Some(event) => {
                    let path = Path::new("/dev").join(&event.device);
                    self.arrivals.touched.borrow_mut().insert(path);
                }
                None => self.anew.set(true),
            }
            self.stirred.raise();
        }
    }

    /// How long until an array is started without its missing members.
    fn next_start(&self, clock: &dyn Clock) -> Duration {
        let patience = self.loaded.borrow().config.arrays.degraded_after.0;
        let waiting = self.arrivals.waiting.borrow();
        // An array that can start has been started, or its members are awaited.
        let awaited = waiting.iter().filter(|(uuid, array)| {
            self.may_start(uuid, array) && !array.tried.is_some_and(|(_, degraded)| degraded)
        });
        let left = awaited.map(|(_, it)| (it.since + patience) - clock.now());
        left.min().unwrap_or(SEARCH_EVERY).max(BURST)
    }

    /// Returns true if the configuration names this array, and no user has stopped it.
    fn may_start(&self, uuid: &str, array: &Waiting) -> bool {
        self.loaded.borrow().config.starts(&array.name, uuid) && !self.daemon.was_stopped(uuid)
    }

    /// Searches the folders, and deals with what is new.
    pub(super) async fn look(&self) {
        let fresh = self.fresh().await;
        if !fresh.is_empty() {
            self.sight(&fresh).await;
        }
        while !self.daemon.is_ending() && self.start_next().await {}
    }

    /// Returns the disks that are new or changed, and not in use by this server.
    async fn fresh(&self) -> Vec<Fresh> {
        let folders = self.loaded.borrow().config.arrays.scan.clone();
        let theirs = folders.clone();
        let listing = os::threads::aside(move || theirs.iter().map(|it| list(it)).collect());
        let listed: Vec<_> = match listing {
            Ok(listed) => listed.await,
            Err(error) => {
                tracing::warn!("the folders are not searched: no thread: {error}");
                return Vec::new();
            }
        };
        let mut found: BTreeMap<PathBuf, Stamp> = BTreeMap::new();
        for (folder, listed) in folders.into_iter().zip(listed) {
            let mut unreadable = self.arrivals.unreadable.borrow_mut();
            match listed {
                Ok(listed) => {
                    unreadable.remove(&folder);
                    found.extend(listed);
                }
                Err(failure) if unreadable.insert(folder) => tracing::warn!("{failure}"),
                Err(_) => {}
            }
        }
        let (anew, touched) = (self.anew.take(), self.arrivals.touched.take());
        let mut seen = self.arrivals.seen.borrow_mut();
        seen.retain(|path, _| found.contains_key(path));
        let mut fresh = Vec::new();
        for (path, stamp) in found {
            let known = seen.get(&path);
            let appeared = known.is_none_or(|known| known.stamp.disk != stamp.disk);
            let written = known.is_none_or(|known| known.stamp != stamp);
            if self.daemon.is_in_use(stamp.disk.node) {
                // A user who removes it later does not want it back.
                let array = known.and_then(|known| known.array.clone());
                seen.insert(path, KnownDisk { stamp, array });
            } else if anew || appeared || written || touched.contains(&path) {
                fresh.push(Fresh { path, stamp, appeared });
            }
        }
        fresh
    }

    /// Looks at these disks: which arrays they belong to.
    async fn sight(&self, fresh: &[Fresh]) {
        let on = self.daemon.spawner();
        let mut opened = Vec::new();
        for Fresh { path, .. } in fresh {
            match disks::open_one(path, &sources::LOOK, on).await {
                Ok(disk) => opened.push(disk),
                Err(failure) => tracing::debug!("{failure}"),
            }
        }
        let all: Vec<&Opened> = opened.iter().collect();
        let (found, damaged) = sources::survey_of(&all).await;
        for (disk, why) in damaged {
            tracing::warn!("{disk}: left out: {why}");
        }
        let mut member_of: BTreeMap<PathBuf, String> = BTreeMap::new();
        let mut returned = Vec::new();
        for group in found {
            let paths = group.disks.iter().map(|disk| disk.path.clone());
            member_of.extend(paths.map(|path| (path, group.uuid.clone())));
            match self.daemon.find(&group.uuid) {
                Some(served) => {
                    let appeared =
                        |path: &Path| fresh.iter().any(|it| it.path == path && it.appeared);
                    let data = group.disks.iter().zip(&group.roles);
                    let data =
                        data.filter(|(disk, role)| *role != "journal" && appeared(&disk.path));
                    returned.extend(data.map(|(disk, _)| (Rc::clone(&served), disk.path.clone())));
                }
                None => self.await_members(&group),
            }
        }
        for Fresh { path, stamp, .. } in fresh {
            let known = KnownDisk { stamp: stamp.clone(), array: member_of.remove(path) };
            self.arrivals.seen.borrow_mut().insert(path.clone(), known);
        }
        drop(opened);
        for (served, path) in returned {
            self.take_back(&served, &path).await;
        }
    }

    pub(super) fn await_members(&self, group: &sources::Group<'_>) {
        let since = self.daemon.spawner().clock().now();
        let mut waiting = self.arrivals.waiting.borrow_mut();
        let known = waiting.entry(group.uuid.clone()).or_insert_with(|| Waiting {
            name: group.name.clone(),
            slots: group.slots,
            since,
            tried: None,
            said: String::new(),
        });
        // A disk that was in the way of a start may have changed.
        known.tried = None;
        known.slots = known.slots.max(group.slots);
    }

    /// Re-adds a disk that comes back to an array with an empty slot.
    async fn take_back(&self, served: &Rc<Served>, path: &Path) {
        if !self.daemon.takes_back(served, path) {
            return;
        }
        let (name, disk) = (served.name(), path.display());
        tracing::info!("{name}: {disk} has appeared: adding it again");
        let order = Order { member: Some(disk.to_string()), ..Order::default() };
        match self.daemon.carry_out(served, "re-add", &order).await {
            Ok(message) => tracing::info!("{message}"),
            Err(failure) => tracing::warn!("{name}: {disk} is not added again: {failure}"),
        }
    }

    /// Starts one array that can start. Returns true if it did: an outer array may be complete now.
    async fn start_next(&self) -> bool {
        let clock = self.daemon.spawner().clock();
        let patience = self.loaded.borrow().config.arrays.degraded_after.0;
        let ready = |uuid: &String, array: &Waiting| {
            let there = self.members_of(uuid).len() + self.inner_of(uuid).len();
            let is_due = clock.now() >= array.since + patience;
            let degraded = there < array.slots || array.tried.is_some();
            let attempt = (there, degraded);
            let is_new = array.tried.is_none_or(|before| before != attempt);
            (there > 0 && is_new && (!degraded || is_due)).then_some(attempt)
        };
        let next = {
            let mut waiting = self.arrivals.waiting.borrow_mut();
            let wanted = waiting.iter_mut().filter(|(uuid, array)| self.may_start(uuid, array));
            let mut ready = wanted.filter_map(|(uuid, it)| Some((ready(uuid, it)?, uuid, it)));
            // Complete arrays first: one of them may be a member of another.
            let mut all: Vec<_> = ready.by_ref().collect();
            all.sort_by_key(|((_, degraded), ..)| *degraded);
            all.into_iter().next().map(|(attempt, uuid, array)| {
                array.tried = Some(attempt);
                (uuid.clone(), array.name.clone(), attempt.1)
            })
        };
        let Some((uuid, name, degraded)) = next else { return false };
        match self.start_array(&name, &uuid, degraded).await {
            Ok(()) => {
                self.arrivals.waiting.borrow_mut().remove(&uuid);
            }
            Err(failure) => {
                let mut waiting = self.arrivals.waiting.borrow_mut();
                let said = waiting.get_mut(&uuid).map(|array| &mut array.said);
                let text = failure.to_string();
                if said.is_none_or(|said| std::mem::replace(said, text.clone()) != text) {
                    // A spare counts as a member before the start: some may be missing.
                    match degraded {
                        false => tracing::info!("{name}: waiting for members: {text}"),
                        true => tracing::error!("{name}: not started: {text}"),
                    }
                }
            }
        }
        true
    }

    /// Starts an array that a user names.
    ///
    /// # Errors
    /// If there is none of this name, or it cannot start.
    pub(super) async fn start_named(self: &Rc<Self>, wanted: &str) -> Result<String> {
        if let Some(served) = self.daemon.find(wanted) {
            return Ok(format!("{}: it is being served", served.name()));
        }
        let _turn = self.daemon.turn().await;
        self.daemon.forget_stop(wanted);
        self.anew.set(true);
        let own = self.settings(wanted, wanted)?.network_members;
        self.network.forget(&own, wanted);
        self.look_at_network().await;
        self.look().await;
        if let Some(served) = self.daemon.find(wanted) {
            return Ok(format!("{}: started", served.name()));
        }
        let found: Vec<(String, String)> = {
            let waiting = self.arrivals.waiting.borrow();
            let named =
                |(uuid, array): &(&String, &Waiting)| *uuid == wanted || array.name == wanted;
            waiting.iter().filter(named).map(|(u, array)| (u.clone(), array.name.clone())).collect()
        };
        let [(uuid, name)] = &found[..] else {
            let message = match found.len() {
                0 => format!("no member of an array called {wanted} was found"),
                count => format!("{count} arrays are called {wanted}"),
            };
            let action = "parapet list --scan DIR shows what there is; name its UUID";
            return Err(Failure::new(Id::NoArray, message, action));
        };
        self.start_array(name, uuid, true).await?;
        self.arrivals.waiting.borrow_mut().remove(uuid);
        while self.start_next().await {}
        Ok(format!("{name}: started"))
    }

    /// Opens the members of an array, starts it, and offers it to clients.
    async fn start_array(&self, name: &str, uuid: &str, degraded: bool) -> Result<()> {
        let (daemon, on) = (&self.daemon, self.daemon.spawner());
        let settings = self.settings(name, uuid)?;
        let (assembly, run) = Machine::flags(&settings, degraded);
        let options = Options { read_only: settings.read_only, ..Options::default() };
        let mut members = Vec::new();
        for path in self.members_of(uuid) {
            match disks::open_retrying(&path, &options, on).await {
                Ok(opened) => members.push(opened),
                Err(obstacle) if obstacle.is_served => return Err(obstacle.into()),
                Err(obstacle) => tracing::warn!("{name}: left out: {}", Failure::from(obstacle)),
            }
        }
        let inner = self.inner_of(uuid);
        members.extend(inner.iter().map(|served| Opened::array(&served.array, on)));
        let all: Vec<&Opened> = members.iter().collect();
        let served = sources::start(Some(uuid), &all, (&assembly, &run), &[], daemon).await?;
        served.is_starting.set(true);
        self.await_network(&served, &settings.network_members);
        inner.iter().for_each(|it| it.put_inside(&served));
        self.arrivals.inner.borrow_mut().retain(|(outer, _)| outer != uuid);
        match self.outer_of(&served).await {
            Some(outer) => tracing::info!("{name}: it is a member of {outer}"),
            None => self.offer(&served, &settings).await,
        }
        served.is_starting.set(false);
        Ok(())
    }

    /// Notes that a served array is a member of another. Returns that array's name.
    async fn outer_of(&self, served: &Rc<Served>) -> Option<String> {
        let disk = Opened::array(&served.array, self.daemon.spawner());
        let (found, _) = sources::survey_of(&[&disk]).await;
        let outer = found.first()?;
        self.await_members(outer);
        self.arrivals.inner.borrow_mut().push((outer.uuid.clone(), Rc::clone(served)));
        Some(outer.name.clone())
    }

    /// Returns the known members of an array.
    fn members_of(&self, uuid: &str) -> Vec<PathBuf> {
        let seen = self.arrivals.seen.borrow();
        let own = seen.iter().filter(|(_, it)| it.array.as_deref() == Some(uuid));
        own.map(|(path, _)| path.clone()).chain(self.network.of(uuid)).collect()
    }

    /// Returns the served arrays that are members of an array.
    fn inner_of(&self, uuid: &str) -> Vec<Rc<Served>> {
        let inner = self.arrivals.inner.borrow();
        // A user may have stopped it meanwhile.
        let is_served = |it: &Rc<Served>| {
            self.daemon.find(it.uuid()).is_some_and(|served| Rc::ptr_eq(&served, it))
        };
        let own = inner.iter().filter(|(outer, it)| outer == uuid && is_served(it));
        own.map(|(_, it)| Rc::clone(it)).collect()
    }
}

/// Lists the files and block devices of a folder, without the local disks of this server: to open
/// one could wait for itself.
fn list(folder: &str) -> Result<Vec<(PathBuf, Stamp)>> {
    let mut paths = disks::scan_folder(Path::new(folder))?;
    paths.retain(|path| !disks::may_be_attached(path));
    Ok(paths.into_iter().filter_map(|path| Some((path.clone(), stamp(&path)?))).collect())
}

fn stamp(path: &Path) -> Option<Stamp> {
    let (node, stat) = (disks::identity(path)?, std::fs::metadata(path).ok()?);
    let (sequence, written) = match stat.file_type().is_block_device() {
        true => (disks::sequence(path), String::new()),
        false => (None, format!("{}.{} {}", stat.mtime(), stat.mtime_nsec(), stat.len())),
    };
    Some(Stamp { disk: DiskIdentity { node, sequence }, written })
}
