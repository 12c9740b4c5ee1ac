//! A served array, and its members as users see them.
//!
//! The engine identifies members by number. This module keeps their paths, serial numbers and open
//! disks. It keeps a failed member, with its disk, until the member is removed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};

use array::{Array, CacheMode};
use io::{Disk, Signal};
use layout::{MemberId, Mode};
use net::bytewise::Writers;
use os::{FileDisk, Spawner};

use super::crew::Card;
use super::error_places::ErrorPlaces;
use super::history::History;
use super::job_rate::JobRate;
use super::scrub::Scrubs;
use super::watch::Watched;
use crate::api::DiskHealth;
use crate::disks::{self, Opened};
use crate::failure::{Failure, Id, Result};
use crate::places;
use crate::remote::{self, Remote};

/// A member as users see it.
#[derive(Clone)]
pub(crate) struct Known {
    /// The path that it was opened at.
    pub(crate) path: PathBuf,
    /// Its serial number.
    pub(crate) serial: Option<String>,
    /// Its UUID in the superblock; empty if unknown.
    pub(crate) uuid: String,
    /// Identifies the file or device independently of its path.
    pub(crate) identity: Option<(u64, u64)>,
    /// The disk.
    pub(crate) disk: Rc<dyn Disk>,
    /// The file or device behind the disk; none for an array inside this one, or a disk on another
    /// machine.
    pub(crate) file: Option<Rc<FileDisk>>,
    /// The connections to a disk on another machine.
    pub(crate) remote: Option<Remote>,
}

/// The result of the assembly, and the mode of operation.
pub(crate) struct Story {
    /// Notes for the user.
    pub(crate) notes: Vec<String>,
    /// Why the intent log was unusable when a replay needed it.
    pub(crate) log_unusable: Option<String>,
    /// Why the array is read-only, unless only because the user asked for it.
    pub(crate) read_only: Option<String>,
    /// When the array acknowledges writes.
    pub(crate) cache: CacheMode,
}

/// See the module.
pub(crate) struct Served {
    /// The array.
    pub(crate) array: Array,
    uuid: String,
    name: String,
    known: RefCell<BTreeMap<MemberId, Known>>,
    /// The result of the assembly, and the mode of operation.
    pub(super) story: Story,
    /// Removed disks that requests in flight may still hold.
    leaving: RefCell<Vec<Weak<FileDisk>>>,
    /// Named members on other machines that did not answer yet.
    pub(super) awaited: RefCell<Vec<PathBuf>>,
    /// The UUID of the outer array that this one is a member of.
    inside: RefCell<Option<String>>,
    pub(super) watched: RefCell<Watched>,
    pub(super) job_rate: JobRate,
    /// Orders the writes of its clients.
    writers: Writers,
    /// Health of the disks of its members.
    pub(super) health: RefCell<BTreeMap<MemberId, DiskHealth>>,
    pub(super) error_places: ErrorPlaces,
    pub(super) history: History,
    pub(super) scrubs: Scrubs,
    gone: Signal,
    stopped: Cell<bool>,
    /// Hides it from views until it is offered: who sees an array may expect its exports.
    pub(crate) is_starting: Cell<bool>,
}

impl Served {
    /// Wraps an array that has just started, with its members.
    pub(crate) fn new(array: Array, known: BTreeMap<MemberId, Known>, story: Story) -> Served {
        let uuid = layout::md::Uuid(array.status().uuid).to_string();
        let name = places::array_name(array.name(), &uuid);
        let known = RefCell::new(known);
        let (leaving, awaited, inside) = Default::default();
        let job_rate = JobRate::default();
        // Serving an array read-only changes nothing on any disk.
        let (history, scrubs) = match array.status().mode {
            Mode::ReadOnly => (History::unkept(), Scrubs::unkept()),
            Mode::ReadWrite | Mode::Full | Mode::Broken => {
                (History::open(&name, &uuid), Scrubs::open(&name, &uuid))
            }
        };
        let (watched, gone, stopped) = (RefCell::default(), Signal::new(), Cell::new(false));
        Served {
            array,
            uuid,
            name,
            known,
            story,
            leaving,
            awaited,
            inside,
            watched,
            job_rate,
            writers: Writers::default(),
            health: RefCell::default(),
            is_starting: Cell::new(false),
            error_places: ErrorPlaces::default(),
            history,
            scrubs,
            gone,
            stopped,
        }
    }

