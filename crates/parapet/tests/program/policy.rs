//! Crash-consistency policies: chosen at create, shown, and changed later.

use serde_json::Value;

use crate::hole::{edit_superblock, examined};
use crate::world::World;

#[test]
fn each_level_gets_its_usual_policy_and_the_plan_tells_it() {
    let world = World::new();
    for (level, count, usual) in [
        ("5", 3, Some("intent")),
        ("6", 4, Some("intent")),
        ("4", 3, Some("intent")),
        ("3.5", 3, Some("intent")),
        ("1", 2, Some("bitmap")),
        ("10", 4, Some("bitmap")),
        ("0", 2, None),
        ("linear", 2, None),
    ] {
        let members: Vec<String> = (0..count).map(|index| format!("{level}-{index}")).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let start = ["create", "tank", "--level", level, "--new-files", "16M", "-n"];
        let plan = world.json(&[&start[..], &members].concat());
        assert_eq!(plan["consistency"], usual.map_or(Value::Null, Value::from), "{level}");
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_made() {
    let world = World::new();
    let start = ["create", "tank", "--new-files", "16M", "--yes"];
    for (level, members, policy, why) in [
        ("0", &["a", "b"][..], "bitmap", "no redundancy"),
        ("1", &["a", "b"], "intent", "no write hole"),
        ("6", &["a", "b", "c", "d"], "ppl", "RAID 5 only"),
        ("3.5", &["a", "b", "c"], "ppl", "RAID 5 only"),
    ] {
        let flags = ["--level", level, "--consistency", policy];
        let report = world.refused(&[&start[..], &flags, members].concat(), 2, "PPT-2002");
        assert!(report.contains(why), "{report}");
        assert!(!world.path("a").exists());
    }
    let flags = ["--level", "5", "--consistency", "resync", "--bitmap", "auto", "a", "b", "c"];
    let report = world.refused(&[&start[..], &flags].concat(), 2, "PPT-2002");
    assert!(report.contains("policy bitmap") && report.contains("--bitmap"), "{report}");
}

/// Returns the policy in the members' metadata, and whether there is a bitmap.
fn on_disk(world: &World) -> (Value, bool) {
    let found = examined(world, "m0");
    (found["consistency"].clone(), found["bitmap_chunk_bytes"].is_u64())
}

#[test]
fn a_policy_is_changed_at_a_start_and_stays_changed() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    assert_eq!(on_disk(&world), ("intent".into(), true));
    world.ok(&[&["assemble", "tank", "--consistency", "bitmap"], &names[..]].concat());
    assert_eq!(on_disk(&world), ("bitmap".into(), true));
    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["consistency"], "bitmap");
    world.qemu_io(&["write -P 5 0 1M", "flush"]);
    assert_eq!(server.terminate(), 0);
    assert_eq!(examined(&world, "m0")["log"], Value::Null, "nothing is logged any more");

    // Without a bitmap, also in mdadm's view; then with one again, all bits clear since all is in
    // sync.
    world.ok(&[&["assemble", "tank", "--consistency", "resync"], &names[..]].concat());
    assert_eq!(on_disk(&world), ("resync".into(), false));
    let theirs = world.tool("mdadm", &["mdadm", "--examine", "m0"]);
    assert!(!theirs.contains("Internal Bitmap"), "{theirs}");
    let server = world.serve(&[&["tank", "--consistency", "journal"], &names[..]].concat());
    world.qemu_io(&["read -P 5 0 1M", "write -P 6 0 4k", "flush"]);
    let text = world.ok(&["status", "tank", &control(&world)]);
    assert!(text.contains("journal: the write hole is closed by a log with the data"), "{text}");
    assert_eq!(server.terminate(), 0);
    assert_eq!(on_disk(&world), ("journal".into(), true));
    let found = examined(&world, "m1");
    assert!(
        found["log"]["batches"].as_u64().unwrap() + found["log"]["zones"].as_u64().unwrap() > 0
    );
    let theirs = world.tool("mdadm", &["mdadm", "--examine", "m2"]);
    assert!(theirs.contains("Internal Bitmap"), "{theirs}");
    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["consistency"], "journal", "it stays");
    world.qemu_io(&["read -P 6 0 4k", "read -P 5 4k 1020k"]);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn md_s_partial_parity_log_is_one_of_them() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--consistency", "ppl"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    assert_eq!(on_disk(&world), ("ppl".into(), false));
    let theirs = |member| world.tool("mdadm", &["mdadm", "--examine", member]);
    assert!(theirs("m0").contains("PPL : 2048 sectors at offset"), "{}", theirs("m0"));
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 5 0 1M", "write -P 6 4k 8k", "flush"]);
    let text = world.ok(&["status", "tank", &control(&world)]);
    assert!(text.contains("closed by md's partial parity log"), "{text}");
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0);
    let report = world.refused(
        &[&["serve", "tank", "--control", "unix:c.sock", "--threads", "2"], &names[..]].concat(),
        3,
        "PPT-3006",
    );
    assert!(report.contains("room for 1 threads, not for 2"), "{report}");
    world.ok(&[&["assemble", "tank", "--consistency", "intent"], &names[..]].concat());
    assert_eq!(on_disk(&world), ("intent".into(), true));
    assert!(!theirs("m1").contains("PPL"), "{}", theirs("m1"));
    world.ok(&[&["assemble", "tank", "--consistency", "ppl"], &names[..]].concat());
    assert_eq!(on_disk(&world), ("ppl".into(), false));
    let server = world.serve_members(&members);
    world.qemu_io(&["read -P 6 4k 8k", "read -P 5 12k 1012k"]);
    assert_eq!(server.terminate(), 0);
}

