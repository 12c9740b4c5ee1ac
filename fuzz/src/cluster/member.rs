//! A member's machine with its disk, any messages of its peers, and power cuts.
//!
//! Promises checked: no panic. What is durable never decreases, also across power cuts. A request
//! is executed only for the boot in force, in the durable epoch, and for no client below its fence.
//! The answer to a fence is durable, and comes after the last request that it refuses has ended.

use std::collections::BTreeMap;

use cluster::append::UNIT_BYTES;
use cluster::ids::{
    BootId, CandidateId, ClientId, DiskId, Epoch, Incarnation, MemberId, OpId, Region, Term,
};
use cluster::member::{Action, Event, Header, IoId, Member, Peer};
use cluster::message::{Answer, FromMember, Io, Order, Stamp, ToMember, Who};
use cluster::record::{Log, Mark, Position, Record};

use crate::Trail;
use crate::choice::Choices;

/// Where a member writes its own records.
enum Place {
    Slot(usize),
    Area(usize),
}

/// Bytes of the append area: two small entries.
const AREA_BYTES: usize = 2 * UNIT_BYTES;

/// The member, with the disk that outlives it.
struct Stage {
    machine: Member,
    slots: [Vec<u8>; 2],
    area: Vec<u8>,
    /// What is being written, and its generation.
    storing: Option<(Place, u64, Vec<u8>)>,
    running: BTreeMap<IoId, Stamp>,
    trail: Trail,
}

/// Chooses events for a member.
pub(super) fn body(bytes: &[u8]) -> Trail {
    let mut choices = Choices::new(bytes);
    let mut stage = Stage::new();
    while !choices.is_over() {
        let before = stage.machine.durable().clone();
        stage.step(&mut choices);
        check_order(&before, stage.machine.durable());
    }
    stage.trail
}

/// Nothing that keeps an evicted client out may decrease.
fn check_order(before: &Header, after: &Header) {
    assert!(before.generation <= after.generation && before.boot <= after.boot, "{after:?}");
    assert!(before.term <= after.term && before.epoch <= after.epoch, "{after:?}");
    assert!(before.log.at <= after.log.at, "{after:?}");
    for (client, least) in &before.least {
        assert!(after.least.get(client) >= Some(least), "{client:?} is let in again: {after:?}");
    }
}

impl Stage {
    fn new() -> Stage {
        let slots = [Vec::new(), Vec::new()];
        let area = vec![0; AREA_BYTES];
        let mut out = Vec::new();
        let machine = Member::start([&slots[0], &slots[1]], &area, &mut out);
        let (running, trail) = (BTreeMap::new(), Trail::new());
        let mut stage = Stage { machine, slots, area, storing: None, running, trail };
        stage.carry_out(out);
        stage
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(8) {
            0..3 => {
                let (peer, message) = data(choices, self.machine.durable());
                self.handle(Event::Message(peer, message));
            }
            3..5 => {
                let order = order(choices);
                let term = Term(u64::from(choices.byte() % 4));
                let peer = Peer::Candidate(CandidateId(u16::from(choices.byte() % 2)));
                self.handle(Event::Message(peer, ToMember::Control(term, order)));
            }
            5 => self.stored(),
            6 => {
                let chosen = choices.below(256) % self.running.len().max(1);
                let Some((&io, _)) = self.running.iter().nth(chosen) else { return };
                self.running.remove(&io);
                self.handle(Event::Finished(io, Vec::new()));
            }
            _ => self.cut_power(choices),
        }
    }

    fn stored(&mut self) {
        let Some((place, generation, bytes)) = self.storing.take() else { return };
        self.write(&place, &bytes);
        self.handle(Event::Stored(generation));
    }

    fn write(&mut self, place: &Place, bytes: &[u8]) {
        match *place {
            Place::Slot(slot) => self.slots[slot] = bytes.to_vec(),
            Place::Area(at) => self.area[at..at + bytes.len()].copy_from_slice(bytes),
        }
    }

    /// What is being written may be torn, or whole.
    fn cut_power(&mut self, choices: &mut Choices<'_>) {
        self.trail.note("power cut");
        if let Some((place, _, bytes)) = self.storing.take() {
            let length = bytes.len() * choices.below(256) / 255;
            self.write(&place, &bytes[..length]);
        }
        self.running.clear();
        let mut out = Vec::new();
        self.machine = Member::start([&self.slots[0], &self.slots[1]], &self.area, &mut out);
        self.carry_out(out);
    }

    fn handle(&mut self, event: Event) {
        let mut out = Vec::new();
        self.machine.handle(event, &mut out);
        self.carry_out(out);
    }

    fn carry_out(&mut self, out: Vec<Action>) {
        for action in out {
            match action {
                Action::Store { slot, generation, bytes } => {
                    self.trail.note("store");
                    self.begin(Place::Slot(slot), generation, bytes);
                }
                Action::Append { at, generation, bytes } => {
                    self.trail.note("append");
                    self.begin(Place::Area(at), generation, bytes);
                }
                Action::Execute(io, stamp, _) => self.execute(io, stamp),
                Action::Send(_, message) => self.answered(&message),
            }
        }
    }

    fn begin(&mut self, place: Place, generation: u64, bytes: Vec<u8>) {
        assert!(self.storing.is_none(), "two writes of the member's own at once");
        self.storing = Some((place, generation, bytes));
    }

    fn execute(&mut self, io: IoId, stamp: Stamp) {
        let durable = self.machine.durable();
        assert_eq!(stamp.boot, durable.boot, "a request of an earlier boot");
        assert_eq!(stamp.epoch, durable.epoch, "a request of another epoch");
        assert!(!is_fenced(durable, &stamp), "an evicted client: {stamp:?}");
        self.trail.note("execute");
        assert!(self.running.insert(io, stamp).is_none(), "{io:?} runs twice");
    }

