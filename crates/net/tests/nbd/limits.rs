//! The limits of a connection at `limit - 1`, `limit` and `limit + 1`: what is within is served,
//! what is beyond is refused with an answer or waits, and the connection goes on where the protocol
//! lets it. `docs/limits.md` has the table.

use std::rc::Rc;

use io::MemDisk;
use net::nbd::wire::{
    Choice, MAX_STRING_BYTES, Queries, Style, answer, command, option, put_option,
};
use net::nbd::{Catalogue, Export, limits};

use crate::mix::{Dice, SlowDisk, request};
use crate::pipe::End;
use crate::world::{World, hex, pool, small_world, world};

/// A client that has greeted.
fn greeted_client(world: &World) -> End {
    let peer = world.connect();
    world.run_until_idle();
    peer.pull();
    peer.push(&hex("00000003"));
    peer
}

/// Sends an option; gives the kind of the last answer, if one came.
fn reply_kind(world: &World, peer: &End, option: u32, data: &[u8]) -> Option<u32> {
    let mut bytes = Vec::new();
    put_option(&mut bytes, option, data);
    let reply = world.exchange(peer, &bytes);
    let mut rest = &reply[..];
    let mut kind = None;
    let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
    while rest.len() >= 20 {
        kind = Some(number(&rest[12..16]));
        rest = &rest[20 + number(&rest[16..20]) as usize..];
    }
    kind
}

