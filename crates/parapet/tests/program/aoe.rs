//! Arrays on the wire, seen by aoetools; and command lines that cannot work.

use crate::wires::{Cable, ip};
use crate::world::{World, until};

#[test]
fn a_client_finds_the_array_and_its_health() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let mut cable = Cable::new(&world, "9000");
    let words = ["--aoe", &cable.export("7.3")];
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank"], &names[..], &words].concat());
    assert_eq!(server.ready["aoe"], serde_json::json!(["aoe:7.3"]));
    let ping = |more: &[&str]| {
        let words = [&["aoeping"], more, &["-s", "10", "7", "3", &cable.client]].concat();
        world.tool("aoetools", &words)
    };
    let identity = ping(&["-I"]);
    let uuid = world.order(&["status", "tank"])["uuid"].as_str().unwrap().replace([':', '-'], "");
    assert!(identity.contains(&format!("serial_number: {}", &uuid[..20])), "{identity}");
    assert!(identity.contains("model: Parapet raid5"), "{identity}");
    // RETURN STATUS answers in the middle and high bytes of the LBA.
    let healthy = ping(&["-S", "return_status"]);
    assert!(healthy.contains("Mid: 0x4f") && healthy.contains("High: 0xc2"), "{healthy}");
    world.order(&["fail", "tank", "1"]);
    let failing = ping(&["-S", "return_status"]);
    assert!(failing.contains("Mid: 0xf4") && failing.contains("High: 0x2c"), "{failing}");
    assert_eq!(server.terminate(), 0);
    cable.verify_answers(3);
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let world = World::new();
    world.create("1", 2, &[]);
    world.ok(&["create", "pond", "--level", "0", "--new-files", "8M", "--yes", "p0", "p1"]);
    let cable = Cable::new(&world, "1500");
    let words = ["serve", "pond", "p0", "p1", "--control", "unix:pond.sock"];
    let other = world.start(&[&words[..], &["--json", "--aoe", &cable.export("1.0")]].concat());
    // The same wire, from its other end.
    let taken = format!("1.0@{}", cable.client);
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:tank.sock", "--aoe"];
    let said = world.refused(&[&serve[..], &[&taken]].concat(), 3, "PPT-3008");
    assert!(said.contains("another target answers as 1.0"), "{said}");
    let free = format!("1.1@{}", cable.client);
    let server = world.start(&[&serve[..], &[&free, "--json"]].concat());
    assert_eq!((server.terminate(), other.terminate()), (0, 0));
}

#[test]
fn interfaces_that_cannot_serve_are_refused() {
    let world = World::new();
    world.create("1", 2, &[]);
    let refused = |export: &str, code, id| {
        let serve = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock", "--aoe", export];
        world.refused(&serve, code, id)
    };
    refused("1.0@nothere", 5, "PPT-5003");
    let cable = Cable::new(&world, "576");
    // 576 carries a sector, 547 does not.
    ip(&["link", "set", &cable.server, "mtu", "547"]);
    let said = refused(&cable.export("1.0"), 1, "PPT-1004");
    assert!(said.contains("an MTU of 547 carries no sector"), "{said}");
    ip(&["link", "set", &cable.server, "mtu", "1500"]);
    refused(&format!("pond={}", cable.export("1.0")), 2, "PPT-2001");
    for wrong in ["1.0", "4095.0@eth0", "1.255@eth0", "1.0@eth0,eth0", "x@eth0", "@"] {
        let words = ["serve", "tank", "m0", "m1", "--aoe", wrong];
        assert_eq!(world.run(&words).code, 2, "{wrong}");
    }
}

/// Waits until the target of this address answers on the client's end, or does not.
fn until_answers(world: &World, cable: &Cable, answers: bool) {
    let look = || world.json(&["aoe", "discover", &cable.client]);
    until(|| look()["targets"].as_array().unwrap().is_empty() != answers);
}

fn mac_of(interface: &str) -> String {
    let text = std::fs::read_to_string(format!("/sys/class/net/{interface}/address"));
    text.expect("the interface exists").trim().to_owned()
}

