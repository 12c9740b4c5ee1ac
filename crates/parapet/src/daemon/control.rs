//! The control API: HTTP and JSON over a unix socket.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/arrays` | `parapet/list/1` |
//! | `GET /v1/arrays/NAME` | `parapet/status/1`; NAME may be the UUID |
//! | `GET /v1/arrays/NAME/events/NUMBER` | `parapet/history/1`: the events after this one |
//! | `GET /v1/arrays/NAME/members/MEMBER/disks` | `parapet/member-disks/1` |
//! | `POST /v1/arrays/NAME/VERB` | `parapet/changed/1`; the body is a `parapet/order/1` |
//!
//! VERB is one of `fail remove add re-add replace scrub clear speed online offline shelf mask
//! reservations attach detach notify-test health locate stop`, and for a daemon `start`, of an
//! array that is not served. Errors are `parapet/error/1`; the HTTP status follows from the exit
//! status. The server accepts only its own user and root.

use std::future::poll_fn;
use std::io::{IoSlice, Result as IoResult};
use std::rc::Rc;
use std::time::Duration;

use io::{Clock, Stream};
use os::{Peer, Socket};

use super::{Daemon, first};
use crate::api::{History, List, Order, Report};
use crate::failure::{Exit, Failure, Id, Result};
use crate::http::{self, Bad, Method, Request};
use crate::places;
use crate::terminal::{json_of, json_of_failure};

/// Time limit to receive a complete request, and to send the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections.
const MOST: usize = 64;

impl Daemon {
    /// Serves one request on a connection.
    pub(super) async fn serve_connection(self: Rc<Self>, socket: Socket) {
        if self.conversations.get() >= MOST {
            return;
        }
        self.conversations.set(self.conversations.get() + 1);
        let peer = socket.peer();
        if let Err(error) = self.answer(&socket, peer).await {
            tracing::debug!(%error, "a control connection broke");
        }
        self.conversations.set(self.conversations.get() - 1);
        self.stirred.raise();
    }

    async fn answer(self: &Rc<Self>, socket: &Socket, peer: Peer) -> IoResult<()> {
        let clock = self.spawner.clock();
        let patience = || clock.sleep_until(clock.now() + PATIENCE);
        let answer = match first(read(socket), patience()).await {
            None => return Ok(()),
            Some(Err(error)) => return Err(error),
            Some(Ok(_)) if !is_heard(peer) => {
                let message = "only the user that runs the server, and root, may control it";
                answer_of(&Err(Failure::new(Id::Denied, message, "use one of these accounts")))
            }
            Some(Ok(Err(Bad(status, why)))) => {
                let failure =
                    Failure::new(Id::Usage, why, "see docs/decisions/0003-control-api.md");
                http::answer(status, json_of_failure(&failure).as_bytes())
            }
            Some(Ok(Ok(request))) => answer_of(&self.handle(&request).await),
        };
        let sent = first(send(socket, &answer), patience()).await;
        sent.unwrap_or(Ok(()))
    }

    async fn handle(self: &Rc<Self>, request: &Request) -> Result<String> {
        let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
        match (request.method, &path[..]) {
            (Method::Get, ["v1", "arrays"]) => {
                Ok(json_of(&List { arrays: self.views(), ..List::default() }))
            }
            (Method::Get, ["v1", "arrays", name]) => Ok(json_of(&self.view(&*self.named(name)?))),
            (Method::Get, ["v1", "arrays", name, "events", after]) => {
                let served = self.named(name)?;
                let after = after.parse().map_err(|_| {
                    let message = format!("{after} is not the number of an event");
                    Failure::new(Id::Usage, message, "0 for all")
                })?;
                let (name, uuid) = (served.name().into(), served.uuid().into());
                Ok(json_of(&History { name, uuid, events: served.history.after(after) }))
            }
            (Method::Get, ["v1", "arrays", name, "members", member, "disks"]) => {
                Ok(json_of(&self.named(name)?.disks_of(member).await?))
            }
            (Method::Post, ["v1", "arrays", name, "start"]) => {
                let message = self.start_named(name).await?;
                let array = self.find(name).map(|served| self.view(&served));
                Ok(json_of(&crate::api::Changed { message, array }))
            }
            (Method::Post, ["v1", "arrays", name, verb]) => {
                let served = self.named(name)?;
                let order: Order = match request.body.is_empty() {
                    true => Order::default(),
                    false => serde_json::from_slice(&request.body).map_err(|error| {
                        Failure::new(Id::Usage, error.to_string(), "send a parapet/order/1")
                    })?,
                };
                let (array, command) = (served.name(), command_line(verb, &order));
                // The thread that watches disks gives its notes as a user gives commands.
                match *verb {
                    "health" => tracing::debug!("{array}: command: {command}"),
                    _ => tracing::info!("{array}: command: {command}"),
                }
                let result = self.carry_out(&served, verb, &order).await;
                let message = result.inspect_err(|failure| {
                    tracing::info!("{array}: {command}: refused or failed: {}", failure.message);
                })?;
                served.log_state();
                let still = self.find(served.uuid()).map(|served| self.view(&served));
                Ok(json_of(&crate::api::Changed { message, array: still }))
            }
            _ => {
                let message = "the control API has no such request";
                Err(Failure::new(Id::Usage, message, "see docs/decisions/0003-control-api.md"))
            }
        }
    }

