//! Clients that use too much memory or too many connections, and addresses that admit too many
//! clients or none.

use std::os::unix::fs::PermissionsExt;

use crate::mixed::{READ, Raw, WRITE, header};
use crate::world::{Server, World};

/// Returns the peak memory of the server, in KiB.
fn peak_kib(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Sixty clients request 32 MiB each, by half-sent writes or by reads that they do not receive.
/// Another client continues with the remaining memory.
#[test]
fn clients_that_announce_much_and_send_little_take_no_memory() {
    let world = World::new();
    world.ok(&["create", "tank", "--level", "1", "--new-files", "64M", "--yes", "m0", "m1"]);
    let flags = ["--nbd", "tcp:127.0.0.1:0", "--nbd-memory", "32M", "--threads", "2"];
    let server = world.serve(&[&["tank", "m0", "m1"], &flags[..]].concat());
    let before = peak_kib(&server);
    let mut hogs: Vec<Raw> = (0..60).map(|_| Raw::tcp(&server).transmit()).collect();
    for (index, hog) in hogs.iter_mut().enumerate() {
        if index % 2 == 0 {
            hog.send(&[header(WRITE, 1, 0, 32 << 20), vec![1; 100]].concat());
        } else {
            (0..4).for_each(|cookie| hog.send(&header(READ, cookie, 0, 32 << 20)));
        }
    }
    for mut client in [Raw::unix(&world).transmit(), Raw::tcp(&server).transmit()] {
        client.send(&[header(WRITE, 1, 40 << 20, 128 << 10), vec![9; 128 << 10]].concat());
        client.take(16);
        client.send(&header(READ, 2, 40 << 20, 128 << 10));
        client.take(16);
        assert!(client.take(128 << 10).iter().all(|&byte| byte == 9));
    }
    let grown = (peak_kib(&server) - before) >> 10;
    assert!(grown < 150, "{grown} MiB more; 60 times 32 MiB were asked for");
    // After they disconnect, all memory is available again.
    drop(hogs);
    let mut client = Raw::tcp(&server).transmit();
    client.send(&header(READ, 3, 0, 32 << 20));
    client.take(16 + (32 << 20));
    assert_eq!(server.terminate(), 0);
    world.refused(&["serve", "tank", "m0", "m1", "--nbd-memory", "31M"], 2, "PPT-2001");
}

/// Three hundred peers connect over TCP and send nothing.
#[test]
fn silent_peers_do_not_keep_clients_out() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve(&["tank", &members[0], &members[1], "--nbd", "tcp:127.0.0.1:0"]);
    let _silent: Vec<Raw> = (0..300).map(|_| Raw::tcp(&server)).collect();
    for mut client in [Raw::tcp(&server).transmit(), Raw::unix(&world).transmit()] {
        client.send(&header(READ, 2, 0, 512));
        client.take(16 + 512);
    }
    assert_eq!(server.terminate(), 0);
}

#[test]
fn addresses_are_given_once_and_said_to_be_open_or_missing() {
    let world = World::new();
    world.create("1", 2, &[]);
    let serve = ["serve", "tank", "m0", "m1"];
    let path = world.path("n.sock");
    let absolute = format!("unix:{}", path.display());
    for twice in [
        ["--nbd", "unix:n.sock", "--nbd", &absolute],
        ["--nbd", "tcp:20999", "--nbd", "tcp:127.0.0.1:20999"],
        ["--nbd", "unix:n.sock", "--control", "unix:n.sock"],
    ] {
        let message = world.refused(&[&serve[..], &twice].concat(), 2, "PPT-2001");
        assert!(message.contains("twice"), "{message}");
    }
    let open = ["--nbd", "tcp:0.0.0.0:0", "--nbd", &absolute, "--control", "unix:c.sock", "--json"];
    let server = world.start(&[&serve[..], &open].concat());
    assert!(world.log().contains("without TLS"), "{}", world.log());
    assert!(!world.log().contains("no client"), "{}", world.log());
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(server.terminate(), 0);
    let server = world.start(&[&serve[..], &["--control", "unix:c.sock", "--json"]].concat());
    assert!(world.log().contains("no client can connect"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
    // The error names the obstacle.
    world.file("plain", 10);
    let message = world.refused(&[&serve[..], &["--nbd", "unix:plain"]].concat(), 3, "PPT-3008");
    assert!(message.contains("not a socket"), "{message}");
    let _other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let message = world.refused(&[&serve[..], &["--nbd", "unix:n.sock"]].concat(), 3, "PPT-3008");
    assert!(message.contains("another process listens"), "{message}");
}
