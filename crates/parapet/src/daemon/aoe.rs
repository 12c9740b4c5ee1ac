//! ATA over Ethernet exports of a server.
//!
//! ```text
//!    serve --aoe, online ─▶ Daemon ─▶ Target ◀── ports, one for each interface
//!    mask, shelf …   ─────▶ Lun's state ◀──── clients, where they may
//!                              └─ kept on the members (state)
//! ```
//!
//! One target serves all LUNs on all interfaces, on the server's first thread: requests then have
//! one order of arrival, whichever interface they come through.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::{Rc, Weak};
use std::str::FromStr;
use std::time::Duration;

use ::io::{Clock, Disk, Link, Mac, Pool, Time};
use array::status::{SlotState, SlotStatus};
pub(crate) use net::aoe::LunPolicy as AoePolicy;
use net::aoe::target::{Event, Keeping};
use net::aoe::wire::smart::Health;
use net::aoe::{Address, Host, Lun, LunOptions, LunState, Target, discover};
use os::Port;
use os::link::{Filter, PortError, Role};

use super::{Daemon, QUIET, Served};
use crate::failure::{Failure, Id, Result};
use crate::remote::{interfaces, of_port, open_port};

mod orders;
mod state;

pub(super) use state::ExportEntry;

/// The unit of the counters that clients read.
const BLOCK: u64 = 512;
/// Unused memory that the target keeps for frames and reads.
const POOL_BYTES: usize = 32 << 20;
/// Pause between two attempts to open an interface that has gone.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);

/// A LUN as users name it: `[SHELF.SLOT]@INTERFACE[,INTERFACE…]`. Without an address it has the one
/// that is kept with the array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AoePlace {
    address: Option<Address>,
    /// Not empty, each once.
    interfaces: Vec<String>,
}

impl FromStr for AoePlace {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AoePlace, String> {
        let wrong = "write it as SHELF.SLOT@INTERFACE, for example 1.0@eth1 or 1.0@eth1,eth2";
        let (address, interfaces) = text.split_once('@').ok_or(wrong)?;
        let address = match address {
            "" => None,
            text => Some(text.parse()?),
        };
        Ok(AoePlace { address, interfaces: self::interfaces(interfaces)? })
    }
}

impl fmt::Display for AoePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            address.fmt(f)?;
        }
        write!(f, "@{}", self.interfaces.join(","))
    }
}

/// An export as the command line names it: `[NAME=]PLACE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AoeExport {
    /// Name or UUID of the array; the only one, if there is none.
    array: Option<String>,
    place: AoePlace,
}

impl FromStr for AoeExport {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AoeExport, String> {
        let (array, place) = match text.rsplit_once('=') {
            Some(("", _)) => return Err("the name of the array is empty".into()),
            Some((array, place)) => (Some(array.to_owned()), place),
            None => (None, text),
        };
        Ok(AoeExport { array, place: place.parse()? })
    }
}

impl fmt::Display for AoeExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(array) = &self.array {
            write!(f, "{array}=")?;
        }
        self.place.fmt(f)
    }
}

/// The AoE exports of a server.
#[derive(Default)]
pub(super) struct Aoe {
    target: RefCell<Option<Target>>,
    pool: RefCell<Option<Pool>>,
    /// The open interfaces.
    ports: RefCell<BTreeSet<String>>,
    policy: Cell<AoePolicy>,
    /// By the UUIDs of the arrays.
    entries: RefCell<BTreeMap<String, Rc<ExportEntry>>>,
    last_refusal: Cell<Option<Time>>,
}

/// Answers the target's questions about the arrays.
struct Arrays(Weak<Daemon>);

impl Host for Arrays {
    fn health(&self, lun: Address) -> Health {
        let Some(daemon) = self.0.upgrade() else { return Health::default() };
        daemon.array_at(lun).map_or(Health::default(), |served| health(&served))
    }

