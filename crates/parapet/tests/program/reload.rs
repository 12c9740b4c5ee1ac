//! SIGHUP takes up a new configuration: certificates, addresses, page, watcher and AoE change while
//! clients stay connected.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::machine::Machine;
use crate::panel::free_port;
use crate::peers::Peer;
use crate::tls::certificates;
use crate::wires::Cable;
use crate::world::{Server, World, until};

/// True if the server has a thread of this name.
fn has_thread(server: &Server, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().any(|own| own.trim() == name)
}

/// True if a web page answers on this socket. One that ends may take a connection and no request.
fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket) else { return false };
    let mut answer = String::new();
    let asked = stream.write_all(b"GET / HTTP/1.0\r\nHost: page\r\n\r\n").is_ok();
    asked && stream.read_to_string(&mut answer).is_ok() && answer.contains("tank")
}

#[test]
fn page_and_watcher_start_change_and_end_while_clients_write() {
    let off = "[health]\npolicy = \"off\"\n";
    let machine = Machine::new(off);
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let (first, second) = (machine.world.path("first"), machine.world.path("second"));
    let page = |path: &Path| format!("[page]\nlisten = \"unix:{}\"\n", path.display());
    let reload = |more: &str| {
        machine.configure(more);
        server.signal("HUP");
    };
    assert!(!has_thread(&server, "parapet-health"));
    machine.world.under_load("tank", || {
        reload(&format!("[health]\npolicy = \"alert\"\n{}", page(&first)));
        until(|| has_thread(&server, "parapet-health") && answers(&first));

        // A page that cannot start leaves the former one, and is tried again.
        std::fs::write(&second, "in the way").unwrap();
        reload(&format!("{off}{}", page(&second)));
        until(|| machine.world.log().contains("[page] is not changed"));
        until(|| !has_thread(&server, "parapet-health") && answers(&first));
        std::fs::remove_file(&second).unwrap();
        server.signal("HUP");
        until(|| answers(&second));
        assert!(!answers(&first));

        reload(off);
        until(|| !answers(&second) && !has_thread(&server, "parapet-panel"));
    });
    assert_eq!(server.terminate(), 0);
}

/// A client that stays connected: nbdkit, which passes requests on from a socket of its own.
fn relay(world: &World, port: u16) -> Peer {
    let words = ["nbdkit", "-f", "--exit-with-parent", "-U", "relay", "nbd", "shared=true"];
    let tls = ["tls=require", "tls-certificates=pki", "hostname=localhost", "export=tank"];
    let port = format!("port={port}");
    let peer = Peer::start(world, "nbdkit", &[&words[..], &tls, &[&port]].concat());
    until(|| UnixStream::connect(world.path("relay")).is_ok());
    peer
}

/// Reads and writes through the relay; true if its connection still works.
fn relays(world: &World) -> bool {
    let uri = format!("nbd+unix:///?socket={}", world.path("relay").display());
    let words = ["qemu-io", "-f", "raw", "-c", "write -P 5 0 64k", "-c", "read -P 5 0 64k", &uri];
    let ran = world.try_tool("qemu-utils", &words);
    ran.code == 0 && !ran.out.contains("failed")
}

