//! A small world for tests of the engine: disks in memory with faults, a clock that jumps to the
//! next timer, and arrays through real create and assemble bytes.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of the world")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use array::status::SlotState;
use array::{Array, Host};
use io::{
    Clock, Completion, Completions, Cost, Disk, Done, Error, ErrorKind, Limits, MemDisk, Op, Pool,
    Ticket, Time, Timers, Work,
};
use layout::md::{ByteMap, Superblock, Version};
use metadata::assemble::{Assembly, Candidate, Options, assemble};
use metadata::create::{NewArray, create, create_with_journal};

/// Time that stands still until everyone waits, then jumps.
pub struct JumpClock {
    now: Cell<u64>,
    timers: Timers,
}

impl JumpClock {
    pub fn new() -> Rc<JumpClock> {
        Rc::new(JumpClock { now: Cell::new(1), timers: Timers::new() })
    }
}

impl Clock for JumpClock {
    fn now(&self) -> Time {
        Time(self.now.get())
    }

    fn sleep_until(&self, at: Time) -> Completion<()> {
        self.timers.sleep_until(at)
    }

    fn unix_micros(&self) -> u64 {
        1_700_000_000_000_000 + self.now.get() / 1000
    }

    fn charge(&self, _: Cost, _: u64) {}
}

/// A fault of a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Reads that touch these bytes give a medium error, until they are written.
    Unreadable { offset: u64, len: u64 },
    /// Every operation fails.
    Gone,
    /// Every operation fails: the disk was truncated.
    Cut,
    /// No operation is answered; held operations land when [`FaultyDisk::release`] is called.
    Hung,
    /// Like `Hung`, but reads are answered.
    HungWrites,
    /// Like `HungWrites`, from this offset on.
    HungFrom(u64),
    /// Like `HungWrites`, for writes that begin at this offset.
    HungAt(u64),
    /// Like `HungWrites`, for writes of more bytes than this.
    HungAbove(u64),
    /// Writes fail.
    WriteError,
    /// Writes find no space if they begin at this offset or beyond.
    FullFrom(u64),
    /// Writes that begin at this offset fail.
    WriteErrorAt(u64),
    /// Only flushes fail.
    FlushError,
    /// The next read of these bytes misses its deadline.
    LateOnce { offset: u64, len: u64 },
}

/// A disk in memory with faults on request.
pub struct FaultyDisk {
    pub disk: MemDisk,
    pub faults: RefCell<Vec<Fault>>,
    held: RefCell<Vec<(Ticket, Op)>>,
    answers: Completions<Done>,
    /// The time of each operation. It is done at once, and answered after that time.
    pub delay: Cell<Duration>,
    /// The largest random addition; one in fifty takes four times as long.
    pub jitter: Cell<Duration>,
    dice: Cell<u64>,
    slow: RefCell<Vec<(Time, Ticket, Done)>>,
    /// The flush after this many more fails, and every write since the last one is lost. Later
    /// flushes succeed, as operating systems report each error once.
    pub flush_fails_in: Cell<Option<u64>>,
    /// The time until it fails.
    pub flush_fails_after: Cell<Duration>,
    /// The least time of a flush. It covers the writes before its start.
    pub flush_delay: Cell<Duration>,
    /// The old bytes of each write since the last flush.
    unflushed: RefCell<Vec<(u64, Vec<u8>)>>,
    pub clock: RefCell<Option<Rc<JumpClock>>>,
    pub writes: Cell<u64>,
    pub flushes: Cell<u64>,
    pub reads: Cell<u64>,
    /// It reports a cache: [`World::cut`] discards unflushed writes.
    pub volatile: Cell<bool>,
    /// The disk has heads that seek.
    pub rotational: Cell<bool>,
    /// See [`Limits::store`].
    pub store: Cell<u64>,
}

impl FaultyDisk {
    pub fn new(bytes: u64) -> Rc<FaultyDisk> {
        Rc::new(FaultyDisk {
            disk: MemDisk::new(bytes),
            faults: RefCell::default(),
            held: RefCell::default(),
            answers: Completions::new(),
            delay: Cell::default(),
            jitter: Cell::default(),
            dice: Cell::new(bytes),
            slow: RefCell::default(),
            flush_fails_in: Cell::new(None),
            flush_fails_after: Cell::default(),
            flush_delay: Cell::default(),
            unflushed: RefCell::default(),
            clock: RefCell::default(),
            writes: Cell::new(0),
            flushes: Cell::new(0),
            reads: Cell::new(0),
            volatile: Cell::new(false),
            rotational: Cell::new(false),
            store: Cell::new(0),
        })
    }

