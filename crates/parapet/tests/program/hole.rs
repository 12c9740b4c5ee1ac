//! The write hole: servers killed during writes, and members lost in the same crash.
//!
//! ```text
//!    stripe  | chunk 0: 4 KiB at its start are written, over and over | chunk 1: flushed once |
//! ```
//!
//! The new writes and the flushed data share the rows at the start of each stripe. If a crash tears
//! the parity of such a row, it would compute wrong bytes for a lost member's flushed data.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{Server, World, pattern, until};

const CHUNK: usize = 16 << 10;
const FLUSHED: usize = 8 << 20;
/// Bytes written meanwhile, from the start of each stripe.
const WRITTEN: usize = 4 << 10;

/// Creates an array of `members` with two data chunks in each stripe, and fills the first 8 MiB.
/// Kills its server during writes to the first block of each stripe. Returns the flushed data.
fn killed_in_mid_write(world: &World, level: &str, members: &[String], more: &[&str]) -> Vec<u8> {
    world.create(level, members.len(), &[&["--chunk", "16K"], more].concat());
    filled_and_killed(world, members, members)
}

/// The same with an existing array of `members`, served from `disks`.
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

/// Returns the bytes written to all members since the start of the array.
fn written(world: &World) -> u64 {
    let status = world.order(&["status", "tank"]);
    let slots = status["slots"].as_array().unwrap();
    slots.iter().map(|slot| slot["member"]["written_bytes"].as_u64().unwrap()).sum()
}

pub fn examined(world: &World, member: &str) -> Value {
    world.json(&["examine", member])["disks"][0]["superblocks"][0].clone()
}

/// Checks that all flushed data outside the new writes is intact.
pub fn flushed_is_there(world: &World, flushed: &[u8], what: &str) {
    let wrong = wrong_stripes(world, flushed);
    assert!(wrong.is_empty(), "{what}: stripes at {wrong:?}\n{}", world.log());
}

/// Returns the stripes with wrong flushed data outside the new writes.
fn wrong_stripes(world: &World, flushed: &[u8]) -> Vec<usize> {
    let found = world.content();
    let kept = |stripe: usize| stripe + WRITTEN..stripe + 2 * CHUNK;
    let stripes = (0..flushed.len()).step_by(2 * CHUNK);
    stripes.filter(|&stripe| found[kept(stripe)] != flushed[kept(stripe)]).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("m{index}")).collect()
}

/// Runs this on the members as they are now, then restores them.
fn with_copies(world: &World, members: &[String], what: impl FnOnce()) {
    let copy = |from: &str, to: &str| {
        let ran = world.tool("coreutils", &["cp", "--sparse=always", from, to]);
        assert!(ran.is_empty());
    };
    members.iter().for_each(|member| copy(member, &format!("{member}.kept")));
    what();
    members.iter().for_each(|member| copy(&format!("{member}.kept"), member));
}

/// Kills the array during writes and removes these members. A start without force must return all
/// flushed data.
fn lost_with_the_crash(level: &str, count: usize, losses: &[&[usize]], more: &[&str]) {
    let world = World::new();
    let members = names(count);
    let flushed = killed_in_mid_write(&world, level, &members, more);
    // On RAID 4 only the last member has parity.
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
            // The result of the replay must survive a restart.
            let server = world.serve(&[&["tank"], &left[..]].concat());
            flushed_is_there(&world, &flushed, "started again");
            assert_eq!(server.terminate(), 0, "{}", world.log());
        });
    }
    // With all members, a scrub must find nothing to repair.
    let server = world.serve_members(&members);
    flushed_is_there(&world, &flushed, "complete");
    assert_eq!(world.wait_until_idle()["unsynced_bytes"], 0);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
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
        // The resync has hardly begun, and the array can still lose a member.
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
    let report = world.json(&["assemble", "tank", "m0", "m1", "m2"]);
    assert!(report["array"]["replay"]["rows"].as_u64().unwrap() > 0, "{report}");
    assert_eq!(report["array"]["unsynced_bytes"], 0, "{report}");
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
    useless(&world, &members, &flushed, "m1 has no header");
}

#[test]
fn a_log_is_of_no_use_when_somebody_else_has_run_the_array_to_the_same_event_number() {
    let world = World::new();
    let members = names(3);
    let flushed = killed_in_mid_write(&world, "5", &members, &[]);
    let events = examined(&world, "m0")["events"].clone();
    for member in &members {
        // Write the time as a kernel does: without microseconds.
        edit_superblock(&world, member, |superblock| superblock[197..200].fill(0));
        let found = examined(&world, member);
        assert_eq!((&found["events"], &found["private_area"]), (&events, &false.into()));
        let fault = found["private_fault"].as_str().unwrap();
        assert!(fault.contains("another system has run the array"), "{fault}");
    }
    useless(&world, &members, &flushed, "another system has run the array since");
}

/// Degraded, the array is refused with the reason and a remedy; complete, it is resynced.
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
    world.wait_until_idle();
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    // From the next start on, the log is usable again.
    kill_in_mid_write(world, server, members);
    let server = world.serve(&["tank", "m1", "m2", "--degraded"]);
    flushed_is_there(world, flushed, "without m0");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

/// Edits a superblock of version 1.2 and updates its checksum. The checksum is the sum of all
/// 32-bit words, with its own taken as zero and the upper half added to the lower one.
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

/// Number of stripes whose first block is written and not flushed: few enough that the log does not
/// request a flush by itself.
const STRIPES: usize = 12;

/// Returns a member after a power failure. Each sector of unflushed data has either its old or its
/// new bytes; all other writes were durable at once.
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

/// Writes blocks that share their rows with flushed data. Then the power fails and members are
/// lost, in several ways. Returns the total number of stripes with wrong flushed data.
fn torn_by_a_power_cut(level: &str, losses: &[&[usize]], policy: &str) -> usize {
    let world = World::new();
    let members = names(if level == "6" { 4 } else { 3 });
    world.create(level, members.len(), &["--chunk", "16K", "--consistency", policy]);
    let flushed = pattern(FLUSHED, 12);
    std::fs::write(world.path("data"), &flushed).unwrap();
    let server = world.serve_members(&members);
    world.nbdcopy("data", &world.uri());
    // Empty the log first: a log near its limit would be flushed during the writes.
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

/// Writes the first block of some stripes without a flush, and kills the server. Returns the
/// contents of the members before and after.
fn written_and_not_flushed(
    world: &World,
    mut server: Server,
    members: &[String],
) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let read = || -> Vec<Vec<u8>> {
        members.iter().map(|member| std::fs::read(world.path(member)).unwrap()).collect()
    };
    let uri = world.uri();
    // `unsafe`: qemu-io never flushes, not even at the end.
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
        // The run was too slow: the server flushed and marked some writes clean before the kill.
        server = world.serve_members(members);
    }
}

#[test]
fn what_was_flushed_is_never_wrong_in_rows_that_a_power_cut_tears() {
    assert_eq!(torn_by_a_power_cut("5", &[&[0], &[1], &[2]], "intent"), 0);
    assert_eq!(torn_by_a_power_cut("6", &[&[0, 1], &[1, 2]], "intent"), 0);
    assert_eq!(torn_by_a_power_cut("5", &[&[0], &[1], &[2]], "journal"), 0);
    // Without the log, this is the write hole.
    assert!(torn_by_a_power_cut("5", &[&[1]], "bitmap") > 0);
}
