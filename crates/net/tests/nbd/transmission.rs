//! The transmission phase, feature by feature.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::tasks::complete;
use io::{
    Completion, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits, MemDisk, Op, Work,
    ZeroSupport,
};
use net::nbd::wire::{Queries, Request, Style, command, command_flag as flag, option};
use net::nbd::{Catalogue, Export, limits};

use crate::mix::{Dice, SlowDisk, request};
use crate::pipe::End;
use crate::world::{World, pool, world};

const PERMISSION: u32 = 1;
const IO: u32 = 5;
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const OVERFLOW: u32 = 75;
const NOT_FAST: u32 = 95;

/// Goes into transmission; with contexts, where the style has them.
fn open(world: &World, style: Style) -> End {
    let peer = world.connect();
    let contexts = Queries { name: "disk", queries: vec!["base:allocation"] }.encode();
    let options = match style {
        Style::Simple => vec![],
        Style::Structured => {
            vec![(option::STRUCTURED_REPLY, vec![]), (option::SET_META_CONTEXT, contexts)]
        }
        Style::Extended => {
            vec![(option::EXTENDED_HEADERS, vec![]), (option::SET_META_CONTEXT, contexts)]
        }
    };
    world.transmit(&peer, &options, &[]);
    peer
}

fn encoded(style: Style, requests: &[(Request, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (request, payload) in requests {
        request.encode(style, &mut bytes);
        bytes.extend_from_slice(payload);
    }
    bytes
}

/// A reply chunk (or a simple reply, as kind 0): kind, cookie, payload.
type Chunk = (u16, u64, Vec<u8>);

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn chunks(style: Style, mut bytes: &[u8]) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    while !bytes.is_empty() {
        let (cookie, head, length) = match style {
            Style::Simple => panic!("simple replies have no length"),
            Style::Structured => (8..16, 20, number(&bytes[16..20])),
            Style::Extended => (8..16, 32, number(&bytes[24..32])),
        };
        let payload = bytes[head..head + length as usize].to_vec();
        chunks.push((number(&bytes[6..8]) as u16, number(&bytes[cookie]), payload));
        bytes = &bytes[head + length as usize..];
    }
    chunks
}

/// The error of a one-chunk reply; 0 for success.
fn error_of(style: Style, reply: &[u8]) -> u32 {
    if style == Style::Simple {
        return number(&reply[4..8]) as u32;
    }
    let chunks = chunks(style, reply);
    assert_eq!(chunks.len(), 1, "one chunk");
    if chunks[0].0 & 0x8000 == 0 { 0 } else { number(&chunks[0].2[..4]) as u32 }
}

/// The extents of a block status reply.
fn extents(style: Style, reply: &[u8]) -> Vec<(u64, u64)> {
    let chunks = chunks(style, reply);
    assert_eq!(chunks.len(), 1, "one context, one chunk");
    let payload = &chunks[0].2;
    assert_eq!(number(&payload[..4]), 1, "the context's number");
    let (kind, head, size) = if style == Style::Extended { (6, 8, 16) } else { (5, 4, 8) };
    assert_eq!(chunks[0].0, kind);
    let pairs = payload[head..].chunks(size);
    pairs.map(|pair| (number(&pair[..size / 2]), number(&pair[size / 2..]))).collect()
}

/// Command, flags, offset, length; the error, and the styles in which it is so.
type Case<'a> = (u16, u16, u64, u64, u32, &'a [Style]);

