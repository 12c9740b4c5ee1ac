//! Alerts that wait survive the end of their server, however it ends, and arrive once.

use serde_json::Value;

use crate::alerts::program;
use crate::notify::{Receiver, posted};
use crate::panel::free_port;
use crate::world::{World, until};

/// What is kept of alerts: the content of all files, without locks.
fn kept(world: &World) -> String {
    let files = std::fs::read_dir(world.path("state/alerts")).into_iter().flatten().flatten();
    let paths = files.map(|file| file.path());
    let paths = paths.filter(|path| path.extension().is_some_and(|end| end != "lock"));
    paths.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
}

/// The words of the events that were posted.
fn words(world: &World) -> Vec<String> {
    let word = |post: Value| post["data"]["event"].as_str().unwrap().to_owned();
    posted(world, "/hook").into_iter().map(word).collect()
}

#[test]
fn an_alert_of_a_killed_server_arrives_once() {
    let world = World::new();
    world.create("1", 2, &[]);
    let port = free_port();
    let hook = format!("http://127.0.0.1:{port}/hook");
    let serve =
        |more: &[&str]| world.serve(&[&["tank", "m0", "m1", "--notify", &hook], more].concat());
    let server = serve(&[]);
    world.order(&["fail", "tank", "m1"]);
    until(|| kept(&world).contains("DegradedArray"));
    server.kill();

    // Nobody listens yet: the next server keeps it, too. An orderly stop is no loss either.
    let server = serve(&["--degraded"]);
    let alerts = || world.order(&["status", "tank"])["alerts"][0].clone();
    until(|| alerts()["waiting"] == 1 && alerts()["trouble"].is_string());
    assert_eq!(server.terminate(), 0);
    assert!(world.log().contains("not delivered: 1 message for the next start"), "{}", world.log());

    let _web = Receiver::web_at(&world, port);
    let server = serve(&["--degraded"]);
    until(|| words(&world) == ["DegradedArray"]);
    // It is off the disk before the next one is sent: a crash does not repeat it.
    world.order(&["events", "tank", "--test"]);
    until(|| words(&world) == ["DegradedArray", "TestMessage"]);
    until(|| kept(&world).contains("\"waiting\":[]"));
    server.kill();
    let server = serve(&["--degraded"]);
    world.order(&["events", "tank", "--test"]);
    // The state of the array is the same as before: no news.
    until(|| words(&world).len() >= 3);
    assert_eq!(words(&world), ["DegradedArray", "TestMessage", "TestMessage"]);
    assert_eq!(posted(&world, "/hook")[2]["data"]["lost"], 0);
    assert_eq!(server.terminate(), 0);
}

/// A program runs once: not again for the event that it was at when the server was killed.
#[test]
fn a_program_that_ran_when_the_server_was_killed_does_not_run_again() {
    let world = World::new();
    world.create("1", 2, &[]);
    let (told, go) = (world.path("told"), world.path("go"));
    let lines = format!(
        "echo $1 >>{}\nwhile [ ! -e {} ]; do sleep 0.05; done",
        told.display(),
        go.display()
    );
    let hook = program(&world, "hook", &lines);
    let hook = ["tank", "m0", "m1", "--notify", hook.to_str().unwrap()];
    let told = || std::fs::read_to_string(&told).unwrap_or_default();
    let server = world.serve(&hook);
    until(|| told().contains("NewArray"));
    world.order(&["events", "tank", "--test"]);
    until(|| kept(&world).contains("TestMessage"));
    server.kill();
    std::fs::write(&go, "").unwrap();
    let server = world.serve(&hook);
    until(|| told().contains("TestMessage"));
    assert_eq!(server.terminate(), 0);
    let count = |word: &str| told().lines().filter(|line| *line == word).count();
    // One of each server.
    assert_eq!((count("NewArray"), count("TestMessage")), (2, 1), "{}", told());
}

/// Two servers tell the same webhook; the next one sends what both have left.
#[test]
fn one_server_sends_what_two_have_left() {
    let world = World::new();
    world.create("1", 2, &[]);
    world.ok(&["create", "pond", "--level", "1", "--new-files", "16M", "--yes", "p0", "p1"]);
    let port = free_port();
    let hook = format!("http://127.0.0.1:{port}/hook");
    let tank = world.serve(&["tank", "m0", "m1", "--notify", &hook]);
    let serve = ["serve", "pond", "p0", "p1", "--notify", &hook, "--json"];
    let pond = world.start(&[&serve[..], &["--control", "unix:pond.sock"]].concat());
    world.order(&["fail", "tank", "m1"]);
    world.json(&["fail", "pond", "p1", "--control", "unix:pond.sock"]);
    until(|| ["tank", "pond"].iter().all(|it| kept(&world).contains(&format!("\"{it}\""))));
    tank.kill();
    pond.kill();
    let _web = Receiver::web_at(&world, port);
    let server = world.serve(&["tank", "m0", "m1", "--notify", &hook, "--degraded"]);
    until(|| words(&world).len() >= 2);
    let mut arrays: Vec<String> = posted(&world, "/hook")
        .iter()
        .map(|post| post["data"]["array"].as_str().unwrap().to_owned())
        .collect();
    arrays.sort();
    assert_eq!(arrays, ["pond", "tank"]);
    assert_eq!(server.terminate(), 0);
}

/// Alerts do not depend on the folder that keeps them.
#[test]
fn damaged_and_missing_state_is_reported_and_alerts_go_out() {
    let world = World::new();
    world.create("1", 2, &[]);
    let web = Receiver::web_at(&world, free_port());
    let hook = format!("http://127.0.0.1:{}/hook", web.port);
    let serve = || world.serve(&["tank", "m0", "m1", "--notify", &hook]);
    let server = serve();
    world.order(&["events", "tank", "--test"]);
    until(|| words(&world).len() == 1);
    assert_eq!(server.terminate(), 0);
    let file = std::fs::read_dir(world.path("state/alerts")).unwrap().flatten().next().unwrap();
    let file = file.path().with_extension("");
    std::fs::write(&file, "{\"waiting\":").unwrap();
    let server = serve();
    until(|| world.log().contains("alerts of an earlier server are lost"));
    world.order(&["events", "tank", "--test"]);
    until(|| words(&world).len() == 2);
    assert_eq!(server.terminate(), 0);

    std::fs::remove_dir_all(world.path("state/alerts")).unwrap();
    std::fs::write(world.path("state/alerts"), "in the way").unwrap();
    let server = serve();
    world.order(&["events", "tank", "--test"]);
    until(|| words(&world).len() == 3);
    assert!(world.log().contains("alerts are not kept over a restart"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
}
