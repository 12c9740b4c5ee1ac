//! Servers that are killed, stopped under load, or lose their files.

use std::process::{Command, Stdio};

use crate::world::{World, pattern, until};

#[test]
fn what_was_flushed_before_the_server_was_killed_is_there() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    let flushed = pattern(8 << 20, 6);
    std::fs::write(world.path("data"), &flushed).unwrap();
    let mut server = world.serve_members(&members);
    world.nbdcopy("data", &world.uri());
    for round in 0..3 {
        // Load on the other half of the array, whose content the test does not check.
        let mut load = Command::new("fio")
            .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
            .args(["--offset=12M", "--size=8M", "--time_based", "--runtime=30"])
            .arg(format!("--uri={}", world.uri()))
            .current_dir(&world.folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fio is missing: install the package fio");
        until(|| world.order(&["status", "tank"])["dirty"] == true);
        server.kill();
        load.kill().unwrap();
        load.wait().unwrap();
        server = world.serve_members(&members);
        assert!(world.content()[..flushed.len()] == flushed, "round {round}");
    }
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy");
    world.order(&["scrub", "tank"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0, "{}", world.log());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn sigterm_under_load_finishes_what_was_begun_and_marks_members_clean() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    let mut load = Command::new("fio")
        .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=64k", "--iodepth=16"])
        .args(["--size=16M", "--time_based", "--runtime=30"])
        .arg(format!("--uri={}", world.uri()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio is missing: install the package fio");
    until(|| world.order(&["status", "tank"])["dirty"] == true);
    assert_eq!(server.terminate(), 0, "{}", world.log());
    load.wait().unwrap();
    for disk in world.json(&["examine", "m0", "m1", "m2"])["disks"].as_array().unwrap() {
        assert_eq!(disk["superblocks"][0]["clean"], true, "{disk}");
        assert_eq!(disk["superblocks"][0]["dirty_bits"], 0, "{disk}");
    }
}

#[test]
fn a_crashed_array_is_settled_without_being_served() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 1 0 4M", "flush"]);
    until(|| {
        world.qemu_io(&["write -P 1 0 64k"]);
        world.order(&["status", "tank"])["dirty"] == true
    });
    server.kill();
    let dirty = &world.json(&["examine", "m0"])["disks"][0]["superblocks"][0]["clean"];
    assert_eq!(*dirty, false);
    let planned = world.json(&["assemble", "tank", "m0", "m1", "m2", "--dry-run"]);
    assert_eq!(planned["settled"], false, "{planned}");
    let settled = world.json(&["assemble", "tank", "m0", "m1", "m2", "--quiet"]);
    assert_eq!(settled["settled"], true, "{settled}");
    let clean = &world.json(&["examine", "m0"])["disks"][0]["superblocks"][0]["clean"];
    assert_eq!(*clean, true);
}

#[test]
fn an_array_that_is_only_read_is_not_said_to_be_settled() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    for member in &members {
        let mut bytes = std::fs::read(world.path(member)).unwrap();
        assert!(bytes[8192..].starts_with(b"bitm\x04"), "its bitmap");
        // The bitmap version of Linux 6.18: lockless.
        bytes[8196] = 6;
        std::fs::write(world.path(member), bytes).unwrap();
    }
    let found = world.json(&["assemble", "tank", "m0", "m1", "m2"]);
    assert_eq!(found["settled"], false, "{found}");
    assert!(found["notes"].to_string().contains("read-only: the lockless bitmap"), "{found}");
    let remarks = &world.json(&["examine", "m0"])["disks"][0]["superblocks"][0]["remarks"];
    assert!(remarks[0].as_str().unwrap().contains("lockless"), "{remarks}");
    let text = world.ok(&["assemble", "tank", "m0", "m1", "m2"]);
    assert!(text.contains("nothing was written"), "{text}");
}

/// Returns a signal mask from the kernel's status of a process.
fn mask(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap()
}

/// As under `nohup`: the terminal may disappear.
#[test]
fn a_signal_that_is_ignored_from_the_start_stays_ignored() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let caught = |server: &crate::world::Server| {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        [1, 15].map(|signal| mask(&status, "SigCgt:") >> (signal - 1) & 1 == 1)
    };
    // The tests themselves may run under `nohup`.
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let server = world.serve_members(&members);
    assert_eq!(caught(&server), [mask(&own, "SigIgn:") & 1 == 0, true]);
    assert_eq!(server.terminate(), 0);
    let server = world.serve_under(&["sh", "-c", "trap '' HUP; exec \"$@\"", "sh"], &members);
    assert_eq!(caught(&server), [false, true]);
    assert_eq!(server.terminate(), 0);
}

/// The reader of standard error exits, as `tee` does on Ctrl-C: acknowledged writes survive.
#[test]
fn an_impatient_end_without_standard_error_is_in_order() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_under(&["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"], &members);
    let _client = unread_client(&world);
    server.signal("TERM");
    until(|| !world.path("nbd.sock").exists());
    server.signal("TERM");
    assert_eq!(server.wait(), 0);
}

#[test]
fn a_client_that_does_not_take_its_answers_delays_the_end_and_is_told_of() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let _client = unread_client(&world);
    server.signal("TERM");
    until(|| world.log().contains("asked to stop"));
    server.signal("TERM");
    until(|| world.log().contains("still waiting for"));
    assert!(world.log().contains("1 NBD clients"), "{}", world.log());
    server.signal("TERM");
    assert_eq!(server.wait(), 1, "given up");
}

/// A client that requests 8 MiB and does not read them.
fn unread_client(world: &World) -> std::os::unix::net::UnixStream {
    use std::io::{Read, Write};
    let mut client = std::os::unix::net::UnixStream::connect(world.path("nbd.sock")).unwrap();
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04tank").unwrap();
    client.read_exact(&mut [0; 28]).unwrap();
    client.write_all(b"\x25\x60\x95\x13\0\0\0\0AAAAAAAA\0\0\0\0\0\0\0\0\0\x80\0\0").unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    client
}
