//! Any byte range over a disk of blocks.
//!
//! A disk takes whole blocks only. Clients that never asked for block sizes may send any range, so
//! the blocks at the two edges of an unaligned write are read first, patched, and written whole:
//!
//! ```text
//!    blocks     |. . . . . . . .|. . . . . . . .|. . . . . . . .|
//!    write               ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓
//!    becomes    |old old ▓▓▓▓▓▓▓|▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓|▓ old old old  |     one write of whole blocks
//! ```
//!
//! Between the read and the end of the write no other writer may change those blocks, or the patch
//! would overwrite new bytes with old ones. So every write holds its range: aligned writes share,
//! patching writes exclude, and each waits only for earlier ones. All writers of a disk must
//! therefore use one `Bytewise`, or several that share their [`Writers`]: one on each thread.
//! Aligned requests go straight to the disk: no copy, no allocation.
//!
//! Invariant: a range is held until the disk has answered. Dropping an [`Answer`] early breaks
//! this, so sessions wait for all their answers, even after the client has gone.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use io::buf::MAX_BUF_BYTES;
use io::{
    Buf, Completion, Disk, Done, Error, ExtentKind, Limits, Op, Pool, Result, SharedBuf, Work,
};

/// A disk, served byte by byte. Clones share the disk and its held ranges.
#[derive(Clone)]
pub struct Bytewise(Rc<Inner>);

struct Inner {
    disk: Rc<dyn Disk>,
    pool: Pool,
    limits: Limits,
    writers: Writers,
}

/// The answer to a request to a [`Bytewise`] disk. Wait for it: see the invariant above.
#[must_use = "an unchecked answer may hide an error"]
pub struct Answer(Source);

enum Source {
    /// Straight from the disk, the range held if the request writes.
    Passing(Completion<Done>, Option<Hold>),
    /// Several steps.
    Stepwise(Pin<Box<dyn Future<Output = Done>>>),
}

impl Future for Answer {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        match &mut self.0 {
            Source::Passing(completion, hold) => {
                let done = std::task::ready!(Pin::new(completion).poll(cx));
                *hold = None;
                Poll::Ready(done)
            }
            Source::Stepwise(steps) => steps.as_mut().poll(cx),
        }
    }
}

impl Bytewise {
    /// Serves `disk`; memory for widened requests comes from `pool`.
    pub fn new(disk: Rc<dyn Disk>, pool: Pool) -> Bytewise {
        let (limits, writers) = (disk.limits(), Writers::default());
        Bytewise(Rc::new(Inner { disk, pool, limits, writers }))
    }

    /// The same disk, written beside the others that have these writers.
    #[must_use]
    pub fn beside(&self, writers: &Writers) -> Bytewise {
        let (disk, pool) = (Rc::clone(&self.0.disk), self.0.pool.clone());
        Bytewise(Rc::new(Inner { disk, pool, limits: self.0.limits, writers: writers.clone() }))
    }

    /// The limits of the disk below; its logical block defines alignment.
    pub fn limits(&self) -> Limits {
        self.0.disk.limits()
    }

    /// Starts an operation on any byte range. A discard is rounded inwards; a `fast` zeroing that
    /// covers no whole block is refused.
    pub fn submit(&self, op: Op) -> Answer {
        let inner = &self.0;
        let len = op.work.len();
        let Some(end) = op.offset.checked_add(len) else { return inner.out_of_range(op) };
        let mask = inner.block() - 1;
        let aligned = (op.offset | len) & mask == 0 || matches!(op.work, Work::Flush);
        if aligned && !op.work.is_write() {
            return Answer(Source::Passing(inner.disk.submit(op), None));
        }
        if aligned {
            if mask == 0 {
                return Answer(Source::Passing(inner.disk.submit(op), None));
            }
            let hold = Hold::enter(&inner.writers, op.offset..end, Mode::Shared);
            if hold.may_go() {
                return Answer(Source::Passing(inner.disk.submit(op), Some(hold)));
            }
            let inner = Rc::clone(inner);
            return Answer::stepwise(async move {
                hold.turn().await;
                inner.disk.submit(op).await
            });
        }
        if end > inner.disk.limits().bytes {
            return inner.out_of_range(op);
        }
        self.submit_unaligned(op, end)
    }

