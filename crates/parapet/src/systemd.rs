//! Reports the state of the service to systemd: the protocol of `sd_notify(3)`.
//!
//! Sends a datagram to the socket in `NOTIFY_SOCKET`. Errors are ignored: a service must not fail
//! for lack of a listener.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use io::Clock;
use os::{Address, Listener, Spawner};

/// Reports that the service is ready, and its addresses.
pub(crate) fn ready(what: &str) {
    send(&format!("READY=1\nSTATUS={}\n", what.replace('\n', " ")));
}

/// Reports what it does, for `systemctl status`.
pub(crate) fn status(what: &str) {
    send(&format!("STATUS={}\n", what.replace('\n', " ")));
}

/// Reports that the service is stopping.
pub(crate) fn stopping() {
    send("STOPPING=1\n");
}

/// Keeps a listening socket in systemd's store, for the next start of the service.
pub(crate) fn store(kind: &str, address: &Address, listener: &mut Listener) {
    if let Err(error) = os::socket::store(&stored_name(kind, address), listener) {
        tracing::warn!("{address}: systemd does not keep the socket over restarts: {error}");
    }
}

/// Removes a socket from the store that nobody is to use any more.
pub(crate) fn forget(kind: &str, address: &Address) {
    send(&format!("FDSTOREREMOVE=1\nFDNAME={}\n", stored_name(kind, address)));
}

/// The kind of a socket from the store; none for one of a `.socket` unit.
pub(crate) fn stored_kind(name: &str) -> Option<&str> {
    name.strip_prefix(STORED)?.split(' ').next()
}

/// What the names of stored sockets begin with.
const STORED: &str = "parapet-";

/// Names have no colons, and at most 255 bytes: a long path is cut.
fn stored_name(kind: &str, address: &Address) -> String {
    let address = address.to_string().replace(':', "=");
    let plain = address.chars().filter(|c| c.is_ascii_graphic()).take(200);
    format!("{STORED}{kind} {}", plain.collect::<String>())
}

/// Feeds systemd's watchdog, if there is one, from the loop that serves the arrays: systemd
/// restarts a server whose loop stands still.
pub(crate) fn feed_watchdog(on: &Spawner) {
    let Some(interval) = watchdog_interval() else { return };
    let clock = on.clock();
    on.spawn_local(async move {
        loop {
            send("WATCHDOG=1\n");
            clock.sleep_until(clock.now() + interval).await;
        }
    });
}

/// Half of the time that systemd's watchdog allows this process.
fn watchdog_interval() -> Option<Duration> {
    let variable = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_other = |pid| pid != u64::from(std::process::id());
    let of_other = variable("WATCHDOG_PID").is_some_and(is_other);
    let micros = variable("WATCHDOG_USEC").filter(|&micros| micros > 0 && !of_other)?;
    Some(Duration::from_micros(micros / 2))
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
