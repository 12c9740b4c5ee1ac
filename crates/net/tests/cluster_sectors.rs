//! Fragments that are smaller than physical sectors: lives that end with power cuts, which may come
//! in the replay, too.
//!
//! After a flush was answered, all that was complete before it is there. Each 512 bytes are old or
//! new. A sector is garbage only if it was torn, and all of it was being written.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

#[path = "sectors/medium.rs"]
mod medium;

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use cluster::session::Journaled;
use cluster::wire;
use io::broken::{self, Broken};
use io::tasks::complete;
use io::{Completion, Disk, Done, Limits, MemDisk, Op, Part, Pool, TaskSet, contract};
use medium::{Medium, SECTOR, unit};
use net::cluster::{Spawn, sectors};
use random::Rng;

/// Units of a sector.
const UNITS: usize = SECTOR / 512;
/// Room for an entry of three sectors, or of seven.
const JOURNALS: [usize; 2] = [5 * SECTOR, 9 * SECTOR];
/// Units of the data: the last sector is cut off, where logical blocks permit it.
const DATA: usize = 6 * UNITS;
const TAIL: usize = 3;
const SEEDS: u64 = 2000;
const LIVES: usize = 6;
const STEPS: u64 = 120;

fn spawn(tasks: &Rc<TaskSet>) -> Spawn {
    let tasks = Rc::downgrade(tasks);
    Rc::new(move |task| {
        if let Some(tasks) = tasks.upgrade() {
            tasks.spawn(task);
        }
    })
}

fn parts(disk: &Rc<dyn Disk>, journal: u64) -> (Part, Part) {
    let part = |range| Part::new(Rc::clone(disk), range).unwrap();
    (part(0..journal), part(journal..disk.limits().bytes))
}

/// The numbers that 512 bytes had, in order.
struct History {
    numbers: Vec<u64>,
    /// The oldest that a power cut may leave.
    floor: usize,
    /// The newest of which the write is complete.
    complete: usize,
}

impl History {
    fn of(number: u64) -> History {
        History { numbers: vec![number], floor: 0, complete: 0 }
    }

    /// True if a write is in flight.
    fn is_written(&self) -> bool {
        self.complete + 1 < self.numbers.len()
    }
}

/// A request in flight, and what was complete before it.
struct Asked {
    answer: Completion<Done>,
    units: Range<usize>,
    before: Vec<usize>,
}

