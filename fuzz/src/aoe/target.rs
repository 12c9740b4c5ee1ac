//! Any clients of our target.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use io::tasks::complete;
use io::{
    Clock, Completion, Completions, Disk, Done, Limits, Link, LinkState, Mac, MemDisk, MemLink,
    MemWire, Op, Pool, TaskSet, Ticket,
};
use net::aoe::target::{Event, Keeping};
use net::aoe::wire::access::{Edit, Mask};
use net::aoe::wire::ata::{self, Ata, opcode};
use net::aoe::wire::query::{Directive, Query};
use net::aoe::wire::smart::Health;
use net::aoe::wire::{Header, SECTOR, command};
use net::aoe::{Address, Host, Lun, LunOptions, LunState, Target};

use super::{LUN, MTUS, chosen_frame, inbox, put_frame, request};
use crate::Trail;
use crate::choice::Choices;
use crate::clock::HandClock;

const BYTES: u64 = 64 << 10;
const PORTS: [Mac; 2] = [Mac([2, 0, 0, 0, 1, 0]), Mac([2, 0, 0, 0, 1, 1])];
const CLIENTS: [Mac; 2] = [Mac([2, 0, 0, 0, 0, 1]), Mac([2, 0, 0, 0, 0, 2])];
/// Steps of an input.
const MOST_STEPS: usize = 200;

/// A disk that answers when the body says so.
struct Held {
    below: MemDisk,
    waiting: RefCell<VecDeque<(Ticket, Op)>>,
    answers: Completions<Done>,
}

impl Held {
    fn release(&self, index: usize) {
        let Some((ticket, op)) = self.waiting.borrow_mut().remove(index) else { return };
        let done = complete(self.below.submit(op)).expect("memory answers at once");
        self.answers.finish(ticket, done);
    }
}

