//! Clusters of this machine's processes: two hosts beside one, marks, grants, TLS, a local array of
//! the same level.
//!
//! Members are files in memory, where the two cores that everything shares are the limit, or
//! modelled disks in real time, where the disks are.

mod load;
mod stand;

use super::nbd::fio::Load;
use super::nbd::stand::{Server, Stand};
use super::row::{Row, Unit};
use crate::failure::Failure;
use serde_json::Value;
use stand::{Cluster, Medium, Plan, Wire, etcd_revision, files, local};
use std::path::Path;

/// How often, and how long.
struct Effort {
    rounds: usize,
    millis: u32,
}

const SHORT: Effort = Effort { rounds: 3, millis: 1000 };
const FULL: Effort = Effort { rounds: 7, millis: 4000 };

const STREAM: Load = Load::new("write", 1024, 4);
const READ: Load = Load::new("read", 1024, 4);
const BLOCKS: Load = Load::new("randwrite", 4, 32);
const ONE_BLOCK: Load = Load::new("randwrite", 4, 1);

/// Disks of 7,200 rpm, with write caches.
const DISK: Medium = Medium::Model("hd501lj");
/// R1's disks.
const OLD_DISK: Medium = Medium::Model("cheetah9lp");

/// The least ratio of two hosts to one, if the members permit.
const WANTED_TWO_HOSTS: f64 = 1.8;
/// The least ratio of writes that need a mark to writes that need none: R1's cost is below 3 %.
const WANTED_MARKED: f64 = 0.97;
/// Grants per second, in thousands.
const WANTED_GRANTS: f64 = 5.0;
/// Most writes of the store for one change of the membership.
const MOST_DECISIONS: f64 = 3.0;

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let effort = if full { FULL } else { SHORT };
    let stand = Stand::new(root)?;
    let mut rows = Vec::new();
    rows.extend(two_hosts(&stand, &effort)?);
    rows.extend(marks(&stand, &effort)?);
    rows.extend(grants(&stand, &effort)?);
    rows.extend(coordination(&stand, &effort)?);
    rows.extend(wires(&stand, &effort)?);
    rows.extend(beside_local(&stand, &effort)?);
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// A row of a load's rate.
fn rate(load: &Load, what: &str) -> Row {
    let unit = if load.is_large() { Unit::Megabytes } else { Unit::Thousands };
    Row::more_is_better(&format!("{what}, {}", load.name()), unit)
}

