//! Sockets that clients connect to: binding them, and accepting clients.

use std::cell::Cell;
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use ::io::{Clock, Stream};
use net::nbd::Ending;
use net::nbd::limits::STALL_TIME;
use os::{Address, Listener, Peer, Socket, Spawner};

use super::{Daemon, QUIET};
use crate::failure::{Failure, Id, Result};
use crate::places;
use crate::systemd;

/// How long a killed server may take to release its socket, and the interval of the checks.
const LETTING_GO: Duration = Duration::from_secs(5);
const BLINK: Duration = Duration::from_millis(20);

/// Pause after a refused connection: the process has no file descriptors left.
const BREATH: Duration = Duration::from_millis(200);

/// Refused connections, logged at intervals to limit the log's size.
#[derive(Default)]
pub(crate) struct TurnedAway {
    count: Cell<u64>,
    last_warning: Cell<Option<::io::Time>>,
}

impl TurnedAway {
    /// Counts one; returns the number so far if it is time for a line in the log.
    pub(crate) fn due(&self, clock: &dyn Clock) -> Option<u64> {
        let (count, now) = (self.count.get() + 1, clock.now());
        self.count.set(count);
        let due = self.last_warning.get().is_none_or(|last_warning| now - last_warning >= QUIET);
        due.then(|| {
            self.last_warning.set(Some(now));
            count
        })
    }

    pub(super) fn warn(&self, clock: &dyn Clock, origin: &str) {
        if let Some(count) = self.due(clock) {
            tracing::warn!(origin, count, "too many connections: turned away");
        }
    }
}

/// A listener for NBD clients.
pub(super) struct NbdListener {
    /// Each has its own limit of connections.
    number: usize,
    /// The address that it was opened for; none for a socket from systemd.
    wanted: Option<Address>,
    /// The address that it has.
    pub(super) address: Option<Address>,
}

/// Logs why a client disconnected, if the cause matters.
pub(super) fn log_ending(origin: &str, ending: &Ending) {
    match ending {
        Ending::Stalled => {
            let seconds = STALL_TIME.as_secs();
            tracing::warn!(origin, seconds, "NBD client disconnected: stalled within a request");
        }
        Ending::TlsFailed(error) => tracing::warn!(origin, %error, "no TLS was agreed on"),
        ending => tracing::debug!(origin, ?ending, "an NBD client has gone"),
    }
}