    pub fn break_with(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// Offset and length of the held operations.
    pub fn held_at(&self) -> Vec<(u64, u64)> {
        self.held.borrow().iter().map(|(_, op)| (op.offset, op.work.len())).collect()
    }

    /// True if a fault makes this operation late; removes that fault.
    fn is_late(&self, op: &Op) -> bool {
        let (start, end) = (op.offset, op.offset + op.work.len());
        let late = |fault: &Fault| match *fault {
            Fault::LateOnce { offset, len } => offset < end && start < offset + len,
            _ => false,
        };
        let mut faults = self.faults.borrow_mut();
        let at = faults.iter().position(late).filter(|_| matches!(op.work, Work::Read(_)));
        at.map(|at| faults.remove(at)).is_some()
    }

    pub fn is_holding(&self) -> usize {
        self.held.borrow().len()
    }

    /// Tracks unflushed writes, and loses them where a flush must fail.
    fn forget_unflushed(&self, op: &Op) -> Option<Error> {
        let left = self.flush_fails_in.get();
        if left.is_none() && !self.volatile.get() {
            return None;
        }
        if op.work.is_write() && !op.fua {
            let mut before = vec![0; op.work.len() as usize];
            self.disk.peek(op.offset, &mut before);
            self.unflushed.borrow_mut().push((op.offset, before));
        }
        if !matches!(op.work, Work::Flush) {
            return None;
        }
        if left != Some(0) {
            self.flush_fails_in.set(left.map(|left| left - 1));
            return None;
        }
        self.flush_fails_in.set(None);
        self.lose_unflushed();
        Some(Error::new(ErrorKind::Medium { offset: 0, len: 0 }, "faulty disk"))
    }

    /// Loses the writes since the last flush, except durable ones.
    fn lose_unflushed(&self) {
        for (offset, before) in self.unflushed.take().into_iter().rev() {
            self.disk.poke(offset, &before);
        }
    }

    /// Makes these bytes durable: they are not lost with earlier writes there.
    pub fn keep(&self, bytes: Range<u64>) {
        for (offset, before) in self.unflushed.borrow_mut().iter_mut() {
            let start = bytes.start.max(*offset);
            let end = bytes.end.min(*offset + before.len() as u64);
            if start < end {
                let part = (start - *offset) as usize..(end - *offset) as usize;
                self.disk.peek(start, &mut before[part]);
            }
        }
    }

    /// The power fails in the middle of the held writes: every write lands without its first 4 KiB.
    pub fn tear(&self) {
        for (_, op) in self.held.take() {
            if let Work::Write(parts) = op.work {
                let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
                self.disk.poke(op.offset + 4096, bytes.get(4096..).unwrap_or_default());
            }
        }
    }

    /// Answers after this time.
    fn answer(&self, done: Done, time: Duration) -> Completion<Done> {
        if time.is_zero() {
            return Completion::ready(done);
        }
        let clock = self.clock.borrow();
        let due = clock.as_ref().expect("a disk of a world").now() + time;
        let (ticket, completion) = self.answers.start();
        self.slow.borrow_mut().push((due, ticket, done));
        completion
    }

    /// The time of the next operation.
    fn time(&self) -> Duration {
        let jitter = self.jitter.get();
        if jitter.is_zero() {
            return self.delay.get();
        }
        self.dice.set(self.dice.get().wrapping_mul(6364136223846793005).wrapping_add(99991));
        let dice = self.dice.get() >> 33;
        let tail = if dice.is_multiple_of(50) { 4 } else { 1 };
        tail * (self.delay.get() + jitter.mul_f64((dice / 50 % 1024) as f64 / 1024.0))
    }

    /// The time of the next slow answer.
    fn next(&self) -> Option<Time> {
        self.slow.borrow().iter().map(|&(due, ..)| due).min()
    }

    /// Sends the slow answers that are due.
    fn fire(&self, now: Time) {
        let (due, rest) = self.slow.take().into_iter().partition(|&(due, ..)| due <= now);
        *self.slow.borrow_mut() = rest;
        let due: Vec<(Time, Ticket, Done)> = due;
        due.into_iter().for_each(|(_, ticket, done)| self.answers.finish(ticket, done));
    }

    /// Answers the held operations.
    pub fn release(&self) {
        let hangs = |fault: &Fault| {
            use Fault::{Hung, HungAbove, HungAt, HungFrom, HungWrites};
            matches!(fault, Hung | HungWrites | HungFrom(_) | HungAt(_) | HungAbove(_))
        };
        self.faults.borrow_mut().retain(|fault| !hangs(fault));
        for (ticket, op) in self.held.take() {
            let mut completion = self.disk.submit(op);
            let done = completion.take_ready().expect("a memory disk completes at once");
            self.answers.finish(ticket, done);
        }
    }
}

impl Disk for FaultyDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (start, end) = (op.offset, op.offset + op.work.len());
        if matches!(op.work, Work::Flush) {
            self.flushes.set(self.flushes.get() + 1);
        }
        let counter = if op.work.is_write() { &self.writes } else { &self.reads };
        counter.set(counter.get() + 1);
        if op.work.is_write() {
            self.faults.borrow_mut().retain(|fault| {
                !matches!(*fault, Fault::Unreadable { offset, len }
                    if start <= offset && offset + len <= end)
            });
        }
        if let Some(error) = self.forget_unflushed(&op) {
            return self.answer(Done::failed(op.work, error), self.flush_fails_after.get());
        }
        if self.is_late(&op) {
            let late = Error::new(ErrorKind::Timeout, "late");
            return Completion::ready(Done::failed(op.work, late));
        }
        for fault in self.faults.borrow().iter() {
            let kind = match *fault {
                Fault::Gone => ErrorKind::Gone,
                Fault::Cut => ErrorKind::Truncated,
                Fault::WriteError if op.work.is_write() => {
                    ErrorKind::Medium { offset: start, len: end - start }
                }
                Fault::WriteErrorAt(at) if op.work.is_write() && start == at => {
                    ErrorKind::Medium { offset: start, len: end - start }
                }
                Fault::FullFrom(from) if op.work.is_write() && start >= from => ErrorKind::NoSpace,
                Fault::FlushError if matches!(op.work, Work::Flush) => {
                    ErrorKind::Medium { offset: 0, len: 0 }
                }
                Fault::Unreadable { offset, len }
                    if matches!(op.work, Work::Read(_)) && offset < end && start < offset + len =>
                {
                    ErrorKind::Medium { offset, len }
                }
                Fault::HungWrites if matches!(op.work, Work::Read(_)) => continue,
                Fault::HungFrom(from) if start < from || !op.work.is_write() => continue,
                Fault::HungAt(at) if start != at || !op.work.is_write() => continue,
                Fault::HungAbove(most) if end - start <= most || !op.work.is_write() => continue,
                Fault::Hung
                | Fault::HungWrites
                | Fault::HungFrom(_)
                | Fault::HungAt(_)
                | Fault::HungAbove(_) => {
                    let (ticket, completion) = self.answers.start();
                    self.held.borrow_mut().push((ticket, op));
                    return completion;
                }
                _ => continue,
            };
            return Completion::ready(Done::failed(op.work, Error::new(kind, "faulty disk")));
        }
        let (durable, flush) = (op.fua && op.work.is_write(), matches!(op.work, Work::Flush));
        let mut completion = self.disk.submit(op);
        let done = completion.take_ready().expect("a memory disk completes at once");
        if flush {
            self.unflushed.borrow_mut().clear();
        } else if durable {
            self.keep(start..end);
        }
        let least = if flush { self.flush_delay.get() } else { Duration::ZERO };
        let time = self.time().max(least);
        self.answer(done, time)
    }

    fn limits(&self) -> Limits {
        let (volatile, store) = (self.volatile.get(), self.store.get());
        Limits { volatile, store, rotational: self.rotational.get(), ..self.disk.limits() }
    }
}