    /// Returns its UUID, as md writes it.
    pub(crate) fn uuid(&self) -> &str {
        &self.uuid
    }

    /// Returns its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the assembly's notes for the user.
    pub(crate) fn notes(&self) -> &[String] {
        &self.story.notes
    }

    /// Returns why the array is read-only, if it is.
    pub(crate) fn read_only(&self) -> Option<&str> {
        self.story.read_only.as_deref()
    }

    /// Returns the UUID of the outer array that this one is a member of.
    pub(crate) fn inside(&self) -> Option<String> {
        self.inside.borrow().clone()
    }

    /// Records that it is a member of `outer`.
    pub(crate) fn put_inside(&self, outer: &Served) {
        *self.inside.borrow_mut() = Some(outer.uuid.clone());
    }

    /// Returns what orders the writes of all clients that write single bytes.
    pub(super) fn writers(&self) -> &Writers {
        &self.writers
    }

    /// Returns its export properties for clients.
    pub(super) fn card(&self, name: &str, read_only: bool, is_default: bool) -> Card {
        let level = self.array.geometry().layout().level();
        let description = format!("{level} of {} members", self.array.geometry().slots());
        let (name, writers, clients) = (name.into(), self.writers.clone(), Default::default());
        Card { name, description, read_only, is_default, writers, clients }
    }

    /// Returns a member by its number.
    pub(super) fn known(&self, id: MemberId) -> Option<Known> {
        self.known.borrow().get(&id).cloned()
    }

    /// Returns the member on this disk of another machine.
    pub(super) fn member_at(&self, address: &Path) -> Option<MemberId> {
        let wanted = remote::address_of(address).ok()?;
        let known = self.known.borrow();
        let is_it = |known: &Known| {
            known.remote.is_some()
                && remote::address_of(&known.path).is_ok_and(|own| own.is_same_disk(&wanted))
        };
        known.iter().find(|(_, known)| is_it(known)).map(|(&id, _)| id)
    }

    /// Returns all members with a disk, including failed ones.
    pub(super) fn all_known(&self) -> Vec<(MemberId, Known)> {
        self.known.borrow().iter().map(|(&id, member)| (id, member.clone())).collect()
    }

    /// Records a member.
    pub(super) fn remember(&self, id: MemberId, member: Known) {
        self.forget_errors(id);
        self.health.borrow_mut().remove(&id);
        self.known.borrow_mut().insert(id, member);
    }

    /// Removes a member and releases its disk.
    pub(super) fn forget(&self, id: MemberId) {
        if let Some(known) = self.known.borrow_mut().remove(&id) {
            let mut leaving = self.leaving.borrow_mut();
            leaving.retain(|disk| disk.strong_count() > 0);
            leaving.extend(known.file.map(|file| Rc::downgrade(&file)));
        }
    }

    /// Returns this disk if it was removed and is still open.
    pub(super) fn still_open(
        &self,
        path: &Path,
        identity: (u64, u64),
        on: &Spawner,
    ) -> Option<Opened> {
        let file = usable(&self.leaving.borrow(), identity)?;
        Opened::file(path, file, on).ok()
    }

    /// Returns the member on this file or device.
    pub(super) fn member_on(&self, identity: (u64, u64)) -> Option<MemberId> {
        let known = self.known.borrow();
        known.iter().find(|(_, known)| known.identity == Some(identity)).map(|(&id, _)| id)
    }

    /// Returns the members without a slot: failed ones that were not removed.
    pub(crate) fn faulty(&self) -> Vec<MemberId> {
        let status = self.array.status();
        let slots =
            status.slots.iter().flat_map(|slot| slot.member.iter().chain(&slot.replacement));
        let placed: Vec<MemberId> = slots.chain(&status.spares).map(|member| member.id).collect();
        self.known.borrow().keys().copied().filter(|id| !placed.contains(id)).collect()
    }

