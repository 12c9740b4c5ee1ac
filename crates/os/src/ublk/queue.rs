//! The queue of a ublk device: requests come, answers go.
//!
//! It has a ring of its own: commands that wait for requests end only with their ring, and the
//! kernel notices by it that the server has gone. An eventfd tells the thread's reactor of news.

use std::cell::RefCell;
use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::task::{Context, Poll};

use io_uring::{IoUring, opcode, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::{DEPTH, Device, SECTOR_BYTES};
use crate::executor::Spawner;
use crate::reactor::source::{Direction, Watched};

/// `_IOWR('u', number, struct ublksrv_io_cmd)`.
const fn command(number: u32) -> u32 {
    3 << 30 | 16 << 16 | (b'u' as u32) << 8 | number
}

const FETCH: u32 = command(0x20);
const COMMIT_AND_FETCH: u32 = command(0x21);

/// The place of a request's data in the queue's file, and the bits of an offset in it.
const DATA_START: u64 = 0x8000_0000;
const DATA_BITS: u32 = 25;

const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// `struct ublksrv_io_desc`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Description {
    what: u32,
    sectors: u32,
    start_sector: u64,
    address: u64,
}

/// A request of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// Names it until it is answered.
    pub tag: u16,
    /// What to do.
    pub command: Command,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// Answer when it is durable.
    pub fua: bool,
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// Give these bytes ([`UblkQueue::give`]).
    Read,
    /// Take these bytes ([`UblkQueue::take`]).
    Write,
    /// Make everything durable that was answered.
    Flush,
    /// These bytes are not needed any more.
    Discard,
    /// These bytes read as zeros from now on.
    Zero {
        /// They may lose their space.
        unmap: bool,
    },
    /// Something else.
    Unknown,
}

/// The queue of a device. To be dropped when it has ended, or left ([`UblkQueue::leave`]).
pub struct UblkQueue {
    // Dropped first: then nothing uses the rest.
    ring: RefCell<IoUring>,
    news: Watched,
    file: File,
    descriptions: Descriptions,
}

/// The kernel's descriptions of requests, by tag, in memory that it shares.
struct Descriptions(*const Description);

/// Bytes of that memory.
const SHARED_BYTES: usize = (DEPTH as usize * size_of::<Description>()).next_multiple_of(4096);

impl UblkQueue {
    /// Opens the queue of a device, and asks for its requests.
    ///
    /// # Errors
    /// `ResourceBusy` if another process has it, and what the kernel says.
    pub fn open(device: Device, on: &Spawner) -> Result<UblkQueue> {
        let file = File::options().read(true).write(true).open(device.queue_path())?;
        // SAFETY: a new mapping at a place of the kernel's choice.
        let shared = unsafe {
            let null = std::ptr::null_mut();
            mmap(null, SHARED_BYTES, ProtFlags::READ, MapFlags::SHARED, &file, 0)?
        };
        let descriptions = Descriptions(shared.cast());
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(DEPTH.into())?;
        let news = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        ring.submitter().register_eventfd(news.as_raw_fd())?;
        let news = Watched::new(news, on.reactor())?;
        let queue = UblkQueue { ring: RefCell::new(ring), news, file, descriptions };
        (0..DEPTH).for_each(|tag| queue.push(FETCH, tag, 0));
        queue.enter()?;
        Ok(queue)
    }

    /// Sends the answers so far, and adds new requests to `into`: at least one when ready.
    ///
    /// # Errors
    /// The queue has ended: nothing more will come.
    pub fn poll_requests(&self, cx: &mut Context<'_>, into: &mut Vec<Request>) -> Poll<Result<()>> {
        loop {
            if let Err(error) = self.enter() {
                return Poll::Ready(Err(error));
            }
            let before = into.len();
            let mut ended = false;
            for entry in self.ring.borrow_mut().completion() {
                match entry.result() {
                    0 => into.push(self.request(entry.user_data() as u16)),
                    _ => ended = true,
                }
            }
            if into.len() > before {
                return Poll::Ready(Ok(()));
            }
            if ended {
                return Poll::Ready(Err(ErrorKind::ConnectionAborted.into()));
            }
            // Silenced before the last look: news from here on wakes the task.
            if rustix::io::read(&self.news, &mut [0; 8]).is_err() {
                self.news.arm(Direction::Read, cx);
                return Poll::Pending;
            }
        }
    }