fn encoded(requests: &[(net::nbd::wire::Request, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (request, payload) in requests {
        request.encode(Style::Simple, &mut bytes);
        bytes.extend_from_slice(payload);
    }
    bytes
}

#[test]
fn payload_bytes() {
    let most = u64::from(limits::MAX_PAYLOAD);
    let world = world(Rc::new(MemDisk::new(2 * most)));
    for (length, error) in [(most - 1, 0), (most, 0), (most + 1, 22)] {
        let peer = world.connect();
        world.transmit(&peer, &[], &[]);
        let payload = vec![7; length as usize];
        let write = request(0, command::WRITE, 1, 3, length);
        let reply = world.exchange(&peer, &encoded(&[(write, &payload)]));
        assert_eq!((reply.len(), reply[7]), (16, error), "a write of {length} bytes");
        let reply =
            world.exchange(&peer, &encoded(&[(request(0, command::READ, 2, 3, length), &[])]));
        assert_eq!(reply[7], error, "a read of {length} bytes");
        if error == 0 {
            assert!(reply[16..] == payload, "a read of {length} bytes");
        }
        // The connection goes on.
        let flush = encoded(&[(request(0, command::FLUSH, 3, 0, 0), &[])]);
        assert_eq!(world.exchange(&peer, &flush).len(), 16);
    }
}

/// One payload more than is read and dropped ends the connection; nothing else does.
#[test]
fn dropped_bytes() {
    let most = limits::MAX_DRAIN;
    for (length, ends) in [(most - 1, false), (most, false), (most + 1, true)] {
        let world = small_world();
        let peer = world.connect();
        world.transmit(&peer, &[], &[]);
        world.exchange(&peer, &encoded(&[(request(0, command::WRITE, 1, 0, length), &[])]));
        assert_eq!(peer.is_closed(), ends, "{length} bytes");
    }
}

#[test]
fn requests() {
    let most = limits::MAX_REQUESTS;
    for count in [most - 1, most, most + 1] {
        let slow = SlowDisk::new(Rc::new(MemDisk::new(1 << 20)));
        let world = world(Rc::clone(&slow) as _);
        let peer = world.connect();
        world.transmit(&peer, &[], &[]);
        let read = |cookie| (request(0, command::READ, cookie, 0, 512), &[][..]);
        peer.push(&encoded(&(0..count as u64).map(read).collect::<Vec<_>>()));
        world.run_until_idle();
        assert_eq!(slow.waiting(), count.min(most), "{count} requests: the others wait");
        slow.answer_all(&world, &mut Dice(1));
        assert_eq!(peer.pull().len(), count * (16 + 512), "all are answered");
    }
}

#[test]
fn request_bytes() {
    let (most, each) = (limits::MAX_REQUEST_BYTES, 1 << 20);
    for count in [most / each - 1, most / each, most / each + 1] {
        let slow = SlowDisk::new(Rc::new(MemDisk::new(4 << 20)));
        let world = world(Rc::clone(&slow) as _);
        let peer = world.connect();
        world.transmit(&peer, &[], &[]);
        let read = |cookie| (request(0, command::READ, cookie, 0, each), &[][..]);
        peer.push(&encoded(&(0..count).map(read).collect::<Vec<_>>()));
        world.run_until_idle();
        assert_eq!(slow.waiting() as u64, count.min(most / each), "{count} MiB: the others wait");
        slow.answer_all(&world, &mut Dice(1));
        assert_eq!(peer.pull().len() as u64, count * (16 + each), "all are answered");
    }
}

#[test]
fn connections() {
    let world = small_world();
    let client = || {
        let peer = world.connect_over(1 << 30, usize::MAX)?;
        world.transmit(&peer, &[], &[]);
        Some(peer)
    };
    let mut clients: Vec<End> =
        (0..limits::MAX_CONNECTIONS).map(|_| client().expect("there is a free slot")).collect();
    assert!(client().is_none(), "one too many");
    clients.pop();
    world.run_until_idle();
    clients.push(client().expect("a free connection slot"));
    let flush = encoded(&[(request(0, command::FLUSH, 3, 0, 0), &[])]);
    assert!(clients.iter().all(|peer| world.exchange(peer, &flush).len() == 16), "all are served");
}

#[test]
fn handshakes() {
    let world = small_world();
    let silent: Vec<End> = (0..limits::MAX_HANDSHAKES).map(|_| world.connect()).collect();
    world.run_until_idle();
    assert_eq!(world.server.connections(), limits::MAX_HANDSHAKES);
    assert!(silent.iter().all(|peer| !peer.is_closed()));
    let late = world.connect();
    world.run_until_idle();
    assert!(silent[0].is_closed() && !silent[1].is_closed(), "the oldest makes room");
    world.transmit(&late, &[], &[]);
}

#[test]
fn options() {
    for count in [limits::MAX_OPTIONS - 1, limits::MAX_OPTIONS, limits::MAX_OPTIONS + 1] {
        let world = small_world();
        let peer = greeted_client(&world);
        for _ in 1..count {
            assert_eq!(reply_kind(&world, &peer, 0x1234, b""), Some(answer::UNSUPPORTED));
        }
        let go = Choice { name: "disk", requests: vec![] }.encode();
        let expected = (count <= limits::MAX_OPTIONS).then_some(answer::ACK);
        assert_eq!(reply_kind(&world, &peer, option::GO, &go), expected, "{count} options");
        assert_eq!(peer.is_closed(), expected.is_none());
    }
}

#[test]
fn option_bytes() {
    let most = limits::MAX_OPTION_BYTES;
    for (length, expected) in [
        (most - 1, Some(answer::UNSUPPORTED)),
        (most, Some(answer::UNSUPPORTED)),
        (most + 1, Some(answer::TOO_BIG)),
        (limits::MAX_OPTION_DRAIN - 1, Some(answer::TOO_BIG)),
        (limits::MAX_OPTION_DRAIN, Some(answer::TOO_BIG)),
        (limits::MAX_OPTION_DRAIN + 1, None),
    ] {
        let world = small_world();
        let peer = greeted_client(&world);
        let answer = reply_kind(&world, &peer, 0x1234, &vec![0; length as usize]);
        assert_eq!(answer, expected, "an option of {length} bytes");
        assert_eq!(peer.is_closed(), expected.is_none());
    }
}

#[test]
fn queries() {
    for count in [limits::MAX_QUERIES - 1, limits::MAX_QUERIES, limits::MAX_QUERIES + 1] {
        let world = small_world();
        let peer = greeted_client(&world);
        assert_eq!(reply_kind(&world, &peer, option::STRUCTURED_REPLY, b""), Some(answer::ACK));
        let data = Queries { name: "disk", queries: vec!["base:allocation"; count] }.encode();
        let fits = count <= limits::MAX_QUERIES;
        let expected = if fits { answer::ACK } else { answer::TOO_BIG };
        assert_eq!(
            reply_kind(&world, &peer, option::SET_META_CONTEXT, &data),
            Some(expected),
            "{count}"
        );
    }
}

/// Every export that is shown can be named: at the limit it is listed, described and opened; one
/// above it is refused when it is made.
#[test]
fn export_names() {
    for bytes in [MAX_STRING_BYTES - 1, MAX_STRING_BYTES] {
        let name = "n".repeat(bytes);
        let export = Export::new(&name, Rc::new(MemDisk::new(1 << 20)), pool());
        let world = World::new(Rc::new(Catalogue::new([Rc::new(export)])));
        let peer = greeted_client(&world);
        assert_eq!(reply_kind(&world, &peer, option::LIST, b""), Some(answer::ACK));
        let go = Choice { name: &name, requests: vec![] }.encode();
        assert_eq!(reply_kind(&world, &peer, option::GO, &go), Some(answer::ACK), "{bytes} bytes");
    }
    let world = small_world();
    let peer = greeted_client(&world);
    let name = "n".repeat(MAX_STRING_BYTES + 1);
    let go = Choice { name: &name, requests: vec![] }.encode();
    assert_eq!(reply_kind(&world, &peer, option::GO, &go), Some(answer::TOO_BIG));
    let made = std::panic::catch_unwind(|| {
        Export::new(name, Rc::new(MemDisk::new(1 << 20)), pool());
    });
    assert!(made.is_err(), "no client could name it");
}
