//! The environment of measured targets: a network namespace with cables, and a folder with members.
//!
//! ```text
//!   core 0   client ── cN ══════ sN ── server N    core 1      one cable for each server:
//!                        veth                                  it sees only its own frames
//! ```
//!
//! Servers, namespace and folder go with their values, also when a measurement fails.

use super::super::process::Process;
use super::client::Client;
use crate::failure::Failure;
use crate::shell;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The core that servers run on.
const CORE: &str = "1";
/// Size of an export.
const EXPORT_MEBIBYTES: usize = 224;
/// Room on each member for metadata.
const OVERHEAD_MEBIBYTES: usize = 16;
const PATIENCE: Duration = Duration::from_secs(10);

/// The programs that are measured with, as they are shipped.
pub(super) struct Programs {
    pub(super) parapet: PathBuf,
    pub(super) client: PathBuf,
    root: PathBuf,
}

impl Programs {
    pub(super) fn build(root: &Path) -> Result<Programs, Failure> {
        let client = ["cargo", "build", "-q", "--release", "--bench", "aoe"];
        Ok(Programs {
            client: shell::built(root, &client, "aoe")?,
            parapet: shell::released(root)?,
            root: root.into(),
        })
    }
}

/// See the module.
pub(super) struct Stand<'a> {
    programs: &'a Programs,
    folder: PathBuf,
    namespace: String,
    mtu: u32,
    priority: &'static [&'static str],
    servers: Cell<u8>,
}

/// Where members are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Memory,
    Disk,
}

impl Medium {
    fn parent(self, root: &Path) -> PathBuf {
        match self {
            Medium::Memory => "/dev/shm".into(),
            Medium::Disk => root.join("target"),
        }
    }

    /// Servers and client in memory run before everything else, so that other work on the machine
    /// does not come between a frame and its answer. A disk needs the kernel's own threads.
    fn priority(self) -> &'static [&'static str] {
        match self {
            Medium::Memory => &["chrt", "--fifo", "1"],
            Medium::Disk => &[],
        }
    }
}

/// A running target. Ends when it is dropped.
pub(super) struct Server {
    process: Process,
    /// Shelf and slot.
    pub(super) address: String,
    /// The client's ends of its cables.
    pub(super) ports: String,
}

impl Server {
    pub(super) fn cpu_seconds(&self) -> Result<f64, Failure> {
        self.process.cpu_seconds()
    }
}

impl<'a> Stand<'a> {
    /// A stand with cables of this MTU.
    pub(super) fn new(programs: &'a Programs, medium: Medium, mtu: u32) -> Result<Self, Failure> {
        let namespace = format!("parapet-aoe-{}", std::process::id());
        let folder = medium.parent(&programs.root).join(&namespace);
        std::fs::create_dir_all(folder.join("run/parapet")).map_err(|error| {
            Failure::new(format!("{}: {error}", folder.display()), "make room for 2 GiB")
        })?;
        ip(&["netns", "add", &namespace])?;
        let priority = medium.priority();
        Ok(Stand { programs, folder, namespace, mtu, priority, servers: Cell::new(0) })
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn client(&self) -> Client<'_> {
        let (program, namespace) = (&self.programs.client, &self.namespace);
        Client { program, namespace, priority: self.priority }
    }

    /// Makes cables, and returns the servers' ends and the clients' ends. `shaped` ones carry
    /// 1 Gbit/s each way.
    pub(super) fn cables(&self, count: u8, shaped: bool) -> Result<[String; 2], Failure> {
        let number = self.servers.replace(self.servers.get() + 1);
        let mut ends: [Vec<String>; 2] = Default::default();
        for cable in 0..count {
            let [server, client] = ["s", "c"].map(|end| format!("{end}{number}x{cable}"));
            self.make_cable(&server, &client)?;
            for (end, name) in ends.iter_mut().zip([server, client]) {
                if shaped {
                    self.shape(&name)?;
                }
                end.push(name);
            }
        }
        Ok(ends.map(|names| names.join(",")))
    }

    fn make_cable(&self, server: &str, client: &str) -> Result<(), Failure> {
        let mtu = self.mtu.to_string();
        let within = ["-n", &self.namespace, "link"];
        let link = |words: &[&str]| ip(&[&within[..], words].concat());
        link(&["add", server, "mtu", &mtu, "type", "veth", "peer", "name", client, "mtu", &mtu])?;
        link(&["set", server, "up"])?;
        link(&["set", client, "up"])
    }

