//! Requests in the thread's ring.
//!
//! **Ownership.** An operation lives in `slots` from [`Transfers::begin`] until its last request
//! has landed; the ring keeps the whole table alive for as long. Dropping the disk, or the
//! completion, frees nothing that the kernel may still touch.
//!
//! Never decides on requests: that is the [`Transfer`].

use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;

use io::{Completion, Completions, Done, Op, Ticket};
use io_uring::{opcode, squeue, types};

use super::file::File;
use super::transfer::{Request, Transfer};
use super::{distant, psync};
use crate::reactor::ring::{CompletionHandler, Ring};

/// `BLOCK_URING_CMD_DISCARD` of `linux/blkdev.h`, Linux 6.12: `_IO(0x12, 0)`; start in `addr`,
/// length in `addr3`, which is where a 16-byte command begins.
const DISCARD: u32 = 0x1200;

/// The operations of one disk that are in the ring.
pub(super) struct Transfers {
    file: Arc<File>,
    ring: Rc<Ring>,
    completions: Completions<Done>,
    slots: RefCell<Slots>,
    /// Set once this kernel has shown that it cannot discard through a ring.
    trims_inline: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    flying: Vec<Option<(Ticket, Transfer)>>,
    free: Vec<u32>,
    /// Room for slices of operations to come.
    iovs: Vec<Vec<libc::iovec>>,
}

impl Transfers {
    pub(super) fn new(file: &Arc<File>, ring: &Rc<Ring>) -> Rc<Transfers> {
        if file.distant.is_some() {
            distant::widen(ring);
        }
        Rc::new(Transfers {
            file: Arc::clone(file),
            ring: Rc::clone(ring),
            completions: Completions::new(),
            slots: RefCell::default(),
            trims_inline: Cell::new(false),
        })
    }

    /// False once the executor is gone.
    pub(super) fn is_open(&self) -> bool {
        !self.ring.is_closed()
    }

    /// Has a look at a distant file.
    pub(super) fn look(&self) {
        distant::look(&self.file, &self.ring);
    }

    /// Starts an operation.
    pub(super) fn begin(self: &Rc<Self>, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.completions.start();
        let (slot, iov) = {
            let mut slots = self.slots.borrow_mut();
            let iov = slots.iovs.pop().unwrap_or_default();
            let slot = slots.free.pop().unwrap_or_else(|| {
                slots.flying.push(None);
                slots.flying.len() as u32 - 1
            });
            (slot, iov)
        };
        self.proceed(slot, ticket, Transfer::new(&self.file, op, iov));
        completion
    }

    /// Launches the transfer's next request.
    fn proceed(self: &Rc<Self>, slot: u32, ticket: Ticket, mut transfer: Transfer) {
        loop {
            let mut request = transfer.next(&self.file);
            if matches!(request, Request::Trim { .. }) && self.trims_inline.get() {
                let answer = psync::perform(&self.file, &mut request);
                match transfer.advance(&self.file, answer) {
                    Some(result) => return self.end(slot, ticket, transfer, result),
                    None => continue,
                }
            }
            let entry = self.entry(&mut request);
            self.slots.borrow_mut().flying[slot as usize] = Some((ticket, transfer));
            // SAFETY: the memory belongs to the transfer, which stays in its slot until it lands;
            // the ring keeps `self` until then. Moving the transfer moves neither buffers nor
            // slices.
            unsafe { self.ring.launch(entry, Rc::clone(self) as Rc<dyn CompletionHandler>, slot) };
            return;
        }
    }

    fn end(&self, slot: u32, ticket: Ticket, transfer: Transfer, result: io::Result<()>) {
        let (work, iov) = transfer.into_parts();
        {
            let mut slots = self.slots.borrow_mut();
            slots.free.push(slot);
            slots.iovs.push(iov);
        }
        self.completions.finish(ticket, Done { work, result });
    }

    fn entry(&self, request: &mut Request<'_>) -> squeue::Entry {
        let entry = self.plain_entry(request);
        // Straight to a worker: the kernel's attempt on this thread might block.
        if self.file.distant.is_some() { entry.flags(squeue::Flags::ASYNC) } else { entry }
    }

    fn plain_entry(&self, request: &mut Request<'_>) -> squeue::Entry {
        let fd = types::Fd(self.file.fd().as_raw_fd());
        match *request {
            Request::Stat(ref mut stat) => distant::entry(&self.file, stat),
            Request::Read { iov: [one], offset } => {
                let (start, len) = (one.iov_base.cast(), one.iov_len as u32);
                opcode::Read::new(fd, start, len).offset(offset).build()
            }
            Request::Read { iov, offset } => {
                opcode::Readv::new(fd, iov.as_ptr(), iov.len() as u32).offset(offset).build()
            }
            Request::Write { iov, offset, durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                match iov {
                    [one] => {
                        let (start, len) = (one.iov_base.cast_const().cast(), one.iov_len as u32);
                        opcode::Write::new(fd, start, len).offset(offset).rw_flags(flags).build()
                    }
                    many => opcode::Writev::new(fd, many.as_ptr(), many.len() as u32)
                        .offset(offset)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Request::Sync => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
            Request::Allocate { mode, offset, len } => {
                let mode = mode.bits() as i32;
                opcode::Fallocate::new(fd, len).offset(offset).mode(mode).build()
            }
            Request::Trim { offset, len } => {
                let mut command = [0; 16];
                command[..8].copy_from_slice(&len.to_ne_bytes());
                let entry = opcode::UringCmd16::new(fd, DISCARD).cmd(command).addr(Some(offset));
                entry.build()
            }
        }
    }
}

impl CompletionHandler for Transfers {
    fn complete(self: Rc<Self>, slot: u32, result: i32) {
        let (ticket, mut transfer) = self.slots.borrow_mut().flying[slot as usize]
            .take()
            .expect("a transfer stays in its slot until it lands");
        let unknown = result == -libc::EOPNOTSUPP || result == -libc::EINVAL;
        if unknown && !self.trims_inline.get() && transfer.is_trim() {
            self.trims_inline.set(true);
            return self.proceed(slot, ticket, transfer);
        }
        match transfer.advance(&self.file, result) {
            Some(result) => self.end(slot, ticket, transfer, result),
            None => self.proceed(slot, ticket, transfer),
        }
    }
}
