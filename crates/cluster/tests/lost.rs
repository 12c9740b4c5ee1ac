//! What a client sends again after the members have lost writes that were not flushed.
#![allow(missing_docs)]

use cluster::broken::{Broken, choose};
use cluster::client::{Action, Client, Event, Work};
use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::ids::{ArrayId, BootId, ClientId, Epoch, Incarnation, MemberId, RequestId, Term};
use cluster::message::{FromClient, FromMember, Io, ToClient, ToMember};
use cluster::timing::Timing;

/// A mirror of two members, which started so many times.
fn config(epoch: u64, starts: u64) -> Event {
    let (level, mode, regions, region_blocks, piece_bytes) =
        (Level::Mirror, Mode::Exclusive, 1, 4, 8);
    let shape = Shape { level, regions, region_blocks, piece_bytes, mode };
    let slots = vec![Slot { state: State::InSync, boot: BootId(starts) }; 2];
    let config = Config { array: ArrayId(1), epoch: Epoch(epoch), shape, slots };
    Event::Coordinator(Term(1), ToClient::Config(config))
}

/// Handles an event; members answer what `answers` lets them. Returns what it asked of them.
fn run(client: &mut Client, event: Event, answers: impl Fn(MemberId, &Io) -> bool) -> Vec<Io> {
    let (mut out, mut asked) = (Vec::new(), Vec::new());
    client.handle(0, event, &mut out);
    while let Some(action) = out.pop() {
        match action {
            Action::Member(member, ToMember::Data(stamp, io)) => {
                if answers(member, &io) {
                    let bytes = if let Io::Read(..) = io { vec![1; 8] } else { Vec::new() };
                    let done = FromMember::Done(stamp.op, bytes);
                    client.handle(0, Event::Member(member, done), &mut out);
                }
                asked.push(io);
            }
            Action::Coordinators(FromClient::Want(region, grant)) => {
                let grant = Event::Coordinator(Term(1), ToClient::Grant(region, grant));
                client.handle(0, grant, &mut out);
            }
            _ => {}
        }
    }
    asked
}

/// The last bytes of the block were acknowledged, and lost. Another host may have read older ones
/// since, so a patch of the first bytes must not bring them back.
#[test]
fn a_patch_reads_again_what_members_have_lost() {
    for (broken, reads) in [(None, true), (Some(Broken::PatchRevivesLost), false)] {
        choose(broken);
        let mut client = Client::start(ClientId(1), Incarnation(1), Timing::DEFAULT, 0);
        let client = &mut client;
        run(client, config(1, 1), |_, _| true);
        let write = Event::Request(RequestId(0), Work::Write(0, vec![1; 8]));
        assert_eq!(run(client, write, |_, _| true).len(), 2);
        // One member does not answer before it restarts.
        let patch = Event::Request(RequestId(1), Work::Patch(0, 0, vec![2; 4]));
        let one = |member, io: &Io| member == MemberId(0) || !matches!(io, Io::Write(..));
        let asked = run(client, patch, one);
        assert!(asked.contains(&Io::Write(0, vec![2, 2, 2, 2, 1, 1, 1, 1])), "{asked:?}");
        assert_eq!(client.pending(), 1);
        let asked = run(client, config(2, 2), |_, _| false);
        assert_eq!(asked.iter().any(|io| matches!(io, Io::Read(..))), reads, "{asked:?}");
        assert_eq!(asked.iter().any(|io| matches!(io, Io::Write(..))), !reads, "{asked:?}");
        choose(None);
    }
}
