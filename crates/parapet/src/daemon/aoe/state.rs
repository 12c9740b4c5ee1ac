//! The state of an export: what is kept with the array, and what clients see.
//!
//! Kept on the members with a private area, and in the state folder for arrays without one. A
//! change counts when it is durable there.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use ::io::{Disk, Mac, Signal, Turn};
use layout::md::Uuid;
use layout::private::export::{ExportCopy, ExportState};
use metadata::export;
use net::aoe::target::access::{Masks, Registration, Reservation};
use net::aoe::wire::access::Kind;
use net::aoe::{Address, LunState};

use super::super::{Daemon, Served, of_engine};
use crate::failure::{Failure, Id, Result, of_path};
use crate::places;

/// An array's export.
pub(in crate::daemon) struct ExportEntry {
    /// The interfaces that were named for it.
    pub(super) interfaces: RefCell<Vec<String>>,
    /// The state that is durable.
    pub(super) kept: RefCell<ExportState>,
    /// The address at which it is served now.
    pub(super) served: Cell<Option<Address>>,
    generation: Cell<u64>,
    /// Why there is no state, if every copy is damaged: masks may be lost with it.
    lost: RefCell<Option<String>>,
    /// The members that have the state.
    keepers: RefCell<Vec<String>>,
    keeping: Cell<bool>,
    kept_changed: Signal,
}

impl ExportEntry {
    pub(super) fn served_at(&self) -> Option<Address> {
        self.served.get()
    }

    /// Refuses to serve an export whose masks may be lost: it would answer every client.
    pub(super) fn refuse_lost(&self, name: &str) -> Result<()> {
        let Some(why) = &*self.lost.borrow() else { return Ok(()) };
        let message = format!("{name}: the state of the AoE export is damaged: {why}");
        let action = format!(
            "serve it without --aoe and set it anew: parapet shelf {name} SHELF.SLOT, and parapet \
             mask {name} --add MAC"
        );
        Err(Failure::new(Id::Input, message, action))
    }

    /// The address that is kept, if Linux and others can use it.
    pub(super) fn address(&self) -> Option<Address> {
        let (shelf, slot) = self.kept.borrow().address?;
        Some(Address { shelf, slot }).filter(|address| address.is_usable())
    }

    /// What clients see.
    pub(super) fn lun_state(&self) -> LunState {
        let kept = self.kept.borrow();
        let macs = |list: &[[u8; 6]]| list.iter().map(|&mac| Mac(mac)).collect::<Vec<_>>();
        let registrations = kept.registrations.iter();
        let registrations =
            registrations.map(|(key, list)| Registration { key: *key, macs: macs(list) }).collect();
        let keyed = kept.keyed.and_then(|(kind, key)| Some((Kind::of(kind)?, key)));
        LunState {
            config: kept.config.clone(),
            masks: Masks::new(macs(&kept.masks)),
            reservation: Reservation::restored(macs(&kept.holders), registrations, keyed),
        }
    }
}

/// The kept state with what clients have set.
pub(super) fn with_lun(kept: &ExportState, lun: &LunState) -> ExportState {
    let bytes = |macs: &[Mac]| macs.iter().map(|mac| mac.0).collect::<Vec<_>>();
    let registrations = lun.reservation.registrations().iter();
    ExportState {
        config: lun.config.clone(),
        masks: bytes(lun.masks.list()),
        holders: bytes(lun.reservation.holders()),
        keyed: lun.reservation.keyed().map(|(kind, key)| (kind as u8, key)),
        registrations: registrations.map(|it| (it.key, bytes(&it.macs))).collect(),
        ..kept.clone()
    }
}

/// The members that can keep a state: those in use.
fn keepers(served: &Served) -> Vec<(String, Rc<dyn Disk>)> {
    let faulty = served.faulty();
    let known = served.all_known().into_iter().filter(|(id, _)| !faulty.contains(id));
    known.map(|(_, known)| (known.path.display().to_string(), known.disk)).collect()
}

fn uuid_of(served: &Served) -> Uuid {
    Uuid(served.array.status().uuid)
}

/// The file for arrays whose members have no room.
fn file(served: &Served) -> PathBuf {
    places::state().join("exports").join(served.uuid().replace(':', ""))
}

