//! The FUSE server on a channel in memory: each request, its limits, and bytes that are none.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::Result;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use io::channel::{Channel, REQUEST_HEAD_BYTES, Request as Message};
use io::{Completion, Completions, Disk, Done, Limits, MemDisk, Op, Pool, Ticket};

use super::wire::{MAX_TRANSFER_BYTES, errno};
use super::{MAX_BYTES_IN_FLIGHT, Server};
use crate::bytewise::Bytewise;

const DISK_BYTES: u64 = 4 << 20;

/// The kernel: requests to come, and the answers that came.
#[derive(Default)]
struct Kernel {
    requests: RefCell<VecDeque<Message>>,
    answers: RefCell<Vec<Vec<u8>>>,
}

impl Channel for Kernel {
    fn poll_receive(&self, _: &mut Context<'_>, into: &mut Vec<Message>) -> Poll<Result<()>> {
        match self.requests.borrow_mut().pop_front() {
            Some(request) => into.push(request),
            None => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    fn answer(&self, parts: &[&[u8]]) {
        self.answers.borrow_mut().push(parts.concat());
    }
}

/// A disk that answers on demand.
#[derive(Default)]
struct Held {
    waiting: RefCell<VecDeque<(Op, Ticket)>>,
    answers: Completions<Done>,
}

impl Disk for Held {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push_back((op, ticket));
        completion
    }

    fn limits(&self) -> Limits {
        Limits::plain(DISK_BYTES)
    }
}

impl Held {
    fn answer(&self) {
        let (op, ticket) = self.waiting.borrow_mut().pop_front().unwrap();
        self.answers.finish(ticket, Done { work: op.work, result: Ok(()) });
    }
}

struct Bench {
    kernel: Rc<Kernel>,
    server: Server,
    pool: Pool,
}

impl Bench {
    fn new(read_only: bool) -> Bench {
        Bench::on(Rc::new(MemDisk::new(DISK_BYTES)), read_only)
    }

    fn on(disk: Rc<dyn Disk>, read_only: bool) -> Bench {
        let (kernel, pool) = (Rc::new(Kernel::default()), Pool::new(8 << 20));
        let disk = Bytewise::new(disk, pool.clone());
        let server = Server::new(Rc::clone(&kernel) as _, disk, pool.clone(), read_only);
        Bench { kernel, server, pool }
    }

    /// Sends a request of these bytes, and returns all answers: `errno` and data.
    fn send(&self, bytes: &[u8]) -> Vec<(i32, Vec<u8>)> {
        let head_bytes = bytes.len().min(REQUEST_HEAD_BYTES);
        let mut head = [0xa5; REQUEST_HEAD_BYTES];
        head[..head_bytes].copy_from_slice(&bytes[..head_bytes]);
        let body = self.pool.copy_of(&bytes[head_bytes..]);
        self.kernel.requests.borrow_mut().push_back(Message { head, head_bytes, body });
        let mut cx = Context::from_waker(Waker::noop());
        let _ = self.server.poll_requests(&mut cx);
        let answers = self.kernel.answers.take();
        answers
            .iter()
            .map(|answer| {
                let word = |at| u32::from_ne_bytes(*answer[at..].first_chunk().unwrap());
                assert_eq!(word(0) as usize, answer.len());
                assert_eq!(answer[8..16], 77u64.to_ne_bytes());
                (-word(4).cast_signed(), answer[16..].to_vec())
            })
            .collect()
    }

