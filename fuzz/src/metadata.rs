//! On-disk structures: superblocks, bitmaps, bad-block lists, log headers, signatures.
//!
//! Each body takes the bytes of one structure. Promises checked: no panic; accepted input obeys the
//! documented rules, and is printed unchanged; derived offsets are on the member and do not
//! overlap. Checksums are computed here a second time, from the formats' documents, so that
//! corrected inputs do not depend on the code under test.

use std::ops::Range;

use layout::md::superblock::{CLEAN, Device, PplPlace, RAID35_LEVEL, Reshape};
use layout::md::{
    BadBlocks, Bitmap, ByteMap, Crc32c, Features, Magic, Name, PplEntry, PplHeader, Role, SECTOR,
    Superblock, Superblock090, Timestamp, Uuid, Version, bitmap,
};
use layout::private::Tag;

use crate::{Target, Trail, as_it_is};

mod checksums;
pub(crate) mod mend;
mod private;
mod signs;

pub use checksums::PRIVATE_CHECKSUMS;
pub use private::{JOURNAL_HEADER, PRIVATE_BAD, PRIVATE_HEADER, PRIVATE_LOG};
pub use signs::FOREIGN;

/// Far more than any structure here, far less than a length field can ask for.
const MEMORY_BYTES: usize = 1 << 20;

const TARGET: Target = Target {
    name: "",
    what: "",
    body: |_| Trail::new(),
    seeds: Vec::new,
    mend: as_it_is,
    words: &[],
    memory_bytes: MEMORY_BYTES,
    most_bytes: 4096 + 64,
};

/// Superblocks of version 1, and RAID 3.5's.
pub const MD_SUPERBLOCK: Target = Target {
    name: "md_superblock",
    what: "version 1 superblock: rules, print(parse(x)) = x, byte map",
    body: superblock,
    seeds: superblocks,
    mend: mend::superblock,
    words: &[&[0xfc, 0x4e, 0x2b, 0xa9], b"Pp35"],
    ..TARGET
};

/// Superblocks of version 0.90.
pub const MD_SUPERBLOCK_090: Target = Target {
    name: "md_superblock_090",
    what: "0.90 superblock in both byte orders, and what version 1 makes of it",
    body: superblock_090,
    seeds: superblocks_090,
    mend: mend::superblock_090,
    words: &[&[0xfc, 0x4e, 0x2b, 0xa9], &[0xa9, 0x2b, 0x4e, 0xfc]],
    ..TARGET
};

/// Headers of write-intent bitmaps.
pub const MD_BITMAP: Target = Target {
    name: "md_bitmap",
    what: "bitmap header: rules, print(parse(x)) = x, places of bits",
    body: bitmap_header,
    seeds: bitmaps,
    words: &[b"bitm"],
    ..TARGET
};

/// Lists of bad blocks.
pub const MD_BADBLOCKS: Target = Target {
    name: "md_badblocks",
    what: "bad-block log: sorted ranges, parse(print(x)) = x, adding and removing",
    body: bad_blocks,
    seeds: bad_block_logs,
    ..TARGET
};

/// Headers of partial parity logs.
pub const MD_PPL: Target = Target {
    name: "md_ppl",
    what: "partial parity log header: parse(print(x)) = x",
    body: ppl,
    seeds: ppls,
    mend: mend::ppl,
    ..TARGET
};

/// The standard checksum, as the formats take it.
pub(crate) fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    parity::crc32c(before, bytes)
}

const CRC: Crc32c = crc32c;

fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let field = bytes.get(at..at + size).unwrap_or_default();
    field.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn superblock(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found_at = number(bytes, 144, 8);
    let found = match Superblock::parse(bytes, found_at) {
        Ok(found) => found,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    let printed = found.print();
    let used = 256 + 2 * found.roles.len();
    assert_eq!(printed[..used], bytes[..used], "printed as it was read");
    assert_eq!(printed.len() as u64, found.printed_bytes());
    assert_eq!(found.super_offset, found_at);
    assert!((1..=1920).contains(&found.raid_disks) && found.roles.len() <= 1920);
    assert_eq!(found.magic == Magic::Parapet, found.level == RAID35_LEVEL);
    if let Role::Slot(slot) = found.own_role() {
        assert!(u32::from(slot) < found.slots(), "a slot that the array does not have");
    }
    trail.note((found.version(), found.level, found.own_role() == Role::Spare));
    trail.note((found.features.0 & 0x1e4f, found.is_clean(), found.ppl().is_some()));
    let start = found.super_offset * SECTOR;
    let data_end = (found.data_offset + found.data_size) * SECTOR;
    for member_bytes in [64 << 20, start + (8 << 10), data_end.max(start + 4096), 1 << 62] {
        match ByteMap::of(&found, member_bytes) {
            Ok(map) => check_map(&map, member_bytes, &mut trail),
            Err(error) => trail.note((error.field, std::mem::discriminant(&error.fault))),
        }
    }
    trail
}

/// The ranges of a map lie within the member and do not overlap.
fn check_map(map: &ByteMap, member_bytes: u64, trail: &mut Trail) {
    let parts = [&map.bitmap, &map.bad_blocks, &map.ppl, &map.private];
    trail.note(parts.map(Option::is_some));
    let all = parts.into_iter().flatten().chain([&map.superblock, &map.data]);
    let mut all: Vec<Range<u64>> = all.cloned().collect();
    all.sort_by_key(|range| range.start);
    for range in &all {
        assert!(range.start <= range.end && range.end <= member_bytes, "{map:?}");
    }
    assert!(all.windows(2).all(|pair| pair[0].end <= pair[1].start), "overlap: {map:?}");
    if let Some(parts) = map.private_parts() {
        let area = map.private.clone().unwrap_or_default();
        for part in [&parts.log, &parts.regions, &parts.history, &parts.checksums] {
            assert!(area.start <= part.start && part.start <= part.end && part.end <= area.end);
        }
    }
}

/// A superblock such as `create` writes, on a member of 64 MiB.
pub(crate) fn sample(version: Version, level: i32) -> Superblock {
    let chunk: u64 = if level == 1 { 0 } else { 64 << 10 };
    let map = ByteMap::for_new_member(64 << 20, chunk, version).expect("64 MiB are enough");
    let mut roles = Superblock::role_table(4).expect("four are few");
    (0..3).for_each(|slot| roles[slot] = Role::Slot(slot as u16));
    let mut features = if level < 1 { Features::NONE } else { Features::BITMAP };
    if level == 0 {
        features = features.with(Features::RAID0_LAYOUT);
    }
    let mut sample = Superblock {
        magic: if level == RAID35_LEVEL { Magic::Parapet } else { Magic::Md },
        features,
        set_uuid: Uuid([7; 16]),
        set_name: Name::new("host:tank").expect("a short name"),
        ctime: Timestamp::new(1_700_000_000, 0),
        level,
        layout: if level == 10 { 0x102 } else { 2 },
        size: 4096,
        chunk_sectors: (chunk / SECTOR) as u32,
        raid_disks: 3,
        device: Device { number: 1, uuid: Uuid([9; 16]), ..Device::default() },
        utime: Tag::new(5).stamp(1_700_000_001),
        events: 17,
        resync_offset: CLEAN,
        roles,
        ..Superblock::default()
    };
    map.describe(&mut sample);
    sample
}

fn superblocks() -> Vec<Vec<u8>> {
    let levels = [5, 1, 0, 10, 6, -1, RAID35_LEVEL];
    let mut all: Vec<Vec<u8>> =
        levels.iter().map(|&level| sample(Version::V1_2, level).print()).collect();
    all.push(sample(Version::V1_0, 5).print());
    all.push(sample(Version::V1_1, 5).print());
    let mut ppl = sample(Version::V1_2, 5);
    ppl.features = Features::PPL;
    ppl.set_ppl(PplPlace { offset: 24, size: 2048 });
    all.push(ppl.print());
    let reshape = Superblock {
        features: Features::BITMAP.with(Features::RESHAPE),
        reshape: Reshape {
            delta_disks: 1,
            level: 5,
            layout: 2,
            chunk_sectors: 128,
            position: 4096,
            ..Reshape::default()
        },
        ..sample(Version::V1_2, 5)
    };
    all.push(reshape.print());
    all
}

fn superblock_090(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found = match Superblock090::parse(bytes) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    assert!((1..=27).contains(&found.raid_disks) && (90..=91).contains(&found.minor));
    assert_eq!(found.disks.len(), 27);
    trail.note((found.order, found.minor, found.level, found.state & 0x101));
    let stored = found.stored_uuid();
    trail.note(stored == found.set_uuid);
    for member_bytes in [4096, 128 << 10, 64 << 20, 5 << 40, 1 << 62] {
        let Ok(view) = found.as_version_1(member_bytes) else { continue };
        assert_eq!(view.set_uuid, found.set_uuid);
        assert!((view.data_offset + view.data_size) * SECTOR <= member_bytes);
        trail.note((view.own_role() == Role::Spare, view.is_clean()));
        trail.size(u64::from(view.slots()));
        match ByteMap::of(&view, member_bytes) {
            Ok(map) => check_map(&map, member_bytes, &mut trail),
            Err(error) => trail.note((error.field, std::mem::discriminant(&error.fault))),
        }
    }
    trail
}

/// A 0.90 superblock of three members in this byte order, its checksum right.
pub(crate) fn sample_090(big: bool, level: u32, state: u32) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    let words = [
        (0, 0xa92b_4efc),
        (8, 90),
        (20, 0x0102_0304),
        (24, 1_700_000_000),
        (28, level),
        (32, 2048),
        (36, 3),
        (40, 3),
        (52, 0x0506_0708),
        (128, 1_700_000_001),
        (132, state),
        (136, 3),
        (156, 18),
        (164, 18),
        (256, 2),
        (260, 64 << 10),
    ];
    let own = [(3968, 0), (3968 + 12, 0), (3968 + 16, 6)];
    let table = (0..3).flat_map(|disk| {
        let at = 512 + 128 * disk as usize;
        [(at, disk), (at + 12, disk), (at + 16, 6)]
    });
    for (at, word) in words.into_iter().chain(own).chain(table) {
        let word: u32 = word;
        let stored = if big { word.to_be_bytes() } else { word.to_le_bytes() };
        bytes[at..at + 4].copy_from_slice(&stored);
    }
    if big {
        // A number of eight bytes has its low half last.
        for at in [156, 164] {
            bytes.copy_within(at..at + 4, at + 4);
            bytes[at..at + 4].fill(0);
        }
    }
    mend::superblock_090(&mut bytes);
    bytes
}

