//! The real engine on modelled disks in virtual time. With `--nocapture` the figures are
//! printed.

use std::rc::Rc;
use std::time::Duration;

use array::Host;
use io::{Disk, Pool};
use lab::disk::catalogue::Catalogue;
use lab::load::{self, Load, Pattern, Seen, Worker};
use lab::member::Member;
use lab::rig;
use lab::world::{Core, CpuCosts, World};
use layout::{Layout, Level};
use metadata::Bounds;
use metadata::create::NewArray;

const DISKS: usize = 4;
const CHUNK: u64 = 64 << 10;
/// Outer rate of the disk.
const DISK_MB_S: f64 = 86.8;

/// Runs a load on an array of four HD501LJ without checksums.
fn run(level: Level, costs: CpuCosts, workers: Vec<Worker>) -> (Seen, World, Vec<Rc<Member>>) {
    run_on((level, DISKS, CHUNK), costs, Bounds::default(), workers)
}

fn run_on(
    (level, number, chunk): (Level, usize, u64),
    costs: CpuCosts,
    bounds: Bounds,
    workers: Vec<Worker>,
) -> (Seen, World, Vec<Rc<Member>>) {
    let world = World::new();
    world.set_costs(Core::FIRST, costs);
    let entry = Catalogue::get().entry("hd501lj").expect("a catalogued disk");
    let members: Vec<_> = (0..number).map(|_| Member::built(&world, entry.build())).collect();
    let disks: Vec<_> = members.iter().map(|member| Rc::clone(member) as Rc<dyn Disk>).collect();
    let (warm_up, window) = (Duration::from_secs(1), Duration::from_secs(8));
    let load = Load { workers, warm_up, window, seed: 3 };
    let inner = world.clone();
    let seen = world.run(async move {
        let layout = Layout::default_for(level, number);
        let new = NewArray { checksums: Some(false), ..NewArray::new("lab", layout, chunk) };
        let host = Host { bounds, ..Host::new(inner.dyn_clock()) };
        let array = rig::start(&inner, Core::FIRST, &disks, &new, &host).await.expect("an array");
        let disk: Rc<dyn Disk> = Rc::new(array);
        load::run(&inner, Core::FIRST, &disk, &load).await
    });
    (seen.unwrap_or_else(|stall| panic!("{stall}")), world, members)
}

/// 1 MiB at a time from the start of the array.
fn stream(writes: bool) -> Worker {
    let pattern = Pattern::Sequential { start: 0, bytes: 4 << 30 };
    Worker { pattern, writes, bytes: 1 << 20, depth: 8 }
}

/// In rates of one disk.
fn disks_worth(seen: &Seen) -> f64 {
    seen.kib_per_second() * 1024.0 / 1e6 / DISK_MB_S
}

/// RAID 5 passes over its parity: all but one disk's rate. One stream from a mirror reads one copy
/// of each chunk. Four requests at a disk, of which one is served, leave three to choose from.
#[test]
fn streams_get_the_data_disks_and_random_reads_all_of_them() {
    for (level, disks) in [(Level::Raid0, 4.0), (Level::Raid5, 3.0), (Level::Raid10, 2.0)] {
        let (seen, ..) = run(level, CpuCosts::default(), vec![stream(false)]);
        let streamed = disks_worth(&seen);
        let pattern = Pattern::Random { bytes: (460 << 30) * disks as u64 };
        let worker = Worker { pattern, writes: false, bytes: 4096, depth: 1 };
        let (seen, _, members) = run(level, CpuCosts::default(), vec![worker; 16]);
        let (random, asked) = (seen.requests_per_second(), seen.latencies.len() as f64);
        let reads: u64 = members.iter().map(|member| member.counts().reads).sum();
        println!("{level:?}: a stream gets {streamed:.2} disks; {random:.0} random reads/s");
        assert!((streamed / disks - 1.0).abs() < 0.05, "{level:?}: {streamed:.2} disks");
        assert!((380.0..440.0).contains(&random), "{level:?}: {random:.0}");
        // No disk is slow here: hedges, which read a row again, are rare. The warm-up reads too,
        // and so do creation and assembly.
        let most = asked * 9.0 / 8.0 + 100.0 * DISKS as f64;
        assert!((reads as f64) < most, "{level:?}: {reads} reads for {asked}");
    }
}

