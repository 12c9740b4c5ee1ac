//! The processes of all hosts: etcd, members, coordinators and clients, as they would run there.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use parapet_torture::first_line::first_line;
use parapet_torture::process_group::ProcessGroup;
use serde_json::Value;

use crate::network::{Network, address, run};
use crate::options::Options;

/// Hosts with etcd, a coordinator and a client; further hosts have members only.
pub(crate) const HOSTS: usize = 3;
/// Bytes of a member: 12 MiB of its own, and 8 regions of level 1.
const MEMBER_BYTES: u64 = 44 << 20;
/// Longer than this, and something hangs: ten times what it should take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(200);
/// Between two looks.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);

/// Kinds of processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Part {
    Etcd,
    Member,
    Coordinator,
    Client,
}

impl Part {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Part::Etcd => "etcd",
            Part::Member => "member",
            Part::Coordinator => "coordinator",
            Part::Client => "client",
        }
    }
}

/// A process, and its first line of output.
struct Process {
    child: Child,
    first: Receiver<String>,
}

/// See the module.
pub(crate) struct Processes<'a> {
    program: &'a Path,
    folder: &'a Path,
    pub(crate) network: &'a Network,
    group: &'a ProcessGroup,
    running: BTreeMap<(Part, usize), Process>,
    pub(crate) members: usize,
}

