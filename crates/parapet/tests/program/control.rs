//! Control commands: in order, repeated, in the wrong state, and while another job runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crate::world::{World, until};

#[test]
fn the_life_of_a_member_by_all_its_names() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    let status = world.order(&["status", "tank"]);
    assert_eq!((&status["state"], &status["redundancy_left"]), (&"healthy".into(), &2.into()));
    let uuid = status["slots"][2]["member"]["uuid"].as_str().unwrap().to_owned();
    assert_eq!(uuid.len(), 35, "{status}");
    // By slot, by path, by UUID.
    world.order(&["fail", "tank", "1"]);
    let changed = world.order(&["fail", "tank", &uuid]);
    assert_eq!(changed["array"]["state"], "critical", "{changed}");
    assert_eq!(changed["array"]["problems"][0]["id"], "PPT-8002");
    assert_eq!(changed["array"]["faulty"].as_array().unwrap().len(), 2);
    // A third loss would lose data.
    world.order_refused(&["fail", "tank", "m0"], 3, "PPT-3006");
    // Repeated commands, and commands in the wrong state.
    world.order_refused(&["fail", "tank", "1"], 5, "PPT-5002");
    world.order_refused(&["fail", "tank", "m1"], 3, "PPT-3006");
    world.order_refused(&["fail", "tank", "9"], 5, "PPT-5002");
    world.order_refused(&["fail", "tank", "nobody"], 5, "PPT-5002");
    world.order_refused(&["remove", "tank", "0"], 3, "PPT-3006");
    world.order_refused(&["add", "tank", "no-such-file"], 5, "PPT-5003");
    world.order_refused(&["status", "nothing"], 5, "PPT-5001");
    world.order(&["remove", "tank", "m1"]);
    world.order_refused(&["remove", "tank", "m1"], 5, "PPT-5002");
    // A former member can return: by re-add, or as a new member.
    world.order(&["re-add", "tank", "m2"]);
    world.order(&["add", "tank", "m1"]);
    let array = world.wait_until_idle();
    assert_eq!((&array["state"], &array["redundancy_left"]), (&"healthy".into(), &2.into()));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_spare_takes_over_and_a_replacement_never_reduces_redundancy() {
    let world = World::new();
    let mut members = world.create("5", 3, &["--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    let mut expected = crate::world::pattern(8 << 20, 3);
    std::fs::write(world.path("data"), &expected).unwrap();
    world.nbdcopy("data", &world.uri());
    world.order(&["fail", "tank", "0"]);
    let array = world.wait_until_idle();
    let spare = world.path("s0").display().to_string();
    assert_eq!(array["slots"][0]["member"]["name"], spare, "{array}");
    world.order_refused(&["replace", "tank", "1"], 3, "PPT-3006");
    world.file("new", 16 << 20);
    let changed = world.order(&["replace", "tank", "1", "new"]);
    assert_eq!(changed["array"]["redundancy_left"], 1, "{changed}");
    let array = world.wait_until_idle();
    assert!(array["slots"][1]["member"]["name"].as_str().unwrap().ends_with("/new"), "{array}");
    let mut found = world.content();
    found.truncate(expected.len());
    assert!(found == expected);
    world.order(&["scrub", "tank"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    world.file("small", 4 << 20);
    world.order_refused(&["add", "tank", "small"], 3, "PPT-3006");
    expected.clear();
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_scrub_finds_what_is_wrong_says_where_and_repairs_it() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K", "--checksums", "off"]);
    let server = world.serve_members(&members);
    let data = crate::world::pattern(16 << 20, 4);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    assert_eq!(server.terminate(), 0);
    let examined = world.json(&["examine", "m2"]);
    let data_offset = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap();
    let mut bytes = std::fs::read(world.path("m2")).unwrap();
    bytes[data_offset as usize + 100_000] ^= 1;
    std::fs::write(world.path("m2"), bytes).unwrap();

    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    let array = world.wait_until_idle();
    let scrub = &array["last_scrub"];
    assert_eq!((&scrub["mismatches"], &scrub["repaired_bytes"]), (&1.into(), &0.into()), "{scrub}");
    assert_eq!(scrub["findings"][0]["slot"], 2, "{scrub}");
    let log = world.log();
    assert!(log.contains("tank: slot 2: members disagree, not repaired"), "{log}");
    assert_eq!(array["problems"][0]["id"], "PPT-8005");
    assert_eq!(world.run(&["health", "tank", "--control", "control.sock"]).code, 1);
    world.order(&["scrub", "tank", "repair"]);
    assert!(world.wait_until_idle()["last_scrub"]["repaired_bytes"].as_u64().unwrap() > 0);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    let mut found = world.content();
    found.truncate(data.len());
    assert!(found == data);
    assert_eq!(world.run(&["health", "tank", "--control", "control.sock"]).code, 0);
    world.order_refused(&["scrub", "tank", "stop"], 3, "PPT-3006");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_log_has_changes_of_state_and_an_order_is_no_error() {
    let world = World::new();
    let mut members = world.create("1", 2, &["--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    world.order(&["fail", "tank", "m1"]);
    world.order(&["wait", "tank", "--for", "whole", "--timeout", "600", "--quiet"]);
    // The same without a spare.
    world.order(&["fail", "tank", "0"]);
    world.order(&["re-add", "tank", "m0"]);
    let whole = || world.log().contains("the array is healthy, it tolerates one more failure");
    crate::world::until(whole);
    assert_eq!(server.terminate(), 0);
    let log = world.log();
    let line = |words: &[&str]| {
        let found = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
        found.unwrap_or_else(|| panic!("no line with {words:?}\n{log}"))
    };
    line(&["INFO", "tank: command: fail /", "/m1"]);
    line(&["INFO", "tank: /", "/m1 (slot 1): taken out of service as ordered"]);
    line(&["WARN", "tank: the array is critical, it tolerates no further failure"]);
    line(&["INFO", "tank: the array is healthy, it tolerates one more failure"]);
    line(&["INFO", "tank: rebuild of slot 1 finished"]);
    line(&["INFO", "tank: started: raid1 of 2 members"]);
    line(&["INFO", "tank: stopped; all its members are marked clean"]);
    assert!(!log.contains("\"-\""), "{log}");
    assert!(!log.contains("ERROR"), "{log}");

    let server = world.serve(&[&["tank", "--read-only"], &["m0", "s0"][..]].concat());
    assert_eq!(server.terminate(), 0);
    let log = world.log();
    let line = log.lines().find(|line| line.contains("read-only")).expect("the event is logged");
    assert!(line.contains("INFO"), "{line}");

    // Its parity is not computed yet, and its log is empty.
    let before = world.log().len();
    for name in ["p0", "p1", "p2"] {
        world.pattern(name, 16 << 20);
    }
    let over = "--overwrite-signature=data@0x0";
    world.ok(&["create", "new", "--level", "5", "p0", "p1", "p2", "--yes", over]);
    let server = world.serve(&["new", "p0", "p1", "p2"]);
    assert_eq!(server.terminate(), 0);
    let log = &world.log()[before..];
    assert!(log.contains("first start") && !log.contains("WARN"), "{log}");
}

#[test]
fn a_slow_rebuild_is_shown_waited_for_in_vain_and_hurried() {
    let world = World::new();
    let mut members = world.create("1", 2, &["--spare", "s0"]);
    members.push("s0".into());
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let slow = ["--speed-min", "64K", "--speed-max", "64K"];
    let server = world.serve(&[&["tank"], &names[..], &slow].concat());
    world.nbdcopy(world.pattern("data", 8 << 20).to_str().unwrap(), &world.uri());
    world.order(&["fail", "tank", "1"]);
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["speed"], serde_json::json!({ "min": 65536, "max": 65536 }));
    assert_eq!(status["slots"][1]["state"], "rebuilding", "{status}");
    assert_eq!(status["job"]["kind"], "rebuild", "{status}");
    assert!(status["job"]["percent"].as_f64().unwrap() < 100.0);
    let waiting = ["wait", "tank", "--for", "rebuild", "--timeout", "0", "--quiet"];
    world.order_refused(&waiting, 6, "PPT-6001");
    world.order_refused(&["scrub", "tank"], 3, "PPT-3006");
    let when = world.order(&["when", "tank"]);
    assert_eq!(when["job"]["kind"], "rebuild", "{when}");
    let jobs = world.order(&["jobs"]);
    assert_eq!(jobs["jobs"][0]["job"]["kind"], "rebuild", "{jobs}");
    assert_eq!(jobs["jobs"][0]["name"], "tank", "{jobs}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    let array = world.wait_until_idle();
    assert_eq!(array["state"], "healthy", "{array}");
    assert_eq!(world.order(&["jobs", "tank"])["jobs"], serde_json::json!([]));
    assert!(array["speed"]["max"].is_null());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_disk_that_was_removed_is_free_for_others_while_the_server_runs() {
    let world = World::new();
    let mut members = world.create("6", 4, &["--chunk", "16K", "--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 3 0 8M", "read -P 3 0 8M", "flush"]);
    world.order(&["remove", "tank", "s0"]);
    world.order(&["fail", "tank", "2"]);
    let other = ["create", "other", "--level", "1", "--yes", "s0", "m2"];
    let allowed = [&other[..], &["--overwrite-signature=linux_raid_member@0x1000"]].concat();
    let message = world.refused(&allowed, 3, "PPT-3003");
    assert!(message.contains("m2") && message.contains("in use"), "it has failed only: {message}");
    world.order(&["remove", "tank", "m2"]);
    world.ok(&allowed);
    // The disk now belongs to another array: re-add refuses it, and the array continues without it.
    world.order_refused(&["re-add", "tank", "m2"], 3, "PPT-3006");
    world.qemu_io(&["read -P 3 0 8M"]);
    assert_eq!(world.order(&["status", "tank"])["redundancy_left"], 1);
    world.ok(&["destroy", "other", "s0", "m2", "--yes"]);
    assert_eq!(server.terminate(), 0, "{}", world.log());
}

#[test]
fn orders_during_a_rebuild_twice_and_in_the_wrong_state() {
    let world = World::new();
    let members = world.create("6", 5, &["--chunk", "16K"]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let slow = ["--speed-min", "64K", "--speed-max", "64K"];
    let serve = || world.serve(&[&["tank"], &names[..], &["n0", "n1"], &slow].concat());
    ["n0", "n1", "n2"].into_iter().for_each(|name| drop(world.file(name, 16 << 20)));
    let server = world.serve(&[&["tank"], &names[..], &slow].concat());
    let data = crate::world::pattern(24 << 20, 31);
    std::fs::write(world.path("data"), &data).unwrap();
    world.nbdcopy("data", &world.uri());
    world.order(&["fail", "tank", "0"]);
    world.order(&["add", "tank", "n0"]);
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["job"]["kind"], "rebuild", "{status}");
    // Repeated commands, and commands that a rebuild excludes.
    world.order_refused(&["add", "tank", "n0"], 3, "PPT-3003");
    world.order_refused(&["re-add", "tank", "n0"], 3, "PPT-3003");
    world.order_refused(&["remove", "tank", "n0"], 3, "PPT-3006");
    world.order_refused(&["re-add", "tank", "m0"], 3, "PPT-3006");
    world.order_refused(&["replace", "tank", "0", "n1"], 3, "PPT-3006");
    world.order_refused(&["replace", "tank", "m0", "n1"], 3, "PPT-3006");
    for what in ["check", "repair", "stop"] {
        world.order_refused(&["scrub", "tank", what], 3, "PPT-3006");
    }
    // Fail a second member, then the one being rebuilt; a third loss would lose data.
    world.order(&["fail", "tank", "3"]);
    world.order(&["fail", "tank", "n0"]);
    world.order_refused(&["fail", "tank", "4"], 3, "PPT-3006");
    world.order(&["remove", "tank", "m3"]);
    world.order_refused(&["remove", "tank", "m3"], 5, "PPT-5002");
    world.order(&["remove", "tank", "n0"]);
    world.order(&["add", "tank", "n0", "--overwrite-signature=linux_raid_member@0x1000"]);
    world.order(&["add", "tank", "n1"]);
    // Stopped during the job, and resumed.
    assert_eq!(server.terminate(), 0, "{}", world.log());
    let server = serve();
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["job"]["kind"], "rebuild", "{status}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    let array = world.wait_until_idle();
    assert_eq!((&array["state"], &array["redundancy_left"]), (&"healthy".into(), &2.into()));
    assert!(world.content()[..data.len()] == data);
    world.order(&["scrub", "tank"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    world.order(&["stop", "tank"]);
    assert_eq!(server.wait(), 0);
    world.order_refused(&["stop", "tank"], 4, "PPT-4001");
}

/// Sends these bytes to the socket and returns the answer.
fn send_request(world: &World, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(world.path("control.sock")).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    // A reset may truncate the answer if the server did not read everything.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn nonsense_on_the_control_socket_is_answered_and_harms_nobody() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    for (request, status) in [
        ("GET /v1/arrays HTTP/1.1\r\n\r\n", "200"),
        ("GET /v1/arrays/tank HTTP/1.1\r\nHost: x\r\n\r\n", "200"),
        ("GET /v1/arrays/x HTTP/1.1\r\n\r\n", "404"),
        ("GET / HTTP/1.1\r\n\r\n", "400"),
        ("POST /v1/arrays/tank/explode HTTP/1.1\r\n\r\n", "400"),
        ("POST /v1/arrays/tank/fail HTTP/1.1\r\n\r\n", "400"),
        ("POST /v1/arrays/tank/fail HTTP/1.1\r\nContent-Length: 3\r\n\r\n{x}", "400"),
        ("POST /v1/arrays/tank/fail HTTP/1.1\r\nContent-Length: 11\r\n\r\n{\"who\":\"x\"}", "400"),
        ("DELETE /v1/arrays/tank HTTP/1.1\r\n\r\n", "405"),
        ("GET /v1/arrays HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
        ("\u{0}\u{1}\u{2}\r\n\r\n", "400"),
    ] {
        let answer = send_request(&world, request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer:?}");
    }
    assert_eq!(send_request(&world, b"GET /v1/arr"), "", "half a request");
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000));
    assert!(send_request(&world, long.as_bytes()).starts_with("HTTP/1.1 431 "));
    let _silent = UnixStream::connect(world.path("control.sock")).unwrap();
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

/// The server runs in another folder, which contains a file of the same name.
#[test]
fn a_disk_is_looked_for_where_the_user_is() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let backup = world.pattern("backup", 16 << 20);
    let before = std::fs::read(&backup).unwrap();
    let server = world.serve_members(&members);
    let elsewhere = world.path("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let control = format!("unix:{}", world.path("control.sock").display());
    for words in [&["add", "tank", "backup"][..], &["replace", "tank", "0", "backup"]] {
        let words = [words, &["--control", &control]].concat();
        let asked = world.command(&words).current_dir(&elsewhere).output().unwrap();
        let said = String::from_utf8_lossy(&asked.stderr).into_owned();
        assert!(asked.status.code() == Some(5) && said.contains("PPT-5003"), "{words:?}: {said}");
    }
    let order = br#"{"member":"backup"}"#;
    for verb in ["add", "re-add"] {
        let head = format!("POST /v1/arrays/tank/{verb} HTTP/1.1\r\nHost: parapet\r\n");
        let head = format!("{head}Content-Length: {}\r\n\r\n", order.len());
        let answer = send_request(&world, &[head.as_bytes(), order].concat());
        assert!(answer.contains("PPT-5003"), "{verb}: {answer}");
    }
    assert!(std::fs::read(&backup).unwrap() == before, "the file is unchanged");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_server_that_has_died_is_critical() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.start(&[&["serve", "tank"], &members[..], &["--json"]].concat());
    assert_eq!(world.run(&["health"]).code, 0);
    server.kill();
    let health = world.run(&["health"]);
    assert!(health.code == 2 && health.out.contains("tank.sock"), "{health:?}");
    // With a name, `health` also prints the command that removes the stale socket.
    let health = world.run(&["health", "tank"]);
    assert!(health.code == 2 && health.out.contains("rm "), "{health:?}");
    std::fs::remove_file(world.path("run/tank.sock")).unwrap();
    assert_eq!(world.run(&["health"]).code, 3, "nothing is served");
}

#[test]
fn waiting_ends_in_time_though_the_server_stands_still() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    server.signal("STOP");
    let words = ["wait", "tank", "--timeout", "1", "--control", "control.sock"];
    let message = world.refused(&words, 6, "PPT-6001");
    assert!(message.contains("has not answered in time"), "{message}");
    server.signal("CONT");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn stop_ends_the_server_and_leaves_clean_members() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 1 0 1M"]);
    let stopped = world.order(&["stop", "tank"]);
    assert!(stopped["array"].is_null(), "{stopped}");
    assert_eq!(server.wait(), 0);
    assert!(!world.path("nbd.sock").exists() && !world.path("control.sock").exists());
    for disk in world.json(&["examine", "m0", "m1", "m2"])["disks"].as_array().unwrap() {
        assert_eq!(disk["superblocks"][0]["clean"], true, "{disk}");
    }
}

#[test]
fn a_disk_that_the_array_has_already_is_said_to_be_what_it_is() {
    let world = World::new();
    let mut members = world.create("6", 4, &["--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    for verb in ["add", "re-add"] {
        let message = world.order_refused(&[verb, "tank", "m2"], 3, "PPT-3003");
        assert!(message.contains("in slot 2") && !message.contains("only once"), "{message}");
        let message = world.order_refused(&[verb, "tank", "s0"], 3, "PPT-3003");
        assert!(message.contains("a spare of tank"), "{message}");
    }
    let message = world.order_refused(&["replace", "tank", "1", "m2"], 3, "PPT-3003");
    assert!(message.contains("in slot 2"), "{message}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn nothing_on_any_disk_changes_while_an_array_is_served_read_only() {
    let world = World::new();
    let mut members = world.create("6", 4, &["--spare", "s0"]);
    members.push("s0".into());
    world.file("new", 16 << 20);
    let bytes = || {
        let disks = members.iter().map(String::as_str).chain(["new"]);
        disks.map(|disk| std::fs::read(world.path(disk)).unwrap()).collect::<Vec<_>>()
    };
    let before = bytes();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank"], &names[..], &["--read-only"]].concat());
    for order in [
        &["fail", "tank", "1"][..],
        &["remove", "tank", "s0"],
        &["add", "tank", "new"],
        &["re-add", "tank", "new"],
        &["replace", "tank", "1"],
        &["replace", "tank", "1", "new"],
        &["scrub", "tank", "check"],
        &["scrub", "tank", "repair"],
    ] {
        let message = world.order_refused(order, 3, "PPT-3006");
        assert!(message.contains("read-only"), "{order:?}: {message}");
    }
    assert!(!world.path("state").exists(), "nothing is overwritten, so nothing is kept");
    world.order(&["stop", "tank"]);
    assert_eq!(server.wait(), 0);
    assert!(bytes() == before);
}

#[test]
fn limits_are_shown_and_must_make_sense_and_a_job_begins_once() {
    let world = World::new();
    let mut members = world.create("1", 2, &["--spare", "s0"]);
    members.push("s0".into());
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let slow = ["--speed-min", "64K", "--speed-max", "64K"];
    let server = world.serve(&[&["tank"], &names[..], &slow].concat());
    let shown = world.order(&["speed", "tank"]);
    assert!(shown["message"].as_str().unwrap().contains("64 KiB/s"), "{shown}");
    let unfit = ["speed", "tank", "--speed-min", "2M", "--speed-max", "1M"];
    world.order_refused(&unfit, 2, "PPT-2001");
    assert_eq!(world.order(&["status", "tank"])["speed"]["max"], 65536, "nothing has changed");
    world.order(&["fail", "tank", "1"]);
    let started = || world.order(&["status", "tank"])["job"]["started"].clone();
    until(|| !started().is_null());
    let (first, second) = (started(), started());
    assert_eq!(first, second);

    // Ctrl-C ends the wait, not the job.
    let control = format!("--control=unix:{}", world.path("control.sock").display());
    let mut waiting = world.command(&["wait", "tank", &control, "--json"]);
    let mut waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(waiting.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("rebuild"), "it waits: {line}");
    let kill = format!("kill -INT {}", waiting.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    assert_eq!(waiting.wait().unwrap().code(), Some(6));
    out.read_to_string(&mut line).unwrap();
    assert!(line.contains("the work goes on"), "{line}");

    world.order(&["speed", "tank", "--speed-max", "off"]);
    assert!(world.order(&["status", "tank"])["job"]["seconds_left"].is_null(), "too early to tell");
    let array = world.wait_until_idle();
    let last = &array["last_rebuild"];
    assert_eq!(last["replace"], false, "{array}");
    assert!(last["seconds"].as_f64().unwrap() > 0.0, "{array}");
    let text = world.ok(&["status", "tank", &control, "-v"]);
    for word in ["last rebuild", "speed", "MB)", "WRITTEN"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(world.ok(&["status", "tank", &control, "--si"]).contains("MB"));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_repair_that_is_a_guess_is_called_one() {
    for (level, members, guess) in
        [("5", 3, true), ("1", 2, true), ("6", 4, false), ("1", 3, false)]
    {
        let world = World::new();
        let members = world.create(level, members, &[]);
        let server = world.serve_members(&members);
        let text = world.order(&["scrub", "tank", "repair"])["message"].to_string();
        assert_eq!(text.contains("is a guess"), guess, "{level}: {text}");
        world.wait_until_idle();
        assert_eq!(server.terminate(), 0);
    }
}

#[test]
fn advice_fits_the_situation() {
    let world = World::new();
    let members = world.create("6", 4, &[]);
    let server = world.serve_members(&members);
    let action = |status: &serde_json::Value| status["problems"][0]["action"].to_string();
    world.order(&["fail", "tank", "1"]);
    let text = action(&world.order(&["status", "tank"]));
    let wanted = format!("parapet re-add tank {} ", world.path("m1").display());
    assert!(text.contains(&wanted), "{text}");
    world.order(&["remove", "tank", "m1"]);
    let text = action(&world.order(&["status", "tank"]));
    assert!(text.contains("parapet add tank DISK") && !text.contains("re-add"), "{text}");
    assert_eq!(server.terminate(), 0);
    let report = world.json(&["assemble", "tank", "m0", "m2", "m3"]);
    let text = action(&report["array"]);
    assert!(text.contains("parapet serve tank"), "{text}");
}

#[test]
fn waiting_begins_before_the_work_and_never_in_vain() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank"], &names[..]].concat());
    world.order(&["fail", "tank", "1"]);
    let vain = ["wait", "tank", "--for", "whole", "--timeout", "600", "--quiet"];
    let message = world.order_refused(&vain, 3, "PPT-3006");
    assert!(
        message.contains(&format!("parapet re-add tank {}", world.path("m1").display())),
        "{message}"
    );
    world.file("new", 16 << 20);
    // Whatever state it shows first, `wait` must not end before the rebuild.
    world.order(&["add", "tank", "new"]);
    let array = world.order(&["wait", "tank", "--timeout", "600", "--quiet"])["array"].clone();
    assert_eq!(array["state"], "healthy", "{array}");
    let reached = world.order(&["wait", "tank", "--for", "resync", "--quiet"]);
    assert_eq!(reached["array"]["unsynced_bytes"], 0, "{reached}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_server_that_stands_still_is_critical_soon_and_delays_no_other() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let stuck = world.start(&[&["serve", "tank"], &members[..], &["--json"]].concat());
    let start = ["create", "well", "--level", "1", "--new-files", "16M", "--yes", "w0", "w1"];
    world.ok(&start);
    let well = world.start(&["serve", "well", "w0", "w1", "--json"]);
    // With several arrays, `status` shows all.
    let text = world.ok(&["status"]);
    assert!(text.contains("array  tank") && text.contains("array  well"), "{text}");
    assert_eq!(world.json(&["status"])["arrays"].as_array().unwrap().len(), 2);
    stuck.signal("STOP");
    for words in [&["health", "--timeout", "1"][..], &["health", "tank", "--timeout", "1"]] {
        let health = world.run(words);
        assert!(health.code == 2 && health.out.contains("within 1 s"), "{health:?}");
    }
    let list = world.json(&["list", "--timeout", "1"]);
    assert_eq!(list["arrays"][0]["name"], "well", "{list}");
    assert_eq!(list["silent"].as_array().unwrap().len(), 1, "{list}");
    world.refused(&["status", "tank", "--timeout", "1"], 4, "PPT-4001");
    assert_eq!(world.run(&["health", "well", "--timeout", "1"]).code, 0);
    // To a monitor, a wrong command line means UNKNOWN.
    assert_eq!(world.run(&["health", "tank", "nosuch"]).code, 3);
    stuck.signal("CONT");
    assert_eq!(stuck.terminate(), 0);
    assert_eq!(well.terminate(), 0);
}

#[test]
fn a_wrong_command_line_is_told_whole_in_json() {
    let world = World::new();
    let message = world.refused(&["fail"], 2, "PPT-2001");
    assert!(message.contains("<NAME> <MEMBER>"), "{message}");
}
