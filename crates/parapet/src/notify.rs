//! Reports the state of the service to systemd: the protocol of `sd_notify(3)`.
//!
//! Sends a datagram to the socket in `NOTIFY_SOCKET`. Errors are ignored: a service must not fail
//! for lack of a listener.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the service is ready, and its addresses.
pub(crate) fn ready(what: &str) {
    send(&format!("READY=1\nSTATUS={}\n", what.replace('\n', " ")));
}

/// Reports that the service is stopping.
pub(crate) fn stopping() {
    send("STOPPING=1\n");
}

fn send(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match name.as_encoded_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent =
        UnixDatagram::unbound().and_then(|socket| socket.send_to_addr(state.as_bytes(), &address?));
    if let Err(error) = sent {
        tracing::debug!(%error, "cannot notify systemd");
    }
}
