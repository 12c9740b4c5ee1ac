//! The initiator beside the target, on good wires and on bad ones.

mod paths;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use io::contract::HandClock;
use io::{Buf, Frame, LinkState, Mac, MemDisk, MemLink, MemWire, TaskSet, Work as IoWork};
use io::{contract, tasks::complete};

use super::super::target::{Event, Keeping};
use super::super::wire::smart::Health;
use super::super::{Host, Lun, LunOptions, LunState, Target};
use super::*;

const LUN: Address = Address { shelf: 1, slot: 0 };

/// Numbers that look random and are the same each time (xorshift64, Marsaglia 2003).
struct Numbers(Cell<u64>);

impl Numbers {
    fn below(&self, limit: u64) -> u64 {
        let mut it = self.0.get();
        it ^= it << 13;
        it ^= it >> 7;
        it ^= it << 17;
        self.0.set(it);
        it % limit
    }
}

/// A port whose frames are lost, repeated and late.
struct BadLink {
    port: Rc<MemLink>,
    clock: Rc<HandClock>,
    numbers: Rc<Numbers>,
    /// In a hundred: lost, repeated, late.
    badness: (u64, u64, u64),
    late: RefCell<Vec<(Time, Frame)>>,
    cut: Cell<bool>,
    /// Longer frames are lost, without a word.
    hole: Cell<usize>,
    gone: Cell<bool>,
}

impl BadLink {
    /// Sends what is due.
    fn release(&self) {
        let now = self.clock.now();
        let mut due: Vec<(Time, Frame)> =
            self.late.borrow_mut().extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        let mut frames: VecDeque<Frame> = due.into_iter().map(|(_, frame)| frame).collect();
        if !self.cut.get() {
            let _ = self.port.poll_send(&mut Context::from_waker(Waker::noop()), &mut frames);
        }
    }

    /// When the next frame is due.
    fn next(&self) -> Option<Time> {
        self.late.borrow().iter().map(|(at, _)| *at).min()
    }
}

impl Link for BadLink {
    fn address(&self) -> Mac {
        self.port.address()
    }

    fn state(&self) -> LinkState {
        self.port.state()
    }

    fn poll_state(&self, cx: &mut Context<'_>, seen: LinkState) -> Poll<LinkState> {
        self.port.poll_state(cx, seen)
    }

    fn poll_receive(&self, cx: &mut Context<'_>, into: &mut Vec<Frame>) -> Poll<IoResult<()>> {
        if self.gone.get() {
            return Poll::Ready(Err(std::io::ErrorKind::NotFound.into()));
        }
        self.port.poll_receive(cx, into)
    }

    fn poll_send(&self, _: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<IoResult<()>> {
        let now = self.clock.now();
        let (lost, repeated, late) = self.badness;
        for frame in frames.drain(..) {
            let copies = 1 + u64::from(self.numbers.below(100) < repeated);
            for _ in 0..copies {
                if self.numbers.below(100) < lost || frame.bytes() > self.hole.get() {
                    continue;
                }
                let micros = match self.numbers.below(100) < late {
                    true => self.numbers.below(600_000),
                    false => 10 + self.numbers.below(50),
                };
                let at = now + Duration::from_micros(micros);
                self.late.borrow_mut().push((at, frame.clone()));
            }
        }
        Poll::Ready(Ok(()))
    }
}

struct Nobody;

impl Host for Nobody {
    fn health(&self, _: Address) -> Health {
        Health::default()
    }

    fn keep(&self, _: Address, _: &LunState) -> Keeping {
        Box::pin(async { Ok(()) })
    }

