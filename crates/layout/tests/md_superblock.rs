//! The superblock against broken input: every byte matters, no length is trusted, nothing panics.

use layout::md::superblock::{
    self, BadBlockLog, CLEAN, Device, MAX_DEVICES, PplPlace, RAID35_LEVEL, Reshape,
};
use layout::md::{
    Fault, Features, Magic, Name, RawSuperblock, Role, Superblock, Timestamp, Uuid, Version,
    position,
};

const FOUND_AT: u64 = 8;

/// Every field has a value of its own, so that two that were mixed up would be noticed.
fn sample() -> Superblock {
    let mut roles = Superblock::role_table(5).expect("five entries fit");
    roles[..5].copy_from_slice(&[
        Role::Slot(0),
        Role::Slot(1),
        Role::Faulty,
        Role::Journal,
        Role::Slot(2),
    ]);
    Superblock {
        magic: Magic::Md,
        features: Features::BITMAP.with(Features::BAD_BLOCKS),
        set_uuid: Uuid(std::array::from_fn(|i| 0x10 + i as u8)),
        set_name: Name::new("host:array").expect("short"),
        ctime: Timestamp::new(1_600_000_000, 0),
        level: 5,
        layout: 2,
        size: 0x1_1000,
        chunk_sectors: 0x80,
        raid_disks: 4,
        bitmap_offset: 8,
        reshape: Reshape {
            level: 6,
            position: 0x22_0000,
            delta_disks: 1,
            layout: 18,
            chunk_sectors: 0x100,
            new_offset: -2048,
        },
        data_offset: 0x4000,
        data_size: 0x1_2000,
        super_offset: FOUND_AT,
        recovery_offset: 0x333,
        device: Device {
            number: 4,
            corrected_reads: 7,
            uuid: Uuid(std::array::from_fn(|i| 0x80 + i as u8)),
            flags: superblock::WRITE_MOSTLY,
        },
        bblog: BadBlockLog { shift: 3, sectors: 8, offset: 16 },
        utime: Timestamp::new(1_700_000_000, 123_456),
        events: 0x1234_5678_9abc,
        resync_offset: CLEAN,
        logical_block_size: 4096,
        roles,
    }
}

fn used(bytes: &[u8]) -> usize {
    let max_dev = u32::from_le_bytes(bytes[220..224].try_into().expect("four bytes"));
    256 + 2 * max_dev as usize
}

/// Makes the checksum right again.
fn seal(bytes: &mut [u8]) {
    let used = used(bytes);
    let checksum = superblock::checksum(&bytes[..used]);
    bytes[216..220].copy_from_slice(&checksum.to_le_bytes());
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn printed_bytes_parse_again() {
    let superblock = sample();
    let bytes = superblock.print();
    assert_eq!(bytes.len(), 512);
    assert_eq!(Superblock::parse(&bytes, FOUND_AT).as_ref(), Ok(&superblock));
    assert_eq!(superblock.printed_bytes(), 512);
    assert_eq!(superblock.own_role(), Role::Slot(2));
    assert_eq!(superblock.version(), Version::V1_2);
    assert!(superblock.is_clean());
}

#[test]
fn role_tables_of_every_length_come_back() {
    for devices in 0..=MAX_DEVICES {
        let mut superblock = sample();
        superblock.roles = (0..devices).map(|index| Role::Slot(index as u16)).collect();
        let bytes = superblock.print();
        assert_eq!(bytes.len() % 512, 0);
        assert_eq!(Superblock::parse(&bytes, FOUND_AT), Ok(superblock), "{devices} devices");
    }
    let padded = |devices| Superblock::role_table(devices).map(|roles| roles.len());
    let cases = [(0, Some(128)), (128, Some(128)), (129, Some(384)), (1920, Some(1920))];
    for (devices, length) in cases {
        assert_eq!(padded(devices), length, "{devices} devices");
    }
    assert_eq!(padded(1921), None);
}

#[test]
fn a_flipped_byte_is_an_error() {
    let bytes = sample().print();
    for index in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut broken = bytes.clone();
            broken[index] ^= flip;
            assert!(Superblock::parse(&broken, FOUND_AT).is_err(), "byte {index} ^ {flip:#x}");
        }
    }
}

