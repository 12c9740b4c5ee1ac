//! A remote disk beside a server that breaks, pauses, crashes and comes back changed.

use std::cell::{Cell, RefCell};
use std::rc::Weak;
use std::task::{Context, Waker};

use io::contract::HandClock;
use io::{Buf, MemDisk, SharedBuf, Work, contract};

use super::*;

const BYTES: u64 = 8 << 20;

/// A server with a volatile cache.
struct Server {
    clock: Rc<HandClock>,
    /// What a crash leaves.
    durable: MemDisk,
    /// What clients see.
    current: MemDisk,
    limits: Cell<Limits>,
    identity: RefCell<String>,
    /// Nothing can connect.
    is_down: Cell<bool>,
    /// Requests are taken and not carried out, nor answered.
    hangs: Cell<bool>,
    /// What it hangs with, of all connections.
    queue: RefCell<Vec<(u64, Vec<u8>)>>,
    live: RefCell<Vec<Weak<Session>>>,
    connections: Cell<u64>,
}

struct Session {
    server: Rc<Server>,
    broken: Cell<bool>,
    ended: Signal,
    answers: Completions<Done>,
    waiting: RefCell<Vec<(Op, Ticket)>>,
}

impl Server {
    fn new(clock: &Rc<HandClock>) -> Rc<Server> {
        Rc::new(Server {
            clock: Rc::clone(clock),
            durable: MemDisk::new(BYTES),
            current: MemDisk::new(BYTES),
            limits: Cell::new(MemDisk::new(BYTES).limits()),
            identity: RefCell::new("S1".into()),
            is_down: Cell::new(false),
            hangs: Cell::new(false),
            queue: RefCell::default(),
            live: RefCell::default(),
            connections: Cell::new(0),
        })
    }

    fn copy(from: &MemDisk, to: &MemDisk) {
        let mut bytes = vec![0; BYTES as usize];
        from.peek(0, &mut bytes);
        to.poke(0, &bytes);
    }

    /// Ends all connections.
    fn cut(&self) {
        for session in self.live.take().iter().filter_map(Weak::upgrade) {
            session.broken.set(true);
            for (op, ticket) in session.waiting.take() {
                let error = Error::new(ErrorKind::Gone, "cut");
                session.answers.finish(ticket, Done::failed(op.work, error));
            }
            session.ended.raise();
        }
    }

    /// Loses what was not flushed.
    fn crash(&self) {
        Server::copy(&self.durable, &self.current);
        self.queue.take();
        self.cut();
    }

    /// Carries out the requests that it hung with, also those of connections that have ended.
    fn wake(&self) {
        self.hangs.set(false);
        for (offset, bytes) in self.queue.take() {
            self.current.poke(offset, &bytes);
        }
        for session in self.live.borrow().iter().filter_map(Weak::upgrade) {
            for (op, ticket) in session.waiting.take() {
                session.answers.finish(ticket, Done::ok(op.work));
            }
        }
    }

    fn byte(&self, offset: u64) -> u8 {
        let mut byte = [0];
        self.current.peek(offset, &mut byte);
        byte[0]
    }
}

impl Disk for Session {
    fn submit(&self, op: Op) -> Completion<Done> {
        let server = &self.server;
        if self.broken.get() {
            let error = Error::new(ErrorKind::Gone, "broken");
            return Completion::ready(Done::failed(op.work, error));
        }
        if server.hangs.get() {
            if let Work::Write(bufs) = &op.work {
                let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
                server.queue.borrow_mut().push((op.offset, bytes));
            }
            let (ticket, completion) = self.answers.start();
            self.waiting.borrow_mut().push((op, ticket));
            return completion;
        }
        match &op.work {
            Work::Flush => Server::copy(&server.current, &server.durable),
            Work::Write(bufs) if op.fua => {
                let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.to_vec()).collect();
                server.durable.poke(op.offset, &bytes);
            }
            _ => {}
        }
        server.current.submit(op)
    }

    fn limits(&self) -> Limits {
        self.server.limits.get()
    }
}

struct Connector(Rc<Server>);

