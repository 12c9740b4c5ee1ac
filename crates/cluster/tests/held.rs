//! What I/O in a region that is held asks of the coordinator: nothing.
#![allow(missing_docs)]

use cluster::client::{Action, Client, Event, Work};
use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::ids::{
    ArrayId, BootId, ClientId, Epoch, GrantId, Incarnation, Region, RequestId, Term,
};
use cluster::message::{FromClient, FromMember, ToClient, ToMember};
use cluster::timing::Timing;

/// A client with members that answer at once. Gives its messages to the coordinator, and the
/// number of requests that are complete.
fn run(client: &mut Client, event: Event) -> (Vec<FromClient>, usize) {
    let (mut out, mut said, mut done) = (Vec::new(), Vec::new(), 0);
    client.handle(0, event, &mut out);
    while let Some(action) = out.pop() {
        match action {
            Action::Coordinators(message) => said.push(message),
            Action::Member(member, ToMember::Data(stamp, _)) => {
                let answer = FromMember::Done(stamp.op, Vec::new());
                client.handle(0, Event::Member(member, answer), &mut out);
            }
            Action::Member(..) => unreachable!("a client gives no orders"),
            Action::Done(_, result) => done += usize::from(result.is_ok()),
        }
    }
    (said, done)
}

#[test]
fn a_write_in_a_region_held_sends_the_coordinator_nothing() {
    let (regions, region_blocks, piece_bytes) = (2, 4, 8);
    let (level, mode) = (Level::Fragments, Mode::Exclusive);
    let shape = Shape { level, regions, region_blocks, piece_bytes, mode };
    let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; 3];
    let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
    let mut client = Client::start(ClientId(1), Incarnation(1), Timing::DEFAULT, 0);
    run(&mut client, Event::Coordinator(Term(1), ToClient::Config(config)));
    let write = |number: u64, block: u64| {
        Event::Request(RequestId(number), Work::Write(block, vec![1; 16]))
    };

    let (said, done) = run(&mut client, write(0, 0));
    let want = FromClient::Want(Region(0), GrantId(1 << 32));
    assert_eq!((said, done), (vec![want], 0), "the first write needs a grant");
    let grant = ToClient::Grant(Region(0), GrantId(1 << 32));
    assert_eq!(run(&mut client, Event::Coordinator(Term(1), grant)), (Vec::new(), 1));
    for block in 0..u64::from(region_blocks) {
        assert_eq!(run(&mut client, write(1 + block, block)), (Vec::new(), 1));
    }
    let (said, _) = run(&mut client, write(9, u64::from(region_blocks)));
    assert_eq!(said.len(), 1, "another region needs another grant");
    assert_eq!(client.pending(), 1);
}
