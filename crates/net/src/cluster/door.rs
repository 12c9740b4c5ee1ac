//! The way into a process of a cluster: TLS, then the first frame.
//!
//! ```text
//!   Stream ──▶ Guard (certificate) ──▶ Hello ──▶ may this holder speak so? ──▶ Session
//!   ╰── a place among MAX_HANDSHAKES, for HANDSHAKE_TIME ──╯   ╰── a place among MAX_SESSIONS
//! ```
//!
//! A peer needs no permission to connect. Until it has said who it is, it costs a bounded number of
//! bytes, its time is limited, and it takes no place of a session.
//!
//! Invariant: a [`Session`] is one that its holder may have.

use std::future::Future;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::rc::Rc;

use cluster::ids::Incarnation;
use cluster::roles::{Holder, Role};
use cluster::session::{Hello, Speaker, Told};
use io::{Boxed, Clock, Stream};

use super::line::{Inbox, Line};
use crate::gate::{Gate, Inside};
use crate::nbd::limits::{HANDSHAKE_TIME, MAX_HANDSHAKES};
use crate::transfer::before;

/// Sessions of one process.
pub const MAX_SESSIONS: usize = 1024;

/// TLS, as the program provides it.
pub trait Guard {
    /// Takes over a connection whose peer begins its TLS handshake. Returns the secured stream and
    /// the holder of the certificate.
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting;
}

/// See [`Guard::accept`].
pub type Accepting = Pin<Box<dyn Future<Output = Result<(Box<dyn Stream>, Holder)>>>>;

/// The entrance of one listener.
pub struct Door {
    gate: Rc<Gate>,
    clock: Rc<dyn Clock>,
    guard: Option<Rc<dyn Guard>>,
}

/// A connection whose peer has said who it is, and may be that.
pub struct Session {
    pub(super) hello: Hello,
    pub(super) holder: Holder,
    pub(super) line: Rc<Line>,
    pub(super) inbox: Inbox,
    /// Given back when the connection ends.
    pub(super) place: Option<Inside>,
}

impl Door {
    /// An entrance; without a guard, each peer may be whatever it says.
    pub fn new(clock: Rc<dyn Clock>, guard: Option<Rc<dyn Guard>>) -> Door {
        Door { gate: Rc::default(), clock, guard }
    }

    /// Lets a connection in.
    ///
    /// # Errors
    /// Why it stays outside.
    pub fn enter(&self, stream: Box<dyn Stream>) -> Boxed<'_, Result<Session>> {
        Box::pin(async move {
            let slot = self.gate.begin_handshake(MAX_HANDSHAKES);
            let greeting = slot.unless_dropped(self.greet(stream));
            let deadline = self.clock.now() + HANDSHAKE_TIME;
            let greeted = before(&*self.clock, deadline, greeting).await;
            let late = || Error::new(ErrorKind::TimedOut, "the peer did not say who it is in time");
            let crowded = |what| Error::new(ErrorKind::ConnectionRefused, what);
            let newer = || crowded("closed for a newer connection: too many handshakes at once");
            let session = greeted.ok_or_else(late)?.ok_or_else(newer)??;
            match slot.enter(MAX_SESSIONS) {
                Some(place) => Ok(Session { place: Some(place), ..session }),
                None => Err(crowded("too many sessions")),
            }
        })
    }

    async fn greet(&self, stream: Box<dyn Stream>) -> Result<Session> {
        let (stream, holder) = match &self.guard {
            Some(guard) => guard.accept(stream).await?,
            None => (stream, Holder::Anyone),
        };
        Session::greet(stream, holder).await
    }
}

impl Session {
    /// Reads the first frame.
    ///
    /// # Errors
    /// Those of the stream; `PermissionDenied` if the holder may not be that speaker.
    pub fn greet(stream: Box<dyn Stream>, holder: Holder) -> Boxed<'static, Result<Session>> {
        Box::pin(async move {
            let (line, mut inbox) = Line::open(stream);
            let hello: Hello = inbox.first().await?;
            if !holder.may_speak(hello.speaker) {
                let role = Role::of(hello.speaker);
                let role =
                    role.map_or_else(|| "any role".into(), |role| format!("the role {role}"));
                let why = format!("{holder} does not allow {role}");
                return Err(Error::new(ErrorKind::PermissionDenied, why));
            }
            if let Speaker::Client(id, incarnation) = hello.speaker
                && incarnation > Incarnation::LAST
            {
                let why = format!(
                    "client {}: start number {}: {} at most, or it could not be fenced",
                    id.0,
                    incarnation.0,
                    Incarnation::LAST.0
                );
                return Err(Error::new(ErrorKind::InvalidData, why));
            }
            Ok(Session { hello, holder, line, inbox, place: None })
        })
    }
}

/// The answer to a command that its sender may not give.
pub(super) fn forbidden(holder: &Holder) -> Told {
    Told::Failed(format!("{holder} does not allow this command"))
}