    fn keep(&self, lun: Address, state: &LunState) -> Keeping {
        let (daemon, state) = (self.0.upgrade(), state.clone());
        Box::pin(async move {
            let daemon = daemon.ok_or("the server is stopping")?;
            let served = daemon.array_at(lun).ok_or("it is not served any more")?;
            let kept = daemon.keep_lun(&served, state).await;
            kept.map_err(|failure| failure.message)
        })
    }

    fn report(&self, lun: Address, client: Mac, event: Event) {
        let Some(daemon) = self.0.upgrade() else { return };
        let name = daemon.array_at(lun).map_or("array".into(), |served| served.name().to_owned());
        match event {
            Event::Changed(part) => tracing::info!("{name}: {lun}: {client} changed the {part}"),
            Event::Refused(part) if daemon.aoe.logs_refusal(daemon.spawner.clock().now()) => {
                tracing::warn!("{name}: {lun}: refused a change of the {part} by {client}");
            }
            Event::Refused(_) => {}
            Event::NotKept(part, why) => {
                tracing::error!("{name}: {lun}: the {part} was not changed: {why}");
            }
        }
    }
}

/// Returns the health of an array in the terms of a disk.
fn health(served: &Served) -> Health {
    let status = served.array.status();
    let degraded = |slot: &&SlotStatus| {
        matches!(slot.state, SlotState::Missing | SlotState::Rebuilding { .. })
    };
    let members_lost = status.slots.iter().filter(degraded).count() as u64;
    let lost = status.bad_bytes / BLOCK;
    let repaired = status.last_scrub.map_or(0, |scrub| scrub.report.repaired_bytes / BLOCK);
    Health { failing: members_lost > 0 || lost > 0, repaired, lost, members_lost }
}

impl Aoe {
    /// Returns true if a refusal is logged now: any client on the wire can cause them, so the log
    /// gets one at an interval.
    fn logs_refusal(&self, now: Time) -> bool {
        let due = self.last_refusal.get().is_none_or(|last| now - last >= QUIET);
        if due {
            self.last_refusal.set(Some(now));
        }
        due
    }

    /// Returns the entry of an array, once its export was used.
    pub(super) fn entry(&self, uuid: &str) -> Option<Rc<ExportEntry>> {
        self.entries.borrow().get(uuid).cloned()
    }

    /// Returns the exports that are online, as the command line writes them.
    pub(super) fn addresses(&self) -> Vec<String> {
        let entries = self.entries.borrow();
        let online = entries.values().filter_map(|entry| entry.served_at());
        online.map(|address| format!("aoe:{address}")).collect()
    }

    /// Stops serving the LUN of an array. Completes when its requests have ended.
    pub(super) fn retire(&self, gone: &str) -> impl Future<Output = ()> + 'static {
        let entry = self.entries.borrow_mut().remove(gone);
        let address = entry.and_then(|entry| entry.served.take());
        let target = self.target.borrow().clone();
        let offline = address.zip(target).map(|(address, target)| target.offline(address));
        async move {
            if let Some(offline) = offline {
                offline.await;
            }
        }
    }
}

impl Daemon {
    /// Serves arrays over ATA over Ethernet.
    ///
    /// # Errors
    /// If an interface cannot be used, an address is taken, or an array is not served.
    pub(crate) async fn serve_aoe(self: &Rc<Self>, exports: &[AoeExport]) -> Result<()> {
        for export in exports {
            let served = self.array_of(export)?;
            let entry = self.export_entry(&served).await?;
            // Without an address it is as it was: online or not.
            let wanted = export.place.address.is_some() || entry.kept.borrow().online;
            entry.interfaces.replace(export.place.interfaces.clone());
            if wanted {
                self.online(&served, &entry, Some(&export.place)).await?;
            } else {
                tracing::info!("{}: AoE stays offline, as it was", served.name());
            }
        }
        Ok(())
    }

    /// Sets what holds for all AoE exports, also for those that are online.
    pub(crate) fn set_aoe_policy(&self, policy: AoePolicy) {
        self.aoe.policy.set(policy);
        let Some(target) = self.aoe.target.borrow().clone() else { return };
        let entries = self.aoe.entries.borrow();
        let online = entries.values().filter_map(|entry| target.lun(entry.served_at()?));
        online.for_each(|lun| lun.set_policy(policy));
    }

