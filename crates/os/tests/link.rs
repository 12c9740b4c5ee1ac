//! The contract of a link, against every kind of port; and what a port does when its interface
//! changes. Each test has a network namespace of its own, for which it needs root.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::process::Command;
use std::task::Poll;

use io::link::{ETHERNET_BYTES, HEAD_BYTES};
use io::{Frame, Link, LinkState, Mac, Pool, contract};
use os::link::{Filter, PortError, Role};
use os::{Config, Engine, Executor, Port};
use world::{Scratch, on_tmpfs};

const ENGINES: [Engine; 2] = [Engine::Auto, Engine::Epoll];

fn pool() -> Pool {
    Pool::new(64 << 20)
}

fn all_requests() -> Filter {
    Filter { role: Role::Target, shelves: Vec::new(), slot: None }
}

/// Moves the thread into a network namespace of its own.
fn alone() {
    // SAFETY: affects this thread and the processes that it starts.
    let outcome = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(outcome, 0, "a network namespace needs root: {}", std::io::Error::last_os_error());
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split_whitespace()).status();
    assert!(status.expect("ip is part of iproute2").success(), "ip {arguments}");
}

/// Two interfaces with a cable between them.
fn cable(mtu: u32) {
    ip(&format!("link add left mtu {mtu} type veth peer name right mtu {mtu}"));
    ip("link set left up");
    ip("link set right up");
}

/// Waits until the port has its carrier, which the kernel reports a moment after `ip`.
fn up(executor: &Executor, port: &Port) -> LinkState {
    let mut state = port.state();
    while !state.up {
        state = executor.block_on(poll_fn(|cx| port.poll_state(cx, state)));
    }
    state
}

#[test]
fn interfaces() {
    alone();
    for (engine, mtu) in ENGINES.into_iter().zip([1500, 9000]) {
        cable(mtu);
        let executor = Executor::new(Config { engine, ..Config::default() }).unwrap();
        let open =
            |name| Port::interface(name, &all_requests(), pool(), &executor.spawner()).unwrap();
        let (left, right) = (open("left"), open("right"));
        for port in [&left, &right] {
            assert_eq!(up(&executor, port), LinkState { up: true, mtu });
            let listed = os::link::interfaces().unwrap();
            assert!(listed.iter().any(|(_, mac)| *mac == port.address()));
        }
        executor.block_on(contract::link(&left, &right));
        ip("link del left");
    }
}

#[test]
fn a_tap() {
    alone();
    let executor = Executor::new(Config::default()).unwrap();
    let own = Mac([2, 0, 0, 0, 0, 9]);
    let tap = Port::tap("tap0", own, pool(), &executor.spawner()).unwrap();
    ip("link set tap0 up");
    let kernel = Port::interface("tap0", &all_requests(), pool(), &executor.spawner()).unwrap();
    up(&executor, &tap);
    executor.block_on(contract::link(&tap, &kernel));
    executor.block_on(contract::link(&kernel, &tap));
}

#[test]
fn datagram_sockets() {
    let scratch = Scratch::new(on_tmpfs());
    let (a, b) = (scratch.path("a"), scratch.path("b"));
    let executor = Executor::new(Config::default()).unwrap();
    let open = |own, peer, last| {
        let mac = Mac([2, 0, 0, 0, 0, last]);
        Port::datagram(own, peer, mac, pool(), &executor.spawner()).unwrap()
    };
    let left = open(&a, &b, 1);
    // Without the other end frames are lost, as on a wire.
    let mut frames = VecDeque::from([Frame::new(&[0; 60])]);
    executor.block_on(poll_fn(|cx| left.poll_send(cx, &mut frames))).unwrap();
    let right = open(&b, &a, 2);
    executor.block_on(contract::link(&left, &right));
}

