//! A disk whose power cuts lose what no flush covers, and tear physical sectors.

use std::cell::{Cell, RefCell};

use io::{
    Buf, Completion, Completions, Disk, Done, Error, ErrorKind, Limits, Op, Pool, SharedBuf,
    Ticket, Work,
};

use random::Rng;

pub const SECTOR: usize = 4096;

/// A write, in the cache or on its way there.
type Write = (u64, Vec<u8>);

pub struct Medium {
    limits: Limits,
    durable: RefCell<Vec<u8>>,
    /// Complete writes that no flush covers, in order.
    cache: RefCell<Vec<Write>>,
    flying: RefCell<Vec<Flight>>,
    answers: Completions<Done>,
    /// Requests of these kinds.
    pub flushes: Cell<usize>,
    pub reads: Cell<usize>,
    /// Writes fail.
    pub fails: Cell<bool>,
}

struct Flight {
    ticket: Ticket,
    op: Op,
    /// Of a flush: writes that were complete before it.
    covers: usize,
    /// Of a read: true if it has its bytes, though it is not complete.
    filled: bool,
}

fn joined(bufs: &[SharedBuf]) -> Vec<u8> {
    bufs.iter().flat_map(|buf| buf.iter().copied()).collect()
}

impl Medium {
    pub fn new(bytes: usize, logical_block: u32) -> Medium {
        let limits = Limits { logical_block, ..Limits::plain(bytes as u64) };
        assert_eq!(limits.physical_block as usize, SECTOR);
        let durable = RefCell::new(vec![0; bytes]);
        let (cache, flying) = (RefCell::default(), RefCell::default());
        let (flushes, reads, fails) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let answers = Completions::new();
        Medium { limits, durable, cache, flying, answers, flushes, reads, fails }
    }

    pub fn is_idle(&self) -> bool {
        self.flying.borrow().is_empty()
    }

    /// Completes an operation in flight, any one.
    pub fn step(&self, rng: &mut Rng) {
        let Flight { ticket, mut op, covers, filled } = {
            let mut flying = self.flying.borrow_mut();
            let index = rng.below(flying.len() as u64) as usize;
            flying.swap_remove(index)
        };
        match &mut op.work {
            Work::Read(bufs) if !filled => self.fill(op.offset, bufs),
            Work::Read(_) => {}
            Work::Write(_) if self.fails.get() => {
                let error = Error::new(ErrorKind::Gone, "no disk");
                return self.answers.finish(ticket, Done::failed(op.work, error));
            }
            Work::Write(bufs) => {
                self.cache.borrow_mut().push((op.offset, joined(bufs)));
            }
            Work::Flush => {
                let covers = covers.min(self.cache.borrow().len());
                let covered: Vec<Write> = self.cache.borrow_mut().drain(..covers).collect();
                covered.iter().for_each(|write| self.store(write));
                // Another flush covers fewer of those that are left.
                let mut flying = self.flying.borrow_mut();
                flying.iter_mut().for_each(|it| it.covers = it.covers.saturating_sub(covers));
            }
            other => panic!("{other:?}"),
        }
        self.answers.finish(ticket, Done::ok(op.work));
    }

    fn fill(&self, offset: u64, bufs: &mut [Buf]) {
        let len: usize = bufs.iter().map(|buf| buf.len()).sum();
        let range = offset as usize..offset as usize + len;
        let mut bytes = self.durable.borrow()[range.clone()].to_vec();
        for (at, written) in &*self.cache.borrow() {
            for (index, byte) in written.iter().enumerate() {
                let place = *at as usize + index;
                if range.contains(&place) {
                    bytes[place - range.start] = *byte;
                }
            }
        }
        let mut rest = &bytes[..];
        for buf in bufs {
            let (part, next) = rest.split_at(buf.len());
            buf.copy_from_slice(part);
            rest = next;
        }
    }

    fn store(&self, (at, bytes): &Write) {
        self.durable.borrow_mut()[*at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// The power fails. Of each physical sector that was written since the last flush, a write of
    /// each moment may be there: the last to reach it decides. If it tears, all of it is garbage.
    pub fn cut(&self, rng: &mut Rng, tears: bool) {
        let mut writes: Vec<Write> = self.cache.take();
        let mut flying = self.flying.take();
        while !flying.is_empty() {
            let index = rng.below(flying.len() as u64) as usize;
            let Flight { op, .. } = flying.swap_remove(index);
            if let Work::Write(bufs) = &op.work {
                writes.push((op.offset, joined(bufs)));
            }
        }
        let keep = [0, 50, 90, 100][rng.below(4) as usize];
        let tear = if tears { [0, 10, 50][rng.below(3) as usize] } else { 0 };
        for (at, bytes) in writes {
            let mut from = 0;
            while from < bytes.len() {
                let place = at as usize + from;
                let len = (SECTOR - place % SECTOR).min(bytes.len() - from);
                let mut durable = self.durable.borrow_mut();
                if rng.percent(tear) {
                    let start = place / SECTOR * SECTOR;
                    let end = (start + SECTOR).min(durable.len());
                    garbage(&mut durable[start..end], rng);
                } else if rng.percent(keep) {
                    durable[place..place + len].copy_from_slice(&bytes[from..from + len]);
                }
                from += len;
            }
        }
    }
}

/// Fills units with a number each that nobody writes.
fn garbage(sector: &mut [u8], rng: &mut Rng) {
    for unit in sector.chunks_mut(512) {
        let number = rng.bits() | 1 << 63;
        unit.chunks_mut(8).for_each(|part| part.copy_from_slice(&number.to_le_bytes()));
    }
}

impl Disk for Medium {
    fn submit(&self, mut op: Op) -> Completion<Done> {
        assert_eq!((self.limits.check(&op), op.fua), (None, false), "{op:?}");
        let count = |cell: &Cell<usize>| cell.set(cell.get() + 1);
        let filled = self.reads.get().is_multiple_of(2);
        match &mut op.work {
            Work::Flush => count(&self.flushes),
            Work::Read(bufs) => {
                count(&self.reads);
                if filled {
                    self.fill(op.offset, bufs);
                }
            }
            _ => {}
        }
        let (ticket, answer) = self.answers.start();
        let covers = self.cache.borrow().len();
        self.flying.borrow_mut().push(Flight { ticket, op, covers, filled });
        answer
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// Bytes of a unit that says its number.
pub fn unit(pool: &Pool, numbers: &[u64]) -> SharedBuf {
    let mut buf = pool.take(numbers.len() * 512);
    for (unit, number) in buf.chunks_mut(512).zip(numbers) {
        unit.chunks_mut(8).for_each(|part| part.copy_from_slice(&number.to_le_bytes()));
    }
    buf.freeze()
}
