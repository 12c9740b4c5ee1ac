//! The byte map: parts do not overlap, a map survives its superblock unchanged, and a larger member
//! always fits in place of a smaller one.

use std::ops::Range;

use layout::md::superblock::{CLEAN, Device, RESERVED_BYTES};
use layout::md::{ByteMap, Fault, Features, Role, Superblock, Uuid, Version, bitmap};
use layout::private;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

const SIZES: [u64; 14] = [
    4 * MIB,
    16 * MIB,
    17 * MIB + 12345,
    32 * MIB,
    64 * MIB,
    100 * MIB,
    GIB,
    8 * GIB,
    9 * GIB,
    110 * GIB,
    300 * GIB,
    TIB,
    10 * TIB,
    200 * TIB,
];

fn superblock(map: &ByteMap, features: Features) -> Superblock {
    let mut superblock = Superblock {
        features,
        set_uuid: Uuid([1; 16]),
        level: 5,
        layout: 2,
        chunk_sectors: 128,
        raid_disks: 4,
        device: Device { uuid: Uuid([2; 16]), ..Device::default() },
        events: 1,
        resync_offset: CLEAN,
        roles: Superblock::role_table(4).expect("four entries fit"),
        ..Superblock::default()
    };
    superblock.roles[..4].copy_from_slice(&[0, 1, 2, 3].map(Role::Slot));
    map.describe(&mut superblock);
    Superblock::parse(&superblock.print(), superblock.super_offset)
        .expect("a byte map of ours is valid")
}

fn ranges(map: &ByteMap) -> Vec<Range<u64>> {
    let optional = [&map.bitmap, &map.bad_blocks, &map.ppl, &map.private];
    let optional = optional.into_iter().flatten().cloned();
    optional.chain([map.superblock.clone(), map.data.clone()]).collect()
}

fn assert_disjoint(map: &ByteMap) {
    let mut ranges = ranges(map);
    ranges.sort_by_key(|range| range.start);
    for pair in ranges.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{:?} overlaps {:?}", pair[0], pair[1]);
    }
    assert!(ranges.iter().all(|range| range.start <= range.end && range.end <= map.member_bytes));
}

fn maps() -> impl Iterator<Item = ByteMap> {
    Version::ALL.into_iter().flat_map(|version| {
        SIZES.into_iter().map(move |bytes| {
            ByteMap::for_new_member(bytes, 512 * KIB, version)
                .unwrap_or_else(|error| panic!("{version}, {error}"))
        })
    })
}

#[test]
fn a_new_member_has_everything_and_nothing_overlaps() {
    for map in maps() {
        assert_disjoint(&map);
        assert!(map.bitmap.is_some() && map.bad_blocks.is_some() && map.ppl.is_some());
        let parts = map.private_parts().expect("there is space for all parts");
        let private = map.private.clone().expect("a private area");
        assert_eq!(parts.log.start, private.start + private::HEADERS_BYTES);
        assert_eq!(parts.checksums.end, private.end);
        assert!(parts.log.end - parts.log.start >= private::LEAST_LOG_BYTES);
        let table = parts.checksums.end - parts.checksums.start;
        assert!(table * 512 >= map.data_bytes(), "8 bytes for each 4 KiB of {map:?}");
        for range in ranges(&map) {
            assert_eq!(range.start % 4096, 0, "{map:?}");
        }
    }
}

#[test]
fn the_default_map_is_the_one_in_the_documentation() {
    let map = ByteMap::for_new_member(64 * MIB, 512 * KIB, Version::V1_2).unwrap();
    assert_eq!(map.superblock, 4 * KIB..8 * KIB);
    assert_eq!(map.bitmap, Some(8 * KIB..12 * KIB));
    assert_eq!(map.bad_blocks, Some(12 * KIB..16 * KIB));
    assert_eq!(map.ppl, Some(16 * KIB..1040 * KIB));
    assert_eq!(map.private, Some(1040 * KIB..6 * MIB));
    assert_eq!(map.data, 6 * MIB..64 * MIB);
    assert_eq!(map.bitmap_offset(), Some(8));
    let place = map.ppl_place().unwrap();
    assert_eq!((place.offset, place.size), (24, 2048));

    let map = ByteMap::for_new_member(64 * MIB, 512 * KIB, Version::V1_1).unwrap();
    assert_eq!((map.bitmap_offset(), map.superblock), (Some(8), 0..4 * KIB));

    let map = ByteMap::for_new_member(64 * MIB, 512 * KIB, Version::V1_0).unwrap();
    assert_eq!(map.superblock, 65528 * KIB..65532 * KIB);
    assert_eq!((map.data.start, map.bitmap_offset()), (0, Some(-16)));
    assert_eq!(map.bad_blocks, Some(65524 * KIB..65528 * KIB));
    let place = map.ppl_place().unwrap();
    assert_eq!((place.offset, place.size), (-2064, 2048));
}

