//! The fence agent, as Pacemaker and dlm_controld call it: it succeeds only when a client can
//! change nothing any more.

use std::io::Write;
use std::process::Stdio;

use super::Rig;
use crate::world::{Server, World, until};

const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/fence/fence_parapet");

impl Rig {
    /// Calls the agent with these words and this standard input. Returns its status and output.
    fn fence(&self, words: &[&str], input: &str) -> (i32, String) {
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_parapet"));
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut command = self.world.command_of(&[&[AGENT], words].concat());
        command.env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut agent = command.stderr(Stdio::piped()).spawn().unwrap();
        agent.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = agent.wait_with_output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(said).unwrap())
    }

    /// The same, for an action on a client.
    fn act(&self, action: &str, client: &str) -> i32 {
        self.fence(&["-o", action, "-n", client, "--cluster-file", "pool.toml"], "").0
    }
}

#[test]
fn a_fenced_client_writes_nothing_more() {
    let mut rig = Rig::new("shared");
    assert!(rig.io(0, &["write -P 1 0 1M", "flush"]));
    assert_eq!((rig.act("monitor", "1"), rig.act("status", "1")), (0, 0));
    // dlm_controld and Pacemaker write to the standard input, with options of their own.
    let (status, said) =
        rig.fence(&[], "# a comment\nnodename=a\naction=off\nport=1\ncluster_file=pool.toml\n");
    assert_eq!(status, 0, "{said}");
    assert!(!rig.io(0, &["write -P 2 0 4k"]) && !rig.io(0, &["read 0 4k"]));
    assert!(rig.io(1, &["read -P 1 0 1M", "write -P 3 0 4k", "flush"]));
    assert_eq!((rig.act("status", "1"), rig.act("status", "2")), (2, 0));
    // It returns by a restart.
    assert_eq!(rig.act("on", "1"), 0);
    assert_eq!(rig.clients[0].take().unwrap().terminate(), 1);
    rig.clients[0] = Some(rig.client(0));
    assert!(rig.io(0, &["read -P 3 0 4k", "write -P 2 0 4k", "flush"]));
    assert_eq!(rig.act("status", "1"), 0);
    // Fenced is fenced, however often.
    assert_eq!((rig.act("reboot", "1"), rig.act("reboot", "1")), (0, 0));
}

/// A host that holds no region leaves no trace when it falls silent. It must be fenced all the
/// same: once it is back, its file system would write what it has in its caches.
#[test]
fn a_client_that_is_silent_and_forgotten_is_fenced() {
    let rig = Rig::new("shared");
    assert!(rig.io(0, &["write -P 1 0 4k", "flush"]));
    // It gives its regions back when it is idle.
    until(|| rig.status()["clients"][0]["regions"] == 0);
    let paused = rig.clients[0].as_ref().unwrap();
    paused.signal("STOP");
    until(|| rig.clients() == [2]);
    assert_eq!(rig.act("off", "1"), 0);
    assert!(rig.io(1, &["write -P 2 0 4k", "flush"]));
    paused.signal("CONT");
    assert!(!rig.io(0, &["write -P 3 0 4k"]));
    assert!(rig.io(1, &["read -P 2 0 4k"]));
}

#[test]
fn what_is_not_fenced_is_never_called_so() {
    let mut rig = Rig::new("exclusive");
    assert_eq!(rig.act("off", "7"), 1, "no client has this id");
    for input in ["", "action=off\nplug=1\n", "cluster_file=pool.toml\nplug=x\n"] {
        assert_eq!(rig.fence(&[], input).0, 1, "{input}");
    }
    let words = ["--action=list", "--plug=1", "--cluster-file=pool.toml"];
    assert_eq!(rig.fence(&words, "").0, 1);
    rig.coordinators.iter_mut().filter_map(Option::take).for_each(Server::kill);
    let out = ["off", "reboot", "status", "monitor"].map(|action| rig.act(action, "1"));
    assert_eq!(out, [1; 4]);
    assert_eq!(rig.act("validate-all", "1"), 0);
}

#[test]
fn the_agent_describes_itself() {
    let (world, name) = (World::new(), String::new());
    let rig = Rig { world, name, members: vec![], coordinators: vec![], clients: vec![] };
    let (status, metadata) = rig.fence(&["-o", "metadata"], "");
    assert_eq!(status, 0);
    std::fs::write(rig.world.path("metadata.xml"), &metadata).unwrap();
    let script = "import sys, xml.etree.ElementTree as tree\n\
        root = tree.parse('metadata.xml').getroot()\n\
        names = lambda kind: ' '.join(sorted(it.get('name') for it in root.iter(kind)))\n\
        print(root.get('name'), '|', names('parameter'), '|', names('action'))";
    let found = rig.world.tool("python3", &["python3", "-c", script]);
    assert_eq!(
        found.trim(),
        "fence_parapet | action cluster_file plug port power_timeout | \
         metadata monitor off on reboot status validate-all"
    );
}