    fn named(&self, name: &str) -> Result<Rc<super::Served>> {
        self.find(name).ok_or_else(|| {
            let message = format!("this server has no array called {name}");
            Failure::new(Id::NoArray, message, "parapet list shows what there is")
        })
    }
}

/// Uses the peer credentials that the kernel reports for a unix socket.
fn is_heard(peer: Peer) -> bool {
    match peer {
        Peer::Local { uid, .. } => uid == 0 || places::user() == Some(uid),
        _ => false,
    }
}

/// Formats a command for the log, as an administrator types it.
fn command_line(verb: &str, order: &Order) -> String {
    let member = order.member.as_ref().map(|who| match who.parse::<usize>() {
        Ok(slot) => format!("slot {slot}"),
        Err(_) => who.clone(),
    });
    let speed = order.speed.map(|speed| speed.sentence());
    let with = order.with.as_ref().map(|with| format!("with {with}"));
    let clear = order.clear.then(|| "--clear".to_owned());
    let off = order.off.then(|| "--off".to_owned());
    let rest = [member, with, order.scrub.clone(), speed, order.aoe.clone(), clear, off];
    let rest = rest.into_iter().flatten().chain(order.masks.iter().cloned());
    let words: Vec<String> = [verb.to_owned()].into_iter().chain(rest).collect();
    words.join(" ")
}

fn answer_of(result: &Result<String>) -> Vec<u8> {
    match result {
        Ok(json) => http::answer(200, json.as_bytes()),
        Err(failure) => {
            let status = match failure.exit() {
                Exit::Usage => 400,
                Exit::Refused => 409,
                Exit::Unreachable => 403,
                Exit::Unknown => 404,
                Exit::Done | Exit::Failed | Exit::TimedOut => 500,
            };
            http::answer(status, json_of_failure(failure).as_bytes())
        }
    }
}

/// Reads a whole request, or returns why it is malformed.
async fn read(socket: &Socket) -> IoResult<std::result::Result<Request, Bad>> {
    let mut bytes = Vec::new();
    let mut bite = [0; 4096];
    loop {
        let count = poll_fn(|cx| socket.poll_read(cx, &mut bite)).await?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.extend_from_slice(&bite[..count]);
        match http::read(&bytes) {
            Ok(None) => {}
            Ok(Some(request)) => return Ok(Ok(request)),
            Err(bad) => return Ok(Err(bad)),
        }
    }
}

async fn send(socket: &Socket, mut bytes: &[u8]) -> IoResult<()> {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(bytes)])).await?;
        bytes = &bytes[count..];
    }
    poll_fn(|cx| socket.poll_close(cx)).await
}

/// Checks the table above against the types.
const _: () = {
    const fn same(a: &str, b: &str) -> bool {
        let (a, b) = (a.as_bytes(), b.as_bytes());
        let mut index = 0;
        while index < a.len() && index < b.len() && a[index] == b[index] {
            index += 1;
        }
        index == a.len() && index == b.len()
    }
    assert!(same(List::SCHEMA, "parapet/list/1"));
    assert!(same(crate::api::Array::SCHEMA, "parapet/status/1"));
    assert!(same(crate::api::Changed::SCHEMA, "parapet/changed/1"));
};
