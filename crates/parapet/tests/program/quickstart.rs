//! The first steps of a new user.

use crate::world::{World, until};

const QUICK: [&str; 3] = ["quickstart", "--member-size", "16M"];

fn uri(world: &World) -> String {
    format!("nbd+unix:///quickstart?socket={}", world.path("parapet-data/nbd.sock").display())
}

#[test]
fn it_makes_an_array_stops_in_order_and_goes_on_with_it() {
    let world = World::new();
    let server = world.start(&[&QUICK[..], &["--json"]].concat());
    assert_eq!(server.ready["arrays"][0]["level"], "raid6");
    assert_eq!(server.ready["arrays"][0]["spares"].as_array().unwrap().len(), 1);
    let uri = uri(&world);
    world.tool(
        "qemu-utils",
        &["qemu-io", "-f", "raw", "-c", "write -P 0x5a 0 1M", "-c", "flush", &uri],
    );
    // Each printed command works unchanged.
    let printed = world.log();
    let control = "--control=unix:parapet-data/control.sock";
    for verb in ["status", "fail", "when"] {
        assert!(printed.contains(&format!(" {verb} quickstart")), "{printed}");
    }
    assert!(printed.contains(&format!("nbdinfo '{uri}'")) || printed.contains("nbdinfo 'nbd+unix"));
    world.json(&["fail", "quickstart", "2", control]);
    world.json(&["wait", "quickstart", "--for", "whole", "--timeout", "600", "--quiet", control]);
    server.signal("INT");
    assert_eq!(server.wait(), 0, "{}", world.log());
    assert!(!world.path("parapet-data/nbd.sock").exists());

    let server = world.start(&[&QUICK[..], &["--json", "--tcp", "127.0.0.1:0"]].concat());
    let tcp = server.ready["nbd"][1].as_str().unwrap().strip_prefix("tcp:").unwrap();
    world.tool("libnbd-bin", &["nbdinfo", &format!("nbd://{tcp}/quickstart")]);
    let array = &server.ready["arrays"][0];
    assert_eq!(array["state"], "healthy", "{array}");
    let read = ["qemu-io", "-f", "raw", "-c", "read -P 0x5a 0 1M", &uri];
    let out = world.tool("qemu-utils", &read);
    assert!(!out.contains("failed"), "{out}");
    // With two at the same time, the second one reports the user of the members.
    let message = world.refused(&QUICK, 3, "PPT-3003");
    assert!(message.contains(&server.pid().to_string()), "{message}");
    assert!(message.contains("parapet stop quickstart --control unix:/"), "{message}");
    // The demonstration refuses an array that was used.
    assert_eq!(server.terminate(), 0);
    let message = world.refused(&["quickstart", "--demo", "--member-size", "320M"], 2, "PPT-2002");
    assert!(message.contains("1 GiB"), "{message}");
}

#[test]
fn the_demonstration_ends_with_its_verification() {
    let world = World::new();
    let shown = world.json(&["quickstart", "--demo", "--dir", "d", "--quiet"]);
    assert_eq!(shown["bytes"], 1_u64 << 30);
    assert_eq!(shown["wrong_bytes"], 0);
    assert_eq!(shown["failed"].as_array().unwrap().len(), 2);
    for disk in
        world.json(&["examine", "d/member-0.img", "d/member-4.img"])["disks"].as_array().unwrap()
    {
        assert_eq!(disk["superblocks"][0]["clean"], true, "{disk}");
    }
    // Without use since, the demonstration may run again, and may even be interrupted.
    let again = ["quickstart", "--demo", "--dir", "d"];
    let interrupted = || {
        let log = world.path("shown");
        let mut command = world.command(&again);
        let child = command.stderr(std::fs::File::create(&log).unwrap()).spawn().unwrap();
        let log_text = || std::fs::read_to_string(&log).unwrap();
        until(|| log_text().contains("writing 1") || log_text().contains("PPT-"));
        let kill = format!("kill -INT {}", child.id());
        world.tool("dash", &["sh", "-c", &kill]);
        let output = child.wait_with_output().unwrap();
        (output.status.code(), log_text())
    };
    for _ in 0..2 {
        let (code, log_text) = interrupted();
        assert!(code == Some(1) && log_text.contains("run it again to see the rest"), "{log_text}");
    }
    // Store data in it, with another command.
    let server = world.serve(&["quickstart", "--scan", "d"]);
    let uri = format!("nbd+unix:///quickstart?socket={}", world.path("nbd.sock").display());
    world.tool("qemu-utils", &["qemu-io", "-f", "raw", "-c", "write -P 0x77 0 1M", &uri]);
    assert_eq!(server.terminate(), 0);
    assert!(world.path("d/demo").exists());
    let log_text = world.refused(&again, 3, "PPT-3002");
    assert!(log_text.contains("say --yes"), "{log_text}");
    let server = world.serve(&["quickstart", "--scan", "d"]);
    let read = ["qemu-io", "-f", "raw", "-c", "read -P 0x77 0 1M", &uri];
    let out = world.tool("qemu-utils", &read);
    assert!(!out.contains("failed"), "{out}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn without_room_nothing_is_left_behind() {
    let world = World::new();
    let ran = world.run(&["quickstart", "--member-size", "16T", "--json"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(!world.path("parapet-data").exists());
    std::fs::write(world.path("file"), "").unwrap();
    let ran = world.run(&["quickstart", "--dir", "file"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    world.refused(&["quickstart", "--dir", "no/such/folder"], 5, "PPT-5003");
}

#[test]
fn lines_to_copy_are_quoted_and_count_what_there_is() {
    let world = World::new();
    let start = [&QUICK[..], &["--dir", "a b'c", "--json"]].concat();
    let server = world.start(&start);
    until(|| world.log().contains("Ctrl-C stops it"));
    let printed = world.log();
    assert!(printed.contains("with a spare in"), "{printed}");
    let line = printed.lines().find(|line| line.contains(" fail quickstart 2")).unwrap().trim();
    world.tool("bash", &["bash", "-c", line]);
    let line = printed.lines().find(|line| line.contains(" status quickstart")).unwrap().trim();
    assert!(world.tool("bash", &["bash", "-c", line]).contains("quickstart"));
    let control = format!("--control=unix:{}", world.path("a b'c/control.sock").display());
    let whole = ["wait", "quickstart", "--for", "whole", "--timeout", "600", "--quiet", &control];
    world.json(&whole);
    assert_eq!(server.terminate(), 0);
    assert_eq!(world.start(&start).terminate(), 0);
    assert!(world.log().contains("with no spare in"), "{}", world.log());
    std::fs::write(world.path("file"), "").unwrap();
    let log_text = world.refused(&["quickstart", "--dir", "file"], 1, "PPT-1002");
    assert!(log_text.contains("choose another --dir"), "{log_text}");
    let log_text =
        world.refused(&["quickstart", "--dir", "d", "--member-size", "1M"], 2, "PPT-2002");
    assert!(log_text.contains("--member-size"), "{log_text}");
    assert!(!world.path("d").exists());
}
