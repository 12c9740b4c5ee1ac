//! R5: a mail server on ten SATA disks, 2007: `bonnie++ -b -n 128:25000:500:16` on ext3.
//!
//! ```text
//!   create ─▶ data, 1–7 blocks ─▶ journal: descriptor + metadata ─▶ flush ─▶ commit ─▶ flush
//!   read   ─▶ inode's block ─▶ data                delete ─▶ journal as above, without data
//! ```
//!
//! One client, one file after the other; each file is fsynced, and so is its directory. The second
//! fsync finds nothing new: the first one's transaction holds the directory's block too. Data of a
//! file goes behind the last one of its directory; the directories lie far apart.
//!
//! The box is known by two ratios to an old machine. What the models say of it is arithmetic; what
//! Parapet does on its disks is an experiment with the engine.

mod mail;

use std::rc::Rc;

use array::Host;
use io::Disk;
use layout::Layout;
use metadata::create::NewArray;

use self::mail::{Mail, Rates};
use super::rack::{Level, Shape};
use super::{Cell, Constant, Table};
use crate::controller::{CacheSpec, Cached, Destage};
use crate::disk::catalogue::Catalogue;
use crate::disk::hdd::Hdd;
use crate::member::Member;
use crate::world::{Stall, World};

const DISKS: usize = 10;
const CHUNK: u64 = 64 << 10;
/// The controller's cache, which the disks share.
const CACHE_MIB: u64 = 512;
/// Random creates over the old machine's, as published.
const RAID5_CREATES: f64 = 5.87;
const RAID6_CREATES: f64 = 3.01;
/// A small write of the box with two parities over one with one parity, beyond the number of disk
/// operations, 6 over 4.
const SURCHARGE: f64 = 1.30;

/// Where the controller's cache is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cache {
    /// In front of each disk, with a battery; the disks' own caches are off.
    Controller,
    /// There is none; the disks' own caches are on, and flushed.
    Disks,
}

/// The size of all files together. `-n 128` is 128 × 1024 files in all; the author's arithmetic
/// took it for each of the 16 directories.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// 1.67 GB.
    InAll,
    /// 25 GB, as the author counted them.
    Author,
}

impl Reading {
    fn bytes(self) -> u64 {
        match self {
            Reading::InAll => 1_670_000_000,
            Reading::Author => 25_000_000_000,
        }
    }
}

/// Runs the load on the engine's array.
fn run(level: Level, cache: Cache, reading: Reading, files: u64) -> Result<Rates, Stall> {
    let world = World::new();
    let hdd = Catalogue::get().hdd("hd501lj").expect("a catalogued disk");
    let share = CacheSpec {
        sectors: CACHE_MIB * 2048 / DISKS as u64,
        order: Destage::Elevator,
        depth: 1,
        most: 2048,
        acknowledge: 100_000,
    };
    let member = || {
        let mut spec = hdd.spec();
        match cache {
            Cache::Controller => {
                spec.write_cache = None;
                Member::new(&world, Box::new(Cached::new(Hdd::new(spec), share)))
            }
            Cache::Disks => Member::new(&world, Box::new(Hdd::new(spec))),
        }
    };
    let members: Vec<_> = (0..DISKS).map(|_| member() as Rc<dyn Disk>).collect();
    let inner = world.clone();
    world.run_once(async move {
        let host = Host::new(inner.dyn_clock());
        let new = NewArray::new("mail", Layout::Raid1, CHUNK);
        let shape = Shape::new(level, DISKS);
        let disk = shape.start(&inner, &members, &new, &host).await;
        let disk = disk.expect("modelled disks of zeros make an array");
        Mail::new(&inner, disk, reading.bytes()).run(files).await
    })
}

