//! Clusters of real processes: three members, two coordinators, two clients, and their deaths.

mod fence;
mod hangs;
mod local;
mod replace;
mod sectors;

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::world::{Server, World, until};

/// Shorter than usual, and long enough for a busy machine.
const TIMING: &str = "\n[timing]\nlease_ms = 4000\nmember_ms = 1200\ntakeover_ms = 1200\n";
/// Bytes of a member: 12 MiB of its own, 8 regions of 2 MiB each on it.
const MEMBER_BYTES: u64 = 28 << 20;
const BYTES: usize = 32 << 20;

struct Rig {
    world: World,
    name: String,
    members: Vec<Option<Server>>,
    coordinators: Vec<Option<Server>>,
    clients: Vec<Option<Server>>,
}

impl Rig {
    /// A cluster of level 3.5 that serves two clients.
    fn new(mode: &str) -> Rig {
        Rig::of("3.5", mode)
    }

    fn of(level: &str, mode: &str) -> Rig {
        let mut rig = Rig::without_clients("pool", level, mode);
        rig.clients = (0..2).map(|index| Some(rig.client(index))).collect();
        rig
    }

    fn without_clients(name: &str, level: &str, mode: &str) -> Rig {
        let world = World::new();
        (0..3).for_each(|index| drop(world.file(&format!("m{index}"), MEMBER_BYTES)));
        Rig::of_disks(world, name, level, mode)
    }

    /// Of the disks `m0` to `m2`.
    fn of_disks(world: World, name: &str, level: &str, mode: &str) -> Rig {
        let members = (0..3).map(|index| Some(disk(&world, index))).collect();
        let (name, coordinators, clients) = (name.to_owned(), Vec::new(), Vec::new());
        let mut rig = Rig { world, name, members, coordinators, clients };
        let create = CREATE.map(|word| match word {
            "pool" => rig.name.as_str(),
            "3.5" => level,
            word => word,
        });
        let rest = ["--mode", mode, "--file", "pool.toml"];
        rig.world.ok(&[&create[..], &rest, &SOCKETS].concat());
        let file = rig.world.path("pool.toml");
        let text = std::fs::read_to_string(&file).unwrap() + TIMING;
        std::fs::write(&file, text).unwrap();
        rig.coordinators = (0..2).map(|index| Some(rig.coordinator(index))).collect();
        rig
    }

    fn start_member(&mut self, index: usize) {
        self.members[index] = Some(disk(&self.world, index));
    }

    fn coordinator(&self, index: usize) -> Server {
        let listen = format!("unix:c{index}.sock");
        self.world.start(&["cluster", "coordinator", "pool.toml", "--listen", &listen, "--json"])
    }

    fn client(&self, index: usize) -> Server {
        let (id, nbd) = ((index + 1).to_string(), format!("unix:n{index}.sock"));
        self.world.start(&["cluster", "client", "pool.toml", "--id", &id, "--nbd", &nbd, "--json"])
    }

    fn uri(&self, client: usize) -> String {
        let socket = self.world.path(&format!("n{client}.sock"));
        format!("nbd+unix:///{}?socket={}", self.name, socket.display())
    }

    /// Executes commands of qemu-io through a client; returns whether all succeeded.
    fn io(&self, client: usize, commands: &[&str]) -> bool {
        let uri = self.uri(client);
        let mut words = vec!["qemu-io", "-f", "raw", "-t", "none"];
        commands.iter().for_each(|command| words.extend(["-c", command]));
        words.push(&uri);
        let ran = self.world.try_tool("qemu-utils", &words);
        ran.code == 0 && !ran.out.contains("failed") && !ran.err.contains("failed")
    }

