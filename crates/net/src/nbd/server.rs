//! The server: connections in, endings out.
//!
//! Owns the connection count, the handshake's deadline and the orderly shutdown. The host listens,
//! and drives the future of each connection it hands in; one connection's end never touches
//! another.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use io::{Boxed, Clock, Pool, Signal, Stream};

use super::export::{Client, Export, Exports};
use super::handshake::{self, Chosen, Host, Terms};
use super::limits::{DEFAULT_MEMORY, HANDSHAKE_TIME, MAX_CONNECTIONS, MAX_HANDSHAKES};
use super::memory::Memory;
use super::session::Session;
use crate::gate::{Gate, HandshakeSlot};
use crate::transfer::before;

/// TLS, as the host provides it. With it, nothing but STARTTLS is served in plain text.
pub trait Tls {
    /// Takes over a connection whose client begins its TLS handshake. Returns the secured stream
    /// and the subject of the client's certificate, if any.
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting;
}

/// See [`Tls::accept`].
pub type Accepting =
    Pin<Box<dyn Future<Output = std::io::Result<(Box<dyn Stream>, Option<String>)>>>>;

/// How a connection ended.
#[derive(Debug)]
pub enum Ending {
    /// The client said goodbye.
    Finished,
    /// The stream ended or broke.
    Vanished(std::io::Error),
    /// The client broke a rule that leaves nothing to answer.
    Misbehaved(&'static str),
    /// The export is not for this client, and it asked in a way that has no error reply.
    Denied,
    /// The handshake took too long.
    TooSlow,
    /// The client stopped in the middle of a request, or did not read answers whose memory others
    /// needed.
    Stalled,
    /// The handshake was dropped for a newer one, or all places were taken when it was done.
    Crowded,
    /// TLS could not be agreed on.
    TlsFailed(std::io::Error),
    /// The server was shut down.
    Shutdown,
}

impl From<std::io::Error> for Ending {
    fn from(error: std::io::Error) -> Ending {
        Ending::Vanished(error)
    }
}

/// An NBD server without a socket. Clones are the same server.
#[derive(Clone)]
pub struct Server(Rc<Shared>);

struct Shared {
    exports: Rc<dyn Exports>,
    tls: RefCell<Option<Rc<dyn Tls>>>,
    clock: Rc<dyn Clock>,
    pool: Pool,
    memory: Memory,
    max_connections: usize,
    max_handshakes: usize,
    gates: RefCell<BTreeMap<usize, Rc<Gate>>>,
    connections: Cell<usize>,
    ended: Signal,
    stopping: Cell<bool>,
    stop: Signal,
}

impl Server {
    /// Serves these exports in plain text; buffers for requests come from `pool`.
    pub fn new(exports: Rc<dyn Exports>, clock: Rc<dyn Clock>, pool: Pool) -> Server {
        Server(Rc::new(Shared {
            exports,
            tls: RefCell::default(),
            clock,
            pool,
            memory: Memory::new(DEFAULT_MEMORY),
            max_connections: MAX_CONNECTIONS,
            max_handshakes: MAX_HANDSHAKES,
            gates: RefCell::default(),
            connections: Cell::new(0),
            ended: Signal::new(),
            stopping: Cell::new(false),
            stop: Signal::new(),
        }))
    }

    /// The same server, with TLS required of everybody.
    #[must_use]
    pub fn with_tls(self, tls: Rc<dyn Tls>) -> Server {
        self.set_tls(Some(tls));
        self
    }

    /// Requires this TLS, or none, of the clients that connect from now on. Connections stay as
    /// they are.
    pub fn set_tls(&self, tls: Option<Rc<dyn Tls>>) {
        self.0.tls.replace(tls);
    }

    /// The same server, whose requests share this memory. Call before the first connection.
    #[must_use]
    pub fn with_memory(self, memory: Memory) -> Server {
        self.rebuilt(|shared| Shared { memory, ..shared })
    }

    /// The same server with another limit than [`MAX_CONNECTIONS`]. To be called before the first
    /// connection.
    #[must_use]
    pub fn with_max_connections(self, max_connections: usize) -> Server {
        self.rebuilt(|shared| Shared { max_connections, ..shared })
    }

    /// The same server with another limit than [`MAX_HANDSHAKES`]. To be called before the first
    /// connection.
    #[must_use]
    pub fn with_max_handshakes(self, max_handshakes: usize) -> Server {
        self.rebuilt(|shared| Shared { max_handshakes, ..shared })
    }

    fn rebuilt(self, change: impl FnOnce(Shared) -> Shared) -> Server {
        let shared = Rc::try_unwrap(self.0).map_err(|_| "a server in use");
        Server(Rc::new(change(shared.expect("configured before it is cloned or used"))))
    }

