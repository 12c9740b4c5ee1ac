//! Messages of the program: correct, most serious first, and only about real problems.

use crate::world::{Ran, World, until};

/// Runs `health`.
fn health(world: &World) -> Ran {
    world.run(&["health", "tank", "--control", "control.sock"])
}

/// Corrupts a byte of the data on this member.
fn corrupt(world: &World, member: &str, at: usize) {
    let examined = world.json(&["examine", member]);
    let start = examined["disks"][0]["superblocks"][0]["data_offset"].as_u64().unwrap();
    let mut bytes = std::fs::read(world.path(member)).unwrap();
    bytes[start as usize + at] ^= 1;
    std::fs::write(world.path(member), bytes).unwrap();
}

#[test]
fn stop_says_how_the_array_rests() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    for (flags, said) in [
        (&["--read-only"][..], "read-only"),
        (&["--parity", "off"], "parity was off"),
        (&[], "all its members are marked clean"),
    ] {
        let server = world.serve(&[&["tank"], &names[..], flags].concat());
        let report = world.order(&["stop", "tank"])["message"].to_string();
        assert!(report.contains(said), "{flags:?}: {report}");
        assert_eq!(server.wait(), 0);
    }
}

#[test]
fn health_calls_nobody_for_a_scrub() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank", "check"]);
    let report = health(&world);
    assert!(report.code == 0 && report.out.contains("check "), "{report:?}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.wait_until_idle();
    let report = health(&world);
    assert!(report.code == 0 && report.out.contains("tank is healthy"), "{report:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_most_that_is_less_than_the_least_of_before_lowers_it() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let server = world.serve(&[&["tank"], &names[..], &["--speed-max", "8M"]].concat());
    let speed = || world.order(&["status", "tank"])["speed"].clone();
    assert_eq!(speed(), serde_json::json!({ "min": 8 << 20, "max": 8 << 20 }));
    world.order(&["speed", "tank", "--speed-max", "4M"]);
    assert_eq!(speed(), serde_json::json!({ "min": 4 << 20, "max": 4 << 20 }));
    world.order_refused(&["speed", "tank", "--speed-min", "5M"], 2, "PPT-2001");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn status_shows_a_few_mismatches_and_counts_the_others() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--checksums", "off"]);
    (0..7).for_each(|index| corrupt(&world, "m1", 200_000 * index));
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 7);
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("and 2 more (parapet status --json)"), "{report}");
    assert!(!report.contains("of its disk"), "which disk is not known: {report}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn status_shows_what_the_write_back_cache_holds() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let flags = ["--cache", "writeback", "--threads", "2"];
    let server = world.serve(&[&["tank"], &names[..], &flags].concat());
    let status = world.order(&["status", "tank"]);
    assert_eq!((&status["cache"], &status["threads"]), (&"writeback".into(), &2.into()));
    assert!(status["cached_bytes"].is_u64(), "{status}");
    let report = world.ok(&["status", "tank", "-v", "--control", "control.sock"]);
    assert!(report.contains("writeback, ") && report.contains("threads  2"), "{report}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn advice_is_what_helps_now() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K", "--checksums", "off"]);
    corrupt(&world, "m1", 300_000);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank"]);
    let message = world.order_refused(&["scrub", "tank"], 3, "PPT-3006");
    assert!(message.contains("parapet scrub tank stop"), "{message}");
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.wait_until_idle();
    world.order(&["fail", "tank", "3"]);
    let problems = world.order(&["status", "tank"])["problems"].to_string();
    assert!(problems.contains("PPT-8005") && !problems.contains("repair"), "{problems}");
    assert!(
        problems.contains(&format!("parapet re-add tank {}", world.path("m3").display())),
        "{problems}"
    );
    assert_eq!(server.terminate(), 0);
}