    fn answered(&mut self, message: &FromMember) {
        match message {
            FromMember::Done(..) => self.trail.note("done"),
            FromMember::Refused(_, refusal) => self.trail.note(std::mem::discriminant(refusal)),
            FromMember::Control(_, _, answer) => {
                self.trail.note(std::mem::discriminant(answer));
                self.check_answer(answer);
            }
        }
    }

    fn check_answer(&self, answer: &Answer) {
        let durable = self.machine.durable();
        match answer {
            Answer::Raised(epoch) => {
                assert!(durable.epoch >= *epoch, "an epoch that a restart would forget");
                let late = self.running.values().find(|stamp| stamp.epoch < *epoch);
                assert_eq!(late, None, "a request of an earlier epoch still runs");
            }
            Answer::Fenced(client, least) => {
                assert!(
                    durable.least.get(client) >= Some(least),
                    "a fence that would be forgotten"
                );
                let low = |stamp: &&Stamp| {
                    matches!(stamp.who, Who::Client(id, incarnation)
                    if id == *client && incarnation < *least)
                };
                assert_eq!(self.running.values().find(low), None, "it still runs");
            }
            Answer::Appended(at) => assert!(durable.log.at >= *at, "marks that would be forgotten"),
            Answer::Alive(_) | Answer::LogIs(..) | Answer::Deposed(..) => {}
        }
    }
}

fn is_fenced(header: &Header, stamp: &Stamp) -> bool {
    match stamp.who {
        Who::Client(client, incarnation) => {
            header.least.get(&client).is_some_and(|least| incarnation < *least)
        }
        Who::Coordinator(_) => false,
    }
}

fn client(choices: &mut Choices<'_>) -> (ClientId, Incarnation) {
    (ClientId(u32::from(choices.byte() % 3)), Incarnation(u32::from(choices.byte() % 4)))
}

/// A request, mostly of the boot and the epoch in force.
fn data(choices: &mut Choices<'_>, durable: &Header) -> (Peer, ToMember) {
    let off = |choices: &mut Choices<'_>| match choices.byte() {
        byte @ 0..8 => u64::from(byte),
        _ => 0,
    };
    let epoch = Epoch(durable.epoch.0.wrapping_add(off(choices)));
    let boot = BootId(durable.boot.0.wrapping_sub(off(choices)));
    let (op, floor) = (OpId(u64::from(choices.byte())), OpId(u64::from(choices.byte())));
    let (peer, who) = if choices.byte() < 32 {
        (Peer::Candidate(CandidateId(0)), Who::Coordinator(Term(u64::from(choices.byte() % 4))))
    } else {
        let (client, incarnation) = client(choices);
        (Peer::Client(client), Who::Client(client, incarnation))
    };
    let io = match choices.below(4) {
        0 => Io::Read(0, 1),
        1 => Io::Flush,
        2 => Io::Check,
        _ => Io::Write(0, Vec::new()),
    };
    (peer, ToMember::Data(Stamp { who, epoch, boot, op, floor }, io))
}

fn order(choices: &mut Choices<'_>) -> Order {
    let mark = |choices: &mut Choices<'_>| match choices.below(4) {
        0 => Mark::Unsync(Region(u32::from(choices.byte()))),
        1 => Mark::Stale(MemberId(1), Region(u32::from(choices.byte()))),
        picked => {
            let (id, incarnation) = client(choices);
            match picked {
                2 => Mark::Evicted(id, incarnation),
                _ => Mark::Held(Region(u32::from(choices.byte())), id, incarnation),
            }
        }
    };
    match choices.below(6) {
        0 => Order::Probe(choices.below(2) == 1),
        1 => Order::ReadLog,
        // Mostly for this disk.
        2 => {
            let byte = choices.byte();
            let (disk, epoch) = (DiskId(u32::from(byte / 255)), Epoch(u64::from(byte % 8)));
            Order::Raise(disk, epoch, vec![client(choices)])
        }
        3 => {
            let (id, least) = client(choices);
            Order::Fence(id, least)
        }
        4 => {
            let (term, seq) = (Term(u64::from(choices.byte() % 4)), u64::from(choices.byte()));
            Order::Install(Log { at: Position { term, seq }, marks: [mark(choices)].into() })
        }
        _ => {
            let seq = u64::from(choices.byte());
            Order::Append(seq, vec![Record { set: choices.flag(), mark: mark(choices) }])
        }
    }
}

/// Stories of the few choices above.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let boot = [5];
    let write = [0, 9, 9, 1, 0, 99, 1, 1, 3];
    let fence = [3, 3, 1, 2, 1, 0];
    let raise = [3, 2, 1, 2, 3, 1, 0];
    let install = [3, 4, 1, 1, 0, 3, 1, 0];
    let append = [3, 5, 2, 1, 0, 3, 1, 0];
    let (end, cut) = ([6, 0], [7, 90]);
    let stories: [&[&[u8]]; 6] = [
        &[&boot, &write, &end],
        &[&boot, &write, &fence, &boot, &end, &write],
        &[&boot, &write, &raise, &boot, &end, &cut, &boot, &write],
        &[&boot, &install, &cut, &boot],
        &[&boot, &install, &boot, &append, &cut, &boot],
        &[&boot, &fence, &boot, &write, &fence, &cut, &boot, &write],
    ];
    stories.map(<[&[u8]]>::concat).into()
}
