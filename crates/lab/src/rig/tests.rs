//! The engine on modelled disks.

use std::time::Duration;

use layout::{Layout, Raid5Layout};

use super::*;
use crate::load::{self, Load, Pattern, Seen, Worker};
use crate::member::Member;
use crate::member::tests::Constant;

/// Eight random readers or writers on an array of disks that need 100 µs for each request.
fn seen(layout: Layout, disks: usize, writes: bool) -> Seen {
    let world = World::new();
    let members: Vec<_> =
        (0..disks).map(|_| Member::new(&world, Constant::boxed(100_000)) as Rc<dyn Disk>).collect();
    let pattern = Pattern::Random { bytes: 256 << 20 };
    let worker = Worker { pattern, writes, bytes: 4096, depth: 1 };
    let (warm_up, window) = (Duration::from_millis(100), Duration::from_millis(500));
    let load = Load { workers: vec![worker; 8], warm_up, window, seed: 1 };
    let inner = world.clone();
    let ran = world.run(async move {
        let host = Host::new(inner.dyn_clock());
        let new = NewArray::new("tank", layout, 64 << 10);
        let array = start(&inner, Core::FIRST, &members, &new, &host).await.unwrap();
        let disk: Rc<dyn Disk> = Rc::new(array.clone());
        let seen = load::run(&inner, Core::FIRST, &disk, &load).await;
        array.stop().await.unwrap();
        assert!(inner.dyn_clock().now().0 > 600_000_000);
        seen
    });
    ran.unwrap()
}

#[test]
fn the_engine_runs_on_modelled_disks() {
    let layout = Layout::Raid5(Raid5Layout::LeftSymmetric);
    let reads = seen(layout, 4, false);
    // Four disks with 10,000 requests a second each, and eight readers.
    let rate = reads.requests_per_second();
    assert!((25_000.0..=40_000.0).contains(&rate), "{rate}");
    assert!(reads.percentile(0.5) >= Duration::from_micros(100));
    // Old data and parity are read, both are written, and so are logs.
    let writes = seen(layout, 4, true).requests_per_second();
    assert!((2_000.0..=10_000.0).contains(&writes), "{writes}");
}

#[test]
fn a_run_depends_on_its_seed_alone() {
    let layout = Layout::Raid10 { near: 2, far: 1, offset: false };
    let run = || seen(layout, 4, true).latencies;
    assert_eq!(run(), run());
}

#[test]
fn a_world_that_ran_once_is_freed() {
    let world = World::new();
    let member = || Member::new(&world, Constant::boxed(100_000));
    let members: [Rc<Member>; 2] = [member(), member()];
    let disks: Vec<_> = members.iter().map(|it| Rc::clone(it) as Rc<dyn Disk>).collect();
    let inner = world.clone();
    let ran = world.run_once(async move {
        let host = Host::new(inner.dyn_clock());
        let new = NewArray::new("tank", Layout::Raid1, 0);
        drop(start(&inner, Core::FIRST, &disks, &new, &host).await.unwrap());
    });
    ran.unwrap();
    drop(world);
    assert!(members.iter().all(|member| Rc::strong_count(member) == 1));
}