#[test]
fn every_wrong_request_has_its_number() {
    let max = u64::from(limits::MAX_PAYLOAD);
    let bytes = max * 2;
    let all = [Style::Simple, Style::Structured, Style::Extended];
    let chunked = [Style::Structured, Style::Extended];
    #[rustfmt::skip]
    let cases: &[Case<'_>] = &[
        (command::READ, 0, bytes - 1, 1, 0, &all),
        (command::READ, 0, bytes, 1, INVALID, &all),
        (command::READ, 0, u64::MAX, 1, INVALID, &all),
        (command::READ, 0, 1, u64::MAX, INVALID, &[Style::Extended]),
        (command::READ, 0, 0, max + 1, INVALID, &all),
        (command::READ, flag::DF, 0, max + 1, OVERFLOW, &chunked),
        (command::READ, flag::DF, 0, 65536, 0, &chunked),
        (command::READ, flag::DF, 0, 512, INVALID, &[Style::Simple]),
        (command::READ, flag::FUA, 0, 512, 0, &all),
        (command::READ, flag::NO_HOLE, 0, 512, INVALID, &all),
        (command::TRIM, 0, bytes, 512, INVALID, &all),
        (command::TRIM, flag::FUA, 0, 512, 0, &all),
        (command::WRITE_ZEROES, 0, bytes - 511, 512, NO_SPACE, &all),
        (command::WRITE_ZEROES, flag::DF, 0, 512, INVALID, &all),
        (command::WRITE_ZEROES, flag::NO_HOLE | flag::FUA, 0, 512, 0, &all),
        (command::CACHE, 0, 0, 512, 0, &all),
        (command::CACHE, 0, bytes, 512, INVALID, &all),
        (command::CACHE, 1 << 9, 0, 512, INVALID, &all),
        (command::FLUSH, flag::FUA, 0, 0, 0, &all),
        (command::FLUSH, 0, 512, 0, INVALID, &all),
        (command::BLOCK_STATUS, 0, 0, 512, INVALID, &[Style::Simple]),
        (command::BLOCK_STATUS, 0, bytes - 512, 513, INVALID, &chunked),
        (command::BLOCK_STATUS, 0, 0, 0, INVALID, &chunked),
        (8, 0, 0, 0, INVALID, &all),
        (0xffff, 0, 0, 0, INVALID, &all),
        // Nothing is asked for, and nothing goes wrong.
        (command::READ, 0, 512, 0, 0, &all),
        (command::WRITE, 0, 512, 0, 0, &all),
        (command::WRITE_ZEROES, 0, 512, 0, 0, &all),
        (command::TRIM, 0, bytes, 0, 0, &all),
        (command::WRITE_ZEROES, 0, bytes + 1, 0, NO_SPACE, &all),
    ];
    let world = world(Rc::new(MemDisk::new(bytes)));
    let peers = all.map(|style| (style, open(&world, style)));
    for (command, flags, offset, length, error, styles) in cases {
        for (style, peer) in peers.iter().filter(|(style, _)| styles.contains(style)) {
            let request = request(*flags, *command, 0x1122_3344_5566_7788, *offset, *length);
            let reply = world.exchange(peer, &encoded(*style, &[(request, &[])]));
            assert_eq!(error_of(*style, &reply), *error, "{style:?} {request:?}");
        }
    }
    assert!(world.endings.borrow().is_empty(), "none of it ends a connection");
}

#[test]
fn a_read_only_export_takes_no_writes() {
    let export = Export::new("disk", Rc::new(MemDisk::new(1 << 20)), pool()).read_only();
    let world = World::new(Rc::new(Catalogue::new([Rc::new(export)])));
    let peer = open(&world, Style::Structured);
    for (number, payload) in [(1, &[7; 512][..]), (4, &[]), (6, &[])] {
        let bytes = encoded(Style::Structured, &[(request(0, number, 1, 0, 512), payload)]);
        assert_eq!(error_of(Style::Structured, &world.exchange(&peer, &bytes)), PERMISSION);
    }
    let read = encoded(Style::Structured, &[(request(0, command::READ, 1, 0, 512), &[])]);
    assert_eq!(chunks(Style::Structured, &world.exchange(&peer, &read))[0].2[8..], [0; 512]);
}

