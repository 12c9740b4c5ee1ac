//! The HTTP server: connections and live events. `routes` answers the requests.
//!
//! Connections are limited, because the arrays of the same process need file descriptors too. With
//! TLS a connection gets its place after its handshake, so that strangers cannot take the places of
//! browsers; of too many handshakes the oldest ends. One task asks the control API once a second
//! while a page is open, however many are.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, combinators::BoxBody};
use hyper::Response;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use crate::access::{Access, Tls};
use crate::html;
use crate::listen::{Bound, BoundSocket};
use crate::routes::Outcomes;
use crate::session::Sessions;
use crate::source::{Servers, Timelines};

/// Maximum number of connections to a page; further ones wait. A browser opens at most six.
pub const MOST_CONNECTIONS: usize = 64;
/// Maximum number of TLS handshakes at a time; a further one ends the oldest.
pub const MOST_HANDSHAKES: usize = 64;
/// Time limit of a TLS handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit to receive the head of a request, on an idle connection too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the queries while a page is open.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the comments that find closed connections.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Pause after a refused connection: the process has no file descriptors left.
const BREATH: Duration = Duration::from_millis(200);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

pub(crate) struct Panel {
    pub(crate) servers: Servers,
    pub(crate) timelines: Timelines,
    /// The live part of the page.
    latest: watch::Sender<String>,
    /// A page has been opened.
    opened: Notify,
    /// On plain TCP, a request must name this machine: a web page elsewhere may let its own name
    /// point here (DNS rebinding). With TLS, the name is in the certificate.
    pub(crate) checks_host: bool,
    /// Metrics are for those who may see the page. On this machine they are for everybody.
    pub(crate) hides_metrics: bool,
    pub(crate) access: Access,
    /// Free places for connections.
    places: Arc<Semaphore>,
    pub(crate) sessions: Mutex<Sessions>,
    pub(crate) outcomes: Mutex<Outcomes>,
    /// Name of the cookie: browsers send one to all ports of a host.
    pub(crate) cookie_name: String,
}

/// Serves until it is dropped.
pub(crate) async fn serve(bound: Bound, servers: Servers) {
    let (port, access) = (bound.port(), bound.access.clone());
    let name = port.map_or("parapet".into(), |port| format!("parapet-{port}"));
    let protection = access.protection();
    let panel = Arc::new(Panel {
        servers,
        timelines: Timelines::default(),
        latest: watch::Sender::new(String::new()),
        opened: Notify::new(),
        checks_host: port.is_some() && !protection.tls,
        hides_metrics: bound.is_remote() && !protection.client_certificates,
        access,
        places: Arc::new(Semaphore::new(MOST_CONNECTIONS)),
        sessions: Mutex::new(Sessions::new()),
        outcomes: Mutex::default(),
        // With this prefix, neither a page without TLS nor one of another name can set it.
        cookie_name: if protection.tls { format!("__Host-{name}") } else { name },
    });
    tokio::spawn(Arc::clone(&panel).follow());
    let served = match &bound.socket {
        BoundSocket::Tcp(listener) => panel.accept_tcp(listener).await,
        BoundSocket::Unix(listener, _) => panel.accept_unix(listener).await,
    };
    if let Err(error) = served {
        tracing::error!("{}: the page has stopped: {error}", bound.address());
    }
}

