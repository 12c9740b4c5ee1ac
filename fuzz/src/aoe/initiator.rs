//! Any target of our initiator.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Result as IoResult;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use io::link::ETHERNET_BYTES;
use io::tasks::{complete, poll_once};
use io::{
    Clock, Completion, Disk, Done, Frame, Link, LinkState, Mac, MemLink, MemWire, Op, Pool,
    TaskSet, Work,
};
use net::aoe::Initiator;
use net::aoe::wire::ata::{Ata, opcode, status};
use net::aoe::wire::identify::Identity;
use net::aoe::wire::query::{Directive, Query};
use net::aoe::wire::{ATA_HEADER_BYTES, HEADER_BYTES, Header, SECTOR, command};

use super::{LUN, MTUS, chosen_frame, inbox};
use crate::Trail;
use crate::choice::Choices;
use crate::clock::HandClock;

const OURS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
const THEIRS: Mac = Mac([2, 0, 0, 0, 1, 0]);
/// Sectors of the target's disk.
const SECTORS: u64 = 256;
/// The most time that an operation takes.
const DEADLINE: Duration = Duration::from_secs(2);
const MOST_STEPS: usize = 120;
/// Operations of an input.
const MOST_OPERATIONS: usize = 32;

/// A port that may end.
struct Mortal {
    port: Rc<MemLink>,
    gone: Cell<bool>,
}

impl Mortal {
    fn check(&self) -> IoResult<()> {
        if self.gone.get() { Err(std::io::ErrorKind::NotFound.into()) } else { Ok(()) }
    }
}

impl Link for Mortal {
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
        self.check()?;
        self.port.poll_receive(cx, into)
    }

    fn poll_send(&self, cx: &mut Context<'_>, frames: &mut VecDeque<Frame>) -> Poll<IoResult<()>> {
        self.check()?;
        for frame in frames.iter() {
            let room = self.state().mtu as usize + ETHERNET_BYTES;
            let is_stale = !self.state().up || frame.bytes() > room;
            let header = Header::parse(frame.head()).expect("our frames have a header");
            assert!(!header.response && header.address == LUN, "it is a request to the target");
            assert!(is_stale || frame.bytes() <= 9014, "{} bytes", frame.bytes());
        }
        self.port.poll_send(cx, frames)
    }
}

/// An operation, and the bytes of its buffers.
struct Asked {
    answer: Option<Completion<Done>>,
    bytes: u64,
}

struct World {
    tasks: TaskSet,
    clock: Rc<HandClock>,
    ports: [Rc<Mortal>; 2],
    target: Rc<MemLink>,
    opened: Rc<RefCell<Option<Option<Initiator>>>>,
    asked: Vec<Asked>,
    /// Requests that the target has received.
    requests: Vec<Frame>,
}

impl World {
    fn new(setup: u8) -> World {
        let wire = MemWire::new();
        let mtu = MTUS[usize::from(setup & 1)];
        let ports =
            OURS.map(|mac| Rc::new(Mortal { port: wire.port(mac, mtu), gone: Cell::new(false) }));
        let clock = Rc::new(HandClock::default());
        let (tasks, opened) = (TaskSet::new(), Rc::new(RefCell::new(None)));
        let links = ports.iter().map(|port| Rc::clone(port) as Rc<dyn Link>).collect();
        let opening =
            Initiator::open(LUN, links, Rc::clone(&clock) as Rc<dyn Clock>, Pool::new(1 << 20));
        let into = Rc::clone(&opened);
        tasks.spawn(async move {
            let initiator = opening.await.ok();
            let running = initiator.as_ref().map(Initiator::run);
            into.replace(Some(initiator));
            if let Some(running) = running {
                drop(running.await);
            }
        });
        let target = wire.port(THEIRS, 9000);
        World { tasks, clock, ports, target, opened, asked: Vec::new(), requests: Vec::new() }
    }

    /// Lets the initiator do all it can for so long.
    fn pass(&mut self, span: Duration, trail: &mut Trail) {
        let until = self.clock.now() + span;
        loop {
            complete(self.tasks.run());
            self.take(trail);
            if !self.clock.leap(until) {
                break;
            }
        }
        complete(self.tasks.run());
        self.take(trail);
    }