    fn report(&self, _: Address, _: Mac, _: Event) {}
}

/// A target on a disk in memory, an initiator, and one wire or two between them.
struct Stand {
    clock: Rc<HandClock>,
    tasks: TaskSet,
    links: Vec<Rc<BadLink>>,
    disk: Rc<MemDisk>,
    target: Target,
}

const BYTES: u64 = 12 << 20;

impl Stand {
    fn new(wires: usize, mtu: u32, badness: (u64, u64, u64), seed: u64) -> Stand {
        let clock = Rc::new(HandClock::default());
        let numbers = Rc::new(Numbers(Cell::new(seed * 2 + 1)));
        let tasks = TaskSet::new();
        let target = Target::new(Rc::new(Nobody), Pool::new(0));
        tasks.spawn(target.run());
        let mut links = Vec::new();
        for number in 0..wires as u8 {
            let wire = MemWire::new();
            for end in [1, 2] {
                let port = wire.port(Mac([2, 0, 0, 0, number, end]), mtu);
                let (clock, numbers) = (Rc::clone(&clock), Rc::clone(&numbers));
                links.push(Rc::new(BadLink {
                    port,
                    clock,
                    numbers,
                    badness,
                    late: RefCell::default(),
                    cut: Cell::new(false),
                    hole: Cell::new(usize::MAX),
                    gone: Cell::new(false),
                }));
            }
            let link = Rc::clone(&links[links.len() - 1]) as Rc<dyn Link>;
            let serving = target.serve(format!("eth{number}"), link);
            tasks.spawn(async move { serving.await.expect("the port is there") });
        }
        let disk = Rc::new(MemDisk::new(BYTES));
        let options = LunOptions {
            serial: "0123".into(),
            model: "Parapet".into(),
            firmware: "0.1.0".into(),
            ports: Vec::new(),
            read_only: false,
            volatile: false,
            remote_control: false,
        };
        let served = Rc::clone(&disk) as Rc<dyn Disk>;
        let lun = Lun::new(LUN, served, options, LunState::default(), Pool::new(0));
        target.online(Rc::new(lun));
        Stand { clock, tasks, links, disk, target }
    }

    /// Our ends of the wires.
    fn ours(&self) -> Vec<Rc<dyn Link>> {
        self.links.iter().step_by(2).map(|link| Rc::clone(link) as Rc<dyn Link>).collect()
    }

    /// Lets time pass until the work is done.
    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        for _ in 0..10_000_000 {
            let mut outcome = None;
            // Poll both until neither is awake.
            let _ = complete(poll_fn(|cx| {
                if let Poll::Ready(value) = work.as_mut().poll(cx) {
                    outcome = Some(value);
                    return Poll::Ready(());
                }
                self.tasks.poll(cx)
            }));
            if let Some(value) = outcome {
                return value;
            }
            let frames = self.links.iter().filter_map(|link| link.next());
            let next = frames.chain(self.clock.next()).min();
            let next = next.expect("nothing will ever happen again");
            let _: usize = self.clock.move_to(next);
            self.links.iter().for_each(|link| link.release());
        }
        panic!("the work does not end");
    }

    fn open(&self) -> Initiator {
        let clock = Rc::clone(&self.clock) as Rc<dyn Clock>;
        let opening = Initiator::open(LUN, self.ours(), clock, Pool::new(1 << 20));
        let initiator = self.run(opening).expect("the target is found");
        let running = initiator.run();
        self.tasks.spawn(async move { running.await.expect("the ports are there") });
        initiator
    }
}

#[test]
fn keeps_the_contract_of_a_disk() {
    for mtu in [1500, 9000] {
        let stand = Stand::new(1, mtu, (0, 0, 0), 1);
        let initiator = stand.open();
        assert_eq!(initiator.identity().serial, "0123");
        assert_eq!(initiator.limits().bytes, BYTES);
        stand.run(contract::check(Rc::new(initiator), &Pool::new(64 << 20)));
    }
}

#[test]
fn keeps_the_contract_on_a_bad_wire() {
    let stand = Stand::new(2, 9000, (3, 3, 3), 7);
    let initiator = stand.open();
    stand.run(contract::check(Rc::new(initiator), &Pool::new(64 << 20)));
}

