//! Reads the state and the events of all arrays from the control sockets, and gives commands.
//!
//! Servers are asked at the same time, each with a limit, so that a hung one hides no other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{self, HeaderValue};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::action::Order;
use crate::document::{
    Answer, Array, Changed, DiskRecord, Event, History, List, Member, MemberDisks, Refusal,
};

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit of a command: some flush all members, and each may take its deadline.
const ORDER_PATIENCE: Duration = Duration::from_secs(120);
/// Maximum bytes of an answer.
const ANSWER_BYTES: usize = 64 << 20;
/// The documents that this version understands.
const LIST: &str = "parapet/list/1";
const HISTORY: &str = "parapet/history/1";
const DISKS: &str = "parapet/member-disks/1";
/// Number of events that the page shows of an array.
pub(crate) const MOST_EVENTS: usize = 12;

/// The servers to ask.
#[derive(Clone, Debug)]
pub enum Servers {
    /// All with a control socket `*.sock` in this folder, at the time of each query.
    In(PathBuf),
    /// Those with these control sockets.
    At(Vec<PathBuf>),
}

/// The state of all arrays at one moment.
#[derive(Default)]
pub(crate) struct Snapshot {
    /// Sorted by name, each once.
    pub(crate) arrays: Vec<Array>,
    /// Control sockets, each with the error of a server that did not answer.
    pub(crate) servers: Vec<(PathBuf, Option<String>)>,
}

impl Servers {
    fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Servers::At(sockets) => sockets.clone(),
            Servers::In(folder) => {
                let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
                let paths = entries.flatten().map(|entry| entry.path());
                paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect()
            }
        }
    }

    /// Asks all servers.
    pub(crate) async fn read(&self) -> Snapshot {
        self.ask_each(|socket| async move { ask(&socket, "/v1/arrays", LIST).await }).await
    }

    /// Asks all servers for events too.
    pub(crate) async fn read_with_events(&self, timelines: &Timelines) -> Snapshot {
        let ask = |socket: PathBuf| {
            let timelines = timelines.clone();
            async move {
                let mut list: List = ask(&socket, "/v1/arrays", LIST).await?;
                for array in &mut list.arrays {
                    // The state of an array counts more than its history: it is shown without.
                    array.events = timelines.read(&socket, &array.uuid).await.unwrap_or_default();
                }
                Ok(list)
            }
        };
        self.ask_each(ask).await
    }

    async fn ask_each<A>(&self, ask: impl Fn(PathBuf) -> A) -> Snapshot
    where
        A: Future<Output = Result<List, String>> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for socket in self.sockets() {
            let answer = ask(socket.clone());
            asked.spawn(async move {
                let answer = tokio::time::timeout(PATIENCE, answer).await;
                let silent = |_| Err(format!("no answer within {} s", PATIENCE.as_secs()));
                (socket, answer.unwrap_or_else(silent))
            });
        }
        let mut snapshot = Snapshot::default();
        for (socket, answer) in asked.join_all().await {
            let error = match answer {
                Ok(list) => {
                    let here = |array| Array { server: socket.clone(), ..array };
                    snapshot.arrays.extend(list.arrays.into_iter().map(here));
                    None
                }
                Err(error) => Some(error),
            };
            snapshot.servers.push((socket, error));
        }
        snapshot.servers.sort();
        snapshot.arrays.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
        // A server with several control sockets answers on each.
        snapshot.arrays.dedup_by(|a, b| a.uuid == b.uuid);
        snapshot
    }
}

