//! Connections to AoE targets, and the search for them.

use std::cell::Cell;
use std::rc::Rc;

use ::io::{Clock, Disk, Link, Mac, Pool, Time};
use net::aoe::discover::{Found, discover, identify};
use net::aoe::initiator::OpenError;
use net::aoe::wire::identify::Identity;
use net::aoe::wire::{Address, sectors_of};
use net::aoe::{FRAME_LIFETIME, Initiator};
use net::remote::Connection;
use os::link::{Filter, PortError, Role};
use os::{Port, Spawner};

use super::POOL_BYTES;
use super::address::AoeAddress;
use crate::daemon::first;
use crate::failure::{Failure, Id, Result};

/// Connects to one target, as often as it is asked.
pub(super) struct AoeConnector {
    name: String,
    address: AoeAddress,
    pool: Pool,
    on: Spawner,
    /// When the last connection ended.
    last_frame: Rc<Cell<Option<Time>>>,
}

/// Notes the time when a connection ends, however it ends.
struct Ended(Rc<Cell<Option<Time>>>, Rc<dyn Clock>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set(Some(self.1.now()));
    }
}

impl AoeConnector {
    pub(super) fn new(name: String, address: AoeAddress, on: &Spawner) -> AoeConnector {
        let (pool, on, last_frame) = (Pool::new(POOL_BYTES), on.clone(), Rc::default());
        AoeConnector { name, address, pool, on, last_frame }
    }

    /// Opens the interfaces anew, and finds the target.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let target = self.address.target;
        let filter =
            Filter { role: Role::Initiator, shelves: vec![target.shelf], slot: Some(target.slot) };
        let mut links: Vec<Rc<dyn Link>> = Vec::new();
        let (mut names, mut dark, mut faults) = (Vec::new(), Vec::new(), Vec::new());
        for interface in &self.address.interfaces {
            // One interface that works is enough.
            match open_port(interface, &filter, &self.pool, &self.on) {
                Ok(port) => {
                    names.push(interface.as_str());
                    if !port.state().up {
                        dark.push(interface.as_str());
                    }
                    links.push(Rc::new(port));
                }
                Err(why) => faults.push(why),
            }
        }
        if let (true, Some(why)) = (links.is_empty(), faults.pop()) {
            return Err(Failure { message: format!("{}: {}", self.name, why.message), ..why });
        }
        for why in faults {
            tracing::warn!("{}: {why}", self.name);
        }
        self.refuse_own(&names, &links).await?;
        let (clock, last_frame) = (self.on.clock(), Rc::clone(&self.last_frame));
        // A late copy of a frame of the last connection must not follow a newer write.
        if let Some(last) = last_frame.get() {
            clock.sleep_until(last + FRAME_LIFETIME).await;
        }
        let opened =
            Initiator::open(target, links, Rc::clone(&clock) as _, self.pool.clone()).await;
        let initiator = opened.map_err(|error| self.unusable(error, &dark))?;
        let identity = initiator.identity().serial.clone();
        // Ends when no port is left, and when the target may have been restarted.
        let (ports, broke) = (initiator.run(), initiator.broke());
        let ended = Ended(last_frame, clock);
        let run = Box::pin(async move {
            let broke = async move {
                broke.await;
            };
            if let Some(Err(error)) = first(ports, broke).await {
                tracing::debug!(%error, "the last port of an AoE disk has ended");
            }
            drop(ended);
        });
        Ok(Connection { disk: Rc::new(initiator) as Rc<dyn Disk>, run, identity })
    }

    /// Refuses a target on this machine: an array must not be made of its own export.
    async fn refuse_own(&self, names: &[&str], links: &[Rc<dyn Link>]) -> Result<()> {
        let own = own_macs();
        for (link, interface) in links.iter().zip(names) {
            let found = discover(&**link, &*self.on.clock(), self.address.target).await;
            let found = found.map_err(|error| of_port(interface, PortError::Failed(error)))?;
            if found.iter().any(|target| own.contains(&target.mac)) {
                let message = format!("{}: this machine itself is the target", self.name);
                return Err(Failure::new(Id::Same, message, "name a target of another machine"));
            }
        }
        Ok(())
    }

    /// Describes why the target cannot be used. `dark` interfaces have no carrier.
    fn unusable(&self, error: OpenError, dark: &[&str]) -> Failure {
        let (name, interfaces) = (&self.name, &self.address.interfaces);
        match error {
            OpenError::Silent if dark.len() == interfaces.len() => {
                let message = format!("{name}: no carrier on {}", dark.join(", "));
                Failure::new(Id::Missing, message, "check the cable, and: ip link")
            }
            OpenError::Silent => {
                let without = match dark {
                    [] => String::new(),
                    dark => format!("; no carrier on {}", dark.join(", ")),
                };
                let message = format!("{name}: no AoE target answers at this address{without}");
                let action = format!("see: parapet aoe discover {}", interfaces.join(" "));
                Failure::new(Id::Missing, message, action)
            }
            OpenError::Different(one, other) => {
                let message =
                    format!("{name}: different targets have this address: {one}, and {other}");
                Failure::new(Id::Foreign, message, "give each target a shelf and slot of its own")
            }
            OpenError::Link(why) => {
                Failure::new(Id::Socket, format!("{name}: {why}"), "see: ip link")
            }
        }
    }
}

