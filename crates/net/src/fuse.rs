//! A disk as a file of the kernel: FUSE, with one file and no folder.
//!
//! ```text
//!    file system ─▶ loop device ─▶ file ─▶ kernel's FUSE ══ channel ══ Server ─▶ Bytewise ─▶ Disk
//! ```
//!
//! The root of the file system is the file itself, so it is mounted over a file. It is opened past
//! the page cache: requests come as the loop device sends them, several at a time, and a flush
//! comes as `fsync`. FUA does not exist; the loop device sends a flush instead.
//!
//! Zeroing is refused where it is no faster than writing zeros: the kernel then writes them itself,
//! and a discard of a whole disk ends at once.

#[cfg(test)]
mod tests;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::channel::{Channel, Request as Message};
use io::{Boxed, Done, ErrorKind, Op, Pool, TaskSet, Work};

use self::wire::{MAX_TRANSFER_BYTES, Request, errno};
use crate::bytewise::Bytewise;

/// The most requests in flight; further ones wait in the kernel.
const MAX_IN_FLIGHT: usize = 256;
/// The most data of requests in flight, besides one batch of the channel: when the kernel frees
/// memory it sends all that it has, and this process must not need more memory for that.
const MAX_BYTES_IN_FLIGHT: u64 = 8 << 20;

/// A disk behind a channel.
pub struct Server {
    shared: Rc<Shared>,
    tasks: TaskSet,
    received: RefCell<Vec<Message>>,
}

struct Shared {
    channel: Rc<dyn Channel>,
    disk: Bytewise,
    pool: Pool,
    read_only: bool,
    destroyed: Cell<bool>,
    /// Data of requests in flight.
    bytes: Cell<u64>,
}

impl Server {
    /// Serves `disk` to the kernel behind `channel`; memory for reads comes from `pool`.
    pub fn new(channel: Rc<dyn Channel>, disk: Bytewise, pool: Pool, read_only: bool) -> Server {
        let (destroyed, bytes) = (Cell::new(false), Cell::new(0));
        let shared = Rc::new(Shared { channel, disk, pool, read_only, destroyed, bytes });
        Server { shared, tasks: TaskSet::new(), received: RefCell::default() }
    }

    /// Answers requests until the file system is unmounted. All of them are answered then.
    pub fn run(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            poll_fn(|cx| self.poll_requests(cx)).await;
            self.tasks.run().await;
        })
    }

    fn poll_requests(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Ready only says that nothing is in flight.
            let _ = self.tasks.poll(cx);
            if self.shared.destroyed.get() {
                return Poll::Ready(());
            }
            let bytes = self.shared.bytes.get();
            if self.tasks.len() >= MAX_IN_FLIGHT || bytes >= MAX_BYTES_IN_FLIGHT {
                return Poll::Pending;
            }
            let mut received = self.received.borrow_mut();
            match self.shared.channel.poll_receive(cx, &mut received) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {
                    for message in received.drain(..) {
                        self.take(message);
                    }
                }
            }
        }
    }

    /// Answers a request, or starts it.
    fn take(&self, message: Message) {
        let shared = &self.shared;
        let (unique, request) = match wire::parse(&message) {
            Ok(parsed) => parsed,
            Err(Some((unique, error))) => return shared.fail(unique, error),
            Err(None) => return,
        };
        let limits = shared.disk.limits();
        match request {
            Request::Init { major: 7, flags } => shared.answer(unique, &wire::init(flags)),
            Request::Attributes => {
                let attributes =
                    wire::attributes(limits.bytes, shared.read_only, limits.logical_block);
                shared.answer(unique, &attributes);
            }
            Request::Open => shared.answer(unique, &wire::opened()),
            Request::Release => shared.answer(unique, &[]),
            Request::Space => shared.answer(unique, &wire::space(limits.bytes)),
            Request::SetAttributes => shared.fail(unique, errno::PERM),
            Request::Unanswered => {}
            Request::Destroy => {
                shared.answer(unique, &[]);
                shared.destroyed.set(true);
            }
            Request::Init { .. } | Request::Unknown => shared.fail(unique, errno::NOSYS),
            Request::Read { offset, bytes } => {
                let left = limits.bytes.saturating_sub(offset);
                let bytes = left.min(bytes.into()).min(MAX_TRANSFER_BYTES.into());
                match bytes {
                    0 => shared.answer(unique, &[]),
                    _ => self.start(unique, Op::read(offset, shared.pool.take(bytes as usize))),
                }
            }
            _ if shared.read_only && request != Request::Flush => {
                shared.fail(unique, errno::PERM);
            }
            Request::Write { offset, bytes, durable } => {
                let end = offset.checked_add(bytes.into());
                if end.is_none_or(|end| end > limits.bytes) {
                    return shared.fail(unique, errno::FBIG);
                }
                let op = Op::write(offset, message.body.freeze());
                self.start(unique, Op { fua: durable, ..op });
            }
            Request::Flush => self.start(unique, Op::flush()),
            Request::Zero { offset, bytes, unmap } => {
                let work = Work::Zero { len: bytes, unmap, fast: true };
                self.start(unique, Op::new(offset, work));
            }
        }
    }

    fn start(&self, unique: u64, op: Op) {
        let shared = Rc::clone(&self.shared);
        let bytes = match op.work {
            Work::Read(_) | Work::Write(_) => op.work.len(),
            _ => 0,
        };
        shared.bytes.set(shared.bytes.get() + bytes);
        let answer = shared.disk.submit(op);
        self.tasks.spawn(async move {
            shared.end(unique, answer.await);
            shared.bytes.set(shared.bytes.get() - bytes);
        });
    }
}

impl Shared {
    fn end(&self, unique: u64, done: Done) {
        match done {
            Done { work: Work::Read(bufs), result: Ok(()) } => {
                let header = wire::answer(unique, 0, bufs.iter().map(|buf| buf.len()).sum());
                let mut parts: Vec<&[u8]> = vec![&header];
                parts.extend(bufs.iter().map(|buf| &buf[..]));
                self.channel.answer(&parts);
            }
            Done { work, result: Ok(()) } => match work {
                Work::Write(_) => self.answer(unique, &wire::written(work.len() as u32)),
                _ => self.answer(unique, &[]),
            },
            Done { result: Err(error), .. } => self.fail(
                unique,
                match error.kind() {
                    ErrorKind::Refused => errno::NOTSUP,
                    ErrorKind::NoSpace => errno::NOSPC,
                    _ => errno::IO,
                },
            ),
        }
    }

    fn answer(&self, unique: u64, bytes: &[u8]) {
        self.channel.answer(&[&wire::answer(unique, 0, bytes.len()), bytes]);
    }

    fn fail(&self, unique: u64, error: i32) {
        self.channel.answer(&[&wire::answer(unique, error, 0)]);
    }
}
