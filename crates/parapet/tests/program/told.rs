//! What the program says: true, in order of weight, and no more than what is wrong.

use crate::world::{Ran, World, until};

/// The answer of `health`.
fn health(world: &World) -> Ran {
    world.run(&["health", "tank", "--control", "control.sock"])
}

/// Changes a byte of the data on this member.
fn spoil(world: &World, member: &str, at: usize) {
    let examined = world.json(&["examine", member]);
    let start = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap();
    let mut bytes = std::fs::read(world.path(member)).unwrap();
    bytes[start as usize + at] ^= 1;
    std::fs::write(world.path(member), bytes).unwrap();
}

#[test]
fn stop_says_how_the_array_rests() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    for (flags, said) in [
        (&["--read-only"][..], "read-only"),
        (&["--parity", "off"], "parity was off"),
        (&[], "all its members are marked clean"),
    ] {
        let server = world.serve(&[&["tank"], &names[..], flags].concat());
        let told = world.order(&["stop", "tank"])["message"].to_string();
        assert!(told.contains(said), "{flags:?}: {told}");
        assert_eq!(server.wait(), 0);
    }
}

#[test]
fn health_calls_nobody_for_a_scrub_or_for_what_was_repaired() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    spoil(&world, "m2", 100_000);
    spoil(&world, "m1", 300_000);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank", "check"]);
    let told = health(&world);
    assert!(told.code == 0 && told.out.contains("check "), "{told:?}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.settle();
    let told = health(&world);
    assert!(told.code == 1 && told.out.contains("members disagree"), "{told:?}");
    assert!(!told.out.contains("healthy"), "{told:?}");
    world.order(&["scrub", "tank", "repair"]);
    world.settle();
    let told = health(&world);
    assert!(told.code == 0 && told.out.contains("tank is healthy"), "{told:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_most_that_is_less_than_the_least_of_before_lowers_it() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank"], &names[..], &["--speed-max", "8M"]].concat());
    let speed = || world.order(&["status", "tank"])["speed"].clone();
    assert_eq!(speed(), serde_json::json!({ "min": 8 << 20, "max": 8 << 20 }));
    world.order(&["speed", "tank", "--speed-max", "4M"]);
    assert_eq!(speed(), serde_json::json!({ "min": 4 << 20, "max": 4 << 20 }));
    world.order_refused(&["speed", "tank", "--speed-min", "5M"], 2, "PPT-2001");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn status_shows_a_few_mismatches_and_counts_the_others() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--checksums", "off"]);
    (0..7).for_each(|index| spoil(&world, "m1", 200_000 * index));
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.settle()["last_scrub"]["mismatches"], 7);
    let told = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(told.contains("and 2 more (parapet status --json)"), "{told}");
    assert!(!told.contains("of its disk"), "which disk is not known: {told}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn status_shows_what_the_write_back_cache_holds() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let flags = ["--cache", "writeback", "--threads", "2"];
    let server = world.serve(&[&["tank"], &names[..], &flags].concat());
    let status = world.order(&["status", "tank"]);
    assert_eq!((&status["cache"], &status["threads"]), (&"writeback".into(), &2.into()));
    assert!(status["cached_bytes"].is_u64(), "{status}");
    let told = world.ok(&["status", "tank", "-v", "--control", "control.sock"]);
    assert!(told.contains("writeback, ") && told.contains("threads  2"), "{told}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn advice_is_what_helps_now() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    spoil(&world, "m1", 300_000);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank"]);
    let message = world.order_refused(&["scrub", "tank"], 3, "PPT-3006");
    assert!(message.contains("parapet scrub tank stop"), "{message}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.settle();
    world.order(&["fail", "tank", "3"]);
    let problems = world.order(&["status", "tank"])["problems"].to_string();
    assert!(problems.contains("PPT-8005") && !problems.contains("repair"), "{problems}");
    assert!(problems.contains("parapet re-add tank m3"), "{problems}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn what_stays_unsynced_is_not_waited_for_and_stop_says_so() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--consistency", "bitmap"]);
    let server = world.serve_members(&members);
    let mut load = std::process::Command::new("fio")
        .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
        .args(["--size=8M", "--time_based", "--runtime=30"])
        .arg(format!("--uri={}", world.uri()))
        .current_dir(&world.folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("fio is missing: install the package fio");
    until(|| world.order(&["status", "tank"])["dirty"] == true);
    server.kill();
    load.kill().unwrap();
    load.wait().unwrap();
    let vain = ["wait", "tank", "--for", "resync", "--timeout", "60", "--quiet"];

    let server = world.serve(&["tank", "m0", "m1", "m2", "--read-only"]);
    let message = world.order_refused(&vain, 3, "PPT-3006");
    assert!(message.contains("read-only"), "{message}");
    let told = world.order(&["stop", "tank"])["message"].to_string();
    assert!(told.contains("read-only"), "{told}");
    assert_eq!(server.wait(), 0);

    let server = world.serve(&["tank", "m0", "m1", "--force-dirty-degraded"]);
    let message = world.order_refused(&vain, 3, "PPT-3006");
    assert!(message.contains("a member is missing") && message.contains("parapet"), "{message}");
    let problems = world.order(&["status", "tank"])["problems"].to_string();
    assert!(!problems.contains("--for resync"), "{problems}");
    let told = world.order(&["stop", "tank"])["message"].to_string();
    assert!(told.contains("are not in sync"), "{told}");
    assert_eq!(server.wait(), 0);

    // With all that it needs it waits until nothing is left, and begins before the work does.
    let server = world.serve(&["tank", "m0", "m1", "--degraded", "--force-dirty-degraded"]);
    world.file("new", 16 << 20);
    world.order(&["add", "tank", "new"]);
    let array = world.order(&vain)["array"].clone();
    assert_eq!((&array["unsynced_bytes"], &array["state"]), (&0.into(), &"healthy".into()));
    let told = world.order(&["stop", "tank"])["message"].to_string();
    assert!(told.contains("all its members are marked clean"), "{told}");
    assert_eq!(server.wait(), 0);
}

/// A kernel lists blocks that the others still have: nothing is lost.
#[test]
fn bad_blocks_that_the_others_have_are_made_good_by_a_repair() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let mut bytes = std::fs::read(world.path("m1")).unwrap();
    let superblock = &bytes[4096..];
    let log_sector = 8 + u64::from(superblock[188]);
    let data_sector = u64::from_le_bytes(superblock[128..136].try_into().unwrap());
    let entry = (data_sector + 2048) << 10 | 8;
    bytes[log_sector as usize * 512..][..8].copy_from_slice(&entry.to_le_bytes());
    std::fs::write(world.path("m1"), bytes).unwrap();
    let server = world.serve_members(&members);
    let status = world.order(&["status", "tank"]);
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8016", "{status}");
    assert!(problem["action"].as_str().unwrap().contains("scrub tank repair"), "{problem}");
    assert!(health(&world).out.contains("made from the others"), "{:?}", health(&world));
    world.order(&["scrub", "tank", "repair"]);
    let status = world.settle();
    assert_eq!(status["problems"], serde_json::json!([]), "{status}");
    assert_eq!(status["slots"][1]["member"]["bad_bytes"], 0, "{status}");
    assert_eq!(server.terminate(), 0);
}
