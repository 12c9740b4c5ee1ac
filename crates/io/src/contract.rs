//! The contract of a [`Disk`], as a test-suite: each sentence of the comment in `disk.rs` is a
//! check.
//!
//! [`check`] takes any disk of at least [`MIN_BYTES`] whose content may be destroyed. It panics
//! with the promised and the actual result. It needs no time and starts nothing: the caller drives
//! the disk. Also here: [`check_read_only`].
//!
//! Every check leaves the disk usable for the next. The order of the checks does not matter.

mod clock;
mod link;

use std::rc::Rc;

pub use self::clock::HandClock;
pub use self::link::link;
use crate::{
    Buf, Class, Completion, Disk, Done, ErrorKind, Extent, ExtentKind, Limits, Op, Pool, SharedBuf,
    Work, ZeroSupport,
};

/// The least size of a disk that can be checked.
pub const MIN_BYTES: u64 = 8 << 20;

/// Runs every check. Destroys the disk's content.
///
/// # Panics
/// At the first breach of the contract.
pub async fn check(disk: Rc<dyn Disk>, pool: &Pool) {
    let subject = Subject::new(disk, pool);
    subject.limits_are_sane();
    subject.bytes_come_back().await;
    subject.scattered_lists_are_one_range().await;
    subject.long_lists_are_one_range().await;
    subject.odd_buffers_are_taken().await;
    subject.bad_ranges_are_refused().await;
    subject.nothing_is_done_for_no_bytes().await;
    subject.flush_and_fua_are_taken().await;
    subject.many_operations_are_in_flight().await;
    subject.a_dropped_completion_cancels_nothing().await;
    subject.zeros_read_as_zeros().await;
    subject.discarded_bytes_do_not_spread().await;
    subject.extents_tell_the_truth().await;
    subject.reads_return_the_last_write().await;
}

/// Runs the checks of a disk that refuses writes.
///
/// # Panics
/// At the first breach of the contract.
pub async fn check_read_only(disk: Rc<dyn Disk>, pool: &Pool) {
    let subject = Subject::new(disk, pool);
    assert!(subject.limits.read_only, "limits say that writes are refused");
    subject.limits_are_sane();
    let len = subject.block;
    subject.read(0, len).await;
    let refused = [
        Op::write(0, subject.pattern(1, len)),
        Op::new(0, Work::Zero { len: len as u64, unmap: true, fast: false }),
        Op::new(0, Work::Discard { len: len as u64 }),
    ];
    for op in refused {
        let before = shape(&op.work);
        let done = subject.submit(op).await;
        expect_refused(&done, "a write to a read-only disk");
        assert_eq!(shape(&done.work), before, "the buffers come back");
    }
    subject.must(Op::flush()).await;
}

struct Subject<'a> {
    disk: Rc<dyn Disk>,
    pool: &'a Pool,
    limits: Limits,
    /// The logical block.
    block: usize,
}

/// Numbers that look random and are the same each time (xorshift64, Marsaglia 2003).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// The expected completion: the kind of work and the length of each buffer.
fn shape(work: &Work) -> (&'static str, Vec<usize>) {
    match work {
        Work::Read(bufs) => ("read", bufs.iter().map(|buf| buf.len()).collect()),
        Work::Write(bufs) => ("write", bufs.iter().map(|buf| buf.len()).collect()),
        Work::Flush => ("flush", Vec::new()),
        Work::Zero { .. } => ("zero", Vec::new()),
        Work::Discard { .. } => ("discard", Vec::new()),
        Work::Extents { .. } => ("extents", Vec::new()),
    }
}

fn expect_refused(done: &Done, what: &str) {
    match &done.result {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Refused, "{what}: {error}"),
        Ok(()) => panic!("{what} was not refused"),
    }
}

impl<'a> Subject<'a> {
    fn new(disk: Rc<dyn Disk>, pool: &'a Pool) -> Subject<'a> {
        let limits = disk.limits();
        assert!(limits.bytes >= MIN_BYTES, "a disk of {} bytes is too small", limits.bytes);
        Subject { disk, pool, block: limits.logical_block as usize, limits }
    }

    async fn submit(&self, op: Op) -> Done {
        self.disk.submit(op).await
    }

    /// An operation that has no reason to fail.
    async fn must(&self, op: Op) -> Work {
        let (name, offset) = (shape(&op.work), op.offset);
        let done = self.submit(op).await;
        assert_eq!(shape(&done.work), name, "the work comes back as it was submitted");
        if let Err(error) = done.result {
            panic!("{name:?} at {offset} failed: {error}");
        }
        done.work
    }

    async fn write(&self, offset: u64, bytes: &[u8]) {
        self.must(Op::write(offset, self.pool.copy_of(bytes).freeze())).await;
    }

    async fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut buf = self.pool.take(len);
        buf.fill(0xa5);
        match self.must(Op::read(offset, buf)).await {
            Work::Read(bufs) => bufs[0].to_vec(),
            other => panic!("a read completed as {other:?}"),
        }
    }