#[test]
fn refused_payloads_are_read_and_the_next_request_is_found() {
    let world = world(Rc::new(MemDisk::new(1 << 20)));
    let over = limits::MAX_PAYLOAD as usize + 1;
    let peer = open(&world, Style::Simple);
    for (offset, length, error) in [(0, over, INVALID), (1 << 20, 100_000, NO_SPACE)] {
        let payload = vec![1; length];
        let write = request(0, command::WRITE, 1, offset, length as u64);
        let flush = request(0, command::FLUSH, 2, 0, 0);
        let reply =
            world.exchange(&peer, &encoded(Style::Simple, &[(write, &payload), (flush, &[])]));
        assert_eq!(reply.len(), 32);
        assert_eq!(error_of(Style::Simple, &reply), error);
        assert_eq!(error_of(Style::Simple, &reply[16..]), 0);
    }
    // With extended headers any command may claim a payload.
    let extended = open(&world, Style::Extended);
    let cache = request(flag::PAYLOAD_LENGTH, command::CACHE, 1, 0, 100);
    let write = request(0, command::WRITE, 2, 0, 3);
    let bytes = encoded(Style::Extended, &[(cache, &[0; 100]), (write, b"abc")]);
    let reply = world.exchange(&extended, &bytes);
    let kinds: Vec<_> = chunks(Style::Extended, &reply).iter().map(|it| (it.0, it.1)).collect();
    assert_eq!(kinds, [(0x8001, 1), (0, 2)]);
    assert!(world.endings.borrow().is_empty());
    // A payload too long to read ends the connection.
    let write = request(0, command::WRITE, 1, 0, (64 << 20) + 1);
    world.exchange(&open(&world, Style::Simple), &encoded(Style::Simple, &[(write, &[])]));
    assert!(world.ending().starts_with("Misbehaved"));
}

#[test]
fn garbage_ends_the_connection_after_valid_requests() {
    let world = world(Rc::new(MemDisk::new(1 << 20)));
    let peer = open(&world, Style::Simple);
    let flush = encoded(Style::Simple, &[(request(0, command::FLUSH, 9, 0, 0), &[])]);
    let reply = world.exchange(&peer, &[&flush[..], &[0xee; 28]].concat());
    assert_eq!(reply.len(), 16);
    assert!(peer.is_closed() && world.ending().starts_with("Misbehaved"));
}

#[test]
fn block_status_distinguishes_holes_from_data() {
    let disk = Rc::new(MemDisk::new(1 << 20));
    disk.poke(8192, &[1]);
    disk.poke(12288, &[0]);
    disk.poke(40960, &[1]);
    let world = world(disk);
    let (data, hole) = (0, 3);
    for style in [Style::Structured, Style::Extended] {
        let peer = open(&world, style);
        let ask = |flags, offset, length| {
            let request = request(flags, command::BLOCK_STATUS, 1, offset, length);
            extents(style, &world.exchange(&peer, &encoded(style, &[(request, &[])])))
        };
        let whole = [(8192, hole), (8192, data), (24576, hole), (4096, data), (1003520, hole)];
        assert_eq!(ask(0, 0, 1 << 20), whole);
        assert_eq!(ask(0, 8000, 1000), [(192, hole), (808, data)], "unaligned");
        assert_eq!(ask(0, 8193, 1), [(1, data)]);
        assert_eq!(ask(flag::REQUEST_ONE, 0, 1 << 20), [(8192, hole)]);
        assert_eq!(ask(flag::REQUEST_ONE, 9000, 100), [(100, data)]);
    }
}

#[test]
fn block_status_is_capped_and_goes_on_where_it_stopped() {
    let pages = 3 * limits::MAX_EXTENTS as u64;
    let disk = Rc::new(MemDisk::new(pages * 4096));
    (0..pages).step_by(2).for_each(|page| disk.poke(page * 4096, &[1]));
    let world = world(disk);
    let peer = open(&world, Style::Extended);
    let mut at = 0;
    while at < pages * 4096 {
        let ask = request(0, command::BLOCK_STATUS, 1, at, pages * 4096 - at);
        let ranges = extents(
            Style::Extended,
            &world.exchange(&peer, &encoded(Style::Extended, &[(ask, &[])])),
        );
        assert_eq!(ranges.len(), limits::MAX_EXTENTS);
        for (length, status) in ranges {
            assert_eq!((length, status), (4096, if at / 4096 % 2 == 0 { 0 } else { 3 }));
            at += length;
        }
    }
}

