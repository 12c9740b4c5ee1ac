//! Reference system R2 on the real engine: RAID 10 of four Cheetah 15K.5, each behind its part of a
//! controller's cache, 16 KiB random writes over 20 GiB. Prints the rate, and how long it took.
//!
//! `cargo run --release -p parapet-lab --example r2 [CACHE_MIB] [THREADS] [SECONDS]`

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use array::{Array, Host};
use io::{Clock, Disk, Op, Pool};
use lab::controller::{CacheSpec, Cached, Destage};
use lab::disk::catalogue::Catalogue;
use lab::disk::hdd::Hdd;
use lab::member::Member;
use lab::world::{Costs, World};
use layout::{Layout, Level};
use metadata::assemble::{Candidate, Options, assemble};
use metadata::create::{NewArray, create};
use sim::rng::Rng;

const DISKS: usize = 4;
const BLOCK: usize = 16 << 10;
const AREA: u64 = 20 << 30;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse::<u64>().unwrap_or(0));
    let mut argument = |default| arguments.next().filter(|&value| value > 0).unwrap_or(default);
    let (cache_mib, threads, seconds) = (argument(512), argument(16), argument(120));
    let began = Instant::now();
    let world = World::new(Costs::default());
    let members = members(&world, cache_mib);
    let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
    let started = world.run(start(members.clone(), clock));
    let array = started.unwrap_or_else(|stall| panic!("{stall}"));
    world.spawn(array.run());
    // The cache fills before anything is counted.
    let warm_up = Duration::from_secs(cache_mib.div_ceil(8));
    run(&world, &array, threads, warm_up, 1);
    let written = run(&world, &array, threads, Duration::from_secs(seconds), 2);
    println!(
        "{cache_mib} MiB, {threads} threads: {:.0} requests/s over {seconds} s (measured: 968); \
         {:.2} s on the wall, {} s of warm-up included",
        written as f64 / seconds as f64,
        began.elapsed().as_secs_f64(),
        warm_up.as_secs(),
    );
}

fn members(world: &World, cache_mib: u64) -> Vec<Rc<Member>> {
    let hdd = Catalogue::get().hdd("cheetah-15k5").expect("a catalogued disk");
    let cache = CacheSpec {
        sectors: cache_mib * 2048 / DISKS as u64,
        order: Destage::Elevator,
        depth: 1,
        most: 2048,
        acknowledge: 100_000,
    };
    let member = |number| {
        let disk = Cached::new(Hdd::new(hdd.spec()), cache);
        world.add(&format!("d{number}"), disk, (true, false))
    };
    (0..DISKS).map(member).collect()
}

async fn start(members: Vec<Rc<Member>>, clock: Rc<dyn Clock>) -> Array {
    let candidates = || {
        let candidate = |m: &Rc<Member>| Candidate::new(Rc::clone(m) as Rc<dyn Disk>, &m.name);
        members.iter().map(candidate).collect::<Vec<_>>()
    };
    let rng = RefCell::new(Rng::stream(1, "array", 0));
    let random: metadata::commit::Random = Rc::new(move |bytes: &mut [u8]| {
        bytes.iter_mut().for_each(|byte| *byte = rng.borrow_mut().bits() as u8);
    });
    let layout = Layout::default_for(Level::Raid10, DISKS);
    // A controller's battery does what a bitmap does.
    let new = NewArray { zeroed: true, bitmap: None, ..NewArray::new("r2", layout, 64 << 10) };
    create(&new, candidates(), &clock, &*random).await.expect("create");
    let assembly = assemble(candidates(), &Options::default(), Rc::clone(&clock), random).await;
    Array::start(assembly.expect("assemble"), &Host::new(clock))
}

/// Writes random blocks for a span of virtual time; how many.
fn run(world: &Rc<World>, array: &Array, threads: u64, span: Duration, seed: u64) -> u64 {
    let until = world.clock.now() + span;
    let (count, left) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(threads)));
    let (done, pool) = (Rc::new(io::Signal::new()), Pool::new(64 << 20));
    for thread in 0..threads {
        let (array, clock, pool) = (array.clone(), Rc::clone(&world.clock), pool.clone());
        let (count, left, done) = (Rc::clone(&count), Rc::clone(&left), Rc::clone(&done));
        world.spawn(async move {
            let mut rng = Rng::stream(seed, "thread", thread);
            while clock.now() < until {
                let offset = rng.below(AREA / BLOCK as u64) * BLOCK as u64;
                let zeros = pool.take_zeroed(BLOCK).freeze();
                array.submit(Op::write(offset, zeros)).await.result.expect("a write");
                count.set(count.get() + 1);
            }
            left.set(left.get() - 1);
            if left.get() == 0 {
                done.raise();
            }
        });
    }
    world.run(async move { done.wait().await }).unwrap_or_else(|stall| panic!("{stall}"));
    count.get()
}