/// A frame of one byte after the header.
fn frame(to: Mac, (shelf, slot): (u16, u8), answer: bool, number: u8) -> Frame {
    let mut bytes = [0; 60];
    bytes[..6].copy_from_slice(&to.0);
    bytes[12..14].copy_from_slice(&[0x88, 0xa2]);
    bytes[14] = if answer { 0x18 } else { 0x10 };
    bytes[16..18].copy_from_slice(&shelf.to_be_bytes());
    bytes[18] = slot;
    bytes[20] = number;
    Frame::new(&bytes)
}

#[test]
fn the_filter_lets_through_what_the_port_asks_for() {
    alone();
    cable(1500);
    let executor = Executor::new(Config::default()).unwrap();
    let open = |name, role, shelves: &[u16], slot| {
        let filter = Filter { role, shelves: shelves.to_vec(), slot };
        Port::interface(name, &filter, pool(), &executor.spawner()).unwrap()
    };
    let sender = open("left", Role::Target, &[], None);
    up(&executor, &sender);
    let table = [
        (open("right", Role::Target, &[], None), &[1, 2, 3, 4][..]),
        (open("right", Role::Target, &[7], None), &[1, 4][..]),
        (open("right", Role::Target, &[8, 7], None), &[1, 2, 4][..]),
        (open("right", Role::Initiator, &[], None), &[5, 6, 7][..]),
        (open("right", Role::Initiator, &[8], None), &[6, 7][..]),
        (open("right", Role::Initiator, &[8], Some(3)), &[7][..]),
    ];
    let to = table[0].0.address();
    let mut frames: VecDeque<Frame> = [(7, 0), (8, 0), (9, 0), (0xffff, 0), (7, 0), (8, 0), (8, 3)]
        .into_iter()
        .zip(1..)
        .map(|(address, number)| frame(to, address, number > 4, number))
        .collect();
    executor.block_on(poll_fn(|cx| sender.poll_send(cx, &mut frames))).unwrap();
    for (port, expected) in table {
        let mut received = Vec::new();
        while received.len() < expected.len() {
            executor.block_on(poll_fn(|cx| port.poll_receive(cx, &mut received))).unwrap();
        }
        let numbers: Vec<u8> = received.iter().map(|frame| frame.head()[20]).collect();
        assert_eq!(numbers, expected);
    }
}

#[test]
fn a_port_follows_its_interface() {
    alone();
    cable(1500);
    let executor = Executor::new(Config::default()).unwrap();
    let open = |name| Port::interface(name, &all_requests(), pool(), &executor.spawner()).unwrap();
    let (left, right) = (open("left"), open("right"));
    up(&executor, &left);
    let change = |seen| executor.block_on(poll_fn(|cx| left.poll_state(cx, seen)));
    ip("link set left mtu 9000");
    let jumbo = LinkState { up: true, mtu: 9000 };
    assert_eq!(change(LinkState { up: true, mtu: 1500 }), jumbo);
    assert_eq!(left.state(), jumbo);
    ip("link set left down");
    assert!(!change(jumbo).up);
    // Frames to a port that is down are lost, and nothing fails.
    let mut frames = VecDeque::from([frame(right.address(), (1, 0), false, 1)]);
    executor.block_on(poll_fn(|cx| left.poll_send(cx, &mut frames))).unwrap();
    assert!(frames.is_empty());
    ip("link set left up");
    up(&executor, &left);
    let mut frames = VecDeque::from([frame(left.address(), (1, 0), false, 2)]);
    executor.block_on(poll_fn(|cx| right.poll_send(cx, &mut frames))).unwrap();
    let mut received = Vec::new();
    executor.block_on(poll_fn(|cx| left.poll_receive(cx, &mut received))).unwrap();
    assert_eq!(received[0].head()[20], 2);
    ip("link del left");
    let gone = executor.block_on(poll_fn(|cx| left.poll_receive(cx, &mut received)));
    gone.expect_err("the interface is gone for good");
}