    /// Takes answers of operations and requests to the target.
    fn take(&mut self, trail: &mut Trail) {
        for asked in &mut self.asked {
            let Some(answer) = &mut asked.answer else { continue };
            if let Some(done) = poll_once(answer) {
                asked.answer = None;
                assert_eq!(done.work.len(), asked.bytes, "the buffers come back");
                let error = done.result.err();
                trail.note(error.map(|error| std::mem::discriminant(&error.kind())));
            }
        }
        self.requests.extend(inbox(&self.target));
        let many = self.requests.len().saturating_sub(64);
        self.requests.drain(..many);
    }

    /// Answers discovery well until the initiator is open.
    fn open(&mut self, trail: &mut Trail) {
        for _ in 0..200 {
            if self.opened.borrow().is_some() {
                return;
            }
            self.pass(Duration::from_millis(10), trail);
            for frame in std::mem::take(&mut self.requests) {
                let good = good_answer(&frame);
                self.deliver(&good);
            }
        }
    }

    fn deliver(&self, bytes: &[u8]) {
        let to = bytes.first_chunk::<6>().map(|bytes| Mac(*bytes));
        let port = self.ports.iter().find(|port| Some(port.address()) == to);
        port.unwrap_or(&self.ports[0]).port.deliver(bytes);
    }

    fn submit(&mut self, choices: &mut Choices<'_>) {
        let opened = self.opened.borrow();
        let Some(Some(initiator)) = &*opened else { return };
        if self.asked.len() == MOST_OPERATIONS {
            return;
        }
        let offset = choices.below(SECTORS as usize) as u64 * SECTOR as u64;
        let bytes = (1 + choices.below(64)) * SECTOR;
        let pool = Pool::new(0);
        let work = match choices.below(4) {
            0 => Work::Read(vec![pool.take(bytes)]),
            1 => Work::Write(vec![pool.take_zeroed(bytes).freeze()]),
            2 => Work::Zero { len: bytes as u64, fast: false, unmap: false },
            _ => Work::Flush,
        };
        let mut op = Op::new(if matches!(work, Work::Flush) { 0 } else { offset }, work);
        op.fua = op.work.is_write() && choices.flag();
        op.deadline = Some(self.clock.now() + DEADLINE);
        let bytes = op.work.len();
        let answer = Some(initiator.submit(op));
        self.asked.push(Asked { answer, bytes });
    }
}

/// What a good target answers to this request.
fn good_answer(request: &Frame) -> Vec<u8> {
    let header = Header::parse(request.head()).expect("our frames have a header");
    let answer = header.answer(THEIRS, LUN);
    let mut bytes = vec![0; HEADER_BYTES];
    answer.put(&mut bytes);
    if header.command == command::QUERY {
        let (directive, text) = (Directive::Read as u8, Vec::new());
        Query { buffers: 16, firmware: 1, sectors: 16, directive, text }.put(true, &mut bytes);
        return bytes;
    }
    bytes.resize(ATA_HEADER_BYTES, 0);
    let ata = request.head().get(HEADER_BYTES..).and_then(Ata::parse).expect("an argument");
    ata.done().put(&mut bytes[HEADER_BYTES..]);
    if ata.command == opcode::IDENTIFY {
        let identity = Identity {
            serial: "0123".into(),
            model: "fuzz".into(),
            firmware: "1".into(),
            sectors: SECTORS,
            physical_block: 512,
            rotational: false,
        };
        bytes.extend(identity.to_sector());
    } else if ata.is_read() {
        bytes.resize(bytes.len() + usize::from(ata.sectors) * SECTOR, 7);
    }
    bytes
}

pub(super) fn initiator(input: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let mut choices = Choices::new(input);
    let setup = choices.byte();
    let mut world = World::new(setup);
    if setup & 2 == 0 {
        world.open(&mut trail);
    }
    for _ in 0..MOST_STEPS {
        if choices.is_over() {
            break;
        }
        step(&mut world, &mut choices);
        world.pass(Duration::ZERO, &mut trail);
        if choices.flag() {
            world.pass(Duration::from_millis(u64::from(choices.byte())), &mut trail);
        }
    }
    world.pass(DEADLINE + Duration::from_millis(20), &mut trail);
    let waiting = world.asked.iter().filter(|asked| asked.answer.is_some()).count();
    assert_eq!(waiting, 0, "operations without an answer after their deadline");
    trail.note(world.opened.borrow().as_ref().map(Option::is_some));
    trail
}

