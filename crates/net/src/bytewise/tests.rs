//! Ranges that are not whole blocks, one at a time; the random mix of many is in `tests/nbd`.

use std::cell::RefCell;

use io::tasks::{complete, poll_once};
use io::{Completions, Extent, MemDisk, Ticket, ZeroSupport};

use super::*;

const BLOCK: u64 = 4096;

/// A disk whose operations take effect on command, and which counts them.
struct Held {
    inner: MemDisk,
    waiting: RefCell<Vec<(Op, Ticket)>>,
    answers: Completions<Done>,
}

fn disk() -> (Rc<Held>, Bytewise, Pool) {
    let limits = Limits { logical_block: BLOCK as u32, ..Limits::plain(16 * BLOCK) };
    let inner = MemDisk::with_limits(limits);
    inner.poke(0, &[1; 16 * BLOCK as usize]);
    let (waiting, answers) = (RefCell::default(), Completions::new());
    let disk = Rc::new(Held { inner, waiting, answers });
    let pool = Pool::new(1 << 20);
    (Rc::clone(&disk), Bytewise::new(disk, pool.clone()), pool)
}

impl Disk for Held {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push((op, ticket));
        completion
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

impl Held {
    fn answer(&self) {
        let (op, ticket) = self.waiting.borrow_mut().remove(0);
        let done = complete(self.inner.submit(op)).expect("a memory disk completes at once");
        self.answers.finish(ticket, done);
    }

    fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Drives one request to its end.
    fn run(&self, mut answer: Answer) -> Done {
        loop {
            if let Some(done) = poll_once(&mut answer) {
                return done;
            }
            self.answer();
        }
    }
}

fn write(pool: &Pool, offset: u64, len: usize, byte: u8) -> Op {
    Op::write(offset, pool.copy_of(&vec![byte; len]).freeze())
}

#[test]
fn aligned_requests_pass_as_they_are() {
    let (held, disk, pool) = disk();
    let op = write(&pool, BLOCK, BLOCK as usize, 2);
    let Work::Write(bufs) = &op.work else { panic!() };
    let address = bufs[0].as_ptr();
    let _answer = disk.submit(op);
    let waiting = held.waiting.borrow();
    let Work::Write(bufs) = &waiting[0].0.work else { panic!() };
    assert_eq!((waiting.len(), bufs[0].as_ptr()), (1, address), "no step before, no copy");
}

#[test]
fn the_rest_of_a_block_stays() {
    let cases =
        [(1, 1), (4095, 2), (0, 100), (4000, 96), (100, 3 * 4096), (4096, 5000), (65535, 1)];
    for (offset, len) in cases {
        let (held, disk, pool) = disk();
        held.run(disk.submit(write(&pool, offset, len, 7))).result.unwrap();
        let mut all = vec![0; 16 * BLOCK as usize];
        held.inner.peek(0, &mut all);
        for (at, byte) in all.iter().enumerate() {
            let inside = (offset as usize..offset as usize + len).contains(&at);
            assert_eq!(*byte, if inside { 7 } else { 1 }, "byte {at} of {len} at {offset}");
        }
        let read = held.run(disk.submit(Op::read(offset, pool.take(len)))).into_buf();
        assert!(read.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn writes_to_one_block_take_turns_and_others_do_not_wait() {
    let (held, disk, pool) = disk();
    let mut answers = vec![
        disk.submit(write(&pool, 0, 100, 2)),
        disk.submit(write(&pool, 200, 100, 3)),
        disk.submit(write(&pool, 0, BLOCK as usize, 4)),
    ];
    let elsewhere = disk.submit(write(&pool, 2 * BLOCK, BLOCK as usize, 5));
    assert_eq!(held.waiting(), 1, "the one elsewhere is under way");
    held.run(elsewhere).result.unwrap();
    let mut block = [0; BLOCK as usize];
    // Bytes 99, 100, 200 and 300 after each turn.
    for seen in [[2, 1, 1, 1], [2, 1, 3, 1], [4, 4, 4, 4]] {
        // All are polled, the later ones first: none overtakes.
        for answer in answers.iter_mut().rev() {
            assert!(poll_once(answer).is_none());
        }
        assert_eq!(held.waiting(), 1, "one at a time");
        held.run(answers.remove(0)).result.unwrap();
        held.inner.peek(0, &mut block);
        assert_eq!([block[99], block[100], block[200], block[300]], seen);
    }
}

/// As where each thread has one.
#[test]
fn writes_to_one_block_take_turns_whichever_way_they_come() {
    let (held, disk, pool) = disk();
    let writers = Writers::default();
    let [one, other] = [disk.beside(&writers), disk.beside(&writers)];
    let mut first = one.submit(write(&pool, 0, 512, 2));
    let mut second = other.submit(write(&pool, 512, 512, 3));
    // Both have read the block before one of them writes it, if nothing keeps them from it.
    let mut done = [false; 2];
    while done != [true; 2] {
        for (answer, done) in [&mut first, &mut second].into_iter().zip(&mut done) {
            *done |= !*done && poll_once(answer).is_some();
        }
        while held.waiting() > 0 {
            held.answer();
        }
    }
    let mut block = [0; BLOCK as usize];
    held.inner.peek(0, &mut block);
    assert_eq!([block[0], block[511], block[512], block[1023], block[1024]], [2, 2, 3, 3, 1]);
}

#[test]
fn zeroing_and_discarding_keep_to_their_range() {
    let (held, disk, _) = disk();
    let zero = |offset, len, fast| {
        held.run(disk.submit(Op::new(offset, Work::Zero { len, unmap: true, fast })))
    };
    assert_eq!(held.limits().zero, ZeroSupport::Fast);
    assert!(zero(10, 100, true).result.is_err(), "less than a block is not fast");
    zero(10, 100, false).result.unwrap();
    zero(BLOCK - 1, BLOCK + 2, true).result.unwrap();
    held.run(disk.submit(Op::new(5 * BLOCK - 1, Work::Discard { len: BLOCK + 2 }))).result.unwrap();
    held.run(disk.submit(Op::new(9 * BLOCK + 1, Work::Discard { len: BLOCK }))).result.unwrap();
    let mut all = vec![0; 16 * BLOCK as usize];
    held.inner.peek(0, &mut all);
    let gone = |at: u64| {
        (10..110).contains(&at)
            || (BLOCK - 1..2 * BLOCK + 1).contains(&at)
            || (5 * BLOCK..6 * BLOCK).contains(&at)
    };
    for (at, byte) in all.iter().enumerate() {
        assert_eq!(*byte, u8::from(!gone(at as u64)), "byte {at}");
    }
}

#[test]
fn extents_begin_and_end_where_asked() {
    let (held, disk, _) = disk();
    let zero = Work::Zero { len: BLOCK, unmap: true, fast: false };
    held.run(disk.submit(Op::new(BLOCK, zero))).result.unwrap();
    let ask = |offset, len| {
        let done = held.run(disk.submit(Op::new(offset, Work::Extents { len, found: vec![] })));
        let Work::Extents { found, .. } = done.work else { panic!() };
        found
    };
    let extent = |len, kind| Extent { len, kind };
    let (data, hole) = (ExtentKind::Data, ExtentKind::Hole);
    assert_eq!(ask(100, 50), [extent(50, data)]);
    assert_eq!(ask(BLOCK - 1, 2), [extent(1, data), extent(1, hole)]);
    assert_eq!(ask(BLOCK + 1, BLOCK), [extent(BLOCK - 1, hole), extent(1, data)]);
}

#[test]
fn past_the_end_is_refused() {
    let (held, disk, pool) = disk();
    for (offset, len) in [(16 * BLOCK - 1, 2), (u64::MAX, 2), (16 * BLOCK + 1, 0)] {
        let done = held.run(disk.submit(Op::read(offset, pool.take(len))));
        assert_eq!(done.result.unwrap_err().kind(), io::ErrorKind::Refused, "{len} at {offset}");
    }
}
