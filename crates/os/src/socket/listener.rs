//! Waiting for connections.
//!
//! A unix socket file without a listener was left behind by a dead process and is replaced. One
//! with a live listener is never touched. Its creator removes the file again.

use std::fs;
use std::future::poll_fn;
use std::io::{Error, ErrorKind, Result};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, accept_with, bind, connect, getsockname,
    listen, recv, sockopt,
};

use super::{Address, family, new_fd};
use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long the kernel may take to close the sockets of a process that was killed.
const LETTING_GO: Duration = Duration::from_secs(1);

/// A socket that others connect to. One task accepts.
pub struct Listener {
    watched: Watched,
    /// The file we made, and its inode: removed when we go, if it is still ours.
    made: Option<(PathBuf, u64)>,
}

impl Listener {
    /// Listens at this address. The file of a unix socket has mode 0600; a TCP port of 0 lets the
    /// kernel choose.
    ///
    /// # Errors
    /// As `bind(2)`; `AddrInUse` if another process listens there, `AlreadyExists` if the path is
    /// a file that is not a socket.
    pub fn bind(address: &Address, on: &Spawner) -> Result<Listener> {
        let (fd, made) = match address {
            Address::Unix(path) => {
                let fd = bind_unix(path)?;
                (fd, Some((path.clone(), fs::symlink_metadata(path)?.ino())))
            }
            Address::Tcp(address) => {
                let fd = new_fd(family(address))?;
                sockopt::set_socket_reuseaddr(&fd, true)?;
                bind(&fd, address)?;
                (fd, None)
            }
        };
        listen(&fd, BACKLOG)?;
        let mut listener = Listener::from_fd(fd, on)?;
        listener.made = made;
        Ok(listener)
    }

    /// Takes a non-blocking socket that listens already.
    pub(super) fn from_fd(fd: OwnedFd, on: &Spawner) -> Result<Listener> {
        Ok(Listener { watched: Watched::new(fd, on.reactor())?, made: None })
    }

    /// Where it listens; none for a unix socket without a name.
    pub fn address(&self) -> Option<Address> {
        let address = getsockname(&self.watched).ok()?;
        if let Ok(address) = SocketAddrUnix::try_from(address.clone()) {
            let path = address.path()?;
            let path = std::ffi::OsStr::from_bytes(path.to_bytes());
            return Some(Address::Unix(PathBuf::from(path)));
        }
        SocketAddr::try_from(address).ok().map(Address::Tcp)
    }

    /// The socket itself, for another process.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.watched.as_fd()
    }

    /// Leaves the file of a unix socket in place at the end.
    pub(super) fn keep_file(&mut self) {
        self.made = None;
    }

    /// The next connection, for [`Socket::from_fd`](super::Socket::from_fd) on whichever thread is
    /// to have it.
    ///
    /// # Errors
    /// Of the machine, not of a client: no descriptors or memory left. Worth a pause and another
    /// try.
    pub async fn accept(&self) -> Result<OwnedFd> {
        poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Result<OwnedFd>> {
        loop {
            match accept_with(&self.watched, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => return Poll::Ready(Ok(fd)),
                Err(Errno::AGAIN) => {
                    self.watched.arm(Direction::Read, cx);
                    return Poll::Pending;
                }
                Err(errno) if is_of_client(errno) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

/// Errors of the connection that was to be accepted (accept(2), "Error handling"): the next may be
/// fine.
fn is_of_client(errno: Errno) -> bool {
    let network = [Errno::NETDOWN, Errno::NETUNREACH, Errno::HOSTDOWN, Errno::HOSTUNREACH];
    let connection = [Errno::CONNABORTED, Errno::INTR, Errno::PROTO, Errno::NOPROTOOPT];
    network.contains(&errno) || connection.contains(&errno)
}

fn bind_unix(path: &Path) -> Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    let fd = new_fd(AddressFamily::UNIX)?;
    // The file gets the mode of the socket, so that there is no moment with a wider one.
    fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    match bind(&fd, &address) {
        Err(Errno::ADDRINUSE) if !fs::symlink_metadata(path)?.file_type().is_socket() => {
            let message = "a file that is not a socket is in the way";
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        Err(Errno::ADDRINUSE) if is_stale(&address)? => {
            fs::remove_file(path)?;
            bind(&fd, &address)?;
        }
        Err(Errno::ADDRINUSE) => {
            let message = "another process listens there";
            return Err(Error::new(ErrorKind::AddrInUse, message));
        }
        bound => bound?,
    }
    Ok(fd)
}

/// True if no process answers at this socket.
///
/// The socket of a killed process still accepts connections until the kernel has closed it, and
/// then ends them. A live server sends a greeting, or waits for data.
fn is_stale(address: &SocketAddrUnix) -> Result<bool> {
    let end = Instant::now() + LETTING_GO;
    loop {
        let probe = new_fd(AddressFamily::UNIX)?;
        match connect(&probe, address) {
            Err(Errno::CONNREFUSED) => return Ok(true),
            Err(_) => return Ok(false),
            Ok(()) => {}
        }
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).expect("the wait is short");
        let said = poll(&mut [PollFd::new(&probe, PollFlags::IN)], Some(&left));
        let ended = match recv(&probe, &mut [0; 1][..], RecvFlags::DONTWAIT) {
            Ok((read, _)) => read == 0,
            Err(errno) => errno == Errno::CONNRESET,
        };
        if !ended || said == Ok(0) {
            return Ok(false);
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some((path, inode)) = &self.made
            && fs::symlink_metadata(path).is_ok_and(|stat| stat.ino() == *inode)
        {
            // If it cannot be removed, the next to listen there finds it stale.
            let _ = fs::remove_file(path);
        }
    }
}
