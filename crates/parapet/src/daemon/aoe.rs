//! ATA over Ethernet exports of a server.
//!
//! One target serves all LUNs on all interfaces, on the server's first thread: requests then have
//! one order of arrival, whichever interface they come through.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};
use std::str::FromStr;

use ::io::{Clock, Disk, Link, Mac, Pool, Time};
use array::status::{SlotState, SlotStatus};
use net::aoe::target::{Event, Keeping};
use net::aoe::wire::smart::Health;
use net::aoe::{Address, Host, Lun, LunOptions, LunState, Target, discover};
use os::link::{Filter, PortError, Role};
use os::{Port, Spawner};

use super::{Daemon, QUIET, Served};
use crate::failure::{Failure, Id, Result};
use crate::remote::{interfaces, of_port, open_port};

/// The unit of the counters that clients read.
const BLOCK: u64 = 512;
/// Unused memory that the target keeps for frames and reads.
const POOL_BYTES: usize = 32 << 20;

/// A LUN as the command line names it: `[NAME=]SHELF.SLOT@INTERFACE[,INTERFACE…]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AoeExport {
    /// Name or UUID of the array; the only one, if there is none.
    array: Option<String>,
    address: Address,
    /// Not empty, each once.
    interfaces: Vec<String>,
}

impl FromStr for AoeExport {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<AoeExport, String> {
        let (array, rest) = match text.rsplit_once('=') {
            Some((array, rest)) => (Some(array.to_owned()), rest),
            None => (None, text),
        };
        let wrong = "write it as SHELF.SLOT@INTERFACE, for example 1.0@eth1 or 1.0@eth1,eth2";
        let (address, interfaces) = rest.split_once('@').ok_or(wrong)?;
        if array.as_ref().is_some_and(String::is_empty) {
            return Err(wrong.into());
        }
        let interfaces = self::interfaces(interfaces)?;
        Ok(AoeExport { array, address: address.parse()?, interfaces })
    }
}

impl fmt::Display for AoeExport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(array) = &self.array {
            write!(f, "{array}=")?;
        }
        write!(f, "{}@{}", self.address, self.interfaces.join(","))
    }
}

/// The target of a server, once it has an AoE export.
#[derive(Default)]
pub(super) struct Aoe {
    target: RefCell<Option<Target>>,
    luns: RefCell<Vec<(String, Address)>>,
    last_refusal: Cell<Option<Time>>,
}

/// Answers the target's questions about the arrays.
struct Arrays(Weak<Daemon>);

impl Host for Arrays {
    fn health(&self, lun: Address) -> Health {
        let Some(daemon) = self.0.upgrade() else { return Health::default() };
        let luns = daemon.aoe.luns.borrow();
        let Some((uuid, _)) = luns.iter().find(|(_, address)| *address == lun) else {
            return Health::default();
        };
        daemon.find(uuid).map_or(Health::default(), |served| health(&served))
    }

    fn keep(&self, _: Address, _: &LunState) -> Keeping {
        // Not reached: LUNs are served without remote control.
        Box::pin(async { Err("this server keeps no state of LUNs".into()) })
    }

    fn report(&self, lun: Address, client: Mac, event: Event) {
        let Some(daemon) = self.0.upgrade() else { return };
        let name = daemon.aoe.array_of(&daemon, lun);
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

    fn array_of(&self, daemon: &Daemon, lun: Address) -> String {
        let luns = self.luns.borrow();
        let found = luns.iter().find(|(_, address)| *address == lun);
        let served = found.and_then(|(uuid, _)| daemon.find(uuid));
        served.map_or_else(|| "array".into(), |served| served.name().into())
    }

    /// Returns the exports, as the command line writes them.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.luns.borrow().iter().map(|(_, address)| format!("aoe:{address}")).collect()
    }

    /// Takes the LUNs of an array offline. Completes when their requests have ended.
    pub(super) fn retire(&self, gone: &str) -> impl Future<Output = ()> + 'static {
        let mut luns = self.luns.borrow_mut();
        let leaving: Vec<_> = luns.extract_if(.., |(uuid, _)| uuid == gone).collect();
        let target = self.target.borrow().clone();
        let offline: Vec<_> = match target {
            Some(target) => leaving.iter().map(|(_, lun)| target.offline(*lun)).collect(),
            None => Vec::new(),
        };
        async move {
            for lun in offline {
                lun.await;
            }
        }
    }
}

