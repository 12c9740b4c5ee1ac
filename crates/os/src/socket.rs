//! Connections as streams: TCP, unix sockets, standard input and output.
//!
//! A read or write is tried first; only on `EAGAIN` is readiness waited for, so a busy connection
//! costs one system call per batch. Descriptors are non-blocking and close-on-exec; a broken pipe
//! is an error, never a signal. At most one task waits per direction.

mod activation;
mod listener;
mod stdio;

use std::fmt;
use std::future::poll_fn;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use io::Stream;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix,
    SocketFlags, SocketType, getpeername, recv, send, sendmsg, shutdown, socket_with, socketpair,
    sockopt,
};

use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// TCP keep-alive: idle time, interval and number of probes.
const KEEP_IDLE: Duration = Duration::from_secs(60);
const KEEP_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_COUNT: u32 = 6;

pub use activation::{activated, store};
pub use listener::Listener;
pub use stdio::Stdio;

/// The most slices of one write: the kernel's `IOV_MAX`.
const SLICES: usize = 1024;

/// Where to listen, or to connect to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A unix socket in the file system.
    Unix(PathBuf),
    /// An IPv4 or IPv6 address with its port.
    Tcp(SocketAddr),
}

/// The peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A process of this machine, as the kernel vouches for it.
    Local {
        /// Its process number, 0 if it is in another pid namespace.
        pid: u32,
        /// Its effective user.
        uid: u32,
        /// Its effective group.
        gid: u32,
    },
    /// A TCP address.
    Remote(SocketAddr),
    /// Unknown.
    Unknown,
}

/// A connection.
pub struct Socket {
    watched: Watched,
}

impl Socket {
    /// Connects.
    ///
    /// # Errors
    /// As `connect(2)`. `WouldBlock`: too many wait for that unix socket's owner already.
    pub async fn connect(address: &Address, on: &Spawner) -> Result<Socket> {
        match address {
            Address::Unix(path) => {
                let fd = new_fd(AddressFamily::UNIX)?;
                rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
                Socket::new(fd, on)
            }
            Address::Tcp(to) => {
                let socket = Socket::new(new_fd(family(to))?, on)?;
                poll_fn(|cx| socket.poll_connect(cx, to)).await?;
                Ok(socket)
            }
        }
    }

    /// Ends the connection when bytes have had no acknowledgement for so long. Without this, a
    /// connection over a network that was cut waits longer and longer before it tries again, also
    /// when the network is back. Nothing for unix sockets.
    pub fn limit_silence(&self, most: Duration) {
        let most = u32::try_from(most.as_millis()).unwrap_or(u32::MAX);
        // Only TCP has it.
        let _ = sockopt::set_tcp_user_timeout(&self.watched, most);
    }

    /// Two sockets, connected with each other.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn pair(on: &Spawner) -> Result<(Socket, Socket)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (left, right) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Socket::new(left, on)?, Socket::new(right, on)?))
    }

    /// A socket, and the descriptor that it is connected with, for somebody else.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn half(on: &Spawner) -> Result<(Socket, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        Ok((Socket::from_fd(ours, on)?, theirs))
    }

    /// A connected socket created elsewhere.
    ///
    /// # Errors
    /// If it is not a stream socket, or there are no descriptors left.
    pub fn from_fd(fd: OwnedFd, on: &Spawner) -> Result<Socket> {
        if sockopt::socket_type(&fd)? != SocketType::STREAM {
            return Err(Error::new(ErrorKind::InvalidInput, "not a stream socket"));
        }
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Socket::new(fd, on)
    }

    /// Takes a non-blocking stream socket.
    fn new(fd: OwnedFd, on: &Spawner) -> Result<Socket> {
        // Answers are written whole: waiting for more to send would only delay them. Unix sockets,
        // which do not wait, refuse the option.
        let _ = sockopt::set_tcp_nodelay(&fd, true);
        // A client whose host has vanished frees its place after two minutes.
        let _ = sockopt::set_socket_keepalive(&fd, true);
        let _ = sockopt::set_tcp_keepidle(&fd, KEEP_IDLE);
        let _ = sockopt::set_tcp_keepintvl(&fd, KEEP_INTERVAL);
        let _ = sockopt::set_tcp_keepcnt(&fd, KEEP_COUNT);
        Ok(Socket { watched: Watched::new(fd, on.reactor())? })
    }

    /// The peer.
    pub fn peer(&self) -> Peer {
        peer_of(&self.watched)
    }

    fn poll_connect(&self, cx: &mut Context<'_>, to: &SocketAddr) -> Poll<Result<()>> {
        loop {
            match rustix::net::connect(&self.watched, to) {
                Ok(()) | Err(Errno::ISCONN) => return Poll::Ready(Ok(())),
                Err(Errno::INPROGRESS | Errno::ALREADY) => {
                    self.watched.arm(Direction::Write, cx);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }
}

impl Stream for Socket {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<Result<usize>> {
        loop {
            match recv(&self.watched, &mut *into, RecvFlags::empty()) {
                Ok((count, _)) => return Poll::Ready(Ok(count)),
                Err(Errno::AGAIN) => {
                    self.watched.arm(Direction::Read, cx);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_write(&self, cx: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        let bytes = &bytes[..bytes.len().min(SLICES)];
        loop {
            let sent = match bytes {
                [one] => send(&self.watched, one, SendFlags::NOSIGNAL),
                many => {
                    let mut control = SendAncillaryBuffer::default();
                    sendmsg(&self.watched, many, &mut control, SendFlags::NOSIGNAL)
                }
            };
            match sent {
                Ok(count) => return Poll::Ready(Ok(count)),
                Err(Errno::AGAIN) => {
                    self.watched.arm(Direction::Write, cx);
                    return Poll::Pending;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Poll::Ready(Err(errno.into())),
            }
        }
    }

    fn poll_close(&self, _: &mut Context<'_>) -> Poll<Result<()>> {
        match shutdown(&self.watched, Shutdown::Write) {
            // The other end was quicker.
            Ok(()) | Err(Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }
}

impl fmt::Display for Address {
    /// As the command line writes it: `unix:PATH`, `tcp:ADDRESS:PORT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

fn new_fd(family: AddressFamily) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn family(address: &SocketAddr) -> AddressFamily {
    match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

fn peer_of(fd: impl AsFd) -> Peer {
    let fd = fd.as_fd();
    match sockopt::socket_domain(fd) {
        Ok(AddressFamily::UNIX) => match sockopt::socket_peercred(fd) {
            Ok(cred) => Peer::Local {
                pid: u32::try_from(cred.pid.as_raw_nonzero().get()).unwrap_or(0),
                uid: cred.uid.as_raw(),
                gid: cred.gid.as_raw(),
            },
            Err(_) => Peer::Unknown,
        },
        Ok(_) => match getpeername(fd) {
            Ok(Some(address)) => SocketAddr::try_from(address).map_or(Peer::Unknown, Peer::Remote),
            _ => Peer::Unknown,
        },
        Err(_) => Peer::Unknown,
    }
}
