//! How the ledger reaches a member's bytes: plain reads and writes, each with a deadline.
//!
//! Owns alignment (reads are widened to the disk's blocks) and the deadline, so that one hung
//! member cannot hold up the record of all; and what members have not answered in time and may
//! still carry out. Never decides what to read or write.

use std::cell::RefCell;
use std::future::Future;
use std::ops::{Deref, Range};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use io::{Buf, Class, Clock, Completion, Disk, Done, ErrorKind, Op, Pool, Work};

/// A deadline is waited for in so many parts.
const STEPS: u32 = 4;
/// Unused memory kept for the next superblock or page.
const KEEP_BYTES: usize = 256 << 10;
/// What is read at once.
const PART_BYTES: u64 = 32 << 20;
/// The most bytes of one operation.
const MOST_BYTES: u64 = 1 << 20;

/// The means to read and write members.
#[derive(Clone)]
pub(crate) struct Reach {
    pool: Pool,
    clock: Rc<dyn Clock>,
    /// An operation may take so long.
    deadline: Duration,
    /// Whose bytes are reached, if that is to be remembered.
    owner: Option<Rc<Owner>>,
    late: Rc<RefCell<Vec<Late>>>,
}

/// A member; holds its disk for as long as something is under way there.
struct Owner {
    name: String,
    _disk: Rc<dyn Disk>,
}

/// An operation that missed its deadline.
struct Late {
    owner: Rc<Owner>,
    answer: Completion<Done>,
}

/// Bytes that were read from a disk.
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

impl Reach {
    /// Gives an operation up after `deadline`.
    pub(crate) fn within(clock: Rc<dyn Clock>, deadline: Duration) -> Reach {
        Reach { pool: Pool::new(KEEP_BYTES), clock, deadline, owner: None, late: Rc::default() }
    }

    /// The means to reach this member: what it does not answer in time is remembered.
    pub(crate) fn of(&self, name: &str, disk: &Rc<dyn Disk>) -> Reach {
        let owner = Owner { name: name.into(), _disk: Rc::clone(disk) };
        Reach { owner: Some(Rc::new(owner)), ..self.clone() }
    }

    /// Operations on a member of this name that missed their deadline and may still be carried out.
    pub(crate) fn late(&self, name: &str) -> usize {
        let mut late = self.late.borrow_mut();
        late.retain_mut(|late| late.answer.take_ready().is_none());
        late.iter().filter(|late| late.owner.name == name).count()
    }

    /// Reads bytes of a disk, wherever they begin and end.
    pub(crate) async fn read(&self, disk: &dyn Disk, range: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity((range.end - range.start) as usize);
        for start in range.clone().step_by(PART_BYTES as usize) {
            let end = range.end.min(start + PART_BYTES);
            bytes.extend_from_slice(&self.load(disk, start..end).await?);
        }
        Ok(bytes)
    }

    /// The same, left where they were read to; at most 32 MiB, or 64 MiB of whole blocks.
    pub(crate) async fn load(&self, disk: &dyn Disk, range: Range<u64>) -> io::Result<Loaded> {
        let block = u64::from(disk.limits().logical_block);
        let wide = range.start / block * block..range.end.next_multiple_of(block);
        let mut rest = self.pool.take((wide.end - wide.start) as usize);
        let (mut read, mut at): (Option<Buf>, u64) = (None, wide.start);
        while at < wide.end {
            let len = (wide.end - at).min(MOST_BYTES.next_multiple_of(block));
            let op = Op::read(at, rest.split_to(len as usize)).with_class(Class::Metadata);
            let part = self.finish(disk.submit(op)).await?.into_buf();
            let whole = match read.take() {
                Some(before) => before.join(part),
                None => Ok(part),
            };
            read = Some(whole.unwrap_or_else(|_| unreachable!("cut from one buffer, in order")));
            at += len;
        }
        let first = (range.start - wide.start) as usize;
        let within = first..first + (range.end - range.start) as usize;
        Ok(Loaded { buf: read.unwrap_or(rest), within })
    }

    /// Writes whole blocks.
    pub(crate) async fn write(
        &self,
        disk: &dyn Disk,
        offset: u64,
        bytes: &[u8],
        fua: bool,
    ) -> io::Result<()> {
        let buf = self.pool.copy_of(bytes).freeze();
        let op = Op::write(offset, buf).with_class(Class::Metadata);
        let op = if fua { op.with_fua() } else { op };
        self.finish(disk.submit(op)).await.map(drop)
    }

    /// Makes all that was written durable.
    pub(crate) async fn flush(&self, disk: &dyn Disk) -> io::Result<()> {
        self.finish(disk.submit(Op::flush().with_class(Class::Metadata))).await.map(drop)
    }

    /// Makes bytes read as zeros. If `fast`, only if the disk has a quicker way than writing them.
    pub(crate) async fn zero(
        &self,
        disk: &dyn Disk,
        range: Range<u64>,
        fast: bool,
    ) -> io::Result<()> {
        let most = 64 * MOST_BYTES;
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(most);
            let work = Work::Zero { len, unmap: true, fast };
            self.finish(disk.submit(Op::new(at, work).with_class(Class::Metadata))).await?;
            at += len;
        }
        Ok(())
    }

    /// The answer, or `Timeout`. What comes too late is dropped with its buffers.
    async fn finish(&self, mut answer: Completion<Done>) -> io::Result<Done> {
        // In steps: one that ends late was kept from ending, and the member's answer from coming.
        for _ in 0..STEPS {
            let step = self.clock.now() + self.deadline / STEPS;
            let mut alarm = pin!(self.clock.sleep_until(step));
            let done = std::future::poll_fn(|cx| match Pin::new(&mut answer).poll(cx) {
                Poll::Ready(done) => Poll::Ready(Some(done)),
                Poll::Pending => alarm.as_mut().poll(cx).map(|()| None),
            });
            if let Some(done) = done.await {
                return checked(done);
            }
        }
        if let Some(owner) = &self.owner {
            self.late.borrow_mut().push(Late { owner: Rc::clone(owner), answer });
        }
        let context = format!("superblock or bitmap, after {} s", self.deadline.as_secs());
        Err(io::Error::new(ErrorKind::Timeout, context))
    }
}

fn checked(mut done: Done) -> io::Result<Done> {
    let result = std::mem::replace(&mut done.result, Ok(()));
    result.map(|()| done)
}

/// Runs futures side by side; the answers are in their order.
pub(crate) async fn all<T, F: Future<Output = T>>(futures: impl IntoIterator<Item = F>) -> Vec<T> {
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
