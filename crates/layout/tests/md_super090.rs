//! 0.90 superblocks, built by hand word by word in both byte orders: `mdadm --examine` (Debian
//! package `mdadm`) agrees on their meaning, and broken ones are refused.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use layout::md::super090::{ByteOrder, Disk, position};
use layout::md::superblock::CLEAN;
use layout::md::{Fault, Features, Role, Superblock090, Uuid};

const MEMBER_BYTES: u64 = (64 << 20) + 5000;
const WORDS: usize = 1024;

/// A RAID 5 of four members of 63 MiB, slot 1 failed, one spare, seen from slot 2.
fn words(order: ByteOrder) -> [u32; WORDS] {
    let mut words = [0; WORDS];
    words[..16].copy_from_slice(&[
        0xa92b_4efc,
        0,
        90,
        0,
        0,
        0x0011_2233,
        1_600_000_000,
        5,
        64512,
        5,
        4,
        7,
        0,
        0x4455_6677,
        0x8899_aabb,
        0xccdd_eeff,
    ]);
    words[32..38].copy_from_slice(&[1_700_000_000, 1, 3, 4, 1, 1]);
    let (low, high) = match order {
        ByteOrder::Little => (39, 40),
        ByteOrder::Big => (40, 39),
    };
    (words[low], words[high]) = (33, 1);
    (words[low + 2], words[high + 2]) = (33, 1);
    words[43] = 4096;
    (words[64], words[65]) = (2, 65536);
    for (index, (slot, state)) in [(0, 6), (1, 1), (2, 6), (3, 6), (4, 0)].into_iter().enumerate() {
        let disk = [index as u32, 8, 16 * index as u32, slot, state];
        words[128 + 32 * index..][..5].copy_from_slice(&disk);
    }
    words.copy_within(128 + 64..128 + 96, 992);
    words[38] = checksum(&words);
    words
}

fn checksum(words: &[u32; WORDS]) -> u32 {
    let checksum: u64 =
        words.iter().map(|&word| u64::from(word)).sum::<u64>() - u64::from(words[38]);
    (checksum as u32).wrapping_add((checksum >> 32) as u32)
}

fn bytes(words: &[u32; WORDS], order: ByteOrder) -> Vec<u8> {
    let bytes = words.iter().flat_map(|word| match order {
        ByteOrder::Little => word.to_le_bytes(),
        ByteOrder::Big => word.to_be_bytes(),
    });
    bytes.collect()
}

#[test]
fn both_byte_orders_say_the_same() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let found = Superblock090::parse(&bytes(&words(order), order)).unwrap();
        assert_eq!(found.order, order);
        assert_eq!(found.set_uuid.to_string(), "00112233:44556677:8899aabb:ccddeeff");
        assert_eq!((found.level, found.layout, found.raid_disks, found.minor), (5, 2, 4, 90));
        assert_eq!((found.size_kib, found.chunk_bytes, found.md_minor), (64512, 65536, 7));
        assert_eq!((found.ctime, found.utime, found.state), (1_600_000_000, 1_700_000_000, 1));
        assert_eq!((found.events, found.cp_events), (1 << 32 | 33, 1 << 32 | 33));
        assert_eq!(found.this_disk, Disk { number: 2, raid_disk: 2, state: 6 });
        assert_eq!(found.disks.len(), 27);
    }
}

#[test]
fn it_is_seen_as_a_version_1_superblock() {
    let order = ByteOrder::Little;
    let found = Superblock090::parse(&bytes(&words(order), order)).unwrap();
    let view = found.as_version_1(MEMBER_BYTES).unwrap();
    assert_eq!(view.set_uuid, Uuid::parse("00112233445566778899aabbccddeeff").unwrap());
    assert_eq!((view.level, view.layout, view.chunk_sectors, view.raid_disks), (5, 2, 128, 4));
    assert_eq!((view.size, view.data_offset, view.events), (129_024, 0, 1 << 32 | 33));
    assert_eq!(view.super_offset * 512, position(MEMBER_BYTES).unwrap());
    let roles = [Role::Slot(0), Role::Faulty, Role::Slot(2), Role::Slot(3), Role::Spare];
    assert_eq!(view.roles[..5], roles);
    assert!(view.roles[5..].iter().all(|&role| role == Role::Spare));
    assert_eq!((view.own_role(), view.features), (Role::Slot(2), Features::NONE));
    assert_eq!(found.as_version_1(1 << 20).unwrap_err().field, "size");
    // Where there is no room for a superblock there is none, however little it claims.
    let nothing = Superblock090 { size_kib: 0, ..found.clone() };
    assert!(nothing.as_version_1(128 << 10).is_ok());
    assert!(nothing.as_version_1((128 << 10) - 1).is_err());
}