#[test]
fn the_map_comes_back_from_the_superblock() {
    let features = [Features::NONE, Features::BITMAP, Features::PPL, Features::MULTIPLE_PPLS];
    for map in maps() {
        for features in features {
            let found = ByteMap::of(&superblock(&map, features), map.member_bytes);
            assert_eq!(found.as_ref(), Ok(&map), "{features}");
        }
    }
}

#[test]
fn a_member_as_large_as_the_others_can_always_join() {
    for map in maps() {
        let need = map.data_bytes();
        for more in [0, 1, 4096, MIB, 3 * MIB + 5, map.member_bytes] {
            let joining = map.for_joining_member(map.member_bytes + more, need).unwrap();
            assert_disjoint(&joining);
            assert!(joining.data_bytes() >= need);
            assert_eq!(joining.data.start, map.data.start);
            let found = ByteMap::of(&superblock(&joining, Features::BITMAP), joining.member_bytes);
            assert_eq!(found.unwrap().data, joining.data);
        }
        let short = map.for_joining_member(map.member_bytes - 16 * KIB, need);
        assert!(short.unwrap_err().least_bytes > map.member_bytes - 16 * KIB);
    }
}

#[test]
fn a_member_without_room_for_a_chunk_is_refused_with_the_required_size() {
    for version in Version::ALL {
        for chunk in [0, 4 * KIB, 512 * KIB, 16 * MIB] {
            for bytes in [0, 1, 4 * KIB, MIB, 2 * MIB] {
                let Err(error) = ByteMap::for_new_member(bytes, chunk, version) else {
                    assert_eq!((version, bytes), (Version::V1_0, 2 * MIB), "1.0 needs less");
                    continue;
                };
                assert_eq!(error.member_bytes, bytes);
                let map = ByteMap::for_new_member(error.least_bytes, chunk, version);
                let map = map.unwrap_or_else(|error| panic!("{version} {chunk}: {error}"));
                assert!(map.data_bytes() >= chunk.max(64 * KIB));
                assert_disjoint(&map);
            }
        }
    }
}

/// A member that mdadm 4.2 made: 1 TiB, RAID 1, bitmap at +8, bad-block log at +264.
fn foreign() -> Superblock {
    let map = ByteMap::for_new_member(TIB, 0, Version::V1_2).expect("there is space");
    let mut found = superblock(&map, Features::BITMAP);
    found.data_offset = 264_192;
    found.data_size = TIB / 512 - 264_192;
    found.bblog.offset = 264;
    found
}

#[test]
fn a_foreign_array_keeps_its_offsets_and_lends_the_rest() {
    let map = ByteMap::of(&foreign(), TIB).unwrap();
    assert_disjoint(&map);
    assert_eq!(map.bitmap, Some(8 * KIB..136 * KIB));
    assert_eq!(map.bad_blocks, Some(136 * KIB..140 * KIB));
    assert_eq!(map.ppl, Some(140 * KIB..1164 * KIB));
    assert_eq!(map.private, Some(1164 * KIB..129 * MIB));
    let parts = map.private_parts().unwrap();
    assert!(parts.checksums.is_empty(), "2 GiB of checksums do not fit into 128 MiB");
    assert!(parts.log.end - parts.log.start > 120 * MIB);
}