impl Connect for Connector {
    fn connect(&self) -> Connecting<'_> {
        let server = &self.0;
        Box::pin(async move {
            server.clock.sleep_until(server.clock.now() + Duration::from_millis(1)).await;
            if server.is_down.get() {
                return Err("down".into());
            }
            server.connections.set(server.connections.get() + 1);
            let session = Rc::new(Session {
                server: Rc::clone(server),
                broken: Cell::new(false),
                ended: Signal::new(),
                answers: Completions::new(),
                waiting: RefCell::default(),
            });
            server.live.borrow_mut().push(Rc::downgrade(&session));
            let watched = Rc::clone(&session);
            let run = Box::pin(async move {
                while !watched.broken.get() {
                    watched.ended.wait().await;
                }
            });
            let identity = server.identity.borrow().clone();
            Ok(Connection { disk: session, run, identity })
        })
    }
}

/// A server, a disk on it, and everything that runs.
struct World {
    clock: Rc<HandClock>,
    server: Rc<Server>,
    disk: Remote,
    tasks: TaskSet,
}

impl World {
    fn new() -> World {
        let clock = Rc::new(HandClock::default());
        let server = Server::new(&clock);
        let connector = Box::new(Connector(Rc::clone(&server)));
        let open =
            Remote::open("far".into(), connector, Rc::clone(&clock) as _, Default::default());
        let disk = run_until(&clock, &TaskSet::new(), open).expect("the server is up");
        let tasks = TaskSet::new();
        tasks.spawn(disk.run());
        World { clock, server, disk, tasks }
    }

    fn run_until<T>(&self, work: impl Future<Output = T>) -> T {
        run_until(&self.clock, &self.tasks, work)
    }

    fn pass(&self, time: Duration) {
        self.run_until(self.clock.sleep_until(self.clock.now() + time));
    }

    fn submit(&self, op: Op) -> Completion<Done> {
        let answer = self.disk.submit(op);
        // It reaches the server, if there is a connection.
        let _: Poll<()> = self.tasks.poll(&mut Context::from_waker(Waker::noop()));
        answer
    }

    fn done(&self, op: Op) -> Result<Done, ErrorKind> {
        let done = self.run_until(self.submit(op));
        done.result.clone().map_err(|error| error.kind()).map(|()| done)
    }

    fn write(&self, offset: u64, byte: u8) -> Result<(), ErrorKind> {
        self.done(Op::write(offset, filled(byte))).map(|_| ())
    }

    fn read(&self, offset: u64) -> Result<u8, ErrorKind> {
        self.done(Op::read(offset, Pool::new(0).take(512))).map(|done| done.into_buf()[0])
    }

    fn until(&self, state: State) {
        while self.disk.state() != state {
            self.pass(Duration::from_millis(100));
            assert!(
                self.clock.now() < Time(0) + Duration::from_secs(3600),
                "{:?}",
                self.disk.state()
            );
        }
    }
}

fn filled(byte: u8) -> SharedBuf {
    let mut buf: Buf = Pool::new(0).take(512);
    buf.fill(byte);
    buf.freeze()
}

/// Runs everything until `work` is done; time passes when nothing else can happen.
fn run_until<T>(clock: &HandClock, tasks: &TaskSet, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..10_000_000 {
        if let Poll::Ready(outcome) = work.as_mut().poll(&mut cx) {
            return outcome;
        }
        let _: Poll<()> = tasks.poll(&mut cx);
        if let Poll::Ready(outcome) = work.as_mut().poll(&mut cx) {
            return outcome;
        }
        let Some(next) = clock.next() else { panic!("nothing will ever happen") };
        clock.move_to(next);
    }
    panic!("it takes for ever");
}

#[test]
fn it_keeps_the_contract() {
    let world = World::new();
    world.run_until(contract::check(Rc::new(world.disk.clone()), &Pool::new(16 << 20)));
}

#[test]
fn a_broken_connection_is_replaced_unnoticed() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.server.hangs.set(true);
    let late = world.submit(Op::write(512, filled(2)));
    world.server.cut();
    world.server.queue.take();
    world.server.hangs.set(false);
    assert_eq!(world.run_until(late).result.map_err(|error| error.kind()), Ok(()));
    assert_eq!((world.read(0), world.read(512)), (Ok(1), Ok(2)));
    assert_eq!((world.disk.losses(), world.server.connections.get()), (0, 2));
}

