//! Violations by a client: each case ends at most its own connection, at the right moment.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::IoSlice;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{MemDisk, Stream};
use net::nbd::limits::MAX_OPTIONS;
use net::nbd::server::{Accepting, Tls};
use net::nbd::{Catalogue, Client, Denial, Ending, Export, Exports, Server, wire};

use crate::mix::Dice;
use crate::world::{World, hex, pool, small_world};

const OPTION: &str = "49484156454f5054";

/// The bytes sent after the client flags, and the expected end: an ending (its `Debug` form begins
/// so), or the kind of the last reply if the connection continues.
fn case(flags: &str, bytes: &[u8], expected: &str) {
    let world = small_world();
    let peer = world.connect();
    let bystander = world.connect();
    world.run_until_idle();
    peer.pull();
    bystander.pull();
    let reply = world.exchange(&peer, &[&hex(flags), bytes].concat());
    let endings = world.endings.borrow();
    let what = match endings.first() {
        Some(ending) => format!("{ending:?}"),
        None if reply.is_empty() => "silence".to_owned(),
        None => {
            let mut rest = &reply[..];
            let mut kind = 0;
            while let Some((header, data)) = rest.split_first_chunk::<20>() {
                let header = wire::AnswerHeader::decode(header).unwrap();
                kind = header.kind;
                rest = &data[header.length as usize..];
            }
            format!("{kind:08x}")
        }
    };
    assert!(what.starts_with(expected), "{expected} expected, got {what}");
    drop(endings);
    // Another client is still served.
    let abort = [hex("00000003"), hex(OPTION), hex("00000002 00000000")].concat();
    assert_eq!(world.exchange(&bystander, &abort).len(), 20);
}

