//! The memory of requests: a bound that hostile clients cannot pass, and that honest ones do not
//! hang at.

use std::rc::Rc;

use io::MemDisk;
use net::nbd::limits::{MAX_PAYLOAD, OWN_BYTES, PIECE_BYTES, STALL_TIME};
use net::nbd::wire::{Style, command};
use net::nbd::{Catalogue, Export, Memory, Server};

use crate::mix::{Dice, SlowDisk, request};
use crate::pipe::End;
use crate::world::{World, pool};

const DISK_BYTES: u64 = 64 << 20;

/// A server with one export, whose requests share `limit` bytes.
fn world(limit: u64) -> (World, Rc<SlowDisk>, Memory) {
    let memory = Memory::new(limit);
    let slow = SlowDisk::new(Rc::new(MemDisk::new(DISK_BYTES)));
    let export = Export::new("disk", Rc::clone(&slow) as _, pool());
    let configure = |server: Server| server.with_memory(memory.clone());
    let world = World::with(Rc::new(Catalogue::new([Rc::new(export)])), configure);
    (world, slow, memory)
}

fn open(world: &World) -> End {
    let end = world.connect();
    world.transmit(&end, &[], &[]);
    end
}

fn header(command: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    request(0, command, cookie, offset, length).encode(Style::Simple, &mut bytes);
    bytes
}

fn send(world: &World, end: &End, bytes: &[u8]) {
    end.push(bytes);
    world.run_until_idle();
}

/// Clients with requests of all sizes, some larger than the whole memory: in any order, the bound
/// holds and every client is answered.
#[test]
fn the_bound_holds_and_every_client_is_served() {
    for seed in 0..40 {
        let dice = &mut Dice(seed);
        let limit = (1 + dice.roll(4)) << 20;
        let (world, slow, memory) = world(limit);
        let most = [8 << 10, 512 << 10, 3 << 20][dice.roll(3) as usize];
        let mut clients: Vec<(End, Vec<u8>, u64)> = (0..2 + dice.roll(5))
            .map(|_| {
                let (mut script, mut expected) = (Vec::new(), 0);
                for cookie in 0..1 + dice.roll(12) {
                    let length = (1 + dice.roll(most / 512)) * 512;
                    let is_read = dice.roll(2) == 0;
                    let command = if is_read { command::READ } else { command::WRITE };
                    let offset = dice.roll((DISK_BYTES - length) / 512) * 512;
                    script.extend(header(command, cookie, offset, length));
                    script.resize(script.len() + if is_read { 0 } else { length as usize }, 7);
                    expected += 16 + if is_read { length } else { 0 };
                }
                (open(&world), script, expected)
            })
            .collect();
        let bound = limit.max(most);
        let check = || assert!(memory.used() <= bound, "seed {seed}: {} bytes", memory.used());
        while clients.iter().any(|(_, script, _)| !script.is_empty()) {
            let index = dice.roll(clients.len() as u64) as usize;
            let (end, script, expected) = &mut clients[index];
            match dice.roll(3) {
                0 => {
                    let count = (1 + dice.roll(600_000) as usize).min(script.len());
                    send(&world, end, &script.drain(..count).collect::<Vec<u8>>());
                }
                1 => *expected -= end.pull().len() as u64,
                _ if slow.waiting() > 0 => {
                    slow.answer(dice.roll(slow.waiting() as u64) as usize);
                    world.run_until_idle();
                }
                _ => {}
            }
            check();
        }
        // Everything has been sent: each round of answers must unblock a client.
        while clients.iter().any(|(_, _, expected)| *expected > 0) {
            let before: u64 = clients.iter().map(|(_, _, expected)| *expected).sum();
            slow.answer_all(&world, dice);
            for (end, _, expected) in &mut clients {
                *expected -= end.pull().len() as u64;
                world.run_until_idle();
                check();
            }
            let after: u64 = clients.iter().map(|(_, _, expected)| *expected).sum();
            assert!(after < before || slow.waiting() > 0, "seed {seed}: all clients wait");
        }
        drop(clients);
        world.run_until_idle();
        assert_eq!(memory.used(), 0, "seed {seed}: all of it came back");
    }
}