    fn background(&self, words: &[&str]) -> Child {
        let mut command = self.world.command_of(words);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn status(&self) -> Value {
        self.world.json(&["cluster", "status", "pool.toml"])
    }

    fn until_optimal(&self) {
        until(|| self.status()["state"] == "optimal");
    }

    /// The ids of the clients that the coordinator knows.
    fn clients(&self) -> Vec<u64> {
        let status = self.world.run(&["cluster", "status", "pool.toml", "--json"]);
        let status: Value = serde_json::from_str(&status.out).unwrap();
        let clients = status["data"]["clients"].as_array().cloned().unwrap_or_default();
        clients.iter().map(|client| client["id"].as_u64().unwrap()).collect()
    }

    fn until_evicted(&self, id: u64) {
        until(|| {
            let status = self.status();
            let joined = status["clients"].as_array().unwrap().iter().any(|it| it["id"] == id);
            // A coordinator that has just taken over knows nobody yet.
            let serves = status["state"] == "optimal" || status["state"] == "degraded";
            serves && !joined && status["unsynced_regions"] == 0
        });
    }

    /// The content through a client.
    fn content(&self, client: usize, name: &str) -> Vec<u8> {
        let path = self.world.path(name);
        self.world.nbdcopy(&self.uri(client), &path.display().to_string());
        std::fs::read(path).unwrap()
    }
}

const CREATE: [&str; 11] = [
    "cluster",
    "create",
    "pool",
    "--level",
    "3.5",
    "--region",
    "4M",
    "--yes",
    "--coordinator",
    "unix:c0.sock",
    "--coordinator=unix:c1.sock",
];
const SOCKETS: [&str; 3] = ["unix:m0.sock", "unix:m1.sock", "unix:m2.sock"];

fn disk(world: &World, index: usize) -> Server {
    let (disk, listen) = (format!("m{index}"), format!("unix:m{index}.sock"));
    world.start(&["serve-disk", &disk, "--listen", &listen, "--json"])
}

#[test]
fn two_hosts_write_one_array_and_stop_cleanly() {
    let mut rig = Rig::new("exclusive");
    assert_eq!(rig.clients[0].as_ref().unwrap().ready["role"], "client");
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    assert!(rig.io(1, &["read -P 1 0 1M", "write -P 2 1M 1M", "write -P 3 512 512", "flush"]));
    assert!(rig.io(0, &["read -P 2 1M 1M", "read -P 1 0 512", "read -P 3 512 512"]));
    let status = rig.status();
    assert_eq!((&status["state"], &status["level"]), (&"optimal".into(), &"raid3.5".into()));
    assert_eq!(status["capacity_bytes"], BYTES as u64);
    assert_eq!(rig.clients(), [1, 2]);
    let explained = rig.world.ok(&["cluster", "explain", "pool.toml"]);
    for words in ["leads in term", "stands by", "all 3 answer", "stand still for about"] {
        assert!(explained.contains(words), "{words}: {explained}");
    }
    for server in rig.clients.iter_mut().chain(&mut rig.coordinators).chain(&mut rig.members) {
        assert_eq!(server.take().unwrap().terminate(), 0);
    }
    rig.world.refused(&["cluster", "status", "pool.toml"], 4, "PPT-4001");
    // Everything is there after a start of all.
    (0..3).for_each(|index| rig.start_member(index));
    rig.coordinators[1] = Some(rig.coordinator(1));
    rig.clients[1] = Some(rig.client(1));
    assert!(rig.io(1, &["read -P 2 1M 1M", "read -P 3 512 512"]));
}

#[test]
fn a_client_dies_in_a_write_and_the_redundancy_is_right_again() {
    let mut rig = Rig::new("shared");
    let pattern = rig.world.pattern("pattern", BYTES / 2).display().to_string();
    assert!(rig.io(1, &["write -P 9 24M 1M", "flush"]));
    let mut copy = rig.background(&["nbdcopy", &pattern, &rig.uri(0)]);
    // It writes when it holds regions.
    until(|| rig.status()["clients"][0]["regions"].as_u64().is_some_and(|count| count > 0));
    rig.clients[0].take().unwrap().kill();
    copy.wait().unwrap();
    assert!(rig.io(1, &["write -P 8 25M 1M", "flush"]), "the other one goes on");
    rig.until_evicted(1);
    let whole = rig.content(1, "whole");
    // A block is old or new as far as its pieces are; the parity fits whatever it is.
    rig.members[0].take().unwrap().kill();
    let degraded = rig.content(1, "degraded");
    assert!(whole == degraded, "a parity differs");
    assert!(rig.io(1, &["read -P 9 24M 1M", "read -P 8 25M 1M"]));
}

#[test]
fn a_member_dies_and_is_rebuilt() {
    let mut rig = Rig::new("exclusive");
    assert!(rig.io(0, &["write -P 1 0 8M", "flush"]));
    rig.members[1].take().unwrap().kill();
    assert!(rig.io(0, &["write -P 2 0 1M", "flush", "read -P 1 1M 7M"]));
    assert!(rig.io(1, &["write -P 3 16M 1M", "flush"]));
    let status = rig.status();
    assert_eq!(
        (&status["state"], &status["members"][1]["state"]),
        (&Value::from("degraded"), &Value::from("missing"))
    );
    rig.start_member(1);
    rig.until_optimal();
    rig.members[0].take().unwrap().kill();
    assert!(rig.io(1, &["read -P 2 0 1M", "read -P 1 1M 7M", "read -P 3 16M 1M"]));
}

/// RAID 5: two hosts write blocks of one stripe in turn; blocks on a dead member are recovered and
/// written, then the member is rebuilt.
#[test]
fn stripes_are_handed_over_and_survive_a_member() {
    let mut rig = Rig::of("5", "exclusive");
    assert!(rig.io(0, &["write -P 1 0 2M", "write -P 2 4k 4k"]));
    assert!(rig.io(1, &["read -P 1 0 4k", "read -P 2 4k 4k", "write -P 3 8k 4k"]));
    assert_eq!(rig.status()["level"], "raid5");
    rig.members[1].take().unwrap().kill();
    let read = ["read -P 1 0 4k", "read -P 2 4k 4k", "read -P 3 8k 4k", "read -P 1 12k 2036k"];
    assert!(rig.io(0, &read));
    // Three stripes: the missing member has a block of two and the parity of one.
    assert!(rig.io(0, &["write -P 4 16k 4k", "write -P 5 28k 4k", "write -P 6 36k 4k"]));
    rig.start_member(1);
    rig.until_optimal();
    rig.members[0].take().unwrap().kill();
    assert!(rig.io(1, &read[..3]));
    assert!(rig.io(1, &["read -P 4 16k 4k", "read -P 1 20k 8k", "read -P 5 28k 4k"]));
    assert!(rig.io(1, &["read -P 6 36k 4k", "read -P 1 40k 2008k"]));
    let accepted = rig.world.json(&["cluster", "accept-loss", "pool.toml"]);
    assert!(accepted["message"].as_str().unwrap().contains("0 inconsistent"), "{accepted}");
}

#[test]
fn a_coordinator_dies_and_another_takes_over() {
    let mut rig = Rig::new("exclusive");
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    let leader = |rig: &Rig| {
        let all = rig.status()["coordinators"].as_array().unwrap().clone();
        all.iter().position(|candidate| candidate["state"] == "leads")
    };
    let first = leader(&rig).unwrap();
    rig.coordinators[first].take().unwrap().kill();
    assert!(rig.io(1, &["read -P 1 0 1M", "write -P 2 20M 1M", "flush"]));
    assert_eq!(leader(&rig), Some(1 - first));
    // The old one stands by, and takes over in its turn.
    rig.coordinators[first] = Some(rig.coordinator(first));
    rig.coordinators[1 - first].take().unwrap().kill();
    assert!(rig.io(0, &["read -P 2 20M 1M", "write -P 3 28M 1M", "flush"]));
    assert_eq!(leader(&rig), Some(first));
}

#[test]
fn late_writes_of_a_paused_client_change_nothing() {
    let rig = Rig::new("shared");
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    let paused = rig.clients[0].as_ref().unwrap();
    paused.signal("STOP");
    let uri = rig.uri(0);
    let words = ["qemu-io", "-f", "raw", "-t", "none", "-c", "write -P 2 0 1M", &uri];
    let mut late = rig.background(&words);
    rig.until_evicted(1);
    assert!(rig.io(1, &["read -P 1 0 1M", "write -P 3 0 512k", "flush"]));
    paused.signal("CONT");
    assert!(!late.wait().unwrap().success(), "the late write was acknowledged");
    assert!(rig.io(1, &["read -P 3 0 512k", "read -P 1 512k 512k"]));
    // All the time, one coordinator has led: a candidate that heard nothing of it would have taken
    // over several times.
    let coordinators = rig.status()["coordinators"].clone();
    let mut terms = coordinators.as_array().unwrap().iter().filter_map(|it| it["term"].as_u64());
    assert!(terms.next().is_some_and(|term| term <= 2), "{coordinators}");
    // It stays, and answers nothing but errors.
    assert!(!rig.io(0, &["read 0 4k"]));
    assert_eq!(rig.clients[0].as_ref().map(Server::pid), Some(paused.pid()));
}

#[test]
fn an_evicted_client_returns_by_a_restart() {
    let mut rig = Rig::new("exclusive");
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    let evicted = rig.world.json(&["cluster", "evict", "pool.toml", "1"]);
    assert!(evicted["message"].as_str().unwrap().contains("fenced"), "{evicted}");
    assert!(!rig.io(0, &["write -P 2 0 4k"]));
    assert!(rig.io(1, &["read -P 1 0 1M"]));
    assert_eq!(rig.clients[0].take().unwrap().terminate(), 1);
    rig.world.refused(&["cluster", "evict", "pool.toml", "7"], 5, "PPT-5002");
    rig.clients[0] = Some(rig.client(0));
    assert!(rig.io(0, &["write -P 2 0 4k", "flush"]));
    assert!(rig.io(1, &["read -P 2 0 4k", "read -P 1 4k 4k"]));
}

#[test]
fn nothing_that_is_in_use_is_erased() {
    let world = World::new();
    let ext4 = world.file("ext4", MEMBER_BYTES);
    let mut content = std::fs::read(&ext4).unwrap();
    content[0x438..0x43a].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&ext4, &content).unwrap();
    let serve = ["serve-disk", "ext4", "--listen"];
    let found = world.refused(&[&serve[..], &["unix:x.sock"]].concat(), 3, "PPT-3001");
    assert!(found.contains("@0x438"), "{found}");
    assert_eq!(std::fs::read(&ext4).unwrap(), content);
    world.refused(&["serve-disk", "none", "--listen", "unix:x.sock"], 5, "PPT-5003");
    (0..3).for_each(|index| drop(world.file(&format!("m{index}"), MEMBER_BYTES)));
    world.refused(&["serve-disk", "m0", "--listen", "0.0.0.0:0"], 2, "PPT-2001");

