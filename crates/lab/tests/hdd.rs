//! The model of hard disks against published and computed figures: queues, streams, caches. With
//! `--nocapture` the figures are printed.

mod closed;

use lab::disk::catalogue::Catalogue;
use lab::disk::hdd::{Hdd, Spec};
use lab::disk::{Kind, Request};
use sim::rng::Rng;

fn spec(name: &str) -> Spec {
    Catalogue::get().hdd(name).expect("a catalogued disk").spec()
}

/// Random requests over the first `share` of a disk, one of `depth` at a time; per second.
fn random(spec: Spec, kind: Kind, sectors: u32, depth: usize, share: f64) -> f64 {
    let blocks = (spec.geometry.sectors() as f64 * share) as u64 / u64::from(sectors);
    let mut rng = Rng::stream(7, "random", depth as u64);
    let request = |tag| Request {
        kind,
        ..Request::read(tag, rng.below(blocks) * u64::from(sectors), sectors)
    };
    let mut disk = Hdd::new(spec);
    closed::run(&mut disk, depth, 4 * depth as u64, 4000 + 40 * depth as u64, request).rate
}

/// The figures count the requests that the disk chooses from. The one that the heads serve is not
/// among them: the arm leaves before the host has the answer.
fn in_flight(choice: usize) -> usize {
    if choice == 1 { 1 } else { choice + 1 }
}

fn within(what: &str, found: f64, expected: f64, percent: f64) {
    let off = 100.0 * (found / expected - 1.0);
    println!("{what}: {found:.1}, expected {expected:.1} ({off:+.1} %)");
    assert!(off.abs() <= percent, "{what}: {found:.1}, expected {expected:.1} ({off:+.1} %)");
}

/// Shortest positioning time first, 4 KiB reads over the whole disk (facts of the lab, 1.3).
#[test]
fn deeper_queues_give_a_fifth_more_with_each_doubling() {
    let depths = [1, 2, 4, 8, 16, 32, 64, 128];
    let table = [
        ("cheetah-15k5", [178, 214, 253, 301, 366, 433, 527, 618]),
        ("hd501lj", [76, 92, 108, 130, 156, 185, 221, 264]),
        ("nearline-16t", [83, 98, 117, 140, 171, 206, 249, 295]),
    ];
    for (name, rates) in table {
        let mut found = Vec::new();
        for (depth, rate) in depths.into_iter().zip(rates) {
            let mut spec = spec(name);
            // The figures are for an ideal queue.
            spec.queue.considered = 256;
            spec.queue.age_limit = None;
            found.push(random(spec, Kind::Read, 8, in_flight(depth), 1.0));
            within(&format!("{name} depth {depth}"), found[found.len() - 1], f64::from(rate), 10.0);
        }
        let doubling = (found[7] / found[0]).powf(1.0 / 7.0);
        within(&format!("{name}, for each doubling"), doubling, 1.2, 2.5);
    }
}
