//! Interfaces, wires and servers that cannot work, for AoE exports and for members on other
//! machines: the message says what to do, and nothing is lost.

use crate::peers::{Peer, nbdkit, serve, until_slot, uri, vblade};
use crate::wires::{Cable, Shelf, ip};
use crate::world::{Server, World, pattern, until};

/// Runs a program without the right to open packet sockets.
const NO_PACKETS: [&str; 3] = ["setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw"];

/// Creates `tank`, a mirror of this member and of the file `m1`; it must be refused.
fn creation_refused(world: &World, member: &str, code: i32, id: &str) -> String {
    let create = ["create", "tank", "--level", "1", "--new-files", "32M", "--yes", member, "m1"];
    let said = world.refused(&create, code, id);
    assert!(!world.path("m1").exists(), "nothing is made");
    said
}

/// A mirror of this member and of the file `m1`, with a pattern on it.
fn mirror(world: &World, member: &str) -> Server {
    let members = [member.to_owned(), "m1".into()];
    world.ok(&["create", "tank", "--level", "1", "--new-files", "32M", "--yes", member, "m1"]);
    let server = world.serve_members(&members);
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    world.wait_until_idle();
    server
}

/// The array has the pattern, and a scrub finds no fault.
fn assert_intact(world: &World) {
    assert!(world.content()[..16 << 20] == pattern(16 << 20, 3));
    world.order(&["scrub", "tank", "--quiet"]);
    let array = world.settle_idle();
    assert_eq!(array["last_scrub"]["mismatches"], 0, "{array}");
}

fn says(world: &World, what: &str) -> bool {
    world.log().contains(what)
}

