//! ATA over Ethernet beside vblade: one client on the first core, one server at a time at work on
//! the second, and a veth cable for each of them.
//!
//! The client is Parapet's initiator for all servers: it never sends more frames than a target
//! announces (vblade 16, Parapet 64), as Linux.

mod client;
mod stand;

use super::row::{Row, Unit};
use crate::failure::Failure;
use client::{Load, Seen, now};
use serde_json::Value;
use stand::{Medium, Programs, Server, Stand};
use std::path::Path;

/// How often, and how long.
struct Effort {
    rounds: usize,
    millis: u32,
}

const SHORT: Effort = Effort { rounds: 5, millis: 500 };
const FULL: Effort = Effort { rounds: 9, millis: 1500 };

const WRITE: Load = Load { way: "write", kibibytes: 128, depth: 8 };
const READ: Load = Load { way: "read", kibibytes: 128, depth: 8 };
const RANDOM: Load = Load { way: "randread", kibibytes: 4, depth: 32 };

/// Name, level and members of the arrays, with the defaults of `create`.
const ARRAYS: [(&str, &str, usize); 3] =
    [("one member", "0", 1), ("RAID 0 ×4", "0", 4), ("RAID 5 4+1", "5", 5)];

const MTUS: [u32; 2] = [1500, 9000];
/// Ethernet and AoE headers of a frame with data, as the shaper counts them.
const HEADER_BYTES: f64 = 36.0;
/// Data of a frame at MTU 9000.
const PAYLOAD_BYTES: f64 = 8192.0;
/// Bytes per second of a shaped cable, in millions.
const CABLE_MEGABYTES: f64 = 125.0;
/// Between the start of a server and its first answer, in milliseconds.
const START_MILLIS: f64 = 100.0;

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let effort = if full { FULL } else { SHORT };
    let programs = Programs::build(root)?;
    let stand = |medium, mtu| Stand::new(&programs, medium, mtu);
    let mut rows = Vec::new();
    for mtu in MTUS {
        rows.extend(in_memory(&stand(Medium::Memory, mtu)?, mtu, &effort)?);
    }
    for mtu in MTUS {
        rows.extend(on_disk(&stand(Medium::Disk, mtu)?, mtu, &effort)?);
    }
    rows.extend(shaped(&stand(Medium::Memory, 9000)?, &effort)?);
    rows.extend(start(&stand(Medium::Memory, 9000)?, &effort)?);
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// Servers of the arrays, each on its own cable.
fn arrays(stand: &Stand<'_>) -> Result<Vec<Server>, Failure> {
    let serve = |&(_, level, members): &(&str, &str, usize)| {
        stand.parapet(level, members, &stand.cables(1, false)?)
    };
    ARRAYS.iter().map(serve).collect()
}

/// All loads on files in memory.
fn in_memory(stand: &Stand<'_>, mtu: u32, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let arrays = arrays(stand)?;
    let vblade = stand.vblade(&[], &stand.cables(1, false)?)?;
    for server in arrays.iter().chain([&vblade]) {
        stand.client().load(&WRITE, 1000, server)?;
    }
    let mut rows = Vec::new();
    for load in [WRITE, READ, RANDOM] {
        let target = if load.is_random() { 1.5 } else { 1.2 };
        let name = format!("tmpfs, MTU {mtu}, {}", load.name());
        let peers = [("vblade", &vblade)];
        rows.extend(side_by_side(stand, &load, &name, target, &arrays, &peers, effort)?);
    }
    Ok(rows)
}

/// Durable writes on files on a disk.
fn on_disk(stand: &Stand<'_>, mtu: u32, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let arrays = arrays(stand)?;
    let direct = stand.vblade(&["-d"], &stand.cables(1, false)?)?;
    let synchronous = stand.vblade(&["-s"], &stand.cables(1, false)?)?;
    let name = format!("disk, MTU {mtu}, {}", WRITE.name());
    let peers = [("vblade -d", &direct), ("vblade -s", &synchronous)];
    side_by_side(stand, &WRITE, &name, 4.0, &arrays, &peers, effort)
}