fn superblocks_090() -> Vec<Vec<u8>> {
    vec![sample_090(false, 5, 1), sample_090(true, 5, 0x101), sample_090(false, 1, 0)]
}

fn bitmap_header(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found = match Bitmap::parse(bytes) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    assert_eq!(found.print()[..], bytes[..256], "printed as it was read");
    assert!(found.chunk_bytes.is_power_of_two() && found.chunk_bytes >= 512);
    assert!(found.daemon_sleep_s >= 1 && found.write_behind <= 16383);
    trail.note((found.version, found.nodes > 0, found.write_behind > 0, found.state & 6));
    trail.size(found.bits());
    assert!(found.bytes() >= bitmap::HEADER_BYTES + found.bits() / 8);
    if let Some(last) = found.sync_sectors.checked_sub(1) {
        for sector in [0, last / 2, last] {
            let bit = found.bit_of(sector);
            assert!(bit < found.bits() && found.sectors_of(bit).contains(&sector));
            assert!(bitmap::byte_of(bit).0 < found.bytes());
        }
        assert_eq!(found.sectors_of(found.bits() - 1).end, found.sync_sectors);
    }
    if found.bytes() <= bitmap::MOST_SPACE_BYTES {
        let whole = found.print_whole(true);
        let set: u64 = whole[256..].iter().map(|byte| u64::from(byte.count_ones())).sum();
        assert_eq!(set, found.bits(), "every bit and nothing else");
    }
    trail
}