#[test]
fn an_export_without_a_carrier_is_served_when_its_link_is_up() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let cable = Cable::new(&world, "1500");
    ip(&["link", "set", &cable.client, "down"]);
    let export = cable.export("7.3");
    let server = world.serve(&["tank", &members[0], &members[1], "--aoe", &export]);
    let warning =
        format!("{}: no carrier: AoE clients are served when the link is up", cable.server);
    assert!(says(&world, &warning), "{}", world.log());
    ip(&["link", "set", &cable.client, "up"]);
    let found = || world.json(&["aoe", "discover", &cable.client])["targets"].clone();
    until(|| found()[0]["shelf"] == 7);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_member_without_a_carrier_is_refused_until_its_link_is_up() {
    let world = World::new();
    let shelf = Shelf::new(&world, 2);
    let near = &shelf.near;
    ip(&["-n", &shelf.name, "link", "set", &shelf.far[0], "down"]);
    let one = format!("aoe:1.0@{}", near[0]);
    let said = creation_refused(&world, &one, 5, "PPT-5003");
    let wanted = format!("no carrier on {}", near[0]);
    assert!(said.contains(&wanted) && said.contains("check the cable"), "{said}");
    // The other interface has a carrier, and no target.
    let said = creation_refused(&world, &shelf.target("1.0"), 5, "PPT-5003");
    assert!(said.contains("no AoE target answers") && said.contains(&wanted), "{said}");
    let discovered = world.run(&["aoe", "discover", &near[0]]);
    assert!(discovered.err.contains(&format!("{}: no carrier", near[0])), "{discovered:?}");
    ip(&["-n", &shelf.name, "link", "set", &shelf.far[0], "up"]);
    let _peer = vblade(&world, &shelf, 0);
    let found = || world.json(&["aoe", "discover", &near[0]])["targets"].clone();
    until(|| found()[0]["shelf"] == 1);
    // One interface that works is enough.
    ip(&["link", "set", &near[1], "down"]);
    let server = mirror(&world, &shelf.target("1.0"));
    assert_intact(&world);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_member_needs_an_mtu_that_carries_a_sector() {
    let world = World::new();
    let shelf = Shelf::new(&world, 1);
    let _peer = vblade(&world, &shelf, 0);
    let (near, member) = (&*shelf.near[0], shelf.target("1.0"));
    let mtu = |bytes| ip(&["link", "set", near, "mtu", bytes]);
    mtu("547");
    let said = creation_refused(&world, &member, 1, "PPT-1004");
    assert!(said.contains("an MTU of 547 carries no sector"), "{said}");
    assert!(said.contains(&format!("ip link set {near} mtu 9000")), "{said}");
    world.refused(&["aoe", "discover", near], 1, "PPT-1004");
    mtu("9000");
    until(|| !world.json(&["aoe", "discover", near])["targets"].as_array().unwrap().is_empty());
    let server = mirror(&world, &member);
    // In use: the array goes on without it, and takes it back.
    world.under_load("tank", || {
        mtu("547");
        until_slot(&world, 0, "missing");
        mtu("1500");
        until_slot(&world, 0, "in_sync");
    });
    world.wait_until_idle();
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    assert_intact(&world);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn without_the_right_to_packet_sockets_nothing_else_is_lost() {
    let world = World::new();
    let shelf = Shelf::new(&world, 1);
    let _peer = vblade(&world, &shelf, 0);
    let cable = Cable::new(&world, "1500");
    let (member, export) = (shelf.target("1.0"), cable.export("7.3"));
    let members = world.create("1", 2, &["--spare", "s0"]);
    let refused = |words: &[&str]| {
        let said = world.refused_under(&NO_PACKETS, words, 4, "PPT-4002");
        assert!(said.contains("packet sockets need CAP_NET_RAW"), "{said}");
        assert!(said.contains("run as root") && said.contains("setcap cap_net_raw+ep"), "{said}");
    };
    refused(&["create", "pond", "--level", "0", "--new-files", "32M", "--yes", &member, "p1"]);
    refused(&["aoe", "discover", &shelf.near[0]]);
    refused(&["aoe", "discover"]);
    refused(&["serve", "--scan", &format!("aoe:{}", shelf.near[0])]);
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock", "--aoe", &export];
    refused(&serve);
    // A running server: the array stays served, and offline.
    let server = world.serve_under(&NO_PACKETS, &members);
    let data = pattern(8 << 20, 3);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    for order in [&["online", "tank", &*export][..], &["add", "tank", &member]] {
        let said = world.order_refused(order, 4, "PPT-4002");
        assert!(said.contains("packet sockets need CAP_NET_RAW"), "{said}");
    }
    let array = world.order(&["status", "tank"]);
    assert!(array["aoe"].is_null() || array["aoe"]["online"] == false, "{array}");
    assert_eq!(array["state"], "healthy");
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_shelf_that_answers_already_keeps_an_array_offline() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let shelf = Shelf::new(&world, 2);
    let _peer = vblade(&world, &shelf, 0);
    let server = world.serve_members(&members);
    let near = &shelf.near[0];
    until(|| !world.json(&["aoe", "discover", near])["targets"].as_array().unwrap().is_empty());
    let taken = format!("1.0@{near}");
    let said = world.order_refused(&["online", "tank", &taken], 3, "PPT-3008");
    assert!(said.contains("another target answers as 1.0"), "{said}");
    assert!(said.contains("choose another shelf or slot"), "{said}");
    assert!(world.order(&["status", "tank"])["aoe"]["online"] != true);
    world.order(&["online", "tank", &format!("1.1@{near}")]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn different_targets_of_one_address_are_not_a_member() {
    let world = World::new();
    let shelf = Shelf::new(&world, 2);
    world.file("other", 48 << 20);
    let _peer = vblade(&world, &shelf, 0);
    let other = shelf.within(&["vblade", "1", "0", &shelf.far[1], "other"]);
    let _other = Peer::start(&world, "vblade", &other);
    for near in &shelf.near {
        until(|| !world.json(&["aoe", "discover", near])["targets"].as_array().unwrap().is_empty());
    }
    let said = creation_refused(&world, &shelf.target("1.0"), 3, "PPT-3005");
    assert!(said.contains("different targets have this address"), "{said}");
    assert!(said.contains("give each target a shelf and slot of its own"), "{said}");
}

/// Cuts or extends the second member's file.
fn resize(world: &World, mib: u64) {
    let file = std::fs::File::options().write(true).open(world.path("d1")).unwrap();
    file.set_len(mib << 20).unwrap();
}

#[test]
fn a_member_that_shrank_while_it_was_not_used_is_left_out() {
    let world = World::new();
    let mut peers: Vec<Peer> = (0..3).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    drop(peers.remove(1));
    resize(&world, 16);
    peers.insert(1, nbdkit(&world, 1, &[], &[]));
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let start = [&["serve", "tank"], &names[..], &["--control", "unix:c.sock"]].concat();
    let said = world.refused(&start, 3, "PPT-3005");
    assert!(said.contains("it was cut short") && said.contains("--degraded"), "{said}");
    let server = world.serve(&[&["tank", "--degraded"], &names[..]].concat());
    assert!(world.content()[..16 << 20] == pattern(16 << 20, 3));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_member_that_has_shrunk_is_refused() {
    let world = World::new();
    let mut peers: Vec<Peer> = (0..3).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    world.wait_until_idle();
    drop(peers.remove(1));
    resize(&world, 16);
    peers.insert(1, nbdkit(&world, 1, &[], &[]));
    until_slot(&world, 1, "missing");
    let shrunk = "the disk has shrunk from 33554432 to 16777216 bytes";
    until(|| says(&world, shrunk));
    let problem = world.order(&["status", "tank"])["problems"].to_string();
    assert!(problem.contains(shrunk), "{problem}");
    assert!(world.content()[..16 << 20] == pattern(16 << 20, 3));
    let said = world.order_refused(&["add", "tank", &members[1]], 3, "PPT-3006");
    assert!(said.contains("too small") && said.contains("use a larger disk"), "{said}");
    // As large as before, but what lay behind the cut is lost: it is a new member.
    drop(peers.remove(1));
    resize(&world, 32);
    peers.insert(1, nbdkit(&world, 1, &[], &[]));
    world.order(&["add", "tank", &members[1]]);
    world.wait_until_idle();
    assert_intact(&world);
    assert_eq!(server.terminate(), 0);
}

/// Serves the array `name` of two files as AoE 0.0 on a shelf.
fn export(world: &World, shelf: &Shelf, name: &str) -> Server {
    let (files, place) =
        (["a", "b"].map(|file| format!("{name}{file}")), format!("0.0@{}", shelf.far[0]));
    let program = env!("CARGO_BIN_EXE_parapet");
    let control = format!("unix:{name}.sock");
    let serve = [program, "serve", name, &files[0], &files[1], "--aoe", &place];
    let more = ["--control", &control, "--json"];
    world.launch_tool(&[&shelf.within(&serve)[..], &more].concat())
}

#[test]
fn another_disk_at_the_address_of_a_member_is_refused() {
    let world = World::new();
    let shelf = Shelf::new(&world, 1);
    for name in ["right", "wrong"] {
        let files = ["a", "b"].map(|file| format!("{name}{file}"));
        let create = ["create", name, "--level", "0", "--new-files", "24M", "--yes"];
        world.ok(&[&create[..], &[&files[0], &files[1]]].concat());
    }
    let examined = world.json(&["examine", "wronga", "wrongb"]);
    let data_offset = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap();
    // What a client can write. Their own server writes metadata when it likes.
    let contents = |name: &str| {
        ["a", "b"].map(|file| {
            let bytes = std::fs::read(world.path(&format!("{name}{file}"))).unwrap();
            bytes[data_offset as usize..].to_vec()
        })
    };
    let right = export(&world, &shelf, "right");
    let member = shelf.target("0.0");
    let server = mirror(&world, &member);
    assert_eq!(right.terminate(), 0);
    let wrong = export(&world, &shelf, "wrong");
    let before = contents("wrong");
    until_slot(&world, 0, "missing");
    until(|| says(&world, "another disk answers: its serial was"));
    let problem = world.order(&["status", "tank"])["problems"].to_string();
    assert!(problem.contains("another disk answers"), "{problem}");
    assert!(world.content()[..16 << 20] == pattern(16 << 20, 3));
    assert!(contents("wrong") == before, "nothing was written to the other disk");
    drop(wrong);
    let right = export(&world, &shelf, "right");
    world.order(&["add", "tank", &member]);
    world.wait_until_idle();
    assert_intact(&world);
    assert_eq!((server.terminate(), right.terminate()), (0, 0));
}
