//! The file of an experiment: TOML, strict. Units are in the names, sizes are texts with a unit.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::change::Changes;
use crate::link;
use crate::world::CpuCosts;

/// An experiment, as its file has it. Make it with [`super::load`].
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its title.
    pub name: String,
    /// Seconds before the window; by default 10 for workers, 0 for a trace.
    pub warm_up_s: Option<f64>,
    /// Seconds that count; by default 60 for workers, all the rest of a trace.
    pub window_s: Option<f64>,
    /// Runs with different seeds. One run is no result.
    #[serde(default = "five")]
    pub seeds: u32,
    /// The first seed; the others follow.
    #[serde(default = "one")]
    pub first_seed: u64,
    /// Milliseconds at the start of the window for which the movements of the heads are kept.
    #[serde(default = "heads_ms")]
    pub heads_ms: f64,
    /// Disks, controller, processor.
    pub hardware: Hardware,
    /// Quirks of the system that is reproduced.
    #[serde(default)]
    pub personality: Personality,
    /// The array.
    pub array: ArrayChoice,
    /// The load.
    pub load: LoadChoice,
    /// Things that happen during the run.
    #[serde(default, rename = "event")]
    pub events: Vec<Incident>,
    /// Figures to compare with.
    #[serde(default, rename = "cell")]
    pub cells: Vec<CellChoice>,
    /// Numbers that known cells calibrate: see [`super::calibrate`].
    #[serde(default, rename = "constant")]
    pub constants: Vec<ConstantChoice>,
}

fn five() -> u32 {
    5
}

fn one() -> u64 {
    1
}

fn heads_ms() -> f64 {
    200.0
}

/// What the array runs on.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Number and catalogue name of equal disks, spares included: `10xhd501lj`. Unequal ones are
    /// separated by commas.
    pub disks: String,
    /// The write cache of hard disks: off is safe without flushes. By default as catalogued.
    pub disk_write_cache: Option<bool>,
    /// Flash disks are new: random writes do not amplify yet. Otherwise they are long in use.
    #[serde(default)]
    pub fresh_flash: bool,
    /// A controller's write-back cache, in equal shares in front of the disks.
    pub cache: Option<ControllerCache>,
    /// Costs of the engine's core; by default its work is free.
    pub cpu: Option<Cpu>,
    /// The network between clients and array; by default clients are on the array's core.
    pub link: Option<LinkChoice>,
}

/// A network: equal links side by side, and the protocol on them.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct LinkChoice {
    /// The protocol.
    pub protocol: Protocol,
    /// Links.
    #[serde(default = "one_slot")]
    pub links: usize,
    /// Rate of each, in megabits per second.
    #[serde(default = "gigabit")]
    pub megabits: u64,
    /// Most bytes of a frame after its Ethernet header.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// Microseconds from the end of a frame to its arrival: ports and switches.
    #[serde(default = "five_us")]
    pub delay_us: f64,
    /// AoE answers writes before they are durable.
    #[serde(default)]
    pub volatile: bool,
    /// Work of the clients' core for a frame, in nanoseconds. That of the array's core is
    /// `hardware.cpu.frame_ns`.
    #[serde(default)]
    pub client_frame_ns: u64,
}

fn gigabit() -> u64 {
    1000
}

fn usual_mtu() -> u32 {
    1500
}

fn five_us() -> f64 {
    5.0
}

/// What carries requests over a link.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// ATA over Ethernet.
    Aoe,
    /// NBD over TCP.
    Nbd,
}

impl From<&LinkChoice> for link::Spec {
    fn from(choice: &LinkChoice) -> link::Spec {
        let protocol = match choice.protocol {
            Protocol::Aoe => link::Protocol::Aoe { volatile: choice.volatile },
            Protocol::Nbd => link::Protocol::Nbd,
        };
        let LinkChoice { links, megabits, mtu, .. } = *choice;
        let delay_ns = (choice.delay_us * 1000.0) as u64;
        link::Spec { protocol, links, megabits, mtu, delay_ns }
    }
}

/// A controller's write-back cache with a battery.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ControllerCache {
    /// Its size over all disks.
    pub size: Size,
    /// The order of destaging.
    #[serde(default)]
    pub order: DestageOrder,
    /// Destages that each disk has at a time.
    #[serde(default = "one_slot")]
    pub depth: usize,
    /// The largest destage.
    #[serde(default = "mebibyte")]
    pub largest: Size,
    /// Microseconds from a write to its answer, if there is room.
    #[serde(default = "hundred")]
    pub acknowledge_us: f64,
}

fn one_slot() -> usize {
    1
}

fn mebibyte() -> Size {
    Size(1 << 20)
}

fn hundred() -> f64 {
    100.0
}

/// See [`crate::controller::Destage`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum DestageOrder {
    /// Longest unwritten first.
    Lru,
    /// C-LOOK by address.
    #[default]
    Elevator,
    /// The disk's own.
    Disk,
}

