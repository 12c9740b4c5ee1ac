//! Modes of a server: several arrays, several addresses, standard input, systemd's sockets,
//! read-only; and misbehaving clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};

use crate::world::{World, pattern};

#[test]
fn several_arrays_from_one_process_found_by_looking() {
    let world = World::new();
    world.create("1", 2, &[]);
    world.ok(&["create", "pond", "--level", "5", "--new-files", "16M", "--yes", "p0", "p1", "p2"]);
    world.file("stranger", 1 << 20);
    let server = world.start(&["serve", "--scan", ".", "--nbd", "unix:nbd.sock", "--json"]);
    assert_eq!(server.ready["arrays"].as_array().unwrap().len(), 2, "{}", world.log());
    let listed = world.tool("libnbd-bin", &["nbdinfo", "--list", "--json", &world.uri()]);
    assert!(listed.contains("\"tank\"") && listed.contains("\"pond\""), "{listed}");
    // Each server has a socket at the default place.
    let list = world.json(&["list"]);
    let names: Vec<&str> =
        list["arrays"].as_array().unwrap().iter().map(|a| a["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["pond", "tank"]);
    assert_eq!(world.json(&["status", "pond"])["level"], "raid5");
    assert_eq!(world.json(&["status"])["arrays"].as_array().unwrap().len(), 2);
    world.refused(&["when"], 2, "PPT-2001");
    world.json(&["stop", "pond"]);
    assert_eq!(world.json(&["list"])["arrays"].as_array().unwrap().len(), 1);
    assert_eq!(world.json(&["status"])["name"], "tank", "the only one left");
    world.qemu_io(&["write -P 1 0 1M", "read -P 1 0 1M"]);
    // After a stop, another server can serve the array.
    let pond = ["serve", "pond", "p0", "p1", "p2", "--control", "unix:pond.sock", "--json"];
    let other = world.start(&pond);
    assert_eq!(other.ready["arrays"][0]["name"], "pond");
    assert_eq!(other.terminate(), 0);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn tcp_and_unix_sockets_at_once_show_the_same_bytes() {
    let world = World::new();
    world.create("5", 3, &[]);
    let server = world.serve(&["tank", "m0", "m1", "m2", "--nbd", "tcp:127.0.0.1:0"]);
    let addresses = server.ready["nbd"].as_array().unwrap();
    let tcp = addresses.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:")).unwrap();
    let uri = format!("nbd://{tcp}/tank");
    world.qemu_io(&["write -P 9 65536 4096", "flush"]);
    std::fs::write(world.path("data"), pattern(1 << 20, 2)).unwrap();
    world.nbdcopy("data", &uri);
    let mut expected = pattern(1 << 20, 2);
    expected.resize(world.content().len(), 0);
    assert!(world.content() == expected);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_client_on_standard_input_and_output() {
    let world = World::new();
    world.create("1", 2, &[]);
    let mut child = world
        .command(&["serve", "tank", "m0", "m1", "--stdio"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut take = |count: usize| {
        let mut bytes = vec![0; count];
        from.read_exact(&mut bytes).unwrap();
        bytes
    };
    assert_eq!(take(18), b"NBDMAGICIHAVEOPT\0\x03");
    // Send flags 3 (no zeroes), then EXPORT_NAME "tank": size and flags come back.
    to.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04tank").unwrap();
    assert_eq!(take(10)[..8], (13_u64 << 20).to_be_bytes());
    let mut request = |kind: u8, offset: u64, length: u32, data: &[u8]| {
        to.write_all(&[0x25, 0x60, 0x95, 0x13, 0, 0, 0, kind]).unwrap();
        to.write_all(&[7; 8]).unwrap();
        to.write_all(&offset.to_be_bytes()).unwrap();
        to.write_all(&[&length.to_be_bytes(), data].concat()).unwrap();
    };
    let fine = [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 7, 7, 7, 7, 7, 7, 7, 7];
    request(1, 4096, 512, &[0x77; 512]);
    assert_eq!(take(16), fine);
    request(0, 4000, 200, &[]);
    assert_eq!(take(16), fine);
    assert_eq!(take(200), [vec![0; 96], vec![0x77; 104]].concat());
    request(2, 0, 0, &[]);
    assert_eq!(child.wait().unwrap().code(), Some(0), "it ends with its client");
    assert_eq!(world.json(&["examine", "m0"])["disks"][0]["superblocks"][0]["clean"], true);
}

#[test]
fn libnbd_starts_it_with_a_socket_of_its_own() {
    let world = World::new();
    world.create("1", 2, &[]);
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:control.sock", "--quiet"];
    let program = env!("CARGO_BIN_EXE_parapet");
    let words = [&["nbdinfo", "--size", "--", "[", program], &serve[..], &["]"]].concat();
    let out = world.tool("libnbd-bin", &words);
    assert!(out.lines().any(|line| line == "13631488"), "{out}");
}

#[test]
fn systemd_hands_over_sockets_and_is_told_when_all_is_ready() {
    let world = World::new();
    world.create("1", 2, &[]);
    let notified = UnixDatagram::bind(world.path("notify")).unwrap();
    let listener = std::os::unix::net::UnixListener::bind(world.path("given.sock")).unwrap();
    // The shell passes the socket as descriptor 3 and execs the program under its own process id.
    let program = env!("CARGO_BIN_EXE_parapet");
    let script = format!(
        "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec {program} serve tank m0 m1 \
         --control unix:control.sock"
    );
    let mut child = std::process::Command::new("sh")
        .args(["-c", &script])
        .current_dir(&world.folder)
        .env("NOTIFY_SOCKET", world.path("notify"))
        .stdin(std::os::fd::OwnedFd::from(listener))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut message = [0; 256];
    let count = notified.recv(&mut message).unwrap();
    assert!(message[..count].starts_with(b"READY=1\n"));
    let uri = format!("nbd+unix:///tank?socket={}", world.path("given.sock").display());
    world.tool("libnbd-bin", &["nbdinfo", &uri]);
    world.json(&["stop", "tank", "--control", "control.sock"]);
    let count = notified.recv(&mut message).unwrap();
    assert_eq!(&message[..count], b"STOPPING=1\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn systemds_watchdog_hears_of_the_server_while_its_loop_turns() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let notified = UnixDatagram::bind(world.path("notify")).unwrap();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let mut command = world.command(&[&["serve", "tank"], &names[..], &["--json"]].concat());
    command.env("NOTIFY_SOCKET", world.path("notify"));
    command.env("WATCHDOG_USEC", "20000").stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut message = [0; 256];
    let mut next = || {
        let count = notified.recv(&mut message).unwrap();
        String::from_utf8_lossy(&message[..count]).into_owned()
    };
    assert!(next().starts_with("READY=1\n"));
    for _ in 0..3 {
        assert_eq!(next(), "WATCHDOG=1\n");
    }
    world.json(&["stop", "tank"]);
    while next() != "STOPPING=1\n" {}
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn read_only_serves_and_leaves_every_byte_of_every_member_as_it_is() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let before: Vec<Vec<u8>> =
        members.iter().map(|name| std::fs::read(world.path(name)).unwrap()).collect();
    let server = world.serve(&["tank", "m0", "m1", "m2", "--read-only"]);
    let out = world.tool("libnbd-bin", &["nbdinfo", &world.uri()]);
    assert!(out.contains("is_read_only: true"), "{out}");
    world.content();
    let uri = world.uri();
    let write = world.try_tool("qemu-utils", &["qemu-io", "-f", "raw", "-c", "write 0 4k", &uri]);
    assert_ne!(write.code, 0, "{write:?}");
    assert_eq!(server.terminate(), 0);
    let after: Vec<Vec<u8>> =
        members.iter().map(|name| std::fs::read(world.path(name)).unwrap()).collect();
    assert!(before == after);
}

#[test]
fn an_export_may_have_another_name_and_a_kernel_another_speed() {
    let world = World::new();
    world.create("6", 4, &[]);
    let start = ["tank", "m0", "m1", "m2", "m3", "--export-name", "moat", "--parity", "scalar"];
    let more = ["--cache", "sync", "--deadline", "5", "--check-reads"];
    let server = world.serve(&[&start[..], &more].concat());
    let uri = format!("nbd+unix:///moat?socket={}", world.path("nbd.sock").display());
    world.tool("libnbd-bin", &["nbdinfo", &uri]);
    assert_ne!(world.try_tool("libnbd-bin", &["nbdinfo", &world.uri()]).code, 0);
    std::fs::write(world.path("data"), pattern(8 << 20, 12)).unwrap();
    world.nbdcopy("data", &uri);
    world.nbdcopy(&uri, "back");
    assert!(std::fs::read(world.path("back")).unwrap()[..8 << 20] == pattern(8 << 20, 12));
    assert_eq!(server.terminate(), 0);
    let ran = world.run(&["serve", "tank", "m0", "--parity", "abacus"]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("scalar"), "it names what there is: {ran:?}");
}

#[test]
fn with_write_back_what_was_flushed_survives_a_kill_and_what_was_read_ahead_is_right() {
    let world = World::new();
    world.create("5", 4, &[]);
    let start = ["tank", "m0", "m1", "m2", "m3", "--cache", "writeback", "--read-ahead", "1M"];
    let server = world.serve(&start);
    std::fs::write(world.path("data"), pattern(8 << 20, 21)).unwrap();
    world.nbdcopy("data", &world.uri());
    server.kill();
    let server = world.serve(&start);
    let one = ["nbdcopy", "--requests=1", "--connections=1", "--request-size=65536"];
    let (uri, back) = (world.uri(), world.path("back").display().to_string());
    world.tool("libnbd-bin", &[&one[..], &[&uri, &back]].concat());
    assert!(std::fs::read(world.path("back")).unwrap()[..8 << 20] == pattern(8 << 20, 21));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn nobody_else_listens_where_somebody_answers_but_a_dead_socket_is_replaced() {
    let world = World::new();
    world.create("1", 2, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    let server = world.serve(&["tank", "m0", "m1"]);
    let message = world.refused(
        &["serve", "pond", "p0", "p1", "--control", "unix:control.sock"],
        3,
        "PPT-3008",
    );
    assert!(message.contains("control.sock"), "{message}");
    server.kill();
    assert!(world.path("control.sock").exists(), "left behind");
    let server = world.serve(&["tank", "m0", "m1"]);
    assert_eq!(server.terminate(), 0);
    std::fs::write(world.path("file"), "precious").unwrap();
    world.refused(&["serve", "tank", "m0", "m1", "--nbd", "unix:file"], 3, "PPT-3008");
    assert_eq!(std::fs::read(world.path("file")).unwrap(), b"precious");
}

#[test]
fn members_missing_stale_or_foreign_are_named() {
    let world = World::new();
    world.create("5", 3, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    fn serve<'a>(members: &[&'a str]) -> Vec<&'a str> {
        [&["serve", "tank"], members, &["--control", "unix:c.sock"]].concat()
    }
    // With one member missing that was present at the last use, the start needs a flag.
    let message = world.refused(&serve(&["m0", "m1"]), 3, "PPT-3005");
    assert!(message.contains("--degraded") || message.contains("degraded"), "{message}");
    let server = world.serve(&["tank", "m0", "m1", "gone", "--degraded"]);
    assert_eq!(server.ready["arrays"][0]["state"], "critical");
    world.qemu_io(&["write -P 7 0 1M"]);
    assert_eq!(server.terminate(), 0);
    // With two members missing, it never starts.
    let ran = world.run(&[&serve(&["m0"])[..], &["--degraded"]].concat());
    assert!([1, 3].contains(&ran.code), "{ran:?}");
    // The missing member is now stale, and the server reports it.
    let server = world.serve(&["tank", "m0", "m1", "m2", "--degraded"]);
    assert_eq!(server.ready["arrays"][0]["slots"][2]["state"], "missing", "{}", world.log());
    assert!(world.log().contains("m2 is stale"), "{}", world.log());
    world.order(&["re-add", "tank", "m2"]);
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    assert_eq!(server.terminate(), 0);
    // The user names members of another array by mistake.
    let ran = world.run(&serve(&["p0", "p1"]));
    assert_eq!(ran.code, 5, "{ran:?}");
    world.refused(&serve(&["m0", "m1", "./m1"]), 3, "PPT-3004");
}

#[test]
fn two_halves_that_went_different_ways_are_not_put_together() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    for (member, byte) in members.iter().zip([1, 2]) {
        let server = world.serve(&["tank", member, "--degraded"]);
        world.qemu_io(&[&format!("write -P {byte} 0 1M"), "flush"]);
        assert_eq!(server.terminate(), 0);
    }
    let both = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock", "--degraded"];
    let message = world.refused(&both, 3, "PPT-3005");
    assert!(message.contains("m0") && message.contains("m1"), "{message}");
}

#[test]
fn clients_that_stall_vanish_or_talk_nonsense_disturb_nobody() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    let connect = || UnixStream::connect(world.path("nbd.sock")).unwrap();
    let _silent: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    let mut garbage = connect();
    let _ = garbage.write_all(&pattern(100_000, 5));
    let mut vanishing = connect();
    let mut greeting = [0; 18];
    vanishing.read_exact(&mut greeting).unwrap();
    vanishing.write_all(&[0, 0, 0, 3, b'I', b'H', b'A', b'V']).unwrap();
    drop(vanishing);
    world.qemu_io(&["write -P 3 0 1M", "read -P 3 0 1M"]);
    // Beyond the end, over the limit, of zero length, unaligned.
    let uri = world.uri();
    for command in ["read 28M 1M", "write 28M 4k", "read 29360127 2"] {
        let words = ["qemu-io", "-f", "raw", "-c", command, &uri];
        let ran = world.try_tool("qemu-utils", &words);
        assert!(ran.code != 0 || ran.out.contains("failed"), "{command}: {ran:?}");
    }
    world.qemu_io(&["write -P 4 1001 777", "read -P 4 1001 777", "read -P 3 1000 1", "read 0 0"]);
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_tcp_port_that_is_taken_is_said_to_be() {
    let world = World::new();
    world.create("1", 2, &[]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let address = format!("tcp:{port}");
    let serve = ["serve", "tank", "m0", "m1", "--nbd", &address];
    let message = world.refused(&serve, 3, "PPT-3008");
    assert!(message.contains(&port.to_string()), "{message}");
    drop(TcpStream::connect(("127.0.0.1", port)));
}
