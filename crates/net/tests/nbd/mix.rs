//! Random requests against an oracle: the disk holds the written data, byte for byte.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use io::tasks::complete;
use io::{Completion, Completions, Disk, Done, Limits, MemDisk, Op, Pool, TaskSet, Ticket, Work};
use net::nbd::wire::reply::{Form, ReplyHeader};
use net::nbd::wire::{Request, Style, chunk, command, command_flag, info, option};

use crate::pipe::End;
use crate::world::{World, pool, world};

/// Numbers that look random (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }
}

/// A disk that answers on command, in random order; operations take effect when they are answered.
pub struct SlowDisk {
    inner: Rc<dyn Disk>,
    waiting: RefCell<VecDeque<(Op, Ticket)>>,
    answers: Completions<Done>,
}

impl SlowDisk {
    pub fn new(inner: Rc<dyn Disk>) -> Rc<SlowDisk> {
        Rc::new(SlowDisk { inner, waiting: RefCell::default(), answers: Completions::new() })
    }

    pub fn waiting(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Performs and answers one waiting operation.
    pub fn answer(&self, which: usize) {
        let (op, ticket) = self.waiting.borrow_mut().remove(which).expect("one request is waiting");
        let done = complete(self.inner.submit(op)).expect("the inner disk completes at once");
        self.answers.finish(ticket, done);
    }

    /// Performs and answers all operations, including follow-ups.
    pub fn answer_all(&self, world: &World, dice: &mut Dice) {
        world.run_until_idle();
        while self.waiting() > 0 {
            self.answer(dice.roll(self.waiting() as u64) as usize);
            world.run_until_idle();
        }
    }
}

impl Disk for SlowDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push_back((op, ticket));
        completion
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

pub fn request(flags: u16, command: u16, cookie: u64, offset: u64, length: u64) -> Request {
    Request { flags, command, cookie, offset, length }
}

/// One client that speaks raw NBD, and remembers its requests.
struct Raw {
    end: End,
    style: Style,
    sent: Vec<(Request, Vec<u8>)>,
    came: Vec<u8>,
}

impl Raw {
    fn send(&mut self, mut request: Request, payload: Vec<u8>) {
        request.cookie = self.sent.len() as u64;
        if self.style == Style::Extended && request.command == command::WRITE {
            request.flags |= command_flag::PAYLOAD_LENGTH;
        }
        let mut bytes = Vec::new();
        request.encode(self.style, &mut bytes);
        bytes.extend_from_slice(&payload);
        self.end.push(&bytes);
        self.sent.push((request, payload));
    }

    /// Sends one request of any kind for this range; `after` is the disk's content afterwards.
    fn send_any(&mut self, dice: &mut Dice, range: Range<usize>, fua: u16, after: &mut [u8]) {
        let (at, len) = (range.start as u64, range.len());
        match dice.roll(6) {
            0 | 1 => self.send(request(fua, command::READ, 0, at, len as u64), vec![]),
            2 | 3 => {
                let byte = dice.roll(255) as u8 + 1;
                after[range].fill(byte);
                self.send(request(fua, command::WRITE, 0, at, len as u64), vec![byte; len]);
            }
            4 => {
                after[range].fill(0);
                self.send(request(fua, command::WRITE_ZEROES, 0, at, len as u64), vec![]);
            }
            _ => self.send(request(0, command::FLUSH, 0, 0, 0), vec![]),
        }
    }

