//! The write hole: servers that are killed in the middle of writes, and members that are lost
//! together with the crash.
//!
//! ```text
//!    stripe  | chunk 0: 4 KiB at its start are written, over and over | chunk 1: flushed once |
//! ```
//!
//! What is written and what was flushed long ago share the rows at the start of each stripe: parity
//! that a crash has cut would give wrong bytes for the latter, if its member is lost.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{Server, World, pattern, until};

const CHUNK: usize = 16 << 10;
const FLUSHED: usize = 8 << 20;
/// What is written meanwhile, from the start of each stripe.
const WRITTEN: usize = 4 << 10;

/// Makes an array of `members` with two data chunks in each stripe, fills the first 8 MiB, and
/// kills its server while the first block of each stripe is being written. Gives what was flushed.
fn killed_in_mid_write(world: &World, level: &str, members: &[String], more: &[&str]) -> Vec<u8> {
    world.create(level, members.len(), &[&["--chunk", "16K"], more].concat());
    filled_and_killed(world, members, members)
}

/// The same with an array that was made, of `members`, served from `disks`.
pub fn filled_and_killed(world: &World, members: &[String], disks: &[String]) -> Vec<u8> {
    let flushed = pattern(FLUSHED, 11);
    std::fs::write(world.path("data"), &flushed).unwrap();
    let server = world.serve_members(disks);
    world.nbdcopy("data", &world.uri());
    kill_in_mid_write(world, server, members);
    flushed
}

fn kill_in_mid_write(world: &World, server: Server, members: &[String]) {
    let before = written(world);
    let mut load = Command::new("fio")
        .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
        .args(["--blockalign=32k", "--size=8M", "--time_based", "--runtime=60"])
        .arg(format!("--uri={}", world.uri()))
        .current_dir(&world.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio is missing: install the package fio");
    until(|| written(world) > before + (16 << 20));
    server.kill();
    load.kill().unwrap();
    load.wait().unwrap();
    for member in members {
        let found = examined(world, member);
        assert_eq!(found["clean"], false, "killed in mid-write: {found}");
    }
}

/// Bytes written to all members since the array was started.
fn written(world: &World) -> u64 {
    let status = world.order(&["status", "tank"]);
    let slots = status["slots"].as_array().unwrap();
    slots.iter().map(|slot| slot["member"]["written_bytes"].as_u64().unwrap()).sum()
}

pub fn examined(world: &World, member: &str) -> Value {
    world.json(&["examine", member])["disks"][0]["superblocks"][0].clone()
}

/// Everything that was flushed and is not being written is there.
pub fn flushed_is_there(world: &World, flushed: &[u8], what: &str) {
    let wrong = wrong_stripes(world, flushed);
    assert!(wrong.is_empty(), "{what}: stripes at {wrong:?}\n{}", world.log());
}

/// Where something that was flushed and is not being written is not there any more.
fn wrong_stripes(world: &World, flushed: &[u8]) -> Vec<usize> {
    let found = world.content();
    let kept = |stripe: usize| stripe + WRITTEN..stripe + 2 * CHUNK;
    let stripes = (0..flushed.len()).step_by(2 * CHUNK);
    stripes.filter(|&stripe| found[kept(stripe)] != flushed[kept(stripe)]).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("m{index}")).collect()
}

/// Does this with the members as they are now, and puts them back as they were.
fn with_copies(world: &World, members: &[String], what: impl FnOnce()) {
    let copy = |from: &str, to: &str| {
        let ran = world.tool("coreutils", &["cp", "--sparse=always", from, to]);
        assert!(ran.is_empty());
    };
    members.iter().for_each(|member| copy(member, &format!("{member}.kept")));
    what();
    members.iter().for_each(|member| copy(&format!("{member}.kept"), member));
}

