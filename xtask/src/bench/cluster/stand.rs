//! Clusters of real processes on this machine, and local arrays of the same level beside them.
//!
//! Nothing is pinned to a core: the processes of all hosts share them, as the load does. Everything
//! ends with its value.

use super::super::nbd::stand::{Server, Stand, sparse_file, start};
use super::super::process::Process;
use crate::failure::Failure;
use crate::shell;
use crate::tools;
use serde_json::Value;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Room on each member for its headers and its journal.
const OVERHEAD_MEBIBYTES: usize = 12;
/// Until a state of a cluster comes about.
const PATIENCE: Duration = Duration::from_secs(60);
/// A modelled disk must not wait for a processor.
const FIRST: [&str; 3] = ["chrt", "--fifo", "1"];

/// How the processes are connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Unix,
    Tcp,
    Tls,
}

/// What the members' data is on.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    /// Files in memory.
    Memory,
    /// Files on this machine's disk.
    Disk,
    /// Files in memory behind a model of the lab's catalogue.
    Model(&'static str),
}

/// A cluster to be made. The default is what most rows are about.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) level: &'static str,
    pub(super) members: usize,
    /// Data of each member.
    pub(super) mebibytes: usize,
    pub(super) medium: Medium,
    pub(super) region: &'static str,
    pub(super) mode: &'static str,
    pub(super) hosts: usize,
    pub(super) wire: Wire,
    /// Decisions are in etcd, not in a file.
    pub(super) etcd: bool,
}

impl Plan {
    pub(super) const DEFAULT: Plan = Plan {
        level: "3.5",
        members: 3,
        mebibytes: 128,
        medium: Medium::Memory,
        region: "64M",
        mode: "exclusive",
        hosts: 1,
        wire: Wire::Unix,
        etcd: false,
    };
}

/// See the module.
pub(super) struct Cluster<'a> {
    stand: &'a Stand,
    folder: PathBuf,
    plan: Plan,
    clients: Vec<Server>,
    coordinator: Option<Process>,
    members: Vec<Process>,
    etcd: Option<Process>,
}

