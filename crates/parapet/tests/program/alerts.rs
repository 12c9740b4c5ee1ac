//! Somebody is told: programs that run for each event.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::world::{World, until};

/// Makes a program of these lines of shell.
pub fn program(world: &World, name: &str, lines: &str) -> PathBuf {
    let path = world.path(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, format!("#!/bin/sh\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

pub fn told(world: &World) -> String {
    std::fs::read_to_string(world.path("told")).unwrap_or_default()
}

/// The line that the program writes for an event of the array.
pub fn tell(world: &World) -> String {
    let file = world.path("told");
    format!("echo \"$* [$PARAPET_SEVERITY] $PARAPET_MESSAGE\" >>{}", file.display())
}

#[test]
fn a_program_for_mdadm_is_told_of_each_event() {
    let world = World::new();
    world.create("1", 2, &[]);
    let hook = program(&world, "hook", &tell(&world));
    let server = world.serve(&["tank", "m0", "m1", "--notify", hook.to_str().unwrap()]);
    world.order(&["fail", "tank", "m1"]);
    world.order(&["events", "tank", "--test"]);
    until(|| told(&world).contains("TestMessage tank"));
    let told_so_far = told(&world);
    let member = world.path("m1");
    let lines: Vec<&str> = told_so_far.lines().collect();
    for start in [
        "NewArray tank [info] started: raid1 of 2 members".to_owned(),
        format!("Fail tank {} [info]", member.display()),
        "DegradedArray tank [warning] the array is critical".to_owned(),
        "TestMessage tank [info]".to_owned(),
    ] {
        assert!(lines.iter().any(|line| line.starts_with(&start)), "{start}: {told_so_far}");
    }
    // The last event is told before the server ends.
    assert_eq!(server.terminate(), 0);
    assert!(told(&world).contains("Stopped tank [info]"), "{}", told(&world));
}

#[test]
fn every_program_of_a_folder_runs_and_one_that_fails_stops_no_other() {
    let world = World::new();
    world.create("1", 2, &[]);
    program(&world, "hooks/1-fails", "exit 7");
    program(&world, "hooks/2-tells", &tell(&world));
    std::fs::write(world.path("hooks/README"), "no program").unwrap();
    let server = world.serve(&["tank", "m0", "m1", "--notify", "hooks"]);
    until(|| told(&world).contains("NewArray tank"));
    assert_eq!(server.terminate(), 0);
    let log = world.log();
    assert!(log.contains("tank: NewArray: ") && log.contains("1-fails: exit status: 7"), "{log}");
}

#[test]
fn a_program_that_hangs_stops_no_array() {
    let world = World::new();
    world.create("1", 2, &[]);
    let started = world.path("started");
    let hook = program(&world, "hook", &format!("touch {}; exec sleep 30", started.display()));
    let server = world.serve(&["tank", "m0", "m1", "--notify", hook.to_str().unwrap()]);
    until(|| started.exists());
    world.qemu_io(&["write -P 5 0 1M", "flush", "read -P 5 0 1M"]);
    world.order(&["fail", "tank", "m1"]);
    assert_eq!(server.terminate(), 0);
    assert!(world.log().contains("still at work, and left behind"), "{}", world.log());
}

#[test]
fn nobody_to_tell_is_an_error_at_the_start() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    std::fs::write(world.path("plain"), "no program").unwrap();
    let serve = ["serve", "tank", "m0", "m1", "--control", "unix:c.sock", "--notify"];
    let said = world.refused(&[&serve[..], &["plain"]].concat(), 1, "PPT-1002");
    assert!(said.contains("chmod +x"), "{said}");
    world.refused(&[&serve[..], &["missing"]].concat(), 5, "PPT-5003");
    let server = world.serve_members(&members);
    let said = world.order_refused(&["events", "tank", "--test"], 3, "PPT-3006");
    assert!(said.contains("--notify"), "{said}");
    assert_eq!(server.terminate(), 0);
}
