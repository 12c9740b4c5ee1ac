//! Block checksums: corrupt blocks never reach the client, and are repaired.

use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::hole::{edit_superblock, examined};
use crate::world::{World, pattern, until};

const BLOCK: usize = 4096;
const DATA: usize = 4 << 20;

/// Creates an array of three with default options, fills it with a pattern, and stops it. Checksums
/// are on by default.
pub fn filled(world: &World) -> (Vec<String>, Vec<u8>) {
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let data = pattern(DATA, 3);
    std::fs::write(world.path("data"), &data).unwrap();
    let server = world.serve_members(&members);
    world.nbdcopy("data", &world.uri());
    assert_eq!(server.terminate(), 0, "{}", world.log());
    (members, data)
}

/// Returns the member that stores this block of the array, and its position.
pub fn find(world: &World, members: &[String], block: &[u8]) -> (usize, u64) {
    let found = members.iter().enumerate().find_map(|(slot, member)| {
        let bytes = std::fs::read(world.path(member)).unwrap();
        let at = bytes.chunks(BLOCK).position(|chunk| chunk == block)?;
        Some((slot, (at * BLOCK) as u64))
    });
    found.expect("a member has the data")
}

/// Flips a byte of a member; a second call restores it.
pub fn flip(world: &World, member: &str, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(world.path(member)).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn byte(world: &World, member: &str, at: u64) -> u8 {
    std::fs::read(world.path(member)).unwrap()[at as usize]
}

fn holds(world: &World, data: &[u8]) {
    assert!(world.content()[..data.len()] == *data, "{}", world.log());
}

fn repaired(world: &World, slot: usize) -> u64 {
    let status = world.order(&["status", "tank"]);
    status["slots"][slot]["member"]["repaired_bytes"].as_u64().unwrap()
}

#[test]
fn rot_is_never_read_and_is_counted_and_repaired() {
    let world = World::new();
    let (members, data) = filled(&world);
    assert_eq!(examined(&world, "m0")["checksums"], true);
    assert!(world.ok(&["examine", "m0"]).contains("checksums"));
    let (slot, at) = find(&world, &members, &data[5 * BLOCK..6 * BLOCK]);
    flip(&world, &members[slot], at + 77);
    let server = world.serve_members(&members);
    assert_eq!(repaired(&world, slot), 0);
    holds(&world, &data);
    assert_eq!(repaired(&world, slot), BLOCK as u64, "{}", world.log());
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0, "{}", world.log());
    assert_eq!(byte(&world, &members[slot], at + 77), data[5 * BLOCK + 77]);
}