    // A member that does not answer: the others stay as they are.
    let servers: Vec<Server> = (0..2).map(|index| disk(&world, index)).collect();
    let create: [&str; 14] = [&CREATE[..], &SOCKETS].concat().try_into().unwrap();
    world.refused(&create, 4, "PPT-4001");
    assert!(!world.path("pool.toml").exists() && !world.path("pool.decisions").exists());
    let _third = disk(&world, 2);
    world.refused(&[&create[..], &["unix:m0.sock"]].concat(), 3, "PPT-3004");
    // A store that is in use.
    std::fs::write(world.path("used"), "x").unwrap();
    world.refused(&[&create[..], &["--store", "file:used"]].concat(), 3, "PPT-3001");
    world.refused(&[&create[..], &["--store", "nowhere:used"]].concat(), 2, "PPT-2001");
    let level = |level| create.map(|word| if word == "3.5" { level } else { word });
    world.refused(&[&level("5")[..], &["--mode", "shared"]].concat(), 2, "PPT-2002");
    world.refused(&level("6"), 2, "PPT-2002");
    world.ok(&create);
    world.refused(&create, 3, "PPT-3001");
    let again = [&create[..], &["--file", "b.toml", "--store", "file:b"]].concat();
    let message = world.refused(&again, 3, "PPT-3001");
    assert!(message.contains("member 0 of pool"), "{message}");
    assert!(!world.path("b").exists() && !world.path("b.toml").exists());
    // A cluster member is no disk for an array.
    let create = ["create", "tank", "--level", "1", "m0", "m1", "--yes"];
    drop(servers);
    world.refused(&create, 3, "PPT-3001");
}