struct World {
    rng: Rng,
    medium: Rc<Medium>,
    journal: usize,
    tears: bool,
    tasks: Rc<TaskSet>,
    disk: Rc<dyn Disk>,
    units: Vec<History>,
    asked: Vec<Asked>,
    next: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::stream(seed, "sectors", 0);
        let (tears, logical) = (rng.percent(50), [512, 4096][rng.below(2) as usize]);
        let journal = JOURNALS[rng.below(2) as usize];
        let units = DATA + if logical == 512 { TAIL } else { 0 };
        let medium = Rc::new(Medium::new(journal + units * 512, logical));
        let units = (0..units).map(|_| History::of(0)).collect();
        let (disk, tasks) = (Rc::clone(&medium) as Rc<dyn Disk>, Rc::default());
        World { rng, medium, journal, tears, tasks, disk, units, asked: Vec::new(), next: 1 }
    }

    fn cut(&mut self) {
        self.tasks.clear();
        self.asked.clear();
        self.medium.cut(&mut self.rng, self.tears);
    }

    /// Starts, in spite of power cuts.
    fn start(&mut self) {
        let whole = Rc::clone(&self.medium) as Rc<dyn Disk>;
        let opened = loop {
            let (place, tasks) = (Rc::new(RefCell::new(None)), Rc::new(TaskSet::new()));
            let open = sectors::open(parts(&whole, self.journal as u64), 512, spawn(&tasks));
            let opened = Rc::clone(&place);
            tasks.spawn(async move { *opened.borrow_mut() = Some(open.await) });
            self.tasks = tasks;
            while !self.medium.is_idle() || place.borrow().is_none() {
                complete(self.tasks.run());
                if place.borrow().is_some() {
                    break;
                }
                if self.rng.percent(4) {
                    break;
                }
                self.medium.step(&mut self.rng);
            }
            if let Some(opened) = place.take() {
                break opened;
            }
            self.cut();
        };
        self.disk = opened.expect("the journal is sound");
    }

    /// One step of the disk, or else nothing is left to do.
    fn advance(&mut self) -> bool {
        complete(self.tasks.run());
        let steps = !self.medium.is_idle();
        if steps {
            self.medium.step(&mut self.rng);
            complete(self.tasks.run());
        }
        self.answered();
        steps
    }

    /// Looks at the answers.
    fn answered(&mut self) {
        for mut asked in std::mem::take(&mut self.asked) {
            let Some(done) = asked.answer.take_ready() else {
                self.asked.push(asked);
                continue;
            };
            done.result.clone().unwrap();
            let units = asked.units.clone();
            match &done.work {
                io::Work::Read(bufs) => {
                    for ((at, unit), low) in units.zip(bufs[0].chunks(512)).zip(asked.before) {
                        let number = number(unit);
                        let allowed = &self.units[at].numbers[low..];
                        assert!(allowed.contains(&number), "read {at}: {number}, not {allowed:?}");
                    }
                }
                io::Work::Write(_) => units.for_each(|at| self.units[at].complete += 1),
                _ => {
                    for (at, low) in units.zip(asked.before) {
                        self.units[at].floor = self.units[at].floor.max(low);
                    }
                }
            }
        }
    }

    fn ask(&mut self, op: Op, units: Range<usize>) {
        let before = self.units[units.clone()].iter().map(|unit| unit.complete).collect();
        let answer = self.disk.submit(op);
        self.asked.push(Asked { answer, units, before });
    }

    fn request(&mut self) {
        let pool = Pool::new(0);
        let most = if self.rng.percent(80) { UNITS as u64 } else { 3 * UNITS as u64 };
        let from = self.rng.below(self.units.len() as u64) as usize;
        let from = if self.rng.percent(30) { from / UNITS * UNITS } else { from };
        let count = (self.rng.within(1, most) as usize).min(self.units.len() - from);
        let range = from..from + count;
        match self.rng.below(10) {
            0..2 => self.ask(Op::flush(), 0..self.units.len()),
            2..4 => self.ask(Op::read(from as u64 * 512, pool.take(count * 512)), range),
            _ if self.units[range.clone()].iter().any(History::is_written) => {}
            _ => {
                let numbers: Vec<u64> = (self.next..).take(count).collect();
                self.next += count as u64;
                self.ask(Op::write(from as u64 * 512, unit(&pool, &numbers)), range.clone());
                for (unit, number) in self.units[range].iter_mut().zip(numbers) {
                    unit.numbers.push(number);
                }
            }
        }
    }

    /// All requests are answered.
    fn settle(&mut self) {
        while self.advance() || !self.asked.is_empty() {
            assert!(!self.medium.is_idle() || self.asked.is_empty(), "it comes to a stand");
        }
    }

    /// Compares everything after a power cut.
    fn check(&mut self) {
        let pool = Pool::new(0);
        let mut answer = self.disk.submit(Op::read(0, pool.take(self.units.len() * 512)));
        let found = loop {
            complete(self.tasks.run());
            match answer.take_ready() {
                Some(done) => break done.into_buf(),
                None => self.medium.step(&mut self.rng),
            }
        };
        for (sector, found) in found.chunks(SECTOR).enumerate() {
            let first = sector * UNITS;
            let units = &mut self.units[first..first + found.len() / 512];
            let written = |unit: &History| unit.floor + 1 < unit.numbers.len();
            let all = self.tears && units.iter().all(written);
            for ((at, unit), bytes) in (first..).zip(units).zip(found.chunks(512)) {
                let number = number(bytes);
                let garbage = all && number >> 63 == 1;
                let allowed = &unit.numbers[unit.floor..];
                assert!(garbage || allowed.contains(&number), "{at}: {number}, not {allowed:?}");
                *unit = History::of(number);
            }
        }
    }

    fn live(&mut self) {
        for _ in 0..self.rng.below(STEPS) {
            if self.asked.len() < 8 && self.rng.percent(40) {
                self.request();
            }
            self.advance();
        }
        if self.rng.percent(30) {
            self.settle();
        }
    }
}

/// The number of which 512 bytes consist.
fn number(unit: &[u8]) -> u64 {
    let first = u64::from_le_bytes(unit[..8].try_into().unwrap());
    assert!(unit.chunks(8).all(|part| part == first.to_le_bytes()), "512 bytes are torn");
    first
}

