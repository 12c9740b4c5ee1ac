//! mdadm and Parapet read the same fields from every superblock that Parapet writes. Covers each
//! level, layout and superblock version; new, dirty, degraded, and half rebuilt.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::world::{World, not_tried, until};

/// Runs `mdadm --examine`; returns its fields by the text before the colon.
fn theirs(world: &World, member: &str) -> BTreeMap<String, String> {
    let out = world.tool("mdadm", &["env", "TZ=UTC", "mdadm", "--examine", member]);
    let field = |line: &str| {
        let (label, value) = line.split_once(" : ")?;
        Some((label.trim().to_owned(), value.trim().to_owned()))
    };
    out.lines().filter_map(field).collect()
}

/// Runs `parapet examine`; returns its JSON.
fn ours(world: &World, member: &str) -> Value {
    let found = world.json(&["examine", member]);
    let superblocks = found["disks"][0]["superblocks"].as_array().unwrap();
    assert_eq!(superblocks.len(), 1, "{found}");
    superblocks[0].clone()
}

/// Converts mdadm's date to Parapet's format.
fn date(text: &str) -> String {
    let civil = jiff::civil::DateTime::strptime("%a %b %d %H:%M:%S %Y", text);
    format!("{}Z", civil.expect(text))
}

/// Converts mdadm's layout name to Parapet's.
fn layout(text: &str) -> String {
    text.replace("near=", "n").replace("far=", "f").replace("offset=", "o")
}

/// Parses the number at the start.
fn number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect(text)
}

/// Compares every field that both programs show; returns Parapet's.
fn agree(world: &World, member: &str) -> Value {
    let (theirs, ours) = (theirs(world, member), ours(world, member));
    let value_of = |label: &str| {
        theirs.get(label).unwrap_or_else(|| panic!("no {label} in {theirs:?}")).clone()
    };
    let text = |field: &str| ours[field].as_str().unwrap_or_else(|| panic!("{field}: {ours}"));
    let count = |field: &str| ours[field].as_u64().unwrap_or_else(|| panic!("{field}: {ours}"));
    let sectors = |label: &str| number(&value_of(label)) * 512;
    assert_eq!(format!("md {}", value_of("Version")), text("version"));
    assert_eq!(value_of("Array UUID"), text("array_uuid"));
    assert_eq!(value_of("Device UUID"), text("member_uuid"));
    assert_eq!(value_of("Name"), text("array_name"));
    assert_eq!(date(&value_of("Creation Time")), text("created"));
    assert_eq!(date(&value_of("Update Time")), text("updated"));
    assert_eq!(value_of("Raid Level"), text("level"));
    assert_eq!(value_of("Raid Devices"), count("slots").to_string());
    assert_eq!(value_of("Events"), count("events").to_string());
    assert_eq!(sectors("Avail Dev Size"), count("data_bytes"));
    let offset = theirs.get("Data Offset").map_or(0, |text| number(text) * 512);
    assert_eq!(offset, count("data_offset"));
    assert_eq!(sectors("Super Offset"), count("offset"));
    assert!(value_of("Checksum").ends_with("- correct"), "{theirs:?}");
    let clean = value_of("State") == "clean";
    assert_eq!(ours["clean"], clean, "{theirs:?}");
    let role = value_of("Device Role").replace("Active device", "slot");
    assert_eq!(role.replace("Replacement device", "slot"), text("role"));
    let states = value_of("Array State");
    assert_eq!(states.split(' ').next(), Some(text("slot_states")));
    if let Some(theirs) = theirs.get("Layout") {
        assert_eq!(layout(theirs), text("layout"));
    }
    if let Some(theirs) = theirs.get("Chunk Size") {
        assert_eq!(number(theirs) * 1024, count("chunk_bytes"));
    }
    let behind = theirs.get("Recovery Offset").map(|text| number(text) * 512);
    assert_eq!(ours["recovered_bytes"].as_u64(), behind, "{theirs:?}");
    assert_eq!(theirs.contains_key("Internal Bitmap"), !ours["bitmap_chunk_bytes"].is_null());
    ours
}