#[test]
fn a_wrong_store_is_refused() {
    let rig = Rig::new("exclusive");
    let text = std::fs::read_to_string(rig.world.path("pool.toml")).unwrap();
    let coordinator = ["cluster", "coordinator", "other.toml", "--listen", "unix:c0.sock"];
    let write = |text: String| std::fs::write(rig.world.path("other.toml"), text).unwrap();
    write(text.replace("pool.decisions", "missing"));
    rig.world.refused(&coordinator, 5, "PPT-5003");
    let uuid = text.lines().find(|line| line.starts_with("uuid")).unwrap();
    write(text.replace(uuid, "uuid = \"0123456789abcdef0123456789abcdef\""));
    rig.world.refused(&coordinator, 3, "PPT-3005");
    write(text.replace("uuid", "id"));
    rig.world.refused(&coordinator, 2, "PPT-2001");
    rig.world.refused(&["cluster", "status", "none.toml"], 5, "PPT-5003");
}

#[test]
fn the_demonstration_ends_well_and_leaves_nothing() {
    let world = World::new();
    let folder = world.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    let mut command = world.command(&["quickstart", "--cluster", "--json"]);
    let output = command.env("TMPDIR", &folder).output().unwrap();
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::check(&shown);
    assert_eq!(shown["data"]["wrong_bytes"], 0, "{shown}");
    assert!(shown["data"]["written_bytes"].as_u64().unwrap() > 0, "{shown}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}