/// Each server in turn, round by round; the first one is ours.
fn in_turn(
    load: &Load,
    effort: &Effort,
    mut row: Row,
    servers: &[(&'static str, &[Server], usize)],
) -> Result<Row, Failure> {
    for _ in 0..effort.rounds {
        for (index, (name, servers, mebibytes)) in servers.iter().enumerate() {
            let figure = load::run(load, effort.millis, servers, *mebibytes)?.figure(load);
            eprintln!("{}, {name}: {figure:.2}", load.name());
            match index {
                0 => row.ours(figure),
                _ => row.peer(name, figure),
            }
        }
    }
    Ok(row)
}

/// Two hosts that write different regions, beside one of them.
fn two_hosts(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    let memory = Plan { hosts: 2, ..Plan::DEFAULT };
    let disks = Plan { medium: DISK, ..memory };
    // A small write uses two of the members: of 9, two writes have one in common in 15 of 36 cases,
    // of 17 in 31 of 136.
    let wide = Plan { level: "5", members: 9, mebibytes: 32, ..disks };
    let wider = Plan { members: 17, mebibytes: 16, ..wide };
    let kinds = [
        ("3.5 of 3 in memory", memory, &[STREAM, BLOCKS, ONE_BLOCK][..]),
        ("3.5 of 3 in memory, shared", Plan { mode: "shared", ..memory }, &[STREAM]),
        ("3.5 of 3 HD501LJ", disks, &[STREAM, READ]),
        ("RAID 5 of 9 HD501LJ", wide, &[ONE_BLOCK]),
        ("RAID 5 of 17 HD501LJ", wider, &[ONE_BLOCK]),
    ];
    for (what, plan, loads) in kinds {
        let cluster = Cluster::start(stand, &format!("two{}", rows.len()), plan)?;
        let (both, all) = (cluster.exports(), 256);
        load::run(&STREAM, effort.millis, both, all)?;
        for load in loads {
            let mut row = rate(load, &format!("{what}, two hosts"));
            row.target(Some(WANTED_TWO_HOSTS));
            let servers = [("two hosts", both, all), ("one host", &both[..1], all / 2)];
            rows.push(in_turn(load, effort, row, &servers)?);
        }
    }
    Ok(rows)
}

/// The first write of a region, with its durable mark, beside the same write of a region held.
fn marks(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for members in [3, 5, 9] {
        // Each host has a region of 64 MiB. The time between two writes in it is shorter than the
        // time after which it is given back.
        let mebibytes = 2 * 64 / (members - 1);
        let plan = Plan { members, mebibytes, medium: OLD_DISK, hosts: 2, ..Plan::DEFAULT };
        let cluster = Cluster::start(stand, &format!("marks{members}"), plan)?;
        for hosts in [1, 2] {
            let servers = &cluster.exports()[..hosts];
            let plural = if hosts == 1 { "" } else { "s" };
            let name = format!(
                "3.5 of {members} Cheetah 9LP, {hosts} host{plural}, 37 MB and flush, marked first"
            );
            let mut row = Row::more_is_better(&name, Unit::Megabytes);
            row.target(Some(WANTED_MARKED));
            for _ in 0..effort.rounds {
                cluster.until_released()?;
                let [new, held] = load::twice(servers)?;
                eprintln!("{name}: {:.2}, held {:.2}", new.megabytes, held.megabytes);
                row.ours(new.megabytes);
                row.peer("marked before", held.megabytes);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Grants in a second: first writes of regions, each after a durable mark.
fn grants(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (place, medium) in [("in memory", Medium::Memory), ("on this disk", Medium::Disk)] {
        let regions = 4096;
        let (level, members, region) = ("1", 2, "4M");
        let mebibytes = 4 * regions;
        let plan = Plan { level, members, mebibytes, medium, region, ..Plan::DEFAULT };
        let cluster = Cluster::start(stand, &format!("grants{}", rows.len()), plan)?;
        let name = format!("grants, two mirrors {place}");
        let mut row = Row::more_is_better(&name, Unit::Thousands);
        row.target(Some(1.0));
        for _ in 0..effort.rounds {
            cluster.until_released()?;
            let seen = load::a_block_of_each(&cluster.exports()[0], regions)?;
            eprintln!("{name}: {:.0} in a second", seen.rate);
            row.ours(seen.rate / 1e3);
            row.peer("wanted", WANTED_GRANTS);
        }
        rows.push(row);
    }
    Ok(rows)
}

/// What I/O costs the coordinator and the store, and what a change of the membership does.
fn coordination(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let plan = Plan { etcd: true, ..Plan::DEFAULT };
    let mut cluster = Cluster::start(stand, "etcd", plan)?;
    let revision = || {
        let unknown = || Failure::new("etcd does not say its revision", "is etcdctl there?");
        etcd_revision().map(|revision| revision as f64).ok_or_else(unknown)
    };
    let millis = 20 * effort.millis;
    let (before, cpu) = (revision()?, cluster.coordinator().cpu_seconds()?);
    let seen = load::run(&BLOCKS, millis, cluster.exports(), 2 * plan.mebibytes)?;
    let (loaded, cpu) = (revision()?, cluster.coordinator().cpu_seconds()? - cpu);
    eprintln!("{} writes of etcd, {:.0} requests", loaded - before, seen.requests);
    let name = format!("coordinator's CPU of a write in held regions, {}", BLOCKS.name());
    let mut processor = Row::less_is_better(&name, Unit::Micros);
    processor.ours(cpu * 1e6 / seen.requests);
    processor.peer("limit", 1.0);
    processor.target(Some(1.0));
    cluster.kill_and_return(1)?;
    let name = format!("etcd: a member is killed and returns, after {} s of load", millis / 1000);
    let mut decisions = Row::less_is_better(&name, Unit::Writes);
    decisions.ours(revision()? - loaded);
    // Missing, rebuilding, in sync.
    decisions.peer("limit", 3.0 * MOST_DECISIONS);
    decisions.peer("during the load", loaded - before);
    decisions.target(Some(1.0));
    Ok(vec![processor, decisions])
}

/// TLS beside plain TCP and unix sockets.
fn wires(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let start = |name: &str, wire| Cluster::start(stand, name, Plan { wire, ..Plan::DEFAULT });
    // TCP has the addresses of this process, as TLS: one after the other.
    let mut figures = Vec::new();
    let loads = [STREAM, READ, BLOCKS];
    for (name, wire) in [("TLS", Wire::Tls), ("TCP", Wire::Tcp), ("unix", Wire::Unix)] {
        let cluster = start(name, wire)?;
        let mebibytes = 2 * Plan::DEFAULT.mebibytes;
        load::run(&STREAM, effort.millis, cluster.exports(), mebibytes)?;
        for (place, load) in loads.iter().enumerate() {
            for _ in 0..effort.rounds {
                let seen = load::run(load, effort.millis, cluster.exports(), mebibytes)?;
                eprintln!("{name}, {}: {:.2}", load.name(), seen.figure(load));
                figures.push((place, name, seen.figure(load)));
            }
        }
    }
    let row = |(place, load): (usize, &Load)| {
        let mut row = rate(load, "3.5 of 3 in memory, TLS");
        for &(_, name, figure) in figures.iter().filter(|(of, ..)| *of == place) {
            match name {
                "TLS" => row.ours(figure),
                _ => row.peer(name, figure),
            }
        }
        row
    };
    Ok(loads.iter().enumerate().map(row).collect())
}

/// One host of a cluster beside a local array of the same level.
fn beside_local(stand: &Stand, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (place, medium) in [("in memory", Medium::Memory), ("HD501LJ", DISK)] {
        let plan = Plan { medium, ..Plan::DEFAULT };
        let size = 2 * plan.mebibytes;
        let cluster = Cluster::start(stand, &format!("one{}", rows.len()), plan)?;
        let name = format!("local{}", rows.len());
        let own = [local(stand, &name, "3.5", &files(stand, &name, medium, plan.members))?];
        let (kits, remote) = match medium {
            Medium::Memory => {
                let kit = |index: usize| stand.nbdkit(&format!("kit{index}"));
                let kits: Vec<Server> = (0..plan.members).map(kit).collect::<Result<_, _>>()?;
                let uris: Vec<String> = kits.iter().map(Server::uri).collect();
                (kits, vec![local(stand, "remote", "3.5", &uris)?])
            }
            _ => (Vec::new(), Vec::new()),
        };
        let mut servers = vec![("cluster", cluster.exports(), size), ("local", &own[..], size)];
        if !remote.is_empty() {
            servers.push(("local, NBD members", &remote[..], size));
        }
        for (_, servers, size) in &servers {
            load::run(&STREAM, 2 * effort.millis, servers, *size)?;
        }
        for load in [STREAM, READ, BLOCKS, ONE_BLOCK] {
            let row = rate(&load, &format!("3.5 of 3 {place}, one host"));
            rows.push(in_turn(&load, effort, row, &servers)?);
        }
        drop(kits);
    }
    Ok(rows)
}
