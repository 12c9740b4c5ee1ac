//! Sockets that systemd opened for us: the protocol of `sd_listen_fds(3)`.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sendmsg_addr, socket_with, sockopt,
};

use super::Listener;
use crate::executor::Spawner;

/// Puts a socket into systemd's store under this name (`FDSTORE=1` in
/// `sd_pid_notify_with_fds(3)`): the next start of the service gets it from [`activated`], and
/// clients that connect meanwhile wait. Does nothing without `NOTIFY_SOCKET`.
///
/// # Errors
/// If systemd does not take the message.
pub fn store(name: &str, listener: &mut Listener) -> Result<()> {
    let Some(systemd) = notify_socket()? else { return Ok(()) };
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [listener.descriptor()];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    let state = format!("FDSTORE=1\nFDNAME={name}\n");
    let bytes = [IoSlice::new(state.as_bytes())];
    sendmsg_addr(&socket, &systemd, &bytes, &mut control, SendFlags::NOSIGNAL)?;
    // Its file stays: the socket lives on.
    listener.keep_file();
    Ok(())
}

fn notify_socket() -> Result<Option<SocketAddrUnix>> {
    let name = std::env::var_os("NOTIFY_SOCKET");
    let address = name.map(|name| match name.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name),
        name => SocketAddrUnix::new(name),
    });
    Ok(address.transpose()?)
}

/// `SD_LISTEN_FDS_START`.
const FIRST: RawFd = 3;

/// Descriptors can be owned once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The sockets that this process was started with, by name (`FileDescriptorName=`, "unknown"
/// without). Empty if it was not started by a socket; also when asked again.
///
/// # Errors
/// If one of them is not a listening stream socket (`Accept=no`, `ListenStream=`).
pub fn activated(on: &Spawner) -> Result<Vec<(String, Listener)>> {
    let variable = |name: &str| std::env::var(name).ok();
    let names = promised(variable, std::process::id());
    if names.is_empty() || TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    (FIRST..).zip(names).map(|(fd, name)| Ok((name, listener(fd, on)?))).collect()
}

fn listener(fd: RawFd, on: &Spawner) -> Result<Listener> {
    // SAFETY: only looked at, to see whether it is open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
    fcntl_getfd(borrowed)?;
    // SAFETY: it is open, the environment says that it is ours, and `TAKEN` that we take it once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    fcntl_setfd(&fd, FdFlags::CLOEXEC)?;
    if !sockopt::socket_acceptconn(&fd).unwrap_or(false) {
        return Err(Error::new(ErrorKind::InvalidInput, "the activated socket does not listen"));
    }
    fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
    Listener::from_fd(fd, on)
}

/// The names of the descriptors that the environment promises to this process.
fn promised(variable: impl Fn(&str) -> Option<String>, pid: u32) -> Vec<String> {
    let number = |name| variable(name).and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(pid) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").unwrap_or(0).min(1024) as usize;
    let names = variable("LISTEN_FDNAMES").unwrap_or_default();
    let mut names: Vec<String> = names.split(':').map(str::to_owned).collect();
    names.resize(count, String::new());
    let unnamed = |name: String| if name.is_empty() { "unknown".to_owned() } else { name };
    names.into_iter().map(unnamed).collect()
}

#[cfg(test)]
mod tests {
    use super::promised;

    #[test]
    fn only_descriptors_promised_to_this_process_are_taken() {
        let environment = |name: &str| match name {
            "LISTEN_PID" => Some("42".to_owned()),
            "LISTEN_FDS" => Some("3".to_owned()),
            "LISTEN_FDNAMES" => Some("nbd:control".to_owned()),
            _ => None,
        };
        assert_eq!(promised(environment, 42), ["nbd", "control", "unknown"]);
        assert!(promised(environment, 43).is_empty());
        assert!(promised(|_| None, 42).is_empty());
    }
}
