//! Connections to exports of NBD servers.

use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::rc::Rc;

use ::io::{Disk, Pool};
use net::nbd::client::{self, ClientTls, ConnectError};
use net::remote::Connection;
use os::{Address, Peer, Socket, Spawner};

use super::POOL_BYTES;
use super::address::{NbdAddress, NbdServer};
use crate::failure::{Failure, Id, Result};
use crate::tls::ClientIdentity;

/// Connects to one export, as often as it is asked.
pub(super) struct NbdConnector {
    name: String,
    address: NbdAddress,
    tls: Option<ClientIdentity>,
    pool: Pool,
    on: Spawner,
}

impl NbdConnector {
    /// Reads the certificates, and connects to nothing yet.
    ///
    /// # Errors
    /// If TLS is asked for, and its files are missing.
    pub(super) fn new(name: String, address: NbdAddress, on: &Spawner) -> Result<NbdConnector> {
        let host = match &address.server {
            NbdServer::Tcp { host, .. } => host,
            NbdServer::Unix(_) => "localhost",
        };
        let tls = match (&address.certificates, address.tls) {
            (Some(folder), true) => Some(ClientIdentity::load(folder, host)?),
            (None, true) => {
                let message = format!("{name}: no CA for the server's certificate is named");
                let action = "append ?tls-certificates=DIR, a folder with ca-cert.pem";
                return Err(Failure::new(Id::Tls, message, action));
            }
            _ => None,
        };
        Ok(NbdConnector { name, address, tls, pool: Pool::new(POOL_BYTES), on: on.clone() })
    }

    /// Connects, and agrees on the export.
    pub(super) async fn connect(&self) -> Result<Connection> {
        let socket = self.socket().await?;
        self.refuse_own(&socket)?;
        let tls = self.tls.as_ref().map(|tls| tls as &dyn ClientTls);
        let stream = Box::new(socket);
        let agreed = client::connect(stream, &self.address.export, tls, self.pool.clone()).await;
        let (disk, link) = agreed.map_err(|error| self.refused(&error))?;
        let run = Box::pin(async move {
            // The disk fails what is left with `Gone`; the reason is its own affair.
            let _ = link.await;
        });
        Ok(Connection { disk: Rc::new(disk) as Rc<dyn Disk>, run, identity: String::new() })
    }

    async fn socket(&self) -> Result<Socket> {
        let addresses = match &self.address.server {
            NbdServer::Unix(path) => vec![Address::Unix(path.clone())],
            NbdServer::Tcp { host, port } => self.resolve(host, *port).await?,
        };
        let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
        for address in &addresses {
            match Socket::connect(address, &self.on).await {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(self.unreachable(&last.to_string()))
    }

    /// Asks the system's resolver, on a thread of its own: it blocks.
    async fn resolve(&self, host: &str, port: u16) -> Result<Vec<Address>> {
        if let Ok(ip) = host.parse::<std::net::IpAddr>() {
            return Ok(vec![Address::Tcp(SocketAddr::new(ip, port))]);
        }
        let host = host.to_owned();
        let ask = move || (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
        let found = match os::threads::aside(ask) {
            Ok(answer) => answer.await,
            Err(error) => Err(error),
        };
        let found = found.map_err(|error| self.unreachable(&error.to_string()))?;
        Ok(found.into_iter().map(Address::Tcp).collect())
    }

    /// Refuses a server that is this process: an array must not be made of its own export.
    fn refuse_own(&self, socket: &Socket) -> Result<()> {
        let own = match socket.peer() {
            Peer::Local { pid, .. } => pid == std::process::id(),
            Peer::Remote(address) => is_listening(address),
            Peer::Unknown => false,
        };
        if !own {
            return Ok(());
        }
        let message = format!("{}: this server itself answers there", self.name);
        Err(Failure::new(Id::Same, message, "name a disk of another server"))
    }

    fn unreachable(&self, why: &str) -> Failure {
        let message = format!("{}: cannot connect: {why}", self.name);
        Failure::new(Id::Missing, message, "start the NBD server, or check its address")
    }

    fn refused(&self, error: &ConnectError) -> Failure {
        let export = match self.address.export.as_str() {
            "" => "its default export".into(),
            name => format!("export {name}"),
        };
        let uri = crate::places::quoted(&self.name);
        match error {
            ConnectError::Refused(..) => {
                let message = format!("{}: {export}: {error}", self.name);
                Failure::new(Id::Missing, message, format!("see the exports: nbdinfo --list {uri}"))
            }
            ConnectError::Vanished(_) if self.tls.is_some() => {
                let message = format!("{}: no TLS was agreed on: {error}", self.name);
                Failure::new(Id::Tls, message, "check the certificates of both sides")
            }
            _ => {
                let message = format!("{}: {error}", self.name);
                Failure::new(Id::Input, message, format!("see what answers: nbdinfo {uri}"))
            }
        }
    }
}

/// Returns true if this process listens at the address of a connection's other end.
fn is_listening(address: SocketAddr) -> bool {
    // Only an address of this machine can be bound to.
    let is_local = UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok();
    is_local && {
        let own = own_sockets();
        listeners(address.port()).iter().any(|inode| own.contains(inode))
    }
}

/// Returns the inodes of all sockets of this process.
fn own_sockets() -> Vec<u64> {
    let inode = |entry: std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).ok()?;
        target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries.filter_map(inode).collect()
}

/// Returns the inodes of the sockets that listen on this port of this machine.
fn listeners(port: u16) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let port = format!("{port:04X}");
    // sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
    let inode = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (_, own) = words.get(1)?.rsplit_once(':')?;
        let is_it = own == port && *words.get(3)? == LISTEN;
        words.get(9).filter(|_| is_it)?.parse().ok()
    };
    let tables = ["/proc/self/net/tcp", "/proc/self/net/tcp6"].iter();
    let texts: Vec<String> = tables.filter_map(|it| std::fs::read_to_string(it).ok()).collect();
    texts.iter().flat_map(|text| text.lines().skip(1)).filter_map(inode).collect()
}
