//! R1: ddraid, a RAID 3.5 of five SCSI disks under ext3, 2005.
//!
//! ```text
//!   cp ─▶ page cache ─▶ umount ─┬─ data: 37.1 MB ─▶ bus, shared by all ─▶ disks
//!                               └─ metadata: serial small writes
//! ```
//!
//! The copied file lies in the page cache; `umount` writes it and then the metadata. A member of
//! order k carries 1/2^k of the data, the bus all of it and the parity. Both move at once.
//!
//! The published cells are reproduced with stations. The engine's RAID 3.5 then runs the same load
//! on modelled disks, with and without a durable mark of each region of 1 MiB before it is written.

use std::rc::Rc;
use std::time::Duration;

use array::Host;
use io::{Disk, Op};
use layout::Layout;
use metadata::create::{BitmapChunk, NewArray};

use super::{Cell, Constant, Table};
use crate::disk::catalogue::Catalogue;
use crate::disk::hdd::Hdd;
use crate::load::{self, Pattern, Worker};
use crate::member::Member;
use crate::rig;
use crate::station::{Bus, Station};
use crate::world::{Core, Stall, World};

/// The tarball of linux-2.6.11.3, in bytes.
const FILE: u64 = 37_100_000;
const DISK_BYTES_S: u64 = 39_000_000;
/// The metadata of an umount, in seconds.
const METADATA_S: f64 = 0.086;
/// Ultra160 SCSI carries 0.9 of its 160 MB/s.
const BUS_BYTES_S: u64 = 144_000_000;
/// Untar: computing, in seconds; the time of an umount is `UNTAR_S.1 + UNTAR_S.2 / 2^k`.
const UNTAR_S: (f64, f64, f64) = (48.8, 0.86, 2.26);
/// Marks of dirty regions during a copy, in seconds: 36 regions of 1 MiB.
const SYNC_S: f64 = 0.034;
/// What the page cache writes at a time.
const REQUEST: u64 = 128 << 10;
const BLOCK: u64 = 4096;
/// Serial writes of metadata at umount, for the engine.
const METADATA_WRITES: u64 = 12;

/// What was measured with one setting.
#[derive(Clone, Copy)]
struct BoxCells {
    /// None: one disk.
    order: Option<u32>,
    parity: bool,
    sync: bool,
    /// Seconds of umount after cp.
    copied: Option<f64>,
    /// Seconds of untar, and of umount after it.
    untar: Option<[f64; 2]>,
}

const fn setting(order: u32, [parity, sync]: [bool; 2]) -> BoxCells {
    BoxCells { order: Some(order), parity, sync, copied: None, untar: None }
}

const OFF: [bool; 2] = [false, false];
const PARITY: [bool; 2] = [true, false];
const SYNC: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

/// Of ranges the middle.
const CELLS: [BoxCells; 13] = [
    BoxCells {
        order: None,
        parity: false,
        sync: false,
        copied: Some(1.030),
        untar: Some([48.8, 3.115]),
    },
    BoxCells { untar: Some([49.9, 2.03]), ..setting(1, OFF) },
    BoxCells { copied: Some(0.568), untar: Some([50.9, 1.84]), ..setting(1, PARITY) },
    BoxCells { copied: Some(0.608), ..setting(1, SYNC) },
    BoxCells { copied: Some(0.596), untar: Some([51.0, 1.90]), ..setting(1, BOTH) },
    BoxCells { untar: Some([49.5, 1.32]), ..setting(2, OFF) },
    setting(2, PARITY),
    setting(2, SYNC),
    setting(2, BOTH),
    setting(3, OFF),
    setting(3, PARITY),
    setting(3, SYNC),
    setting(3, BOTH),
];

/// Data on the way from the page cache through the bus to the members; seconds. Order `None` is
/// one disk.
fn stations(order: Option<u32>) -> (f64, &'static str) {
    let (data, parity) = (1u64 << order.unwrap_or(0), u64::from(order.is_some()));
    let mut bus = Bus::new(BUS_BYTES_S, 0);
    let mut disks = vec![Station::new(1); (data + parity) as usize];
    let (mut sent, mut end) = (0, 0);
    while sent < FILE {
        let part = REQUEST.min(FILE - sent) / data;
        sent += REQUEST;
        for disk in &mut disks {
            let there = bus.carry(0, part);
            // The disk has a buffer: it writes while the bus carries the rest.
            let begins = there.saturating_sub(bus.time(part));
            let written = disk.serve(begins, part * 1_000_000_000 / DISK_BYTES_S);
            end = end.max(written.max(there));
        }
    }
    let bound = if bus.station().utilization(end) > 0.97 { "bus" } else { "disks" };
    (end as f64 / 1e9, bound)
}

/// The engine's umount, in seconds.
fn engine(order: Option<u8>, regions: bool) -> Result<f64, Stall> {
    let world = World::new();
    let catalogue = Catalogue::read(&[include_str!("../../data/r1.toml")]);
    let catalogue = catalogue.expect("a test reads the embedded file");
    let hdd = catalogue.hdd("scsi-39").expect("the disk of the file");
    let count = order.map_or(1, |order| (1usize << order) + 1);
    let member = || Member::new(&world, Box::new(Hdd::new(hdd.spec()))) as Rc<dyn Disk>;
    let members: Vec<_> = (0..count).map(|_| member()).collect();
    let inner = world.clone();
    world.run_once(async move {
        let disk = match order {
            None => Rc::clone(&members[0]),
            Some(order) => {
                let bitmap = regions.then_some(BitmapChunk::Bytes(1 << 20));
                let layout = Layout::Raid35 { order };
                let new = NewArray::new("ddraid", layout, BLOCK >> order);
                // The box had the log of dirty regions and nothing else.
                let new = NewArray { bitmap, checksums: Some(false), ..new };
                let host = Host::new(inner.dyn_clock());
                let array = rig::start(&inner, Core::FIRST, &members, &new, &host).await;
                Rc::new(array.expect("modelled disks of zeros make an array")) as Rc<dyn Disk>
            }
        };
        umount(&inner, &disk).await.as_secs_f64()
    })
}

