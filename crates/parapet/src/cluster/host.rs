//! What all servers of a cluster have in common: a guarded address, connections, an end.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use ::io::Clock;
use net::cluster::door::{Door, Guard, Session};
use os::{Address, Listener, Signals, Socket, Spawner};

use super::file::Endpoint;
use super::keys::Keys;
use crate::daemon::{TurnedAway, bind, first, origin};
use crate::failure::{Failure, Id, Result};
use crate::systemd;

/// Pause after a refused connection: the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(200);

/// Whether other machines may connect without a certificate.
#[derive(clap::Args)]
pub(crate) struct Exposure {
    /// Allow an address that other machines reach, without TLS: whoever connects can read, write,
    /// fence and erase. For a network of trusted hosts only
    #[arg(long)]
    allow_unauthenticated: bool,
}

impl Exposure {
    /// Refuses an address that other machines reach, unless they need a certificate or the user
    /// allowed it.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check(&self, listen: &Endpoint, keys: Option<&Rc<Keys>>) -> Result<()> {
        if !listen.is_open() || self.allow_unauthenticated || keys.is_some() {
            return Ok(());
        }
        let message = format!(
            "{listen}: without TLS, whoever reaches this address could read, write and erase the \
             data"
        );
        let action = "make certificates with parapet cluster key; on a network of trusted hosts, \
            say --allow-unauthenticated";
        Err(Failure::new(Id::Usage, message, action))
    }
}

/// Lets the processes of a cluster in, and gives each session to `serve`. With keys, TCP needs TLS.
///
/// # Errors
/// As [`listen`].
pub(crate) async fn receive(
    at: &Endpoint,
    keys: Option<&Rc<Keys>>,
    on: &Spawner,
    serve: impl AsyncFn(Session) -> std::io::Error + Clone + 'static,
) -> Result<Address> {
    let guard = keys.filter(|_| matches!(at.0, Address::Tcp(_)));
    let guard = guard.map(|keys| Rc::clone(keys) as Rc<dyn Guard>);
    let (door, clock) = (Rc::new(Door::new(on.clock(), guard)), on.clock());
    let refused = Rc::new(TurnedAway::default());
    listen(&at.0, on, async move |socket, origin| {
        match door.enter(Box::new(socket)).await {
            Ok(session) => {
                let ended = serve(session).await;
                tracing::debug!(origin, "a connection has ended: {ended}");
            }
            // Whoever looks whether somebody listens.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                tracing::debug!(origin, "a connection has ended before its first frame");
            }
            Err(error) => {
                if let Some(count) = refused.due(&*clock) {
                    tracing::warn!(origin, count, "connection refused: {error}");
                }
            }
        }
    })
    .await
}

/// Listens, and gives each connection to `serve`, with the words for its origin. `serve` limits
/// their number.
///
/// # Errors
/// If it cannot listen there. Returns the address that the kernel chose.
pub(crate) async fn listen(
    address: &Address,
    on: &Spawner,
    serve: impl AsyncFn(Socket, String) + Clone + 'static,
) -> Result<Address> {
    let listener = bind(address, on).await?;
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
    let clock = on.clock();
    loop {
        let accepted = listener.accept().await;
        match accepted.and_then(|connection| Socket::from_fd(connection, on)) {
            Ok(socket) => {
                let (serve, origin) = (serve.clone(), origin(socket.peer()));
                on.spawn_local(async move { serve(socket, origin).await });
            }
            Err(error) => {
                tracing::error!(%error, "a connection could not be accepted");
                clock.sleep_until(clock.now() + PAUSE).await;
            }
        }
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