    /// Resolves a member by slot, path, serial number or UUID.
    ///
    /// # Errors
    /// If there is none, or no member in that slot.
    pub(crate) fn resolve(&self, who: &str) -> Result<MemberId> {
        let unknown = |message: String| {
            let action = format!("parapet status {} shows the members", self.name());
            Failure::new(Id::NoMember, message, action)
        };
        if let Ok(slot) = who.parse::<usize>() {
            let status = self.array.status();
            let member = status.slots.get(slot).map(|slot| slot.member.as_ref());
            return match member {
                None => {
                    let last = status.slots.len().saturating_sub(1);
                    Err(unknown(format!(
                        "{} has no slot {slot}: its slots are 0 to {last}",
                        self.name()
                    )))
                }
                Some(None) => Err(unknown(format!("{}: slot {slot} has no member", self.name()))),
                Some(Some(member)) => Ok(member.id),
            };
        }
        let known = self.known.borrow();
        let named = known.iter().find(|(_, member)| {
            member.path == Path::new(who)
                || std::path::absolute(&member.path).is_ok_and(|path| path == Path::new(who))
                || member.serial.as_deref() == Some(who)
                || member.uuid == who
        });
        // Resolve a path only if no member has this name: the file system may hang.
        let found = named.map(|(&id, _)| id).or_else(|| {
            // `sdc` is short for `/dev/sdc`, unless two members end so.
            let is_short = |path: &Path| path.file_name().is_some_and(|name| name == who);
            let mut short = known.iter().filter(|(_, member)| is_short(&member.path));
            let first = short.next().map(|(&id, _)| id);
            first.filter(|_| short.next().is_none())
        });
        let found = found.or_else(|| self.member_on(disks::identity(Path::new(who))?));
        found.ok_or_else(|| unknown(format!("{} has no member called {who}", self.name())))
    }

    /// Stops the array in order.
    ///
    /// # Errors
    /// If its members could not be marked clean; the array stops nevertheless.
    pub(super) async fn stop(&self) -> Result<()> {
        self.fail_deleted().await;
        let stopped = self.array.stop().await;
        self.stopped.set(true);
        self.gone.raise();
        stopped.map_err(|error| {
            let message = format!("{} could not be marked clean: {error}", self.name());
            Failure::new(Id::Failed, message, "the next start resyncs the dirty regions")
        })
    }

    pub(super) async fn until_stopped(&self) {
        while !self.stopped.get() {
            self.gone.wait().await;
        }
    }
}

/// Returns this disk if one of `leaving` is it and is still open. A disk seen truncated never
/// counts as whole again; the caller may open it anew.
fn usable(leaving: &[Weak<FileDisk>], identity: (u64, u64)) -> Option<Rc<FileDisk>> {
    let mut files = leaving.iter().filter_map(Weak::upgrade);
    files.find(|file| file.identity() == identity && !file.is_gone())
}

#[cfg(test)]
mod tests {
    use os::{Config, Executor, Options};

    use super::*;

    #[test]
    fn a_file_that_was_cut_is_opened_anew_however_long_the_old_one_is_held() {
        let executor = Executor::new(Config::default()).expect("an executor");
        let name = format!("parapet-served-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let raw = std::fs::File::create(&path).expect("a file");
        raw.set_len(1 << 20).expect("there is space");
        let held = FileDisk::open(&path, &Options::default(), &executor.spawner()).expect("opens");
        let leaving = [Rc::downgrade(&held)];
        assert!(usable(&leaving, held.identity()).is_some(), "as long as it is whole");
        raw.set_len(4096).expect("a file can be truncated");
        assert!(usable(&leaving, held.identity()).is_none());
        raw.set_len(1 << 20).expect("there is space");
        assert!(usable(&leaving, held.identity()).is_none(), "its data is lost");
        std::fs::remove_file(&path).expect("the item exists");
    }
}
