//! Copies of requests, late and early, and overlapping requests.

use std::cell::RefCell;
use std::collections::VecDeque;

use io::{Completion, Completions, Done, Limits, Op, Ticket, Work};

use super::super::super::wire::SECTOR;
use super::super::flights::MAX_FLIGHTS;
use super::*;

/// A disk that carries out its operations when the test says so, on a disk in memory.
struct Held {
    below: MemDisk,
    waiting: RefCell<VecDeque<(Ticket, Op)>>,
    answers: Completions<Done>,
}

impl Held {
    fn new() -> Rc<Held> {
        let (waiting, answers) = (RefCell::default(), Completions::new());
        Rc::new(Held { below: MemDisk::new(MIB), waiting, answers })
    }

    /// What waits: first sector, and whether it writes.
    fn waiting(&self) -> Vec<(u64, bool)> {
        let waiting = self.waiting.borrow();
        let each = |(_, op): &(Ticket, Op)| (op.offset / 512, op.work.is_write());
        waiting.iter().map(each).collect()
    }

    /// Carries out the operation that waits at this place.
    fn release(&self, index: usize) {
        let (ticket, op) = self.waiting.borrow_mut().remove(index).expect("it waits");
        let done = complete(self.below.submit(op)).expect("memory answers at once");
        self.answers.finish(ticket, done);
    }
}

impl Disk for Held {
    fn submit(&self, op: Op) -> Completion<Done> {
        assert!(op.fua || !matches!(op.work, Work::Write(_)), "an answer means durable");
        let (ticket, completion) = self.answers.start();
        self.waiting.borrow_mut().push_back((ticket, op));
        completion
    }

    fn limits(&self) -> Limits {
        Limits::plain(MIB)
    }
}

fn held() -> (Bench, Rc<Held>) {
    let disk = Held::new();
    (Bench::new(Rc::clone(&disk) as Rc<dyn Disk>, options()), disk)
}

/// A tag as Linux counts them.
fn counted(count: u32) -> Header {
    request(command::ATA, count << 16 | 1)
}

fn write(first: u64, byte: u8) -> Vec<u8> {
    argument(Ata::transfer(true, first, 2), &vec![byte; 2 * SECTOR])
}

fn read(first: u64) -> Vec<u8> {
    argument(Ata::transfer(false, first, 2), &[])
}

/// Tags of the answers that have come to a client.
fn tags(link: &MemLink) -> Vec<u32> {
    let frames = Bench::inbox(link);
    frames.iter().map(|frame| Header::parse(frame.head()).expect("a header").tag >> 16).collect()
}

fn byte_at(disk: &Held, sector: u64) -> u8 {
    let mut byte = [0];
    disk.below.peek(sector * SECTOR as u64, &mut byte);
    byte[0]
}

#[test]
fn a_copy_in_flight_is_not_done_twice_and_every_copy_is_answered() {
    let (bench, disk) = held();
    bench.send(counted(1), &write(0, 1));
    bench.send(counted(2), &write(0, 1));
    bench.send(Header { destination: OTHER_PORT, ..from_stranger(counted(3)) }, &write(0, 1));
    assert_eq!(disk.waiting(), [(0, true)]);
    Bench::inbox(&bench.client);
    Bench::inbox(&bench.stranger);
    disk.release(0);
    bench.settle();
    assert_eq!((tags(&bench.client), tags(&bench.stranger)), (vec![1, 2], vec![3]));
    assert_eq!(bench.target.dropped().repeated, 2);
}

#[test]
fn overlapping_writes_are_done_in_order_of_arrival() {
    let (bench, disk) = held();
    bench.send(counted(1), &write(0, 1));
    bench.send(Header { destination: OTHER_PORT, ..counted(2) }, &write(1, 2));
    bench.send(counted(3), &write(2, 3));
    bench.send(counted(4), &write(8, 4));
    // The third overlaps only the second, and waits with it.
    assert_eq!(disk.waiting(), [(0, true), (8, true)]);
    disk.release(1);
    disk.release(0);
    bench.settle();
    assert_eq!(disk.waiting(), [(1, true)]);
    disk.release(0);
    bench.settle();
    disk.release(0);
    bench.settle();
    assert_eq!((0..4).map(|at| byte_at(&disk, at)).collect::<Vec<_>>(), [1, 2, 3, 3]);
}

#[test]
fn a_read_after_a_write_does_not_join_a_read_before_it() {
    let (bench, disk) = held();
    bench.send(counted(1), &read(0));
    bench.send(counted(2), &read(0));
    assert_eq!(disk.waiting().len(), 1, "the second is a copy");
    bench.send(counted(3), &write(1, 7));
    disk.release(1);
    bench.settle();
    bench.send(counted(4), &read(0));
    assert_eq!(disk.waiting(), [(0, false), (0, false)]);
    Bench::inbox(&bench.client);
    disk.release(1);
    bench.settle();
    let frames = Bench::inbox(&bench.client);
    assert_eq!(frames[0].body()[SECTOR], 7, "the written sector");
}

