//! Connections to the processes of a cluster: one that is kept, and one question.

use std::fmt;
use std::io::{Error, ErrorKind};
use std::rc::Rc;
use std::time::Duration;

use ::cluster::roles::Role;
use ::cluster::session::{Ask, Hello, Told};
use ::io::{Clock, Stream};
use net::cluster::line::{self, Line};
use os::{Address, Socket, Spawner};

use super::file::Endpoint;
use super::keys::Keys;
use crate::daemon::first;
use crate::failure::{Failure, Id, Result};

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(3);
/// Pauses between attempts: the first one, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// A peer that has not acknowledged bytes for so long is cut off, or was: the connection is made
/// again. With `CONNECT` and the longest pause this is well below the lease of a client.
const SILENCE: Duration = Duration::from_secs(3);
/// A connection that held for so long was a good one.
const GOOD: Duration = Duration::from_secs(1);

/// A process of a cluster, as the others reach it.
#[derive(Clone)]
pub(crate) struct Target {
    /// Where it listens.
    pub(crate) at: Endpoint,
    /// What it must be, by its certificate.
    pub(crate) role: Role,
    /// Our certificate; none for a cluster without TLS. Unix sockets need none.
    pub(crate) keys: Option<Rc<Keys>>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at.fmt(f)
    }
}

impl Target {
    async fn connect(&self, on: &Spawner) -> std::io::Result<Box<dyn Stream>> {
        let clock = on.clock();
        let alarm = clock.sleep_until(clock.now() + CONNECT);
        let connected = async {
            let socket = Box::new(Socket::connect(&self.at.0, on).await?);
            socket.limit_silence(SILENCE);
            match (&self.at.0, &self.keys) {
                (Address::Tcp(tcp), Some(keys)) => keys.connect(socket, tcp.ip(), self.role).await,
                _ => Ok(socket as Box<dyn Stream>),
            }
        };
        let late = || Err(Error::new(ErrorKind::TimedOut, "no answer"));
        first(connected, alarm).await.unwrap_or_else(late)
    }
}

/// Keeps a connection to a process: makes it, has it used, and makes it again, for ever.
///
/// The log has each change, as `what` at its address.
pub(crate) fn keep(
    what: String,
    to: Target,
    on: &Spawner,
    used: impl AsyncFn(Box<dyn Stream>) -> Error + 'static,
) {
    let (on, clock) = (on.clone(), on.clock());
    let task = {
        let on = on.clone();
        async move {
            let mut pause = PAUSES[0];
            let mut trouble: Option<String> = None;
            loop {
                let began = clock.now();
                let error = match to.connect(&on).await {
                    Ok(stream) => {
                        if trouble.take().is_some() {
                            tracing::info!("{what} at {to}: connected");
                        }
                        used(stream).await
                    }
                    Err(error) => error,
                };
                let text = match error.kind() {
                    ErrorKind::UnexpectedEof => format!("{what} at {to}: connection closed"),
                    _ => format!("{what} at {to}: {error}"),
                };
                if trouble.as_ref() != Some(&text) {
                    tracing::warn!("{text}");
                    trouble = Some(text);
                }
                pause =
                    if clock.now() - began > GOOD { PAUSES[0] } else { PAUSES[1].min(pause * 2) };
                clock.sleep_until(clock.now() + pause).await;
            }
        }
    };
    on.spawn_local(task);
}

/// Asks a process one question; waits for the answer, at most for `patience`.
///
/// # Errors
/// If it does not answer.
pub(crate) async fn ask(
    to: &Target,
    hello: &Hello,
    question: &Ask,
    patience: Option<Duration>,
    on: &Spawner,
) -> Result<Told> {
    let answer = async {
        let (line, inbox) = Line::open(to.connect(on).await?);
        line.send(hello);
        line.send(question);
        let mut told = None;
        let ended = inbox.run(|frame| {
            told = Some(line::read(frame)?);
            Err(ErrorKind::Interrupted.into())
        });
        let ended = ended.await;
        told.ok_or(ended)
    };
    let clock = on.clock();
    let answer = match patience {
        None => Some(answer.await),
        Some(patience) => first(answer, clock.sleep_until(clock.now() + patience)).await,
    };
    match answer {
        Some(Ok(told)) => Ok(told),
        Some(Err(error)) => Err(silent(to, &error.to_string())),
        None => Err(silent(to, "no answer")),
    }
}

fn silent(to: &Target, why: &str) -> Failure {
    let action = "start the process, or check its address and the certificates of both sides";
    Failure::new(Id::Unreachable, format!("{to}: {why}"), action)
}

/// An answer to another question.
pub(crate) fn unexpected(to: &Target, told: Told) -> Failure {
    match told {
        Told::Failed(why) => Failure::new(
            Id::WrongState,
            format!("{to}: {why}"),
            "parapet cluster status shows more",
        ),
        _ => {
            let message = format!("{to}: another kind of process answers");
            Failure::new(Id::Foreign, message, "check the addresses")
        }
    }
}

/// Gives the executor tasks of the protocol's hosts.
pub(crate) fn spawn(on: &Spawner) -> net::cluster::Spawn {
    let on = on.clone();
    Rc::new(move |task| on.spawn_local(task))
}