    fn submit_unaligned(&self, op: Op, end: u64) -> Answer {
        let inner = Rc::clone(&self.0);
        if inner.widen(op.offset, end).1 > MAX_BUF_BYTES as u64
            && matches!(op.work, Work::Read(_) | Work::Write(_))
        {
            let error = Error::refused("an unaligned request of more bytes than a buffer has");
            return Answer::ready(Done::failed(op.work, error));
        }
        match op.work {
            Work::Read(_) => Answer::stepwise(async move { inner.read(op).await }),
            Work::Extents { .. } => Answer::stepwise(async move { inner.extents(op).await }),
            Work::Discard { .. } => {
                let (first, last) = inner.whole_blocks(op.offset, end);
                if first >= last {
                    return Answer::ready(Done::ok(op.work));
                }
                self.submit(Op { offset: first, work: Work::Discard { len: last - first }, ..op })
            }
            Work::Write(_) | Work::Zero { .. } => {
                let (first, bytes) = inner.widen(op.offset, end);
                let hold = Hold::enter(&inner.writers, first..first + bytes, Mode::Exclusive);
                Answer::stepwise(async move {
                    hold.turn().await;
                    let done = inner.patch(op).await;
                    drop(hold);
                    done
                })
            }
            Work::Flush => Answer(Source::Passing(inner.disk.submit(op), None)),
        }
    }
}

impl Answer {
    fn ready(done: Done) -> Answer {
        Answer(Source::Passing(Completion::ready(done), None))
    }

    fn stepwise(steps: impl Future<Output = Done> + 'static) -> Answer {
        Answer(Source::Stepwise(Box::pin(steps)))
    }
}

impl Inner {
    fn block(&self) -> u64 {
        u64::from(self.limits.logical_block)
    }

    fn out_of_range(&self, op: Op) -> Answer {
        let context = format!("offset {}: the range ends after the end of the disk", op.offset);
        Answer::ready(Done::failed(op.work, Error::refused(context)))
    }

    /// The blocks that the range touches: first byte, and how many bytes.
    fn widen(&self, offset: u64, end: u64) -> (u64, u64) {
        let mask = self.block() - 1;
        let first = offset & !mask;
        (first, end.checked_next_multiple_of(self.block()).map_or(u64::MAX, |last| last - first))
    }

    /// The blocks that the range covers: first byte, and the byte after the last; empty if not
    /// less.
    fn whole_blocks(&self, offset: u64, end: u64) -> (u64, u64) {
        let mask = self.block() - 1;
        (offset.checked_add(mask).map_or(u64::MAX, |up| up & !mask), end & !mask)
    }

    async fn read(&self, mut op: Op) -> Done {
        let end = op.offset + op.work.len();
        let (first, bytes) = self.widen(op.offset, end);
        let wide = Work::Read(vec![self.pool.take(bytes as usize)]);
        let done = self.disk.submit(Op { offset: first, work: wide, ..like(&op) }).await;
        if let Err(error) = done.result {
            return Done::failed(op.work, error);
        }
        let wide = done.into_buf();
        if let Work::Read(bufs) = &mut op.work {
            let mut source = &wide[(op.offset - first) as usize..];
            for buf in bufs {
                let (part, rest) = source.split_at(buf.len());
                buf.copy_from_slice(part);
                source = rest;
            }
        }
        Done::ok(op.work)
    }

    async fn extents(&self, op: Op) -> Done {
        let template = like(&op);
        let Work::Extents { len, found } = op.work else { return Done::ok(op.work) };
        let (first, bytes) = self.widen(op.offset, op.offset + len);
        let work = Work::Extents { len: bytes, found };
        let done = self.disk.submit(Op { offset: first, work, ..template }).await;
        let mut done = done;
        if let Work::Extents { len: asked, found } = &mut done.work {
            *asked = len;
            clip(found, op.offset - first, len);
        }
        done
    }

    /// Writes or zeroes an unaligned range. The range is held exclusively.
    async fn patch(&self, op: Op) -> Done {
        let template = like(&op);
        let end = op.offset + op.work.len();
        let result = match &op.work {
            Work::Write(bufs) => self.patch_bytes(&template, end, Some(bufs)).await,
            Work::Zero { unmap, fast, .. } => self.patch_zeros(&template, end, *unmap, *fast).await,
            _ => Ok(()),
        };
        Done { work: op.work, result }
    }

    async fn patch_zeros(&self, op: &Op, end: u64, unmap: bool, fast: bool) -> Result<()> {
        let (first, last) = self.whole_blocks(op.offset, end);
        if first >= last {
            if fast {
                return Err(Error::refused(
                    "less than a block cannot be zeroed faster than written",
                ));
            }
            return self.patch_bytes(op, end, None).await;
        }
        // The middle first: if it is refused for not being fast, nothing has changed.
        let work = Work::Zero { len: last - first, unmap, fast };
        self.disk.submit(Op { offset: first, work, ..like(op) }).await.result?;
        if op.offset < first {
            self.patch_bytes(op, first, None).await?;
        }
        if last < end {
            self.patch_bytes(&Op { offset: last, ..like(op) }, end, None).await?;
        }
        Ok(())
    }

