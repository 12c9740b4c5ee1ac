//! Disks on other machines, as members: AoE targets and exports of NBD servers.
//!
//! ```text
//!    aoe:1.0@eth1 ── AoeConnector ──┐ connects, again and again
//!    nbd://host/x ── NbdConnector ──┴──▶ net::remote::Remote ── Disk ──▶ array
//! ```
//!
//! Opens connections; `net::remote` decides when, and what a lost one means for requests.

mod address;
mod aoe;
mod nbd;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ::io::{Clock, Disk};
use net::remote::{Connect, Connecting, Connection, RemoteOptions};
use os::Spawner;

pub(crate) use self::address::{AoeAddress, RemoteAddress, interfaces, is_remote};
use self::aoe::AoeConnector;
pub(crate) use self::aoe::{Discovered, connected_interfaces, discover_all, of_port, open_port};
use self::nbd::NbdConnector;
use crate::daemon::first;
use crate::disks::Opened;
use crate::failure::{Failure, Id, Result};
pub(crate) use net::remote::{Remote, State};

/// Unused memory that a connection keeps for payloads.
const POOL_BYTES: usize = 4 << 20;
/// How long a connection may take.
const CONNECT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Opens a disk on another machine. Its connections are driven on this executor for as long as the
/// disk is used.
///
/// # Errors
/// If the address is wrong, no disk answers there, or it is read-only and is to be written.
pub(crate) async fn open(path: &Path, read_only: bool, on: &Spawner) -> Result<Opened> {
    let address = address_of(path)?;
    let name = address.to_string();
    let way = match address {
        RemoteAddress::Aoe(address) => Way::Aoe(AoeConnector::new(name.clone(), address, on)),
        RemoteAddress::Nbd(address) => Way::Nbd(NbdConnector::new(name.clone(), address, on)?),
    };
    let fault = Rc::new(RefCell::new(None));
    let connector = Connector { way, name: name.clone(), on: on.clone(), fault: Rc::clone(&fault) };
    let clock = on.clock();
    let options = RemoteOptions::default();
    let opened =
        Remote::open(name.clone(), Box::new(connector), Rc::clone(&clock) as _, options).await;
    let remote = opened.map_err(|why| {
        let known = fault.borrow_mut().take();
        known.unwrap_or_else(|| {
            Failure::new(Id::Input, format!("{name}: {why}"), "check the server of this disk")
        })
    })?;
    if remote.limits().read_only && !read_only {
        let message = format!("{name}: its server exports it read-only");
        let action = "export it writable; only to read: --read-only";
        return Err(Failure::new(Id::Input, message, action));
    }
    on.spawn_local(remote.run());
    let serial = Some(remote.identity().to_owned()).filter(|identity| !identity.is_empty());
    let disk: Rc<dyn Disk> = Rc::new(remote.clone());
    Ok(Opened { path: name.into(), disk, file: None, remote: Some(remote), serial, clock })
}

/// Connects for [`Remote`], and keeps the cause of the last failure for the user.
struct Connector {
    way: Way,
    name: String,
    on: Spawner,
    fault: Rc<RefCell<Option<Failure>>>,
}

enum Way {
    Aoe(AoeConnector),
    Nbd(NbdConnector),
}

impl Connector {
    async fn attempt(&self) -> Result<Connection> {
        let work = async {
            match &self.way {
                Way::Aoe(connector) => connector.connect().await,
                Way::Nbd(connector) => connector.connect().await,
            }
        };
        let clock = self.on.clock();
        let limit = clock.sleep_until(clock.now() + CONNECT_TIMEOUT);
        first(work, limit).await.unwrap_or_else(|| {
            let seconds = CONNECT_TIMEOUT.as_secs();
            let message = format!("{}: no answer for {seconds} s", self.name);
            Err(Failure::new(Id::Missing, message, "check the server of this disk"))
        })
    }
}

impl Connect for Connector {
    fn connect(&self) -> Connecting<'_> {
        Box::pin(async {
            self.attempt().await.map_err(|failure| {
                let message = failure.message.clone();
                self.fault.borrow_mut().replace(failure);
                message
            })
        })
    }
}

/// Parses the address of a disk on another machine.
///
/// # Errors
/// The fault, with the form that is meant.
pub(crate) fn address_of(path: &Path) -> Result<RemoteAddress> {
    let text = path.to_string_lossy();
    RemoteAddress::parse(&text).map_err(|why| {
        let forms = "aoe:1.0@eth1, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH";
        Failure::new(Id::Usage, format!("{text}: {why}"), format!("network members: {forms}"))
    })
}

/// Returns the address in its full form, usable from any folder; any other text as it is.
pub(crate) fn normal(text: &str) -> String {
    RemoteAddress::parse(text).map_or_else(|_| text.into(), |address| address.to_string())
}

/// Refuses two addresses of one disk.
///
/// # Errors
/// Names both.
pub(crate) fn refuse_same(paths: &[PathBuf]) -> Result<()> {
    let remote = paths.iter().filter(|path| is_remote(path));
    let addresses = remote.map(|path| address_of(path)).collect::<Result<Vec<_>>>()?;
    for (index, address) in addresses.iter().enumerate() {
        if let Some(other) = addresses[..index].iter().find(|other| other.is_same_disk(address)) {
            let message = format!("{other} and {address} are the same disk");
            return Err(Failure::new(Id::Same, message, "name each disk once"));
        }
    }
    Ok(())
}

/// Finds the AoE targets that answer on these interfaces, without those of this machine.
///
/// # Errors
/// If `from` is not `aoe:INTERFACE,…`, or an interface cannot be used.
pub(crate) async fn scan(from: &Path, on: &Spawner) -> Result<Vec<PathBuf>> {
    let text = from.to_string_lossy();
    let named = text.strip_prefix("aoe:").ok_or_else(|| "only AoE targets can be found".into());
    let interfaces = named.and_then(interfaces).map_err(|why| {
        let action = "search AoE targets with --scan aoe:eth1, or a folder";
        Failure::new(Id::Usage, format!("--scan {text}: {why}"), action)
    })?;
    let found = discover_all(&interfaces, on).await?;
    let address = |target: Discovered| {
        let interfaces = target.paths.into_iter().map(|(interface, _)| interface).collect();
        let address = AoeAddress { target: target.address, interfaces };
        RemoteAddress::Aoe(address).to_string().into()
    };
    Ok(found.into_iter().filter(|target| !target.is_own).map(address).collect())
}