/// Sends this many frames of the full MTU to `right`, a few at a time, and compares them.
fn exchange(executor: &Executor, left: &Port, right: &Port, count: u32) {
    let mtu = left.state().mtu as usize;
    for from in (0..count).step_by(50) {
        let sent: Vec<Frame> = (from..count.min(from + 50))
            .map(|number| {
                let head = *frame(right.address(), (1, 0), false, 0).head().first_chunk().unwrap();
                let mut body = vec![0; mtu + ETHERNET_BYTES - HEAD_BYTES];
                body.iter_mut().zip(number..).for_each(|(byte, value)| *byte = (value % 251) as u8);
                Frame::with_body(head, pool().copy_of(&body).freeze())
            })
            .collect();
        let mut frames: VecDeque<Frame> = sent.iter().cloned().collect();
        let mut received = Vec::new();
        while received.len() < sent.len() {
            if !frames.is_empty() {
                executor.block_on(poll_fn(|cx| left.poll_send(cx, &mut frames))).unwrap();
            }
            executor.block_on(poll_fn(|cx| right.poll_receive(cx, &mut received))).unwrap();
        }
        for (sent, received) in sent.iter().zip(&received) {
            assert_eq!(sent.to_vec(), received.to_vec());
        }
    }
}

/// More frames than a receive ring has slots, before and after each change of the MTU: to a ring of
/// larger slots, of smaller ones, and to none.
#[test]
fn jumbo_frames_arrive_whole_after_each_change_of_the_mtu() {
    for engine in ENGINES {
        alone();
        cable(4200);
        let executor = Executor::new(Config { engine, ..Config::default() }).unwrap();
        let open =
            |name| Port::interface(name, &all_requests(), pool(), &executor.spawner()).unwrap();
        let (left, right) = (open("left"), open("right"));
        up(&executor, &left);
        up(&executor, &right);
        for mtu in [4200, 9000, 3000, 2999, 1500, 9000] {
            for (name, port) in [("left", &left), ("right", &right)] {
                ip(&format!("link set {name} mtu {mtu}"));
                while port.state().mtu != mtu {
                    let seen = port.state();
                    executor.block_on(poll_fn(|cx| port.poll_state(cx, seen)));
                }
            }
            // The ring is made anew when there is nothing to receive.
            let nothing = executor.block_on(poll_fn(|cx| {
                Poll::Ready(right.poll_receive(cx, &mut Vec::new()).is_pending())
            }));
            assert!(nothing);
            exchange(&executor, &left, &right, 2000);
        }
    }
}

/// Whether the kernel's report of the removal comes with that of the switching off, or after it.
#[test]
fn a_removed_interface_ends_its_port() {
    alone();
    for (engine, off_before) in ENGINES.into_iter().flat_map(|it| [(it, false), (it, true)]) {
        cable(1500);
        let executor = Executor::new(Config { engine, ..Config::default() }).unwrap();
        let port = Port::interface("left", &all_requests(), pool(), &executor.spawner()).unwrap();
        let (mut seen, mut frames) = (up(&executor, &port), Vec::new());
        // As the ends of the protocol do: who receives is polled first.
        let mut turn = |until_down: bool| {
            executor.block_on(poll_fn(|cx| {
                if let Poll::Ready(Err(error)) = port.poll_receive(cx, &mut frames) {
                    return Poll::Ready(Some(error));
                }
                while let Poll::Ready(now) = port.poll_state(cx, seen) {
                    seen = now;
                }
                if until_down && !seen.up { Poll::Ready(None) } else { Poll::Pending }
            }))
        };
        if off_before {
            ip("link set left down");
            assert!(turn(true).is_none(), "it is down, and exists");
        }
        ip("link del left");
        assert!(turn(false).is_some());
    }
}

#[test]
fn ports_that_cannot_be_opened_say_why() {
    alone();
    let executor = Executor::new(Config::default()).unwrap();
    let open = |name| Port::interface(name, &all_requests(), pool(), &executor.spawner());
    for name in ["nothere", "", "a/b", "a-name-that-is-too-long"] {
        assert!(matches!(open(name), Err(PortError::Missing)), "{name}");
    }
    ip("tuntap add tun0 mode tun");
    assert!(matches!(open("tun0"), Err(PortError::NotEthernet)));
}
