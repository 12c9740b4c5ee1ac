//! The header against broken bytes, and against other writers of the superblock.

use super::*;
use crate::md::superblock::Device;
use crate::md::tests::crc32c;
use crate::md::{ByteMap, Features, Role, Version};

const SECONDS: u64 = 1_700_000_000;

fn map() -> ByteMap {
    ByteMap::for_new_member(64 << 20, 64 << 10, Version::V1_2).unwrap()
}

fn superblock() -> Superblock {
    let mut superblock = Superblock {
        features: Features::BITMAP,
        set_uuid: Uuid([1; 16]),
        ctime: Timestamp::new(SECONDS, 0),
        level: 5,
        layout: 2,
        size: 1024,
        chunk_sectors: 128,
        raid_disks: 4,
        device: Device { uuid: Uuid([2; 16]), ..Device::default() },
        utime: Tag::new(77).stamp(SECONDS),
        events: 17,
        roles: [Role::Slot(0)].into(),
        ..Superblock::default()
    };
    map().describe(&mut superblock);
    superblock
}

fn header() -> PrivateHeader {
    let (map, superblock) = (map(), superblock());
    PrivateHeader {
        set_uuid: superblock.set_uuid,
        device_uuid: superblock.device.uuid,
        history_id: Uuid([9; 16]),
        events: superblock.events,
        utime: superblock.utime,
        slot: Some(0),
        bounds: map.private.clone().unwrap(),
        parts: map.private_parts().unwrap(),
        log: LogShape {
            session: 99,
            zones: 3,
            zone_bytes: 65536,
            run: 4,
            since: 7,
            form: log::Form::Wide,
        },
        consistency: Consistency::Intent,
        unverified: true,
        bad: BadList { count: 3, crc: 7 },
        checksums_from: Some(1 << 20),
        checksums_torn: true,
        journal: Some(JournalNote {
            uuid: Uuid([5; 16]),
            name: DeviceName::new("/dev/fast"),
            used: JournalUse::Logging,
        }),
    }
}

#[test]
fn printed_bytes_parse_again() {
    for slot in [None, Some(0), Some(u16::MAX)] {
        let header = PrivateHeader { slot, ..header() };
        let bytes = header.print(crc32c);
        assert_eq!(bytes.len() as u64, HEADER_BYTES);
        assert_eq!(PrivateHeader::parse(&bytes, crc32c), Ok(header));
    }
    let note = header().journal;
    let uses = [JournalUse::Away, JournalUse::Logging, JournalUse::GivenUp];
    let notes = uses.into_iter().map(|used| note.map(|note| JournalNote { used, ..note }));
    for journal in notes.chain([None]) {
        let header = PrivateHeader { journal, ..header() };
        assert_eq!(PrivateHeader::parse(&header.print(crc32c), crc32c), Ok(header));
    }
}

#[test]
fn a_flipped_or_missing_byte_is_an_error() {
    let bytes = header().print(crc32c);
    for index in 0..bytes.len() {
        let mut broken = bytes.clone();
        broken[index] ^= 1;
        assert!(PrivateHeader::parse(&broken, crc32c).is_err(), "byte {index}");
        assert!(PrivateHeader::parse(&bytes[..index], crc32c).is_err(), "{index} bytes");
    }
}

#[test]
fn a_flipped_byte_with_a_right_checksum_is_an_error_or_a_difference() {
    let (header, bytes) = (header(), header().print(crc32c));
    for index in (0..bytes.len()).filter(|index| !(12..16).contains(index)) {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[index] ^= 1 << bit;
            FRAME.seal(&mut other, crc32c);
            if let Ok(parsed) = PrivateHeader::parse(&other, crc32c) {
                assert_ne!(parsed, header, "byte {index} does not count");
                assert_eq!(parsed.print(crc32c), other, "byte {index} is lost");
            }
        }
    }
}

/// A change of a superblock, and its effect on the header.
type Change = (Mismatch, fn(&mut Superblock));

