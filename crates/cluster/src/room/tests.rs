//! Every limit at `limit - 1`, `limit` and `limit + 1`.

use std::collections::BTreeSet;

use super::*;
use crate::config::{Config, Level, Mode, Slot, State};
use crate::ids::{ArrayId, BootId, ClientId, Epoch, Incarnation};
use crate::member::Header;
use crate::session::Decided;
use crate::wire::{decode, encode};

fn shape(regions: usize) -> Shape {
    let (level, mode) = (Level::Mirror, Mode::Shared);
    let regions = u32::try_from(regions).expect("a small number");
    Shape { level, regions, region_blocks: 1, piece_bytes: 512, mode }
}

/// Each holder is being evicted, and each of very many members lacks everything.
#[test]
fn the_fullest_header_fits_its_slot_and_comes_back() {
    let mut header = Header::default();
    let most = |count: usize| 0..u32::try_from(count).expect("a small number");
    for region in most(MOST_MARKS) {
        let held = Mark::Held(Region(region), ClientId(region), Incarnation(1));
        header.log.marks.extend([held, Mark::Unsync(Region(region))]);
    }
    for client in most(MOST_CLIENTS).map(ClientId) {
        let evicted = |upto| Mark::Evicted(client, Incarnation(upto));
        header.log.marks.extend([evicted(1), evicted(2)]);
        header.least.insert(client, Incarnation(3));
    }
    let members = 4096;
    let regions = MOST_STALE / usize::from(members);
    assert!(fits(&shape(regions), members.into()));
    let of = |member| most(regions).map(move |region| Mark::Stale(member, Region(region)));
    header.log.marks.append(&mut (0..members).map(MemberId).flat_map(of).collect());
    let bytes = encode(&header);
    assert!(bytes.len() <= HEADER_BYTES, "{}", bytes.len());
    assert!(decode(&bytes) == Ok((header, bytes.len())), "it comes back");
}

#[test]
fn a_shape_with_more_regions_than_bits_is_refused() {
    for members in [1, 2, 3] {
        let limit = MOST_STALE / members;
        for (regions, expected) in [(limit - 1, true), (limit, true), (limit + 1, false)] {
            let slots = vec![Slot { state: State::InSync, boot: BootId(1) }; members];
            let shape = shape(regions);
            let config = Config { array: ArrayId(1), epoch: Epoch(1), shape, slots };
            let value = crate::decisions::Value {
                term: crate::ids::Term(1),
                leader: crate::ids::CandidateId(0),
                config,
            };
            let bytes = encode(&Decided { version: crate::decisions::Version(1), value });
            let read = decode::<Decided>(&bytes);
            assert_eq!(read.is_ok(), expected, "{regions} regions of {members} members");
        }
    }
}

fn log(marks: &[Mark]) -> Log {
    Log { marks: BTreeSet::from_iter(marks.iter().copied()), ..Log::default() }
}

fn bytes_of(log: &Log) -> Vec<u8> {
    let mut bytes = Vec::new();
    log.put(&mut bytes);
    bytes
}

#[test]
fn bitmaps_have_one_form() {
    let stale = |member, region| Mark::Stale(MemberId(member), Region(region));
    let some = log(&[stale(0, 0), stale(0, 7), stale(0, 8), stale(2, 41), Mark::Unsync(Region(3))]);
    let bytes = bytes_of(&some);
    assert_eq!(Log::take(&mut &bytes[..]), Ok(some));
    let last = u32::try_from(MOST_STALE - 1).expect("a small number");
    for (region, expected) in [(last - 1, true), (last, true), (last + 16, false)] {
        let bytes = bytes_of(&log(&[stale(0, region)]));
        assert_eq!(Log::take(&mut &bytes[..]).is_ok(), expected, "region {region}");
    }
    let of = |marks: Vec<Mark>, bitmaps: Vec<(MemberId, Vec<u8>)>| {
        let mut bytes = Vec::new();
        Log::default().at.put(&mut bytes);
        marks.put(&mut bytes);
        bitmaps.put(&mut bytes);
        Log::take(&mut &bytes[..])
    };
    let (one, two) = (MemberId(1), MemberId(2));
    assert_eq!(of(vec![], vec![(one, vec![2])]), Ok(log(&[stale(1, 1)])));
    let wrong = [
        of(vec![stale(1, 1)], vec![]),
        of(vec![], vec![(one, vec![])]),
        of(vec![], vec![(one, vec![2, 0])]),
        of(vec![], vec![(two, vec![1]), (one, vec![1])]),
    ];
    assert_eq!(wrong, [const { Err(Malformed::Value) }; 4]);
}