#[test]
fn what_stays_unsynced_is_not_waited_for_and_stop_says_so() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--consistency", "bitmap"]);
    let server = world.serve_members(&members);
    let mut load = std::process::Command::new("fio")
        .args(["--name=t", "--ioengine=nbd", "--rw=randwrite", "--bs=4k", "--iodepth=16"])
        .args(["--size=8M", "--time_based", "--runtime=30"])
        .arg(format!("--uri={}", world.uri()))
        .current_dir(&world.folder)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("fio is missing: install the package fio");
    until(|| world.order(&["status", "tank"])["dirty"] == true);
    server.kill();
    load.kill().unwrap();
    load.wait().unwrap();
    let vain = ["wait", "tank", "--for", "resync", "--timeout", "600", "--quiet"];

    let server = world.serve(&["tank", "m0", "m1", "m2", "--read-only"]);
    let message = world.order_refused(&vain, 3, "PPT-3006");
    assert!(message.contains("read-only"), "{message}");
    let report = world.order(&["stop", "tank"])["message"].to_string();
    assert!(report.contains("read-only"), "{report}");
    assert_eq!(server.wait(), 0);

    let server = world.serve(&["tank", "m0", "m1", "--force-dirty-degraded"]);
    let message = world.order_refused(&vain, 3, "PPT-3006");
    assert!(message.contains("a member is missing") && message.contains("parapet"), "{message}");
    let problems = world.order(&["status", "tank"])["problems"].to_string();
    assert!(!problems.contains("--for resync"), "{problems}");
    let report = world.order(&["stop", "tank"])["message"].to_string();
    assert!(report.contains("are not in sync"), "{report}");
    assert_eq!(server.wait(), 0);

    // With all members present, `wait` starts before the job and ends after it.
    let server = world.serve(&["tank", "m0", "m1", "--degraded", "--force-dirty-degraded"]);
    world.file("new", 16 << 20);
    world.order(&["add", "tank", "new"]);
    let array = world.order(&vain)["array"].clone();
    assert_eq!((&array["unsynced_bytes"], &array["state"]), (&0.into(), &"healthy".into()));
    let report = world.order(&["stop", "tank"])["message"].to_string();
    assert!(report.contains("all its members are marked clean"), "{report}");
    assert_eq!(server.wait(), 0);
}

/// A kernel lists blocks that other members still hold: no data is lost.
#[test]
fn bad_blocks_that_the_others_have_are_made_good_by_a_repair() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let mut bytes = std::fs::read(world.path("m1")).unwrap();
    let superblock = &bytes[4096..];
    let log_sector = 8 + u64::from(superblock[188]);
    let data_sector = u64::from_le_bytes(superblock[128..136].try_into().unwrap());
    let entry = (data_sector + 2048) << 10 | 8;
    bytes[log_sector as usize * 512..][..8].copy_from_slice(&entry.to_le_bytes());
    std::fs::write(world.path("m1"), bytes).unwrap();
    let server = world.serve_members(&members);
    let status = world.order(&["status", "tank"]);
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8016", "{status}");
    assert!(problem["action"].as_str().unwrap().contains("scrub tank repair"), "{problem}");
    assert!(health(&world).out.contains("made from the others"), "{:?}", health(&world));
    world.order(&["scrub", "tank", "repair"]);
    let status = world.wait_until_idle();
    assert_eq!(status["problems"], serde_json::json!([]), "{status}");
    assert_eq!(status["slots"][1]["member"]["bad_bytes"], 0, "{status}");
    assert_eq!(server.terminate(), 0);
}

