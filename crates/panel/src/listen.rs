//! Where the page listens: a TCP address or a unix socket.
//!
//! Invariant: each [`Bound`] has the protection that its address demands (`access`).

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::access::Access;

/// An address for the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Listen {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

impl FromStr for Listen {
    type Err = String;

    /// Parses `unix:PATH`, `ADDRESS:PORT` or `tcp:ADDRESS:PORT`.
    fn from_str(text: &str) -> Result<Listen, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = Some(path).filter(|path| !path.is_empty());
            return path
                .map(|path| Listen::Unix(path.into()))
                .ok_or("write it as unix:PATH".into());
        }
        let name = text.strip_prefix("tcp:").unwrap_or(text);
        let form = "write it as ADDRESS:PORT or unix:PATH";
        let found = name.to_socket_addrs().map_err(|error| format!("{error}; {form}"))?;
        let found: Vec<SocketAddr> = found.collect();
        // A name may have several: the one that fewest machines reach.
        let loopback = found.iter().find(|address| address.ip().is_loopback());
        let address = loopback.or(found.first()).ok_or_else(|| format!("no address; {form}"))?;
        Ok(Listen::Tcp(*address))
    }
}

/// A bound address.
pub struct Bound {
    pub(crate) socket: BoundSocket,
    pub(crate) access: Access,
}

pub(crate) enum BoundSocket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listen {
    /// Binds the address for a page with this access. A unix socket gets mode 0600.
    ///
    /// # Errors
    /// If the address is in use, or a file that is no socket has this path; `InvalidInput` for an
    /// [`Unprotected`](crate::Unprotected) address.
    pub fn bind(&self, access: Access) -> io::Result<Bound> {
        let enough = access.protection().check(self, access.actions);
        enough.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let socket = match self {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address)?;
                listener.set_nonblocking(true)?;
                BoundSocket::Tcp(listener)
            }
            Listen::Unix(path) => {
                remove_stale(path)?;
                let listener = UnixListener::bind(path)?;
                std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
                listener.set_nonblocking(true)?;
                BoundSocket::Unix(listener, path.clone())
            }
        };
        Ok(Bound { socket, access })
    }
}

/// Removes the socket of a process that was killed.
fn remove_stale(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|stat| stat.file_type().is_socket());
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_socket && UnixStream::connect(path).err().is_some_and(refused) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Tcp(address) => write!(f, "{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Bound {
    /// The TCP port; none on a unix socket.
    pub(crate) fn port(&self) -> Option<u16> {
        match &self.socket {
            BoundSocket::Tcp(listener) => Some(listener.local_addr().map_or(0, |it| it.port())),
            BoundSocket::Unix(..) => None,
        }
    }

    /// True if other machines reach the address.
    pub(crate) fn is_remote(&self) -> bool {
        match &self.socket {
            BoundSocket::Tcp(listener) => {
                listener.local_addr().map_or(true, |address| !address.ip().is_loopback())
            }
            BoundSocket::Unix(..) => false,
        }
    }

    /// The address for a browser or a proxy: `http://127.0.0.1:7580/`, `https://192.0.2.1:7580/`
    /// or `unix:PATH`.
    pub fn address(&self) -> String {
        let scheme = if self.access.tls.is_some() { "https" } else { "http" };
        match &self.socket {
            BoundSocket::Tcp(listener) => match listener.local_addr() {
                Ok(address) => format!("{scheme}://{address}/"),
                Err(_) => format!("{scheme}://localhost/"),
            },
            BoundSocket::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let BoundSocket::Unix(_, path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_and_no_open_one_is_bound() {
        for good in ["127.0.0.1:7580", "[::1]:7580", "tcp:192.0.2.1:0", "localhost:1", "unix:/x"] {
            assert!(good.parse::<Listen>().is_ok(), "{good}");
        }
        for open in ["0.0.0.0:0", "[::]:0"] {
            let error = open.parse::<Listen>().unwrap().bind(Access::default()).err().unwrap();
            assert!(error.to_string().contains("no TLS"), "{error}");
        }
        for bad in ["", "unix:", "7580", "127.0.0.1", "127.0.0.1:x"] {
            assert!(bad.parse::<Listen>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_socket_of_a_killed_process_is_replaced_and_a_file_is_not() {
        let folder = std::env::temp_dir().join(format!("parapet-panel-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("page.sock");
        drop(UnixListener::bind(&path).unwrap());
        let bind = || Listen::Unix(path.clone()).bind(Access::default());
        let bound = bind().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(bind().is_err(), "a living one is kept");
        drop(bound);
        assert!(!path.exists());
        std::fs::write(&path, "data").unwrap();
        assert!(bind().is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