#[test]
fn a_scrub_finds_rot_that_nobody_reads_and_says_on_whom() {
    let world = World::new();
    let (members, data) = filled(&world);
    let data_offset = examined(&world, "m0")["data_offset"].as_u64().unwrap();
    // Corrupt one block on each member, each in another row; on one member it is parity.
    for (number, member) in members.iter().enumerate() {
        flip(&world, member, data_offset + (number * BLOCK) as u64);
    }
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "repair"]);
    let scrub = &world.wait_until_idle()["last_scrub"];
    assert_eq!((&scrub["mismatches"], &scrub["guessed_bytes"]), (&3.into(), &0.into()), "{scrub}");
    let mut named: Vec<u64> = Vec::new();
    let findings = scrub["findings"].as_array().unwrap();
    findings.iter().for_each(|found| named.push(found["slot"].as_u64().unwrap()));
    named.sort_unstable();
    assert_eq!(named, [0, 1, 2], "{scrub}");
    holds(&world, &data);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn they_are_taken_up_and_given_up_at_any_start_and_stay_so() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--checksums", "off"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    assert_eq!(examined(&world, "m0")["checksums"], false);
    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["unsummed_bytes"], Value::Null);
    world.qemu_io(&["write -P 5 0 1M", "flush"]);
    assert_eq!(server.terminate(), 0);

    let server = world.serve(&[&["tank", "--checksums", "on"], &names[..]].concat());
    world.qemu_io(&["read -P 5 0 1M", "write -P 6 0 64k", "flush"]);
    assert_eq!(world.wait_until_idle()["unsummed_bytes"], 0);
    assert_eq!(server.terminate(), 0, "{}", world.log());
    assert_eq!(examined(&world, "m2")["checksums"], true);
    // A start without a checksum option leaves checksums on.
    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["unsummed_bytes"], 0);
    assert_eq!(server.terminate(), 0, "{}", world.log());

    world.ok(&[&["assemble", "tank", "--checksums", "off"], &names[..]].concat());
    assert_eq!(examined(&world, "m0")["checksums"], false);
    world.ok(&[&["assemble", "tank", "--checksums", "on"], &names[..]].concat());
    assert_eq!(examined(&world, "m0")["checksums"], true);
    let server = world.serve_members(&members);
    assert_eq!(world.wait_until_idle()["unsummed_bytes"], 0);
    world.qemu_io(&["read -P 6 0 64k", "read -P 5 64k 960k"]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn where_they_cannot_be_kept_that_is_said_before_anything_is_made() {
    let world = World::new();
    let start = ["create", "tank", "--new-files", "16M", "--yes", "--checksums", "on"];
    for (level, more, why) in [
        ("0", &["a", "b"][..], "levels with redundancy"),
        ("5", &["--consistency", "ppl", "a", "b", "c"], "partial parity log"),
    ] {
        let flags = ["--level", level];
        let report = world.refused(&[&start[..], &flags, more].concat(), 2, "PPT-2002");
        assert!(report.contains(why), "{report}");
        assert!(!world.path("a").exists());
    }
    let members = world.create("0", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let report = world.refused(
        &[&["assemble", "tank", "--checksums", "on"], &names[..]].concat(),
        3,
        "PPT-3005",
    );
    assert!(report.contains("levels with redundancy"), "{report}");
}

#[test]
fn what_another_engine_wrote_is_trusted_and_checksummed_anew_while_it_is_served() {
    let world = World::new();
    let (members, mut data) = filled(&world);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    // Write the first block of the array and its parity as another engine would: without checksums,
    // but with its own event count.
    let (slot, at) = find(&world, &members, &data[..BLOCK]);
    let data_offset = examined(&world, "m0")["data_offset"].as_u64().unwrap();
    let second = find(&world, &members, &data[4 * BLOCK..5 * BLOCK]).0;
    let parity = 3 - slot - second;
    assert_eq!(at, data_offset, "the first block of its member");
    [slot, parity].into_iter().for_each(|slot| flip(&world, &members[slot], at));
    data[0] ^= 0x10;
    for member in &members {
        edit_superblock(&world, member, |superblock| {
            // Increment the event count, and write the time without Parapet's tag.
            let events = u64::from_le_bytes(superblock[200..208].try_into().unwrap());
            superblock[200..208].copy_from_slice(&(events + 2).to_le_bytes());
            superblock[197..200].fill(0);
        });
    }
    assert_eq!(examined(&world, "m0")["private_area"], false);

    let server = world
        .serve(&[&["tank"], &names[..], &["--speed-min", "64K", "--speed-max", "64K"]].concat());
    let status = world.order(&["status", "tank"]);
    assert!(status["unsummed_bytes"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(status["state"], "healthy", "{status}");
    assert_eq!(status["job"]["kind"], "checksum", "{status}");
    let control = format!("--control=unix:{}", world.path("control.sock").display());
    assert!(world.ok(&["status", "tank", &control]).contains("have none yet"));
    holds(&world, &data);
    assert_eq!(server.terminate(), 0, "{}", world.log());

    // The partial progress is kept; at full speed the job completes.
    let server = world.serve_members(&members);
    until(|| world.order(&["status", "tank"])["unsummed_bytes"] == 0);
    holds(&world, &data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
    flip(&world, &members[slot], at + 9);
    let server = world.serve_members(&members);
    holds(&world, &data);
    assert_eq!(repaired(&world, slot), BLOCK as u64, "checked like any other again");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

/// A run of bad blocks is one line of the log with its cause, not a line for each block.
#[test]
fn repairs_are_told_together_with_their_cause() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    let data = crate::world::pattern(8 << 20, 5);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    let examined = world.json(&["examine", "m1"]);
    let data_offset = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap();
    let file = std::fs::File::options().write(true).open(world.path("m1")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[0x5a; 256 << 10], data_offset).unwrap();
    assert!(world.content()[..data.len()] == data);
    crate::world::until(|| world.log().contains("rewritten from the others"));
    assert_eq!(server.terminate(), 0);
    let log = world.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("rewritten")).collect();
    assert!(lines.len() <= 2, "{log}");
    let line = lines[0];
    assert!(line.contains("WARN") && line.contains("/m1 (slot 1): "), "{line}");
    assert!(line.contains("did not match their checksums"), "{line}");
}