/// A check repairs read and checksum errors, as every read does, and reports it. The report names
/// the corrupt members until the user clears it.
#[test]
fn a_check_says_what_it_repaired_and_on_which_member() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    corrupt(&world, "m2", 100_000);
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    let status = world.wait_until_idle();
    let scrub = &status["last_scrub"];
    assert_eq!((&scrub["mismatches"], &scrub["repaired_mismatches"]), (&1.into(), &1.into()));
    assert_eq!(scrub["findings"][0]["repaired"], true, "{scrub}");
    assert_eq!(status["slots"][2]["member"]["checksum_errors"], 1, "{status}");
    let ids = |status: &serde_json::Value| -> Vec<String> {
        let problems = status["problems"].as_array().unwrap();
        problems.iter().map(|problem| problem["id"].as_str().unwrap().into()).collect()
    };
    assert_eq!(ids(&status), ["PPT-8017"], "{status}");
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("1 mismatch, repaired (4 KiB rewritten)"), "{report}");
    assert!(report.contains("0/0/1") && report.contains("0/0/0"), "{report}");
    let report = health(&world);
    assert!(report.code == 1 && report.out.contains("/m2): 1 block did not match"), "{report:?}");
    assert!(!report.out.contains("healthy"), "{report:?}");
    type_advice(&world, &status["problems"][0]);
    let status = world.order(&["status", "tank"]);
    assert_eq!(ids(&status), [""; 0], "{status}");
    assert_eq!(health(&world).code, 0);
    world.order(&["scrub", "tank", "repair"]);
    assert_eq!(world.wait_until_idle()["last_scrub"]["mismatches"], 0);
    assert_eq!(server.terminate(), 0);
}

/// A mismatch whose wrong member is unknown is left to a repair.
#[test]
fn a_check_without_checksums_changes_nothing_and_says_so() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K", "--checksums", "off"]);
    corrupt(&world, "m2", 100_000);
    let server = world.serve_members(&members);
    world.order(&["scrub", "tank", "check"]);
    let status = world.wait_until_idle();
    assert_eq!(status["problems"][0]["id"], "PPT-8005", "{status}");
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("1 mismatch, none repaired"), "{report}");
    type_advice(&world, &status["problems"][0]);
    assert_eq!(world.wait_until_idle()["problems"], serde_json::json!([]));
    assert_eq!(server.terminate(), 0);
}

/// Runs the first command of an advice as a user would; it must succeed.
fn type_advice(world: &World, problem: &serde_json::Value) {
    let action = problem["action"].as_str().unwrap();
    let command = action.split(", or ").next().unwrap();
    type_command(world, command);
}

fn type_command(world: &World, command: &str) {
    assert!(command.starts_with("parapet "), "{command}");
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_parapet"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let ran = std::process::Command::new("sh")
        .args(["-c", command])
        .env("PATH", path)
        .env("PARAPET_RUNTIME", world.path("run"))
        .env("PARAPET_STATE", world.path("state"))
        .current_dir(&world.folder)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{command}: {ran:?}");
}