fn option(number: u32, length: u32, data: &[u8]) -> Vec<u8> {
    [&hex(OPTION)[..], &number.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

fn whole(number: u32, data: &[u8]) -> Vec<u8> {
    option(number, data.len() as u32, data)
}

fn named(length: u32, name: &[u8]) -> Vec<u8> {
    [&length.to_be_bytes(), name, &[0, 0]].concat()
}

#[test]
fn each_lesson_of_others_is_one_line() {
    let long = vec![b'x'; 3000];
    let longer = vec![b'x'; 4097];
    let structured = whole(8, b"");
    let contexts = |count: u32, rest: &[u8]| {
        let data = [&[0, 0, 0, 4], &b"disk"[..], &count.to_be_bytes(), rest].concat();
        [structured.clone(), whole(10, &data)].concat()
    };
    // 2017-15119: an option of 4 GiB.               2022-26495: names of 0xffffffff bytes.
    case("00000003", &option(7, u32::MAX, b""), "Misbehaved");
    case("00000003", &whole(7, &named(u32::MAX, b"")), "80000003");
    case("00000003", &whole(6, &named(u32::MAX, &long)), "80000003");
    case("00000003", &contexts(1, &[0xff; 4]), "80000003");
    case("00000003", &contexts(u32::MAX, b""), "80000009");
    // 2017-15118: names of 3000 bytes are right, and unknown here; 4097 are not.
    case("00000003", &whole(7, &named(3000, &long)), "80000006");
    case("00000003", &whole(7, &named(4097, &longer)), "80000009");
    case("00000003", &whole(1, &long), "Denied");
    case("00000003", &whole(1, &longer), "Misbehaved");
    // 2013-7441: an export that is not there, or a disconnect, in the midst of it.
    case("00000003", &whole(1, b"nope"), "Denied");
    case("00000003", &whole(7, &named(4, b"nope")), "80000006");
    case("00000003", &option(7, 100, b"half"), "silence");
    // 2019-14851, 2017-7539: options out of order, or unknown, or far too many.
    case("00000003", &whole(10, b""), "80000003");
    case("00000003", &[whole(11, b""), whole(8, b"")].concat(), "8000000a");
    case("00000003", &[whole(11, b""), whole(1, b"disk")].concat(), "Misbehaved");
    case("00000003", &whole(0, b""), "80000001");
    case("00000003", &whole(u32::MAX, b""), "80000001");
    case("00000003", &whole(99, b"").repeat(MAX_OPTIONS), "80000001");
    case("00000003", &whole(99, b"").repeat(MAX_OPTIONS + 1), "Misbehaved");
    // Long options are dropped up to a limit.
    case("00000003", &whole(99, &vec![0; 64 << 10]), "80000001");
    case("00000003", &whole(99, &vec![0; (64 << 10) + 1]), "80000009");
    case("00000003", &option(99, (1 << 20) + 1, b""), "Misbehaved");
    // Names that are none: NUL, no UTF-8.
    case("00000003", &whole(7, &named(4, b"di\0k")), "80000003");
    case("00000003", &whole(7, &named(4, b"di\xffk")), "80000003");
    // Garbage: flags, magic numbers, a client that reads no replies but wants some.
    case("00000007", b"", "Misbehaved");
    case("80000003", b"", "Misbehaved");
    case("00000003", b"GET / HTTP/1.1\r\n", "Misbehaved");
    case("00000002", &whole(3, b""), "Misbehaved");
    case("00000002", &whole(1, b"disk"), "00000000");
}

/// TLS that is none: it says TLS, and every byte is turned over.
struct Inverting;

struct Inverted(Box<dyn Stream>);

impl Tls for Inverting {
    fn accept(&self, stream: Box<dyn Stream>) -> Accepting {
        Box::pin(async move {
            let mut hello = [0; 1];
            poll_fn(|cx| stream.poll_read(cx, &mut hello)).await?;
            if hello != [0x16] {
                return Err(std::io::Error::other("no TLS record"));
            }
            Ok((Box::new(Inverted(stream)) as Box<dyn Stream>, Some("alice".to_owned())))
        })
    }
}

impl Stream for Inverted {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<std::io::Result<usize>> {
        let read = std::task::ready!(self.0.poll_read(cx, into))?;
        into[..read].iter_mut().for_each(|byte| *byte = !*byte);
        Poll::Ready(Ok(read))
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let part: Vec<u8> = bytes.iter().flat_map(|part| part.iter().map(|byte| !byte)).collect();
        self.0.poll_write(cx, &[IoSlice::new(&part)])
    }

    fn poll_close(&self, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.0.poll_close(cx)
    }
}

/// Reports the client of each request.
struct Watched {
    inner: Catalogue,
    opened: Rc<RefCell<Vec<Client>>>,
}

impl Exports for Watched {
    fn list(&self, client: &Client, each: &mut dyn FnMut(&str, &str)) {
        self.inner.list(client, each);
    }

    fn find(&self, name: &str, client: &Client) -> Result<Rc<Export>, Denial> {
        self.inner.find(name, client)
    }

    fn open(&self, name: &str, client: &Client) -> Result<Rc<Export>, Denial> {
        self.opened.borrow_mut().push(client.clone());
        self.inner.open(name, client)
    }
}

fn tls_world() -> (World, Rc<RefCell<Vec<Client>>>) {
    let opened = Rc::default();
    let disk = Rc::new(MemDisk::new(1 << 20));
    let inner = Catalogue::new([Rc::new(Export::new("disk", disk, pool()))]);
    let exports = Rc::new(Watched { inner, opened: Rc::clone(&opened) });
    (World::with(exports, |server| server.with_tls(Rc::new(Inverting))), opened)
}

fn kinds(mut reply: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while let Some((header, data)) = reply.split_first_chunk::<20>() {
        let header = wire::AnswerHeader::decode(header).unwrap();
        kinds.push(header.kind);
        reply = &data[header.length as usize..];
    }
    kinds
}

fn inverted(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

#[test]
fn nothing_goes_in_plain_text_where_tls_is_required() {
    let (world, opened) = tls_world();
    let peer = world.connect();
    world.run_until_idle();
    peer.pull();
    peer.push(&hex("00000003"));
    for number in [3, 6, 7, 8, 9, 10, 11, 77] {
        let reply = world.exchange(&peer, &whole(number, &named(4, b"disk")));
        assert_eq!(kinds(&reply), [0x8000_0005], "option {number}");
    }
    world.exchange(&peer, &whole(1, b"disk"));
    assert!(world.ending().starts_with("Misbehaved"));
    assert!(opened.borrow().is_empty(), "nothing was opened");
}

#[test]
fn starttls_forgets_all_and_knows_the_client() {
    let (world, opened) = tls_world();
    let peer = world.connect();
    world.run_until_idle();
    peer.pull();
    peer.push(&hex("00000003"));
    assert_eq!(kinds(&world.exchange(&peer, &whole(5, b""))), [1]);
    peer.push(&[0x16]);
    let secure = |bytes: &[u8]| inverted(&world.exchange(&peer, &inverted(bytes)));
    assert_eq!(kinds(&secure(&whole(5, b""))), [0x8000_0003], "TLS once is enough");
    assert_eq!(kinds(&secure(&whole(7, &named(4, b"disk")))), [3, 1]);
    // Extended headers were never agreed on under TLS: a compact request is understood.
    let flush = hex("25609513 0000 0003 0000000000000001 0000000000000000 00000000");
    assert_eq!(secure(&flush), hex("67446698 00000000 0000000000000001"));
    let seen = opened.borrow();
    assert_eq!(seen.len(), 1);
    assert!(seen[0].secure);
    assert_eq!(seen[0].identity.as_deref(), Some("alice"));
}

/// 2021-3716: bytes that a man in the middle inserts after STARTTLS must not count as the client's.
#[test]
fn plain_text_behind_starttls_is_not_obeyed() {
    let (world, opened) = tls_world();
    let peer = world.connect();
    world.run_until_idle();
    peer.pull();
    let injected = [hex("00000003"), whole(5, b""), whole(7, &named(4, b"disk"))].concat();
    let reply = world.exchange(&peer, &injected);
    assert_eq!(kinds(&reply), [1], "STARTTLS alone is answered");
    assert!(world.ending().starts_with("TlsFailed"));
    assert!(opened.borrow().is_empty());
}

#[test]
fn there_are_only_so_many_places() {
    let disk = Rc::new(MemDisk::new(1 << 20));
    let export = Export::new("disk", disk, pool());
    let exports = Rc::new(Catalogue::new([Rc::new(export)]));
    let world = World::with(exports, |server| server.with_max_connections(2));
    let clients: Vec<_> = (0..2).map(|_| world.connect()).collect();
    let late = world.connect();
    clients.iter().for_each(|client| world.transmit(client, &[], &[]));
    assert!(world.connect_over(100, 100).is_none(), "two are in transmission");
    // A handshake that began when there was room ends when there is none left.
    late.push(&hex("00000003"));
    late.push(&whole(7, &named(4, b"disk")));
    world.run_until_idle();
    assert_eq!(world.ending(), "Crowded");
    // Another listener has places of its own.
    let other = world.connect_through(1, 1 << 30, usize::MAX).expect("there is a free slot");
    world.transmit(&other, &[], &[]);
    drop(clients);
    world.run_until_idle();
    assert_eq!(world.server.connections(), 1);
    assert!(world.connect_over(100, 100).is_some());
}

/// Silent peers in any number: each drops one of their own, and a client comes in at once.
#[test]
fn handshakes_do_not_take_the_places_of_clients() {
    let disk = Rc::new(MemDisk::new(1 << 20));
    let export = Export::new("disk", disk, pool());
    let exports = Rc::new(Catalogue::new([Rc::new(export)]));
    let configure = |server: Server| server.with_max_connections(5).with_max_handshakes(3);
    let world = World::with(exports, configure);
    let (mut silent, mut clients) = (Vec::new(), Vec::new());
    for round in 0..5 {
        silent.extend((0..20).map(|_| world.connect()));
        world.run_until_idle();
        assert_eq!(world.server.connections(), 3 + round, "the newest three, and the clients");
        let client = world.connect();
        // Two more come while it shakes hands; it is not the oldest.
        silent.extend((0..2).map(|_| world.connect()));
        world.transmit(&client, &[], &[]);
        clients.push(client);
    }
    let dropped = world.endings.borrow().len();
    assert_eq!(dropped, 5 * 22 - 2, "all silent ones but the newest two");
    assert!(world.endings.borrow().iter().all(|ending| matches!(ending, Ending::Crowded)));
}

/// Noise in both phases, after headers that are right: the server lives, and serves the next one.
#[test]
fn noise_never_panics() {
    let world = small_world();
    for seed in 0..600 {
        let dice = &mut Dice(seed);
        let peer = world.connect_over(10_000, 1 + dice.roll(300) as usize).unwrap();
        let transmission = dice.roll(2) == 0;
        let extended = dice.roll(2) == 0;
        if transmission {
            let options = if extended { vec![(11, vec![])] } else { vec![(8, vec![])] };
            world.transmit(&peer, &options, &[]);
        } else {
            peer.push(&hex("00000003"));
        }
        for _ in 0..dice.roll(20) {
            let mut bytes = match (transmission, extended) {
                (true, true) => hex("21e41c71 0000 0000"),
                (true, false) => hex("25609513 0000 0000"),
                (false, _) => hex("49484156454f5054 0000000000000000 00000000"),
            };
            if transmission {
                bytes[5] = dice.roll(64) as u8;
                bytes[7] = [0, 1, 3, 4, 5, 6, 7, 8][dice.roll(8) as usize];
                bytes.extend_from_slice(&dice.roll(1 << 40).to_be_bytes());
                bytes.extend_from_slice(&dice.roll(3 << 19).to_be_bytes());
                let most = 1 << dice.roll(24);
                let length = dice.roll(most);
                let length = length.to_be_bytes();
                bytes.extend_from_slice(if extended { &length } else { &length[4..] });
            } else {
                bytes[11] = 2 + dice.roll(11) as u8;
                bytes[15] = dice.roll(40) as u8;
            }
            bytes.extend((0..dice.roll(60)).map(|_| dice.roll(3) as u8));
            peer.push(&bytes);
            world.run_until_idle();
            peer.pull();
        }
    }
    world.run_until_idle();
    assert_eq!(world.server.connections(), 0, "all have ended");
}