/// See [`CpuCosts`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields, default)]
pub struct Cpu {
    /// A system call.
    pub syscall_ns: u64,
    /// A request.
    pub request_ns: u64,
    /// An operation of a member.
    pub member_op_ns: u64,
    /// A frame of a link, sent or received.
    pub frame_ns: u64,
    /// A byte copied, in picoseconds.
    pub copy_ps: u64,
    /// A byte read by a parity kernel, in picoseconds.
    pub parity_ps: u64,
    /// A byte read by a checksum, in picoseconds.
    pub checksum_ps: u64,
}

impl Cpu {
    /// Each cost with its unit.
    pub(super) fn costs(&self) -> [(u64, &'static str); 7] {
        [
            (self.syscall_ns, "ns a system call"),
            (self.request_ns, "ns a request"),
            (self.member_op_ns, "ns a member's operation"),
            (self.frame_ns, "ns a frame"),
            (self.copy_ps, "ps a byte copied"),
            (self.parity_ps, "ps a byte of parity"),
            (self.checksum_ps, "ps a byte of checksum"),
        ]
    }
}

/// The costs that are not 0.
impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let costs = self.costs().into_iter().filter(|(cost, _)| *cost > 0);
        let texts: Vec<String> = costs.map(|(cost, unit)| format!("{cost} {unit}")).collect();
        f.write_str(&texts.join(", "))
    }
}

impl From<Cpu> for CpuCosts {
    fn from(cpu: Cpu) -> CpuCosts {
        CpuCosts {
            syscall_ns: cpu.syscall_ns,
            request_ns: cpu.request_ns,
            member_op_ns: cpu.member_op_ns,
            frame_ns: cpu.frame_ns,
            copy_ps: cpu.copy_ps,
            parity_ps: cpu.parity_ps,
            checksum_ps: cpu.checksum_ps,
        }
    }
}

/// Quirks of hard disks, calibrated constants: no data sheet has them.
#[derive(Clone, PartialEq, Default, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Personality {
    /// Time of a disk's controller for a write, in microseconds; otherwise as catalogued.
    pub write_overhead_us: Option<f64>,
    /// Probability that a chunk written loses a revolution, in millionths.
    pub lost_revolutions_per_million: Option<u32>,
    /// That chunk.
    pub lost_chunk: Option<Size>,
}

/// The array.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ArrayChoice {
    /// `raid5`, `10`, `linear` …
    pub level: String,
    /// mdadm's name of the layout; by default mdadm's choice.
    pub layout: Option<String>,
    /// The chunk; unused by RAID 1.
    #[serde(default = "half_mebibyte")]
    pub chunk: Size,
    /// `resync`, `bitmap`, `intent` or `ppl`; by default the engine's choice.
    pub consistency: Option<String>,
    /// The write-intent bitmap.
    #[serde(default = "yes")]
    pub bitmap: bool,
    /// Checksums of blocks; by default the engine's choice.
    pub checksums: Option<bool>,
    /// When writes are acknowledged.
    #[serde(default)]
    pub cache: Cache,
    /// The last disks are spares.
    #[serde(default)]
    pub spares: usize,
    /// Slots whose members have failed before the load starts.
    #[serde(default)]
    pub failed: Vec<u8>,
}

fn half_mebibyte() -> Size {
    Size(512 << 10)
}

fn yes() -> bool {
    true
}

/// See [`array::CacheMode`].
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// Acknowledged by the members.
    #[default]
    None,
    /// Acknowledged when durable.
    Sync,
    /// Acknowledged by memory.
    Writeback,
}

/// Workers, or a trace.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct LoadChoice {
    /// Workers, which start together.
    #[serde(default, rename = "worker")]
    pub workers: Vec<WorkerChoice>,
    /// A trace instead.
    pub trace: Option<TraceChoice>,
}

/// Equal workers.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct WorkerChoice {
    /// The order of addresses.
    pub pattern: Pattern,
    /// How many: threads, clients, streams.
    #[serde(default = "one_slot")]
    pub count: usize,
    /// Share of writes in percent; the others are reads.
    #[serde(default)]
    pub write_percent: u32,
    /// Bytes of a request.
    pub size: Size,
    /// Requests of each worker in flight.
    #[serde(default = "one_slot")]
    pub depth: usize,
    /// Where the zone begins.
    #[serde(default)]
    pub start: Size,
    /// The zone's size; by default the rest of the array. Sequential workers share it in equal
    /// parts, random ones have it all.
    pub zone: Option<Size>,
}

/// The order of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// One after the other.
    Sequential,
    /// Uniform.
    Random,
}

/// A trace to replay.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct TraceChoice {
    /// The file, for the program that reads it: see [`super::Experiment::trace_file`].
    pub file: String,
    /// By time stamps, or by answers.
    #[serde(default)]
    pub replay: Replay,
    /// Rate of the replay in percent of the recorded one: 200 is twice as fast.
    #[serde(default = "percent")]
    pub time_scale: u32,
    /// Requests in flight of a closed replay.
    #[serde(default = "one_slot")]
    pub depth: usize,
    /// Addresses beyond the array are taken modulo its size; otherwise they are an error.
    #[serde(default)]
    pub fold: bool,
}