#[test]
fn only_members_whose_slots_are_free_are_named_to_be_brought_back() {
    let world = World::new();
    let mut members = world.create("6", 5, &["--chunk", "16K", "--spare", "s0"]);
    members.push("s0".into());
    let server = world.serve_members(&members);
    world.order(&["fail", "tank", "0"]);
    world.wait_until_idle();
    for slot in ["1", "3"] {
        world.order(&["fail", "tank", slot]);
    }
    let status = world.order(&["status", "tank"]);
    let faulty = status["faulty"].as_array().unwrap();
    let slots: Vec<_> = faulty.iter().map(|member| member["last_slot"].clone()).collect();
    assert_eq!(slots, [0, 1, 3], "{status}");
    assert!(faulty.iter().all(|member| member["lost_at"].is_string()), "{status}");
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8002", "{status}");
    let message = problem["message"].to_string();
    assert!(message.contains("(slot 1)") && !message.contains("(slot 0)"), "{message}");
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("faulty, was slot 3"), "{report}");
    // Follow each advice in turn, until nothing is missing.
    for left in ["PPT-8002", "PPT-8001"] {
        let status = world.settle_idle();
        assert_eq!(status["problems"][0]["id"], left, "{status}");
        type_advice(&world, &status["problems"][0]);
    }
    assert_eq!(world.wait_until_idle()["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_member_that_was_replaced_is_not_faulty() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.file("new", 16 << 20);
    world.order(&["replace", "tank", "1", "new"]);
    world.order(&["wait", "tank", "--for", "rebuild", "--timeout", "600", "--quiet"]);
    let status = world.order(&["status", "tank"]);
    assert_eq!(status["faulty"][0]["replaced"], true, "{status}");
    let report = world.ok(&["status", "tank", "--control", "control.sock"]);
    assert!(report.contains("replaced, was slot 1") && !report.contains("faulty"), "{report}");
    assert_eq!(server.terminate(), 0);
}

/// Two members of a RAID 5 become unreadable and return: the advice restores the array.
#[test]
fn the_advice_for_a_failed_array_brings_it_back() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    world.wait_until_idle();
    let cut = |bytes: u64| {
        for member in ["m0", "m1"] {
            let file = std::fs::File::options().write(true).open(world.path(member)).unwrap();
            file.set_len(bytes).unwrap();
        }
    };
    // The truncated range held zeros, so extending the file restores it.
    cut(12 << 20);
    until(|| {
        let words = ["qemu-io", "-f", "raw", "-c", "read 0 20M", &world.uri()];
        world.try_tool("qemu-utils", &words);
        world.order(&["status", "tank"])["state"] == "failed"
    });
    cut(16 << 20);
    let status = world.order(&["status", "tank"]);
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8003", "{status}");
    let action = problem["action"].as_str().unwrap();
    let (stop, serve) = action.split_once("then: ").unwrap().1.split_once("; ").unwrap();
    type_command(&world, stop);
    assert_eq!(server.wait(), 0);
    let words: Vec<&str> = serve.split(' ').skip(1).collect();
    let server = world.start(&[&words[..], &["--json"]].concat());
    assert_eq!(world.wait_until_idle()["state"], "healthy", "{action}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_wait_that_is_over_says_how_far_the_work_is() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank"]);
    let report = world.order_refused(&["wait", "tank", "--timeout", "1", "--quiet"], 6, "PPT-6001");
    assert!(report.contains("gave up after 1 s; check "), "{report}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_shape_that_cannot_be_is_told_with_what_can() {
    let world = World::new();
    let create = |words: &[&str]| {
        let start = ["create", "tank", "--new-files", "16M", "--dry-run"];
        let members = ["a", "b", "c"];
        world.refused(&[&start[..], words, &members].concat(), 2, "PPT-2002")
    };
    let report = create(&["--level", "5", "--layout", "bogus"]);
    assert!(report.contains("raid5 has no layout \"bogus\""), "{report}");
    assert!(report.contains("left-symmetric, right-symmetric"), "{report}");
    let report = create(&["--level", "5", "--chunk", "512"]);
    assert!(report.contains("512 bytes") && report.contains("--chunk 512K"), "{report}");
    let large = ["create", "tank", "--new-files", "400M", "--dry-run", "--level", "5"];
    let report = [&large[..], &["--chunk", "64M", "a", "b", "c"]].concat();
    let report = world.refused(&report, 2, "PPT-2002");
    assert!(report.contains("a chunk of 64 MiB is not supported: 4 KiB to 16 MiB"), "{report}");
}

#[test]
fn a_plan_shows_chunks_as_they_were_asked_for_and_that_there_are_no_checksums() {
    let world = World::new();
    let plan = |level: &str, more: &[&str]| {
        let start = ["create", "tank", "--level", level, "--new-files", "16M", "--dry-run"];
        world.ok(&[&start[..], more, &["a", "b", "c", "d", "e"]].concat())
    };
    let report = plan("3.5", &["--chunk", "8K"]);
    assert!(report.contains("order2, chunk 8 KiB"), "{report}");
    assert!(report.contains("checksums  off"), "{report}");
    assert!(plan("10", &[]).contains("checksums  off"));
    assert!(plan("6", &[]).contains("checksums  on"));
    assert!(!plan("0", &[]).contains("checksums"));
}

