//! Modelled disks in real time, with a clock that moves when the test says so.

use std::future::Future;
use std::task::Waker;

use io::contract::{HandClock, MIN_BYTES};
use io::{MemDisk, Pool, TaskSet};

use super::*;
use crate::disk::catalogue::Catalogue;
use crate::member::Member;
use crate::member::tests::Constant;
use crate::world::{Core, World};

fn catalogued(name: &str) -> Built {
    Catalogue::get().entry(name).expect("a catalogued disk").build()
}

/// A disk that answers each request 1 ms after the one before.
fn constant() -> Built {
    Built { model: Constant::boxed(1_000_000), rotational: true, volatile: false }
}

/// Tasks, and a clock that leaps when all of them wait.
#[derive(Default)]
struct Room {
    clock: Rc<HandClock>,
    tasks: Rc<TaskSet>,
}

impl Room {
    fn disk(&self, built: Built, store: impl Disk + 'static) -> Rc<RealTimeDisk> {
        let disk = RealTimeDisk::new(built, Rc::new(store), Rc::clone(&self.clock) as _);
        self.tasks.spawn(disk.run());
        Rc::new(disk)
    }

    fn poll(&self) -> bool {
        self.tasks.poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Runs until the task ends; each sleep ends `late` after its time.
    fn run(&self, late: Nanos, task: impl Future<Output = ()> + 'static) {
        let over = Rc::new(Cell::new(false));
        let ended = Rc::clone(&over);
        self.tasks.spawn(async move {
            task.await;
            ended.set(true);
        });
        while !self.poll() && !over.get() {
            let next = self.clock.next().expect("somebody sleeps");
            self.clock.move_to(Time(next.0 + late));
        }
        assert!(over.get());
    }
}

#[test]
fn disks_keep_the_contract() {
    for name in ["hd501lj", "cheetah-15k5", "870evo-1t", "pm9a3-1t9"] {
        let room = Room::default();
        let disk = room.disk(catalogued(name), MemDisk::new(MIN_BYTES));
        room.run(50_000, async move { io::contract::check(disk, &Pool::new(1 << 20)).await });
    }
}

#[test]
fn the_model_decides_but_not_beyond_the_store() {
    let room = Room::default();
    let limits = |built| room.disk(built, MemDisk::new(MIN_BYTES)).limits();
    let (hdd, flash) = (limits(catalogued("hd501lj")), limits(catalogued("pm9a3-1t9")));
    assert_eq!((hdd.bytes, hdd.rotational, hdd.volatile), (MIN_BYTES, true, true));
    assert_eq!((flash.bytes, flash.rotational, flash.volatile), (MIN_BYTES, false, false));
    let model = constant();
    let bytes = model.model.sectors() * SECTOR;
    assert_eq!(room.disk(model, MemDisk::new(bytes + (1 << 20))).limits().bytes, bytes);
}

/// A worker with one request in flight: when each was answered.
async fn work(disk: Rc<dyn Disk>, clock: Rc<dyn Clock>, mut seed: u64) -> Vec<Time> {
    let pool = Pool::new(1 << 20);
    let mut answered = Vec::new();
    for _ in 0..200 {
        let sector = random::next(&mut seed) % (disk.limits().bytes / SECTOR - 128);
        let bytes = [512, 4096, 65536][(random::next(&mut seed) % 3) as usize];
        let op = match random::next(&mut seed) % 8 {
            0..4 => Op::read(sector * SECTOR, pool.take(bytes)),
            4..7 => Op::write(sector * SECTOR, pool.take_zeroed(bytes).freeze()),
            _ => Op::flush(),
        };
        disk.submit(op).await.result.expect("it answers");
        answered.push(clock.now());
    }
    answered
}

type Answered = Rc<RefCell<BTreeMap<u64, Vec<Time>>>>;

fn workers(
    disk: &Rc<dyn Disk>,
    clock: &Rc<dyn Clock>,
    spawn: &dyn Fn(Pin<Box<dyn Future<Output = ()>>>),
) -> Answered {
    let all = Answered::default();
    for seed in 1..=4 {
        let (disk, clock, all) = (Rc::clone(disk), Rc::clone(clock), Rc::clone(&all));
        spawn(Box::pin(async move {
            let answered = work(disk, clock, seed).await;
            all.borrow_mut().insert(seed, answered);
        }));
    }
    all
}

/// Four workers see the same moments in virtual time, and in real time by a clock that is exact.
#[test]
fn real_and_virtual_time_agree_to_the_nanosecond() {
    for name in ["hd501lj", "cheetah-15k5", "870evo-1t"] {
        let world = World::new();
        // Of the same size, as random addresses depend on it.
        let bytes = Member::built(&world, catalogued(name)).limits().bytes;
        let disk: Rc<dyn Disk> = Member::built(&world, catalogued(name));
        let virtually = workers(&disk, &world.dyn_clock(), &|task| world.spawn(Core::FIRST, task));
        let (all, clock) = (Rc::clone(&virtually), world.dyn_clock());
        let end = async move {
            while all.borrow().len() < 4 {
                clock.sleep_until(Time(clock.now().0 + 1_000_000_000)).await;
            }
        };
        world.run(end).unwrap_or_else(|stall| panic!("{stall}"));

        let room = Room::default();
        let disk: Rc<dyn Disk> = room.disk(catalogued(name), Nothing(Limits::plain(bytes)));
        let clock: Rc<dyn Clock> = Rc::clone(&room.clock) as _;
        let really = workers(&disk, &clock, &|task| room.tasks.spawn(task));
        while really.borrow().len() < 4 {
            room.poll();
            room.clock.move_to(room.clock.next().unwrap_or_default());
        }
        assert_eq!(*virtually.borrow(), *really.borrow(), "{name}");
    }
}

/// A disk of any size without data.
struct Nothing(Limits);

impl Disk for Nothing {
    fn submit(&self, op: Op) -> Completion<Done> {
        Completion::ready(Done::ok(op.work))
    }

