//! Reads, writes and the other ATA commands, at their edges.

use io::{Completion, Done, Error as DiskError, ErrorKind, Limits, Op};

use super::super::super::wire::SECTOR;
use super::super::super::wire::ata::{error, opcode, status};
use super::super::super::wire::identify::Identity;
use super::super::super::wire::smart::{self, feature};
use super::*;

const GOOD: u8 = status::READY;
const FAILED: u8 = status::READY | status::ERROR;

fn sectors(count: usize, byte: u8) -> Vec<u8> {
    vec![byte; count * SECTOR]
}

#[test]
fn what_is_written_is_read() {
    let (bench, disk) = Bench::on_memory();
    for (tag, count) in [1, 2, 8, 16, 17].into_iter().enumerate() {
        let (header, data) = (request(command::ATA, tag as u32 + 1), sectors(count, count as u8));
        let write = Ata::transfer(true, 8, count as u8);
        let (done, body) = bench.ata(header, write, &data);
        assert_eq!((done.command, done.sectors), (GOOD, 0), "{count} sectors");
        assert!(body.len() < SECTOR, "an answer to a write has no data");
        let mut there = vec![0; data.len()];
        disk.peek(8 * SECTOR as u64, &mut there);
        assert_eq!(there, data);
        let (done, body) = bench.ata(header, Ata::transfer(false, 8, count as u8), &[]);
        assert_eq!((done.command, body), (GOOD, data));
    }
}

#[test]
fn a_read_may_have_data_after_it() {
    // Linux probes paths with such reads.
    let (bench, _) = Bench::on_memory();
    let read = Ata::transfer(false, 0, 16);
    let (done, body) = bench.ata(request(command::ATA, 1), read, &sectors(16, 7));
    assert_eq!((done.command, body), (GOOD, sectors(16, 0)));
}

#[test]
fn counts_that_no_frame_holds_are_refused() {
    let (bench, _) = Bench::on_memory();
    let header = request(command::ATA, 1);
    for count in [0, 18, 255] {
        let read = argument(Ata::transfer(false, 0, count), &[]);
        assert_eq!(bench.error(header, &read), Error::Argument as u8, "{count} sectors");
    }
    let short = argument(Ata::transfer(true, 0, 2), &sectors(1, 1));
    assert_eq!(bench.error(header, &short), Error::Argument as u8, "data is missing");
    bench.ports[0].set_state(io::LinkState { up: true, mtu: 1500 });
    bench.settle();
    assert_eq!(bench.error(header, &argument(Ata::transfer(false, 0, 3), &[])), 2);
    bench.ata(header, Ata::transfer(false, 0, 2), &[]);
}

#[test]
fn the_end_of_the_lun_is_found_at_both_widths() {
    let (bench, _) = Bench::on_memory();
    let end = MIB / SECTOR as u64;
    for command in [opcode::READ, opcode::READ_EXT, opcode::WRITE, opcode::WRITE_EXT] {
        for (first, good) in [(end - 2, true), (end - 1, false), (end, false)] {
            let write = matches!(command, opcode::WRITE | opcode::WRITE_EXT);
            let ata = Ata { command, ..Ata::transfer(write, first, 2) };
            let data = if write { sectors(2, 1) } else { Vec::new() };
            let (done, _) = bench.ata(request(command::ATA, 1 << 31), ata, &data);
            let expected = if good { (GOOD, 0) } else { (FAILED, error::NOT_FOUND) };
            assert_eq!((done.command, done.feature), expected, "{command:#x} at {first}");
        }
    }
    let far = Ata { lba: [0xff; 6], ..Ata::transfer(false, 0, 2) };
    assert_eq!(bench.ata(request(command::ATA, 2), far, &[]).0.feature, error::NOT_FOUND);
    // With 28 bits the upper registers mean nothing.
    let near = Ata { lba: [0, 0, 0, 0xe0, 0xff, 0xff], command: opcode::READ, ..far };
    assert_eq!(bench.ata(request(command::ATA, 3), near, &[]).0.command, GOOD);
}

#[test]
fn broadcasts_are_for_identify_only() {
    let (bench, disk) = Bench::on_memory();
    let everyone = Header { address: Address::ALL, ..request(command::ATA, 1) };
    let (done, body) = bench.ata(everyone, Ata::plain(opcode::IDENTIFY), &[]);
    assert_eq!(done.command, GOOD);
    let identity = Identity::parse(&body).expect("a device");
    assert_eq!((identity.sectors, &*identity.serial), (MIB / 512, "0123"));
    let write = argument(Ata::transfer(true, 0, 1), &sectors(1, 9));
    assert_eq!(bench.error(everyone, &write), Error::Argument as u8);
    let half = Header { address: Address { shelf: 1, slot: 0xff }, ..everyone };
    assert_eq!(bench.error(half, &write), Error::Argument as u8);
    let mut there = sectors(1, 0);
    disk.peek(0, &mut there);
    assert_eq!(there, sectors(1, 0), "nothing was written");
}

#[test]
fn a_rest_that_fills_no_eight_sectors_is_not_served() {
    for (bytes, served) in [(8 * 512, 8), (15 * 512, 8), (16 * 512, 16), (17 * 512, 16)] {
        let bench = Bench::new(Rc::new(MemDisk::new(bytes)), options());
        let (_, body) = bench.ata(request(command::ATA, 1), Ata::plain(opcode::IDENTIFY), &[]);
        assert_eq!(Identity::parse(&body).expect("a device").sectors, served);
    }
}

