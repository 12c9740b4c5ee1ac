//! The decision store: the register with term, leader and membership, in a file or in etcd.
//!
//! ```text
//!   Coordinator ── Read, Cas ──▶ Decisions ── a thread for each request ──▶ Register
//!        ◀──────── Outcome ─────── checks, pauses, logs                      file, etcd
//! ```
//!
//! A register blocks, so each request runs on a thread of its own. There is one at a time: a store
//! that hangs costs one thread. A failure is logged once and becomes [`Outcome::Unknown`], after a
//! pause: the coordinator asks again at once.
//!
//! Invariant: a register that is missing, damaged, of another array or older than before is never
//! taken for the array's membership.

mod etcd;
mod file;

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::io::Clock;
use cluster::decisions::{Outcome, Request, Value, Version};
use cluster::ids::{ArrayId, Epoch, Term};
use cluster::session::Decided;
use cluster::wire;
use net::cluster::coordinator::Store;

use crate::failure::{Failure, Id, Result};

/// Between a failure and its outcome.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a request to an endpoint of etcd may take: two fit into the coordinator's patience.
const ETCD_PATIENCE: Duration = Duration::from_millis(950);
/// The same for a command.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);

/// Where decisions are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A file, for candidates on one host.
    File(PathBuf),
    /// A key of etcd, for candidates on several hosts.
    Etcd(etcd::Endpoints),
}

/// One register; its methods block.
trait Register: Send + Sync {
    /// Makes it.
    ///
    /// # Errors
    /// If it exists, or the store fails.
    fn create(&self, value: &Value) -> Result<()>;

    /// Reads it, linearizably.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the store fails.
    fn read(&self) -> Result<(Version, Value)>;

    /// Replaces its content if its version is still this one; returns the version that follows.
    ///
    /// # Errors
    /// The outcome is unknown.
    fn replace(&self, version: Version, value: &Value) -> Result<Replaced>;

    /// Removes it.
    ///
    /// # Errors
    /// If there is none, or the store fails.
    fn remove(&self) -> Result<()>;
}

/// The outcome of a replacement.
enum Replaced {
    /// Done; the new version.
    Done(Version),
    /// The version was another one.
    Conflict(Version, Value),
}

impl Place {
    /// Parses `file:PATH` or `etcd:http://HOST:PORT,…`; for https also `?tls-certificates=DIR`.
    ///
    /// # Errors
    /// The fault, in words, with the form that is meant.
    pub(crate) fn parse(text: &str) -> std::result::Result<Place, String> {
        let wrong = "write it as file:PATH or etcd:http://HOST:PORT,http://HOST2:PORT";
        match text.split_once(':') {
            Some(("file", path)) if !path.is_empty() => {
                let path = PathBuf::from(path);
                Ok(Place::File(std::path::absolute(&path).unwrap_or(path)))
            }
            Some(("etcd", urls)) => etcd::Endpoints::parse(urls).map(Place::Etcd),
            _ => Err(wrong.into()),
        }
    }

    /// Opens the register of an array. Does not reach for it: a store that does not answer yet is
    /// asked again for as long as the coordinator runs.
    ///
    /// # Errors
    /// If the place is of no use.
    pub(crate) fn open(&self, array: ArrayId, clock: Rc<dyn Clock>) -> Result<Rc<dyn Store>> {
        let decisions = Decisions {
            register: self.register(array, ETCD_PATIENCE)?.into(),
            array,
            place: self.to_string(),
            clock,
            turn: Arc::default(),
            last: Cell::default(),
            trouble: RefCell::default(),
        };
        Ok(Rc::new(Shared(Rc::new(decisions))))
    }

    /// Reads the register of an array; blocks.
    ///
    /// # Errors
    /// If there is none, it is damaged, or the store fails.
    pub(crate) fn read(&self, array: ArrayId) -> Result<Value> {
        let (_, value) = self.register(array, COMMAND_PATIENCE)?.read()?;
        is_of(array, &self.to_string(), &value)?;
        Ok(value)
    }

    /// Makes the register of a new array; blocks.
    ///
    /// # Errors
    /// If it exists, or the store fails.
    pub(crate) fn create(&self, array: ArrayId, value: &Value) -> Result<()> {
        is_of(array, &self.to_string(), value)?;
        self.register(array, COMMAND_PATIENCE)?.create(value)
    }

    /// Removes the register of an array; blocks.
    ///
    /// # Errors
    /// If it is of another array, or the store fails.
    pub(crate) fn remove(&self, array: ArrayId) -> Result<()> {
        self.read(array)?;
        self.register(array, COMMAND_PATIENCE)?.remove()
    }