#[test]
fn power_cuts_change_nothing_that_was_flushed_and_no_bystander() {
    broken::choose(std::env::var("PARAPET_BROKEN").ok().and_then(|name| Broken::named(&name)));
    for seed in 0..SEEDS {
        let lives = std::panic::AssertUnwindSafe(|| {
            let mut world = World::new(seed);
            for _ in 0..LIVES {
                world.start();
                world.check();
                world.live();
                world.cut();
            }
        });
        if let Err(panic) = std::panic::catch_unwind(lives) {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// A disk of zeros with sectors of 4 KiB, and its tasks.
fn opened(logical_block: u32) -> (Rc<TaskSet>, Rc<Medium>, Rc<dyn Disk>) {
    let (tasks, medium) = (Rc::new(TaskSet::new()), Rc::new(Medium::new(64 << 10, logical_block)));
    let whole = Rc::clone(&medium) as Rc<dyn Disk>;
    let open = sectors::open(parts(&whole, JOURNALS[1] as u64), 2048, spawn(&tasks));
    let disk = driven(&tasks, &medium, open).unwrap();
    (tasks, medium, disk)
}

/// The value of a future, while the disk answers in order.
fn driven<T: 'static>(
    tasks: &Rc<TaskSet>,
    medium: &Medium,
    future: impl Future<Output = T> + 'static,
) -> T {
    let place = Rc::new(RefCell::new(None));
    let value = Rc::clone(&place);
    tasks.spawn(async move { *value.borrow_mut() = Some(future.await) });
    let mut rng = Rng::stream(0, "order", 0);
    complete(tasks.run());
    while place.borrow().is_none() {
        medium.step(&mut rng);
        complete(tasks.run());
    }
    place.take().unwrap()
}

#[test]
fn a_stream_of_fragments_fills_sectors_and_reads_nothing() {
    for logical in [512, 4096] {
        let (tasks, medium, disk) = opened(logical);
        let (pool, reads, flushes) = (Pool::new(0), medium.reads.get(), medium.flushes.get());
        for fragment in 0..8 {
            let op = Op::write(fragment * 2048, unit(&pool, &[fragment + 1; 4]));
            driven(&tasks, &medium, disk.submit(op)).result.unwrap();
        }
        driven(&tasks, &medium, disk.submit(Op::flush())).result.unwrap();
        assert_eq!((medium.reads.get() - reads, medium.flushes.get() - flushes), (0, 1));
        // The journal has never been used.
        let head = driven(&tasks, &medium, medium.submit(Op::read(0, pool.take(4096)))).into_buf();
        assert!(head.iter().all(|&byte| byte == 0));
    }
}

#[test]
fn after_a_failed_write_nothing_succeeds() {
    let (tasks, medium, disk) = opened(512);
    let fragment = || Op::write(2048, unit(&Pool::new(0), &[1; 4]));
    let succeeds = |op| driven(&tasks, &medium, disk.submit(op)).result.is_ok();
    assert!(succeeds(fragment()));
    medium.fails.set(true);
    assert!(!succeeds(Op::flush()));
    medium.fails.set(false);
    assert!(!succeeds(Op::flush()) && !succeeds(fragment()));
}

#[test]
fn pieces_that_fill_sectors_have_the_disk_itself() {
    let (tasks, disk) = (Rc::new(TaskSet::new()), Rc::new(MemDisk::new(1 << 20)));
    let whole = Rc::clone(&disk) as Rc<dyn Disk>;
    let limits = |piece| {
        let open = sectors::open(parts(&whole, 64 << 10), piece, spawn(&tasks));
        complete(open).unwrap().unwrap().limits()
    };
    assert!(limits(8192).discard && limits(4096).discard);
    assert!(!limits(2048).discard && !limits(6144).discard);
}

#[test]
fn the_contract_of_a_disk_is_kept() {
    for (logical_block, physical_block) in [(512, 4096), (4096, 4096), (512, 65536), (4096, 16384)]
    {
        let bytes = (12 << 20) + 4096;
        let limits = Limits { logical_block, physical_block, ..Limits::plain(bytes) };
        let below = Rc::new(MemDisk::with_limits(limits)) as Rc<dyn Disk>;
        let tasks = Rc::new(TaskSet::new());
        let open = sectors::open(parts(&below, 1 << 20), 512, spawn(&tasks));
        let disk = complete(open).unwrap().unwrap();
        assert_eq!(disk.limits().logical_block, 512);
        tasks.spawn(async move { contract::check(disk, &Pool::new(1 << 20)).await });
        complete(tasks.run()).expect("the checks come to an end");
    }
}

#[test]
fn a_damaged_journal_refuses_a_start_and_a_torn_one_is_nothing() {
    let start = |entry: &[u8]| {
        let disk =
            Rc::new(MemDisk::with_limits(Limits { logical_block: 4096, ..Limits::plain(1 << 20) }));
        disk.poke(0, entry);
        let (whole, tasks) = (Rc::clone(&disk) as Rc<dyn Disk>, Rc::new(TaskSet::new()));
        let opened = complete(sectors::open(parts(&whole, 64 << 10), 512, spawn(&tasks))).unwrap();
        let mut written = [0];
        disk.peek((64 << 10) + 8192, &mut written);
        opened.map(|_| written[0]).map_err(|error| error.to_string())
    };
    let entry = |at: u64, len| wire::encode(&Journaled { sectors: vec![(at, vec![7; len])] });
    assert_eq!(start(&entry(8192, 4096)), Ok(7));
    assert_eq!(start(&entry(8192, 4096)[..3000]), Ok(0), "torn");
    let mut torn = entry(8192, 4096);
    torn[4000] ^= 1;
    assert_eq!(start(&torn), Ok(0));
    let mut version = entry(8192, 4096);
    version[4] = 9;
    let mut long = entry(8192, 4096);
    long[8..12].copy_from_slice(&(1u32 << 20).to_le_bytes());
    let beyond = [entry(1 << 20, 4096), entry(u64::MAX - 4095, 4096), entry(512, 4096)];
    let other = wire::encode(&cluster::session::Ask::Describe);
    for damaged in beyond.iter().chain(&[version, long, other]) {
        let error = start(damaged).unwrap_err();
        assert!(error.contains("fragment journal"), "{error}");
    }
}
