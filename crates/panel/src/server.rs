//! The HTTP server: connections and live events. `routes` answers the requests.
//!
//! Connections are limited, because the arrays of the same process need file descriptors too. One
//! task asks the control API once a second while a page is open, however many are.

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
use tokio::time::Instant;

use crate::html;
use crate::listen::{Bound, BoundSocket};
use crate::password::PasswordFile;
use crate::routes::Outcomes;
use crate::session::Sessions;
use crate::source::{Servers, Timelines};

/// Maximum number of connections to a page; further ones wait. A browser opens at most six.
pub const MOST_CONNECTIONS: usize = 64;
/// Time limit to receive the head of a request, on an idle connection too.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the queries while a page is open.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval of the comments that find closed connections.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Pause after a refused connection: the process has no file descriptors left.
const BREATH: Duration = Duration::from_millis(200);

pub(crate) type Body = BoxBody<Bytes, Infallible>;

/// What a page offers, and to whom.
#[derive(Clone, Default, Debug)]
pub struct Access {
    /// Browsers may give commands to the arrays. Over TCP this needs a login.
    pub actions: bool,
    /// The password that the page asks for; without one, whoever reaches the page sees it.
    pub login: Option<PasswordFile>,
}

pub(crate) struct Panel {
    pub(crate) servers: Servers,
    pub(crate) timelines: Timelines,
    /// The live part of the page.
    latest: watch::Sender<String>,
    /// A page has been opened.
    opened: Notify,
    /// On TCP, a request must name this machine: a web page elsewhere may let its own name point
    /// here (DNS rebinding).
    pub(crate) checks_host: bool,
    pub(crate) access: Access,
    pub(crate) sessions: Mutex<Sessions>,
    pub(crate) outcomes: Mutex<Outcomes>,
    /// Name of the cookie: browsers send one to all ports of a host.
    pub(crate) cookie_name: String,
}

/// Serves until it is dropped.
pub(crate) async fn serve(bound: Bound, servers: Servers, access: Access) {
    let port = bound.port();
    let panel = Arc::new(Panel {
        servers,
        timelines: Timelines::default(),
        latest: watch::Sender::new(String::new()),
        opened: Notify::new(),
        checks_host: port.is_some(),
        access,
        sessions: Mutex::new(Sessions::new()),
        outcomes: Mutex::default(),
        cookie_name: port.map_or("parapet".into(), |port| format!("parapet-{port}")),
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
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let place = take(&places).await;
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream, place),
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    async fn accept_unix(
        self: &Arc<Self>,
        listener: &std::os::unix::net::UnixListener,
    ) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener.try_clone()?)?;
        let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            let place = take(&places).await;
            match listener.accept().await {
                Ok((stream, _)) => self.start(stream, place),
                Err(_) => tokio::time::sleep(BREATH).await,
            }
        }
    }

    /// Serves one connection to its end.
    fn start(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: OwnedSemaphorePermit,
    ) {
        let panel = Arc::clone(self);
        tokio::spawn(async move {
            let answer = |request| {
                let panel = Arc::clone(&panel);
                async move { Ok::<_, Infallible>(panel.answer(request).await) }
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

    #[test]
    fn an_event_keeps_its_lines() {
        assert_eq!(event("a\nb"), Bytes::from("data: a\ndata: b\n\n"));
        assert_eq!(event("a\revent: b"), Bytes::from("data: a\ndata: event: b\n\n"));
    }
}