    fn register(&self, array: ArrayId, patience: Duration) -> Result<Box<dyn Register>> {
        Ok(match self {
            Place::File(path) => Box::new(file::FileRegister::new(path.clone())),
            Place::Etcd(endpoints) => {
                Box::new(etcd::EtcdRegister::new(endpoints, array, patience)?)
            }
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::File(path) => write!(f, "file:{}", path.display()),
            Place::Etcd(endpoints) => write!(f, "etcd:{endpoints}"),
        }
    }
}

/// A register under the protocol.
struct Decisions {
    register: Arc<dyn Register>,
    array: ArrayId,
    place: String,
    clock: Rc<dyn Clock>,
    /// Held by the thread of the current request.
    turn: Arc<Mutex<()>>,
    /// The latest content seen: none of these numbers ever decreases.
    last: Cell<(Version, Term, Epoch)>,
    /// The failure that was logged last.
    trouble: RefCell<Option<String>>,
}

struct Shared(Rc<Decisions>);

impl Store for Shared {
    fn ask(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome>>> {
        let decisions = Rc::clone(&self.0);
        Box::pin(async move {
            let outcome = decisions.execute(request).await;
            decisions.report(outcome.as_ref().err());
            match outcome {
                Ok(outcome) => outcome,
                Err(_) => {
                    let clock = &decisions.clock;
                    clock.sleep_until(clock.now() + PAUSE).await;
                    Outcome::Unknown
                }
            }
        })
    }
}

impl Decisions {
    async fn execute(&self, request: Request) -> Result<Outcome> {
        let (register, turn) = (Arc::clone(&self.register), Arc::clone(&self.turn));
        let place = self.place.clone();
        let work = move || {
            let Ok(_turn) = turn.try_lock() else {
                let message = format!("{place}: the request before has no answer yet");
                return Err(Failure::new(Id::TimedOut, message, "check the store"));
            };
            match request {
                Request::Read => {
                    register.read().map(|(version, value)| Outcome::Done(version, value))
                }
                Request::Cas(version, value) => {
                    register.replace(version, &value).map(|replaced| match replaced {
                        Replaced::Done(version) => Outcome::Done(version, value),
                        Replaced::Conflict(version, now) => Outcome::Conflict(version, now),
                    })
                }
            }
        };
        let outcome = os::threads::aside(work).map_err(|error| {
            let message = format!("{}: no thread for a request: {error}", self.place);
            Failure::new(Id::Failed, message, "see the limits of threads and memory")
        })?;
        let outcome = outcome.await?;
        if let Outcome::Done(version, value) | Outcome::Conflict(version, value) = &outcome {
            self.accept(*version, value)?;
        }
        Ok(outcome)
    }

    /// Compares a content with the array and with the latest one seen.
    fn accept(&self, version: Version, value: &Value) -> Result<()> {
        is_of(self.array, &self.place, value)?;
        let (now, last) = ((version, value.term, value.config.epoch), self.last.get());
        if now.0 < last.0 || now.1 < last.1 || now.2 < last.2 {
            let message = format!(
                "{}: the register went back from version {}, term {}, epoch {} to {}, {}, {}: \
                 an old backup was restored",
                self.place, last.0.0, last.1.0, last.2.0, now.0.0, now.1.0, now.2.0
            );
            let action = "restore the latest content, then restart the coordinators";
            return Err(Failure::new(Id::Verification, message, action));
        }
        self.last.set(now);
        Ok(())
    }

    /// Logs the beginning, the change and the end of trouble.
    fn report(&self, failure: Option<&Failure>) {
        let now = failure.map(Failure::to_string);
        let before = self.trouble.replace(now.clone());
        match now {
            Some(text) if before.as_ref() != Some(&text) => tracing::error!("{text}"),
            None if before.is_some() => tracing::info!("{}: answers again", self.place),
            _ => {}
        }
    }
}

/// Compares a content with the array that is meant.
///
/// # Errors
/// If it is of another one.
fn is_of(array: ArrayId, place: &str, value: &Value) -> Result<()> {
    let found = value.config.array;
    if found == array {
        return Ok(());
    }
    let message = format!("{place}: the register is of array {:032x}", found.0);
    Err(Failure::new(Id::Foreign, message, format!("name the store of array {:032x}", array.0)))
}

/// Decodes the bytes of a register.
///
/// # Errors
/// If they are not one whole frame.
fn decoded(place: &str, bytes: &[u8]) -> Result<Decided> {
    let found = wire::decode::<Decided>(bytes);
    let whole = found.and_then(|(decided, length)| match length == bytes.len() {
        true => Ok(decided),
        false => Err(wire::Malformed::Long),
    });
    whole.map_err(|malformed| {
        let message = format!("{place}: the register is damaged: {malformed}");
        Failure::new(Id::Verification, message, "restore its latest backup")
    })
}

#[cfg(test)]
mod tests;