#[test]
fn block_status_may_name_its_contexts() {
    let world = world(Rc::new(MemDisk::new(1 << 20)));
    let peer = open(&world, Style::Extended);
    let ask = |ids: &[u32]| {
        let ids = ids.iter().flat_map(|id| id.to_be_bytes());
        let payload: Vec<u8> = 4096u64.to_be_bytes().into_iter().chain(ids).collect();
        let length = payload.len() as u64;
        let request = request(flag::PAYLOAD_LENGTH, command::BLOCK_STATUS, 1, 512, length);
        world.exchange(&peer, &encoded(Style::Extended, &[(request, &payload)]))
    };
    assert_eq!(extents(Style::Extended, &ask(&[1])), [(4096, 3)]);
    for wrong in [&[1, 1][..], &[2], &[], &[9; 40]] {
        assert_eq!(error_of(Style::Extended, &ask(wrong)), INVALID, "{wrong:?}");
    }
}

/// A disk of any size that stores nothing: it records operations, and may refuse some.
#[derive(Default)]
struct Model {
    bytes: u64,
    zero: ZeroSupport,
    seen: RefCell<Vec<(u64, String)>>,
    broken: Cell<Option<ErrorKind>>,
}

impl Disk for Model {
    fn submit(&self, op: Op) -> Completion<Done> {
        let mut work = op.work;
        let what = match &mut work {
            Work::Zero { len, unmap, fast } => {
                let (unmap, fast_asked) = (*unmap, *fast);
                if fast_asked && self.zero == ZeroSupport::Written {
                    let error = Error::refused("zeros are written here");
                    return Completion::ready(Done::failed(work, error));
                }
                format!("zero {len} unmap {unmap} fast {fast_asked}")
            }
            Work::Discard { len } => format!("discard {len}"),
            Work::Extents { len, found } => {
                found.push(Extent { len: *len, kind: ExtentKind::Hole });
                format!("extents {len}")
            }
            Work::Read(_) => "read".to_owned(),
            Work::Write(_) => "write".to_owned(),
            Work::Flush => "flush".to_owned(),
        };
        let what = if op.fua { format!("{what} fua") } else { what };
        self.seen.borrow_mut().push((op.offset, what));
        Completion::ready(match self.broken.get() {
            None => Done::ok(work),
            Some(kind) => Done::failed(work, Error::new(kind, "a secret path")),
        })
    }

    fn limits(&self) -> Limits {
        Limits { zero: self.zero, discard: true, ..Limits::plain(self.bytes) }
    }
}

#[test]
fn fast_zero_depends_on_the_disk() {
    for (zero, error) in [(ZeroSupport::Written, NOT_FAST), (ZeroSupport::Fast, 0)] {
        let model = Rc::new(Model { bytes: 1 << 30, zero, ..Model::default() });
        let world = world(Rc::clone(&model) as _);
        let peer = open(&world, Style::Structured);
        let ask = |flags, offset, length| {
            let zeroes = request(flags, command::WRITE_ZEROES, 1, offset, length);
            let bytes = encoded(Style::Structured, &[(zeroes, &[])]);
            error_of(Style::Structured, &world.exchange(&peer, &bytes))
        };
        assert_eq!(ask(flag::FAST_ZERO, 0, 4096), error);
        assert_eq!(ask(0, 0, 4096), 0, "without the flag it never fails for lack of speed");
        assert_eq!(ask(flag::FAST_ZERO, 100, 100), NOT_FAST, "no whole block");
        model.seen.take();
        assert_eq!(ask(flag::NO_HOLE | flag::FUA, 0, 4096), 0);
        let noted = (0, "zero 4096 unmap false fast false fua".to_owned());
        assert_eq!(*model.seen.borrow(), [noted]);
    }
}

#[test]
fn one_command_covers_more_than_4_gib() {
    let bytes = 1 << 46;
    let (from, length) = (1 << 20, (5 << 30) + 4096);
    let model = Rc::new(Model { bytes, zero: ZeroSupport::Fast, ..Model::default() });
    let world = world(Rc::clone(&model) as _);
    let peer = open(&world, Style::Extended);
    for (command, word) in [(command::TRIM, "discard"), (command::WRITE_ZEROES, "zero")] {
        model.seen.take();
        let ask = request(0, command, 1, from, length);
        let reply = world.exchange(&peer, &encoded(Style::Extended, &[(ask, &[])]));
        assert_eq!(error_of(Style::Extended, &reply), 0);
        let mut at = from;
        for (offset, what) in model.seen.borrow().iter() {
            let mut words = what.split(' ');
            assert_eq!((*offset, words.next()), (at, Some(word)));
            let step: u64 = words.next().unwrap().parse().unwrap();
            assert!(step <= limits::STEP_BYTES);
            at += step;
        }
        assert_eq!(at, from + length, "all of it, and no more");
    }
    let ask = request(0, command::BLOCK_STATUS, 1, 0, 6 << 30);
    let reply = world.exchange(&peer, &encoded(Style::Extended, &[(ask, &[])]));
    assert_eq!(extents(Style::Extended, &reply), [(6 << 30, 3)], "steps are put together");
}

