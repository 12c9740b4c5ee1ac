//! A test bench: disks that answer on command, time that leaps, and arrays on them.
//!
//! Unlike the random `world.rs`, everything here is ordered: an operation is answered at once or,
//! while the bench *records*, when no task is ready, one at a time, first come, first served. The
//! log holds all events, so that every moment can be rebuilt (`exhaust.rs`), and any single
//! operation can be made to fail (`sweep.rs`).
//!
//! ```text
//!    Image ── pages that never change, shared ──▶ Tray ◀── pages written since, its own
//! ```
//!
//! Invariant: nothing here depends on chance, addresses or the real time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use array::{Array, Host};
use io::{
    Clock, Completion, Completions, Disk, Done, Error, ErrorKind, Extent, ExtentKind, Limits, Op,
    Ticket, Time, Work, ZeroSupport,
};
use metadata::assemble::Candidate;

use crate::clock::{Due, SimClock};
use random::mix;

pub mod content;
mod image;

pub use image::{Image, PAGE};

use image::Contents;

/// More polls than this without an end are a loop.
const ROUNDS_MAX: u64 = 1_000_000;

/// Something in the log.
#[derive(Clone, Debug)]
pub enum Event {
    /// An operation was sent to a disk. Operations are numbered as they come.
    Sent {
        /// Its number.
        op: u64,
        /// To which disk.
        disk: usize,
        /// Its effect on the disk.
        effect: Effect,
    },
    /// An operation was done, and answered.
    Landed {
        /// Its number.
        op: u64,
    },
    /// A note of the array's user, as a number.
    Note(u64),
}

/// The effect of an operation on a disk.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Nothing.
    Read,
    /// It writes these bytes there, past the cache if `fua`.
    Write {
        /// Where.
        offset: u64,
        /// The content.
        bytes: Rc<[u8]>,
        /// Durable when answered.
        fua: bool,
    },
    /// All writes that were answered are durable.
    Flush,
}

/// The fault of operations chosen by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The number of the first operation to fail.
    pub op: u64,
    /// It and all later ones of that disk; otherwise it alone.
    pub for_ever: bool,
    /// How.
    pub how: How,
}

/// How an operation fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// The medium has an error; of a write, nothing has happened.
    Medium,
    /// The disk is gone.
    Gone,
    /// No space; on writes only, others succeed.
    NoSpace,
    /// No answer comes, ever, and nothing has happened.
    Hang,
}

struct Queued {
    op: u64,
    disk: usize,
    work: Op,
    ticket: Ticket,
}

/// The shared state of all disks of a bench.
#[derive(Default)]
struct Shared {
    /// Operations wait for their turn, and are logged.
    recording: Cell<bool>,
    queue: RefCell<VecDeque<Queued>>,
    log: RefCell<Vec<Event>>,
    ops: Cell<u64>,
    fault: Cell<Option<Fault>>,
    /// The disk that a fault has struck.
    fault_hit: Cell<Option<usize>>,
    /// The kind of the failed operation.
    site: RefCell<Option<String>>,
    held: RefCell<Vec<Queued>>,
}

/// A disk of a stand.
pub struct Tray {
    /// Its number.
    pub number: usize,
    limits: Limits,
    contents: RefCell<Contents>,
    gone: Cell<bool>,
    shared: Rc<Shared>,
    answers: Completions<Done>,
}

impl Tray {
    /// Copies bytes out from behind.
    pub fn peek(&self, offset: u64, into: &mut [u8]) {
        self.contents.borrow().read(offset, into);
    }

    /// Changes bytes from behind.
    pub fn poke(&self, offset: u64, bytes: &[u8]) {
        self.contents.borrow_mut().write(offset, bytes);
    }

    /// From now on it has this content, and is present.
    pub fn load(&self, image: &Rc<Image>) {
        self.contents.borrow_mut().reset(Rc::clone(image));
        self.gone.set(false);
    }

    /// Its content, as an image.
    pub fn image(&self) -> Image {
        let contents = self.contents.borrow();
        let mut image = (*contents.under).clone();
        for &page in &contents.touched {
            if let Some(bytes) = &contents.over[page] {
                image.write((page * PAGE) as u64, &bytes[..]);
            }
        }
        image
    }

    /// It is gone, or back.
    pub fn set_gone(&self, gone: bool) {
        self.gone.set(gone);
    }