#[test]
fn a_crash_that_loses_acknowledged_writes_is_made_good() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.done(Op::flush()).unwrap();
    // Overlapping writes are repeated in their order.
    for byte in [2, 3, 4] {
        world.write(0, byte).unwrap();
    }
    world.write(1024, 5).unwrap();
    world.server.crash();
    assert_eq!((world.server.byte(0), world.server.byte(1024)), (1, 0));
    assert_eq!((world.read(0), world.read(1024)), (Ok(4), Ok(5)));
    // They are durable now.
    world.server.crash();
    world.until(State::Up);
    assert_eq!((world.server.byte(0), world.server.byte(1024)), (4, 5));
}

#[test]
fn a_durable_write_is_not_undone_by_the_replay_of_an_older_one() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.done(Op::write(0, filled(2)).with_fua()).unwrap();
    world.server.crash();
    assert_eq!(world.read(0), Ok(2));
}

#[test]
fn a_server_that_hangs_in_a_flush_of_our_own_is_noticed() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.server.hangs.set(true);
    world.pass(Duration::from_secs(2));
    world.server.is_down.set(true);
    world.until(State::Missing);
    assert!(world.clock.now() - Time(0) < STALL + HOLD + Duration::from_secs(4));
}

#[test]
fn an_idle_disk_flushes_by_itself() {
    let world = World::new();
    world.write(0, 7).unwrap();
    world.pass(Duration::from_secs(2));
    let mut byte = [0];
    world.server.durable.peek(0, &mut byte);
    assert_eq!(byte, [7]);
}

#[test]
fn what_a_long_absence_may_have_lost_is_not_trusted() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.server.is_down.set(true);
    world.server.crash();
    let start = world.clock.now();
    assert_eq!(world.read(0), Err(ErrorKind::Gone));
    assert!(world.clock.now() - start >= HOLD);
    assert_eq!((world.disk.state(), world.disk.losses()), (State::Missing, 1));
    world.server.is_down.set(false);
    world.until(State::Returned);
    assert_eq!(world.read(0), Err(ErrorKind::Gone), "the owner does not know yet");
    world.disk.resume();
    assert_eq!((world.read(0), world.disk.losses()), (Ok(0), 1));
}

#[test]
fn nothing_to_lose_needs_no_resume() {
    let world = World::new();
    world.write(0, 1).unwrap();
    world.done(Op::flush()).unwrap();
    world.server.is_down.set(true);
    world.server.crash();
    world.until(State::Missing);
    world.server.is_down.set(false);
    world.until(State::Up);
    assert_eq!((world.read(0), world.disk.losses()), (Ok(1), 1));
}

#[test]
fn a_patient_owner_is_not_failed() {
    let world = World::new();
    world.disk.set_hold(Duration::from_secs(100));
    world.write(0, 1).unwrap();
    for _ in 0..2 * FLAPS {
        world.server.is_down.set(true);
        world.server.crash();
        let read = world.submit(Op::read(0, Pool::new(0).take(512)));
        world.pass(Duration::from_secs(60));
        world.server.is_down.set(false);
        assert_eq!(world.run_until(read).into_buf()[0], 1);
    }
    assert_eq!(world.disk.losses(), 0);
}

#[test]
fn a_write_of_an_ended_connection_does_not_overtake_a_newer_one() {
    let world = World::new();
    world.server.hangs.set(true);
    let old = world.submit(Op::write(0, filled(1)));
    // The connection ends; the server still has the request.
    world.server.cut();
    world.pass(Duration::from_secs(1));
    let newer = world.submit(Op::write(0, filled(2)));
    let apart = world.submit(Op::write(4096, filled(3)));
    world.pass(Duration::from_secs(1));
    world.server.wake();
    assert_eq!(world.run_until(old).result.map_err(|error| error.kind()), Ok(()));
    assert!(world.run_until(apart).result.is_ok());
    let before = world.clock.now();
    assert!(world.run_until(newer).result.is_ok());
    assert!(world.clock.now() - before > Duration::from_secs(5), "it waits for the quarantine");
    assert_eq!((world.read(0), world.read(4096)), (Ok(2), Ok(3)));
}

#[test]
fn a_missing_disk_is_offered_after_the_quarantine() {
    let world = World::new();
    world.server.hangs.set(true);
    let lost = world.submit(Op::write(0, filled(1)));
    world.server.is_down.set(true);
    let broken_at = world.clock.now();
    world.server.cut();
    assert_eq!(world.run_until(lost).result.map_err(|error| error.kind()), Err(ErrorKind::Gone));
    world.server.is_down.set(false);
    world.until(State::Returned);
    assert!(world.clock.now() - broken_at >= QUARANTINE);
}

