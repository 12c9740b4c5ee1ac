//! Members on other machines: no folder has them, so the configuration names their addresses.
//!
//! ```text
//!    address ─▶ connect, read the superblock ─▶ a member of this array: as a disk in a folder
//!                 └─ no answer: again in 5 s
//!    array starts without it ─▶ the server awaits it, and re-adds it (daemon/network)
//! ```
//!
//! Looks only at addresses of arrays that are not served. Holds no connection: the start of the
//! array opens its own. A server that does not answer delays no other array.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Signal, TaskSet};

use super::Machine;
use super::settings::ArraySettings;
use crate::cmd::serve::sources;
use crate::daemon::{Served, first};
use crate::disks;

/// Pause between two looks at a disk that did not answer.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// What is known of the network members of arrays that are not served.
#[derive(Default)]
pub(super) struct NetworkMembers {
    /// UUID of the array of each that has answered.
    known: RefCell<BTreeMap<PathBuf, String>>,
    /// Why the others are not used, as logged.
    refusals: RefCell<BTreeMap<PathBuf, String>>,
    /// True while a look is under way.
    is_looking: Cell<bool>,
    looked: Signal,
    /// Raised when the configuration has changed.
    pub(super) changed: Signal,
}

impl NetworkMembers {
    /// The members of this array that have answered.
    pub(super) fn of(&self, uuid: &str) -> Vec<PathBuf> {
        let known = self.known.borrow();
        known.iter().filter(|(_, array)| *array == uuid).map(|(path, _)| path.clone()).collect()
    }

    /// Forgets these, and those of this array: they are looked at again.
    pub(super) fn forget(&self, members: &[PathBuf], uuid: &str) {
        let mut known = self.known.borrow_mut();
        known.retain(|path, array| array != uuid && !members.contains(path));
    }

    /// Logs why an address is not used, once.
    fn refuse(&self, path: &Path, why: String) {
        let mut refusals = self.refusals.borrow_mut();
        if refusals.get(path) != Some(&why) {
            tracing::warn!("{why}");
            refusals.insert(path.to_owned(), why);
        }
    }
}

impl Machine {
    /// Looks again and again at the network members that are not known, until the server ends.
    pub(super) async fn watch_network(self: Rc<Self>) {
        let clock = self.daemon.spawner().clock();
        while !self.daemon.is_ending() {
            let wait = clock.sleep_until(clock.now() + LOOK_INTERVAL);
            first(self.network.changed.wait(), wait).await;
            self.look_at_network().await;
        }
    }

    /// Forgets the addresses that the configuration does not name any more, and looks at new ones.
    pub(super) fn reload_network(&self) {
        let named: Vec<PathBuf> = self.network_members().map(|(_, path)| path).collect();
        self.network.known.borrow_mut().retain(|path, _| named.contains(path));
        self.network.refusals.borrow_mut().retain(|path, _| named.contains(path));
        self.network.changed.raise();
    }

    /// Looks at all network members that are not known, at the same time. Waits for the last.
    pub(super) async fn look_at_network(self: &Rc<Self>) {
        while self.network.is_looking.replace(true) {
            self.network.looked.wait().await;
        }
        let tasks = TaskSet::new();
        for (section, path) in self.unknown_network_members() {
            let machine = Rc::clone(self);
            tasks.spawn(async move { machine.look_at(&section, &path).await });
        }
        tasks.run().await;
        self.network.is_looking.set(false);
        self.network.looked.raise();
    }

    /// The network members of arrays that are not served, without those that have answered: each
    /// with the section that names it.
    fn unknown_network_members(&self) -> Vec<(String, PathBuf)> {
        let known = self.network.known.borrow();
        let is_unknown = |(section, path): &(String, PathBuf)| {
            !known.contains_key(path) && self.daemon.find(section).is_none()
        };
        self.network_members().filter(is_unknown).collect()
    }

    /// All network members, each with the section that names it.
    fn network_members(&self) -> impl Iterator<Item = (String, PathBuf)> + use<> {
        let loaded = self.loaded.borrow();
        let mut all = Vec::new();
        for section in loaded.config.array.keys() {
            // `settings::read` has tested it.
            let settings = ArraySettings::of(&loaded, section, "");
            let members = settings.map(|it| it.network_members).unwrap_or_default();
            all.extend(members.into_iter().map(|path| (section.clone(), path)));
        }
        all.into_iter()
    }

    /// Looks at one: whether it is a member of the array of this section.
    async fn look_at(&self, section: &str, path: &Path) {
        let disk = match disks::open_one(path, &sources::LOOK, self.daemon.spawner()).await {
            Ok(disk) => disk,
            Err(failure) => return self.network.refuse(path, format!("{section}: {failure}")),
        };
        let (found, _) = sources::survey_of(&[&disk]).await;
        let Some(group) = found.first() else {
            let why = format!("{section}: {}: no member of an array", path.display());
            return self.network.refuse(path, why);
        };
        if section != group.name && section != group.uuid {
            let (name, path_text) = (&group.name, path.display());
            let why = format!("{section}: {path_text}: left out: it is a member of {name}");
            return self.network.refuse(path, why);
        }
        tracing::info!("{section}: {}: found", path.display());
        self.network.refusals.borrow_mut().remove(path);
        self.network.known.borrow_mut().insert(path.to_owned(), group.uuid.clone());
        self.await_members(group);
        self.stirred.raise();
    }

    /// Lets a served array take its network members when they answer, if it has room for them.
    pub(super) fn await_network(&self, served: &Rc<Served>, members: &[PathBuf]) {
        let has_empty_slot = served.array.status().slots.iter().any(|slot| slot.member.is_none());
        if has_empty_slot {
            let away: Vec<PathBuf> =
                members.iter().filter(|path| !served.knows_address(path)).cloned().collect();
            served.await_members(&away);
        }
    }
}
