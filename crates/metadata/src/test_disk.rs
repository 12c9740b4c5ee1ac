//! Disks for tests that create and assemble arrays. They record writes, and fail or delay their
//! answers on request.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use io::tasks::complete;
use io::{
    Clock, Completion, Completions, Cost, Disk, Done, ErrorKind, Limits, MemDisk, Op, Ticket, Time,
    Work,
};
use layout::md::{Superblock, Version, position};
use layout::{Layout, Level};

use crate::assemble::{Assembly, Candidate, Options, assemble};
use crate::commit::{Facts, Random};
use crate::create::{NewArray, create};
use crate::error::Result;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const CHUNK: u64 = 64 << 10;

/// An operation on a disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    Write(Range<u64>, bool),
    Flush,
}

/// A disk in memory with faults.
pub(crate) struct TestDisk {
    pub(crate) mem: MemDisk,
    /// Writes and flushes fail.
    pub(crate) broken: Cell<bool>,
    /// Writes that begin here fail.
    pub(crate) broken_at: Cell<Option<u64>>,
    /// The next flush fails.
    pub(crate) flush_fails: Cell<bool>,
    /// Answers to writes and flushes wait for [`TestDisk::release`].
    pub(crate) holds: Cell<bool>,
    pub(crate) acts: RefCell<Vec<Act>>,
    held: RefCell<Vec<(Ticket, Done)>>,
    answers: Completions<Done>,
}

impl TestDisk {
    pub(crate) fn new(limits: Limits) -> Rc<TestDisk> {
        Rc::new(TestDisk {
            mem: MemDisk::with_limits(limits),
            broken: Cell::new(false),
            broken_at: Cell::new(None),
            flush_fails: Cell::new(false),
            holds: Cell::new(false),
            acts: RefCell::default(),
            held: RefCell::default(),
            answers: Completions::new(),
        })
    }

    /// Releases the delayed answers, and stops delaying.
    pub(crate) fn release(&self) {
        self.holds.set(false);
        for (ticket, done) in self.held.take() {
            self.answers.finish(ticket, done);
        }
    }

    /// Copies all bytes to a disk of another size.
    pub(crate) fn copy(&self, bytes: u64) -> Rc<TestDisk> {
        let copy = TestDisk::new(Limits::plain(bytes));
        let mut all = vec![0; self.mem.limits().bytes.min(bytes) as usize];
        self.mem.peek(0, &mut all);
        copy.mem.poke(0, &all);
        copy
    }
}

impl Disk for TestDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        let end = op.offset + op.work.len();
        match &op.work {
            Work::Flush => self.acts.borrow_mut().push(Act::Flush),
            work if work.is_write() => {
                self.acts.borrow_mut().push(Act::Write(op.offset..end, op.fua));
            }
            _ => return self.mem.submit(op),
        }
        let fails = match op.work {
            Work::Flush => self.flush_fails.take(),
            _ => self.broken_at.get() == Some(op.offset),
        };
        if self.broken.get() || fails {
            let error = io::Error::new(ErrorKind::Gone, "test disk");
            return Completion::ready(Done::failed(op.work, error));
        }
        let done = complete(self.mem.submit(op)).expect("a memory disk completes at once");
        if !self.holds.get() {
            return Completion::ready(done);
        }
        let (ticket, completion) = self.answers.start();
        self.held.borrow_mut().push((ticket, done));
        completion
    }

    fn limits(&self) -> Limits {
        self.mem.limits()
    }
}

/// A clock with a constant time.
pub(crate) struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        Time(0)
    }

    fn sleep_until(&self, _: Time) -> Completion<()> {
        Completion::never()
    }

    fn unix_micros(&self) -> u64 {
        1_700_000_000_000_123
    }

    fn charge(&self, _: Cost, _: u64) {}
}

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(1) };
}

/// Random numbers, the same in each run of a test.
pub(crate) fn random(bytes: &mut [u8]) {
    for byte in bytes {
        let next = SEED.get().wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        SEED.set(next);
        *byte = (next >> 56) as u8;
    }
}