impl Panel {
    async fn accept_tcp(self: &Arc<Self>, listener: &std::net::TcpListener) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(listener.try_clone()?)?;
        if let Some(tls) = &self.access.tls {
            return self.accept_secure(&listener, tls).await;
        }
        loop {
            let place = take(&self.places).await;
            match listener.accept().await {
                Ok((stream, peer)) => self.start(stream, place, &peer.to_string()),
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    async fn accept_secure(
        self: &Arc<Self>,
        listener: &tokio::net::TcpListener,
        tls: &Tls,
    ) -> io::Result<()> {
        let mut handshakes = Handshakes::default();
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let agreeing = Arc::clone(self).secure(stream, peer.to_string(), tls.clone());
                    handshakes.admit(tokio::spawn(agreeing).abort_handle());
                }
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    /// Agrees on TLS with a client, then waits for a place and serves it.
    async fn secure(self: Arc<Self>, stream: tokio::net::TcpStream, peer: String, tls: Tls) {
        let stream = match agree(stream, (tls.config)()).await {
            Ok(stream) => stream,
            Err(error) => return tracing::debug!("{peer}: the page: no TLS: {error}"),
        };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let who = match shown.and_then(|certificate| (tls.subject)(certificate)) {
            // A subject may have any character.
            Some(name) => format!("{name:?} at {peer}"),
            None => peer,
        };
        let place = take(&self.places).await;
        self.start(stream, place, &who);
    }

    async fn accept_unix(
        self: &Arc<Self>,
        listener: &std::os::unix::net::UnixListener,
    ) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
        loop {
            let place = take(&self.places).await;
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream, place, "a local process"),
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    /// Serves one connection to its end. `who` is for the log.
    fn start(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: OwnedSemaphorePermit,
        who: &str,
    ) {
        let (panel, who) = (Arc::clone(self), Arc::<str>::from(who));
        tokio::spawn(async move {
            let answer = |request| {
                let (panel, who) = (Arc::clone(&panel), Arc::clone(&who));
                async move { Ok::<_, Infallible>(panel.answer(request, &who).await) }
            };
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
            let served = http.serve_connection(TokioIo::new(stream), service_fn(answer)).await;
            if let Err(error) = served {
                tracing::debug!(%error, "a connection to the page broke");
            }
            drop(place);
        });
    }

    /// Server-sent events: the live part of the page, now and after each change, until the end of
    /// the login.
    pub(crate) fn events(self: &Arc<Self>, end: Option<Instant>) -> Response<Body> {
        let (sender, body) = Channel::new(1);
        let sending = Arc::clone(self).send_events(sender);
        tokio::spawn(async move {
            match end {
                Some(end) => drop(tokio::time::timeout_at(end, sending).await),
                None => sending.await,
            }
        });
        // The channel has no errors of its own.
        typed("text/event-stream", body.boxed())
    }

    async fn send_events(self: Arc<Self>, mut sender: Sender<Bytes, Infallible>) {
        let mut latest = self.latest.subscribe();
        self.opened.notify_one();
        // The last value may be old: nobody was looking.
        self.renew().await;
        loop {
            let event = event(&latest.borrow_and_update());
            if sender.send_data(event).await.is_err() {
                return;
            }
            loop {
                match tokio::time::timeout(HEARTBEAT, latest.changed()).await {
                    Ok(Ok(())) => break,
                    Ok(Err(_)) => return,
                    Err(_) if sender.send_data(Bytes::from_static(b":\n\n")).await.is_err() => {
                        return;
                    }
                    Err(_) => {}
                }
            }
        }
    }

    /// Asks the servers once a second while a page is open.
    async fn follow(self: Arc<Self>) {
        loop {
            if self.latest.receiver_count() == 0 {
                self.opened.notified().await;
            }
            self.renew().await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn renew(&self) {
        let snapshot = self.servers.read_with_events(&self.timelines).await;
        let new = html::fragment(&snapshot, Timestamp::now(), self.access.actions);
        self.latest.send_if_modified(|latest| {
            let differs = *latest != new;
            *latest = new;
            differs
        });
    }
}

/// TLS handshakes under way, the oldest first.
#[derive(Default)]
struct Handshakes(VecDeque<AbortHandle>);

impl Handshakes {
    fn admit(&mut self, newcomer: AbortHandle) {
        self.0.retain(|handshake| !handshake.is_finished());
        if self.0.len() == MOST_HANDSHAKES
            && let Some(oldest) = self.0.pop_front()
        {
            oldest.abort();
        }
        self.0.push_back(newcomer);
    }
}

/// Runs the TLS handshake, for a limited time.
async fn agree<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    config: Arc<ServerConfig>,
) -> io::Result<TlsStream<S>> {
    let handshake = TlsAcceptor::from(config).accept(stream);
    let agreed = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await;
    agreed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn take(places: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let place = Arc::clone(places).acquire_owned().await;
    place.expect("nothing closes the semaphore")
}

/// Formats an event; each line of the data has its own prefix. A carriage return ends a line too.
fn event(data: &str) -> Bytes {
    let lines: String = data.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    Bytes::from(lines + "\n")
}

pub(crate) fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls;

    /// A server without a certificate: no handshake with it succeeds.
    fn no_identity() -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let none = rustls::server::ResolvesServerCertUsingSni::new();
        Arc::new(builder.with_cert_resolver(Arc::new(none)))
    }

    /// Runs a future in virtual time.
    fn run(future: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap().block_on(future);
    }

    #[test]
    fn a_client_that_says_nothing_is_not_waited_for() {
        run(async {
            let (_client, server) = tokio::io::duplex(1);
            let start = Instant::now();
            let error = agree(server, no_identity()).await.err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(start.elapsed(), HANDSHAKE_TIMEOUT);
        });
    }

    #[test]
    fn of_too_many_handshakes_the_oldest_ends() {
        run(async {
            let mut handshakes = Handshakes::default();
            let open = || tokio::spawn(std::future::pending::<()>());
            let oldest = open();
            handshakes.admit(oldest.abort_handle());
            let second = open();
            handshakes.admit(second.abort_handle());
            let done = tokio::spawn(async {});
            handshakes.admit(done.abort_handle());
            done.await.unwrap();
            // One of them has ended: its place is free.
            (2..MOST_HANDSHAKES).for_each(|_| handshakes.admit(open().abort_handle()));
            assert!(!oldest.is_finished());
            handshakes.admit(open().abort_handle());
            assert!(oldest.await.unwrap_err().is_cancelled());
            assert!(!second.is_finished());
        });
    }

    #[test]
    fn an_event_keeps_its_lines() {
        assert_eq!(event("a\nb"), Bytes::from("data: a\ndata: b\n\n"));
        assert_eq!(event("a\revent: b"), Bytes::from("data: a\ndata: event: b\n\n"));
    }
}
