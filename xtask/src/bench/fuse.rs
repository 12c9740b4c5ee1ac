//! Arrays as files of the kernel, by FUSE, beside qemu-storage-daemon's FUSE export and nbdfuse
//! over nbdkit: fio on the first core, all processes of the server at work on the second.
//!
//! Members and the peers' files are in memory. fio opens the FUSE files with O_DIRECT; the loop
//! device of `parapet attach` is a row of its own.

use super::nbd::fio::{self, Load, Seen};
use super::nbd::stand::{CORE, EXPORT_MEBIBYTES, Options, Server, Stand, sparse_file};
use super::process::Process;
use super::row::{Row, Unit};
use crate::failure::Failure;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Rounds, and milliseconds of each.
const SHORT: (usize, u32) = (5, 800);
const FULL: (usize, u32) = (9, 2500);

/// The load that is judged comes first.
const LOADS: [Load; 4] = [
    Load::new("randread", 4, 32),
    Load::new("randwrite", 4, 32),
    Load::new("randread", 4, 1),
    Load::new("read", 1024, 8),
];
/// The least ratios wanted for it.
const WANTED_QEMU: f64 = 2.0;
const WANTED_NBDFUSE: f64 = 5.0;

const ARRAYS: [(&str, &str, usize); 3] =
    [("one member", "0", 1), ("RAID 0 ×4", "0", 4), ("RAID 5 4+1", "5", 5)];

/// A file of the kernel that a program serves.
struct Mounted {
    file: PathBuf,
    /// Takes the file away, before the servers end.
    end: Command,
    servers: Vec<Served>,
}

enum Served {
    Nbd(Server),
    Fuse(Process),
}

impl Served {
    fn cpu_seconds(&self) -> Result<f64, Failure> {
        match self {
            Served::Nbd(server) => server.cpu_seconds(),
            Served::Fuse(process) => process.cpu_seconds(),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.end.status().is_ok_and(|status| status.success()) {
            eprintln!("{:?} failed: see `mount`", self.end);
        }
    }
}

impl Mounted {
    fn load(&self, load: &Load, millis: u32, file: &Path) -> Result<Seen, Failure> {
        let file = format!("--filename={}", file.display());
        let cpu = || self.servers.iter().map(Served::cpu_seconds).sum();
        fio::run_on(&["--ioengine=libaio", "--direct=1", &file], load, millis, &cpu)
    }