#[test]
fn a_read_only_lun_refuses_writes_by_their_opcode() {
    let bench = Bench::new(Rc::new(MemDisk::new(MIB)), LunOptions { read_only: true, ..options() });
    for flags in [0x41, 0x40] {
        let write = Ata { flags, ..Ata::transfer(true, 0, 1) };
        let (done, _) = bench.ata(request(command::ATA, 1), write, &sectors(1, 9));
        assert_eq!((done.command, done.feature), (FAILED, error::ABORTED));
    }
    assert_eq!(
        bench.ata(request(command::ATA, 2), Ata::transfer(false, 0, 1), &[]).0.command,
        GOOD
    );
}

#[test]
fn commands_without_data_are_answered() {
    let (bench, _) = Bench::on_memory();
    let header = request(command::ATA, 1);
    for opcode in [opcode::FLUSH, opcode::FLUSH_EXT] {
        assert_eq!(bench.ata(header, Ata::plain(opcode), &[]).0.command, GOOD);
    }
    let power = bench.ata(header, Ata::plain(opcode::CHECK_POWER), &[]).0;
    assert_eq!((power.command, power.sectors), (GOOD, 0xff));
    let unknown = bench.ata(header, Ata::plain(0xc8), &[]).0;
    assert_eq!((unknown.command, unknown.feature), (FAILED, error::ABORTED));
}

#[test]
fn smart_reports_the_health_of_the_array() {
    let (bench, _) = Bench::on_memory();
    let smart = |feature, log| {
        let ata = Ata { feature, lba: [log, 0x4f, 0xc2, 0, 0, 0], ..Ata::plain(opcode::SMART) };
        bench.ata(request(command::ATA, 1), ata, &[])
    };
    for failing in [false, true] {
        *bench.notes.health.borrow_mut() = Health { failing, repaired: 3, ..Health::default() };
        let (done, _) = smart(feature::STATUS, 0);
        let expected = if failing { smart::FAILING } else { smart::SIGNATURE };
        assert_eq!(done.lba[1..3], expected);
        assert_eq!(smart(feature::READ_DATA, 0).1.len(), SECTOR);
        assert_eq!(smart(feature::READ_THRESHOLDS, 0).1.len(), SECTOR);
    }
    assert_eq!(smart(feature::READ_LOG, 0).0.command, GOOD);
    for (feature, log) in [(feature::READ_LOG, 6), (feature::WRITE_LOG, 0), (feature::EXECUTE, 0)] {
        assert_eq!(smart(feature, log).0.feature, error::ABORTED);
    }
    let unsigned = Ata { feature: feature::STATUS, ..Ata::plain(opcode::SMART) };
    assert_eq!(bench.ata(request(command::ATA, 1), unsigned, &[]).0.feature, error::ABORTED);
}

/// A disk whose every operation fails like this.
struct Failing(ErrorKind);

impl Disk for Failing {
    fn submit(&self, op: Op) -> Completion<Done> {
        Completion::ready(Done::failed(op.work, DiskError::new(self.0, "as the test wants")))
    }

    fn limits(&self) -> Limits {
        Limits::plain(MIB)
    }
}

#[test]
fn failures_go_into_the_status_so_that_clients_fail_at_once() {
    let medium = ErrorKind::Medium { offset: 0, len: 512 };
    let fault = status::READY | status::FAULT | status::ERROR;
    let table = [
        (medium, FAILED, error::UNCORRECTABLE),
        (ErrorKind::Refused, FAILED, error::ABORTED),
        (ErrorKind::Gone, fault, error::ABORTED),
        (ErrorKind::Timeout, fault, error::ABORTED),
        (ErrorKind::NoSpace, fault, error::ABORTED),
        (ErrorKind::Fenced, fault, error::ABORTED),
        (ErrorKind::Truncated, fault, error::ABORTED),
    ];
    for (kind, expected, error) in table {
        let bench = Bench::new(Rc::new(Failing(kind)), options());
        let flush = Ata::plain(opcode::FLUSH);
        for (ata, data) in [
            (Ata::transfer(false, 0, 2), vec![]),
            (Ata::transfer(true, 0, 2), sectors(2, 1)),
            (flush, vec![]),
        ] {
            let (done, body) = bench.ata(request(command::ATA, 1), ata, &data);
            assert_eq!((done.command, done.feature), (expected, error), "{kind:?}");
            assert!(body.len() < SECTOR, "no data with an error");
        }
    }
}

/// A disk in memory that counts the writes it was asked to make durable, and the others.
struct Durable(MemDisk, RefCell<[u32; 2]>);

impl Disk for Durable {
    fn submit(&self, op: Op) -> Completion<Done> {
        if op.work.is_write() {
            self.1.borrow_mut()[usize::from(!op.fua)] += 1;
        }
        self.0.submit(op)
    }

    fn limits(&self) -> Limits {
        Limits::plain(MIB)
    }
}

#[test]
fn the_host_changes_when_writes_are_answered_while_clients_are_there() {
    let disk = Rc::new(Durable(MemDisk::new(MIB), RefCell::default()));
    let bench = Bench::new(Rc::clone(&disk) as Rc<dyn Disk>, options());
    let lun = bench.target.lun(SHELF).expect("it is online");
    for (tag, volatile, [durable, others]) in [(1, true, [0, 1]), (2, false, [1, 1])] {
        lun.set_policy(LunPolicy { volatile, ..lun.policy() });
        bench.ata(request(command::ATA, tag), Ata::transfer(true, 0, 1), &sectors(1, 3));
        assert_eq!(*disk.1.borrow(), [durable, others]);
    }
}