/// The data with requests in flight, then the metadata one write after the other.
async fn umount(world: &World, disk: &Rc<dyn Disk>) -> Duration {
    let clock = world.dyn_clock();
    let start = clock.now();
    let pattern = Pattern::Sequential { start: 64 << 20, bytes: FILE / REQUEST * REQUEST };
    let worker = Worker { pattern, writes: true, bytes: REQUEST, depth: 64 };
    load::once(world, disk, worker).await;
    for number in 0..METADATA_WRITES {
        let mut buf = world.pool().take(BLOCK as usize);
        buf.fill(0);
        let done = disk.submit(Op::write((number * 37) << 20, buf.freeze())).await;
        assert!(done.result.is_ok(), "a modelled disk does not fail unasked: {:?}", done.result);
    }
    clock.now() - start
}

/// All cells.
///
/// # Errors
/// The experiment stalls: an error of the model.
pub fn table() -> Result<Table, Stall> {
    let cell = |name: String, measured, reproduced, bound_by| Cell {
        name,
        measured,
        reproduced,
        bound_by,
    };
    let mut cells = Vec::new();
    for box_cells in CELLS {
        let BoxCells { order, parity, sync, copied, untar } = box_cells;
        let switch = |on: bool, what: &str| format!("{}{what}", if on { "" } else { "no " });
        let name = order.map_or("raw disk".into(), |order| {
            format!("order {order}, {}, {}", switch(parity, "parity"), switch(sync, "sync"))
        });
        let (seconds, bound) = stations(order);
        let seconds = METADATA_S + seconds + if sync { SYNC_S } else { 0.0 };
        cells.push(cell(format!("cp, {name}: umount"), copied, seconds, bound));
        let share = 0.5f64.powi(order.unwrap_or(0) as i32);
        let (at, seconds) = (UNTAR_S, UNTAR_S.1 + UNTAR_S.2 * share);
        let [run, umount] = untar.map_or([None; 2], |measured| measured.map(Some));
        cells.push(cell(format!("untar, {name}: run"), run, at.0, "CPU"));
        cells.push(cell(format!("untar, {name}: umount"), umount, seconds, "metadata"));
    }
    cells.extend(parapet()?);
    Ok(Table {
        name: "R1",
        title: "ddraid, RAID 3.5 on five SCSI disks, cp of 37.1 MB and untar, 2005",
        unit: "seconds",
        cells,
        constants: constants(),
        limits: "Order 3 has nine members; the box had five disks. The cells of untar differ by \
                 13 %\n  among themselves. Computing parity shows in no cell. Parapet always \
                 computes it, and has\n  no model of untar's processor.",
    })
}

/// The engine on modelled disks.
fn parapet() -> Result<Vec<Cell>, Stall> {
    let mut cells = Vec::new();
    let mut add = |name: String, measured, reproduced| {
        cells.push(Cell { name, measured, reproduced, bound_by: "disks" });
    };
    add("Parapet, cp, raw disk: umount".into(), None, engine(None, false)?);
    for order in 1..=3 {
        for (regions, with) in [(false, "no sync"), (true, "sync")] {
            let seconds = engine(Some(order), regions)?;
            add(format!("Parapet, cp, order {order}, {with}: umount"), None, seconds);
        }
    }
    Ok(cells)
}

fn constants() -> Vec<Constant> {
    let constant = |name, value: String, fitted_on| Constant { name, value, fitted_on };
    vec![
        constant("metadata of an umount", format!("{METADATA_S} s"), "cp, raw disk and order 1"),
        constant(
            "marks of 36 regions",
            format!("{SYNC_S} s"),
            "cp, order 1, sync with and without parity",
        ),
        constant(
            "bus",
            format!("{} MB/s; the cells exclude 80 or less", BUS_BYTES_S / 1_000_000),
            "no cell: an assumption, Ultra160",
        ),
        constant("computing of untar", format!("{} s", UNTAR_S.0), "untar, raw disk"),
        constant(
            "umount of untar",
            format!("{} s + {} s / 2^k", UNTAR_S.1, UNTAR_S.2),
            "untar, all orders",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_cells_are_within_the_bars() {
        let table = table().unwrap();
        println!("{}", table.text());
        assert!(table.text().lines().all(|line| line.chars().count() <= 100));
        for cell in &table.cells {
            let Some(error) = cell.error() else { continue };
            let bar = match cell.name.as_str() {
                name if name.starts_with("cp") => 0.02,
                name if name.ends_with("run") => 0.05,
                _ => 0.14,
            };
            assert!(error.abs() <= bar, "{}: {:.1} %", cell.name, error * 100.0);
        }
        // The claim: linear load is faster the more members there are, even with the log.
        let seconds = |name: &str| {
            let cell = table.cells.iter().find(|cell| cell.name == name);
            cell.expect("a cell of the table").reproduced
        };
        let [raw, one, two] = ["raw disk", "order 1, sync", "order 2, sync"]
            .map(|name| seconds(&format!("Parapet, cp, {name}: umount")));
        assert!(raw > one && one > two, "{raw} {one} {two}");
    }
}
