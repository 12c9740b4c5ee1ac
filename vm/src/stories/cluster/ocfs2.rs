//! OCFS2, mounted on two machines at once: parts of the cluster fail, a machine dies, a machine is
//! fenced. Its heartbeat goes through the array, with OCFS2's usual timeouts: a machine whose disk
//! stands still for a minute resets itself.

use std::path::Path;

use super::{A, B, Cluster};
use crate::failure::{Result, ensure};
use crate::kernel::{Guest, Peer};
use crate::parapet::Parapet;
use crate::stories::Stage;
use crate::stories::clients::work_on;

/// A file system of 256 MiB, and what is the cluster's own.
const MEMBER_BYTES: u64 = 140 << 20;

/// The cluster with a new file system.
fn cluster<'a>(stage: &'a Stage<'_>) -> Result<Cluster<'a>> {
    let cluster = Cluster::new(stage, "shared", MEMBER_BYTES)?;
    let bytes = cluster.status()?["capacity_bytes"].as_u64().unwrap_or_default();
    std::fs::File::create(stage.path("new"))?.set_len(bytes)?;
    let form = ["-b", "4K", "-C", "4K", "-J", "size=8M"];
    stage.parapet.tool(&[&["mkfs.ocfs2", "-q", "-F", "-N", "2"], &form[..], &["new"]].concat())?;
    stage.parapet.tool(&["nbdcopy", "--flush", "new", &cluster.uri(A)])?;
    Ok(cluster)
}

/// A machine of the cluster, with a folder of its own.
struct Host<'a> {
    stage: Stage<'a>,
    guest: Guest,
}

impl<'a> Host<'a> {
    fn boot(stage: &Stage<'a>, cluster: &Cluster<'_>, index: usize, script: &str) -> Result<Self> {
        let parapet =
            Parapet { program: stage.parapet.program, folder: stage.path(["a", "b"][index]) };
        let own = Stage { kernel: stage.kernel, newer: stage.newer, parapet };
        own.begin()?;
        let (number, other) = ((index + 1).to_string(), (2 - index).to_string());
        let vm = std::env::current_exe()?.display().to_string();
        own.set(&[("number", &number), ("other", &other), ("vm", &vm)])?;
        let ends = [index, 1 - index].map(|end| stage.path(&format!("wire{end}")));
        let peer = Peer { number: index, disk: cluster.uri(index), ends };
        let guest = stage.newer.get()?.boot_as(script, &own.parapet.folder, &peer)?;
        Ok(Host { stage: own, guest })
    }

    /// Its workers do some steps more.
    fn works_on(&mut self) -> Result {
        work_on(&self.stage, &mut self.guest)
    }

    /// Its workers end.
    fn enough(&self) -> Result {
        Ok(std::fs::write(self.stage.path("enough"), "")?)
    }
}

pub(super) fn parts_fail(stage: &Stage<'_>) -> Result {
    let mut cluster = cluster(stage)?;
    let mut hosts = [
        Host::boot(stage, &cluster, A, "cluster/both")?,
        Host::boot(stage, &cluster, B, "cluster/both")?,
    ];
    both_work(&mut hosts)?;
    kill(&mut cluster.members[1])?;
    both_work(&mut hosts)?;
    cluster.start_member(1)?;
    cluster.until("the rebuild", |status| status["state"] == "optimal")?;
    let leader = cluster.leader()?;
    kill(&mut cluster.coordinators[leader])?;
    both_work(&mut hosts)?;
    cluster.start_coordinator(leader)?;
    hosts.iter().try_for_each(Host::enough)?;
    let [a, b] = hosts;
    a.guest.finish()?;
    b.guest.finish()?;
    sound(cluster)
}

fn both_work(hosts: &mut [Host<'_>; 2]) -> Result {
    hosts.iter_mut().try_for_each(Host::works_on)
}

fn kill(process: &mut Option<crate::parapet::Process>) -> Result {
    process.take().map_or(Ok(()), crate::parapet::Process::kill)
}

pub(super) fn killed(stage: &Stage<'_>) -> Result {
    let mut cluster = cluster(stage)?;
    let mut a = Host::boot(stage, &cluster, A, "cluster/survives")?;
    let mut b = Host::boot(stage, &cluster, B, "cluster/ends")?;
    both_at_work(&mut a, &mut b)?;
    let Host { stage: own, guest } = b;
    guest.kill();
    kill(&mut cluster.clients[B])?;
    survives(a, &own)?;
    sound(cluster)
}

pub(super) fn fenced(stage: &Stage<'_>) -> Result {
    let mut cluster = cluster(stage)?;
    let mut a = Host::boot(stage, &cluster, A, "cluster/survives")?;
    let mut b = Host::boot(stage, &cluster, B, "cluster/ends")?;
    both_at_work(&mut a, &mut b)?;
    let agent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/fence/fence_parapet");
    let agent = agent.display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = stage.parapet.program.parent().unwrap_or(Path::new("/")).display();
    let path = format!("PATH={folder}:{path}");
    stage.parapet.tool(&[
        "env",
        &path,
        &agent,
        "-o",
        "off",
        "-n",
        "2",
        "--cluster-file=pool.toml",
    ])?;
    // Its requests fail, so OCFS2 ends it.
    b.guest.ends_by_itself()?;
    // It has stayed, and fails everything.
    kill(&mut cluster.clients[B])?;
    survives(a, &b.stage)?;
    sound(cluster)
}

/// Until the second has made some files durable, too.
fn both_at_work(a: &mut Host<'_>, b: &mut Host<'_>) -> Result {
    a.works_on()?;
    b.works_on()?;
    b.guest.until("durable files", |guest| {
        guest.runs()?;
        Ok(b.stage.text("durable").is_ok_and(|text| text.lines().count() >= 10))
    })
}

/// The first machine goes on without the second, whose folder is given.
fn survives(mut a: Host<'_>, b: &Stage<'_>) -> Result {
    std::fs::copy(b.path("durable"), a.stage.path("theirs"))?;
    let replays = || a.stage.text("kernel").is_ok_and(|text| text.contains("End replay journal"));
    a.guest.until("the replay of the other's journal", |guest| {
        guest.runs()?;
        Ok(replays())
    })?;
    a.works_on()?;
    a.enough()?;
    a.guest.finish()
}

/// The file system is in order, and each member's loss leaves the same content.
fn sound(mut cluster: Cluster<'_>) -> Result {
    cluster.until("the resync", |status| {
        status["state"] == "optimal" && status["unsynced_regions"] == 0
    })?;
    cluster.dump(A, "whole")?;
    let tool = |words: &[&str]| cluster.stage.parapet.tool(words);
    let said = tool(&["fsck.ocfs2", "-fn", "whole"])?;
    ensure(said.contains("All passes succeeded"), || said)?;
    kill(&mut cluster.members[0])?;
    cluster.dump(A, "degraded")?;
    cluster.stage.parapet.tool(&["cmp", "whole", "degraded"])?;
    cluster.start_member(0)?;
    cluster.until("the rebuild", |status| status["state"] == "optimal")?;
    cluster.stop()
}