    fn limits(&self) -> Limits {
        self.0
    }
}

/// A store that answers when the test says so.
#[derive(Clone, Default)]
struct Slow {
    held: Rc<RefCell<Vec<(Ticket, Op)>>>,
    completions: Completions<Done>,
}

impl Slow {
    fn answer(&self) {
        for (ticket, op) in self.held.take() {
            self.completions.finish(ticket, Done::ok(op.work));
        }
    }
}

impl Disk for Slow {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.completions.start();
        self.held.borrow_mut().push((ticket, op));
        completion
    }

    fn limits(&self) -> Limits {
        Limits::plain(MIN_BYTES)
    }
}

#[test]
fn an_answer_waits_for_the_model_and_for_the_data() {
    let (room, store) = (Room::default(), Slow::default());
    let disk = room.disk(constant(), store.clone());
    let seen = Rc::new(RefCell::new(Vec::new()));
    for number in 0..3 {
        let (disk, seen) = (Rc::clone(&disk), Rc::clone(&seen));
        room.tasks.spawn(async move {
            let read = Op::read(number * 4096, Pool::new(0).take(4096));
            disk.submit(read).await.result.expect("it answers");
            seen.borrow_mut().push(number);
        });
    }
    room.poll();
    store.answer();
    room.poll();
    assert!(seen.borrow().is_empty(), "the model has not answered");
    room.clock.move_to(Time(999_999));
    room.poll();
    assert!(seen.borrow().is_empty(), "the model has not answered");
    room.clock.move_to(Time(1_000_000));
    room.poll();
    assert_eq!(*seen.borrow(), [0]);
    // A late driver gives two answers at once, in their order.
    room.clock.move_to(Time(3_500_000));
    room.poll();
    assert_eq!(*seen.borrow(), [0, 1, 2]);

    let late = Rc::clone(&disk);
    room.tasks.spawn(async move {
        late.submit(Op::flush()).await.result.expect("it answers");
    });
    room.poll();
    room.clock.move_to(Time(9_000_000));
    room.poll();
    assert_eq!(store.held.borrow().len(), 1, "the flush reaches the store");
    assert_eq!(room.tasks.len(), 2, "the task waits, and the disk's own");
    store.answer();
    room.poll();
    assert_eq!(room.tasks.len(), 1, "the task has its answer");
    drop(disk);
    assert!(room.poll(), "a dropped disk ends its driver");
}