    /// Connections now, handshakes included.
    pub fn connections(&self) -> usize {
        self.0.connections.get()
    }

    /// Takes a new connection in: a future that serves it to its end, to be driven by the host and
    /// not to be dropped before. Nothing (and the stream is closed) if its listener has too many,
    /// or the server is shutting down. `listener` is any number that the listener has for itself;
    /// `origin` says where the connection comes from.
    #[must_use = "the connection is served by driving this future"]
    pub fn admit(
        &self,
        stream: Box<dyn Stream>,
        listener: usize,
        origin: impl Into<String>,
    ) -> Option<Boxed<'static, Ending>> {
        let shared = Rc::clone(&self.0);
        let gate = Rc::clone(shared.gates.borrow_mut().entry(listener).or_default());
        if shared.stopping.get() || !gate.has_room(shared.max_connections) {
            return None;
        }
        let admission = Admission::new(&shared);
        let knock = gate.begin_handshake(shared.max_handshakes);
        let client = Client { origin: origin.into(), ..Client::default() };
        Some(Box::pin(async move {
            let ending = shared.serve(stream, client, knock).await;
            drop(admission);
            ending
        }))
    }

    /// Serves a connection of this process without a handshake: its peer, such as the kernel's NBD
    /// client, knows the export's size and [`Export::plain_flags`], and sends requests with simple
    /// replies. Limits of connections do not count. Nothing if the server is shutting down.
    #[must_use = "the connection is served by driving this future"]
    pub fn adopt(
        &self,
        stream: Box<dyn Stream>,
        export: Rc<Export>,
    ) -> Option<Boxed<'static, Ending>> {
        let shared = Rc::clone(&self.0);
        if shared.stopping.get() {
            return None;
        }
        let admission = Admission::new(&shared);
        let chosen = Chosen { stream, export, terms: Terms::default() };
        Some(Box::pin(async move {
            let ending = shared.transmit(chosen).await;
            drop(admission);
            ending
        }))
    }

    /// Shuts the server down: no new connections, handshakes end, requests in flight are finished
    /// and answered, new ones are not accepted. The future completes when the last connection has
    /// ended.
    pub fn shutdown(&self) -> impl Future<Output = ()> + 'static {
        let shared = Rc::clone(&self.0);
        shared.stopping.set(true);
        shared.stop.raise();
        async move {
            while shared.connections.get() > 0 {
                shared.ended.wait().await;
            }
        }
    }
}

/// A connection is counted until this is dropped.
struct Admission(Rc<Shared>);

impl Admission {
    fn new(shared: &Rc<Shared>) -> Admission {
        shared.connections.set(shared.connections.get() + 1);
        Admission(Rc::clone(shared))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        self.0.ended.raise();
    }
}

impl Shared {
    async fn serve(&self, stream: Box<dyn Stream>, client: Client, knock: HandshakeSlot) -> Ending {
        // A handshake ends with the TLS that it began with.
        let tls = self.tls.borrow().clone();
        let host = Host { exports: &*self.exports, tls: tls.as_deref() };
        let deadline = self.clock.now() + HANDSHAKE_TIME;
        let handshake = self.unless_stopped(handshake::run(stream, client, &host));
        let handshake = knock.unless_dropped(handshake);
        let chosen = match before(&*self.clock, deadline, handshake).await {
            None => return Ending::TooSlow,
            Some(None) => return Ending::Crowded,
            Some(Some(None)) => return Ending::Shutdown,
            Some(Some(Some(Err(ending)))) => return ending,
            Some(Some(Some(Ok(chosen)))) => chosen,
        };
        let Some(_place) = knock.enter(self.max_connections) else { return Ending::Crowded };
        self.transmit(chosen).await
    }

    /// Serves requests until the connection ends.
    async fn transmit(&self, chosen: Chosen) -> Ending {
        let export = Rc::clone(&chosen.export);
        let _user = export.enter();
        let account = self.memory.account();
        let mut session = Session::new(chosen, self.pool.clone(), account, Rc::clone(&self.clock));
        let mut stops = [self.stop.wait(), export.retirement()];
        let mut known = None;
        poll_fn(|cx| {
            if self.stopping.get() || export.is_retired() {
                session.stop();
            } else if !known.as_ref().is_some_and(|waker| cx.waker().will_wake(waker)) {
                // Registered once: each signal is raised once, and its state was checked before.
                known = Some(cx.waker().clone());
                for stop in &mut stops {
                    let _ = Pin::new(stop).poll(cx);
                }
            }
            session.poll(cx)
        })
        .await
    }

    /// The outcome of `work`, or nothing when the server is shut down before.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut stop = self.stop.wait();
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending if self.stopping.get() => Poll::Ready(None),
            Poll::Pending => Pin::new(&mut stop).poll(cx).map(|()| None),
        })
        .await
    }
}
