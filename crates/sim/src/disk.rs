//! A simulated disk: truth underneath, damage on top.
//!
//! Owns the operations under way, their latencies, and the damage: sectors that give errors, a disk
//! that is gone, that hangs, that is slow. The truth (`medium.rs`) is never changed by damage, so
//! damage can be lifted and what is then there is what was really written.
//!
//! Operations land in any order, at any moment between their submission and their answer; an answer
//! that nobody waits for any more comes all the same, and so does its write.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use io::{
    Buf, Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits,
    Op, Ticket, Work, ZeroSupport,
};

use crate::clock::SimClock;
use crate::medium::{Fill, Medium, SECTOR};
use crate::rng::Rng;
use crate::trace::Trace;

/// What a disk is like.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Its size and abilities.
    pub limits: Limits,
    /// What it holds at first.
    pub fill: Fill,
    /// The usual time of an operation, in microseconds.
    pub latency_us: u64,
}

/// What is wrong with a disk.
#[derive(Default)]
struct Damage {
    gone: Cell<bool>,
    /// Operations submitted now get no answer until the hang is over.
    hung: Cell<bool>,
    /// Every write fails.
    write_error: Cell<bool>,
    /// Latency is multiplied by this.
    slow: Cell<u64>,
    /// Sectors that cannot be read until they are written.
    unreadable: RefCell<BTreeSet<u64>>,
    /// Of these, the ones that writing does not mend.
    stuck: RefCell<BTreeSet<u64>>,
}

/// What a disk has done.
#[derive(Clone, Copy, Default, Debug)]
pub struct Counts {
    /// Operations that were answered.
    pub answered: u64,
    /// Reads, of these.
    pub reads: u64,
    /// Writes, zeroes and discards.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Answers that were errors.
    pub errors: u64,
    /// Answers that nobody waited for.
    pub late: u64,
}

struct Flight {
    op: Op,
    ticket: Ticket,
    /// It has had its effect; the answer is under way.
    landed: bool,
    result: io::Result<()>,
    /// For a flush: how many versions it covers.
    covers: usize,
}

/// See the module's description.
pub struct SimDisk {
    /// Its number in the run.
    pub number: u64,
    /// For people.
    pub name: String,
    limits: Limits,
    latency_us: u64,
    clock: Rc<SimClock>,
    trace: Trace,
    medium: RefCell<Medium>,
    damage: Damage,
    rng: RefCell<Rng>,
    flights: RefCell<BTreeMap<u64, Flight>>,
    next_flight: Cell<u64>,
    answers: Completions<Done>,
    counts: Cell<Counts>,
}

/// Bits of an agenda entry that name the flight; the rest names the disk.
const FLIGHT_BITS: u32 = 40;

impl SimDisk {
    /// Disk `number` of the run with this seed.
    pub fn new(
        number: u64,
        build: Build,
        seed: u64,
        clock: &Rc<SimClock>,
        trace: &Trace,
    ) -> SimDisk {
        let limits = build.limits;
        let damage = Damage::default();
        damage.slow.set(1);
        SimDisk {
            number,
            name: format!("disk{number}"),
            limits,
            latency_us: build.latency_us,
            clock: Rc::clone(clock),
            trace: trace.clone(),
            medium: RefCell::new(Medium::new(build.fill, limits.bytes, limits.volatile)),
            damage,
            rng: RefCell::new(Rng::stream(seed, "disk", number)),
            flights: RefCell::default(),
            next_flight: Cell::new(0),
            answers: Completions::new(),
            counts: Cell::default(),
        }
    }

    /// The disk that an agenda entry belongs to.
    pub fn of_entry(entry: u64) -> u64 {
        entry >> FLIGHT_BITS
    }

    /// An entry of the agenda is due: the operation lands, if it has not yet, and is answered.
    pub fn due(&self, entry: u64) {
        let flight = entry & ((1 << FLIGHT_BITS) - 1);
        let found = self.flights.borrow_mut().remove(&flight);
        // The process that submitted it may have died meanwhile.
        let Some(mut flight) = found else { return };
        if !flight.landed {
            self.land(&mut flight);
        }
        if self.damage.gone.get() {
            flight.result = Err(Error::new(ErrorKind::Gone, self.name.clone()));
        }
        self.answer(flight);
    }

