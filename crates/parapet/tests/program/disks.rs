//! Disk health: a fake smartctl and ledctl in front of real members on loop devices. Needs root.
//!
//! The fake smartctl prints documents in the shape of real ones, which a test changes step by step:
//! see `crates/policy/src/health/documents`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::checksums::{filled, find, flip};
use crate::world::{Server, World, not_tried, until};

const SEAGATE: &str = include_str!("../../../policy/src/health/documents/seagate.json");
const ASLEEP: &str = include_str!("../../../policy/src/health/documents/asleep.json");

/// Loop devices with an array on them, and programs that play their SMART data.
pub struct Rack {
    pub world: World,
    pub devices: Vec<String>,
}

impl Rack {
    /// Makes so many disks; none if this user may not.
    pub fn new(disks: usize) -> Option<Rack> {
        let mut rack = Rack { world: World::new(), devices: Vec::new() };
        for number in 0..disks {
            let name = format!("d{number}");
            rack.world.file(&name, 16 << 20);
            let made = rack.world.try_tool("mount", &["losetup", "--find", "--show", &name]);
            if made.code != 0 {
                not_tried("makes loop devices");
                return None;
            }
            rack.devices.push(made.out.trim().to_owned());
        }
        let folder = rack.world.folder.display().to_string();
        let smartctl = format!(
            "echo \"$*\" >>{folder}/asked\nfor disk; do :; done\ncat {folder}/${{disk##*/}}.json"
        );
        rack.program("smartctl", &smartctl);
        rack.program("ledctl", &format!("echo \"$*\" >>{folder}/lit"));
        for number in 0..disks {
            rack.set(number, |_| {});
        }
        Some(rack)
    }

    /// Makes a program of these lines of shell.
    fn program(&self, name: &str, lines: &str) {
        let path = self.world.path("bin").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{lines}\n");
        // The server may be about to run the former one.
        let new = self.world.path("program");
        std::fs::write(&new, text).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, path).unwrap();
    }

    /// Changes the SMART data of a disk that is otherwise well.
    pub fn set(&self, number: usize, change: impl FnOnce(&mut Value)) {
        let mut document: Value = serde_json::from_str(SEAGATE).unwrap();
        document["serial_number"] = json!(format!("SERIAL{number}"));
        change(&mut document);
        self.show(number, &document.to_string());
    }

    /// What smartctl prints for a disk from now on.
    fn show(&self, number: usize, document: &str) {
        let name = Path::new(&self.devices[number]).file_name().unwrap().to_str().unwrap();
        let new = self.world.path("document");
        std::fs::write(&new, document).unwrap();
        std::fs::rename(new, self.world.path(&format!("{name}.json"))).unwrap();
    }

    pub fn create(&self, level: &str, members: usize) {
        let (members, spares) = self.devices.split_at(members);
        let mut words = vec!["create", "tank", "--level", level, "--yes"];
        spares.iter().for_each(|spare| words.extend(["--spare", spare]));
        words.extend(members.iter().map(String::as_str));
        self.world.ok(&words);
    }

    fn path(&self) -> String {
        format!("PATH={}", self.world.path("bin").display())
    }

    fn serve(&self, flags: &[&str]) -> Server {
        let path = self.path();
        let program = ["env", &path, env!("CARGO_BIN_EXE_parapet"), "serve", "tank"];
        let devices: Vec<&str> = self.devices.iter().map(String::as_str).collect();
        let fixed = ["--nbd", "unix:nbd.sock", "--control", "unix:control.sock", "--json", "-v"];
        self.world.launch_tool(&[&program[..], &devices, &fixed, flags].concat())
    }

    /// Runs `parapet disk …`; returns the exit status and all output.
    fn disk(&self, words: &[&str]) -> (i32, String) {
        let control = format!("--control=unix:{}", self.world.path("control.sock").display());
        let mut command = self.world.command(&[&["disk"], words, &[&control]].concat());
        let ran = command.env("PATH", self.world.path("bin")).output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        (ran.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    pub fn status(&self) -> Value {
        self.world.order(&["status", "tank"])
    }

    /// Waits until a member's disk has this level; returns its health.
    pub fn wait_for(&self, slot: usize, level: &str) -> Value {
        let health = || self.status()["slots"][slot]["member"]["health"].clone();
        until(|| health()["level"] == level);
        health()
    }

    fn events(&self) -> Vec<Value> {
        self.world.order(&["events", "tank"])["events"].as_array().unwrap().clone()
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.world.path(name)).unwrap_or_default()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for device in &self.devices {
            let detached =
                std::process::Command::new("losetup").args(["--detach", device]).status();
            assert!(detached.is_ok_and(|it| it.success()) || std::thread::panicking());
        }
    }
}

