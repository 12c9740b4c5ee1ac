//! A suspect disk: the surroundings of its errors are compared at once, and the scrub of its array
//! is brought forward.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::checksums::{find, flip};
use crate::disks::{Rack, attribute};
use crate::world::{World, pattern, until};

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

/// Writes a block of its own at each of these offsets, stops the server, and damages the blocks
/// on the members.
fn damaged(world: &World, members: &[String], offsets: &[u64]) {
    let server = world.serve_members(members);
    let name = |index: usize| format!("block{index}");
    for (index, offset) in offsets.iter().enumerate() {
        std::fs::write(world.path(&name(index)), pattern(BLOCK, 50 + index as u64)).unwrap();
        world.qemu_io(&[&format!("write -s {} {offset} {BLOCK}", name(index)), "flush"]);
    }
    assert_eq!(server.terminate(), 0);
    for index in 0..offsets.len() {
        let block = std::fs::read(world.path(&name(index))).unwrap();
        let (slot, at) = find(world, members, &block);
        flip(world, &members[slot], at);
    }
}

/// Blocks that the members gave with a wrong checksum.
fn wrong(status: &Value) -> u64 {
    let slots = status["slots"].as_array().unwrap().iter();
    slots.map(|slot| slot["member"]["checksum_errors"].as_u64().unwrap()).sum()
}

/// What the history says of checks, in its order.
fn checks(world: &World) -> Vec<String> {
    let events = world.order(&["events", "tank"])["events"].as_array().unwrap().clone();
    let messages = events.iter().map(|event| event["message"].as_str().unwrap().to_owned());
    messages.filter(|message| message.starts_with("check")).collect()
}

#[test]
fn the_surroundings_of_an_error_are_compared_and_no_more() {
    let world = World::new();
    let members: Vec<String> = (0..3).map(|index| format!("m{index}")).collect();
    let start = ["create", "tank", "--level", "5", "--new-files", "256M", "--yes"];
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&start[..], &names].concat());
    // One that a client reads, one nearby, one far away.
    damaged(&world, &members, &[0, 64 * MIB, 400 * MIB]);
    let server =
        world.serve(&[&["tank"], &names[..], &["--health", "--health-poll=20ms"]].concat());
    assert!(world.order(&["status", "tank"])["slots"][0]["member"]["error_ranges"].is_array());
    world.qemu_io(&["read 0 4k"]);
    let finished = || checks(&world).iter().any(|it| it.contains("finished"));
    until(finished);
    let status = world.order(&["status", "tank"]);
    assert_eq!(wrong(&status), 2, "{status}");
    assert!(status["last_scrub"].is_null() && status["scrub_record"]["position_bytes"] == 0);
    let ranges = |slot: &Value| slot["member"]["error_ranges"].as_array().unwrap().len();
    until(|| {
        let status = world.order(&["status", "tank"]);
        status["slots"].as_array().unwrap().iter().map(ranges).sum::<usize>() == 0
    });
    let log = world.log();
    assert!(log.contains("around the errors of") && log.contains("whose disk may fail"), "{log}");
    // Once: the next would be due in an hour. The far one is found by a scrub.
    assert_eq!(checks(&world).len(), 2, "{:?}", checks(&world));
    world.order(&["scrub", "tank"]);
    assert_eq!(wrong(&world.wait_until_idle()), 3);
    assert_eq!(server.terminate(), 0);
}

/// Serves the array of these members in the folder `disks` by a daemon with this configuration.
fn daemon(world: &World, config: &str) -> crate::world::Server {
    let folder = world.path("disks").display().to_string();
    let listen = world.path("nbd.sock").display().to_string();
    let text =
        format!("[arrays]\nscan = [\"{folder}\"]\n[nbd]\nlisten = [\"unix:{listen}\"]\n{config}");
    std::fs::write(world.path("parapet.toml"), text).unwrap();
    let program = ["env", "--default-signal=HUP", env!("CARGO_BIN_EXE_parapet"), "daemon"];
    let flags = ["--config", "parapet.toml", "--control", "control.sock", "--json"];
    world.launch_tool(&[&program[..], &flags].concat())
}

