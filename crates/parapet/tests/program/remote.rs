//! Members on other machines: exports of nbdkit and qemu-nbd, vblade's and our own AoE targets in
//! network namespaces.

use crate::peers::{Peer, nbdkit, qemu_nbd, serve, until_slot, uri, vblade};
use crate::wires::{Shelf, ip};
use crate::world::{Server, World, pattern, until};

#[test]
fn nbd_exports_are_members_wherever_a_path_is() {
    let world = World::new();
    let _peers: Vec<Peer> = (0..5).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    world.fio("0", "16M", 1);
    // A file beside them, a replacement, a spare that is removed again.
    world.order(&["replace", "tank", &members[0], &uri(3)]);
    world.wait_until_idle();
    world.order(&["add", "tank", &uri(4)]);
    let refusal = world.order_refused(&["add", "tank", &uri(4)], 3, "PPT-3003");
    assert!(refusal.contains("a spare of tank"), "{refusal}");
    world.order(&["fail", "tank", &members[1]]);
    world.wait_until_idle();
    let content = world.content();
    assert_eq!(server.terminate(), 0);
    let examined = world.json(&["examine", &uri(4)]);
    assert_eq!(examined["disks"][0]["superblocks"][0]["role"], "slot 1");
    // The exports are plain files too.
    let files = ["d3", "d4", "d2"].map(String::from);
    drop(_peers);
    let server = world.serve_members(&files);
    assert!(world.content() == content);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn addresses_that_cannot_be_members_are_refused() {
    let world = World::new();
    let _peers: Vec<Peer> = (0..2).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let create = |members: &[&str], code, id| {
        let start = ["create", "tank", "--level", "1", "--yes"];
        world.refused(&[&start[..], members].concat(), code, id)
    };
    let (one, other) = (uri(0), uri(1));
    let missing = create(&[&one, "nbd+unix:///?socket=nothing"], 5, "PPT-5003");
    assert!(missing.contains("cannot connect"), "{missing}");
    let same = format!("nbd+unix:///?socket={}", world.path("n0").display());
    create(&[&one, &same], 3, "PPT-3004");
    create(&[&one, "nbd:host"], 2, "PPT-2001");
    create(&[&one, "nbds+unix:///?socket=n1"], 1, "PPT-1005");
    create(&[&one, "aoe:1.0@nothere"], 5, "PPT-5003");
    let _read_only = Peer::start(
        &world,
        "nbdkit",
        &["nbdkit", "-f", "--exit-with-parent", "-r", "-U", "ro", "memory", "32M"],
    );
    until(|| world.path("ro").exists());
    let refusal = create(&[&one, "nbd+unix:///?socket=ro"], 1, "PPT-1002");
    assert!(refusal.contains("read-only"), "{refusal}");
    let signature = "linux_raid_member@0x1000";
    let members = [one, other];
    let server = serve(&world, "1", &members);
    // An array is no member of itself, by whatever way its export is named.
    for own in [world.uri(), String::from("nbd+unix:///?socket=nbd.sock")] {
        world.order_refused(&["add", "tank", &own], 3, "PPT-3004");
    }
    let threads = ["serve", "tank", &members[0], &members[1], "--threads", "2"];
    assert_eq!(server.terminate(), 0);
    let refusal = world.refused(&threads, 3, "PPT-3006");
    assert!(refusal.contains("--threads"), "{refusal}");
    let refusal = create(&[&members[0], &members[1]], 3, "PPT-3001");
    assert!(refusal.contains(signature), "{refusal}");
}

/// Waits until so many targets answer.
fn until_targets(world: &World, shelf: &Shelf, count: usize) -> serde_json::Value {
    let look = || world.json(&["aoe", "discover", &shelf.near[0]]);
    until(|| look()["targets"].as_array().unwrap().len() == count);
    look()
}

#[test]
fn aoe_targets_are_found_and_are_members() {
    let world = World::new();
    let shelf = Shelf::new(&world, 1);
    let empty = world.json(&["aoe", "discover", &shelf.near[0]]);
    assert_eq!(empty["targets"], serde_json::json!([]));
    let peers: Vec<Peer> = (0..3).map(|slot| vblade(&world, &shelf, slot)).collect();
    let found = until_targets(&world, &shelf, 3);
    let (first, members) = (&found["targets"][0], [0, 1, 2].map(|slot| format!("1.{slot}")));
    assert_eq!((first["shelf"].as_u64(), first["slot"].as_u64()), (Some(1), Some(0)));
    assert_eq!((first["bytes"].as_u64(), first["own"].as_bool()), (Some(32 << 20), Some(false)));
    let members = members.map(|address| shelf.target(&address));
    assert_eq!(first["address"], *members[0]);
    let server = serve(&world, "5", &members);
    world.wait_until_idle();
    world.fio("0", "16M", 1);
    let content = world.content();
    assert_eq!(server.terminate(), 0);
    // The same by discovery.
    let scan = format!("aoe:{}", shelf.near[0]);
    let server = world.serve(&["--scan", &scan]);
    assert!(world.content() == content);
    assert_eq!(server.terminate(), 0);
    drop(peers);
    let server = world.serve_members(&["b0", "b1", "b2"].map(String::from));
    assert!(world.content() == content);
    assert_eq!(server.terminate(), 0);
}

/// Serves an array of one RAID 0 of two files as AoE 1.0 on all cables of a shelf.
fn serve_shelf(world: &World, shelf: &Shelf, number: usize) -> Server {
    let name = format!("shelf{number}");
    let files = ["a", "b"].map(|file| format!("{name}{file}"));
    let create = ["create", &name, "--level", "0", "--new-files", "24M", "--yes"];
    world.ok(&[&create[..], &[&files[0], &files[1]]].concat());
    let export = format!("{number}.0@{}", shelf.far.join(","));
    let program = env!("CARGO_BIN_EXE_parapet");
    let control = format!("unix:{name}.sock");
    let serve = [program, "serve", &name, &files[0], &files[1], "--aoe", &export];
    let words = shelf.within(&serve);
    let more = ["--control", &control, "--json"];
    world.launch_tool(&[&words[..], &more].concat())
}

/// Serves an array of shelves on two links, and takes a whole shelf away under load.
fn lose_a_shelf(level: &str, count: usize) {
    let world = World::new();
    let shelves: Vec<Shelf> = (0..count).map(|_| Shelf::new(&world, 2)).collect();
    let numbered = || shelves.iter().enumerate();
    let mut servers: Vec<Server> =
        numbered().map(|(number, shelf)| serve_shelf(&world, shelf, number)).collect();
    let members: Vec<String> =
        numbered().map(|(number, shelf)| shelf.target(&format!("{number}.0"))).collect();
    let server = serve(&world, level, &members);
    // Until parity is computed the array cannot lose a member, and waits for it.
    world.wait_until_idle();
    world.under_load("tank", || {
        // A link of the first shelf is pulled and put back; the last shelf loses power.
        ip(&["link", "set", &shelves[0].near[0], "down"]);
        drop(servers.pop());
        until_slot(&world, count - 1, "missing");
        ip(&["link", "set", &shelves[0].near[0], "up"]);
    });
    let array = world.order(&["status", "tank"]);
    let slots = array["slots"].as_array().unwrap();
    assert!(slots[..count - 1].iter().all(|slot| slot["state"] == "in_sync"), "{array}");
    let content = world.content();
    // The shelf comes back, and is a member again.
    let name = format!("shelf{}", count - 1);
    let files = ["a", "b"].map(|file| format!("{name}{file}"));
    let export = format!("@{}", shelves[count - 1].far.join(","));
    let (program, control) = (env!("CARGO_BIN_EXE_parapet"), format!("unix:{name}.sock"));
    let serve = [program, "serve", &name, &files[0], &files[1], "--aoe", &export];
    let more = ["--control", &control, "--json"];
    let words = [&shelves[count - 1].within(&serve)[..], &more].concat();
    servers.push(world.launch_tool(&words));
    until_slot(&world, count - 1, "in_sync");
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    assert!(world.content() == content, "RAID {level}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_raid10_of_shelves_survives_the_loss_of_a_shelf() {
    lose_a_shelf("10", 4);
}

#[test]
fn a_raid6_of_shelves_survives_the_loss_of_a_shelf() {
    lose_a_shelf("6", 4);
}

#[test]
fn a_raid35_of_shelves_survives_the_loss_of_a_shelf() {
    lose_a_shelf("3.5", 5);
}

#[test]
fn exports_of_this_machine_are_not_members() {
    let world = World::new();
    let shelf = Shelf::new(&world, 1);
    world.create("1", 2, &[]);
    let export = format!("1.0@{}", shelf.near[0]);
    let server = world.serve(&["tank", "m0", "m1", "--aoe", &export]);
    // A port does not hear its own frames.
    world.order_refused(&["add", "tank", &format!("aoe:{export}")], 5, "PPT-5003");
    // Through another interface of this machine.
    let own_namespace = std::process::id().to_string();
    ip(&["-n", &shelf.name, "link", "set", &shelf.far[0], "netns", &own_namespace]);
    ip(&["link", "set", &shelf.far[0], "up"]);
    let found = || world.json(&["aoe", "discover", &shelf.far[0]]);
    until(|| found()["targets"][0]["own"] == true);
    let own = format!("aoe:1.0@{}", shelf.far[0]);
    let refusal = world.order_refused(&["add", "tank", &own], 3, "PPT-3004");
    assert!(refusal.contains("this machine itself"), "{refusal}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_server_that_comes_back_is_a_member_again() {
    let world = World::new();
    let mut peers: Vec<Peer> = (0..3).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    world.under_load("tank", || {
        drop(peers.remove(1));
        until_slot(&world, 1, "missing");
        peers.insert(1, nbdkit(&world, 1, &[], &[]));
        until_slot(&world, 1, "in_sync");
    });
    world.wait_until_idle();
    let content = world.content();
    world.order(&["scrub", "tank", "--quiet"]);
    let array = world.settle_idle();
    assert_eq!(array["last_scrub"]["mismatches"], 0, "{array}");
    assert_eq!(server.terminate(), 0);
    drop(peers);
    let server = world.serve_members(&["d0", "d1", "d2"].map(String::from));
    assert!(world.content() == content);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_killed_qemu_nbd_is_resumed_or_re_added() {
    let world = World::new();
    let _others = [0, 2].map(|number| nbdkit(&world, number, &[], &[]));
    let mut peer = Some(qemu_nbd(&world, 1));
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    std::fs::write(world.path("data"), pattern(16 << 20, 3)).unwrap();
    world.nbdcopy("data", &world.uri());
    world.wait_until_idle();
    let says = |what: &str| world.log().lines().filter(|line| line.contains(what)).count();
    world.under_load("tank", || {
        // Back at once: requests wait, and the member stays.
        drop(peer.take());
        until(|| says("n1: connection lost: reconnecting") == 1);
        peer = Some(qemu_nbd(&world, 1));
        until(|| says("n1: connected") == 1);
    });
    let slot = world.order(&["status", "tank"])["slots"][1].clone();
    assert_eq!((&slot["state"], says("back in slot")), (&"in_sync".into(), 0), "{}", world.log());
    world.under_load("tank", || {
        drop(peer.take());
        until_slot(&world, 1, "missing");
        peer = Some(qemu_nbd(&world, 1));
        until_slot(&world, 1, "in_sync");
    });
    world.wait_until_idle();
    // By the bitmap: not as a new member.
    assert_eq!((says("back in slot 1"), says("takes slot 1")), (1, 0), "{}", world.log());
    let content = world.content();
    let (written, data) = (8 << 20..12 << 20, pattern(16 << 20, 3));
    assert!(content[..written.start] == data[..written.start]);
    assert!(content[written.end..16 << 20] == data[written.end..]);
    world.order(&["scrub", "tank", "--quiet"]);
    let array = world.settle_idle();
    assert_eq!(array["last_scrub"]["mismatches"], 0, "{array}");
    assert_eq!(server.terminate(), 0);
    drop((peer, _others));
    let server = world.serve_members(&["d0", "d1", "d2"].map(String::from));
    assert!(world.content() == content);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_server_that_pauses_is_waited_for() {
    let world = World::new();
    let peers: Vec<Peer> = (0..3).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    let server = serve(&world, "5", &members);
    world.under_load("tank", || {
        peers[1].signal("STOP");
        std::thread::sleep(std::time::Duration::from_secs(1));
        peers[1].signal("CONT");
    });
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_member_that_is_away_at_the_start_comes_later() {
    let world = World::new();
    let mut peers: Vec<Peer> = (0..3).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..3).map(uri).collect();
    assert_eq!(serve(&world, "5", &members).terminate(), 0);
    drop(peers.remove(1));
    std::fs::remove_file(world.path("n1")).unwrap();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank", "--degraded"], &names[..]].concat());
    world.fio("0", "4M", 1);
    peers.insert(1, nbdkit(&world, 1, &[], &[]));
    until_slot(&world, 1, "in_sync");
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn errors_of_a_server_are_repaired_from_the_others() {
    let world = World::new();
    // Not before the start: it refuses a member without a label.
    let trigger = format!("error-pread-file={}", world.path("errors").display());
    let error = ["error-pread=EIO", "error-pread-rate=3%", &trigger];
    let mut peers: Vec<Peer> = (0..4).map(|number| nbdkit(&world, number, &[], &[])).collect();
    let members: Vec<String> = (0..4).map(uri).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    world.ok(&[&["create", "tank", "--level", "6", "--yes"], &names[..]].concat());
    drop(peers.remove(0));
    peers
        .insert(0, nbdkit(&world, 0, &["error", "delay"], &[&error[..], &["rdelay=1ms"]].concat()));
    let server = world.serve_members(&members);
    std::fs::write(world.path("errors"), "").unwrap();
    world.fio("0", "16M", 1);
    assert_eq!(world.order(&["status", "tank"])["slots"][1]["state"], "in_sync");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_secured_server_is_trusted_by_its_certificate() {
    let world = World::new();
    let pki = world.path("pki");
    crate::tls::certificates(&world);
    let pki = pki.display().to_string();
    world.file("d0", 32 << 20);
    let tls = ["--tls=require", &format!("--tls-certificates={pki}"), "--tls-verify-peer"];
    let start = ["nbdkit", "-f", "--exit-with-parent", "-U", "n0"];
    let words = [&start[..], &tls, &["file", "d0"]].concat();
    let _peer = Peer::start(&world, "nbdkit", &words);
    until(|| world.path("n0").exists());
    let member = format!("nbds+unix:///?socket=n0&tls-certificates={pki}");
    let plain = ["create", "tank", "--level", "1", "--new-files", "32M", "--yes"];
    world.refused(&[&plain[..], &[&uri(0), "m1"]].concat(), 5, "PPT-5003");
    world.ok(&[&plain[..], &[&member, "m1"]].concat());
    let server = world.serve_members(&[member, "m1".into()]);
    world.fio("0", "4M", 1);
    assert_eq!(server.terminate(), 0);
}
