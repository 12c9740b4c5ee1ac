//! Frames, one after the other.
//!
//! The checksum is computed here a second time, so that corrected inputs do not depend on the code
//! under test.

use std::collections::BTreeSet;

use cluster::config::{Config, Level, Mode, Shape, Slot, State};
use cluster::decisions::{Value, Version};
use cluster::ids::{
    ArrayId, BootId, CandidateId, ClientId, DiskId, Epoch, GrantId, Incarnation, MemberId, OpId,
    Region, Term,
};
use cluster::member::Header;
use cluster::message::{Claim, FromClient, FromMember, Io, Order, Stamp, ToClient, ToMember, Who};
use cluster::record::{Log, Mark, Position, Record};
use cluster::session::{Ask, Decided, FromCoordinator, Hello, Journaled, Label, Speaker, Told};
use cluster::wire::{self, Frame};

use crate::Trail;

/// Bytes before a frame's body.
const HEAD: usize = 16;

/// Reads frames from the front until one is refused by every kind.
pub(super) fn body(mut bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    loop {
        let stated = wire::frame_bytes(bytes);
        let lengths = [
            read::<ToMember>(bytes),
            read::<FromMember>(bytes),
            read::<FromClient>(bytes),
            read::<ToClient>(bytes),
            read::<Header>(bytes),
            read::<Hello>(bytes),
            read::<FromCoordinator>(bytes),
            read::<Label>(bytes),
            read::<Ask>(bytes),
            read::<Told>(bytes),
            read::<Decided>(bytes),
            read::<Journaled>(bytes),
        ];
        let Some(kind) = lengths.iter().position(Result::is_ok) else {
            trail.note(lengths[0].as_ref().err());
            return trail;
        };
        assert_eq!(lengths.iter().filter(|it| it.is_ok()).count(), 1, "a frame has one kind");
        let length = *lengths[kind].as_ref().expect("a position of a length");
        assert_eq!(stated, Ok(Some(length)), "the head states the length");
        trail.note(kind);
        trail.size(length as u64);
        bytes = &bytes[length..];
    }
}

/// The length of a frame of this kind, which is printed as it was read.
fn read<T: Frame>(bytes: &[u8]) -> Result<usize, wire::Malformed> {
    let (value, length) = wire::decode::<T>(bytes)?;
    assert_eq!(wire::encode(&value), bytes[..length], "print(parse(x)) = x");
    Ok(length)
}

/// Sets the magic, the version and the checksum of each frame whose length fits.
pub(super) fn mend(mut bytes: &mut [u8]) {
    while bytes.len() >= HEAD {
        bytes[..4].copy_from_slice(b"PpCl");
        bytes[4..6].copy_from_slice(&1_u16.to_le_bytes());
        let stated = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
        let length = stated.min(bytes.len() - HEAD);
        bytes[8..12].copy_from_slice(&u32::try_from(length).expect("short").to_le_bytes());
        let sum = parity::crc32c(0, &bytes[..12]);
        let sum = parity::crc32c(sum, &bytes[HEAD..HEAD + length]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
        bytes = &mut bytes[HEAD + length..];
    }
}

fn shape() -> Shape {
    let (level, mode) = (Level::Fragments, Mode::Shared);
    Shape { level, regions: 4, region_blocks: 8, piece_bytes: 2048, mode }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let (client, incarnation) = (ClientId(1), Incarnation(2));
    let log = Log {
        at: Position { term: Term(1), seq: 2 },
        marks: BTreeSet::from([
            Mark::Held(Region(1), client, incarnation),
            Mark::Unsync(Region(2)),
            Mark::Stale(MemberId(1), Region(3)),
            Mark::Evicted(client, incarnation),
        ]),
    };
    let header = Header {
        generation: 3,
        boot: BootId(2),
        term: Term(1),
        epoch: Epoch(4),
        least: [(client, incarnation)].into(),
        log: log.clone(),
    };
    let config = Config {
        array: ArrayId(9),
        epoch: Epoch(4),
        shape: shape(),
        slots: vec![Slot { state: State::InSync, boot: BootId(2) }; 3],
    };
    let name = String::from("pool");
    let value = Value { term: Term(1), leader: CandidateId(0), config: config.clone() };
    let who = Who::Client(client, incarnation);
    let stamp = Stamp { who, epoch: Epoch(4), boot: BootId(2), op: OpId(7), floor: OpId(6) };
    let claim = Claim { region: Region(1), grant: GrantId(1) };
    let member = MemberId(1);
    let disk = DiskId(6);
    let label = Label { name, array: ArrayId(9), member, disk, members: 3, shape: shape() };
    let record = Record { set: false, mark: Mark::Unsync(Region(2)) };
    let orders = [
        Order::Install(log),
        Order::Append(3, vec![record]),
        Order::Raise(disk, Epoch(5), vec![(client, incarnation)]),
    ];
    let control = orders.map(|order| wire::encode(&ToMember::Control(Term(1), order)));
    let renew = FromClient::Renew { sent_ms: 5, term: Term(1), held: vec![claim], epoch: Epoch(4) };
    let hello = Hello { speaker: Speaker::Client(client, incarnation), array: ArrayId(9), member };
    let mut seeds = vec![
        wire::encode(&ToMember::Data(stamp, Io::Write(3, vec![5; 64]))),
        wire::encode(&FromMember::Done(OpId(7), vec![5; 64])),
        wire::encode(&renew),
        wire::encode(&ToClient::Config(config.clone())),
        wire::encode(&header),
        wire::encode(&hello),
        wire::encode(&FromCoordinator(Term(1), ToClient::Drain(Region(1), GrantId(1)))),
        wire::encode(&label),
        wire::encode(&Ask::Format(label.clone())),
        wire::encode(&Told::Described(1 << 20, 512, Some((label, Epoch(4))))),
        wire::encode(&Decided { version: Version(9), value }),
        wire::encode(&Journaled { sectors: vec![(4096, vec![5; 64]), (12_288, vec![6; 64])] }),
    ];
    seeds.extend(control);
    let stream = seeds.concat();
    seeds.push(stream);
    seeds
}