impl Daemon {
    /// Serves arrays over ATA over Ethernet.
    ///
    /// # Errors
    /// If an interface cannot be used, an address is taken, or an array is not served.
    pub(crate) async fn serve_aoe(
        self: &Rc<Self>,
        exports: &[AoeExport],
        volatile: bool,
    ) -> Result<()> {
        let mut shelves: BTreeMap<&str, Vec<u16>> = BTreeMap::new();
        for export in exports {
            for interface in &export.interfaces {
                shelves.entry(interface).or_default().push(export.address.shelf);
            }
        }
        let pool = Pool::new(POOL_BYTES);
        for interface in shelves.keys() {
            self.ask_before(interface, exports, &pool).await?;
        }
        let target = Target::new(Rc::new(Arrays(Rc::downgrade(self))), pool.clone());
        self.aoe.target.replace(Some(target.clone()));
        self.spawner.spawn_local(target.run());
        for (interface, shelves) in shelves {
            let port = open(interface, Role::Target, shelves, &pool, &self.spawner)?;
            let serving = target.serve(interface, Rc::new(port) as Rc<dyn Link>);
            let name = interface.to_owned();
            self.spawner.spawn_local(async move {
                if let Err(error) = serving.await {
                    tracing::error!("{name}: AoE is not served here any more: {error}");
                }
            });
        }
        for export in exports {
            self.online(&target, export, volatile, &pool)?;
        }
        Ok(())
    }

    /// Fails if an export's address is taken on this interface, or the interface cannot serve.
    async fn ask_before(&self, interface: &str, exports: &[AoeExport], pool: &Pool) -> Result<()> {
        let port = open(interface, Role::Initiator, Vec::new(), pool, &self.spawner)?;
        let state = port.state();
        if !state.up {
            tracing::warn!("{interface}: no carrier: AoE clients are served when the link is up");
            return Ok(());
        }
        let clock = self.spawner.clock();
        for export in exports.iter().filter(|it| it.interfaces.iter().any(|it| it == interface)) {
            let found = discover(&port, &*clock, export.address).await;
            let found = found.map_err(|error| of_port(interface, PortError::Failed(error)))?;
            if let Some(other) = found.first() {
                let (address, mac) = (export.address, other.mac);
                let message = format!("{interface}: another target answers as {address}: {mac}");
                let action = "choose another shelf or slot, or stop the other target";
                return Err(Failure::new(Id::Running, message, action));
            }
        }
        Ok(())
    }

    /// Serves one array as a LUN.
    fn online(
        &self,
        target: &Target,
        export: &AoeExport,
        volatile: bool,
        pool: &Pool,
    ) -> Result<()> {
        let served = self.array_of(export)?;
        let address = export.address;
        if self.aoe.luns.borrow().iter().any(|(_, other)| *other == address) {
            let message = format!("aoe:{address}: two exports have this address");
            return Err(Failure::new(
                Id::Usage,
                message,
                "give each export a shelf and slot of its own",
            ));
        }
        let (uuid, status) = (served.uuid().to_owned(), served.array.status());
        let options = LunOptions {
            serial: uuid.replace(['-', ':'], "").chars().take(20).collect(),
            model: format!("Parapet {}", status.layout.level()),
            firmware: env!("CARGO_PKG_VERSION").into(),
            ports: export.interfaces.clone(),
            read_only: false,
            volatile,
            remote_control: false,
        };
        let disk = Rc::new(served.array.clone()) as Rc<dyn Disk>;
        let lun = Lun::new(address, disk, options, LunState::default(), pool.clone());
        let durable = if volatile { "when the members have them" } else { "when durable" };
        let on = export.interfaces.join(", ");
        tracing::info!(
            "{}: online as AoE {address} on {on}: writes are answered {durable}",
            served.name()
        );
        self.aoe.luns.borrow_mut().push((uuid, address));
        target.online(Rc::new(lun));
        Ok(())
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
                let address = export.address;
                let message = format!("aoe:{address}: there are several arrays");
                let action = format!("say which: --aoe NAME={address}@INTERFACE");
                Err(Failure::new(Id::Usage, message, action))
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

/// Opens a network interface for one end of the protocol.
fn open(
    interface: &str,
    role: Role,
    mut shelves: Vec<u16>,
    pool: &Pool,
    on: &Spawner,
) -> Result<Port> {
    shelves.sort_unstable();
    shelves.dedup();
    open_port(interface, &Filter { role, shelves, slot: None }, pool, on)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_are_read_as_they_are_written() {
        for text in ["1.0@eth1", "1.0@eth1,eth2", "tank=65534.254@br0.7", "a=b=1.0@lo"] {
            assert_eq!(text.parse::<AoeExport>().unwrap().to_string(), text);
        }
        for text in
            ["", "1.0", "1.0@", "1@eth1", "=1.0@eth1", "1.0@eth1,", "1.0@eth1,eth1", "@eth1"]
        {
            assert!(text.parse::<AoeExport>().is_err(), "{text}");
        }
    }
}
