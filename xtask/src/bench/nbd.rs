//! NBD over a unix socket beside nbdkit and qemu-nbd: fio on the first core, one server at a time
//! at work on the second.
//!
//! Members and the peers' files are in memory, so only the servers are measured. Everything started
//! here is ended here, and the files are removed: see [`Stand`].

pub(super) mod fio;
pub(super) mod stand;

use super::row::{Row, Unit};
use crate::failure::Failure;
use fio::{Load, Seen};
use serde_json::Value;
use stand::{Options, Server, Stand};
use std::path::Path;

/// How often, and how long.
struct Effort {
    rounds: usize,
    millis: u32,
}

const SHORT: Effort = Effort { rounds: 5, millis: 800 };
const FULL: Effort = Effort { rounds: 7, millis: 2500 };

/// A load's name, and an array's target for it beside nbdkit with one file.
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
    trial(Load::new("write", 128, 32), [Some(0.9), Some(0.6), Some(0.5)]),
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

/// Options of `create` and `serve` measured beside the defaults, on levels with parity, by writes.
const VARIANTS: [Options; 3] = [
    Options { create: &["--chunk", "64K"], serve: &[] },
    Options { create: &["--consistency", "bitmap", "--checksums", "off"], serve: &[] },
    Options { create: &[], serve: &["--cache", "writeback"] },
];

/// The p99 of small writes at depth 1 that is wanted: at most twice nbdkit's.
const WANTED_P99: f64 = 0.5;
/// The least speed of the first writes to new members, as a share of that of later ones.
const WANTED_FIRST: f64 = 0.6;

/// An array of a level as `create` and `serve` make it unasked, or with options.
struct Subject {
    /// The level's place in [`LEVELS`].
    level: usize,
    options: Options,
    server: Server,
}

impl Subject {
    fn name(&self) -> String {
        let (level, ..) = LEVELS[self.level];
        let words = [self.options.create, self.options.serve].concat().join(" ");
        if words.is_empty() { String::from(level) } else { format!("{level}, {words}") }
    }

    fn is_default(&self) -> bool {
        self.options == Options::NONE
    }
}

/// The defaults of all levels first, then arrays with options.
fn subjects(stand: &Stand) -> Result<Vec<Subject>, Failure> {
    let mut subjects = Vec::new();
    for options in [Options::NONE].into_iter().chain(VARIANTS) {
        for (level, &(_, number, members)) in LEVELS.iter().enumerate() {
            if number == "0" && options != Options::NONE {
                continue;
            }
            let name = format!("raid{number}-{}", subjects.len());
            let server = stand.parapet(&name, number, members, options)?;
            subjects.push(Subject { level, options, server });
        }
    }
    Ok(subjects)
}

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let effort = if full { FULL } else { SHORT };
    let stand = Stand::new(root)?;
    let subjects = subjects(&stand)?;
    let mut rows = vec![idle_memory(&subjects)?];
    let nbdkit = stand.nbdkit("nbdkit")?;
    let qemu = stand.qemu_nbd()?;
    for server in subjects.iter().map(|subject| &subject.server).chain([&nbdkit, &qemu]) {
        fio::fill(server)?;
    }
    for trial in &TRIALS {
        rows.extend(side_by_side(trial, &effort, &subjects, &nbdkit, &qemu)?);
    }
    for subject in subjects.iter().filter(|subject| subject.is_default()) {
        rows.extend(first_pass(&stand, &effort, subject, &nbdkit)?);
    }
    rows.push(memory_after(&subjects, &nbdkit)?);
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// The server of the defaults of the last level.
fn last_default(subjects: &[Subject]) -> &Server {
    let last = subjects.iter().rfind(|subject| subject.is_default());
    &last.expect("LEVELS is not empty").server
}

/// Memory of the RAID 6 server after all loads, in MiB.
fn memory_after(subjects: &[Subject], nbdkit: &Server) -> Result<Row, Failure> {
    let mut row = Row::less_is_better("memory of the same server after the loads", Unit::Mebibytes);
    row.ours(last_default(subjects).resident_mebibytes()?);
    row.peer("nbdkit", nbdkit.resident_mebibytes()?);
    Ok(row)
}

