//! Reads the state of all arrays from the control sockets.
//!
//! Servers are asked at the same time, each with a limit, so that a hung one hides no other.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::document::{Answer, Array};

/// Time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum bytes of an answer.
const ANSWER_BYTES: usize = 64 << 20;
/// The document that this version understands.
const SCHEMA: &str = "parapet/list/1";

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
        let mut asked = JoinSet::new();
        for socket in self.sockets() {
            asked.spawn(async move {
                let answer = tokio::time::timeout(PATIENCE, ask(&socket)).await;
                let silent = |_| Err(format!("no answer within {} s", PATIENCE.as_secs()));
                (socket, answer.unwrap_or_else(silent))
            });
        }
        let mut snapshot = Snapshot::default();
        for (socket, answer) in asked.join_all().await {
            let error = answer.map(|arrays| snapshot.arrays.extend(arrays)).err();
            snapshot.servers.push((socket, error));
        }
        snapshot.servers.sort();
        snapshot.arrays.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
        // A server with several control sockets answers on each.
        snapshot.arrays.dedup_by(|a, b| a.uuid == b.uuid);
        snapshot
    }
}

/// Asks one server for its arrays.
async fn ask(socket: &Path) -> Result<Vec<Array>, String> {
    let body = fetch(socket).await.map_err(|error| error.to_string())?;
    let malformed = |error| format!("it does not speak this version's control API: {error}");
    let answer: Answer = serde_json::from_slice(&body).map_err(malformed)?;
    match answer {
        Answer { error: Some(refusal), .. } => Err(refusal.message),
        Answer { schema, data: Some(list), .. } if schema == SCHEMA => Ok(list.arrays),
        Answer { schema, .. } => Err(format!("it sent {schema} instead of {SCHEMA}")),
    }
}

async fn fetch(socket: &Path) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TokioIo::new(UnixStream::connect(socket).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // Ends with the answer: the server closes the connection.
    tokio::spawn(connection);
    let request = Request::get("/v1/arrays").header("host", "parapet");
    let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    Ok(Limited::new(answer.into_body(), ANSWER_BYTES).collect().await?.to_bytes())
}