#[test]
fn a_flipped_byte_with_a_right_checksum_is_an_error_or_a_difference() {
    let (superblock, bytes) = (sample(), sample().print());
    let mut accepted = 0;
    for index in (0..bytes.len()).filter(|index| !(216..224).contains(index)) {
        for bit in 0..8 {
            let mut other = bytes.clone();
            other[index] ^= 1 << bit;
            seal(&mut other);
            if let Ok(parsed) = Superblock::parse(&other, FOUND_AT) {
                assert_ne!(parsed, superblock, "byte {index} does not count");
                assert_eq!(parsed.print(), other, "byte {index} is lost");
                accepted += 1;
            }
        }
    }
    assert!(accepted > 1000, "only {accepted} of the changes were legal");
}

#[test]
fn a_truncated_superblock_is_an_error() {
    let bytes = sample().print();
    for length in 0..bytes.len() {
        let error = Superblock::parse(&bytes[..length], FOUND_AT).unwrap_err();
        assert_eq!(error.fault, Fault::Truncated { have: length as u64 });
    }
}

#[test]
fn the_length_is_checked_before_the_checksum() {
    for max_dev in [1921, 1 << 20, u32::MAX] {
        let mut bytes = sample().print();
        bytes[220..224].copy_from_slice(&max_dev.to_le_bytes());
        let error = RawSuperblock::new(&bytes).unwrap_err();
        assert_eq!((error.field, error.value, error.offset), ("max_dev", max_dev.into(), 220));
        assert_eq!(error.fault, Fault::Above { most: 1920 });
    }
}