    fn fill(&self) -> Result<(), Failure> {
        let file = format!("--filename={}", self.file.display());
        fio::fill_all(&["--ioengine=libaio", "--direct=1", &file]).map(drop)
    }
}

/// Measures; gives the rows.
pub(super) fn measure(root: &Path, full: bool) -> Result<Vec<Value>, Failure> {
    let (rounds, millis) = if full { FULL } else { SHORT };
    let stand = Stand::new(root)?;
    let (mut arrays, mut devices) = (Vec::new(), Vec::new());
    for (index, (_, level, members)) in ARRAYS.iter().enumerate() {
        let (array, device) = attached(&stand, &format!("fuse{index}"), level, *members)?;
        arrays.push(array);
        devices.push(device);
    }
    let qemu = qemu(&stand)?;
    let nbdfuse = nbdfuse(&stand)?;
    for mounted in arrays.iter().chain([&qemu, &nbdfuse]) {
        mounted.fill()?;
    }
    let mut rows = Vec::new();
    for (place, load) in LOADS.iter().enumerate() {
        let mut boards: Vec<Board> =
            ARRAYS.iter().map(|(array, ..)| Board::new(array, load, place == 0)).collect();
        for _ in 0..rounds {
            let peers = [&qemu, &nbdfuse].map(|mounted| mounted.load(load, millis, &mounted.file));
            let [qemu, nbdfuse] = peers;
            let peers = [qemu?, nbdfuse?];
            for ((array, device), board) in arrays.iter().zip(&devices).zip(&mut boards) {
                let ours = array.load(load, millis, &array.file)?;
                eprintln!("{}: {}", array.file.display(), ours.describe(load));
                board.note(load, &ours, &array.load(load, millis, device)?, &peers);
            }
        }
        rows.extend(boards.into_iter().flat_map(|board| board.rows));
    }
    Ok(rows.into_iter().map(Row::finish).collect())
}

/// An array as a FUSE file, and the loop device on it.
fn attached(
    stand: &Stand,
    name: &str,
    level: &str,
    members: usize,
) -> Result<(Mounted, PathBuf), Failure> {
    let server = stand.parapet(name, level, members, Options::NONE)?;
    let control = format!("unix:{}", stand.path(&format!("{name}.c")).display());
    let command = |verb: &[&str]| {
        let words = [verb, &[name, "--control", &control]].concat();
        stand.parapet_command(&words)
    };
    let mut attach = command(&["attach", "--how", "fuse"]);
    if !attach.status().is_ok_and(|status| status.success()) {
        return Err(Failure::new(format!("{name} is not attached"), "run it as root"));
    }
    let end = command(&["detach"]);
    let link = Path::new("/dev/parapet").join(name);
    let unreadable = |error| Failure::new(format!("{}: {error}", link.display()), "see `losetup`");
    let device = std::fs::read_link(&link).map_err(unreadable)?;
    let file = stand.path("run/disks").join(name);
    Ok((Mounted { file, end, servers: vec![Served::Nbd(server)] }, device))
}

/// A raw file with the defaults of the program, exported by its own FUSE server.
fn qemu(stand: &Stand) -> Result<Mounted, Failure> {
    let (file, at) = (stand.path("qsd"), stand.path("qsd.fuse"));
    sparse_file(&file, EXPORT_MEBIBYTES)?;
    sparse_file(&at, 0)?;
    let mut serve = stand.command("taskset");
    serve.args(["--cpu-list", CORE, "qemu-storage-daemon"]);
    serve.arg("--blockdev").arg(format!("file,node-name=disk,filename={}", file.display()));
    let export = format!("fuse,id=export,node-name=disk,writable=on,mountpoint={}", at.display());
    serve.arg("--export").arg(export);
    mounted(stand, at, serve, vec![])
}

/// nbdkit with a file in memory, and nbdfuse with its defaults in front of it.
fn nbdfuse(stand: &Stand) -> Result<Mounted, Failure> {
    let server = stand.nbdkit("nbdfuse")?;
    let at = stand.path("nbdfuse.fuse");
    sparse_file(&at, 0)?;
    let mut serve = stand.command("taskset");
    serve.args(["--cpu-list", CORE, "nbdfuse"]).arg(&at).arg(server.uri());
    mounted(stand, at, serve, vec![Served::Nbd(server)])
}

/// Starts a program that mounts the file `at`, and waits until it has its size.
fn mounted(
    stand: &Stand,
    at: PathBuf,
    serve: Command,
    mut servers: Vec<Served>,
) -> Result<Mounted, Failure> {
    let line = format!("{serve:?}");
    let mut process = Process::start(serve)?;
    let mut end = stand.command("umount");
    end.arg(&at);
    let size = |path: &Path| path.metadata().map_or(0, |metadata| metadata.len());
    process.wait_until(&line, || size(&at) == (EXPORT_MEBIBYTES as u64) << 20)?;
    servers.push(Served::Fuse(process));
    Ok(Mounted { file: at, end, servers })
}

/// The rows of one array under one load.
struct Board {
    rows: Vec<Row>,
}

impl Board {
    /// The rows come in the order in which [`Board::note`] fills them.
    fn new(array: &str, load: &Load, judged: bool) -> Board {
        let name = format!("{array}, {}", load.name());
        let unit = if load.is_large() { Unit::Megabytes } else { Unit::Thousands };
        let row = |beside: &str, wanted: f64| {
            let mut row = Row::more_is_better(&format!("{name}{beside}"), unit);
            row.target((judged && wanted > 0.0).then_some(wanted));
            row
        };
        let rows = vec![
            row("", WANTED_QEMU),
            row(", beside nbdfuse", WANTED_NBDFUSE),
            row(", through the loop device", 0.0),
            Row::less_is_better(&format!("{name}: server CPU of a request"), Unit::Micros),
        ];
        Board { rows }
    }

    fn note(&mut self, load: &Load, ours: &Seen, looped: &Seen, peers: &[Seen; 2]) {
        let [qemu, nbdfuse] = peers;
        let mut note = |row: usize, ours: f64, theirs: [(&'static str, f64); 2]| {
            self.rows[row].ours(ours);
            theirs.into_iter().for_each(|(peer, value)| self.rows[row].peer(peer, value));
        };
        let rate = |seen: &Seen| seen.rate(load);
        let rates = [("qemu-storage-daemon", rate(qemu)), ("nbdfuse over nbdkit", rate(nbdfuse))];
        note(0, rate(ours), rates);
        note(1, rate(ours), [rates[1], rates[0]]);
        note(2, rate(looped), rates);
        let times = [("qemu-storage-daemon", qemu.cpu_us), ("nbdfuse over nbdkit", nbdfuse.cpu_us)];
        note(3, ours.cpu_us, times);
    }
}
