//! One io_uring: operations take off, and each lands exactly once.
//!
//! **Keyspace.** `user_data` is a flight: slot in the low, generation in the high 32 bits, so that
//! a cancellation can never hit the slot's next tenant. `IGNORED` is the answer to a cancellation.
//!
//! **Ownership.** Memory that the kernel may still access belongs to the flight's owner, which the
//! ring keeps alive until the flight has completed, even if all other references are dropped.
//! Closing cancels all flights and waits. A flight that still does not complete (a hung device) is
//! leaked rather than freed under the kernel.
//!
//! Never looks into an operation's meaning.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use super::bell::Sleeper;

const IGNORED: u64 = u64::MAX;

/// How long closing waits for flights that will not be cancelled.
const CLOSING: Duration = Duration::from_secs(5);

/// The receiver of a flight's completion.
pub(crate) trait CompletionHandler {
    /// `token` as given at take-off; `result` as the kernel gives it: a count, or a negative errno.
    fn complete(self: Rc<Self>, token: u32, result: i32);
}

/// See the module.
pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    flights: RefCell<Flights>,
    /// New completions; kept to reuse its memory.
    landed: RefCell<Vec<(u64, i32)>>,
    /// Completions while the submission queue was full: delivered at the next turn.
    early: RefCell<Vec<(u64, i32)>>,
    closed: Cell<bool>,
}

#[derive(Default)]
struct Flights {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    flight: Option<(Rc<dyn CompletionHandler>, u32)>,
}

/// Names one operation in the kernel, to cancel it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flight(u64);

impl Flights {
    fn take_off(&mut self, owner: Rc<dyn CompletionHandler>, token: u32) -> Flight {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let entry = &mut self.slots[slot as usize];
        entry.flight = Some((owner, token));
        Flight(u64::from(entry.generation) << 32 | u64::from(slot))
    }

    fn complete(&mut self, flight: Flight) -> (Rc<dyn CompletionHandler>, u32) {
        let slot = flight.0 as u32;
        let entry = &mut self.slots[slot as usize];
        assert_eq!(entry.generation, (flight.0 >> 32) as u32, "a flight landed twice");
        // `u32::MAX` would make the last slot's name equal to IGNORED.
        entry.generation = (entry.generation + 1) % u32::MAX;
        self.free.push(slot);
        entry.flight.take().expect("a flight of this generation is in progress")
    }

