//! `parapet daemon` with members on other machines: exports of another Parapet server and of
//! nbdkit, which the configuration names.

use serde_json::Value;

use crate::machine::Machine;
use crate::peers::{Peer, nbdkit, uri};
use crate::world::{Server, World, until};

/// Serves an array of two files as the shelf: a member of `tank`.
fn shelf(world: &World) -> Server {
    let serve = ["serve", "shelf", "s0", "s1", "--nbd", "unix:shelf.nbd", "--json"];
    world.start(&[&serve[..], &["--control", "unix:shelf.sock"]].concat())
}

/// A machine whose array `tank` has two files and the shelf as members.
fn machine() -> (Machine, Server, String) {
    let machine = Machine::new("");
    let world = &machine.world;
    let create = ["create", "shelf", "--level", "0", "--new-files", "40M", "--yes", "s0", "s1"];
    world.ok(&create);
    let shelf = shelf(world);
    let address = format!("nbd+unix:///shelf?socket={}", world.path("shelf.nbd").display());
    // A member that is larger than those of a degraded start may have less room for its log.
    let bytes = world.tool("libnbd-bin", &["nbdinfo", "--size", &address]);
    let bytes = bytes.trim().parse().unwrap();
    let disks = ["disks/t0", "disks/t1"].map(|name| world.file(name, bytes));
    let disks = disks.map(|path| path.display().to_string());
    let create = ["create", "tank", "--level", "5", "--yes", &disks[0], &disks[1], &address];
    world.ok(&create);
    machine.configure(&format!("[array.tank]\nnetwork_members = [\"{address}\"]\n"));
    (machine, shelf, address)
}

fn slot(machine: &Machine, slot: usize) -> Value {
    machine.array("tank").map_or(Value::Null, |it| it["slots"][slot]["state"].clone())
}

#[test]
fn an_array_with_a_network_member_starts_loses_it_and_gets_it_back() {
    let (machine, remote, _) = machine();
    let world = &machine.world;
    let server = machine.start();
    // It was looked at before the daemon was ready.
    assert_eq!(machine.array("tank").unwrap()["state"], "healthy");
    world.wait_until_idle();
    world.qemu_io(&["write -P 1 0 8M", "flush"]);

    remote.kill();
    until(|| slot(&machine, 2) == "missing");
    world.qemu_io(&["write -P 2 1M 2M", "flush"]);
    let remote = shelf(world);
    until(|| machine.is_healthy("tank"));
    assert_eq!(server.terminate(), 0);

    // Away at the start: it starts by the rule for missing members, and is joined later.
    remote.kill();
    let server = machine.start();
    until(|| machine.array("tank").is_some_and(|it| it["state"] == "critical"));
    world.qemu_io(&["write -P 3 2M 2M", "flush"]);
    let remote = shelf(world);
    until(|| machine.is_healthy("tank"));
    // Only what was written meanwhile was copied.
    assert!(world.log().contains("back in slot 2"), "{}", world.log());
    world.order(&["scrub", "tank"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    world.qemu_io(&["read -P 1 0 1M", "read -P 2 1M 1M", "read -P 3 2M 2M", "read -P 1 4M 4M"]);

    // Stopped and started by a user.
    world.order(&["stop", "tank"]);
    assert!(machine.array("tank").is_none());
    world.order(&["start", "tank"]);
    assert_eq!(machine.array("tank").unwrap()["state"], "healthy");
    assert_eq!((server.terminate(), remote.terminate()), (0, 0));
}

/// No member is on this machine, and one has another address than before; a reload names it.
#[test]
fn an_array_of_network_members_only_starts_and_a_reload_names_more() {
    let machine = Machine::new("");
    let world = &machine.world;
    let mut peers: Vec<Peer> = (0..3).map(|number| nbdkit(world, number, &[], &[])).collect();
    let full = |number: usize| {
        format!("nbd+unix:///?socket={}", world.path(&format!("n{number}")).display())
    };
    world.ok(&["create", "tank", "--level", "1", "--yes", &uri(0), &uri(1)]);
    world.ok(&["create", "pond", "--level", "1", "--yes", &uri(2), "--new-files", "32M", "p0"]);
    let configure = |members: &[String]| {
        let members: Vec<String> = members.iter().map(|it| format!("\"{it}\"")).collect();
        machine.configure(&format!("[array.tank]\nnetwork_members = [{}]\n", members.join(", ")));
    };
    // One is of another array.
    configure(&[full(0), full(2)]);
    let server = machine.start();
    until(|| machine.array("tank").is_some_and(|it| it["state"] == "critical"));
    let log = world.log();
    assert!(log.contains("n2: left out: it is a member of pond"), "{log}");
    world.qemu_io(&["write -P 4 0 4M", "flush"]);
    configure(&[full(0), full(1)]);
    server.signal("HUP");
    until(|| machine.is_healthy("tank"));
    // One that a user removes is not taken again: it was named before.
    world.order(&["fail", "tank", "1"]);
    world.order(&["remove", "tank", &full(1)]);
    server.signal("HUP");
    until(|| world.log().matches("configuration reloaded").count() == 2);
    assert_eq!(machine.array("tank").unwrap()["state"], "critical");
    world.order(&["re-add", "tank", &full(1)]);
    until(|| machine.is_healthy("tank"));
    assert_eq!(server.terminate(), 0);
    // A server that does not answer is reported once, with the array that names it.
    drop(peers.remove(1));
    let server = machine.start();
    until(|| machine.array("tank").is_some_and(|it| it["state"] == "critical"));
    let refusals = world.log().matches("tank: ").count();
    assert!(refusals > 0 && world.log().contains("cannot connect"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn addresses_that_mean_nothing_are_refused_with_their_line() {
    let machine = Machine::new("");
    let check = |text: &str| {
        machine.configure(text);
        let words = ["config", "check", "--config", "parapet.toml"];
        machine.world.run(&words)
    };
    let members = |list: &str| format!("[array.tank]\nnetwork_members = [{list}]\n");
    let ran = check(&members("\"nbd://host/x\", \"aoe:1.0@eth1\""));
    assert_eq!(ran.code, 0, "{ran:?}");
    for (list, why) in [
        ("\"/dev/sda\"", "parapet.toml:7: array.tank.network_members: \"/dev/sda\": write it as"),
        ("\"nbd://host/x\", \"nbds://host/x\"", "are the same disk"),
    ] {
        let ran = check(&members(list));
        assert!(ran.code != 0 && ran.err.contains(why), "{ran:?}");
    }
    let text = members("\"nbd://host/x\"");
    machine.configure(&text);
    let whole = std::fs::read_to_string(machine.world.path("parapet.toml")).unwrap();
    let whole = whole.replace("[arrays]", "[arrays]\nthreads = 2");
    std::fs::write(machine.world.path("parapet.toml"), whole).unwrap();
    let ran = machine.world.run(&["config", "check", "--config", "parapet.toml"]);
    assert!(ran.code == 2 && ran.err.contains("work with one thread only"), "{ran:?}");
}