#[test]
fn an_export_goes_online_and_offline_while_the_array_is_served() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let cable = Cable::new(&world, "9000");
    let server = world.serve_members(&members);
    assert!(world.order(&["status", "tank"])["aoe"].is_null());
    world.order_refused(&["offline", "tank"], 3, "PPT-3006");
    world.order_refused(&["online", "tank"], 2, "PPT-2001");
    let no_interface = world.order_refused(&["online", "tank", "@nothere"], 2, "PPT-2001");
    assert!(no_interface.contains("no AoE address"), "{no_interface}");
    world.order(&["shelf", "tank", "7.3"]);
    world.order_refused(&["online", "tank", "@nothere"], 5, "PPT-5003");
    world.order(&["online", "tank", &format!("@{}", cable.server)]);
    until_answers(&world, &cable, true);
    world.order_refused(&["online", "tank"], 3, "PPT-3006");
    world.order_refused(&["shelf", "tank", "7.4"], 3, "PPT-3006");
    let aoe = world.order(&["status", "tank"])["aoe"].clone();
    assert_eq!((aoe["address"].as_str(), aoe["online"].as_bool()), (Some("7.3"), Some(true)));
    world.tool("aoetools", &["aoeping", "-s", "10", "7", "3", &cable.client]);
    world.order(&["offline", "tank"]);
    until_answers(&world, &cable, false);
    world.order(&["shelf", "tank", "8.0"]);
    // The interface of the last time.
    world.order(&["online", "tank"]);
    world.tool("aoetools", &["aoeping", "-s", "10", "8", "0", &cable.client]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_state_of_an_export_travels_with_the_array() {
    for level in ["5", "0"] {
        let world = World::new();
        let members = world.create(level, 3, &[]);
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let cable = Cable::new(&world, "1500");
        let (own, other) = (mac_of(&cable.client), "02:00:00:00:00:09");
        let server =
            world.serve(&[&["tank"], &names[..], &["--aoe", &cable.export("7.3")]].concat());
        world.order(&["mask", "tank", "--add", other, "--add", &own]);
        server.kill();
        // Without an address it is as it was.
        let again = format!("@{}", cable.server);
        let serve = [&["tank"], &names[..], &["--aoe", &again]].concat();
        let server = world.serve(&serve);
        until_answers(&world, &cable, true);
        let masks = &world.order(&["status", "tank"])["aoe"]["masks"];
        assert_eq!(*masks, serde_json::json!([other, own]));
        let full = world.order(&["mask", "tank", "--remove", &own]);
        assert!(full["message"].as_str().unwrap().contains("only 02:00:00:00:00:09"), "{full}");
        until_answers(&world, &cable, false);
        world.order(&["offline", "tank"]);
        assert_eq!(server.terminate(), 0);
        // Another machine, and members in another order.
        let _ = std::fs::remove_dir_all(world.path("state"));
        let mut moved = names.clone();
        moved.reverse();
        let server = world.serve(&[&["tank"], &moved[..], &["--aoe", &again]].concat());
        let aoe = world.order(&["status", "tank"])["aoe"].clone();
        assert_eq!((aoe["online"].as_bool(), aoe["address"].as_str()), (Some(false), Some("7.3")));
        assert_eq!(server.terminate(), 0);
    }
}

#[test]
fn a_new_member_gets_the_state_and_a_stale_one_does_not_count() {
    let world = World::new();
    let members = world.create("1", 2, &["--spare", "s0"]);
    let cable = Cable::new(&world, "1500");
    let start = ["tank", &members[0], &members[1], "s0", "--aoe", &cable.export("7.3")];
    let server = world.serve(&start);
    world.order(&["mask", "tank", "--add", "02:00:00:00:00:01"]);
    world.order(&["fail", "tank", "0"]);
    world.wait_until_idle();
    let (old, new) = ("02:00:00:00:00:01", "02:00:00:00:00:02");
    world.order(&["mask", "tank", "--remove", old, "--add", new]);
    world.order(&["fail", "tank", "1"]);
    assert_eq!(server.terminate(), 0);
    // Only the former spare is left, and a member with the older state.
    let again = format!("@{}", cable.server);
    let server = world.serve(&["tank", "s0", &members[0], "--degraded", "--aoe", &again]);
    let masks = &world.order(&["status", "tank"])["aoe"]["masks"];
    assert_eq!(*masks, serde_json::json!(["02:00:00:00:00:02"]));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn an_export_whose_masks_are_damaged_is_not_served() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let cable = Cable::new(&world, "1500");
    let export = cable.export("7.3");
    let serve = ["tank", &members[0], &members[1]];
    let server = world.serve(&[&serve[..], &["--aoe", &export]].concat());
    world.order(&["mask", "tank", "--add", "02:00:00:00:00:01"]);
    assert_eq!(server.terminate(), 0);
    let damage = |member: &str| {
        let path = world.path(member);
        let mut bytes = std::fs::read(&path).unwrap();
        let copies = bytes.windows(8).enumerate().filter(|(_, it)| it == b"Pexport1");
        let copies: Vec<usize> = copies.map(|(at, _)| at).collect();
        assert!(!copies.is_empty(), "{member} has a copy");
        copies.iter().for_each(|at| bytes[at + 100] = 0xff);
        std::fs::write(&path, bytes).unwrap();
    };
    // The copies of one member are enough.
    damage(&members[0]);
    let server = world.serve(&[&serve[..], &["--aoe", &format!("@{}", cable.server)]].concat());
    let masks = &world.order(&["status", "tank"])["aoe"]["masks"];
    assert_eq!(*masks, serde_json::json!(["02:00:00:00:00:01"]));
    assert_eq!(server.terminate(), 0);
    members.iter().for_each(|member| damage(member));
    let server = world.serve(&serve);
    let refusal = world.order_refused(&["online", "tank", &export], 1, "PPT-1002");
    assert!(refusal.contains("damaged"), "{refusal}");
    world.order(&["shelf", "tank", "7.3"]);
    world.order(&["online", "tank", &export]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn clients_change_the_state_where_the_server_permits_it() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let cable = Cable::new(&world, "1500");
    let export = ["--aoe", &cable.export("7.3")];
    let config = |words: &[&str]| {
        let (start, target) = (["aoecfg", "-t", "2"], ["7", "3", &*cable.client]);
        world.try_tool("aoetools", &[&start[..], words, &target].concat()).out
    };
    let server = world.serve(&[&["tank"], &names[..], &export].concat());
    config(&["-c", "fset", "-s", "mine"]);
    assert!(!config(&["-c", "read"]).contains("mine"));
    assert_eq!(world.order(&["status", "tank"])["aoe"]["config"], "");
    assert!(world.log().contains("refused a change of the config string"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
    let permit = ["--aoe-remote-control"];
    let server = world.serve(&[&["tank"], &names[..], &export, &permit].concat());
    config(&["-c", "fset", "-s", "mine"]);
    until(|| world.order(&["status", "tank"])["aoe"]["config"] == "mine");
    server.kill();
    let server = world.serve(&[&["tank"], &names[..], &export].concat());
    assert_eq!(world.order(&["status", "tank"])["aoe"]["config"], "mine");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn an_interface_that_comes_back_is_served_again() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let cable = Cable::new(&world, "1500");
    let export = ["--aoe", &cable.export("7.3")];
    let server = world.serve(&[&["tank"], &names[..], &export].concat());
    until_answers(&world, &cable, true);
    ip(&["link", "del", &cable.server]);
    until(|| world.log().contains("AoE is not served here"));
    let (near, far) = (&*cable.server, &*cable.client);
    ip(&["link", "add", near, "mtu", "1500", "type", "veth", "peer", "name", far]);
    ip(&["link", "set", far, "up"]);
    ip(&["link", "set", near, "up"]);
    until_answers(&world, &cable, true);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn an_array_without_room_keeps_its_export_in_a_file() {
    let world = World::new();
    let (members, _) = crate::golden::unpacked(&world, "raid1-1.0");
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let cable = Cable::new(&world, "1500");
    let serve = |export: &str| {
        world.serve(
            &[&["golden"], &names[..], &["--aoe", &format!("{export}@{}", cable.server)]].concat(),
        )
    };
    let aoe = || world.order(&["status", "golden"])["aoe"].clone();
    let server = serve("7.3");
    let other = "02:00:00:00:00:09";
    world.order(&["mask", "golden", "--add", other]);
    let uuid = world.order(&["status", "golden"])["uuid"].as_str().unwrap().replace(':', "");
    let file = world.path("state/exports").join(&uuid);
    let warning = format!("it is kept in {}, and does not travel", file.display());
    assert_eq!(world.log().matches(&warning).count(), 1, "{}", world.log());
    server.kill();
    let server = serve("");
    assert_eq!((&aoe()["address"], &aoe()["online"]), (&"7.3".into(), &true.into()));
    assert_eq!(aoe()["masks"], serde_json::json!([other]));
    assert_eq!(server.terminate(), 0);
    let whole = std::fs::read(&file).unwrap();
    let mut changed = whole.clone();
    changed[100] ^= 1;
    let mut of_another_array = whole.clone();
    of_another_array[16] ^= 1;
    // It would answer every client.
    for damaged in [&changed[..], &of_another_array, &whole[..100], &[]] {
        std::fs::write(&file, damaged).unwrap();
        let export = format!("@{}", cable.server);
        let flags = ["--control", "unix:c.sock", "--aoe", &export];
        let words = [&["serve", "golden"], &names[..], &flags].concat();
        let said = world.refused(&words, 1, "PPT-1002");
        assert!(said.contains(&file.display().to_string()), "{said}");
        assert!(said.contains("remove the file, and set masks and address anew"), "{said}");
        assert!(std::fs::read(&file).unwrap() == damaged, "it is evidence");
    }
    // The array is served without it, and its other orders work.
    let server = world.serve(&[&["golden"], &names[..]].concat());
    assert_eq!(world.order(&["status", "golden"])["state"], "healthy");
    for order in [&["shelf", "golden", "7.3"][..], &["mask", "golden"], &["online", "golden"]] {
        world.order_refused(order, 1, "PPT-1002");
    }
    std::fs::remove_file(&file).unwrap();
    world.order(&["shelf", "golden", "7.3"]);
    assert_eq!(aoe()["masks"], serde_json::json!([]));
    // A state that cannot be kept does not count.
    let folder = world.path("state/exports");
    std::fs::rename(&folder, world.path("elsewhere")).unwrap();
    std::fs::write(&folder, "a file").unwrap();
    let said = world.order_refused(&["shelf", "golden", "8.0"], 1, "PPT-1002");
    assert!(said.contains(&file.display().to_string()), "{said}");
    assert_eq!(aoe()["address"], "7.3");
    std::fs::remove_file(&folder).unwrap();
    world.order(&["shelf", "golden", "8.0"]);
    assert_eq!(aoe()["address"], "8.0");
    assert_eq!(server.terminate(), 0);
}
