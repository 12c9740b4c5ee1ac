//! Arrays on the wire, seen by aoetools; and command lines that cannot work.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::world::World;

/// Two interfaces with a cable between them; it goes with this value.
struct Cable {
    server: String,
    client: String,
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).output().expect("ip is part of iproute2");
    assert!(done.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Cable {
    fn new(mtu: &str) -> Cable {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |end| format!("{end}{}x{number}", std::process::id());
        let cable = Cable { server: name("pps"), client: name("ppc") };
        let (server, client) = (&*cable.server, &*cable.client);
        ip(&["link", "add", server, "mtu", mtu, "type", "veth", "peer", "name", client]);
        ip(&["link", "set", client, "mtu", mtu, "up"]);
        ip(&["link", "set", server, "up"]);
        cable
    }

    fn export(&self, address: &str) -> String {
        format!("{address}@{}", self.server)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.server]).status();
    }
}

#[test]
fn a_client_finds_the_array_and_its_health() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let cable = Cable::new("9000");
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
}

#[test]
fn an_address_that_is_taken_is_refused() {
    let world = World::new();
    world.create("1", 2, &[]);
    world.ok(&["create", "pond", "--level", "0", "--new-files", "8M", "--yes", "p0", "p1"]);
    let cable = Cable::new("1500");
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
    let cable = Cable::new("576");
    // 576 carries a sector, 547 does not.
    ip(&["link", "set", &cable.server, "mtu", "547"]);
    let said = refused(&cable.export("1.0"), 1, "PPT-1004");
    assert!(said.contains("an MTU of 547 carries no sector"), "{said}");
    ip(&["link", "set", &cable.server, "mtu", "1500"]);
    refused(&format!("pond={}", cable.export("1.0")), 2, "PPT-2001");
    for wrong in ["1.0", "4095.0@eth0", "1.255@eth0", "1.0@eth0,eth0", "x@eth0"] {
        let words = ["serve", "tank", "m0", "m1", "--aoe", wrong];
        assert_eq!(world.run(&words).code, 2, "{wrong}");
    }
}
