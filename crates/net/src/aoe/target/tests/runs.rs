//! Adjacent requests that arrive together.

use std::cell::RefCell;

use io::{Completion, Done, Error as DiskError, ErrorKind, Limits, Op, Work};

use super::super::super::wire::SECTOR;
use super::super::super::wire::ata::{error, status};
use super::*;

/// A disk in memory that notes what it is asked for, with a bad sector.
struct Noting {
    below: MemDisk,
    bad: Option<u64>,
    /// First sector, sectors, and whether it writes.
    asked: RefCell<Vec<(u64, u64, bool)>>,
}

impl Disk for Noting {
    fn submit(&self, op: Op) -> Completion<Done> {
        let (first, sectors) = (op.offset / SECTOR as u64, op.work.len() / SECTOR as u64);
        self.asked.borrow_mut().push((first, sectors, op.work.is_write()));
        assert!(op.fua || !matches!(op.work, Work::Write(_)), "an answer means durable");
        if self.bad.is_some_and(|bad| (first..first + sectors).contains(&bad)) {
            let medium = ErrorKind::Medium { offset: op.offset, len: SECTOR as u64 };
            return Completion::ready(Done::failed(op.work, DiskError::new(medium, "bad")));
        }
        self.below.submit(op)
    }

    fn limits(&self) -> Limits {
        Limits::plain(MIB)
    }
}

fn noting(bad: Option<u64>) -> (Bench, Rc<Noting>) {
    let disk = Rc::new(Noting { below: MemDisk::new(MIB), bad, asked: RefCell::default() });
    (Bench::new(Rc::clone(&disk) as Rc<dyn Disk>, options()), disk)
}

/// Sends requests of these first sectors, of `count` sectors each, in one batch; returns the
/// answers in the order of the requests.
fn together(bench: &Bench, write: bool, count: u8, firsts: &[u64]) -> Vec<(Ata, Vec<u8>)> {
    Bench::inbox(&bench.client);
    for (tag, &first) in firsts.iter().enumerate() {
        let data = if write { vec![first as u8; usize::from(count) * SECTOR] } else { Vec::new() };
        let mut bytes = vec![0; HEADER_BYTES];
        request(command::ATA, tag as u32).put(&mut bytes);
        bytes.extend(argument(Ata::transfer(write, first, count), &data));
        bench.ports[0].deliver(&bytes);
    }
    bench.settle();
    let mut answers = Bench::inbox(&bench.client);
    answers.sort_by_key(|frame| Header::parse(frame.head()).expect("a header").tag);
    assert_eq!(answers.len(), firsts.len());
    let ata = |frame: &Frame| Ata::parse(&frame.head()[HEADER_BYTES..]).expect("an argument");
    answers.iter().map(|frame| (ata(frame), frame.body().to_vec())).collect()
}

#[test]
fn adjacent_requests_go_to_the_disk_as_one() {
    let (bench, disk) = noting(None);
    let firsts = [8, 42, 10, 12, 40, 90];
    together(&bench, true, 2, &firsts);
    assert_eq!(disk.asked.take(), [(8, 6, true), (40, 4, true), (90, 2, true)]);
    let answers = together(&bench, false, 2, &firsts);
    assert_eq!(disk.asked.take(), [(8, 6, false), (40, 4, false), (90, 2, false)]);
    for ((ata, data), first) in answers.into_iter().zip(firsts) {
        assert_eq!(ata.command, status::READY);
        assert_eq!(data, vec![first as u8; 2 * SECTOR], "sector {first}");
    }
}

#[test]
fn runs_are_bounded() {
    let (bench, disk) = noting(None);
    let firsts: Vec<u64> = (0..10).map(|at| at * 16).collect();
    together(&bench, false, 16, &firsts);
    // 64 KiB, and the rest.
    assert_eq!(disk.asked.take(), [(0, 128, false), (128, 32, false)]);
}

#[test]
fn a_bad_sector_fails_only_its_own_request() {
    for write in [false, true] {
        let (bench, disk) = noting(Some(11));
        let answers = together(&bench, write, 2, &[8, 10, 12]);
        let failed = |(ata, _): &(Ata, Vec<u8>)| (ata.command, ata.feature);
        let outcomes: Vec<_> = answers.iter().map(failed).collect();
        let (good, bad) = (status::READY, status::READY | status::ERROR);
        assert_eq!(outcomes, [(good, 0), (bad, error::UNCORRECTABLE), (good, 0)]);
        let asked = disk.asked.take();
        assert_eq!(asked, [(8, 6, write), (8, 2, write), (10, 2, write), (12, 2, write)]);
    }
}
