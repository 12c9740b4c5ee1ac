//! Compares the program's text with a stored copy: every change of it is deliberate.

use crate::world::World;

#[test]
fn the_first_page_of_help_is_as_it_was() {
    let world = World::new();
    let mut help = world.command(&["--help"]);
    let help = help.env("COLUMNS", "100").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/help.txt");
    if std::env::var_os("PARAPET_BLESS").is_some() {
        std::fs::write(&golden, &help).unwrap();
    }
    let expected = std::fs::read_to_string(&golden).unwrap();
    assert_eq!(help, expected, "PARAPET_BLESS=1 cargo test -p parapet accepts it");
}

#[test]
fn a_plan_is_shown_in_words_and_numbers() {
    let world = World::new();
    let plan = ["create", "tank", "--level", "6", "--chunk", "64K", "--new-files", "16M", "-n"];
    let out = world.ok(&[&plan[..], &["a", "b", "c", "d"]].concat());
    for line in [
        "        plan  create tank",
        "       level  raid6, left-symmetric, chunk 64 KiB",
        "        size  26 MiB (27.3 MB) of 64 MiB on the members",
        "    survives  the loss of any 2 members",
        " consistency  intent: the write hole is closed by a log",
        "  slot 3  new file  d     -       16 MiB  nothing known",
    ] {
        assert!(out.lines().any(|found| found == line), "{line:?} is missing in\n{out}");
    }
    let exact = world.ok(&[&plan[..], &["a", "b", "c", "d", "--bytes"]].concat());
    assert!(exact.contains("27262976 of 67108864"), "{exact}");
    assert!(!world.path("a").exists(), "a plan makes nothing");
}

#[test]
fn colour_is_only_where_it_was_asked_for() {
    let world = World::new();
    let plain = world.ok(&["list"]);
    assert!(!plain.contains('\x1b'));
    world.create("1", 2, &[]);
    let styled = world.ok(&["examine", "m0", "--color", "always"]);
    assert!(styled.contains("\x1b["), "{styled}");
    let never = world.ok(&["examine", "m0", "--color", "never"]);
    assert!(!never.contains('\x1b'), "{never}");
    let json = world.ok(&["examine", "m0", "--color", "always", "--json"]);
    assert!(!json.contains('\x1b'), "{json}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let world = World::new();
    let words = format!("{} schema | head -c 10", env!("CARGO_BIN_EXE_parapet"));
    let shell = world.tool("bash", &["bash", "-c", &format!("set -o pipefail; {words}")]);
    assert_eq!(shell.len(), 10);
}

#[test]
fn one_disk_that_cannot_be_looked_at_does_not_hide_the_others() {
    let world = World::new();
    world.create("1", 2, &[]);
    let ran = world.run(&["examine", "nothere", "m0"]);
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.out.contains("nothere: there is no such file or device"), "{ran:?}");
    assert!(ran.out.contains("tank"), "{ran:?}");
    let report = world.refused(&["examine", "nothere"], 5, "PPT-5003");
    assert!(report.contains("there is no such file"), "{report}");
    let ran = world.run(&["create", "new", "--level", "1", "x", "y"]);
    assert!(ran.err.contains("there is no such file or device"), "{ran:?}");
}

#[test]
fn with_json_everything_is_json() {
    let world = World::new();
    assert!(world.json(&["completions", "bash"])["text"].as_str().unwrap().contains("parapet"));
    assert!(world.json(&["man", "pages"])["text"].as_str().unwrap().contains("parapet.1"));
    let health = world.run(&["health"]);
    assert!(!health.out.trim_end().ends_with('|'), "{health:?}");
}

#[test]
fn what_is_lost_with_an_array_is_said_before() {
    let world = World::new();
    world.create("6", 4, &[]);
    let out = world.ok(&["destroy", "tank", "m0", "m1", "m2", "m3", "-n"]);
    assert!(out.contains("lost  26 MiB (27.3 MB) that can be stored"), "{out}");
    assert!(out.contains("undo  parapet undestroy tank"), "{out}");
    let plan = world.json(&["destroy", "tank", "m0", "m1", "m2", "m3", "--yes"]);
    let undo = std::path::Path::new(plan["undo"].as_str().unwrap()).join("undo.json");
    let undo: serde_json::Value = serde_json::from_slice(&std::fs::read(undo).unwrap()).unwrap();
    let disk = undo["pieces"][0]["disk"].as_str().unwrap();
    assert_eq!(disk, world.path("m0").to_str().unwrap(), "the same wherever one is");
}

#[test]
fn shapes_that_raid_3_5_has_not_are_refused_in_its_own_words() {
    let world = World::new();
    let plan = ["create", "tank", "--level", "3.5", "--new-files", "16M", "-n"];
    let report = world.refused(&[&plan[..], &["a", "b", "c", "d"]].concat(), 2, "PPT-2002");
    assert!(report.contains("3, 5, 9, 17") && report.contains("not 4"), "{report}");
    let chunk = ["--chunk", "2K", "a", "b", "c"];
    let report = world.refused(&[&plan[..], &chunk[..]].concat(), 2, "PPT-2002");
    assert!(report.contains("2 KiB") && report.contains("from 4 KiB"), "{report}");
}