#[test]
fn a_resync_goes_on_where_it_was_only_if_nothing_happened_since() {
    let order = ByteOrder::Little;
    let resync = |change: fn(&mut [u32; WORDS])| {
        let mut words = words(order);
        change(&mut words);
        words[38] = checksum(&words);
        Superblock090::parse(&bytes(&words, order)).expect("still valid").resync_offset()
    };
    assert_eq!(resync(|_| ()), CLEAN);
    assert_eq!(resync(|words| words[33] = 0), 4096);
    assert_eq!(resync(|words| (words[33], words[39]) = (0, 34)), 0);
    assert_eq!(resync(|words| (words[33], words[43]) = (0, u32::MAX)), CLEAN);
}

#[test]
fn rules_name_their_fields() {
    let order = ByteOrder::Little;
    for (word, value, field) in [
        (0, 0, "magic"),
        (1, 1, "major_version"),
        (2, 89, "minor_version"),
        (2, 92, "minor_version"),
        (10, 0, "raid_disks"),
        (10, 28, "raid_disks"),
    ] {
        let mut words = words(order);
        words[word] = value;
        words[38] = checksum(&words);
        let error = Superblock090::parse(&bytes(&words, order)).unwrap_err();
        assert_eq!((error.field, error.offset), (field, 4 * word as u64), "{error}");
    }
}

#[test]
fn broken_superblocks_are_errors() {
    let order = ByteOrder::Big;
    let whole = bytes(&words(order), order);
    for index in 0..whole.len() {
        let mut broken = whole.clone();
        broken[index] ^= 4;
        assert!(Superblock090::parse(&broken).is_err(), "byte {index}");
    }
    for length in 0..whole.len() {
        let error = Superblock090::parse(&whole[..length]).unwrap_err();
        assert_eq!(error.fault, Fault::Truncated { have: length as u64 });
    }
}

#[test]
fn garbage_with_a_right_checksum_never_panics() {
    let order = ByteOrder::Little;
    let mut state = 0x0bad_cafe_dead_beef_u64;
    let mut accepted = 0;
    for _ in 0..20_000 {
        let mut words = words(order);
        for _ in 0..3 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            words[(state >> 32) as usize % WORDS] = state as u32;
        }
        words[38] = checksum(&words);
        if let Ok(found) = Superblock090::parse(&bytes(&words, order)) {
            accepted += 1;
            if let Ok(view) = found.as_version_1(MEMBER_BYTES) {
                let _ = (view.own_role(), view.slots());
            }
        }
    }
    assert!(accepted > 10_000, "{accepted}");
}

#[test]
fn it_lies_in_the_last_whole_64_kib() {
    const KIB: u64 = 1 << 10;
    assert_eq!(position(128 * KIB - 1), None);
    assert_eq!(position(128 * KIB), Some(64 * KIB));
    assert_eq!(position(191 * KIB), Some(64 * KIB));
    assert_eq!(position(192 * KIB), Some(128 * KIB));
    assert_eq!(position(MEMBER_BYTES), Some((64 << 20) - 64 * KIB));
}

#[test]
fn mdadm_reads_the_same() {
    let path = std::env::temp_dir().join(format!("parapet-090-{}", std::process::id()));
    let order = ByteOrder::Little;
    let file = File::create(&path).expect("the temporary directory is writable");
    file.set_len(MEMBER_BYTES).expect("a sparse file");
    let offset = position(MEMBER_BYTES).expect("the disk is large enough");
    file.write_all_at(&bytes(&words(order), order), offset).expect("the file accepts the write");
    let output = Command::new("mdadm")
        .arg("--examine")
        .arg(&path)
        .env("TZ", "UTC")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output();
    fs::remove_file(&path).expect("created above");
    let output = output.expect("mdadm runs (install the package mdadm)");
    let text = String::from_utf8_lossy(&output.stdout);
    for line in [
        "Version : 0.90.00",
        "UUID : 00112233:44556677:8899aabb:ccddeeff",
        "Raid Level : raid5",
        "Used Dev Size : 64512",
        "Raid Devices : 4",
        "State : clean",
        "Preferred Minor : 7",
        "- correct",
        "Events : 4294967329",
        "Layout : left-symmetric",
        "Chunk Size : 64K",
    ] {
        assert!(text.contains(line), "{text} lacks {line}");
    }
}