#[test]
fn a_read_after_a_write_does_not_join_a_read_during_it() {
    let (bench, disk) = held();
    bench.send(counted(1), &write(1, 7));
    bench.send(counted(2), &read(0));
    disk.release(0);
    bench.settle();
    // The disk may have carried the read out before the write.
    bench.send(counted(3), &read(0));
    assert_eq!(disk.waiting(), [(0, false), (0, false)]);
}

#[test]
fn a_late_copy_does_not_undo_a_later_write() {
    let (bench, disk) = held();
    let done = |header: Header, argument: &[u8]| {
        bench.send(header, argument);
        while !disk.waiting().is_empty() {
            disk.release(0);
            bench.settle();
        }
    };
    done(counted(2), &write(0, 1));
    done(counted(3), &write(0, 2));
    // The first copy of the first write, overtaken on its way; then a copy that the wire made.
    done(counted(1), &write(0, 1));
    assert_eq!(byte_at(&disk, 0), 2);
    done(counted(2), &write(0, 1));
    assert_eq!(byte_at(&disk, 0), 2);
    assert_eq!(tags(&bench.client).len(), 2 + 4, "announcements, and all are answered");
    assert_eq!(bench.target.dropped().late, 2);
    // The old value, written anew, is a write.
    done(counted(4), &write(0, 1));
    assert_eq!(byte_at(&disk, 0), 1);
    // Overtaken, and not done before: it may be the only copy.
    done(counted(6), &write(8, 6));
    done(counted(5), &write(16, 5));
    assert_eq!((byte_at(&disk, 8), byte_at(&disk, 16)), (6, 5));
}

#[test]
fn a_late_copy_that_arrives_during_a_later_write_does_not_undo_it() {
    let (bench, disk) = held();
    let release = || {
        disk.release(0);
        bench.settle();
    };
    bench.send(counted(2), &write(0, 1));
    release();
    bench.send(counted(3), &write(0, 2));
    bench.send(counted(1), &write(0, 1));
    bench.send(counted(4), &write(1, 4));
    assert_eq!(disk.waiting(), [(0, true)], "all overlap");
    release();
    assert_eq!(disk.waiting(), [(1, true)], "the late copy is answered and not done");
    release();
    assert_eq!((byte_at(&disk, 0), byte_at(&disk, 1)), (2, 4));
    assert_eq!(bench.target.dropped().late, 1);
    // The old value, written anew behind another write, is a write.
    bench.send(counted(5), &write(0, 5));
    bench.send(counted(6), &write(0, 1));
    release();
    release();
    assert_eq!(byte_at(&disk, 0), 1);
}

#[test]
fn another_clients_old_tag_is_no_late_copy() {
    let (bench, disk) = held();
    for (header, byte) in [(counted(5), 1), (from_stranger(counted(9)), 2), (counted(6), 1)] {
        bench.send(header, &write(0, byte));
        disk.release(0);
        bench.settle();
        assert_eq!(byte_at(&disk, 0), byte);
    }
}

#[test]
fn a_failed_write_is_not_remembered_as_done() {
    let (bench, disk) = held();
    bench.send(counted(1), &write(0, 1));
    let (ticket, op) = disk.waiting.borrow_mut().pop_front().expect("it waits");
    let error = io::Error::new(io::ErrorKind::Timeout, "as the test wants");
    disk.answers.finish(ticket, Done::failed(op.work, error));
    bench.settle();
    bench.send(counted(1), &write(0, 1));
    assert_eq!(disk.waiting(), [(0, true)], "the repeated write is done");
}

#[test]
fn overload_is_answered_with_silence() {
    for (count, dropped) in [(MAX_FLIGHTS - 1, 0), (MAX_FLIGHTS, 0), (MAX_FLIGHTS + 1, 1)] {
        let (bench, disk) = held();
        Bench::inbox(&bench.client);
        for number in 0..count as u64 {
            bench.send(counted(number as u32 + 1), &read(2 * number));
        }
        assert_eq!(disk.waiting().len(), count - dropped);
        assert_eq!(bench.target.dropped().overload, dropped as u64);
        assert!(Bench::inbox(&bench.client).is_empty(), "no error for being busy");
        disk.release(0);
        bench.settle();
        bench.send(counted(count as u32 + 1), &read(2 * count as u64));
        assert_eq!(disk.waiting().len(), (count - dropped).min(MAX_FLIGHTS));
    }
}

#[test]
fn going_offline_waits_for_requests_in_flight() {
    let (bench, disk) = held();
    bench.send(counted(1), &write(0, 1));
    let mut offline = pin!(bench.target.offline(SHELF));
    let mut poll = || complete(poll_fn(|cx| Poll::Ready(offline.as_mut().poll(cx).is_ready())));
    assert_eq!(poll(), Some(false));
    disk.release(0);
    bench.settle();
    assert_eq!(poll(), Some(true));
}
