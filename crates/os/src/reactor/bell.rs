//! How a waker reaches an executor, from its own thread or from another.
//!
//! ```text
//!    Bell.rung ◀── wake()        sleeper: lie_down() ── awake()? ── wait in the kernel ── get_up()
//!        └─ if Sleeper.asleep: write(eventfd)
//! ```
//!
//! A wake on the executor's own thread is one atomic swap and one load: nobody is asleep then.
//! Invariant: `rung` is set before `asleep` is read, and `asleep` before `rung` is looked at, both
//! sequentially consistent: a wake is seen, or it rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// The thread that may be asleep in the kernel, and the descriptor that wakes it.
pub(crate) struct Sleeper {
    asleep: AtomicBool,
    eventfd: OwnedFd,
}

impl Sleeper {
    pub(crate) fn new() -> io::Result<Sleeper> {
        let eventfd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Sleeper { asleep: AtomicBool::new(false), eventfd })
    }

    pub(crate) fn prepare_sleep(&self) {
        self.asleep.store(true, Ordering::SeqCst);
    }

    pub(crate) fn get_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    /// Empties the eventfd after it woke the thread.
    pub(crate) fn silence(&self) {
        let mut count = [0; 8];
        // EAGAIN: another wake was drained. Nothing else can fail on an own eventfd.
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }

    fn wake_sleeper(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            // EAGAIN means that the count is full, so it is readable, so the thread wakes.
            let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
        }
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}

/// One future's waker: remembers that it was woken, and wakes the thread.
pub(crate) struct Bell {
    rung: AtomicBool,
    sleeper: Arc<Sleeper>,
}

impl Bell {
    /// A bell that has rung: its future wants to be polled once.
    pub(crate) fn new(sleeper: &Arc<Sleeper>) -> Arc<Bell> {
        Arc::new(Bell { rung: AtomicBool::new(true), sleeper: Arc::clone(sleeper) })
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.rung.load(Ordering::SeqCst)
    }

    /// True once for each time (or several) it has rung.
    pub(crate) fn answer(&self) -> bool {
        self.is_raised() && self.rung.swap(false, Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            self.sleeper.wake_sleeper();
        }
    }
}