/// 28 bytes announce 32 MiB, on many connections.
#[test]
fn a_payload_that_is_only_announced_takes_no_buffer() {
    let disk = Rc::new(MemDisk::new(DISK_BYTES));
    let buffers = pool();
    let export = Export::new("disk", disk, pool());
    let exports = Rc::new(Catalogue::new([Rc::new(export)]));
    let clock = Rc::new(io::contract::HandClock::default());
    let server = Server::new(Rc::clone(&exports) as _, Rc::clone(&clock) as _, buffers.clone());
    let world = World::with(exports, |_| server);
    let ends: Vec<End> = (0..4).map(|_| open(&world)).collect();
    for end in &ends {
        send(&world, end, &header(command::WRITE, 1, 0, u64::from(MAX_PAYLOAD)));
    }
    for end in ends {
        drop(end);
    }
    world.run_until_idle();
    assert_eq!(buffers.kept_bytes(), 0, "no buffer has come back");
    // The received bytes are kept, in pieces.
    let end = open(&world);
    send(&world, &end, &header(command::WRITE, 1, 0, u64::from(MAX_PAYLOAD)));
    send(&world, &end, &vec![1; 3 * PIECE_BYTES / 2]);
    drop(end);
    world.run_until_idle();
    assert!((1..=3 * PIECE_BYTES).contains(&buffers.kept_bytes()), "{}", buffers.kept_bytes());
}

/// Clients that hold all the memory, by half a write and by answers that they do not take: others
/// go on with small requests, wait with large ones, and have all of it once the time is up.
#[test]
fn stalled_clients_that_hold_memory_are_disconnected() {
    let limit = 4 << 20;
    let large = limit + OWN_BYTES;
    for by_write in [true, false] {
        let (world, slow, memory) = world(limit);
        let hog = world.connect_over(1000, usize::MAX).expect("there is a free slot");
        world.transmit(&hog, &[], &[]);
        if by_write {
            send(&world, &hog, &header(command::WRITE, 1, 0, large));
            send(&world, &hog, &[1; 5000]);
        } else {
            send(&world, &hog, &header(command::READ, 1, 0, large));
            slow.answer_all(&world, &mut Dice(1));
        }
        assert_eq!(memory.used(), limit);
        let honest = open(&world);
        send(&world, &honest, &header(command::READ, 2, 0, OWN_BYTES));
        slow.answer_all(&world, &mut Dice(2));
        assert_eq!(honest.pull().len() as u64, 16 + OWN_BYTES, "its own room is left to it");
        world.run_until_idle();
        send(&world, &honest, &header(command::READ, 3, 0, 1 << 20));
        assert_eq!(slow.waiting(), 0, "it waits for memory");
        // Two terms at most, since the first may have begun with something else.
        for _ in 0..2 {
            world.clock.pass(STALL_TIME);
            world.run_until_idle();
        }
        assert_eq!(world.ending(), "Stalled", "by_write {by_write}");
        slow.answer_all(&world, &mut Dice(3));
        assert_eq!(honest.pull().len(), 16 + (1 << 20));
        world.run_until_idle();
        assert_eq!(memory.used(), 0);
        // No client needs memory: one that does not read answers is left alone.
        send(&world, &honest, &header(command::READ, 4, 0, 2 << 20));
        for _ in 0..5 {
            world.clock.pass(STALL_TIME);
            world.run_until_idle();
        }
        assert_eq!(world.endings.borrow().len(), 1);
    }
}

/// A slow client that goes on is no stalled one.
#[test]
fn a_slow_writer_may_take_its_time() {
    let (world, slow, _) = world(64 << 20);
    let end = open(&world);
    let length = 8 << 20;
    send(&world, &end, &header(command::WRITE, 1, 0, length as u64));
    for _ in 0..8 {
        world.clock.pass(STALL_TIME - std::time::Duration::from_secs(1));
        send(&world, &end, &vec![3; length / 8]);
    }
    slow.answer_all(&world, &mut Dice(1));
    assert_eq!(end.pull().len(), 16);
    for _ in 0..5 {
        world.clock.pass(STALL_TIME);
        world.run_until_idle();
    }
    assert!(world.endings.borrow().is_empty(), "an idle client is left alone");
}

/// A large request waits until all earlier ones are answered, and small ones do not overtake it for
/// ever.
#[test]
fn a_large_request_has_its_turn() {
    let (world, slow, memory) = world(4 << 20);
    let (small, large) = (open(&world), open(&world));
    let one = header(command::READ, 1, 0, 1 << 20);
    send(&world, &small, &one.repeat(4));
    send(&world, &large, &header(command::READ, 9, 0, 4 << 20));
    for _ in 0..6 {
        send(&world, &small, &one);
        slow.answer(0);
        world.run_until_idle();
        small.pull();
        world.run_until_idle();
    }
    // The four that came before it, and then it.
    assert_eq!(large.pull().len(), 16 + (4 << 20), "{} bytes in use", memory.used());
}