fn step(world: &mut World, choices: &mut Choices<'_>) {
    match choices.below(8) {
        0 | 1 => world.submit(choices),
        // A good answer, perhaps spoilt, or to an old request.
        kind @ 2..=4 => {
            let back = choices.below(8);
            let Some(at) = world.requests.len().checked_sub(1 + back) else { return };
            let mut bytes = good_answer(&world.requests[at]);
            if kind == 3 {
                let at = choices.below(64) % bytes.len();
                bytes[at] = choices.byte();
                let cut = choices.byte();
                if cut & 1 == 1 {
                    bytes.truncate(usize::from(cut));
                }
            }
            if kind == 4 {
                // An error of the target, or a status.
                bytes[14] |= 4 * (choices.byte() & 1);
                bytes[15] = choices.byte();
                if let Some(code) = bytes.get_mut(HEADER_BYTES + 3) {
                    *code = status::READY | choices.byte();
                }
            }
            world.deliver(&bytes);
        }
        5 => {
            let tag = u32::from(choices.byte()) << 24 | u32::from(choices.byte()) << 16;
            let (source, to) = (Mac([2, 0, 0, 0, 1, choices.byte()]), choices.pick(&OURS));
            let command = choices.byte() & 3;
            let header = super::request(source, to, command, tag);
            let header = Header { response: choices.byte() & 7 != 0, ..header };
            let mut bytes = chosen_frame(&header, choices);
            // Many ports announce themselves, one after the other.
            for turn in 0..choices.byte() {
                world.deliver(&bytes);
                bytes[10] = bytes[10].wrapping_add(turn);
                bytes[11] = bytes[11].wrapping_add(1);
            }
        }
        6 => {
            let port = choices.pick(&[0, 1]);
            let state = LinkState { up: choices.flag(), mtu: choices.pick(&MTUS) };
            world.ports[port].port.set_state(state);
        }
        _ => {
            let port = choices.below(16);
            if let Some(port) = world.ports.get(port) {
                port.gone.set(true);
                // Its owner notices when it looks.
                port.port.deliver(&[]);
            }
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for setup in [0, 1] {
        // Writes, a read and a flush, answered well; a step ends with whether time passes.
        let mut good = vec![setup];
        for (offset, sectors, kind) in [(8, 15, 1), (8, 3, 1), (0, 40, 0), (0, 7, 2), (0, 0, 3)] {
            good.extend([0, offset, sectors, kind]);
            if kind == 1 || kind == 2 {
                good.push(1);
            }
            good.push(0);
            for back in [0, 0, 1, 2, 3, 4, 5, 6, 0, 0] {
                good.extend([2, back, 0]);
            }
        }
        seeds.push(good.clone());
        // The same, late: copies are sent, and answered one by one.
        let mut late = vec![setup, 0, 8, 15, 1, 0, 1, 255, 0, 8, 15, 1, 0, 1, 255];
        for back in [0, 1, 2, 3] {
            late.extend([2, back, 1, 50]);
        }
        seeds.push(late);
        // Errors, links that change and end, announcements.
        let mut odd = vec![setup, 0, 8, 15, 0, 0];
        odd.extend([4, 0, 1, 3, 0, 1, 200, 4, 0, 0, 0, 1, 0]);
        odd.extend([6, 0, 0, 0, 1, 100, 6, 0, 1, 2, 0, 0, 0, 9, 1, 0]);
        odd.extend([5, 0, 0, 9, 0, 1, 1, 8, 0, 16, 0, 1, 16, 1, 0, 0, 0, 0, 0, 100, 0]);
        odd.extend([7, 0, 1, 50, 0, 0, 9, 0, 0, 7, 1, 0]);
        seeds.push(odd);
    }
    seeds.push(vec![2, 5, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 3, 1, 255]);
    seeds
}
