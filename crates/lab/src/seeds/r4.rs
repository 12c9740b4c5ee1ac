//! R4: Coraid SR1521 and SR1520, AoE appliances of 2007, under sequential streams.
//!
//! The disks are SpinPoint HD501LJ: 84,789 KiB/s is their rate as the box reads one disk. Streams
//! start at the outer zone, and end within it.

pub mod parapet;

use super::{Cell, Constant, Table};
use crate::appliance::{CHUNK_KIB, Personality, Spread, Stream, StreamDisk, run};
use crate::world::Stall;

/// A stream of this size; of writes, where chance plays, the mean of these seeds.
const MEBIBYTES: u64 = 400;
const SEEDS: std::ops::Range<u64> = 1..6;

const DISK_KIB_S: f64 = 84_789.0;
const REVOLUTION_NS: f64 = 60e9 / 7200.0;
const LOST_REVOLUTION: f64 = 0.111;
const WINDOW_KIB: u64 = 768;
const FRAME_NS: f64 = 2_190.0;
const MEMBER_NS: f64 = 6_620.0;
const MIRROR_READ_NS: f64 = 1_860.0;
/// SR1520: its processor's time over the SR1521's, and its bus.
const SLOWER: f64 = 1.59;
const BUS_KIB_S: f64 = 104_400.0;
/// RAID 5 rebuild, KB/s over all members.
const REBUILD_SR1521: f64 = 561_487.0;
const REBUILD_SR1520: f64 = 229_926.0;

struct Box {
    name: &'static str,
    personality: Personality,
    /// Writes, then reads, in the order of [`ARRAYS`].
    measured: [[Option<f64>; 8]; 2],
}

const ARRAYS: [(&str, Spread, usize); 8] = [
    ("RAID 0 ×15", Spread::Striped, 15),
    ("RAID 0 ×4", Spread::Striped, 4),
    ("RAID 10 ×14", Spread::Mirrored, 14),
    ("RAID 10 ×4", Spread::Mirrored, 4),
    ("RAID 5 ×14", Spread::Parity, 14),
    ("RAID 5 ×4", Spread::Parity, 4),
    ("RAID 1 ×2", Spread::Mirrored, 2),
    ("JBOD ×1", Spread::Striped, 1),
];

fn sr1521(frame_sectors: u64) -> Personality {
    let disk = StreamDisk {
        kib_s: DISK_KIB_S,
        revolution_ns: REVOLUTION_NS,
        lost_revolution: LOST_REVOLUTION,
    };
    Personality {
        links: 2,
        frame_sectors,
        window_kib: WINDOW_KIB,
        frame_ns: FRAME_NS,
        member_ns: MEMBER_NS,
        mirror_read_ns: MIRROR_READ_NS,
        bus_kib_s: None,
        disk,
    }
}

fn sr1520(frame_sectors: u64) -> Personality {
    Personality {
        links: 1,
        frame_ns: FRAME_NS * SLOWER,
        member_ns: MEMBER_NS * SLOWER,
        mirror_read_ns: MIRROR_READ_NS * SLOWER,
        bus_kib_s: Some(BUS_KIB_S),
        ..sr1521(frame_sectors)
    }
}

fn boxes() -> [Box; 4] {
    let all = |figures: [u32; 8]| figures.map(|figure| Some(f64::from(figure)));
    let some = |raid0: Option<u32>, raid10: Option<u32>| {
        let mut figures = [None; 8];
        figures[0] = raid0.map(f64::from);
        figures[2] = raid10.map(f64::from);
        figures
    };
    let writes = [239_333, 106_840, 162_068, 71_196, 216_853, 92_672, 36_525, 38_057];
    let reads = [240_682, 240_891, 235_480, 161_025, 236_099, 212_946, 80_943, 84_789];
    [
        Box {
            name: "SR1521, MTU 9000",
            personality: sr1521(16),
            measured: [all(writes), all(reads)],
        },
        Box {
            name: "SR1521, MTU 1500",
            personality: sr1521(2),
            measured: [some(Some(114_289), Some(65_230)), some(Some(112_122), Some(95_801))],
        },
        Box {
            name: "SR1520, MTU 4200",
            personality: sr1520(8),
            measured: [some(Some(104_253), Some(52_252)), some(None, None)],
        },
        Box {
            name: "SR1520, MTU 1500",
            personality: sr1520(2),
            measured: [some(Some(71_906), None), some(Some(70_285), None)],
        },
    ]
}

/// The boxes, and Parapet on the larger one's hardware.
///
/// # Errors
/// An experiment stalls: an error of its model.
pub fn table() -> Result<Table, Stall> {
    let mut table = boxes_table();
    table.cells.extend(parapet::cells()?);
    Ok(table)
}

