//! A network appliance as a foreign box: a stream of a host, through links, a processor and a bus,
//! to disks.
//!
//! ```text
//!   host ── window ──▶ links ──▶ CPU ──▶ bus ──▶ disks      writes: frames, then chunks
//!   host ◀─ window ─── links ◀── CPU ◀────────── disks      reads: chunks, then frames
//! ```
//!
//! Every station serves first come, first served, so the moment at which it ends a piece follows
//! from the moment of arrival alone. The window couples them: the host sends the next frame when an
//! earlier one is answered. Averages of the stations' rates would be up to 50 % off, because a
//! finite window does not keep uneven disks busy.
//!
//! This is a *personality*, the firmware of somebody else, and shares nothing with the engine. What
//! Parapet does on such hardware is another experiment.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::disk::SECTOR;

/// Bytes of a chunk: what goes to one disk at a time.
pub const CHUNK_KIB: u64 = 64;
/// Bytes of a frame besides its payload: Ethernet 14, AoE and ATA 22, check sequence 4, preamble
/// 8, gap 12.
const FRAME_OVERHEAD: u64 = 60;
/// Gigabit Ethernet: bytes in a second.
const LINK_BYTES: u64 = 125_000_000;
const SECOND: f64 = 1e9;

/// The hardware and the firmware of a box, and the host before it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Personality {
    /// Gigabit links between host and box.
    pub links: usize,
    /// Sectors of a frame: 2 at MTU 1500, 8 at 4200, 16 at 9000.
    pub frame_sectors: u64,
    /// Data of writes that the host has outstanding, in KiB; of reads half as much, because the
    /// host reads the second half ahead when it consumes the first.
    pub window_kib: u64,
    /// Processor time of a frame, in nanoseconds.
    pub frame_ns: f64,
    /// Processor time of a frame for each disk that it reaches, in nanoseconds.
    pub member_ns: f64,
    /// More processor time of a frame that is read from a mirror, in nanoseconds.
    pub mirror_read_ns: f64,
    /// Data that the bus carries to disks, in KiB/s; none: it does not limit.
    pub bus_kib_s: Option<f64>,
    /// The disks.
    pub disk: StreamDisk,
}

/// A disk under a stream.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StreamDisk {
    /// Rate of the medium in KiB/s.
    pub kib_s: f64,
    /// Time of a revolution, in nanoseconds.
    pub revolution_ns: f64,
    /// The probability that a chunk of a write misses a revolution.
    pub lost_revolution: f64,
}

/// How an array spreads its chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spread {
    /// In turn: RAID 0, and one disk.
    Striped,
    /// On pairs in turn: RAID 1 and 10.
    Mirrored,
    /// In turn, with rotating parity: RAID 5.
    Parity,
}

/// A sequential stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stream {
    /// How the array spreads chunks.
    pub spread: Spread,
    /// Its disks; an even number for mirrors, at least three with parity.
    pub disks: usize,
    /// It writes.
    pub writes: bool,
}

/// A station.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Station {
    /// The links.
    Wire,
    /// The processor.
    Cpu,
    /// The bus.
    Bus,
    /// The disks.
    Disks,
    /// No station is busy all the time: the host waits for the slowest disk of its window.
    Window,
}

impl Station {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Station::Wire => "wire",
            Station::Cpu => "CPU",
            Station::Bus => "bus",
            Station::Disks => "disks",
            Station::Window => "window",
        }
    }
}

/// What a stream reached.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reached {
    /// KiB in a second.
    pub kib_s: f64,
    /// What limits it: the station that is busy for at least 97 % of the time.
    pub bound_by: Station,
}

/// A station with one server: it ends a piece after the earlier ones.
#[derive(Clone, Copy, Default)]
struct Server {
    free_at: f64,
    busy: f64,
}

impl Server {
    fn serve(&mut self, arrival: f64, nanos: f64) -> f64 {
        self.free_at = self.free_at.max(arrival) + nanos;
        self.busy += nanos;
        self.free_at
    }
}

/// The outstanding pieces of the host.
struct Window {
    limit_kib: u64,
    outstanding_kib: u64,
    /// When which piece is answered; times in nanoseconds are whole here.
    answers: BinaryHeap<Reverse<(u64, u64)>>,
    now: f64,
}

impl Window {
    /// Waits for room, and takes it. Gives the moment.
    fn take(&mut self, kib: u64) -> f64 {
        while self.outstanding_kib + kib > self.limit_kib
            && let Some(Reverse((at, freed))) = self.answers.pop()
        {
            self.now = self.now.max(at as f64);
            self.outstanding_kib -= freed;
        }
        self.outstanding_kib += kib;
        self.now
    }

    fn answered(&mut self, at: f64, kib: u64) {
        self.answers.push(Reverse((at as u64, kib)));
    }
}

struct Run<'a> {
    personality: &'a Personality,
    stream: Stream,
    window: Window,
    links: Vec<Server>,
    next_link: usize,
    cpu: Server,
    bus: Server,
    disks: Vec<Server>,
    /// The last row that each disk has read.
    rows: Vec<Option<u64>>,
    random: u64,
    end: f64,
}

