//! The processes of the demonstration, in a folder of their own. Both end with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ::cluster::ids::MemberId;
use ::cluster::roles::Role;
use ::cluster::session::{Ask, Speaker};
use ::io::Clock;
use os::Spawner;

use super::{GLANCE, PATIENCE, late};
use crate::cluster::file::{Cluster, Endpoint};
use crate::cluster::links::{Target, ask};
use crate::failure::{Failure, Id, Result, of_path};

/// Bytes of a member: its headers and journal, and eight regions.
const MEMBER_BYTES: u64 = 28 << 20;
const MEMBERS: usize = 3;
/// How long a process may take to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Processes {
    folder: PathBuf,
    running: BTreeMap<String, Child>,
}

impl Processes {
    /// Makes the folder, and serves the disks.
    pub(super) fn start() -> Result<Processes> {
        let folder = std::env::temp_dir().join(format!("parapet-cluster-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| of_path(&folder, &error))?;
        let mut processes = Processes { folder, running: BTreeMap::new() };
        for number in 0..MEMBERS {
            let path = processes.path(&format!("m{number}"));
            let made = File::create(&path).and_then(|file| file.set_len(MEMBER_BYTES));
            made.map_err(|error| of_path(&path, &error))?;
            processes.disk(number)?;
        }
        Ok(processes)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Creates the cluster on the disks, once their servers answer.
    pub(super) async fn create(&self, on: &Spawner) -> Result<Cluster> {
        let hello = ::cluster::session::Hello {
            speaker: Speaker::Operator,
            array: ::cluster::ids::ArrayId(0),
            member: MemberId(0),
        };
        let clock = on.clock();
        let limit = clock.now() + PATIENCE;
        for number in 0..MEMBERS {
            let at = Endpoint(os::Address::Unix(self.path(&format!("m{number}.sock"))));
            let socket = Target { at, role: Role::Member, keys: None };
            while ask(&socket, &hello, &Ask::Describe, Some(ANSWER), on).await.is_err() {
                if clock.now() > limit {
                    return Err(late("the disks are served"));
                }
                clock.sleep_until(clock.now() + GLANCE).await;
            }
        }
        let words = "cluster create demo --level 3.5 --mode shared --region 4M --yes \
            --coordinator unix:c0.sock --coordinator unix:c1.sock \
            unix:m0.sock unix:m1.sock unix:m2.sock";
        let words: Vec<&str> = words.split_whitespace().collect();
        let created = self.command(&words)?.status();
        match created {
            Ok(status) if status.success() => Cluster::read(&self.path("demo.toml")),
            _ => Err(Failure::new(Id::Failed, "the cluster cannot be created", self.log())),
        }
    }

    pub(super) fn disk(&mut self, number: usize) -> Result<()> {
        let (disk, listen) = (format!("m{number}"), format!("unix:m{number}.sock"));
        self.launch(&disk, &["serve-disk", &disk, "--listen", &listen])
    }

    pub(super) fn coordinator(&mut self, number: usize) -> Result<()> {
        let listen = format!("unix:c{number}.sock");
        let words = ["cluster", "coordinator", "demo.toml", "--listen", &listen];
        self.launch(&format!("c{number}"), &words)
    }

    pub(super) fn client(&mut self, number: usize) -> Result<()> {
        let (id, nbd) = ((number + 1).to_string(), format!("unix:n{number}.sock"));
        let words = ["cluster", "client", "demo.toml", "--id", &id, "--nbd", &nbd];
        self.launch(&format!("n{number}"), &words)
    }

    /// Kills a process as a power failure of its host would.
    pub(super) fn kill(&mut self, name: &str) {
        if let Some(mut child) = self.running.remove(name) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn launch(&mut self, name: &str, words: &[&str]) -> Result<()> {
        let child = self.command(words)?.spawn();
        let child = child.map_err(|error| of_path(Path::new("/proc/self/exe"), &error))?;
        self.running.insert(name.into(), child);
        Ok(())
    }

    /// This program, in the folder.
    fn command(&self, words: &[&str]) -> Result<Command> {
        let program = std::env::current_exe();
        let program = program.map_err(|error| of_path(Path::new("/proc/self/exe"), &error))?;
        let path = self.path("log");
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|error| of_path(&path, &error))?;
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.folder).env("PARAPET_STATE", self.path("state"));
        command.env_remove("NOTIFY_SOCKET");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Ok(command)
    }

    /// The last line of the log: the folder goes away.
    fn log(&self) -> String {
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().last().unwrap_or("please report it").trim().to_owned()
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        let names: Vec<String> = self.running.keys().cloned().collect();
        names.iter().for_each(|name| self.kill(name));
        // Nothing of it is of use to anybody.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
