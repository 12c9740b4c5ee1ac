//! A machine is moved while it writes, from the host of client A to that of client B, and back.
//! QEMU flushes before it hands the machine over, and the cluster hands over the regions.

use super::{A, B, Cluster};
use crate::failure::{Failure, Result, ensure};
use crate::kernel::Moved;
use crate::stories::Stage;

/// 12 MiB for its own, and 16 MiB of the machine's 32 MiB, which are 8 regions.
const MEMBER_BYTES: u64 = 28 << 20;
/// Of each of the two workers (vm/guest/cluster/moved), at each place.
const STEPS: usize = 30;

pub(super) fn there_and_back(stage: &Stage<'_>) -> Result {
    let kernel = stage.newer.get()?;
    let folder = &stage.parapet.folder;
    let cluster = Cluster::new(stage, "exclusive", MEMBER_BYTES)?;
    let mut machine = Moved::boot(&kernel, folder, "first", &cluster.uri(A))?;
    works(&mut machine)?;
    ensure(cluster.regions(B)? == 0, || "B holds regions that only A uses".into())?;
    for (name, to) in [("second", B), ("third", A)] {
        let socket = stage.path(&format!("arrival.{name}"));
        let mut there = Moved::await_arrival(&kernel, folder, name, (&cluster.uri(to), &socket))?;
        ensure(!there.runs()?, || "it runs before it has arrived".into())?;
        machine.move_to(&socket)?;
        machine = there;
        works(&mut machine)?;
        ensure(cluster.regions(to)? > 0, || format!("client {to} writes and holds no region"))?;
    }
    machine.tell("enough")?;
    machine.until("its end", |said| said.contains("the end"))?;
    let said = machine.said()?;
    let sum = said.lines().find_map(|line| line.trim().strip_prefix("sum "));
    let sum = sum.ok_or_else(|| Failure::new("it has said no sum"))?;
    for client in [A, B] {
        cluster.dump(client, "content")?;
        let content = stage.parapet.tool(&["sha256sum", "content"])?;
        ensure(content.starts_with(sum), || format!("client {client} has another content"))?;
    }
    cluster.stop()
}

/// Each worker does so many steps more.
fn works(machine: &mut Moved) -> Result {
    let done = |said: &str, worker: &str| {
        said.lines().filter(|line| line.starts_with(worker)).count() >= STEPS
    };
    machine.until("both workers", |said| done(said, "worker 0 has") && done(said, "worker 1 has"))
}