    /// Copies the data of a write.
    ///
    /// # Errors
    /// The request has ended.
    pub fn take(&self, request: &Request, into: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(into, data_at(request.tag))
    }

    /// Gives the data of a read, from this byte of it on.
    ///
    /// # Errors
    /// The request has ended.
    pub fn give(&self, request: &Request, from: usize, data: &[u8]) -> Result<()> {
        self.file.write_all_at(data, data_at(request.tag) + from as u64)
    }

    /// Answers a request: done, or an `errno`. It goes out with the next poll.
    pub fn answer(&self, request: &Request, outcome: std::result::Result<(), i32>) {
        let result = match outcome {
            Ok(()) => i32::try_from(request.bytes).unwrap_or(i32::MAX),
            Err(errno) => -errno,
        };
        self.push(COMMIT_AND_FETCH, request.tag, result);
    }

    /// Sends the last answers, and leaves the device to the next server as this process ends. The
    /// ring stays open until then: Linux 6.12 never ends a ring that is closed while requests come,
    /// nor its process.
    pub fn leave(self: Rc<Self>) {
        // What cannot be sent is issued again, to the next server.
        let _ = self.enter();
        std::mem::forget(self);
    }

    fn request(&self, tag: u16) -> Request {
        let description = self.descriptions.get(tag);
        let command = match description.what as u8 {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Flush,
            3 => Command::Discard,
            5 => Command::Zero { unmap: description.what & NO_UNMAP == 0 },
            _ => Command::Unknown,
        };
        Request {
            tag,
            command,
            offset: description.start_sector.saturating_mul(SECTOR_BYTES),
            bytes: u64::from(description.sectors) * SECTOR_BYTES,
            fua: description.what & FUA != 0,
        }
    }

    /// Queues a command: `struct ublksrv_io_cmd` for the only queue, without an address.
    fn push(&self, operation: u32, tag: u16, result: i32) {
        let mut command = [0; 16];
        command[2..4].copy_from_slice(&tag.to_ne_bytes());
        command[4..8].copy_from_slice(&result.to_ne_bytes());
        let fd = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(fd, operation).cmd(command);
        let entry = entry.build().user_data(tag.into());
        let mut ring = self.ring.borrow_mut();
        // SAFETY: the command names no memory.
        let pushed = unsafe { ring.submission().push(&entry) };
        pushed.expect("the ring has room for a command of each tag");
    }

    fn enter(&self) -> Result<()> {
        let mut ring = self.ring.borrow_mut();
        let commands = ring.submission();
        let is_idle = commands.is_empty() && !commands.taskrun() && !commands.cq_overflow();
        drop(commands);
        if is_idle {
            return Ok(());
        }
        match ring.submit() {
            Ok(_) => Ok(()),
            // Later is soon enough.
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

fn is_transient(error: &Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

fn data_at(tag: u16) -> u64 {
    DATA_START + (u64::from(tag) << DATA_BITS)
}

impl Descriptions {
    fn get(&self, tag: u16) -> Description {
        assert!(tag < DEPTH, "a tag of this queue");
        // SAFETY: within the mapping, which lives as long as this. The kernel wrote the description
        // before it completed the command, and changes it only after the answer.
        unsafe { self.0.add(tag.into()).read_volatile() }
    }
}

impl Drop for Descriptions {
    fn drop(&mut self) {
        // SAFETY: nothing refers to the mapping any more.
        let _ = unsafe { munmap(self.0.cast_mut().cast(), SHARED_BYTES) };
    }
}