/// Runs a stream of this many MiB.
pub fn run(personality: &Personality, stream: Stream, mebibytes: u64, seed: u64) -> Reached {
    let limit_kib = match stream.writes {
        true => personality.window_kib,
        false => personality.window_kib / 2,
    };
    let window = Window { limit_kib, outstanding_kib: 0, answers: BinaryHeap::new(), now: 0.0 };
    let mut run = Run {
        personality,
        stream,
        window,
        links: vec![Server::default(); personality.links],
        next_link: 0,
        cpu: Server::default(),
        bus: Server::default(),
        disks: vec![Server::default(); stream.disks],
        rows: vec![None; stream.disks],
        random: seed,
        end: 0.0,
    };
    let chunks = mebibytes * 1024 / CHUNK_KIB;
    for chunk in 0..chunks {
        match stream.writes {
            true => run.write(chunk),
            false => run.read(chunk),
        }
    }
    let kib_s = (chunks * CHUNK_KIB) as f64 / run.end * SECOND;
    Reached { kib_s, bound_by: run.bound_by() }
}

impl Run<'_> {
    fn frame_kib(&self) -> u64 {
        self.personality.frame_sectors * SECTOR / 1024
    }

    fn frames(&self) -> u64 {
        CHUNK_KIB / self.frame_kib()
    }

    /// A frame goes over the next link.
    fn send(&mut self, at: f64) -> f64 {
        let bytes = self.personality.frame_sectors * SECTOR + FRAME_OVERHEAD;
        let link = self.next_link;
        self.next_link = (link + 1) % self.links.len();
        self.links[link].serve(at, bytes as f64 / LINK_BYTES as f64 * SECOND)
    }

    /// The disks of a chunk, and its row. With parity the parity's disk comes second, once a row.
    fn place(&self, chunk: u64) -> (usize, Option<usize>, u64) {
        let disks = self.stream.disks as u64;
        match self.stream.spread {
            Spread::Striped => ((chunk % disks) as usize, None, chunk / disks),
            Spread::Mirrored => {
                let pair = 2 * (chunk % (disks / 2));
                (pair as usize, Some(pair as usize + 1), chunk / (disks / 2))
            }
            Spread::Parity => {
                let (row, index) = (chunk / (disks - 1), chunk % (disks - 1));
                let parity = disks - 1 - row % disks;
                let last = index == disks - 2;
                let disk = (parity + 1 + index) % disks;
                (disk as usize, last.then_some(parity as usize), row)
            }
        }
    }

    fn write(&mut self, chunk: u64) {
        let (disk, second, _) = self.place(chunk);
        let copies = match self.stream.spread {
            Spread::Striped => 1.0,
            Spread::Mirrored => 2.0,
            Spread::Parity => self.stream.disks as f64 / (self.stream.disks - 1) as f64,
        };
        let work = self.personality.frame_ns + copies * self.personality.member_ns;
        let mut arrived = 0.0f64;
        for _ in 0..self.frames() {
            let sent = self.window.take(self.frame_kib());
            let received = self.send(sent);
            let mut ready = self.cpu.serve(received, work);
            if let Some(kib_s) = self.personality.bus_kib_s {
                let nanos = self.frame_kib() as f64 * copies / kib_s * SECOND;
                ready = self.bus.serve(ready, nanos);
            }
            arrived = arrived.max(ready);
        }
        // Both copies of a mirror lose the same revolutions.
        let lost = self.lost();
        let mut end = self.write_chunk(disk, arrived, lost);
        if let Some(second) = second {
            let lost = match self.stream.spread {
                Spread::Mirrored => lost,
                _ => self.lost(),
            };
            end = end.max(self.write_chunk(second, arrived, lost));
        }
        self.window.answered(end, CHUNK_KIB);
        self.end = self.end.max(end);
    }

    fn write_chunk(&mut self, disk: usize, at: f64, lost: f64) -> f64 {
        let nanos = CHUNK_KIB as f64 / self.personality.disk.kib_s * SECOND;
        self.disks[disk].serve(at, nanos + lost)
    }

    fn read(&mut self, chunk: u64) {
        let sent = self.window.take(CHUNK_KIB);
        let (disk, _, row) = self.place(chunk);
        // A mirror is read from its first disk. The head passes over parity that it skips.
        let skipped = self.rows[disk].map_or(0, |last| row - last - 1);
        self.rows[disk] = Some(row);
        let chunks = (1 + skipped) as f64;
        let nanos = chunks * CHUNK_KIB as f64 / self.personality.disk.kib_s * SECOND;
        let read = self.disks[disk].serve(sent, nanos);
        let mirror = match self.stream.spread {
            Spread::Mirrored => self.personality.mirror_read_ns,
            _ => 0.0,
        };
        let work = self.personality.frame_ns + self.personality.member_ns + mirror;
        for _ in 0..self.frames() {
            let ready = self.cpu.serve(read, work);
            let arrived = self.send(ready);
            self.window.answered(arrived, self.frame_kib());
            self.end = self.end.max(arrived);
        }
    }

    /// The time that a chunk loses, at random.
    fn lost(&mut self) -> f64 {
        let disk = &self.personality.disk;
        let uniform = (random::next(&mut self.random) >> 11) as f64 / (1u64 << 53) as f64;
        if uniform < disk.lost_revolution { disk.revolution_ns } else { 0.0 }
    }

    fn bound_by(&self) -> Station {
        let busiest = |servers: &[Server]| {
            servers.iter().map(|server| server.busy / self.end).fold(0.0, f64::max)
        };
        let shares = [
            (Station::Wire, busiest(&self.links)),
            (Station::Cpu, busiest(&[self.cpu])),
            (Station::Bus, busiest(&[self.bus])),
            (Station::Disks, busiest(&self.disks)),
        ];
        let (station, share) =
            shares.into_iter().fold((Station::Window, 0.0), |a, b| if b.1 > a.1 { b } else { a });
        if share >= 0.97 { station } else { Station::Window }
    }
}