    async fn expect(&self, offset: u64, bytes: &[u8], why: &str) {
        let found = self.read(offset, bytes.len()).await;
        if let Some(at) = found.iter().zip(bytes).position(|(found, wanted)| found != wanted) {
            panic!("{why}: byte {} is {:#x}, not {:#x}", offset + at as u64, found[at], bytes[at]);
        }
    }

    /// Bytes that differ with the seed, everywhere.
    fn bytes(&self, seed: u64, len: usize) -> Vec<u8> {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..len).map(|_| (numbers.next(251) + 1) as u8).collect()
    }

    fn pattern(&self, seed: u64, len: usize) -> SharedBuf {
        self.pool.copy_of(&self.bytes(seed, len)).freeze()
    }

    fn limits_are_sane(&self) {
        let limits = &self.limits;
        assert!(limits.logical_block.is_power_of_two() && limits.logical_block >= 512);
        assert!(limits.physical_block.is_power_of_two());
        assert!(limits.physical_block >= limits.logical_block);
        assert!(limits.bytes.is_multiple_of(limits.logical_block.into()));
        assert!(limits.atomic_write >= limits.logical_block);
        assert!(limits.optimal > 0);
    }

    async fn bytes_come_back(&self) {
        let end = self.limits.bytes;
        for len in [self.block, 4096, 65536, 1 << 20] {
            let bytes = self.bytes(len as u64, len);
            for offset in [0, len as u64, end - len as u64] {
                self.write(offset, &bytes).await;
                self.expect(offset, &bytes, "what was written is read").await;
            }
        }
        self.expect(
            end - self.block as u64,
            &self.bytes(1 << 20, 1 << 20)[(1 << 20) - self.block..],
            "the last block belongs to the disk",
        )
        .await;
    }

    /// Cuts `len` bytes into buffers of one block, two, three and so on, each within a larger block
    /// of memory.
    fn scattered(&self, len: usize) -> Vec<Buf> {
        let mut bufs = Vec::new();
        let (mut left, mut blocks) = (len, 1);
        while left > 0 {
            let part = (blocks * self.block).min(left);
            // A view that begins one block into its memory: aligned to sectors, not to pages.
            let mut whole = self.pool.take(part + self.block);
            bufs.push(whole.split_off(self.block));
            left -= part;
            blocks = blocks % 5 + 1;
        }
        bufs
    }

    async fn write_and_read_lists(&self, offset: u64, bytes: &[u8], mut lists: [Vec<Buf>; 2]) {
        let mut at = 0;
        for buf in &mut lists[0] {
            let len = buf.len();
            buf.copy_from_slice(&bytes[at..at + len]);
            at += len;
        }
        let [source, target] = lists;
        let source = source.into_iter().map(Buf::freeze).collect();
        self.must(Op::new(offset, Work::Write(source))).await;
        self.expect(offset, bytes, "a list is written in order").await;
        let Work::Read(filled) = self.must(Op::new(offset, Work::Read(target))).await else {
            panic!("a read completed with another kind of work");
        };
        let found: Vec<u8> = filled.iter().flat_map(|buf| buf.iter().copied()).collect();
        assert!(found == bytes, "a list is filled in order");
    }

    async fn scattered_lists_are_one_range(&self) {
        let len = 100 * self.block;
        let lists = [self.scattered(len), self.scattered(len)];
        let bytes = self.bytes(2, len);
        self.write_and_read_lists(3 * self.block as u64, &bytes, lists).await;
    }

    /// More buffers than one system call takes.
    async fn long_lists_are_one_range(&self) {
        let count = 2500;
        let list = || (0..count).map(|_| self.pool.take(self.block)).collect();
        let len = count * self.block;
        let bytes = self.bytes(3, len.min(MIN_BYTES as usize / 4 * 3));
        let count = bytes.len() / self.block;
        let lists: [Vec<Buf>; 2] = [list(), list()];
        let lists = lists.map(|list| list.into_iter().take(count).collect());
        self.write_and_read_lists(self.block as u64, &bytes, lists).await;
    }

    /// Buffers with odd addresses and lengths; only their sum is aligned.
    async fn odd_buffers_are_taken(&self) {
        let len = 40 * self.block;
        let list = || {
            let mut rest = self.pool.take(len + 1).split_off(1);
            let mut bufs = Vec::new();
            for part in [1, 511, 513, 1000, 7] {
                bufs.push(rest.split_to(part));
                bufs.push(self.pool.take(0));
            }
            bufs.push(rest);
            bufs
        };
        let bytes = self.bytes(4, len);
        self.write_and_read_lists(5 * self.block as u64, &bytes, [list(), list()]).await;
    }

    async fn bad_ranges_are_refused(&self) {
        let (end, block) = (self.limits.bytes, self.block);
        let before = self.bytes(5, 2 * block);
        self.write(0, &before).await;
        let mut ranges = vec![
            (end, block),
            (end - block as u64, 2 * block),
            (u64::MAX - block as u64 + 1, block),
            (u64::MAX - block as u64 + 1, 2 * block),
        ];
        ranges.extend([(1, block), (0, block - 1), (block as u64 / 2, block / 2)]);
        for (offset, len) in ranges {
            let what = format!("offset {offset}, length {len}");
            let works = [
                Work::Read(vec![self.pool.take(len - 1), self.pool.take(1)]),
                Work::Write(vec![self.pattern(6, len - 1), self.pattern(6, 1)]),
                Work::Zero { len: len as u64, unmap: true, fast: false },
                Work::Discard { len: len as u64 },
                Work::Extents { len: len as u64, found: Vec::new() },
            ];
            for work in works {
                let given = shape(&work);
                let done = self.submit(Op::new(offset, work)).await;
                expect_refused(&done, &what);
                assert_eq!(shape(&done.work), given, "{what}: the buffers come back");
            }
        }
        self.expect(0, &before, "a refused operation changes nothing").await;
    }

    async fn nothing_is_done_for_no_bytes(&self) {
        let before = self.bytes(7, self.block);
        self.write(0, &before).await;
        for offset in [0, self.block as u64, self.limits.bytes] {
            self.must(Op::new(offset, Work::Read(Vec::new()))).await;
            self.must(Op::read(offset, self.pool.take(0))).await;
            self.must(Op::new(offset, Work::Write(Vec::new())).with_fua()).await;
            self.must(Op::new(offset, Work::Zero { len: 0, unmap: true, fast: false })).await;
            self.must(Op::new(offset, Work::Discard { len: 0 })).await;
            self.must(Op::new(offset, Work::Extents { len: 0, found: Vec::new() })).await;
        }
        self.expect(0, &before, "no byte is changed by no bytes").await;
    }

    async fn flush_and_fua_are_taken(&self) {
        self.must(Op::flush()).await;
        let bytes = self.bytes(8, 3 * self.block);
        self.write(0, &bytes).await;
        self.must(Op::flush()).await;
        self.must(Op::flush().with_class(Class::Metadata)).await;
        let list = vec![self.pattern(9, self.block), self.pattern(10, self.block)];
        let op = Op::new(self.block as u64, Work::Write(list)).with_fua();
        self.must(op.with_class(Class::Background)).await;
        let zero = Work::Zero { len: self.block as u64, unmap: true, fast: false };
        self.must(Op::new(0, zero).with_fua()).await;
        self.expect(0, &vec![0; self.block], "zeroed with FUA").await;
        self.expect(self.block as u64, &self.bytes(9, self.block), "written with FUA").await;
    }

    async fn many_operations_are_in_flight(&self) {
        const MANY: usize = 300;
        let len = 2 * self.block;
        let at = |index: usize| (index * len) as u64;
        let started: Vec<Completion<Done>> = (0..MANY)
            .map(|index| {
                let op = Op::write(at(index), self.pattern(100 + index as u64, len));
                self.disk.submit(if index % 7 == 0 { op.with_fua() } else { op })
            })
            .collect();
        // Last come, first asked: no order of answers is promised.
        for completion in started.into_iter().rev() {
            let done = completion.await;
            done.result.expect("a write among many");
            assert_eq!(shape(&done.work), ("write", vec![len]));
        }
        let started: Vec<Completion<Done>> = (0..MANY)
            .map(|index| self.disk.submit(Op::read(at(index), self.pool.take(len))))
            .collect();
        for (index, completion) in started.into_iter().enumerate() {
            let done = completion.await;
            done.result.as_ref().expect("a read among many");
            let wanted = self.bytes(100 + index as u64, len);
            assert!(done.into_buf()[..] == wanted[..], "read {index} among many");
        }
    }

    async fn a_dropped_completion_cancels_nothing(&self) {
        let bytes = self.bytes(11, self.block);
        self.write(0, &self.bytes(12, self.block)).await;
        drop(self.disk.submit(Op::write(0, self.pool.copy_of(&bytes).freeze())));
        drop(self.disk.submit(Op::read(0, self.pool.take(self.block))));
        // Operations in flight may run in any order, so the write may still be in flight.
        for _ in 0..10_000 {
            if self.read(0, self.block).await == bytes {
                return;
            }
        }
        panic!("a write whose completion was dropped never landed");
    }

    async fn zeros_read_as_zeros(&self) {
        let len = 1 << 20;
        let block = self.block as u64;
        let ranges = [(0, block), (block, 9 * block), (65536, 131_072), (7 * block, 200 * block)];
        for (offset, zeroed) in ranges {
            for (unmap, fast) in [(false, false), (true, false), (true, true), (false, true)] {
                let mut bytes = self.bytes(13 + offset, len);
                self.write(0, &bytes).await;
                let op = Op::new(offset, Work::Zero { len: zeroed, unmap, fast });
                let done = self.submit(op).await;
                assert_eq!(shape(&done.work).0, "zero");
                let promised = !fast || (unmap && self.limits.zero == ZeroSupport::Fast);
                match done.result {
                    Ok(()) => bytes[offset as usize..(offset + zeroed) as usize].fill(0),
                    Err(error) => {
                        assert!(!promised, "zeroing (unmap {unmap}, fast {fast}): {error}");
                        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
                    }
                }
                self.expect(0, &bytes, "zeros where they belong, and only there").await;
            }
        }
    }

    async fn discarded_bytes_do_not_spread(&self) {
        let len = 1 << 20;
        let mut bytes = self.bytes(14, len);
        self.write(0, &bytes).await;
        let (offset, count) = (3 * self.block, 200 * self.block);
        self.must(Op::new(offset as u64, Work::Discard { len: count as u64 })).await;
        let gone = offset..offset + count;
        if self.limits.discard_zeroes {
            bytes[gone].fill(0);
            self.expect(0, &bytes, "discarded bytes read as zeros, the others as before").await;
        } else {
            self.expect(0, &bytes[..offset], "bytes before a discard").await;
            let after = offset + count;
            self.expect(after as u64, &bytes[after..], "bytes after a discard").await;
        }
        // Whatever they are, they can be written again.
        self.write(0, &self.bytes(15, len)).await;
        self.expect(0, &self.bytes(15, len), "written after a discard").await;
    }

    async fn extents(&self, offset: u64, len: u64) -> Vec<Extent> {
        let old = vec![Extent { len: 1, kind: ExtentKind::Data }];
        match self.must(Op::new(offset, Work::Extents { len, found: old })).await {
            Work::Extents { found, .. } => found,
            other => panic!("extents completed as {other:?}"),
        }
    }

    async fn extents_tell_the_truth(&self) {
        let len = 2 << 20;
        self.write(0, &self.bytes(16, len)).await;
        for (offset, count) in [(128 << 10, 256 << 10), (1 << 20, 512 << 10)] {
            self.must(Op::new(offset, Work::Zero { len: count, unmap: true, fast: false })).await;
        }
        let block = self.block as u64;
        for (offset, len) in [(0, len as u64), (block, block), (132 << 10, 1 << 20)] {
            let mut at = offset;
            while at < offset + len {
                let found = self.extents(at, offset + len - at).await;
                assert!(!found.is_empty(), "extents say something of the first byte");
                for extent in found {
                    assert!(extent.len > 0, "no extent is empty");
                    assert!(extent.len.is_multiple_of(block), "extents are whole blocks");
                    assert!(at + extent.len <= offset + len, "no more than was asked for");
                    if extent.kind != ExtentKind::Data {
                        let zeros = vec![0; extent.len as usize];
                        self.expect(at, &zeros, "an extent of zeros reads as zeros").await;
                    }
                    at += extent.len;
                }
            }
        }
    }

    /// Operations one after another, at random, against a model in memory.
    async fn reads_return_the_last_write(&self) {
        let len = 512 << 10;
        let mut model = self.bytes(17, len);
        self.write(0, &model).await;
        let mut numbers = Numbers(42);
        let blocks = (len / self.block) as u64;
        for round in 0..300 {
            let start = numbers.next(blocks);
            let count = 1 + numbers.next((blocks - start).min(64));
            let (offset, bytes) = (start * self.block as u64, count as usize * self.block);
            let range = offset as usize..offset as usize + bytes;
            match numbers.next(4) {
                0 => self.expect(offset, &model[range], "what was written last").await,
                1 => {
                    let unmap = numbers.next(2) == 0;
                    let work = Work::Zero { len: bytes as u64, unmap, fast: false };
                    self.must(Op::new(offset, work)).await;
                    model[range].fill(0);
                }
                _ => {
                    let new = self.bytes(1000 + round, bytes);
                    self.write(offset, &new).await;
                    model[range].copy_from_slice(&new);
                }
            }
        }
        self.expect(0, &model, "the sum of all writes").await;
    }
}
