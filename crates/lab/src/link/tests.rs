//! Tests of links: the contract of the seam, and the rates of a wire under the real protocols.

use std::time::Duration;

use io::{Disk, Mac};

use super::*;
use crate::load::{self, Load, Pattern, Worker};
use crate::world::{Core, CpuCosts};

const MIB: u64 = 1 << 20;

/// A disk that answers at once: the links alone decide.
fn instant() -> Rc<dyn Disk> {
    Rc::new(io::MemDisk::new(64 * MIB))
}

/// KiB/s of a stream, and the share of the server's core.
fn stream(spec: Spec, writes: bool, costs: CpuCosts) -> (f64, f64) {
    let world = World::new();
    let client = world.core(CpuCosts::default());
    world.set_costs(Core::FIRST, costs);
    let inner = world.clone();
    let ran = world.run_once(async move {
        let cores = (Core::FIRST, client);
        let reached = reach(&inner, cores, instant(), spec).await.expect("a wire that works");
        let pattern = Pattern::Sequential { start: 0, bytes: 64 * MIB };
        let worker = Worker { pattern, writes, bytes: 128 << 10, depth: 8 };
        let (warm_up, window) = (Duration::from_millis(50), Duration::from_millis(200));
        let load = Load { workers: vec![worker], warm_up, window, seed: 1 };
        let before = inner.busy_ns(Core::FIRST);
        let seen = load::run(&inner, client, &reached.disk, &load).await;
        let busy = (inner.busy_ns(Core::FIRST) - before) as f64 / 250e6;
        (seen.kib_per_second(), busy)
    });
    ran.expect("no stall")
}

fn gigabit(links: usize, mtu: u32) -> Spec {
    let protocol = Protocol::Aoe { volatile: true };
    Spec { protocol, links, megabits: 1000, mtu, delay_ns: 5_000 }
}

#[test]
fn ports_keep_the_contract() {
    let world = World::new();
    let addresses = [1, 2].map(|end| Mac([2, 0, 0, 0, 0, end]));
    let [a, b] = Port::pair(&world, (1000, 5_000), 1500, addresses);
    world.run(async move { io::contract::link(&*a, &*b).await }).unwrap();
}

/// Facts of the lab, 2: KiB/s of payload on a link of 1 Gb/s.
#[test]
fn aoe_fills_its_links() {
    for (mtu, kib) in [(1500, 115_314.0), (4200, 120_308.0), (9000, 121_183.0)] {
        for (links, writes) in [(1, false), (1, true), (2, false), (2, true)] {
            let (rate, _) = stream(gigabit(links, mtu), writes, CpuCosts::default());
            let error = rate / (kib * links as f64) - 1.0;
            assert!(error.abs() < 0.01, "MTU {mtu}, {links} links, {writes}: {rate:.0}");
        }
    }
}

#[test]
fn frames_keep_the_servers_core_busy() {
    // A frame in and a frame out of each KiB: at 10 µs a frame the core does 50,000 KiB/s.
    let costs = CpuCosts { frame_ns: 10_000, ..CpuCosts::default() };
    let (rate, busy) = stream(gigabit(2, 1500), false, costs);
    assert!((45_000.0..50_001.0).contains(&rate), "{rate}");
    assert!(busy > 0.98, "{busy}");
}

/// A packet of 1,448 bytes takes 1,538 of the wire; requests and replies are small.
#[test]
fn nbd_fills_its_link() {
    for writes in [false, true] {
        let spec = Spec { protocol: Protocol::Nbd, ..gigabit(1, 1500) };
        let (rate, _) = stream(spec, writes, CpuCosts::default());
        let most = 125e6 * 1448.0 / 1538.0 / 1024.0;
        assert!((0.98..=1.01).contains(&(rate / most)), "{rate} of {most}");
        let two = Spec { links: 2, ..spec };
        let (rate, _) = stream(two, writes, CpuCosts::default());
        assert!((1.95..=2.01).contains(&(rate / most)), "{rate} of {most}");
    }
}
