//! The kernel's NBD client: block devices whose requests go to sockets. All calls may block.
//!
//! A device has a few connections. If all are dead, requests wait for [`reconnect`]. A backend
//! identifier names what is behind a device, so that the next server finds its device again.
//!
//! Source: `include/uapi/linux/nbd-netlink.h`, with the backend identifier of Linux 5.14.

use std::fs;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use crate::genetlink::{Channel, Family, attribute, attributes, nest};

const FAMILY: &str = "nbd";
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const LINK_DEAD: u8 = 4;

const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const DEAD_CONN_TIMEOUT: u16 = 8;
const BACKEND_IDENTIFIER: u16 = 10;
const SOCKET: u16 = 1;

/// A device to be made.
#[derive(Clone, Debug)]
pub struct Export {
    /// Its size.
    pub bytes: u64,
    /// Its logical block.
    pub block_bytes: u32,
    /// The server's transmission flags.
    pub flags: u16,
    /// After this time, in whole seconds, another connection resends the requests of a dead one.
    pub resend_after: Duration,
    /// So long do requests wait for a server, in whole seconds.
    pub wait: Duration,
    /// Names what is behind it.
    pub backend: Option<String>,
}

/// True if this kernel has the client, and its driver is loaded.
pub fn is_offered() -> bool {
    Family::find(FAMILY).is_ok()
}

/// The path of the device of this number.
pub fn path_of(index: u32) -> PathBuf {
    PathBuf::from(format!("/dev/nbd{index}"))
}

/// Makes a device of these connections, ready for transmission: the one of this number, or the
/// first that is free. Returns its number.
///
/// # Errors
/// `NotFound` if the kernel has no such driver, and what the kernel says.
pub fn connect(index: Option<u32>, export: &Export, sockets: &[BorrowedFd<'_>]) -> Result<u32> {
    let mut words = vec![
        attribute(SIZE_BYTES, &export.bytes.to_ne_bytes()),
        attribute(BLOCK_SIZE_BYTES, &u64::from(export.block_bytes).to_ne_bytes()),
        attribute(TIMEOUT, &export.resend_after.as_secs().to_ne_bytes()),
        attribute(SERVER_FLAGS, &u64::from(export.flags).to_ne_bytes()),
        attribute(DEAD_CONN_TIMEOUT, &export.wait.as_secs().to_ne_bytes()),
        list(sockets),
    ];
    words.extend(index.map(of_index));
    words.extend(export.backend.as_deref().map(of_backend));
    let answer = Family::find(FAMILY)?.order(CONNECT, &words.concat())?;
    let answer = answer.ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
    let fields = attributes(&answer.body);
    let found = fields.iter().find(|(kind, _)| *kind == INDEX);
    let found = found.and_then(|(_, value)| value.first_chunk());
    found.map(|index| u32::from_ne_bytes(*index)).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// Gives a device a connection for a dead one.
///
/// # Errors
/// `StorageFull` if no connection is dead, `InvalidInput` if something else is behind the device,
/// and what the kernel says.
pub fn reconnect(index: u32, backend: Option<&str>, socket: BorrowedFd<'_>) -> Result<()> {
    let mut words = vec![of_index(index), list(&[socket])];
    words.extend(backend.map(of_backend));
    Family::find(FAMILY)?.order(RECONFIGURE, &words.concat()).map(drop)
}

/// Ends a device. If a process still has it open, its requests fail.
///
/// # Errors
/// What the kernel says.
pub fn disconnect(index: u32) -> Result<()> {
    Family::find(FAMILY)?.order(DISCONNECT, &of_index(index)).map(drop)
}

/// The number of the device in use that this is behind.
pub fn find(backend: &str) -> Option<u32> {
    let entries = fs::read_dir("/sys/block").ok()?;
    let mut names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.find_map(|name| {
        let index = name.strip_prefix("nbd")?.parse().ok()?;
        let text = fs::read_to_string(format!("/sys/block/{name}/backend")).ok()?;
        (text.trim_end() == backend).then_some(index)
    })
}

/// The kernel's reports of dead connections.
pub struct DeadLinks(Channel);

impl DeadLinks {
    /// Begins to listen.
    ///
    /// # Errors
    /// `NotFound` if the kernel has no such driver.
    pub fn listen() -> Result<DeadLinks> {
        Ok(DeadLinks(Family::find(FAMILY)?.listen()?))
    }

    /// The numbers of devices of which one connection each has died; waits for one at least.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn next(&self) -> Result<Vec<u32>> {
        let events = self.0.next()?;
        let dead = events.iter().filter(|event| event.command == LINK_DEAD);
        let index = |body: &[u8]| {
            let fields = attributes(body);
            let (_, value) = fields.iter().find(|(kind, _)| *kind == INDEX)?;
            value.first_chunk().map(|index| u32::from_ne_bytes(*index))
        };
        Ok(dead.filter_map(|event| index(&event.body)).collect())
    }
}

fn of_index(index: u32) -> Vec<u8> {
    attribute(INDEX, &index.to_ne_bytes())
}

fn of_backend(backend: &str) -> Vec<u8> {
    attribute(BACKEND_IDENTIFIER, format!("{backend}\0").as_bytes())
}

fn list(sockets: &[BorrowedFd<'_>]) -> Vec<u8> {
    // A list of lists of one socket: the outer type has no meaning.
    let item =
        |fd: &BorrowedFd<'_>| nest(SOCKET, &attribute(SOCKET, &fd.as_raw_fd().to_ne_bytes()));
    nest(SOCKETS, &sockets.iter().flat_map(item).collect::<Vec<u8>>())
}
