//! Opening ports.

use std::fmt;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use io::{LinkState, Mac, Pool};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with, sockopt,
};

use super::batch::{Inbox, Outbox};
use super::ring::ReceiveRing;
use super::state::StateSource;
use super::{Port, Wire};
use crate::executor::Spawner;
use crate::reactor::source::Watched;

/// The EtherType of ATA over Ethernet.
pub(super) const ETHERTYPE: u16 = 0x88a2;
/// What the kernel keeps of frames that were not received yet. It counts whole pages, several for a
/// jumbo frame.
const RECEIVE_BYTES: usize = 16 << 20;
/// What the kernel keeps of frames that were not sent yet.
const SEND_BYTES: usize = 4 << 20;
/// The flag of answers in the byte after the EtherType.
const RESPONSE: u32 = 0x08;
/// The MTU of a datagram socket and the default of a tap.
const DEFAULT_MTU: u32 = 9000;

/// Which end of the protocol a port is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Requests come in.
    Target,
    /// Answers come in.
    Initiator,
}

/// The frames that a port receives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// Requests or answers.
    pub role: Role,
    /// Of these shelves, and of broadcasts; of all shelves, if there is none.
    pub shelves: Vec<u16>,
    /// Of this slot only; of all slots, if there is none.
    pub slot: Option<u8>,
}

/// Why a port could not be opened.
#[derive(Debug)]
pub enum PortError {
    /// There is no such interface.
    Missing,
    /// It is not Ethernet.
    NotEthernet,
    /// The process may not open packet sockets.
    Forbidden,
    /// A call failed.
    Failed(Error),
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortError::Missing => f.write_str("no such network interface"),
            PortError::NotEthernet => f.write_str("not an Ethernet interface"),
            PortError::Forbidden => f.write_str("packet sockets need CAP_NET_RAW"),
            PortError::Failed(error) => error.fmt(f),
        }
    }
}

impl From<Error> for PortError {
    fn from(error: Error) -> PortError {
        match Errno::from_io_error(&error) {
            Some(Errno::PERM | Errno::ACCESS) => PortError::Forbidden,
            Some(Errno::NODEV | Errno::NXIO) => PortError::Missing,
            _ => PortError::Failed(error),
        }
    }
}

impl From<Errno> for PortError {
    fn from(errno: Errno) -> PortError {
        Error::from(errno).into()
    }
}

impl Port {
    /// The network interface of this name. Received data comes into memory of `pool`.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn interface(
        name: &str,
        filter: &Filter,
        pool: Pool,
        on: &Spawner,
    ) -> std::result::Result<Port, PortError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('/') {
            return Err(PortError::Missing);
        }
        let index = index_of(name)?;
        // Without a protocol: nothing arrives before the filter is there and the socket is bound.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
        attach(&fd, &program(filter))?;
        set_option(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        enlarge(&fd);
        let address = bind_packet(&fd, index)?;
        let state = StateSource::interface(name, index, on)?;
        Ok(Port::assemble(fd, Wire::Interface, address, state, pool, on)?)
    }

    /// The tap device of this name, made if there is none, with this address on our side.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn tap(
        name: &str,
        address: Mac,
        pool: Pool,
        on: &Spawner,
    ) -> std::result::Result<Port, PortError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('/') {
            return Err(PortError::Missing);
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open("/dev/net/tun", flags, Mode::empty())?;
        set_tap(&fd, name)?;
        let index = index_of(name)?;
        let state = StateSource::interface(name, index, on)?;
        Ok(Port::assemble(fd, Wire::Tap, address, state, pool, on)?)
    }

    /// A unix datagram socket at `own` whose other end is at `peer`: one frame is one datagram, as
    /// QEMU's `-netdev dgram` sends them. The peer need not be there yet.
    ///
    /// # Errors
    /// See [`PortError`].
    pub fn datagram(
        own: &Path,
        peer: &Path,
        address: Mac,
        pool: Pool,
        on: &Spawner,
    ) -> std::result::Result<Port, PortError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
        // A file that an earlier process left; a live one's is taken over, as two cannot share it.
        let _ = std::fs::remove_file(own);
        bind(&fd, &SocketAddrUnix::new(own)?)?;
        enlarge(&fd);
        let state = StateSource::Fixed(LinkState { up: true, mtu: DEFAULT_MTU });
        let wire = Wire::Datagram(SocketAddrUnix::new(peer)?);
        Ok(Port::assemble(fd, wire, address, state, pool, on)?)
    }

    fn assemble(
        fd: OwnedFd,
        wire: Wire,
        address: Mac,
        state: StateSource,
        pool: Pool,
        on: &Spawner,
    ) -> Result<Port> {
        let mtu = state.now().mtu;
        let mut ring = ReceiveRing::new(pool.clone());
        if matches!(wire, Wire::Interface) {
            ring.follow(&fd, mtu);
        }
        let (ring, inbox) = (ring.into(), Inbox::new(mtu, pool).into());
        let watched = Watched::new(fd, on.reactor())?;
        let outbox = Outbox::new().into();
        Ok(Port { watched, wire, address, state, ring, inbox, outbox })
    }
}

/// The number of the interface of this name.
fn index_of(name: &str) -> std::result::Result<u32, PortError> {
    let name = std::ffi::CString::new(name).map_err(|_| PortError::Missing)?;
    // SAFETY: a string that ends with zero and outlives the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(PortError::Missing),
        index => Ok(index),
    }
}