    fn ask(&self, opcode: u32, arguments: &[u8]) -> (i32, Vec<u8>) {
        let mut answers = self.send(&request(opcode, arguments));
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }
}

fn request(opcode: u32, arguments: &[u8]) -> Vec<u8> {
    let mut bytes = (40 + arguments.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(77u64.to_ne_bytes());
    bytes.extend([0; 24]);
    bytes.extend(arguments);
    bytes
}

/// `fuse_read_in`, and the beginning of `fuse_write_in`.
fn transfer(offset: u64, bytes: u32, data: &[u8]) -> Vec<u8> {
    let mut arguments = vec![0; 40];
    arguments[8..16].copy_from_slice(&offset.to_ne_bytes());
    arguments[16..20].copy_from_slice(&bytes.to_ne_bytes());
    arguments.extend(data);
    arguments
}

/// `fuse_fallocate_in`.
fn allocate(offset: u64, bytes: u64, mode: u32) -> Vec<u8> {
    let mut arguments = vec![0; 32];
    arguments[8..16].copy_from_slice(&offset.to_ne_bytes());
    arguments[16..24].copy_from_slice(&bytes.to_ne_bytes());
    arguments[24..28].copy_from_slice(&mode.to_ne_bytes());
    arguments
}

#[test]
fn data_that_was_written_is_read() {
    let bench = Bench::new(false);
    for (offset, bytes) in [(0, 1), (4096, 4096), (5000, 777), (1 << 20, 1 << 20)] {
        let data: Vec<u8> = (0..bytes).map(|it| (it % 253) as u8).collect();
        let wrote = bench.ask(16, &transfer(offset, bytes, &data));
        assert_eq!(wrote, (0, [bytes.to_ne_bytes(), [0; 4]].concat()));
        assert_eq!(bench.ask(15, &transfer(offset, bytes, &[])), (0, data));
    }
    assert_eq!(bench.ask(20, &[0; 16]), (0, vec![]));
}

#[test]
fn transfers_end_at_their_limits() {
    let bench = Bench::new(false);
    for (bytes, wanted) in [
        (MAX_TRANSFER_BYTES - 1, 0),
        (MAX_TRANSFER_BYTES, 0),
        (MAX_TRANSFER_BYTES + 1, errno::INVAL),
    ] {
        assert_eq!(bench.ask(15, &transfer(0, bytes, &[])).0, wanted, "{bytes}");
    }
    for (offset, wanted) in [(DISK_BYTES - 1, 1), (DISK_BYTES, 0), (DISK_BYTES + 1, 0)] {
        let (error, data) = bench.ask(15, &transfer(offset, 512, &[]));
        assert_eq!((error, data.len()), (0, wanted), "a read at {offset}");
    }
    for (offset, wanted) in
        [(DISK_BYTES - 2, 0), (DISK_BYTES - 1, errno::FBIG), (u64::MAX, errno::FBIG)]
    {
        assert_eq!(bench.ask(16, &transfer(offset, 2, b"ab")).0, wanted, "a write at {offset}");
    }
}

#[test]
fn a_disk_that_is_read_only_is_not_written() {
    let bench = Bench::new(true);
    assert_eq!(bench.ask(16, &transfer(0, 2, b"ab")).0, errno::PERM);
    assert_eq!(bench.ask(43, &allocate(0, 4096, 3)).0, errno::PERM);
    assert_eq!(bench.ask(20, &[0; 16]).0, 0);
    assert_eq!(bench.ask(15, &transfer(0, 2, &[])), (0, vec![0, 0]));
}

#[test]
fn space_is_only_changed_by_zeroing() {
    let bench = Bench::new(false);
    bench.ask(16, &transfer(0, 4, b"abcd"));
    // Punched and zeroed; a plain allocation and a change of size are refused.
    for (mode, wanted) in [(0x03, 0), (0x11, 0), (0x00, errno::NOSYS)] {
        assert_eq!(bench.ask(43, &allocate(0, 4096, mode)).0, wanted, "{mode:#x}");
    }
    assert_eq!(bench.ask(15, &transfer(0, 4, &[])), (0, vec![0; 4]));
    assert_eq!(bench.ask(4, &[0; 88]).0, errno::PERM);
}

#[test]
fn malformed_requests_are_refused() {
    let bench = Bench::new(false);
    // Too short for its arguments, longer than it says, and with less data than it says.
    assert_eq!(bench.ask(15, &[0; 8]).0, errno::INVAL);
    assert_eq!(bench.ask(16, &transfer(0, 5, b"abcd")).0, errno::INVAL);
    let mut longer = request(3, &[0; 16]);
    longer.push(0);
    assert_eq!(bench.send(&longer), [(errno::INVAL, vec![])]);
    // What has no number gets no answer; neither does what needs none.
    assert_eq!(bench.send(&request(3, &[])[..15]), []);
    for opcode in [2, 36, 42] {
        assert_eq!(bench.send(&request(opcode, &[0; 8])), []);
    }
    assert_eq!(bench.ask(999, &[]).0, errno::NOSYS);
}

#[test]
fn the_kernel_learns_size_and_abilities() {
    let bench = Bench::new(false);
    let mut init = vec![0; 64];
    init[..4].copy_from_slice(&7u32.to_ne_bytes());
    init[12..16].copy_from_slice(&u32::MAX.to_ne_bytes());
    let (error, answer) = bench.ask(26, &init);
    assert_eq!((error, answer.len()), (0, 64));
    let word = |at: usize| u32::from_ne_bytes(*answer[at..].first_chunk().unwrap());
    assert_eq!((word(0), word(20)), (7, MAX_TRANSFER_BYTES));
    init[..4].copy_from_slice(&8u32.to_ne_bytes());
    assert_eq!(bench.ask(26, &init).0, errno::NOSYS, "a protocol that nobody knows");
    let (_, attributes) = bench.ask(3, &[0; 16]);
    assert_eq!(attributes[24..32], DISK_BYTES.to_ne_bytes());
}

#[test]
fn requests_wait_in_the_kernel_once_enough_data_is_in_flight() {
    const MOST: usize = (MAX_BYTES_IN_FLIGHT / MAX_TRANSFER_BYTES as u64) as usize;
    for opcode in [15, 16] {
        let held = Rc::new(Held::default());
        let bench = Bench::on(Rc::clone(&held) as _, false);
        let data = if opcode == 16 { vec![7; MAX_TRANSFER_BYTES as usize] } else { vec![] };
        let send = || bench.send(&request(opcode, &transfer(0, MAX_TRANSFER_BYTES, &data)));
        let answered: usize = (0..MOST + 3).map(|_| send().len()).sum();
        let waiting = || (held.waiting.borrow().len(), bench.kernel.requests.borrow().len());
        assert_eq!((answered, waiting()), (0, (MOST, 3)));
        for left in (0..MOST + 3).rev() {
            held.answer();
            let mut cx = Context::from_waker(Waker::noop());
            let _ = bench.server.poll_requests(&mut cx);
            assert_eq!(waiting(), (left.min(MOST), left.saturating_sub(MOST)));
        }
        assert_eq!(bench.kernel.answers.borrow().len(), MOST + 3);
    }
}
