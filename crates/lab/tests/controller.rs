//! The cache of a controller against figures computed for reference system R2 (facts of the lab,
//! 2): four Cheetah 15K.5 as RAID 10, random writes of 16 KiB over 20 GiB. With `--nocapture` the
//! figures are printed.

mod closed;

use lab::controller::{CacheSpec, Cached, Destage};
use lab::disk::catalogue::Catalogue;
use lab::disk::hdd::Hdd;
use lab::disk::{Answer, Model, Request};
use sim::rng::Rng;

const BLOCK: u32 = 32;

/// Requests per second of the array: each of its four disks has a quarter of the cache, and each
/// write goes to two disks.
fn array_rate(order: Destage, cache_mib: u64, depth: usize) -> f64 {
    let mut spec = Catalogue::get().hdd("cheetah-15k5").expect("a catalogued disk").spec();
    spec.queue.age_limit = None;
    let blocks = (spec.geometry.sectors() as f64 * 0.146) as u64 / u64::from(BLOCK);
    let sectors = cache_mib * 2048 / 4;
    let cache = CacheSpec { sectors, order, depth, most: 2048, acknowledge: 100_000 };
    let mut disk = Cached::new(Hdd::new(spec), cache);
    let mut rng = Rng::stream(7, "controller", 0);
    let next = |tag| Request::write(tag, rng.below(blocks) * u64::from(BLOCK), BLOCK);
    // The cache fills first: that is no steady state.
    let fill = sectors / u64::from(BLOCK);
    let outcome = closed::run(&mut disk, 16, 2 * fill, 8000, next);
    4.0 * outcome.rate / 2.0
}

#[test]
fn sweeping_controllers_reach_the_computed_rates() {
    // Queue at the disk, and the rates for 128 to 512 MB.
    for (depth, low, high) in [(1, 787.0, 845.0), (3, 1130.0, 1231.0), (5, 1500.0, 1500.0)] {
        for mib in [128, 512] {
            let rate = array_rate(Destage::Elevator, mib, depth);
            println!("C-LOOK, {mib} MiB, {depth} at the disk: {rate:.0} ({low} to {high})");
            assert!((0.9 * low..=1.1 * high).contains(&rate), "{mib} MiB, {depth}: {rate:.0}");
        }
    }
}

#[test]
fn the_order_decides_and_the_size_hardly() {
    let lru = array_rate(Destage::Lru, 128, 1);
    let (small, large) =
        (array_rate(Destage::Elevator, 128, 1), array_rate(Destage::Elevator, 512, 1));
    let disk = array_rate(Destage::Disk, 128, 32);
    println!("LRU {lru:.0}, C-LOOK {small:.0} and {large:.0}, 32 at the disk {disk:.0}");
    assert!((500.0..600.0).contains(&lru), "the disk gets one request at a time: {lru}");
    assert!(large / small < 1.15 && small / lru > 1.4 && disk / lru > 2.0);
}

#[test]
fn a_battery_makes_flushes_free_and_dirty_reads_fast() {
    let hdd = Catalogue::get().hdd("cheetah-15k5").expect("a catalogued disk");
    let cache = CacheSpec {
        sectors: 4096,
        order: Destage::Lru,
        depth: 1,
        most: 2048,
        acknowledge: 100_000,
    };
    let mut disk = Cached::new(Hdd::new(hdd.spec()), cache);
    for tag in 0..20 {
        disk.submit(0, Request::write(tag, tag * 1_000_000, 8));
    }
    disk.submit(0, Request::flush(20));
    disk.submit(0, Request::read(21, 19_000_000, 8));
    disk.submit(0, Request::read(22, 500_000, 8));
    let mut answers: Vec<Answer> = Vec::new();
    while let Some(next) = disk.next_event() {
        disk.advance(next, &mut answers);
    }
    assert_eq!(answers.len(), 23);
    for answer in &answers {
        assert_eq!(answer.at == 100_000, answer.tag != 22, "{answer:?}");
    }
    assert_eq!(disk.used(), 0, "everything was destaged");
}
