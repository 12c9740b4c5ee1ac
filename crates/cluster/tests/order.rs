//! The order in which requests of one client to one stripe run.
#![allow(missing_docs)]

use cluster::client::{Action, Client, Event, Work};
use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::ids::{ArrayId, BootId, ClientId, Epoch, Incarnation, MemberId, RequestId, Term};
use cluster::message::{FromClient, FromMember, Io, Stamp, ToClient, ToMember};
use cluster::timing::Timing;

/// Requests that members have not answered.
type Asked = Vec<(MemberId, Stamp, Io)>;

/// Level 3.5 of three members; the first one, which holds data, is missing.
fn config() -> Event {
    let (regions, region_blocks, piece_bytes) = (1, 4, 8);
    let (level, mode) = (Level::Fragments, Mode::Exclusive);
    let shape = Shape { level, regions, region_blocks, piece_bytes, mode };
    let slot = |state| Slot { state, boot: BootId(1) };
    let slots = vec![slot(State::Missing), slot(State::InSync), slot(State::InSync)];
    let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
    Event::Coordinator(Term(1), ToClient::Config(config))
}

/// Handles an event; wants are granted. Returns what it asks of the members.
fn run(client: &mut Client, event: Event) -> Asked {
    let (mut out, mut asked) = (Vec::new(), Vec::new());
    client.handle(0, event, &mut out);
    while let Some(action) = out.pop() {
        match action {
            Action::Member(member, ToMember::Data(stamp, io)) => asked.push((member, stamp, io)),
            Action::Coordinators(FromClient::Want(region, grant)) => {
                let grant = ToClient::Grant(region, grant);
                client.handle(0, Event::Coordinator(Term(1), grant), &mut out);
            }
            _ => {}
        }
    }
    asked
}

/// Members answer all of it; returns what the client asks then.
fn answer(client: &mut Client, asked: Asked) -> Asked {
    let mut next = Vec::new();
    for (member, Stamp { op, .. }, io) in asked {
        let bytes = if matches!(io, Io::Read(..)) { vec![0; 8] } else { Vec::new() };
        next.extend(run(client, Event::Member(member, FromMember::Done(op, bytes))));
    }
    next
}

/// A stream of writes to the stripe must not keep the read waiting for ever.
#[test]
fn a_read_that_recovers_runs_before_writes_that_came_later() {
    let mut client = Client::start(ClientId(1), Incarnation(1), Timing::DEFAULT, 0);
    let client = &mut client;
    let checks = run(client, config());
    answer(client, checks);
    let write = |number| Event::Request(RequestId(number), Work::Write(0, vec![1; 16]));
    let first = run(client, write(0));
    assert!(first.iter().all(|(.., io)| matches!(io, Io::Write(..))), "{first:?}");
    assert_eq!(first.len(), 2);
    assert_eq!(run(client, Event::Request(RequestId(1), Work::Read(0, 1))), []);
    assert_eq!(run(client, write(2)), []);
    let reads = answer(client, first);
    assert!(reads.iter().all(|(.., io)| matches!(io, Io::Read(..))), "{reads:?}");
    assert_eq!(reads.len(), 2);
    let last = answer(client, reads);
    assert!(last.iter().all(|(.., io)| matches!(io, Io::Write(..))), "{last:?}");
    assert_eq!((last.len(), client.pending()), (2, 1));
}
