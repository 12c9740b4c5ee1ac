//! NBD over a unix socket beside nbdkit and qemu-nbd: fio on the first core, one server at a time
//! at work on the second.
//!
//! Members and the peers' files lie in memory, so what is measured are the servers. Everything
//! that is started here is ended here, and the files go: see [`Stand`].

mod fio;
mod stand;

use super::row::{Row, Unit};
use crate::failure::Failure;
use fio::{Load, Seen};
use serde_json::Value;
use stand::{Server, Stand};
use std::path::Path;

/// How often, and how long.
struct Effort {
    rounds: usize,
    millis: u32,
}

const SHORT: Effort = Effort { rounds: 3, millis: 1200 };
const FULL: Effort = Effort { rounds: 5, millis: 2500 };

/// What a load is called, and what is wanted of an array under it beside nbdkit with one file.
struct Trial {
    load: Load,
    raid0: Option<f64>,
    raid5: Option<f64>,
    raid6: Option<f64>,
}

const fn trial(load: Load, wanted: [Option<f64>; 3]) -> Trial {
    let [raid0, raid5, raid6] = wanted;
    Trial { load, raid0, raid5, raid6 }
}

const TRIALS: [Trial; 8] = [
    trial(Load::new("write", 1024, 8), [Some(0.9), Some(0.75), Some(0.65)]),
    trial(Load::new("read", 1024, 8), [Some(0.9), None, None]),
    trial(Load::new("write", 128, 32), [Some(0.9), Some(0.75), Some(0.65)]),
    trial(Load::new("read", 128, 32), [Some(0.9), None, None]),
    trial(Load::new("randwrite", 4, 32), [None, Some(0.6), Some(0.45)]),
    trial(Load::new("randread", 4, 32), [Some(1.0), Some(1.0), Some(1.0)]),
    trial(Load::new("randwrite", 4, 1), [None, None, None]),
    // Depth 1 is judged by its latency, below.
    trial(Load::new("randread", 4, 1), [None, None, None]),
];

/// Levels, in the order of a [`Trial`]'s targets.
const LEVELS: [(&str, &str, usize); 3] =
    [("RAID 0 ×4", "0", 4), ("RAID 5 4+1", "5", 5), ("RAID 6 4+2", "6", 6)];

/// A level's server, and one of the same level without a bitmap to see what that costs.
struct Level {
    name: &'static str,
    usual: Server,
    unmarked: Option<Server>,
}

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let effort = if full { FULL } else { SHORT };
    let stand = Stand::new(root)?;
    let mut levels = Vec::new();
    for (name, level, members) in LEVELS {
        let usual = stand.parapet(level, members, true)?;
        let unmarked =
            if level == "0" { None } else { Some(stand.parapet(level, members, false)?) };
        levels.push(Level { name, usual, unmarked });
    }
    let mut rows = vec![idle_memory(&levels)?];
    let nbdkit = stand.nbdkit()?;
    let qemu = stand.qemu_nbd()?;
    let parapets = levels.iter().flat_map(|level| [Some(&level.usual), level.unmarked.as_ref()]);
    for server in parapets.flatten().chain([&nbdkit, &qemu]) {
        fio::fill(server)?;
    }
    for trial in &TRIALS {
        rows.extend(side_by_side(trial, &effort, &levels, &nbdkit, &qemu)?);
    }
    rows.push(memory_after(&levels, &nbdkit)?);
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// What the server of RAID 6 holds after all of that, in MiB.
fn memory_after(levels: &[Level], nbdkit: &Server) -> Result<Row, Failure> {
    let last = levels.last().expect("LEVELS is not empty");
    let mut row = Row::less_is_better("memory of the same server after the loads", Unit::Mebibytes);
    row.ours(last.usual.resident_mebibytes()?);
    row.peer("nbdkit", nbdkit.resident_mebibytes()?);
    Ok(row)
}

