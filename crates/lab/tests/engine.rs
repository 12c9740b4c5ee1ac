//! The real engine on four modelled disks in virtual time. With `--nocapture` the figures are
//! printed.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use array::{Array, Host};
use io::{Clock, Disk, Op, Pool};
use lab::disk::catalogue::Catalogue;
use lab::member::Member;
use lab::world::{Costs, Stall, World};
use layout::{Layout, Level};
use metadata::assemble::{Candidate, Options, assemble};
use metadata::create::{NewArray, create};
use sim::rng::Rng;

const CHUNK: u64 = 64 << 10;

/// A running array and its members.
struct Stand {
    world: Rc<World>,
    array: Array,
    members: Vec<Rc<Member>>,
}

impl Stand {
    /// An array of four disks HD501LJ: created, assembled from its superblocks, started.
    fn new(level: Level, checksums: bool, costs: Costs) -> Stand {
        let count = 4;
        let world = World::new(costs);
        let entry = Catalogue::get().entry("hd501lj").expect("a catalogued disk");
        let members: Vec<Rc<Member>> = (0..count)
            .map(|number| world.add_built(&format!("d{number}"), entry.build()))
            .collect();
        let candidate = |m: &Rc<Member>| Candidate::new(Rc::clone(m) as Rc<dyn Disk>, &m.name);
        let candidates: Vec<Candidate> = members.iter().map(candidate).collect();
        let again: Vec<Candidate> = members.iter().map(candidate).collect();
        let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
        let array = world.run(async move {
            let rng = RefCell::new(Rng::stream(1, "array", 0));
            let random: metadata::commit::Random = Rc::new(move |bytes: &mut [u8]| {
                bytes.iter_mut().for_each(|byte| *byte = rng.borrow_mut().bits() as u8);
            });
            let layout = Layout::default_for(level, count);
            // The disks hold zeros: parity and copies are in sync.
            let checksums = Some(checksums);
            let new = NewArray { zeroed: true, checksums, ..NewArray::new("lab", layout, CHUNK) };
            create(&new, candidates, &clock, &*random).await.expect("create");
            let assembly = assemble(again, &Options::default(), Rc::clone(&clock), random).await;
            Array::start(assembly.expect("assemble"), &Host::new(clock))
        });
        let array = array.unwrap_or_else(|stall| panic!("{stall}"));
        world.spawn(array.run());
        Stand { world, array, members }
    }

    /// Reads `count` times `len` bytes at the offsets given, `depth` at a time; per second.
    fn read(
        &self,
        depth: u64,
        count: u64,
        len: usize,
        offset: impl Fn(u64) -> u64 + 'static,
    ) -> f64 {
        let next = Rc::new(Cell::new(0));
        let pool = Pool::new(64 << 20);
        let offset = Rc::new(offset);
        let readers: Vec<_> = (0..depth)
            .map(|_| {
                let (array, next, pool) = (self.array.clone(), Rc::clone(&next), pool.clone());
                let offset = Rc::clone(&offset);
                async move {
                    loop {
                        let number = next.replace(next.get() + 1);
                        if number >= count {
                            return;
                        }
                        let done = array.submit(Op::read(offset(number), pool.take(len))).await;
                        done.result.expect("a read");
                    }
                }
            })
            .collect();
        let start = self.world.clock.now();
        let done = Rc::new(io::Signal::new());
        let left = Rc::new(Cell::new(depth));
        for reader in readers {
            let (done, left) = (Rc::clone(&done), Rc::clone(&left));
            self.world.spawn(async move {
                reader.await;
                left.set(left.get() - 1);
                if left.get() == 0 {
                    done.raise();
                }
            });
        }
        let ended: Result<(), Stall> = self.world.run(async move { done.wait().await });
        ended.unwrap_or_else(|stall| panic!("{stall}"));
        count as f64 * 1e9 / (self.world.clock.now() - start).as_nanos() as f64
    }

    /// A stream of 1 MiB reads, 8 at a time; in rates of one disk.
    fn stream(&self) -> f64 {
        self.read(8, 1000, 1 << 20, |number| number << 20) * 1.048_576 / DISK_MB_S
    }

    /// Random reads of 4 KiB, 16 at a time.
    fn random(&self) -> f64 {
        let blocks = self.array.limits().bytes / 4096;
        let offset = move |number| Rng::stream(3, "offset", number).below(blocks) * 4096;
        self.read(16, 4000, 4096, offset)
    }