#[test]
fn disk_errors_are_reported_without_internals() {
    let kinds = [
        (ErrorKind::Medium { offset: 700, len: 512 }, IO, Some(700)),
        (ErrorKind::Medium { offset: 5000, len: 512 }, IO, None),
        (ErrorKind::Timeout, IO, None),
        (ErrorKind::Gone, IO, None),
        (ErrorKind::Truncated, IO, None),
        (ErrorKind::Fenced, IO, None),
        (ErrorKind::NoSpace, NO_SPACE, None),
        (ErrorKind::Refused, INVALID, None),
    ];
    let model = Rc::new(Model { bytes: 1 << 20, ..Model::default() });
    let world = world(Rc::clone(&model) as _);
    let peer = open(&world, Style::Structured);
    for (kind, error, at) in kinds {
        model.broken.set(Some(kind));
        let read = encoded(Style::Structured, &[(request(0, command::READ, 1, 512, 512), &[])]);
        let reply = world.exchange(&peer, &read);
        assert!(!reply.windows(6).any(|part| part == b"secret"));
        let (form, _, payload) = &chunks(Style::Structured, &reply)[0];
        assert_eq!(number(&payload[..4]) as u32, error, "{kind:?}");
        match at {
            Some(at) => assert_eq!((*form, number(&payload[payload.len() - 8..])), (0x8002, at)),
            None => assert_eq!(*form, 0x8001),
        }
    }
}

/// A disk that loses unflushed data at a power cut.
struct Volatile {
    cache: MemDisk,
    medium: MemDisk,
}

impl Disk for Volatile {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Work::Write(bufs) = &op.work {
            let disk = if op.fua { &self.medium } else { &self.cache };
            disk.poke(op.offset, &bufs[0]);
        }
        if let Work::Flush = op.work {
            let mut all = vec![0; 1 << 16];
            self.cache.peek(0, &mut all);
            self.medium.poke(0, &all);
        }
        Completion::ready(Done::ok(op.work))
    }

    fn limits(&self) -> Limits {
        Limits::plain(1 << 16)
    }
}

/// CAN_MULTI_CONN is announced, so it must be true: a flush covers the writes of other connections,
/// and is needed.
#[test]
fn a_flush_covers_writes_of_other_connections() {
    let parts = (MemDisk::new(1 << 16), MemDisk::new(1 << 16));
    let disk = Rc::new(Volatile { cache: parts.0, medium: parts.1 });
    let world = world(Rc::clone(&disk) as _);
    let (one, other) = (open(&world, Style::Simple), open(&world, Style::Simple));
    let durable = |offset| {
        let mut byte = [0];
        disk.medium.peek(offset, &mut byte);
        byte[0]
    };
    let write = |flags, offset| {
        let write = request(flags, command::WRITE, 1, offset, 512);
        let reply = world.exchange(&one, &encoded(Style::Simple, &[(write, &[7; 512])]));
        assert_eq!(error_of(Style::Simple, &reply), 0);
    };
    write(0, 0);
    assert_eq!(durable(0), 0, "nothing was asked");
    write(flag::FUA, 512);
    assert_eq!((durable(0), durable(512)), (0, 7), "FUA is for its own bytes");
    let flush = encoded(Style::Simple, &[(request(0, command::FLUSH, 1, 0, 0), &[])]);
    world.exchange(&other, &flush);
    assert_eq!(durable(0), 7, "the flush came by another connection");
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    // Small reads, and large ones whose answers are sent before more is taken.
    for (length, count, room) in [(512, 10_000, 1000), (64 << 10, 4000, 20_000)] {
        let world = world(Rc::new(MemDisk::new(64 << 20)));
        let peer = world.connect_over(room, usize::MAX).unwrap();
        world.transmit(&peer, &[], &[]);
        let read = |cookie| (request(0, command::READ, cookie, 0, length), &[][..]);
        peer.push(&encoded(Style::Simple, &(0..count).map(read).collect::<Vec<_>>()));
        world.run_until_idle();
        // Requests are accepted while they fit into the receive buffer and within the limits; the
        // rest stays in the socket.
        let taken = count - peer.unread_by_peer().div_ceil(28) as u64;
        let most = limits::MAX_REQUESTS as u64 + (64 << 10) / 28;
        assert!(taken <= most, "{taken} requests were taken");
        // Then it reads, and gets all.
        let mut got = 0;
        while got < count * (16 + length) {
            world.run_until_idle();
            let part = peer.pull().len() as u64;
            assert!(part > 0, "it goes on");
            got += part;
        }
        assert_eq!(got, count * (16 + length));
    }
}