/// Disks and operations on them.
pub(crate) struct Rig {
    pub(crate) disks: Vec<Rc<TestDisk>>,
    pub(crate) version: Version,
}

impl Rig {
    /// `count` disks of 8 MiB.
    pub(crate) fn new(count: usize) -> Rig {
        Rig::with_sizes(&vec![8 * MIB; count])
    }

    pub(crate) fn with_sizes(sizes: &[u64]) -> Rig {
        let disks = sizes.iter().map(|&bytes| TestDisk::new(Limits::plain(bytes))).collect();
        Rig { disks, version: Version::V1_2 }
    }

    /// A rig with an array of this level on all its disks.
    pub(crate) fn of(level: Level, count: usize, edit: impl FnOnce(&mut NewArray)) -> Rig {
        let mut rig = Rig::new(count);
        let mut new = new_array(level, count);
        edit(&mut new);
        rig.create(&new).expect("the value fits");
        rig
    }

    pub(crate) fn candidate(&self, index: usize) -> Candidate {
        Candidate::new(Rc::clone(&self.disks[index]) as Rc<dyn Disk>, format!("disk{index}"))
    }

    pub(crate) fn create(&mut self, new: &NewArray) -> Result<Facts> {
        self.version = new.version;
        let members = (0..self.disks.len()).map(|index| self.candidate(index)).collect();
        complete(create(new, members, &(Rc::new(Still) as _), &random))
            .expect("the future completes")
    }

    /// Assembles from some of the disks.
    pub(crate) fn assemble(&self, which: &[usize], options: &Options) -> Result<Assembly> {
        let candidates = which.iter().map(|&index| self.candidate(index)).collect();
        let random: Random = Rc::new(random);
        complete(assemble(candidates, options, Rc::new(Still), random))
            .expect("the array assembles")
    }

    /// Assembles from all disks, without accepting any risk.
    pub(crate) fn all(&self) -> Result<Assembly> {
        let which: Vec<usize> = (0..self.disks.len()).collect();
        self.assemble(&which, &Options::default())
    }

    fn position(&self, index: usize) -> u64 {
        position(self.version, self.disks[index].limits().bytes).expect("the disk is large enough")
    }

    /// The superblock on a disk.
    pub(crate) fn superblock(&self, index: usize) -> Superblock {
        let at = self.position(index);
        let mut bytes = vec![0; 4096];
        self.disks[index].mem.peek(at, &mut bytes);
        Superblock::parse(&bytes, at / 512).expect("one superblock was written")
    }

    /// The superblock on a disk cannot be written; or can.
    pub(crate) fn keep_superblock(&self, index: usize, keep: bool) {
        self.disks[index].broken_at.set(keep.then_some(self.position(index)));
    }

    /// Changes the superblock on a disk, with a new checksum.
    pub(crate) fn edit(&self, index: usize, edit: impl FnOnce(&mut Superblock)) {
        let mut superblock = self.superblock(index);
        edit(&mut superblock);
        self.disks[index].mem.poke(self.position(index), &superblock.print());
    }

    /// The writes to all disks since the last call.
    pub(crate) fn acts(&self) -> Vec<Vec<Act>> {
        self.disks.iter().map(|disk| disk.acts.take()).collect()
    }
}

/// A clean array of this level for this many members, without spares.
pub(crate) fn new_array(level: Level, members: usize) -> NewArray {
    let chunk = match level {
        Level::Raid1 => 0,
        Level::Raid35 => 4096,
        _ => CHUNK,
    };
    let mut new = NewArray::new("host:data", Layout::default_for(level, members), chunk);
    new.zeroed = true;
    new.bitmap = Some(crate::create::BitmapChunk::Bytes(CHUNK as u32));
    new
}

/// The error of something that must fail, as its text.
pub(crate) fn text<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("must be refused"),
        Err(error) => error.to_string(),
    }
}

/// Fails unless `text` contains all of `parts`.
#[track_caller]
pub(crate) fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
}