/// Set when a future was woken and must be polled again.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Disks, a clock, and the settings for arrays.
pub struct World {
    pub clock: Rc<JumpClock>,
    pub disks: Vec<Rc<FaultyDisk>>,
    pub pool: Pool,
    pub host: Host,
}

pub fn random(bytes: &mut [u8]) {
    thread_local! { static SEED: Cell<u64> = const { Cell::new(1) } }
    for byte in bytes {
        *byte = SEED.with(|seed| {
            let next = seed.get().wrapping_mul(6364136223846793005).wrapping_add(99991);
            seed.set(next);
            (next >> 33) as u8
        });
    }
}

impl World {
    pub fn new(disks: usize, bytes: u64) -> World {
        // `cargo xtask mutants` checks that a test detects a broken engine.
        if let Ok(name) = std::env::var("PARAPET_BROKEN") {
            io::broken::choose(io::broken::Broken::named(&name));
        }
        let clock = JumpClock::new();
        let mut host = Host::new(Rc::clone(&clock) as Rc<dyn Clock>);
        host.bounds.unit_bytes = 64 << 10;
        let disks: Vec<_> = (0..disks).map(|_| FaultyDisk::new(bytes)).collect();
        for (number, disk) in disks.iter().enumerate() {
            disk.dice.set(number as u64);
            *disk.clock.borrow_mut() = Some(Rc::clone(&clock));
        }
        World { clock, disks, pool: Pool::new(1 << 20), host }
    }

