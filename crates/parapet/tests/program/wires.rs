//! Cables between network interfaces, and other machines behind them. What goes over a cable is
//! recorded; at its end tshark decodes the recording without one malformed frame.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use io::{Link, Pool};
use net::aoe::{Address, discover};
use os::link::{Filter, Role};
use os::{Config, Executor, Port};

use crate::world::{World, until};

/// Headers, and whole frames up to an MTU of 1500.
const FRAME_BYTES: &str = "1600";
/// A shelf that no test has.
const NO_SHELF: u16 = 0xfeed;
/// What tshark must not find.
const MALFORMED: &str = "_ws.malformed || aoe.lba && !aoe.cmd";
/// An answer whose request is in the recording too.
const ANSWERED: &str = "aoe.response_to";

pub fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).output().expect("ip is part of iproute2");
    assert!(done.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A number that no other cable or shelf of this process has.
fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Two interfaces with a cable between them; it goes with this value.
pub struct Cable {
    pub server: String,
    pub client: String,
    recording: Recording,
}

impl Cable {
    pub fn new(world: &World, mtu: &str) -> Cable {
        let number = number();
        let name = |end| format!("{end}{}x{number}", std::process::id());
        let (server, client) = (name("pps"), name("ppc"));
        let pair = ["link", "add", &server, "mtu", mtu, "type", "veth", "peer", "name", &client];
        ip(&pair);
        ip(&["link", "set", &client, "mtu", mtu, "up"]);
        ip(&["link", "set", &server, "up"]);
        let recording = Recording::start(&[&server], world.path(&format!("{server}.pcapng")));
        Cable { server, client, recording }
    }

    /// The cable as the server's command line names it.
    pub fn export(&self, address: &str) -> String {
        format!("{address}@{}", self.server)
    }

    /// Ends the recording: it has at least so many requests that were answered.
    pub fn verify_answers(&mut self, least: usize) {
        self.recording.end();
        let answered = frames(&self.recording.file, ANSWERED).len();
        assert!(answered >= least, "tshark finds {answered} answers in the recording");
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.recording.verify();
        let _ = Command::new("ip").args(["link", "del", &self.server]).status();
    }
}

/// A network namespace with its own machine's interfaces; cables lead to it.
pub struct Shelf {
    pub name: String,
    pub near: Vec<String>,
    pub far: Vec<String>,
    recording: Recording,
}

impl Shelf {
    pub fn new(world: &World, cables: usize) -> Shelf {
        let number = number();
        let name = format!("pps{}x{number}", std::process::id());
        ip(&["netns", "add", &name]);
        let end = |end, cable| format!("p{end}{}x{number}{cable}", std::process::id());
        let near: Vec<String> = (0..cables).map(|cable| end("n", cable)).collect();
        let far: Vec<String> = (0..cables).map(|cable| end("f", cable)).collect();
        for (near, far) in near.iter().zip(&far) {
            let veth = ["link", "add", near, "mtu", "9000", "type", "veth", "peer", "name", far];
            ip(&[&veth[..], &["mtu", "9000", "netns", &name]].concat());
            ip(&["link", "set", near, "up"]);
            ip(&["-n", &name, "link", "set", far, "up"]);
        }
        let cables: Vec<&str> = near.iter().map(String::as_str).collect();
        let recording = Recording::start(&cables, world.path(&format!("{name}.pcapng")));
        Shelf { name, near, far, recording }
    }

    /// Runs a command on the shelf.
    pub fn within<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["ip", "netns", "exec", &self.name], words].concat()
    }

    /// The address of a target, through all cables.
    pub fn target(&self, address: &str) -> String {
        format!("aoe:{address}@{}", self.near.join(","))
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        self.recording.verify();
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// The frames of some interfaces, in a file.
struct Recording {
    interfaces: Vec<String>,
    recorder: Child,
    said: Box<dyn BufRead>,
    file: PathBuf,
}

impl Recording {
    fn start(interfaces: &[&str], file: PathBuf) -> Recording {
        let mut command = Command::new("dumpcap");
        // Each `-s` holds for the `-i` before it.
        let each = interfaces.iter().flat_map(|name| ["-i", name, "-s", FRAME_BYTES]);
        command.arg("-q").args(each).arg("-w").arg(&file);
        let started = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut recorder = started.expect("dumpcap is missing: install the package tshark");
        let said = recorder.stderr.take().expect("it was asked for");
        let mut said: Box<dyn BufRead> = Box::new(BufReader::new(said));
        let (mut all, mut line) = (String::new(), String::new());
        while !line.starts_with("File:") {
            line.clear();
            let end = said.read_line(&mut line).unwrap() == 0;
            assert!(!end, "dumpcap does not record {interfaces:?}: {all}");
            all += &line;
        }
        let interfaces = interfaces.iter().map(|&name| name.to_owned()).collect();
        Recording { interfaces, recorder, said, file }
    }

    /// Ends the recording. An interface that has gone has ended it before.
    fn end(&mut self) {
        // Until then, the recorder has frames in memory.
        let last = self.interfaces.iter().filter_map(|interface| send_last(interface));
        for frame in last.collect::<Vec<_>>() {
            let is_recorded = || {
                let bytes = std::fs::read(&self.file).unwrap();
                bytes.windows(frame.len()).any(|it| it == frame)
            };
            until(|| self.recorder.try_wait().unwrap().is_some() || is_recorded());
        }
        let id = self.recorder.id().to_string();
        let _ = Command::new("kill").args(["-s", "INT", &id]).stderr(Stdio::null()).status();
        let _ = self.said.read_to_string(&mut String::new());
        let _ = self.recorder.wait();
    }

    /// Ends the recording; tshark can decode each frame.
    fn verify(&mut self) {
        if std::thread::panicking() {
            let _ = self.recorder.kill();
            let _ = self.recorder.wait();
            return;
        }
        self.end();
        let malformed = frames(&self.file, MALFORMED);
        assert!(malformed.is_empty(), "{}: malformed: {malformed:?}", self.file.display());
    }
}

/// Sends a frame of its own through this interface, if that is up; returns it.
fn send_last(interface: &str) -> Option<Vec<u8>> {
    let executor = Executor::new(Config::default()).unwrap();
    let filter = Filter { role: Role::Initiator, shelves: vec![NO_SHELF], slot: None };
    let on = executor.spawner();
    let port = Port::interface(interface, &filter, Pool::new(0), &on).ok()?;
    if !port.state().up {
        return None;
    }
    let nobody = Address { shelf: NO_SHELF, slot: 0 };
    let found = executor.block_on(discover(&port, &*on.clock(), nobody));
    assert_eq!(found.unwrap(), []);
    let source = port.address().0;
    Some([&[0xff; 6], &source[..], &[0x88, 0xa2, 0x10, 0], &NO_SHELF.to_be_bytes()].concat())
}

/// The numbers of the frames of a recording that a filter of tshark accepts.
fn frames(recording: &Path, filter: &str) -> Vec<String> {
    let mut command = Command::new("tshark");
    command.arg("-r").arg(recording).args(["-Y", filter, "-T", "fields", "-e", "frame.number"]);
    let output = command.stdin(Stdio::null()).output().expect("tshark is missing: install it");
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {why}");
    String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect()
}

/// The checks find a frame that ends too soon, and no fault in a whole one.
#[test]
fn a_malformed_frame_is_found() {
    let world = World::new();
    // The read of a sector, to all: the headers of Ethernet, AoE and ATA.
    let to_all = [[0xff; 6], [2, 0, 0, 0, 0, 1]].concat();
    let aoe = [0x88, 0xa2, 0x10, 0, 0, 1, 0, 0, 0, 0, 0, 7];
    let read = [&to_all[..], &aoe, &[0, 0, 1, 0x24], &[0; 8]].concat();
    let record = |frame: &[u8]| {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let header: Vec<u8> = words(&[0xa1b2_c3d4, 4 << 16 | 2, 0, 0, 65535, 1]);
        let len = frame.len() as u32;
        let packet: Vec<u8> = words(&[0, 0, len, len]);
        let file = world.path("frames.pcap");
        std::fs::write(&file, [&header[..], &packet, frame].concat()).unwrap();
        frames(&file, MALFORMED).len()
    };
    assert_eq!((record(&read), record(&read[..read.len() - 8])), (0, 1));
}