    /// Serves an array as a LUN, and keeps that it is online.
    async fn online(
        self: &Rc<Self>,
        served: &Rc<Served>,
        entry: &Rc<ExportEntry>,
        place: Option<&AoePlace>,
    ) -> Result<()> {
        let name = served.name();
        if let Some(address) = entry.served_at() {
            let message = format!("{name} is online as AoE {address}");
            return Err(Failure::new(Id::WrongState, message, format!("parapet offline {name}")));
        }
        entry.refuse_lost(name)?;
        let named = place.and_then(|place| place.address);
        let address = named.or_else(|| entry.address()).ok_or_else(|| {
            let action = format!("say it: parapet online {name} SHELF.SLOT@INTERFACE");
            Failure::new(Id::Usage, format!("{name} has no AoE address yet"), action)
        })?;
        let interfaces = match place {
            Some(place) => place.interfaces.clone(),
            None => entry.interfaces.borrow().clone(),
        };
        if interfaces.is_empty() {
            let message = format!("{name}: no interface is named for AoE");
            let action = format!("say one: parapet online {name} {address}@INTERFACE");
            return Err(Failure::new(Id::Usage, message, action));
        }
        self.refuse_taken(served, address)?;
        for interface in &interfaces {
            self.ask_before(interface, address).await?;
        }
        entry.interfaces.replace(interfaces.clone());
        let mut kept = entry.kept.borrow().clone();
        (kept.address, kept.online) = (Some((address.shelf, address.slot)), true);
        self.keep_export(served, entry, kept).await?;
        let target = self.target();
        for interface in &interfaces {
            self.open_for(&target, interface)?;
        }
        let policy = self.aoe.policy.get();
        let lun = self.lun(served, entry, address, policy);
        let durable = if policy.volatile { "when the members have them" } else { "when durable" };
        let on = interfaces.join(", ");
        tracing::info!("{name}: online as AoE {address} on {on}: writes are answered {durable}");
        entry.served.set(Some(address));
        target.online(Rc::new(lun));
        Ok(())
    }

    fn lun(&self, served: &Served, entry: &ExportEntry, at: Address, policy: AoePolicy) -> Lun {
        let options = LunOptions {
            serial: served.uuid().replace(['-', ':'], "").chars().take(20).collect(),
            model: format!("Parapet {}", served.array.status().layout.level()),
            firmware: env!("CARGO_PKG_VERSION").into(),
            ports: entry.interfaces.borrow().clone(),
            read_only: false,
            volatile: policy.volatile,
            remote_control: policy.remote_control,
        };
        let disk = Rc::new(served.array.clone()) as Rc<dyn Disk>;
        Lun::new(at, disk, options, entry.lun_state(), self.aoe_pool())
    }

    /// Refuses an address that another array of this server has.
    fn refuse_taken(&self, served: &Served, address: Address) -> Result<()> {
        let entries = self.aoe.entries.borrow();
        let is_taken = |(uuid, entry): (&String, &Rc<ExportEntry>)| {
            uuid != served.uuid() && entry.served_at() == Some(address)
        };
        if !entries.iter().any(is_taken) {
            return Ok(());
        }
        let message = format!("aoe:{address}: two exports have this address");
        Err(Failure::new(Id::Usage, message, "give each export a shelf and slot of its own"))
    }

    /// Fails if the address is taken on this interface, or the interface cannot serve.
    async fn ask_before(&self, interface: &str, address: Address) -> Result<()> {
        let filter = Filter { role: Role::Initiator, shelves: vec![address.shelf], slot: None };
        let port = open_port(interface, &filter, &self.aoe_pool(), &self.spawner)?;
        if !port.state().up {
            tracing::warn!("{interface}: no carrier: AoE clients are served when the link is up");
            return Ok(());
        }
        let found = discover(&port, &*self.spawner.clock(), address).await;
        let found = found.map_err(|error| of_port(interface, PortError::Failed(error)))?;
        let Some(other) = found.first() else { return Ok(()) };
        let message = format!("{interface}: another target answers as {address}: {}", other.mac);
        let action = "choose another shelf or slot, or stop the other target";
        Err(Failure::new(Id::Running, message, action))
    }