    fn member_reads(&self) -> u64 {
        self.members.iter().map(|member| member.counts().reads).sum()
    }
}

/// Outer rate of the disk.
const DISK_MB_S: f64 = 86.8;

/// RAID 5 passes over its parity: all but one disk's rate. One stream from a mirror reads one copy
/// of each chunk. Four requests at a disk, of which one is served, leave three to choose from.
#[test]
fn streams_get_the_data_disks_and_random_reads_all_of_them() {
    for (level, disks) in [(Level::Raid0, 4.0), (Level::Raid5, 3.0), (Level::Raid10, 2.0)] {
        let stand = Stand::new(level, false, Costs::default());
        let streamed = stand.stream();
        let before = stand.member_reads();
        let random = stand.random();
        let reads = stand.member_reads() - before;
        println!("{level:?}: a stream gets {streamed:.2} disks; {random:.0} random reads/s");
        assert!((streamed / disks - 1.0).abs() < 0.05, "{level:?}: {streamed:.2} disks");
        assert!((380.0..440.0).contains(&random), "{level:?}: {random:.0}");
        // No disk is slow here: hedges, which read a row again, are rare.
        assert!((4000..4100).contains(&reads), "{level:?}: {reads} reads at the members");
    }
}

/// 2 TB of members, 1 GiB written: what is kept are superblocks, bitmap and log.
#[test]
fn zeros_take_no_memory() {
    let stand = Stand::new(Level::Raid5, false, Costs::default());
    let (array, pool) = (stand.array.clone(), Pool::new(64 << 20));
    let wrote = stand.world.run(async move {
        for number in 0..1024 {
            let zeros = pool.take_zeroed(1 << 20).freeze();
            array.submit(Op::write(number << 20, zeros)).await.result.expect("a write");
        }
        array.submit(Op::flush()).await.result.expect("a flush");
    });
    wrote.unwrap_or_else(|stall| panic!("{stall}"));
    let written: u64 = stand.members.iter().map(|member| member.counts().written_bytes).sum();
    let stored: u64 = stand.members.iter().map(|member| member.stored()).sum();
    println!("{} MiB written to the members, {} KiB kept", written >> 20, stored >> 10);
    assert!(written > (4 << 30) / 3, "data and parity");
    assert!(stored < 64 << 20, "{stored} bytes are kept");
}

/// The core is busy while it copies and plans: it can be the bottleneck, and says so.
#[test]
fn a_slow_core_limits_a_stream() {
    let free = Stand::new(Level::Raid0, false, Costs::default());
    assert_eq!(free.world.clock.busy().as_nanos(), 0);
    // 5 ms for a request of 1 MiB: 210 MB/s.
    let slow = Stand::new(Level::Raid0, false, Costs { request: 5_000_000, ..Costs::default() });
    let start = slow.world.clock.now();
    let (fast, limited) = (free.stream(), slow.stream());
    let share =
        slow.world.clock.busy().as_secs_f64() / (slow.world.clock.now() - start).as_secs_f64();
    println!("free core {fast:.2} disks, slow core {limited:.2}, busy {:.0} %", share * 100.0);
    assert!((limited * DISK_MB_S / 209.7 - 1.0).abs() < 0.05, "{limited:.2}");
    assert!(share > 0.95, "{share:.2}");
}

/// Equal worlds have equal histories.
#[test]
fn the_same_experiment_gives_the_same_nanosecond() {
    let run = || {
        let stand = Stand::new(Level::Raid5, true, Costs { request: 3000, ..Costs::default() });
        stand.random();
        (stand.world.clock.now(), stand.member_reads())
    };
    assert_eq!(run(), run());
}

#[test]
fn members_keep_the_contract_of_disks() {
    for name in ["hd501lj", "cheetah-15k5", "870evo-1t", "pm9a3-1t9"] {
        let world = World::new(Costs::default());
        let entry = Catalogue::get().entry(name).expect("a catalogued disk");
        let disk: Rc<dyn Disk> = world.add_built(name, entry.build());
        let check = async move { io::contract::check(disk, &Pool::new(1 << 20)).await };
        world.run(check).unwrap_or_else(|stall| panic!("{name}: {stall}"));
    }
}