    fn in_the_air(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl Ring {
    pub(crate) fn new(entries: u32) -> io::Result<Ring> {
        let uring = build(entries)?;
        let params = uring.params();
        if !(params.is_feature_nodrop() && params.is_feature_ext_arg()) {
            let missing = "this kernel's io_uring lacks timeouts or may drop completions";
            return Err(io::Error::new(io::ErrorKind::Unsupported, missing));
        }
        Ok(Ring {
            uring: RefCell::new(uring),
            flights: RefCell::default(),
            landed: RefCell::default(),
            early: RefCell::default(),
            closed: Cell::new(false),
        })
    }

    /// True once nothing may take off any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.get()
    }

    /// Lets at least this many workers of the kernel wait for files on this ring's behalf.
    pub(crate) fn allow_workers(&self, count: u32) {
        // Old kernels lack the setting but have workers too. 0: unchanged.
        let _ = self.uring.borrow().submitter().register_iowq_max_workers(&mut [count, 0]);
    }

    /// Queues an operation for the next turn.
    ///
    /// # Safety
    /// All memory that `entry` names stays valid, and as unshared as the operation needs, until
    /// `owner` gets the completion of `token`.
    pub(crate) unsafe fn launch(
        &self,
        entry: squeue::Entry,
        owner: Rc<dyn CompletionHandler>,
        token: u32,
    ) -> Flight {
        let flight = self.flights.borrow_mut().take_off(owner, token);
        // SAFETY: by the caller.
        unsafe { self.push(entry.user_data(flight.0)) };
        flight
    }

    /// Cancels an operation; it still completes, perhaps with ECANCELED.
    pub(crate) fn cancel(&self, flight: Flight) {
        let entry = opcode::AsyncCancel::new(flight.0).build().user_data(IGNORED);
        // SAFETY: the entry names no memory.
        unsafe { self.push(entry) };
    }

    /// # Safety
    /// As for [`Ring::launch`].
    unsafe fn push(&self, entry: squeue::Entry) {
        let mut uring = self.uring.borrow_mut();
        loop {
            // SAFETY: by the caller.
            if unsafe { uring.submission().push(&entry) }.is_ok() {
                return;
            }
            // The queue is full: hand it over now. The kernel may want room in the other one first.
            check_enter(uring.submit());
            let mut early = self.early.borrow_mut();
            early.extend(uring.completion().map(|entry| (entry.user_data(), entry.result())));
        }
    }

    /// True if a look would find something.
    pub(crate) fn has_landed(&self) -> bool {
        let mut uring = self.uring.borrow_mut();
        !self.early.borrow().is_empty()
            || !uring.completion().is_empty()
            || uring.submission().taskrun()
    }

    /// Submits all requests and delivers completions, without waiting. Returns their number.
    pub(crate) fn look(&self) -> usize {
        {
            let mut uring = self.uring.borrow_mut();
            let queue = uring.submission();
            let call = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
            drop(queue);
            if call {
                check_enter(uring.submit());
            }
        }
        self.deliver()
    }

    /// Submits all requests and waits for a completion, or until the time has passed. Delivers
    /// nothing.
    pub(crate) fn wait(&self, wait_limit: Option<Duration>) {
        let uring = self.uring.borrow();
        match wait_limit {
            None => check_enter(uring.submitter().submit_and_wait(1)),
            Some(wait_limit) => {
                let timeout = types::Timespec::from(wait_limit);
                let args = types::SubmitArgs::new().timespec(&timeout);
                check_enter(uring.submitter().submit_with_args(1, &args));
            }
        }
    }

    /// Delivers all completions to their owners. Returns their number.
    pub(crate) fn deliver(&self) -> usize {
        let mut landed = self.landed.take();
        landed.append(&mut self.early.borrow_mut());
        for entry in self.uring.borrow_mut().completion() {
            landed.push((entry.user_data(), entry.result()));
        }
        let count = landed.len();
        for (user_data, result) in landed.drain(..) {
            if user_data != IGNORED {
                let (owner, token) = self.flights.borrow_mut().complete(Flight(user_data));
                owner.complete(token, result);
            }
        }
        self.landed.replace(landed);
        count
    }

    /// Cancels everything and waits until it has landed.
    pub(crate) fn close(&self) {
        self.closed.set(true);
        let start = Instant::now();
        let flights: Vec<Flight> = {
            let flights = self.flights.borrow();
            let named = |(slot, entry): (usize, &Slot)| {
                let name = u64::from(entry.generation) << 32 | slot as u64;
                entry.flight.is_some().then_some(Flight(name))
            };
            flights.slots.iter().enumerate().filter_map(named).collect()
        };
        for flight in flights {
            self.cancel(flight);
        }
        while self.flights.borrow().in_the_air() > 0 && start.elapsed() < CLOSING {
            self.wait(Some(Duration::from_millis(100)));
            self.deliver();
        }
        for slot in &mut self.flights.borrow_mut().slots {
            // The kernel may still access memory that these own.
            std::mem::forget(slot.flight.take());
        }
    }
}

/// The newest set of flags that this kernel takes: completions are worked off by our own calls only
/// (6.1), announced by a flag (5.19), or neither.
fn build(entries: u32) -> io::Result<IoUring> {
    let room = entries.saturating_mul(4);
    let newest = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_submit_all()
        .setup_cqsize(room)
        .setup_clamp()
        .build(entries);
    match newest {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().setup_cqsize(room).setup_clamp().build(entries)
        }
        built => built,
    }
}

/// Sorts the errors of `io_uring_enter`: most mean "look again next turn".
fn check_enter(result: io::Result<usize>) {
    let Err(error) = result else { return };
    match error.raw_os_error() {
        // Time is up; a signal came; the completion queue must be emptied first; no memory just
        // now.
        Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM) => {}
        _ => panic!("io_uring_enter refuses a ring that it has made: {error}"),
    }
}

/// Keeps one poll on the sleeper's eventfd in the air.
pub(crate) struct Watch {
    ring: Rc<Ring>,
    sleeper: Arc<Sleeper>,
}

impl Watch {
    pub(crate) fn start(ring: &Rc<Ring>, sleeper: Arc<Sleeper>) {
        Rc::new(Watch { ring: Rc::clone(ring), sleeper }).arm();
    }

    fn arm(self: Rc<Self>) {
        let ring = Rc::clone(&self.ring);
        let eventfd = types::Fd(self.sleeper.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(eventfd, libc::POLLIN as u32).build();
        // SAFETY: the entry names no memory; the descriptor is open as long as the watch, its
        // owner.
        unsafe { ring.launch(entry, self, 0) };
    }
}

impl CompletionHandler for Watch {
    fn complete(self: Rc<Self>, _: u32, _: i32) {
        self.sleeper.silence();
        if !self.ring.is_closed() {
            self.arm();
        }
    }
}