/// A daemon of an array with two damaged blocks far apart, and this policy of disk health.
fn daemon_of_damaged(policy: &str) -> (World, crate::world::Server) {
    let world = World::new();
    std::fs::create_dir(world.path("disks")).unwrap();
    let members: Vec<String> = (0..3).map(|index| format!("disks/m{index}")).collect();
    let start = ["create", "tank", "--level", "5", "--new-files", "256M", "--yes"];
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&start[..], &names].concat());
    damaged(&world, &members, &[0, 400 * MIB]);
    let server = daemon(
        &world,
        &format!(
            "[scrub]\nevery = \"300 days\"\nevery_suspect = \"1 ms\"\n[health]\npoll = \"20 ms\"\n\
             policy = \"{policy}\"\n"
        ),
    );
    until_served(&world);
    (world, server)
}

fn until_served(world: &World) {
    let list = || world.json(&["list", "--control", "control.sock"]);
    until(|| !list()["arrays"].as_array().unwrap().is_empty());
}

#[test]
fn first_the_surroundings_then_the_whole_array_before_its_time() {
    let (world, server) = daemon_of_damaged("replace-if-spare");
    world.qemu_io(&["read 0 4k"]);
    let status = || world.order(&["status", "tank"]);
    until(|| status()["scrub_record"]["completed"].is_string());
    let checks = checks(&world);
    let [part, _, whole, ..] = &checks[..] else { panic!("{checks:?}") };
    assert!(part.contains(" bytes at 0 of the array started") && whole == "check started");
    assert_eq!(wrong(&status()), 2, "the far one is found, too");
    assert!(world.log().contains("(scheduled; a disk may fail)"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn nothing_is_read_where_the_policy_is_to_report() {
    let (world, server) = daemon_of_damaged("alert");
    world.qemu_io(&["read 0 4k"]);
    let status = || world.order(&["status", "tank"]);
    let is_suspect = |slot: &Value| slot["member"]["health"]["level"] == "suspect";
    until(|| status()["slots"].as_array().unwrap().iter().any(is_suspect));
    assert!(checks(&world).is_empty(), "the policy is to report only: {:?}", checks(&world));

    let text = std::fs::read_to_string(world.path("parapet.toml")).unwrap();
    let text = text.replace("\"alert\"", "\"replace-if-spare\"");
    std::fs::write(world.path("parapet.toml"), text).unwrap();
    server.signal("HUP");
    until(|| status()["scrub_record"]["completed"].is_string());
    assert_eq!(wrong(&status()), 2, "the far one is found before its time");
    assert_eq!(server.terminate(), 0);
}

/// Pending sectors say nothing of their place: only the scrub is brought forward.
#[test]
fn a_suspect_by_its_smart_data_brings_the_scrub_forward() {
    let Some(rack) = Rack::new(3) else { return };
    rack.create("5", 3);
    let world = &rack.world;
    std::fs::create_dir(world.path("disks")).unwrap();
    for (number, device) in rack.devices.iter().enumerate() {
        symlink(device, world.path(&format!("disks/d{number}"))).unwrap();
    }
    let smartctl = world.path("bin/smartctl").display().to_string();
    let server = daemon(
        world,
        &format!(
            "[scrub]\nevery = \"300 days\"\nevery_suspect = \"1 ms\"\n[health]\npoll = \"20 ms\"\n\
             smartctl = \"{smartctl}\"\n"
        ),
    );
    until_served(world);
    (0..3).for_each(|slot| drop(rack.wait_for(slot, "ok")));
    assert!(rack.status()["scrub_record"]["completed"].is_null());
    rack.set(1, |it| attribute(it, 197, 3));
    rack.wait_for(1, "suspect");
    until(|| rack.status()["scrub_record"]["completed"].is_string());
    let checks = checks(world);
    assert!(checks.iter().all(|it| !it.contains(" bytes at ")), "no place is known: {checks:?}");
    assert_eq!(rack.status()["slots"][1]["replacement"], json!(null));
    assert_eq!(server.terminate(), 0);
}
