//! Storage faults under load: full file systems, files truncated or deleted during writes, and the
//! reports to the user.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::world::{World, not_tried, pattern, until};

/// A file system in memory, private to one test.
struct Mount(PathBuf);

impl Mount {
    /// None if this user may not mount.
    fn new(world: &World, name: &str, bytes: u64) -> Option<Mount> {
        let place = world.path(name);
        std::fs::create_dir(&place).unwrap();
        let size = format!("size={bytes}");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&place).output();
        let output = mounted.expect("mount is missing: install the package mount");
        if output.status.success() {
            return Some(Mount(place));
        }
        not_tried("mounts a tmpfs");
        None
    }

    /// Fills the remaining space.
    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.join("ballast")).unwrap();
        let block = vec![1; 1 << 16];
        while file.write_all(&block).is_ok() {}
    }

    fn relieve(&self) {
        std::fs::remove_file(self.0.join("ballast")).unwrap();
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).output();
    }
}

/// Creates an array of sparse files, all in the mount except the first.
fn sparse(world: &World, level: &str, members: &[&str]) {
    for member in members {
        world.file(member, 16 << 20);
    }
    let start = ["create", "tank", "--level", level, "--chunk", "16K", "--yes"];
    world.ok(&[&start[..], members].concat());
}

/// Writes and flushes the first 8 MiB.
fn precious(world: &World) -> Vec<u8> {
    let data = pattern(8 << 20, 21);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    data
}

/// Returns the state of a slot.
fn slot(array: &Value, slot: usize) -> &str {
    array["slots"][slot]["state"].as_str().unwrap()
}

