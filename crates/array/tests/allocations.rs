//! Once warm, a request allocates nothing: read, full stripe, read-modify-write, degraded, nested.
//!
//! The client's side is counted too: it keeps its lists and buffers, as the NBD server does.

mod world;

use std::alloc::{GlobalAlloc, Layout as Memory, System};
use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use array::Array;
use io::{Buf, Clock, Disk, Op, SharedBuf, Work};
use layout::{Layout, Level, MemberId};
use metadata::assemble::{Candidate, Options, assemble};
use metadata::create::{NewArray, create};

use world::{World, random};

struct Counting;

thread_local! { static ALLOCATIONS: Cell<u64> = const { Cell::new(0) } }

// SAFETY: passes everything on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, memory: Memory) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: by the caller.
        unsafe { System.alloc(memory) }
    }

    unsafe fn dealloc(&self, address: *mut u8, memory: Memory) {
        // SAFETY: by the caller.
        unsafe { System.dealloc(address, memory) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `op`s on the array and returns the allocations of the later ones.
fn count(
    array: &Array,
    others: &[&Array],
    mut op: impl FnMut(u64, Work) -> Op,
    first: Work,
) -> u64 {
    let mut run = pin!(array.run());
    let mut rest: Vec<_> = others.iter().map(|array| Box::pin(array.run())).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut work = first;
    let mut before = 0;
    for round in 0..6000 {
        if round == 4000 {
            before = ALLOCATIONS.with(Cell::get);
        }
        let mut answer = array.submit(op(round, work));
        work = loop {
            if let Some(done) = answer.take_ready() {
                done.result.expect("the disks are sound");
                break done.work;
            }
            assert!(run.as_mut().poll(&mut cx).is_pending());
            for run in &mut rest {
                assert!(run.as_mut().poll(&mut cx).is_pending());
            }
        };
    }
    ALLOCATIONS.with(Cell::get) - before
}

/// The alignment of offsets: sectors without checksums, blocks with them.
const UNITS: [u64; 2] = [512, 4096];

fn reading(bytes: u64, range: u64, unit: u64) -> impl FnMut(u64, Work) -> Op {
    move |round, work| Op::new(round * 7919 * unit % (range - bytes) / unit * unit, work)
}

fn buffers(world: &World, len: usize) -> (Work, Work) {
    let read: Vec<Buf> = vec![world.pool.take(len)];
    let write: Vec<SharedBuf> = vec![world.pool.take(len).freeze()];
    (Work::Read(read), Work::Write(write))
}

fn started(level: Level, members: usize, checksums: bool) -> (World, Array) {
    let mut world = World::new(members, 8 << 20);
    // Disks in memory grow with the first writes: the log must have wrapped around.
    world.host.bounds.log_bytes = 256 << 10;
    let chunk = if level == Level::Raid1 { 0 } else { 16 << 10 };
    let layout = Layout::default_for(level, members);
    let checksums = Some(checksums && level != Level::Raid0);
    world.create(&NewArray { zeroed: true, checksums, ..NewArray::new("tank", layout, chunk) });
    let array = world.start();
    // Bitmap bits are durable from here on: time stands still, so they stay set.
    for at in (0..array.limits().bytes).step_by(64 << 10) {
        let len = (array.limits().bytes - at).min(64 << 10) as usize;
        world.write(&array, at, &vec![1; len]).expect("the array is healthy");
    }
    (world, array)
}

#[test]
fn healthy_requests_allocate_nothing() {
    let levels = [(Level::Raid0, 3), (Level::Raid1, 2), (Level::Raid5, 5), (Level::Raid6, 6)];
    // Partial blocks with checksums need memory for their other parts.
    for ((level, members), unit) in levels.into_iter().flat_map(|level| UNITS.map(|u| (level, u))) {
        let (world, array) = started(level, members, unit == 4096);
        let range = array.limits().bytes;
        let (read, write) = buffers(&world, 4096);
        assert_eq!(count(&array, &[], reading(4096, range, unit), read), 0, "{level}: read");
        assert_eq!(
            count(&array, &[], reading(4096, range, unit), write),
            0,
            "{level}: small write"
        );
        let stripe = array.geometry().stripe_bytes().max(32 << 10);
        let (read, write) = buffers(&world, stripe as usize);
        let at = |round: u64, work| Op::new(round % (range / stripe) * stripe, work);
        assert_eq!(count(&array, &[], at, read), 0, "{level}: read of a stripe");
        assert_eq!(count(&array, &[], at, write), 0, "{level}: full stripe");
    }
}

#[test]
fn degraded_requests_allocate_nothing() {
    let levels = [(Level::Raid1, 3), (Level::Raid5, 5), (Level::Raid6, 6)];
    for ((level, members), unit) in levels.into_iter().flat_map(|level| UNITS.map(|u| (level, u))) {
        let (world, array) = started(level, members, unit == 4096);
        world.run(&array, array.fail(MemberId(1))).expect("the level tolerates one loss");
        let range = array.limits().bytes;
        let (read, write) = buffers(&world, 8192);
        assert_eq!(
            count(&array, &[], reading(8192, range, unit), read),
            0,
            "{level}: degraded read"
        );
        assert_eq!(
            count(&array, &[], reading(8192, range, unit), write),
            0,
            "{level}: degraded write"
        );
    }
}

#[test]
fn nested_requests_allocate_nothing() {
    let (left_world, left) = started(Level::Raid5, 3, false);
    let (right_world, right) = started(Level::Raid5, 3, false);
    let mut world = World::new(0, 0);
    world.clock = Rc::clone(&left_world.clock);
    world.host.clock = Rc::clone(&left_world.clock) as Rc<dyn Clock>;
    let candidates = || {
        [(&left, "left"), (&right, "right")]
            .map(|(array, name)| Candidate::new(Rc::new(array.clone()) as _, name))
            .to_vec()
    };
    let layout = Layout::default_for(Level::Raid0, 2);
    let new =
        NewArray { zeroed: true, overwrite: true, ..NewArray::new("outer", layout, 16 << 10) };
    let both = async {
        let made = create(&new, candidates(), &(Rc::clone(&world.clock) as _), &random).await;
        made.expect("two arrays make a third");
        let clock = Rc::clone(&world.clock) as Rc<dyn Clock>;
        assemble(candidates(), &Options::default(), clock, Rc::new(random)).await
    };
    let assembly = run_all(&left_world, &[&left, &right], both).expect("the array assembles");
    let outer = Array::start(assembly, &world.host);
    let range = outer.limits().bytes;
    let (read, write) = buffers(&right_world, 4096);
    let others = [&left, &right];
    assert_eq!(count(&outer, &others, reading(4096, range, 512), read), 0, "nested read");
    assert_eq!(count(&outer, &others, reading(4096, range, 512), write), 0, "nested write");
}

/// Runs several arrays until the future completes.
fn run_all<T>(world: &World, arrays: &[&Array], future: impl Future<Output = T>) -> T {
    let (first, rest) = arrays.split_first().expect("one at least");
    let mut runs: Vec<_> = rest.iter().map(|array| Box::pin(array.run())).collect();
    let mut future = pin!(future);
    let all = std::future::poll_fn(|cx| {
        for run in &mut runs {
            assert!(run.as_mut().poll(cx).is_pending());
        }
        future.as_mut().poll(cx)
    });
    world.run(first, all)
}