impl Daemon {
    /// Serves NBD at this address.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub(crate) async fn serve_nbd(self: &Rc<Self>, address: &Address) -> Result<()> {
        let mut listener = bind(address, &self.spawner).await?;
        if self.is_managed() {
            systemd::store("nbd", address, &mut listener);
        }
        self.accept_nbd(listener, Some(address.clone()));
        Ok(())
    }

    /// Serves the NBD clients of this listener, which was opened for the address `wanted`.
    pub(crate) fn accept_nbd(self: &Rc<Self>, listener: Listener, wanted: Option<Address>) {
        let number = self.listeners.replace(self.listeners.get() + 1);
        let address = listener.address();
        self.nbd.borrow_mut().push(NbdListener { number, wanted, address });
        let daemon = Rc::clone(self);
        self.spawner.spawn_local(async move {
            let is_closed = || {
                let listeners = daemon.nbd.borrow();
                daemon.ending.get() || !listeners.iter().any(|it| it.number == number)
            };
            while let Some(client) = daemon.accept(&listener, is_closed).await {
                let own = daemon.server.connections();
                let Some(client) = daemon.crew.place(client, number, own) else { continue };
                if let Some(socket) = daemon.socket(client) {
                    let origin = origin(socket.peer());
                    daemon.serve_stream(Box::new(socket), number, &origin);
                }
            }
        });
    }

    /// Accepts no more NBD clients at this address. Those that are connected stay.
    pub(crate) fn close_nbd(&self, address: &Address) {
        self.nbd.borrow_mut().retain(|it| it.wanted.as_ref() != Some(address));
        if self.is_managed() {
            systemd::forget("nbd", address);
        }
        self.stirred.raise();
    }

    /// Serves one NBD client.
    fn serve_stream(self: &Rc<Self>, stream: Box<dyn Stream>, listener: usize, origin: &str) {
        let Some(serving) = self.server.admit(stream, listener, origin) else {
            self.turned_away.warn(&*self.spawner.clock(), origin);
            return;
        };
        tracing::debug!(origin, "an NBD client has connected");
        let (daemon, origin) = (Rc::clone(self), origin.to_owned());
        self.spawner.spawn_local(async move {
            log_ending(&origin, &serving.await);
            daemon.stirred.raise();
        });
    }

    /// Serves one NBD client, and shuts down when it disconnects.
    pub(crate) fn serve_only(self: &Rc<Self>, stream: Box<dyn Stream>) {
        if let Some(serving) = self.server.admit(stream, usize::MAX, "standard input") {
            let daemon = Rc::clone(self);
            self.spawner.spawn_local(async move {
                let ending = serving.await;
                tracing::debug!(?ending, "the NBD client has gone");
                daemon.end();
            });
        }
    }

    /// Listens for control commands at this address; `usual` if that is the default place.
    ///
    /// # Errors
    /// If it cannot listen there.
    pub(crate) async fn listen(self: &Rc<Self>, path: &Path, usual: bool) -> Result<()> {
        let address = Address::Unix(path.to_owned());
        let mut listener = bind(&address, &self.spawner).await?;
        if self.is_managed() {
            systemd::store("control", &address, &mut listener);
        }
        self.usual_control.set(usual);
        self.listen_on(listener);
        Ok(())
    }

    /// Serves the control connections of this listener.
    pub(crate) fn listen_on(self: &Rc<Self>, listener: Listener) {
        self.control.borrow_mut().extend(listener.address());
        let daemon = Rc::clone(self);
        self.spawner.spawn_local(async move {
            let is_closed = || daemon.ending.get();
            while let Some(client) = daemon.accept(&listener, is_closed).await {
                let Some(socket) = daemon.socket(client) else { continue };
                let speaking = Rc::clone(&daemon);
                daemon.spawner.spawn_local(async move { speaking.serve_connection(socket).await });
            }
        });
    }

    /// Accepts the next connection; none once the listener is closed.
    async fn accept(&self, listener: &Listener, is_closed: impl Fn() -> bool) -> Option<OwnedFd> {
        loop {
            match self.unless(&is_closed, listener.accept()).await? {
                Ok(connection) => return Some(connection),
                Err(error) => {
                    tracing::error!(%error, "a connection could not be accepted");
                    let clock = self.spawner.clock();
                    clock.sleep_until(clock.now() + BREATH).await;
                }
            }
        }
    }

    /// Wraps a connection for this thread's executor.
    fn socket(&self, connection: OwnedFd) -> Option<Socket> {
        let taken = Socket::from_fd(connection, &self.spawner);
        taken.inspect_err(|error| tracing::error!(%error, "a connection was not taken over")).ok()
    }
}

/// Binds the address, with retries: the kernel takes a moment to release the socket of a killed
/// server. Who listens on a port is not known, so that is tried as long in any case.
pub(crate) async fn bind(address: &Address, on: &Spawner) -> Result<Listener> {
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
        let is_held = owner.is_some_and(places::is_alive)
            || (owner.is_none() && matches!(address, Address::Unix(_)));
        if error.kind() != ErrorKind::AddrInUse || is_held || clock.now() >= deadline {
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
        ErrorKind::AddrInUse => Failure::new(
            Id::Running,
            message,
            "end the process that has it, or choose another address",
        ),
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
pub(crate) fn origin(peer: Peer) -> String {
    match peer {
        Peer::Local { pid, uid, .. } => format!("process {pid} of user {uid}"),
        Peer::Remote(address) => address.to_string(),
        Peer::Unknown => "unknown".into(),
    }
}