/// Rounds of reads and writes at disjoint places; every byte is as it was written last, whatever
/// the wires do. With the target's history left out, this fails.
#[test]
fn no_byte_is_wrong_on_bad_wires() {
    let mut late = 0;
    for seed in 1..=12 {
        let stand = Stand::new(1 + seed as usize % 2, 9000, (8, 8, 12), seed);
        let initiator = stand.open();
        let numbers = Numbers(Cell::new(seed * 77 + 1));
        let blocks = 24;
        let mut model = vec![0_u8; blocks];
        let pool = Pool::new(1 << 20);
        for round in 0..150_u64 {
            let mut running: Vec<(usize, Option<u8>, Completion<Done>)> = Vec::new();
            for _ in 0..6 {
                let block = numbers.below(blocks as u64) as usize;
                if running.iter().any(|(other, ..)| *other == block) {
                    continue;
                }
                let offset = block as u64 * 4096;
                let write = (numbers.below(3) > 0).then(|| (round + block as u64) as u8 % 3);
                let op = match write {
                    Some(byte) => {
                        let mut buf = pool.take(4096);
                        buf.fill(byte);
                        Op::write(offset, buf.freeze())
                    }
                    None => Op::read(offset, pool.take(4096)),
                };
                running.push((block, write, initiator.submit(op)));
            }
            for (block, write, answer) in running {
                let done = stand.run(answer);
                done.result.as_ref().expect("the wires are bad, not cut");
                match (write, done.work) {
                    (Some(byte), _) => model[block] = byte,
                    (None, IoWork::Read(bufs)) => {
                        let same = bufs[0].iter().all(|byte| *byte == model[block]);
                        assert!(same, "seed {seed}, round {round}, block {block}");
                    }
                    (None, other) => panic!("not a read: {other:?}"),
                }
            }
        }
        for (block, byte) in model.iter().enumerate() {
            let mut there = [0; 4096];
            stand.disk.peek(block as u64 * 4096, &mut there);
            assert!(there.iter().all(|it| it == byte), "seed {seed}, block {block}");
        }
        late += stand.target.dropped().late;
    }
    assert!(late > 20, "{late} late copies were recognized");
}

#[test]
fn a_dead_path_is_avoided_and_used_again() {
    let stand = Stand::new(2, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    let pool = Pool::new(1 << 20);
    let read = |offset| initiator.submit(Op::read(offset, pool.take(64 << 10)));
    stand.run(read(0)).result.expect("both paths work");
    stand.links[0].cut.set(true);
    stand.run(read(0)).result.expect("the other path works");
    let suspect = |at: usize| initiator.0.paths.borrow()[at].is_suspect();
    assert!(suspect(0) && !suspect(1));
    stand.links[0].cut.set(false);
    for _ in 0..300 {
        stand.run(read(0)).result.expect("both paths work");
        stand.run(stand.clock.sleep_until(stand.clock.now() + BEAT));
    }
    assert!(!suspect(0), "it was tried again");
}

#[test]
fn without_an_answer_an_operation_fails_at_its_deadline() {
    let stand = Stand::new(1, 1500, (0, 0, 0), 3);
    let initiator = stand.open();
    let pool = Pool::new(1 << 20);
    stand.links[0].cut.set(true);
    let start = stand.clock.now();
    let bufs: Vec<Buf> = vec![pool.take(8192)];
    let mut op = Op::new(0, IoWork::Read(bufs));
    op.deadline = Some(start + Duration::from_secs(2));
    let done = stand.run(initiator.submit(op));
    assert_eq!(done.result.expect_err("the link is cut").kind(), ErrorKind::Timeout);
    assert_eq!(done.work.len(), 8192, "the buffers come back");
    let took = stand.clock.now() - start;
    assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(3), "{took:?}");
    // The wire is back: so is the disk.
    stand.links[0].cut.set(false);
    stand.run(initiator.submit(Op::read(0, pool.take(4096)))).result.expect("it answers");
}

#[test]
fn nobody_and_two_different_devices_are_refused() {
    let stand = Stand::new(1, 1500, (0, 0, 0), 3);
    let other = Address { shelf: 2, slot: 0 };
    let clock = || Rc::clone(&stand.clock) as Rc<dyn Clock>;
    let opening = Initiator::open(other, stand.ours(), clock(), Pool::new(0));
    assert_eq!(stand.run(opening).err(), Some(OpenError::Silent));
}