/// The field that is named, and how a right superblock is spoilt.
type Spoiler = (&'static str, fn(&mut Superblock));

#[test]
fn each_rule_names_its_field() {
    let rules: [Spoiler; 22] = [
        ("raid_disks", |s| s.raid_disks = 0),
        ("raid_disks", |s| s.raid_disks = 1921),
        ("delta_disks", |s| (s.features.0, s.reshape.delta_disks) = (4, 4)),
        ("delta_disks", |s| (s.features.0, s.reshape.delta_disks) = (4, i32::MIN)),
        ("level", |s| s.level = RAID35_LEVEL),
        ("level", |s| s.magic = Magic::Parapet),
        ("logical_block_size", |s| s.logical_block_size = 511),
        ("logical_block_size", |s| s.logical_block_size = 1 << 17),
        ("feature_map", |s| s.features = Features::PPL.with(Features::MULTIPLE_PPLS)),
        ("feature_map", |s| s.features = Features::PPL.with(Features::BITMAP)),
        ("feature_map", |s| s.features = Features::MULTIPLE_PPLS.with(Features::JOURNAL)),
        ("feature_map", |s| s.features = Features::RAID0_LAYOUT),
        ("feature_map", |s| s.bblog.offset = 0),
        ("feature_map", |s| s.bitmap_offset = 0),
        ("size", |s| s.size = (1 << 53) + 1),
        ("data_offset", |s| s.data_offset = u64::MAX),
        ("data_offset", |s| s.data_offset = 8),
        ("data_size", |s| s.data_size = 9),
        ("data_size", |s| s.data_size = u64::MAX),
        ("bblog_size", |s| s.bblog.sectors = 9),
        ("new_offset", |s| (s.features.0, s.reshape.new_offset) = (64, -0x4000)),
        ("new_offset", |s| (s.features.0, s.reshape.new_offset) = (64, i32::MIN)),
    ];
    for (index, (field, corrupt)) in rules.into_iter().enumerate() {
        let mut superblock = sample();
        corrupt(&mut superblock);
        let error = Superblock::parse(&superblock.print(), FOUND_AT).unwrap_err();
        assert_eq!(error.field, field, "rule {index}: {error}");
    }
}

#[test]
fn the_data_may_begin_right_behind_the_superblock() {
    let superblock = Superblock { data_offset: FOUND_AT + 1, ..sample() };
    assert_eq!(Superblock::parse(&superblock.print(), FOUND_AT), Ok(superblock));
}

#[test]
fn the_superblock_must_lie_where_it_says() {
    let bytes = sample().print();
    for sector in [0, 7, 16, u64::MAX] {
        let error = Superblock::parse(&bytes, sector).unwrap_err();
        assert_eq!((error.field, error.value), ("super_offset", FOUND_AT));
    }
}

#[test]
fn at_1_0_the_data_ends_before_the_superblock() {
    let mut superblock = sample();
    superblock.super_offset = superblock.data_offset + superblock.data_size;
    let found_at = superblock.super_offset;
    assert_eq!(superblock.version(), Version::V1_0);
    assert!(Superblock::parse(&superblock.print(), found_at).is_ok());
    superblock.data_size += 1;
    let error = Superblock::parse(&superblock.print(), found_at).unwrap_err();
    assert_eq!(error.field, "data_offset");
}

#[test]
fn pads_are_zero_and_byte_224_is_not_a_pad() {
    for index in [12, 15, 228, 255] {
        let mut bytes = sample().print();
        bytes[index] = 1;
        seal(&mut bytes);
        let error = Superblock::parse(&bytes, FOUND_AT).unwrap_err();
        assert_eq!((error.offset, error.fault), (index as u64, Fault::Reserved));
    }
    for block in [0, 512, 4096, 65536] {
        let superblock = Superblock { logical_block_size: block, ..sample() };
        assert_eq!(Superblock::parse(&superblock.print(), FOUND_AT), Ok(superblock));
    }
}

#[test]
fn roles_without_a_meaning_are_refused() {
    for number in 0..=u16::MAX {
        let mut bytes = sample().print();
        bytes[256 + 6..256 + 8].copy_from_slice(&number.to_le_bytes());
        seal(&mut bytes);
        match Superblock::parse(&bytes, FOUND_AT) {
            Ok(superblock) => assert_eq!(superblock.roles[3].number(), number),
            Err(error) => {
                assert!((0xff01..0xfffd).contains(&number));
                assert_eq!((error.field, error.offset), ("dev_roles", 262));
            }
        }
    }
}

#[test]
fn unknown_features_are_kept_and_reported() {
    let unknown = Features(1 << 13 | 1 << 31);
    let superblock = Superblock { features: Features::BITMAP.with(unknown), ..sample() };
    let parsed = Superblock::parse(&superblock.print(), FOUND_AT).unwrap();
    assert_eq!(parsed.unknown_features(), unknown);
    assert_eq!(sample().unknown_features(), Features::NONE);
}

#[test]
fn a_member_beyond_the_array_is_a_spare() {
    let role = |change: fn(&mut Superblock)| {
        let mut superblock = sample();
        change(&mut superblock);
        superblock.own_role()
    };
    assert_eq!(role(|s| s.device.number = 3), Role::Journal);
    assert_eq!(role(|s| s.device.number = 127), Role::Spare);
    assert_eq!(role(|s| s.device.number = 128), Role::Spare);
    assert_eq!(role(|s| s.device.number = u32::MAX), Role::Spare);
    assert_eq!(role(|s| s.raid_disks = 2), Role::Spare, "slot 2 of 0..2");
    let shrinks: fn(&mut Superblock) =
        |s| (s.raid_disks, s.reshape.delta_disks, s.features) = (2, -2, Features::RESHAPE);
    assert_eq!(role(shrinks), Role::Slot(2), "an array of four becomes one of two");
}

#[test]
fn a_partial_parity_log_takes_the_bitmaps_place() {
    let mut superblock = sample();
    assert_eq!(superblock.ppl(), None);
    superblock.features = Features::MULTIPLE_PPLS;
    for place in [
        PplPlace { offset: 8, size: 2048 },
        PplPlace { offset: -2064, size: 2048 },
        PplPlace { offset: -1, size: u16::MAX },
    ] {
        superblock.set_ppl(place);
        let parsed = Superblock::parse(&superblock.print(), FOUND_AT).unwrap();
        assert_eq!(parsed.ppl(), Some(place));
    }
    superblock.set_ppl(PplPlace { offset: 8, size: 2048 });
    assert_eq!(superblock.print()[96..100], [8, 0, 0, 8], "offset, then size");
}

#[test]
fn the_three_versions_have_their_places() {
    const GIB: u64 = 1 << 30;
    assert_eq!(position(Version::V1_2, GIB), Some(4096));
    assert_eq!(position(Version::V1_1, GIB), Some(0));
    assert_eq!(position(Version::V1_0, GIB), Some(GIB - 8192));
    assert_eq!(position(Version::V1_0, GIB + 4095), Some(GIB - 8192));
    assert_eq!(position(Version::V1_0, GIB + 4096), Some(GIB - 4096));
    for version in Version::ALL {
        assert_eq!(position(version, 24 * 512 - 1), None);
        assert!(position(version, 24 * 512).is_some());
    }
}

#[test]
fn raid_3_5_has_a_magic_of_its_own() {
    let superblock =
        Superblock { magic: Magic::Parapet, level: RAID35_LEVEL, layout: 2, ..sample() };
    let bytes = superblock.print();
    assert_eq!(&bytes[..4], b"Pp35");
    assert_eq!(Superblock::parse(&bytes, FOUND_AT), Ok(superblock));
}

#[test]
fn a_raw_superblock_shows_its_fields_whatever_they_are() {
    let mut bytes = sample().print();
    bytes[72] = 99;
    let raw = RawSuperblock::new(&bytes).unwrap();
    let level = raw.fields().find(|(field, _)| field.name == "level").unwrap();
    assert_eq!((level.0.offset, level.1), (72, &[99, 0, 0, 0][..]));
    assert_eq!(raw.check(FOUND_AT).unwrap_err().field, "sb_csum");
}

#[test]
fn garbage_never_panics_and_accepted_bytes_print_unchanged() {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut accepted = 0;
    for round in 0..100_000 {
        let mut bytes = sample().print();
        for _ in 0..1 + random(&mut state) % 4 {
            let index = random(&mut state) as usize % bytes.len();
            let value = random(&mut state);
            let length = (1 << (value % 4)).min(bytes.len() - index);
            bytes[index..index + length].copy_from_slice(&value.to_be_bytes()[..length]);
        }
        if random(&mut state).is_multiple_of(8) {
            bytes.resize(random(&mut state) as usize % 6000, 0x5a);
        }
        if bytes.len() >= 256 && used(&bytes) <= bytes.len() {
            seal(&mut bytes);
        }
        let at = if round % 5 == 0 { random(&mut state) } else { FOUND_AT };
        if let Ok(superblock) = Superblock::parse(&bytes, at) {
            let used = used(&bytes);
            assert_eq!(superblock.print()[..used], bytes[..used]);
            let _ = (superblock.own_role(), superblock.ppl(), superblock.version());
            accepted += 1;
        }
    }
    assert!(accepted > 5_000, "only {accepted} inputs passed");
    for _ in 0..20_000 {
        let length = random(&mut state) as usize % 1024;
        let noise: Vec<u8> = (0..length).map(|_| random(&mut state) as u8).collect();
        assert!(Superblock::parse(&noise, FOUND_AT).is_err());
    }
}