pub fn attribute(document: &mut Value, id: u64, raw: u64) {
    let table = document["ata_smart_attributes"]["table"].as_array_mut().unwrap();
    let attribute = table.iter_mut().find(|it| it["id"] == id).unwrap();
    attribute["raw"] = json!({ "value": raw, "string": raw.to_string() });
}

fn fail(document: &mut Value) {
    document["smart_status"]["passed"] = json!(false);
}

const FAST: [&str; 2] = ["--health", "--health-poll=20ms"];

/// A disk becomes suspect, then fails by its own account; it is copied to the spare while it still
/// serves. A second bad disk waits for the end of that copy, and for a spare.
#[test]
fn bad_disks_are_replaced_one_after_the_other_while_they_serve() {
    let Some(rack) = Rack::new(6) else { return };
    rack.create("5", 4);
    let server = rack.serve(&FAST);
    let world = &rack.world;
    world.qemu_io(&["write -P 7 0 24M", "flush"]);
    (0..4).for_each(|slot| drop(rack.wait_for(slot, "ok")));

    rack.set(1, |it| attribute(it, 5, 8));
    let health = rack.wait_for(1, "suspect");
    assert_eq!(health["reasons"][0], "8 new reallocated sectors");
    let status = rack.status();
    let problem = &status["problems"][0];
    assert_eq!(problem["id"], "PPT-8020", "{status}");
    assert!(problem["message"].as_str().unwrap().contains("its disk may fail: 8 new"), "{status}");
    let text = world.run(&["health", "tank", "--control", "unix:control.sock"]);
    assert_eq!(text.code, 1, "{text:?}");
    assert!(status["slots"][1]["replacement"].is_null(), "below replace, it is only reported");

    world.order(&["speed", "tank", "--speed-min", "64K", "--speed-max", "1M"]);
    rack.set(1, fail);
    until(|| !rack.status()["slots"][1]["replacement"].is_null());
    rack.set(2, fail);
    let health = rack.wait_for(2, "replace");
    assert_eq!(health["step"], "waiting: another member is being replaced");
    let status = rack.status();
    let copied = &status["slots"][1];
    assert!(copied["state"] == "in_sync" && !copied["replacement"].is_null(), "{status}");
    assert!(status["slots"][2]["replacement"].is_null(), "never two at once: {status}");
    assert_eq!((&status["state"], &status["redundancy_left"]), (&json!("healthy"), &json!(1)));
    world.qemu_io(&["read -P 7 0 24M", "write -P 8 1M 1M", "flush"]);

    world.order(&["speed", "tank", "--speed-max", "off"]);
    let replaced = |status: &Value| {
        status["faulty"].as_array().unwrap().iter().filter(|it| it["replaced"] == true).count()
    };
    until(|| replaced(&rack.status()) == 2);
    let status = world.wait_until_idle();
    let names = |slot: usize| status["slots"][slot]["member"]["name"].as_str().unwrap();
    assert!(!rack.devices[..4].iter().any(|it| *it == names(1) || *it == names(2)), "{status}");
    assert!(status["problems"].as_array().unwrap().is_empty(), "{status}");
    world.qemu_io(&["read -P 7 0 1M", "read -P 8 1M 1M", "read -P 7 2M 22M"]);

    let events = rack.events();
    let of = |device: &str| -> Vec<String> {
        let own = events.iter().filter(|it| it["event"] == "DiskHealth" && it["member"] == device);
        own.map(|it| it["severity"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(of(&rack.devices[1]), ["warning", "error"], "{events:?}");
    assert_eq!(of(&rack.devices[2]), ["error"], "{events:?}");
    assert!(of(&rack.devices[0]).is_empty(), "{events:?}");
    // A command of an administrator replaces no disk; this was said in the log.
    assert!(world.log().contains("because of the health of its disk"), "{}", world.log());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn without_a_spare_or_by_policy_a_bad_disk_is_only_reported() {
    let Some(rack) = Rack::new(4) else { return };
    rack.create("1", 2);
    let server = rack.serve(&["--health=alert", FAST[1]]);
    rack.set(0, fail);
    assert_eq!(rack.wait_for(0, "replace")["step"], "the policy is to report only");
    assert_eq!(server.terminate(), 0);
    // The spares are bad, too. The history has the level already: no event says it again.
    rack.set(2, fail);
    rack.set(3, fail);
    let server = rack.serve(&FAST);
    assert_eq!(rack.wait_for(0, "replace")["step"], "the array has no spare");
    let own = |it: &&Value| it["event"] == "DiskHealth" && it["member"] == *rack.devices[0];
    assert_eq!(rack.events().iter().filter(own).count(), 1);
    // With a spare that is well, it is replaced.
    rack.set(3, |_| {});
    until(|| rack.status()["slots"][0]["member"]["name"] == *rack.devices[3]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn growth_is_remembered_over_a_restart() {
    let Some(rack) = Rack::new(2) else { return };
    rack.create("1", 2);
    let server = rack.serve(&FAST);
    rack.wait_for(0, "ok");
    assert_eq!(server.terminate(), 0);
    rack.set(0, |it| attribute(it, 187, 2));
    let server = rack.serve(&FAST);
    assert_eq!(rack.wait_for(0, "suspect")["reasons"][0], "2 new uncorrectable errors");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_disk_that_sleeps_is_not_woken() {
    let Some(rack) = Rack::new(2) else { return };
    rack.create("1", 2);
    rack.show(0, ASLEEP);
    let server = rack.serve(&FAST);
    rack.wait_for(1, "ok");
    assert!(rack.status()["slots"][0]["member"]["health"].is_null(), "nothing is known of it");
    let (code, text) = rack.disk(&["smart", &rack.devices[0]]);
    assert!(code == 0 && text.contains("asleep"), "{text}");
    let asked = rack.read("asked");
    assert!(asked.lines().all(|it| it.starts_with("--json=c -n standby -a /dev/loop")), "{asked}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_smartctl_that_hangs_or_is_missing_stops_nothing() {
    let Some(rack) = Rack::new(2) else { return };
    rack.create("1", 2);
    let pid = rack.world.path("pid");
    rack.program("smartctl", &format!("echo $$ >{}\nexec sleep 60", pid.display()));
    let server = rack.serve(&FAST);
    until(|| rack.read("pid").ends_with('\n'));
    rack.world.qemu_io(&["write -P 3 0 1M", "flush", "read -P 3 0 1M"]);
    assert_eq!(server.terminate(), 0);
    let process = PathBuf::from("/proc").join(rack.read("pid").trim());
    assert!(!process.exists(), "it ends with the server");

    std::fs::remove_file(rack.world.path("bin/smartctl")).unwrap();
    let server = rack.serve(&FAST);
    until(|| rack.world.log().contains("install the package smartmontools"));
    assert_eq!(server.terminate(), 0);
    let (code, text) = rack.disk(&["smart", &rack.devices[0]]);
    assert!(code == 1 && text.contains("install the package smartmontools"), "{text}");
}

#[test]
fn disks_are_listed_shown_tested_and_located() {
    let Some(rack) = Rack::new(3) else { return };
    rack.create("1", 2);
    let server = rack.serve(&FAST);
    rack.wait_for(1, "ok");
    rack.set(1, |it| attribute(it, 197, 3));
    rack.wait_for(1, "suspect");
    let device = rack.devices[1].as_str();
    let name = device.trim_start_matches("/dev/");

    let (code, text) = rack.disk(&["list"]);
    let line = text.lines().find(|it| it.contains(&format!("{device} "))).expect(&text);
    assert!(code == 0 && line.contains("tank slot 1") && line.ends_with("suspect"), "{text}");
    let (_, json) = rack.disk(&["list", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    crate::schema::check(&json);
    let disks = json["data"]["disks"].as_array().unwrap();
    let disk = disks.iter().find(|it| it["path"] == device).unwrap();
    assert_eq!((&disk["bytes"], &disk["members"][0]["slot"]), (&json!(16 << 20), &json!(1)));

    let uuid = rack.status()["slots"][1]["member"]["uuid"].as_str().unwrap().to_owned();
    for who in [name, device, &uuid] {
        let (code, text) = rack.disk(&["smart", who]);
        for part in
            ["ST4000VN006", "SERIAL1", "suspect", "3 unreadable sectors", "34 °C", "14894 h"]
        {
            assert!(code == 0 && text.contains(part), "{part}: {text}");
        }
    }
    let (_, json) = rack.disk(&["smart", name, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    crate::schema::check(&json);
    assert_eq!(json["data"]["watched"]["level"], "suspect", "{json}");

    let (code, text) = rack.disk(&["test", name, "--long"]);
    assert!(code == 0 && text.contains("a long self-test has started"), "{text}");
    assert!(rack.read("asked").contains(&format!("--json=c -t long {device}\n")));
    rack.program(
        "smartctl",
        "echo '{\"smartctl\":{\"messages\":[{\"string\":\"busy\"}]}}'; exit 4",
    );
    let (code, text) = rack.disk(&["test", name]);
    assert!(code == 1 && text.contains("the self-test was not started: busy"), "{text}");

    assert_eq!(rack.disk(&["locate", name]).0, 0);
    assert_eq!(rack.disk(&["locate", device, "--off"]).0, 0);
    let lit = format!("--listed-only locate={device}\n--listed-only locate_off={device}\n");
    assert_eq!(rack.read("lit"), lit);
    rack.program("ledctl", "echo 'device not supported' >&2; exit 2");
    let (code, text) = rack.disk(&["locate", name]);
    assert!(code == 1 && text.contains("ledctl: device not supported"), "{text}");
    std::fs::remove_file(rack.world.path("bin/ledctl")).unwrap();
    let (code, text) = rack.disk(&["locate", name]);
    assert!(code == 1 && text.contains("ledmon"), "{text}");
    let (code, text) = rack.disk(&["smart", "nothing"]);
    assert!(code == 5 && text.contains("nothing: there is no such disk"), "{text}");
    assert_eq!(server.terminate(), 0);
}

/// Errors that the array sees count without SMART data: members in files have none.
#[test]
fn wrong_checksums_make_a_disk_suspect_without_smart() {
    let world = World::new();
    let (members, data) = filled(&world);
    let (slot, at) = find(&world, &members, &data[..4096]);
    flip(&world, &members[slot], at);
    let server = world.serve(&["tank", "m0", "m1", "m2", FAST[0], FAST[1]]);
    assert!(world.content()[..data.len()] == *data);
    let health = || world.order(&["status", "tank"])["slots"][slot]["member"]["health"].clone();
    until(|| health()["level"] == "suspect");
    assert_eq!(health()["reasons"][0], "1 block with a wrong checksum in an array");
    assert_eq!(server.terminate(), 0);
    // The daemon watches by default, and remembers what the server saw.
    let text = format!("[arrays]\nscan = [\"{}\"]\n", world.folder.display());
    std::fs::write(world.path("parapet.toml"), text).unwrap();
    let control = ["--control", "control.sock", "--json"];
    let server = world.start(&[&["daemon", "--config", "parapet.toml"], &control[..]].concat());
    until(|| world.json(&["list", "--control", "control.sock"])["arrays"][0]["name"] == "tank");
    until(|| health()["level"] == "suspect");
    assert_eq!(server.terminate(), 0);
}