/// The array is killed in mid-write; without these members, at once and without force, all that was
/// flushed is there.
fn lost_with_the_crash(level: &str, count: usize, losses: &[&[usize]], more: &[&str]) {
    let world = World::new();
    let members = names(count);
    let flushed = killed_in_mid_write(&world, level, &members, more);
    // On RAID 4 only the last one has parity.
    let log = &examined(&world, members.last().unwrap())["log"];
    assert!(log["records"].as_u64().unwrap() > 0, "{log}");
    for lost in losses {
        with_copies(&world, &members, || {
            let left: Vec<&str> = (0..count)
                .filter(|slot| !lost.contains(slot))
                .map(|slot| members[slot].as_str())
                .collect();
            let server = world.serve(&[&["tank", "--degraded"], &left[..]].concat());
            flushed_is_there(&world, &flushed, &format!("RAID {level} without {lost:?}"));
            let status = world.order(&["status", "tank"]);
            assert!(status["replay"]["rows"].as_u64().unwrap() > 0, "{status}");
            assert_eq!(
                (&status["unsynced_bytes"], &status["consistency"]),
                (&0.into(), &"intent".into())
            );
            assert_eq!(server.terminate(), 0, "{}", world.log());
            // What the log said holds when it is started again, too.
            let server = world.serve(&[&["tank"], &left[..]].concat());
            flushed_is_there(&world, &flushed, "started again");
            assert_eq!(server.terminate(), 0, "{}", world.log());
        });
    }
    // Complete, it is compared again, and nothing is found that would have to be repaired.
    let server = world.serve_members(&members);
    flushed_is_there(&world, &flushed, "complete");
    assert_eq!(world.settle()["unsynced_bytes"], 0);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.settle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_raid_5_that_loses_a_member_with_the_crash_has_all_that_was_flushed() {
    lost_with_the_crash("5", 3, &[&[0], &[1], &[2]], &[]);
}

#[test]
fn a_raid_6_that_loses_two_members_with_the_crash_has_all_that_was_flushed() {
    lost_with_the_crash("6", 4, &[&[0], &[0, 1], &[1, 2], &[2, 3]], &[]);
}

#[test]
fn a_raid_4_that_loses_a_member_with_the_crash_has_all_that_was_flushed() {
    lost_with_the_crash("4", 3, &[&[0], &[1]], &["--metadata", "1.0"]);
}

#[test]
fn md_s_partial_parity_log_keeps_all_that_was_flushed_too() {
    let world = World::new();
    let members = names(3);
    let flushed = killed_in_mid_write(&world, "5", &members, &["--consistency", "ppl"]);
    for lost in 0..3 {
        with_copies(&world, &members, || {
            let left = (0..3).filter(|&slot| slot != lost).map(|slot| members[slot].as_str());
            let left: Vec<&str> = left.collect();
            let server = world.serve(&[&["tank", "--degraded"], &left[..]].concat());
            flushed_is_there(&world, &flushed, &format!("md's log, without {lost}"));
            let status = world.order(&["status", "tank"]);
            assert!(status["replay"]["rows"].as_u64().unwrap() > 0, "{status}");
            assert_eq!(status["consistency"], "ppl");
            assert_eq!(server.terminate(), 0, "{}", world.log());
        });
    }
}

#[test]
fn assemble_settles_from_the_log_and_says_so_and_redundancy_is_there_meanwhile() {
    let world = World::new();
    let members = names(3);
    let flushed = killed_in_mid_write(&world, "5", &members, &[]);
    with_copies(&world, &members, || {
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let slow = ["--speed-min", "64K", "--speed-max", "64K"];
        let server = world.serve(&[&["tank"], &names[..], &slow].concat());
        let status = world.order(&["status", "tank"]);
        assert_eq!((&status["verifying"], &status["redundancy_left"]), (&true.into(), &1.into()));
        assert!(!status["problems"].to_string().contains("PPT-8011"), "{status}");
        assert!(world.log().contains("intent log replayed"), "{}", world.log());
        // The resync has hardly begun, and a member may go all the same.
        world.order(&["fail", "tank", "1"]);
        flushed_is_there(&world, &flushed, "failed while it is verified");
        assert_eq!(server.terminate(), 0, "{}", world.log());
    });
    with_copies(&world, &members, || {
        let out = world.ok(&["assemble", "tank", "m0", "m2", "--degraded"]);
        assert!(out.contains("intent log replayed"), "{out}");
        assert!(out.contains("replayed and stopped; all members are marked clean"), "{out}");
        let found = examined(&world, "m0");
        assert_eq!((&found["clean"], &found["log"]["records"]), (&true.into(), &0.into()));
    });
    let told = world.json(&["assemble", "tank", "m0", "m1", "m2"]);
    assert!(told["array"]["replay"]["rows"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(told["array"]["unsynced_bytes"], 0, "{told}");
}

#[test]
fn a_log_whose_header_is_destroyed_is_of_no_use_and_that_is_said_with_the_way_out() {
    let world = World::new();
    let members = names(3);
    let flushed = killed_in_mid_write(&world, "5", &members, &[]);
    let mut bytes = std::fs::read(world.path("m1")).unwrap();
    let headers: Vec<usize> =
        (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..].starts_with(b"Pprivate")).collect();
    assert_eq!(headers.len(), 2, "both copies were written");
    headers.iter().for_each(|&at| bytes[at..at + 4096].fill(0x5a));
    std::fs::write(world.path("m1"), bytes).unwrap();
    let found = examined(&world, "m1");
    assert_eq!((&found["private_area"], &found["log"]), (&false.into(), &Value::Null));
    assert!(found["private_fault"].as_str().unwrap().contains("magic"), "{found}");
    useless(&world, &members, &flushed, "private area of m1 has no header");
}

#[test]
fn a_log_is_of_no_use_when_somebody_else_has_run_the_array_to_the_same_event_number() {
    let world = World::new();
    let members = names(3);
    let flushed = killed_in_mid_write(&world, "5", &members, &[]);
    let events = examined(&world, "m0")["events"].clone();
    for member in &members {
        // As a kernel leaves it: no microseconds.
        edit_superblock(&world, member, |superblock| superblock[197..200].fill(0));
        let found = examined(&world, member);
        assert_eq!((&found["events"], &found["private_area"]), (&events, &false.into()));
        let fault = found["private_fault"].as_str().unwrap();
        assert!(fault.contains("another system has run the array"), "{fault}");
    }
    useless(&world, &members, &flushed, "another system has run the array since");
}

/// Degraded, the array is refused, with the reason and the way out; complete, it is resynced.
fn useless(world: &World, members: &[String], flushed: &[u8], why: &str) {
    let serve = ["serve", "tank", "m0", "m1", "--degraded", "--control", "unix:c.sock"];
    let message = world.refused(&serve, 3, "PPT-3005");
    assert!(message.contains(why) && message.contains("--force-dirty-degraded"), "{message}");
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let slow = ["--speed-min", "64K", "--speed-max", "64K"];
    let server = world.serve(&[&["tank"], &names[..], &slow].concat());
    let status = world.order(&["status", "tank"]);
    assert!(status["unsynced_bytes"].as_u64().unwrap() > 0, "{status}");
    assert_eq!((&status["verifying"], &status["replay"]), (&false.into(), &Value::Null));
    let problems = status["problems"].to_string();
    assert!(problems.contains("PPT-8011") && problems.contains(why), "{problems}");
    assert!(world.log().contains("resynced instead"), "{}", world.log());
    let control = format!("--control=unix:{}", world.path("control.sock").display());
    let health = world.run(&["health", "tank", &control]);
    assert!(health.out.contains(why), "{health:?}");
    flushed_is_there(world, flushed, "complete");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.settle();
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.settle()["last_scrub"]["mismatches"], 0);
    // From the next start on the log is of use again.
    kill_in_mid_write(world, server, members);
    let server = world.serve(&["tank", "m1", "m2", "--degraded"]);
    flushed_is_there(world, flushed, "without m0");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

/// Changes a superblock of version 1.2 and makes its checksum right: the sum of its words of 32
/// bits, its own taken as zero, the upper half added to the lower one.
pub fn edit_superblock(world: &World, member: &str, edit: impl FnOnce(&mut [u8])) {
    let mut bytes = std::fs::read(world.path(member)).unwrap();
    let superblock = &mut bytes[4096..8192];
    edit(superblock);
    superblock[216..220].fill(0);
    let devices = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
    let words = superblock[..256 + 2 * devices].chunks(4);
    let word =
        |chunk: &[u8]| chunk.iter().rev().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
    let sum: u64 = words.map(word).sum();
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    superblock[216..220].copy_from_slice(&(sum as u32).to_le_bytes());
    std::fs::write(world.path(member), bytes).unwrap();
}

/// The first block of so many stripes is written, and not flushed: few enough that the log does not
/// ask for a flush by itself.
const STRIPES: usize = 12;

/// What a member is after a power cut: of each sector of its data that was written and not flushed,
/// the old bytes or the new ones. All else was durable at once.
fn torn(before: &[u8], after: &[u8], data_offset: usize, seed: u64) -> Vec<u8> {
    let mut torn = after.to_vec();
    let choices = pattern(after.len() / 512, seed);
    for (sector, choice) in choices.iter().enumerate() {
        let bytes = sector * 512..(sector + 1) * 512;
        if bytes.start >= data_offset && choice & 1 == 0 {
            torn[bytes.clone()].copy_from_slice(&before[bytes]);
        }
    }
    torn
}

/// Blocks that share their rows with what was flushed long ago are written, the power fails, and
/// members are lost with it, in several ways. Gives how many stripes of what was flushed were wrong
/// in all.
fn torn_by_a_power_cut(level: &str, losses: &[&[usize]], policy: &str) -> usize {
    let world = World::new();
    let members = names(if level == "6" { 4 } else { 3 });
    world.create(level, members.len(), &["--chunk", "16K", "--consistency", policy]);
    let flushed = pattern(FLUSHED, 12);
    std::fs::write(world.path("data"), &flushed).unwrap();
    let server = world.serve_members(&members);
    world.nbdcopy("data", &world.uri());
    // Its log begins anew: one that is filling up would be flushed in the middle.
    assert_eq!(server.terminate(), 0, "{}", world.log());
    let server = world.serve_members(&members);
    let (before, after) = written_and_not_flushed(&world, server, &members);
    let start = examined(&world, &members[0])["data_offset"].as_u64().unwrap() as usize;
    let mut wrong = 0;
    for seed in 1..=4 {
        for lost in losses {
            for (index, member) in members.iter().enumerate() {
                let torn = torn(&before[index], &after[index], start, seed * 64 + index as u64);
                std::fs::write(world.path(member), torn).unwrap();
            }
            let there = (0..members.len()).filter(|slot| !lost.contains(slot));
            let left: Vec<&str> = there.map(|slot| members[slot].as_str()).collect();
            let force: &[&str] =
                if policy == "bitmap" { &["--force-dirty-degraded"] } else { &["--degraded"] };
            let server = world.serve(&[&["tank"], force, &left[..]].concat());
            wrong += wrong_stripes(&world, &flushed).len();
            assert_eq!(server.terminate(), 0, "{}", world.log());
        }
    }
    wrong
}

/// Writes the first block of some stripes, without a flush, and kills the server. Gives what the
/// members held before, and after.
fn written_and_not_flushed(
    world: &World,
    mut server: Server,
    members: &[String],
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let read = || -> Vec<Vec<u8>> {
        members.iter().map(|member| std::fs::read(world.path(member)).unwrap()).collect()
    };
    let uri = world.uri();
    // `unsafe`: nothing is flushed, not at the end either.
    let start = ["qemu-io", "-f", "raw", "-t", "unsafe"].map(String::from);
    let writes = (0..STRIPES).map(|stripe| format!("write -P 9 {} 4k", stripe * 2 * CHUNK));
    let writes = writes.flat_map(|write| ["-c".to_string(), write]);
    let words: Vec<String> = start.into_iter().chain(writes).chain([uri]).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    loop {
        until(|| world.order(&["status", "tank"])["dirty"] == false);
        let (before, events) = (read(), examined(world, &members[0])["events"].as_u64().unwrap());
        world.tool("qemu-utils", &words);
        server.kill();
        let after = examined(world, &members[0]);
        if after["clean"] == false && after["events"] == events + 1 {
            return (before, read());
        }
        // Too slow: some of it was flushed and marked clean before it was killed.
        server = world.serve_members(members);
    }
}

#[test]
fn what_was_flushed_is_never_wrong_in_rows_that_a_power_cut_tears() {
    assert_eq!(torn_by_a_power_cut("5", &[&[0], &[1], &[2]], "intent"), 0);
    assert_eq!(torn_by_a_power_cut("6", &[&[0, 1], &[1, 2]], "intent"), 0);
    assert_eq!(torn_by_a_power_cut("5", &[&[0], &[1], &[2]], "journal"), 0);
    // This is the hole that the log closes.
    assert!(torn_by_a_power_cut("5", &[&[1]], "bitmap") > 0);
}
