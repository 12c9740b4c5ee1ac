//! The client of the control API: finds the server of an array and sends it requests.
//!
//! Uses plain blocking sockets, because a control command does one thing. Never reads members.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::{Array, Changed, ErrorView, History, List, Order};
use crate::failure::{Failure, Id, Result};
use crate::http::{self, Method};
use crate::places;

/// Timeout of a command: some commands flush all members, and each member may take its deadline.
const ORDER_TIMEOUT: Duration = Duration::from_secs(120);

/// Timeout of a query, unless the user sets another one.
pub(crate) const QUESTION_TIMEOUT: Duration = Duration::from_secs(5);

/// A server of arrays.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    /// Timeout of a query.
    timeout: Duration,
}

impl Client {
    /// Returns the server that listens at this socket.
    pub(crate) fn at(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into(), timeout: ORDER_TIMEOUT }
    }

    /// Sets the timeout of queries.
    fn within(self, timeout: Duration) -> Client {
        Client { timeout, ..self }
    }

    /// Sends a query, and parses the data of the answer.
    fn ask<T: DeserializeOwned>(&self, method: Method, path: &[&str], body: &[u8]) -> Result<T> {
        let timeout = match method {
            Method::Get => self.timeout,
            Method::Post => ORDER_TIMEOUT,
        };
        let bytes = self.exchange(http::ask(method, path, body), timeout)?;
        let malformed = || self.malformed("it does not speak this version's control API");
        let (status, body) = http::answered(&bytes).ok_or_else(malformed)?;
        let mut answer: Value = serde_json::from_slice(body).map_err(|_| malformed())?;
        if status == 200 {
            return serde_json::from_value(answer["data"].take()).map_err(|_| malformed());
        }
        let error: ErrorView =
            serde_json::from_value(answer["error"].take()).map_err(|_| malformed())?;
        let id = Id::parse(&error.id).unwrap_or(Id::Failed);
        Err(Failure::new(id, error.message, error.action))
    }

    /// Sends a request and returns the answer. A thread does it: a hung server may not accept the
    /// connection, and connecting a unix socket has no timeout.
    fn exchange(&self, request: Vec<u8>, timeout: Duration) -> Result<Vec<u8>> {
        places::check_socket(&self.socket).map_err(|failure| match failure.id {
            Id::Missing => self.absent(),
            _ => failure,
        })?;
        let (answered, answer) = mpsc::channel();
        let socket = self.socket.clone();
        let talk = move || drop(answered.send(send_request(&socket, &request)));
        thread::Builder::new().name("parapet-ask".into()).spawn(talk).map_err(|error| {
            let message = format!("{}: no thread for the question: {error}", self.socket.display());
            Failure::new(Id::Failed, message, "raise the limit of processes (ulimit -u)")
        })?;
        match answer.recv_timeout(timeout) {
            Ok(Ok(bytes)) => Ok(bytes),
            Ok(Err(error)) => Err(self.broken(&error)),
            Err(_) => Err(self.silent(timeout)),
        }
    }

    fn broken(&self, error: &std::io::Error) -> Failure {
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused => self.absent(),
            ErrorKind::PermissionDenied => {
                let message = format!("{}: permission denied", self.socket.display());
                Failure::new(Id::Denied, message, "use the account that runs the server, or root")
            }
            _ => self.malformed(&error.to_string()),
        }
    }

    /// Explains that no server listens at the socket. If the socket exists, its server was killed.
    fn absent(&self) -> Failure {
        let socket = self.socket.display();
        let start = "start one: parapet serve NAME MEMBER…";
        if !self.socket.exists() {
            let message = format!("no server answers at {socket}");
            return Failure::new(Id::Unreachable, message, start);
        }
        let remove = places::quoted(&socket.to_string());
        let message = format!(
            "no server answers at {socket}: it has ended without removing its socket (rm {remove}, \
             if the array is not to be served)"
        );
        Failure::new(Id::Unreachable, message, format!("{start}, or rm {remove}"))
    }

    fn silent(&self, timeout: Duration) -> Failure {
        let (socket, seconds) = (self.socket.display(), timeout.as_secs_f64());
        let message = format!("{socket}: the server has not answered within {seconds} s");
        Failure::new(Id::Unreachable, message, "see the server's log; end its process if it hangs")
    }

    fn malformed(&self, why: &str) -> Failure {
        let message = format!("{}: {why}", self.socket.display());
        Failure::new(Id::Unreachable, message, "see the server's log")
    }

    /// Returns every array of this server.
    pub(crate) fn arrays(&self) -> Result<Vec<Array>> {
        self.ask::<List>(Method::Get, &["v1", "arrays"], b"").map(|list| list.arrays)
    }

    /// Returns one array of this server, by name or UUID.
    pub(crate) fn array(&self, name: &str) -> Result<Array> {
        self.ask(Method::Get, &["v1", "arrays", name], b"")
    }

    /// Returns the events of an array after the one of this number.
    pub(crate) fn events(&self, name: &str, after: u64) -> Result<History> {
        self.ask(Method::Get, &["v1", "arrays", name, "events", &after.to_string()], b"")
    }

    /// Sends a command.
    pub(crate) fn order(&self, name: &str, verb: &str, order: &Order) -> Result<Changed> {
        let body = serde_json::to_vec(order).expect("an order is made of strings and numbers");
        self.ask(Method::Post, &["v1", "arrays", name, verb], &body)
    }
}

