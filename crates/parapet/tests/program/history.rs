//! The history of an array: events, their words, and what survives.

use std::process::Stdio;

use serde_json::Value;

use crate::world::{World, until};

fn events(world: &World) -> Vec<(u64, String, String, Value)> {
    let history = world.order(&["events", "tank"]);
    let events = history["events"].as_array().unwrap();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
    events
        .iter()
        .map(|it| {
            let number = it["number"].as_u64().unwrap();
            (number, text(it, "event"), text(it, "severity"), it["member"].clone())
        })
        .collect()
}

/// The words that these events have, in this order.
fn in_order(events: &[(u64, String, String, Value)], words: &[(&str, &str)]) {
    let mut rest = events.iter();
    for (word, severity) in words {
        let found = rest.find(|(_, event, how, _)| event == word && how == severity);
        assert!(found.is_some(), "{word} {severity} is missing, or out of order: {events:#?}");
    }
}

fn file(world: &World) -> std::path::PathBuf {
    let folder = world.path("state/history");
    let mut files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

#[test]
fn events_have_mdadms_words_and_survive_restarts() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.order(&["fail", "tank", "m1"]);
    world.order(&["remove", "tank", "m1"]);
    world.file("new", 16 << 20);
    world.order(&["add", "tank", "new"]);
    world.wait_until_idle();
    assert_eq!(server.terminate(), 0);
    let server = world.serve(&["tank", "m0", "new"]);
    let first = events(&world);
    // What the user has ordered is no warning; that redundancy is lost is one.
    in_order(
        &first,
        &[
            ("NewArray", "info"),
            ("Fail", "info"),
            ("DegradedArray", "warning"),
            ("Removed", "info"),
            ("SpareActive", "info"),
            ("Stopped", "info"),
            ("NewArray", "info"),
        ],
    );
    let numbers: Vec<u64> = first.iter().map(|(number, ..)| *number).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    let failed = first.iter().find(|(_, event, ..)| event == "Fail").unwrap();
    assert!(failed.3.as_str().unwrap().ends_with("/m1"), "{failed:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_damaged_history_hides_no_other_event() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    assert_eq!(world.serve_members(&members).terminate(), 0);
    let file = file(&world);
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let whole = lines.len();
    lines.insert(1, "no JSON");
    // A crash has cut the last line.
    std::fs::write(&file, format!("{}\n{{\"number\":", lines.join("\n"))).unwrap();
    let server = world.serve_members(&members);
    assert!(world.log().contains("1 lines are damaged"), "{}", world.log());
    let found = events(&world);
    assert_eq!(found.len(), whole + 1, "{found:?}");
    assert_eq!(server.terminate(), 0);
    // What was added stands on a line of its own.
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().last().unwrap().contains("\"Stopped\""), "{text}");
}

#[test]
fn new_events_are_followed() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let mut command = world.command(&["events", "tank", "--follow", "--control=unix:control.sock"]);
    let output = world.path("followed");
    let mut follower =
        command.stdout(Stdio::from(std::fs::File::create(&output).unwrap())).spawn().unwrap();
    let said = |word: &str| std::fs::read_to_string(&output).unwrap().contains(word);
    until(|| said("NewArray"));
    world.order(&["fail", "tank", "m1"]);
    until(|| said("DegradedArray"));
    follower.kill().unwrap();
    follower.wait().unwrap();
    assert_eq!(server.terminate(), 0);
}

#[test]
fn iostat_shows_totals_first_and_then_rates() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.qemu_io(&["write -P 5 0 4M", "flush"]);
    let out = world.ok(&[
        "iostat",
        "tank",
        "-i",
        "1",
        "-c",
        "2",
        "--json",
        "--control",
        "unix:control.sock",
    ]);
    let reports: Vec<Value> =
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    let [totals, rates] = &reports[..] else { panic!("two reports: {out}") };
    reports.iter().for_each(crate::schema::check);
    assert!(totals["data"]["seconds"].is_null(), "{totals}");
    assert!(rates["data"]["seconds"].as_f64().unwrap() >= 1.0, "{rates}");
    for (index, member) in totals["data"]["members"].as_array().unwrap().iter().enumerate() {
        assert!(member["written_bytes"].as_u64().unwrap() >= 4 << 20, "{member}");
        // Nothing but bookkeeping is written in the second after it.
        let rate = rates["data"]["members"][index]["written_bytes"].as_u64().unwrap();
        assert!(rate < 4 << 20, "{rates}");
    }
    assert_eq!(server.terminate(), 0);
}
