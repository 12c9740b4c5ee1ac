//! The other end of the control API: finds the server of an array and speaks with it.
//!
//! Plain blocking sockets: a control command does one thing. Never looks at members.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Array, Changed, ErrorView, List, Order};
use crate::failure::{Failure, Id, Result};
use crate::http::{self, Method};
use crate::places;

/// How long a server may take to answer; verbs that flush all members may wait for their deadline.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server of arrays.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    /// The server that listens at this socket.
    pub(crate) fn at(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    /// Asks, and reads the answer's data.
    fn ask<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: &[u8]) -> Result<T> {
        let bytes = self.exchange(&http::ask(method, path, body))?;
        let nonsense = || self.nonsense("it does not speak this version's control API");
        let (status, body) = http::answered(&bytes).ok_or_else(nonsense)?;
        let mut answer: Value = serde_json::from_slice(body).map_err(|_| nonsense())?;
        if status == 200 {
            return serde_json::from_value(answer["data"].take()).map_err(|_| nonsense());
        }
        let error: ErrorView =
            serde_json::from_value(answer["error"].take()).map_err(|_| nonsense())?;
        let id = Id::parse(&error.id).unwrap_or(Id::Failed);
        Err(Failure::new(id, error.message, error.action))
    }

    fn exchange(&self, request: &[u8]) -> Result<Vec<u8>> {
        places::check_socket(&self.socket).map_err(|failure| match failure.id {
            Id::Missing => self.absent(),
            _ => failure,
        })?;
        let broken = |error: std::io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => self.absent(),
            ErrorKind::PermissionDenied => {
                let message = format!("{}: this user may not control it", self.socket.display());
                Failure::new(Id::Denied, message, "use the account that runs the server, or root")
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => self.nonsense("no answer in time"),
            _ => self.nonsense(&error.to_string()),
        };
        let mut stream = UnixStream::connect(&self.socket).map_err(broken)?;
        let timeouts = stream.set_read_timeout(Some(PATIENCE));
        timeouts.and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(broken)?;
        stream.write_all(request).map_err(broken)?;
        let mut bytes = Vec::new();
        stream.take(http::ANSWER_BYTES).read_to_end(&mut bytes).map_err(broken)?;
        Ok(bytes)
    }

    fn absent(&self) -> Failure {
        let message = format!("no server answers at {}", self.socket.display());
        Failure::new(Id::Unreachable, message, "start one: parapet serve NAME MEMBER…")
    }

    fn nonsense(&self, why: &str) -> Failure {
        let message = format!("{}: {why}", self.socket.display());
        Failure::new(Id::Unreachable, message, "see the server's log")
    }

    /// Every array of this server.
    pub(crate) fn arrays(&self) -> Result<Vec<Array>> {
        self.ask::<List>(Method::Get, &["v1", "arrays"], b"").map(|list| list.arrays)
    }

    /// One array of this server, by name or UUID.
    pub(crate) fn array(&self, name: &str) -> Result<Array> {
        self.ask(Method::Get, &["v1", "arrays", name], b"")
    }

    /// Has an order carried out.
    pub(crate) fn order(&self, name: &str, verb: &str, order: &Order) -> Result<Changed> {
        let body = serde_json::to_vec(order).expect("an order is made of strings and numbers");
        self.ask(Method::Post, &["v1", "arrays", name, verb], &body)
    }
}

/// Where the servers of this user may be found: the socket named, or all in the usual folder.
pub(crate) fn servers(control: Option<&Path>) -> Vec<Client> {
    if let Some(path) = control {
        return vec![Client::at(path)];
    }
    let Ok(entries) = std::fs::read_dir(places::runtime()) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut sockets: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|end| end == "sock")).collect();
    sockets.sort();
    sockets.into_iter().map(Client::at).collect()
}

/// All arrays that can be heard of, each once.
pub(crate) fn everything(control: Option<&Path>) -> Result<List> {
    let mut list = List::default();
    for client in servers(control) {
        match client.arrays() {
            Ok(arrays) => list.arrays.extend(arrays),
            Err(failure) if control.is_some() => return Err(failure),
            Err(failure) => list.silent.push(failure.message),
        }
    }
    list.arrays.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
    list.arrays.dedup_by(|a, b| a.uuid == b.uuid);
    Ok(list)
}

/// The server of an array, and the array as it is: by name or UUID, or the only one if not named.
pub(crate) fn find(control: Option<&Path>, name: Option<&str>) -> Result<(Client, Array)> {
    let own = name.filter(|_| control.is_none()).map(places::control_of);
    if let (Some(socket), Some(name)) = (own.filter(|socket| socket.exists()), name) {
        let client = Client::at(socket);
        return client.array(name).map(|array| (client, array));
    }
    let mut found: Vec<(Client, Array)> = Vec::new();
    for client in servers(control) {
        let arrays = match client.arrays() {
            Err(failure) if control.is_some() => return Err(failure),
            arrays => arrays.unwrap_or_default(),
        };
        let wanted =
            |array: &Array| name.is_none_or(|name| array.name == name || array.uuid == name);
        let new = |array: &Array| found.iter().all(|(_, known)| known.uuid != array.uuid);
        let arrays: Vec<Array> = arrays.into_iter().filter(|a| wanted(a) && new(a)).collect();
        found.extend(arrays.into_iter().map(|array| (client.clone(), array)));
    }
    let names: Vec<&str> = found.iter().map(|(_, array)| array.name.as_str()).collect();
    match (found.len(), name) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(name)) if control.is_none() => {
            let message = format!("no server answers for an array called {name}");
            let action = format!("start one: parapet serve {name} MEMBER…, or name its --control");
            Err(Failure::new(Id::Unreachable, message, action))
        }
        (0, Some(name)) => {
            let message = format!("the server has no array called {name}");
            Err(Failure::new(Id::NoArray, message, "parapet list shows what there is"))
        }
        (0, None) => {
            let message = "no array is being served";
            Err(Failure::new(Id::Unreachable, message, "start one: parapet serve NAME MEMBER…"))
        }
        (_, _) => {
            let message = format!("there are several arrays: {}", names.join(", "));
            Err(Failure::new(Id::Usage, message, "name one of them, or its UUID"))
        }
    }
}