/// One load on all servers in turn, round by round: for each array its rate, and the CPU time of
/// its server.
fn side_by_side(
    stand: &Stand<'_>,
    load: &Load,
    name: &str,
    target: f64,
    arrays: &[Server],
    peers: &[(&'static str, &Server)],
    effort: &Effort,
) -> Result<Vec<Row>, Failure> {
    let mut boards: Vec<[Row; 2]> = ARRAYS
        .iter()
        .map(|(array, ..)| {
            let name = format!("{array}, {name}");
            let mut rate = Row::more_is_better(&name, Unit::Megabytes);
            rate.target(Some(target));
            let processor = format!("{name}: server CPU of a frame");
            let mut processor = Row::less_is_better(&processor, Unit::Micros);
            processor.target(Some(1.0));
            [rate, processor]
        })
        .collect();
    for _ in 0..effort.rounds {
        let seen = |server: &Server| stand.client().load(load, effort.millis, server);
        let theirs: Vec<(&'static str, Seen)> = peers
            .iter()
            .map(|(peer, server)| Ok((*peer, seen(server)?)))
            .collect::<Result<_, Failure>>()?;
        for ((server, board), (array, ..)) in arrays.iter().zip(&mut boards).zip(ARRAYS) {
            let ours = seen(server)?;
            eprintln!("{array}, {name}: {:.0} MB/s, {:.2} µs", ours.megabytes, ours.cpu_us);
            let [rate, processor] = board;
            rate.ours(ours.megabytes);
            processor.ours(ours.cpu_us);
            for (peer, theirs) in &theirs {
                rate.peer(peer, theirs.megabytes);
                processor.peer(peer, theirs.cpu_us);
            }
        }
    }
    Ok(boards.into_iter().flatten().collect())
}

/// Cables of 1 Gbit/s, one and two: the share of the data that they can carry beside its headers.
fn shaped(stand: &Stand<'_>, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for (cables, target) in [(1, 0.99), (2, 0.985)] {
        let ours = stand.parapet("0", 4, &stand.cables(cables, true)?)?;
        let vblade = stand.vblade(&[], &stand.cables(1, true)?)?;
        let possible = CABLE_MEGABYTES * PAYLOAD_BYTES / (PAYLOAD_BYTES + HEADER_BYTES);
        for load in [WRITE, READ] {
            let name = format!("{cables} × 1 Gbit/s, MTU 9000, {}", load.name());
            let mut row = Row::more_is_better(&name, Unit::Megabytes);
            row.target(Some(target));
            for _ in 0..effort.rounds {
                let seen = |server: &Server| stand.client().load(&load, 2 * effort.millis, server);
                row.ours(seen(&ours)?.megabytes);
                row.peer("possible", possible * f64::from(cables));
                // It has one interface.
                row.peer("vblade, one cable", seen(&vblade)?.megabytes);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// The time from the start of a server to its first answer to IDENTIFY.
fn start(stand: &Stand<'_>, effort: &Effort) -> Result<Vec<Row>, Failure> {
    let name = "start of the server to its first answer, RAID 5 4+1";
    let mut row = Row::less_is_better(name, Unit::Millis);
    row.target(Some(1.0));
    let [ends, peer_ends] = [stand.cables(1, false)?, stand.cables(1, false)?];
    stand.make("started", "5", 5)?;
    let file = stand.path("vblade");
    stand.fill_file(&file)?;
    let time = |ports: &str, address: &str, start: &dyn Fn() -> Result<Server, Failure>| {
        let asking = stand.client().first(ports, address)?;
        let begun = now();
        let server = start()?;
        let answered = asking.answer()?;
        drop(server);
        Ok::<f64, Failure>(answered.saturating_sub(begun).as_secs_f64() * 1e3)
    };
    for _ in 0..effort.rounds {
        let serve = || stand.serve("started", 5, "7.1", &ends);
        row.ours(time(&ends[1], "7.1", &serve)?);
        row.peer("limit", START_MILLIS);
        let serve = || stand.start_vblade(&[], 2, &file, &peer_ends);
        row.peer("vblade", time(&peer_ends[1], "7.2", &serve)?);
    }
    Ok(vec![row])
}