    fn answer(&self, mut flight: Flight) {
        let mut counts = self.counts.get();
        counts.answered += 1;
        match flight.op.work {
            Work::Read(_) | Work::Extents { .. } => counts.reads += 1,
            Work::Flush => counts.flushes += 1,
            _ => counts.writes += 1,
        }
        counts.errors += u64::from(flight.result.is_err());
        counts.late += u64::from(self.answers.is_abandoned(flight.ticket));
        self.counts.set(counts);
        if let (Err(_), Work::Read(bufs)) = (&flight.result, &mut flight.op.work) {
            // What a failed read leaves in its buffers is nobody's business.
            bufs.iter_mut().for_each(|buf| buf.fill(0xee));
        }
        let (kind, ok) = (kind_of(&flight.op.work), flight.result.is_ok());
        let (offset, len) = (flight.op.offset, flight.op.work.len());
        let now = self.clock.now();
        self.trace.event(&[self.number << 8 | kind.0, offset, len, u64::from(ok), now.0]);
        self.trace.detail(now, || {
            let fua = if flight.op.fua { " fua" } else { "" };
            let how =
                flight.result.as_ref().map_or_else(|error| error.to_string(), |()| "ok".into());
            format!("    {}: {} {offset}+{len}{fua}: {how}", self.name, kind.1)
        });
        self.answers.finish(flight.ticket, Done { work: flight.op.work, result: flight.result });
    }

    /// The operation has its effect.
    fn land(&self, flight: &mut Flight) {
        flight.landed = true;
        if self.damage.gone.get() {
            return;
        }
        let (offset, fua) = (flight.op.offset, flight.op.fua);
        let mut medium = self.medium.borrow_mut();
        if flight.op.work.is_write() && self.damage.write_error.get() {
            let len = flight.op.work.len();
            flight.result = Err(Error::new(ErrorKind::Medium { offset, len }, self.name.clone()));
            self.land_partly(&mut medium, &flight.op);
            return;
        }
        match &mut flight.op.work {
            Work::Read(bufs) => flight.result = self.read(&medium, offset, bufs),
            Work::Write(bufs) => {
                let mut at = offset;
                for buf in bufs {
                    medium.write(at, buf, fua);
                    at += buf.len() as u64;
                }
                self.mend(offset, at - offset);
            }
            Work::Flush => {
                let taken = medium.flush(flight.covers);
                for other in self.flights.borrow_mut().values_mut() {
                    other.covers -= taken.min(other.covers);
                }
            }
            Work::Zero { len, .. } => {
                medium.zero(offset, *len, fua);
                self.mend(offset, *len);
            }
            Work::Discard { len } => self.discard(&mut medium, offset, *len, fua),
            Work::Extents { len, found } => {
                found.clear();
                found.extend(medium.runs(offset, *len).into_iter().map(|(len, stored)| {
                    let kind = if stored { ExtentKind::Data } else { ExtentKind::Hole };
                    Extent { len, kind }
                }));
            }
        }
    }

