//! A simulated disk: truth underneath, damage on top.
//!
//! Owns the operations in flight, their latencies, and the damage: unreadable sectors, and lost,
//! hung and slow disks. Damage never changes the true content (`medium.rs`): when it is lifted, the
//! disk has the data that was really written.
//!
//! Operations take effect in any order, at any moment between their submission and their answer. An
//! abandoned operation still completes, and so does its write.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use io::{
    Buf, Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits,
    Op, Ticket, Time, Work, ZeroSupport,
};

mod damage;
mod flights;
mod store;

pub use damage::{Stray, WriteFault};
pub use store::Store;

use crate::clock::SimClock;
use crate::cut::{Cut, Mode};
use crate::mark::Part;
use crate::medium::{Change, Fill, Medium, SECTOR};
use crate::parts::Parts;
use crate::trace::Trace;
use flights::Flights;
use random::Rng;

/// The properties of a disk.
#[derive(Clone, Copy, Debug)]
pub struct Build {
    /// Its size and abilities.
    pub limits: Limits,
    /// Its initial content.
    pub fill: Fill,
    /// The usual time of an operation, in microseconds.
    pub latency_us: u64,
}

/// The faults of a disk.
#[derive(Default)]
struct Damage {
    gone: Cell<bool>,
    /// Operations submitted now get no answer until the hang is over.
    hung: Cell<bool>,
    /// Operations below this number have waited for the end of a hang.
    hung_below: Cell<u64>,
    /// Writes fail.
    write_fault: Cell<Option<WriteFault>>,
    /// The next flush fails, and its data may be lost.
    flush_fault: Cell<bool>,
    /// Flushes are answered, and not done.
    lying: Cell<bool>,
    /// The fate of the next data write.
    stray: Cell<Option<Stray>>,
    /// Before this moment its last fault may be unnoticed.
    shaky_until: Cell<Time>,
    /// Latency is multiplied by this.
    slow: Cell<u64>,
    /// Sectors that cannot be read until they are written.
    unreadable: RefCell<BTreeSet<u64>>,
    /// Of these, the ones that a write does not repair.
    stuck: RefCell<BTreeSet<u64>>,
    /// All but the superblock of this event is lost.
    label: Cell<Option<u64>>,
}

/// Statistics of a disk.
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
    /// Answers without a waiter.
    pub late: u64,
}

struct Flight {
    op: Op,
    ticket: Ticket,
    /// It has taken effect; the answer is in flight.
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
    flights: RefCell<Flights>,
    answers: Completions<Done>,
    counts: Cell<Counts>,
    /// The place of data: only data is misdirected, and stays within it.
    data: RefCell<Range<u64>>,
    /// Writes that have gone astray.
    strayed: Cell<u64>,
    /// It lost its cache while its host continued, and no operation has followed.
    drained: Cell<bool>,
    /// It lost its power: existing handles stay dead.
    unplugged: Cell<bool>,
    /// The store whose space it uses.
    store: Option<Rc<Store>>,
}

/// A write that a crash may take back, or part of it.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Which bytes of the disk.
    pub range: Range<u64>,
    /// Their kind.
    pub part: Part,
    /// Written past the cache: all of it is durable.
    pub durable: bool,
}

/// A hung operation is answered this much later than its successors: less than any deadline.
const STRAGGLE_MICROS: u64 = 20_000;

