//! Every level with real NBD clients: healthy, degraded, while it is rebuilt, and whole again.
//!
//! nbdcopy fills the array and reads it back, qemu-io writes what is not aligned, fio checks what
//! it wrote, all over the same bytes.

use crate::world::{World, pattern};

/// A level, its members, and members that can be lost.
struct Case {
    level: &'static str,
    layout: &'static str,
    members: usize,
    loses: &'static [usize],
}

const fn case(
    level: &'static str,
    layout: &'static str,
    members: usize,
    loses: &'static [usize],
) -> Case {
    Case { level, layout, members, loses }
}

/// Fills the array, takes members away, writes and reads, gives new ones, and scrubs.
fn live(case: &Case) {
    let world = World::new();
    let layout: &[&str] = if case.layout.is_empty() { &[] } else { &["--layout", case.layout] };
    let chunk: &[&str] = match case.level {
        "1" | "linear" | "3.5" => &[],
        _ => &["--chunk", "16K"],
    };
    let members = world.create(case.level, case.members, &[layout, chunk].concat());
    let server = world.serve_members(&members);
    let info = world.tool("libnbd-bin", &["nbdinfo", "--size", &world.uri()]);
    let bytes: usize = info.trim().parse().unwrap();
    assert_eq!(server.ready["arrays"][0]["capacity_bytes"], bytes);
    let mut expected = pattern(bytes, 1);
    std::fs::write(world.path("data"), &expected).unwrap();
    world.nbdcopy("data", &world.uri());
    assert!(world.content() == expected, "healthy");
    odd_writes(&world, &mut expected, 0x11);
    for slot in case.loses {
        world.order(&["fail", "tank", &slot.to_string()]);
    }
    assert!(world.content() == expected, "degraded");
    odd_writes(&world, &mut expected, 0x22);
    world.fio("4M");
    std::fs::write(world.path("data"), &expected).unwrap();
    world.nbdcopy("data", &world.uri());
    // New members are filled while clients write.
    for slot in case.loses {
        let spare = format!("s{slot}");
        world.file(&spare, 16 << 20);
        world.order(&["add", "tank", &spare]);
    }
    odd_writes(&world, &mut expected, 0x33);
    let array = world.settle();
    assert_eq!(array["state"], "healthy", "{array}");
    assert!(world.content() == expected, "whole again");
    if !case.loses.is_empty() {
        world.order(&["scrub", "tank", "check"]);
        let array = world.settle();
        assert_eq!(array["last_scrub"]["mismatches"], 0, "{array}");
        assert_eq!(array["last_scrub"]["complete"], true, "{array}");
    }
    world.fio("4M");
    let after = world.content();
    assert_eq!(server.terminate(), 0, "{}", world.log());
    stopped_and_started(&world, case, &after);
}

/// Writes at odd places, here and in `expected`.
fn odd_writes(world: &World, expected: &mut [u8], byte: u8) {
    let places = [(512, 512), (60_928, 9_728), (1_000_448, 300_032), (3_000_832, 1_024)];
    let commands: Vec<String> = places
        .iter()
        .map(|(offset, len)| format!("write -P {byte} {offset} {len}"))
        .chain(["write -z 2097152 65536".into(), "flush".into()])
        .collect();
    world.qemu_io(&commands.iter().map(String::as_str).collect::<Vec<_>>());
    for (offset, len) in places {
        expected[offset..offset + len].fill(byte);
    }
    expected[2_097_152..2_162_688].fill(0);
}

/// The array is taken apart, found again by looking, and holds the same.
fn stopped_and_started(world: &World, case: &Case, content: &[u8]) {
    let server = world.serve(&["tank", "--scan", "."]);
    assert_eq!(server.ready["arrays"][0]["state"], "healthy", "{}", world.log());
    assert!(world.content() == content, "{} after a restart", case.level);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn linear() {
    live(&case("linear", "", 3, &[]));
}

#[test]
fn raid0() {
    live(&case("0", "", 3, &[]));
}

#[test]
fn raid1() {
    live(&case("1", "", 3, &[0, 2]));
}

#[test]
fn raid10_near() {
    live(&case("10", "n2", 4, &[0, 3]));
}

#[test]
fn raid10_far() {
    live(&case("10", "f2", 3, &[1]));
}

#[test]
fn raid10_offset() {
    live(&case("10", "o2", 4, &[2]));
}

#[test]
fn raid4() {
    live(&case("4", "", 3, &[2]));
}

#[test]
fn raid5() {
    live(&case("5", "", 4, &[1]));
}

#[test]
fn raid5_right_asymmetric() {
    live(&case("5", "right-asymmetric", 3, &[0]));
}

#[test]
fn raid6() {
    live(&case("6", "", 5, &[0, 3]));
}

#[test]
fn raid6_ddf() {
    live(&case("6", "ddf-zero-restart", 4, &[1, 2]));
}

#[test]
fn raid35() {
    live(&case("3.5", "order1", 3, &[1]));
}

#[test]
fn raid35_of_order_2() {
    live(&case("3.5", "", 5, &[4]));
}

#[test]
fn mdadm_reads_what_was_made() {
    let world = World::new();
    for (level, members) in [("0", 2), ("1", 2), ("4", 3), ("5", 3), ("6", 4), ("10", 4)] {
        let names: Vec<String> = (0..members).map(|index| format!("{level}-{index}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let start = ["create", "tank", "--level", level, "--new-files", "16M", "--yes"];
        world.ok(&[&start[..], &names].concat());
        let theirs = world.tool("mdadm", &["mdadm", "--examine", names[1]]);
        let ours = &world.json(&["examine", names[1]])["disks"][0]["superblocks"][0];
        let has = |label: &str, value: &str| {
            let found = theirs.lines().any(|line| {
                let line = line.trim();
                line.strip_prefix(label)
                    .is_some_and(|rest| rest.trim_start_matches([' ', ':']).starts_with(value))
            });
            assert!(found, "{label} {value} in\n{theirs}");
        };
        has("Array UUID", ours["array_uuid"].as_str().unwrap());
        has("Device UUID", ours["member_uuid"].as_str().unwrap());
        has("Raid Level", ours["level"].as_str().unwrap());
        has("Name", "tank");
        has("Raid Devices", &ours["slots"].to_string());
        has("Events", &ours["events"].to_string());
        has("Device Role", "Active device 1");
        has("Array State", ours["slot_states"].as_str().unwrap());
        assert!(theirs.contains("correct"), "the checksum: {theirs}");
    }
}