fn percent() -> u32 {
    100
}

/// How a trace is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Replay {
    /// By time stamps: keeps the load, and a slower array queues.
    #[default]
    Open,
    /// The next request follows an answer, after the recorded think time: keeps the dependence.
    Closed,
}

/// Something that happens during the window.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Incident {
    /// Seconds after the start of the window.
    pub at_s: f64,
    /// What happens.
    #[serde(rename = "do")]
    pub action: Action,
    /// The slot of `fail`.
    pub slot: Option<u8>,
}

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The member of a slot fails.
    Fail,
    /// A new disk, like the first one, is added: a rebuild starts if a slot is empty.
    Add,
    /// A scrub starts.
    Scrub,
}

/// A figure to compare with.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CellChoice {
    /// What was measured.
    pub name: String,
    /// The measured figure.
    pub value: f64,
    /// Its unit, which names the figure of the run.
    pub unit: Unit,
    /// A known cell may calibrate a constant; a held one judges.
    pub status: CellStatus,
    /// Values by their paths, where the figure is one of a changed experiment.
    #[serde(default, skip_serializing_if = "Changes::is_empty")]
    pub change: Changes,
}

/// A number that no data sheet gives.
#[derive(Clone, PartialEq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct ConstantChoice {
    /// Its meaning.
    pub name: String,
    /// Its path in the experiment: `hardware.cache.acknowledge_us`.
    pub path: String,
    /// The least value to try.
    pub low: f64,
    /// The largest one.
    pub high: f64,
    /// Its unit.
    pub unit: String,
}

impl ConstantChoice {
    /// The value at a share of its range.
    pub(super) fn at(&self, share: f64) -> f64 {
        self.low + share * (self.high - self.low)
    }
}

/// The unit of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
pub enum Unit {
    /// Requests in a second.
    #[serde(rename = "requests/s")]
    Requests,
    /// Bytes in a second, in 1024 bytes.
    #[serde(rename = "KiB/s")]
    KiB,
    /// The same in 2^20 bytes.
    #[serde(rename = "MiB/s")]
    MiB,
    /// The same in 10^6 bytes.
    #[serde(rename = "MB/s")]
    MB,
    /// The median latency in milliseconds.
    #[serde(rename = "ms p50")]
    P50,
    /// The 99th percentile in milliseconds.
    #[serde(rename = "ms p99")]
    P99,
    /// The mean latency in milliseconds.
    #[serde(rename = "ms mean")]
    Mean,
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Requests => "requests/s",
            Unit::KiB => "KiB/s",
            Unit::MiB => "MiB/s",
            Unit::MB => "MB/s",
            Unit::P50 => "ms p50",
            Unit::P99 => "ms p99",
            Unit::Mean => "ms mean",
        })
    }
}

/// See [`CellChoice::status`].
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "lowercase")]
pub enum CellStatus {
    /// Published with the system.
    Known,
    /// Kept back.
    Held,
}

/// Bytes: `64KiB`, `20GiB`, `512B`; KB, MB, GB and TB are powers of 1000.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize, Debug)]
#[serde(try_from = "String", into = "String")]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl TryFrom<String> for Size {
    type Error = String;

    fn try_from(text: String) -> Result<Size, String> {
        let word = text.trim();
        let found = UNITS.iter().find_map(|&(unit, factor)| {
            let number: u64 = word.strip_suffix(unit)?.trim_end().parse().ok()?;
            number.checked_mul(factor).filter(|&bytes| bytes < 1 << 62)
        });
        found.map(Size).ok_or_else(|| {
            format!("{text:?} is no size; write a whole number and a unit: 64KiB, 20GiB, 1TB")
        })
    }
}

impl From<Size> for String {
    fn from(size: Size) -> String {
        size.to_string()
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = |&&(_, factor): &&(&str, u64)| self.0 > 0 && self.0.is_multiple_of(factor);
        let (unit, factor) =
            UNITS.iter().filter(whole).max_by_key(|(_, factor)| *factor).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let size = |text: &str| Size::try_from(text.to_string()).map(|size| size.0);
        assert_eq!(size("64KiB"), Ok(65_536));
        assert_eq!(size(" 20 GiB "), Ok(20 << 30));
        assert_eq!(size("3MB"), Ok(3_000_000));
        assert_eq!(size("512B"), Ok(512));
        for wrong in ["", "64", "KiB", "-1KiB", "1.5MiB", "99999999999TiB", "1 kib"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(Size(65_536).to_string(), "64KiB");
        assert_eq!(Size(3_000_000).to_string(), "3MB");
        assert_eq!(Size(0).to_string(), "0B");
    }
}