    /// Writes `bufs`, or zeros, to `op.offset..end`, as one write of whole blocks.
    async fn patch_bytes(&self, op: &Op, end: u64, bufs: Option<&[SharedBuf]>) -> Result<()> {
        let (first, bytes) = self.widen(op.offset, end);
        let block = self.block();
        let mut wide = self.pool.take(bytes as usize);
        let last = first + bytes - block;
        if op.offset > first {
            let edge = self.read_block(first, op).await?;
            wide[..block as usize].copy_from_slice(&edge);
        }
        if end < last + block && (last > first || op.offset == first) {
            let edge = self.read_block(last, op).await?;
            wide[(last - first) as usize..].copy_from_slice(&edge);
        }
        let mut target = &mut wide[(op.offset - first) as usize..(end - first) as usize];
        match bufs {
            None => target.fill(0),
            Some(bufs) => {
                for buf in bufs {
                    let (part, rest) = target.split_at_mut(buf.len());
                    part.copy_from_slice(buf);
                    target = rest;
                }
            }
        }
        let work = Work::Write(vec![wide.freeze()]);
        self.disk.submit(Op { offset: first, work, ..like(op) }).await.result
    }

    async fn read_block(&self, offset: u64, op: &Op) -> Result<Buf> {
        let work = Work::Read(vec![self.pool.take(self.block() as usize)]);
        let done = self.disk.submit(Op { offset, work, fua: false, ..like(op) }).await;
        done.result.clone()?;
        Ok(done.into_buf())
    }
}

/// The same operation without its work.
fn like(op: &Op) -> Op {
    Op { offset: op.offset, work: Work::Flush, fua: op.fua, deadline: op.deadline, class: op.class }
}

/// Cuts `skip` bytes off the front, and everything beyond `len` bytes off the end.
fn clip(found: &mut Vec<io::Extent>, mut skip: u64, len: u64) {
    let mut left = len;
    for extent in found.iter_mut() {
        let cut = skip.min(extent.len);
        skip -= cut;
        extent.len = (extent.len - cut).min(left);
        left -= extent.len;
    }
    found.retain(|extent| extent.len > 0);
    if found.is_empty() && len > 0 {
        // The disk reported the skipped bytes only: claim nothing about the rest.
        found.push(io::Extent { len, kind: ExtentKind::Data });
    }
}

/// The writes in flight to a disk, from all threads.
#[derive(Clone, Default)]
pub struct Writers(Arc<Mutex<Held>>);

/// Ranges held by writes in flight, in order of arrival.
#[derive(Default)]
struct Held {
    ranges: Vec<Option<Range>>,
    vacant: Vec<usize>,
    /// Exclusive ranges among them; without one, no write waits.
    exclusive: usize,
    arrivals: u64,
    waiting: Vec<Waker>,
}

struct Range {
    bytes: std::ops::Range<u64>,
    mode: Mode,
    arrival: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Shared,
    Exclusive,
}

/// A held range; let go when dropped.
struct Hold {
    writers: Writers,
    index: usize,
}

impl Writers {
    fn held(&self) -> MutexGuard<'_, Held> {
        // No code panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// True if no earlier range conflicts with this one.
    fn may_go(&self, index: usize) -> bool {
        if self.exclusive == 0 {
            return true;
        }
        let own = self.ranges[index].as_ref().expect("held until dropped");
        !self.ranges.iter().flatten().any(|other| {
            other.arrival < own.arrival
                && (own.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
                && other.bytes.start < own.bytes.end
                && own.bytes.start < other.bytes.end
        })
    }
}

impl Hold {
    fn enter(writers: &Writers, bytes: std::ops::Range<u64>, mode: Mode) -> Hold {
        let mut held = writers.held();
        let arrival = held.arrivals;
        held.arrivals += 1;
        let index = held.vacant.pop().unwrap_or_else(|| {
            held.ranges.push(None);
            held.ranges.len() - 1
        });
        held.ranges[index] = Some(Range { bytes, mode, arrival });
        if mode == Mode::Exclusive {
            held.exclusive += 1;
        }
        Hold { writers: writers.clone(), index }
    }

    fn may_go(&self) -> bool {
        self.writers.held().may_go(self.index)
    }

    async fn turn(&self) {
        std::future::poll_fn(|cx| {
            let mut held = self.writers.held();
            if held.may_go(self.index) {
                return Poll::Ready(());
            }
            if !held.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                held.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut held = self.writers.held();
        let range = held.ranges[self.index].take();
        held.vacant.push(self.index);
        // A waiter exists only with an exclusive range, and that one is still counted.
        if held.exclusive == 0 {
            return;
        }
        if range.is_some_and(|range| range.mode == Mode::Exclusive) {
            held.exclusive -= 1;
        }
        let woken = std::mem::take(&mut held.waiting);
        drop(held);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