#[test]
fn only_our_own_last_superblock_matches() {
    let bounds = map().private.unwrap();
    assert_eq!(header().matches(&superblock(), &bounds), Ok(()));
    let changes: [Change; 9] = [
        (Mismatch::Array, |s| s.set_uuid.0[0] ^= 1),
        (Mismatch::Member, |s| s.device.uuid.0[15] ^= 1),
        (Mismatch::Untagged, |s| s.utime = Timestamp::new(SECONDS, 0)),
        (Mismatch::Superseded, |s| s.utime = Tag::new(78).stamp(SECONDS)),
        (Mismatch::Superseded, |s| s.utime = Tag::new(77).stamp(SECONDS + 1)),
        (Mismatch::Superseded, |s| s.events += 1),
        (Mismatch::Superseded, |s| s.events -= 1),
        (Mismatch::Unwitnessed, |s| s.level = 0),
        (Mismatch::Unwitnessed, |s| s.level = -1),
    ];
    for (mismatch, change) in changes {
        let mut superblock = superblock();
        change(&mut superblock);
        assert_eq!(header().matches(&superblock, &bounds), Err(mismatch));
    }
    let moved = bounds.start..bounds.end - 4096;
    assert_eq!(header().matches(&superblock(), &moved), Err(Mismatch::Moved));
}

#[test]
fn a_crash_between_header_and_superblock_leaves_a_valid_pair() {
    let bounds = map().private.unwrap();
    let next = PrivateHeader { events: 18, utime: Tag::new(5).stamp(SECONDS + 1), ..header() };
    let mut copies = vec![0; HEADERS_BYTES as usize];
    for header in [header(), next.clone()] {
        let start = (PrivateHeader::copy(header.events) * HEADER_BYTES) as usize;
        copies[start..start + HEADER_BYTES as usize].copy_from_slice(&header.print(crc32c));
    }
    let old = superblock();
    assert_eq!(valid(&copies, &old, &bounds, crc32c), Some(header()));
    let new = Superblock { events: next.events, utime: next.utime, ..superblock() };
    assert_eq!(valid(&copies, &new, &bounds, crc32c), Some(next));
    let kernel = Superblock { utime: Timestamp::new(SECONDS, 0), ..superblock() };
    assert_eq!(valid(&copies, &kernel, &bounds, crc32c), None);
    assert_eq!(valid(&copies[..100], &old, &bounds, crc32c), None);
    assert_eq!(valid(&[], &old, &bounds, crc32c), None);
}

#[test]
fn every_tag_is_nonzero_and_a_legal_number_of_microseconds() {
    for random in [0, 1, 999_998, 999_999, 1_000_000, u32::MAX] {
        let stamp = Tag::new(random).stamp(SECONDS);
        assert!((1..1_000_000).contains(&stamp.micros()));
        assert_eq!((stamp.seconds(), Tag::of(stamp)), (SECONDS, Some(Tag::new(random))));
    }
    assert_eq!(Tag::of(Timestamp::new(SECONDS, 0)), None);
}

#[test]
fn parts_fill_their_bounds_and_the_table_goes_first_when_room_is_short() {
    let data = 64 << 20;
    let fixed = HEADERS_BYTES + HISTORY_BYTES + bitmap::space(data) + LEAST_LOG_BYTES;
    let table = checksum_bytes(data);
    for (room, has_table) in [(fixed, false), (fixed + table - 1, false), (fixed + table, true)] {
        let parts = Parts::of(1 << 20..(1 << 20) + room, data).unwrap();
        assert_eq!(!parts.checksums.is_empty(), has_table, "{room}");
        assert_eq!(parts.log.start, (1 << 20) + HEADERS_BYTES);
        assert_eq!(parts.log.end, parts.regions.start);
        assert_eq!(parts.regions.end, parts.history.start);
        assert_eq!(parts.history.end, parts.checksums.start);
        assert_eq!(parts.checksums.end, (1 << 20) + room);
    }
    assert_eq!(Parts::of(0..fixed - 1, data), None);
    let (start, end) = (10, 5);
    assert_eq!(Parts::of(start..end, data), None, "backwards");
}
