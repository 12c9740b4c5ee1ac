//! Sessions under random schedules: bytes arrive in pieces, the client reads slowly, the disk
//! answers late and in any order. The session is polled only after a wake, as by an executor, and
//! after every poll its state is compared with the events that it waits for.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use io::contract::HandClock;
use io::tasks::complete;
use io::{Completion, Completions, Disk, Done, MemDisk, Op, Ticket};

use super::*;
use crate::nbd::wire::Style;

/// Numbers that look random (SplitMix64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.roll(choices.len() as u64) as usize]
    }
}

/// The session's side of a connection, and everything that the test does at the other side.
#[derive(Default)]
struct Wire {
    /// Bytes that have arrived, and how many of them the session has read.
    arrived: RefCell<Vec<u8>>,
    read: Cell<usize>,
    /// Bytes that the session has sent, and how many it may send at all.
    sent: RefCell<Vec<u8>>,
    room: Cell<usize>,
    reader: RefCell<Option<Waker>>,
    writer: RefCell<Option<Waker>>,
}

impl Wire {
    fn arrive(&self, bytes: &[u8]) {
        self.arrived.borrow_mut().extend_from_slice(bytes);
        self.reader.take().into_iter().for_each(Waker::wake);
    }

    fn make_room(&self, bytes: usize) {
        self.room.set(self.room.get().saturating_add(bytes));
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

struct End(Rc<Wire>);

impl Stream for End {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<std::io::Result<usize>> {
        let arrived = self.0.arrived.borrow();
        let rest = &arrived[self.0.read.get()..];
        if rest.is_empty() {
            self.0.reader.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        self.0.read.set(self.0.read.get() + count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let mut sent = self.0.sent.borrow_mut();
        let before = sent.len();
        if self.0.room.get() == before {
            self.0.writer.replace(Some(cx.waker().clone()));
            return Poll::Pending;
        }
        for part in bytes {
            let part = &part[..part.len().min(self.0.room.get() - sent.len())];
            sent.extend_from_slice(part);
        }
        Poll::Ready(Ok(sent.len() - before))
    }

    fn poll_close(&self, _cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A disk that answers on command; at once if `prompt`.
struct SlowDisk {
    inner: MemDisk,
    prompt: bool,
    waiting: RefCell<VecDeque<(Op, Ticket)>>,
    answers: Completions<Done>,
}

impl SlowDisk {
    fn answer(&self, which: usize) {
        let (op, ticket) = self.waiting.borrow_mut().remove(which).expect("one request is waiting");
        let done = complete(self.inner.submit(op)).expect("a memory disk completes at once");
        self.answers.finish(ticket, done);
    }
}

impl Disk for SlowDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        if self.prompt {
            return self.inner.submit(op);
        }
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push_back((op, ticket));
        completion
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

const DISK_BYTES: u64 = 16 << 20;
/// Polls allowed for each event of a schedule: a session polls again by itself after [`TURNS`]
/// turns, or when a bite is full.
const POLLS_PER_EVENT: usize = 64;

/// One session, its client and its disk.
struct Stand {
    session: Session,
    wire: Rc<Wire>,
    disk: Rc<SlowDisk>,
    woken: Arc<Woken>,
    polls: usize,
    events: usize,
}

impl Stand {
    fn new(prompt: bool) -> Stand {
        let inner = MemDisk::new(DISK_BYTES);
        let (waiting, answers) = (RefCell::default(), Completions::new());
        let disk = Rc::new(SlowDisk { inner, prompt, waiting, answers });
        let wire = Rc::new(Wire::default());
        let pool = Pool::new(8 << 20);
        let export = Export::new("disk", Rc::clone(&disk) as _, pool.clone());
        let terms = Terms { style: Style::Simple, ..Terms::default() };
        let stream = Box::new(End(Rc::clone(&wire)));
        let chosen = Chosen { stream, export: Rc::new(export), terms };
        let account = crate::nbd::Memory::new(1 << 20).account();
        let session = Session::new(chosen, pool, account, Rc::new(HandClock::default()));
        let woken = Arc::new(Woken(AtomicBool::new(true)));
        Stand { session, wire, disk, woken, polls: 0, events: 1 }
    }

    /// Polls as long as the session was woken.
    fn run(&mut self) {
        let waker = Waker::from(Arc::clone(&self.woken));
        while self.woken.0.swap(false, Ordering::Relaxed) {
            self.polls += 1;
            assert!(self.polls < POLLS_PER_EVENT * self.events, "it polls without an end");
            let outcome = self.session.poll(&mut Context::from_waker(&waker));
            assert!(outcome.is_pending(), "{outcome:?}");
            if !self.woken.0.load(Ordering::Relaxed) {
                self.check();
            }
        }
    }

    /// Invariants while the session sleeps.
    fn check(&self) {
        let Stand { session, wire, .. } = self;
        if session.wants_bytes() {
            assert!(wire.reader.borrow().is_some(), "room for bytes, and no read is armed");
        }
        if !session.outbox.is_empty() {
            assert!(wire.writer.borrow().is_some(), "answers to send, and no write is armed");
        }
        if !session.is_full() {
            assert!(session.inbox.is_taken_apart(), "whole requests are left in the inbox");
        }
        assert!(session.account.load().requests <= crate::nbd::limits::MAX_REQUESTS);
        assert_eq!(session.account.load().requests == 0, session.is_idle(), "requests are counted");
    }

    /// One thing happens, from outside.
    fn event(&mut self, dice: &mut Dice, script: &mut &[u8], pieces: u64, bites: u64) {
        self.events += 1;
        match dice.roll(3) {
            0 => {
                let count = script.len().min(1 + dice.roll(pieces) as usize);
                let (piece, rest) = script.split_at(count);
                self.wire.arrive(piece);
                *script = rest;
            }
            1 => self.wire.make_room(1 + dice.roll(bites) as usize),
            _ => {
                let waiting = self.disk.waiting.borrow().len() as u64;
                if waiting > 0 {
                    self.disk.answer(dice.roll(waiting) as usize);
                }
            }
        }
        self.run();
    }

    /// Everything that can happen does.
    fn finish(&mut self, script: &[u8]) {
        self.wire.arrive(script);
        self.wire.make_room(usize::MAX);
        self.events += script.len() / (4 << 10);
        self.run();
        while !self.disk.waiting.borrow().is_empty() {
            self.events += 1;
            self.disk.answer(0);
            self.run();
        }
    }
}

impl Session {
    fn is_idle(&self) -> bool {
        self.running.is_empty() && self.outbox.is_empty() && self.inbox.is_between_requests()
    }
}

/// The byte that the disk holds at this offset before (`round` 0) and after a write.
fn content(offset: u64, round: u64) -> u8 {
    ((offset / 512 + 1).wrapping_mul(0x9e37_79b9 + (round << 7)) >> 9) as u8
}

fn contents(offset: u64, len: u64, round: u64) -> Vec<u8> {
    (offset..offset + len).map(|at| content(at, round)).collect()
}

/// Requests that do not touch each other's bytes, as the client sends them.
fn draw(dice: &mut Dice) -> (Vec<Request>, Vec<u8>) {
    let most: u64 = dice.one_of(&[4 << 10, 64 << 10, 300 << 10, 1 << 20, 3 << 20]);
    let depth = if most <= 4 << 10 { 1 + dice.roll(600) } else { 1 + dice.roll(24) };
    let (mut at, mut requests, mut script) = (0, Vec::new(), Vec::new());
    for cookie in 0..depth {
        let length = match dice.roll(4) {
            0 => 1 + dice.roll(most),
            _ => (1 + dice.roll(most / 512)) * 512,
        };
        if at + length > DISK_BYTES || script.len() > 4 << 20 {
            break;
        }
        let command = dice.one_of(&[command::READ, command::READ, command::WRITE, command::WRITE]);
        let request = Request { flags: 0, command, cookie, offset: at, length };
        request.encode(Style::Simple, &mut script);
        if command == command::WRITE {
            script.extend(contents(at, length, 1));
        }
        requests.push(request);
        at = (at + length).next_multiple_of(512);
    }
    (requests, script)
}

/// Every request has one answer, and a read the right bytes.
fn check_answers(requests: &[Request], mut sent: &[u8]) {
    let mut seen = vec![false; requests.len()];
    while let Some((header, rest)) = sent.split_at_checked(16) {
        assert_eq!(header[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0], "a reply without an error");
        let cookie = header[8..].iter().fold(0, |all, &byte| all << 8 | usize::from(byte));
        assert!(!std::mem::replace(&mut seen[cookie], true), "{cookie} is answered twice");
        let request = &requests[cookie];
        sent = rest;
        if request.command == command::READ {
            let data = contents(request.offset, request.length, 0);
            assert!(sent[..data.len()] == data, "wrong bytes: {request:?}");
            sent = &sent[data.len()..];
        }
    }
    assert!(sent.is_empty(), "a reply that ends within its header");
    let missing = seen.iter().position(|seen| !seen).map(|index| requests[index]);
    assert_eq!(missing, None, "a request without an answer");
}

fn run_schedule(seed: u64) {
    let dice = &mut Dice(seed);
    let mut stand = Stand::new(dice.roll(2) == 0);
    let (requests, script) = draw(dice);
    for request in &requests {
        let old = contents(request.offset, request.length, 0);
        stand.disk.inner.poke(request.offset, &old);
    }
    let mut left = &script[..];
    let pieces = dice.one_of(&[100, 4 << 10, 64 << 10, 1 << 20, 8 << 20]);
    let bites = dice.one_of(&[100, 16 << 10, 256 << 10, 4 << 20]);
    stand.run();
    for _ in 0..dice.roll(120) {
        stand.event(dice, &mut left, pieces, bites);
    }
    stand.finish(left);
    check_answers(&requests, &stand.wire.sent.borrow());
    for request in requests.iter().filter(|request| request.command == command::WRITE) {
        let mut is = vec![0; request.length as usize];
        stand.disk.inner.peek(request.offset, &mut is);
        assert!(is == contents(request.offset, request.length, 1), "{request:?}");
    }
}

#[test]
fn every_schedule_ends_with_every_answer() {
    for seed in 0..400 {
        let outcome = std::panic::catch_unwind(|| run_schedule(seed));
        assert!(outcome.is_ok(), "seed {seed}");
    }
}

/// The hang of reads and large writes that were sent together: the inbox is full when the answer
/// to the read has been sent, and taking the part of the payload out of it makes no progress.
#[test]
fn a_full_inbox_behind_a_large_answer_is_read_on() {
    for kib in [48, 64, 128, 256, 1024] {
        let mut stand = Stand::new(true);
        let len = kib << 10;
        let read = Request { flags: 0, command: command::READ, cookie: 0, offset: 0, length: len };
        let write = Request { command: command::WRITE, cookie: 1, offset: 4 << 20, ..read };
        stand.disk.inner.poke(0, &contents(0, len, 0));
        let mut script = Vec::new();
        // Answers come at once: the session learns that nothing is gained by running ahead.
        for cookie in [0, 0, 1] {
            let request = if cookie == 0 { read } else { write };
            request.encode(Style::Simple, &mut script);
        }
        script.extend(contents(4 << 20, len, 1));
        stand.events = 64;
        for piece in script.chunks(100 << 10) {
            stand.wire.arrive(piece);
            stand.run();
        }
        stand.wire.make_room(usize::MAX);
        stand.run();
        let answered = stand.wire.sent.borrow().len();
        assert_eq!(answered as u64, 3 * 16 + 2 * len, "{kib} KiB");
    }
}