fn bitmaps() -> Vec<Vec<u8>> {
    let one = Bitmap::new(Uuid([7; 16]), 40_000, 64 << 10);
    let two = Bitmap { events: 9, state: 2, write_behind: 256, ..one.clone() };
    let huge = Bitmap::new(Uuid([7; 16]), u64::MAX / 512, 512);
    [one, two, huge].map(|header| header.print().to_vec()).into()
}

/// A byte for the shift, one for the room, then the log.
fn bad_blocks(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let [shift, sectors, log @ ..] = bytes else { return trail };
    let (shift, sectors) = (*shift, u16::from(*sectors) % 9);
    let found = match BadBlocks::parse(log, shift) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    let mut blocks = found.blocks;
    check_ranges(&blocks);
    trail.size(blocks.ranges().len() as u64);
    trail.size(found.refused.len() as u64);
    match blocks.print(shift, sectors) {
        Err(full) => {
            assert!(full.needed > full.room);
            trail.note("full");
        }
        Ok(printed) => {
            assert_eq!(printed.len(), usize::from(sectors) * SECTOR as usize);
            let again = BadBlocks::parse(&printed, shift).expect("what is printed is a log");
            assert!(again.refused.is_empty());
            assert_eq!(again.blocks, blocks, "parse(print(x)) = x");
        }
    }
    if let [first, ..] = blocks.ranges() {
        let middle = first.start + (first.end - first.start) / 2;
        let hole = middle..middle + 1;
        assert!(blocks.touch(hole.clone()));
        blocks.remove(hole.clone());
        assert!(!blocks.touch(hole.clone()));
        check_ranges(&blocks);
        blocks.add(hole.clone());
        assert!(blocks.touch(hole));
        check_ranges(&blocks);
    }
    trail
}

fn check_ranges(blocks: &BadBlocks) {
    let ranges = blocks.ranges();
    assert!(ranges.iter().all(|range| range.start < range.end && range.end <= 1 << 53));
    assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "sorted, and apart");
}

fn bad_block_logs() -> Vec<Vec<u8>> {
    let mut blocks = BadBlocks::default();
    blocks.add(2048..2056);
    blocks.add(10_000..12_000);
    [(0, 1), (3, 8)]
        .map(|(shift, sectors)| {
            let log = blocks.print(shift, sectors).expect("two ranges fit");
            [&[shift, sectors as u8], &log[..]].concat()
        })
        .into()
}

fn ppl(bytes: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let found = match PplHeader::parse(bytes, CRC) {
        Ok(found) => found,
        Err(error) => {
            trail.note((error.field, std::mem::discriminant(&error.fault)));
            return trail;
        }
    };
    assert!(found.entries.len() <= 148);
    trail.size(found.entries.len() as u64);
    trail.size(found.pp_bytes());
    let printed = found.print(CRC);
    assert_eq!(PplHeader::parse(&printed, CRC), Ok(found), "parse(print(x)) = x");
    trail.note(layout::md::ppl::is_journal(bytes));
    trail
}

fn ppls() -> Vec<Vec<u8>> {
    let entry = PplEntry {
        data_sector: 40,
        pp_bytes: 4096,
        data_bytes: 4096,
        parity_disk: 2,
        checksum: 0x1234_5678,
    };
    [0, 1, 148]
        .map(|count| {
            let signature = layout::md::ppl::signature(&Uuid([7; 16]), CRC);
            PplHeader { signature, generation: 3, entries: vec![entry; count] }.print(CRC)
        })
        .into()
}