impl<'a> Cluster<'a> {
    /// Starts all processes of a new cluster; no two of a stand have one name.
    pub(super) fn start(stand: &'a Stand, name: &str, plan: Plan) -> Result<Cluster<'a>, Failure> {
        let folder = match plan.medium {
            Medium::Disk => shell::root()?.join("target").join(format!("bench-{name}")),
            _ => stand.path(name),
        };
        make_folder(&folder)?;
        let (clients, members) = (Vec::new(), Vec::new());
        let (coordinator, etcd) = (None, None);
        let mut it = Cluster { stand, folder, plan, clients, coordinator, members, etcd };
        if plan.wire == Wire::Tls {
            it.make_keys()?;
        }
        if plan.etcd {
            it.start_etcd()?;
        }
        for member in 0..plan.members {
            sparse_file(&it.disk(member), plan.mebibytes + OVERHEAD_MEBIBYTES)?;
            let process = it.serve_disk(member)?;
            it.members.push(process);
        }
        it.create()?;
        it.start_coordinator()?;
        for host in 0..plan.hosts {
            let mut client = it.parapet();
            let (id, socket) = ((host + 1).to_string(), it.folder.join(format!("n{host}")));
            client.args(["cluster", "client"]).arg(it.file()).args(["--id", &id, "--nbd"]);
            client.arg(format!("unix:{}", socket.display()));
            it.clients.push(start(client, socket, "pool")?);
        }
        Ok(it)
    }

    /// The exports, one of each host.
    pub(super) fn exports(&self) -> &[Server] {
        &self.clients
    }

    pub(super) fn coordinator(&self) -> &Process {
        self.coordinator.as_ref().expect("started")
    }

    fn make_keys(&self) -> Result<(), Failure> {
        let mut command = self.parapet();
        command.args(["cluster", "key"]).arg(self.folder.join("keys"));
        command.args(["all", "member", "coordinator", "client-1", "client-2", "admin"]);
        for place in 0..=self.plan.members {
            command.args(["--address", &loopback(place)]);
        }
        run(command)?;
        // The cluster file names them from its own folder.
        for file in ["cert.pem", "key.pem", "ca.pem"] {
            let (from, to) = (self.folder.join("keys/all").join(file), self.folder.join(file));
            let copied = std::fs::copy(&from, &to);
            copied.map_err(|error| Failure::new(format!("{}: {error}", to.display()), "see it"))?;
        }
        Ok(())
    }

    fn tls(&self) -> Vec<String> {
        let files = [("cert", "cert.pem"), ("key", "key.pem"), ("ca", "ca.pem")];
        let files = files.iter().filter(|_| self.plan.wire == Wire::Tls);
        let path = |file: &str| self.folder.join(file).display().to_string();
        files.flat_map(|(what, file)| [format!("--tls-{what}"), path(file)]).collect()
    }

    /// Where a member listens, or behind them the coordinator.
    fn address(&self, place: usize) -> String {
        match self.plan.wire {
            Wire::Unix => format!("unix:{}", self.folder.join(format!("s{place}")).display()),
            Wire::Tcp | Wire::Tls => format!("{}:7600", loopback(place)),
        }
    }

    /// Starts a server and waits until it takes connections.
    fn serve(&self, place: usize, command: Command) -> Result<Process, Failure> {
        let (line, address) = (format!("{command:?}"), self.address(place));
        let mut process = Process::start(command)?;
        process.wait_until(&line, || match address.strip_prefix("unix:") {
            Some(path) => std::os::unix::net::UnixStream::connect(path).is_ok(),
            None => answers(&address),
        })?;
        Ok(process)
    }

    fn disk(&self, member: usize) -> PathBuf {
        self.folder.join(format!("d{member}"))
    }

    fn serve_disk(&self, member: usize) -> Result<Process, Failure> {
        let (mut command, disk) = match self.plan.medium {
            Medium::Model(model) => {
                (modelled(self.stand), format!("model:{model}:{}", self.disk(member).display()))
            }
            _ => (self.parapet(), self.disk(member).display().to_string()),
        };
        command.args(["serve-disk", &disk, "--listen", &self.address(member)]).args(self.tls());
        self.serve(member, command)
    }

    fn create(&self) -> Result<(), Failure> {
        let Plan { level, members, mode, region, .. } = self.plan;
        let mut command = self.parapet();
        command.args(["--quiet", "cluster", "create", "pool", "--yes", "--level", level]);
        command.args(["--mode", mode, "--region", region]);
        command.args(["--coordinator", &self.address(members), "--file"]);
        command.arg(self.file()).args(self.tls());
        if self.etcd.is_some() {
            command.args(["--store", &format!("etcd:{}", etcd_url(2379))]);
        }
        command.args((0..members).map(|member| self.address(member)));
        run(command)
    }

    fn start_coordinator(&mut self) -> Result<(), Failure> {
        let mut command = self.parapet();
        command.args(["cluster", "coordinator"]).arg(self.file());
        self.coordinator = Some(self.serve(self.plan.members, command)?);
        Ok(())
    }

    fn start_etcd(&mut self) -> Result<(), Failure> {
        let mut command = self.stand.command("etcd");
        let (client, peer) = (etcd_url(2379), etcd_url(2380));
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]).stderr(Stdio::null());
        let mut process = Process::start(command)?;
        process.wait_until("etcd", || etcd_revision().is_some())?;
        self.etcd = Some(process);
        Ok(())
    }

    /// Kills a member; it comes back when the cluster does without it, and is rebuilt.
    pub(super) fn kill_and_return(&mut self, member: usize) -> Result<(), Failure> {
        drop(self.members.remove(member));
        self.until("degraded")?;
        let process = self.serve_disk(member)?;
        self.members.insert(member, process);
        self.until("optimal")
    }

    fn until(&self, state: &str) -> Result<(), Failure> {
        self.wait(state, |status| status["state"] == state)
    }

    /// Waits until no host holds a region: all writes are flushed, all marks are cleared.
    pub(super) fn until_released(&self) -> Result<(), Failure> {
        self.wait("no region held", |status| {
            let clients = status["clients"].as_array();
            // A status without clients is no answer.
            clients.is_some_and(|all| {
                !all.is_empty() && all.iter().all(|client| client["regions"] == 0)
            })
        })
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Value) -> bool) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            let mut command = self.parapet();
            command.args(["cluster", "status", "--json"]).arg(self.file());
            let output = command.stdout(Stdio::piped()).output();
            let said = output.ok().and_then(|it| serde_json::from_slice(&it.stdout).ok());
            let status: Value = said.unwrap_or_default();
            if is_so(&status["data"]) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let what = format!("a cluster does not become so: {what}: {status}");
                return Err(Failure::new(what, "see the messages of its processes"));
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.join("pool.toml")
    }

    fn parapet(&self) -> Command {
        quiet(self.stand.command(&self.stand.program))
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        // Clients first: they would report what is gone.
        self.clients.clear();
        (self.coordinator, self.etcd) = (None, None);
        self.members.clear();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A local array of the same level over these members.
pub(super) fn local(
    stand: &Stand,
    name: &str,
    level: &str,
    members: &[String],
) -> Result<Server, Failure> {
    let mut create = quiet(stand.command(&stand.program));
    create.args(["create", name, "--level", level, "--yes"]).args(members);
    if !members.iter().any(|member| member.starts_with("nbd")) {
        let mebibytes = Plan::DEFAULT.mebibytes + OVERHEAD_MEBIBYTES;
        create.args(["--new-files", &format!("{mebibytes}M")]);
    }
    run(create)?;
    let is_modelled = members.iter().any(|member| member.starts_with("model:"));
    let mut serve = match is_modelled {
        true => modelled(stand),
        false => quiet(stand.command(&stand.program)),
    };
    let (socket, control) = (stand.path(&format!("{name}.s")), stand.path(&format!("{name}.c")));
    serve.args(["serve", name]).args(members);
    serve.args(["--nbd", &format!("unix:{}", socket.display())]);
    serve.args(["--control", &format!("unix:{}", control.display())]);
    start(serve, socket, name)
}

/// Files of members in memory, or modelled disks on them; they go with the stand.
pub(super) fn files(stand: &Stand, name: &str, medium: Medium, count: usize) -> Vec<String> {
    let file = |index: usize| stand.path(&format!("{name}-{index}")).display().to_string();
    let member = |index: usize| match medium {
        Medium::Model(model) => format!("model:{model}:{}", file(index)),
        _ => file(index),
    };
    (0..count).map(member).collect()
}

/// The revision of etcd: each write increments it.
pub(super) fn etcd_revision() -> Option<u64> {
    let url = etcd_url(2379);
    let words = ["etcdctl", "--endpoints", &url, "get", "none", "--write-out", "json"];
    let mut command = shell::command(Path::new("/"), &words);
    let output = command.env("ETCDCTL_API", "3").stderr(Stdio::null()).output().ok()?;
    let said: Value = serde_json::from_slice(&output.stdout).ok()?;
    said["header"]["revision"].as_u64()
}

fn etcd_url(port: u16) -> String {
    format!("http://{}:{port}", loopback(usize::from(u8::MAX) - 1))
}

/// A loopback address of this process only.
fn loopback(place: usize) -> String {
    let process = std::process::id();
    format!("127.{}.{}.{}", 1 + process / 256 % 254, process % 256, 1 + place)
}

fn answers(address: &str) -> bool {
    let address: Option<SocketAddr> = address.parse().ok();
    address.is_some_and(|address| TcpStream::connect(address).is_ok())
}

/// The program with modelled disks: before everything else, if this user may.
fn modelled(stand: &Stand) -> Command {
    if !tools::is_root() {
        return quiet(stand.command(&stand.program));
    }
    let mut command = stand.command(FIRST[0]);
    command.args(&FIRST[1..]).arg(&stand.program);
    quiet(command)
}

/// Without remarks on connections that come and go.
fn quiet(mut command: Command) -> Command {
    command.env("PARAPET_LOG", "error").stdout(Stdio::null());
    command
}

fn run(mut command: Command) -> Result<(), Failure> {
    let line = format!("{command:?}");
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("{line}: {status}"), "its messages stand above")),
        Err(error) => Err(Failure::new(format!("{line}: {error}"), "is it installed?")),
    }
}

fn make_folder(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Failure::new(format!("{}: {error}", folder.display()), "free some room"))
}