/// A target that a search found, and the interfaces that lead to it.
pub(crate) struct Discovered {
    pub(crate) address: Address,
    /// The first answer to IDENTIFY; none if the target refuses it.
    pub(crate) identity: Option<Identity>,
    /// The interfaces, each with the target's ports behind it.
    pub(crate) paths: Vec<(String, Vec<Found>)>,
    /// This machine serves it.
    pub(crate) is_own: bool,
}

/// Searches all AoE targets on these interfaces, by address.
///
/// # Errors
/// If an interface cannot be used.
pub(crate) async fn discover_all(interfaces: &[String], on: &Spawner) -> Result<Vec<Discovered>> {
    let (pool, own) = (Pool::new(0), own_macs());
    let mut targets: Vec<Discovered> = Vec::new();
    for interface in interfaces {
        let filter = Filter { role: Role::Initiator, shelves: Vec::new(), slot: None };
        let link = open_port(interface, &filter, &pool, on)?;
        if !link.state().up {
            tracing::warn!("{interface}: no carrier");
        }
        let found = discover(&link, &*on.clock(), Address::ALL).await;
        let found = found.map_err(|error| of_port(interface, PortError::Failed(error)))?;
        for port in found {
            let is_own = own.contains(&port.mac);
            let at = match targets.iter().position(|target| target.address == port.address) {
                Some(at) => at,
                None => {
                    let (address, paths) = (port.address, Vec::new());
                    let identity = identify(&link, &*on.clock(), port.mac, address).await;
                    let identity = identity.ok().flatten();
                    targets.push(Discovered { address, identity, paths, is_own });
                    targets.len() - 1
                }
            };
            let target = &mut targets[at];
            target.is_own |= is_own;
            match target.paths.iter_mut().find(|(name, _)| name == interface) {
                Some((_, ports)) => ports.push(port),
                None => target.paths.push((interface.clone(), vec![port])),
            }
        }
    }
    targets.sort_by_key(|target| target.address);
    Ok(targets)
}

/// Opens a network interface for one end of the protocol.
///
/// # Errors
/// If it cannot be opened, or carries no sector.
pub(crate) fn open_port(
    interface: &str,
    filter: &Filter,
    pool: &Pool,
    on: &Spawner,
) -> Result<Port> {
    let opened = Port::interface(interface, filter, pool.clone(), on);
    let port = opened.map_err(|error| of_port(interface, error))?;
    let mtu = port.state().mtu;
    if sectors_of(mtu) == 0 {
        let message = format!("{interface}: an MTU of {mtu} carries no sector");
        let action = format!("say: ip link set {interface} mtu 9000");
        return Err(Failure::new(Id::Socket, message, action));
    }
    Ok(port)
}

/// Describes why an interface cannot be used.
pub(crate) fn of_port(interface: &str, error: PortError) -> Failure {
    let (id, action) = match error {
        PortError::Missing => (Id::Missing, "see: ip link"),
        PortError::NotEthernet => (Id::Usage, "name an Ethernet interface; see: ip link"),
        PortError::Forbidden => {
            (Id::Denied, "run as root, or give the program the right: setcap cap_net_raw+ep")
        }
        PortError::Failed(_) => (Id::Socket, "see: ip link"),
    };
    Failure::new(id, format!("{interface}: {error}"), action)
}

/// Returns the addresses of this machine's interfaces.
fn own_macs() -> Vec<Mac> {
    let interfaces = os::link::interfaces().unwrap_or_default();
    interfaces.into_iter().map(|(_, mac)| mac).collect()
}

/// Returns the Ethernet interfaces that have a carrier.
///
/// # Errors
/// If the kernel does not list interfaces, or this process may not open one.
pub(crate) fn connected_interfaces(on: &Spawner) -> Result<Vec<String>> {
    let listed = os::link::interfaces().map_err(|error| {
        Failure::new(Id::Socket, format!("network interfaces: {error}"), "see: ip link")
    })?;
    let filter = Filter { role: Role::Initiator, shelves: Vec::new(), slot: None };
    let mut connected = Vec::new();
    for (name, mac) in listed.into_iter().filter(|(_, mac)| *mac != Mac::default()) {
        match open_port(&name, &filter, &Pool::new(0), on) {
            Ok(port) if port.state().up => connected.push(name),
            Err(why) if why.id == Id::Denied => return Err(why),
            _ => tracing::debug!("{name}: {mac}: not searched"),
        }
    }
    Ok(connected)
}