impl Daemon {
    /// Returns the export of an array; reads its state the first time.
    ///
    /// # Errors
    /// If the file of an array without room cannot be read.
    pub(super) async fn export_entry(&self, served: &Rc<Served>) -> Result<Rc<ExportEntry>> {
        if let Some(entry) = self.aoe.entry(served.uuid()) {
            return Ok(entry);
        }
        let (name, clock) = (served.name(), self.spawner.clock() as Rc<_>);
        let members = keepers(served);
        let found = export::read(&members, uuid_of(served), &clock).await;
        for (member, fault) in &found.damaged {
            tracing::warn!("{name}: {member}: {fault}");
        }
        let latest = match found.latest {
            Some(latest) => Some(latest),
            None => read_file(served)?,
        };
        // A member without a copy was read: then there never was one.
        let unread = found.damaged.len() + found.without_room.len();
        let lost = found.damaged.into_iter().next();
        let lost = lost.filter(|_| latest.is_none() && unread == members.len());
        let generation = latest.as_ref().map_or(0, |copy| copy.generation);
        let entry = Rc::new(ExportEntry {
            interfaces: RefCell::default(),
            kept: RefCell::new(latest.map(|copy| copy.state).unwrap_or_default()),
            served: Cell::default(),
            generation: Cell::new(generation),
            lost: RefCell::new(lost.map(|(member, fault)| format!("{member}: {fault}"))),
            keepers: RefCell::default(),
            keeping: Cell::default(),
            kept_changed: Signal::new(),
        });
        let uuid = served.uuid().to_owned();
        Ok(Rc::clone(self.aoe.entries.borrow_mut().entry(uuid).or_insert(entry)))
    }

    /// Makes a new state durable.
    ///
    /// # Errors
    /// If a member cannot keep it; then the old state counts.
    pub(super) async fn keep_export(
        &self,
        served: &Served,
        entry: &ExportEntry,
        state: ExportState,
    ) -> Result<()> {
        let _turn = loop {
            match Turn::take(&entry.keeping, &entry.kept_changed) {
                Some(turn) => break turn,
                None => entry.kept_changed.wait().await,
            }
        };
        if *entry.kept.borrow() == state && entry.lost.borrow().is_none() {
            return Ok(());
        }
        self.write_export(served, entry, &state).await?;
        entry.kept.replace(state);
        entry.lost.replace(None);
        Ok(())
    }

    async fn write_export(
        &self,
        served: &Served,
        entry: &ExportEntry,
        state: &ExportState,
    ) -> Result<()> {
        let generation = entry.generation.get() + 1;
        let (members, clock) = (keepers(served), self.spawner.clock() as Rc<_>);
        let uuid = uuid_of(served);
        let kept = export::write(&members, (uuid, generation), state, &clock).await;
        if kept.map_err(of_engine)? == 0 {
            let is_first = entry.generation.get() == 0;
            write_file(served, ExportCopy { set_uuid: uuid, generation, state: state.clone() })?;
            if is_first {
                let file = file(served);
                tracing::warn!(
                    "{}: its members have no room for the export's state: it is kept in {}, and \
                     does not travel with the array",
                    served.name(),
                    file.display()
                );
            }
        }
        entry.generation.set(generation);
        entry.keepers.replace(members.into_iter().map(|(name, _)| name).collect());
        Ok(())
    }

    /// Keeps what a client has set.
    ///
    /// # Errors
    /// As [`Daemon::keep_export`].
    pub(super) async fn keep_lun(&self, served: &Rc<Served>, lun: LunState) -> Result<()> {
        let entry = self.export_entry(served).await?;
        let state = with_lun(&entry.kept.borrow(), &lun);
        self.keep_export(served, &entry, state).await
    }

    /// Gives the state to members that have joined since it was kept.
    pub(in crate::daemon) async fn spread_export(&self, served: &Served) {
        let Some(entry) = self.aoe.entry(served.uuid()) else { return };
        let mut members = keepers(served).into_iter().map(|(name, _)| name);
        let is_new = |name: String| !entry.keepers.borrow().contains(&name);
        if entry.generation.get() == 0 || entry.keepers.borrow().is_empty() || entry.keeping.get() {
            return;
        }
        if members.any(is_new) {
            let state = entry.kept.borrow().clone();
            if let Err(why) = self.write_export(served, &entry, &state).await {
                tracing::debug!(%why, "the export's state is not on all members");
            }
        }
    }
}

fn read_file(served: &Served) -> Result<Option<ExportCopy>> {
    let path = file(served);
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(of_path(&path, &error)),
    };
    ExportCopy::parse(&bytes, &uuid_of(served), parity::crc32c).map_err(|fault| {
        let message = format!("{}: {fault}", path.display());
        Failure::new(Id::Input, message, "remove the file, and set masks and address anew")
    })
}

/// Replaces the file, durably.
fn write_file(served: &Served, copy: ExportCopy) -> Result<()> {
    use std::io::Write as _;
    let path = file(served);
    let folder = path.parent().unwrap_or(&path);
    let new = path.with_extension("new");
    let failed = |error| of_path(&path, &error);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let write = || {
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&copy.print(parity::crc32c))?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        std::fs::File::open(folder)?.sync_all()
    };
    write().map_err(failed)
}