impl Disk for Held {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push_back((ticket, op));
        completion
    }

    fn limits(&self) -> Limits {
        Limits::plain(BYTES)
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

struct World {
    tasks: TaskSet,
    clock: Rc<HandClock>,
    target: Target,
    lun: Rc<Lun>,
    disk: Rc<Held>,
    ports: [Rc<MemLink>; 2],
    clients: [Rc<MemLink>; 2],
    /// Tags that were sent.
    tags: Vec<u32>,
    is_held: bool,
}

impl World {
    fn new(setup: u8) -> World {
        let wire = MemWire::new();
        let clock = Rc::new(HandClock::default());
        let target = Target::new(Rc::new(Nobody), Pool::new(1 << 20))
            .with_clock(Rc::clone(&clock) as Rc<dyn Clock>);
        let tasks = TaskSet::new();
        tasks.spawn(target.run());
        let ports = PORTS.map(|mac| wire.port(mac, MTUS[usize::from(setup & 1)]));
        let clients = CLIENTS.map(|mac| wire.port(mac, 9000));
        for (name, port) in ["eth0", "eth1"].into_iter().zip(&ports) {
            let serving = target.serve(name, Rc::clone(port) as Rc<dyn Link>);
            tasks.spawn(async move { serving.await.expect("a port in memory stays") });
        }
        let disk = Rc::new(Held {
            below: MemDisk::new(BYTES),
            waiting: RefCell::default(),
            answers: Completions::new(),
        });
        let options = LunOptions {
            serial: "0123".into(),
            model: "Parapet".into(),
            firmware: "0.1.0".into(),
            ports: if setup & 2 == 0 { Vec::new() } else { vec!["eth1".into()] },
            read_only: setup & 4 != 0,
            volatile: setup & 8 != 0,
            remote_control: setup & 16 == 0,
        };
        let served = Rc::clone(&disk) as Rc<dyn Disk>;
        let lun = Rc::new(Lun::new(LUN, served, options, LunState::default(), Pool::new(0)));
        target.online(Rc::clone(&lun));
        let is_held = setup & 32 != 0;
        World { tasks, clock, target, lun, disk, ports, clients, tags: vec![0], is_held }
    }

    /// Lets the target do all it can; the disk too, unless it is held.
    fn run(&self) {
        complete(self.tasks.run());
        while !self.is_held && !self.disk.waiting.borrow().is_empty() {
            self.disk.release(0);
            complete(self.tasks.run());
        }
    }

    /// Delivers a frame to one port.
    fn send(&mut self, port: usize, bytes: &[u8]) {
        if let Some(header) = Header::parse(bytes) {
            self.tags.push(header.tag);
        }
        self.ports[port].deliver(bytes);
        self.run();
    }

    /// Checks what has come to the clients.
    fn read_answers(&self, trail: &mut Trail) {
        for client in &self.clients {
            for frame in inbox(client) {
                let header = Header::parse(frame.head()).expect("our frames have a header");
                assert!(header.response, "a request comes from the target");
                assert!(PORTS.contains(&header.source), "from {}", header.source);
                assert!(self.tags.contains(&header.tag), "a tag that no client sent");
                assert_eq!(header.address, LUN, "an answer names the LUN");
                assert!((60..=9014).contains(&frame.bytes()), "{} bytes", frame.bytes());
                trail.note((header.command.min(5), header.error));
                trail.size(frame.bytes() as u64);
            }
        }
    }

    /// A good write after everything else is done.
    fn write_and_look(&mut self) {
        self.is_held = false;
        for port in &self.ports {
            port.set_state(LinkState { up: true, mtu: 9000 });
        }
        self.run();
        self.lun.set_state(LunState::default());
        if self.lun.is_read_only() {
            return;
        }
        let header = request(CLIENTS[0], PORTS[1], command::ATA, 0xfade_cafe);
        let mut bytes = vec![0; net::aoe::wire::ATA_HEADER_BYTES];
        header.put(&mut bytes);
        Ata::transfer(true, 3, 1).put(&mut bytes[net::aoe::wire::HEADER_BYTES..]);
        bytes.extend((0..SECTOR).map(|at| at as u8 ^ 0xa5));
        self.send(1, &bytes);
        let mut there = [0; SECTOR];
        self.disk.below.peek(3 * SECTOR as u64, &mut there);
        assert!(there[..] == bytes[bytes.len() - SECTOR..], "a good write is not done");
    }
}

pub(super) fn target(input: &[u8]) -> Trail {
    let mut trail = Trail::new();
    let mut choices = Choices::new(input);
    let mut world = World::new(choices.byte());
    world.run();
    let mut last = Vec::new();
    for _ in 0..MOST_STEPS {
        if choices.is_over() {
            break;
        }
        step(&mut world, &mut choices, &mut last);
        world.read_answers(&mut trail);
    }
    world.write_and_look();
    world.read_answers(&mut trail);
    let dropped = world.target.dropped();
    for count in [dropped.malformed, dropped.overload, dropped.repeated, dropped.late] {
        trail.size(count);
    }
    trail
}

/// One step. `last` is the last frame.
fn step(world: &mut World, choices: &mut Choices<'_>, last: &mut Vec<u8>) {
    let kind = choices.below(8);
    let port = choices.below(2);
    match kind {
        0..=2 => {
            let command = choices.byte();
            let tag = u32::from(choices.byte()) << 16 | u32::from(choices.byte()) << 24;
            let source = choices.pick(&[CLIENTS[0], CLIENTS[1], PORTS[0], Mac::BROADCAST]);
            let destination = choices.pick(&[PORTS[port], Mac::BROADCAST]);
            *last = chosen_frame(&request(source, destination, command, tag), choices);
            world.send(port, last);
        }
        // The same again, with other tags, many times.
        3 => {
            for turn in 0..choices.byte() {
                if let Some(tag) = last.get_mut(20..24) {
                    tag[1] = tag[1].wrapping_add(turn | 1);
                }
                world.send(port, last);
            }
        }
        4 => world.disk.release(choices.below(8)),
        5 => {
            let state = LinkState { up: choices.flag(), mtu: choices.pick(&MTUS) };
            world.ports[port].set_state(state);
        }
        6 => world.clock.pass(std::time::Duration::from_millis(u64::from(choices.byte()) * 50)),
        _ => {
            let len = usize::from(choices.byte());
            let bytes: Vec<u8> = (0..len).map(|_| choices.byte()).collect();
            world.send(port, &bytes);
        }
    }
    world.run();
}

/// A step that sends a good frame.
fn good(command: u8, tag: u8, argument: &[u8], sectors: u8, into: &mut Vec<u8>) {
    into.extend([0, 0, command, tag, 0, 0, 0]);
    put_frame(argument, sectors, tag, into);
}

fn transfer(write: bool, first: u64, sectors: u8) -> [u8; ata::BYTES] {
    let mut argument = [0; ata::BYTES];
    Ata::transfer(write, first, sectors).put(&mut argument);
    argument
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let plain = |command| {
        let mut argument = [0; ata::BYTES];
        Ata::plain(command).put(&mut argument);
        argument
    };
    let mut seeds = Vec::new();
    for setup in [1, 1 | 32, 8, 1 | 2, 4] {
        let mut bytes = vec![setup];
        for code in [opcode::IDENTIFY, opcode::FLUSH, opcode::CHECK_POWER, opcode::SMART] {
            good(command::ATA, 1, &plain(code), 0, &mut bytes);
        }
        for (tag, write) in [(2, true), (3, false), (4, true), (5, false)] {
            good(command::ATA, tag, &transfer(write, 8, 2), 2 * u8::from(write), &mut bytes);
            bytes.extend([4, 0, 0]);
        }
        // Copies of a write, before and after another to the same sectors.
        good(command::ATA, 7, &transfer(true, 8, 2), 2, &mut bytes);
        bytes.extend([3, 0, 40]);
        good(command::ATA, 9, &transfer(true, 9, 1), 1, &mut bytes);
        good(command::ATA, 6, &transfer(true, 8, 2), 2, &mut bytes);
        bytes.extend([6, 0, 100, 5, 0, 1, 0, 4, 0, 1]);
        seeds.push(bytes);
    }
    for directive in [Directive::Read, Directive::Set, Directive::SetIfEmpty, Directive::Prefix] {
        let mut bytes = vec![0];
        for text in ["", "tank", "tank and pond"] {
            let mut argument = Vec::new();
            Query::request(directive, text.as_bytes()).put(false, &mut argument);
            good(command::QUERY, 1, &argument, 0, &mut bytes);
        }
        seeds.push(bytes);
    }
    seeds.extend(control());
    seeds
}

/// Masks and reservations.
fn control() -> Vec<Vec<u8>> {
    let mut mask = Vec::new();
    let edits = vec![Edit::Add(CLIENTS[0]), Edit::Skip, Edit::Remove(CLIENTS[1])];
    Mask::Edit(edits).put(&mut mask);
    let mut reserve = vec![1, 1];
    reserve.extend(CLIENTS[0].0);
    let mut keyed = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7];
    keyed.extend(CLIENTS[0].0);
    let commands = [(command::MASK, mask), (command::RESERVE, reserve), (command::KEYED, keyed)];
    let seed = |(code, argument): (u8, Vec<u8>)| {
        let mut bytes = vec![1];
        good(code, 1, &argument, 0, &mut bytes);
        good(command::ATA, 2, &transfer(true, 0, 1), 1, &mut bytes);
        good(code, 3, &[0; 12], 0, &mut bytes);
        bytes
    };
    commands.map(seed).to_vec()
}
