//! Waits for the kernel on behalf of one thread: finished operations, ready descriptors, and a bell
//! that other threads ring.
//!
//! Readiness comes from one-shot polls (`IORING_OP_POLL_ADD`), not from an epoll set inside the
//! ring. Arming costs no system call, because it travels with the turn's one `io_uring_enter`, and
//! a turn needs no second call for epoll. A socket is polled only after it answered `EAGAIN`.
//!
//! Never runs a future; it only wakes. Invariant: between two turns no completion is held back.

pub(crate) mod bell;
mod epoll;
pub(crate) mod ring;
pub(crate) mod source;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bell::Sleeper;
use epoll::Epoll;
use ring::{Ring, Watch};

/// How the kernel is asked.
enum Backend {
    Ring(Rc<Ring>),
    Epoll(Epoll),
}

/// See the module.
pub(crate) struct Reactor {
    backend: Backend,
    sleeper: Arc<Sleeper>,
    spin: Duration,
    misses: std::cell::Cell<u32>,
}

/// Spins that may fail in a row before the reactor spins less; from then on it tries only one in
/// `RETRY_EVERY` turns, until one succeeds.
const RETRY_EVERY: u32 = 64;

impl Reactor {
    /// A reactor on io_uring, with a submission queue of `entries`.
    pub(crate) fn with_ring(entries: u32, spin: Duration) -> io::Result<Reactor> {
        let sleeper = Arc::new(Sleeper::new()?);
        let ring = Rc::new(Ring::new(entries)?);
        Watch::start(&ring, Arc::clone(&sleeper));
        Ok(Reactor::new(Backend::Ring(ring), sleeper, spin))
    }

    /// A reactor on epoll, for kernels and sandboxes that do not permit io_uring.
    pub(crate) fn with_epoll(spin: Duration) -> io::Result<Reactor> {
        let sleeper = Arc::new(Sleeper::new()?);
        let epoll = Epoll::new(&sleeper)?;
        Ok(Reactor::new(Backend::Epoll(epoll), sleeper, spin))
    }

    fn new(backend: Backend, sleeper: Arc<Sleeper>, spin: Duration) -> Reactor {
        Reactor { backend, sleeper, spin, misses: std::cell::Cell::new(0) }
    }

    /// The bell that wakers ring.
    pub(crate) fn sleeper(&self) -> &Arc<Sleeper> {
        &self.sleeper
    }

    /// The ring, where there is one.
    pub(crate) fn ring(&self) -> Option<&Rc<Ring>> {
        match &self.backend {
            Backend::Ring(ring) => Some(ring),
            Backend::Epoll(_) => None,
        }
    }

    /// One turn: submits all requests and delivers completions. If there are none, and nothing is
    /// `awake`, waits for at most `wait_limit` (`None`: for ever).
    pub(crate) fn turn(&self, wait_limit: Option<Duration>, awake: &dyn Fn() -> bool) {
        let hurried = wait_limit == Some(Duration::ZERO) || awake();
        if self.looks_first(hurried) && (self.look() > 0 || hurried) {
            return;
        }
        if hurried || self.spins(wait_limit, awake) {
            return;
        }
        self.sleeper.prepare_sleep();
        // Wakes from here on ring; earlier wakes are seen here.
        let quiet = !awake();
        match &self.backend {
            Backend::Ring(ring) => {
                if quiet {
                    ring.wait(wait_limit);
                }
                // Before completions are delivered: a wake on this thread need not ring.
                self.sleeper.get_up();
                ring.deliver();
            }
            Backend::Epoll(epoll) => {
                let wait_limit = if quiet { wait_limit } else { Some(Duration::ZERO) };
                epoll.wait(wait_limit, &self.sleeper);
            }
        }
    }

    /// Without a spin the look and the sleep are one system call.
    fn looks_first(&self, hurried: bool) -> bool {
        hurried || !self.spin.is_zero() || self.ring().is_some_and(|ring| ring.has_landed())
    }

    fn look(&self) -> usize {
        match &self.backend {
            Backend::Ring(ring) => ring.look(),
            Backend::Epoll(epoll) => epoll.wait(Some(Duration::ZERO), &self.sleeper),
        }
    }

    /// Looks again and again for a short while; true if that found something. Waking up costs more
    /// than most answers take to come, but a spin that mostly fails is a stolen core: see
    /// `RETRY_EVERY`.
    fn spins(&self, wait_limit: Option<Duration>, awake: &dyn Fn() -> bool) -> bool {
        let spin = wait_limit.map_or(self.spin, |wait_limit| wait_limit.min(self.spin));
        let failures = self.misses.get();
        if spin.is_zero() {
            return false;
        }
        if failures >= 8 && !failures.is_multiple_of(RETRY_EVERY) {
            self.misses.set(failures.wrapping_add(1).max(8));
            return false;
        }
        let start = Instant::now();
        loop {
            if awake() || self.peek() > 0 {
                self.misses.set(0);
                return true;
            }
            if start.elapsed() >= spin {
                self.misses.set(failures.wrapping_add(1));
                return false;
            }
            std::hint::spin_loop();
        }
    }

    fn peek(&self) -> usize {
        match &self.backend {
            // The kernel raises a flag in shared memory: no system call until there is work.
            Backend::Ring(ring) if !ring.has_landed() => 0,
            _ => self.look(),
        }
    }

    /// Submits all requests without waiting.
    pub(crate) fn submit(&self) {
        if let Backend::Ring(ring) = &self.backend {
            ring.look();
        }
    }

    /// Ends all operations in flight. No new ones can be started.
    pub(crate) fn close(&self) {
        if let Backend::Ring(ring) = &self.backend {
            ring.close();
        }
    }
}
