//! The HTTP server: a page, its assets, its events, and the metrics. Answers `GET` only.
//!
//! Connections are limited, because the arrays of the same process need file descriptors too. One
//! task asks the control API once a second while a page is open, however many are.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::channel::{Channel, Sender};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::listen::{Bound, BoundSocket};
use crate::source::Servers;
use crate::{html, metrics};

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

/// No script, style, image or connection from anywhere else; no frame around it.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

type Body = BoxBody<Bytes, Infallible>;

struct Panel {
    servers: Servers,
    /// The live part of the page.
    latest: watch::Sender<String>,
    /// A page has been opened.
    opened: Notify,
    /// On TCP, a request must name this machine: a web page elsewhere may let its own name point
    /// here (DNS rebinding).
    checks_host: bool,
}

/// Serves until it is dropped.
pub(crate) async fn serve(bound: Bound, servers: Servers) {
    let checks_host = matches!(bound.socket, BoundSocket::Tcp(_));
    let (latest, opened) = (watch::Sender::new(String::new()), Notify::new());
    let panel = Arc::new(Panel { servers, latest, opened, checks_host });
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
                async move { Ok::<_, Infallible>(panel.answer(&request).await) }
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

    async fn answer(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        const PAGE: &str = "text/html; charset=utf-8";
        let mut answer = if self.checks_host && !is_local(request) {
            text(StatusCode::MISDIRECTED_REQUEST, "the Host of the request is not this machine\n")
        } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
            text(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n")
        } else {
            match request.uri().path() {
                "/" => {
                    let snapshot = self.servers.read().await;
                    content(PAGE, html::page(&snapshot, Timestamp::now()))
                }
                "/metrics" => {
                    let snapshot = self.servers.read().await;
                    content(metrics::CONTENT_TYPE, metrics::text(&snapshot))
                }
                "/events" => self.events(),
                "/style.css" => {
                    content("text/css; charset=utf-8", include_str!("../assets/style.css"))
                }
                "/panel.js" => {
                    let script = include_str!("../assets/panel.js");
                    content("text/javascript; charset=utf-8", script)
                }
                "/icon.svg" => content("image/svg+xml", include_str!("../assets/icon.svg")),
                _ => text(StatusCode::NOT_FOUND, "no such page\n"),
            }
        };
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    /// Server-sent events: the live part of the page, now and after each change.
    fn events(self: &Arc<Self>) -> Response<Body> {
        let (sender, body) = Channel::new(1);
        tokio::spawn(Arc::clone(self).send_events(sender));
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
        let snapshot = self.servers.read().await;
        let new = html::fragment(&snapshot, Timestamp::now());
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

/// Returns true if the request names this machine by a name that nobody else can use.
fn is_local(request: &Request<Incoming>) -> bool {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    host.is_some_and(names_loopback)
}

fn names_loopback(host: &str) -> bool {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    address || name.eq_ignore_ascii_case("localhost")
}

/// Formats an event; each line of the data has its own prefix. A carriage return ends a line too.
fn event(data: &str) -> Bytes {
    let lines: String = data.split(['\n', '\r']).map(|line| format!("data: {line}\n")).collect();
    Bytes::from(lines + "\n")
}

fn typed(kind: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

fn content(kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    typed(kind, Full::new(text.into()).boxed())
}

fn text(status: StatusCode, words: &'static str) -> Response<Body> {
    let mut answer = content("text/plain; charset=utf-8", words);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for good in ["localhost", "LOCALHOST:7580", "127.0.0.1:7580", "[::1]:7580", "127.1.2.3"] {
            assert!(names_loopback(good), "{good}");
        }
        for bad in ["", "example.org", "localhost.example.org:7580", "192.0.2.1", "127.0.0.1.x"] {
            assert!(!names_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn an_event_keeps_its_lines() {
        assert_eq!(event("a\nb"), Bytes::from("data: a\ndata: b\n\n"));
        assert_eq!(event("a\revent: b"), Bytes::from("data: a\ndata: event: b\n\n"));
    }
}
