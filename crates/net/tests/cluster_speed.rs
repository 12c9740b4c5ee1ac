//! How fast one host reads and writes a cluster in memory, all of it on one thread.
//!
//! ```text
//!   CLUSTER_SPEED=1 cargo test -p parapet-net --test cluster_speed -- --nocapture
//! ```
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[allow(dead_code)]
#[path = "cluster/rig.rs"]
mod rig;

use std::collections::VecDeque;
use std::time::Instant;

use cluster::config::{Level, Mode};
use io::{Disk, Op, Pool};
use net::cluster::client::ClientDisk;
use rig::Rig;

/// Bytes of a request, requests at once, and requests in all.
const REQUEST: usize = 1 << 20;
const DEPTH: usize = 4;
const REQUESTS: u64 = 96;
/// Stripes of a region.
const STRIPES: u32 = 1024;

/// Does nothing without `CLUSTER_SPEED`.
#[test]
fn long_requests() {
    if std::env::var("CLUSTER_SPEED").is_err() {
        return;
    }
    for level in [Level::Fragments, Level::Mirror, Level::Raid5] {
        let rig = Rig::sized(level, Mode::Exclusive, STRIPES);
        let disk = rig.client(1, &rig.coordinator());
        let content = Pool::new(0).copy_of(&[7; REQUEST]).freeze();
        let write = |at| Op::write(at, content.clone());
        let read = |at| Op::read(at, Pool::new(0).take(REQUEST));
        // The first round takes the regions.
        pass(&rig, &disk, write);
        let rates = [pass(&rig, &disk, write), pass(&rig, &disk, read)];
        println!("{level:?}: write {:.0}, read {:.0} MB/s", rates[0], rates[1]);
    }
}

/// Goes through the array; MB/s.
fn pass(rig: &Rig, disk: &ClientDisk, op: impl Fn(u64) -> Op) -> f64 {
    let begun = Instant::now();
    let places = disk.limits().bytes / REQUEST as u64;
    let mut running = VecDeque::new();
    for number in 0..REQUESTS {
        running.push_back(disk.submit(op(number % places * REQUEST as u64)));
        while running.len() >= DEPTH || number + 1 == REQUESTS && !running.is_empty() {
            let mut done = None;
            rig.until(|| {
                done = running[0].take_ready();
                done.is_some()
            });
            done.unwrap().result.unwrap();
            running.pop_front();
        }
    }
    (REQUESTS * REQUEST as u64) as f64 / begun.elapsed().as_secs_f64() / 1e6
}
