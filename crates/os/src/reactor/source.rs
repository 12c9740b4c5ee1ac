//! One descriptor polled for readiness: at most one task per direction.
//!
//! Protocol: try the call first; on `EAGAIN` [`Watched::arm`], and return pending. The readiness is
//! looked at when armed, so nothing that came in between is lost. Dropping takes polls back: the
//! kernel would otherwise hold the socket open after its descriptor is closed.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::task::{Context, Waker};

use io_uring::{opcode, types};

use super::ring::{CompletionHandler, Flight, Ring};
use super::{Backend, Reactor};

/// The awaited event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Read,
    Write,
}

const BOTH: [Direction; 2] = [Direction::Read, Direction::Write];

/// A non-blocking descriptor, and the reactor that watches it.
pub(crate) struct Watched {
    fd: OwnedFd,
    reactor: Rc<Reactor>,
    source: Rc<Source>,
    /// Its place in the epoll set; none on a ring, and for sources that are always ready.
    slot: Option<usize>,
}

/// The waiting tasks.
#[derive(Default)]
pub(crate) struct Source {
    wakers: [RefCell<Option<Waker>>; 2],
    flights: [Cell<Option<Flight>>; 2],
}

impl Source {
    /// Wakes both directions: a one-shot event of epoll disarms both, so both ask again.
    pub(crate) fn ready(&self) {
        for waker in &self.wakers {
            let waker = waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl CompletionHandler for Source {
    fn complete(self: Rc<Self>, token: u32, _: i32) {
        let direction = token as usize;
        self.flights[direction].set(None);
        let waker = self.wakers[direction].take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Watched {
    /// Watches `fd`, which the caller has made non-blocking.
    pub(crate) fn new(fd: OwnedFd, reactor: &Rc<Reactor>) -> io::Result<Watched> {
        let source = Rc::new(Source::default());
        let slot = match &reactor.backend {
            Backend::Ring(_) => None,
            Backend::Epoll(epoll) => epoll.add(&source, fd.as_fd())?,
        };
        Ok(Watched { fd, reactor: Rc::clone(reactor), source, slot })
    }

    /// Wakes the task when the descriptor is ready (or broken).
    pub(crate) fn arm(&self, direction: Direction, cx: &mut Context<'_>) {
        {
            let mut waker = self.source.wakers[direction as usize].borrow_mut();
            match &mut *waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => *waker = Some(cx.waker().clone()),
            }
        }
        match (&self.reactor.backend, self.slot) {
            (Backend::Ring(ring), _) => self.poll_in(ring, direction),
            (Backend::Epoll(epoll), Some(slot)) => {
                // One-shot for both: this re-arms other waiters too.
                let waits = |it: Direction| self.source.wakers[it as usize].borrow().is_some();
                let both = BOTH.into_iter().all(waits);
                let wanted = [direction];
                epoll.arm(slot, self.fd.as_fd(), if both { &BOTH[..] } else { &wanted });
            }
            (Backend::Epoll(_), None) => cx.waker().wake_by_ref(),
        }
    }

    /// Queues a one-shot poll, unless one is in the air.
    fn poll_in(&self, ring: &Ring, direction: Direction) {
        let flight = &self.source.flights[direction as usize];
        if flight.get().is_some() || ring.is_closed() {
            return;
        }
        let mask = match direction {
            Direction::Read => libc::POLLIN | libc::POLLRDHUP,
            Direction::Write => libc::POLLOUT,
        };
        let entry = opcode::PollAdd::new(types::Fd(self.fd.as_raw_fd()), mask as u32).build();
        let owner = Rc::clone(&self.source);
        // SAFETY: the entry names no memory.
        flight.set(Some(unsafe { ring.launch(entry, owner, direction as u32) }));
    }
}

impl AsFd for Watched {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        match (&self.reactor.backend, self.slot) {
            (Backend::Ring(ring), _) => {
                for flight in self.source.flights.iter().filter_map(Cell::get) {
                    ring.cancel(flight);
                }
            }
            (Backend::Epoll(epoll), Some(slot)) => epoll.remove(slot, self.fd.as_fd()),
            (Backend::Epoll(_), None) => {}
        }
    }
}
