//! What all servers of a cluster have in common: a guarded address, connections, an end.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ::io::Clock;
use os::{Address, Listener, Signals, Socket, Spawner};

use super::file::Endpoint;
use crate::daemon::{bind, first, origin};
use crate::failure::{Failure, Id, Result};
use crate::systemd;

/// Most connections of one server.
const MOST_CONNECTIONS: usize = 1024;
/// Pause after a refused connection: the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether other machines may connect: the protocol has no authentication yet.
#[derive(clap::Args)]
pub(crate) struct Exposure {
    /// Allow an address that other machines reach, although there is no TLS and no key yet: whoever
    /// connects can read, write, fence and erase. For a network of trusted hosts only
    #[arg(long)]
    allow_unauthenticated: bool,
}

impl Exposure {
    /// Refuses an address that other machines reach, unless the user allowed it.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check(&self, listen: &Endpoint) -> Result<()> {
        if !listen.is_open() || self.allow_unauthenticated {
            return Ok(());
        }
        let message = format!(
            "{listen}: whoever reaches this address could read, write and erase the data: there \
             is no TLS and no key yet"
        );
        let action = "on a network of trusted hosts, say --allow-unauthenticated";
        Err(Failure::new(Id::Usage, message, action))
    }
}

/// Listens, and gives each connection to `serve`, with the words for its origin.
///
/// # Errors
/// If it cannot listen there. Returns the address that the kernel chose.
pub(crate) async fn listen(
    address: &Address,
    on: &Spawner,
    serve: impl AsyncFn(Socket, String) + Clone + 'static,
) -> Result<Address> {
    let listener = bind(address, on).await?;
    if let Address::Unix(path) = address {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        let changed = std::fs::set_permissions(path, mode);
        changed.map_err(|error| crate::failure::of_path(path, &error))?;
    }
    let bound = listener.address().unwrap_or_else(|| address.clone());
    let spawner = on.clone();
    on.spawn_local(async move { accept(&listener, &spawner, serve).await });
    Ok(bound)
}

async fn accept(
    listener: &Listener,
    on: &Spawner,
    serve: impl AsyncFn(Socket, String) + Clone + 'static,
) {
    let (clock, open) = (on.clock(), Rc::new(Cell::new(0)));
    loop {
        let accepted = listener.accept().await;
        let socket = match accepted.and_then(|connection| Socket::from_fd(connection, on)) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted");
                clock.sleep_until(clock.now() + PAUSE).await;
                continue;
            }
        };
        if open.get() >= MOST_CONNECTIONS {
            tracing::warn!("{MOST_CONNECTIONS} connections are open: one was turned away");
            clock.sleep_until(clock.now() + PAUSE).await;
            continue;
        }
        open.set(open.get() + 1);
        let (serve, open, origin) = (serve.clone(), Rc::clone(&open), origin(socket.peer()));
        on.spawn_local(async move {
            serve(socket, origin).await;
            open.set(open.get() - 1);
        });
    }
}

/// Waits until the process is to stop, or `work` ends. None: it is to stop.
pub(crate) async fn until_stopped<T>(
    signals: &Signals,
    work: impl Future<Output = T>,
) -> Option<T> {
    let stop = async {
        let signal = signals.next().await;
        tracing::info!(?signal, "asked to stop");
        systemd::stopping();
    };
    first(work, stop).await
}
