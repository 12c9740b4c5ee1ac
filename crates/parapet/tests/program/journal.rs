//! A journal device: created, found, lost and replaced, with servers that are killed.

use crate::hole::{examined, filled_and_killed, flushed_is_there};
use crate::world::World;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("m{index}")).collect()
}

const JOURNALED: [&str; 4] = ["--consistency", "journal", "--journal", "fast"];

/// Lists all members and the device as arguments of a command.
fn all(members: &[String]) -> Vec<&str> {
    members.iter().map(String::as_str).chain(["fast"]).collect()
}

#[test]
fn with_its_device_an_array_survives_a_kill_and_a_loss_and_without_it_says_what_is_missing() {
    let world = World::new();
    let members = names(3);
    let with_device: Vec<String> = all(&members).iter().map(|name| name.to_string()).collect();
    world.create("5", 3, &[&["--chunk", "16K"][..], &JOURNALED].concat());
    let flushed = filled_and_killed(&world, &members, &with_device);
    let member = examined(&world, "m0");
    assert_eq!(member["journal"]["state"], "logging", "{member}");
    assert_eq!(member["log"], serde_json::Value::Null, "{member}");
    let device = &world.json(&["examine", "fast"])["disks"][0];
    assert_eq!(device["journal"]["array_name"], "tank", "{device}");
    assert!(device["journal"]["log"]["records"].as_u64().unwrap() > 0, "{device}");
    assert_eq!(device["journal"]["uuid"], member["journal"]["uuid"]);
    assert!(device["faults"].as_array().unwrap().is_empty(), "{device}");

    let refused = world.refused(&["serve", "tank", "m0", "m1", "--degraded"], 3, "PPT-3005");
    for words in ["journal device", "fast", "--force-dirty-degraded"] {
        assert!(refused.contains(words), "{refused}");
    }
    let server = world.serve(&["tank", "m0", "m1", "fast", "--degraded"]);
    flushed_is_there(&world, &flushed, "without m2");
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["journal"]["state"], "logging", "{status}");
    assert!(status["faulty"].as_array().unwrap().is_empty(), "{status}");
    assert!(status["replay"]["rows"].as_u64().unwrap() > 0, "{status}");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_device_that_is_gone_is_told_of_and_another_one_takes_its_place() {
    let world = World::new();
    let members = names(3);
    world.create("5", 3, &JOURNALED);
    let other =
        [&["create", "other", "--level", "5", "--new-files", "16M", "--yes"], &JOURNALED[..]];
    let refused =
        world.refused(&[&other.concat()[..], &["x0", "x1", "x2"]].concat(), 3, "PPT-3001");
    assert!(refused.contains("fast") && refused.contains("parapet_journal@0x1000"), "{refused}");

    let server = world.serve_members(&members);
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["journal"]["state"], "away", "{status}");
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8015", "{status}");
    assert_eq!(server.terminate(), 0, "{}", world.log());

    world.file("faster", 8 << 20);
    let words = [&["tank"], &all(&members)[..3], &["--journal", "faster"]].concat();
    let server = world.serve(&[&words[..], &["--threads", "2"]].concat());
    world.qemu_io(&["write -P 7 0 64k", "flush"]);
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["journal"]["state"], "logging", "{status}");
    assert!(status["journal"]["written_bytes"].as_u64().unwrap() >= 64 << 10, "{status}");
    assert!(status["problems"].as_array().unwrap().is_empty(), "{status}");
    assert_eq!(server.terminate(), 0, "{}", world.log());

    let words = [&["destroy", "tank"], &all(&members)[..3], &["faster", "--yes"]].concat();
    world.ok(&words);
    assert_eq!(world.run(&["examine", "faster"]).code, 5);
}
