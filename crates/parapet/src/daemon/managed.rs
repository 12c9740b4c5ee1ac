//! What `machine` needs of a server that it manages.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

use ::io::Turn;
use layout::{MemberId, Mode};
use os::Signal;

use super::{Daemon, Served};
use crate::api::SignatureView;
use crate::disks;
use crate::failure::{Failure, Id, Result};
use crate::probe;

/// Starts an array by its name, and says that it did.
pub(crate) type Starter = dyn Fn(String) -> Pin<Box<dyn Future<Output = Result<String>>>>;

/// See the module.
#[derive(Default)]
pub(super) struct Managed {
    starter: RefCell<Option<Rc<Starter>>>,
    /// The arrays that a user has stopped, by UUID: each with name and UUID of the array that the
    /// order named, which it may be inside of.
    stopped: RefCell<BTreeMap<String, [String; 2]>>,
    /// True while a task changes which arrays are served.
    changing: Cell<bool>,
    changed: ::io::Signal,
    /// SIGHUPs so far, and those dealt with.
    hangups: Cell<(u64, u64)>,
}

impl Daemon {
    /// Puts the server under management: it stays when its last array is stopped, and at SIGHUP.
    pub(crate) fn manage(&self, starter: Rc<Starter>) {
        self.managed.starter.replace(Some(starter));
    }

    /// Returns true if the server is under management.
    pub(crate) fn is_managed(&self) -> bool {
        self.managed.starter.borrow().is_some()
    }

    /// Starts an array that is not served.
    pub(super) async fn start_named(&self, name: &str) -> Result<String> {
        let starter = self.managed.starter.borrow().clone();
        let Some(starter) = starter else {
            let message = "this server serves only the arrays that it was started with";
            let action = format!("parapet serve {name} --scan DIR, or parapet daemon");
            return Err(Failure::new(Id::WrongState, message, action));
        };
        starter(name.into()).await
    }

    /// Returns true once the shutdown has begun.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.get()
    }

    /// Notes a signal. Returns false if the server is to end.
    pub(super) fn outlives(&self, signal: Signal) -> bool {
        let stays = signal == Signal::Hangup && self.is_managed();
        if stays {
            let (seen, dealt) = self.managed.hangups.get();
            self.managed.hangups.set((seen + 1, dealt));
            self.stirred.raise();
        }
        stays
    }

    /// Waits for the next SIGHUP.
    pub(crate) async fn hung_up(&self) {
        loop {
            let (seen, dealt) = self.managed.hangups.get();
            if seen != dealt {
                return self.managed.hangups.set((seen, seen));
            }
            self.stirred.wait().await;
        }
    }

    /// Returns true if a user has stopped this array: it starts again only on request.
    pub(crate) fn was_stopped(&self, uuid: &str) -> bool {
        self.managed.stopped.borrow().contains_key(uuid)
    }

    /// Notes that a user has stopped this array, and those inside it.
    pub(super) fn note_stopped(&self, served: &Served, all: &[String]) {
        let order = [served.name().to_owned(), served.uuid().to_owned()];
        let stopped = all.iter().map(|uuid| (uuid.clone(), order.clone()));
        self.managed.stopped.borrow_mut().extend(stopped);
    }

    /// Forgets that a user has stopped the array of this name or UUID.
    pub(crate) fn forget_stop(&self, wanted: &str) {
        let is_other = |order: &[String; 2]| order.iter().all(|name| name != wanted);
        self.managed.stopped.borrow_mut().retain(|_, order| is_other(order));
    }

    /// Waits for the turn to change which arrays are served.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        loop {
            match Turn::take(&self.managed.changing, &self.managed.changed) {
                Some(turn) => return turn,
                None => self.managed.changed.wait().await,
            }
        }
    }

    /// Returns true if NBD clients can use the array.
    pub(crate) fn is_exported(&self, served: &Served) -> bool {
        self.exports.name_of(served).is_some()
    }

    /// Returns true if the order `online` or `attach` was carried out already.
    pub(crate) fn is_offered(&self, served: &Served, verb: &str) -> bool {
        match verb {
            "attach" => self.attached_view(served).is_some(),
            _ => self.aoe_view(served).is_some_and(|aoe| aoe.online),
        }
    }

    /// Returns true if a working member of a served array is on this file or device.
    pub(crate) fn is_in_use(&self, identity: (u64, u64)) -> bool {
        let uses = |served: &Rc<Served>| {
            let member = served.member_on(identity);
            member.is_some_and(|id| !served.faulty().contains(&id))
        };
        self.arrays().iter().any(uses)
    }

    /// Returns true if the array lacks a member, and this disk is not one that failed while it was
    /// there: a user decides about that.
    pub(crate) fn takes_back(&self, served: &Served, path: &Path) -> bool {
        let status = served.array.status();
        let lacks = status.slots.iter().any(|slot| slot.member.is_none());
        let failed = disks::identity(path).and_then(|identity| served.member_on(identity));
        let is_there = failed.and_then(|id| served.known(id)).is_some_and(|known| !known.is_gone());
        lacks && !is_there && status.mode == Mode::ReadWrite
    }

    /// Returns the signatures of md members on this disk, as an order names them.
    ///
    /// # Errors
    /// If the disk cannot be read.
    pub(crate) async fn own_signatures(&self, path: &str) -> Result<Vec<String>> {
        let options = os::Options { read_only: true, lock: false, ..os::Options::default() };
        let opened = disks::open_one(Path::new(path), &options, &self.spawner).await?;
        let found = probe::contents(&opened).await?.signatures;
        Ok(found.iter().filter(|it| it.is_member()).map(SignatureView::to_string).collect())
    }
}

impl Served {
    /// Returns true if a member uses this address of another machine, or it is awaited there.
    pub(crate) fn knows_address(&self, path: &Path) -> bool {
        self.member_at(path).is_some() || self.awaited.borrow().iter().any(|it| it == path)
    }

    /// Returns the size of a member's disk, in bytes.
    pub(crate) fn member_bytes(&self, id: MemberId) -> Option<u64> {
        self.known(id).map(|known| known.disk.limits().bytes)
    }
}
