//! Sockets that clients connect to, and who has them already.

use std::io::{Error, ErrorKind};
use std::time::Duration;

use ::io::Clock;
use os::{Address, Listener, Peer, Socket, Spawner};

use crate::failure::{Failure, Id, Result};
use crate::places;

/// How long a killed server may take to release its socket, and the interval of the checks.
const LETTING_GO: Duration = Duration::from_secs(5);
const BLINK: Duration = Duration::from_millis(20);

/// Binds the address, with retries: the kernel takes a moment to release the socket of a killed
/// server.
pub(super) async fn bind(address: &Address, on: &Spawner) -> Result<Listener> {
    if let Address::Unix(path) = address {
        places::check_socket(path)?;
    }
    let clock = on.clock();
    let deadline = clock.now() + LETTING_GO;
    loop {
        let error = match Listener::bind(address, on) {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        let owner = owner(address, on).await;
        let is_left_over = owner.is_some_and(|pid| !places::is_alive(pid));
        if error.kind() != ErrorKind::AddrInUse || !is_left_over || clock.now() >= deadline {
            return Err(of_bind(address, &error, owner));
        }
        clock.sleep_until(clock.now() + BLINK).await;
    }
}

/// Returns the process that listens at a unix socket.
async fn owner(address: &Address, on: &Spawner) -> Option<u32> {
    let Address::Unix(_) = address else { return None };
    match Socket::connect(address, on).await.ok()?.peer() {
        Peer::Local { pid, .. } if pid != 0 => Some(pid),
        _ => None,
    }
}

fn of_bind(address: &Address, error: &Error, owner: Option<u32>) -> Failure {
    let who = owner.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    let message = format!("{address}: {error}{who}");
    match error.kind() {
        ErrorKind::AddrInUse => {
            Failure::new(Id::Running, message, "is a server running already? parapet list shows it")
        }
        ErrorKind::AlreadyExists => {
            Failure::new(Id::Running, message, "choose another path, or remove the file")
        }
        ErrorKind::PermissionDenied => {
            Failure::new(Id::Denied, message, "choose a place where this user may make a socket")
        }
        _ => Failure::new(Id::Socket, message, "choose another address"),
    }
}

/// Returns where a connection comes from, for the log.
pub(super) fn origin(peer: Peer) -> String {
    match peer {
        Peer::Local { pid, uid, .. } => format!("process {pid} of user {uid}"),
        Peer::Remote(address) => address.to_string(),
        Peer::Unknown => "unknown".into(),
    }
}