/// Remembers where the timeline of each array begins: a query once a second asks for no more than
/// the events that are shown.
#[derive(Clone, Default)]
pub(crate) struct Timelines {
    /// By UUID: the number of the oldest event that is shown.
    oldest: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Timelines {
    /// Returns the latest events of an array, the newest first.
    async fn read(&self, socket: &Path, uuid: &str) -> Result<Vec<Event>, String> {
        let oldest = self.oldest_of(uuid);
        let mut events = events_from(socket, uuid, oldest).await?;
        if events.is_empty() && oldest > 1 {
            // The history has been removed, and its numbers start again.
            events = events_from(socket, uuid, 1).await?;
        }
        self.keep_latest(uuid, &mut events);
        events.reverse();
        Ok(events)
    }

    fn oldest_of(&self, uuid: &str) -> u64 {
        let oldest = self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        oldest.get(uuid).copied().unwrap_or(1)
    }

    /// Drops all events but the latest ones.
    fn keep_latest(&self, uuid: &str, events: &mut Vec<Event>) {
        events.drain(..events.len().saturating_sub(MOST_EVENTS));
        let mut oldest = self.oldest.lock().unwrap_or_else(PoisonError::into_inner);
        match events.first() {
            Some(first) => oldest.insert(uuid.to_owned(), first.number),
            None => oldest.remove(uuid),
        };
    }
}

async fn events_from(socket: &Path, uuid: &str, first: u64) -> Result<Vec<Event>, String> {
    let path = format!("/v1/arrays/{uuid}/events/{}", first.saturating_sub(1));
    ask(socket, &path, HISTORY).await.map(|history: History| history.events)
}

/// Asks the server of an array for the disks of a member.
pub(crate) async fn disks(array: &Array, member: &Member) -> Result<Vec<DiskRecord>, String> {
    let path = format!("/v1/arrays/{}/members/{}/disks", array.uuid, member.uuid);
    let answer = tokio::time::timeout(PATIENCE, ask(&array.server, &path, DISKS)).await;
    let silent = |_| Err(format!("no answer within {} s", PATIENCE.as_secs()));
    answer.unwrap_or_else(silent).map(|answer: MemberDisks| answer.disks)
}

/// Gives a command to the server of an array; returns the message of the answer.
///
/// # Errors
/// The refusal of the control API, or why there is no answer.
pub(crate) async fn command(array: &Array, verb: &str, order: &Order) -> Result<String, Refusal> {
    let no_answer = |why: String| {
        let message = format!("{}: {why}", array.server.display());
        Refusal { message, action: "see the server's log".into() }
    };
    let body = serde_json::to_vec(order).map_err(|error| no_answer(error.to_string()))?;
    let path = format!("/v1/arrays/{}/{verb}", array.uuid);
    let request = Request::post(path).body(Full::from(body));
    let answer = tokio::time::timeout(ORDER_PATIENCE, exchange(&array.server, request)).await;
    let silent = |_| no_answer(format!("no answer within {} s", ORDER_PATIENCE.as_secs()));
    let bytes = answer.map_err(silent)?.map_err(|error| no_answer(error.to_string()))?;
    match serde_json::from_slice::<Answer<Changed>>(&bytes) {
        Ok(Answer { error: Some(refusal), .. }) => Err(refusal),
        Ok(Answer { data: Some(changed), .. }) => Ok(changed.message),
        _ => Err(no_answer("it does not speak this version's control API".into())),
    }
}

/// Sends a query to one server.
async fn ask<T: DeserializeOwned>(socket: &Path, path: &str, schema: &str) -> Result<T, String> {
    let request = Request::get(path).body(Full::default());
    let body = exchange(socket, request).await.map_err(|error| error.to_string())?;
    let malformed = |error| format!("it does not speak this version's control API: {error}");
    let answer: Answer<T> = serde_json::from_slice(&body).map_err(malformed)?;
    match answer {
        Answer { error: Some(refusal), .. } => Err(refusal.message),
        Answer { schema: sent, data: Some(data), .. } if sent == schema => Ok(data),
        Answer { schema: sent, .. } => Err(format!("it sent {sent} instead of {schema}")),
    }
}

async fn exchange(
    socket: &Path,
    request: hyper::http::Result<Request<Full<Bytes>>>,
) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let mut request = request?;
    request.headers_mut().insert(header::HOST, HeaderValue::from_static("parapet"));
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // Ends with the answer: the server closes the connection.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    Ok(Limited::new(answer.into_body(), ANSWER_BYTES).collect().await?.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_keeps_its_latest_events_and_starts_again_with_its_history() {
        let event = |number: u64| {
            let value = serde_json::json!({ "number": number, "time": "1970-01-01T00:00:00Z",
                "event": "Fail", "severity": "error", "message": "lost" });
            serde_json::from_value::<Event>(value).unwrap()
        };
        let timelines = Timelines::default();
        assert_eq!(timelines.oldest_of("01:02"), 1);
        let mut events: Vec<Event> = (1..=100).map(event).collect();
        timelines.keep_latest("01:02", &mut events);
        assert_eq!(events.len(), MOST_EVENTS);
        assert_eq!(events.last().map(|it| it.number), Some(100));
        assert_eq!(timelines.oldest_of("01:02"), 101 - MOST_EVENTS as u64);
        assert_eq!(timelines.oldest_of("03:04"), 1);
        timelines.keep_latest("01:02", &mut Vec::new());
        assert_eq!(timelines.oldest_of("01:02"), 1);
    }
}