/// Requests of 1 MiB end inside stripes of 192 KiB. The log would put a flush between two parts of
/// a stripe.
#[test]
fn a_written_stream_consists_of_whole_stripes() {
    let (seen, _, members) = run(Level::Raid5, CpuCosts::default(), vec![stream(true)]);
    let (streamed, asked) = (disks_worth(&seen), seen.latencies.len() as u64);
    let reads: u64 = members.iter().map(|member| member.counts().reads).sum();
    println!("a stream is written at {streamed:.2} disks; {reads} reads for {asked} writes");
    assert!(streamed > 1.5, "{streamed:.2} disks");
    assert!(reads < asked / 2, "{reads} reads for {asked} writes");
}

/// Ten disks and the chunks of a new array: a stripe is 4.5 times as large as a unit.
#[test]
fn a_stream_is_written_in_whole_stripes_of_wide_arrays() {
    let (shape, bounds) = ((Level::Raid5, 10, 512 << 10), Bounds::default());
    let (seen, _, members) = run_on(shape, CpuCosts::default(), bounds, vec![stream(true)]);
    let (streamed, asked) = (disks_worth(&seen), seen.latencies.len() as u64);
    let reads: u64 = members.iter().map(|member| member.counts().reads).sum();
    println!("a stream is written at {streamed:.2} disks; {reads} reads for {asked} writes");
    assert!(streamed > 2.5, "{streamed:.2} disks");
    assert!(reads < asked / 2, "{reads} reads for {asked} writes");
}

/// 2 TB of members: what is kept are superblocks, bitmap and log.
#[test]
fn zeros_take_no_memory() {
    let (_, _, members) = run(Level::Raid5, CpuCosts::default(), vec![stream(true)]);
    let written: u64 = members.iter().map(|member| member.counts().written_bytes).sum();
    let kept: u64 = members.iter().map(|member| member.kept_bytes()).sum();
    println!("{} MiB written to the members, {} KiB kept", written >> 20, kept >> 10);
    assert!(written > 1 << 30, "{written}");
    assert!(kept < 64 << 20, "{kept} bytes are kept");
}

/// The core is busy while it copies and plans: it can be the bottleneck, and says so.
#[test]
fn a_slow_core_limits_a_stream() {
    let (fast, world, _) = run(Level::Raid0, CpuCosts::default(), vec![stream(false)]);
    assert_eq!(world.busy_ns(Core::FIRST), 0);
    // 5 ms for a request of 1 MiB: 210 MB/s.
    let costs = CpuCosts { request_ns: 5_000_000, ..CpuCosts::default() };
    // Pieces that are read ahead are requests of the core, too: without them, for a known number.
    let bounds = Bounds { ahead_bytes: 0, ahead_rotating_bytes: 0, ..Bounds::default() };
    let (limited, world, _) =
        run_on((Level::Raid0, DISKS, CHUNK), costs, bounds, vec![stream(false)]);
    let busy = world.busy_ns(Core::FIRST) as f64 / 1e9;
    let (fast, limited) = (disks_worth(&fast), disks_worth(&limited));
    println!("free core {fast:.2} disks, slow core {limited:.2}, busy {busy:.1} of 9 s");
    assert!((limited * DISK_MB_S / 209.7 - 1.0).abs() < 0.05, "{limited:.2}");
    assert!(busy > 8.5, "{busy}");
}

#[test]
fn members_keep_the_contract_of_disks() {
    for name in ["hd501lj", "cheetah-15k5", "870evo-1t", "pm9a3-1t9"] {
        let world = World::new();
        let entry = Catalogue::get().entry(name).expect("a catalogued disk");
        let disk: Rc<dyn Disk> = Member::built(&world, entry.build());
        let check = async move { io::contract::check(disk, &Pool::new(1 << 20)).await };
        world.run(check).unwrap_or_else(|stall| panic!("{name}: {stall}"));
    }
}