/// What a server of an idle array takes, in MiB; it should be under 50.
fn idle_memory(levels: &[Level]) -> Result<Row, Failure> {
    let last = levels.last().expect("LEVELS is not empty");
    let mut row = Row::less_is_better("memory of an idle server, RAID 6 4+2", Unit::Mebibytes);
    row.ours(last.usual.resident_mebibytes()?);
    row.peer("limit", 50.0);
    row.target(Some(1.0));
    Ok(row)
}

/// One load on all servers in turn, round by round.
fn side_by_side(
    trial: &Trial,
    effort: &Effort,
    levels: &[Level],
    nbdkit: &Server,
    qemu: &Server,
) -> Result<Vec<Row>, Failure> {
    let load = &trial.load;
    let wanted = [trial.raid0, trial.raid5, trial.raid6];
    let mut boards: Vec<Board> = levels
        .iter()
        .zip(wanted)
        .map(|(level, wanted)| Board::new(level.name, load, wanted))
        .collect();
    for _ in 0..effort.rounds {
        let peers = [fio::run(load, effort.millis, nbdkit)?, fio::run(load, effort.millis, qemu)?];
        for (level, board) in levels.iter().zip(&mut boards) {
            let ours = fio::run(load, effort.millis, &level.usual)?;
            let unmarked = match &level.unmarked {
                Some(server) if load.writes() => Some(fio::run(load, effort.millis, server)?),
                _ => None,
            };
            board.note(&ours, &peers, unmarked.as_ref());
            eprintln!("{}, {}: {}", level.name, load.name(), ours.told(load));
        }
    }
    Ok(boards.into_iter().flat_map(|board| board.rows).collect())
}

/// The rows of one level under one load.
struct Board {
    rows: Vec<Row>,
    load: Load,
}

impl Board {
    /// The rows come in the order in which [`Board::note`] fills them.
    fn new(level: &str, load: &Load, wanted: Option<f64>) -> Board {
        let name = format!("{level}, {}", load.name());
        let unit = if load.is_large() { Unit::Megabytes } else { Unit::Thousands };
        let mut rate = Row::more_is_better(&name, unit);
        rate.target(wanted);
        let time = |what: &str| Row::less_is_better(&format!("{name}: {what}"), Unit::Micros);
        let mut rows = vec![rate, time("p99")];
        if !load.is_large() {
            let mut p50 = time("p50");
            let mut spread = time("p99 beside its own p50");
            let mut processor = time("server CPU of a request");
            let mut limit = time("server CPU of a request, beside 10 µs");
            if load.is("randread", 1) {
                p50.target(Some(0.91));
                spread.target(Some(0.5));
            }
            if load.is("randread", 32) {
                processor.target(None);
                limit.target(Some(1.0));
            }
            rows.extend([p50, processor]);
            if load.is("randread", 1) {
                rows.push(spread);
            }
            if load.is("randread", 32) {
                rows.push(limit);
            }
        }
        Board { rows, load: load.clone() }
    }

    fn note(&mut self, ours: &Seen, [nbdkit, qemu]: &[Seen; 2], unmarked: Option<&Seen>) {
        let all = |row: &mut Row, pick: &dyn Fn(&Seen) -> f64| {
            row.ours(pick(ours));
            row.peer("nbdkit", pick(nbdkit));
            row.peer("qemu-nbd", pick(qemu));
            if let Some(unmarked) = unmarked {
                row.peer("without bitmap", pick(unmarked));
            }
        };
        let load = self.load.clone();
        let mut rows = self.rows.iter_mut();
        let mut next = || rows.next().expect("as many rows as `new` made");
        all(next(), &|seen| seen.rate(&load));
        all(next(), &|seen| seen.p99_us);
        if load.is_large() {
            return;
        }
        all(next(), &|seen| seen.p50_us);
        all(next(), &|seen| seen.cpu_us);
        if load.is("randread", 1) {
            let row = next();
            row.ours(ours.p99_us);
            row.peer("own p50", ours.p50_us);
        }
        if load.is("randread", 32) {
            let row = next();
            row.ours(ours.cpu_us);
            row.peer("limit", 10.0);
        }
    }
}
