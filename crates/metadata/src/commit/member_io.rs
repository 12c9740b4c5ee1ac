//! Member I/O of the metadata writer: plain reads and writes, each with a deadline.
//!
//! Owns alignment (reads are widened to the disk's blocks) and the deadline, so that one hung
//! member cannot delay the commit. Tracks writes that have missed their deadline and may still
//! land, by the name of the disk (`MemberIo::of`). Never decides what to read or write.

use std::cell::RefCell;
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{Buf, Class, Clock, Completion, Disk, Done, ErrorKind, Op, Pool, Work};

/// The number of steps in which a deadline is waited for.
const STEPS: u32 = 4;
/// Unused memory kept for the next superblock or page.
const KEEP_BYTES: usize = 256 << 10;
/// The size of one read.
const PART_BYTES: u64 = 32 << 20;
/// The most bytes of one operation.
const MOST_BYTES: u64 = 1 << 20;

/// Reads and writes members.
#[derive(Clone)]
pub(crate) struct MemberIo {
    pool: Pool,
    clock: Rc<dyn Clock>,
    /// The time limit of an operation.
    deadline: Duration,
    late: Rc<RefCell<Vec<Late>>>,
}

/// Writes to one disk; writes without an answer in time are tracked by its name.
pub(crate) struct Writer<'a> {
    reach: &'a MemberIo,
    name: &'a str,
    disk: &'a Rc<dyn Disk>,
}

/// A write that missed its deadline; it holds the disk while it is in flight.
struct Late {
    name: String,
    _disk: Rc<dyn Disk>,
    answer: Completion<Done>,
}

/// Bytes read from a disk.
pub(crate) struct Loaded {
    buf: Buf,
    within: Range<usize>,
}

impl Deref for Loaded {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[self.within.clone()]
    }
}

impl MemberIo {
    /// Member I/O that gives an operation up after `deadline`.
    pub(crate) fn within(clock: Rc<dyn Clock>, deadline: Duration) -> MemberIo {
        MemberIo { pool: Pool::new(KEEP_BYTES), clock, deadline, late: Rc::default() }
    }

    /// The writer for this disk.
    pub(crate) fn of<'a>(&'a self, name: &'a str, disk: &'a Rc<dyn Disk>) -> Writer<'a> {
        Writer { reach: self, name, disk }
    }

    /// Writes to a disk of this name that missed their deadline and may still land.
    pub(crate) fn late(&self, name: &str) -> usize {
        let mut late = self.late.borrow_mut();
        late.retain_mut(|late| late.answer.take_ready().is_none());
        late.iter().filter(|late| late.name == name).count()
    }

    /// Reads a range of a disk with any alignment.
    pub(crate) async fn read(&self, disk: &dyn Disk, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for start in range.clone().step_by(PART_BYTES as usize) {
            let end = range.end.min(start + PART_BYTES);
            bytes.extend_from_slice(&self.load(disk, start..end).await?);
        }
        Ok(bytes)
    }

    /// Like [`MemberIo::read`], without a copy; at most 32 MiB, or 64 MiB of whole blocks.
    pub(crate) async fn load(&self, disk: &dyn Disk, range: Range<u64>) -> io::Result<Loaded> {
        let block = u64::from(disk.limits().logical_block);
        let wide = range.start / block * block..range.end.next_multiple_of(block);
        let mut rest = self.pool.take((wide.end - wide.start) as usize);
        let (mut read, mut at): (Option<Buf>, u64) = (None, wide.start);
        while at < wide.end {
            let len = (wide.end - at).min(MOST_BYTES.next_multiple_of(block));
            let op = Op::read(at, rest.split_to(len as usize)).with_class(Class::Metadata);
            let part = match self.answer(&mut disk.submit(op)).await {
                Some(done) => checked(done)?.into_buf(),
                None => return Err(self.too_late()),
            };
            let whole = match read.take() {
                Some(before) => before.join(part),
                None => Ok(part),
            };
            read = Some(whole.unwrap_or_else(|_| unreachable!("cut from one buffer, in order")));
            at += len;
        }
        let first = (range.start - wide.start) as usize;
        let within = first..first + (range.end - range.start) as usize;
        let buf = read.unwrap_or(rest);
        assert!(within.end <= buf.len(), "a read that is shorter than its range");
        Ok(Loaded { buf, within })
    }

    /// The answer; `None` if it does not come in time.
    async fn answer(&self, answer: &mut Completion<Done>) -> Option<Done> {
        // In steps: a late step means that this thread was blocked, and so was the member's answer.
        for _ in 0..STEPS {
            let step = self.clock.now() + self.deadline / STEPS;
            let mut alarm = pin!(self.clock.sleep_until(step));
            let done = std::future::poll_fn(|cx| match Pin::new(&mut *answer).poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
            });
            if let Some(done) = done.await {
                return Some(done);
            }
        }
        None
    }

    fn too_late(&self) -> io::Error {
        let context = format!("waited for {} s", self.deadline.as_secs_f32());
        io::Error::new(ErrorKind::Timeout, context)
    }
}

impl Writer<'_> {
    /// Writes whole blocks.
    pub(crate) async fn write(&self, offset: u64, bytes: &[u8], fua: bool) -> io::Result<()> {
        let buf = self.reach.pool.copy_of(bytes).freeze();
        let op = Op::write(offset, buf);
        self.carry_out(if fua { op.with_fua() } else { op }).await
    }

    /// Makes all writes durable.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        self.carry_out(Op::flush()).await
    }

    /// Makes bytes read as zeros. With `fast`, only if the disk can do that faster than by writing.
    pub(crate) async fn zero(&self, range: Range<u64>, fast: bool) -> io::Result<()> {
        let most = 64 * MOST_BYTES;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(most);
            self.carry_out(Op::new(at, Work::Zero { len, unmap: true, fast })).await?;
            at += len;
        }
        Ok(())
    }

    async fn carry_out(&self, op: Op) -> io::Result<()> {
        let mut answer = self.disk.submit(op.with_class(Class::Metadata));
        if let Some(done) = self.reach.answer(&mut answer).await {
            return checked(done).map(drop);
        }
        let late = Late { name: self.name.into(), _disk: Rc::clone(self.disk), answer };
        self.reach.late.borrow_mut().push(late);
        Err(self.reach.too_late())
    }
}

fn checked(mut done: Done) -> io::Result<Done> {
    let result = std::mem::replace(&mut done.result, Ok(()));
    result.map(|()| done)
}

/// Runs futures concurrently; the answers are in their order.
pub async fn all<T, F: Future<Output = T>>(futures: impl IntoIterator<Item = F>) -> Vec<T> {
    let mut running: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut answers: Vec<Option<T>> = running.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        let mut waiting = false;
        for (future, answer) in running.iter_mut().zip(&mut answers) {
            if answer.is_none() {
                match future.as_mut().poll(cx) {
                    Poll::Ready(value) => *answer = Some(value),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    answers.into_iter().flatten().collect()
}
