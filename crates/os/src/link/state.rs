//! Up or down, and the MTU, of an interface.

use std::cell::Cell;
use std::io::Result;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::{Context, Poll};

use io::LinkState;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, netlink, recv, socket_with};

use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// Where a port's state comes from.
pub(super) enum StateSource {
    /// It never changes.
    Fixed(LinkState),
    /// An interface, asked through any socket; the kernel says when to ask again.
    Interface { name: String, index: u32, asked: OwnedFd, changes: Watched, last: Cell<LinkState> },
}

/// The multicast group of changes to interfaces: `RTMGRP_LINK` in rtnetlink(7).
const LINK_GROUP: u32 = 1;

impl StateSource {
    /// The state of the interface of this name.
    pub(super) fn interface(name: &str, index: u32, on: &Spawner) -> Result<StateSource> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = |family, kind, protocol| socket_with(family, kind, flags, protocol);
        // Protocol 0 of this family is rtnetlink.
        let changes = socket(AddressFamily::NETLINK, SocketType::RAW, None)?;
        rustix::net::bind(&changes, &netlink::SocketAddrNetlink::new(0, LINK_GROUP))?;
        let asked = socket(AddressFamily::UNIX, SocketType::DGRAM, None)?;
        let changes = Watched::new(changes, on.reactor())?;
        let last = Cell::new(look(&asked, name));
        Ok(StateSource::Interface { name: name.to_owned(), index, asked, changes, last })
    }

    /// The state when it was last looked at: at the start, and at each [`StateSource::poll`].
    pub(super) fn now(&self) -> LinkState {
        match self {
            StateSource::Fixed(state) => *state,
            StateSource::Interface { last, .. } => last.get(),
        }
    }

    /// False if the interface was removed, or another has its name now.
    pub(super) fn exists(&self) -> bool {
        match self {
            StateSource::Fixed(_) => true,
            StateSource::Interface { name, index, asked, .. } => {
                let found = ask(asked, name, Question::Index);
                found.is_ok_and(|found| u32::try_from(found) == Ok(*index))
            }
        }
    }

    /// Ready with the new state when it is no longer `seen`.
    pub(super) fn poll(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        let StateSource::Interface { name, asked, changes, last, .. } = self else {
            return Poll::Pending;
        };
        // What the messages say is asked for afresh: they may have been lost.
        let mut message = [0; 4096];
        while recv(changes, &mut message[..], RecvFlags::DONTWAIT).is_ok() {}
        let now = look(asked, name);
        last.set(now);
        if now != seen {
            return Poll::Ready(now);
        }
        changes.arm(Direction::Read, cx);
        Poll::Pending
    }
}

/// The state of an interface. One that is gone is down.
fn look(socket: &OwnedFd, name: &str) -> LinkState {
    let on = libc::IFF_UP | libc::IFF_RUNNING;
    let up = ask(socket, name, Question::Flags).is_ok_and(|flags| flags & on == on);
    let mtu = ask(socket, name, Question::Mtu).ok();
    LinkState { up, mtu: mtu.and_then(|mtu| mtu.try_into().ok()).unwrap_or(0) }
}

enum Question {
    Flags,
    Mtu,
    Index,
}

/// Asks the kernel about an interface: netdevice(7).
fn ask(socket: &OwnedFd, name: &str, question: Question) -> Result<i32> {
    // SAFETY: a structure of numbers and arrays, for which zeros are valid.
    let mut asked: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let room = asked.ifr_name.len() - 1;
    for (into, byte) in asked.ifr_name[..room].iter_mut().zip(name.bytes()) {
        *into = byte as libc::c_char;
    }
    let request = match question {
        Question::Flags => libc::SIOCGIFFLAGS,
        Question::Mtu => libc::SIOCGIFMTU,
        Question::Index => libc::SIOCGIFINDEX,
    };
    // SAFETY: these requests read the name and write one member of the union.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut asked) };
    if outcome < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: all bytes of the union are initialized, and each member is a number.
    Ok(unsafe {
        match question {
            Question::Flags => asked.ifr_ifru.ifru_flags.into(),
            Question::Mtu => asked.ifr_ifru.ifru_mtu,
            Question::Index => asked.ifr_ifru.ifru_ifindex,
        }
    })
}
