//! A member's disk dies for good, and another one takes its place.

use std::fs;

use super::{MEMBER_BYTES, Rig, disk};
use crate::world::until;

const REPLACE: [&str; 5] = ["cluster", "replace", "pool.toml", "1", "--yes"];
const WRITES: [&str; 5] =
    ["write -P 1 0 8M", "write -P 2 8M 8M", "write -P 3 16M 8M", "write -P 4 24M 8M", "flush"];
const READS: [&str; 4] =
    ["read -P 1 0 8M", "read -P 2 8M 8M", "read -P 3 16M 8M", "read -P 4 24M 8M"];

impl Rig {
    /// Runs a command; returns all that it says.
    fn said(&self, words: &[&str]) -> String {
        let ran = self.world.run(words);
        assert_eq!(ran.code, 0, "{ran:?}");
        ran.out + &ran.err
    }

    fn stop_member(&mut self, index: usize) {
        self.members[index].take().unwrap().kill();
    }

    fn until_missing(&self, index: usize) {
        until(|| self.status()["members"][index]["state"] == "missing");
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.world.path(from), self.world.path(to)).unwrap();
    }

    /// Waits until the coordinator hears of a disk that is not the member's.
    fn until_problem(&self, index: usize, words: &str) {
        let problem = || self.status()["members"][index]["problem"].clone();
        until(|| problem().as_str().is_some_and(|problem| problem.contains(words)));
    }
}

#[test]
fn a_dead_disk_is_replaced_and_never_returns() {
    let mut rig = Rig::new("exclusive");
    assert!(rig.io(0, &WRITES));
    rig.stop_member(1);
    rig.until_missing(1);
    rig.rename("m1", "old");
    rig.world.file("m1", MEMBER_BYTES);
    rig.start_member(1);
    let dry = rig.said(&["cluster", "replace", "pool.toml", "1", "--dry-run"]);
    assert!(dry.contains("erase unix:") && dry.contains("nothing was changed"), "{dry}");
    let done = rig.said(&REPLACE);
    assert!(done.contains("watch the rebuild: parapet cluster status pool.toml"), "{done}");
    rig.until_optimal();
    rig.stop_member(0);
    assert!(rig.io(1, &READS), "the new disk has everything");
    assert!(rig.io(0, &["write -P 5 0 1M", "flush"]));
    rig.start_member(0);
    rig.until_optimal();

    // The old disk, at the old address.
    rig.stop_member(1);
    rig.rename("m1", "new");
    rig.rename("old", "m1");
    rig.until_missing(1);
    rig.start_member(1);
    rig.until_problem(1, "this disk was replaced");
    let explained = rig.world.ok(&["cluster", "explain", "pool.toml"]);
    assert!(explained.contains("member 1: this disk was replaced: stop its server"), "{explained}");
    let message = rig.world.refused(&REPLACE, 3, "PPT-3001");
    assert!(message.contains("was replaced"), "{message}");
    assert!(rig.io(0, &["read -P 5 0 1M", "write -P 6 8M 1M", "flush"]));
    let status = rig.status();
    assert_eq!(
        (&status["state"], &status["members"][1]["state"]),
        (&"degraded".into(), &"missing".into())
    );
    rig.stop_member(1);
    rig.rename("new", "m1");
    rig.start_member(1);
    rig.until_optimal();
    rig.stop_member(2);
    assert!(rig.io(1, &["read -P 5 0 1M", "read -P 1 1M 7M", "read -P 6 8M 1M"]));
    assert!(rig.io(1, &["read -P 2 9M 7M", READS[2], READS[3]]));
}

#[test]
fn a_new_disk_may_have_another_address() {
    let mut rig = Rig::new("exclusive");
    assert!(rig.io(0, &WRITES));
    rig.stop_member(1);
    rig.world.file("m9", MEMBER_BYTES);
    let _new = disk(&rig.world, 9);
    rig.until_missing(1);
    let at = ["--at", "unix:m9.sock"];
    let before = fs::read_to_string(rig.world.path("pool.toml")).unwrap();
    rig.world.refused(&[&REPLACE[..], &["--at", "unix:m0.sock"]].concat(), 3, "PPT-3004");
    let done = rig.said(&[&REPLACE[..], &at].concat());
    assert!(done.contains("restart the clients there, and then the coordinators"), "{done}");
    let after = fs::read_to_string(rig.world.path("pool.toml")).unwrap();
    assert_eq!(after, before.replace("m1.sock", "m9.sock"));
    // A command that was interrupted before it changed the file.
    fs::write(rig.world.path("pool.toml"), before).unwrap();
    rig.world.ok(&[&REPLACE[..], &at].concat());
    assert_eq!(fs::read_to_string(rig.world.path("pool.toml")).unwrap(), after);
    // A client that cannot reach a member would be evicted.
    for index in 0..2 {
        assert_eq!(rig.clients[index].take().unwrap().terminate(), 0);
        rig.clients[index] = Some(rig.client(index));
    }
    for index in 0..2 {
        assert_eq!(rig.coordinators[index].take().unwrap().terminate(), 0);
        rig.coordinators[index] = Some(rig.coordinator(index));
    }
    rig.until_optimal();
    rig.stop_member(0);
    assert!(rig.io(0, &READS));
}

#[test]
fn only_an_empty_disk_replaces_a_missing_member() {
    let mut rig = Rig::new("exclusive");
    let message = rig.world.refused(&REPLACE, 3, "PPT-3006");
    assert!(message.contains("member 1 is in sync"), "{message}");
    let of = |member| REPLACE.map(|word| if word == "1" { member } else { word });
    rig.world.refused(&of("3"), 5, "PPT-5002");
    rig.world.refused(&of("x"), 2, "PPT-2001");
    rig.stop_member(1);
    rig.until_missing(1);
    rig.world.refused(&REPLACE, 4, "PPT-4001");
    rig.rename("m1", "old");
    // One more is away: the array needs member 2, and nobody else has its data.
    rig.stop_member(2);
    let message =
        rig.world.refused(&REPLACE.map(|word| if word == "1" { "2" } else { word }), 3, "PPT-3006");
    assert!(message.contains("the array needs this disk"), "{message}");
    until(|| rig.status()["state"] == "waiting");
    let explained = rig.world.ok(&["cluster", "explain", "pool.toml"]);
    assert!(explained.contains("member 2 is needed: start its server"), "{explained}");
    rig.start_member(2);
    until(|| rig.status()["state"] == "degraded");
    rig.world.file("m1", MEMBER_BYTES - 1);
    rig.start_member(1);
    let message = rig.world.refused(&REPLACE, 2, "PPT-2002");
    assert!(message.contains("a member 16 MiB"), "{message}");
    rig.stop_member(1);
    // A disk of another slot.
    fs::copy(rig.world.path("m0"), rig.world.path("m1")).unwrap();
    rig.start_member(1);
    let message = rig.world.refused(&REPLACE, 3, "PPT-3001");
    assert!(message.contains("member 0 of this cluster"), "{message}");
    rig.stop_member(1);
    // Its own disk is there after all.
    rig.rename("old", "m1");
    rig.start_member(1);
    rig.until_optimal();
    rig.world.refused(&REPLACE, 3, "PPT-3006");
}