/// The streams of all boxes, and the rates of rebuilds.
pub fn boxes_table() -> Table {
    let mut cells = Vec::new();
    for one in boxes() {
        for (writes, measured) in [(true, one.measured[0]), (false, one.measured[1])] {
            for (&(array, spread, disks), measured) in ARRAYS.iter().zip(measured) {
                let stream = Stream { spread, disks, writes };
                let seeds = SEEDS.take(if writes { SEEDS.count() } else { 1 });
                let reached: Vec<_> =
                    seeds.map(|seed| run(&one.personality, stream, MEBIBYTES, seed)).collect();
                let sum: f64 = reached.iter().map(|one| one.kib_s).sum();
                let verb = if writes { "write" } else { "read" };
                cells.push(Cell {
                    name: format!("{}, {array} {verb}", one.name),
                    measured,
                    reproduced: sum / reached.len() as f64,
                    bound_by: reached[0].bound_by.name(),
                });
            }
        }
    }
    cells.extend(rebuilds());
    Table {
        name: "R4",
        title: "Coraid SR1521 and SR1520, sequential streams over AoE, 2007",
        unit: "KiB/s; rebuilds KB/s over all members",
        cells,
        constants: constants(),
        limits: LIMITS,
    }
}

const LIMITS: &str = "\
    That reads keep half of the window was chosen after a look at the cells of RAID 5 ×4.\n  \
    That initial parity waits half a revolution supposes one chunk at a time on a disk.\n  \
    Parapet: write-back cache, volatile AoE; the disks lose the same revolutions; a frame\n  \
    costs what docs/bench measures.";

/// The rate of initial parity from that of a rebuild, over all members.
///
/// A rebuild has one stream on each disk. Initial parity writes one of a disk's chunks, and reads
/// the rest; the write among reads waits for its sector, half a revolution in the mean.
fn initial_parity(rebuild: f64, disks: f64) -> f64 {
    let kib = disks * CHUNK_KIB as f64;
    let seconds = kib / (rebuild / disks) + REVOLUTION_NS / 2e9;
    disks * kib / seconds
}

/// Rates over all members. A mirror's rebuild reads one disk and writes the other as fast as the
/// medium moves; that of RAID 5 takes a time for each chunk, of processor and disk, that is fitted.
fn rebuilds() -> Vec<Cell> {
    let (mirror, initial) = (2.0 * DISK_KIB_S, |rebuild| initial_parity(rebuild, 14.0));
    let cell = |name: &str, measured: Option<f64>, reproduced, bound_by| Cell {
        name: name.into(),
        measured,
        reproduced,
        bound_by,
    };
    vec![
        cell("SR1521, RAID 5 ×14 rebuild", Some(561_487.0), REBUILD_SR1521, "CPU"),
        cell(
            "SR1521, RAID 5 ×14 initial parity",
            Some(487_202.0),
            initial(REBUILD_SR1521),
            "disks",
        ),
        cell("SR1521, RAID 10 ×14 rebuild", Some(168_764.0), mirror, "disks"),
        cell("SR1521, RAID 1 ×2 rebuild", Some(168_585.0), mirror, "disks"),
        cell("SR1520, RAID 5 ×14 rebuild", Some(229_926.0), REBUILD_SR1520, "CPU"),
        cell("SR1520, RAID 5 ×14 initial parity", None, initial(REBUILD_SR1520), "disks"),
        cell("SR1520, RAID 10 ×14 rebuild", None, mirror, "disks"),
        cell("SR1520, RAID 1 ×2 rebuild", None, mirror, "disks"),
    ]
}

fn constants() -> Vec<Constant> {
    let constant = |name, value: String, fitted_on| Constant { name, value, fitted_on };
    let micros = |nanos: f64| format!("{:.2} µs", nanos / 1000.0);
    vec![
        constant(
            "share of written chunks that lose a revolution",
            format!("{LOST_REVOLUTION}"),
            "JBOD write",
        ),
        constant("window of the host", format!("{WINDOW_KIB} KiB"), "RAID 0 ×15 write"),
        constant("CPU for a frame", micros(FRAME_NS), "SR1521, MTU 1500, both writes"),
        constant(
            "CPU for each member of a frame",
            micros(MEMBER_NS),
            "SR1521, MTU 1500, both writes",
        ),
        constant(
            "more CPU for a frame read from a mirror",
            micros(MIRROR_READ_NS),
            "SR1521, MTU 1500, RAID 10 read",
        ),
        constant(
            "CPU of the SR1520 over that of the SR1521",
            format!("{SLOWER}"),
            "SR1520, MTU 1500, RAID 0 write",
        ),
        constant(
            "bus of the SR1520",
            format!("{BUS_KIB_S:.0} KiB/s to members"),
            "SR1520, MTU 4200, RAID 0 write",
        ),
        constant("RAID 5 rebuild of the SR1521", format!("{REBUILD_SR1521} KB/s"), "itself"),
        constant("RAID 5 rebuild of the SR1520", format!("{REBUILD_SR1520} KB/s"), "itself"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_cells_are_within_the_bars() {
        let table = boxes_table();
        println!("{}", table.text());
        assert!(table.constants.len() <= 9);
        for cell in &table.cells {
            let Some(error) = cell.error() else { continue };
            let bar = match cell.name.as_str() {
                name if name.starts_with("SR1521, MTU 9000") && name.ends_with("read") => 0.07,
                _ => 0.10,
            };
            assert!(error.abs() <= bar, "{}: {:.1} %", cell.name, error * 100.0);
        }
    }
}