#[test]
fn a_connection_that_breaks_often_is_given_up_for_a_while() {
    let world = World::new();
    for count in 1..FLAPS as u64 {
        world.server.cut();
        world.pass(Duration::from_secs(1));
        assert_eq!((world.disk.state(), world.server.connections.get()), (State::Up, count + 1));
    }
    world.server.cut();
    world.until(State::Missing);
    let since = world.clock.now();
    world.until(State::Up);
    assert!(world.clock.now() - since >= COOL_DOWN - Duration::from_secs(1));
}

#[test]
fn another_disk_in_its_place_is_refused_for_good() {
    type Change<'a> = (&'a dyn Fn(&Server), &'a str);
    let changes: [Change<'_>; 4] = [
        (&|server| *server.identity.borrow_mut() = "S2".into(), "its serial was \"S1\""),
        (&|server| change(server, |limits| limits.bytes -= 4096), "has shrunk"),
        (&|server| change(server, |limits| limits.logical_block = 4096), "block size"),
        (&|server| change(server, |limits| limits.read_only = true), "read-only"),
    ];
    for (make, word) in changes {
        let world = World::new();
        make(&world.server);
        world.server.cut();
        assert_eq!(world.read(0), Err(ErrorKind::Gone));
        assert!(world.disk.refused().is_some_and(|why| why.contains(word)), "{word}");
        world.pass(Duration::from_secs(600));
        assert_eq!(world.disk.state(), State::Missing);
    }
    // One that has grown is the same.
    let world = World::new();
    change(&world.server, |limits| limits.bytes += 4096);
    world.server.cut();
    assert_eq!(world.read(0), Ok(0));
}

fn change(server: &Server, how: impl Fn(&mut Limits)) {
    let mut limits = server.limits.get();
    how(&mut limits);
    server.limits.set(limits);
}

#[test]
fn more_than_is_held_makes_it_missing() {
    let held = |operations: u64| {
        let world = World::new();
        world.server.is_down.set(true);
        world.server.cut();
        world.until(State::Reconnecting);
        let bytes = MAX_HELD_BYTES / 16;
        let op = || Op::read(0, Pool::new(0).take(bytes as usize));
        let waiting: Vec<_> = (0..operations).map(|_| world.submit(op())).collect();
        drop(waiting);
        world.disk.state()
    };
    // Reads of 4 MiB on a disk of 8 MiB.
    assert_eq!((held(15), held(16)), (State::Reconnecting, State::Reconnecting));
    assert_eq!(held(17), State::Missing);
}

#[test]
fn other_errors_pass_and_slowness_is_reported() {
    let world = World::new();
    let beyond = world.disk.submit(Op::write(BYTES, filled(1)));
    assert_eq!(
        world.run_until(beyond).result.map_err(|error| error.kind()),
        Err(ErrorKind::Refused)
    );
    world.server.hangs.set(true);
    let slow = world.submit(Op::write(0, filled(1)));
    world.until(State::Slow);
    world.server.wake();
    assert!(world.run_until(slow).result.is_ok());
    world.until(State::Up);
    assert_eq!((world.disk.losses(), world.server.connections.get()), (0, 1));
}

#[test]
fn a_server_that_hangs_for_long_is_as_one_that_is_away() {
    let world = World::new();
    world.server.hangs.set(true);
    world.server.is_down.set(true);
    let stuck = world.submit(Op::write(0, filled(1)));
    assert_eq!(world.run_until(stuck).result.map_err(|error| error.kind()), Err(ErrorKind::Gone));
    let waited = world.clock.now() - Time(0);
    assert!(waited >= STALL + HOLD && waited < STALL + HOLD + Duration::from_secs(1), "{waited:?}");
    // An operation that is late again does not start another count at once.
    world.server.is_down.set(false);
    world.server.wake();
    world.until(State::Returned);
}

#[test]
fn the_connection_ends_with_the_last_clone() {
    let World { clock, server, disk, tasks } = World::new();
    let clone = disk.clone();
    drop(disk);
    let _: Poll<()> = tasks.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(tasks.len(), 1);
    drop(clone);
    let _: Poll<()> = tasks.poll(&mut Context::from_waker(Waker::noop()));
    assert!(tasks.is_empty() && server.live.borrow().iter().all(|it| it.upgrade().is_none()));
    drop(clock);
}