/// Memory of an idle array's server, in MiB; it should be under 50.
fn idle_memory(subjects: &[Subject]) -> Result<Row, Failure> {
    let mut row = Row::less_is_better("memory of an idle server, RAID 6 4+2", Unit::Mebibytes);
    row.ours(last_default(subjects).resident_mebibytes()?);
    row.peer("limit", 50.0);
    row.target(Some(1.0));
    Ok(row)
}

/// The first pass of sequential writes over a new array, on members from `create` and on sparse
/// files, beside such a pass over an array whose members were written before. The cost of sparse
/// files for nbdkit is measured too.
fn first_pass(
    stand: &Stand,
    effort: &Effort,
    subject: &Subject,
    nbdkit: &Server,
) -> Result<[Row; 2], Failure> {
    let (level, number, members) = LEVELS[subject.level];
    let row = |what: &str| {
        let name = format!("{level}, first pass, {what}, sequential write 1024 KiB, depth 8");
        let mut row = Row::more_is_better(&name, Unit::Megabytes);
        row.target(Some(WANTED_FIRST));
        row
    };
    let mut rows = [row("members made by create"), row("sparse files")];
    for round in 0..effort.rounds {
        let before = [fio::fill(&subject.server)?, fio::fill(nbdkit)?];
        for (sparse, row) in rows.iter_mut().enumerate() {
            let name = format!("first{number}-{round}-{sparse}");
            let fresh = match sparse {
                0 => stand.parapet(&name, number, members, Options::NONE)?,
                _ => stand.sparse(&name, number, members)?,
            };
            row.ours(fio::fill(&fresh)?);
            row.peer("second pass", before[0]);
            row.peer("nbdkit second pass", before[1]);
            drop(fresh);
            stand.remove(&name, members);
        }
        let name = format!("nbdkit{number}-{round}");
        let fresh = stand.nbdkit(&name)?;
        rows[1].peer("nbdkit on a sparse file", fio::fill(&fresh)?);
        drop(fresh);
        stand.remove(&name, 0);
    }
    Ok(rows)
}

/// One load on all servers in turn, round by round.
fn side_by_side(
    trial: &Trial,
    effort: &Effort,
    subjects: &[Subject],
    nbdkit: &Server,
    qemu: &Server,
) -> Result<Vec<Row>, Failure> {
    let load = &trial.load;
    let wanted = [trial.raid0, trial.raid5, trial.raid6];
    let measured = subjects.iter().filter(|subject| subject.is_default() || load.writes());
    let mut boards: Vec<(&Subject, Board)> = measured
        .map(|subject| {
            let wanted = wanted[subject.level].filter(|_| subject.is_default());
            (subject, Board::new(&subject.name(), load, wanted, subject.is_default()))
        })
        .collect();
    for _ in 0..effort.rounds {
        let peers = [fio::run(load, effort.millis, nbdkit)?, fio::run(load, effort.millis, qemu)?];
        for (subject, board) in &mut boards {
            let ours = fio::run(load, effort.millis, &subject.server)?;
            board.note(&ours, &peers);
            eprintln!("{}, {}: {}", subject.name(), load.name(), ours.describe(load));
        }
    }
    Ok(boards.into_iter().flat_map(|(_, board)| board.rows).collect())
}

/// The rows of one array under one load.
struct Board {
    rows: Vec<Row>,
    load: Load,
}

impl Board {
    /// The rows come in the order in which [`Board::note`] fills them.
    fn new(array: &str, load: &Load, wanted: Option<f64>, judged: bool) -> Board {
        let name = format!("{array}, {}", load.name());
        let unit = if load.is_large() { Unit::Megabytes } else { Unit::Thousands };
        let mut rate = Row::more_is_better(&name, unit);
        rate.target(wanted);
        let time = |what: &str| Row::less_is_better(&format!("{name}: {what}"), Unit::Micros);
        let mut p99 = time("p99");
        p99.target((judged && load.is("randwrite", 1)).then_some(WANTED_P99));
        let mut rows = vec![rate, p99];
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

    fn note(&mut self, ours: &Seen, [nbdkit, qemu]: &[Seen; 2]) {
        let all = |row: &mut Row, pick: &dyn Fn(&Seen) -> f64| {
            row.ours(pick(ours));
            row.peer("nbdkit", pick(nbdkit));
            row.peer("qemu-nbd", pick(qemu));
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