    fn perform(&self, mut op: Op) -> Done {
        if self.gone.get() {
            let error = Error::new(ErrorKind::Gone, format!("disk{}", self.number));
            return Done::failed(op.work, error);
        }
        let mut contents = self.contents.borrow_mut();
        let mut at = op.offset;
        match &mut op.work {
            Work::Read(bufs) => {
                for buf in bufs {
                    contents.read(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Write(bufs) => {
                for buf in bufs {
                    contents.write(at, buf);
                    at += buf.len() as u64;
                }
            }
            Work::Flush => {}
            Work::Zero { len, .. } | Work::Discard { len } => contents.zero(at, *len),
            Work::Extents { len, found } => {
                found.clear();
                found.push(Extent { len: *len, kind: ExtentKind::Data });
            }
        }
        Done::ok(op.work)
    }

    fn effect(op: &Op) -> Effect {
        match &op.work {
            Work::Read(_) | Work::Extents { .. } => Effect::Read,
            Work::Flush => Effect::Flush,
            Work::Write(bufs) => {
                let bytes: Vec<&[u8]> = bufs.iter().map(|buf| &**buf).collect();
                Effect::Write { offset: op.offset, bytes: bytes.concat().into(), fua: op.fua }
            }
            Work::Zero { len, .. } | Work::Discard { len } => {
                let bytes = vec![0; *len as usize].into();
                Effect::Write { offset: op.offset, bytes, fua: op.fua }
            }
        }
    }

    /// Is this operation to fail?
    fn fault_for(&self, number: u64, op: &Op) -> Option<How> {
        let fault = self.shared.fault.get()?;
        let hit = match self.shared.fault_hit.get() {
            None => number == fault.op,
            Some(disk) => fault.for_ever && disk == self.number,
        };
        if !hit {
            return None;
        }
        if self.shared.fault_hit.get().is_none() {
            self.shared.fault_hit.set(Some(self.number));
            let (what, len) = (describe(&op.work), op.work.len());
            let site = format!("disk{}: {what} {}+{len}", self.number, op.offset);
            *self.shared.site.borrow_mut() = Some(site);
        }
        let wanted = fault.how != How::NoSpace || op.work.is_write();
        wanted.then_some(fault.how)
    }

    fn fail(&self, how: How, op: Op) -> Done {
        let kind = match how {
            How::Medium => ErrorKind::Medium { offset: op.offset, len: op.work.len() },
            How::NoSpace => ErrorKind::NoSpace,
            How::Gone | How::Hang => ErrorKind::Gone,
        };
        Done::failed(op.work, Error::new(kind, format!("disk{}", self.number)))
    }
}

/// The name of an operation.
pub fn describe(work: &Work) -> &'static str {
    match work {
        Work::Read(_) => "read",
        Work::Write(_) => "write",
        Work::Flush => "flush",
        Work::Zero { .. } => "zero",
        Work::Discard { .. } => "discard",
        Work::Extents { .. } => "extents",
    }
}

impl Disk for Tray {
    fn submit(&self, op: Op) -> Completion<Done> {
        if let Some(fault) = self.limits.check(&op) {
            return Completion::ready(Done::failed(op.work, Error::refused(fault)));
        }
        let shared = &self.shared;
        let number = shared.ops.replace(shared.ops.get() + 1);
        match self.fault_for(number, &op) {
            Some(How::Hang) => {
                let (ticket, completion) = self.answers.start();
                let held = Queued { op: number, disk: self.number, work: op, ticket };
                shared.held.borrow_mut().push(held);
                return completion;
            }
            Some(how) => return Completion::ready(self.fail(how, op)),
            None => {}
        }
        if !shared.recording.get() {
            return Completion::ready(self.perform(op));
        }
        let effect = Tray::effect(&op);
        shared.log.borrow_mut().push(Event::Sent { op: number, disk: self.number, effect });
        let (ticket, completion) = self.answers.start();
        let queued = Queued { op: number, disk: self.number, work: op, ticket };
        shared.queue.borrow_mut().push_back(queued);
        completion
    }

    fn limits(&self) -> Limits {
        self.limits
    }
}

/// Something has happened: it is worth polling again.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Disks, time, and their users.
pub struct Stand {
    /// Virtual time.
    pub clock: Rc<SimClock>,
    /// The disks.
    pub trays: Vec<Rc<Tray>>,
    shared: Rc<Shared>,
    random: Rc<Cell<u64>>,
    flag: Arc<Flag>,
    waker: Waker,
}

/// An array that runs on a stand.
pub struct Running {
    /// The array.
    pub array: Array,
    run: RefCell<Option<Pin<Box<dyn Future<Output = ()>>>>>,
}

impl Running {
    /// This array, from now on.
    pub fn new(array: Array) -> Running {
        let run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(array.run());
        Running { array, run: RefCell::new(Some(run)) }
    }
}

/// A deadlock, or an endless run: nothing is due and a task still waits, or a task never ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hang;

impl Stand {
    /// This many disks of this many zeros each.
    pub fn new(disks: usize, bytes: u64) -> Stand {
        let shared = Rc::new(Shared::default());
        let limits = Limits { zero: ZeroSupport::Fast, ..Limits::plain(bytes) };
        let tray = |number| {
            Rc::new(Tray {
                number,
                limits,
                contents: RefCell::new(Contents::new(bytes)),
                gone: Cell::new(false),
                shared: Rc::clone(&shared),
                answers: Completions::new(),
            })
        };
        let flag = Arc::new(Flag(AtomicBool::new(true)));
        let waker = Waker::from(Arc::clone(&flag));
        Stand {
            clock: Rc::new(SimClock::new()),
            trays: (0..disks).map(tray).collect(),
            shared: Rc::clone(&shared),
            random: Rc::new(Cell::new(1)),
            flag,
            waker,
        }
    }

    /// Resets everything except the disks' content: time, chance, faults, log.
    pub fn rewind(&mut self) {
        self.clock = Rc::new(SimClock::new());
        self.random.set(1);
        self.shared.recording.set(false);
        self.shared.queue.borrow_mut().clear();
        self.shared.log.borrow_mut().clear();
        self.shared.ops.set(0);
        self.set_fault(None);
    }

    /// The disks that are not in `lost`, as candidates of an assembly.
    pub fn candidates(&self, lost: layout::SlotSet) -> Vec<Candidate> {
        let there = |tray: &&Rc<Tray>| !lost.contains(layout::Slot::new(tray.number));
        let candidate = |tray: &Rc<Tray>| {
            Candidate::new(Rc::clone(tray) as Rc<dyn Disk>, format!("disk{}", tray.number))
        };
        self.trays.iter().filter(there).map(candidate).collect()
    }

    /// The clock as the engine wants it.
    pub fn clock(&self) -> Rc<dyn Clock> {
        Rc::clone(&self.clock) as Rc<dyn Clock>
    }

    /// Random bytes that are the same each time.
    pub fn random(&self) -> metadata::commit::Random {
        let state = Rc::clone(&self.random);
        Rc::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                state.set(mix(state.get()));
                *byte = state.get() as u8;
            }
        })
    }

    /// The parameters of arrays here: times short enough for a test.
    pub fn host(&self) -> Host {
        let mut host = Host::new(self.clock());
        host.bounds.clean_delay = std::time::Duration::from_millis(2);
        host.bounds.region_linger = std::time::Duration::from_millis(5);
        host.bounds.deadline = std::time::Duration::from_millis(100);
        host.bounds.ahead_bytes = 0;
        // Read at each assembly.
        host.bounds.log_bytes = 80 << 10;
        host
    }

    /// From now on operations wait for their turn and are logged; or are done at once.
    pub fn record(&self, recording: bool) {
        self.shared.recording.set(recording);
    }

    /// Adds a note to the log.
    pub fn note(&self, note: u64) {
        self.shared.log.borrow_mut().push(Event::Note(note));
    }

    /// The log.
    pub fn take_log(&self) -> Vec<Event> {
        self.shared.log.take()
    }

    /// How many operations disks were sent.
    pub fn ops(&self) -> u64 {
        self.shared.ops.get()
    }

    /// Selects the failing operation; forgets the last hit.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.shared.fault.set(fault);
        self.shared.fault_hit.set(None);
        self.shared.site.replace(None);
        let held = self.shared.held.take();
        for Queued { disk, work, ticket, .. } in held {
            let tray = &self.trays[disk];
            tray.answers.finish(ticket, tray.fail(How::Gone, work));
        }
    }

    /// The disk hit by the fault, and the operation.
    pub fn fault_hit(&self) -> Option<(usize, String)> {
        Some((self.shared.fault_hit.get()?, self.shared.site.borrow().clone()?))
    }

    /// Waits for this many virtual microseconds.
    pub fn pause(&self, micros: u64) -> Completion<()> {
        let until = self.clock.now() + std::time::Duration::from_micros(micros);
        self.clock.sleep_until(until)
    }

    /// Runs an array, if there is one, until the future ends.
    ///
    /// # Errors
    /// If it never would.
    pub fn run<T>(
        &self,
        running: Option<&Running>,
        main: impl Future<Output = T>,
    ) -> Result<T, Hang> {
        let mut main = pin!(main);
        let mut cx = Context::from_waker(&self.waker);
        self.flag.0.store(true, Ordering::Relaxed);
        for _ in 0..ROUNDS_MAX {
            if !self.flag.0.swap(false, Ordering::Relaxed) && !self.step() {
                return Err(Hang);
            }
            if let Poll::Ready(value) = main.as_mut().poll(&mut cx) {
                return Ok(value);
            }
            if let Some(running) = running {
                // Taken out: an array that panics must not be polled again.
                let run = running.run.take();
                if let Some(mut run) = run
                    && run.as_mut().poll(&mut cx).is_pending()
                {
                    running.run.replace(Some(run));
                }
            }
        }
        Err(Hang)
    }

    /// No task is ready: the next operation is answered, or else time leaps.
    fn step(&self) -> bool {
        let next = self.shared.queue.borrow_mut().pop_front();
        let Some(Queued { op, disk, work, ticket }) = next else {
            return matches!(self.clock.advance_to_next(), Due::Sleepers);
        };
        let tray = &self.trays[disk];
        self.shared.log.borrow_mut().push(Event::Landed { op });
        tray.answers.finish(ticket, tray.perform(work));
        true
    }

    /// When it is.
    pub fn now(&self) -> Time {
        self.clock.now()
    }
}