    pub fn candidates(&self, which: impl IntoIterator<Item = usize>) -> Vec<Candidate> {
        let one = |i: usize| Candidate::new(Rc::clone(&self.disks[i]) as _, format!("disk{i}"));
        which.into_iter().map(one).collect()
    }

    /// Creates an array on all disks.
    pub fn create(&self, new: &NewArray) {
        let clock = Rc::clone(&self.clock) as Rc<dyn Clock>;
        let work = create(new, self.candidates(0..self.disks.len()), &clock, &random);
        io::tasks::complete(work).expect("memory disks complete").expect("the array is created");
    }

    /// Creates an array on all disks but the last one, which is its journal device.
    pub fn create_journaled(&self, new: &NewArray) -> metadata::Result<()> {
        let clock = Rc::clone(&self.clock) as Rc<dyn Clock>;
        let mut disks = self.candidates(0..self.disks.len());
        let journal = disks.pop();
        let work = create_with_journal(new, (disks, journal), &clock, &random);
        io::tasks::complete(work).expect("memory disks complete").map(drop)
    }

    pub fn assemble(
        &self,
        which: impl IntoIterator<Item = usize>,
        options: &Options,
    ) -> metadata::Result<Assembly> {
        let clock = Rc::clone(&self.clock) as Rc<dyn Clock>;
        let work = assemble(self.candidates(which), options, clock, Rc::new(random));
        io::tasks::complete(work).expect("memory disks complete")
    }

    /// Assembles the array without these disks.
    pub fn assemble_without(&self, missing: &[usize]) -> metadata::Result<Assembly> {
        let there = (0..self.disks.len()).filter(|disk| !missing.contains(disk));
        self.assemble(there, &Options { degraded: true, ..Options::default() })
    }

    /// Starts it without these disks, after a crash that the log covers completely.
    pub fn start_without(&self, missing: &[usize]) -> Array {
        let assembly =
            self.assemble_without(missing).expect("the log records the interrupted rows");
        Array::start(assembly, &self.host)
    }

    /// Starts the array on all disks.
    pub fn start(&self) -> Array {
        let options = Options { degraded: true, ..Options::default() };
        let assembly = self.assemble(0..self.disks.len(), &options).expect("the array assembles");
        Array::start(assembly, &self.host)
    }

    /// The start of the first member's data on its disk, in bytes.
    pub fn data_offset(&self) -> u64 {
        let all = self.assemble(0..self.disks.len(), &Options::default());
        all.expect("the array assembles").members[0].data_offset
    }

    /// Sends a write and runs the array for a moment; the write may not complete.
    pub fn begin(&self, array: &Array, offset: u64, bytes: &[u8]) -> Completion<Done> {
        let write = array.submit(Op::write(offset, self.pool.copy_of(bytes).freeze()));
        let until = self.clock.now() + Duration::from_millis(5);
        self.run(array, self.clock.sleep_until(until));
        write
    }

    /// The process dies, and hung members drop their unfinished operations.
    pub fn crash(&self, array: Array) {
        drop(array);
        self.disks.iter().for_each(|disk| disk.faults.borrow_mut().clear());
    }

