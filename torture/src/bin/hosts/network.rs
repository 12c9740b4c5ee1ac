//! Hosts as network namespaces on one bridge, and their partitions.
//!
//! ```text
//!   this namespace (`unshare --net`): bridge b0
//!      v0 ═ eth0 10.9.0.1     v1 ═ eth0 10.9.0.2     v2 ═ eth0 10.9.0.3      a namespace each
//! ```
//!
//! Each host knows the hardware addresses of all others from the start. One direction of a link is
//! cut by a wrong one: frames are lost without an error on either side, also on open connections.
//! A namespace lives as long as its holder, a process of our group: nothing is left behind.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use parapet_torture::process_group::ProcessGroup;

/// See the module.
pub(crate) struct Network {
    holders: Vec<Child>,
}

impl Network {
    /// Makes the bridge and the hosts.
    ///
    /// # Errors
    /// If a command fails: it needs root, and a network namespace of its own.
    pub(crate) fn new(hosts: usize, group: &ProcessGroup) -> Result<Network, String> {
        ip("link add b0 type bridge")?;
        ip("link set b0 up")?;
        let holders = (0..hosts).map(|_| holder(group)).collect::<Result<Vec<_>, _>>()?;
        let network = Network { holders };
        for host in 0..hosts {
            let process = network.holders[host].id();
            ip(&format!("link add v{host} type veth peer name eth0 netns {process}"))?;
            ip(&format!("link set v{host} master b0 up"))?;
            network.ip(host, "link set lo up")?;
            network.ip(host, &format!("link set eth0 address {}", hardware(host, true)))?;
            network.ip(host, &format!("address add {}/24 dev eth0", address(host)))?;
            network.ip(host, "link set eth0 up")?;
        }
        network.heal()?;
        Ok(network)
    }

    /// A program on this host.
    pub(crate) fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holders[host].id()));
        command.args(["--", program]);
        command
    }

    /// Loses all frames from this host to that one.
    ///
    /// # Errors
    /// If the command fails.
    pub(crate) fn cut(&self, from: usize, to: usize) -> Result<(), String> {
        self.neighbour(from, to, false)
    }

    /// Ends all cuts.
    ///
    /// # Errors
    /// If a command fails.
    pub(crate) fn heal(&self) -> Result<(), String> {
        let hosts = self.holders.len();
        let pairs = (0..hosts).flat_map(|from| (0..hosts).map(move |to| (from, to)));
        pairs
            .filter(|(from, to)| from != to)
            .try_for_each(|(from, to)| self.neighbour(from, to, true))
    }

    fn neighbour(&self, from: usize, to: usize, right: bool) -> Result<(), String> {
        let (address, hardware) = (address(to), hardware(to, right));
        let words = format!("neighbour replace {address} lladdr {hardware} dev eth0 nud permanent");
        self.ip(from, &words)
    }

    fn ip(&self, host: usize, words: &str) -> Result<(), String> {
        run(self.command(host, "ip").args(words.split(' ')))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// The address of a host.
pub(crate) fn address(host: usize) -> String {
    format!("10.9.0.{}", host + 1)
}

fn hardware(host: usize, right: bool) -> String {
    format!("02:00:00:00:{}:{host:02x}", if right { "00" } else { "ff" })
}

/// A process with a namespace of its own.
fn holder(group: &ProcessGroup) -> Result<Child, String> {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", "echo; exec sleep infinity"]);
    group.adopt(&mut command);
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut holder = started.map_err(|error| format!("unshare: {error}"))?;
    let output = holder.stdout.take().expect("its output was asked for");
    // It has its namespace once it speaks.
    match BufReader::new(output).read_line(&mut String::new()) {
        Ok(1) => Ok(holder),
        _ => Err("unshare: no network namespace: run it as root".into()),
    }
}

fn ip(words: &str) -> Result<(), String> {
    run(Command::new("ip").args(words.split(' ')))
}

/// Runs a command, which must succeed.
///
/// # Errors
/// Its error output.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