#[test]
fn a_rate_without_a_unit_is_asked_about() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let report = world.order_refused(&["speed", "tank", "--speed-max", "20"], 2, "PPT-2001");
    assert!(report.contains("20 B/s") && report.contains("20M"), "{report}");
    // A rate of zero pauses the job.
    world.order(&["speed", "tank", "--speed-max", "0"]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_job_says_what_holds_it_back() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["scrub", "tank", "check"]);
    until(|| {
        let job = world.order(&["status", "tank"])["job"]["limited_by"].clone();
        job == "the limit of 64 KiB/s per member (parapet speed)"
    });
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_second_array_of_one_name_is_served_where_the_refusal_says() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let first = world.start(&[&["serve", "tank"], &members[..], &["--json"]].concat());
    std::fs::create_dir(world.path("two")).unwrap();
    let second = ["two/m0", "two/m1"];
    let create = ["create", "tank", "--level", "1", "--new-files", "16M", "--yes"];
    world.ok(&[&create[..], &second].concat());
    let serve = [&["serve", "tank"], &second[..]].concat();
    let report = world.refused(&serve, 3, "PPT-3008");
    let control = format!("unix:{}", world.path("run/tank-2.sock").display());
    assert!(report.contains(&format!("--control {control}")), "{report}");
    let second = world.start(&[&serve[..], &["--control", &control, "--json"]].concat());
    let list = world.json(&["list"]);
    assert_eq!(list["arrays"].as_array().unwrap().len(), 2, "{list}");
    assert_eq!(first.terminate(), 0);
    assert_eq!(second.terminate(), 0);
}

#[test]
fn a_member_in_use_is_removed_as_the_refusal_says() {
    let world = World::new();
    let members = world.create("5", 3, &["--chunk", "16K"]);
    let server = world.serve_members(&members);
    let refused = world.run(&["remove", "tank", "m1", "--control", "control.sock", "--json"]);
    let refused: serde_json::Value = serde_json::from_str(&refused.out).unwrap();
    let action = refused["error"]["action"].as_str().unwrap();
    let commands: Vec<&str> = action.split(", then ").collect();
    assert_eq!(commands.len(), 2, "{action}");
    for command in commands {
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        world.ok(&words);
    }
    // The array tolerates no failure now: the advice is another one.
    let refused = world.run(&["remove", "tank", "0", "--control", "control.sock"]);
    assert!(refused.err.contains("parapet replace tank ") && refused.code == 3, "{refused:?}");
    let refused = world.run(&["fail", "tank", "0", "--control", "control.sock"]);
    assert!(refused.err.contains("parapet replace tank ") && refused.code == 3, "{refused:?}");
    let log = world.log();
    assert!(log.contains("tank: command: remove /") && !log.contains("verb="), "{log}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn tables_fold_on_a_terminal_and_not_in_a_pipe() {
    let world = World::new();
    world.create("5", 3, &[]);
    let in_terminal = |columns: &str| {
        let program = env!("CARGO_BIN_EXE_parapet");
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &format!("{program} list --scan . --color never"), "/dev/null"]);
        command.env("COLUMNS", columns).env("PARAPET_RUNTIME", world.path("run"));
        let ran = command.current_dir(&world.folder).output().expect("script is missing");
        String::from_utf8(ran.stdout).unwrap().replace('\r', "")
    };
    let narrow = in_terminal("30");
    assert!(narrow.lines().all(|line| line.chars().count() <= 30), "{narrow}");
    assert!(narrow.contains("\n      DISKS\n"), "{narrow}");
    assert!(in_terminal("80").starts_with("  NOT SERVED  LEVEL  MEMBERS  DISKS\n"));
    let piped = world.command(&["list", "--scan", "."]).env("COLUMNS", "30").output().unwrap();
    let piped = String::from_utf8(piped.stdout).unwrap();
    assert!(piped.starts_with("  NOT SERVED  LEVEL  MEMBERS  DISKS\n"), "{piped}");
}

#[test]
fn assemble_reports_each_note_once_and_an_array_that_cannot_start() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let ran = world.run(&["assemble", "tank", names[0], names[1], "--degraded"]);
    let told = format!("{}{}", ran.out, ran.err);
    assert_eq!(told.matches("slot 2 has no member").count(), 1, "{told}");
    let flags = ["--level", "1", "--new-files", "16M", "--yes", "n0", "n1"];
    world.ok(&[&["create", "spoilt"], &flags[..]].concat());
    std::fs::copy(world.path("n0"), world.path("n0.copy")).unwrap();
    let ran = world.run(&["assemble", "--scan", ".", "--degraded"]);
    assert!(ran.code == 1 && ran.err.contains("not started: spoilt"), "{ran:?}");
}