/// Compares the bits with `mdadm --examine-bitmap`, which reads only devices.
fn same_bitmap(world: &World, member: &str, ours: &Value) {
    let made = world.try_tool("mount", &["losetup", "--find", "--show", "--read-only", member]);
    let device = made.out.trim();
    if made.code != 0 {
        return not_tried("makes a loop device");
    }
    let ran = world.try_tool("mdadm", &["mdadm", "--examine-bitmap", device]);
    world.tool("mount", &["losetup", "--detach", device]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let out = ran.out;
    let field = |label: &str| {
        let found = out.lines().find_map(|line| line.trim().strip_prefix(label)?.split_once(" : "));
        found.unwrap_or_else(|| panic!("no {label} in {out}")).1.to_owned()
    };
    assert_eq!(field("UUID"), ours["array_uuid"].as_str().unwrap());
    assert_eq!(field("Events"), ours["events"].to_string());
    let (chunk, unit) = (field("Chunksize"), ours["bitmap_chunk_bytes"].as_u64().unwrap());
    let scale = if chunk.ends_with("MB") { 1 << 20 } else { 1 << 10 };
    assert_eq!(number(&chunk) * scale, unit);
    // "448 bits (chunks), 3 dirty (0.7%)"
    let bits = field("Bitmap");
    let dirty = bits.split(", ").nth(1).expect(&bits);
    assert_eq!(number(dirty), ours["dirty_bits"].as_u64().unwrap(), "{bits}");
}

/// Creates an array of new files `level-layout-version-N`, and compares all of them.
fn made(world: &World, level: &str, layout: &str, members: usize, version: &str) {
    let name = |index| format!("{level}-{layout}-{version}-{index}");
    let names: Vec<String> = (0..members + 1).map(name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let start = ["create", "tank", "--level", level, "--metadata", version, "--yes"];
    let files = ["--new-files", "16M"];
    let layouts: &[&str] = if layout.is_empty() { &[] } else { &["--layout", layout] };
    // On levels with redundancy, the last disk is a spare.
    let spare: &[&str] = match level {
        "linear" | "0" => &names[members..],
        _ => &["--spare", names[members]],
    };
    let plan = world.json(&[&start[..], &files, layouts, &names[..members], spare].concat());
    for name in &names {
        let ours = agree(world, name);
        assert_eq!(ours["layout"], plan["layout"], "{level}");
        let theirs = theirs(world, name);
        if let Some(size) = theirs.get("Array Size") {
            let (size, ours) = (number(size) * 1024, plan["capacity_bytes"].as_u64().unwrap());
            // The kernel truncates each member of RAID 10 to whole chunks; mdadm does not.
            let slack = if level == "10" { members as u64 * (512 << 10) } else { 1 };
            assert!(ours <= size && size - ours < slack, "{level} {layout}: {ours}, {size}");
        }
        std::fs::remove_file(world.path(name)).unwrap();
    }
}

#[test]
fn every_level_and_version_of_the_superblock() {
    let world = World::new();
    for version in ["1.0", "1.1", "1.2"] {
        for (level, members) in
            [("linear", 3), ("0", 3), ("1", 2), ("4", 3), ("5", 4), ("6", 5), ("10", 4)]
        {
            made(&world, level, "", members, version);
        }
    }
}

#[test]
fn every_layout() {
    let world = World::new();
    let layouts = ["left-asymmetric", "right-asymmetric", "left-symmetric", "right-symmetric"];
    for layout in layouts.into_iter().chain(["parity-first", "parity-last"]) {
        made(&world, "5", layout, 4, "1.2");
        made(&world, "6", layout, 5, "1.2");
    }
    for layout in ["ddf-zero-restart", "ddf-N-restart", "ddf-N-continue", "left-symmetric-6"] {
        made(&world, "6", layout, 5, "1.2");
    }
    for layout in ["n2", "n3", "f2", "f3", "o2", "o3"] {
        made(&world, "10", layout, 5, "1.2");
    }
}

#[test]
fn dirty_degraded_and_half_rebuilt_members() {
    let world = World::new();
    for version in ["1.0", "1.1", "1.2"] {
        let members = world.create(
            "6",
            4,
            &["--metadata", version, "--bitmap", "64K", "--consistency", "bitmap"],
        );
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let slow = ["--speed-min", "64K", "--speed-max", "64K"];
        let server = world.serve(&[&["tank"], &names[..], &slow].concat());
        world.qemu_io(&["write -P 5 0 8M", "flush"]);
        world.order(&["fail", "tank", "1"]);
        until(|| {
            world.qemu_io(&["write -P 5 100k 4k"]);
            world.order(&["status", "tank"])["dirty"] == true
        });
        server.kill();
        let dirty = agree(&world, "m0");
        assert_eq!((&dirty["clean"], &dirty["slot_states"]), (&false.into(), &"A.AA".into()));
        assert!(dirty["dirty_bits"].as_u64().unwrap() > 0, "{dirty}");
        same_bitmap(&world, "m0", &dirty);
        agree(&world, "m1");
        world.file("new", 16 << 20);
        let allowed = ["tank", "m0", "m2", "m3", "--force-dirty-degraded"];
        let server = world.serve(&[&allowed[..], &slow].concat());
        world.order(&["add", "tank", "new"]);
        until(|| world.order(&["status", "tank"])["slots"][1]["state"] == "rebuilding");
        assert_eq!(server.terminate(), 0, "{}", world.log());
        let half = agree(&world, "new");
        assert!(half["recovered_bytes"].is_u64(), "{half}");
        assert_eq!(half["slot_states"], "AAAA");
        names.iter().chain(&["new"]).for_each(|name| {
            std::fs::remove_file(world.path(name)).unwrap();
        });
    }
}
