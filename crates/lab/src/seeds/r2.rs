//! R2: RAID 10 behind a controller's write-back cache, under random writes of sysbench, 2009.
//!
//! ```text
//!   threads ─▶ engine, RAID 10 ─▶ a share of the controller's cache ─▶ Cheetah 15K.5
//! ```
//!
//! Threads write 16 KiB anywhere in 20 GiB, each waits for its answer. In a steady state the cache
//! is full, and the rate is that of destaging.

use std::rc::Rc;
use std::time::Duration;

use array::Host;
use io::Disk;
use layout::Layout;
use metadata::create::NewArray;

use super::{Cell, Constant, Table};
use crate::controller::{CacheSpec, Cached, Destage};
use crate::disk::catalogue::Catalogue;
use crate::disk::hdd::Hdd;
use crate::load::{self, Load, Pattern, Seen, Worker};
use crate::member::Member;
use crate::rig;
use crate::world::{Core, Stall, World};

/// Size of the controller's cache: all that it could have.
const CACHE_MIB: u64 = 512;
/// Destages that each disk has at a time.
const DEPTH: usize = 1;
/// Time of a disk's controller for a write, in nanoseconds.
const OVERHEAD_NS: u64 = 20_000;
const BLOCK: u64 = 16 << 10;
const FILES: u64 = 20 << 30;
const CHUNK: u64 = 64 << 10;
const WARM_UP: Duration = Duration::from_secs(60);
const WINDOW: Duration = Duration::from_secs(120);

/// Runs the load with this many threads on this many disks.
///
/// # Errors
/// The experiment stalls: an error of the model.
pub fn run(disks: usize, threads: usize, seed: u64) -> Result<Seen, Stall> {
    let world = World::new();
    let hdd = Catalogue::get().hdd("cheetah-15k5").expect("a catalogued disk");
    let cache = CacheSpec {
        sectors: CACHE_MIB * 2048 / disks as u64,
        order: Destage::Elevator,
        depth: DEPTH,
        most: 2048,
        acknowledge: 100_000,
    };
    let member = || {
        let mut spec = hdd.spec();
        spec.overhead.write = OVERHEAD_NS;
        let model = Cached::new(Hdd::new(spec), cache);
        Member::new(&world, Box::new(model)) as Rc<dyn Disk>
    };
    let members: Vec<_> = (0..disks).map(|_| member()).collect();
    let worker =
        Worker { pattern: Pattern::Random { bytes: FILES }, writes: true, bytes: BLOCK, depth: 1 };
    let load = Load { workers: vec![worker; threads], warm_up: WARM_UP, window: WINDOW, seed };
    let inner = world.clone();
    world.run_once(async move {
        let host = Host::new(inner.dyn_clock());
        let layout = Layout::Raid10 { near: 2, far: 1, offset: false };
        // The battery keeps what is in flight: the box has no bitmap.
        let new = NewArray { bitmap: None, ..NewArray::new("r2", layout, CHUNK) };
        let array = rig::start(&inner, Core::FIRST, &members, &new, &host).await;
        let disk: Rc<dyn Disk> = Rc::new(array.expect("modelled disks of zeros make an array"));
        load::run(&inner, Core::FIRST, &disk, &load).await
    })
}

/// Four and six disks.
///
/// # Errors
/// As [`run`].
pub fn table() -> Result<Table, Stall> {
    let mut cells = Vec::new();
    for (disks, measured) in [(4, Some(968.7)), (6, None)] {
        for threads in [8, 16, 32, 64] {
            cells.push(Cell {
                name: format!("RAID 10 ×{disks}, {threads} threads"),
                measured,
                reproduced: run(disks, threads, 1)?.requests_per_second(),
                bound_by: "disks",
            });
        }
    }
    let constants = vec![
        Constant {
            name: "overhead of a write in the disk",
            value: format!("{} µs", OVERHEAD_NS / 1000),
            fitted_on: "4 disks",
        },
        Constant {
            name: "order of destaging",
            value: "C-LOOK, one destage at each disk".into(),
            fitted_on: "4 disks",
        },
        Constant {
            name: "cache",
            value: format!("{CACHE_MIB} MiB, not confirmed"),
            fitted_on: "4 disks",
        },
    ];
    Ok(Table {
        name: "R2",
        title: "RAID 10 behind a write-back cache, sysbench rndwr of 16 KiB, 2009",
        unit: "requests/s",
        cells,
        constants,
        limits: "The measured figure is the mean of nine runs between 960 and 973; its thread \
                 counts were not told apart.",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_disks_reach_what_was_measured() {
        let rate = run(4, 16, 1).unwrap().requests_per_second();
        assert!((rate / 968.7 - 1.0).abs() < 0.02, "{rate}");
    }
}