/// Returns the possible servers of this user: the named socket, or all in the default folder.
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

/// Sends one request and reads its answer.
fn send_request(socket: &Path, request: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(request)?;
    let mut bytes = Vec::new();
    stream.take(http::ANSWER_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Queries all servers in parallel, so that a hung one delays no other.
fn ask_all(control: Option<&Path>, timeout: Duration) -> Vec<(Client, Result<Vec<Array>>)> {
    let clients = servers(control).into_iter().map(|client| client.within(timeout));
    thread::scope(|scope| {
        let ask = |client: Client| {
            let asked = client.clone();
            (client, scope.spawn(move || asked.arrays()))
        };
        let asked: Vec<_> = clients.map(ask).collect();
        let answer = |(client, answer): (Client, thread::ScopedJoinHandle<'_, _>)| {
            let answer = answer.join().unwrap_or_else(|_| {
                Err(Failure::new(Id::Internal, "a question has failed", "please report it"))
            });
            (client, answer)
        };
        asked.into_iter().map(answer).collect()
    })
}

/// Returns the arrays of all servers that answer within the timeout, each once.
pub(crate) fn everything(control: Option<&Path>, timeout: Duration) -> Result<List> {
    let folder = control.is_none().then(|| places::runtime().display().to_string());
    let mut list = List { folder, ..List::default() };
    for (_, arrays) in ask_all(control, timeout) {
        match arrays {
            Ok(arrays) => list.arrays.extend(arrays),
            Err(failure) if control.is_some() => return Err(failure),
            Err(failure) => {
                list.denied += usize::from(failure.id == Id::Denied);
                list.silent.push(failure.message);
            }
        }
    }
    list.arrays.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
    list.arrays.dedup_by(|a, b| a.uuid == b.uuid);
    Ok(list)
}

/// As [`find_within`], with the timeout of a command.
pub(crate) fn find(control: Option<&Path>, name: Option<&str>) -> Result<(Client, Array)> {
    find_within(control, name, ORDER_TIMEOUT)
}

/// Finds the server and the state of an array by name or UUID, or of the only one if not named.
pub(crate) fn find_within(
    control: Option<&Path>,
    name: Option<&str>,
    timeout: Duration,
) -> Result<(Client, Array)> {
    let own = name.filter(|_| control.is_none()).map(places::control_of);
    if let (Some(socket), Some(name)) = (own.filter(|socket| socket.exists()), name) {
        let client = Client::at(socket).within(timeout);
        return client.array(name).map(|array| (client, array));
    }
    let (mut found, mut silent): (Vec<(Client, Array)>, Option<Failure>) = Default::default();
    for (client, arrays) in ask_all(control, timeout) {
        let arrays = match arrays {
            Ok(arrays) => arrays,
            Err(failure) if control.is_some() => return Err(failure),
            Err(failure) => {
                silent = silent.or(Some(failure));
                continue;
            }
        };
        let wanted =
            |array: &Array| name.is_none_or(|name| array.name == name || array.uuid == name);
        let new = |array: &Array| found.iter().all(|(_, known)| known.uuid != array.uuid);
        let arrays: Vec<Array> = arrays.into_iter().filter(|a| wanted(a) && new(a)).collect();
        found.extend(arrays.into_iter().map(|array| (client.clone(), array)));
    }
    match (found.len(), silent) {
        (1, _) => Ok(found.remove(0)),
        // The array may belong to the silent server.
        (0, Some(silent)) => Err(silent),
        (0, None) => Err(not_served(control, name)),
        _ => {
            let names: Vec<&str> = found.iter().map(|(_, array)| array.name.as_str()).collect();
            let message = format!("there are several arrays: {}", names.join(", "));
            Err(Failure::new(Id::Usage, message, "name one of them, or its UUID"))
        }
    }
}

fn not_served(control: Option<&Path>, name: Option<&str>) -> Failure {
    match (name, control) {
        (Some(name), None) => {
            let folder = places::runtime();
            let message =
                format!("no array called {name} is being served (looked in {})", folder.display());
            let action = format!("start it: parapet serve {name} MEMBER…, or name its --control");
            Failure::new(Id::NoArray, message, action)
        }
        (Some(name), Some(_)) => {
            let message = format!("the server has no array called {name}");
            Failure::new(Id::NoArray, message, "parapet list shows what there is")
        }
        (None, _) => {
            let action = "start one: parapet serve NAME MEMBER…";
            Failure::new(Id::Unreachable, "no array is being served", action)
        }
    }
}
