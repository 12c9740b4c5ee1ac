//! mdadm and blkid read our output: the real programs (Debian packages `mdadm` and `util-linux`) on
//! sparse files. A missing program is a failure, never a skip.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use layout::md::superblock::{CLEAN, Device, RAID35_LEVEL};
use layout::md::{
    BadBlocks, Bitmap, ByteMap, Features, Magic, Name, Role, SECTOR, Superblock, Timestamp, Uuid,
    Version,
};

const MEMBER_BYTES: u64 = 64 << 20;
const CHUNK_SECTORS: u32 = 128;
const BITMAP_CHUNK: u32 = 64 << 10;

/// A level as md numbers it, and as mdadm names it.
struct Level {
    number: i32,
    name: &'static str,
    layout: u32,
    layout_name: Option<&'static str>,
    /// How many members' worth of data four members hold.
    data: u64,
}

const LEVELS: [Level; 8] = [
    Level { number: -1, name: "linear", layout: 0, layout_name: None, data: 4 },
    Level { number: 0, name: "raid0", layout: 1, layout_name: Some("original"), data: 4 },
    Level { number: 1, name: "raid1", layout: 0, layout_name: None, data: 1 },
    Level { number: 4, name: "raid4", layout: 0, layout_name: None, data: 3 },
    Level { number: 5, name: "raid5", layout: 2, layout_name: Some("left-symmetric"), data: 3 },
    Level { number: 6, name: "raid6", layout: 2, layout_name: Some("left-symmetric"), data: 2 },
    Level { number: 10, name: "raid10", layout: 0x102, layout_name: Some("near=2"), data: 2 },
    Level { number: 10, name: "raid10", layout: 0x10201, layout_name: Some("offset=2"), data: 2 },
];

/// A file that is removed when the test ends.
struct Member {
    path: PathBuf,
    file: File,
}