/// A failed flush has been noticed by then.
const NOTICED_MICROS: u64 = 1_000_000;

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
            answers: Completions::new(),
            counts: Cell::default(),
            data: RefCell::new(0..0),
            strayed: Cell::new(0),
            drained: Cell::new(false),
            unplugged: Cell::new(false),
            store: None,
        }
    }

    /// The same disk, as a file on this store.
    pub fn on_store(self, store: &Rc<Store>) -> SimDisk {
        SimDisk { store: Some(Rc::clone(store)), ..self }
    }

    /// The disk that an agenda entry belongs to.
    pub fn of_entry(entry: u64) -> u64 {
        entry >> FLIGHT_BITS
    }

    /// An entry of the agenda is due: the operation lands, if it has not yet, and is answered.
    pub fn due(&self, entry: u64) {
        let flight = entry & ((1 << FLIGHT_BITS) - 1);
        let found = self.flights.borrow_mut().remove(flight);
        // The process that submitted it may have died meanwhile.
        let Some(mut flight) = found else { return };
        if !flight.landed {
            self.apply(&mut flight);
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
            // A failed read leaves arbitrary content in its buffers.
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
    fn apply(&self, flight: &mut Flight) {
        flight.landed = true;
        if self.damage.gone.get() {
            // Also if it is back before the answer comes.
            flight.result = Err(Error::new(ErrorKind::Gone, self.name.clone()));
            return;
        }
        let offset = flight.op.offset;
        let mut medium = self.medium.borrow_mut();
        if flight.op.work.is_write()
            && let Some(kind) = self.fails(&flight.op)
        {
            flight.result = Err(Error::new(kind, self.name.clone()));
            self.apply_partly(&mut medium, &flight.op);
            return;
        }
        if let Some(kind) = self.lacks_space(&medium, &flight.op) {
            flight.result = Err(Error::new(kind, self.name.clone()));
            return self.land_stored(&mut medium, &flight.op);
        }
        let len = if flight.op.work.is_write() { flight.op.work.len() } else { 0 };
        let holes = medium.holes(offset, len);
        self.take_effect(&mut medium, flight);
        self.take_space(holes, medium.holes(offset, len));
    }

    fn take_effect(&self, medium: &mut Medium, flight: &mut Flight) {
        let (offset, fua) = (flight.op.offset, flight.op.fua);
        match &mut flight.op.work {
            Work::Read(bufs) => flight.result = self.read(medium, offset, bufs),
            Work::Write(bufs) => {
                let mut at = match self.stray(offset, bufs) {
                    Some(Stray::Lost) => return,
                    Some(Stray::Elsewhere(on)) => offset + on,
                    None => offset,
                };
                let offset = at;
                for buf in bufs {
                    match buf.is_stable() {
                        true => medium.write(at, buf, fua),
                        false => medium.write(at, &changed(buf), fua),
                    }
                    at += buf.len() as u64;
                }
                self.repair_written(offset, at - offset);
            }
            Work::Flush if self.damage.flush_fault.take() => {
                let kind = ErrorKind::Medium { offset: 0, len: 0 };
                flight.result = Err(Error::new(kind, format!("{}: flush", self.name)));
                // The run continues with the remaining ones.
                let mut cut = Cut::new(Mode::Subset, false, self.rng.borrow().clone());
                medium.fail_flush(&mut cut);
                self.set_shaky(NOTICED_MICROS);
                self.flights.borrow_mut().cover_less(usize::MAX);
            }
            Work::Flush if self.damage.lying.get() => {}
            Work::Flush => {
                let taken = medium.flush(flight.covers);
                self.flights.borrow_mut().cover_less(taken);
            }
            Work::Zero { len, .. } => {
                medium.zero(offset, *len, fua);
                self.repair_written(offset, *len);
            }
            Work::Discard { len } => self.discard(medium, offset, *len, fua),
            Work::Extents { len, found } => {
                found.clear();
                found.extend(medium.runs(offset, *len).into_iter().map(|(len, stored)| {
                    let kind = if stored { ExtentKind::Data } else { ExtentKind::Hole };
                    Extent { len, kind }
                }));
            }
        }
    }

    fn read(&self, medium: &mut Medium, offset: u64, bufs: &mut [Buf]) -> io::Result<()> {
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

    /// The error of a write that fails.
    fn fails(&self, op: &Op) -> Option<ErrorKind> {
        let (offset, len) = (op.offset, op.work.len());
        match self.damage.write_fault.get()? {
            WriteFault::All => Some(ErrorKind::Medium { offset, len }),
            WriteFault::NoSpace => Some(ErrorKind::NoSpace),
            WriteFault::Within(from, to) => {
                (from..to).contains(&offset).then_some(ErrorKind::Medium { offset, len })
            }
        }
    }

    /// Is this write misdirected? Only a data write that stays on the disk is.
    fn stray(&self, offset: u64, bufs: &[io::SharedBuf]) -> Option<Stray> {
        let stray = self.damage.stray.get()?;
        let len: u64 = bufs.iter().map(|buf| buf.len() as u64).sum();
        let fits = match stray {
            Stray::Lost => true,
            Stray::Elsewhere(on) => on >= len && offset + on + len <= self.data.borrow().end,
        };
        if !(self.data.borrow().contains(&offset) && fits) {
            return None;
        }
        self.damage.stray.set(None);
        self.strayed.set(self.strayed.get() + 1);
        Some(stray)
    }

    /// A write repairs an unreadable sector, unless that is stuck.
    fn repair_written(&self, offset: u64, len: u64) {
        let mut unreadable = self.damage.unreadable.borrow_mut();
        if unreadable.is_empty() {
            return;
        }
        let stuck = self.damage.stuck.borrow();
        let sectors = offset / SECTOR..(offset + len) / SECTOR;
        unreadable.retain(|sector| !sectors.contains(sector) || stuck.contains(sector));
    }

    /// Discarded bytes are zeros if the disk promises that, otherwise arbitrary.
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
        self.repair_written(offset, len);
    }

    /// Sector by sector, a failed write has landed or not.
    fn apply_partly(&self, medium: &mut Medium, op: &Op) {
        let mut rng = self.rng.borrow_mut();
        let bytes: Vec<u8> = match &op.work {
            Work::Write(bufs) => bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat(),
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

    /// A hung operation may take longer than its successors.
    fn extra_delay(&self) -> Duration {
        let mut rng = self.rng.borrow_mut();
        Duration::from_micros(if rng.percent(60) { rng.below(STRAGGLE_MICROS) } else { 0 })
    }

    // ---- crashes
    // ---------------------------------------------------------------------------------

    /// The process that uses the disk dies, with or without a power cut. Each operation in flight
    /// has taken effect, partly or wholly, or never will. Returns the writes that the crash could
    /// choose from.
    pub fn crash(&self, power: bool, cut: &mut Cut, parts: &Parts) -> Vec<Pending> {
        let mut flights = self.flights.borrow_mut().take();
        self.rng.borrow_mut().shuffle(&mut flights);
        let mut medium = self.medium.borrow_mut();
        if !power && self.may_have_fault() {
            // A flush that failed just before the process died: the next process cannot know of it.
            medium.keep_unflushed();
        }
        let mut under_way = 0;
        for flight in &flights {
            // A disk that is gone or full takes nothing any more.
            let dead = self.damage.gone.get()
                || self.fails(&flight.op).is_some()
                || self.lacks_space(&medium, &flight.op).is_some();
            if !flight.landed && !dead {
                under_way += usize::from(leave(&mut medium, &flight.op));
            }
        }
        let pending = medium.pending().map(|(range, durable)| {
            let part = parts.at(range.start);
            Pending { range, part, durable }
        });
        let pending = pending.collect();
        medium.crash(power, under_way, cut, |offset| parts.at(offset));
        drop(medium);
        for mut flight in flights {
            flight.result = Err(Error::new(ErrorKind::Gone, self.name.clone()));
            self.answers
                .finish(flight.ticket, Done { work: flight.op.work, result: flight.result });
        }
        pending
    }

    /// The disk's user is done with it. Hung operations have taken effect, or never will: a
    /// reopened disk has none from before.
    pub fn drop_outstanding(&self) {
        if !self.damage.hung.get() {
            return;
        }
        let flights = self.flights.borrow_mut().take();
        for mut flight in flights {
            let lands = self.rng.borrow_mut().percent(50);
            if !flight.landed && lands {
                self.apply(&mut flight);
            }
            let result = Err(Error::new(ErrorKind::Gone, self.name.clone()));
            self.answers.finish(flight.ticket, Done { work: flight.op.work, result });
        }
    }

    /// The power of this disk alone is cut: it is gone from now on. Has it a cache?
    pub fn lose_power(&self, cut: &mut Cut) -> bool {
        self.medium.borrow_mut().crash(true, 0, cut, |_| Part::Other);
        self.flights.borrow_mut().cover_less(usize::MAX);
        self.damage.gone.set(true);
        self.drained.set(true);
        self.unplugged.set(true);
        self.limits.volatile
    }

    /// True if it lost its cache while its host went on, and did not take part in a crash since.
    pub fn was_drained(&self) -> bool {
        self.drained.get()
    }

    /// The host is up again: this disk's losses are as permanent as those of others.
    pub fn forget_drain(&self) {
        self.drained.set(false);
        self.unplugged.set(false);
    }

    // ---- looking from behind
    // ---------------------------------------------------------------------

    /// Copies bytes out, past all damage.
    pub fn peek(&self, offset: u64, into: &mut [u8]) {
        self.medium.borrow_mut().read(offset, into);
    }

    /// Changes some bytes, wherever they begin, as [`SimDisk::poke`] does.
    pub fn poke_bytes(&self, offset: u64, bytes: &[u8]) {
        let start = offset / SECTOR * SECTOR;
        let end = (offset + bytes.len() as u64).next_multiple_of(SECTOR);
        let mut sectors = vec![0; (end - start) as usize];
        self.peek(start, &mut sectors);
        let at = (offset - start) as usize;
        sectors[at..at + bytes.len()].copy_from_slice(bytes);
        self.poke(start, &sectors);
    }

    /// Changes bytes without the knowledge of the disk's user.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.medium.borrow_mut().write(offset, bytes, true);
    }

    /// Loses these bytes without the knowledge of the disk's user, as a sparse copy does: they are
    /// a hole.
    pub fn punch(&self, offset: u64, len: u64) {
        self.medium.borrow_mut().zero(offset, len, true);
    }

    /// Writes its cache to the medium, as another process's flush does.
    pub fn drain_cache(&self) {
        let mut medium = self.medium.borrow_mut();
        let all = medium.versions();
        medium.flush(all);
    }

    /// Operations without an answer.
    pub fn in_flight(&self) -> usize {
        self.flights.borrow().numbers().count()
    }

    /// Its statistics.
    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    fn entry(&self, flight: u64) -> u64 {
        self.number << FLIGHT_BITS | flight
    }
}

/// Bytes in memory that someone else may change, and has.
fn changed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().map(|byte| !byte).collect()
}

/// Adds an operation's write to a crash's choices. False if it writes nothing.
fn leave(medium: &mut Medium, op: &Op) -> bool {
    match &op.work {
        Work::Write(bufs) => {
            let bytes = bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat();
            medium.leave(op.offset, Change::Bytes(&bytes));
        }
        Work::Zero { len, .. } => medium.leave(op.offset, Change::Zeros(*len)),
        _ => return false,
    }
    true
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
        let number = self.flights.borrow().next();
        let covers = self.medium.borrow().versions();
        let mut flight = Flight { op, ticket, landed: false, result: Ok(()), covers };
        if self.rng.borrow_mut().percent(30) {
            self.apply(&mut flight);
        }
        if !self.damage.hung.get() {
            self.clock.schedule(self.clock.now() + self.latency(), self.entry(number));
        }
        self.flights.borrow_mut().push(flight);
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}