#[test]
fn a_full_file_system_costs_the_member_on_it_and_nothing_else() {
    let world = World::new();
    let Some(mount) = Mount::new(&world, "small", 24 << 20) else { return };
    let members = ["small/m0", "m1", "m2"];
    sparse(&world, "5", &members);
    let server = world.serve(&[&["tank"], &members[..]].concat());
    let data = precious(&world);
    mount.fill();
    world.fio("8M", "20M", 1);
    let array = world.order(&["status", "tank"]);
    assert_eq!(slot(&array, 0), "missing", "{array}");
    assert!(array["writable"] == true && array["redundancy_left"] == 0, "{array}");
    let why = array["faulty"][0]["trouble"].as_str().unwrap();
    assert!(why.contains("small/m0") && why.contains("no space left"), "{why}");
    let problem = &array["problems"][0];
    assert!(problem["message"].as_str().unwrap().contains("no space left"), "{problem}");
    let text = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(text.contains("no space left"), "{text}");
    let health = world.run(&["health", "tank", "--control", "control.sock"]);
    assert_eq!(health.code, 2, "{health:?}");
    assert!(health.out.contains("no space left"), "{health:?}");
    // Once there is space, the member returns, and the rest is written to it.
    mount.relieve();
    world.nbdcopy("data", &world.uri());
    world.order(&["re-add", "tank", "small/m0"]);
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy", "{array}");
    assert!(array["problems"].as_array().unwrap().is_empty(), "{array}");
    world.order(&["scrub", "tank"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn where_all_members_run_out_of_space_writes_fail_and_reads_go_on() {
    let world = World::new();
    let Some(mount) = Mount::new(&world, "small", 24 << 20) else { return };
    let members = ["small/m0", "small/m1", "small/m2"];
    sparse(&world, "5", &members);
    let server = world.serve(&[&["tank"], &members[..]].concat());
    let data = precious(&world);
    mount.fill();
    let uri = world.uri();
    world.pattern("more", 24 << 20);
    let ran = world.try_tool("libnbd-bin", &["nbdcopy", "--flush", "more", &uri]);
    assert_ne!(ran.code, 0, "there was no room for it: {ran:?}");
    let array = world.order(&["status", "tank"]);
    assert_eq!((&array["state"], &array["writable"]), (&"healthy".into(), &false.into()));
    assert!(array["faulty"].as_array().unwrap().is_empty(), "no member is lost: {array}");
    assert_eq!(array["problems"][0]["id"], "PPT-8019", "{array}");
    assert!(array["problems"].to_string().contains("no space left"), "{array}");
    let health = world.run(&["health", "tank", "--control", "control.sock"]);
    assert_eq!((health.code, health.out.contains("no space left")), (2, true), "{health:?}");
    assert!(world.log().contains("small/m"), "the log names a member: {}", world.log());
    assert!(world.content()[..data.len()] == data, "reads go on");
    let again = world.try_tool("qemu-utils", &["qemu-io", "-f", "raw", "-c", "write 0 4k", &uri]);
    assert!(again.code != 0 || again.out.contains("failed"), "{again:?}");
    assert_eq!(server.terminate(), 0, "{}", world.log());
    // A start without space works; reads return the same data.
    let server = world.serve(&[&["tank"], &members[..]].concat());
    assert!(world.content()[..data.len()] == data, "{}", world.log());
    assert_eq!(server.terminate(), 0, "{}", world.log());
    // With free space, the array starts, and all data outside the new writes is unchanged.
    mount.relieve();
    let server = world.serve(&[&["tank"], &members[..]].concat());
    precious(&world);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(world.wait_until_idle()["state"], "healthy", "{}", world.log());
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_file_that_is_cut_under_load_is_lost_and_no_client_notices() {
    for level in ["5", "6", "10"] {
        let world = World::new();
        let members = world.create(level, 4, &["--chunk", "16K"]);
        let server = world.serve_members(&members);
        let data = precious(&world);
        world.under_load("tank", || cut(&world.path("m1"), 5 << 20));
        until(|| slot(&world.order(&["status", "tank"]), 1) == "missing");
        let array = world.order(&["status", "tank"]);
        assert!(array["faulty"][0]["trouble"].as_str().is_some_and(|why| !why.is_empty()));
        assert!(world.content()[..data.len()] == data, "{level}");
        assert_eq!(server.terminate(), 0, "{}", world.log());
        // Later starts do not trust the member either.
        let names: Vec<&str> = members.iter().map(String::as_str).collect();
        let server = world.serve(&[&["tank", "--degraded"], &names[..]].concat());
        assert_eq!(slot(&server.ready["arrays"][0], 1), "missing", "{}", world.log());
        assert!(world.content()[..data.len()] == data, "{level}");
        assert_eq!(server.terminate(), 0, "{}", world.log());
    }
}

fn cut(path: &Path, bytes: u64) {
    std::fs::File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_file_that_is_deleted_under_load_serves_on_and_is_told_of() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    let data = precious(&world);
    world.under_load("tank", || std::fs::remove_file(world.path("m1")).unwrap());
    let array = world.order(&["status", "tank"]);
    assert_eq!((slot(&array, 1), &array["redundancy_left"]), ("in_sync", &1.into()), "{array}");
    assert_eq!(array["problems"][0]["id"], "PPT-8007", "{array}");
    let message = array["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("m1") && message.contains("deleted"), "{message}");
    let action = array["problems"][0]["action"].as_str().unwrap();
    assert!(action.starts_with("parapet replace tank 1 DISK"), "{action}");
    let health = world.run(&["health", "tank", "--control", "control.sock"]);
    assert_eq!((health.code, health.out.contains("deleted")), (1, true), "{health:?}");
    until(|| world.log().contains("its file was deleted"));
    // Its bytes are still useful: they compensate the loss of another member.
    world.file("new", 16 << 20);
    world.order(&["replace", "tank", "1", "new"]);
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy");
    assert!(array["problems"].as_array().unwrap().is_empty(), "{array}");
    world.order(&["fail", "tank", "0"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_spare_takes_over_from_a_deleted_file_while_it_still_serves() {
    let world = World::new();
    let mut members = world.create("5", 3, &["--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    let data = precious(&world);
    std::fs::remove_file(world.path("m2")).unwrap();
    let taken = |array: &Value| {
        assert_eq!(array["redundancy_left"], 1, "never less: {array}");
        array["slots"][2]["member"]["name"] == world.path("s0").display().to_string()
    };
    until(|| taken(&world.order(&["status", "tank"])));
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    world.order(&["fail", "tank", "0"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_deleted_file_is_off_the_record_when_the_server_stops() {
    let world = World::new();
    let members = world.create("6", 4, &[]);
    let server = world.serve_members(&members);
    let data = precious(&world);
    std::fs::remove_file(world.path("m0")).unwrap();
    assert_eq!(server.terminate(), 0, "{}", world.log());
    // The array starts without it, and needs no flag.
    let server = world.serve(&["tank", "--scan", "."]);
    assert_eq!(slot(&server.ready["arrays"][0], 0), "missing");
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn a_read_only_array_outlives_a_file_that_is_cut() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    let data = precious(&world);
    assert_eq!(server.terminate(), 0);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank", "--read-only"], &names[..]].concat());
    cut(&world.path("m1"), 3 << 20);
    assert!(world.content()[..data.len()] == data, "{}", world.log());
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn after_a_kill_under_load_only_the_dirty_regions_are_resynced() {
    let world = World::new();
    let members = world.create("4", 4, &["--chunk", "16K", "--bitmap", "64K"]);
    let server = world.serve_members(&members);
    let data = precious(&world);
    until(|| world.order(&["status", "tank"])["dirty"] == false);
    // The server clears the bits of flushed data after a while.
    let dirty = || {
        let disks = world.json(&["examine", "m0"]);
        disks["disks"][0]["superblocks"][0]["dirty_bits"].as_u64().unwrap()
    };
    until(|| dirty() == 0);
    let uri = format!("--uri={}", world.uri());
    let mut load = Command::new("fio")
        .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
        .args(["--offset=12M", "--size=8M", "--time_based", "--runtime=60", &uri])
        .current_dir(&world.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio is missing: install the package fio");
    until(|| dirty() > 0);
    server.kill();
    load.kill().unwrap();
    load.wait().unwrap();
    let bits = dirty();
    // Corrupt parity outside the new writes: a full resync would repair it.
    let examined = world.json(&["examine", "m3"]);
    let start = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap() as usize;
    let mut bytes = std::fs::read(world.path("m3")).unwrap();
    bytes[start + (1 << 20)] ^= 1;
    std::fs::write(world.path("m3"), bytes).unwrap();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let slow = ["--speed-min", "64K", "--speed-max", "64K"];
    let server = world.serve(&[&["tank"], &names[..], &slow].concat());
    let array = world.order(&["status", "tank"]);
    let unsynced = array["unsynced_bytes"].as_u64().unwrap();
    assert!(unsynced > 0 && unsynced <= bits * 3 * 65536, "{bits} bits: {array}");
    assert!(unsynced <= 9 << 20, "only where the load was: {array}");
    assert!(world.content()[..data.len()] == data, "all flushed data is present");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    assert_eq!(world.wait_until_idle()["unsynced_bytes"], 0);
    world.order(&["scrub", "tank", "check"]);
    let scrub = &world.wait_until_idle()["last_scrub"];
    assert_eq!(scrub["mismatches"], 1, "the spoilt parity, and nothing else: {scrub}");
    assert_eq!(scrub["findings"][0]["member_offset"], (1 << 20), "{scrub}");
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

/// A file was truncated and extended with zeros. Neither the open file, nor a reopened one, nor a
/// restart accepts it as it is; the remedies in the errors work.
#[test]
fn a_file_that_was_cut_and_is_long_again_is_rebuilt_in_full() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--checksums", "off"]);
    let server = world.serve_members(&members);
    let data = precious(&world);
    cut(&world.path("m1"), 5 << 20);
    until(|| slot(&world.order(&["status", "tank"]), 1) == "missing");
    world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    cut(&world.path("m1"), 16 << 20);
    let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    assert!(message.contains("was cut") && message.contains("parapet add tank /"), "{message}");
    world.order(&["remove", "tank", "m1"]);
    let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    assert!(message.contains("rebuilt in full"), "{message}");
    assert_eq!(server.terminate(), 0, "{}", world.log());
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank", "--degraded"], &names[..]].concat());
    let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
    assert!(message.contains("rebuilt in full"), "{message}");
    world.order(&["add", "tank", "m1", "--overwrite-signature=linux_raid_member@0x1000"]);
    assert_eq!(world.wait_until_idle()["state"], "healthy", "{}", world.log());
    world.order(&["fail", "tank", "0"]);
    assert!(world.content()[..data.len()] == data);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

/// A client's next write restores the file's length before the server checks its size.
#[test]
fn a_cut_that_a_write_hides_is_noticed_by_that_write() {
    for (level, count, chunk) in [("1", 2, &[][..]), ("5", 3, &["--chunk", "16K"])] {
        // On a busy machine the server may look at the file before the write comes.
        let hidden = (0..10).any(|_| a_write_hides_a_cut(level, count, chunk));
        assert!(hidden, "RAID {level}: the look always came before the write");
    }
}

/// Cuts a member and writes behind the cut. Either way the member is lost and the data right. True
/// if the write came before the server's look at the file, and so made the file long again.
fn a_write_hides_a_cut(level: &str, count: usize, chunk: &[&str]) -> bool {
    let world = World::new();
    let members = world.create(level, count, &[&["--checksums", "off"], chunk].concat());
    let server = world.serve_members(&members);
    let data = precious(&world);
    let uri = world.uri();
    let end = world.content().len() - (1 << 20);
    cut(&world.path("m1"), 5 << 20);
    let write = format!("write -P 7 {end} 1M");
    world.tool("qemu-utils", &["qemu-io", "-f", "raw", "-c", &write, "-c", "flush", &uri]);
    let hidden = std::fs::metadata(world.path("m1")).unwrap().len() == 16 << 20;
    let array = world.order(&["status", "tank"]);
    assert_eq!(slot(&array, 1), "missing", "{array}");
    let content = world.content();
    assert!(content[..data.len()] == data, "RAID {level}: {}", world.log());
    assert!(content[end..].iter().all(|&byte| byte == 7), "RAID {level}");
    if hidden {
        let message = world.order_refused(&["re-add", "tank", "m1"], 3, "PPT-3006");
        assert!(message.contains("was cut"), "{message}");
    }
    assert_eq!(server.terminate(), 0, "{}", world.log());
    hidden
}

/// A loop device on a member's file has another identity, but the same bytes.
#[test]
fn a_loop_device_on_a_member_is_no_other_disk() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let made = world.try_tool("mount", &["losetup", "--find", "--show", "m1"]);
    if made.code != 0 {
        return not_tried("makes a loop device");
    }
    let device = made.out.trim();
    let overwrite = "--overwrite-signature=linux_raid_member@0x1000";
    for order in [
        &["add", "tank", device, overwrite][..],
        &["replace", "tank", "0", device, overwrite],
        &["re-add", "tank", device],
    ] {
        let message = world.order_refused(order, 3, "PPT-3004");
        assert!(message.contains("made of the same bytes"), "{message}");
    }
    world.tool("mount", &["losetup", "--detach", device]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}