    /// Successful replies so far: the request, and its data.
    fn replies(&mut self) -> Vec<(Request, Vec<u8>)> {
        self.came.extend(self.end.pull());
        let mut replies = Vec::new();
        let mut rest = &self.came[..];
        while let Some((header, length)) = ReplyHeader::decode(rest, self.style).unwrap() {
            let (request, _) = &self.sent[header.cookie as usize];
            let (skip, data) = match header.form {
                Form::Simple { error } => {
                    assert_eq!(error, 0, "{request:?}");
                    let read = request.command == command::READ;
                    (0, if read { request.length as usize } else { 0 })
                }
                Form::Chunk { done, kind, length } => {
                    assert!(done && kind & chunk::ERROR_BIT == 0, "{request:?}: {kind:x}");
                    let skip = if kind == chunk::OFFSET_DATA { 8 } else { 0 };
                    (skip, length as usize - skip)
                }
            };
            let Some(data) = rest.get(length + skip..length + skip + data) else { break };
            replies.push((*request, data.to_vec()));
            rest = &rest[length + skip + data.len()..];
        }
        self.came = rest.to_vec();
        replies
    }
}

const BYTES: u64 = 1 << 20;

/// Each connection works on its own bytes, which interleave with the others' finely: blocks are
/// shared, bytes are not. Within a round a connection's own requests do not overlap.
fn run(seed: u64, block: u32, style: Style, bite: usize, room: usize) {
    let dice = &mut Dice(seed);
    let limits = Limits { logical_block: block, ..Limits::plain(BYTES) };
    let slow = SlowDisk::new(Rc::new(MemDisk::with_limits(limits)));
    let world = world(Rc::clone(&slow) as _);
    let mut oracle = vec![0u8; BYTES as usize];
    let options = match style {
        Style::Simple => vec![],
        Style::Structured => vec![(option::STRUCTURED_REPLY, vec![])],
        Style::Extended => vec![(option::EXTENDED_HEADERS, vec![])],
    };
    let mut clients: Vec<Raw> = (0..3)
        .map(|_| {
            let end = world.connect_over(room, bite).unwrap();
            world.transmit(&end, &options, &[]);
            Raw { end, style, sent: Vec::new(), came: Vec::new() }
        })
        .collect();
    for _round in 0..40 {
        // Cut the disk at random points; each piece gets at most one request.
        let mut at = dice.roll(5000);
        let mut expected = 0;
        let mut after = oracle.clone();
        while at < BYTES {
            let most = if dice.roll(8) == 0 { 200_000 } else { 9000 };
            let mut len = dice.roll(most);
            if dice.roll(3) == 0 {
                // Whole blocks, that share edges with the ranges of others.
                at = at.next_multiple_of(4096).min(BYTES);
                len = len.next_multiple_of(4096);
            }
            let len = len.min(BYTES - at);
            let range = at as usize..(at + len) as usize;
            let raw = &mut clients[dice.roll(3) as usize];
            let fua = if dice.roll(4) == 0 { command_flag::FUA } else { 0 };
            expected += 1;
            raw.send_any(dice, range, fua, &mut after);
            at += len + if dice.roll(2) == 0 { 0 } else { dice.roll(300) };
        }
        let mut answered = 0;
        while answered < expected {
            slow.answer_all(&world, dice);
            for client in &mut clients {
                for (request, data) in client.replies() {
                    answered += 1;
                    if request.command == command::READ {
                        let range =
                            request.offset as usize..(request.offset + request.length) as usize;
                        // No request writes data that is read in the same round.
                        assert!(data == oracle[range], "seed {seed}: {request:?}");
                    }
                }
            }
        }
        oracle = after;
    }
    let whole = complete(slow.inner.submit(Op::read(0, pool().take(BYTES as usize)))).unwrap();
    let whole = whole.into_buf();
    let wrong = whole.iter().zip(&oracle).position(|(is, should)| is != should);
    assert_eq!(wrong, None, "seed {seed}: first wrong byte");
}

#[test]
fn pipelined_mix_of_several_connections() {
    for (seed, style) in [Style::Simple, Style::Structured, Style::Extended].iter().enumerate() {
        run(seed as u64, 512, *style, usize::MAX, 1 << 30);
        run(100 + seed as u64, 4096, *style, usize::MAX, 1 << 30);
    }
}

#[test]
fn the_same_in_small_bites() {
    run(7, 512, Style::Structured, 1000, 3000);
    run(8, 4096, Style::Simple, 37, 100);
    run(9, 1, Style::Extended, 5000, 5000);
}

/// Any operation on bytes that are `old`, and their content after it.
fn any_work(dice: &mut Dice, old: &[u8]) -> (Work, Vec<u8>) {
    let (len, byte) = (old.len(), dice.roll(256) as u8);
    let buf = || pool().copy_of(&vec![byte; len]).freeze();
    match dice.roll(5) {
        0 => (Work::Write(vec![buf()]), vec![byte; len]),
        // Cut in the midst of a block.
        1 => {
            let parts = vec![buf().slice(0..len / 3), buf().slice(len / 3..len)];
            (Work::Write(parts), vec![byte; len])
        }
        2 => {
            let (unmap, fast) = (dice.roll(2) == 0, dice.roll(2) == 0);
            (Work::Zero { len: len as u64, unmap, fast }, vec![0; len])
        }
        3 => (Work::Flush, old.to_vec()),
        _ => {
            let mut first = pool().take(len);
            let second = first.split_off(len / 2);
            (Work::Read(vec![first, second]), old.to_vec())
        }
    }
}

/// The server's own client against the server, through the contract of a disk.
#[test]
fn a_remote_disk_is_a_disk() {
    use net::nbd::client::connect;
    for (seed, block) in [(1, 512), (2, 4096)] {
        let dice = &mut Dice(seed);
        let limits = Limits { logical_block: block, ..Limits::plain(BYTES) };
        let disk = Rc::new(MemDisk::with_limits(limits));
        let world = world(Rc::clone(&disk) as _);
        let end = world.connect_over(20_000, 7000).unwrap();
        let tasks = TaskSet::new();
        let remote = Rc::new(RefCell::new(None));
        let place = Rc::clone(&remote);
        tasks.spawn(async move {
            let (disk, link) =
                connect(Box::new(end), "disk", None, Pool::new(1 << 20)).await.unwrap();
            place.replace(Some(disk));
            link.await;
        });
        let run_until_idle = || {
            for _ in 0..1000 {
                world.run_until_idle();
                complete(tasks.run());
            }
        };
        run_until_idle();
        let remote = remote.take().expect("connected");
        assert_eq!((remote.limits().bytes, remote.limits().logical_block), (BYTES, block));
        let block = u64::from(block);
        for _ in 0..200 {
            let offset = dice.roll(BYTES / block) * block;
            let len = (dice.roll(40) * block).min(BYTES - offset);
            let mut old = vec![0; len as usize];
            disk.peek(offset, &mut old);
            let (work, new) = any_work(dice, &old);
            let mut op = Op::new(offset, work);
            op.fua = dice.roll(2) == 0 && op.work.is_write();
            let mut answer = remote.submit(op);
            run_until_idle();
            let done = answer.take_ready().expect("answered");
            done.result.unwrap();
            if let Work::Read(bufs) = &done.work {
                let read: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
                assert!(read == old, "seed {seed}, offset {offset}, {len} bytes");
            }
            let mut is = vec![0; len as usize];
            disk.peek(offset, &mut is);
            assert!(is == new, "seed {seed}, offset {offset}, {len} bytes");
        }
        let found = Vec::new();
        let mut answer = remote.submit(Op::new(0, Work::Extents { len: BYTES, found }));
        run_until_idle();
        let Work::Extents { found, .. } = answer.take_ready().unwrap().work else { panic!() };
        let direct = complete(disk.submit(Op::new(0, Work::Extents { len: BYTES, found: vec![] })));
        let Work::Extents { found: truth, .. } = direct.unwrap().work else { panic!() };
        assert!(truth.len() > 2 && found == truth);
        drop(remote);
        run_until_idle();
        assert_eq!(world.ending(), "Finished", "the disk says goodbye when dropped");
    }
}

#[test]
fn clients_that_asked_for_block_sizes_have_to_keep_to_them() {
    let world = world(Rc::new(MemDisk::new(BYTES)));
    let end = world.connect();
    world.transmit(&end, &[], &[info::BLOCK_SIZE]);
    let mut bytes = Vec::new();
    request(0, command::READ, 1, 1, 512).encode(Style::Simple, &mut bytes);
    request(0, command::READ, 2, 512, 512).encode(Style::Simple, &mut bytes);
    let reply = world.exchange(&end, &bytes);
    assert_eq!(reply.len(), 16 + 16 + 512);
    assert_eq!(reply[4..8], 22u32.to_be_bytes());
}
