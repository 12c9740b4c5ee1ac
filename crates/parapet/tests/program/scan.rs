//! Servers that scan a shared folder for the members of their array. The tests check the disks that
//! they take and leave alone, and the reports about unavailable disks.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::world::{Ran, World, not_tried};

/// Enough rounds to observe a lock held too long.
const ROUNDS: usize = 20;

/// Creates two arrays of three members each: `one` of `one0` …, `two` of `two0` ….
fn pair(world: &World) {
    for name in ["one", "two"] {
        let members: Vec<String> = (0..3).map(|index| format!("{name}{index}")).collect();
        let members: Vec<&str> = members.iter().map(String::as_str).collect();
        let start = ["create", name, "--level", "5", "--new-files", "16M", "--yes"];
        world.ok(&[&start[..], &members].concat());
    }
}

/// Starts a command that reports its result in JSON.
fn begin(world: &World, arguments: &[&str]) -> Child {
    let mut command = world.command(&[arguments, &["--json"]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// Returns its first report.
fn first_report(child: &mut Child) -> Value {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap_or_else(|_| panic!("it said {line:?}"))
}

fn stop(mut child: Child) {
    let kill = format!("kill -TERM {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    let mut rest = String::new();
    child.stdout.take().unwrap().read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
}

#[test]
fn servers_of_different_arrays_start_at_once_from_one_folder() {
    let world = World::new();
    pair(&world);
    for round in 0..ROUNDS {
        let mut servers = ["one", "two"].map(|name| begin(&world, &["serve", name, "--scan", "."]));
        for (name, server) in ["one", "two"].iter().zip(&mut servers) {
            let ready = first_report(server);
            assert_eq!(ready["data"]["arrays"][0]["name"], *name, "round {round}: {ready}");
            assert_eq!(ready["data"]["arrays"][0]["state"], "healthy", "round {round}: {ready}");
        }
        servers.into_iter().for_each(stop);
    }
}

#[test]
fn a_degraded_array_is_searched_for_without_touching_the_others() {
    let world = World::new();
    pair(&world);
    std::fs::remove_file(world.path("one2")).unwrap();
    for round in 0..ROUNDS {
        let mut servers = [
            begin(&world, &["serve", "one", "--scan", ".", "--degraded"]),
            begin(&world, &["serve", "two", "--scan", "."]),
        ];
        for server in &mut servers {
            let ready = first_report(server);
            assert!(ready["error"].is_null(), "round {round}: {ready}");
        }
        servers.into_iter().for_each(stop);
    }
}

/// Checks that one of two servers starts, and the other one reports the user of the members.
fn one_wins(mut both: [Child; 2], round: usize) {
    let answers = [0, 1].map(|index| first_report(&mut both[index]));
    let winner = usize::from(!answers[0]["error"].is_null());
    assert!(answers[winner]["error"].is_null(), "round {round}: {answers:?}");
    let error = &answers[1 - winner]["error"];
    assert_eq!(error["id"], "PPT-3003", "round {round}: {answers:?}");
    let pid = format!("process {} (parapet", both[winner].id());
    assert!(error["message"].as_str().unwrap().contains(&pid), "round {round}: {error}");
    let [first, second] = both;
    let (won, mut lost) = if winner == 0 { (first, second) } else { (second, first) };
    assert_eq!(lost.wait().unwrap().code(), Some(3));
    stop(won);
}

#[test]
fn of_two_servers_of_one_array_one_wins() {
    let world = World::new();
    pair(&world);
    for round in 0..ROUNDS {
        let serve = |socket: &str| {
            let control = format!("--control=unix:{}", world.path(socket).display());
            begin(&world, &["serve", "one", "--scan", ".", &control])
        };
        one_wins([serve("a.sock"), serve("b.sock")], round);
    }
}

#[test]
fn of_two_quickstarts_in_an_empty_folder_one_wins() {
    let world = World::new();
    for round in 0..ROUNDS {
        let dir = format!("d{round}");
        let start = || begin(&world, &["quickstart", "--member-size", "16M", "--dir", &dir]);
        one_wins([start(), start()], round);
        std::fs::remove_dir_all(world.path(&dir)).unwrap();
    }
}

#[test]
fn a_copy_beside_a_served_array_is_told_of_who_has_the_others() {
    let world = World::new();
    pair(&world);
    let server = world.serve(&["one", "--scan", "."]);
    // It sorts before the members and can be opened.
    std::fs::copy(world.path("one1"), world.path("copy")).unwrap();
    let message = world.refused(&["serve", "one", "--scan", "."], 3, "PPT-3003");
    assert!(message.contains(&format!("process {}", server.pid())), "{message}");
    assert!(message.contains("parapet stop one"), "{message}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn where_nothing_is_found_it_is_said_where_it_was_looked_for() {
    let world = World::new();
    pair(&world);
    std::fs::create_dir(world.path("empty")).unwrap();
    for verb in ["serve", "assemble"] {
        let message = world.refused(&[verb, "--scan", "empty"], 5, "PPT-5001");
        assert!(message.contains("empty (folders below are not searched)"), "{message}");
        assert!(!message.contains("create"), "{message}");
        // The same with a name, by a scan and with named members.
        let message = world.refused(&[verb, "three", "--scan", "."], 5, "PPT-5001");
        assert!(message.contains("arrays there: one, two"), "{message}");
        let message = world.refused(&[verb, "three", "one0", "one1"], 5, "PPT-5001");
        assert!(message.contains("one0, one1 are members of one"), "{message}");
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Runs the program as a user without privileges or own files.
fn as_other_user(world: &World, arguments: &[&str]) -> Ran {
    let command = world.command(arguments);
    let mut words = vec!["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "env"];
    let settings: Vec<String> = ["PARAPET_STATE", "PARAPET_RUNTIME"]
        .map(|name| format!("{name}={}", world.folder.display()))
        .to_vec();
    words.extend(settings.iter().map(String::as_str));
    let program = command.get_program().to_str().unwrap().to_owned();
    words.push(&program);
    words.extend(arguments);
    world.try_tool("util-linux", &words)
}

#[test]
fn a_member_that_may_not_be_opened_is_named_with_its_slot_and_the_reason() {
    if !is_root() {
        return not_tried("serves as another user");
    }
    let world = World::new();
    pair(&world);
    world.tool("coreutils", &["chmod", "0666", "one0", "one1", "one2"]);
    world.tool("coreutils", &["chmod", "0777", "."]);
    let check = |mode: &str, text: &str| {
        world.tool("coreutils", &["chmod", mode, "one2"]);
        let ran = as_other_user(&world, &["serve", "one", "--scan", "."]);
        assert_eq!(ran.code, 3, "{ran:?}");
        assert!(ran.err.contains(text), "{ran:?}");
    };
    // A readable member reports its slot; an unreadable one cannot.
    check("0444", "slot 2: ./one2: permission denied");
    check("0400", "not examined: ./one2: permission denied");
    // No member is writable.
    world.tool("coreutils", &["chmod", "0444", "one0", "one1", "one2"]);
    let ran = as_other_user(&world, &["serve", "one", "--scan", "."]);
    assert!(ran.err.contains("no member can be opened; slot 0: ./one0"), "{ran:?}");
    assert!(ran.err.contains("use an account that may"), "{ran:?}");
}

#[test]
fn on_a_file_system_mounted_read_only_the_flag_for_that_is_named() {
    if !is_root() {
        return not_tried("mounts a file system read-only");
    }
    let world = World::new();
    pair(&world);
    let program = env!("CARGO_BIN_EXE_parapet");
    let line = format!(
        "mount --bind . . && mount -o remount,ro,bind . && cd $PWD && {program} serve one --scan ."
    );
    let ran = world.try_tool("util-linux", &["unshare", "-m", "sh", "-c", &line]);
    assert_ne!(ran.code, 0, "{ran:?}");
    assert!(ran.err.contains("slot 0: ./one0: cannot be opened for writing"), "{ran:?}");
    assert!(ran.err.contains("--read-only"), "{ran:?}");
}

#[test]
fn an_array_is_found_by_its_name_with_the_host_and_without() {
    let world = World::new();
    pair(&world);
    rename(&world, "one", "nas01:data");
    for name in ["data", "nas01:data"] {
        let plan = world.json(&["assemble", name, "--scan", ".", "--dry-run"]);
        assert_eq!(plan["array"]["name"], "data", "{plan}");
        world.json(&["assemble", name, "one0", "one1", "one2", "--dry-run"]);
    }
    rename(&world, "two", "nas02:data");
    world.json(&["assemble", "nas02:data", "--scan", ".", "--dry-run"]);
    let message = world.refused(&["assemble", "data", "--scan", ".", "--dry-run"], 3, "PPT-3005");
    assert!(message.contains("2 arrays are called data"), "{message}");
    let examined = world.json(&["examine", "two0"]);
    let uuid = examined["disks"][0]["superblocks"][0]["array_uuid"].as_str().unwrap();
    assert!(message.contains(&format!("{uuid} (./two0 ./two1 ./two2)")), "{message}");
    world.json(&["assemble", uuid, "--scan", ".", "--dry-run"]);
}

/// Renames an array of three members to another host's name: changes name and checksum of each
/// superblock (version 1.2).
fn rename(world: &World, array: &str, name: &str) {
    for index in 0..3 {
        let path = world.path(&format!("{array}{index}"));
        let mut bytes = std::fs::read(&path).unwrap();
        let superblock = &mut bytes[4096..8192];
        superblock[32..64].fill(0);
        superblock[32..32 + name.len()].copy_from_slice(name.as_bytes());
        let devices = u32::from_le_bytes(superblock[220..224].try_into().unwrap()) as usize;
        superblock[216..220].fill(0);
        let word = |word: &[u8]| {
            let mut four = [0; 4];
            four[..word.len()].copy_from_slice(word);
            u64::from(u32::from_le_bytes(four))
        };
        let sum: u64 = superblock[..256 + 2 * devices].chunks(4).map(word).sum();
        let sum = (sum as u32).wrapping_add((sum >> 32) as u32);
        superblock[216..220].copy_from_slice(&sum.to_le_bytes());
        std::fs::write(&path, bytes).unwrap();
    }
}

/// `list` finds unserved arrays by their disks.
#[test]
fn a_scan_lists_what_is_not_served() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    std::fs::remove_file(world.path("p1")).unwrap();
    let list = world.json(&["list", "--scan", "."]);
    let names: Vec<_> = list["resting"].as_array().unwrap().iter().map(|a| &a["name"]).collect();
    assert_eq!(names, ["pond", "tank"], "{list}");
    assert_eq!(list["resting"][1]["level"], "raid5", "{list}");
    assert_eq!(list["resting"][1]["members"][2]["role"], "slot 2", "{list}");
    let text = world.ok(&["status", "--scan", "."]);
    assert!(text.contains("pond        raid1  1/2"), "{text}");
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.start(&[&["serve", "tank"], &members[..], &["--json"]].concat());
    let list = world.json(&["list", "--scan", "."]);
    assert_eq!(list["arrays"][0]["name"], "tank", "{list}");
    assert_eq!(list["resting"].as_array().unwrap().len(), 1, "{list}");
    let text = world.ok(&["status", "--scan", "."]);
    assert!(text.contains("array  tank") && text.contains("NOT SERVED"), "{text}");
    assert_eq!(server.terminate(), 0);
}
