//! Nested arrays: found, served and destroyed from the outermost inwards; and folders with arrays
//! that cannot start.

use crate::peers::{Peer, nbdkit, uri};
use crate::world::{World, pattern, until};

/// Creates two arrays named `left` and `right`.
fn halves(world: &World) {
    for name in ["left", "right"] {
        let start =
            ["create", name, "--level", "5", "--chunk", "16K", "--new-files", "16M", "--yes"];
        let members: Vec<String> = (0..3).map(|index| format!("{name}{index}")).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        world.ok(&[&start[..], &members].concat());
    }
}

/// Creates an array named `tank` of the two.
fn nested(world: &World, level: &str) {
    halves(world);
    let start = ["create", "tank", "--level", level, "--scan", ".", "--yes"];
    world.ok(&[&start[..], &["array:left", "array:right"]].concat());
}

fn exports(world: &World) -> String {
    world.tool("libnbd-bin", &["nbdinfo", "--list", &world.uri()])
}

#[test]
fn an_array_of_arrays_survives_what_its_parts_survive() {
    let world = World::new();
    halves(&world);
    let start = ["create", "tank", "--level", "0", "--chunk", "32K", "--scan", ".", "--yes"];
    world.refused(&[&start[..], &["array:left", "array:middle"]].concat(), 5, "PPT-5001");
    let plan = world.json(&[&start[..], &["array:left", "array:right"]].concat());
    assert_eq!(plan["level"], "raid0");
    let again = [&start[..], &["array:left", "array:right"]].concat();
    let message = world.refused(&again, 3, "PPT-3001");
    assert!(message.contains("array:left"), "{message}");

    let server = world.serve(&["tank", "--scan", "."]);
    let arrays = server.ready["arrays"].as_array().unwrap();
    assert_eq!(arrays.len(), 3, "{}", server.ready);
    let exports = world.tool("libnbd-bin", &["nbdinfo", "--list", &world.uri()]);
    assert_eq!(exports.matches("export=").count(), 1, "only the outer one: {exports}");
    let data = pattern(40 << 20, 11);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    world.order(&["fail", "left", "1"]);
    world.order(&["fail", "right", "0"]);
    world.order_refused(&["fail", "tank", "0"], 3, "PPT-3006");
    world.order_refused(&["stop", "left"], 3, "PPT-3006");
    assert!(world.content()[..data.len()] == data);
    world.fio("0", "4M", 1);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    world.file("new", 16 << 20);
    world.order(&["add", "left", "new"]);
    world.order(&["wait", "left", "--for", "whole", "--timeout", "600", "--quiet"]);
    assert!(world.content()[..data.len()] == data);
    world.order(&["stop", "tank"]);
    assert_eq!(server.wait(), 0);
    let examined = world.json(&["examine", "left0", "right1", "new"]);
    for disk in examined["disks"].as_array().unwrap() {
        assert_eq!(disk["superblocks"][0]["clean"], true, "{disk}");
    }
    let server = world.serve(&["tank", "--scan", ".", "--degraded"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0);
}

/// With several arrays, a client that names none gets none, whichever arrays are present. Otherwise
/// it could overwrite the wrong one.
fn refuses_nameless(world: &World) {
    let nameless = world.uri().replace("/tank?", "/?");
    let asked = world.try_tool("libnbd-bin", &["nbdinfo", "--size", &nameless]);
    assert_ne!(asked.code, 0, "{nameless}");
}

#[test]
fn a_scan_without_a_name_serves_the_outermost_arrays_only() {
    let world = World::new();
    nested(&world, "1");
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    let server = world.serve(&["--scan", "."]);
    assert_eq!(server.ready["arrays"].as_array().unwrap().len(), 4, "{}", world.log());
    let listed = exports(&world);
    assert_eq!(listed.matches("export=").count(), 2, "{listed}");
    assert!(listed.contains("\"tank\"") && listed.contains("\"pond\""), "{listed}");
    refuses_nameless(&world);
    world.order(&["stop", "tank"]);
    refuses_nameless(&world);
    assert_eq!(server.terminate(), 0);
    // Inner arrays are never exported as independent arrays.
    std::fs::remove_file(world.path("left0")).unwrap();
    std::fs::remove_file(world.path("left1")).unwrap();
    let server = world.serve(&["--scan", "."]);
    let listed = exports(&world);
    assert!(listed.contains("\"pond\"") && !listed.contains("\"right\""), "{listed}");
    assert!(world.log().contains("right is a member of an array that was not started"));
    assert_eq!(server.terminate(), 0);
    // Unless the user names them.
    let server = world.serve(&["right", "--scan", "."]);
    assert!(exports(&world).contains("\"right\""));
    assert_eq!(server.ready["arrays"].as_array().unwrap().len(), 1, "{}", server.ready);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn what_cannot_be_started_does_not_keep_the_others_from_being_served() {
    let world = World::new();
    world.create("5", 3, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    std::fs::remove_file(world.path("m0")).unwrap();
    std::fs::remove_file(world.path("m1")).unwrap();
    let server = world.serve(&["--scan", "."]);
    assert_eq!(server.ready["arrays"][0]["name"], "pond");
    assert!(world.log().contains("not started: tank"), "{}", world.log());
    refuses_nameless(&world);
    // The error reports that another server serves it.
    let message = world.refused(&["serve", "pond", "--scan", "."], 3, "PPT-3003");
    let pid = format!("process {}", server.pid());
    assert!(message.contains(&pid) && message.contains("parapet stop pond"), "{message}");
    assert!(!message.contains("kill"), "{message}");
    let message = world.refused(&["destroy", "pond", "--scan", ".", "--yes"], 3, "PPT-3003");
    assert!(message.contains("parapet stop pond"), "{message}");
    world.refused(&["assemble", "pond", "--scan", "."], 3, "PPT-3003");
    assert_eq!(server.terminate(), 0);
    // No array can start.
    std::fs::remove_file(world.path("p0")).unwrap();
    std::fs::remove_file(world.path("p1")).unwrap();
    let message = world.refused(&["serve", "--scan", "."], 3, "PPT-3007");
    assert!(message.contains("tank"), "{message}");
}

#[test]
fn the_outer_array_is_destroyed_before_those_inside_it() {
    let world = World::new();
    nested(&world, "1");
    let message = world.refused(&["destroy", "left", "--scan", ".", "--yes"], 3, "PPT-3006");
    assert!(message.contains("left is a member of tank"), "{message}");
    let left = ["left0", "left1", "left2"];
    world.refused(&[&["destroy", "left", "--yes"], &left[..]].concat(), 3, "PPT-3006");
    // The error reports that another server serves it, as for a flat array.
    let server = world.serve(&["tank", "--scan", "."]);
    let message = world.refused(&["destroy", "tank", "--scan", ".", "--yes"], 3, "PPT-3003");
    assert!(message.contains("tank is in use; "), "{message}");
    assert!(message.contains("parapet stop tank"), "{message}");
    world.refused(&["destroy", "pond", "--scan", ".", "--yes"], 5, "PPT-5001");
    assert_eq!(server.terminate(), 0);
    let plan = world.json(&["destroy", "tank", "--scan", ".", "--dry-run"]);
    assert_eq!(plan["disks"][0]["path"], "array:left", "{plan}");
    let start = ["destroy", "tank", "array:left", "array:right", "--scan", ".", "--yes"];
    assert_eq!(world.json(&start)["done"], true);
    world.refused(&["serve", "tank", "--scan", "."], 5, "PPT-5001");
    world.ok(&["destroy", "left", "--scan", ".", "--yes"]);
    let server = world.serve(&["--scan", "."]);
    assert!(exports(&world).contains("\"right\""));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_disk_of_another_array_is_not_passed_over_in_silence() {
    let world = World::new();
    world.create("5", 3, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    let message = world.refused(&["serve", "tank", "m0", "p0", "m1", "m2"], 3, "PPT-3005");
    assert!(message.contains("p0 is a member of pond, not of tank"), "{message}");
}

#[test]
fn a_plan_of_an_array_of_arrays_writes_nothing_to_their_members() {
    let world = World::new();
    halves(&world);
    // An array in use at a power failure needs a replay or resync once it runs.
    let members = ["left0", "left1", "left2"];
    let server = world.serve(&[&["left"], &members[..]].concat());
    let uri = format!("nbd+unix:///left?socket={}", world.path("nbd.sock").display());
    world.tool("qemu-utils", &["qemu-io", "-f", "raw", "-c", "write -P 0xaa 0 2M", &uri]);
    server.kill();
    let all = ["left0", "left1", "left2", "right0", "right1", "right2"];
    let content = || all.map(|name| std::fs::read(world.path(name)).unwrap());
    let before = content();
    let create = ["create", "tank", "--level", "1", "--scan", ".", "array:left", "array:right"];
    assert_eq!(world.json(&[&create[..], &["--dry-run"]].concat())["done"], false);
    assert!(content() == before, "a plan writes nothing");
    world.refused(&create, 3, "PPT-3002");
    assert!(content() == before, "nor does an unconfirmed one");
    let many = ["create", "tank", "--level", "6", "--scan", ".", "--yes"];
    world.refused(&[&many[..], &["array:left", "array:right"]].concat(), 2, "PPT-2002");
    assert!(content() == before, "nor does a disk that is no array");
    assert_eq!(world.json(&[&create[..], &["--yes"]].concat())["done"], true);
    for disk in world.json(&[&["examine"], &all[..]].concat())["disks"].as_array().unwrap() {
        assert_eq!(disk["superblocks"][0]["clean"], true, "{disk}");
    }
}

#[test]
fn an_outer_array_is_as_well_as_those_inside_it() {
    for (level, outer, code) in [("0", "critical", 2), ("1", "degraded", 1)] {
        let world = World::new();
        halves(&world);
        let start = ["create", "tank", "--level", level, "--scan", ".", "--yes"];
        let plan = world.ok(&[&start[..], &["array:left", "array:right"]].concat());
        assert!(!plan.contains("any member that fails"), "{plan}");
        let server = world.serve(&["tank", "--scan", "."]);
        if level == "1" {
            world.wait_until_idle();
        }
        let text = world.ok(&["status", "tank", "--control", "control.sock"]);
        assert!(text.contains("healthy") && !text.contains("survives no loss"), "{text}");
        if level == "0" {
            let refusal = world.order_refused(&["fail", "tank", "0"], 3, "PPT-3006");
            assert!(refusal.contains("tolerates no further failure"), "{refusal}");
        }
        world.order(&["fail", "left", "1"]);
        let array = world.order(&["status", "tank"]);
        assert_eq!(array["state"], outer, "{array}");
        let problem = &array["problems"][0];
        assert_eq!(problem["id"], "PPT-8018", "{array}");
        let message = problem["message"].as_str().unwrap();
        assert!(message.starts_with("array:left: critical, a member is missing"), "{message}");
        let action = problem["action"].as_str().unwrap();
        assert!(
            action.starts_with(&format!("parapet re-add left {}", world.path("left1").display())),
            "{action}"
        );
        let health = world.run(&["health", "tank", "--control", "control.sock"]);
        assert!(health.code == code && health.out.contains("array:left"), "{health:?}");
        world.order(&["re-add", "left", "left1"]);
        world.order(&["wait", "left", "--for", "whole", "--timeout", "600", "--quiet"]);
        let array = world.order(&["status", "tank"]);
        assert_eq!(array["state"], "healthy", "{array}");
        assert_eq!(server.terminate(), 0);
    }
}

#[test]
fn inner_arrays_take_members_that_answer_later() {
    let world = World::new();
    (0..4).for_each(|number| drop(world.file(&format!("d{number}"), 32 << 20)));
    world.ok(&["create", "left", "--level", "1", "--yes", "d0", "d1"]);
    world.ok(&["create", "right", "--level", "1", "--yes", "d2", "d3"]);
    let outer = ["create", "tank", "--level", "0", "--scan", ".", "--yes"];
    world.ok(&[&outer[..], &["array:left", "array:right"]].concat());
    let members: Vec<String> = (0..4).map(uri).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut peers: Vec<Peer> = [0, 2].map(|number| nbdkit(&world, number, &[], &[])).into();
    let server = world.serve(&[&["tank", "--degraded"], &names[..]].concat());
    let state = |array: &str| world.order(&["status", array])["slots"][1]["state"].clone();
    assert_eq!([state("left"), state("right")], ["missing", "missing"]);
    let data = pattern(40 << 20, 11);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    for (number, array) in [(3, "right"), (1, "left")] {
        peers.push(nbdkit(&world, number, &[], &[]));
        until(|| state(array) == "in_sync");
    }
    world.wait_until_idle();
    // Each tried only its own.
    for wrong in ["left: nbd+unix:///?socket=n3", "right: nbd+unix:///?socket=n1"] {
        let log = world.log();
        let mut lines = log.lines().filter(|line| line.contains("not re-added"));
        assert!(
            !lines.any(|line| line.contains(wrong) && !line.contains("cannot connect")),
            "{log}"
        );
    }
    assert_eq!(server.terminate(), 0);
    // The members that came later have the data.
    drop(peers);
    let server = world.serve(&["tank", "d1", "d3", "--degraded"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0);
}
