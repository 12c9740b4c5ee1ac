//! Clusters: each machine has a disk of the same array, by a client of its own.
//!
//! ```text
//!   machine a          machine b          QEMU: virtio-blk ── its NBD driver
//!      │ unix socket       │
//!   client 1           client 2           parapet cluster client
//!      ╰────────┬──────────╯
//!   m0  m1  m2  c0  c1                    serve-disk, cluster coordinator
//! ```

mod migration;
mod ocfs2;

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::{Failure, Result, ensure};
use crate::parapet::Process;
use crate::stories::{Stage, Story};

/// Minutes each, so only the whole run has them.
pub(super) const LONG_STORIES: &[Story] = &[
    Story { name: "cluster with OCFS2 whose parts fail", run: ocfs2::parts_fail },
    Story { name: "cluster with OCFS2 whose machine is killed", run: ocfs2::killed },
    Story { name: "cluster with OCFS2 whose machine is fenced", run: ocfs2::fenced },
    Story { name: "cluster whose machine moves to the other host", run: migration::there_and_back },
];

/// By this index a machine and its client are named.
const A: usize = 0;
const B: usize = 1;
/// A client that is gone is evicted after 9 s; this is longer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster of level 3.5, which two clients use.
struct Cluster<'a> {
    stage: &'a Stage<'a>,
    members: [Option<Process>; 3],
    coordinators: [Option<Process>; 2],
    clients: [Option<Process>; 2],
}

impl<'a> Cluster<'a> {
    /// Members of so many bytes, and all processes.
    fn new(stage: &'a Stage<'_>, mode: &str, bytes: u64) -> Result<Cluster<'a>> {
        let mut cluster = Cluster {
            stage,
            members: Default::default(),
            coordinators: Default::default(),
            clients: Default::default(),
        };
        for index in 0..3 {
            std::fs::File::create(stage.path(&format!("m{index}")))?.set_len(bytes)?;
            cluster.start_member(index)?;
        }
        let words = ["cluster", "create", "pool", "--yes", "--level", "3.5", "--region", "4M"];
        let coordinators = ["--coordinator=unix:c0.sock", "--coordinator=unix:c1.sock"];
        let members = ["unix:m0.sock", "unix:m1.sock", "unix:m2.sock"];
        let mode = ["--mode", mode];
        stage.parapet.run(&[&words[..], &mode, &coordinators, &members].concat())?;
        for index in 0..2 {
            cluster.start_coordinator(index)?;
        }
        for index in [A, B] {
            let (id, nbd) = ((index + 1).to_string(), format!("unix:n{index}.sock"));
            let words = ["cluster", "client", "pool.toml", "--id", &id, "--nbd", &nbd];
            cluster.clients[index] = Some(stage.parapet.start(&words)?);
        }
        Ok(cluster)
    }

    fn start_member(&mut self, index: usize) -> Result {
        let (disk, listen) = (format!("m{index}"), format!("unix:m{index}.sock"));
        let words = ["serve-disk", &disk, "--listen", &listen];
        self.members[index] = Some(self.stage.parapet.start(&words)?);
        Ok(())
    }

    fn start_coordinator(&mut self, index: usize) -> Result {
        let listen = format!("unix:c{index}.sock");
        let words = ["cluster", "coordinator", "pool.toml", "--listen", &listen];
        self.coordinators[index] = Some(self.stage.parapet.start(&words)?);
        Ok(())
    }

    /// What the machine of this client has for a disk.
    fn uri(&self, client: usize) -> String {
        let socket = self.stage.path(&format!("n{client}.sock"));
        format!("nbd+unix:///pool?socket={}", socket.display())
    }

    fn status(&self) -> Result<Value> {
        self.stage.parapet.run(&["cluster", "status", "pool.toml"])
    }

    /// Waits until the status is like this.
    fn until(&self, what: &str, mut is_so: impl FnMut(&Value) -> bool) -> Result {
        let started = Instant::now();
        loop {
            let status = self.status();
            if status.as_ref().is_ok_and(&mut is_so) {
                return Ok(());
            }
            let status = || status.map_or_else(|why| why.to_string(), |it| it.to_string());
            ensure(started.elapsed() < PATIENCE, || {
                format!("waited in vain for {what}: {}", status())
            })?;
        }
    }

    /// How many regions this client holds.
    fn regions(&self, client: usize) -> Result<u64> {
        let status = self.status()?;
        let mut clients = status["clients"].as_array().into_iter().flatten();
        let found = clients.find(|it| it["id"].as_u64() == Some(client as u64 + 1));
        let regions = found.and_then(|it| it["regions"].as_u64());
        regions.ok_or_else(|| Failure::new(format!("no client {client}: {status}")))
    }

    /// The content through this client, in this file of the folder.
    fn dump(&self, client: usize, file: &str) -> Result {
        let _ = std::fs::remove_file(self.stage.path(file));
        self.stage.parapet.tool(&["nbdcopy", &self.uri(client), file]).map(drop)
    }

    /// Which coordinator leads?
    fn leader(&self) -> Result<usize> {
        let status = self.status()?;
        let mut all = status["coordinators"].as_array().into_iter().flatten();
        let found = all.position(|candidate| candidate["state"] == "leads");
        found.ok_or_else(|| Failure::new(format!("nobody leads: {status}")))
    }

    /// All processes end well, the clients first.
    fn stop(mut self) -> Result {
        let all = self.clients.iter_mut().chain(&mut self.coordinators).chain(&mut self.members);
        all.filter_map(Option::take).try_for_each(Process::terminate)
    }
}