    /// The power fails: unflushed writes are lost on disks with a cache.
    pub fn cut(&self, array: Array) {
        self.crash(array);
        self.disks.iter().for_each(|disk| disk.lose_unflushed());
    }

    /// Runs a future that needs no array; time jumps when nothing else happens.
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        self.poll(|cx| future.as_mut().poll(cx))
    }

    /// Runs the array until the future completes; time jumps when nothing else happens.
    pub fn run<T>(&self, array: &Array, future: impl Future<Output = T>) -> T {
        let (mut future, mut run) = (pin!(future), pin!(array.run()));
        let mut stopped = false;
        self.poll(|cx| {
            let poll = future.as_mut().poll(cx);
            if poll.is_pending() && !stopped {
                stopped = run.as_mut().poll(cx).is_ready();
                return future.as_mut().poll(cx);
            }
            poll
        })
    }

    fn poll<T>(&self, mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> T {
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&woken));
        for _ in 0..10_000_000 {
            if let Poll::Ready(value) = poll(&mut Context::from_waker(&waker)) {
                return value;
            }
            if !woken.0.swap(false, Ordering::Relaxed) {
                self.jump();
            }
        }
        panic!("the operation hangs");
    }

    /// Jumps to the time of the next event.
    fn jump(&self) {
        let slow = self.disks.iter().filter_map(|disk| disk.next());
        if let Some(next) = self.clock.timers.next().into_iter().chain(slow).min() {
            let now = Time(self.clock.now.get().max(next.0));
            self.clock.now.set(now.0);
            self.clock.timers.fire(now);
            self.disks.iter().for_each(|disk| disk.fire(now));
        }
    }

    /// Runs the array until `done` holds.
    pub fn until(&self, array: &Array, done: impl Fn(&array::Status) -> bool) {
        self.run(array, async {
            while !done(&array.status()) {
                self.clock.sleep_until(Time(self.clock.now.get() + 1_000_000)).await;
            }
        });
    }

    /// Runs the array for this time.
    pub fn sleep(&self, array: &Array, span: Duration) {
        let until = self.clock.now() + span;
        self.run(array, self.clock.sleep_until(until));
    }

    /// Flushes all writes; that must succeed.
    pub fn flush(&self, array: &Array) {
        self.run(array, array.submit(Op::flush()))
            .result
            .expect("the level tolerates the failures");
    }

    pub fn write(&self, array: &Array, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let op = Op::write(offset, self.pool.copy_of(bytes).freeze());
        self.run(array, array.submit(op)).result
    }

    pub fn read(&self, array: &Array, offset: u64, len: usize) -> io::Result<Vec<u8>> {
        let done = self.run(array, array.submit(Op::read(offset, self.pool.take(len))));
        done.result.clone().map(|()| done.into_buf().to_vec())
    }
}

/// True if every slot has a member in sync and no job is running.
pub fn whole(status: &array::Status) -> bool {
    status.slots.iter().all(|slot| slot.state == SlotState::InSync) && status.job.is_none()
}

/// Bytes that identify their place.
pub fn pattern(offset: u64, len: usize, salt: u8) -> Vec<u8> {
    (offset..offset + len as u64)
        .map(|at| (at as u8) ^ ((at >> 9) as u8).wrapping_mul(31) ^ salt)
        .collect()
}

/// The byte map of a member.
pub fn map_of(disk: &FaultyDisk) -> ByteMap {
    map_at(disk, Version::V1_2)
}

/// The byte map of a member with a superblock of this version.
pub fn map_at(disk: &FaultyDisk, version: Version) -> ByteMap {
    let at = layout::md::position(version, disk.limits().bytes).expect("a large disk");
    let mut bytes = vec![0; 4096];
    disk.disk.peek(at, &mut bytes);
    let superblock = Superblock::parse(&bytes, at / 512).expect("a member");
    ByteMap::of(&superblock, disk.limits().bytes).expect("ours")
}

/// The member that holds data `index` of stripe 0, of three, or its parity from 3 on.
pub fn holder(array: &Array, index: usize) -> usize {
    let map = array.geometry().stripe(layout::Stripe(0));
    let parity = [Some(map.p()), map.q()];
    match index {
        0..3 => map.data(index).index(),
        _ => parity[index - 3].expect("the level has Q").index(),
    }
}