fn control(world: &World) -> String {
    format!("--control=unix:{}", world.path("control.sock").display())
}

#[test]
fn a_policy_that_the_array_cannot_have_is_refused_at_a_start() {
    let world = World::new();
    world.create("1", 2, &[]);
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock", "--consistency"];
    let report = world.refused(&[&serve[..], &["intent"]].concat(), 3, "PPT-3005");
    assert!(report.contains("levels with parity"), "{report}");
    let report = world.refused(&["serve", "--scan", ".", "--consistency", "bitmap"], 2, "PPT-2001");
    assert!(report.contains("none is named"), "{report}");
    let ran = world.run(&[&serve[..], &["bitmap", "--read-only"]].concat());
    assert_eq!(ran.code, 2, "{ran:?}");

    // An early data offset, as in old versions of mdadm, leaves no room for a log.
    let members: Vec<String> = (0..3).map(|index| format!("p{index}")).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let start = ["create", "pond", "--level", "5", "--new-files", "16M", "--yes"];
    world.ok(&[&start[..], &["--consistency", "bitmap"], &names].concat());
    for member in &members {
        edit_superblock(&world, member, |superblock| {
            superblock[128..136].copy_from_slice(&512_u64.to_le_bytes());
            superblock[197..200].fill(0);
        });
    }
    let serve = ["serve", "pond", "--control", "unix:c.sock", "--consistency", "intent"];
    let report = world.refused(&[&serve[..], &names].concat(), 3, "PPT-3005");
    assert!(report.contains("no room for the intent log") && report.contains("p0"), "{report}");
}

#[test]
fn an_array_that_mdadm_has_made_stays_as_it_is_until_told_otherwise() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    // As mdadm creates it: without Parapet's metadata.
    for member in &members {
        edit_superblock(&world, member, |superblock| superblock[197..200].fill(0));
        let mut bytes = std::fs::read(world.path(member)).unwrap();
        for at in (0..bytes.len()).step_by(4096) {
            if bytes[at..].starts_with(b"Pprivate") {
                bytes[at..at + 4096].fill(0);
            }
        }
        std::fs::write(world.path(member), bytes).unwrap();
    }
    assert_eq!(examined(&world, "m0")["private_fault"], Value::Null, "nothing to complain of");
    let server = world.serve_members(&members);
    assert_eq!(world.order(&["status", "tank"])["consistency"], "bitmap");
    world.qemu_io(&["write -P 5 0 1M", "flush"]);
    assert_eq!(server.terminate(), 0);
    assert_eq!(on_disk(&world), (Value::Null, true));
    world.ok(&[&["assemble", "tank", "--consistency", "intent"], &names[..]].concat());
    assert_eq!(on_disk(&world), ("intent".into(), true));
    let server = world.serve_members(&members);
    world.qemu_io(&["read -P 5 0 1M"]);
    assert_eq!(world.order(&["status", "tank"])["consistency"], "intent");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_policy_is_for_the_array_that_is_named_not_for_those_inside_it() {
    let world = World::new();
    for (name, members) in [("left", ["l0", "l1", "l2"]), ("right", ["r0", "r1", "r2"])] {
        let start = ["create", name, "--level", "5", "--chunk", "16K", "--new-files", "24M"];
        world.ok(&[&start[..], &["--yes"], &members].concat());
    }
    let outer = ["create", "tank", "--level", "1", "--scan", ".", "--yes"];
    world.ok(&[&outer[..], &["array:left", "array:right"]].concat());
    let server = world.serve(&["tank", "--scan", ".", "--consistency", "resync"]);
    for (name, policy) in [("tank", "resync"), ("left", "intent"), ("right", "intent")] {
        assert_eq!(world.order(&["status", name])["consistency"], policy, "{name}");
    }
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn more_threads_than_the_log_has_room_for_are_refused_with_both_numbers() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let serve = ["serve", "tank", "--control", "unix:c.sock", "--threads", "64"];
    let report = world.refused(&[&serve[..], &names].concat(), 3, "PPT-3006");
    let most: u32 = {
        let (_, rest) = report.split_once("room for ").unwrap();
        rest.split_once(" threads, not for 64").unwrap().0.parse().unwrap()
    };
    assert!(report.contains("--consistency bitmap"), "{report}");
    let server = world.serve(&[&["tank", "--threads", &most.to_string()], &names[..]].concat());
    world.qemu_io(&["write -P 5 0 1M", "flush", "read -P 5 0 1M"]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
    let more = (most + 1).to_string();
    let flags = ["tank", "--threads", &more, "--consistency", "bitmap"];
    let server = world.serve(&[&flags[..], &names].concat());
    world.qemu_io(&["read -P 5 0 1M"]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}