impl<'a> Processes<'a> {
    /// Starts everything, with a new cluster.
    ///
    /// # Errors
    /// If something does not start.
    pub(crate) fn start(
        options: &'a Options,
        folder: &'a Path,
        network: &'a Network,
        group: &'a ProcessGroup,
    ) -> Result<Processes<'a>, String> {
        let (program, running, members) = (&*options.program, BTreeMap::new(), options.members());
        let mut processes = Processes { program, folder, network, group, running, members };
        for host in 0..HOSTS {
            processes.launch(Part::Etcd, host)?;
        }
        for host in 0..members {
            let disk = folder.join(format!("m{host}"));
            let made = File::create(&disk).and_then(|file| file.set_len(MEMBER_BYTES));
            made.map_err(|error| format!("{}: {error}", disk.display()))?;
            processes.launch(Part::Member, host)?;
            processes.ready(Part::Member, host)?;
        }
        processes.until("etcd answers", |it| Ok(it.etcd_leader().is_some()))?;
        processes.create(options)?;
        for part in [Part::Coordinator, Part::Client] {
            (0..HOSTS).try_for_each(|host| processes.launch(part, host))?;
            (0..HOSTS).try_for_each(|host| processes.ready(part, host))?;
        }
        Ok(processes)
    }

    fn create(&self, options: &Options) -> Result<(), String> {
        let hosts = |port: u16| (0..HOSTS).map(move |host| format!("{}:{port}", address(host)));
        let store: Vec<String> = hosts(2379).map(|it| format!("http://{it}")).collect();
        let mut command = self.parapet(0);
        command.args(["cluster", "create", "pool", "--yes", "--region", "4M"]);
        command.args(["--level", options.level.word(), "--mode", &options.mode]);
        command.args(["--store", &format!("etcd:{}", store.join(","))]);
        for coordinator in hosts(7610) {
            command.args(["--coordinator", &coordinator]);
        }
        command.args((0..self.members).map(|host| format!("{}:7600", address(host))));
        run(&mut command)?;
        if options.fast {
            let file = self.folder.join("pool.toml");
            let changed = std::fs::read_to_string(&file)
                .and_then(|text| std::fs::write(&file, text + crate::options::FAST_TIMING));
            changed.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(())
    }

    /// Starts a process; [`Processes::ready`] waits for it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn launch(&mut self, part: Part, host: usize) -> Result<(), String> {
        let mut command = match part {
            Part::Etcd => self.etcd(host),
            _ => self.parapet(host),
        };
        let (listen, name) = (address(host), format!("{}{host}", part.word()));
        match part {
            Part::Etcd => {}
            Part::Member => {
                let listen = format!("{listen}:7600");
                command.args(["serve-disk", &format!("m{host}"), "--allow-unauthenticated"]);
                command.args(["--json", "--listen", &listen]);
            }
            Part::Coordinator => {
                let listen = format!("{listen}:7610");
                command.args(["cluster", "coordinator", "pool.toml", "--allow-unauthenticated"]);
                command.args(["--json", "--listen", &listen]);
            }
            Part::Client => {
                let (id, nbd) = ((host + 1).to_string(), format!("unix:n{host}.sock"));
                command.args(["cluster", "client", "pool.toml", "--json"]);
                command.args(["--id", &id, "--nbd", &nbd]);
            }
        }
        let log = File::options().create(true).append(true).open(self.folder.join(&name));
        let log = log.map_err(|error| format!("{name}: {error}"))?;
        let started = command.stdout(Stdio::piped()).stderr(log).spawn();
        let mut child = started.map_err(|error| format!("{name}: {error}"))?;
        let first = first_line(&mut child);
        self.running.insert((part, host), Process { child, first });
        Ok(())
    }

    /// Waits until a process of ours that was just launched serves.
    ///
    /// # Errors
    /// If it does not.
    pub(crate) fn ready(&self, part: Part, host: usize) -> Result<(), String> {
        let Some(process) = self.running.get(&(part, host)) else { return Ok(()) };
        let line = process.first.recv_timeout(PATIENCE).unwrap_or_default();
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        match said["error"].is_null() && !said["data"].is_null() {
            true => Ok(()),
            false => Err(format!("{} {host} does not start; it said {line:?}", part.word())),
        }
    }

    fn parapet(&self, host: usize) -> Command {
        let program = self.program.to_string_lossy();
        let mut command = self.network.command(host, &program);
        command.current_dir(self.folder).stdin(Stdio::null());
        command.env("PARAPET_STATE", self.folder.join(format!("state{host}")));
        command.env("PARAPET_RUNTIME", self.folder.join("run"));
        for name in ["PARAPET_CONTROL", "PARAPET_LOG", "NOTIFY_SOCKET", "LISTEN_FDS"] {
            command.env_remove(name);
        }
        self.group.adopt(&mut command);
        command
    }

    fn etcd(&self, host: usize) -> Command {
        let mut command = self.network.command(host, "etcd");
        let peer = format!("http://{}:2380", address(host));
        let client = format!("http://{}:2379", address(host));
        command.current_dir(self.folder).stdin(Stdio::null());
        command.args(["--name", &format!("e{host}"), "--data-dir", &format!("e{host}")]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &etcd_hosts(), "--initial-cluster-state", "new"]);
        self.group.adopt(&mut command);
        command
    }

    fn etcdctl(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.network.command(host, "etcdctl");
        command.current_dir(self.folder).env("ETCDCTL_API", "3");
        command.args(["--dial-timeout", "1s", "--command-timeout", "2s", "--endpoints"]);
        command.arg(format!("http://{}:2379", address(host))).args(words);
        command
    }

    /// The host with the leader of etcd.
    pub(crate) fn etcd_leader(&self) -> Option<usize> {
        (0..HOSTS).find(|&host| {
            let output = self.etcdctl(host, &["endpoint", "status", "-w", "json"]).output();
            let said = output.ok().and_then(|it| serde_json::from_slice::<Value>(&it.stdout).ok());
            let status = said.unwrap_or_default()[0]["Status"].clone();
            let leader = status["leader"].as_u64().filter(|&leader| leader > 0);
            leader.is_some() && leader == status["header"]["member_id"].as_u64()
        })
    }

    /// Writes the content of etcd to a file.
    ///
    /// # Errors
    /// If the command fails.
    pub(crate) fn save_snapshot(&self, name: &str) -> Result<(), String> {
        let _ = std::fs::remove_file(self.folder.join(name));
        run(&mut self.etcdctl(0, &["snapshot", "save", name]))
    }

    /// Replaces the content of all etcds, which are restarted.
    ///
    /// # Errors
    /// If a command fails.
    pub(crate) fn restore_snapshot(&mut self, name: &str) -> Result<(), String> {
        for host in 0..HOSTS {
            self.kill(Part::Etcd, host);
            let data = format!("e{host}");
            let _ = std::fs::remove_dir_all(self.folder.join(&data));
            let mut command = self.etcdctl(host, &["snapshot", "restore", name]);
            command.args(["--name", &data, "--data-dir", &data]);
            command.args(["--initial-cluster", &etcd_hosts()]);
            let peer = format!("http://{}:2380", address(host));
            run(command.args(["--initial-advertise-peer-urls", &peer]))?;
        }
        (0..HOSTS).try_for_each(|host| self.launch(Part::Etcd, host))
    }

    /// Kills a process, as a power failure would.
    pub(crate) fn kill(&mut self, part: Part, host: usize) {
        if let Some(mut process) = self.running.remove(&(part, host)) {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }

    pub(crate) fn runs(&self, part: Part, host: usize) -> bool {
        self.running.contains_key(&(part, host))
    }

    /// True if it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> Option<(Part, usize)> {
        let ended = |process: &mut Process| !matches!(process.child.try_wait(), Ok(None));
        let found =
            self.running.iter_mut().find_map(|(key, process)| ended(process).then_some(key));
        found.copied()
    }

    /// `STOP` or `CONT`.
    ///
    /// # Errors
    /// If there is no such process.
    pub(crate) fn signal(&self, part: Part, host: usize, signal: &str) -> Result<(), String> {
        let Some(process) = self.running.get(&(part, host)) else { return Ok(()) };
        run(Command::new("kill").args(["-s", signal, &process.child.id().to_string()]))
    }

    /// The same for all processes.
    ///
    /// # Errors
    /// If one has ended.
    pub(crate) fn signal_all(&self, signal: &str) -> Result<(), String> {
        self.running.keys().try_for_each(|&(part, host)| self.signal(part, host, signal))
    }

    /// Makes the fence agent's call: true if all members have fenced the client, or none knows it.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub(crate) fn evict(&self, from: usize, client: usize) -> Result<bool, String> {
        let mut command = self.parapet(from);
        command.args(["cluster", "evict", "pool.toml", &(client + 1).to_string()]);
        let output = command.output().map_err(|error| format!("evict: {error}"))?;
        Ok(matches!(output.status.code(), Some(0 | 5)))
    }

    /// The status of the cluster, as this host sees it; null if no coordinator answers it.
    pub(crate) fn status(&self, host: usize) -> Value {
        let output = self.parapet(host).args(["cluster", "status", "pool.toml", "--json"]).output();
        let said = output.ok().and_then(|it| serde_json::from_slice::<Value>(&it.stdout).ok());
        said.unwrap_or_default()["data"].clone()
    }

    /// Waits for a condition.
    ///
    /// # Errors
    /// If it does not come about.
    pub(crate) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> Result<bool, String>,
    ) -> Result<(), String> {
        let begun = Instant::now();
        while !holds(self)? {
            if begun.elapsed() > PATIENCE {
                let status = self.status(0);
                return Err(format!("waited {} s in vain: {what}: {status}", PATIENCE.as_secs()));
            }
            std::thread::sleep(GLANCE);
        }
        Ok(())
    }

    pub(crate) fn socket(&self, host: usize) -> PathBuf {
        self.folder.join(format!("n{host}.sock"))
    }
}

impl Drop for Processes<'_> {
    fn drop(&mut self) {
        let keys: Vec<(Part, usize)> = self.running.keys().copied().collect();
        keys.into_iter().for_each(|(part, host)| self.kill(part, host));
    }
}

fn etcd_hosts() -> String {
    let hosts = (0..HOSTS).map(|host| format!("e{host}=http://{}:2380", address(host)));
    hosts.collect::<Vec<_>>().join(",")
}