    fn read(&self, medium: &Medium, offset: u64, bufs: &mut [Buf]) -> io::Result<()> {
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let sectors = offset / SECTOR..(offset + len) / SECTOR;
        if let Some(&bad) = self.damage.unreadable.borrow().range(sectors).next() {
            let kind = ErrorKind::Medium { offset: bad * SECTOR, len: SECTOR };
            return Err(Error::new(kind, self.name.clone()));
        }
        let mut at = offset;
        for buf in bufs {
            medium.read(at, buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Writing mends what could not be read, unless it is stuck.
    fn mend(&self, offset: u64, len: u64) {
        let mut unreadable = self.damage.unreadable.borrow_mut();
        if unreadable.is_empty() {
            return;
        }
        let stuck = self.damage.stuck.borrow();
        let sectors = offset / SECTOR..(offset + len) / SECTOR;
        unreadable.retain(|sector| !sectors.contains(sector) || stuck.contains(sector));
    }

    /// What a discard leaves is zeros where the disk promises them, and anything where it does not.
    fn discard(&self, medium: &mut Medium, offset: u64, len: u64, fua: bool) {
        if self.limits.discard_zeroes {
            medium.zero(offset, len, fua);
        } else {
            let mut rng = self.rng.borrow_mut();
            let mut sector = [0; SECTOR as usize];
            for at in (offset..offset + len).step_by(SECTOR as usize) {
                if rng.percent(50) {
                    sector.fill(rng.bits() as u8);
                    medium.write(at, &sector, fua);
                }
            }
        }
        self.mend(offset, len);
    }

    /// Sector by sector, a failed write has landed or not.
    fn land_partly(&self, medium: &mut Medium, op: &Op) {
        let mut rng = self.rng.borrow_mut();
        let bytes: Vec<u8> = match &op.work {
            Work::Write(bufs) => bufs.iter().flat_map(|buf| buf.iter().copied()).collect(),
            Work::Zero { len, .. } => vec![0; *len as usize],
            _ => return,
        };
        for (index, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            if rng.percent(50) {
                medium.write(op.offset + index as u64 * SECTOR, sector, false);
            }
        }
    }

    fn latency(&self) -> Duration {
        let mut rng = self.rng.borrow_mut();
        let base = self.latency_us * self.damage.slow.get();
        let spread = rng.within(base / 2, 2 * base) * 1000 + rng.below(1000);
        let tail = if rng.percent(2) { 8 } else { 1 };
        Duration::from_nanos(spread * tail)
    }

    // ---- damage
    // ----------------------------------------------------------------------------------

    /// From now on nothing is answered but with `Gone`; or the disk is back.
    pub fn set_gone(&self, gone: bool) {
        self.damage.gone.set(gone);
    }

    /// From now on nothing is answered; or everything that waits is.
    pub fn set_hung(&self, hung: bool) {
        self.damage.hung.set(hung);
        if !hung {
            let waiting: Vec<u64> = self.flights.borrow().keys().copied().collect();
            for flight in waiting {
                // An entry that is on the agenda already comes twice; the second finds nothing.
                self.clock.schedule(self.clock.now() + self.latency(), self.entry(flight));
            }
        }
    }

    /// From now on every write fails; or works again.
    pub fn set_write_error(&self, failing: bool) {
        self.damage.write_error.set(failing);
    }

    /// From now on operations take so many times as long.
    pub fn set_slow(&self, factor: u64) {
        self.damage.slow.set(factor.max(1));
    }

    /// These bytes cannot be read until they are written; not even then if `stuck`.
    pub fn set_unreadable(&self, offset: u64, len: u64, stuck: bool) {
        let sectors = offset / SECTOR..(offset + len).div_ceil(SECTOR);
        self.damage.unreadable.borrow_mut().extend(sectors.clone());
        if stuck {
            self.damage.stuck.borrow_mut().extend(sectors);
        }
    }

    /// Lifts all damage; what hung is answered.
    pub fn heal(&self) {
        self.damage.gone.set(false);
        self.damage.write_error.set(false);
        self.damage.slow.set(1);
        self.damage.unreadable.borrow_mut().clear();
        self.damage.stuck.borrow_mut().clear();
        if self.damage.hung.get() {
            self.set_hung(false);
        }
    }

    /// True if something is wrong that may yet cost the array this member.
    pub fn is_sick(&self) -> bool {
        let damage = &self.damage;
        damage.gone.get()
            || damage.hung.get()
            || damage.write_error.get()
            || !damage.unreadable.borrow().is_empty()
    }

    /// Sectors that cannot be read.
    pub fn unreadable(&self) -> usize {
        self.damage.unreadable.borrow().len()
    }

    /// The process that uses the disk dies: each operation under way has landed, partly or wholly,
    /// or never will. The disk itself goes on, its cache too.
    pub fn abandon(&self) {
        let flights = std::mem::take(&mut *self.flights.borrow_mut());
        for mut flight in flights.into_values() {
            if !flight.landed {
                let choice = self.rng.borrow_mut().below(3);
                match choice {
                    0 => self.land(&mut flight),
                    1 => self.land_partly(&mut self.medium.borrow_mut(), &flight.op),
                    _ => {}
                }
            }
            flight.result = Err(Error::new(ErrorKind::Gone, self.name.clone()));
            self.answers
                .finish(flight.ticket, Done { work: flight.op.work, result: flight.result });
        }
    }

    /// The power is cut: as [`SimDisk::abandon`], and what was not flushed may be lost.
    pub fn cut_power(&self) {
        self.abandon();
        self.medium.borrow_mut().cut(&mut self.rng.borrow_mut());
    }

    // ---- looking from behind
    // ---------------------------------------------------------------------

    /// Copies bytes out, past all damage.
    pub fn peek(&self, offset: u64, into: &mut [u8]) {
        self.medium.borrow().read(offset, into);
    }

    /// Changes bytes behind the back of whoever uses the disk.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.medium.borrow_mut().write(offset, bytes, true);
    }

    /// Operations without an answer.
    pub fn in_flight(&self) -> usize {
        self.flights.borrow().len()
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    fn entry(&self, flight: u64) -> u64 {
        self.number << FLIGHT_BITS | flight
    }
}

fn kind_of(work: &Work) -> (u64, &'static str) {
    match work {
        Work::Read(_) => (0, "read"),
        Work::Write(_) => (1, "write"),
        Work::Flush => (2, "flush"),
        Work::Zero { .. } => (3, "zero"),
        Work::Discard { .. } => (4, "discard"),
        Work::Extents { .. } => (5, "extents"),
    }
}

impl Disk for SimDisk {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            let error = Error::refused(format!("{}, offset {}: {fault}", self.name, op.offset));
            return Completion::ready(Done::failed(op.work, error));
        }
        if let Work::Zero { fast: true, .. } = op.work
            && self.limits.zero < ZeroSupport::Fast
        {
            let error = Error::refused(format!("{}: zeros are written here", self.name));
            return Completion::ready(Done::failed(op.work, error));
        }
        let (ticket, completion) = self.answers.start();
        let number = self.next_flight.replace(self.next_flight.get() + 1);
        let covers = self.medium.borrow().versions();
        let mut flight = Flight { op, ticket, landed: false, result: Ok(()), covers };
        if self.rng.borrow_mut().percent(30) {
            self.land(&mut flight);
        }
        if !self.damage.hung.get() {
            self.clock.schedule(self.clock.now() + self.latency(), self.entry(number));
        }
        self.flights.borrow_mut().insert(number, flight);
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