    /// Limits what goes out of this end: frames as the kernel counts them, with their Ethernet
    /// header, without preamble, checksum and gap.
    fn shape(&self, end: &str) -> Result<(), Failure> {
        let within = ["tc", "-n", &self.namespace, "qdisc", "add", "dev", end, "root", "tbf"];
        let limit = ["rate", "1gbit", "burst", "64k", "limit", "4m"];
        shell::run(Path::new("/"), &[&within[..], &limit].concat())
    }

    /// An array served as `create` and `serve` make it unasked.
    pub(super) fn parapet(
        &self,
        level: &str,
        members: usize,
        ends: &[String; 2],
    ) -> Result<Server, Failure> {
        let address = format!("7.{}", self.servers.get());
        let name = format!("array{}", self.servers.get());
        self.make(&name, level, members)?;
        let server = self.serve(&name, members, &address, ends)?;
        self.wait_for(server)
    }

    /// Makes an array on new files.
    pub(super) fn make(&self, name: &str, level: &str, members: usize) -> Result<(), Failure> {
        // RAID 5 has a member more than its data.
        let data = if level == "5" { members - 1 } else { members };
        let size = format!("{}M", EXPORT_MEBIBYTES / data + OVERHEAD_MEBIBYTES);
        let mut create = self.command(&self.programs.parapet);
        create.args(["create", name, "--level", level, "--yes", "--new-files", &size]);
        create.args(self.members(name, members)).stdout(Stdio::null());
        if create.status().is_ok_and(|status| status.success()) {
            return Ok(());
        }
        Err(Failure::new(format!("{name} could not be made"), "see above"))
    }

    /// Starts a server of an array.
    pub(super) fn serve(
        &self,
        name: &str,
        members: usize,
        address: &str,
        [server, client]: &[String; 2],
    ) -> Result<Server, Failure> {
        let control = format!("unix:{}", self.path(&format!("{name}.c")).display());
        let export = format!("{address}@{server}");
        let mut serve = self.on_core();
        serve.arg(&self.programs.parapet).args(["serve", name]).args(self.members(name, members));
        serve.args(["--control", &control, "--aoe", &export]).stderr(Stdio::null());
        let process = Process::start(serve)?;
        Ok(Server { process, address: address.into(), ports: client.clone() })
    }

    fn members(&self, name: &str, count: usize) -> Vec<PathBuf> {
        (0..count).map(|index| self.path(&format!("{name}-{index}"))).collect()
    }

    /// The usual target, on a file that is written in full.
    pub(super) fn vblade(&self, options: &[&str], ends: &[String; 2]) -> Result<Server, Failure> {
        let slot = self.servers.get();
        let file = self.path(&format!("vblade{slot}"));
        self.fill_file(&file)?;
        let server = self.start_vblade(options, slot, &file, ends)?;
        self.wait_for(server)
    }

    pub(super) fn fill_file(&self, file: &Path) -> Result<(), Failure> {
        let zeros = vec![0; EXPORT_MEBIBYTES << 20];
        std::fs::write(file, zeros)
            .map_err(|error| Failure::new(format!("{}: {error}", file.display()), "is it full?"))
    }

    pub(super) fn start_vblade(
        &self,
        options: &[&str],
        slot: u8,
        file: &Path,
        [server, client]: &[String; 2],
    ) -> Result<Server, Failure> {
        let mut serve = self.on_core();
        serve.arg("vblade").args(options).args(["7", &slot.to_string(), server]).arg(file);
        let process = Process::start(serve)?;
        Ok(Server { process, address: format!("7.{slot}"), ports: client.clone() })
    }

    /// Waits until the target answers.
    fn wait_for(&self, mut server: Server) -> Result<Server, Failure> {
        let begun = Instant::now();
        while self.client().first(&server.ports, &server.address)?.answer().is_err() {
            if !server.process.is_running() || begun.elapsed() > PATIENCE {
                let what = format!("{} does not serve", server.address);
                return Err(Failure::new(what, "see its messages above"));
            }
            sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// A command on the servers' core, in the namespace.
    fn on_core(&self) -> Command {
        let mut command = self.command("ip");
        command.args(["netns", "exec", &self.namespace, "taskset", "--cpu-list", CORE]);
        command.args(self.priority);
        command
    }

    /// A command that finds nothing of the user's own, and does not chatter.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.folder).stdin(Stdio::null());
        command.env("PARAPET_STATE", self.path("state")).env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        // Its cables go with it.
        let _ = ip(&["netns", "delete", &self.namespace]);
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("{} is left behind: {error}", self.folder.display());
        }
    }
}

fn ip(words: &[&str]) -> Result<(), Failure> {
    shell::run(Path::new("/"), &[&["ip"], words].concat())
}