#[test]
fn a_foreign_array_without_room_has_no_private_area() {
    let mut found = foreign();
    found.data_offset = 2048;
    let map = ByteMap::of(&found, TIB).unwrap();
    assert_eq!(map.ppl, None, "1 MiB does not fit before 1 MiB");
    assert!(map.private.is_some(), "but a small log does");
    found.data_offset = 288;
    let map = ByteMap::of(&found, TIB).unwrap();
    assert_eq!((map.ppl.clone(), map.private.clone(), map.private_parts()), (None, None, None));
    assert_disjoint(&map);
}

#[test]
fn nothing_is_lent_while_a_reshape_moves_the_data() {
    let mut found = foreign();
    found.features = found.features.with(Features::RESHAPE).with(Features::NEW_OFFSET);
    found.reshape.new_offset = -2048;
    assert_eq!(ByteMap::of(&found, TIB).unwrap().private, None);
}

#[test]
fn a_bitmap_without_a_bad_block_log_is_bounded() {
    let mut found = foreign();
    found.bblog.offset = 0;
    let map = ByteMap::of(&found, TIB).unwrap();
    assert_eq!(map.bad_blocks, None);
    assert_eq!(map.bitmap, Some(8 * KIB..8 * KIB + bitmap::MOST_SPACE_BYTES));
}

#[test]
fn an_old_1_0_bitmap_behind_the_superblock_is_found_there() {
    let map = ByteMap::for_new_member(64 * MIB, 0, Version::V1_0).unwrap();
    let mut found = superblock(&map, Features::BITMAP);
    found.bitmap_offset = 2;
    let map = ByteMap::of(&found, 64 * MIB).unwrap();
    let start = map.superblock.start + 1024;
    assert_eq!(map.bitmap, Some(start..64 * MIB));
    assert_disjoint(&map);
    assert!(map.private.is_some());
}

/// A fault, and its place in the superblock.
type Spoiler = (&'static str, fn(&mut Superblock));

#[test]
fn places_that_cannot_be_are_refused_by_name() {
    let corruptions: [Spoiler; 8] = [
        ("data_size", |s| s.data_size += 1),
        ("data_size", |s| s.data_offset = 1 << 53),
        ("super_offset", |s| s.super_offset = 1 << 40),
        ("bblog_offset", |s| s.bblog.offset = -9),
        ("bblog_offset", |s| s.bblog.offset = 264_190),
        ("bblog_offset", |s| s.bblog.offset = i32::MAX),
        ("bitmap_offset", |s| s.bitmap_offset = 264),
        ("bitmap_offset", |s| s.bitmap_offset = i32::MIN),
    ];
    for (field, corrupt) in corruptions {
        let mut found = foreign();
        corrupt(&mut found);
        let error = ByteMap::of(&found, TIB).unwrap_err();
        assert_eq!(error.field, field, "{error}");
        assert!(matches!(error.fault, Fault::Conflict(_) | Fault::Above { .. }));
    }
}

#[test]
fn any_superblock_that_parses_gives_a_map_or_an_error() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut mapped = 0;
    for round in 0..200_000 {
        let version = Version::ALL[round % 3];
        let map = ByteMap::for_new_member(SIZES[round % SIZES.len()], 0, version).unwrap();
        let features = [Features::NONE, Features::BITMAP, Features::PPL][round / 3 % 3];
        let mut found = superblock_cheap(&map, features);
        let value = random() >> (random() % 64);
        match random() % 7 {
            0 => found.data_offset = value % (1 << 53),
            1 => found.data_size = 10 + value % (1 << 53),
            2 => found.bblog.offset = value as i32,
            3 => found.bblog.sectors = value as u16,
            4 => found.bitmap_offset = value as i32,
            5 => found.reshape.new_offset = value as i32,
            _ => found.super_offset = value % (1 << 53),
        }
        if let Ok(map) = ByteMap::of(&found, map.member_bytes) {
            assert_disjoint(&map);
            mapped += 1;
        }
    }
    assert!(mapped > 10_000, "only {mapped} of the maps were possible");
}

fn superblock_cheap(map: &ByteMap, features: Features) -> Superblock {
    let mut superblock = foreign();
    superblock.features = features;
    map.describe(&mut superblock);
    assert_eq!(map.superblock.end - map.superblock.start, RESERVED_BYTES);
    superblock
}