#[test]
fn renewed_certificates_are_for_new_clients_and_a_mistake_changes_nothing() {
    let port = free_port();
    let (tls, listen) = (
        "tls_cert = \"pki/server-cert.pem\"\ntls_key = \"pki/server-key.pem\"\n",
        format!("\"tcp:127.0.0.1:{port}\""),
    );
    let machine = Machine::new("");
    let world = &machine.world;
    certificates(world);
    machine.create("tank", "1", &["t0", "t1"], &[]);
    machine.configure_nbd(&listen, tls);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let uri = |pki: &str| {
        format!("nbds://localhost:{port}/tank?tls-certificates={}", world.path(pki).display())
    };
    let admits = |uri: &str| world.try_tool("libnbd-bin", &["nbdinfo", "--size", uri]).code == 0;
    let _relay = relay(world, port);
    assert!(admits(&uri("pki")) && relays(world));

    // The same paths, a certificate of another CA.
    std::fs::rename(world.path("pki"), world.path("old")).unwrap();
    certificates(world);
    assert!(admits(&uri("old")), "files count from the reload on");
    server.signal("HUP");
    until(|| admits(&uri("pki")));
    assert!(!admits(&uri("old")));
    assert!(relays(world), "a client that is connected stays");

    // A key that does not fit: nothing changes.
    std::fs::copy(world.path("old/server-key.pem"), world.path("pki/server-key.pem")).unwrap();
    server.signal("HUP");
    until(|| world.log().contains("not reloaded"));
    assert!(admits(&uri("pki")) && relays(world));

    // Without TLS, and on another address as well; then the first is closed.
    let plain = format!("nbd://localhost:{port}/tank");
    assert!(!admits(&plain));
    let socket = format!("\"unix:{}\"", world.path("nbd.sock").display());
    machine.configure_nbd(&format!("{listen}, {socket}"), "");
    server.signal("HUP");
    until(|| admits(&plain) && admits(&world.uri()));
    assert_eq!(machine.array("tank").unwrap()["exports"].as_array().unwrap().len(), 2);
    machine.configure_nbd(&socket, "");
    server.signal("HUP");
    until(|| !admits(&plain));
    assert!(admits(&world.uri()) && relays(world), "no client is dropped");
    assert_eq!(server.terminate(), 0);
}

/// What would drop clients is named, and waits.
#[test]
fn a_reload_names_what_needs_a_restart() {
    let machine = Machine::new("");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let text = std::fs::read_to_string(machine.world.path("parapet.toml")).unwrap();
    let text = text.replace("[arrays]", "[arrays]\nthreads = 2") + "[array.tank]\nexport = false\n";
    std::fs::write(machine.world.path("parapet.toml"), text).unwrap();
    server.signal("HUP");
    until(|| machine.world.log().contains("configuration reloaded"));
    let log = machine.world.log();
    assert!(log.contains("arrays.threads: 1 until the daemon is started again"), "{log}");
    assert!(log.contains("array.tank: export: as before until the array is started"), "{log}");
    assert_eq!(machine.array("tank").unwrap()["exports"].as_array().unwrap().len(), 1);
    assert_eq!(server.terminate(), 0);
}

/// Sets the config string of AoE 1.0 through this interface; true if the target allows it.
const SET_CONFIG: &str = r#"
import socket, struct, sys
interface = sys.argv[1]
link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88a2))
link.bind((interface, 0))
link.settimeout(1)
own = link.getsockname()[4]
frame = b"\xff" * 6 + own + b"\x88\xa2" + struct.pack(">BBHBBI", 0x10, 0, 1, 0, 1, 7)
frame += struct.pack(">HHBBH", 0, 0, 0, 0x14, 4) + b"mine"
while True:
    link.send(frame.ljust(60, b"\0"))
    try:
        while True:
            answer = link.recv(2000)
            if answer[14] & 8 and answer[20:24] == struct.pack(">I", 7):
                print("refused" if answer[14] & 4 else "set")
                sys.exit()
    except TimeoutError:
        pass
"#;

#[test]
fn aoe_settings_change_while_the_export_is_online() {
    let machine = Machine::new("");
    let world = &machine.world;
    let cable = Cable::new(world, "1500");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let export = format!("[array.tank]\naoe = [\"1.0@{}\"]\n", cable.server);
    machine.configure(&export);
    let server = machine.start();
    until(|| machine.array("tank").is_some_and(|it| it["aoe"]["online"] == true));
    let set_config = || world.tool("python3", &["python3", "-c", SET_CONFIG, &cable.client]);
    assert_eq!(set_config().trim(), "refused");
    machine.configure(&format!("[aoe]\nremote_control = true\n{export}"));
    server.signal("HUP");
    until(|| world.log().contains("configuration reloaded"));
    assert_eq!(set_config().trim(), "set");
    assert_eq!(machine.array("tank").unwrap()["aoe"]["config"], "mine");
    assert_eq!(server.terminate(), 0);
}