#[test]
fn limits_hold_up_requests_inside_the_server() {
    let slow = SlowDisk::new(Rc::new(MemDisk::new(64 << 20)));
    let world = world(Rc::clone(&slow) as _);
    for (length, count, most) in [(512, 1000, limits::MAX_REQUESTS), (4 << 20, 20, 16)] {
        let peer = open(&world, Style::Simple);
        let reads: Vec<_> = (0..count)
            .map(|cookie| (request(0, command::READ, cookie, 0, length), &[][..]))
            .collect();
        world.exchange(&peer, &encoded(Style::Simple, &reads));
        assert_eq!(slow.waiting(), most, "reads of {length} bytes under way");
        slow.answer_all(&world, &mut Dice(1));
        assert_eq!(peer.pull().len() as u64, count * (16 + length));
    }
}

#[test]
fn a_client_that_vanishes_ends_only_itself() {
    let slow = SlowDisk::new(Rc::new(MemDisk::new(1 << 20)));
    let world = world(Rc::clone(&slow) as _);
    let peer = open(&world, Style::Simple);
    let other = open(&world, Style::Simple);
    let whole = request(0, command::WRITE, 1, 0, 512);
    let half = request(0, command::WRITE, 2, 512, 100_000);
    peer.push(&encoded(Style::Simple, &[(whole, &[7; 512]), (half, &[8; 50_000])]));
    world.run_until_idle();
    assert_eq!(slow.waiting(), 1, "the whole write is under way, the half one is not");
    drop(peer);
    world.run_until_idle();
    assert_eq!(world.server.connections(), 2, "started requests are waited for");
    slow.answer_all(&world, &mut Dice(1));
    assert_eq!(world.server.connections(), 1);
    assert!(world.ending().starts_with("Vanished"));
    let read = encoded(Style::Simple, &[(request(0, command::READ, 1, 0, 1024), &[])]);
    other.push(&read);
    slow.answer_all(&world, &mut Dice(1));
    let reply = other.pull();
    assert_eq!(reply[16..528], [7; 512], "finished");
    assert_eq!(reply[528..], [0; 512], "not begun");
}

#[test]
fn an_abandoned_zeroing_stops_at_a_step() {
    let slow = SlowDisk::new(Rc::new(Model { bytes: 1 << 40, ..Model::default() }));
    let world = world(Rc::clone(&slow) as _);
    let peer = open(&world, Style::Extended);
    let zero = request(0, command::WRITE_ZEROES, 1, 0, 1 << 40);
    peer.push(&encoded(Style::Extended, &[(zero, &[]), (request(0, command::READ, 2, 0, 1), &[])]));
    world.run_until_idle();
    drop(peer);
    world.run_until_idle();
    // The read's answer cannot be sent: that is how the server learns of it.
    while slow.waiting() > 0 {
        slow.answer(slow.waiting() - 1);
        world.run_until_idle();
    }
    assert_eq!(world.server.connections(), 0);
}

#[test]
fn disconnect_is_polite() {
    let slow = SlowDisk::new(Rc::new(MemDisk::new(1 << 20)));
    let world = world(Rc::clone(&slow) as _);
    let peer = open(&world, Style::Simple);
    let (read, bye) =
        (request(0, command::READ, 1, 0, 512), request(0, command::DISCONNECT, 0, 0, 0));
    peer.push(&encoded(Style::Simple, &[(read, &[]), (bye, &[])]));
    slow.answer_all(&world, &mut Dice(1));
    assert_eq!(peer.pull().len(), 528, "earlier requests are answered");
    assert!(peer.is_closed());
    assert_eq!(world.ending(), "Finished");
}