impl Member {
    fn new(name: &str, bytes: u64) -> Member {
        let file_name = format!("parapet-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file_name);
        let file = File::create(&path).expect("the temporary directory is writable");
        file.set_len(bytes).expect("a sparse file");
        Member { path, file }
    }

    fn write(&self, bytes: &[u8], offset: u64) {
        self.file.write_all_at(bytes, offset).expect("the file accepts the bytes");
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// A program's output about a member, and whether it succeeded.
fn run(program: &str, package: &str, arguments: &[&str], member: &Member) -> (String, bool) {
    let command = Command::new(program)
        .args(arguments)
        .arg(&member.path)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .output();
    let output = command.unwrap_or_else(|error| match error.kind() {
        ErrorKind::NotFound => panic!("{program} is missing: install the package {package}"),
        _ => panic!("{program}: {error}"),
    });
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8(text).expect("text"), output.status.success())
}

fn mdadm(arguments: &[&str], member: &Member) -> String {
    let (text, success) = run("mdadm", "mdadm", arguments, member);
    assert!(success, "mdadm {arguments:?}: {text}");
    text
}

fn new_map(version: Version) -> ByteMap {
    ByteMap::for_new_member(MEMBER_BYTES, u64::from(CHUNK_SECTORS) * SECTOR, version).expect("fits")
}

fn superblock(level: &Level, map: &ByteMap) -> Superblock {
    let mut roles = Superblock::role_table(5).expect("five entries fit");
    roles[..4].copy_from_slice(&[Role::Slot(0), Role::Slot(1), Role::Slot(2), Role::Slot(3)]);
    let redundant = level.number > 0;
    let size = map.data_bytes() / SECTOR / u64::from(CHUNK_SECTORS) * u64::from(CHUNK_SECTORS);
    let mut features = if redundant { Features::BITMAP } else { Features::NONE };
    if level.number == 0 {
        features = Features::RAID0_LAYOUT;
    }
    let mut superblock = Superblock {
        features,
        set_uuid: Uuid(std::array::from_fn(|i| 0x11 * i as u8)),
        set_name: Name::new("elsewhere:main").expect("short"),
        ctime: Timestamp::new(1_600_000_000, 0),
        level: level.number,
        layout: level.layout,
        size: if redundant { size } else { 0 },
        chunk_sectors: if level.number == 1 { 0 } else { CHUNK_SECTORS },
        raid_disks: 4,
        device: Device {
            number: 2,
            uuid: Uuid(std::array::from_fn(|i| 0xff - i as u8)),
            ..Device::default()
        },
        utime: Timestamp::new(1_700_000_000, 424_242),
        events: 17,
        resync_offset: CLEAN,
        roles,
        ..Superblock::default()
    };
    map.describe(&mut superblock);
    superblock
}

/// A member with a superblock, the first page of its bitmap, and an empty bad-block log.
fn write(superblock: &Superblock, name: &str) -> Member {
    write_with(superblock, &BadBlocks::default(), name)
}

fn write_with(superblock: &Superblock, bad: &BadBlocks, name: &str) -> Member {
    let member = Member::new(name, MEMBER_BYTES);
    let start = superblock.super_offset * SECTOR;
    let place = |offset: i32| {
        let distance = i64::from(offset) * SECTOR as i64;
        start.checked_add_signed(distance).expect("within the member")
    };
    member.write(&superblock.print(), start);
    let log = bad.print(superblock.bblog.shift, superblock.bblog.sectors).expect("the value fits");
    member.write(&log, place(superblock.bblog.offset));
    if superblock.features.contains(Features::BITMAP) {
        let bitmap = Bitmap::new(superblock.set_uuid, superblock.size, BITMAP_CHUNK);
        let bitmap = Bitmap { events: superblock.events, ..bitmap };
        member.write(&bitmap.print_whole(true), place(superblock.bitmap_offset));
    }
    member
}

/// The lines `name : value` of mdadm's output, in order.
fn lines(text: &str) -> Vec<(String, String)> {
    let pairs = text.lines().filter_map(|line| line.split_once(" : "));
    pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// A size as mdadm prints it: `(62.00 MiB 65.01 MB)`.
fn human(bytes: u64) -> String {
    let hundredths = |unit: u64| (bytes * 200 / unit).div_ceil(2);
    let [binary, decimal] = [hundredths(1 << 20), hundredths(1_000_000)];
    let text = |value: u64| format!("{}.{:02}", value / 100, value % 100);
    format!("({} MiB {} MB)", text(binary), text(decimal))
}

/// mdadm's expected output for the member that [`superblock`] describes, line by line.
fn expected(level: &Level, version: Version, superblock: &Superblock) -> Vec<(String, String)> {
    let redundant = level.number > 0;
    let linear = level.number == -1;
    let chunk = superblock.chunk_sectors / 2;
    let unused = match version {
        Version::V1_0 => {
            let (metadata, data) = match redundant {
                true => (16, superblock.size),
                false => (8, superblock.data_size),
            };
            let after = superblock.super_offset - data - metadata;
            format!("before=0 sectors, after={after} sectors")
        }
        _ => {
            // As the kernel does, mdadm keeps 36 KiB for superblock and bitmap.
            let before = superblock.data_offset - superblock.super_offset - 72;
            format!("before={before} sectors, after=0 sectors")
        }
    };
    let checksum = layout::md::superblock::checksum(&superblock.print());
    let avail = superblock.data_size;
    let used = format!("{} sectors {}", superblock.size, human(superblock.size * SECTOR));
    let array = superblock.size * level.data * SECTOR;
    let line = |show: bool, name: &str, value: String| show.then(|| (name.to_owned(), value));
    let lines = [
        line(true, "Magic", "a92b4efc".into()),
        line(true, "Version", version.to_string()),
        line(true, "Feature Map", format!("{:#x}", superblock.features.0)),
        line(true, "Array UUID", "00112233:44556677:8899aabb:ccddeeff".into()),
        line(true, "Name", "elsewhere:main".into()),
        line(true, "Creation Time", "Sun Sep 13 12:26:40 2020".into()),
        line(true, "Raid Level", level.name.into()),
        line(true, "Raid Devices", "4".into()),
        line(true, "Avail Dev Size", format!("{avail} sectors {}", human(avail * SECTOR))),
        line(redundant, "Array Size", format!("{} KiB {}", array / 1024, human(array))),
        line(linear, "Used Dev Size", "0 sectors".into()),
        line(redundant && superblock.size < avail, "Used Dev Size", used),
        line(
            superblock.data_offset > 0,
            "Data Offset",
            format!("{} sectors", superblock.data_offset),
        ),
        line(true, "Super Offset", format!("{} sectors", superblock.super_offset)),
        line(true, "Unused Space", unused),
        line(true, "State", "clean".into()),
        line(true, "Device UUID", "fffefdfc:fbfaf9f8:f7f6f5f4:f3f2f1f0".into()),
        line(
            redundant,
            "Internal Bitmap",
            format!("{} sectors from superblock", superblock.bitmap_offset),
        ),
        line(true, "Update Time", "Tue Nov 14 22:13:20 2023".into()),
        line(
            true,
            "Bad Block Log",
            format!("512 entries available at offset {} sectors", superblock.bblog.offset),
        ),
        line(true, "Checksum", format!("{checksum:x} - correct")),
        line(true, "Events", "17".into()),
        line(level.layout_name.is_some(), "Layout", level.layout_name.unwrap_or("").into()),
        line(linear, "Rounding", format!("{chunk}K")),
        line(!linear && chunk != 0, "Chunk Size", format!("{chunk}K")),
        line(true, "Device Role", "Active device 2".into()),
        line(true, "Array State", "AAAA ('A' == active, '.' == missing, 'R' == replacing)".into()),
    ];
    lines.into_iter().flatten().collect()
}

#[test]
fn mdadm_reads_every_field_of_every_level_and_version() {
    for version in Version::ALL {
        for (index, level) in LEVELS.iter().enumerate() {
            let superblock = superblock(level, &new_map(version));
            let member = write(&superblock, &format!("examine-{version}-{index}"));
            let text = mdadm(&["--examine"], &member);
            assert_eq!(lines(&text), expected(level, version, &superblock), "{text}");
        }
    }
}

/// A change to a RAID 5 superblock, and a line that mdadm then prints.
type Variant = (&'static str, &'static str, fn(&mut Superblock));

const VARIANTS: [Variant; 14] = [
    ("State", "active", |s| s.resync_offset = 0),
    ("State", "active", |s| s.resync_offset = 4096),
    ("Device Role", "spare", |s| s.device.number = 4),
    ("Device Role", "Active device 0", |s| s.device.number = 0),
    ("Device Role", "Journal", |s| (s.roles[4], s.device.number) = (Role::Journal, 4)),
    ("Array State", "AA.A", |s| s.roles[2] = Role::Faulty),
    ("Array State", "RAAA", |s| s.roles[4] = Role::Slot(0)),
    ("Recovery Offset", "512 sectors", |s| {
        (s.features, s.recovery_offset) = (Features::RECOVERY_OFFSET, 512);
    }),
    ("Flags", "write-mostly", |s| s.device.flags = 1),
    ("Flags", "failfast", |s| s.device.flags = 2),
    ("Delta Devices", "1 (3->4)", |s| (s.features, s.reshape.delta_disks) = (Features::RESHAPE, 1)),
    ("New Layout", "left-asymmetric", |s| (s.features, s.reshape.level) = (Features::RESHAPE, 5)),
    ("New Offset", "11264 sectors", |s| {
        s.features = Features::RESHAPE.with(Features::NEW_OFFSET);
        s.reshape.new_offset = -1024;
    }),
    ("PPL", "2048 sectors at offset 24 sectors from superblock", |s| {
        s.features = Features::PPL;
        new_map(Version::V1_2).describe(s);
    }),
];

#[test]
fn mdadm_reads_every_state_of_a_member() {
    for (index, (name, value, change)) in VARIANTS.into_iter().enumerate() {
        let mut superblock = superblock(&LEVELS[4], &new_map(Version::V1_2));
        superblock.features = Features::NONE;
        change(&mut superblock);
        let member = write(&superblock, &format!("variant-{index}"));
        let text = mdadm(&["--examine"], &member);
        let lines = lines(&text);
        let found = lines.iter().find(|(found, _)| found == name);
        assert!(found.is_some_and(|(_, found)| found.starts_with(value)), "{name}: {text}");
        assert!(text.contains("- correct"), "{text}");
    }
}

#[test]
fn mdadm_reads_the_bad_blocks() {
    for version in Version::ALL {
        let mut superblock = superblock(&LEVELS[4], &new_map(version));
        let member = write(&superblock, &format!("good-{version}"));
        let text = mdadm(&["--examine-badblocks"], &member);
        assert!(text.contains("Bad-blocks list is empty"), "{text}");

        let mut bad = BadBlocks::default();
        bad.add(70_512..70_520);
        bad.add(70_000..70_600);
        bad.add(9_000..9_001);
        superblock.features = superblock.features.with(Features::BAD_BLOCKS);
        let member = write_with(&superblock, &bad, &format!("bad-{version}"));
        let text = mdadm(&["--examine-badblocks"], &member);
        let listed: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        let expected = ["9000 for 1 sectors", "70000 for 512 sectors", "70512 for 88 sectors", ""];
        assert_eq!(listed, expected[..listed.len()], "{text}");
        assert!(listed.len() >= 3);
        let text = mdadm(&["--examine"], &member);
        assert!(text.contains("bad blocks present"), "{text}");
    }
}

#[test]
fn mdadm_and_blkid_know_a_member_by_its_magic() {
    for version in Version::ALL {
        let superblock = superblock(&LEVELS[4], &new_map(version));
        let member = write(&superblock, &format!("query-{version}"));
        let text = mdadm(&["-Q"], &member);
        assert!(text.contains("device 2 in 4 device") && text.contains("raid5 array"), "{text}");
        let (text, found) = run("blkid", "util-linux", &["-p"], &member);
        assert!(found, "blkid sees nothing on {version}: {text}");
        for part in [
            "TYPE=\"linux_raid_member\"",
            &format!("VERSION=\"{version}\""),
            &format!("UUID=\"{}\"", superblock.set_uuid.rfc()),
            &format!("UUID_SUB=\"{}\"", superblock.device.uuid.rfc()),
            "LABEL=\"elsewhere:main\"",
        ] {
            assert!(text.contains(part), "{text} lacks {part}");
        }
    }
}

#[test]
fn no_program_recognizes_a_raid_3_5_member() {
    for version in Version::ALL {
        let mut superblock = superblock(&LEVELS[4], &new_map(version));
        (superblock.magic, superblock.level) = (Magic::Parapet, RAID35_LEVEL);
        let member = write(&superblock, &format!("own-{version}"));
        let (text, found) = run("blkid", "util-linux", &["-p"], &member);
        assert!(!found && !text.contains("TYPE"), "blkid sees {text}");
        let (text, found) = run("mdadm", "mdadm", &["--examine"], &member);
        assert!(!found && text.contains("No md superblock detected"), "{text}");
        let (text, _) = run("wipefs", "util-linux", &["--noheadings"], &member);
        assert_eq!(text, "", "wipefs sees something");
    }
}