    fn aoe_pool(&self) -> Pool {
        self.aoe.pool.borrow_mut().get_or_insert_with(|| Pool::new(POOL_BYTES)).clone()
    }

    /// Returns the target; starts it the first time.
    fn target(self: &Rc<Self>) -> Target {
        if let Some(target) = &*self.aoe.target.borrow() {
            return target.clone();
        }
        let target = Target::new(Rc::new(Arrays(Rc::downgrade(self))), self.aoe_pool())
            .with_clock(self.spawner.clock());
        self.aoe.target.replace(Some(target.clone()));
        self.spawner.spawn_local(target.run());
        target
    }

    /// Serves on this interface, unless that is so. Serves again when it has gone and is back.
    fn open_for(self: &Rc<Self>, target: &Target, interface: &str) -> Result<()> {
        if self.aoe.ports.borrow().contains(interface) {
            return Ok(());
        }
        let open = |daemon: &Daemon, interface: &str| -> Result<Port> {
            let filter = Filter { role: Role::Target, shelves: Vec::new(), slot: None };
            open_port(interface, &filter, &daemon.aoe_pool(), &daemon.spawner)
        };
        let mut port = open(self, interface)?;
        self.aoe.ports.borrow_mut().insert(interface.to_owned());
        let (daemon, target, name) = (Rc::downgrade(self), target.clone(), interface.to_owned());
        let clock = self.spawner.clock();
        self.spawner.spawn_local(async move {
            loop {
                let served = target.serve(&name, Rc::new(port) as Rc<dyn Link>).await;
                let Err(error) = served else { return };
                tracing::error!("{name}: AoE is not served here: {error}");
                port = loop {
                    clock.sleep_until(clock.now() + REOPEN_INTERVAL).await;
                    let Some(daemon) = daemon.upgrade() else { return };
                    if daemon.aoe.target.borrow().is_none() {
                        return;
                    }
                    if let Ok(port) = open(&daemon, &name) {
                        break port;
                    }
                };
                tracing::info!("{name}: AoE is served here again");
            }
        });
        Ok(())
    }

    /// Returns the array that is served at this address.
    fn array_at(&self, lun: Address) -> Option<Rc<Served>> {
        let entries = self.aoe.entries.borrow();
        let found = entries.iter().find(|(_, entry)| entry.served_at() == Some(lun));
        found.and_then(|(uuid, _)| self.find(uuid))
    }

    /// Returns the array that an export names; without a name, the only one.
    fn array_of(&self, export: &AoeExport) -> Result<Rc<Served>> {
        let arrays = self.arrays();
        match (&export.array, &arrays[..]) {
            (Some(name), _) => self.find(name).ok_or_else(|| {
                let message = format!("{name}: this server has no array of this name");
                Failure::new(Id::Usage, message, "see: parapet list")
            }),
            (None, [only]) => Ok(Rc::clone(only)),
            (None, _) => {
                let place = &export.place;
                let message = format!("--aoe {place}: there are several arrays");
                Err(Failure::new(Id::Usage, message, format!("say which: --aoe NAME={place}")))
            }
        }
    }

    /// Ends AoE: no more requests are accepted.
    pub(super) fn stop_aoe(&self) {
        if let Some(target) = self.aoe.target.take() {
            target.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_as_they_are_written() {
        for text in ["1.0@eth1", "1.0@eth1,eth2", "tank=65534.254@br0.7", "a=b=1.0@lo", "@eth1"] {
            assert_eq!(text.parse::<AoeExport>().unwrap().to_string(), text);
        }
        for text in ["", "1.0", "1.0@", "1@eth1", "=1.0@eth1", "1.0@eth1,", "1.0@eth1,eth1", "@"] {
            assert!(text.parse::<AoeExport>().is_err(), "{text}");
        }
    }
}