/// 512 bytes are asked for.
fn read(cookie: u64) -> Vec<u8> {
    encoded(Style::Simple, &[(request(0, command::READ, cookie, 0, 512), &[])])
}

/// This client's requests are answered, and no others; `over` completes after it has gone.
fn drains_and_closes(
    world: &World,
    slow: &SlowDisk,
    busy: &End,
    mut over: std::pin::Pin<&mut impl Future<Output = ()>>,
) {
    // Linux's client sends it again over its next connection; an error, ESHUTDOWN, too, it would
    // hand to its file system.
    assert_eq!(world.exchange(busy, &read(2)), [], "later requests are not answered");
    assert!(complete(over.as_mut()).is_none());
    slow.answer_all(world, &mut Dice(1));
    assert_eq!(busy.pull().len(), 528);
    assert!(busy.is_closed());
    assert!(complete(over).is_some());
}

#[test]
fn shutdown_finishes_requests_in_flight() {
    let slow = SlowDisk::new(Rc::new(MemDisk::new(1 << 20)));
    let world = world(Rc::clone(&slow) as _);
    let (busy, idle, greeting) =
        (open(&world, Style::Simple), open(&world, Style::Simple), world.connect());
    busy.push(&read(1));
    world.run_until_idle();
    let mut over = Box::pin(world.server.shutdown());
    world.run_until_idle();
    assert!(idle.is_closed() && greeting.is_closed());
    assert!(world.connect_over(10, 10).is_none(), "no new connection is accepted");
    drains_and_closes(&world, &slow, &busy, over.as_mut());
}

#[test]
fn an_export_that_retires_ends_its_own_connections_only() {
    let slow = SlowDisk::new(Rc::new(MemDisk::new(1 << 20)));
    let export = Rc::new(Export::new("disk", Rc::clone(&slow) as _, pool()));
    let other = Rc::new(Export::new("other", Rc::new(MemDisk::new(1 << 20)), pool()));
    let world = World::new(Rc::new(Catalogue::new([Rc::clone(&export), Rc::clone(&other)])));
    let (busy, idle) = (open(&world, Style::Simple), open(&world, Style::Simple));
    let elsewhere = world.connect();
    world.transmit_to("other", &elsewhere, &[], &[]);
    let greeting = world.connect();
    busy.push(&read(1));
    world.run_until_idle();
    let mut over = Box::pin(export.retire());
    world.run_until_idle();
    assert!(
        idle.is_closed() && !greeting.is_closed(),
        "a client without an export may choose another"
    );
    drains_and_closes(&world, &slow, &busy, over.as_mut());
    assert_eq!(world.exchange(&elsewhere, &read(3)).len(), 528, "the other one is served");
    let late = open(&world, Style::Simple);
    assert!(late.is_closed(), "a client with an earlier list is not served");
}

/// The status of a large range on a disk that answers at once: other clients have their turn
/// between its steps.
#[test]
fn a_long_block_status_lets_others_in() {
    let steps = 50;
    let bytes = steps * limits::STATUS_STEP_BYTES;
    let disk = Rc::new(Model { bytes, ..Model::default() });
    let world = world(Rc::clone(&disk) as _);
    let (asking, reading) = (open(&world, Style::Extended), open(&world, Style::Extended));
    let ask = request(0, command::BLOCK_STATUS, 1, 0, bytes);
    asking.push(&encoded(Style::Extended, &[(ask, &[])]));
    reading.push(&encoded(Style::Extended, &[(request(0, command::READ, 2, 0, 512), &[])]));
    world.run_until_idle();
    assert_eq!(extents(Style::Extended, &asking.pull()), [(bytes, 3)]);
    let seen = disk.seen.borrow();
    assert_eq!(seen.len() as u64, steps + 1);
    let read = seen.iter().position(|(_, what)| what == "read").unwrap();
    assert!(read < 5, "the read came after {read} steps");
}