/// Binds a packet socket to an interface, and returns the interface's address.
fn bind_packet(fd: &OwnedFd, index: u32) -> std::result::Result<Mac, PortError> {
    // SAFETY: a structure of numbers, for which zeros are valid.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    name.sll_family = libc::AF_PACKET as u16;
    name.sll_protocol = ETHERTYPE.to_be();
    name.sll_ifindex = index.cast_signed();
    let mut bytes = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address and its size are those of the structure.
    if unsafe { libc::bind(fd.as_raw_fd(), (&raw const name).cast(), bytes) } < 0 {
        return Err(Error::last_os_error().into());
    }
    // SAFETY: as above; the kernel writes at most `bytes` bytes.
    if unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut name).cast(), &raw mut bytes) } < 0 {
        return Err(Error::last_os_error().into());
    }
    let is_ethernet = matches!(name.sll_hatype, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK);
    match name.sll_addr.first_chunk() {
        Some(mac) if is_ethernet && name.sll_halen == 6 => Ok(Mac(*mac)),
        _ => Err(PortError::NotEthernet),
    }
}

/// Asks for large queues: beyond the system's limit if the process may, else up to it.
fn enlarge(fd: &OwnedFd) {
    let _ = sockopt::set_socket_recv_buffer_size(fd, RECEIVE_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(fd, SEND_BYTES);
    let force = libc::SO_RCVBUFFORCE;
    let _ = set_option(fd, libc::SOL_SOCKET, force, RECEIVE_BYTES as libc::c_int);
}

pub(super) fn set_option(fd: impl AsFd, level: i32, option: i32, value: libc::c_int) -> Result<()> {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the value is a number of that size.
    let outcome = unsafe {
        libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, (&raw const value).cast(), bytes)
    };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// Makes the descriptor the end of a tap without packet information.
fn set_tap(fd: &OwnedFd, name: &str) -> Result<()> {
    // SAFETY: a structure of numbers and arrays, for which zeros are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    for (into, byte) in asked.ifr_name.iter_mut().zip(name.bytes()) {
        *into = byte as libc::c_char;
    }
    asked.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
    // SAFETY: the request reads and writes the structure.
    let outcome = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), libc::TUNSETIFF, &raw mut asked) };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// The filter as a classic BPF program: accept, or drop.
///
/// ```text
///      type = 88a2 ? ─no─▶ drop
///      response bit as wanted ? ─no─▶ drop
///      slot as wanted ? ─no─▶ drop       (if one is wanted)
///      shelf = ffff ? ─yes─▶ accept      (once for each shelf)
///      drop
/// ```
fn program(filter: &Filter) -> Vec<libc::sock_filter> {
    let load = |size: u32, at| step(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at);
    let accept = step(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX);
    let drop = step(libc::BPF_RET | libc::BPF_K, 0, 0, 0);
    let equal = |value, yes, no| step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, yes, no, value);
    let bits = |value, yes, no| step(libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K, yes, no, value);
    let mut program = vec![load(libc::BPF_H, 12), equal(ETHERTYPE.into(), 1, 0), drop];
    program.push(load(libc::BPF_B, 14));
    program.push(match filter.role {
        Role::Target => bits(RESPONSE, 0, 1),
        Role::Initiator => bits(RESPONSE, 1, 0),
    });
    program.push(drop);
    if let Some(slot) = filter.slot {
        program.extend([load(libc::BPF_B, 18), equal(slot.into(), 1, 0), drop]);
    }
    if filter.shelves.is_empty() {
        program.push(accept);
        return program;
    }
    program.push(load(libc::BPF_H, 16));
    for shelf in filter.shelves.iter().copied().chain([0xffff]) {
        program.extend([equal(shelf.into(), 0, 1), accept]);
    }
    program.push(drop);
    program
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn attach(fd: &OwnedFd, program: &[libc::sock_filter]) -> Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| Error::from(Errno::INVAL))?;
    let whole = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let bytes = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the program outlives the call, which copies it.
    let outcome = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const whole).cast(),
            bytes,
        )
    };
    if outcome < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

/// The Ethernet interfaces of this network namespace, and their hardware addresses.
///
/// # Errors
/// If the kernel does not list them.
pub fn interfaces() -> Result<Vec<(String, Mac)>> {
    let mut list = std::ptr::null_mut();
    // SAFETY: the pointer is written; the list is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } < 0 {
        return Err(Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an entry of the list, which is not freed yet.
        let entry = unsafe { &*next };
        let address = entry.ifa_addr.cast::<libc::sockaddr_ll>();
        // SAFETY: an address that is not null begins with its family; one of this family is a
        // `sockaddr_ll`.
        let link = (!address.is_null()
            && unsafe { (*entry.ifa_addr).sa_family } == libc::AF_PACKET as u16)
            .then(|| unsafe { &*address });
        if let Some(link) = link.filter(|link| link.sll_halen == 6)
            && let Some(mac) = link.sll_addr.first_chunk()
        {
            // SAFETY: the name of an entry is a string that ends with zero.
            let name = unsafe { std::ffi::CStr::from_ptr(entry.ifa_name) };
            found.push((name.to_string_lossy().into_owned(), Mac(*mac)));
        }
        next = entry.ifa_next;
    }
    // SAFETY: the list came from `getifaddrs`, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}