/// Creates, reads and deletes of all levels, as ratios to RAID 5.
///
/// # Errors
/// The experiment stalls: an error of the model.
pub fn table() -> Result<Table, Stall> {
    let mut cells = published();
    for (cache, reading, name, files) in [
        (Cache::Controller, Reading::InAll, "cache", FILES),
        (Cache::Disks, Reading::InAll, "no cache", FEWER),
        (Cache::Controller, Reading::Author, "25 GB", FILES),
    ] {
        let raid5 = run(Level::Raid5, cache, reading, files)?;
        for level in [Level::Raid6, Level::Raid10, Level::Raid0] {
            let rates = run(level, cache, reading, files)?;
            cells.extend(ratios(level, name, &rates, &raid5));
        }
        cells.extend(absolute(name, &raid5));
    }
    Ok(Table {
        name: "R5",
        title: "ten SATA disks, small files with fsync, 2007",
        unit: "ratio to RAID 5; RAID 5 itself: files/s",
        cells,
        constants: vec![Constant {
            name: "RAID 6 write over RAID 5 write, beyond 6/4 operations",
            value: format!("{SURCHARGE}"),
            fitted_on: "the only cell",
        }],
        limits: "Inode tables and bitmaps stay in the file system's memory; the journal has no \
                 checkpoint.\n  25 GB: the author's arithmetic, with the controller's cache; else \
                 1.67 GB.\n  Deletes are commits alone, small writes to the journal: RAID 5 needs \
                 2.8 disk reads for one,\n  RAID 6 4.1, of sectors that have just passed the \
                 heads, as the modelled cache keeps dirty\n  data only.",
    })
}

/// Files of a pass.
const FILES: u64 = 600;
/// The same without a cache: each flush then takes the time of a seek or more.
const FEWER: u64 = 200;

/// The box: one disk operation is like the other, and each level needs a number of them.
fn published() -> Vec<Cell> {
    let cell = |name: &str, measured, reproduced| Cell {
        name: format!("box, {name}"),
        measured,
        reproduced,
        bound_by: "disks",
    };
    let operations = |level| match level {
        Level::Raid0 => 1.0,
        Level::Raid10 => 2.0,
        Level::Raid6 => 6.0 * SURCHARGE,
        _ => 4.0,
    };
    let ratio = |level| operations(Level::Raid5) / operations(level);
    let measured = Some(RAID6_CREATES / RAID5_CREATES);
    vec![
        cell("RAID 6 random creates", measured, ratio(Level::Raid6)),
        cell("RAID 6 random reads", Some(1.0), 1.0),
        cell("RAID 10 random creates", None, ratio(Level::Raid10)),
        cell("RAID 0 random creates", None, ratio(Level::Raid0)),
    ]
}

fn ratios(level: Level, hardware: &str, rates: &Rates, raid5: &Rates) -> Vec<Cell> {
    let array = Shape::new(level, DISKS).name().replace(&format!(" ×{DISKS}"), "");
    let pairs = rates.named().into_iter().zip(raid5.named());
    let cell = |((pass, rate), (_, other)): ((&str, f64), (&str, f64))| Cell {
        name: format!("Parapet, {hardware}: {array}, {pass}"),
        measured: None,
        reproduced: rate / other,
        bound_by: "disks",
    };
    pairs.map(cell).collect()
}

fn absolute(hardware: &str, raid5: &Rates) -> Vec<Cell> {
    let cell = |(pass, rate)| Cell {
        name: format!("Parapet, {hardware}: RAID 5, {pass}, files/s"),
        measured: None,
        reproduced: rate,
        bound_by: "disks",
    };
    raid5.named().map(cell).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_box_is_reproduced_and_raid_6_of_parapet_is_acceptable() {
        let table = table().unwrap();
        println!("{}", table.text());
        assert!(table.worst() < 0.02, "{}", table.worst());
        assert!(table.text().lines().all(|line| line.chars().count() <= 100));
        let creates = table.cells.iter().filter(|cell| {
            cell.name.starts_with("Parapet") && cell.name.ends_with(": RAID 6, random creates")
        });
        let creates: Vec<f64> = creates.map(|cell| cell.reproduced).collect();
        assert_eq!(creates.len(), 3);
        assert!(creates.iter().all(|&ratio| ratio >= 0.75), "{creates:?}");
    }
}
